"""Tables of benchmark rows: one per kind of row, and no word is broken."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from clashsim.bench import catalogue
from clashsim.core.errors import MissingExtraError
from clashsim.report import tables


def _row(labels, floats="", integers=""):
    """A row with its longest labels, and numbers as wide as they come under all other keys."""
    numbers = dict.fromkeys(floats.split(), 0.00123) | dict.fromkeys(integers.split(), 12345)
    return labels | numbers | {key: 300 for key in ("n", "seeds", "of") if key in numbers}


_SHARES = "accuracy_0.1 accuracy_0.2 accuracy_0.05 median sd_0.1 worst_0.1"
_SET = {"set": "lasa/D1-Inertia_reduced", "method": "newton-coulomb", "draw": "random"}
_FEW_SHOT = [
    _row(_SET, f"{_SHARES} seconds", "n seeds"),
    _row(_SET | {"why": "no finite loss"}, "", "n"),
]
_STRIKES = {"what": "strikes of semi_cylinder", "method": "strike table, slide model"}
_TARGETS = {"what": "1000 targets in one call", "method": "CMA-ES on cuda"}
_TRAINING = {"what": "training", "method": "PPO, 16384 environments on cuda"}
_KERNEL = {"what": "impacts", "method": "network of 3, one kernel in half precision"}
_MJX = {"what": "strikes in MJX of square", "method": "8192 at once on cuda:0, float32"}
_SLIDE = {
    "set": "lasa/D1-Inertia_reduced",
    "method": "mujoco-torsional",
    "input": "strike",
    "draw": "session",
}
_PLAN = {"what": "plan of semi-cylinder", "method": "hybrid, MuJoCo's slide, 16 targets at once"}
_ROUTE = {"route": "3", "method": "mujoco-grid", "seed": "all"}
_LOOP = {"change": "heavier", "algorithm": "ppo", "method": "informative"}
_MISSES = "position_m yaw_rad position_median_m yaw_median_rad yaw_worst_seed_rad"
_PLANNED = (
    "position_m position_sd orientation_rad orientation_sd position_median_m orientation_median_rad"
)
_TOSSED = (
    "position_pct rotation_deg position_median rotation_median "
    "position_soon rotation_soon wrong_face penetration_pct penetration_largest"
)
_REST_DISTANCES = "distance_m distance_median erring_distance_m erring_distance_median"
# Rows with the keys of each bench.
ROWS = {
    "real-impacts": _FEW_SHOT,
    "shapes": _FEW_SHOT,
    "materials": _FEW_SHOT,
    "advise": [
        _row({"set": "lasa/D1-Inertia_reduced", "method": "advised-5-5"}, _SHARES, "n seeds")
    ],
    "real-slides": [_row(_SLIDE, _MISSES, "n seeds of")],
    "sampling": [_row(_STRIKES, "per_second ratio peak_mb", "n steps")],
    "contact": [
        _row(
            {"solref": "-2.4674e+06 -4388.58", "refused": "a contact time of 0.033 s, or this"},
            "timestep_ms asked obtained low high contact_ms penetration_mm",
            "steps",
        ),
        _row({}, "ratio direct timeconst direct_weightless timeconst_weightless"),
    ],
    "base": [
        _row(
            {"set": "plate on slides, box on slides", "method": "clash-paper"},
            "accuracy_0.1 accuracy_0.2 median ceiling direct impacts_per_s",
            "n",
        )
    ],
    "transfer": [
        _row(
            {
                "from": "lasa/D1-Inertia",
                "to": "semi_cylinder",
                "method": "mujoco-identified",
            },
            _SHARES,
            "n seeds",
        )
    ],
    "scenes": [
        {
            "set": "bracket of three boxes tossed",
            "method": "mujoco-identified",
            "n": 12,
            "accuracy_0.1": 0.979,
            "accuracy_0.2": 1.0,
            "median": 0.0213,
            "seeds": 1,
            "seconds": 12.3,
            "left_out": 1,
        }
    ],
    "trajectories": [
        {
            "set": "two levers on a spring",
            "seed": 0,
            "method": "least-squares",
            "error_pct": 0.0593,
            "position_mm": 12.1,
            "rotation_deg": 0.812,
            "joint_deg": 0.578,
            "inside": 2,
            "fitted": 3,
            "of": 3,
            "seconds": 70.6,
        }
    ],
    "throws": [
        _row(
            {"set": "bracket of three boxes tossed", "method": "mujoco-identified"},
            f"{_REST_DISTANCES} within stated",
            "n materials throws",
        )
    ],
    "throughput": [
        _row({"what": "impacts", "method": "network alone", "ratio": None}, "per_second"),
        _row(
            {"what": "impacts", "method": "compressed network", "ratio": None},
            "per_second off_median off_p99 off_float32",
        ),
        _row(
            _STRIKES,
            "per_second ratio ratio_own_steps cpu_ratio off_mm off_deg same steps step_mm "
            "step_mm_p90",
        ),
        _row({"what": "environment steps", "method": "1048576 environments on cuda"}, "per_second"),
        _row(_KERNEL, "per_second limit off"),
        _row(_TARGETS, "per_second seconds reached off", "evaluations"),
        _row(_TRAINING, "per_second seconds reached until", "strikes until_strikes"),
        _row(_MJX, "per_second steps_per_second compile_s"),
    ],
    "planning": [
        _row(
            {"shape": "semi-cylinder", "method": "clashsim-expected"},
            f"{_PLANNED} expected_m expected_rad",
            "executed",
        )
    ],
    "search-time": [
        _row(
            _PLAN,
            "seconds per_second ratio ratio_own_steps expected_mm setup_s coarse_mm",
            "evaluations plans",
        )
    ],
    "routes": [
        _row(_ROUTE, "strikes", "success trials subgoals subgoals_of"),
        _row(_ROUTE, "", "success trials subgoals subgoals_of"),
    ],
    "loop": [
        _row(
            _LOOP | {"size": {"rounds": 4}},
            "error_mm error_rad",
            "seed round strikes success trials",
        ),
        _row(_LOOP | {"seed": "mean"}, "error_mm error_rad", "round strikes seeds success trials"),
        _row(_LOOP | {"seed": "needed"}, "random_ended_mm", "random_strikes strikes"),
    ],
    "basin-hopping": [
        _row(
            {"set": "thrown-box", "method": "basin-hopping"},
            "reached error distance spent",
            "seeds steps",
        )
    ],
    "real-pendulum": [
        _row(
            {"method": "neural-without-upper", "ratio_range": "21.880 to 21.880"},
            "error_mm mean_mm low_mm high_mm within_mm until_5mm ratio",
            "frame windows seeds",
        )
    ],
    "real-tosses": [
        _row(
            {"method": "mujoco-table-ii", "start": "row-0"},
            f"{_TOSSED} position_pct_worst rotation_deg_worst",
            "n seeds tosses",
        )
    ],
    "push-to-stop": [
        _row({}, "velocity distance_mm target_m", "start epoch"),
        _row(
            {"start": "all"},
            "distance_mm mujoco_mm epochs_needed last_distance_mm last_mujoco_mm",
            "epoch converged of last_converged",
        ),
        _row(
            {"what": "plan", "task": "throw", "method": "mujoco-finite-differences"},
            "within distance_mm mujoco_within mujoco_mm seconds",
            "evaluations of",
        ),
        _row({"what": "gradient", "task": "throw"}, "gradient_error trend_error", "of"),
    ],
    "policy-gradients": [
        _row(
            {"method": "ppo-scratch"},
            "reached seconds",
            "seed strikes evaluations limit succeeded of",
        ),
    ],
    "bowling": [
        _row({"what": "error"}, "seconds position_pct rotation_deg", "frame cubes scenes"),
        _row(
            {"what": "held-out", "set": "large"},
            "position_mean_pct rotation_mean_deg position_median_pct rotation_median_deg",
            "frames trajectories",
        ),
        _row({"what": "cost", "device": "cuda"}, "graph_s mujoco_s ratio", "cubes scenes"),
    ],
    "scaling": [
        _row(
            {"what": "calibration", "killed": True, "same": True},
            "seconds per_second efficiency load",
            "workers retried",
        )
    ],
    "growth": [
        _row({"what": "hybrid", "by": "pairs and bodies"}, "seconds exponent memory_mb", "size")
    ],
    "video": [
        _row(
            {},
            "distance pixels seen lateral_mm depth_mm degrees noise_lateral_mm noise_depth_mm "
            "reprojection_px",
            "flips_resolved",
        ),
    ],
}


def _words(row):
    """All words that a table of the row has to show whole."""
    for key, value in row.items():
        if isinstance(value, dict):
            continue
        yield from tables._header(key).split()
        if value is not None:
            yield from tables._cell(value).split()


@pytest.mark.parametrize("width", [120, 160])
@pytest.mark.parametrize("name", catalogue.MODULES)
def test_no_word_of_a_bench_is_broken(name, width):
    labels = {key: value for key, value in ROWS[name][0].items() if isinstance(value, str)}
    missing = labels | {"why": str(MissingExtraError("mujoco-mjx", "mjx"))}
    for rows in (ROWS[name], [missing]):  # apart, for they share words
        out = Console(file=io.StringIO(), width=width)
        out.print(tables.tabulate_rows(f"{name}, 12345 s", rows, width=width))
        lines = out.file.getvalue().splitlines()
        shown = {word for line in lines for word in line.split()}
        broken = {word for row in rows for word in _words(row)} - shown
        assert not broken and max(map(len, lines)) <= width


def test_columns_that_do_not_fit_follow_below_with_the_labels():
    rows = [{"method": m, "n": 4} | dict.fromkeys("abcdefgh", 0.123) for m in ("a", "b")]
    out = Console(file=io.StringIO(), width=50)
    out.print(tables.tabulate_rows("all", rows, width=50))
    lines = [line.split() for line in out.file.getvalue().splitlines()]
    headers = [line for line in lines if line[:2] == ["method", "n"]]
    assert [header[2:] for header in headers] == [list("abcde"), list("fgh")]
    assert ["a", "4", "0.123", "0.123", "0.123"] in lines


def test_each_kind_of_row_is_a_table():
    rows = [
        {"what": "impacts", "rate": 1.0},
        {"what": "strikes", "rate": 2.0, "off": 0.1},
        {"what": "cost", "cubes": 3},
        {"what": "strikes", "why": "none"},
    ]
    out = Console(file=io.StringIO(), width=100)
    out.print(tables.tabulate_rows("all", rows, width=100))
    headers = [
        line.split() for line in out.file.getvalue().splitlines() if line.split()[:1] == ["what"]
    ]
    assert headers == [["what", "rate", "off"], ["what", "cubes"], ["what", "why"]]
