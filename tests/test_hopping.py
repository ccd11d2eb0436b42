"""Basin hopping finds what one descent misses, depends on the seed alone, and resumes after a kill.

Its benchmark runs.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from clashsim import cli
from clashsim.bench import basin_hopping as bench
from clashsim.bench.options import BenchOptions
from clashsim.core.errors import ClashError
from clashsim.optim.basin_hopping import BasinHoppingConfig, hop_basins
from clashsim.optim.levenberg_marquardt import levenberg_marquardt

TRUTH = np.array([0.37, -0.52])


def waves(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Residuals and Jacobian with a local minimum in every wave, and zero at TRUTH alone."""
    error = points - TRUTH
    residuals = np.concatenate([error, 1.2 * np.sin(9 * error)], axis=1)
    linear_part = np.tile(np.eye(2), (len(error), 1, 1))
    wave_part = 10.8 * np.cos(9 * error)[:, :, None] * np.eye(2)
    return residuals, np.concatenate([linear_part, wave_part], axis=1)


def test_levenberg_solves_a_curved_valley_and_never_rises() -> None:
    def rosenbrock(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = points.T
        residuals = np.stack([10 * (y - x**2), 1 - x], 1)
        first_row = np.stack([-20 * x, np.full_like(x, 10.0)], 1)
        second_row = np.stack([np.full_like(x, -1.0), np.zeros_like(x)], 1)
        return residuals, np.stack([first_row, second_row], 1)

    starts = np.array([[-1.2, 1.0], [0.0, -2.0], [3.0, 3.0]])
    end = levenberg_marquardt(rosenbrock, starts, low=-4, high=4, steps=60)
    assert np.allclose(end.points, 1, atol=1e-6)
    assert (np.diff(end.trace, axis=0) <= 0).all()
    held = levenberg_marquardt(rosenbrock, np.array([[-1.2, 0.5]]), low=-2, high=0.5, steps=60)
    assert np.abs(held.points).max() <= 2 and held.points[0, 0] == 0.5  # the bound is kept


def test_levenberg_takes_back_a_step_into_what_is_not_finite() -> None:
    def cliff(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residuals = np.where(points < -0.5, np.nan, points + 0.45)
        # The Jacobian is too small, so that steps overshoot.
        return residuals, np.full((*points.shape, 1), 0.2)

    end = levenberg_marquardt(cliff, np.array([[0.9], [-0.9]]), steps=30)
    assert abs(end.points[0, 0] + 0.45) < 1e-3
    assert end.points[1, 0] == -0.9
    assert end.loss[1] == np.inf


def test_hopping_reaches_the_truth_where_one_descent_does_not() -> None:
    starts = np.random.default_rng(0).uniform(-1, 1, (8, 2))
    plain = levenberg_marquardt(waves, starts, steps=40)
    solved = np.abs(plain.points - TRUTH).max(1) < 1e-3
    assert solved.mean() < 0.5  # else this test would show nothing
    in_one_corner = starts * 0.1 - 0.9
    for seed in range(5):
        found = hop_basins(waves, in_one_corner, seed=seed, hops=BasinHoppingConfig(rounds=12))
        assert np.allclose(found.best, TRUTH, atol=1e-6) and found.loss < 1e-10
        assert (np.diff(found.trace) <= 0).all() and found.loss <= found.losses.min()


def test_the_same_seed_gives_the_same_numbers_and_a_kill_costs_nothing(tmp_path) -> None:
    starts = np.full((4, 2), -0.9) + 0.05 * np.arange(8).reshape(4, 2)
    hops = BasinHoppingConfig(rounds=5, steps_per_round=3)
    calls = [0]
    whole = hop_basins(waves, starts, seed=3, hops=hops)
    assert np.array_equal(whole.points, hop_basins(waves, starts, seed=3, hops=hops).points)
    assert not np.array_equal(whole.points, hop_basins(waves, starts, seed=4, hops=hops).points)

    def killed(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls[0] += 1
        if calls[0] == 11:  # in the third round
            raise KeyboardInterrupt
        return waves(points)

    checkpoint = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        hop_basins(killed, starts, seed=3, hops=hops, checkpoint=checkpoint)
    resumed = hop_basins(killed, starts, seed=3, hops=hops, checkpoint=checkpoint)
    assert calls[0] == 11 + 3 * 4 + 13  # two rounds were not made again
    for name in ("best", "points", "losses", "trace", "evaluations", "loss"):
        assert np.array_equal(getattr(whole, name), getattr(resumed, name)), name
    with pytest.raises(ClashError, match="another seed"):
        hop_basins(waves, starts, seed=4, hops=hops, checkpoint=checkpoint)
    checkpoint.write_bytes(b"nonsense")
    with pytest.raises(ClashError, match="does not hold"):
        hop_basins(waves, starts, seed=3, hops=hops, checkpoint=checkpoint)


def test_what_cannot_hop_is_refused() -> None:
    for wrong in (
        {"starts": np.zeros(3)},
        {"starts": np.full((2, 2), np.nan)},
        {"low": 1.0, "high": 1.0},
        {"high": np.inf},
    ):
        with pytest.raises(ClashError, match="needs finite"):
            hop_basins(waves, **({"starts": np.zeros((2, 2)), "seed": 0} | wrong))
    with pytest.raises(ClashError, match="rounds"):
        BasinHoppingConfig(rounds=0)


@pytest.mark.slow
def test_the_bench_in_short(tmp_path) -> None:
    pytest.importorskip("mujoco.mjx", reason="MJX is not installed: pip install 'clashsim[mjx]'")
    out, resume = tmp_path / "out.json", tmp_path / "rows.jsonl"
    assert (
        cli.main(["bench", "basin-hopping", "--quick", "--resume", str(resume), "--json", str(out)])
        == 0
    )
    rows = json.loads(out.read_text())["rows"]
    assert [(r["set"], r["method"], r["seeds"]) for r in rows] == [
        ("pendulum", m, 2) for m in bench.METHODS
    ]
    assert all(
        0 <= r["reached"] <= 1
        and r["error"] >= 0
        and r["spent"] <= 1
        and r["steps"] == rows[0]["steps"]
        for r in rows
    )
    assert len(resume.read_text().splitlines()) == 8
    # From the file: nothing is simulated again.
    assert bench.run(BenchOptions(quick=True, resume=resume)) == rows
    with pytest.raises(ClashError, match="pendulum"):
        bench.run(BenchOptions(quick=True, sets=["pendlum"]))
