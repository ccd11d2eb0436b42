"""Impulses of a force sensor beside those that recorded and predicted motions need.

A sensor gives the impulse of an impact as the integral of its force over time. The change of the
struck body's momentum needs the same impulse, by Newton's second law and with nothing to be known
of the contact. The axes of a sensor are seldom known, so the sizes of impulses are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.angles import rotate_planar
from clashsim.core.contact_frame import inertia
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data.segmentation.result import MeasuredImpact
from clashsim.evaluate.holdout import HeldOutPredictions

_WORD = "force"  # which the name of a signal must have
_BEFORE, _AFTER = 0.01, 0.03  # s around the time of an impact, in which its force is
_UNLOADED = (-0.15, -0.03)  # s: from which what the sensor shows without an impact is taken
_FEWEST_SAMPLES = 3  # in each of the two spans of time
_FEWEST_IMPACTS = 3
_MAX_FORCE = 1e9  # N: numbers beyond it are damage


@dataclass(frozen=True, eq=False)
class ForceComparison:
    """Impulses of M impacts by one sensor.

    Attributes:
        sensor: Name of its signal.
        rate: Samples per second.
        rows: (M,), index of each impact among the predictions.
        measured: (M,), N s, by the sensor.
        of_motion: (M,), N s, that the recorded change of velocity needs; NaN where it is not known.
        predicted: (M,), N s, that the predicted change of velocity needs, by name of the model.
    """

    sensor: str
    rate: float
    rows: np.ndarray
    measured: np.ndarray
    of_motion: np.ndarray
    predicted: Mapping[str, np.ndarray]

    def median_ratio(self, impulse: np.ndarray) -> float:
        """Median of an impulse (M,) over the measured one."""
        ratios = impulse / np.maximum(self.measured, 1e-12)  # never divides by zero
        return float(np.nanmedian(ratios)) if np.isfinite(ratios).any() else float("nan")

    def sentence(self, ours: str) -> str:
        """The comparison in words.

        Args:
            ours: Name of the model that is reported on.
        """
        error = np.abs(self.predicted[ours] - self.measured)
        return (
            f"Force sensor {self.sensor} ({self.rate:.0f} Hz): impulses of "
            f"{np.median(self.measured):.3g} N s (median of {len(self.rows)} impacts); recorded "
            f"motions need {self.median_ratio(self.of_motion):.2f} times that, and those predicted "
            f"by {ours} {self.median_ratio(self.predicted[ours]):.2f} times, with a median error "
            f"of {np.median(error):.2g} N s."
        )


def compare_forces(
    scene: Scene,
    trials: Trials,
    found: Sequence[MeasuredImpact],
    predictions: HeldOutPredictions,
) -> list[ForceComparison]:
    """Compare recorded forces with the impulses of recorded and predicted motions.

    Args:
        scene: Scene of the pair.
        trials: The recorded trials.
        found: The measured impacts that `predictions.rows` indexes.
        predictions: Twists after impact that each model predicts.

    Returns:
        A comparison for each sensor; none for a struck body that joints hold, which take a share of
        the impulse, and for sensors too slow to show an impact.
    """
    if scene.struck_body.mechanism is not None or scene.struck_body.fixed:
        return []
    by_name = {trial.name: trial for trial in trials}
    sensors = dict.fromkeys(name for trial in trials for name in force_signals(trial))
    impacts = predictions.impacts
    of_motion = momentum_changes(scene, impacts, impacts.after)
    predicted = {
        name: momentum_changes(scene, impacts, twist)
        for name, twist in predictions.predicted.items()
    }
    comparisons = []
    for sensor in sensors:
        measured = np.full(len(impacts), np.nan)
        rates = []
        for row, index in enumerate(predictions.rows):
            impact = found[int(index)]
            values = force_signals(by_name[impact.trial]).get(sensor)
            if values is None:
                continue
            t, force = values
            measured[row] = sensor_impulse(t, force, impact.time)
            rates.append(1 / np.median(np.diff(t)))
        rows = np.flatnonzero(np.isfinite(measured))
        if len(rows) < _FEWEST_IMPACTS:
            continue
        of_rows = {name: values[rows] for name, values in predicted.items()}
        comparisons.append(
            ForceComparison(
                sensor,
                float(np.median(rates)),
                rows,
                measured[rows],
                of_motion[rows],
                of_rows,
            )
        )
    return comparisons


def force_signals(trial: Trial) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Forces of a trial by name: times (S,), s, and values (S, c), N, of the samples.

    Signals that differ in a last _x, _y or _z are the components of one.
    """
    named = {name: values for name, values in trial.signals.items() if _WORD in name.lower()}
    components: dict[str, list[np.ndarray]] = {}
    for name, values in named.items():
        stem = name[:-2] if name.lower().endswith(("_x", "_y", "_z")) else name
        components.setdefault(stem, []).append(np.reshape(values, (len(values), -1)))
    found = {}
    for stem, parts in components.items():
        force = np.concatenate(parts, 1)
        seen = np.isfinite(force).all(1) & (np.abs(force) < _MAX_FORCE).all(1)
        if seen.sum() > _FEWEST_SAMPLES:
            found[stem] = (trial.t[seen], force[seen])
    return found


def sensor_impulse(t: np.ndarray, force: np.ndarray, time: float) -> float:
    """Size of the impulse of one impact, N s; NaN where too few samples show it.

    Args:
        t: (S,), s, times of the samples.
        force: (S, c), N, in the axes of the sensor; what it shows before the impact, as of gravity,
            is subtracted.
        time: Of the impact, s.
    """
    unloaded = (t > time + _UNLOADED[0]) & (t < time + _UNLOADED[1])
    during = (t > time - _BEFORE) & (t < time + _AFTER)
    if min(unloaded.sum(), during.sum()) < _FEWEST_SAMPLES:
        return float("nan")
    of_impact = force[during] - np.median(force[unloaded], axis=0)
    return float(np.linalg.norm(np.trapezoid(of_impact, t[during], axis=0)))


def momentum_changes(scene: Scene, impacts: Impacts, after: np.ndarray) -> np.ndarray:
    """Size (N,) of the change of the struck body's momentum, N s.

    Args:
        scene: Scene of the pair.
        impacts: N impacts.
        after: (N, k), twists of the struck body after them, m/s and rad/s.
    """
    body = inertia(scene, scene.struck_body)
    motion = MotionBefore.of(impacts.before).struck
    change = after - motion.twist
    centre = np.array(body.centre)
    if impacts.planar:
        assert scene.plane is not None
        in_plane = np.tile(scene.plane[:2] @ (scene.struck_body.rotation @ centre), (len(after), 1))
        turn = motion.yaw - _reference_yaw(scene)
        offset = rotate_planar(in_plane, turn)
        of_centre = change[:, :2] + change[:, 2:] * np.column_stack([-offset[:, 1], offset[:, 0]])
    else:
        offset = Rotation.from_quat(motion.quaternion, scalar_first=True).apply(centre)
        of_centre = change[:, :3] + np.cross(change[:, 3:], offset)
    return body.mass * np.linalg.norm(of_centre, axis=1)


def _reference_yaw(scene: Scene) -> float:
    """Yaw (rad) of the struck body in the scene's reference pose, about the plane's normal."""
    assert scene.plane is not None
    axis = scene.plane[:2] @ scene.struck_body.rotation @ scene.plane[0]
    return float(np.arctan2(axis[1], axis[0]))
