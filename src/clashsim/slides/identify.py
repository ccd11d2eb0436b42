"""Identify a slide model from a few recorded slides of one body on one plane.

The whole path of every slide is fitted at once; what is fitted is what the slides have in common.
The prior is an even pressure under the support patch, so that ten slides are enough, and an effect
that the slides do not show stays at its prior.
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
from clashsim.slides.law import TO_STORED, VALUE_NAMES, SlideModel
from clashsim.slides.slide import Slide
from clashsim.slides.support_patch import SupportPatch
from clashsim.slides.value_priors import expected_values, model_from_fit, natural_values

_STEPS = 16  # Runge-Kutta steps while fitting
_FRAMES = 24  # of a slide that are compared, from its start to a little after rest
_FRICTION_STD = 0.05  # first guess of the variation of log friction from slide to slide
# A value counts as fitted if its standard deviation falls below this share of the prior's.
_IDENTIFIED = 0.7
_NORMAL_90 = 1.645  # standard deviations that hold 90 %
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True, eq=False)
class SlideFit:
    """A slide model, how well the slides identify each of its values, and how well it fits.

    Attributes:
        model: The fitted model.
        estimates: Values with intervals, in the order of `VALUE_NAMES`.
        misfit: Root mean square (3,) of x, y (m) and yaw (rad) along the paths, each from its own
            start with its own friction.
        friction_std: Standard deviation of the logarithm of friction from slide to slide.
        mean: Fitted values (11,), those above zero as logarithms.
        covariance: Covariance (11, 11) of these.
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
        """What slide.json holds: the model's content, and the figures of its fit beside it."""
        estimates = [asdict(replace(e, name=TO_STORED[e.name])) for e in self.estimates]
        fit = {
            "slides": self.slides,
            "misfit": self.misfit.tolist(),
            "varies": self.friction_std,
            "estimates": estimates,
        }
        return self.model.content() | {"fit": fit}

    def sample_models(self, n: int, seed: int) -> list[SlideModel]:
        """Models from the posterior, with friction varied as from slide to slide.

        They serve domain randomisation.

        Args:
            n: Number of models.
            seed: Seed of the random numbers.

        Returns:
            The models.
        """
        rng = np.random.default_rng(seed)
        rows = rng.multivariate_normal(self.mean, self.covariance, size=n, method="svd")
        rows[:, 0] += self.friction_std * rng.normal(size=n)
        return [model_from_fit(row, self.model) for row in rows]


def fit_slides(
    slides: Sequence[Slide],
    patch: SupportPatch,
    *,
    twists: np.ndarray | None = None,
    twist_std: Sequence[float] | None = None,
    gravity: float = 9.81,
) -> SlideFit:
    """Fit a slide model to slides of the body's origin; 5 to 10 are enough.

    Args:
        slides: The recorded slides.
        patch: What the body stands on.
        twists: Twists (N, 3) measured at each slide's first frame; without them they are estimated
            from the path.
        twist_sd: Standard deviations (3,) of the measured twists.
        gravity: m/s^2.

    Returns:
        The fitted model with its estimates.
    """
    if not slides:
        raise DataError("there are no slides to fit a slide model to")
    problem = _make_problem(slides, patch, twists, twist_std, gravity)
    common = problem.mean.copy()
    gone = problem.rest[:, :2] - problem.pose[:, 0, :2]
    common[0] = _initial_log_friction(gone, problem.start, gravity)
    own = np.concatenate([problem.start, np.zeros((len(slides), 1))], 1)
    for _ in range(2):  # how far paths stray from the model is known after the first
        common, own, covariance = problem.solve(common, own)
        left = problem.paths(common[None], own[None])[0] - problem.pose
        friction_std = max(float(np.sqrt((own[:, OWN_FRICTION] ** 2).mean())), 0.01)
        problem = _with_observed_noise(problem, patch, left, friction_std, common)
    return SlideFit(
        model=model_from_fit(common, problem.body),
        estimates=_estimates(common, covariance, problem.std),
        misfit=np.sqrt((left**2).mean((0, 1))),
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
    """The problem with first guesses of the noise, relative to how far the slides go."""
    t, pose, rest = _resampled(slides)
    start, start_std = _starts(slides, patch, twists, twist_std)
    mean, std = expected_values(patch)
    body = SlideModel(
        {"friction": 0.3},
        gyration=patch.gyration,
        centre=patch.centre,
        gravity=gravity,
        steps=_STEPS,
    )
    distance = float(np.median(np.linalg.norm(rest[:, :2] - pose[:, 0, :2], axis=1)))
    per_metre = np.array([1.0, 1.0, 1.0 / patch.gyration])
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
    left: np.ndarray,
    friction_std: float,
    common: np.ndarray,
) -> SlideProblem:
    """The problem with its noise as the residuals (N, T, 3) of a first fit show it."""
    noise = np.maximum(_MAD * np.median(np.abs(left), axis=(0, 1)), 0.1 * problem.noise)
    noise[:2] = noise[:2].mean()
    own_std = problem.own_std.copy()
    own_std[OWN_FRICTION] = np.clip(1.3 * friction_std, 0.03, 0.3)
    rest_std = None
    if problem.rest_std is not None:
        predicted = problem.rest_poses(common[None])[0]
        rest_std = _rest_std(problem.pose[:, 0], problem.rest, patch, predicted)
    return replace(problem, noise=noise, own_std=own_std, rest_std=rest_std)


def _resampled(slides: Sequence[Slide]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each slide at even times from its first frame until it rests.

    Returns:
        Times since the start (N, T), poses (N, T, 3), poses at rest (N, 3).
    """
    times = []
    poses = []
    rests = []
    for i, slide in enumerate(slides):
        t, pose = slide.checked(i)
        end = np.median(pose[-5:], 0)
        away = np.linalg.norm((pose - end) * [1, 1, 0.05], axis=1)
        moving = np.flatnonzero(away > 0.01 * max(away[0], 1e-3))
        last = t[int(moving[-1])] if len(moving) else t[-1]
        # The last hundredth of the distance takes a tenth of the time.
        until = min(t[0] + 1.2 * (last - t[0]) + 0.02, t[-1])
        at = np.linspace(t[0], until, _FRAMES)
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
    """Poses and twists (N, 6) at the first frames, and standard deviations of the twists (3,)."""
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
    """The twist (3,) at a slide's first frame, from a parabola through its first frames."""
    t = np.asarray(slide.t)
    frame_time = float(np.median(np.diff(t)))
    early = t <= t[0] + max(0.06, 5 * frame_time)
    pose = np.column_stack([slide.xy, np.unwrap(slide.yaw)])
    return np.polynomial.polynomial.polyfit(t[early] - t[0], pose[early], 2)[1]


def _rest_std(
    first: np.ndarray,
    rest: np.ndarray,
    patch: SupportPatch,
    predicted: np.ndarray | None = None,
) -> np.ndarray:
    """Standard deviations (N, 3) of poses at rest.

    They are a share of distance and rotation; where there are predictions (N, 3), scaled by the
    errors of these.
    """
    gain = np.abs(rest - first)
    distance = np.linalg.norm(gain[:, :2], axis=1)
    position_std = 0.05 * distance + 1e-3
    yaw_std = 0.05 * (gain[:, 2] + 0.2 * np.median(distance) / patch.gyration)
    std = np.stack([position_std, position_std, yaw_std], 1)
    if predicted is None:
        return std
    left = _MAD * np.median(np.abs(predicted - rest) / std, axis=0)
    left[:2] = left[:2].max()
    return std * np.maximum(left, 0.2)


def _initial_log_friction(gone: np.ndarray, start: np.ndarray, gravity: float) -> float:
    """Logarithm of the friction that stops the slides' speeds over their distances (N, 2)."""
    distance = np.maximum(np.linalg.norm(gone, axis=1), 1e-4)
    speed_squared = (start[:, 3:5] ** 2).sum(1)
    friction = np.median(speed_squared / (2 * gravity * distance))
    return float(np.clip(np.log(friction), -4, 1))


def _estimates(
    fitted: np.ndarray, covariance: np.ndarray, prior_std: np.ndarray
) -> tuple[Estimate, ...]:
    """Estimates in the order of `VALUE_NAMES`."""
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
    """Friction of MuJoCo's ground pair that comes nearest to a slide model.

    It holds for condim 4 and an elliptic cone.

    Args:
        model: The slide model.
        corners: Where MuJoCo puts contacts (K, 2), m from the mass centre, `SupportPatch.corners`.
            A rotation that they brake already needs no torsional friction, and MuJoCo cannot brake
            it less than they do: then the torsional friction is zero. Without corners there is one
            contact.
        speed: Sliding speed at which the friction is taken, m/s.

    Returns:
        Sliding friction, and torsional friction (m).
    """
    v = dict(zip(VALUE_NAMES, model.values.tolist(), strict=True))
    sliding = v["friction"] * float(np.exp(v["rate_dependence"] * speed / (1 + speed)))
    # Mean over the directions of sliding.
    radius_squared = (
        v["pressure_radius_x"] ** 2 + v["pressure_radius_xy"] ** 2 + v["pressure_radius_y"] ** 2
    ) / 2
    if corners is None:
        by_corners = 0.0
    else:
        by_corners = float((np.asarray(corners) ** 2).sum(1).mean()) / 2
    return sliding, sliding * float(np.sqrt(max(radius_squared - by_corners, 0.0)))


def delay(model: SlideModel, pose: np.ndarray, twist: np.ndarray, rest: np.ndarray) -> float:
    """How long strikes move bodies on before their twist is measured, s.

    It is the delay that brings the predicted rests nearest to the recorded ones. Without it the
    loss to friction in that time would count twice.

    Args:
        model: The slide model.
        pose: Poses (N, 3) at which the bodies met.
        twist: Twists (N, 3) after the strikes.
        rest: Recorded poses at rest (N, 3).

    Returns:
        The delay, s.
    """
    with torch.no_grad():
        predicted = model.delayed(0.0).rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()
    gap = rest - predicted
    gap[:, 2] = wrap_angle(gap[:, 2])
    metres = np.array([1.0, 1.0, model.gyration])
    along = ((gap * metres) * (twist * metres)).sum(1)
    speed_squared = ((twist * metres) ** 2).sum(1)
    # The median, so that one strike that hit a corner does not decide.
    return float(np.clip(np.median(along / speed_squared), 0.0, 0.1))
