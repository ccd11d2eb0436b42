"""Read recorded trials, find the impacts in them, and summarise what was found and left out."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clashsim.core.contact_frame import inertia
from clashsim.core.errors import ClashError, DataError, SceneError, did_you_mean
from clashsim.core.impacts import Impacts
from clashsim.core.parsing import parse_json
from clashsim.core.recorded_joints import (
    angles_at,
    joints_of,
    scalar_signals,
    with_poses_from_joints,
)
from clashsim.core.scene import Scene
from clashsim.core.tensors import header_size, tensor_metadata
from clashsim.core.trials import Trials
from clashsim.data.segmentation.result import Segmentation
from clashsim.data.segmentation.segment import segment
from clashsim.data.trial_files import read_trials
from clashsim.fit.slides_from_trials import level_gravity
from clashsim.lab.packed import unpack
from clashsim.pipeline.arguments import load_scene
from clashsim.slides.ground_friction import ground_friction

_LENGTH_BYTES = 8  # at the start of a safetensors file: the length of its header
# The members of a file that the virtual laboratory writes.
_LAB_MEMBERS = {f"{name}.npy" for name in ("strikes", "frames", "lost", "low", "high")}
# Exceptions that reading a damaged file may raise.
_DAMAGE = (
    OSError,
    DataError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    zipfile.BadZipFile,
)
# Notes of a segmentation with this text are about velocity changes too small or slow for an impact.
_FAINT = "a change of velocity"
_MAX_NOTES = 10  # notes on what was left out that are printed; more would fill a terminal
_MAX_JOINTS = 8  # that a message lists
# From least to most real. Impacts of several trials get the least real source among them, so that
# one simulated trial is enough not to call all of them real.
_SOURCES = ("simulated", "lab", "real")


@dataclass(frozen=True)
class BodyNames:
    """Names of the colliding bodies in trials, or of the geoms of a scene without settings.

    Attributes:
        struck: The body whose motion is predicted; None takes the scene's name.
        striker: The body that strikes it, or that it hits; None takes the scene's name.
        ground: The geom on which the struck body slides, if the scene does not say.
    """

    struck: str | None = None
    striker: str | None = None
    ground: str | None = None


def holds_trials(path: Path) -> bool:
    """Whether a file holds trials (whole recordings) rather than impacts, by its header only.

    Args:
        path: A file of `clashsim import`, `record` or `segment`, or any other.

    Returns:
        False also for a damaged file: reading it as impacts then reports what is wrong with it.
    """
    try:
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                return set(archive.namelist()) == _LAB_MEMBERS
        if path.suffix != ".safetensors":
            return False
        with path.open("rb") as file:
            length = file.read(_LENGTH_BYTES)
            header = length + file.read(header_size(length))
        metadata = tensor_metadata(header)
        description = parse_json(metadata["clashsim"], "the description in the safetensors file")
        return bool(description["kind"] == "trials")
    except _DAMAGE:
        return False


def read_recording(path: Path) -> Trials:
    """Read trials that `clashsim import` (.safetensors) or `clashsim record` (.npz) wrote."""
    if path.suffix == ".npz" and path.is_file():
        trials, _ = unpack(path.read_bytes(), path.stem)
        return trials
    if path.is_file() and path.suffix != ".safetensors":
        raise DataError(
            f"trials {path.name!r} must be a .safetensors file of clashsim import, or a .npz file "
            "of clashsim record; logs are read with: clashsim import; a table of impacts is given "
            "to: clashsim calibrate"
        )
    return read_trials(path)


def scene_for_trials(source: str, names: BodyNames, trials: Trials) -> tuple[Scene, BodyNames]:
    """Load a scene for trials, and decide whether `names` are geoms of it or bodies of the trials.

    Args:
        source: Name of a built-in scene, or path of an MJCF file.
        names: As the user gave them.
        trials: The recorded trials.

    Returns:
        The scene, and the names of struck body and striker in the trials; None for a body that has
        the same name in scene and trials.
    """
    same_as_scene = BodyNames()
    try:
        scene = load_scene(source, ground=names.ground)
    except SceneError:
        if names.struck is None and names.striker is None:
            raise
        # Without settings beside the MJCF file, names are those of geoms, as in `calibrate`.
        return _scene_with_geoms(source, names), same_as_scene
    geoms = {geom.name for geom in scene.spec.geoms}
    given = [name for name in (names.struck, names.striker) if name is not None]
    # A user may still give the names of geoms after settings for the scene were written.
    are_geoms = all(name in geoms and name not in trials.bodies for name in given)
    if given and are_geoms:
        return _scene_with_geoms(source, names), same_as_scene
    return scene, names


def _scene_with_geoms(source: str, names: BodyNames) -> Scene:
    """A scene in which the names say which geoms collide."""
    return load_scene(source, struck=names.struck, striker=names.striker, ground=names.ground)


def find_impacts(
    trials: Trials, scene: Scene | None, names: BodyNames = BodyNames()
) -> Segmentation:
    """Find the impacts in trials.

    Args:
        trials: The recorded trials.
        scene: Scene of the collision; None where only `names` say what collides.
        names: Names of the bodies in the trials where they are not those of the scene.

    Returns:
        The impacts found, and notes on what was left out.

    Raises:
        DataError: The trials have no body of a given name.
    """
    struck = names.struck
    striker = names.striker
    if scene is not None:
        struck = struck or scene.struck_body.name
        if striker is None and not scene.striker_body.fixed:
            striker = scene.striker_body.name
    if scene is not None:
        trials = with_poses_from_joints(trials, scene, (struck, striker))
    for role, name in (("struck body", struck), ("striker", striker)):
        if name is not None and name not in trials.bodies:
            raise DataError(
                f"the trials have no body {name!r} for the {role}{_unmatched_joints(trials, scene)}"
                f"; {did_you_mean(name, trials.bodies)}"
                f"{'' if name in (names.struck, names.striker) else _how_to_name(name)}"
            )
    return segment(trials, struck=struck, striker=striker, scene=scene)


def _how_to_name(name: str) -> str:
    """A clause on how recorded bodies get the names that a scene has for them."""
    return (
        f': import the logs with a mapping in which the body that is meant has name = "{name}" '
        "(clashsim import LOGS --guess -o lab.toml writes one to edit; source is its name in the "
        "logs)"
    )


def _unmatched_joints(trials: Trials, scene: Scene | None) -> str:
    """A clause on joints whose angles would do, for trials with signals that are none of them."""
    signals = list(dict.fromkeys(name for trial in trials for name in scalar_signals(trial)))
    joints = [] if scene is None else joints_of(scene)
    if not signals or not joints:
        return ""
    wanted = ", ".join(map(repr, joints[:_MAX_JOINTS]))
    recorded = ", ".join(map(repr, signals[:_MAX_JOINTS]))
    return f", nor angles of the joints {wanted} (recorded: {recorded})"


def impacts_with_known(
    segmentation: Segmentation, scene: Scene, known: Sequence[str], trials: Trials
) -> Impacts:
    """The impacts of a segmentation, with those measured covariates that a calibration may use.

    Args:
        segmentation: What was found in the trials.
        scene: Scene of the collision; measured numbers that are its parameters are kept.
        known: Names of further measured numbers to keep.
        trials: The recorded trials.

    Returns:
        Impacts whose source is the least real one of the trials.
    """
    for name in known:
        if name not in segmentation.known:
            raise DataError(
                f"not every trial has a known number {name!r}; "
                f"{did_you_mean(name, segmentation.known)}"
            )
    if not segmentation.found:
        reason = f": {segmentation.notes[0]}" if segmentation.notes else ""
        raise DataError(f"no impact was found in {len(trials)} trials{reason}")
    impacts = segmentation.impacts
    kept_names = {*(param.name for param in scene.params), *known}
    kept = {name: values for name, values in impacts.known.items() if name in kept_names}
    sources = {trial.source for trial in trials}
    source = next(source for source in _SOURCES if source in sources)
    joints = _joints_at_impacts(segmentation, scene, trials)
    return replace(impacts, source=source, known=kept, joints=joints)


def _joints_at_impacts(
    segmentation: Segmentation, scene: Scene, trials: Trials
) -> dict[str, np.ndarray]:
    """Coordinates (N,) of the joints at all impacts, of those that every trial has."""
    by_name = {trial.name: trial for trial in trials}
    found = [angles_at(by_name[impact.trial], scene, impact.time) for impact in segmentation.found]
    shared = set.intersection(*map(set, found))
    names = [name for name in joints_of(scene) if name in shared]
    return {name: np.array([angles[name] for angles in found]) for name in names}


def segmentation_summary(segmentation: Segmentation, trials: Trials) -> list[str]:
    """Sentences on a segmentation: number of impacts, their flags, and what was left out.

    Args:
        segmentation: What was found in the trials.
        trials: The recorded trials.

    Returns:
        One sentence per line of output.
    """
    flagged = [impact for impact in segmentation.found if impact.flags]
    first = f"{len(segmentation.found)} impacts in {len(trials)} trials"
    if flagged:
        first += f", {len(flagged)} of them flagged"
    lines = [first]
    flags = [flag for impact in flagged for flag in impact.flags]
    for flag in dict.fromkeys(flags):
        lines.append(f"flagged, {flags.count(flag)} times: {flag}")
    faint = [note for note in segmentation.notes if _FAINT in note]
    left_out = [note for note in segmentation.notes if _FAINT not in note]
    lines += [f"left out: {note}" for note in left_out[:_MAX_NOTES]]
    not_listed = max(0, len(left_out) - _MAX_NOTES)
    if not_listed:
        lines.append(f"and {not_listed} more left out")
    if faint:
        lines.append(f"{len(faint)} changes of velocity are too small or too slow to be impacts")
    if faint or not_listed:
        lines.append("clashsim inspect -o PAGE.html lists all that was left out")
    return lines


def friction_of_ground(segmentation: Segmentation, scene: Scene) -> dict[str, Any] | None:
    """Friction of the ground, by regression on the slides after the impacts.

    Args:
        segmentation: What was found in the trials.
        scene: Scene of the collision.

    Returns:
        Number of slides used, coefficients (sliding: -, torsional: m) and standard errors as
        metrics.json has them; None where nothing slides on level ground.
    """
    gravity = level_gravity(scene)
    if gravity is None:
        return None
    gyration = inertia(scene, scene.struck_body).gyration
    slides = []
    for slide in segmentation.slides:
        try:
            ground_friction([slide], gyration=gyration, gravity=gravity)
        except ClashError:  # too short, or it hardly moves
            continue
        slides.append(slide)
    if not slides:
        return None
    friction = ground_friction(slides, gyration=gyration, gravity=gravity)
    torsional_error = friction.torsional_error
    if friction.torsional == 0:
        torsional_error = np.nan  # held at zero, so its error means nothing
    numbers = {
        "sliding": friction.sliding,
        "sliding_error": friction.sliding_error,
        "torsional": friction.torsional,
        "torsional_error": torsional_error,
    }
    finite = {name: value if np.isfinite(value) else None for name, value in numbers.items()}
    return {"slides": len(slides), **finite}
