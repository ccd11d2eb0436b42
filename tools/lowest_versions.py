"""Print constraints that pin every dependency of pyproject.toml to the lowest version it claims to
work with.

`make test-lowest` installs with them and runs a part of the tests, so that the lower bounds are
measured.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Older CPU builds of torch are not on the package index, and its CUDA builds are several GB.
NOT_LOWERED = {"torch": "2.13.0"}
# Tools that check the code, and do not decide how it runs.
TOOLS = {"ruff", "mypy"}


def lowest(requirement: Requirement) -> str:
    """The lower bound of one requirement as an exact pin."""
    if requirement.name in NOT_LOWERED:
        return f"{requirement.name}=={NOT_LOWERED[requirement.name]}"
    bounds = [bound.version for bound in requirement.specifier if bound.operator == ">="]
    if len(bounds) != 1:
        raise SystemExit(f"{requirement} in pyproject.toml needs exactly one lower bound (>=)")
    return f"{requirement.name}=={bounds[0]}"


def main() -> None:
    """Print the pins."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"].values()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    requirements = [Requirement(text) for text in texts]
    pins = {lowest(r) for r in requirements if r.name not in TOOLS}
    print("\n".join(sorted(pins, key=str.lower)))


if __name__ == "__main__":
    main()
