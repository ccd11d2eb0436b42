"""Identification of a scene's parameters on whole trajectories.

Without contact, trajectories are smooth in the parameters: Gauss-Newton steps on short segments,
then on longer ones, since the loss of long ones has many minima. With contact, the loss has many
minima at any length: Gauss-Newton steps on the frames just after the first contact, then CMA-ES on
whole trajectories (Memmel et al., few-shot paper, Eq. 1), then Gauss-Newton steps again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from clashsim.core.errors import ParamError
from clashsim.core.estimates import Estimate
from clashsim.core.motion_scene import MotionScene
from clashsim.core.params import from_unit, to_unit
from clashsim.core.progress import Progress, quiet
from clashsim.fit.motion_checkpoint import StagesDone, fit_key, read_stages, write_stages
from clashsim.fit.motion_loss import Linearise, LinearisedMotion, MotionLoss
from clashsim.fit.motion_problem import Segment, Starts
from clashsim.fit.motion_segments import (
    early_ends,
    segment_duration,
    segments_of,
    shortened,
)
from clashsim.fit.priors import unit_estimate, unit_std
from clashsim.fit.recorded_scene import MotionFitConfig, RecordedScene
from clashsim.optim.levenberg_marquardt import DescentSchedule, descend
from clashsim.optim.search import CmaEs

_LEAST_NOISE = 1e-3  # sizes: a recording is not taken to be better than this
_SHARE_OF_OTHERS = 0.9999  # that a largest moment of inertia is of the others at most
_FEWEST_SEGMENTS = 4  # that stand for all
_SOON = 0.2  # s after the first frames in contact that are fitted next by gradients
_SCREENED = 128  # points about the prior, of which the best are first points of descents
_FROM_STARTS = "just after contact"  # names of stages
_SEARCH = ", CMA-ES"
_SETTLING = 4  # Gauss-Newton steps at the end of a fit without contact
_START_RANGE = 0.9  # of the unit scale, to which the first point is clipped


@dataclass(frozen=True, eq=False)
class MotionFit:
    """The result of a fit.

    Attributes:
        scene: The scene with its parameters.
        estimates: Estimate of each parameter.
        misfit: Root mean square residuals of the last segments that were fitted, sizes.
        evaluations: Number of simulated segments.
        trace: Cost after each stage of the fit, by the name of the stage.
    """

    scene: MotionScene
    estimates: tuple[Estimate, ...]
    misfit: np.ndarray
    evaluations: int
    trace: tuple[tuple[str, float], ...] = field(default=())

    @property
    def theta(self) -> np.ndarray:
        """Values (p,), natural units."""
        return np.array([estimate.value for estimate in self.estimates])


# From a loss to a function that returns its residuals and their derivatives.
Differentiate = Callable[[MotionLoss], Linearise]


def by_differences(loss: MotionLoss) -> Linearise:
    """Derivatives by finite differences of MuJoCo's rollouts."""
    return loss.by_differences


def fit_motion(
    recorded: RecordedScene,
    *,
    config: MotionFitConfig = MotionFitConfig(),
    differentiate: Differentiate = by_differences,
    progress: Progress = quiet,
    title: str = "fitting",
) -> MotionFit:
    """Identify parameters on recordings.

    Args:
        recorded: The scene with its parameters, and the recordings.
        config: How to go on.
        differentiate: How derivatives are computed.
        progress: Shows the progress.
        title: What the progress is called.

    Returns:
        The identified parameters, with intervals and status.
    """
    if not recorded.scene.params:
        raise ParamError(f"scene {recorded.scene.name!r} has no parameters to identify")
    fit = _Fit(recorded, config, differentiate, title)
    fit.run(progress)
    return fit.result()


class _Fit:
    """A fit in progress.

    Attributes:
        unit: The best point (p,) so far, on the unit scale.
        evaluations: Number of simulated segments.
    """

    def __init__(
        self,
        recorded: RecordedScene,
        config: MotionFitConfig,
        differentiate: Differentiate,
        title: str,
    ) -> None:
        self._recorded = recorded
        self._config = config
        self._differentiate = differentiate
        params = recorded.scene.params
        self.unit = np.clip(to_unit(params, recorded.scene.nominal), -_START_RANGE, _START_RANGE)
        self.evaluations = 0
        self._trace: list[tuple[str, float]] = []
        self._last: LinearisedMotion | None = None
        self._title = title
        self._advance: Callable[[int], None] = lambda count: None
        self._ticks_done = 0
        self._last_tick = 2**31

    def run(self, progress: Progress) -> None:
        """Run all stages."""
        stages = self._contact_stages() if self._recorded.has_contact else self._smooth_stages()
        path = self._config.checkpoint
        # What only changes the speed may change between two attempts.
        settings = replace(self._config, checkpoint=None, threads=0)
        key = fit_key(self._recorded.scene, self._recorded.motion, settings)
        done = None if path is None else read_stages(path, key, self.unit.shape)
        # The last stage is repeated, since intervals follow from it.
        skipped = 0 if done is None else min(len(done.costs), len(stages) - 1)
        if done is not None:
            self.unit = done.unit
            self.evaluations = done.evaluations
            self._trace = [(stages[i][0], done.costs[i]) for i in range(skipped)]
        ticks = np.cumsum([0, *(self._ticks(name) for name, _ in stages)])
        with progress(self._title, int(ticks[-1])) as advance:
            self._advance = advance
            self._tick(int(ticks[skipped]))
            for i, (name, stage) in enumerate(stages[skipped:], skipped):
                self._last_tick = int(ticks[i + 1])
                self._trace.append((name, stage()))
                if path is not None and i < len(stages) - 1:
                    costs = tuple(cost for _, cost in self._trace)
                    write_stages(path, StagesDone(self.unit, costs, self.evaluations), key)
                self._tick(self._last_tick - self._ticks_done)

    def _ticks(self, stage: str) -> int:
        """Steps of a stage that are shown as progress, at most."""
        if stage.endswith(_SEARCH):
            return self._config.generations
        descents = self._config.starts if stage == _FROM_STARTS and not self._config.search else 1
        return 2 * self._config.steps * descents

    def _tick(self, count: int = 1) -> None:
        """Show that some steps of a stage are done; the end of a stage is left to its end."""
        count = min(count, self._last_tick - self._ticks_done)
        self._ticks_done += count
        self._advance(count)

    def _smooth_stages(self) -> list[tuple[str, Callable[[], float]]]:
        """Gauss-Newton steps on longer and longer segments."""
        recorded = self._recorded
        whole = recorded.whole()
        longest = max(float(trial.t[-1]) for trial in recorded.motion.trials)
        stages: list[tuple[str, Callable[[], float]]] = []
        for share in self._config.horizons:
            segments = segments_of(recorded.motion, whole, share * longest)
            stage = partial(self._descend, segments, None, self._smooth_difference())
            stages.append((f"{share:g} of the longest trial", stage))
        return stages

    def _smooth_difference(self) -> float:
        """Step of finite differences without contact.

        Bodies that hit a stop do so in one time step or the next, which makes motion rough: short
        differences would be those of this roughness.
        """
        if self._recorded.contacts.stops:
            return self._config.stop_difference
        return self._config.smooth_difference

    def _contact_stages(self) -> list[tuple[str, Callable[[], float]]]:
        """Gauss-Newton steps just after the first contact, CMA-ES on all frames, and again."""
        recorded = self._recorded
        whole = recorded.whole()
        ends = early_ends(recorded.motion, whole, recorded.contacts)
        early = shortened(recorded.motion, whole, ends)
        soon = shortened(recorded.motion, whole, ends + _SOON)
        windows = np.stack([ends, np.full(len(whole), np.inf)])
        rough, fine = self._config.contact_differences
        wide, narrow = self._config.sigmas
        just_after = np.full((1, len(whole)), np.inf)
        if not self._config.search:
            return [
                (_FROM_STARTS, lambda: self._descend_from_starts(early, fine)),
                ("soon after contact", lambda: self._descend(soon, None, fine)),
                ("whole trials", lambda: self._descend(whole, windows, fine)),
            ]
        return [
            (f"just after contact{_SEARCH}", lambda: self._search(early, just_after, wide)),
            ("just after contact", lambda: self._descend(early, None, rough)),
            ("just after contact, finer", lambda: self._descend(early, None, fine)),
            (f"whole trials{_SEARCH}", lambda: self._search(whole, windows, narrow)),
            ("whole trials", lambda: self._descend(whole, windows, fine)),
        ]

    def _descend_from_starts(self, segments: tuple[Segment, ...], difference: float) -> float:
        """Gauss-Newton steps from the best of many points about the prior; keeps the best end."""
        config = self._config
        rng = np.random.default_rng(config.seed)
        params = self._recorded.scene.params
        std = np.array([unit_std(param) for param in params])
        offsets = std * rng.normal(size=(_SCREENED, len(params)))
        points = np.clip(self.unit + offsets, -_START_RANGE, _START_RANGE)
        costs = self._loss(segments, None, difference).costs(points)
        self.evaluations += len(points) * len(segments)
        ends = []
        for i, row in enumerate(np.argsort(costs)[: config.starts]):
            self.unit = points[row]
            cost = self._descend(segments, None, difference)
            ends.append((cost, i, self.unit))
        cost, _, self.unit = min(ends, key=lambda end: end[:2])
        return cost

    def _loss(
        self, segments: tuple[Segment, ...], windows: np.ndarray | None, difference: float
    ) -> MotionLoss:
        """The loss of segments, with starts fitted at the present point."""
        problem = self._recorded.problem(segments, self._config)
        starts = problem.fit_starts(self.unit)
        trials = len(self._recorded.motion.trials)
        return MotionLoss(
            problem,
            starts,
            noise=_noise(starts),
            windows=windows,
            observations=self._config.observations * trials / len(segments),
            difference=difference,
        )

    def _within(
        self, segments: tuple[Segment, ...], windows: np.ndarray | None, most_steps: int
    ) -> tuple[tuple[Segment, ...], np.ndarray | None]:
        """Evenly chosen segments that take at most a number of time steps, and their windows."""
        recorded = self._recorded
        timestep = float(recorded.scene.author.opt.timestep)
        longest = max(segment_duration(recorded.motion, segment) for segment in segments)
        most = max(_FEWEST_SEGMENTS, int(most_steps * timestep / longest))
        if len(segments) <= most:
            return segments, windows
        rows = np.unique(np.linspace(0, len(segments) - 1, most).round().astype(int))
        kept = tuple(segments[row] for row in rows)
        return kept, None if windows is None else windows[:, rows]

    def _descend(
        self, segments: tuple[Segment, ...], windows: np.ndarray | None, difference: float
    ) -> float:
        """Gauss-Newton steps; returns the cost."""
        segments, windows = self._within(segments, windows, self._config.descent_steps)
        loss = self._loss(segments, windows, difference)
        linearise = self._differentiate(loss)

        def linearised(point: object) -> LinearisedMotion:
            self.evaluations += (len(self.unit) + 4) * len(segments)
            self._tick()
            return loss.linearised(point.unit, linearise)  # type: ignore[attr-defined]

        schedule = DescentSchedule(
            initial=1e-2,
            candidates=(0.1, 1.0, 10.0),
            rounds=3,
            steps=self._config.steps,
            relative_tolerance=1e-3,
        )
        end = descend(loss.point(self.unit), linearised, schedule)
        self.unit = end.state.unit
        self._last = loss.linearised(self.unit, linearise)
        return end.state.cost

    def _search(self, segments: tuple[Segment, ...], windows: np.ndarray, sigma: float) -> float:
        """CMA-ES; returns the cost."""
        config = self._config
        segments, kept_windows = self._within(segments, windows, config.search_steps)
        loss = self._loss(segments, kept_windows, config.contact_differences[0])
        population = 4 + int(3 * np.log(len(self.unit)))
        search = CmaEs((self.unit[None] + 1) / 2, population, config.seed, sigma=sigma / 2)
        best = loss.point(self.unit)
        for _ in range(config.generations):
            points = search.ask()
            unit = 2 * points[0] - 1
            costs = loss.costs(unit)
            self.evaluations += len(unit) * len(segments)
            self._tick()
            search.tell(points, costs[None])
            lowest = int(costs.argmin())
            if costs[lowest] < best.cost:
                best = type(best)(unit[lowest], float(costs[lowest]))
        self.unit = best.unit
        return best.cost

    def result(self) -> MotionFit:
        """The fit, with intervals from the Gauss-Newton model at its end."""
        assert self._last is not None
        recorded = self._recorded
        params = recorded.scene.params
        if self._differentiate is by_differences and not recorded.has_contact:
            self._settle(self._last.loss)
        self.unit = _feasible(recorded.scene, self.unit)
        loss = self._loss_for_intervals() if recorded.has_contact else self._last.loss
        if self._differentiate is by_differences:
            last = loss.linearised_for_intervals(self.unit)
        else:
            last = loss.linearised(self.unit, self._differentiate(loss))
        residual = loss.residuals(self.unit[None])[0]
        std = last.std(_inflation(residual, loss.problem.recorded, self._config.observations))
        estimates = []
        for param, unit, deviation in zip(params, self.unit, std, strict=True):
            estimates.append(unit_estimate(param, float(unit), float(deviation), clip_unit=True))
        misfit = self._last.loss.problem.root_mean_squares(
            self._last.loss.residuals(self.unit[None])[0]
        )
        return MotionFit(
            recorded.scene, tuple(estimates), misfit, self.evaluations, tuple(self._trace)
        )

    def _settle(self, loss: MotionLoss) -> None:
        """Gauss-Newton steps that also follow directions of which the recordings tell nothing.

        Where parameters replace each other, short differences hide that the prior may choose.
        """

        def linearised(point: object) -> LinearisedMotion:
            self.evaluations += 5 * len(self.unit) * len(loss.problem.segments)
            return loss.linearised_for_intervals(point.unit)  # type: ignore[attr-defined]

        schedule = DescentSchedule(
            initial=1e-3,
            candidates=(0.1, 1.0, 10.0),
            rounds=3,
            steps=_SETTLING,
            relative_tolerance=1e-4,
        )
        self.unit = descend(loss.point(self.unit), linearised, schedule).state.unit

    def _loss_for_intervals(self) -> MotionLoss:
        """The loss just after the first contact.

        Later frames depend on parameters much more, but as much on errors of the start, so that
        they would promise intervals that are far too narrow.
        """
        recorded = self._recorded
        whole = recorded.whole()
        early = shortened(
            recorded.motion, whole, early_ends(recorded.motion, whole, recorded.contacts)
        )
        early, _ = self._within(early, None, self._config.descent_steps)
        return self._loss(early, None, self._config.contact_differences[0])


def _feasible(scene: MotionScene, unit: np.ndarray) -> np.ndarray:
    """A point (p,) whose moments of inertia a body can have: none above the sum of the others."""
    theta = from_unit(scene.params, unit)
    model = scene.model(theta)
    for body in range(1, model.nbody):
        rows: dict[int, int] = {}
        for i, slot in enumerate(scene.slots):
            if slot is not None and slot.field == "body_inertia" and slot.rows == (body,):
                rows |= {column: i for column in slot.columns}
        moments = np.array(model.body_inertia[body])
        largest = int(moments.argmax())
        others = float(moments.sum() - moments[largest])
        if largest in rows and moments[largest] > others:
            theta[rows[largest]] = _SHARE_OF_OTHERS * others
    return np.clip(to_unit(scene.params, theta), -1, 1)


def _noise(starts: Starts) -> float:
    """Noise of the recording, sizes: what starts leave unexplained of the first frames."""
    return max(float(np.median(starts.misfit)), _LEAST_NOISE)


def _inflation(residual: np.ndarray, recorded: np.ndarray, observations: float) -> float:
    """Observations that a segment was counted as over the independent ones that it has.

    Residuals (n, F, r) of noise are independent of each other, but errors of a model are alike from
    frame to frame: their correlation tells how many independent numbers there are.
    """
    both = recorded[:, 1:] & recorded[:, :-1]
    together = float((residual[:, 1:] * residual[:, :-1] * both).sum())
    alone = float((residual[:, 1:] ** 2 * both).sum()) + 1e-300
    correlation = float(np.clip(together / alone, 0.0, 0.999))
    numbers = float(recorded.sum()) / len(recorded)
    independent = max(numbers * (1 - correlation) / (1 + correlation), 3.0)
    return observations / independent


def identified_theta(fit: MotionFit) -> np.ndarray:
    """Identified parameters (p,), natural units, within their ranges."""
    params = fit.scene.params
    return from_unit(params, np.clip(to_unit(params, fit.theta), -1, 1))
