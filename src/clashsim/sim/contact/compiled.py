"""The compiler of the contact solver."""

from __future__ import annotations

from pathlib import Path

from clashsim.core.compiled import compiled, forget_stale, is_cached

__all__ = ["compiled", "forget_stale", "is_cached"]

forget_stale(Path(__file__).parent)
