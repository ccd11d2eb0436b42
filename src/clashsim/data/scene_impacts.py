"""Read impacts of a scene's pair from a file, which may have the scene's parameters and joints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clashsim.core.impacts import Impacts
from clashsim.core.recorded_joints import joint_columns
from clashsim.core.scene import Scene
from clashsim.data.impact_files import read_impacts


def read_scene_impacts(
    path: Path | str, scene: Scene, *, known: Sequence[str] = (), incomplete: bool = False
) -> Impacts:
    """Read impacts, with columns that `read_impacts` alone does not know.

    Args:
        path: The file.
        scene: Scene of the pair.
        known: Names of measured covariates that are columns of the file.
        incomplete: Whether rows may lack numbers; as for `read_impacts`.

    Returns:
        The impacts. Parameters, covariates and columns of joints are in `known`: with
        `with_motion_from_joints` the latter become the motion of the bodies.
    """
    if scene.plane is not None and not read_impacts(path, known=None, incomplete=True).planar:
        scene = scene.recorded_in_space()
    params = [param.name for param in scene.params]
    joints = [name for name in joint_columns(scene) if name not in (*params, *known)]
    return read_impacts(path, known=[*params, *known, *joints], incomplete=incomplete)
