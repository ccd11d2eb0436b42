"""A slide model from the slides after the impacts of trials, and what to report about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import ClashError
from clashsim.core.impacts import MotionBefore

if TYPE_CHECKING:
    from clashsim.core.scene import Scene
    from clashsim.data.segmentation.result import MeasuredImpact
    from clashsim.slides.identify import SlideFit
    from clashsim.slides.law import SlideModel
    from clashsim.slides.slide import Slide

_LAG = 0.015  # s after the impact, when the pair has parted: there a slide begins
_FEWEST = 5  # slides, as `fit_slides` asks for
_LEVEL = 0.99  # share of gravity that is normal to a level plane


def level_gravity(scene: Scene) -> float | None:
    """Gravity (m/s^2) on a struck body that slides on a level plane; None where none does."""
    vector = np.asarray(scene.base.opt.gravity, float)
    gravity = float(np.linalg.norm(vector)) or 9.81  # a scene seen from above may leave it out
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
        held_out: Impacts whose slides are predicted.

    Returns:
        The model, and figures: a sentence ("words"), and how far held-out slides end from where
        the model predicts. The model is None, with the reason in the sentence, where slides are too
        few or the ground has an edge; there is no sentence where no free body slides.
    """
    import mujoco

    from clashsim.fit.calibrated_run import ground_friction_index
    from clashsim.slides.identify import delay, fit_slides
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
    if len(recorded.slides) < _FEWEST:
        return None, {
            "words": f"no slide model: {len(recorded.slides)} of {len(fitted)} slides are "
            f"undisturbed and come to rest, at least {_FEWEST} are needed"
        }
    try:
        fit = fit_slides(
            recorded.slides, support_patch(scene), twists=recorded.twists, gravity=gravity
        )
    except (ClashError, np.linalg.LinAlgError) as error:
        return None, {"words": f"no slide model: {error}"}
    seconds = delay(fit.model, recorded.pose_at_impact, recorded.twist_after, recorded.rest)
    fit = replace(fit, model=fit.model.delayed(seconds))
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
    """N slides that were seen from their first free moment to rest.

    Attributes:
        slides: The slides.
        rows: Which of the impacts they follow (N,).
        twists: Twists at their first frames (N, 3).
        pose_at_impact: (N, 3).
        twist_after: Twists after the impacts (N, 3).
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
    """The slides after impacts; impacts that are flagged are left out."""
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
    """Pose (3,) at rest."""
    return np.median(np.column_stack([slide.xy, slide.yaw])[-5:], 0)


def slides_to_rest(
    impacts: Sequence[MeasuredImpact],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slides that were seen to their end.

    Args:
        impacts: The impacts.

    Returns:
        Which of the impacts they follow (M,), the poses at impact (M, 3) and at rest (M, 3).
    """
    recorded = _undisturbed(impacts)
    return recorded.rows, recorded.pose_at_impact, recorded.rest


def _test(model: SlideModel, recorded: _RecordedSlides) -> dict[str, Any]:
    """Mean distance (m) and angle (rad) between where slides end and where the model predicts."""
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
