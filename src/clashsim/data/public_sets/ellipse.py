"""MIT's ellipse that is dropped on a plate (mcubelab/planar-impact-dataset)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.data.public_sets.checked_arrays import check_array, read_mat_arrays
from clashsim.data.public_sets.real_dataset import RealDataset

FILE = "mit_ellipse/data_ellipse.mat"
_MODELS_FILE = "v_models.mat"
# Published models, in the order of the columns of v_models.mat, of which each has three.
_MODELS = (
    "drumwright-shell",
    "ap-poisson",
    "ap-newton",
    "mirtich",
    "wang-mason",
    "whittaker",
)
_SEMI_AXES = (0.035, 0.025)  # m
_GYRATION_RADIUS = 0.0192  # m
# Signs of x, y and theta: the recorded x axis is mirrored with respect to theta.
_MIRROR = np.array([-1.0, 1.0, 1.0])


def read_ellipse(root: Path) -> RealDataset:
    """Read the impacts of the ellipse, and what published models predict for them."""
    path = root / FILE
    start, end = _read_states(path)
    x = start[:, 0]
    theta = start[:, 2]
    # The height of the centre above the plate; the recorded y is twice that.
    height = np.hypot(_SEMI_AXES[0] * np.sin(theta), _SEMI_AXES[1] * np.cos(theta))
    before, motion = MotionBefore.at_origin(len(start), planar=True)
    motion.struck.pose[:] = np.column_stack([-x, height, theta])
    motion.struck.twist[:] = _MIRROR * start[:, 3:]
    impacts = Impacts(True, before, _MIRROR * end[:, 3:]).checked()
    return RealDataset(
        name="mit_ellipse",
        scene="ellipse",
        impacts=impacts,
        gyration=_GYRATION_RADIUS,
        session=np.full(len(start), "mit_ellipse"),
        published=_read_published(path.with_name(_MODELS_FILE), len(start)),
    )


def _read_states(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Recorded states (N, 6) just before and after each impact: x, y, theta and their rates."""
    arrays = read_mat_arrays(path)
    states = {}
    for name in ("states_i", "states_f"):
        array = arrays.get(f"data.{name}")
        if array is None:
            raise DataError(
                f"{path.name} should hold a structure 'data' with 'states_i' and 'states_f'"
            )
        check_array(path, name, array, (6,))
        states[name] = array.astype(float)
    start = states["states_i"]
    end = states["states_f"]
    if len(start) != len(end):
        raise DataError(f"{path.name} holds {len(start)} states before but {len(end)} after impact")
    return start, end


def _read_published(path: Path, impacts: int) -> dict[str, np.ndarray]:
    """Predictions (N, 3) of the published models by name; none where their file is absent."""
    if not path.is_file():
        return {}
    table = read_mat_arrays(path).get("v_models")
    if table is None:
        raise DataError(f"{path.name} should hold an array 'v_models'")
    check_array(path, "v_models", table, (3 * len(_MODELS),))
    if len(table) != impacts:
        raise DataError(f"{path.name} predicts {len(table)} impacts, the data holds {impacts}")
    published = {}
    for k, model in enumerate(_MODELS):
        published[model] = _MIRROR * table[:, 3 * k : 3 * k + 3]
    return published
