"""Checks and defaults of arguments that several functions of the pipeline share."""

from __future__ import annotations

from pathlib import Path

import mujoco
import platformdirs

from clashsim.core.errors import ParamError, SceneError
from clashsim.core.extras import require
from clashsim.core.scene import Scene

_SEED_LIMIT = 2**32  # numpy's legacy generators take seeds below this
_FEWEST_SAMPLES = 100  # simulated strikes


def model_cache() -> Path:
    """Folder in which distilled models are kept between runs."""
    return platformdirs.user_cache_path("clashsim")


def load_scene(
    source: str, *, struck: str | None = None, striker: str | None = None, ground: str | None = None
) -> Scene:
    """Load a scene by name or file and compile it, so that mistakes in it show before any work.

    Args:
        source: Name of a built-in scene, or path of an MJCF file.
        struck: Name of the struck geom, for a file without settings.
        striker: Name of the striking geom, for such a file.
        ground: Name of the geom on which the struck body slides, for such a file.

    Returns:
        The scene, with every parameter found in the compiled model.
    """
    try:
        scene = Scene.load(source, struck=struck, striker=striker, ground=ground)
    except UnicodeDecodeError:
        raise SceneError(f"scene file {source!r} is not text") from None
    _ = scene.slots  # compiles the scene and looks up every parameter
    _refuse_unsupported(scene)
    return scene


def _refuse_unsupported(scene: Scene) -> None:
    """Raise a `SceneError` for a pair whose impacts cannot be calibrated."""
    if scene.struck_body.fixed:
        raise SceneError(
            f"the struck geom {scene.struck!r} cannot move: give its body a free joint, slides or "
            "hinges, or name a geom that moves with --struck"
        )
    for geom in {name for pair in scene.strike_geoms for name in pair}:
        if int(scene.base.geom(geom).type[0]) == int(mujoco.mjtGeom.mjGEOM_HFIELD):
            raise SceneError(
                f"geom {geom!r} is a height field, to which MuJoCo measures no distance: "
                "planes, boxes, spheres, capsules, cylinders, ellipsoids and meshes are supported"
            )


def has_settings(source: str) -> bool:
    """Whether a scene is a shipped one or has a settings file."""
    path = Path(source)
    return not path.is_file() or path.with_suffix(".toml").exists()


def check_not_negative(**values: float) -> None:
    """Refuse negative arguments, and a `seed` that is too large; keywords name the arguments."""
    for name, value in values.items():
        if value < 0:
            raise ParamError(f"{name} must not be negative, got {value}")
        if name == "seed" and value >= _SEED_LIMIT:
            raise ParamError(f"seed must be below 2^32, got {value}")


def check_at_least(least: int, **values: int) -> None:
    """Refuse arguments below `least`; keywords name the arguments."""
    for name, value in values.items():
        if value < least:
            raise ParamError(f"{name} must be at least {least}, got {value}")


def check_samples(samples: int) -> None:
    """Refuse too few simulated strikes to distil a network from."""
    if samples < _FEWEST_SAMPLES:
        raise ParamError(
            f"samples must be at least {_FEWEST_SAMPLES}, got {samples}: "
            "a network cannot be distilled from fewer"
        )


def require_drake() -> None:
    """Raise an error if Drake, which the virtual laboratory needs, is not installed."""
    require("pydrake", "Drake (pydrake)", "lab")
