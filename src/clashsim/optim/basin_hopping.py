"""Parallel basin hopping (Heiden et al. 2020): many starts advance as one batch, each descent
followed by a random hop that its loss accepts or not.

Generic over `evaluate(points) -> residuals, slopes`, so that it serves every identification. Hops
of chain i have their own size, from small ones that look around a basin to such that cross the
whole range, so that none has to be chosen.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from clashsim.core.errors import DataError, ParamError, RunError
from clashsim.core.files import write_atomic
from clashsim.optim.levenberg_marquardt import Evaluate, levenberg_marquardt


@dataclass(frozen=True)
class BasinHoppingConfig:
    """How many rounds of descent there are, of how many steps, the sizes of hops (least and most,
    in half ranges), and how willing a worse end is accepted.

    A chain whose loss rises by a factor f moves there with probability f^(-1/temperature). In every
    round the worst chains begin anew at the best point: a quarter of them at first and all of them
    in the last round, so that a search over basins becomes one around the best of them.
    `polish_steps`: further steps of descent for the best point at the end.
    """

    rounds: int = 8
    steps_per_round: int = 6
    least: float = 0.01
    most: float = 1.0
    temperature: float = 0.5
    polish_steps: int = 12

    def __post_init__(self) -> None:
        if (
            self.rounds < 1
            or self.steps_per_round < 1
            or self.polish_steps < 0
            or not 0 < self.least <= self.most
            or self.temperature <= 0
        ):
            raise ParamError(
                f"basin hopping needs rounds and descent of at least 1, polish >= 0, 0 < least <= most and temperature > 0, got {self}"
            )


@dataclass(frozen=True, eq=False)
class BasinHoppingResult:
    """The best point (q,) and its loss, the chains' points (m, q) and losses (m,), the best loss
    after each round, and how many points were evaluated.
    """

    best: np.ndarray
    loss: float
    points: np.ndarray
    losses: np.ndarray
    trace: np.ndarray
    evaluations: int


def hop_basins(
    evaluate: Evaluate,
    starts: np.ndarray,
    *,
    seed: int,
    low: np.ndarray | float = -1.0,
    high: np.ndarray | float = 1.0,
    hops: BasinHoppingConfig = BasinHoppingConfig(),
    keep: Path | None = None,
) -> BasinHoppingResult:
    """Hop from starts (m, q) inside [low, high]; the same seed gives the same numbers.

    keep: a file that holds the state after every round, so that an interrupted call goes on from it
    and ends as if it had not been.
    """
    starts = np.asarray(starts, float)
    if starts.ndim != 2 or not starts.size or not np.isfinite(starts).all():
        raise DataError(f"basin hopping needs finite starts of shape (m, q), got {starts.shape}")
    m, q = starts.shape
    low, high = np.broadcast_to(low, q).astype(float), np.broadcast_to(high, q).astype(float)
    if not (np.isfinite([low, high]).all() and (low < high).all()):
        raise ParamError(
            "basin hopping needs finite bounds with low < high: hops are measured in their range"
        )
    size = np.geomspace(hops.least, hops.most, m)[:, None] * (high - low) / 2
    key = hashlib.sha256(
        json.dumps([seed, asdict(hops), starts.tolist(), low.tolist(), high.tolist()]).encode()
    ).hexdigest()[:16]
    state = _load(keep, key)
    for round_ in range(int(state["round"][0]) if state else 0, hops.rounds):
        rng = np.random.default_rng(
            [seed, round_]
        )  # a round's numbers do not depend on where the call began
        if state is None:
            end = levenberg_marquardt(
                evaluate, starts, low=low, high=high, steps=hops.steps_per_round
            )
            points, losses = end.points, end.loss
            spent, trace = np.zeros(1, np.int64), np.zeros(0)
        else:
            points, losses, spent, trace = (
                state["points"],
                state["losses"],
                state["spent"],
                state["trace"],
            )
            origin = points.copy()
            gathered = max(m // 4, round(m * round_ / max(hops.rounds - 1, 1)))
            origin[np.argsort(losses, kind="stable")[m - gathered :]] = state["best"]
            end = levenberg_marquardt(
                evaluate,
                _reflected(origin + size * rng.normal(size=(m, q)), low, high),
                low=low,
                high=high,
                steps=hops.steps_per_round,
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                willing = rng.random(m) < np.power(
                    np.where(np.isfinite(end.loss), losses / end.loss, 0.0), 1 / hops.temperature
                )
            taken = (end.loss < losses) | willing
            points, losses = (
                np.where(taken[:, None], end.points, points),
                np.where(taken, end.loss, losses),
            )
        first = int(np.argmin(end.loss))
        best, loss = (
            (end.points[first], end.loss[first])
            if state is None or end.loss[first] < state["loss"][0]
            else (state["best"], state["loss"][0])
        )
        state = {
            "round": np.array([round_ + 1]),
            "points": points,
            "losses": losses,
            "best": np.array(best),
            "loss": np.array([loss]),
            "spent": spent + m * (hops.steps_per_round + 1),
            "trace": np.append(trace, loss),
        }
        if keep is not None:
            write_atomic(keep, save(state, {"key": key}))
    assert state is not None
    best, loss, evaluations = state["best"], float(state["loss"][0]), int(state["spent"][0])
    if hops.polish_steps:
        end = levenberg_marquardt(evaluate, best[None], low=low, high=high, steps=hops.polish_steps)
        best, loss, evaluations = (
            end.points[0],
            float(end.loss[0]),
            evaluations + hops.polish_steps + 1,
        )
    return BasinHoppingResult(
        best, loss, state["points"], state["losses"], np.append(state["trace"], loss), evaluations
    )


def _reflected(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Points outside of the bounds mirrored into them, as often as it takes."""
    along = np.mod((points - low) / (high - low), 2)
    return low + (high - low) * np.where(along > 1, 2 - along, along)


def _load(keep: Path | None, key: str) -> dict[str, np.ndarray] | None:
    if keep is None or not keep.is_file():
        return None
    try:
        with safe_open(keep, "np") as file:
            if (file.metadata() or {}).get("key") != key:
                raise RunError(
                    f"{keep.name} holds basin hopping of other starts, settings or another seed: name another file, or remove it"
                )
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError:
        raise RunError(
            f"{keep.name} does not hold the state of basin hopping: name another file, or remove it"
        ) from None
