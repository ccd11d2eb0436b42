"""A collision model asked for outcomes at contacts that are already known, with a verdict on how
far it can be trusted there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from clashsim.core.contact_frame import ContactFrame, frame_at_contact
from clashsim.core.contact_geometry import Contact
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.protocols import ImpactModel, ThetaModel
from clashsim.core.scene import Scene

# A network call has a multiple of this many rows: the same impact then gives the same bits in any
# company
_ROWS = 16
_STILL = (
    0.05  # of the approach speed: how far an input may be from the one value that training ever had
)


class Trust(StrEnum):
    """Why a collision is learned, or left to MuJoCo."""

    LEARNED = "learned"
    OUTSIDE = "outside the model's domain"
    UNSURE = "spread too large"


@dataclass(frozen=True, eq=False)
class Learned:
    """A model in the scene it was learned in; `unsure` is the spread, relative to the approach
    speed, beyond which it is not used.
    """

    view: Scene
    model: ImpactModel | ThetaModel
    unsure: float = 0.3
    known: Mapping[str, float] = field(default_factory=dict)

    @property
    def own_theta(self) -> np.ndarray:
        """What the model was calibrated to, else the scene's nominal values, (p,)."""
        found = getattr(self.model, "theta", None)
        return self.view.nominal if found is None else np.array([e.value for e in found])

    def __call__(
        self, before: np.ndarray, contact: Contact, theta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, list[Trust]]:
        """Twist after and its spread (N, k), and verdicts, for touching pairs: before (N, d), theta
        (p,) or (N, p).
        """
        n, p = len(before), len(self.view.params)
        rows = np.r_[np.arange(n), np.zeros(-n % _ROWS, int)]
        before, theta = before[rows], np.broadcast_to(theta, (n, p))[rows]
        contact = Contact(
            contact.point[rows], contact.normal[rows], contact.shift[rows], contact.touching[rows]
        )
        before, moving = self._at_rest(before)
        planar = self.view.plane is not None
        frame = frame_at_contact(self.view, before, contact)
        if isinstance(self.model, ThetaModel):
            each = frame.decode(self.model.members(frame, theta))
            after, spread = each.mean(0), each.std(0)
        else:
            impacts = Impacts(
                planar,
                before,
                np.zeros((len(rows), 3 if planar else 6)),
                known={k: np.full(len(rows), v) for k, v in self.known.items()},
            )
            after, spread = self.model.predict_with_std(impacts, frame)
        after = after + np.pad(moving, ((0, 0), (0, after.shape[1] - moving.shape[1])))
        doubt = (
            np.linalg.norm(
                np.einsum(
                    "nij,nj->ni", np.abs(frame.axes), np.where(np.isfinite(spread), spread, 1e9)
                ),
                axis=1,
            )
            / frame.speed
        )
        inside = self._inside(frame, theta) & np.isfinite(after).all(1)
        trust = [
            Trust.OUTSIDE if not i else Trust.UNSURE if d > self.unsure else Trust.LEARNED
            for i, d in zip(inside, doubt, strict=True)
        ]
        return after[:n], spread[:n], trust[:n]

    @property
    def _domain(self) -> ThetaModel | None:
        found = (
            self.model if isinstance(self.model, ThetaModel) else getattr(self.model, "base", None)
        )
        return found if isinstance(found, ThetaModel) else None

    def _at_rest(self, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Impacts as seen by who moves along with the struck body, where a model only knows bodies
        at rest; and that velocity (N, 2 or 3).
        """
        domain = self._domain
        moving = MotionBefore.of(before).struck.velocity.copy()
        if domain is None or self.view.striker_body.fixed or not self._always_still(domain):
            return before, np.zeros_like(moving)
        before = before.copy()
        motion = MotionBefore.of(before)
        motion.struck.velocity[:] -= moving
        motion.striker.velocity[:] -= moving
        return before, moving

    def _always_still(self, domain: ThetaModel) -> bool:
        first, count = (
            (8, 2) if self.view.plane is not None else (18, 3)
        )  # struck_vn and those that follow it
        return bool(
            (np.abs(domain.low[first : first + count]) < 1e-4).all()
            and (np.abs(domain.high[first : first + count]) < 1e-4).all()
        )

    def _inside(self, frame: ContactFrame, theta: np.ndarray) -> np.ndarray:
        domain = self._domain
        if domain is None:
            return np.ones(len(frame.features), bool)
        features = frame.features.shape[1]
        low, high = domain.low[:features], domain.high[:features]
        fixed = high - low <= 1e-4  # the network ignores these, so they must be as they were
        if (
            self.view.is_round
        ):  # turning a disc changes nothing, and neither does where on it the contact lies
            fixed[: 4 if self.view.plane is not None else 9] = False
        return domain.in_training_region(frame, theta) & (np.abs(frame.features - low) <= _STILL)[
            :, fixed
        ].all(1)
