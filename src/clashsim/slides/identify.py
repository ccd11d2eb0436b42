"""Identify a slide model from a few recorded slides of one body on one plane.

The whole path of every slide is fitted at once. Each slide has its own start and its own friction
about the common one, because real tables differ by some percent from place to place and from slide
to slide: what is fitted is what the slides have in common. What is expected before any slide was
seen is an even pressure under the sole, so that ten slides do, and one that says nothing about an
effect leaves it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from clashsim.core.angles import wrap_angle
from clashsim.core.errors import DataError
from clashsim.fit.calibrate import Estimate, EstimateStatus
from clashsim.slides.law import VALUE_NAMES, SlideModel
from clashsim.slides.slide import Slide
from clashsim.slides.support_patch import SupportPatch

_LOGS = np.array([name in ("friction", "spin", "reach_x", "reach_y") for name in VALUE_NAMES])
# Constants of each slide: x, y, yaw, vx, vy, w at its start, and the logarithm of its friction over
# the common one
_OWN = 7
_STEPS = 16  # Runge-Kutta steps while fitting
_FRAMES = 24  # of a slide that are compared, from its start to a little after rest
_WORTH = 6.0  # of them count as independent: a slide that differs from the model does so smoothly
_HUBER = 2.0  # residuals beyond this many standard deviations count by size, not by square
_VARIES = 0.05  # standard deviation of friction from slide to slide, at a guess
# Of what was expected: a parameter whose standard deviation stays above it was not told by the
# slides
_SURE = 0.7
_NORMAL = 1.645  # standard deviations that hold 90 %


@dataclass(frozen=True, eq=False)
class SlideFit:
    """A slide model with what the slides say about each of its values, and how well it follows
    them.

    slides: how many there were; misfit (3,): root mean square of x, y (m) and yaw (rad) along the
    paths, each from its own start with its own friction; varies: standard deviation of the
    logarithm of friction from slide to slide; mean (11,), covariance (11, 11): of the values, those
    above zero as logarithms.
    """

    model: SlideModel
    estimates: tuple[Estimate, ...]
    misfit: np.ndarray
    varies: float
    mean: np.ndarray
    covariance: np.ndarray
    slides: int

    def content(self) -> dict[str, Any]:
        """The content of the model, and the figures of its fit beside it, as JSON holds them;
        `SlideModel.of` takes it.
        """
        fit = {
            "slides": self.slides,
            "misfit": self.misfit.tolist(),
            "varies": self.varies,
            "estimates": [asdict(e) for e in self.estimates],
        }
        return self.model.content() | {"fit": fit}

    def sample_models(self, n: int, seed: int) -> list[SlideModel]:
        """Models drawn from what the slides leave open, friction's variation from slide to slide
        included: for domain randomisation.
        """
        rng = np.random.default_rng(seed)
        rows = rng.multivariate_normal(self.mean, self.covariance, size=n, method="svd")
        rows[:, 0] += self.varies * rng.normal(size=n)
        return [_model(row, self.model) for row in rows]


def fit_slides(
    slides: Sequence[Slide],
    support_patch: SupportPatch,
    *,
    twists: np.ndarray | None = None,
    twist_sd: Sequence[float] | None = None,
    gravity: float = 9.81,
) -> SlideFit:
    """Fit a slide model to slides (5 to 10 will do) of the body's origin.

    twists (N, 3): as measured at each slide's first frame, with standard deviations `twist_sd`
    (3,); without them they are told from the path.
    """
    if not slides:
        raise DataError("there are no slides to fit a slide model to")
    t, pose, rest = _frames(slides)
    start, sd = _starts(slides, support_patch, twists, twist_sd)
    prior_mean, prior_sd = _expected(support_patch)
    base = SlideModel(
        {"friction": 0.3},
        gyration=support_patch.gyration,
        centre=support_patch.centre,
        gravity=gravity,
        steps=_STEPS,
    )
    way = float(np.median(np.linalg.norm(rest[:, :2] - pose[:, 0, :2], axis=1)))
    noise = np.array([1.0, 1.0, 1.0 / support_patch.gyration]) * max(0.02 * way, 3e-4)
    problem = _Problem(
        base,
        t,
        pose,
        rest,
        start,
        np.concatenate(
            [
                np.array([1.0, 1.0, 1.0 / support_patch.gyration]) * max(0.01 * way, 5e-4),
                sd,
                [_VARIES],
            ]
        ),
        prior_mean,
        prior_sd,
        noise,
        None if twists is None else _rest_sd(pose[:, 0], rest, support_patch),
    )
    common, own = prior_mean.copy(), np.concatenate([start, np.zeros((len(slides), 1))], 1)
    common[0] = _friction(rest[:, :2] - pose[:, 0, :2], start, gravity)
    for _ in range(2):  # how far paths stray from the model is known after the first
        common, own, covariance = problem.descend(common, own)
        left = problem.paths(common[None], own[None])[0] - pose
        noise = np.maximum(1.4826 * np.median(np.abs(left), axis=(0, 1)), 0.1 * problem.noise)
        noise[:2] = noise[:2].mean()
        varies = max(float(np.sqrt((own[:, 6] ** 2).mean())), 0.01)
        spread = problem.spread.copy()
        spread[6] = np.clip(1.3 * varies, 0.03, 0.3)
        problem = replace(
            problem,
            noise=noise,
            spread=spread,
            rest_sd=None
            if twists is None
            else _rest_sd(pose[:, 0], rest, support_patch, problem.rests(common[None])[0]),
        )
    return SlideFit(
        _model(common, base),
        _estimates(common, covariance, prior_sd),
        np.sqrt((left**2).mean((0, 1))),
        varies,
        common,
        covariance,
        len(slides),
    )


@dataclass(frozen=True, eq=False)
class _Problem:
    """N slides at T times: t (N, T), pose (N, T, 3), rest (N, 3), start (N, 6) with spread (7,),
    and what is expected of the common values (11,).
    """

    base: SlideModel
    t: np.ndarray
    pose: np.ndarray
    rest: np.ndarray
    start: np.ndarray
    spread: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    noise: np.ndarray
    rest_sd: (
        np.ndarray | None
    )  # (N, 3): of the pose at rest as told from the start as measured with the common friction; None: starts were not measured

    def paths(self, common: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Poses (M, N, T, 3) for common values (M, 11) and constants of the slides (M, N, 7)."""
        m, n, _ = own.shape
        values = np.repeat(common[:, None], n, 1)
        values[..., 0] += own[..., 6]
        rows = torch.as_tensor(own.reshape(m * n, _OWN))
        model = self.base.with_values(torch.as_tensor(_natural(values.reshape(m * n, -1))))
        out = model.path(rows[:, :3], rows[:, 3:6], torch.as_tensor(np.tile(self.t, (m, 1))))
        return out.numpy().reshape(m, n, *self.pose.shape[1:])

    def residuals(self, common: np.ndarray, own: np.ndarray) -> np.ndarray:
        """(M, N, 3 T + 7 or + 10): along the paths, weighed by how much they count, of the slides'
        own constants, and at rest.
        """
        worth = np.sqrt(_WORTH / self.pose.shape[1])
        along = (self.paths(common, own) - self.pose) / self.noise * worth
        expected = np.concatenate([self.start, np.zeros((len(own[0]), 1))], 1)
        parts = [along.reshape(*own.shape[:2], -1), (own - expected) / self.spread]
        if self.rest_sd is not None:
            far = self.rests(common) - self.rest
            parts.append(np.broadcast_to(far / self.rest_sd, (len(own), *far.shape[1:])))
        return np.concatenate(parts, -1)

    def rests(self, common: np.ndarray) -> np.ndarray:
        """Poses at rest (M, N, 3) from the starts as measured, with the common friction: what the
        model is for.
        """
        m, n = len(common), len(self.start)
        rows = torch.as_tensor(np.tile(self.start, (m, 1)))
        model = self.base.with_values(torch.as_tensor(_natural(np.repeat(common, n, 0))))
        return model.rest(rows[:, :3], rows[:, 3:6]).numpy().reshape(m, n, 3)

    def cost(self, common: np.ndarray, residuals: np.ndarray) -> float:
        size = np.abs(residuals)
        return float(
            np.where(size < _HUBER, size**2, 2 * _HUBER * size - _HUBER**2).sum()
            + (((common - self.mean) / self.sd) ** 2).sum()
        )

    def descend(
        self, common: np.ndarray, own: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Levenberg-Marquardt: common values (11,), constants of the slides (N, 7) and the
        covariance of the common values.
        """
        damping, p = 1e-2, len(common)
        now = self.residuals(common[None], own[None])[0]
        value = self.cost(common, now)
        step = np.concatenate([1e-4 * self.sd, 1e-4 * self.spread])
        inverse = np.diag(self.sd**2)
        for _ in range(30):
            many = self.residuals(
                common + np.concatenate([np.diag(step[:p]), np.zeros((_OWN, p))]),
                own + np.concatenate([np.zeros((p, _OWN)), np.diag(step[p:])])[:, None],
            )
            jacobian = np.moveaxis(
                (many - now) / step[:, None, None], 0, -1
            )  # (N, residuals, 11 + 7)
            weight = np.minimum(1.0, _HUBER / np.maximum(np.abs(now), 1e-12))
            normal = np.einsum("nri,nr,nrj->nij", jacobian, weight, jacobian)
            gradient = np.einsum("nri,nr->ni", jacobian, weight * now)
            inverse = np.linalg.inv(_reduced(normal, p)[0] + np.diag(self.sd**-2.0))
            for _try in range(8):
                shift, own_shift = self._shift(common, normal, gradient, damping)
                new_common, new_own = _bounded(common + shift), own + own_shift
                new = self.residuals(new_common[None], new_own[None])[0]
                level = self.cost(new_common, new)
                if level < value:
                    break
                damping *= 6
            else:
                break
            done = value - level < 1e-3 * max(value, 1.0)
            common, own, now, value, damping = new_common, new_own, new, level, damping / 5
            if done:
                break
        return common, own, inverse

    def _shift(
        self, common: np.ndarray, normal: np.ndarray, gradient: np.ndarray, damping: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Steps of the common values and of the slides' constants, which are eliminated slide by
        slide.
        """
        p = len(common)
        damped = normal + damping * np.einsum("nii,ij->nij", normal, np.eye(normal.shape[1]))
        matrix, gain = _reduced(damped, p)
        right = (
            -(gradient[:, :p] - np.einsum("nij,nj->ni", gain, gradient[:, p:])).sum(0)
            - (common - self.mean) / self.sd**2
        )
        shift = np.linalg.solve(matrix + np.diag((1 + damping) / self.sd**2), right)
        own = -np.linalg.solve(
            damped[:, p:, p:],
            (gradient[:, p:] + np.einsum("nij,j->ni", damped[:, p:, :p], shift))[..., None],
        )[..., 0]
        return shift, own


def _reduced(normal: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal matrix (p, p) of the common values with those of each slide eliminated, and the gains
    (N, p, 7) by which that is done.
    """
    gain = np.swapaxes(np.linalg.solve(normal[:, p:, p:], normal[:, p:, :p]), 1, 2)
    return (normal[:, :p, :p] - np.einsum("nij,njk->nik", gain, normal[:, p:, :p])).sum(0), gain


def _frames(slides: Sequence[Slide]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times since the start (N, T) and poses (N, T, 3) of each slide, evenly from its first frame
    until it rests, and poses at rest (N, 3).
    """
    times, poses, rests = [], [], []
    for i, slide in enumerate(slides):
        t, pose = slide.checked(i)
        end = np.median(pose[-5:], 0)
        away = np.linalg.norm((pose - end) * [1, 1, 0.05], axis=1)
        moving = np.flatnonzero(away > 0.01 * max(away[0], 1e-3))
        last = t[int(moving[-1])] if len(moving) else t[-1]
        at = np.linspace(
            t[0], min(t[0] + 1.2 * (last - t[0]) + 0.02, t[-1]), _FRAMES
        )  # the last hundredth of the way takes a tenth of the time
        times.append(at - t[0])
        poses.append(np.column_stack([np.interp(at, t, c) for c in pose.T]))
        rests.append(end)
    return np.array(times), np.array(poses), np.array(rests)


def _starts(
    slides: Sequence[Slide],
    support_patch: SupportPatch,
    twists: np.ndarray | None,
    twist_sd: Sequence[float] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Pose and twist (N, 6) at the first frames, and how sure the twists are (3,)."""
    first = np.array([[*slide.xy[0], np.unwrap(slide.yaw)[0]] for slide in slides], float)
    if twists is not None:
        if np.shape(twists) != (len(slides), 3):
            raise DataError(f"twists need shape ({len(slides)}, 3), got {np.shape(twists)}")
        speed = float(np.median(np.linalg.norm(twists[:, :2], axis=1)))
        given = (
            twist_sd
            if twist_sd is not None
            else np.array([1.0, 1.0, 0.7 / support_patch.gyration]) * max(0.01 * speed, 1e-3)
        )
        return np.column_stack([first, twists]), np.asarray(given, float)
    guesses = []
    for slide in slides:
        few = np.asarray(slide.t) <= slide.t[0] + max(0.06, 5 * float(np.median(np.diff(slide.t))))
        guesses.append(
            np.polynomial.polynomial.polyfit(
                np.asarray(slide.t)[few] - slide.t[0],
                np.column_stack([slide.xy, np.unwrap(slide.yaw)])[few],
                2,
            )[1]
        )
    speed = float(np.median(np.linalg.norm(np.array(guesses)[:, :2], axis=1)))
    return np.column_stack([first, guesses]), np.array(
        [1.0, 1.0, 1.0 / support_patch.gyration]
    ) * max(0.2 * speed, 0.02)


def _rest_sd(
    first: np.ndarray,
    rest: np.ndarray,
    support_patch: SupportPatch,
    predicted: np.ndarray | None = None,
) -> np.ndarray:
    """Standard deviations (N, 3) at rest: a share of way and turn, and where there are predictions
    (N, 3), what those leave.
    """
    gain = np.abs(rest - first)
    way, turn = np.linalg.norm(gain[:, :2], axis=1), gain[:, 2]
    shape = np.stack(
        [
            0.05 * way + 1e-3,
            0.05 * way + 1e-3,
            0.05 * (turn + 0.2 * np.median(way) / support_patch.gyration),
        ],
        1,
    )
    if predicted is None:
        return shape
    left = 1.4826 * np.median(np.abs(predicted - rest) / shape, axis=0)
    left[:2] = left[:2].max()
    return shape * np.maximum(left, 0.2)


def _friction(gone: np.ndarray, start: np.ndarray, gravity: float) -> float:
    """Logarithm of friction at a guess: what stops the mean speed over the mean way."""
    way = np.linalg.norm(gone, axis=1)
    return float(
        np.clip(
            np.log(np.median((start[:, 3:5] ** 2).sum(1) / (2 * gravity * np.maximum(way, 1e-4)))),
            -4,
            1,
        )
    )


def _expected(support_patch: SupportPatch) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (11,) of the values before any slide was seen, those above zero
    as logarithms.
    """
    s = support_patch.moments
    reach_x = np.sqrt(s[0, 0])
    reach_xy = s[0, 1] / reach_x
    reach_y = np.sqrt(max(s[1, 1] - reach_xy**2, 1e-3 * s[1, 1]))
    r = support_patch.gyration
    mean = {
        "friction": np.log(0.3),
        "rise": 0.0,
        "spin": np.log(support_patch.spin),
        "reach_x": np.log(reach_x),
        "reach_y": np.log(reach_y),
        "reach_xy": reach_xy,
        "x": 0.0,
        "y": 0.0,
        "lean": 0.25 * support_patch.height,
        "grain": 0.0,
        "grain_xy": 0.0,
    }
    sd = {
        "friction": 1.0,
        "rise": 0.3,
        "spin": 0.3,
        "reach_x": 0.3,
        "reach_y": 0.3,
        "reach_xy": 0.15 * r,
        "x": 0.1 * r,
        "y": 0.1 * r,
        "lean": 0.15 * support_patch.height,
        "grain": 0.05,
        "grain_xy": 0.05,
    }
    return np.array([mean[name] for name in VALUE_NAMES]), np.array(
        [sd[name] for name in VALUE_NAMES]
    )


def _natural(values: np.ndarray) -> np.ndarray:
    """Values (..., 11) in their own units from those fitted."""
    return np.where(_LOGS, np.exp(np.where(_LOGS, values, 0.0)), values)


def _bounded(values: np.ndarray) -> np.ndarray:
    """Values (11,) held where friction is friction: no grain that pushes, nothing that overflows."""
    out = values.copy()
    anisotropy = float(np.hypot(out[-2], out[-1]))
    if anisotropy > 0.6:
        out[-2:] *= 0.6 / anisotropy
    out[1] = np.clip(out[1], -2, 2)
    return np.where(_LOGS, np.clip(out, -12, 3), out)


def _model(values: np.ndarray, base: SlideModel) -> SlideModel:
    named = dict(zip(VALUE_NAMES, (float(v) for v in _natural(_bounded(values))), strict=True))
    return SlideModel(named, gyration=base.gyration, centre=base.centre, gravity=base.gravity)


def _estimates(
    values: np.ndarray, covariance: np.ndarray, prior_sd: np.ndarray
) -> tuple[Estimate, ...]:
    sd = np.sqrt(np.diag(covariance))
    low, value, high = (_natural(values + k * sd) for k in (-_NORMAL, 0.0, _NORMAL))
    told = [
        EstimateStatus.FITTED if a < _SURE * b else EstimateStatus.UNIDENTIFIABLE
        for a, b in zip(sd, prior_sd, strict=True)
    ]
    return tuple(
        Estimate(name, float(value[i]), float(low[i]), float(high[i]), told[i])
        for i, name in enumerate(VALUE_NAMES)
    )


def mujoco_friction(
    model: SlideModel, corners: np.ndarray | None = None, *, speed: float = 0.3
) -> tuple[float, float]:
    """Sliding and torsional friction of the ground pair (condim 4, elliptic cone) that come nearest
    to a slide model at a given speed.

    corners (K, 2): where MuJoCo puts contacts, from the mass centre, `SupportPatch.corners`. A turn that
    they brake already needs no torsional friction, and MuJoCo cannot brake it less than they do:
    then the torsional one is zero. Without them there is one contact.
    """
    v = dict(zip(VALUE_NAMES, model.values.tolist(), strict=True))
    sliding = v["friction"] * float(np.exp(v["rise"] * speed / (1 + speed)))
    lever = (
        v["reach_x"] ** 2 + v["reach_xy"] ** 2 + v["reach_y"] ** 2
    ) / 2  # mean over directions of sliding
    points = 0.0 if corners is None else float((np.asarray(corners) ** 2).sum(1).mean()) / 2
    return sliding, sliding * float(np.sqrt(max(lever - points, 0.0)))


def delay(model: SlideModel, pose: np.ndarray, twist: np.ndarray, rest: np.ndarray) -> float:
    """By how long (s) strikes move bodies on before their twist is told: what brings bodies that
    met at pose (N, 3) and left with twist (N, 3) nearest to where they came to rest (N, 3). Without
    it a strike would seem to lose what friction takes meanwhile twice.
    """
    with torch.no_grad():
        gap = rest - model.delayed(0.0).rest(torch.as_tensor(pose), torch.as_tensor(twist)).numpy()
    gap[:, 2] = wrap_angle(gap[:, 2])
    size = np.array([1.0, 1.0, model.gyration])
    along, own = ((gap * size) * (twist * size)).sum(1), ((twist * size) ** 2).sum(1)
    return float(
        np.clip(np.median(along / own), 0.0, 0.1)
    )  # the median: one strike that hit a corner must not decide
