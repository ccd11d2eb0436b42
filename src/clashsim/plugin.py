"""Tells Gymnasium of `clashsim/Push-v0`; apart from it, so that importing Gymnasium does not load torch."""

from __future__ import annotations


def register() -> None:
    """Called by Gymnasium when it is imported."""
    import gymnasium

    if "clashsim/Push-v0" not in gymnasium.registry:
        gymnasium.register("clashsim/Push-v0", entry_point="clashsim.push_env:make")
