"""One timestep of the hybrid simulator: MuJoCo steps, learned models resolve the collisions.

A step is taken whole first. Where a learned pair touched in it, the simulation is taken back to the
instant of touch, the twist after the collision is written, and the rest of the step is taken
(CLASH, III-D).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import mujoco
import numpy as np

from clashsim.core.angles import rotate_quarter_turn
from clashsim.core.contact_geometry import Contact
from clashsim.core.impacts import MotionBefore
from clashsim.core.scene import Scene
from clashsim.sim.hybrid.collision_stats import CollisionStats
from clashsim.sim.hybrid.compiled_pair import CompiledPair, ContactStates
from clashsim.sim.hybrid.compiled_steps import step_durations
from clashsim.sim.hybrid.config import HybridConfig
from clashsim.sim.hybrid.coordinates import Coordinates
from clashsim.sim.hybrid.guards import enforce_mechanics
from clashsim.sim.hybrid.model_trust import TRUST, CollisionModel, Trust
from clashsim.sim.hybrid.settling import OutcomeNoise
from clashsim.sim.hybrid.simulation_rows import SimulationRows
from clashsim.sim.hybrid.slide_step import correct_sliding, slide_by_model
from clashsim.sim.hybrid.step_records import (
    BY_MODEL,
    HIT_AGAIN,
    NO_COLLISION,
    OVERLAPPING,
    REASONS,
    TOO_SLOW,
    Collisions,
    TakenStep,
    Touches,
)
from clashsim.sim.hybrid.timing import StepPaths, StepStart, touch_fractions
from clashsim.slides.law import SlideModel

# What the `phase` of a pair in userdata means.
MUJOCO_RESOLVES = 1.0
LEARNED_OR_NONE = 0.0
MUJOCO_RESOLVED = -1.0
# Steps of the others that a simulation whose pair has touched waits at most. Bodies that are struck
# at about the same time then go on together.
_LONGEST_WAIT = 3
_NO_RESPONSE = 1e-8  # of a striker to a force, relative to its largest one
_DONE = 1e-9  # s: less time than this is not worth a step
# s: the time since a collision that has just ended; not zero, which stands for no collision.
_JUST_ENDED = 1e-9


class HybridStepper:
    """Steps simulations of one compiled model and keeps count of their collisions.

    Attributes:
        stats: What happened to all collisions so far.
        steps: Steps of simulations so far.
    """

    def __init__(
        self,
        scene: Scene,
        model: mujoco.MjModel,
        pairs: Sequence[CompiledPair],
        *,
        models: dict[tuple[int, int], CollisionModel],
        slide_model: SlideModel | None,
        fine_timestep: float,
        config: HybridConfig,
    ) -> None:
        """Prepare to step.

        Args:
            scene: The scene that is simulated.
            model: Compiled from the scene, with its learned pairs.
            pairs: The learned pairs.
            models: Collision models by `LearnedPair.key`.
            slide_model: Moves struck bodies after learned collisions, where there is one.
            fine_timestep: s, the author's timestep, which collisions of MuJoCo need.
            config: When a learned model is used.
        """
        self.scene = scene
        self.model = model
        self.pairs = list(pairs)
        self.models = models
        self.slide_model = slide_model
        self.fine_timestep = fine_timestep
        self.first_timestep = max(config.first_timestep or fine_timestep, fine_timestep)
        self.config = config
        self.stats = CollisionStats()
        self.steps = 0
        self._coordinates = Coordinates(model)
        # Of every pair: indices in userdata.
        self._phase = np.array([pair.phase for pair in self.pairs])
        self._since = np.array([pair.since for pair in self.pairs])
        # MuJoCo's integrators but RK4 move bodies by the velocity at the end of a step.
        self._euler = int(model.opt.integrator) != int(mujoco.mjtIntegrator.mjINT_RK4)

    def advance(
        self,
        sims: SimulationRows,
        theta: np.ndarray | None,
        *,
        steps: int = 1,
        control: np.ndarray | None = None,
        is_over: Callable[[np.ndarray], np.ndarray] | None = None,
        noise: OutcomeNoise | None = None,
    ) -> None:
        """Advance all simulations by some timesteps.

        A timestep is split where pairs touch and while MuJoCo resolves a pair. A simulation whose
        pair has touched waits until others have too: one call of a model predicts the outcomes of
        all of them, which takes little more time than one outcome does.

        Args:
            sims: The simulations, written to.
            theta: (p,) or (n, p), for the collision models; None for what they were calibrated to.
            steps: Number of timesteps.
            control: (n, steps, nu), one row per timestep; None keeps the present control.
            is_over: Called with the indices (m,) of simulations that have ended a timestep; says
                of each whether to leave it where it is, (m,).
            noise: Added to predicted outcomes; None adds nothing.
        """
        timestep = float(self.model.opt.timestep)
        n = len(sims.qpos)
        steps_left = np.full(n, steps)
        remaining = np.full(n, timestep)  # s, of the present timestep
        # Arrays with an axis a have a row for each active simulation: one that is stepped now.
        active = np.arange(n)
        if control is not None and steps > 0:
            sims.ctrl[:] = control[:, 0]
        waiting: list[TakenStep] = []
        waited = 0  # steps
        while len(active) or waiting:
            if len(active) == 0 or waited >= _LONGEST_WAIT:
                taken = TakenStep.joined(waiting)
                remaining[taken.row] -= self._collide(sims, taken, theta, noise)
                waiting = []
                waited = 0
                active = np.sort(np.concatenate([active, taken.row]))
                stepped = taken.row
            else:
                touched = self._step(sims, active, remaining)
                if len(touched.row):
                    waiting.append(touched)
                    active = np.setdiff1d(active, touched.row, assume_unique=True)
                waited += len(waiting) > 0
                stepped = active
            ended = stepped[remaining[stepped] <= _DONE]
            if not len(ended):
                continue
            steps_left[ended] -= 1
            remaining[ended] = timestep
            if is_over is not None:
                steps_left[ended[is_over(ended)]] = 0
            if control is not None:
                going_on = ended[steps_left[ended] > 0]
                sims.ctrl[going_on] = control[going_on, steps - steps_left[going_on]]
            if not steps_left[ended].all():
                active = active[steps_left[active] > 0]

    def _step(self, sims: SimulationRows, active: np.ndarray, remaining: np.ndarray) -> TakenStep:
        """Step active simulations once, and complete the steps in which no pair touched.

        Args:
            sims: The simulations, written to.
            active: (a,), their indices.
            remaining: (n,), s, of the timesteps of all simulations, written to.

        Returns:
            The steps in which a pair touched.
        """
        memory = sims.userdata[active]
        duration = step_durations(
            sims.userdata,
            active,
            remaining[active],
            (self._phase, self._since),
            (self.fine_timestep, self.first_timestep, self.config.step_growth),
            self.slide_model is not None,
        )
        sims.timestep[active] = duration
        # Indexing by an array of rows makes copies.
        start = StepStart(
            qpos=sims.qpos[active],
            qvel=sims.qvel[active],
            act=sims.act[active],
            time=sims.time[active],
            duration=duration,
        )
        sims.advance(active)
        self.steps += len(active)
        touching = self._touching(sims, active)
        phase = memory[:, self._phase]
        by_mujoco = phase > 0
        if by_mujoco.any():
            self._release(sims, active, by_mujoco & ~touching)
            touching &= ~by_mujoco
        taken = TakenStep(active, start, phase, memory[:, self._since], touching)
        touched = np.asarray(touching.any(1))
        if not touched.any():
            self._complete(sims, taken, np.ones(len(active)))
            remaining[active] -= duration
            return taken[:0]
        untouched = taken[~touched]
        self._complete(sims, untouched, np.ones(len(untouched.row)))
        remaining[untouched.row] -= untouched.start.duration
        return taken[touched]

    def _complete(self, sims: SimulationRows, taken: TakenStep, fraction: np.ndarray) -> None:
        """Correct slides and count time after steps, of which fractions (m,) were taken."""
        whole = (fraction == 1) & ~(taken.phase > 0).any(1)
        since = taken.since
        # The delay of a slide model belongs to learned collisions: those that MuJoCo resolved
        # end when the bodies have parted.
        since_strike = np.where((taken.phase < 0) & (since > 0), np.inf, since)
        self._correct_slides(sims, taken.row, taken.start, whole=whole, since_strike=since_strike)
        elapsed = fraction * taken.start.duration
        for i, entry in enumerate(self._since):
            # `_release` writes this entry too, so what it is now counts.
            sims.userdata[taken.row, entry] += np.where(since[:, i] > 0, elapsed, 0.0)

    def _collide(
        self,
        sims: SimulationRows,
        taken: TakenStep,
        theta: np.ndarray | None,
        noise: OutcomeNoise | None,
    ) -> np.ndarray:
        """Take steps back to where pairs touched and resolve the collisions.

        Returns:
            Time (m,), s, that each simulation advanced.
        """
        touches = self._first_touches(sims, taken.row, taken.start, taken.touched)
        self._complete(sims, taken, touches.fraction)
        for pair_index, reason in itertools.product(range(len(self.pairs)), REASONS):
            left = (touches.pair == pair_index) & (touches.reason == REASONS.index(reason))
            if left.any():
                self._leave_to_mujoco(sims, taken.row[left], pair_index, reason)
        if touches.for_models:
            self._resolve(sims, Collisions.joined(touches.for_models), theta, noise)
        return touches.fraction * taken.start.duration

    def _touching(self, sims: SimulationRows, active: np.ndarray) -> np.ndarray:
        """Whether each pair touches in the active simulations, (a, pairs), after a step."""
        touching = np.zeros((len(active), len(self.pairs)), bool)
        for i, pair in enumerate(self.pairs):
            touching[:, i] = pair.may_touch(sims.qpos, active)
        near = touching.any(1)
        if self.slide_model is not None:  # it has to know what else a body touches
            sims.update_sensors(active)
        elif near.any():
            sims.update_sensors(active[near])
        which = np.flatnonzero(near)
        if len(which):
            sensors = sims.sensors[active[which]]
            for i, pair in enumerate(self.pairs):
                touching[which, i] &= pair.touches(sensors)
        return touching

    def theta_for(
        self, pair: CompiledPair, theta: np.ndarray | None, rows: np.ndarray
    ) -> np.ndarray:
        """Theta (len(rows), p) for the model of a pair in the simulations `rows`."""
        if pair.pair.theta is not None:
            chosen = pair.pair.theta
        elif theta is not None and pair.scene is self.scene:
            chosen = theta
        else:
            chosen = self.models[pair.pair.key].own_theta
        if chosen.ndim == 2:
            return chosen[rows]
        return np.broadcast_to(chosen, (len(rows), len(chosen)))

    def _correct_slides(
        self,
        sims: SimulationRows,
        rows: np.ndarray,
        start: StepStart,
        *,
        whole: np.ndarray,
        since_strike: np.ndarray,
    ) -> None:
        """Correct how struck bodies slid in a step.

        Args:
            sims: The simulations, written to.
            rows: (a,), indices of the simulations.
            start: Their states at the beginning of the step.
            whole: (a,), whether no collision took part in the step.
            since_strike: (a, pairs), s, from the strike to the step, 0 where there was none.
        """
        for pair, since in zip(self.pairs, since_strike.T, strict=True):
            which = np.flatnonzero(whole & (since > 0))
            if self.slide_model is not None and pair.slides_on_plane and len(which):
                alone = pair.touches_only_ground(sims.sensors[rows[which]])
                if alone.any():
                    by_model = which[alone]
                    slide_by_model(
                        sims,
                        rows[by_model],
                        start[by_model],
                        pair=pair,
                        slide_model=self.slide_model,
                        since_strike=since[by_model],
                    )
                    correct_sliding(
                        sims, rows[by_model], start[by_model], pair=pair, euler=False, level=True
                    )
                which = which[~alone]
            if len(which) and pair.plane is not None:
                correct_sliding(
                    sims,
                    rows[which],
                    start[which],
                    pair=pair,
                    euler=self._euler,
                    level=pair.slides_on_plane,
                )

    def _release(self, sims: SimulationRows, rows: np.ndarray, parted: np.ndarray) -> None:
        """Take pairs that have parted (a, pairs) out of MuJoCo's solver again."""
        # Steps after a collision that MuJoCo resolved are short too, which needs the time since.
        keep_time = self.fine_timestep < self.model.opt.timestep or self.slide_model is not None
        for pair, gone in zip(self.pairs, parted.T, strict=True):
            if not gone.any():
                continue
            sims.userdata[rows[gone], pair.phase] = MUJOCO_RESOLVED
            if keep_time:
                sims.userdata[rows[gone], pair.since] = _JUST_ENDED
            pair.set_owner(False, sims.margin, sims.gap, rows[gone])

    def _first_touches(
        self, sims: SimulationRows, rows: np.ndarray, start: StepStart, touched: np.ndarray
    ) -> Touches:
        """Find the first collisions of simulations and take them back to these instants.

        Args:
            sims: The simulations, written to.
            rows: (m,), indices of the simulations.
            start: Their states at the beginning of the step.
            touched: (m, pairs), which pairs touched in the step.
        """
        paths = StepPaths.of(start, sims.qpos[rows], sims.qvel[rows], self._coordinates)
        fractions = np.full(touched.shape, np.nan)
        for i, pair in enumerate(self.pairs):
            which = np.flatnonzero(touched[:, i])
            if len(which):
                fractions[which, i] = touch_fractions(paths[which], sims.probe, rows[which], pair)
        found = Touches(
            fraction=np.ones(len(rows)),
            pair=np.full(len(rows), -1),
            reason=np.full(len(rows), NO_COLLISION),
            for_models=[],
        )
        # The first touch of a simulation may be one in passing; then its second one counts.
        order = np.argsort(fractions, axis=1)  # NaN comes last
        for rank in range(len(self.pairs)):
            open_rows = np.flatnonzero(found.reason == NO_COLLISION)
            candidate = order[open_rows, rank]
            fraction = fractions[open_rows, candidate]
            for pair_index in np.unique(candidate[~np.isnan(fraction)]):
                own = (candidate == pair_index) & ~np.isnan(fraction)
                which = open_rows[own]
                collisions = self._judge(
                    sims, rows[which], paths[which], int(pair_index), fraction[own]
                )
                reason, contacts = collisions
                found.reason[which] = reason
                collided = reason != NO_COLLISION
                found.fraction[which[collided]] = fraction[own][collided]
                found.pair[which[collided]] = pair_index
                learned = which[reason == BY_MODEL]
                if len(learned):
                    found.for_models.append(
                        Collisions(
                            rows[learned],
                            np.full(len(learned), pair_index),
                            contacts[np.flatnonzero(reason == BY_MODEL)],
                        )
                    )
        hit = np.flatnonzero(found.reason != NO_COLLISION)
        paths[hit].rewind(sims, rows[hit], found.fraction[hit])
        return found

    def _judge(
        self,
        sims: SimulationRows,
        rows: np.ndarray,
        paths: StepPaths,
        pair_index: int,
        fraction: np.ndarray,
    ) -> tuple[np.ndarray, ContactStates]:
        """Whether one pair collides at fractions (m,) of the step, and why MuJoCo resolves it.

        Returns:
            Reasons (m,) as in `Touches`, and the contacts.
        """
        pair = self.pairs[pair_index]
        qvel = paths.qvel_at(fraction)
        sims.probe.put(rows, paths.qpos_at(fraction))
        contacts = pair.contact_states(sims.probe, rows, qvel)
        closing_speed = contacts.closing_speed
        since = sims.userdata[rows, pair.since]
        since_last = np.where(since > 0, since + fraction * paths.start.duration, np.inf)
        too_slow = closing_speed < self.config.min_impact_speed
        reason = np.select(
            [
                pair.is_slower_than(self.config.min_impact_speed, qvel),
                ~contacts.has_normal,
                closing_speed <= 0,  # a touch in passing, not a collision
                too_slow,
                since_last < self.config.min_time_between_impacts,
                fraction == 0,
            ],
            [
                REASONS.index(TOO_SLOW),
                REASONS.index(OVERLAPPING),
                NO_COLLISION,
                REASONS.index(TOO_SLOW),
                REASONS.index(HIT_AGAIN),
                REASONS.index(OVERLAPPING),
            ],
            BY_MODEL,
        )
        return reason, contacts

    def _resolve(
        self,
        sims: SimulationRows,
        collisions: Collisions,
        theta: np.ndarray | None,
        noise: OutcomeNoise | None,
    ) -> None:
        """Write the twists after collisions, or leave them to MuJoCo."""
        # One call of each model for all of its pairs.
        for key, model in self.models.items():
            own = [i for i, pair in enumerate(self.pairs) if pair.pair.key == key]
            which = np.flatnonzero(np.isin(collisions.pair, own))
            if len(which):
                self._resolve_with(sims, model, collisions[which], theta=theta, noise=noise)

    def _resolve_with(
        self,
        sims: SimulationRows,
        model: CollisionModel,
        collisions: Collisions,
        *,
        theta: np.ndarray | None,
        noise: OutcomeNoise | None,
    ) -> None:
        """Resolve collisions by one model, where it can be trusted."""
        contact = collisions.contact
        row = collisions.row
        geometry = Contact(
            point=contact.point,
            normal=contact.normal,
            shift=np.zeros(len(row)),  # the bodies touch where they are
            touching=np.ones(len(row), bool),
        )
        prediction = model.predict(contact.before, geometry, self._thetas(collisions, theta))
        twist_after = prediction.twist_after
        if noise is not None:
            twist_after = twist_after + noise.of_next(row, prediction.std)
        impulse = None
        if prediction.striker_after is not None:
            impulse = _impulse_on_struck(contact, prediction.striker_after)
        outcome = enforce_mechanics(
            contact.mechanics,
            contact.struck_twist,
            twist_after,
            striker_twist=contact.striker_twist,
            impulse=impulse,
        )
        learned = prediction.trust == TRUST.index(Trust.LEARNED)
        change = np.einsum(
            "mk,mkv->mv", outcome.twist_after - contact.struck_twist, contact.qvel_per_twist
        )
        change -= np.einsum("mvk,mk->mv", contact.striker_qvel_per_impulse, outcome.impulse)
        sims.qvel[row[learned]] += change[learned]
        for pair_index, pair in enumerate(self.pairs):
            own = collisions.pair == pair_index
            resolved = row[own & learned]
            sims.userdata[resolved, pair.phase] = LEARNED_OR_NONE
            sims.userdata[resolved, pair.since] = _JUST_ENDED
            for trust in np.unique(prediction.trust[own & ~learned]):
                left = own & (prediction.trust == trust)
                self._leave_to_mujoco(sims, row[left], pair_index, str(TRUST[int(trust)]))
        self.stats = self.stats + CollisionStats(
            learned=int(learned.sum()), corrected=int(outcome.corrected[learned].sum())
        )

    def _thetas(self, collisions: Collisions, theta: np.ndarray | None) -> np.ndarray:
        """Theta (m, p) of one model for collisions of its pairs."""
        chosen: list[np.ndarray] = []
        order: list[np.ndarray] = []
        for pair_index in np.unique(collisions.pair):
            which = np.flatnonzero(collisions.pair == pair_index)
            pair = self.pairs[int(pair_index)]
            chosen.append(self.theta_for(pair, theta, collisions.row[which]))
            order.append(which)
        return np.concatenate(chosen)[np.argsort(np.concatenate(order))]

    def _leave_to_mujoco(
        self, sims: SimulationRows, rows: np.ndarray, pair_index: int, reason: str
    ) -> None:
        """Let MuJoCo resolve collisions of a pair, until the pair parts."""
        pair = self.pairs[pair_index]
        sims.userdata[rows, pair.phase] = MUJOCO_RESOLVES
        pair.set_owner(True, sims.margin, sims.gap, rows)
        self.stats = self.stats + CollisionStats(left_to_mujoco={reason: len(rows)})


def _impulse_on_struck(contact: ContactStates, striker_after: np.ndarray) -> np.ndarray:
    """Impulses (N, k) on struck bodies from their strikers' twists (N, k) after the collisions.

    The impulse is a force at the contact point.
    """
    before = MotionBefore.of(contact.before)
    change = striker_after - before.striker.twist
    offset = before.struck.position - before.striker.position
    arm = contact.point - before.struck.position
    if before.struck.planar:
        change[:, :2] += change[:, 2:] * rotate_quarter_turn(offset)
        moment = rotate_quarter_turn(arm)[:, None]  # by a unit force along each axis
    else:
        change[:, :3] += np.cross(change[:, 3:], offset)
        moment = np.cross(arm[:, None], np.eye(3)).transpose(0, 2, 1)
    forces = np.tile(np.eye(offset.shape[1]), (len(arm), 1, 1))
    per_force = np.concatenate([forces, moment], axis=1)  # (N, k, 2 or 3)
    response = contact.mechanics.striker_inverse_inertia @ per_force
    inverse = np.linalg.pinv(response, rcond=_NO_RESPONSE)
    return -np.einsum("nij,njk,nk->ni", per_force, inverse, change)
