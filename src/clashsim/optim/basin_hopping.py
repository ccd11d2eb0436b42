"""Parallel basin hopping (Heiden et al. 2020): many chains advance as one batch.

In every round each chain makes a random hop and descends from there; it moves to the end of the
descent with a probability that depends on the loss. Each chain has its own size of hops, from small
ones within a basin to large ones across the whole range, so that no size has to be chosen. The
function to minimise is given as `evaluate(points) -> residuals, Jacobian`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from clashsim.core.errors import DataError, ParamError, RunError
from clashsim.core.files import write_atomic
from clashsim.optim.levenberg_marquardt import Evaluate, levenberg_marquardt

_RESTART_DIVISOR = 4  # in every round at least a quarter of the chains restarts at the best point


@dataclass(frozen=True)
class BasinHoppingConfig:
    """How a search hops.

    In every round the chains of highest loss restart at the best point: a quarter of the chains at
    first and all in the last round, so that a search over many basins turns into one around the
    best basin.

    Attributes:
        rounds: Number of descents of each chain.
        steps_per_round: Number of steps of a descent.
        smallest_hop: Standard deviation of the hops of the first chain, over half the range
            between the bounds.
        largest_hop: The same for the last chain; those in between are spaced geometrically.
        temperature: A descent that ends at a loss f times that of its chain, f > 1, is accepted
            with probability f^(-1/temperature).
        polish_steps: Number of further steps of descent from the best point at the end.
    """

    rounds: int = 8
    steps_per_round: int = 6
    smallest_hop: float = 0.01
    largest_hop: float = 1.0
    temperature: float = 0.5
    polish_steps: int = 12

    def __post_init__(self) -> None:
        has_steps = self.rounds >= 1 and self.steps_per_round >= 1 and self.polish_steps >= 0
        has_sizes = 0 < self.smallest_hop <= self.largest_hop
        if not has_steps or not has_sizes or self.temperature <= 0:
            raise ParamError(
                "basin hopping needs rounds and steps_per_round of at least 1, polish_steps >= 0, "
                f"0 < smallest_hop <= largest_hop and temperature > 0, got {self}"
            )


@dataclass(frozen=True, eq=False)
class BasinHoppingResult:
    """What a search found.

    Attributes:
        best: (q,), the best point.
        loss: Loss of the best point.
        points: (m, q), last points of the m chains.
        losses: (m,), losses of these points.
        trace: (rounds + 1,), the best loss after each round and after the polish.
        evaluations: Number of points that were evaluated.
    """

    best: np.ndarray
    loss: float
    points: np.ndarray
    losses: np.ndarray
    trace: np.ndarray
    evaluations: int


@dataclass(frozen=True, eq=False)
class _State:
    """The state of a search after a round, as it is stored in a checkpoint."""

    rounds_done: int
    points: np.ndarray  # (m, q), current points of the chains
    losses: np.ndarray  # (m,)
    best: np.ndarray  # (q,), best point of all rounds
    best_loss: float
    evaluations: int
    trace: np.ndarray  # (rounds_done,), best loss after each round


@dataclass(frozen=True, eq=False)
class _Search:
    """What stays the same in all rounds of a search."""

    evaluate: Evaluate
    low: np.ndarray  # (q,)
    high: np.ndarray  # (q,)
    hops: BasinHoppingConfig
    seed: int

    def first_round(self, starts: np.ndarray) -> _State:
        """Descend from starts (m, q), without hops."""
        points, losses = self._descend(starts, self.hops.steps_per_round)
        lowest = int(np.argmin(losses))
        return _State(
            rounds_done=1,
            points=points,
            losses=losses,
            best=np.array(points[lowest]),
            best_loss=float(losses[lowest]),
            evaluations=self._evaluations_of_round(len(starts)),
            trace=np.array([losses[lowest]]),
        )

    def next_round(self, state: _State) -> _State:
        """Let each chain hop and descend, and accept or reject where it ended."""
        # Seeded by the round, so that a search continued from a checkpoint draws the same numbers.
        rng = np.random.default_rng([self.seed, state.rounds_done])
        chains, dim = state.points.shape
        hop_sizes = np.geomspace(self.hops.smallest_hop, self.hops.largest_hop, chains)
        scale = hop_sizes[:, None] * (self.high - self.low) / 2
        hopped = self._origins(state) + scale * rng.normal(size=(chains, dim))
        points, losses = self._descend(
            _reflected(hopped, self.low, self.high), self.hops.steps_per_round
        )
        accepted = self._accepts(state.losses, losses, rng)
        lowest = int(np.argmin(losses))
        is_best = losses[lowest] < state.best_loss
        best_loss = float(losses[lowest]) if is_best else state.best_loss
        return _State(
            rounds_done=state.rounds_done + 1,
            points=np.where(accepted[:, None], points, state.points),
            losses=np.where(accepted, losses, state.losses),
            best=np.array(points[lowest] if is_best else state.best),
            best_loss=best_loss,
            evaluations=state.evaluations + self._evaluations_of_round(chains),
            trace=np.append(state.trace, best_loss),
        )

    def polished(self, state: _State) -> tuple[np.ndarray, float, int]:
        """The best point (q,), its loss and the number of evaluations after the polish steps."""
        steps = self.hops.polish_steps
        if not steps:
            return state.best, state.best_loss, state.evaluations
        points, losses = self._descend(state.best[None], steps)
        return points[0], float(losses[0]), state.evaluations + steps + 1

    def _descend(self, starts: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Points (m, q) at which descents from starts (m, q) end, and their losses (m,)."""
        end = levenberg_marquardt(self.evaluate, starts, low=self.low, high=self.high, steps=steps)
        return end.points, end.loss

    def _origins(self, state: _State) -> np.ndarray:
        """Points (m, q) from which the chains hop: their own, or the best for the worst chains."""
        chains = len(state.points)
        progress = state.rounds_done / max(self.hops.rounds - 1, 1)
        restarted = max(chains // _RESTART_DIVISOR, round(chains * progress))
        worst = np.argsort(state.losses, kind="stable")[chains - restarted :]
        origins = state.points.copy()
        origins[worst] = state.best
        return origins

    def _accepts(
        self, old_losses: np.ndarray, new_losses: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Whether each chain moves to where its descent ended, (m,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(np.isfinite(new_losses), old_losses / new_losses, 0.0)
            chance = np.power(ratio, 1 / self.hops.temperature)
            accepted_by_chance = rng.random(len(old_losses)) < chance
        return (new_losses < old_losses) | accepted_by_chance

    def _evaluations_of_round(self, chains: int) -> int:
        """Points that a round evaluates: the start and the steps of each descent."""
        return chains * (self.hops.steps_per_round + 1)


def hop_basins(
    evaluate: Evaluate,
    starts: np.ndarray,
    *,
    seed: int,
    low: np.ndarray | float = -1.0,
    high: np.ndarray | float = 1.0,
    hops: BasinHoppingConfig = BasinHoppingConfig(),
    checkpoint: Path | None = None,
) -> BasinHoppingResult:
    """Minimise a sum of squared residuals by basin hopping from many starts.

    Args:
        evaluate: Gives residuals (m, n) and their Jacobian (m, n, q) at points (m, q).
        starts: (m, q), one for each chain.
        seed: The same seed gives the same numbers.
        low: (q,) or a number, lower bounds.
        high: (q,) or a number, upper bounds.
        hops: Number of rounds, size of hops and acceptance.
        checkpoint: File to which the state is written after every round. If it exists, the search
            continues from it, with the same result as without an interruption.

    Returns:
        The best point and the last points of the chains.

    Raises:
        DataError: The starts are not usable.
        ParamError: The bounds are not usable.
        RunError: The checkpoint belongs to another search.
    """
    starts = np.asarray(starts, float)
    if starts.ndim != 2 or not starts.size or not np.isfinite(starts).all():
        raise DataError(f"basin hopping needs finite starts of shape (m, q), got {starts.shape}")
    dim = starts.shape[1]
    low = np.broadcast_to(low, dim).astype(float)
    high = np.broadcast_to(high, dim).astype(float)
    if not (np.isfinite([low, high]).all() and (low < high).all()):
        raise ParamError(
            "basin hopping needs finite bounds with low < high: hops are measured in their range"
        )
    search = _Search(evaluate, low, high, hops, seed)
    key = _search_key(search, starts)
    state = _read_checkpoint(checkpoint, key)
    while state is None or state.rounds_done < hops.rounds:
        state = search.first_round(starts) if state is None else search.next_round(state)
        if checkpoint is not None:
            _write_checkpoint(checkpoint, state, key)
    best, loss, evaluations = search.polished(state)
    trace = np.append(state.trace, loss)
    return BasinHoppingResult(best, loss, state.points, state.losses, trace, evaluations)


def _reflected(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Points (m, q) reflected at the bounds, repeatedly, until they are within them."""
    share = np.mod((points - low) / (high - low), 2)  # of the range; beyond 1 on the way back
    return low + (high - low) * np.where(share > 1, 2 - share, share)


def _search_key(search: _Search, starts: np.ndarray) -> str:
    """A fingerprint of a search; the names of the settings are those of the file format."""
    hops = {
        "rounds": search.hops.rounds,
        "descent": search.hops.steps_per_round,
        "least": search.hops.smallest_hop,
        "most": search.hops.largest_hop,
        "temperature": search.hops.temperature,
        "polish": search.hops.polish_steps,
    }
    parts = [search.seed, hops, starts.tolist(), search.low.tolist(), search.high.tolist()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _write_checkpoint(path: Path, state: _State, key: str) -> None:
    """Write the state of a search; the names of the tensors are those of the file format."""
    tensors = {
        "round": np.array([state.rounds_done]),
        "points": state.points,
        "losses": state.losses,
        "best": state.best,
        "loss": np.array([state.best_loss]),
        "spent": np.array([state.evaluations], np.int64),
        "trace": state.trace,
    }
    write_atomic(path, save(tensors, {"key": key}))


def _read_checkpoint(path: Path | None, key: str) -> _State | None:
    """Read the state of a search; None where there is no file yet."""
    if path is None or not path.is_file():
        return None
    try:
        with safe_open(path, "np") as file:
            if (file.metadata() or {}).get("key") != key:
                raise RunError(
                    f"{path.name} holds basin hopping of other starts, settings or another seed: "
                    "name another file, or remove it"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError:
        raise RunError(
            f"{path.name} does not hold the state of basin hopping: name another file, or remove it"
        ) from None
    return _State(
        rounds_done=int(tensors["round"][0]),
        points=tensors["points"],
        losses=tensors["losses"],
        best=tensors["best"],
        best_loss=float(tensors["loss"][0]),
        evaluations=int(tensors["spent"][0]),
        trace=tensors["trace"],
    )
