"""The settings file beside a scene: its colliding geoms, ranges of strikes and parameters."""

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
    """The content of a settings file; None where the file leaves something out.

    Attributes:
        struck: Name of the geom whose motion is predicted.
        striker: Name of the geom that the struck geom collides with.
        ground: Name of the geom on which the struck body slides.
        strikes: The table [strikes], ranges from which strikes are drawn.
        param: The entries [[param]], parameters to identify.
    """

    struck: str | None = None
    striker: str | None = None
    ground: str | None = None
    strikes: StrikeDistribution = field(default_factory=StrikeDistribution)
    param: tuple[Param, ...] | None = None


def load_settings(path: Path) -> SceneSettings:
    """Read the settings in a TOML file.

    Args:
        path: The file, which may be absent.

    Returns:
        The settings; without a file, those of an empty one.

    Raises:
        SceneError: The file cannot be read, or an entry does not fit.
    """
    if not path.exists():
        return SceneSettings()
    what = f"settings file {path.name!r}"
    content = read_bounded(path, what, limit=TOML_BYTES, error=SceneError)
    raw = parse_toml(content, what, error=SceneError)
    if "draw" in raw:
        raise SceneError(f"in {what}: the table [draw] is called [strikes] now; rename it")
    if "logs" in raw:
        raise SceneError(
            f"{path.name!r} beside the scene has the name of its settings file, and is a mapping "
            "of clashsim import: give the mapping another name"
        )
    try:
        settings: SceneSettings = build_dataclass(SceneSettings, raw, error=SceneError)
    except ClashError as error:  # raised also by ranges and parameters themselves
        raise SceneError(f"in {what}: {error}") from None
    return settings
