"""The notes of a run (options, metrics, trials, versions) as JSON, and their check on reading.

Notes are printed and compared without further checks, and a run folder may come from somebody else.
So values that do not have the types declared here are refused with one sentence.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from clashsim.core.errors import RunError

_MAX_INTEGER = 2**63  # no count of anything is larger
_MAX_PATH = 100  # characters of a value's path in a message
# How types are called in messages.
_NAMES = {int: "a whole number", float: "a number", str: "text", types.NoneType: "null"}


class TrialNote(TypedDict):
    """Impacts that the run was fitted to."""

    name: str
    impacts: int


Accuracy = TypedDict("Accuracy", {"accuracy_0.1": float, "accuracy_0.2": float, "median": float})


class RestitutionNote(TypedDict):
    """Restitution of a head-on impact at some speeds (m/s), with nominal and identified theta."""

    speeds: list[float]
    nominal: list[float]
    identified: list[float]


class GroundNote(TypedDict):
    """Friction of the ground, with standard errors."""

    slides: int
    sliding: float
    sliding_error: float | None
    torsional: float
    torsional_error: float | None


class Sentence(TypedDict):
    """A sentence for the reader."""

    words: str


class TimeStepNote(TypedDict):
    """That the scene's time step is too long: a sentence, and a clause of the conclusion."""

    sentence: str
    cause: str


class OutlierNote(TypedDict):
    """A fitted impact that is far from what the others predict.

    Its error is in standard deviations, its weight over the median weight.
    """

    impact: str
    deviation: float
    weight: float
    cause: str | None


class Metrics(TypedDict, total=False):
    """Results of the calibration and of its evaluation."""

    impacts: int
    held_out: int
    outside: int
    num_left_out: int
    judged: str
    models: dict[str, Accuracy]
    judged_models: int
    striker_models: dict[str, Accuracy]
    judged_striker_models: int
    restitution: RestitutionNote
    ground: GroundNote
    outliers: list[OutlierNote]
    segmented: list[str]
    left_out: list[str]
    warned: list[str]
    forces: list[str]
    time_step: TimeStepNote
    slide: Sentence


class PairsNote(TypedDict):
    """Content of pairs.json: names of the pairs of a run, and sentences on all of them."""

    pairs: list[str]
    notes: list[str]


class SlideEstimate(TypedDict):
    """One value of a slide model."""

    name: str
    low: float
    high: float
    status: str


class SlideFigures(TypedDict):
    """How a slide model was fitted."""

    slides: int
    estimates: list[SlideEstimate]


class _SlideModelNote(TypedDict):
    """Required keys of a slide model in slide.json."""

    values: dict[str, float]
    gyration: float
    centre: tuple[float, float]
    gravity: float
    steps: int


class SlideNote(_SlideModelNote, total=False):
    """The content of slide.json: a slide model, and optionally how it was fitted."""

    delay: float
    rest_std: float
    fit: SlideFigures


class RunOptions(TypedDict, total=False):
    """Options of the calibrate command that are read again later; a run may hold others too."""

    impacts: int | str
    known: list[str]
    recorded: tuple[str, str, str]


class Notes(TypedDict):
    """All notes of a run, without the slide model, which not every run has."""

    metrics: Metrics
    trials: list[TrialNote]
    versions: dict[str, str]
    options: RunOptions


def check_notes(notes: Mapping[str, Any]) -> None:
    """Raise `RunError` if the notes of a run do not have the types that clashsim writes."""
    for name, kind in get_type_hints(Notes).items():
        conform(notes[name], kind, name)
    if notes["slide"] is not None:
        conform(notes["slide"], SlideNote, "slide")
    metrics = notes["metrics"]
    for name, needed in (
        ("models", "judged"),
        ("striker_models", "judged"),
        ("outside", "impacts"),
    ):
        if name in metrics and needed not in metrics:
            raise RunError(f"the run is damaged: metrics.{name} is there without metrics.{needed}")
    reading = metrics.get("restitution")
    if reading is not None and len({len(column) for column in reading.values()}) > 1:
        raise RunError("the run is damaged: the columns of metrics.restitution differ in length")


def conform(value: Any, kind: Any, path: str) -> None:
    """Raise `RunError` if a value that was read from JSON does not have a type.

    Args:
        value: The value.
        kind: The type: a `TypedDict` (a table may have further keys); dict, list or tuple of such
            types (tuples are lists in JSON); int, float, str, None, or a union of these.
        path: Path of the value, for the message.
    """
    origin = get_origin(kind)
    arguments = get_args(kind)
    if is_typeddict(kind):
        _expect(isinstance(value, dict), path, "a table")
        hints = get_type_hints(kind)
        for key in kind.__required_keys__:
            _expect(key in value, f"{path}.{key}", "there")
        for key in hints.keys() & value.keys():
            conform(value[key], hints[key], f"{path}.{key}")
    elif origin is dict:
        _expect(isinstance(value, dict), path, "a table")
        for key, item in value.items():
            conform(item, arguments[1], f"{path}.{key}")
    elif origin is list:
        _expect(isinstance(value, list), path, "a list")
        for index, item in enumerate(value):
            conform(item, arguments[0], f"{path}.{index}")
    elif origin is tuple:
        _expect(isinstance(value, list), path, "a list")
        _expect(len(value) == len(arguments), path, f"{len(arguments)} entries long")
        for index, item in enumerate(value):
            conform(item, arguments[index], f"{path}.{index}")
    else:
        choices = arguments if origin is types.UnionType else (kind,)
        names = " or ".join(_NAMES[choice] for choice in choices)
        _expect(any(_has_type(value, choice) for choice in choices), path, names)


def _has_type(value: Any, kind: type) -> bool:
    """Whether a JSON value has the type int, float, str or None; an int also is a float."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER:
        return False
    return isinstance(value, int | float if kind is float else kind)


def _expect(holds: bool, path: str, what: str) -> None:
    """Raise `RunError` ("path is not what") unless a condition holds."""
    if not holds:
        raise RunError(f"the run is damaged: {path[:_MAX_PATH]} is not {what}")
