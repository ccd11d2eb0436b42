"""A slide model from the slides after the impacts of trials, and what to say of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.core.errors import ClashError

if TYPE_CHECKING:
    from clashsim.core.scene import Scene
    from clashsim.core.slides import Slide
    from clashsim.data.found import Found
    from clashsim.fit.slide_model import SlideFit
    from clashsim.nets.slide import SlideModel

_LAG = 0.015  # s after the kink, when the pair has parted: there a slide begins
_FEWEST = 5  # slides, as `fit_slides` asks for


def level_gravity(scene: Scene) -> float | None:
    """Gravity (m/s^2) on a struck body that slides on a level plane; None where none does."""
    pull = np.asarray(scene.base.opt.gravity, float)
    gravity = float(np.linalg.norm(pull)) or 9.81  # a scene seen from above may leave gravity out
    if scene.plane is None or (pull.any() and abs(scene.plane[2] @ pull) < 0.99 * gravity):
        return None
    return gravity


def fit_found(scene: Scene, fitted: Sequence[Found], held_out: Sequence[Found]) -> tuple[SlideFit | None, dict[str, Any]]:
    """A slide model of the slides after the impacts in `fitted`, and figures: in words, and how far those held out end from where it says.

    None, with the reason in words, where slides are too few; none and nothing where no free body slides on a plane without an edge.
    """
    import mujoco

    from clashsim.fit.run import ground_friction_place
    from clashsim.fit.slide_model import fit_slides
    from clashsim.fit.sole import sole

    gravity = level_gravity(scene)
    if gravity is None or scene.ground is None or not scene.struck_body.free or int(scene.base.geom(scene.ground).type[0]) != int(mujoco.mjtGeom.mjGEOM_PLANE):
        return None, {}
    slides, twists = _usable(fitted)
    if len(slides) < _FEWEST:
        return None, {"words": f"no slide model: {len(slides)} of {len(fitted)} slides are undisturbed and come to rest, at least {_FEWEST} are needed"}
    try:
        fit = fit_slides(slides, sole(scene), twists=twists, gravity=gravity)
    except (ClashError, np.linalg.LinAlgError) as error:
        return None, {"words": f"no slide model: {error}"}
    along, turned = 1e3 * float(np.linalg.norm(fit.misfit[:2])), float(np.degrees(fit.misfit[2]))
    words = f"slide model from {len(slides)} of {len(fitted)} slides, which it follows to {along:.1f} mm and {turned:.1f} degrees (root mean square)"
    if len(slides) < len(fitted):
        words += "; the others are disturbed or were not seen to come to rest"
    place = ground_friction_place(scene)
    if place is not None:
        words += f"; {scene.params[place].name} is taken from it"
    tested = _tested(fit.model, *_usable(held_out))
    if tested:
        words += f"; {tested['held_out']} slides held out end {1e3 * tested['position_m']:.1f} mm and {np.degrees(tested['yaw_rad']):.1f} degrees from where it says (mean)"
    return fit, {"words": words} | tested


def _usable(found: Sequence[Found]) -> tuple[list[Slide], np.ndarray]:
    """Slides from their first free moment to rest, and the twists (N, 3) there; impacts in doubt are left out."""
    both = [both for f in found if not f.flags and (both := f.slide_at(_LAG)) is not None]
    return [slide for slide, _ in both], np.array([twist for _, twist in both]).reshape(-1, 3)


def _tested(model: SlideModel, slides: Sequence[Slide], twists: np.ndarray) -> dict[str, Any]:
    """Mean distance (m) and angle (rad) between where slides ended and where the model says, begun as measured."""
    import torch

    if not slides:
        return {}
    poses = [np.column_stack([slide.xy, slide.yaw]) for slide in slides]
    with torch.no_grad():
        rest = model.rest(torch.as_tensor(np.array([pose[0] for pose in poses])), torch.as_tensor(twists)).numpy()
    far = rest - np.array([np.median(pose[-5:], 0) for pose in poses])
    return {"held_out": len(slides), "position_m": float(np.linalg.norm(far[:, :2], axis=1).mean()), "yaw_rad": float(np.abs(far[:, 2]).mean())}
