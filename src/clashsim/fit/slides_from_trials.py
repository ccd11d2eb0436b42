"""Fit a slide model to the slides after recorded impacts, and describe the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import ClashError, ParamError
from clashsim.core.impacts import MotionBefore

if TYPE_CHECKING:
    from clashsim.core.scene import Scene
    from clashsim.data.segmentation.result import MeasuredImpact
    from clashsim.slides.identify import SlideFit
    from clashsim.slides.law import SlideModel
    from clashsim.slides.slide import Slide

_LAG = 0.015  # s from the impact to the start of the slide, when the bodies have separated
_MIN_SLIDES = 5  # that `fit_slides` needs
_LEVEL = 0.99  # a plane is level if at least this share of gravity is normal to it
_GRAVITY = 9.81  # m/s^2, for scenes without gravity
_REST_SAMPLES = 5  # at the end of a slide, whose median is the pose at rest


def level_gravity(scene: Scene) -> float | None:
    """Gravity (m/s^2) of a scene in a level plane; None for scenes in space or tilted planes."""
    vector = np.asarray(scene.base.opt.gravity, float)
    gravity = float(np.linalg.norm(vector)) or _GRAVITY  # planar scenes may have none
    if scene.plane is None:
        return None
    if vector.any() and abs(scene.plane[2] @ vector) < _LEVEL * gravity:
        return None
    return gravity


def fit_slides_of_impacts(
    scene: Scene, fitted: Sequence[MeasuredImpact], held_out: Sequence[MeasuredImpact]
) -> tuple[SlideFit | None, dict[str, Any]]:
    """Fit a slide model to the slides after impacts.

    Args:
        scene: The scene.
        fitted: The impacts whose slides are fitted.
        held_out: Impacts whose slides are only used to test the model.

    Returns:
        The fit, and a dictionary with a sentence ("words") and the errors of the poses at rest that
        are predicted for the held-out slides. The fit is None if there are too few slides or the
        ground is not an infinite plane; the sentence then gives the reason. Both are empty (None,
        {}) if the scene has no free body that slides on level ground.
    """
    import mujoco

    from clashsim.fit.calibrated_run import ground_friction_index
    from clashsim.slides.identify import delay, fit_slides, rest_std
    from clashsim.slides.support_patch import support_patch

    gravity = level_gravity(scene)
    if gravity is None or scene.ground is None or not scene.struck_body.free:
        return None, {}
    if int(scene.base.geom(scene.ground).type[0]) != int(mujoco.mjtGeom.mjGEOM_PLANE):
        return None, {
            "words": f"no slide model: the ground {scene.ground!r} is not a plane; "
            "make it one to plan and train with this scene"
        }
    recorded = _undisturbed(fitted)
    if len(recorded.slides) < _MIN_SLIDES:
        return None, {
            "words": f"no slide model: {len(recorded.slides)} of {len(fitted)} slides are "
            f"undisturbed and come to rest, at least {_MIN_SLIDES} are needed"
        }
    try:
        fit = fit_slides(
            recorded.slides, support_patch(scene), twists=recorded.twists, gravity=gravity
        )
    except (ClashError, np.linalg.LinAlgError) as error:
        return None, {"words": f"no slide model: {error}"}
    strikes = (recorded.pose_at_impact, recorded.twist_after, recorded.rest)
    delayed = fit.model.delayed(delay(fit.model, *strikes))
    fit = replace(fit, model=delayed.with_rest_std(rest_std(delayed, *strikes)))
    tested = _test(fit.model, _undisturbed(held_out))
    sentence = _describe(fit, len(recorded.slides), len(fitted))
    index = ground_friction_index(scene)
    if index is not None:
        sentence += f"; {scene.params[index].name} is taken from it"
    if tested:
        millimetres = 1e3 * tested["position_m"]
        degrees = np.degrees(tested["yaw_rad"])
        sentence += (
            f"; {tested['held_out']} slides held out end {millimetres:.1f} mm and {degrees:.1f} "
            "degrees from where it predicts (mean)"
        )
    return fit, {"words": sentence} | tested


def slides_of_given_friction(scene: Scene, friction: float) -> tuple[SlideFit, dict[str, Any]]:
    """A slide model of a scene whose ground friction somebody gives.

    Args:
        scene: The scene.
        friction: Coefficient of friction between struck body and ground.

    Returns:
        The model, and a dictionary with a sentence ("words").

    Raises:
        ParamError: The scene has no level plane on which a free body slides.
    """
    import mujoco

    from clashsim.slides.given_friction import slides_with_friction
    from clashsim.slides.support_patch import support_patch

    gravity = level_gravity(scene)
    if gravity is None or scene.ground is None or not scene.struck_body.free:
        raise ParamError(
            f"a ground friction of {friction:g} is given, but scene {scene.name!r} has no level "
            "ground on which a free body slides: name one with --ground"
        )
    if int(scene.base.geom(scene.ground).type[0]) != int(mujoco.mjtGeom.mjGEOM_PLANE):
        raise ParamError(
            f"a ground friction of {friction:g} is given, but the ground {scene.ground!r} is not a "
            "plane: make it one to predict where bodies come to rest"
        )
    fit = slides_with_friction(friction, support_patch(scene), gravity=gravity)
    sentence = (
        f"slide model from the given ground friction of {friction:g}; "
        "slides were not recorded, so where bodies stop was not tested"
    )
    return fit, {"words": sentence}


def _describe(fit: SlideFit, used: int, total: int) -> str:
    """A sentence on a fitted slide model."""
    millimetres = 1e3 * float(np.linalg.norm(fit.misfit[:2]))
    degrees = float(np.degrees(fit.misfit[2]))
    sentence = (
        f"slide model from {used} of {total} slides, which it follows to {millimetres:.1f} mm "
        f"and {degrees:.1f} degrees (root mean square)"
    )
    if used < total:
        sentence += "; the others are disturbed or were not seen to come to rest"
    return sentence


@dataclass(frozen=True, eq=False)
class _RecordedSlides:
    """N slides that were recorded from the separation of the bodies until rest.

    Attributes:
        slides: The slides.
        rows: Indices (N,) of the impacts that they follow.
        twists: Twists at the first samples of the slides (N, 3), m/s and rad/s.
        pose_at_impact: Poses of the struck body at the impacts (N, 3), m and rad.
        twist_after: Twists after the impacts (N, 3), m/s and rad/s.
    """

    slides: list[Slide]
    rows: np.ndarray
    twists: np.ndarray
    pose_at_impact: np.ndarray
    twist_after: np.ndarray

    @property
    def rest(self) -> np.ndarray:
        """Poses at rest (N, 3)."""
        ends = [_rest_pose(slide) for slide in self.slides]
        return np.array(ends, float).reshape(-1, 3)


def _undisturbed(impacts: Sequence[MeasuredImpact]) -> _RecordedSlides:
    """The slides after impacts; flagged impacts and incomplete slides are left out."""
    slides = []
    rows = []
    twists = []
    poses = []
    after = []
    for row, impact in enumerate(impacts):
        if impact.flags:
            continue
        found = impact.slide_at(_LAG)
        if found is None:
            continue
        slide, twist = found
        slides.append(slide)
        rows.append(row)
        twists.append(twist)
        poses.append(MotionBefore.of(impact.before).struck.pose)
        after.append(impact.after)
    return _RecordedSlides(
        slides=slides,
        rows=np.array(rows, int),
        twists=np.array(twists, float).reshape(-1, 3),
        pose_at_impact=np.array(poses, float).reshape(-1, 3),
        twist_after=np.array(after, float).reshape(-1, 3),
    )


def _rest_pose(slide: Slide) -> np.ndarray:
    """Pose (3,) at rest: the median of the last samples."""
    return np.median(np.column_stack([slide.xy, slide.yaw])[-_REST_SAMPLES:], 0)


def slides_to_rest(
    impacts: Sequence[MeasuredImpact],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Poses at impact and at rest of the slides that were recorded until rest.

    Args:
        impacts: The impacts.

    Returns:
        Indices (M,) of the impacts that such a slide follows, poses of the struck body at impact
        (M, 3) and at rest (M, 3); m and rad.
    """
    recorded = _undisturbed(impacts)
    return recorded.rows, recorded.pose_at_impact, recorded.rest


def _test(model: SlideModel, recorded: _RecordedSlides) -> dict[str, Any]:
    """Mean distance (m) and angle (rad) between recorded and predicted poses at rest."""
    import torch

    if not recorded.slides:
        return {}
    with torch.no_grad():
        predicted = model.rest(
            torch.as_tensor(recorded.pose_at_impact), torch.as_tensor(recorded.twist_after)
        ).numpy()
    error = predicted - recorded.rest
    error[:, 2] = wrap_angle(error[:, 2])
    return {
        "held_out": len(recorded.slides),
        "position_m": float(np.linalg.norm(error[:, :2], axis=1).mean()),
        "yaw_rad": float(np.abs(error[:, 2]).mean()),
    }
