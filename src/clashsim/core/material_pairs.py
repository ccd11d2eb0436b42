"""Nominal restitution and friction of pairs of materials, each from a named publication.

They are starting points. Restitution falls with speed and depends on size and shape; friction
depends on surfaces, humidity and wear. Calibrate on recordings where it matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from clashsim.core.errors import ParamError, did_you_mean

_FOERSTER = (
    "Foerster, Louge, Chang and Allia, Measurements of the collision properties of small spheres, "
    "Physics of Fluids 6 (1994)"
)
_SERWAY = (
    "Serway and Jewett, Physics for Scientists and Engineers, table of coefficients of friction "
    "(kinetic)"
)
_ALCIATORE = (
    "Alciatore, Physics of Pool and Billiards, billiards.colostate.edu, middle of the range"
)


@dataclass(frozen=True)
class MaterialPair:
    """Published nominal values of a pair of materials.

    Attributes:
        restitution: Speed after over speed before; None where the source has none.
        friction: Coefficient of sliding friction; None where the source has none.
        source: Where the values are published.
    """

    restitution: float | None
    friction: float | None
    source: str


def _rebound(height: float, of: float) -> float:
    """Restitution of a ball that rebounds to a height when dropped from another one."""
    return round(math.sqrt(height / of), 3)


MATERIAL_PAIRS: Mapping[str, MaterialPair] = {
    "glass-glass": MaterialPair(0.97, 0.092, f"{_FOERSTER}: 3 mm soda lime glass spheres"),
    "acetate-acetate": MaterialPair(0.87, 0.25, f"{_FOERSTER}: 6 mm cellulose acetate spheres"),
    "billiard-balls": MaterialPair(0.95, 0.055, f"{_ALCIATORE}: 0.92 to 0.98, 0.03 to 0.08"),
    "billiard-ball-cloth": MaterialPair(0.5, 0.2, f"{_ALCIATORE}: on the table, typical friction"),
    "billiard-ball-rail": MaterialPair(0.75, None, f"{_ALCIATORE}: 0.6 to 0.9"),
    "tennis-ball": MaterialPair(
        _rebound(141, 254),
        None,
        "International Tennis Federation, Rules of Tennis, Appendix I: dropped from 254 cm on a "
        "flat rigid surface it rebounds 135 to 147 cm",
    ),
    "table-tennis-ball": MaterialPair(
        _rebound(250, 305),
        None,
        "International Table Tennis Federation, technical leaflet T3: dropped from 305 mm on a "
        "steel block it rebounds 240 to 260 mm",
    ),
    "steel-steel": MaterialPair(None, 0.57, _SERWAY),
    "steel-steel-lubricated": MaterialPair(None, 0.06, f"{_SERWAY}, metal on metal"),
    "aluminium-steel": MaterialPair(None, 0.47, _SERWAY),
    "copper-steel": MaterialPair(None, 0.36, _SERWAY),
    "rubber-concrete": MaterialPair(None, 0.8, _SERWAY),
    "wood-wood": MaterialPair(None, 0.2, _SERWAY),
    "ice-ice": MaterialPair(None, 0.03, _SERWAY),
    "teflon-teflon": MaterialPair(None, 0.04, _SERWAY),
}


def material_pair(name: str) -> MaterialPair:
    """Published nominal values of a pair of materials by its name."""
    if name not in MATERIAL_PAIRS:
        raise ParamError(
            f"no pair of materials is called {name!r}: {did_you_mean(name, MATERIAL_PAIRS)}"
        )
    return MATERIAL_PAIRS[name]
