"""MuJoCo with learned collisions (CLASH, III-D).

MuJoCo steps everything. When a pair with a learned model collides, the model decides the twist of
the struck body after the collision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import mujoco
import numpy as np
import torch

from clashsim.core.contact_geometry import bring_into_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import after_columns
from clashsim.core.params import locate_param
from clashsim.core.protocols import ImpactModel, ThetaModel
from clashsim.core.rest_uncertainty import RestUncertainty
from clashsim.core.scene import Scene, model_field
from clashsim.sim.hybrid.collision_stats import CollisionStats
from clashsim.sim.hybrid.compiled_pair import CompiledPair
from clashsim.sim.hybrid.config import HybridConfig
from clashsim.sim.hybrid.contact_probe import ContactProbe, probe_model
from clashsim.sim.hybrid.guards import enforce_mechanics
from clashsim.sim.hybrid.model_trust import TRUST, CollisionModel, Trust
from clashsim.sim.hybrid.pairs import MEMORY_PER_PAIR, LearnedPair, add_learned_pairs
from clashsim.sim.hybrid.planar_mechanics import touching_pairs
from clashsim.sim.hybrid.settling import OutcomeNoise, RestDetector, Settled
from clashsim.sim.hybrid.simulation_rows import BatchSim, SingleSim, states
from clashsim.sim.hybrid.stepping import HybridStepper
from clashsim.sim.inputs import (
    check_before,
    check_data,
    check_rollout,
    check_table,
    check_theta,
    nothing_to_step,
)
from clashsim.slides.law import SlideModel

# Relative error of a component of the motion to rest for the same relative error of the twist, in
# the mean: two along the motion, whose length grows with the speed squared, and one across.
_REST_PER_TWIST = 1.5


class ImpactPrediction(NamedTuple):
    """Predicted outcomes of N impacts.

    Attributes:
        twist_after: (N, k), of the struck body, m/s and rad/s, axes of the scene.
        std: (N, k), standard deviation of the same.
        untrusted: (N,), whether `HybridSim` would leave the impact to MuJoCo (see `Trust`).
    """

    twist_after: np.ndarray
    std: np.ndarray
    untrusted: np.ndarray


class HybridSim:
    """A scene with the collisions of one or several pairs by learned models, the rest by MuJoCo.

    Where a model's prediction should not be used (`HybridConfig`, `Trust`), the collision is left
    to MuJoCo until the pair parts; meanwhile that simulation takes the author's timestep.
    Collisions are noticed at the end of a step, so that bodies thinner than what they travel in one
    step can pass through each other, as in MuJoCo.

    Attributes:
        scene: The scene that is simulated.
        model: The compiled MuJoCo model; make data for `step` from it.
        theta: (p,), parameters of the scene, or None for the author's values.
        pairs: The learned pairs in the compiled model.
        slide_model: Moves struck bodies after learned collisions, or None.
    """

    def __init__(
        self,
        scene: Scene,
        impact_model: ImpactModel | ThetaModel | Sequence[LearnedPair],
        theta: np.ndarray | None = None,
        *,
        slide_model: SlideModel | None = None,
        timestep: float | None = None,
        known: Mapping[str, float] | None = None,
        config: HybridConfig = HybridConfig(),
    ) -> None:
        """Compile a scene with its learned pairs.

        Args:
            scene: The scene to simulate.
            impact_model: The model of the scene's own pair, or a sequence of `LearnedPair`.
            theta: (p,), parameters of the scene. Where None, those that the model of the scene's
                own pair was calibrated to, else the nominal values.
            slide_model: Moves a struck body after a learned collision, as long as it touches
                nothing but the ground; without one MuJoCo's friction does.
            timestep: s, may be longer than the author's, for learned collisions need no short one.
            known: Values of parameters that were measured, by name, for models that take them.
            config: When a learned model is used.
        """
        self.scene = scene
        self.slide_model = slide_model
        self.config = config
        if isinstance(impact_model, Sequence):
            pairs = tuple(impact_model)
            use_model_theta = False
        else:
            pairs = (LearnedPair(scene.struck, scene.striker, impact_model, scene),)
            use_model_theta = theta is None
        spec, watched = add_learned_pairs(scene, pairs, sense_ground=slide_model is not None)
        self.model = spec.compile()
        self._probe_model = probe_model(spec, self.model, watched)
        self._slots = tuple(
            None if slot is None else locate_param(self.model, param.target)
            for slot, param in zip(scene.slots, scene.params, strict=True)
        )
        self._models = {
            pair.key: CollisionModel(
                pair.scene, pair.model, config.max_relative_std, {**(known or {}), **pair.known}
            )
            for pair in pairs
        }
        if use_model_theta:
            theta = self._models[pairs[0].key].own_theta
        self.theta = check_theta(scene.params, theta)
        if self.theta is not None:
            self._write_theta(
                self.theta,
                lambda field: [
                    model_field(self.model, field),
                    model_field(self._probe_model, field),
                ],
            )
            for model in (self.model, self._probe_model):
                mujoco.mj_setConst(model, mujoco.MjData(model))
        author_timestep = float(self.model.opt.timestep)
        if timestep is not None:
            self.model.opt.timestep = timestep
        memory_start = self.model.nuserdata - MEMORY_PER_PAIR * len(pairs)
        self.pairs = [
            CompiledPair(
                self.model,
                pair,
                geoms,
                probe=self._probe_model,
                index=i,
                memory=memory_start,
            )
            for i, (pair, geoms) in enumerate(zip(pairs, watched, strict=True))
        ]
        for pair in self.pairs:
            pair.set_owner(False, self.model.pair_margin[None], self.model.pair_gap[None])
        self._stepper = HybridStepper(
            scene,
            self.model,
            self.pairs,
            models=self._models,
            slide_model=slide_model,
            fine_timestep=min(
                config.fine_timestep or author_timestep, float(self.model.opt.timestep)
            ),
            config=config,
        )
        self._probes: dict[int, ContactProbe] = {}
        self._batches: dict[tuple[int, bool], BatchSim] = {}

    @property
    def collision_stats(self) -> CollisionStats:
        """What happened to all collisions since the simulator was made."""
        return self._stepper.stats

    @property
    def steps(self) -> int:
        """Steps of MuJoCo since the simulator was made, summed over simulations."""
        return self._stepper.steps

    def step(self, data: mujoco.MjData) -> None:
        """Advance `data`, made from `self.model`, by one timestep; replaces `mj_step`."""
        check_data(self.model, data)
        sims = SingleSim(self.model, data, self.probe(1))
        for pair in self.pairs:
            by_mujoco = bool(data.userdata[pair.phase] > 0)
            pair.set_owner(by_mujoco, sims.margin, sims.gap)
        self._stepper.advance(sims, self.theta)

    def rollout(
        self, start: np.ndarray, control: np.ndarray, *, theta: np.ndarray | None = None
    ) -> np.ndarray:
        """Simulate N trajectories.

        Args:
            start: (N, s), states: qpos, qvel and act.
            control: (N, T, nu), one row per step.
            theta: (p,) or (N, p), replaces that of the simulator.

        Returns:
            States (N, T + 1, s), the start included.
        """
        start, control = check_rollout(self.model, start, control)
        theta = check_theta(self.scene.params, theta, len(start))
        unmoved = nothing_to_step(start, control)
        if unmoved is not None:
            return unmoved
        n, steps = control.shape[:2]
        sims = self._batch(n, varied=theta is not None)
        if theta is not None:
            theta = np.broadcast_to(theta, (n, len(self.scene.params)))
            self._write_theta(theta, sims.expand)
            if self.scene.needs_const:
                sims.set_const()
        sims.begin(start)
        for pair in self.pairs:
            pair.set_owner(False, sims.margin, sims.gap)
        out = np.empty((n, steps + 1, start.shape[1]))
        out[:, 0] = start
        for t in range(steps):
            sims.ctrl[:] = control[:, t]
            self._stepper.advance(sims, self.theta if theta is None else theta)
            out[:, t + 1] = states(sims)
        return out

    def settle(
        self,
        start: np.ndarray,
        *,
        control: np.ndarray | None = None,
        earliest: np.ndarray | None = None,
        longest: float = 4.0,
        noise: np.ndarray | None = None,
    ) -> Settled:
        """Simulate N trajectories until the struck body lies still.

        The simulations do not wait for each other, and the learned collisions of all of them are
        predicted together. So this takes a fraction of the time of `rollout`.

        Args:
            start: (N, s), states: qpos, qvel and act.
            control: (N, T, nu), one row per step, T steps at most. None: controls stay zero.
            earliest: (N,), s, before which no body counts as lying still.
            longest: s, after which a simulation ends even if the body still moves; without control.
            noise: (N, c, k), standard normal numbers: each learned collision of a simulation gets
                the next of its c rows, times the model's standard deviation. None: no noise.

        Returns:
            The states at the end; which bodies lay still.
        """
        if not self.scene.struck_body.free:
            raise DataError("settle() is for struck bodies with a free joint")
        given = np.zeros((len(start), 0, self.model.nu)) if control is None else control
        start, given = check_rollout(self.model, start, given)
        steps = given.shape[1]
        if control is None:
            steps = max(1, round(longest / self.model.opt.timestep))
        sims = self._batch(len(start), varied=False)
        sims.begin(start)
        sims.ctrl[:] = 0.0
        for pair in self.pairs:
            pair.set_owner(False, sims.margin, sims.gap)
        at_rest = RestDetector(self.model, self.scene.struck_body, sims, earliest=earliest)
        self._stepper.advance(
            sims,
            self.theta,
            steps=steps,
            control=None if control is None else given,
            is_over=at_rest,
            noise=None if noise is None else OutcomeNoise(noise),
        )
        pose = sims.qpos[:, self.scene.struck_body.qpos].copy()
        return Settled(states(sims), pose, sims.time.copy(), at_rest.at_rest)

    def outcome(
        self, before: np.ndarray, theta: np.ndarray | None = None, *, pair: int = 0
    ) -> np.ndarray:
        """Predict the twists of struck bodies after impacts, without stepping.

        Bodies are brought to touch along their approach first. Predictions are made to obey
        mechanics, with the masses of `self.model`. Whether the model can be trusted is not checked:
        use `predict_with_std` for that.

        Args:
            before: (N, d), columns as in `Impacts`, in the pair's own scene.
            theta: (p,) or (N, p), of the model.
            pair: Index of the learned pair.

        Returns:
            Twists (N, k), m/s and rad/s, axes of the scene.
        """
        return self._predict(before, theta, pair)[0].twist_after

    def predict_with_std(
        self,
        before: np.ndarray,
        theta: np.ndarray | None = None,
        *,
        pair: int = 0,
        most_probable: bool = False,
    ) -> ImpactPrediction:
        """The same as `outcome`, with standard deviations and which predictions not to trust.

        Args:
            before: As for `outcome`.
            theta: As for `outcome`.
            pair: As for `outcome`.
            most_probable: Whether to use the most probable model instead of posterior samples:
                several times as fast, with standard deviations that are too small.
        """
        return self._predict(before, theta, pair, most_probable=most_probable)[0]

    def rest(
        self, before: np.ndarray, theta: np.ndarray | None = None, *, pair: int = 0
    ) -> np.ndarray:
        """Predict where struck bodies come to rest, by model and slide model, without stepping.

        Args:
            before: (N, 12), columns as in `Impacts`.
            theta: (p,) or (N, p), of the model.
            pair: Index of the learned pair.

        Returns:
            Poses at rest (N, 3): x, y (m) and yaw (rad) in the plane of the scene.
        """
        if self.slide_model is None:
            raise DataError("rest() needs a slide model: HybridSim(..., slide_model=...)")
        prediction, at_contact = self._predict(before, theta, pair)
        return self.slide_to_rest(at_contact[:, :3], prediction.twist_after)

    def rest_uncertainty(self, *, pair: int = 0) -> RestUncertainty:
        """How poses at rest differ from predicted ones, besides the standard deviation of twists.

        Recorded slides were predicted from measured twists, whose noise the standard deviation of
        predicted twists includes. So slides add only what that noise does not explain.

        Args:
            pair: Index of the learned pair.
        """
        if self.slide_model is None:
            raise DataError("rest_uncertainty() needs a slide model")
        model = self._models[self.pairs[pair].pair.key]
        explained = _REST_PER_TWIST * model.noise_std
        unexplained = max(self.slide_model.rest_std**2 - explained**2, 0.0)
        return RestUncertainty(
            degrees_of_freedom=model.degrees_of_freedom,
            slide_std=math.sqrt(unexplained),
            gyration=self.slide_model.gyration,
        )

    def slide_to_rest(self, pose: np.ndarray, twist: np.ndarray) -> np.ndarray:
        """Let bodies slide to rest by the slide model.

        Args:
            pose: (N, 3), x, y (m) and yaw (rad) in the plane of the scene.
            twist: (N, 3), m/s and rad/s, in the same axes.

        Returns:
            Poses at rest (N, 3).
        """
        if self.slide_model is None:
            raise DataError("slide_to_rest() needs a slide model: HybridSim(..., slide_model=...)")
        pose = check_table("pose", pose, ("x", "y", "yaw"))
        twist = check_table("twist", twist, ("vx", "vy", "w"))
        if len(pose) != len(twist):
            raise DataError(
                f"slide_to_rest() needs as many poses as twists, got {len(pose)} and {len(twist)}"
            )
        if len(pose) == 0:
            return np.zeros((0, 3))
        with torch.no_grad():
            return self.slide_model.rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()

    def _predict(
        self,
        before: np.ndarray,
        theta: np.ndarray | None,
        pair_index: int,
        *,
        most_probable: bool = False,
    ) -> tuple[ImpactPrediction, np.ndarray]:
        """Predictions for impacts, and `before` (N, d) with the bodies brought to touch."""
        if not 0 <= pair_index < len(self.pairs):
            last = len(self.pairs) - 1
            raise DataError(
                f"pair must be the index of a learned pair, 0 to {last}, got {pair_index}"
            )
        pair = self.pairs[pair_index]
        if pair.scene is not self.scene:
            raise DataError(
                "outcome() and rest() are for pairs that are simulated in the scene they were "
                "learned in"
            )
        planar = self.scene.plane is not None
        before = check_before(before, planar=planar)
        theta = check_theta(self.scene.params, theta, len(before))
        if len(before) == 0:
            no_twists = np.zeros((0, len(after_columns(planar))))
            return ImpactPrediction(no_twists, no_twists.copy(), np.zeros(0, bool)), before
        contact, at_contact = bring_into_contact(self.scene, before)
        if not contact.touching.all():
            raise DataError(
                f"in impact {int(np.argmin(contact.touching))} the bodies do not meet along their "
                "approach"
            )
        every_row = np.arange(len(before))
        model_theta = self._stepper.theta_for(
            pair, self.theta if theta is None else theta, every_row
        )
        model = self._models[pair.pair.key]
        if most_probable:
            model = model.most_probable
        predicted = model.predict(at_contact, contact, model_theta)
        touching = touching_pairs(pair, self.probe, before=at_contact, contact=contact)
        outcome = enforce_mechanics(
            touching.mechanics,
            touching.struck_twist,
            predicted.twist_after,
            striker_twist=touching.striker_twist,
        )
        untrusted = predicted.trust != TRUST.index(Trust.LEARNED)
        return ImpactPrediction(outcome.twist_after, predicted.std, untrusted), at_contact

    def _write_theta(self, theta: np.ndarray, field: Callable[[str], list[np.ndarray]]) -> None:
        """Write theta (p,) or (n, p) into models; `field` gives the arrays of a field by name."""
        values = np.asarray(theta, float).T
        for slot, param, value in zip(self._slots, self.scene.params, values, strict=True):
            for part in () if slot is None else slot.parts:
                for array in field(part.field):
                    part.write(array, param.sign * value)

    def _batch(self, n: int, *, varied: bool) -> BatchSim:
        """A batch of n simulations; only the last one is kept, because they are large."""
        if (n, varied) not in self._batches:
            threads = self.config.threads
            probe = ContactProbe(self._probe_model, n, threads=threads)
            self._batches = {(n, varied): BatchSim(self.model, probe, threads=threads)}
        return self._batches[n, varied]

    def probe(self, n: int) -> ContactProbe:
        """A probe of n simulations without parameters of their own; only the last one is kept."""
        if n not in self._probes:
            self._probes = {n: ContactProbe(self._probe_model, n, threads=self.config.threads)}
        return self._probes[n]
