"""Write examples/strikes: eight strikes of the virtual laboratory as a careless logger would, in
ms, mm and degrees.

Usage: python tools/write_example_logs.py [folder]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from clashsim import lab
from clashsim.core.trials import Trial, yaw

HEADER = "time_ms,block_x_mm,block_y_mm,block_yaw_deg,striker_x_mm,striker_y_mm"


def rows(trial: Trial) -> list[str]:
    """One line a frame; cells are blank where a body was not seen."""
    columns = [1e3 * (trial.t + 3.2)]  # the logger was started before the strike
    for body in ("block", "striker"):
        pose = trial.poses[body]
        seen = np.isfinite(pose).all(1)
        turn = np.full(len(pose), np.nan)
        turn[seen] = np.rad2deg(yaw(pose[seen, 3:]))
        columns += [1e3 * pose[:, 0], 1e3 * pose[:, 1]] + ([turn] if body == "block" else [])
    return [
        ",".join("" if np.isnan(v) else f"{v:.2f}" for v in line)
        for line in zip(*columns, strict=True)
    ]


def main(folder: Path) -> None:
    """Write one CSV file a strike."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, trial in enumerate(lab.recorded("semi_cylinder", "nylon", "low")[:8]):
        (folder / f"strike_{i}.csv").write_text("\n".join([HEADER, *rows(trial)]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "examples/strikes"))
