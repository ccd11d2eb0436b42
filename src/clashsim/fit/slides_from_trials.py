"""A slide model from the slides after the impacts of trials, and what to say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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

_LAG = 0.015  # s after the kink, when the pair has parted: there a slide begins
_FEWEST = 5  # slides, as `fit_slides` asks for


def level_gravity(scene: Scene) -> float | None:
    """Gravity (m/s^2) on a struck body that slides on a level plane; None where none does."""
    pull = np.asarray(scene.base.opt.gravity, float)
    gravity = float(np.linalg.norm(pull)) or 9.81  # a scene seen from above may leave gravity out
    if scene.plane is None or (pull.any() and abs(scene.plane[2] @ pull) < 0.99 * gravity):
        return None
    return gravity


def fit_slides_of_impacts(
    scene: Scene, fitted: Sequence[MeasuredImpact], held_out: Sequence[MeasuredImpact]
) -> tuple[SlideFit | None, dict[str, Any]]:
    """A slide model of the slides after the impacts in `fitted`, and figures: in words, and how far
    those held out end from where it says.

    None, with the reason in words, where slides are too few or the ground has an edge; none and
    nothing where no free body slides.
    """
    import mujoco

    from clashsim.fit.calibrated_run import ground_friction_place
    from clashsim.slides.identify import delay, fit_slides
    from clashsim.slides.support_patch import support_patch

    gravity = level_gravity(scene)
    if gravity is None or scene.ground is None or not scene.struck_body.free:
        return None, {}
    if int(scene.base.geom(scene.ground).type[0]) != int(mujoco.mjtGeom.mjGEOM_PLANE):
        return None, {
            "words": f"no slide model: the ground {scene.ground!r} is not a plane; make it one to plan and train with this scene"
        }
    slides, twists, impacts = _usable(fitted)
    if len(slides) < _FEWEST:
        return None, {
            "words": f"no slide model: {len(slides)} of {len(fitted)} slides are undisturbed and come to rest, at least {_FEWEST} are needed"
        }
    try:
        fit = fit_slides(slides, support_patch(scene), twists=twists, gravity=gravity)
    except (ClashError, np.linalg.LinAlgError) as error:
        return None, {"words": f"no slide model: {error}"}
    rests = np.array([_end(slide) for slide in slides])
    fit = replace(
        fit,
        model=fit.model.delayed(
            delay(
                fit.model,
                np.array([MotionBefore.of(f.before).struck.pose for f in impacts]),
                np.array([f.after for f in impacts]),
                rests,
            )
        ),
    )
    along, turned = 1e3 * float(np.linalg.norm(fit.misfit[:2])), float(np.degrees(fit.misfit[2]))
    words = f"slide model from {len(slides)} of {len(fitted)} slides, which it follows to {along:.1f} mm and {turned:.1f} degrees (root mean square)"
    if len(slides) < len(fitted):
        words += "; the others are disturbed or were not seen to come to rest"
    place = ground_friction_place(scene)
    if place is not None:
        words += f"; {scene.params[place].name} is taken from it"
    slides_left, _, left = _usable(held_out)
    tested = _tested(fit.model, slides_left, left)
    if tested:
        words += f"; {tested['held_out']} slides held out end {1e3 * tested['position_m']:.1f} mm and {np.degrees(tested['yaw_rad']):.1f} degrees from where it says (mean)"
    return fit, {"words": words} | tested


def _usable(
    found: Sequence[MeasuredImpact],
) -> tuple[list[Slide], np.ndarray, list[MeasuredImpact]]:
    """Slides from their first free moment to rest, the twists (N, 3) there, and the impacts before
    them; impacts in doubt are left out.
    """
    both = [(both, f) for f in found if not f.flags and (both := f.slide_at(_LAG)) is not None]
    return (
        [slide for (slide, _), _ in both],
        np.array([twist for (_, twist), _ in both]).reshape(-1, 3),
        [f for _, f in both],
    )


def _end(slide: Slide) -> np.ndarray:
    """Pose (3,) at rest."""
    return np.median(np.column_stack([slide.xy, slide.yaw])[-5:], 0)


def slides_to_rest(found: Sequence[MeasuredImpact]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which of the impacts (M,) are followed by a slide that was seen to its end, the poses at
    impact (M, 3) and at rest (M, 3).
    """
    both = [
        (i, MotionBefore.of(f.before).struck.pose, _end(seen[0]))
        for i, f in enumerate(found)
        if not f.flags and (seen := f.slide_at(_LAG)) is not None
    ]
    rows, starts, rests = zip(*both, strict=True) if both else ((), (), ())
    return (
        np.array(rows, int),
        np.array(starts, float).reshape(-1, 3),
        np.array(rests, float).reshape(-1, 3),
    )


def _tested(
    model: SlideModel, slides: Sequence[Slide], impacts: Sequence[MeasuredImpact]
) -> dict[str, Any]:
    """Mean distance (m) and angle (rad) between where slides ended and where the model says, begun
    as measured.
    """
    import torch

    if not slides:
        return {}
    start = (
        np.array([MotionBefore.of(f.before).struck.pose for f in impacts]),
        np.array([f.after for f in impacts]),
    )
    with torch.no_grad():
        rest = model.rest(*map(torch.as_tensor, start)).numpy()
    far = rest - np.array([_end(slide) for slide in slides])
    far[:, 2] = wrap_angle(far[:, 2])
    return {
        "held_out": len(slides),
        "position_m": float(np.linalg.norm(far[:, :2], axis=1).mean()),
        "yaw_rad": float(np.abs(far[:, 2]).mean()),
    }
