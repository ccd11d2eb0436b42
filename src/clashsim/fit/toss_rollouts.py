"""Rollouts of recorded tosses in MuJoCo, and how far they are from the recordings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.box import SUBSTEPS
from clashsim.core.errors import DataError
from clashsim.core.params import Param
from clashsim.core.scene import Scene
from clashsim.data.segmentation.free_flight import Flight
from clashsim.sim.mujoco.simulator import MujocoSim

# Units of the errors in the loss: typical mean errors of a fair fit over a whole toss.
POSITION = 14.0  # % of the width
ROTATION = 18.0  # degrees
# Frames after the first contact that have a loss of their own, and its units.
EARLY = 20
EARLY_POSITION = 2.5  # % of the width
EARLY_ROTATION = 3.5  # degrees
# Errors that are assigned to a rollout that is not finite.
_LOST_POSITION = 1e3  # % of the width
_LOST_ROTATION = 180.0  # degrees
# A state is position (3), quaternion wxyz (4), velocity (3), angular velocity (3).
_STATE_SIZE = 13
_POSE_SIZE = 7
_VERTICAL_VELOCITY = 9
_GRAVITY = 9.81  # m/s^2


@dataclass(frozen=True, eq=False)
class TossErrors:
    """Errors of m rollouts of n tosses, (m, n) each. Positions in % of the width, rotations in deg.

    Attributes:
        position: Mean over all recorded frames.
        rotation: Mean over all recorded frames.
        early_position: Mean up to `EARLY` frames after the first contact.
        early_rotation: Mean up to `EARLY` frames after the first contact.
        soon_position: At one frame, a given number of frames after the first contact.
        soon_rotation: At the same frame.
        wrong: Whether the rollout ends on another face than the recording.
    """

    position: np.ndarray
    rotation: np.ndarray
    early_position: np.ndarray
    early_rotation: np.ndarray
    soon_position: np.ndarray
    soon_rotation: np.ndarray
    wrong: np.ndarray


@dataclass(frozen=True, eq=False)
class Tosses:
    """Recorded tosses of one body, as arrays of equal length for comparison with rollouts.

    Attributes:
        flights: The n recorded tosses.
        width: Width of the body, m.
        longest: Largest number of frames of a toss; frames after the body lies still add nothing.
    """

    flights: tuple[Flight, ...]
    width: float
    longest: int = 10_000

    def __post_init__(self) -> None:
        if not self.flights:
            raise DataError("no tosses to compare with")

    @cached_property
    def length(self) -> int:
        """Frames T of the longest toss."""
        return min(max(len(flight.position) for flight in self.flights), self.longest)

    def _filled(self, recorded: list[np.ndarray]) -> np.ndarray:
        """Recorded arrays (T_i, ...) as one (n, T, ...), padded with the last entry of each."""
        frames = np.arange(self.length)
        return np.stack([array[np.minimum(frames, len(array) - 1)] for array in recorded])

    @cached_property
    def position(self) -> np.ndarray:
        """Recorded positions (n, T, 3), m."""
        return self._filled([flight.position for flight in self.flights])

    @cached_property
    def rotation(self) -> np.ndarray:
        """Recorded rotations (n, T, 3, 3)."""
        return self._filled([flight.rotation for flight in self.flights])

    @cached_property
    def recorded(self) -> np.ndarray:
        """Mask (n, T) of the frames that were recorded, not padded."""
        lengths = np.array([len(flight.position) for flight in self.flights])
        return np.arange(self.length) < lengths[:, None]

    @cached_property
    def contact_frames(self) -> np.ndarray:
        """Index of the frame of the first contact of each toss (n,)."""
        return np.array([flight.frames for flight in self.flights])

    def starts(self, centre: np.ndarray, gravity: np.ndarray) -> np.ndarray:
        """Initial states (m, n, 13) for m mass centres (m, 3), m, and gravities (m,), m/s^2."""
        return np.stack([flight.initial_state(centre, gravity) for flight in self.flights], 1)

    def errors(self, states: np.ndarray, after: int = 10) -> TossErrors:
        """Compare rollouts with the recordings.

        Args:
            states: States (m, n, T, 7 or more) that begin with position and quaternion.
            after: Number of frames after the first contact at which the "soon" errors are taken.

        Returns:
            The errors.
        """
        distance = np.linalg.norm(states[..., :3] - self.position, axis=-1) / self.width * 100
        rotation = _rotations(states)
        trace = np.einsum("mntij,ntij->mnt", rotation, self.rotation)
        angle = np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))
        lost = ~np.isfinite(distance) | ~np.isfinite(angle)
        distance = np.where(lost, _LOST_POSITION, distance)
        angle = np.where(lost, _LOST_ROTATION, angle)
        rows = np.arange(len(self.flights))
        last = self.recorded.sum(1) - 1
        soon = np.minimum(self.contact_frames + after, last)
        early_end = self.contact_frames + EARLY
        early = self.recorded & (np.arange(self.length) < early_end[:, None])
        return TossErrors(
            position=_mean(distance, self.recorded),
            rotation=_mean(angle, self.recorded),
            early_position=_mean(distance, early),
            early_rotation=_mean(angle, early),
            soon_position=distance[:, rows, soon],
            soon_rotation=angle[:, rows, soon],
            wrong=_wrong_faces(rotation[:, rows, last, 2], self.rotation[rows, last, 2]),
        )

    def penetration(self, states: np.ndarray, half: np.ndarray, rounding: float) -> Penetration:
        """How deep the lowest point of a simulated box is below the floor at z = 0.

        Args:
            states: States (m, n, T, 7 or more) that begin with position and quaternion.
            half: Half sizes (3,) of the simulated box, m.
            rounding: Distance by which its contact surface is further out, m.

        Returns:
            The depths.
        """
        corner_below_centre = np.abs(_rotations(states)[..., 2, :]) @ half
        depth = (corner_below_centre + rounding - states[..., 2]).clip(min=0) / self.width * 100
        depth = np.where(np.isfinite(depth), depth, _LOST_POSITION)
        return Penetration(_mean(depth, self.recorded), (depth * self.recorded).max(-1))


class Penetration(NamedTuple):
    """How deep boxes are in the floor, (m, n) each, in % of the width.

    Attributes:
        mean: Mean over all recorded frames, those in flight included.
        largest: Largest of all recorded frames.
    """

    mean: np.ndarray
    largest: np.ndarray


def _mean(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Means (m, n) of values (m, n, T) over the frames in a mask (n, T)."""
    return (values * mask).sum(-1) / mask.sum(1)


def _rotations(states: np.ndarray) -> np.ndarray:
    """Rotation matrices (..., 3, 3) of states (..., 7 or more)."""
    quaternions = states[..., 3:_POSE_SIZE].reshape(-1, 4)
    matrices = Rotation.from_quat(quaternions, scalar_first=True).as_matrix()
    return matrices.reshape(*states.shape[:-1], 3, 3)


def _wrong_faces(up: np.ndarray, true_up: np.ndarray) -> np.ndarray:
    """Whether boxes lie on another face than recorded (m, n). A face is an axis and a sign.

    Args:
        up: The vertical direction in the axes of the simulated boxes (m, n, 3).
        true_up: The vertical direction in the axes of the recorded boxes (n, 3).
    """
    axis = np.argmax(np.abs(up), -1)
    true_axis = np.argmax(np.abs(true_up), -1)
    along = np.take_along_axis(up, true_axis[None, :, None], -1)[..., 0]
    true_along = np.take_along_axis(true_up, true_axis[:, None], -1)[:, 0]
    return (axis != true_axis) | (along * true_along < 0)


@dataclass(frozen=True, eq=False)
class TossRollouts:
    """MuJoCo rollouts of tosses with many thetas at once.

    Attributes:
        scene: The scene.
        tosses: The tosses.
        gravity: Gravity (m/s^2) in fits of initial states if it is not a parameter of the scene.
        threads: Threads of MuJoCo, 0 for all cores.
    """

    scene: Scene
    tosses: Tosses
    gravity: float = _GRAVITY
    threads: int = 0

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters that theta holds."""
        return self.scene.params

    @cached_property
    def sim(self) -> MujocoSim:
        """The simulator."""
        return MujocoSim(self.scene, threads=self.threads)

    def starts(self, theta: np.ndarray) -> np.ndarray:
        """Initial states (m, n, 13) that agree with the recorded flights, for thetas (m, p)."""
        names = [param.name for param in self.params]

        def column(name: str, default: float) -> np.ndarray:
            if name in names:
                return theta[:, names.index(name)]
            return np.full(len(theta), default)

        scene_gravity = -float(self.scene.base.opt.gravity[2])

        centre = np.stack([column(f"centre_{axis}", 0.0) for axis in "xyz"], 1)
        start = self.tosses.starts(centre, column("gravity", self.gravity))
        # MuJoCo's semi-implicit Euler method moves by the velocity at the end of each substep. Half
        # a substep of gravity is added so that it moves by the velocity in the middle.
        half_substep = 0.5 * self.scene.base.opt.timestep
        start[..., _VERTICAL_VELOCITY] += half_substep * column("gravity", scene_gravity)[:, None]
        return start

    def states(self, theta: np.ndarray) -> np.ndarray:
        """States (m, n, T, 13) at the recorded frames for thetas (m, p)."""
        m = len(theta)
        n = len(self.tosses.flights)
        no_control = np.zeros((m * n, (self.tosses.length - 1) * SUBSTEPS, 0))
        states = self.sim.rollout(
            self.starts(theta).reshape(m * n, _STATE_SIZE),
            no_control,
            theta=np.repeat(theta, n, 0) if self.scene.params else None,
        )
        return states[:, ::SUBSTEPS].reshape(m, n, self.tosses.length, -1)

    def subset(self, flights: slice) -> TossRollouts:
        """The same rollouts with only some of the flights."""
        tosses = replace(self.tosses, flights=self.tosses.flights[flights])
        return replace(self, tosses=tosses)

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """Mean losses (m,) of thetas (m, p)."""
        return loss(self.tosses.errors(self.states(theta))).mean(1)


def loss(errors: TossErrors) -> np.ndarray:
    """Mean of J / (1 + J / 2) over the whole toss and over its first frames in contact, (m, n).

    J is the mean of position and rotation error in their units (`POSITION`, ...). The limit of 2
    keeps tosses that land on another face from dominating. After some bounces the smallest change
    alters the whole motion, so a whole toss may be fitted by chance, but its first frames cannot.
    """
    whole = 0.5 * (errors.position / POSITION + errors.rotation / ROTATION)
    early = 0.5 * (errors.early_position / EARLY_POSITION + errors.early_rotation / EARLY_ROTATION)
    return np.mean([whole / (1 + whole / 2), early / (1 + early / 2)], axis=0)
