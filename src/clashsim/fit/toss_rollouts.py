"""Rollouts of recorded tosses in MuJoCo, and how far they are from the recordings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.box import SUBSTEPS
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.data.segmentation.free_flight import Flight
from clashsim.sim.mujoco.simulator import MujocoSim

# Errors that the loss counts as one over a whole toss: about what a fair fit is off by.
POSITION = 14.0  # % of the width
ROTATION = 18.0  # degrees
# Frames past the first contact that count by themselves, and the same errors for them.
EARLY = 20
EARLY_POSITION = 2.5
EARLY_ROTATION = 3.5
_LOST_POSITION = 1e3  # % of the width: error of a rollout that is not finite
_LOST_ROTATION = 180.0  # degrees
_STATE_SIZE = 13
_POSE_SIZE = 7


@dataclass(frozen=True, eq=False)
class TossErrors:
    """Errors of m rollouts of n tosses, (m, n) each. Positions in % of the width, rotations in deg.

    Attributes:
        position: Mean over all frames.
        rotation: Mean over all frames.
        early_position: Mean up to `EARLY` frames past contact.
        early_rotation: Mean up to `EARLY` frames past contact.
        soon_position: At some frames past contact.
        soon_rotation: At some frames past contact.
        wrong: Whether the toss ends on a wrong face.
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
    """Flights of one body made ready to be compared with rollouts.

    Attributes:
        flights: The n recorded flights.
        width: Width of the body, m.
        longest: Most frames of a toss; one that lies still for long adds no information.
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
        """Recorded arrays (T_i, ...) as one (n, T, ...); the last entry is repeated to fill up."""
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
        """Which frames were recorded (n, T)."""
        lengths = np.array([len(flight.position) for flight in self.flights])
        return np.arange(self.length) < lengths[:, None]

    @cached_property
    def contact_frames(self) -> np.ndarray:
        """The frame of the first contact of each toss (n,)."""
        return np.array([flight.frames for flight in self.flights])

    def starts(self, centre: np.ndarray, gravity: np.ndarray) -> np.ndarray:
        """Starts (m, n, 13) for m centres of mass (m, 3) and gravities (m,)."""
        return np.stack([flight.initial_state(centre, gravity) for flight in self.flights], 1)

    def errors(self, states: np.ndarray, after: int = 10) -> TossErrors:
        """Compare rollouts with the recordings.

        Args:
            states: States (m, n, T, >= 7) that begin with qpos.
            after: Frames past contact at which "soon" errors are taken.

        Returns:
            The errors.
        """
        distance = np.linalg.norm(states[..., :3] - self.position, axis=-1) / self.width * 100
        quaternions = states[..., 3:_POSE_SIZE].reshape(-1, 4)
        matrices = Rotation.from_quat(quaternions, scalar_first=True).as_matrix()
        rotation = matrices.reshape(*states.shape[:-1], 3, 3)
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


def _mean(values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Means (m, n) of values (m, n, T) over the frames that are counted (n, T)."""
    return (values * counted).sum(-1) / counted.sum(1)


def _wrong_faces(up: np.ndarray, true_up: np.ndarray) -> np.ndarray:
    """Whether boxes lie on a wrong face (m, n). A face is an axis and a sign.

    Args:
        up: The vertical in the boxes' axes (m, n, 3).
        true_up: The same as recorded (n, 3).
    """
    axis = np.argmax(np.abs(up), -1)
    true_axis = np.argmax(np.abs(true_up), -1)
    along = np.take_along_axis(up, true_axis[None, :, None], -1)[..., 0]
    true_along = np.take_along_axis(true_up, true_axis[:, None], -1)[:, 0]
    return (axis != true_axis) | (along * true_along < 0)


@dataclass(frozen=True, eq=False)
class TossRollouts:
    """MuJoCo rollouts of tosses under many thetas at once.

    Attributes:
        scene: The scene.
        tosses: The tosses.
        gravity: That of the starts where it is no parameter, m/s^2.
        threads: Threads of MuJoCo, 0 for all cores.
    """

    scene: Scene
    tosses: Tosses
    gravity: float = 9.81
    threads: int = 0

    @cached_property
    def sim(self) -> MujocoSim:
        """The simulator."""
        return MujocoSim(self.scene, threads=self.threads)

    def starts(self, theta: np.ndarray) -> np.ndarray:
        """Starts (m, n, 13) that agree with the flights under thetas (m, p)."""
        names = [param.name for param in self.scene.params]

        def column(name: str, default: float) -> np.ndarray:
            if name in names:
                return theta[:, names.index(name)]
            return np.full(len(theta), default)

        centre = np.stack([column(f"centre_{axis}", 0.0) for axis in "xyz"], 1)
        start = self.tosses.starts(centre, column("gravity", self.gravity))
        # Euler's method moves by the velocity after each substep: half a substep of gravity ahead
        # of the recorded one.
        half_substep = 0.5 * self.scene.base.opt.timestep
        start[..., 9] += half_substep * column("gravity", 9.81)[:, None]
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
        """The same with some of the flights."""
        tosses = replace(self.tosses, flights=self.tosses.flights[flights])
        return replace(self, tosses=tosses)

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """Mean losses (m,) of thetas (m, p)."""
        return loss(self.tosses.errors(self.states(theta))).mean(1)


def loss(errors: TossErrors) -> np.ndarray:
    """Mean of J / (1 + J / 2) over the whole toss and over its first frames in contact, (m, n).

    A toss that lands on another face can cost no more than 2. After some bounces the smallest
    change moves everything, so a whole toss may be fitted by luck; its first frames cannot.
    """
    whole = 0.5 * (errors.position / POSITION + errors.rotation / ROTATION)
    early = 0.5 * (errors.early_position / EARLY_POSITION + errors.early_rotation / EARLY_ROTATION)
    return np.mean([whole / (1 + whole / 2), early / (1 + early / 2)], axis=0)
