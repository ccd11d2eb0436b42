"""Write a scene with identified parameters, in the author's text where that can hold them.

Where it cannot (a URDF, parts in included files or made by `<replicate>`), MuJoCo writes the scene
as one MJCF, and the parameters go into that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np

from clashsim.core.contact_pairs import name_geoms
from clashsim.core.errors import SceneError
from clashsim.core.files import write_atomic
from clashsim.core.mjcf_assets import parse_scene, scene_assets
from clashsim.core.scene_model import SceneModel
from clashsim.data.mjcf import EditedMjcf, write_back

# MuJoCo writes numbers with six digits.
_WRITTEN_DIGITS = 2e-5
_KINDS = ("body_", "geom_", "jnt_", "dof_", "actuator_", "tendon_", "eq_", "qpos0")


def write_scene(scene: SceneModel, theta: np.ndarray | Sequence[float]) -> EditedMjcf:
    """Write parameters into a scene.

    Args:
        scene: The scene.
        theta: Values (p,) in the order of `scene.params`.

    Returns:
        The author's text with the values, or the MJCF that MuJoCo makes of it with the values.

    Raises:
        SceneError: Neither can hold the values.
    """
    try:
        return write_back(scene.xml, scene, theta)
    except SceneError as error:
        reason = str(error)
    rewritten = scene.with_xml(_rewritten_by_mujoco(scene, reason))
    edited = write_back(rewritten.xml, rewritten, theta)
    return replace(edited, rewritten=reason)


def save_mjcf(path: Path, edited: EditedMjcf) -> None:
    """Write the MJCF of a scene to a file.

    Args:
        path: The file. Files that the scene names are not written.
        edited: The scene.

    Raises:
        SceneError: The scene would not load there, since files that it names are absent.
    """
    try:
        scene_assets(path, edited.xml)
    except SceneError as error:
        raise SceneError(f"the scene cannot be loaded from {str(path)!r}: {error}") from None
    write_atomic(path, edited.xml.encode())


def _rewritten_by_mujoco(scene: SceneModel, reason: str) -> str:
    """The scene as one MJCF with names for all geoms, as MuJoCo writes it.

    Args:
        scene: The scene.
        reason: Why its own text cannot be edited, for the message.

    Raises:
        SceneError: What MuJoCo writes is not the same scene.
    """
    spec = parse_scene(scene.xml, scene.assets, scene.name)
    name_geoms(spec)
    try:
        author = spec.compile()
        xml = str(spec.to_xml())
        compiled = parse_scene(xml, scene.assets, scene.name).compile()
    except ValueError as error:
        what = " ".join(str(error).split())
        raise SceneError(f"{reason}; nor can MuJoCo write it as one MJCF: {what}") from None
    changed = _changed_fields(author, compiled)
    if changed:
        differing = ", ".join(changed)
        raise SceneError(f"{reason}; nor is what MuJoCo makes of it the same scene: {differing}")
    return xml


def _changed_fields(author: mujoco.MjModel, written: mujoco.MjModel) -> list[str]:
    """Fields of the models that differ by more than the rounding of written numbers."""
    changed = []
    for name in dir(author):
        if not name.startswith(_KINDS):
            continue
        before = getattr(author, name)
        after = getattr(written, name)
        if not isinstance(before, np.ndarray) or not np.issubdtype(before.dtype, np.number):
            continue
        scale = float(np.abs(before).max(initial=0.0))
        if before.shape != after.shape or not np.allclose(
            before, after, rtol=_WRITTEN_DIGITS, atol=_WRITTEN_DIGITS * scale
        ):
            changed.append(name)
    return changed
