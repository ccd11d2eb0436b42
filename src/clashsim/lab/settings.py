"""Settings of the laboratory: three shapes, three materials and two kinds of sand.

The values lie within what handbooks and data sheets commonly give (no single source). They are
chosen so that the settings differ as those of the CLASH paper do (Sec. IV-A), and are not
measurements of the paper's blocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from clashsim.core.errors import DataError, did_you_mean


@dataclass(frozen=True)
class Material:
    """Density of a printed block, and its contact with the arm's tip.

    Attributes:
        density: kg/m^3.
        modulus: Pa, hydroelastic modulus of block and tip together: pressure over penetration
            depth, which is measured in radii of the tip.
        dissipation: s/m, of Hunt and Crossley's law, in which restitution falls with speed.
        friction: Coulomb's coefficient between block and tip.
    """

    density: float
    modulus: float
    dissipation: float
    friction: float


@dataclass(frozen=True)
class Surface:
    """Sand on the table.

    Attributes:
        friction: Mean of Coulomb's coefficient, by the material of the block.
        variation: Standard deviation of the friction over the table, relative.
    """

    friction: Mapping[str, float]
    variation: float


# Densities: data sheets of cured standard resin (1.15-1.20 g/cm3), laser-sintered PA12 (0.95-1.01),
# PETG with 20 % carbon fibre (1.25-1.34).
# Moduli: below the materials' Young's moduli (2.8, 1.7 and 5 GPa), because the printed tip and the
# gripper deform as well; the contact then lasts 2 to 5 ms, longer at corners, as impacts of held
# objects do. Friction of plastic on plastic: 0.1-0.3 for nylon, 0.3-0.5 for the glossy resin.
# Dissipation is set by the restitution wanted at 0.5 m/s: about 0.7, 0.55 and 0.4.
MATERIALS: dict[str, Material] = {
    "resin": Material(density=1180.0, modulus=1.0e8, dissipation=0.6, friction=0.40),
    "nylon": Material(density=1010.0, modulus=6.0e7, dissipation=1.8, friction=0.18),
    "petg_cf": Material(density=1290.0, modulus=1.4e8, dissipation=3.5, friction=0.28),
}
# Plastic on coarse dry sand slides at 0.3-0.45; on a thin layer of fine round grains, which roll,
# at 0.15-0.25.
SURFACES: dict[str, Surface] = {
    "high": Surface({"resin": 0.40, "nylon": 0.32, "petg_cf": 0.36}, variation=0.04),
    "low": Surface({"resin": 0.24, "nylon": 0.17, "petg_cf": 0.21}, variation=0.03),
}
SHAPES: tuple[str, ...] = ("semi_cylinder", "square", "triangle")
_WAVES = 12  # number of waves whose sum is the variation of friction over the table
_WAVELENGTHS = (0.2, 0.6)  # m, range


@dataclass(frozen=True)
class Change:
    """How a block and table differ from those of their material and surface.

    Attributes:
        mass: Factor on the block's mass.
        friction: Factor on all coefficients of friction.
        ballast: Mass of an added weight, as a fraction of the block's mass.
        at: m, position of the added weight in the block's axes.
    """

    mass: float = 1.0
    friction: float = 1.0
    ballast: float = 0.0
    at: tuple[float, float, float] = (0.0, 0.0, 0.0)


# A scene's parameters can describe "heavier", but not "ballast", which moves the mass centre 6 mm
# to the side.
CHANGES: dict[str, Change] = {
    "none": Change(),
    "heavier": Change(mass=1.6, friction=0.7),
    "ballast": Change(ballast=0.3, at=(0.025, 0.02, 0.01)),
}


@dataclass(frozen=True)
class Setting:
    """One block on one table.

    Attributes:
        shape: One of `SHAPES`.
        material: One of `MATERIALS`.
        surface: One of `SURFACES`.
        change: One of `CHANGES`; methods under test are not told of it.
    """

    shape: str = "semi_cylinder"
    material: str = "resin"
    surface: str = "high"
    change: str = "none"

    def __post_init__(self) -> None:
        kinds = {"shape": SHAPES, "material": MATERIALS, "surface": SURFACES, "change": CHANGES}
        for kind, choices in kinds.items():
            name = getattr(self, kind)
            if name not in choices:
                raise DataError(
                    f"the laboratory has no {kind} {name!r}; {did_you_mean(str(name), choices)}"
                )

    @property
    def name(self) -> str:
        """Name of the setting in files and trials."""
        name = f"{self.shape}-{self.material}-{self.surface}"
        return name if self.change == "none" else f"{name}-{self.change}"


def settings(shape: str | None = None) -> list[Setting]:
    """List all settings without changes, or the six of one shape, in the order of recording."""
    shapes = (shape,) if shape else SHAPES
    return [Setting(*names) for names in product(shapes, MATERIALS, SURFACES)]


def table_friction(setting: Setting, xy: np.ndarray) -> np.ndarray:
    """Compute the friction of the sand, which varies in smooth waves of 0.2 to 0.6 m.

    Args:
        setting: The block and the table; the waves depend only on the table's surface.
        xy: (N, 2), m, positions on the table, world axes.

    Returns:
        Coulomb's coefficient at these positions, (N,).
    """
    surface = SURFACES[setting.surface]
    rng = np.random.default_rng(zlib.crc32(setting.surface.encode()))
    directions = rng.normal(size=(_WAVES, 2))
    wavelengths = rng.uniform(*_WAVELENGTHS, _WAVES)
    wave_vectors = (
        directions * (2 * np.pi / wavelengths / np.linalg.norm(directions, axis=1))[:, None]
    )
    phases = rng.uniform(0, 2 * np.pi, _WAVES)
    # A sum of cosines with random phases has a variance of half their number; scale it to 1.
    variation = np.cos(xy @ wave_vectors.T + phases).sum(1) / np.sqrt(_WAVES / 2)
    mean = CHANGES[setting.change].friction * surface.friction[setting.material]
    return mean * (1 + surface.variation * variation)
