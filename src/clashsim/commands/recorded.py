"""What the verbs on recorded motion share: reading trials, finding their impacts with a scene, and
saying what was left out.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import load_scene
from clashsim.core.errors import ClashError, DataError, SceneError, did_you_mean
from clashsim.core.parsing import parse_json
from clashsim.core.tensors import header_size, tensor_metadata
from clashsim.fit.slides_from_trials import level_gravity

if TYPE_CHECKING:
    from clashsim.cli import Bodies
    from clashsim.core.impacts import Impacts
    from clashsim.core.scene import Scene
    from clashsim.core.trials import Trials
    from clashsim.data.segmentation.result import MeasuredImpact, Segmentation

_PACKED = {
    f"{name}.npy" for name in ("strikes", "frames", "lost", "low", "high")
}  # what the laboratory's files hold
_DAMAGE = (
    OSError,
    DataError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    zipfile.BadZipFile,
)
_FAINT = "a change of velocity"  # what the sentences of those begin with that are hardly impacts
_SHOWN = 10  # sentences on what was left out that fit a terminal


@dataclass(frozen=True, eq=False)
class Recorded:
    """Trials behind the impacts of a run, and the impacts found in them: those that were fitted,
    those held out, each in the order of the impacts.
    """

    trials: Trials
    fitted: Sequence[MeasuredImpact]
    held_out: Sequence[MeasuredImpact]

    def label(self, i: int, *, held_out: bool) -> str:
        """What to call an impact: its trial and when it was."""
        found = (self.held_out if held_out else self.fitted)[int(i)]
        return f"trial {found.trial}, {found.time:.3f} s"

    def rows(self) -> list[dict[str, str]]:
        """One row a trial: how long, how much of each body was seen, what was found and what it was
        used for.
        """
        uses: dict[str, list[str]] = {}
        for words, part in (("fitted", self.fitted), ("held out", self.held_out)):
            for f in part:
                uses.setdefault(f.trial, []).append(
                    f"{words} at {f.time:.2f} s" + (f" ({'; '.join(f.flags)})" if f.flags else "")
                )
        out = []
        for t in self.trials:
            seen = {
                f"{body} seen": f"{100 * np.isfinite(t.poses[body]).all(1).mean():.0f} %"
                if body in t.poses
                else "-"
                for body in self.trials.bodies
            }
            pace = {
                "s": f"{t.t[-1] - t.t[0]:.2f}",
                "frames/s": f"{1 / np.median(np.diff(t.t)):.0f}",
            }
            out.append(
                {"trial": t.name, **pace, **seen, "impacts": ", ".join(uses.get(t.name, ["none"]))}
            )
        return out


def holds_trials(path: Path) -> bool:
    """Whether a file holds whole recordings, by clashsim or by its laboratory, and not impacts;
    judged by its table of contents.
    """
    try:
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                return set(archive.namelist()) == _PACKED
        if path.suffix != ".safetensors":
            return False
        with path.open("rb") as file:
            start = file.read(8)
            metadata = tensor_metadata(start + file.read(header_size(start)))
        about = parse_json(metadata["clashsim"], "the description in the safetensors file")
        return bool(about["kind"] == "trials")
    except _DAMAGE:
        return False  # whoever reads it next says what is wrong with it


def read_recorded(path: Path) -> Trials:
    """Trials that `clashsim import` or `clashsim record` wrote."""
    from clashsim.data.trial_files import read_trials
    from clashsim.lab.packed import unpack

    if path.suffix == ".npz" and path.is_file():
        return unpack(path.read_bytes(), path.stem)[0]
    if path.is_file() and path.suffix != ".safetensors":
        raise DataError(
            f"trials {path.name!r} must be a .safetensors file of clashsim import, or a .npz file of clashsim record; logs are read with: clashsim import"
        )
    return read_trials(path)


def scene_of(source: str, bodies: Bodies, trials: Trials) -> tuple[Scene, str | None, str | None]:
    """A scene, and the names that struck body and striker have in the trials where they are not the
    scene's.
    """
    try:
        scene = load_scene(source, ground=bodies.ground)
    except SceneError:
        if bodies.struck is None or bodies.striker is None:
            raise
        # The file does not say which geoms collide, so that is what the names are for, as in
        # `clashsim calibrate`.
        return load_scene(source, **asdict(bodies)), None, None
    geoms = {g.name for g in scene.spec.geoms}
    given = [name for name in (bodies.struck, bodies.striker) if name is not None]
    if given and all(
        name in geoms and name not in trials.bodies for name in given
    ):  # the same names again, although the scene has settings by now
        return load_scene(source, **asdict(bodies)), None, None
    return scene, bodies.struck, bodies.striker


def segmented(
    trials: Trials, scene: Scene | None, struck: str | None = None, striker: str | None = None
) -> Segmentation:
    """Impacts found in trials; names that do not fit are explained."""
    from clashsim.data.segmentation.segment import segment

    if scene is not None:
        struck = struck or scene.struck_body.name
        striker = striker or (None if scene.striker_body.fixed else scene.striker_body.name)
    for role, name in (("struck body", struck), ("striker", striker)):
        if name is not None and name not in trials.bodies:
            raise DataError(
                f"the trials have no body {name!r} for the {role}; {did_you_mean(name, trials.bodies)} (--struck and --striker name them, or the mapping at import)"
            )
    return segment(trials, struck=struck, striker=striker, scene=scene)


def impacts_of(found: Segmentation, scene: Scene, known: Sequence[str], trials: Trials) -> Impacts:
    """Impacts with those known numbers that are parameters of the scene or asked for; other numbers
    of the trials explain nothing.
    """
    for name in known:
        if name not in found.known:
            raise DataError(
                f"not every trial has a known number {name!r}; {did_you_mean(name, found.known)}"
            )
    if not found.found:
        why = f": {found.notes[0]}" if found.notes else ""
        raise DataError(f"no impact was found in {len(trials)} trials{why}")
    impacts, wanted = found.impacts, {*(p.name for p in scene.params), *known}
    sources = {trial.source for trial in trials}
    source = next(
        s for s in ("simulated", "lab", "real") if s in sources
    )  # one that stands in for reality is enough not to call the whole real
    return replace(
        impacts, source=source, known={k: v for k, v in impacts.known.items() if k in wanted}
    )


def sentences(found: Segmentation, trials: Trials) -> list[str]:
    """What a user should know of a segmentation: how much was found, how much is in doubt, what was
    left out.
    """
    flagged = [f for f in found.found if f.flags]
    out = [
        f"{len(found.found)} impacts in {len(trials)} trials"
        + (f", {len(flagged)} of them in doubt" if flagged else "")
    ]
    kinds = [flag for f in flagged for flag in f.flags]
    out += [f"in doubt, {kinds.count(kind)} times: {kind}" for kind in dict.fromkeys(kinds)]
    faint = [note for note in found.notes if _FAINT in note]
    lost = [note for note in found.notes if _FAINT not in note]
    out += [f"left out: {note}" for note in lost[:_SHOWN]] + (
        [f"and {len(lost) - _SHOWN} more left out"] if len(lost) > _SHOWN else []
    )
    out += (
        [f"{len(faint)} changes of velocity are too small or too slow to be impacts"]
        if faint
        else []
    )
    return out + (
        ["clashsim inspect -o PAGE.html lists all that was left out"]
        if faint or len(lost) > _SHOWN
        else []
    )


def ground(found: Segmentation, scene: Scene) -> dict[str, Any] | None:
    """Friction of the ground, regressed on the slides after the impacts; None where nothing slides
    on a level ground.
    """
    from clashsim.core.contact_frame import inertia
    from clashsim.slides.ground_friction import ground_friction

    gravity = level_gravity(scene)
    if gravity is None:
        return None
    gyration = inertia(scene, scene.struck_body).gyration
    slides = []
    for slide in found.slides:
        try:
            ground_friction([slide], gyration=gyration, gravity=gravity)
        except ClashError:  # too short, or it hardly moves
            continue
        slides.append(slide)
    if not slides:
        return None
    friction = ground_friction(slides, gyration=gyration, gravity=gravity)
    numbers = {
        "sliding": friction.sliding,
        "sliding_error": friction.sliding_error,
        "torsional": friction.torsional,
        "torsional_error": friction.torsional_error,
    }
    if friction.torsional == 0:  # held at zero, so its error says nothing
        numbers["torsional_error"] = np.nan
    return {"slides": len(slides)} | {k: v if np.isfinite(v) else None for k, v in numbers.items()}
