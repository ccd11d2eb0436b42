"""The real double pendulum: its reader, its camera, fits whose starts are not known, and the bench
in short.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest

from clashsim.bench.options import BenchOptions
from clashsim.core.errors import ClashError
from clashsim.core.params import Param
from clashsim.data.pendulum import ARM, FILE, RATE, PendulumRun, load, split

pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")

from clashsim.bench import pendulum_camera as pc
from clashsim.bench import real_pendulum as bench
from clashsim.fit.shooting import (
    FreeParameters,
    ObservationModel,
    TrajectoryWindows,
    fit_by_shooting,
)
from clashsim.sim.augmented.simulator import AugmentedSim, JacobianBlocks

ROOT = os.environ.get("CLASHSIM_DATA")
needs_data = pytest.mark.skipif(
    not ROOT or not (Path(ROOT) / FILE).is_file(),
    reason=f"needs the public recordings: point CLASHSIM_DATA at a folder that holds {FILE}",
)


def written(root: Path, runs: dict[str, np.ndarray]) -> Path:
    (root / FILE).parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(root / FILE, "w") as archive:
        for name, rows in runs.items():
            archive.writestr(
                f"train/{name}.csv",
                "\n".join(" ".join(f"{v:.0f}" for v in row) for row in rows) + "\n",
            )
    return root


def swung(pivot: tuple[float, float], arm: float, frames: int = 60) -> np.ndarray:
    """Rows of six numbers, fifth-pixels."""
    a = 0.02 * np.arange(frames)
    first = np.array(pivot) + arm * np.stack([np.cos(a), np.sin(a)], 1)
    return np.hstack(
        [
            np.tile(pivot, (frames, 1)),
            first,
            first + 0.76 * arm * np.stack([np.cos(2 * a), np.sin(2 * a)], 1),
        ]
    )


def test_runs_are_read_in_metres_and_recordings_stay_together(tmp_path) -> None:
    runs = load(
        written(
            tmp_path,
            {
                "2": swung((1200, 1160), 589),
                "10": swung((1173, 1225), 602),
                "0": swung((1200.5, 1160), 589),
                "3": swung((1190, 1200), 589),
            },
        )
    )
    assert [r.name for r in runs] == ["0", "2", "3", "10"]
    assert [r.recording for r in runs] == [
        0,
        0,
        1,
        2,
    ]
    assert all(
        abs(
            np.linalg.norm(r.marker_positions[:, 1] - r.marker_positions[:, 0], axis=1).mean() / ARM
            - 1
        )
        < 2e-3
        for r in runs
    )  # both distances of the camera
    for seed in range(6):
        fit, held = split(runs, share=0.25, seed=seed)
        assert held
        assert fit
        assert not {r.recording for r in fit} & {r.recording for r in held}
        assert len(fit) + len(held) == 4
    assert split(runs, seed=1)[1] == split(runs, seed=1)[1]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ({}, "no run"),
        ({"0": np.zeros((5, 5))}, "six numbers"),
        ({"0": swung((0, 0), 589)}, "two of them"),
    ],
)
def test_what_is_no_such_set_is_told(tmp_path, runs: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(ClashError, match=words):
        split(load(written(tmp_path, runs)))
    (tmp_path / FILE).write_bytes(b"PK nonsense")
    with pytest.raises(ClashError, match="truncated"):
        load(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(ClashError, match="github"):
        load(tmp_path)


def test_the_camera_sees_the_markers_and_its_slopes_are_right() -> None:
    state = np.array([[[0.0, np.pi / 2, 0, 0]]])
    own = np.array([[0.2, 0.1]])
    plain = pc.camera_view(state, pc.INITIAL_CAMERA, own)[0, 0]
    assert np.allclose(plain, [0.2, 0.1, 0.2 + ARM, 0.1, 0.2 + ARM, 0.1 + pc.INITIAL_CAMERA[1]])
    camera = pc.INITIAL_CAMERA + np.array(
        [1e-4, -2e-4, 3e-4, 1e-4, 2e-4, -1e-4, 1e-4, 1e-3, 2e-3, 0.02, -0.01, -0.1]
    )
    state = np.random.default_rng(0).normal(size=(2, 3, 4))
    own = np.tile(own, (2, 1))
    value, *jacobians = pc.camera_view_with_jacobian(state, camera, own)
    assert np.allclose(value, pc.camera_view(state, camera, own))
    for k, size in enumerate((4, 12, 2)):
        for j in range(size):
            shift = [np.zeros(4), np.zeros(12), np.zeros(2)]
            shift[k][j] = 1e-6
            above, below = (
                pc.camera_view(state + s * shift[0], camera + s * shift[1], own + s * shift[2])
                for s in (1, -1)
            )
            assert np.abs(jacobians[k][..., j] - (above - below) / 2e-6).max() < 1e-7


def test_guesses_look_at_the_observed_frames_only() -> None:
    path = swung((0, 0), ARM, 100).reshape(-1, 3, 2)[None]
    blind = path.copy()
    blind[:, 40:] = np.nan
    mine = pc.trajectory_windows(path, observed=40)
    theirs = pc.trajectory_windows(blind, observed=40)
    assert np.array_equal(mine.start, theirs.start)
    assert np.array_equal(mine.own, theirs.own)
    assert np.allclose(mine.start[0], [0, 0, 0.02 * RATE, 0.02 * RATE], atol=1e-6)
    every_other = pc.trajectory_windows(path, observed=40, skip=2)
    assert np.allclose(every_other.start, mine.start)
    assert np.array_equal(every_other.observed, mine.observed[:, ::2])


@dataclass(frozen=True, eq=False)
class Decay:
    """A simulator of x' = -theta x + weight x^2 in closed form to first order, so that the solver
    alone is tested.
    """

    theta: np.ndarray
    weights: np.ndarray
    scene = SimpleNamespace(params=(Param("rate", "", 0.5, 0.1, 2.0),), nominal=np.array([0.5]))
    model = SimpleNamespace(nu=0)

    def rollout(self, start: np.ndarray, control: np.ndarray) -> np.ndarray:
        x = [start]
        for _ in range(control.shape[1]):
            x.append(x[-1] + 0.05 * (-self.theta[0] * x[-1] + self.weights[0] * x[-1] ** 2))
        return np.stack(x, 1)

    def rollout_with_jacobian(
        self,
        start: np.ndarray,
        control: np.ndarray,
        *,
        free: tuple[int, ...],
        finite: bool,
        blocks: JacobianBlocks,
    ) -> tuple[np.ndarray, np.ndarray]:
        def moved(rate: float, weight: float, x: float) -> np.ndarray:
            return replace(
                self, theta=self.theta + rate * 0.95, weights=self.weights + weight
            ).rollout(start + x, control)

        steps = [
            d
            for d, wanted in zip(np.eye(3), (len(free) > 0, blocks.weights, True), strict=True)
            if wanted
        ]
        return self.rollout(start, control), np.stack(
            [(moved(*(1e-6 * d)) - moved(*(-1e-6 * d))) / 2e-6 for d in steps], -1
        )

    def with_weights(self, weights: np.ndarray, theta: np.ndarray) -> Decay:
        return Decay(theta, weights)


def _observation_model() -> ObservationModel:
    """A camera that sees gain * x + shift of its own."""

    def see(states: np.ndarray, camera: np.ndarray, own: np.ndarray) -> np.ndarray:
        return camera[0] * states + own[:, None]

    def camera_view_with_jacobian(
        states: np.ndarray, camera: np.ndarray, own: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        one = np.ones((*states.shape, 1))
        return see(states, camera, own), camera[0] * one, states[..., None], one

    return ObservationModel(see, camera_view_with_jacobian)  # type: ignore[arg-type]


def test_what_windows_share_is_found_although_each_begins_elsewhere() -> None:
    rng = np.random.default_rng(0)
    truth = Decay(np.array([0.8]), np.array([0.3]))
    start = rng.uniform(0.5, 2.0, (300, 1))
    own = 0.02 * rng.normal(size=(300, 1))
    seen = (
        truth.rollout(start, np.zeros((300, 40, 0)))
        + own[:, None]
        + 1e-3 * rng.normal(size=(300, 41, 1))
    )
    seen[:5] += np.linspace(0, 3, 41)[:, None]  # windows that no model follows
    windows = TrajectoryWindows(
        seen, np.array([1e-3]), seen[:, 0], np.zeros((300, 1)), np.array([0.05])
    )
    begun = Decay(np.array([0.5]), np.zeros(1))
    found = fit_by_shooting(
        begun,
        windows,
        _observation_model(),
        camera=np.ones(1),
        free=FreeParameters((0,), (), train=True, ridge=1e-9, tolerance=1e-7),
        steps=30,
    )  # type: ignore[arg-type]
    assert abs(found.sim.theta[0] - 0.8) < 0.01
    assert abs(found.sim.weights[0] - 0.3) < 0.01
    assert (np.diff(found.trace) < 0).all()
    assert np.abs(found.start[5:] - start[5:]).max() < 0.02
    assert 0.8 < np.median(found.error) < 1.2
    held = fit_by_shooting(
        begun,
        windows,
        _observation_model(),
        camera=np.ones(1),
        free=FreeParameters((0,), (), train=True, ridge=1e4),
        steps=30,
    )  # type: ignore[arg-type]
    assert (
        abs(held.sim.weights[0]) < 0.01 < abs(held.sim.theta[0] - 0.8)
    )  # R keeps the network silent
    alone = fit_by_shooting(truth, windows, _observation_model(), camera=np.ones(1), steps=10)  # type: ignore[arg-type]
    assert alone.sim is truth
    assert np.abs(alone.start[5:] - start[5:]).max() < 0.02


def test_errors_and_intervals_of_the_bench() -> None:
    error = np.full((6, bench.OBSERVED + bench.FRAMES[-1]), 1.0)
    error[:3, bench.OBSERVED + 99 :] = 7.0
    found = np.array(bench._measure(error)["errors"])
    assert found.shape == (6, 9)
    assert (found[:3, 1] == 7).all()
    assert (found[:, 0] == 1).all()
    assert (found[:3, 8] == 99).all()
    assert (found[3:, 8] == 400).all()
    rows = bench._rows("neural", [found], np.array([0, 0, 1, 1, 2, 2]))
    assert [r["frame"] for r in rows] == [50, 100, 200, 400]
    assert rows[0]["error_mm"] == 1
    assert rows[1]["mean_mm"] == 4
    assert rows[1]["low_mm"] == 1
    assert rows[1]["high_mm"] == 7
    assert rows[0]["low_mm"] == rows[0]["high_mm"] == 1


def ends(row: dict) -> list[float]:
    """Low and high of the ratio's interval."""
    return [float(text) for text in row["ratio_range"].split(" to ")]


def test_ratios_have_intervals_over_recordings_and_seeds() -> None:
    rng = np.random.default_rng(0)
    recording = np.repeat(np.arange(8), 20)
    baseline = [np.exp(0.2 * rng.normal(size=(160, 9))) for _ in range(3)]
    # Each seed is better or worse as a whole, by 20 %: more than the noise of its windows.
    found = {
        "analytic-geometry": baseline,
        "neural": [
            0.5 * scale * errors for scale, errors in zip((0.8, 1, 1.2), baseline, strict=True)
        ],
    }
    rows = {(row["method"], row["frame"]): row for row in bench._compare(found, recording)}
    row = rows["neural", 100]
    low, high = ends(row)
    assert 0.38 < low < row["ratio"] < high < 0.62
    assert row["seeds"] == 3
    own = rows["analytic-geometry", 100]
    assert ends(own) == [1, 1]
    one = {method: errors[:1] for method, errors in found.items()}
    alone = {(row["method"], row["frame"]): row for row in bench._compare(one, recording)}
    assert ends(alone["neural", 100]) == [0.4, 0.4]
    unpaired = found | {"neural": found["neural"][:2]}
    assert all("ratio_range" not in r for r in bench._compare(unpaired, recording)[4:])


@pytest.mark.slow
def test_the_scene_in_mjx_is_that_of_mujoco_and_networks_are_asked_at_every_stage() -> None:
    sim = AugmentedSim(pc.SCENE, pc.augmentation(2))
    start = np.array([[1.0, -0.5, 3.0, -8.0], [2.5, 1.0, -6.0, 12.0]])
    model = pc.SCENE.model(pc.SCENE.nominal)
    data = mujoco.MjData(model)
    mine = sim.rollout(start, np.zeros((2, 64, 0)), theta=pc.SCENE.nominal)
    for i, row in enumerate(start):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = row[:2]
        data.qvel[:] = row[2:]
        mujoco.mj_step(model, data, nstep=64)
        assert np.abs(mine[i, -1] - [*data.qpos, *data.qvel]).max() < 1e-9
    # A network of fourth order: halving the step changes a trained simulation by next to nothing.
    weights = sim.weights + 0.5 * np.random.default_rng(0).normal(size=len(sim.weights))
    fine = AugmentedSim(pc.SCENE, pc.augmentation(2), timestep=0.5 / RATE).rollout(
        start, np.zeros((2, 128, 0)), theta=pc.SCENE.nominal, weights=weights
    )
    coarse = sim.rollout(start, np.zeros((2, 64, 0)), theta=pc.SCENE.nominal, weights=weights)
    assert np.abs(fine[:, ::2] - coarse).max() < 1e-5 < np.abs(coarse - mine).max()


def test_windows_are_cut_by_recording() -> None:
    runs = [PendulumRun("0", np.zeros((500, 3, 2)), 3), PendulumRun("1", np.zeros((40, 3, 2)), 4)]
    windows, recording = pc.cut_windows(runs, frames=100, every=200)
    assert windows.shape == (3, 100, 3, 2)
    assert (recording == 3).all()
    assert (
        len(pc.cut_windows(runs, frames=100, every=10, limit=5, rng=np.random.default_rng(0))[0])
        == 5
    )


@pytest.mark.slow
@needs_data
def test_the_bench_in_short(tmp_path) -> None:
    from clashsim import cli

    out = tmp_path / "out.json"
    resume = tmp_path / "rows.jsonl"
    assert (
        cli.main(
            [
                "bench",
                "real-pendulum",
                "--quick",
                "--data",
                str(ROOT),
                "--resume",
                str(resume),
                "--json",
                str(out),
            ]
        )
        == 0
    )
    rows = json.loads(out.read_text())["rows"]
    assert [(r["method"], r["frame"]) for r in rows] == [
        (m, f) for m in bench.METHODS for f in bench.FRAMES
    ]
    error = {(r["method"], r["frame"]): r["error_mm"] for r in rows}
    assert error["analytic-geometry", 50] < error["recurrent", 50]
    assert error["floor", 200] < 0.3 * error["neural", 200]
    assert (
        bench.run(BenchOptions(root=Path(str(ROOT)), quick=True, resume=resume)) == rows
    )  # from the file
