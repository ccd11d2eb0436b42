"""Impacts whose numbers mean something else are recognised, and correct ones are not suspected."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from clashsim import cli
from clashsim.bench import scenes
from clashsim.bench.user_scenes import hidden_model, record, user_scenes
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.data import datasets
from clashsim.data.checks import impact_conventions
from clashsim.data.checks.impact_conventions import check_impacts
from clashsim.data.checks.impact_misfit import measure_misfit
from clashsim.data.impact_files import write_impacts
from clashsim.pipeline.recorded_impacts import RecordedImpacts, check_conventions

SCENES = {scene.name: scene for scene in user_scenes()}
PLANAR = ("tee struck by a pusher", "plate against a wall")
SPATIAL = ("ellipsoid tossed", "hammer tossed")
DEGREES = 180 / np.pi


@lru_cache
def recordings(name: str, seed: int) -> Impacts:
    user_scene = SCENES[name]
    rng = np.random.default_rng(seed)
    before, after = record(user_scene, hidden_model(user_scene, rng), 8, rng)
    return scenes._noisy(user_scene, before, after, rng)


@lru_cache
def loaded(name: str, folder: Path) -> Scene:
    user_scene = SCENES[name]
    path = folder / f"{name.replace(' ', '_')}{user_scene.suffix}"
    path.write_text(user_scene.xml)
    scene = Scene.load(path, **user_scene.arguments)
    return replace(scene, ground=None) if not user_scene.planar else scene


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


def recorded(name: str, folder: Path, seed: int = 0) -> tuple[Scene, Impacts]:
    impacts = recordings(name, seed)
    own = replace(impacts, before=impacts.before.copy(), after=impacts.after.copy())
    return loaded(name, folder), own


def degrees(impacts: Impacts) -> None:
    for body in (impacts.motion.struck, impacts.motion.striker):
        if impacts.planar:
            body.yaw[:] *= DEGREES
        body.angular_velocity[:] *= DEGREES
    impacts.after[:, 2 if impacts.planar else 3 :] *= DEGREES


def millimetres(impacts: Impacts, factor: float = 1e3) -> None:
    for body in (impacts.motion.struck, impacts.motion.striker):
        body.position[:] *= factor
        body.velocity[:] *= factor
    impacts.after[:, : 2 if impacts.planar else 3] *= factor


def scene_in_millimetres(impacts: Impacts) -> None:
    millimetres(impacts, 1e-3)


def bodies_exchanged(impacts: Impacts) -> None:
    impacts.before[:] = np.roll(impacts.before, impacts.before.shape[1] // 2, axis=1)


def axes_exchanged(impacts: Impacts) -> None:
    first, second = (0, 1) if impacts.planar else (1, 2)
    for body in (impacts.motion.struck, impacts.motion.striker):
        for values in (body.position, body.velocity):
            values[:, [first, second]] = values[:, [second, first]]
    impacts.after[:, [first, second]] = impacts.after[:, [second, first]]


def mirrored(impacts: Impacts) -> None:
    axis = 0 if impacts.planar else 2
    for body in (impacts.motion.struck, impacts.motion.striker):
        body.position[:, axis] *= -1
        body.velocity[:, axis] *= -1
    impacts.after[:, axis] *= -1


def xyzw(impacts: Impacts) -> None:
    for body in (impacts.motion.struck, impacts.motion.striker):
        body.quaternion[:] = body.quaternion[:, [1, 2, 3, 0]]


MISTAKES = {
    degrees: "angle_unit",
    millimetres: "length_unit",
    scene_in_millimetres: "length_unit",
    bodies_exchanged: "swapped",
    axes_exchanged: "axes",
}
CASES = [
    *((name, mistake, finding) for name in PLANAR for mistake, finding in MISTAKES.items()),
    *((name, mistake, finding) for name in SPATIAL for mistake, finding in MISTAKES.items()),
    ("tee struck by a pusher", mirrored, "mirrored"),
    *((name, mirrored, "mirrored") for name in SPATIAL),
    ("hammer tossed", xyzw, "quaternion_order"),
]


@pytest.mark.parametrize(("name", "mistake", "finding"), CASES)
def test_a_mistake_is_named_with_its_remedy(
    folder, name: str, mistake: Callable[[Impacts], None], finding: str
):
    scene, impacts = recorded(name, folder)
    mistake(impacts)
    found = check_impacts(scene, impacts)
    assert [(f.name, f.severity) for f in found] == [(finding, "stop")], found
    assert "; " in found[0].message


def test_swapped_columns_can_be_renamed_or_the_roles_exchanged():
    swapped = [c for c in impact_conventions._exchanged_bodies() if "of the scene" in c.cause]
    message = impact_conventions._message(swapped, share=0.8, best=0.05)
    assert "rename the columns" in message and "--struck and --striker" in message
    assert "80 % of a measured change of twist cannot come from an impulse at the" in message


@pytest.mark.parametrize(
    "name",
    [*PLANAR, *SPATIAL, "mesh tossed", "puck against a wall", "ball at a door", "block on a table"],
)
def test_correct_impacts_are_not_suspected(folder, name: str):
    scene, impacts = recorded(name, folder)
    assert check_impacts(scene, impacts) == []


def test_public_recordings_are_never_refused():
    root = os.environ.get("CLASHSIM_DATA")
    if not root:
        pytest.skip("needs public recordings: set CLASHSIM_DATA to the folder that holds them")
    for name in datasets.names(Path(root)):
        data = datasets.load(name, Path(root))
        scene = Scene.load(data.scene)
        for seed in range(4):
            rows = np.random.default_rng(seed).choice(len(data.impacts), 12, replace=False)
            found = check_impacts(scene, data.impacts[rows])
            assert all(f.severity == "warn" for f in found), (name, found)


def test_an_impulse_at_the_contact_explains_what_mujoco_does(folder):
    scene, impacts = recorded("tee struck by a pusher", folder)
    assert np.median(measure_misfit(scene, impacts).share) < 0.1
    impacts.motion.struck.position[:, 0] += 0.03  # another arm of the impulse
    impacts.motion.striker.position[:, 1] -= 0.03
    assert np.median(measure_misfit(scene, impacts).share) > 0.2


def test_outcomes_that_were_not_measured_are_not_judged(folder):
    scene, impacts = recorded("tee struck by a pusher", folder)
    impacts.after[:6, 2] = np.nan
    assert check_impacts(scene, impacts) == []
    degrees(impacts)
    assert [f.name for f in check_impacts(scene, impacts)] == ["angle_unit"]


def test_few_impacts_are_doubted_and_not_refused(folder):
    scene, impacts = recorded("tee struck by a pusher", folder)
    degrees(impacts)
    said: list[str] = []
    few = RecordedImpacts(impacts[np.arange(3)])
    check_conventions(few, scene, accept=(), name="impacts.csv", notify=said.append)
    assert len(said) == 1 and "angle_unit (warn)" in said[0]


def test_a_finding_can_be_accepted(folder):
    scene, impacts = recorded("tee struck by a pusher", folder)
    degrees(impacts)
    taken = RecordedImpacts(impacts)
    with pytest.raises(DataError, match=r"convert yaw, w, .* to radians .*--accept: angle_unit"):
        check_conventions(taken, scene, accept=(), name="impacts.csv", notify=print)
    check_conventions(taken, scene, accept=("angle_unit",), name="impacts.csv", notify=print)


def test_the_command_says_it_in_one_sentence_and_writes_nothing(tmp_path, folder, capsys):
    _, impacts = recorded("tee struck by a pusher", folder)
    (tmp_path / "scene.xml").write_text(SCENES["tee struck by a pusher"].xml)
    axes_exchanged(impacts)
    table, run = tmp_path / "impacts.csv", tmp_path / "run"
    write_impacts(table, impacts)
    command = ["calibrate", str(tmp_path / "scene.xml"), str(table), "-o", str(run)]
    assert cli.main(command) == 2
    message = capsys.readouterr().err.strip()
    assert "\n" not in message and "x and y are exchanged" in message
    assert not run.exists()
