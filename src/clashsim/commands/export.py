"""`clashsim export`."""

from __future__ import annotations

import csv
import io
import posixpath
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from clashsim.commands.shared import not_negative

if TYPE_CHECKING:
    import numpy as np

    from clashsim.cli import Export
    from clashsim.data.mjcf import EditedMjcf
    from clashsim.fit.calibrated_run import CalibratedRun


def run(verb: Export) -> None:
    """`clashsim export`."""
    from clashsim.data.folders import dumps, write_folder
    from clashsim.fit.run_folder import load, read_notes

    not_negative(draws=verb.draws, seed=verb.seed)
    made, slide = load(verb.run), read_notes(verb.run)["slide"]
    edited = made.mjcf()
    assets, folder = _beside(made.scene.assets)
    name = f"{folder}scene.xml"
    if name in assets:
        name = f"{folder}{made.scene.name}.xml"  # its own name is free: a file is not its own asset
    files = {name: edited.xml.encode(), "ranges.json": dumps(_ranges(made))}
    if verb.draws:
        files["draws.csv"] = _table(
            [p.name for p in made.scene.params], made.posterior_samples(verb.draws, verb.seed)
        )
    if slide is not None:
        files["slide.json"] = dumps(slide)
    write_folder(verb.out, files | assets, overwrite=verb.overwrite, kind="export")
    print(f"{', '.join(files)} written to {verb.out}{left_sentence(made, edited)}")
    away = [asset for asset in made.scene.assets if PurePosixPath(asset).is_absolute()]
    if away:
        print(f"files that the scene names by absolute paths are not in it: {', '.join(away)}")


def _beside(assets: Mapping[str, bytes]) -> tuple[dict[str, bytes], str]:
    """Files of a scene by their places in an export, and the folder of the scene itself there.

    A scene that names files of folders above its own is put as deep, so that its text can stay as
    it is. Files with absolute paths are left out.
    """
    above = [PurePosixPath(name).parts.count("..") for name in assets]
    folder = "scene/" * max(above, default=0)
    places = {}
    for name, content in assets.items():
        if not PurePosixPath(name).is_absolute():
            places[posixpath.normpath(folder + name)] = content
    return places, folder


def left_sentence(made: CalibratedRun, edited: EditedMjcf) -> str:
    """The tail of a sentence on a written scene: which parameters are not in it, and why."""
    left = [p.name for i, p in enumerate(made.scene.params) if i not in made.written_params]
    return (f"; left as they were: {', '.join(left)}" if left else "") + (
        f"; MJCF has no place for: {', '.join(edited.unwritten)}" if edited.unwritten else ""
    )


def _ranges(made: CalibratedRun) -> list[dict[str, Any]]:
    """One entry a parameter; MuJoCo holds sign times the value."""
    ends = made.ranges()
    return [
        {
            "name": p.name,
            "target": p.target,
            "unit": p.unit,
            "scale": p.scale,
            "sign": p.sign,
            "value": float(value),
            "low": ends[p.name][0],
            "high": ends[p.name][1],
            "status": e.status.value,
        }
        for p, e, value in zip(made.scene.params, made.calibration.theta, made.theta, strict=True)
    ]


def _table(names: list[str], rows: np.ndarray) -> bytes:
    """CSV with a header of names, and rows (n, p) to the last bit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([repr(float(x)) for x in row] for row in rows)
    return text.getvalue().encode()
