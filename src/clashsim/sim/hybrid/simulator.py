"""MuJoCo with learned collisions: everything is stepped by MuJoCo, but when a learned pair
collides, a model says what comes out (CLASH, III-D).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
import torch

from clashsim.core.contact_geometry import Contact, advance_to_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import after_columns
from clashsim.core.params import locate_param
from clashsim.core.protocols import ImpactModel, ThetaModel
from clashsim.core.scene import Scene, model_field
from clashsim.sim.hybrid.collision_stats import CollisionStats
from clashsim.sim.hybrid.guards import Mechanics, guard
from clashsim.sim.hybrid.learned import Learned, Trust
from clashsim.sim.hybrid.pairs import CompiledPair, ContactState, LearnedPair, with_pairs
from clashsim.sim.hybrid.planar import touching
from clashsim.sim.hybrid.simulation_rows import BatchSim, SimulationRows, SingleSim, state
from clashsim.sim.hybrid.slide_step import glide
from clashsim.sim.hybrid.timing import Step, settle, shortened
from clashsim.sim.inputs import (
    check_before,
    check_data,
    check_rollout,
    check_table,
    check_theta,
    nothing_to_step,
)
from clashsim.slides.law import SlideModel

_DONE = 1e-9  # s: less time than this is not worth a step
SLOW, AGAIN, OVERLAP = "too slow to be an impact", "hit again at once", "overlapping from the start"


@dataclass(frozen=True, eq=False)
class _Event:
    """A pair of one simulation at the instant it touches, and why MuJoCo should have it, if so."""

    row: int
    couple: int
    share: float  # of the step, when it happens
    meeting: ContactState | None
    why: str | None


class HybridSim:
    """A scene at theta, with the collisions of one or several pairs by models and everything else
    by MuJoCo.

    impact_model: of the scene's own pair, or a sequence of `LearnedPair`. theta (p,): where None, what the
    model was calibrated to, else the nominal values. A collision is left to MuJoCo until the pair
    parts where it approaches slower than `slow` (m/s), comes within `again` (s) of the last one, or
    is one the model should not be asked about (`Trust`); such simulations take the author's
    timestep meanwhile. `timestep` (s) may be longer than the author's, which only collisions need
    that short. With a slide model, a struck body moves by it after a learned collision, as long as
    it touches nothing but the ground. Collisions are noticed at the end of a step, so that bodies
    thinner than what they travel in one can pass through each other, as in MuJoCo.
    """

    def __init__(
        self,
        scene: Scene,
        impact_model: ImpactModel | ThetaModel | Sequence[LearnedPair],
        theta: np.ndarray | None = None,
        *,
        slide_model: SlideModel | None = None,
        timestep: float | None = None,
        slow: float = 0.05,
        again: float = 0.005,
        unsure: float = 0.3,
        known: Mapping[str, float] | None = None,
        threads: int = 0,
    ) -> None:
        self.scene, self.slide_model, self.slow, self.again, self.threads = (
            scene,
            slide_model,
            slow,
            again,
            threads,
        )
        single = not isinstance(impact_model, Sequence)
        pairs = (
            (LearnedPair(scene.struck, scene.striker, impact_model, scene),)
            if single
            else tuple(impact_model)
        )  # type: ignore[arg-type]
        spec, names = with_pairs(scene, pairs, gliding=slide_model is not None)
        self.model = spec.compile()
        self._slots = tuple(
            None if slot is None else locate_param(self.model, p.target)
            for slot, p in zip(scene.slots, scene.params, strict=True)
        )
        self._learned = {
            p.key: Learned(p.seen_in, p.model, unsure, dict(known or {})) for p in pairs
        }
        self.theta = (
            next(iter(self._learned.values())).own_theta if single and theta is None else theta
        )
        self.theta = check_theta(scene.params, self.theta)
        if self.theta is not None:
            self._write(self.theta, lambda name: model_field(self.model, name))
            mujoco.mj_setConst(self.model, mujoco.MjData(self.model))
        self.fine = float(self.model.opt.timestep)
        if timestep is not None:
            self.model.opt.timestep = timestep
        self.fine = min(self.fine, float(self.model.opt.timestep))
        memory = self.model.nuserdata - 2 * len(pairs)
        self.pairs = [
            CompiledPair(self.model, p, name, i, memory)
            for i, (p, name) in enumerate(zip(pairs, names, strict=True))
        ]
        for c in self.pairs:
            c.switch(False, self.model.pair_margin, self.model.pair_gap)
        self.collision_stats = CollisionStats()
        self._data = mujoco.MjData(self.model)
        self._worlds: dict[tuple[int, bool], BatchSim] = {}
        self._phase, self._since = (
            np.array([getattr(c, k) for c in self.pairs]) for k in ("phase", "since")
        )
        self._euler = int(self.model.opt.integrator) != int(mujoco.mjtIntegrator.mjINT_RK4)
        self._found = np.array([c.sensor for c in self.pairs])

    def step(self, data: mujoco.MjData) -> None:
        """Advance `data`, made from `self.model`, by one timestep; in the place of `mj_step`."""
        check_data(self.model, data)
        world = SingleSim(self.model, data)
        for c in self.pairs:
            c.switch(bool(data.userdata[c.phase] > 0), self.model.pair_margin, self.model.pair_gap)
        self._advance(world, self.theta)

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """States (N, T + 1, s), the start included, from start (N, s) under control (N, T, nu);
        theta (p,) or (N, p).
        """
        start, control = check_rollout(self.model, start, control)
        theta = check_theta(self.scene.params, theta, len(start))
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        n, steps = control.shape[:2]
        world = self._world(n, theta is not None)
        if theta is not None:
            theta = np.broadcast_to(theta, (n, len(self.scene.params)))
            world.varied = True
            self._write(theta, world.engine.expand)
            if self.scene.needs_const:
                world.engine.set_const()
        world.begin(start)
        for c in self.pairs:
            c.switch(False, world.margin, world.gap)
        out = np.empty((n, steps + 1, start.shape[1]))
        out[:, 0] = start
        for t in range(steps):
            world.ctrl[:] = control[:, t]
            self._advance(world, self.theta if theta is None else theta)
            out[:, t + 1] = state(world)
        return out

    def outcome(
        self, before: np.ndarray, theta: np.ndarray | None = None, *, pair: int = 0
    ) -> np.ndarray:
        """The learned map, guarded: twist of the struck body after (N, k) for impacts `before` (N,
        d) of the pair's own scene.

        Bodies are brought to touch along their approach first. Trust is not asked for: rows that no
        model should answer are answered. theta (p,) or (N, p) is the model's; masses are those of
        `self.model`.
        """
        return self._outcome(before, theta, pair)[0]

    def predict_with_std(
        self, before: np.ndarray, theta: np.ndarray | None = None, *, pair: int = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`outcome`, one standard deviation of it (N, k), and whether the model should rather not
        be asked (N,).
        """
        after, spread, doubted, _ = self._outcome(before, theta, pair)
        return after, spread, doubted

    def rest(
        self, before: np.ndarray, theta: np.ndarray | None = None, *, pair: int = 0
    ) -> np.ndarray:
        """Pose at rest (N, 3) of struck bodies for impacts `before` (N, 12), by the learned map and
        the slide model alone: no stepping.
        """
        if self.slide_model is None:
            raise DataError("rest() needs a slide model: HybridSim(..., slide_model=...)")
        after, _, _, moved = self._outcome(before, theta, pair)
        return self.slide_to_rest(moved[:, :3], after)

    def slide_to_rest(self, pose: np.ndarray, twist: np.ndarray) -> np.ndarray:
        """Pose at rest (N, 3) by the slide model, from pose and twist (N, 3)."""
        if self.slide_model is None:
            raise DataError("slid() needs a slide model: HybridSim(..., slide_model=...)")
        pose = check_table("pose", pose, ("x", "y", "yaw"))
        twist = check_table("twist", twist, ("vx", "vy", "w"))
        if len(pose) != len(twist):
            raise DataError(f"slid() got {len(pose)} poses and {len(twist)} twists: give as many")
        if len(pose) == 0:
            return np.zeros((0, 3))
        with torch.no_grad():
            return self.slide_model.rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()

    def _outcome(
        self, before: np.ndarray, theta: np.ndarray | None, pair: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        if not 0 <= pair < len(self.pairs):
            last = len(self.pairs) - 1
            raise DataError(f"pair must be the index of a learned pair, 0 to {last}, got {pair}")
        couple = self.pairs[pair]
        if couple.view is not self.scene:
            raise DataError(
                "outcome() and rest() are for pairs that are simulated in the scene they were learned in"
            )
        planar = self.scene.plane is not None
        before = check_before(before, planar=planar)
        theta = check_theta(self.scene.params, theta, len(before))
        if len(before) == 0:
            twists = np.zeros((0, len(after_columns(planar))))
            return twists, twists.copy(), np.zeros(0, bool), before
        contact, moved = advance_to_contact(self.scene, before)
        if not contact.touching.all():
            raise DataError(
                f"in impact {int(np.argmin(contact.touching))} the bodies do not meet along their approach"
            )
        after, spread, verdicts = self._learned[couple.pair.key](
            moved,
            contact,
            self._theta(couple, self.theta if theta is None else theta, np.arange(len(before))),
        )
        t = touching(couple, self.model, self._data, moved, contact)
        return (
            guard(t.mechanics, t.twist, after, t.striker)[0],
            spread,
            np.array([v is not Trust.LEARNED for v in verdicts]),
            moved,
        )

    def _advance(self, world: SimulationRows, theta: np.ndarray | None) -> None:
        """One timestep of all simulations of a world, split where pairs touch and while MuJoCo has
        a pair.
        """
        dt = float(self.model.opt.timestep)
        left = np.full(len(world.qpos), dt)
        active = np.arange(len(left))
        while len(active):
            phase = world.userdata[active][:, self._phase]
            held = phase > 0
            since = world.userdata[active][:, self._since]
            latest = np.where(since > 0, since, np.inf).min(1)
            latest = np.where(
                np.isfinite(latest) & (self.slide_model is None), latest, 0.0
            )  # a slide model is exact for any step
            h = shortened(left[active], np.where(held.any(1), 1e-12, latest), self.fine)
            world.step[active] = h
            last = Step(
                world.qpos[active].copy(),
                world.qvel[active].copy(),
                world.act[active].copy(),
                world.time[active].copy(),
                h,
            )
            world.advance(active)
            found = world.sensors[active][:, self._found] > 0
            self._release(world, active, held & ~found)
            share = np.ones(len(active))
            events = self._events(world, active, last, found & ~held)
            for e in events:
                i = int(np.searchsorted(active, e.row))
                share[i] = e.share
                last.rewind(world, e.row, i, e.share)
            # A slide's delay is of learned collisions: MuJoCo's own end when the bodies have
            # parted.
            self._straighten(
                world,
                active,
                last,
                (share == 1) & ~held.any(1),
                np.where((phase < 0) & (since > 0), np.inf, since),
            )
            world.userdata[np.ix_(active, self._since)] += np.where(
                since > 0, (share * h)[:, None], 0.0
            )
            left[active] -= share * h
            self._resolve(world, events, theta)
            active = active[left[active] > _DONE]

    def _straighten(
        self,
        world: SimulationRows,
        rows: np.ndarray,
        last: Step,
        whole: np.ndarray,
        since: np.ndarray,
    ) -> None:
        """Correct how struck bodies slid in the step just taken: by the slide model where there is
        one and nothing else is near.
        """
        for c, ago in zip(self.pairs, since.T, strict=True):
            which = np.flatnonzero(whole & (ago > 0))
            if self.slide_model is not None and c.flat and len(which):
                alone = c.alone(world.sensors[rows[which]])
                if alone.any():
                    glide(
                        world,
                        rows[which[alone]],
                        last[which[alone]],
                        c,
                        self._path,
                        ago[which[alone]],
                    )
                    settle(world, rows[which[alone]], last[which[alone]], c, euler=False, flat=True)
                which = which[~alone]
            if len(which) and c.plane is not None:
                settle(world, rows[which], last[which], c, euler=self._euler, flat=c.flat)

    def _path(
        self, pose: np.ndarray, twist: np.ndarray, t: np.ndarray, since: np.ndarray
    ) -> np.ndarray:
        assert self.slide_model is not None
        left = np.maximum(self.slide_model.delay - since, 0.0)
        with torch.no_grad():
            return self.slide_model.path(
                *(torch.as_tensor(x) for x in (pose, twist, t, left))
            ).numpy()

    def _release(self, world: SimulationRows, rows: np.ndarray, parted: np.ndarray) -> None:
        for c, gone in zip(self.pairs, parted.T, strict=True):
            if gone.any():
                world.userdata[rows[gone], c.phase] = -1.0
                if self.fine < self.model.opt.timestep or self.slide_model is not None:
                    world.userdata[rows[gone], c.since] = (
                        _DONE  # what follows MuJoCo's own collision needs short steps as well
                    )
                for row in rows[gone]:
                    c.switch(False, world.margin[row], world.gap[row])

    def _events(
        self, world: SimulationRows, rows: np.ndarray, last: Step, hit: np.ndarray
    ) -> list[_Event]:
        """The first collision of each simulation in the step just taken."""
        out = []
        for i in map(int, np.flatnonzero(hit.any(1))):
            row = int(rows[i])
            model, data = world.model(row), self._data
            way = last.way(model, i, world.qpos[row])
            times = {
                int(c): last.touching(model, data, self.pairs[c], i, way)
                for c in np.flatnonzero(hit[i])
            }
            for c, share in sorted(
                ((c, s) for c, s in times.items() if s is not None), key=lambda x: x[1]
            ):
                last.place(model, data, i, share, way, world.qvel[row])
                since = float(world.userdata[row, self.pairs[c].since])
                event = self._judge(
                    row,
                    c,
                    share,
                    self.pairs[c].meet(model, data),
                    since + share * float(last.h[i]) if since > 0 else np.inf,
                )
                if event is not None:
                    out.append(event)
                    break
        return out

    def _judge(
        self, row: int, couple: int, share: float, meeting: ContactState | None, since: float
    ) -> _Event | None:
        """Whether a touch is a collision, and whether MuJoCo should have it at once."""
        if meeting is None:
            return _Event(row, couple, share, None, OVERLAP)
        if meeting.closing <= 0:
            return None
        why = (
            SLOW
            if meeting.closing < self.slow
            else AGAIN
            if since < self.again
            else OVERLAP
            if share == 0
            else None
        )
        return _Event(row, couple, share, meeting, why)

    def _resolve(
        self, world: SimulationRows, events: list[_Event], theta: np.ndarray | None
    ) -> None:
        """Write twists after collisions, one call of each model for all of its pairs; the others
        become MuJoCo's.
        """
        for e in events:
            if e.why is not None:
                self._hand(world, e, e.why)
        asked = [e for e in events if e.why is None]
        for key, learned in self._learned.items():
            mine = [e for e in asked if self.pairs[e.couple].pair.key == key]
            if not mine:
                continue
            seen = [e.meeting for e in mine if e.meeting is not None]
            contact = Contact(
                np.stack([m.point for m in seen]),
                np.stack([m.normal for m in seen]),
                np.zeros(len(seen)),
                np.ones(len(seen), bool),
            )
            thetas = np.stack(
                [self._theta(self.pairs[e.couple], theta, np.array([e.row]))[0] for e in mine]
            )
            predicted, _, verdicts = learned(np.stack([m.before for m in seen]), contact, thetas)
            parts = {
                k: np.stack([getattr(m, k) for m in seen])
                for k in ("compliance", "give", "lever", "twist", "striker")
            }
            after, impulse, moved = guard(
                Mechanics(parts["compliance"], parts["give"], parts["lever"]),
                parts["twist"],
                predicted,
                parts["striker"],
            )
            for i, (e, meeting, trust) in enumerate(zip(mine, seen, verdicts, strict=True)):
                if trust is not Trust.LEARNED:
                    self._hand(world, e, str(trust))
                    continue
                couple = self.pairs[e.couple]
                world.qvel[e.row, couple.body.qvel] += (after[i] - meeting.twist) @ meeting.rates
                world.qvel[e.row] -= meeting.recoil @ impulse[i]
                world.userdata[e.row, couple.phase], world.userdata[e.row, couple.since] = (
                    0.0,
                    _DONE,
                )
                self.collision_stats = self.collision_stats + CollisionStats(1, int(moved[i]))

    def _hand(self, world: SimulationRows, e: _Event, why: str) -> None:
        couple = self.pairs[e.couple]
        world.userdata[e.row, couple.phase] = 1.0
        couple.switch(True, world.margin[e.row], world.gap[e.row])
        self.collision_stats = self.collision_stats + CollisionStats(left_to_mujoco={why: 1})

    def _theta(
        self, couple: CompiledPair, theta: np.ndarray | None, rows: np.ndarray
    ) -> np.ndarray:
        """Theta (len(rows), p) for a pair's model."""
        pair, own = couple.pair, self._learned[couple.pair.key].own_theta
        chosen = (
            pair.theta
            if pair.theta is not None
            else theta
            if couple.view is self.scene and theta is not None
            else own
        )
        return (
            chosen[rows] if chosen.ndim == 2 else np.broadcast_to(chosen, (len(rows), len(chosen)))
        )

    def _write(self, theta: np.ndarray, field: object) -> None:
        for slot, param, value in zip(
            self._slots, self.scene.params, np.asarray(theta, float).T, strict=True
        ):
            if slot is not None:
                slot.write(field(slot.field), param.sign * value)  # type: ignore[operator]

    def _world(self, n: int, varied: bool) -> BatchSim:
        if (n, varied) not in self._worlds:
            self._worlds = {
                (n, varied): BatchSim(self.model, n, threads=self.threads)
            }  # one is kept: they are large
        return self._worlds[n, varied]
