"""Figures as files, written completely or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from clashsim.core.errors import DataError
from clashsim.core.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figure(path: Path, figure: Figure, *, dpi: int) -> None:
    """Write a figure in the format that the file's suffix names; PNG if it has none."""
    file_format = path.suffix.lstrip(".").lower() or "png"
    formats = sorted(figure.canvas.get_supported_filetypes())
    if file_format not in formats:
        raise DataError(
            f"a figure cannot be written to {str(path)!r}: choose one of {', '.join(formats)}"
        )
    content = io.BytesIO()
    figure.savefig(content, format=file_format, dpi=dpi)
    write_atomic(path, content.getvalue())
