"""Write examples/strikes: eight strikes of the virtual laboratory, as logs in ms, mm and degrees.

python tools/write_example_logs.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from clashsim import lab
from clashsim.core.trials import Trial, yaw

HEADER = "time_ms,block_x_mm,block_y_mm,block_yaw_deg,striker_x_mm,striker_y_mm"
LOGGER_START = 3.2  # s, by which the logger was started before the trial


def rows(trial: Trial) -> list[str]:
    """One line per frame; cells are blank where a body was not seen."""
    columns = [1e3 * (trial.t + LOGGER_START)]
    for body in ("block", "striker"):
        pose = trial.poses[body]
        columns += [1e3 * pose[:, 0], 1e3 * pose[:, 1]]
        if body == "block":
            seen = np.isfinite(pose).all(1)
            yaw_degrees = np.full(len(pose), np.nan)
            yaw_degrees[seen] = np.rad2deg(yaw(pose[seen, 3:]))
            columns.append(yaw_degrees)
    lines = []
    for values in zip(*columns, strict=True):
        cells = ["" if np.isnan(value) else f"{value:.2f}" for value in values]
        lines.append(",".join(cells))
    return lines


def main(folder: Path) -> None:
    """Write one CSV file per strike."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, trial in enumerate(lab.recorded("semi_cylinder", "nylon", "low")[:8]):
        (folder / f"strike_{i}.csv").write_text("\n".join([HEADER, *rows(trial)]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "examples/strikes"))
