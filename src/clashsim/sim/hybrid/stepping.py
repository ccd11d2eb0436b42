"""One timestep of the hybrid simulator: MuJoCo steps, learned models resolve the collisions.

A step is taken whole first. Where a learned pair touched in it, the simulation is taken back to the
instant of touch, the twist after the collision is written, and the rest of the step is taken
(CLASH, III-D).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.angles import rotate_quarter_turn
from clashsim.core.contact_geometry import Contact
from clashsim.core.impacts import MotionBefore
from clashsim.core.scene import Scene
from clashsim.sim.hybrid.collision_stats import CollisionStats
from clashsim.sim.hybrid.compiled_pair import CompiledPair, ContactState, stack_mechanics
from clashsim.sim.hybrid.config import HybridConfig
from clashsim.sim.hybrid.guards import ContactMechanics, enforce_mechanics
from clashsim.sim.hybrid.model_trust import CollisionModel, Trust
from clashsim.sim.hybrid.settling import OutcomeNoise
from clashsim.sim.hybrid.simulation_rows import SimulationRows
from clashsim.sim.hybrid.slide_step import correct_sliding, slide_by_model
from clashsim.sim.hybrid.timing import StepPath, StepStart, step_durations, touch_fraction
from clashsim.slides.law import SlideModel

TOO_SLOW = "too slow to be an impact"
HIT_AGAIN = "hit again at once"
OVERLAPPING = "overlapping from the start"
# What the `phase` of a pair in userdata means.
MUJOCO_RESOLVES = 1.0
LEARNED_OR_NONE = 0.0
MUJOCO_RESOLVED = -1.0
# Share of the simulations that go on which wait for a model before it is called.
_SHARE_WAITING = 0.5
_NO_RESPONSE = 1e-8  # of a striker to a force, relative to its largest one
_DONE = 1e-9  # s: less time than this is not worth a step
# s: the time since a collision that has just ended; not zero, which stands for no collision.
_JUST_ENDED = 1e-9
# s: stands for the time since the collision while MuJoCo resolves one, so that steps are short.
_STILL_COLLIDING = 1e-12


@dataclass(frozen=True, eq=False)
class _Collision:
    """A pair of one simulation at the instant it touches.

    Attributes:
        row: Index of the simulation.
        pair_index: Index of the learned pair.
        fraction: Of the step, after which the pair touches.
        contact: The pair at that instant, None where no model needs it or no contact normal can be
            found.
        reason: Why MuJoCo should resolve the collision, None where a learned model may.
    """

    row: int
    pair_index: int
    fraction: float
    contact: ContactState | None
    reason: str | None


class HybridStepper:
    """Steps simulations of one compiled model and keeps count of their collisions.

    Attributes:
        stats: What happened to all collisions so far.
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
        self.config = config
        self.stats = CollisionStats()
        self._scratch = mujoco.MjData(model)
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
        is_over: Callable[[np.ndarray], np.ndarray] | None = None,
        noise: OutcomeNoise | None = None,
    ) -> None:
        """Advance all simulations by some timesteps with the present control.

        A timestep is split where pairs touch and while MuJoCo resolves a pair. A simulation whose
        pair has touched waits until others have too: one call of a model predicts the outcomes of
        all of them, which takes little more time than one outcome does.

        Args:
            sims: The simulations, written to.
            theta: (p,) or (n, p), for the collision models; None for what they were calibrated to.
            steps: Number of timesteps.
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
        waiting: list[_Collision] = []
        while len(active) or waiting:
            if len(waiting) > _SHARE_WAITING * (len(waiting) + len(active)):
                self._resolve(sims, waiting, theta, noise)
                resolved = np.array([collision.row for collision in waiting])
                active = np.union1d(active, resolved)
                waiting = []
                ended = resolved[remaining[resolved] <= _DONE]
            else:
                collisions, elapsed = self._step(sims, active, remaining[active])
                remaining[active] -= elapsed
                waiting += collisions
                touched = np.array([collision.row for collision in collisions], int)
                active = np.setdiff1d(active, touched, assume_unique=True)
                ended = active[remaining[active] <= _DONE]
            if not len(ended):
                continue
            steps_left[ended] -= 1
            remaining[ended] = timestep
            if is_over is not None:
                steps_left[ended[is_over(ended)]] = 0
            active = active[steps_left[active] > 0]

    def _step(
        self, sims: SimulationRows, active: np.ndarray, remaining: np.ndarray
    ) -> tuple[list[_Collision], np.ndarray]:
        """Step active simulations (a,) until their timestep ends, or until a pair touches.

        Args:
            sims: The simulations, written to.
            active: (a,), their indices.
            remaining: (a,), s, of their timesteps.

        Returns:
            The collisions for the models, and the time (a,), s, that each simulation advanced.
        """
        phase = sims.userdata[active][:, self._phase]
        since = sims.userdata[active][:, self._since]
        by_mujoco = phase > 0
        duration = self._durations(remaining, by_mujoco, since)
        sims.timestep[active] = duration
        start = StepStart(
            qpos=sims.qpos[active].copy(),
            qvel=sims.qvel[active].copy(),
            act=sims.act[active].copy(),
            time=sims.time[active].copy(),
            duration=duration,
        )
        sims.advance(active)
        sensors = sims.sensors[active]
        touching = np.stack([pair.touches(sensors) for pair in self.pairs], axis=1)
        self._release(sims, active, by_mujoco & ~touching)
        fraction = np.ones(len(active))
        collisions = self._first_collisions(sims, active, start, touched=touching & ~by_mujoco)
        for collision in collisions:
            i = int(np.searchsorted(active, collision.row))
            fraction[i] = collision.fraction
            start.rewind(sims, collision.row, i, fraction=collision.fraction)
        whole = (fraction == 1) & ~by_mujoco.any(1)
        # The delay of a slide model belongs to learned collisions: those that MuJoCo resolved
        # end when the bodies have parted.
        since_strike = np.where((phase < 0) & (since > 0), np.inf, since)
        self._correct_slides(sims, active, start, whole=whole, since_strike=since_strike)
        elapsed = fraction * duration
        sims.userdata[np.ix_(active, self._since)] += np.where(since > 0, elapsed[:, None], 0.0)
        for_models = []
        for collision in collisions:
            if collision.reason is None:
                for_models.append(collision)
            else:
                self._leave_to_mujoco(sims, collision, collision.reason)
        return for_models, elapsed

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

    def _durations(
        self, remaining: np.ndarray, by_mujoco: np.ndarray, since: np.ndarray
    ) -> np.ndarray:
        """Durations (a,), s, of the next steps: short while MuJoCo resolves a pair and after.

        Args:
            remaining: (a,), s, until the end of the timestep.
            by_mujoco: (a, pairs), whether MuJoCo resolves the pair.
            since: (a, pairs), s, since the pair's last collision ended, 0 for none.
        """
        if self.slide_model is None:
            latest = np.where(since > 0, since, np.inf).min(1)
            since_collision = np.where(np.isfinite(latest), latest, 0.0)
        else:
            since_collision = np.zeros(len(remaining))  # a slide model is exact for any step
        since_collision = np.where(by_mujoco.any(1), _STILL_COLLIDING, since_collision)
        return step_durations(remaining, since_collision, self.fine_timestep)

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
            for row in rows[gone]:
                pair.set_owner(False, sims.margin[row], sims.gap[row])

    def _first_collisions(
        self, sims: SimulationRows, rows: np.ndarray, start: StepStart, *, touched: np.ndarray
    ) -> list[_Collision]:
        """The first collision of each simulation whose pairs touched (a, pairs) in the step."""
        found = []
        for i in map(int, np.flatnonzero(touched.any(1))):
            row = int(rows[i])
            path = start.path(sims.model(row), i, sims.qpos[row])
            collision = self._first_collision(sims, row, path, touched=touched[i])
            if collision is not None:
                found.append(collision)
        return found

    def _first_collision(
        self, sims: SimulationRows, row: int, path: StepPath, *, touched: np.ndarray
    ) -> _Collision | None:
        """The first collision of one simulation, among the pairs that touched (pairs,)."""
        candidates: list[tuple[float, int]] = []
        for pair_index in map(int, np.flatnonzero(touched)):
            fraction = touch_fraction(path, self._scratch, self.pairs[pair_index])
            if fraction is not None:
                candidates.append((fraction, pair_index))
        for fraction, pair_index in sorted(candidates):
            pair = self.pairs[pair_index]
            path.move_to(self._scratch.qpos, fraction)
            self._scratch.qvel[:] = path.qvel_at(fraction, sims.qvel[row])
            if pair.is_slower_than(self.config.min_impact_speed, self._scratch.qvel):
                return _Collision(row, pair_index, fraction, None, TOO_SLOW)
            contact = pair.contact_state(path.model, self._scratch)
            if contact is not None and contact.closing_speed <= 0:
                continue  # a touch in passing, not a collision
            since = float(sims.userdata[row, pair.since])
            since_last = since + fraction * path.duration if since > 0 else np.inf  # s
            reason = self._reason_for_mujoco(contact, fraction, since_last)
            return _Collision(row, pair_index, fraction, contact, reason)
        return None

    def _reason_for_mujoco(
        self, contact: ContactState | None, fraction: float, since_last: float
    ) -> str | None:
        """Why MuJoCo should resolve a collision before any model is asked, None where not."""
        if contact is None:
            return OVERLAPPING
        if contact.closing_speed < self.config.min_impact_speed:
            return TOO_SLOW
        if since_last < self.config.min_time_between_impacts:
            return HIT_AGAIN
        if fraction == 0:
            return OVERLAPPING
        return None

    def _resolve(
        self,
        sims: SimulationRows,
        collisions: list[_Collision],
        theta: np.ndarray | None,
        noise: OutcomeNoise | None,
    ) -> None:
        """Write the twists after collisions, or leave them to MuJoCo."""
        # One call of each model for all of its pairs.
        for key, model in self.models.items():
            own = [c for c in collisions if self.pairs[c.pair_index].pair.key == key]
            if own:
                self._resolve_with(sims, model, own, theta=theta, noise=noise)

    def _resolve_with(
        self,
        sims: SimulationRows,
        model: CollisionModel,
        collisions: list[_Collision],
        *,
        theta: np.ndarray | None,
        noise: OutcomeNoise | None,
    ) -> None:
        """Resolve collisions by one model, where it can be trusted."""
        contacts = [c.contact for c in collisions if c.contact is not None]
        geometry = Contact(
            point=np.stack([c.point for c in contacts]),
            normal=np.stack([c.normal for c in contacts]),
            shift=np.zeros(len(contacts)),  # the bodies touch where they are
            touching=np.ones(len(contacts), bool),
        )
        thetas = np.stack(
            [
                self.theta_for(self.pairs[c.pair_index], theta, np.array([c.row]))[0]
                for c in collisions
            ]
        )
        prediction = model.predict(np.stack([c.before for c in contacts]), geometry, thetas)
        twist_after = prediction.twist_after
        if noise is not None:
            rows = np.array([c.row for c in collisions])
            twist_after = twist_after + noise.of_next(rows, prediction.std)
        mechanics = stack_mechanics(contacts)
        impulse = None
        if prediction.striker_after is not None:
            impulse = _impulse_on_struck(contacts, mechanics, prediction.striker_after)
        outcome = enforce_mechanics(
            mechanics,
            np.stack([c.struck_twist for c in contacts]),
            twist_after,
            striker_twist=np.stack([c.striker_twist for c in contacts]),
            impulse=impulse,
        )
        for i, (collision, contact) in enumerate(zip(collisions, contacts, strict=True)):
            trust = prediction.trust[i]
            if trust is not Trust.LEARNED:
                self._leave_to_mujoco(sims, collision, str(trust))
                continue
            row = collision.row
            pair = self.pairs[collision.pair_index]
            twist_change = outcome.twist_after[i] - contact.struck_twist
            sims.qvel[row, pair.struck.qvel] += twist_change @ contact.qvel_per_twist
            sims.qvel[row] -= contact.striker_qvel_per_impulse @ outcome.impulse[i]
            sims.userdata[row, pair.phase] = LEARNED_OR_NONE
            sims.userdata[row, pair.since] = _JUST_ENDED
            corrected = int(outcome.corrected[i])
            self.stats = self.stats + CollisionStats(learned=1, corrected=corrected)

    def _leave_to_mujoco(self, sims: SimulationRows, collision: _Collision, reason: str) -> None:
        """Let MuJoCo resolve a collision, until the pair parts."""
        row = collision.row
        pair = self.pairs[collision.pair_index]
        sims.userdata[row, pair.phase] = MUJOCO_RESOLVES
        pair.set_owner(True, sims.margin[row], sims.gap[row])
        self.stats = self.stats + CollisionStats(left_to_mujoco={reason: 1})


def _impulse_on_struck(
    contacts: list[ContactState], mechanics: ContactMechanics, striker_after: np.ndarray
) -> np.ndarray:
    """Impulses (N, k) on struck bodies from their strikers' twists (N, k) after the collisions.

    The impulse is a force at the contact point.
    """
    before = MotionBefore.of(np.stack([contact.before for contact in contacts]))
    change = striker_after - before.striker.twist
    offset = before.struck.position - before.striker.position
    arm = np.stack([contact.point for contact in contacts]) - before.struck.position
    if before.struck.planar:
        change[:, :2] += change[:, 2:] * rotate_quarter_turn(offset)
        moment = rotate_quarter_turn(arm)[:, None]  # by a unit force along each axis
    else:
        change[:, :3] += np.cross(change[:, 3:], offset)
        moment = np.cross(arm[:, None], np.eye(3)).transpose(0, 2, 1)
    forces = np.tile(np.eye(offset.shape[1]), (len(contacts), 1, 1))
    per_force = np.concatenate([forces, moment], axis=1)  # (N, k, 2 or 3)
    inverse = np.linalg.pinv(mechanics.striker_inverse_inertia @ per_force, rcond=_NO_RESPONSE)
    return -np.einsum("nij,njk,nk->ni", per_force, inverse, change)
