"""Identify a slide model from a few recorded slides of one body on one plane.

The whole path of every slide is fitted, all slides at once, with one set of values for all of them.
The prior is a uniform pressure under the support patch: with it ten slides are enough, and a value
that the slides do not determine keeps its prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError
from clashsim.core.estimates import Estimate, EstimateStatus
from clashsim.slides.fit_problem import OWN_FRICTION, SlideProblem
from clashsim.slides.law import VALUE_NAMES, SlideModel
from clashsim.slides.slide import Slide
from clashsim.slides.support_patch import SupportPatch
from clashsim.slides.value_priors import expected_values, model_from_fit, natural_values

_FRICTION = VALUE_NAMES.index("friction")
_STEPS = 16  # Runge-Kutta steps while fitting
_SAMPLES = 24  # times at which a slide is compared, from its start to a little after rest
_FRICTION_STD = 0.05  # first guess of the variation of log friction from slide to slide
_MIN_FRICTION_STD = 0.01  # of log friction from slide to slide
_REST_SAMPLES = 5  # at the end of a slide, whose median is taken as the pose at rest
# A value is reported as fitted if its standard deviation is below this share of the prior's.
_IDENTIFIED = 0.7
_NORMAL_90 = 1.645  # standard deviations either side of the mean that contain 90 %
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_WITHIN_STD = 0.6827  # share of a normal distribution within one standard deviation
_MIN_MOTION = 1e-3  # m, to which shorter motions are raised when errors are divided by them
_MAX_DELAY = 0.1  # s, of the delay that `delay` returns


@dataclass(frozen=True, eq=False)
class SlideFit:
    """A slide model, how well the slides identify each of its values, and how well it fits.

    Attributes:
        model: The fitted model.
        estimates: Values with intervals, in the order of `VALUE_NAMES`.
        misfit: Root mean square errors (3,) of x, y (m) and yaw (rad) along the paths, each
            simulated from its own fitted start with its own fitted friction.
        friction_std: Standard deviation of the logarithm of friction from slide to slide.
        mean: Fitted values (11,), those that must be positive as logarithms.
        covariance: Covariance (11, 11) of `mean`.
        slides: Number of slides.
    """

    model: SlideModel
    estimates: tuple[Estimate, ...]
    misfit: np.ndarray
    friction_std: float
    mean: np.ndarray
    covariance: np.ndarray
    slides: int

    def content(self) -> dict[str, Any]:
        """The content of slide.json: the model, and under "fit" how well it was fitted."""
        estimates = [asdict(estimate) for estimate in self.estimates]
        fit = {
            "slides": self.slides,
            "misfit": self.misfit.tolist(),
            "varies": self.friction_std,
            "estimates": estimates,
        }
        return self.model.content() | {"fit": fit}

    def sample_models(self, n: int, seed: int) -> list[SlideModel]:
        """Sample models from the posterior, with friction varied as it does between slides.

        They are meant for domain randomisation.

        Args:
            n: Number of models.
            seed: Seed of the random numbers.

        Returns:
            The models.
        """
        rng = np.random.default_rng(seed)
        rows = rng.multivariate_normal(self.mean, self.covariance, size=n, method="svd")
        rows[:, _FRICTION] += self.friction_std * rng.normal(size=n)
        return [model_from_fit(row, self.model) for row in rows]


def fit_slides(
    slides: Sequence[Slide],
    patch: SupportPatch,
    *,
    twists: np.ndarray | None = None,
    twist_std: Sequence[float] | None = None,
    gravity: float = 9.81,
) -> SlideFit:
    """Fit a slide model to recorded slides of one body; 5 to 10 slides are enough.

    Args:
        slides: The recorded slides.
        patch: The support patch of the body.
        twists: Twists (N, 3) of the body's origin measured at each slide's first sample, m/s and
            rad/s; by default they are estimated from the path.
        twist_std: Standard deviations (3,) of the measured twists.
        gravity: m/s^2.

    Returns:
        The fitted model with its estimates.
    """
    if not slides:
        raise DataError("there are no slides to fit a slide model to")
    problem = _make_problem(slides, patch, twists, twist_std, gravity)
    common = problem.mean.copy()
    travelled = problem.rest[:, :2] - problem.pose[:, 0, :2]
    common[_FRICTION] = _initial_log_friction(travelled, problem.start, gravity)
    own_log_friction = np.zeros((len(slides), 1))
    own = np.concatenate([problem.start, own_log_friction], 1)
    for _ in range(2):  # the second fit uses the noise that the residuals of the first show
        common, own, covariance = problem.solve(common, own)
        residuals = problem.paths(common[None], own[None])[0] - problem.pose
        observed_std = float(np.sqrt((own[:, OWN_FRICTION] ** 2).mean()))
        friction_std = max(observed_std, _MIN_FRICTION_STD)
        problem = _with_observed_noise(problem, patch, residuals, friction_std, common)
    return SlideFit(
        model=model_from_fit(common, problem.body),
        estimates=_estimates(common, covariance, problem.std),
        misfit=np.sqrt((residuals**2).mean((0, 1))),
        friction_std=friction_std,
        mean=common,
        covariance=covariance,
        slides=len(slides),
    )


def _make_problem(
    slides: Sequence[Slide],
    patch: SupportPatch,
    twists: np.ndarray | None,
    twist_std: Sequence[float] | None,
    gravity: float,
) -> SlideProblem:
    """The fit's problem, with first guesses of the noise in proportion to the slides' length."""
    t, pose, rest = _resampled(slides)
    start, start_std = _starts(slides, patch, twists, twist_std)
    mean, std = expected_values(patch)
    body = SlideModel(
        {"friction": 0.3},  # replaced in the fit
        gyration=patch.gyration,
        centre=patch.centre,
        gravity=gravity,
        steps=_STEPS,
    )
    distance = float(np.median(np.linalg.norm(rest[:, :2] - pose[:, 0, :2], axis=1)))
    per_metre = np.array([1.0, 1.0, 1.0 / patch.gyration])  # x, y, yaw for a motion of 1 m
    pose_std = per_metre * max(0.01 * distance, 5e-4)
    return SlideProblem(
        body=body,
        t=t,
        pose=pose,
        rest=rest,
        start=start,
        own_std=np.concatenate([pose_std, start_std, [_FRICTION_STD]]),
        mean=mean,
        std=std,
        noise=per_metre * max(0.02 * distance, 3e-4),
        rest_std=None if twists is None else _rest_std(pose[:, 0], rest, patch),
    )


def _with_observed_noise(
    problem: SlideProblem,
    patch: SupportPatch,
    residuals: np.ndarray,
    friction_std: float,
    common: np.ndarray,
) -> SlideProblem:
    """The problem with the noise that a first fit shows.

    Args:
        problem: The problem of the first fit.
        patch: The support patch of the body.
        residuals: Of the paths after the first fit (N, T, 3).
        friction_std: Standard deviation of the slides' own log friction after the first fit.
        common: Values (11,) of the first fit.
    """
    noise = np.maximum(_MAD * np.median(np.abs(residuals), axis=(0, 1)), 0.1 * problem.noise)
    noise[:2] = noise[:2].mean()  # x and y have the same noise
    own_std = problem.own_std.copy()
    own_std[OWN_FRICTION] = np.clip(1.3 * friction_std, 0.03, 0.3)
    rest_std = None
    if problem.rest_std is not None:
        predicted = problem.rest_poses(common[None])[0]
        rest_std = _rest_std(problem.pose[:, 0], problem.rest, patch, predicted)
    return replace(problem, noise=noise, own_std=own_std, rest_std=rest_std)


def _resampled(slides: Sequence[Slide]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each slide at equally spaced times from its first sample until a little after it rests.

    Returns:
        Times since the start (N, T), s, poses (N, T, 3), poses at rest (N, 3).
    """
    times = []
    poses = []
    rests = []
    for i, slide in enumerate(slides):
        t, pose = slide.checked(i)
        end = np.median(pose[-_REST_SAMPLES:], 0)
        # A yaw of 1 rad from the end is taken as 0.05 m.
        distance_to_end = np.linalg.norm((pose - end) * [1, 1, 0.05], axis=1)
        moving = np.flatnonzero(distance_to_end > 0.01 * max(distance_to_end[0], 1e-3))
        last = t[int(moving[-1])] if len(moving) else t[-1]
        # Beyond `last`, because a braked body needs a tenth of its time for the last hundredth of
        # its distance.
        until = min(t[0] + 1.2 * (last - t[0]) + 0.02, t[-1])
        at = np.linspace(t[0], until, _SAMPLES)
        times.append(at - t[0])
        poses.append(np.column_stack([np.interp(at, t, column) for column in pose.T]))
        rests.append(end)
    return np.array(times), np.array(poses), np.array(rests)


def _starts(
    slides: Sequence[Slide],
    patch: SupportPatch,
    twists: np.ndarray | None,
    twist_std: Sequence[float] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Poses and twists (N, 6) at the first samples, and standard deviations of the twists (3,)."""
    first = np.array([[*slide.xy[0], np.unwrap(slide.yaw)[0]] for slide in slides], float)
    if twists is None:
        estimated = np.array([_initial_twist(slide) for slide in slides])
        speed = float(np.median(np.linalg.norm(estimated[:, :2], axis=1)))
        std = np.array([1.0, 1.0, 1.0 / patch.gyration]) * max(0.2 * speed, 0.02)
        return np.column_stack([first, estimated]), std
    if np.shape(twists) != (len(slides), 3):
        raise DataError(f"twists need shape ({len(slides)}, 3), got {np.shape(twists)}")
    if twist_std is None:
        speed = float(np.median(np.linalg.norm(twists[:, :2], axis=1)))
        std = np.array([1.0, 1.0, 0.7 / patch.gyration]) * max(0.01 * speed, 1e-3)
    else:
        std = np.asarray(twist_std, float)
    return np.column_stack([first, twists]), std


def _initial_twist(slide: Slide) -> np.ndarray:
    """The twist (3,) at a slide's first sample, from a parabola through its first samples."""
    t = np.asarray(slide.t)
    sample_time = float(np.median(np.diff(t)))
    early = t <= t[0] + max(0.06, 5 * sample_time)
    pose = np.column_stack([slide.xy, np.unwrap(slide.yaw)])
    coefficients = np.polynomial.polynomial.polyfit(t[early] - t[0], pose[early], 2)  # (3, 3)
    return coefficients[1]


def _rest_std(
    first: np.ndarray,
    rest: np.ndarray,
    patch: SupportPatch,
    predicted: np.ndarray | None = None,
) -> np.ndarray:
    """Standard deviations (N, 3) of predicted poses at rest, in proportion to the motion.

    Args:
        first: First poses (N, 3).
        rest: Recorded poses at rest (N, 3).
        patch: The support patch of the body.
        predicted: Predicted poses at rest (N, 3); their errors then scale the result.
    """
    motion = np.abs(rest - first)
    distance = np.linalg.norm(motion[:, :2], axis=1)
    position_std = 0.05 * distance + 1e-3
    yaw_std = 0.05 * (motion[:, 2] + 0.2 * np.median(distance) / patch.gyration)
    std = np.stack([position_std, position_std, yaw_std], 1)
    if predicted is None:
        return std
    observed_scale = _MAD * np.median(np.abs(predicted - rest) / std, axis=0)  # (3,)
    observed_scale[:2] = observed_scale[:2].max()
    return std * np.maximum(observed_scale, 0.2)


def _initial_log_friction(travelled: np.ndarray, start: np.ndarray, gravity: float) -> float:
    """Logarithm of the friction that would stop slides without rotation where they stopped.

    Args:
        travelled: Displacements (N, 2) from start to rest, m.
        start: Poses and twists (N, 6) at the start.
        gravity: m/s^2.
    """
    distance = np.maximum(np.linalg.norm(travelled, axis=1), 1e-4)
    speed_squared = (start[:, 3:5] ** 2).sum(1)
    friction = np.median(speed_squared / (2 * gravity * distance))
    return float(np.clip(np.log(friction), -4, 1))


def _estimates(
    fitted: np.ndarray, covariance: np.ndarray, prior_std: np.ndarray
) -> tuple[Estimate, ...]:
    """Estimates with 90 % intervals, in the order of `VALUE_NAMES`.

    Args:
        fitted: Fitted values (11,), those that must be positive as logarithms.
        covariance: Of `fitted` (11, 11).
        prior_std: Prior standard deviations of `fitted` (11,).
    """
    std = np.sqrt(np.diag(covariance))
    low = natural_values(fitted - _NORMAL_90 * std)
    value = natural_values(fitted)
    high = natural_values(fitted + _NORMAL_90 * std)
    estimates = []
    for i, name in enumerate(VALUE_NAMES):
        identified = std[i] < _IDENTIFIED * prior_std[i]
        status = EstimateStatus.FITTED if identified else EstimateStatus.UNIDENTIFIABLE
        estimates.append(Estimate(name, float(value[i]), float(low[i]), float(high[i]), status))
    return tuple(estimates)


def mujoco_friction(
    model: SlideModel, corners: np.ndarray | None = None, *, speed: float = 0.3
) -> tuple[float, float]:
    """Friction of MuJoCo's ground contact that is closest to a slide model.

    It is meant for contacts with condim 4 and an elliptic cone.

    Args:
        model: The slide model.
        corners: MuJoCo's contact points (K, 2), m from the mass centre: `SupportPatch.corners`.
            Their sliding friction already resists rotation, and torsional friction only adds what
            is missing; it is zero where they resist more than the model. None stands for a single
            contact below the mass centre.
        speed: Sliding speed at which the model's friction is evaluated, m/s.

    Returns:
        Sliding friction (dimensionless), and torsional friction (m).
    """
    value = dict(zip(VALUE_NAMES, model.values.tolist(), strict=True))
    sliding = value["friction"] * float(np.exp(value["rate_dependence"] * speed / (1 + speed)))
    # Mean squared torsion radius over all directions of sliding, m^2.
    radius_squared = (
        value["pressure_radius_x"] ** 2
        + value["pressure_radius_xy"] ** 2
        + value["pressure_radius_y"] ** 2
    ) / 2
    if corners is None:
        by_corners = 0.0
    else:
        by_corners = float((np.asarray(corners) ** 2).sum(1).mean()) / 2
    return sliding, sliding * float(np.sqrt(max(radius_squared - by_corners, 0.0)))


def delay(model: SlideModel, pose: np.ndarray, twist: np.ndarray, rest: np.ndarray) -> float:
    """Time between the first touch of a strike and the measurement of the twist after it, s.

    It is the delay of the slide model (see `SlideModel`) with which the predicted poses at rest
    are closest to the recorded ones. Without it, friction during that time would be applied twice:
    it has already reduced the measured twist.

    Args:
        model: The slide model.
        pose: Poses (N, 3) of the struck body when the bodies first touched.
        twist: Twists (N, 3) of the struck body after the strikes.
        rest: Recorded poses at rest (N, 3).

    Returns:
        The delay, s.
    """
    with torch.no_grad():
        predicted = model.delayed(0.0).rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()
    missing = rest - predicted
    missing[:, 2] = wrap_angle(missing[:, 2])
    to_metres = np.array([1.0, 1.0, model.gyration])
    along_twist = ((missing * to_metres) * (twist * to_metres)).sum(1)
    speed_squared = ((twist * to_metres) ** 2).sum(1)
    # The median, so that a single unusual strike, such as one on a corner, has no influence.
    return float(np.clip(np.median(along_twist / speed_squared), 0.0, _MAX_DELAY))


def rest_std(model: SlideModel, pose: np.ndarray, twist: np.ndarray, rest: np.ndarray) -> float:
    """Standard deviation of poses at rest from the predicted ones, over the length of the motion.

    Args:
        model: The slide model, with its delay.
        pose: Poses (N, 3) of the struck body when the bodies first touched.
        twist: Twists (N, 3) of the struck body after the strikes.
        rest: Recorded poses at rest (N, 3).

    Returns:
        The size within which 68 % of the errors of x, y and yaw lie, the latter in units of the
        radius of gyration. A root mean square would be that of a single strike on a corner.
    """
    with torch.no_grad():
        predicted = model.rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()
    to_metres = np.array([1.0, 1.0, model.gyration])
    error = rest - predicted
    error[:, 2] = wrap_angle(error[:, 2])
    length = np.linalg.norm((predicted - pose) * to_metres, axis=1, keepdims=True)
    relative = np.abs(error * to_metres) / np.maximum(length, _MIN_MOTION)
    return float(np.quantile(relative, _WITHIN_STD))
