"""What a calibrated simulator has to beat on real impacts: simple physics, regression, a Gaussian
process and networks.

Each method is a function (problem, rows, seed) -> twists after (N, k) for all impacts, of which it
has seen `after` in `rows` alone.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clashsim.core.contact_frame import ContactFrame, contact_frame
from clashsim.core.impacts import Impacts
from clashsim.core.params import to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.core.scene import Scene
from clashsim.fit.base import base_model
from clashsim.fit.distil import PAPER, DistillationConfig, DistilledModel
from clashsim.fit.identify import GridTable, IdentificationProblem, grid, identification_problem
from clashsim.fit.point_contact import fit_point_contact, point_contact, point_contact_inputs
from clashsim.fit.regression import RegressionInputs, regress
from clashsim.nets.impact import ImpactNet


@dataclass(frozen=True, eq=False)
class Problem:
    """Real impacts of one set, and what methods compute of them once.

    seen: the impacts from their contacts; gyration (m) weighs the spin in errors; cache: folder of
    base models.
    """

    scene: Scene
    impacts: Impacts
    gyration: float
    cache: Path | None = None
    samples: int = 100_000
    config: DistillationConfig | None = None  # of clashsim's base model; None takes the shipped one
    table: bool = (
        True  # whether grid search simulates all impacts once, which pays when there are many draws
    )
    progress: Progress = quiet

    @cached_property
    def frame(self) -> ContactFrame:
        """The impacts in their contact frames."""
        return contact_frame(self.scene, self.impacts)

    @cached_property
    def change(self) -> np.ndarray:
        """Dimensionless change of twist (N, k)."""
        return self.frame.encode(self.impacts.after)

    @cached_property
    def size(self) -> np.ndarray:
        """Dimensionless size of the twist after (N,), which errors are relative to."""
        return (
            np.linalg.norm(
                self.change + self.frame.twist_before / self.frame.speed[:, None], axis=1
            )
            + 0.05
        )

    @cached_property
    def identification_problem(self) -> IdentificationProblem:
        """The impacts as MuJoCo simulates them."""
        return identification_problem(self.scene, self.impacts, gyration=self.gyration)

    @cached_property
    def grid(self) -> GridTable:
        """All impacts at all points of the grid search."""
        return grid(self.identification_problem)

    @cached_property
    def plain(self) -> Scene:
        """The scene with the parameters that MuJoCo itself has."""
        return self.scene.with_params(
            [
                p
                for p, slot in zip(self.scene.params, self.scene.slots, strict=True)
                if slot is not None
            ]
        )

    @cached_property
    def paper(self) -> DistilledModel:
        """The paper's base model."""
        return base_model(
            self.plain, config=PAPER, n=self.samples, cache=self.cache, progress=self.progress
        )

    @cached_property
    def base(self) -> DistilledModel:
        """clashsim's base model."""
        return base_model(
            self.scene, config=self.config, n=self.samples, cache=self.cache, progress=self.progress
        )


def inputs(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """Inputs (N, f) of the regressions, scaled by `rows`."""
    few = problem.impacts[rows]
    return RegressionInputs.of(problem.scene, contact_frame(problem.scene, few), few)(
        problem.scene, problem.frame, problem.impacts
    )


def newton_coulomb(problem: Problem, rows: np.ndarray, seed: int) -> np.ndarray:
    """A rigid point contact with normal restitution, Coulomb friction and tangential restitution,
    by grid and simplex search.
    """
    x = point_contact_inputs(problem.scene, problem.frame, problem.impacts)
    law = fit_point_contact(x[rows], problem.change[rows], problem.size[rows])
    return problem.frame.decode(point_contact(law[None], x))


def ridge(problem: Problem, rows: np.ndarray, seed: int) -> np.ndarray:
    """Linear regression in the contact frame; the strength is the one with the least leave-one-out
    error.
    """
    x = np.column_stack([inputs(problem, rows), np.ones(len(problem.size))])
    weight = 1 / problem.size[rows, None]
    a, y = x[rows] * weight, problem.change[rows] * weight
    penalty = np.r_[np.ones(x.shape[1] - 1), 1e-6]
    best, beta = np.inf, np.zeros((x.shape[1], y.shape[1]))
    for strength in np.geomspace(1e-8, 1e2, 31):
        inverse = np.linalg.inv(
            a.T @ a + strength * len(rows) * np.diag(penalty) + 1e-12 * np.eye(len(penalty))
        )
        fitted = inverse @ a.T @ y
        leverage = np.einsum("ni,ij,nj->n", a, inverse, a)
        left_out = float(
            np.square((y - a @ fitted) / np.maximum(1 - leverage, 1e-9)[:, None]).mean()
        )
        if left_out < best:
            best, beta = left_out, fitted
    return problem.frame.decode(x @ beta)


def gp(problem: Problem, rows: np.ndarray, seed: int) -> np.ndarray:
    """Exact Gaussian process in the contact frame, hyper-parameters by marginal likelihood."""
    x = inputs(problem, rows)
    return problem.frame.decode(regress(x[rows], problem.change[rows], problem.size[rows])(x)[0])


def scratch(
    problem: Problem, rows: np.ndarray, seed: int, *, steps: int = 600, folds: int = 5
) -> np.ndarray:
    """The paper's network without pre-training, on the same inputs as the other regressions;
    stopped where cross-validation says.

    The networks of the folds and the one on all rows train side by side as members of one ensemble;
    the fold's held-out error, summed, gives the step at which the last one's predictions are kept.
    """
    x = torch.as_tensor(inputs(problem, rows), dtype=torch.float32)
    y = torch.as_tensor(problem.change[rows], dtype=torch.float32)
    centre, n, parts = y.mean(0), len(rows), min(folds, len(rows))
    net = ImpactNet(
        x.shape[1],
        y.shape[1],
        width=PAPER.width,
        layers=PAPER.layers,
        members=parts + 1,
        activation=PAPER.activation,
        seed=seed,
    )
    net.size.copy_(y.std(0).clamp_min(1e-6))  # the inputs are scaled already
    fold = torch.as_tensor(np.random.default_rng(seed).permutation(n) % parts)
    held = torch.cat(
        [fold[None] == torch.arange(parts)[:, None], torch.zeros(1, n, dtype=torch.bool)]
    )
    weight = torch.where(held, 0.0, 1.0) / torch.as_tensor(
        problem.size[rows] ** 2, dtype=torch.float32
    )
    optimiser = torch.optim.AdamW(net.parameters(), lr=PAPER.rate, weight_decay=PAPER.decay)
    best, answer = np.inf, np.zeros((len(x), y.shape[1]))
    for step in range(steps + 1):
        error = (net(x[rows]) + centre - y).square().sum(-1) * torch.where(
            held, torch.ones(()), weight
        )
        if step % 20 == 0:
            score = float(
                (
                    error.detach()[held]
                    / torch.as_tensor(problem.size[rows], dtype=torch.float32).expand_as(held)[held]
                    ** 2
                )
                .clamp_max(1.0)
                .mean()
            )
            if score < best:
                best = score
                with torch.no_grad():
                    answer = (net(x)[-1] + centre).double().numpy()
        optimiser.zero_grad(set_to_none=True)
        (error * ~held).mean(1).sum().backward()
        optimiser.step()
    return problem.frame.decode(answer)


def clash_paper(problem: Problem, rows: np.ndarray, seed: int) -> np.ndarray:
    """The CLASH paper to the letter: 1,000 steps of AdamW on theta with the net frozen, then 10 on
    the weights with theta fixed (Eq. 3).
    """
    params, known = problem.plain.params, problem.impacts.known
    centre = np.tile(problem.plain.nominal, (len(problem.impacts), 1))
    for i, p in enumerate(params):
        if p.name in known:
            centre[:, i] = known[p.name]
    unit = torch.as_tensor(to_unit(params, centre), dtype=torch.float32)
    free = torch.tensor([float(p.name not in known) for p in params])
    features = torch.as_tensor(problem.frame.features, dtype=torch.float32)
    y = torch.as_tensor(problem.change[rows], dtype=torch.float32)
    net = copy.deepcopy(problem.paper.net)

    def outcome(which: np.ndarray | slice, move: Tensor) -> Tensor:
        return net(torch.cat([features[which], (unit[which] + free * move).clamp(-1, 1)], -1))[0]

    move = torch.zeros(len(params), requires_grad=True)
    for parameters, steps in (([move], 1000), (list(net.parameters()), 10)):
        for leaf in parameters:
            leaf.requires_grad_(True)
        optimiser = torch.optim.AdamW(parameters, lr=PAPER.rate, weight_decay=PAPER.decay)
        for _ in range(steps):
            optimiser.zero_grad(set_to_none=True)
            (outcome(rows, move) - y).square().mean().backward()
            optimiser.step()
        move.requires_grad_(False)
    with torch.no_grad():
        return problem.frame.decode(outcome(slice(None), move).double().numpy())
