"""Reading of spline tables on a CPU, compiled: torch takes longer to begin than to read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clashsim.core.compiled import compiled, forget_stale

forget_stale(Path(__file__).parent)

Arrays = tuple[np.ndarray, ...]
_WINDOW = 4  # cubic B-splines that are not zero in a cell, along one axis


@compiled
def read_rows(
    rows: np.ndarray, grid: Arrays, x: np.ndarray, first_column: int, columns: int
) -> np.ndarray:
    """Values (N, columns) of a `SplineTable` at x (N, d).

    Args:
        rows: (r, c), as in `SplineTable`.
        grid: `low`, `step`, `last` and `stride` (d,) of it, and the offsets (4^d,) of the rows that
            matter in a cell, from the first one.
        x: (N, d).
        first_column: Of those that are read.
        columns: Number of columns that are read.
    """
    low, step, last, stride, offsets = grid
    axes = len(low)
    out = np.zeros((len(x), columns))
    weights = np.empty(len(offsets))
    along = np.empty(_WINDOW)
    for i in range(len(x)):
        first = 0
        count = 1
        weights[0] = 1.0
        for axis in range(axes):
            index = min(max((x[i, axis] - low[axis]) / step[axis], 0.0), last[axis])
            cell = min(np.floor(index), last[axis] - 1)
            first += int(cell) * stride[axis]
            z = index - cell
            square = z * z
            along[0] = (1 - z) * (1 - z) * (1 - z) / 6
            along[3] = square * z / 6
            along[1] = (3 * square * z - 6 * square + 4) / 6
            along[2] = 1 - along[0] - along[1] - along[3]
            # Backwards, so that no weight is overwritten before it is used; the last axis is the
            # fastest, as in `offsets`.
            for k in range(count - 1, -1, -1):
                weight = weights[k]
                for tap in range(_WINDOW):
                    weights[_WINDOW * k + tap] = weight * along[tap]
            count *= _WINDOW
        for k in range(count):
            row = first + offsets[k]
            for column in range(columns):
                out[i, column] += weights[k] * rows[row, first_column + column]
    return out
