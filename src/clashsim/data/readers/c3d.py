"""C3D logs: labelled markers, and the rigid bodies they are on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError, did_you_mean
from clashsim.data.readers.c3d_file import read_markers
from clashsim.data.readers.convert import select_bodies
from clashsim.data.readers.mapping import LoggerMapping
from clashsim.data.readers.markers import fit_marker_poses
from clashsim.data.readers.streams import Log, Stream

_MIN_MARKERS = 3  # of a body
# Positions of markers on their body by label; an empty tuple where the position is not known.
_Markers = Mapping[str, tuple[float, ...]]


def read_c3d(path: Path, logger: LoggerMapping) -> Log:
    """Read the bodies of a C3D file.

    The mapping names the markers of each body. Without it, there is one body for each prefix of
    labels such as `body:marker`.
    """
    recording = read_markers(path)
    labels = recording.labels
    scale = logger.unit("length", recording.length)
    bodies = {}
    for name, markers in _markers_of_bodies(logger, labels).items():
        positions = _marker_positions(name, markers, labels)
        seen = recording.points[:, [labels.index(label) for label in markers]]
        in_metres = None if positions is None else positions * scale
        pose, mirror_ratio = fit_marker_poses(seen * scale, in_metres, name)
        pose[:, :3] /= scale  # back to the log's unit, from which `select_bodies` converts
        bodies[name] = Stream(name, recording.t, pose, mirror_ratio=mirror_ratio)
    return select_bodies(bodies, logger, length=recording.length, up=recording.up)


def _markers_of_bodies(logger: LoggerMapping, labels: Sequence[str]) -> dict[str, _Markers]:
    """The markers of each body, as the mapping says or by the prefixes of labels."""
    bodies: dict[str, _Markers] = {}
    for body in logger.bodies:
        name = body.source_name
        bodies[name] = body.markers or _markers_with_prefix(name, labels)
    if not bodies:
        prefixes = [label.split(":")[0] for label in labels if ":" in label]
        for name in dict.fromkeys(prefixes):
            if prefixes.count(name) >= _MIN_MARKERS:
                bodies[name] = _markers_with_prefix(name, labels)
    if not bodies:
        raise DataError(
            "no body has three markers labelled body:marker; name the markers in the mapping"
            f" (the labels are {', '.join(labels[:12])})"
        )
    return bodies


def _markers_with_prefix(name: str, labels: Sequence[str]) -> _Markers:
    """Markers with labels `name:marker`, whose positions on the body are not known."""
    return {label: () for label in labels if label.startswith(f"{name}:")}


def _marker_positions(name: str, markers: _Markers, labels: Sequence[str]) -> np.ndarray | None:
    """Positions (M, 3) of markers on their body in the log's unit; None where none are given."""
    for label in markers:
        if label not in labels:
            raise DataError(f"there is no marker {label[:60]!r}; {did_you_mean(label, labels)}")
    if len(markers) < _MIN_MARKERS:
        raise DataError(f"body {name!r} has {len(markers)} markers, where three are needed")
    given = [position for position in markers.values() if position]
    if not given:
        return None
    if len(given) < len(markers):
        raise DataError(f"body {name!r} has places for some of its markers only")
    return np.array(given, float)
