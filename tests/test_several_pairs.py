"""Several pairs of one scene: one recording, one command, one run folder, one simulator."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
from rich.console import Console

import clashsim
from clashsim import cli
from clashsim.bench.scenes import in_one_recording, recorded_impacts
from clashsim.bench.user_scenes import hidden_model, scene_of_three_pairs
from clashsim.commands.view import strike_source
from clashsim.core.contact_frame import inertia
from clashsim.core.errors import DataError, ParamError, RunError
from clashsim.core.impacts import Impacts, to_columns
from clashsim.core.scene import Scene, author_model
from clashsim.core.trials import Trial, Trials
from clashsim.data.folders import write_folder
from clashsim.data.impact_files import read_impacts, write_impacts
from clashsim.data.trial_files import write_trials
from clashsim.evaluate import data_efficiency, trust_map
from clashsim.evaluate.metrics import relative_error
from clashsim.evaluate.pair_conclusions import brief_conclusion, overall_conclusion
from clashsim.fit.calibrate import Calibration, calibrate
from clashsim.fit.run_folder import read_notes
from clashsim.fit.solved_model import SolvedModel
from clashsim.pipeline import advice
from clashsim.pipeline.pair_recordings import named_pairs, pairs_of_trials
from clashsim.pipeline.pair_trials import impacts_of_trials
from clashsim.report.tables import pairs_table
from clashsim.view.strike_sources import MeasuredImpacts

# Round bodies: on corners small errors grow from one collision to the next.
RADIUS = 0.045  # m
SCENES = list(scene_of_three_pairs(f'<geom type="sphere" size="{RADIUS}" mass=".2"/>'))
NUM_IMPACTS = {"ball": 12, "wall": 12, "brick": 2}
NUM_TESTED = 30
CONTACT_STIFFNESS = 6e4  # N/m
DAMPING_RATIO = 0.2
FRICTION = 0.15


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    """The scene as it really is, with all bodies of one material, whose contacts take 3 to 5 ms."""
    model = hidden_model(SCENES[0], np.random.default_rng(0))
    model.geom_friction[:, 0] = FRICTION
    block = model.body("block").mass[0]
    for geom in range(model.ngeom):
        mass = model.body_mass[model.geom_bodyid[geom]]
        moved = block if mass == 0 else 1 / (1 / block + 1 / mass)
        # Of the solref of two geoms, MuJoCo takes the stiffer one; the block itself is softest.
        is_block = model.geom_bodyid[geom] == model.body("block").id
        stiffness = CONTACT_STIFFNESS / (block if is_block else moved)
        model.geom_solref[geom] = [-stiffness, -2 * DAMPING_RATIO * np.sqrt(stiffness)]
    return model


@pytest.fixture(scope="module")
def recorded(model) -> dict[str, Impacts]:
    """Impacts of each pair, by the striker."""
    rng = np.random.default_rng(1)
    num = NUM_TESTED + 12
    return {s.arguments["striker"]: recorded_impacts(s, model, num, rng) for s in SCENES}


def table(recorded: dict[str, Impacts], num_impacts: dict[str, int]) -> Impacts:
    """One table with the first impacts of each pair."""
    parts = [recorded[name][:num] for name, num in num_impacts.items()]
    scenes = [scene for scene in SCENES if scene.arguments["striker"] in num_impacts]
    return in_one_recording(scenes, parts)


@pytest.fixture(scope="module")
def folder(recorded, tmp_path_factory) -> Path:
    """A scene, a recording in which two rows name no body, and the run that the command makes."""
    out = tmp_path_factory.mktemp("pairs")
    (out / "scene.xml").write_text(SCENES[0].xml)
    impacts = table(recorded, NUM_IMPACTS)
    bodies = impacts.bodies.astype(object)
    bodies[[3, 14], 1] = ["bal", "wall of bricks"]
    write_impacts(out / "impacts.csv", replace(impacts, bodies=bodies))
    with pytest.MonkeyPatch.context() as patch:
        make_reports_quick(patch)
        command = ["calibrate", str(out / "scene.xml"), str(out / "impacts.csv")]
        assert cli.main([*command, "-o", str(out / "run"), "--hold-out", "0.25"]) == 0
    return out


def make_reports_quick(patch: pytest.MonkeyPatch) -> None:
    """Reports with the same sections, from fewer strikes and subsets."""
    patch.setattr(trust_map, "_NUM_STRIKES", 64)
    patch.setattr(advice, "_CANDIDATES", 32)
    patch.setattr(data_efficiency, "_NUM_SUBSETS", 1)
    patch.setattr(data_efficiency, "_SIZES", (3,))


def accuracy(calibration: Calibration, held_out: Impacts) -> float:
    """Share of impacts that are predicted within 10 %."""
    scene = calibration.base.scene
    gyration = inertia(scene, scene.struck_body).gyration
    error = relative_error(calibration.predict(held_out), held_out.after, gyration)
    return float((error < 0.1).mean())


@pytest.mark.parametrize("striker", ["ball", "wall"])
def test_each_pair_is_predicted(folder, recorded, striker):
    run = clashsim.load(folder / "run")
    assert isinstance(run, clashsim.CalibratedPairs)
    calibration = run[f"block-{striker}"].calibration
    assert accuracy(calibration, recorded[striker][-NUM_TESTED:]) >= 0.9
    with pytest.raises(RunError, match=r"no pair 'block-bal'.*block-ball"):
        run["block-bal"]


def test_what_was_left_out_is_said(folder, capsys):
    assert cli.main(["show", str(folder / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for sentence in (
        "1 of 26 impacts (3), whose striker is called 'bal', since scene 'scene' has no body or "
        "geom of that name; did you mean ball,",
        "1 of 26 impacts (14), whose striker is called 'wall of bricks'",
        "left out: pair block-brick, which has 2 usable impacts, and at least 3 are needed",
        "Good: all 2 pairs can be used (block-ball, block-wall).",
    ):
        assert sentence in said


def test_the_terminal_has_a_line_for_each_pair(folder, capsys):
    assert cli.main(["show", str(folder / "run")]) == 0
    brief = capsys.readouterr().out
    assert max(map(len, brief.splitlines())) <= 100
    assert "90 % interval" not in brief  # tables of parameters are details
    rows = [line.split() for line in brief.splitlines() if line.startswith("│ block-")]
    cells = [" ".join(row).strip("│ ").split(" │ ") for row in rows]
    assert [row[0] for row in cells] == ["block-ball", "block-wall"]
    # One row of each names another body, so it is left out of the recording, not of a pair.
    assert [row[1:3] for row in cells] == [["11", "0"], ["11", "0"]]
    for row in cells:
        own, identified = (float(share) for share in row[3].removesuffix(" %").split(" / "))
        assert own >= identified
        assert row[-1] == "good"
    assert "clashsim show" in brief and "--details" in brief
    assert cli.main(["show", str(folder / "run"), "--details"]) == 0
    detailed = capsys.readouterr().out
    assert detailed.count("90 % interval") == 2
    assert max(map(len, detailed.splitlines())) <= 100


def test_the_table_says_what_was_left_out_and_what_is_wrong():
    def of_pair(own, identified, **more):
        figures = {"clashsim": own, "MuJoCo, identified": identified}
        models = {k: {"accuracy_0.1": v, "median": 1 - v} for k, v in figures.items()}
        return {"impacts": 10, "held_out": 2, "models": models, **more}

    outlier = {"impact": "impact 3", "deviation": 9.0, "weight": 0.01, "cause": None}
    metrics = {
        "a-b": of_pair(0.9, 0.5, num_left_out=3, outliers=[outlier]),
        "a-c": of_pair(0.3, 0.9),
        "a-d": {"impacts": 3, "held_out": 0},
    }
    brief = {name: brief_conclusion(found) for name, found in metrics.items()}
    assert brief == {
        "a-b": "good, 1 outlier",
        "a-c": "worse than MuJoCo with identified values",
        "a-d": "not judged",
    }
    out = Console(file=io.StringIO(), width=100)
    out.print(pairs_table(metrics, brief))
    text = out.file.getvalue()
    rows = {line.split()[1]: line for line in text.splitlines() if line.startswith("│ a-")}
    cells = [cell.strip() for cell in rows["a-b"].strip("│").split("│")]
    assert cells == ["a-b", "12", "3", "90 / 50 %", "10.0 / 50.0", "good, 1 outlier"]
    assert "worse than MuJoCo" in rows["a-c"]
    assert rows["a-d"].count(" - │") == 2


def test_the_report_has_a_section_for_each_pair(folder):
    page = (folder / "run" / "report.html").read_text()
    for name in ("block-ball", "block-wall"):
        assert f"<h2>{name}</h2>" in page
        own = f"pairs/{name}/report.html"
        assert f'href="{own}"' in page
        assert (folder / "run" / own).is_file()
    assert "all 2 pairs can be used" in page
    assert "whose striker is called" in page


@pytest.mark.parametrize("command", ["plan", "export", "advise", "view", "train"])
def test_commands_for_one_pair_name_the_folders(folder, capsys, command):
    more = {"plan": ["--target", "0", "0.1", "10"], "advise": [], "view": []}
    options = more.get(command, ["-o", str(folder / "out")])
    assert cli.main([command, str(folder / "run"), *options]) == 2
    message = capsys.readouterr().err
    assert "is of 2 pairs" in message
    assert "run/pairs/block-ball or" in message
    assert not (folder / "out").exists()


def test_the_folder_of_a_pair_is_a_run(folder, tmp_path):
    whole = clashsim.load(folder / "run")
    run = clashsim.load(folder / "run" / "pairs" / "block-wall")
    np.testing.assert_array_equal(run.theta, whole["block-wall"].theta)
    command = ["export", str(folder / "run" / "pairs" / "block-wall"), "-o", str(tmp_path / "out")]
    assert cli.main(command) == 0
    assert 'geom1="wall"' in (tmp_path / "out" / "scene.xml").read_text()


def test_the_viewer_replays_the_impacts_of_the_pair(folder):
    own = folder / "run" / "pairs" / "block-wall"
    source = strike_source(clashsim.load(own), read_notes(own), None)
    assert isinstance(source, MeasuredImpacts)
    assert len(source.names) == NUM_IMPACTS["wall"] - 1  # one row names another body


def test_a_changed_pair_is_noticed(folder, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(folder / "run", copy)
    theta = copy / "pairs" / "block-wall" / "theta.json"
    theta.write_bytes(theta.read_bytes() + b" ")
    with pytest.raises(RunError, match=r"theta\.json does not match its hash"):
        clashsim.load(copy)
    write_folder(copy, {"pairs.json": b'{"pairs": 3, "notes": []}'}, overwrite=True)
    with pytest.raises(RunError, match="pairs"):
        clashsim.load(copy)


def test_identified_values_hold_where_mujoco_resolves_a_collision(folder):
    run = clashsim.load(folder / "run")
    hybrid = run.hybrid()
    for pair, name in zip(hybrid.pairs, run.runs, strict=True):
        values = dict(zip([p.name for p in run[name].scene.params], run[name].theta, strict=True))
        geoms = {hybrid.model.geom(pair.pair.struck).id, hybrid.model.geom(pair.pair.striker).id}
        both = np.column_stack([hybrid.model.pair_geom1, hybrid.model.pair_geom2])
        row = next(i for i, found in enumerate(both) if set(found.tolist()) == geoms)
        np.testing.assert_allclose(hybrid.model.pair_friction[row, :2], values["friction"])
        expected = [-values["stiffness"], -values["damping"]]
        np.testing.assert_allclose(hybrid.model.pair_solref[row], expected)
    mass = dict(zip([p.name for p in run.scene.params], run["block-ball"].theta, strict=True))
    np.testing.assert_allclose(hybrid.model.body("ball").mass, mass["striker_mass"])


def test_pairs_of_the_same_material_share_a_law(recorded, tmp_path, monkeypatch):
    make_reports_quick(monkeypatch)
    (tmp_path / "scene.xml").write_text(SCENES[0].xml)
    # Of the wall three impacts that are nearly head-on, from which friction cannot be identified.
    wall = recorded["wall"][:-NUM_TESTED]
    sliding = np.abs(wall.twist[:, 1] + wall.twist[:, 2] * RADIUS) / wall.twist[:, 0]
    few = wall[np.argsort(sliding)[:3]]
    both = table({**recorded, "wall": few}, {"ball": 12, "wall": 3})
    write_impacts(tmp_path / "few.csv", both)
    result = clashsim.calibrate_pairs(
        str(tmp_path / "scene.xml"),
        tmp_path / "few.csv",
        tmp_path / "run",
        config=clashsim.CalibrationConfig(same_material=True, hold_out=0.1),
    )
    assert list(result.pairs) == ["block-ball", "block-wall"]
    assert "too few impacts to judge block-wall" in result.conclusion
    ball = result.run["block-ball"].calibration
    with_prior = result.run["block-wall"].calibration
    alone = calibrate(SolvedModel(wall_scene(tmp_path)), few)
    assert with_prior.base.scene.params[0].nominal == pytest.approx(friction(ball))
    assert abs(friction(with_prior) - FRICTION) < 0.03 < abs(friction(alone) - FRICTION)
    assert accuracy(with_prior, recorded["wall"][-NUM_TESTED:]) >= 0.9
    assert read_notes(result.folder / "pairs/block-wall")["options"]["prior_pair"] == "block-ball"


def friction(calibration: Calibration) -> float:
    """The identified friction coefficient."""
    return next(estimate.value for estimate in calibration.theta if estimate.name == "friction")


def wall_scene(folder: Path) -> Scene:
    """The scene with the wall as what the block hits."""
    return Scene.load(folder / "scene.xml", struck="block", striker="wall")


def test_the_hybrid_simulator_uses_all_pairs(folder, model):
    """Strikes followed by hits of the wall, compared with plain MuJoCo as the scene really is."""
    timestep = 1e-3
    duration = 0.4
    hybrid = clashsim.load(folder / "run").hybrid(timestep=timestep)
    num = 20
    start = np.zeros((num, model.nq + model.nv))
    rng = np.random.default_rng(3)
    ball = int(model.joint("bx").qposadr[0])
    start[:, ball] = 0.9
    start[:, ball + 1] = rng.uniform(-0.03, 0.03, num)
    start[:, model.nq + ball] = rng.uniform(0.8, 1.6, num)
    control = np.zeros((num, round(duration / timestep), 0))
    end = hybrid.rollout(start, control)[:, -1]
    assert hybrid.collision_stats.learned > 1.5 * num
    errors = []
    for row in range(num):
        expected, hits = in_mujoco(model, start[row], duration)
        if hits == [1, 1]:
            difference = weighted_twist(model, end[row]) - weighted_twist(model, expected)
            scale = np.linalg.norm(weighted_twist(model, expected))
            errors.append(np.linalg.norm(difference) / scale)
    assert len(errors) >= 10
    assert max(errors) < 0.1


def in_mujoco(
    model: mujoco.MjModel, start: np.ndarray, duration: float
) -> tuple[np.ndarray, list[int]]:
    """State after a simulation, and how often ball and wall were hit."""
    data = mujoco.MjData(model)
    data.qpos[:] = start[: model.nq]
    data.qvel[:] = start[model.nq :]
    others = [model.body("ball").geomadr[0], model.geom("wall").id]
    hits = [0, 0]
    touching = [False, False]
    for _ in range(round(duration / model.opt.timestep)):
        mujoco.mj_step(model, data)
        for i, other in enumerate(others):
            now = bool((data.contact.geom == other).any())
            hits[i] += now and not touching[i]
            touching[i] = now
    return np.concatenate([data.qpos, data.qvel]), hits


def weighted_twist(model: mujoco.MjModel, state: np.ndarray) -> np.ndarray:
    """Twist of the block, angular velocity times the radius of gyration, m/s."""
    gyration = np.sqrt(model.body_inertia[1, 2] / model.body_mass[1])
    return state[model.nq : model.nq + 3] * [1, 1, gyration]


def test_a_recording_of_one_pair_needs_no_names_on_the_command_line(recorded, tmp_path):
    (tmp_path / "scene.xml").write_text(SCENES[0].xml)
    one = table(recorded, {"wall": 4})
    write_impacts(tmp_path / "one.csv", one)
    source = str(tmp_path / "scene.xml")
    with pytest.raises(ParamError, match="--same-material is for several pairs"):
        config = clashsim.CalibrationConfig(same_material=True)
        clashsim.calibrate_run(source, tmp_path / "one.csv", tmp_path / "run", config=config)
    with pytest.raises(ParamError, match="leave out --struck and --striker"):
        config = clashsim.CalibrationConfig(struck="block", striker="ball")
        clashsim.calibrate_run(source, tmp_path / "one.csv", tmp_path / "run", config=config)
    result = clashsim.calibrate_run(source, tmp_path / "one.csv", tmp_path / "run")
    assert result.run.scene.striker == "wall"
    assert result.metrics["impacts"] == 4


def test_impacts_in_trials_are_of_the_pair_that_touches(model, tmp_path):
    trials = Trials(tuple(recorded_trial(model, number) for number in range(6)))
    (tmp_path / "scene.xml").write_text(SCENES[0].xml)
    write_trials(tmp_path / "trials.safetensors", trials)
    names = [("block", "ball"), ("block", "wall"), ("block", "brick")]
    pairs = pairs_of_trials(names, author_model(tmp_path / "scene.xml"), "scene")
    scenes = {
        pair.name: Scene.load(tmp_path / "scene.xml", struck=pair.struck, striker=pair.striker)
        for pair in pairs
    }
    said: list[str] = []
    found = impacts_of_trials(trials, scenes, (), said.append)
    assert said[2] == "block-brick: 0 impacts in 6 trials"
    assert found.keys() == {"block-ball", "block-wall"}
    at_wall = found["block-wall"].impacts.pose[:, 0]
    np.testing.assert_allclose(at_wall, 0.23 - RADIUS, atol=0.01)
    by_ball = found["block-ball"].impacts
    distance = np.linalg.norm(by_ball.pose[:, :2] - by_ball.striker_pose[:, :2], axis=1)
    np.testing.assert_allclose(distance, RADIUS + 0.015, atol=0.01)
    for name in found:
        assert len(found[name].impacts) >= 5
        scene = scenes[name]
        predicted = SolvedModel(scene).predict(found[name].impacts, true_theta(scene, model))
        gyration = inertia(scene, scene.struck_body).gyration
        error = relative_error(predicted, found[name].impacts.after, gyration)
        assert np.median(error) < 0.1


def recorded_trial(model: mujoco.MjModel, number: int) -> Trial:
    """A trial in which the ball strikes the block, which then hits the wall."""
    rng = np.random.default_rng(number)
    data = mujoco.MjData(model)
    ball = int(model.joint("bx").qposadr[0])
    data.qpos[ball : ball + 2] = 0.85, rng.uniform(-0.03, 0.03)
    data.qvel[ball] = rng.uniform(0.8, 1.2)
    every = round(1 / 400 / model.opt.timestep)
    poses: dict[str, list[np.ndarray]] = {"block": [], "ball": [], "brick": []}
    for step in range(280 * every):
        if step % every == 0:
            for name, rows in poses.items():
                body = data.body(name)
                rows.append(np.concatenate([body.xpos + rng.normal(0, 2e-5, 3), body.xquat]))
        mujoco.mj_step(model, data)
    t = np.arange(280) * every * model.opt.timestep
    return Trial(f"trial {number}", t, {name: np.array(rows) for name, rows in poses.items()})


def true_theta(scene: Scene, model: mujoco.MjModel) -> np.ndarray:
    """Parameters of a pair with which the scene really is."""
    geoms = [model.geom("wall").id if scene.striker == "wall" else model.body("ball").geomadr[0]]
    stiffness, damping = -model.geom_solref[geoms[0]]
    contact = {"friction": FRICTION, "stiffness": stiffness, "damping": damping}
    nominal = [
        contact.get(param.name, 60.0 if param.name == "tangential_stiffness" else param.nominal)
        for param in scene.params
    ]
    return np.array(nominal)


def test_pairs_in_trials_are_named(model, tmp_path):
    trials = Trials(tuple(recorded_trial(model, number) for number in range(2)))
    path = tmp_path / "trials.safetensors"
    write_trials(path, trials)
    assert named_pairs(path, ["block:ball"]) == [("block", "ball")]
    with pytest.raises(ParamError, match=r"STRUCK:STRIKER, as in block:wall, got 'block'"):
        named_pairs(path, ["block"])
    (tmp_path / "scene.xml").write_text(SCENES[0].xml)
    source = str(tmp_path / "scene.xml")
    with pytest.raises(ParamError, match=r"name the pairs .* --pairs block:ball block:wall"):
        clashsim.calibrate_pairs(source, path, tmp_path / "run")
    config = clashsim.CalibrationConfig(pairs=("block:ball", "block:wal"))
    with pytest.raises(ParamError, match=r"different pairs .* got block:ball, block:wal"):
        clashsim.calibrate_pairs(source, path, tmp_path / "run", config=config)
    (tmp_path / "impacts.csv").write_text("vx,vx_after,vy_after,w_after\n1,0,0,0\n")
    with pytest.raises(ParamError, match="--pairs is for trials"):
        named_pairs(tmp_path / "impacts.csv", ["block:ball"])


def refused(folder: Path, impacts: Impacts, **options) -> str:
    """The message with which a recording of several pairs is refused."""
    (folder / "scene.xml").write_text(SCENES[0].xml)
    write_impacts(folder / "bad.csv", impacts)
    config = clashsim.CalibrationConfig(**options)
    with pytest.raises(clashsim.ClashError) as error:
        clashsim.calibrate_pairs(
            str(folder / "scene.xml"), folder / "bad.csv", folder / "run", config=config
        )
    assert not (folder / "run").exists()
    return str(error.value)


def test_what_cannot_be_calibrated_is_refused_in_a_sentence(recorded, tmp_path):
    few = table(recorded, {"ball": 3, "wall": 3})
    swapped = few.bodies.copy()
    swapped[1] = ["ball", "block"]
    message = refused(tmp_path, replace(few, bodies=swapped))
    assert "impacts 1 have 'ball' struck by 'block'" in message and "in one order" in message
    unknown = np.full((6, 2), "blok")
    assert "6 of 6 impacts" in refused(tmp_path, replace(few, bodies=unknown))
    same = np.full((6, 2), "block")
    assert "are the same body" in refused(tmp_path, replace(few, bodies=same))
    two = table(recorded, {"ball": 2, "wall": 2})
    assert "no pair of 'bad.csv' has 3 usable impacts" in refused(tmp_path, two)
    known = replace(few, known={"temperature": np.ones(6)})
    assert "unknown column 'temperature'" in refused(tmp_path, known)
    assert "does not name the bodies" in refused(tmp_path, replace(few, bodies=None))
    assert "leave out --struck" in refused(tmp_path, few, struck="block")
    assert "clashsim export" in refused(tmp_path, few, write_mjcf=tmp_path / "out.xml")
    with pytest.raises(ParamError, match=r"2 pairs \(block and ball, block and wall\)"):
        write_impacts(tmp_path / "few.csv", few)
        clashsim.calibrate_run(str(tmp_path / "scene.xml"), tmp_path / "few.csv", tmp_path / "run")


@pytest.mark.parametrize("ending", [".csv", ".json", ".npz", ".safetensors"])
def test_files_keep_the_names_of_bodies(recorded, tmp_path, ending):
    impacts = table(recorded, {"ball": 2, "wall": 1})
    path = tmp_path / f"impacts{ending}"
    if ending in (".csv", ".safetensors"):
        write_impacts(path, impacts)
    elif ending == ".npz":
        np.savez(path, **to_columns(impacts))
    else:
        columns = {name: values.tolist() for name, values in to_columns(impacts).items()}
        path.write_text(json.dumps(columns))
    again = read_impacts(path)
    assert again.bodies.tolist() == [["block", "ball"], ["block", "ball"], ["block", "wall"]]
    np.testing.assert_array_equal(again.before, impacts.before)
    assert again[[2]].bodies.tolist() == [["block", "wall"]]


def test_bad_names_of_bodies_are_refused(tmp_path):
    path = tmp_path / "impacts.csv"
    path.write_text("vx,vx_after,vy_after,w_after,struck\n1,0,0,0,block\n")
    with pytest.raises(DataError, match="no column 'striker'"):
        read_impacts(path)
    path.write_text(f"vx,vx_after,vy_after,w_after,struck,striker\n1,0,0,0,block,{'a' * 201}\n")
    with pytest.raises(DataError, match="a name of 201 characters"):
        read_impacts(path)
    rows = [{"vx": 1, "vx_after": 0, "vy_after": 0, "w_after": 0, "struck": 1, "striker": "a"}]
    (tmp_path / "impacts.json").write_text(json.dumps(rows))
    with pytest.raises(DataError, match="column 'struck' must have the name of a body"):
        read_impacts(tmp_path / "impacts.json")


def test_settings_count_for_their_own_pair(tmp_path):
    (tmp_path / "scene.xml").write_text(SCENES[0].xml)
    (tmp_path / "scene.toml").write_text(
        """struck = "block/0"
striker = "ball/0"
[[param]]
name = "friction"
target = "pair/strike/friction[0:2]"
nominal = 0.2
low = 0.1
high = 0.9
"""
    )
    own = Scene.load(tmp_path / "scene.xml", struck="block/0", striker="ball/0")
    assert [param.name for param in own.params] == ["friction"]
    assert "stiffness" in [param.name for param in wall_scene(tmp_path).params]


def test_all_pairs_are_judged_together():
    models = {"MuJoCo, identified": {"accuracy_0.1": 0.5}}
    good = {"impacts": 20, "models": {**models, "clashsim": {"accuracy_0.1": 0.9}}}
    bad = {"impacts": 20, "models": {**models, "clashsim": {"accuracy_0.1": 0.2}}}
    assert overall_conclusion({"a": good, "b": good}) == "Good: all 2 pairs can be used (a, b)."
    assert overall_conclusion({"a": good}) == "Good: the only pair, a, can be used."
    found = overall_conclusion({"a": good, "b": bad, "c": {"impacts": 3}})
    assert found == ("1 of 3 pairs can be used (a); do not rely on b; too few impacts to judge c.")
