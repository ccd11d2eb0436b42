"""The settings file beside a scene: which geoms collide, how, and what may be identified."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from clashsim.core.errors import ClashError, SceneError
from clashsim.core.params import Param
from clashsim.core.parsing import TOML_BYTES, parse_toml, read_bounded
from clashsim.core.strike_distribution import StrikeDistribution
from clashsim.core.typed import build_dataclass


@dataclass(frozen=True)
class SceneSettings:
    """What a settings file holds; None where it does not say.

    `struck`, `striker` and `ground` name geoms. `strikes` is its table [strikes], `param` its entries
    [[param]].
    """

    struck: str | None = None
    striker: str | None = None
    ground: str | None = None
    strikes: StrikeDistribution = field(default_factory=StrikeDistribution)
    param: tuple[Param, ...] | None = None


def load_settings(path: Path) -> SceneSettings:
    """The settings in a TOML file; without a file there are none."""
    if not path.exists():
        return SceneSettings()
    what = f"settings file {path.name!r}"
    raw = parse_toml(
        read_bounded(path, what, limit=TOML_BYTES, error=SceneError), what, error=SceneError
    )
    try:
        settings: SceneSettings = build_dataclass(SceneSettings, raw, error=SceneError)
    except ClashError as error:  # ranges and parameters refuse what does not fit together
        raise SceneError(f"in {what}: {error}") from None
    return settings
