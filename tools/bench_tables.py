"""Fill the tables of docs/benchmarks.md from the JSON files of `clashsim bench`.

A table whose file is not there stays as it is.

    python tools/bench_tables.py runs docs/benchmarks.md

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is in `TABLES`.
"""

import json
import re
import sys
from pathlib import Path

METHODS = [
    "mujoco-default",
    "mujoco-grid",
    "mujoco-cmaes",
    "mujoco-sysid",
    "mjx-gradient",
    "newton-coulomb",
    "ridge",
    "gp",
    "scratch",
    "clash-paper",
    "clashsim",
]
SHAPES = ["semi-cylinder", "square", "triangle"]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def name(method: str) -> str:
    """Name of a method; clashsim's is bold."""
    return f"**{method}**" if method.startswith("clashsim") else method


def accuracies(rows: list[dict]) -> str:
    """Accuracy of every method and number of impacts, with a table per data set and split."""
    parts = []
    for split in ("random", "block"):
        for data_set in sorted({r["set"] for r in rows}):
            own = [r for r in rows if r["set"] == data_set and r["draw"] == split]
            counts = sorted({r["n"] for r in own if r["n"]})
            if counts:
                title = (
                    f"**{data_set}**, {split} split: accuracy(0.1), "
                    "in brackets the worst repetition"
                )
                head = ["method", *(f"N = {n}" for n in counts)]
                parts.append(f"{title}\n\n{table(head, accuracy_rows(own, counts))}")
    reasons = {(r["set"], r["method"]): r["why"] for r in rows if "why" in r}
    for (data_set, method), why in reasons.items():
        parts.append(f"{data_set}, {method}: cannot, {why}")
    return "\n\n".join(parts)


def accuracy_rows(rows: list[dict], counts: list[int]) -> list[list[str]]:
    """Rows of a table of accuracies: a row per method, a column per number of impacts."""
    others = sorted({r["method"] for r in rows} - set(METHODS))
    body = []
    for method in [*METHODS, *others]:
        by_count = {r["n"]: r for r in rows if r["method"] == method}
        if not by_count:
            continue
        cells = [name(method)]
        for n in counts:
            # A method that fits nothing has one row, with n = 0.
            row = by_count.get(n, by_count.get(0))
            cells.append(accuracy_cell(row))
        body.append(cells)
        if any("coverage_68" in row for row in by_count.values()):
            held = [coverage_cell(by_count.get(n)) for n in counts]
            body.append([f"{name(method)}: share in 68 % / 90 % intervals", *held])
    return body


def coverage_cell(row: dict | None) -> str:
    """Shares of outcomes inside the stated 68 % and 90 % intervals."""
    if row is None or "coverage_68" not in row:
        return ""
    return f"{row['coverage_68']:.2f} / {row['coverage_90']:.2f}"


def accuracy_cell(row: dict | None) -> str:
    """Mean accuracy(0.1) and that of the worst repetition."""
    if row is None:
        return ""
    if "why" in row:
        return "cannot"
    return f"{row['accuracy_0.1']:.3f} ({row['worst_0.1']:.2f})"


def laboratory(rows: list[dict], split: str) -> str:
    """Accuracy(0.1) / accuracy(0.05) / median error on data sets of the laboratory."""
    data_sets = sorted({r["set"] for r in rows}, key=shape_order)
    body = []
    for method in METHODS:
        # MuJoCo with default parameters fits nothing, so it has no rows for other splits.
        own_split = "random" if method == "mujoco-default" else split
        own = {r["set"]: r for r in rows if r["method"] == method and r["draw"] == own_split}
        if own:
            cells = [laboratory_cell(own.get(data_set)) for data_set in data_sets]
            body.append([name(method), *cells])
    return table(["method", *data_sets], body)


def shape_order(data_set: str) -> tuple[int, str]:
    """Sort key: shapes in their usual order, then everything else by name."""
    return (SHAPES.index(data_set) if data_set in SHAPES else len(SHAPES), data_set)


def laboratory_cell(row: dict | None) -> str:
    """Accuracy(0.1) / accuracy(0.05) / median error of one method on one data set."""
    if row is None or "why" in row:
        return "cannot"
    return f"{row['accuracy_0.1']:.3f} / {row['accuracy_0.05']:.2f} / {row['median']:.3f}"


def planning(rows: list[dict]) -> str:
    """Position and orientation error of executed plans."""

    def cell(r: dict | None) -> str:
        if r is None:
            return ""
        if "why" in r:
            return "cannot"
        position = f"{1e3 * r['position_m']:.1f} ± {1e3 * r['position_sd']:.1f} mm"
        return f"{position}, {r['orientation_rad']:.3f} ± {r['orientation_sd']:.3f} rad"

    body = []
    for method in dict.fromkeys(r["method"] for r in rows):
        own = {r["shape"]: r for r in rows if r["method"] == method}
        body.append([name(method), *(cell(own.get(shape)) for shape in SHAPES)])
    return table(["method", *SHAPES], body)


def loops(rows: list[dict]) -> str:
    """Errors of the simulator over the number of strikes, strikes needed, and successes."""

    def setting(row: dict) -> tuple[str, str, str]:
        return row["change"], row["algorithm"], row["method"]

    means = [r for r in rows if r["seed"] == "mean"]
    needed = {setting(r): r["strikes"] for r in rows if r["seed"] == "needed"}
    counts = sorted({r["strikes"] for r in means})
    body = []
    for key in dict.fromkeys(map(setting, means)):
        by_count = {r["strikes"]: r for r in means if setting(r) == key}
        last = by_count[max(by_count)]
        errors = [f"{by_count[n]['error_mm']:.2f}" if n in by_count else "" for n in counts]
        strikes_needed = ""
        if key in needed:
            strikes_needed = "never" if needed[key] is None else str(needed[key])
        success = f"{last['success']} of {last['trials']}"
        body.append([*key, *errors, f"{last['error_rad']:.3f}", strikes_needed, success])
    head = ["change", "algorithm", "method", *(f"{n}, mm" for n in counts)]
    return table([*head, "last, rad", "strikes needed", "success"], body)


def pendulum(rows: list[dict]) -> str:
    """Median errors with intervals, means, ratios to the analytic model, and frames until 5 mm."""
    rows = [r for r in rows if "why" not in r]
    frames = sorted({r["frame"] for r in rows})
    body = []
    for method in dict.fromkeys(r["method"] for r in rows):
        own = {r["frame"]: r for r in rows if r["method"] == method}
        cells = []
        for frame in frames:
            row = own[frame]
            interval = f"({row['low_mm']:.2f} to {row['high_mm']:.2f})"
            cells.append(f"{row['error_mm']:.2f} {interval}, {row['mean_mm']:.2f}")
        body.append(
            [
                method,
                *cells,
                " / ".join(f"{own[f]['ratio']:.2f}" for f in frames),
                " / ".join(f"{own[f]['within_mm']:.2f}" for f in frames),
                f"{own[frames[0]]['until_5mm']:.0f}",
            ]
        )
    return table(["method", *(f"frame {f}" for f in frames), "ratio", "within", "until 5 mm"], body)


def figures(rows: list[dict], columns: dict[str, str]) -> str:
    """Rows as they are; columns: format by key."""
    return table(
        list(columns),
        [
            ["" if r.get(k) is None else format(r[k], how) for k, how in columns.items()]
            for r in rows
        ],
    )


TABLES = {
    "real-impacts": ("real-impacts", accuracies),
    "shapes-random": ("shapes", lambda r: laboratory(r, "random")),
    "shapes-block": ("shapes", lambda r: laboratory(r, "block")),
    "materials-random": ("materials", lambda r: laboratory(r, "random")),
    "materials-block": ("materials", lambda r: laboratory(r, "block")),
    "planning": ("planning", planning),
    "search-time": (
        "search-time",
        lambda r: figures(
            r,
            {
                "what": "",
                "method": "",
                "seconds": ".3g",
                "ratio": ".3g",
                "evaluations": "d",
                "expected_mm": ".2f",
                "setup_s": ".2g",
                "coarse_mm": ".2f",
            },
        ),
    ),
    "throughput": (
        "throughput",
        lambda r: figures(
            r,
            {
                "what": "",
                "method": "",
                "per_second": ",.3g",
                "ratio": ".3g",
                "off_mm": ".1f",
                "off_deg": ".1f",
                "same": ".2f",
            },
        ),
    ),
    "real-tosses": (
        "real-tosses",
        lambda r: figures(
            r,
            {
                "method": "",
                "n": "d",
                "start": "",
                "position_pct": ".2f",
                "rotation_deg": ".2f",
                "position_median": ".2f",
                "rotation_median": ".2f",
                "position_soon": ".2f",
                "rotation_soon": ".2f",
                "wrong_face": ".3f",
                "penetration_pct": ".2f",
                "penetration_largest": ".2f",
                "seeds": "d",
            },
        ),
    ),
    "push-to-stop": (
        "push-to-stop",
        lambda r: figures(
            [x for x in r if x.get("start") == "all" or x.get("epoch") in (0, 10)],
            dict.fromkeys(
                ("start", "epoch", "velocity", "distance_mm", "converged", "of", "mujoco_mm"), ""
            ),
        ),
    ),
    "velocity-planning": (
        "push-to-stop",
        lambda r: figures(
            [x for x in r if x.get("what") == "plan"],
            {
                "task": "",
                "method": "",
                "evaluations": "d",
                "within": ".2f",
                "distance_mm": ".1f",
                "mujoco_within": ".2f",
                "mujoco_mm": ".1f",
                "seconds": ".1f",
                "of": "d",
            },
        ),
    ),
    "velocity-gradients": (
        "push-to-stop",
        lambda r: figures(
            [x for x in r if x.get("what") == "gradient"],
            {"task": "", "gradient_error": ".3g", "trend_error": ".3g", "of": "d"},
        ),
    ),
    "policy-gradients": (
        "policy-gradients",
        lambda r: figures(
            r,
            {
                "method": "",
                "seed": "",
                "strikes": ",.0f",
                "evaluations": ",.0f",
                "limit": ",d",
                "reached": ".3f",
                "seconds": ".2f",
                "succeeded": "",
                "of": "",
            },
        ),
    ),
    "bowling-error": (
        "bowling",
        lambda r: figures(
            [x for x in r if x["what"] == "error"],
            dict.fromkeys(("frame", "seconds", "position_pct", "rotation_deg", "scenes"), ""),
        ),
    ),
    "bowling-held-out": (
        "bowling",
        lambda r: figures(
            [x for x in r if x["what"] == "held-out"],
            {
                "set": "",
                "position_mean_pct": ".1f",
                "rotation_mean_deg": ".1f",
                "position_median_pct": ".1f",
                "rotation_median_deg": ".1f",
                "trajectories": "",
            },
        ),
    ),
    "bowling-cost": (
        "bowling",
        lambda r: figures(
            [x for x in r if x["what"] == "cost"],
            dict.fromkeys(("cubes", "device", "scenes", "graph_s", "mujoco_s", "ratio"), ""),
        ),
    ),
    "routes": (
        "routes",
        lambda r: figures(
            [x for x in r if x["seed"] == "all"] or r,
            dict.fromkeys(("route", "method", "success", "trials", "subgoals", "subgoals_of"), ""),
        ),
    ),
    "loop": ("loop", loops),
    "real-pendulum": ("real-pendulum", pendulum),
    "basin-hopping": (
        "basin-hopping",
        lambda r: figures(
            r,
            {
                "set": "",
                "method": "",
                "reached": ".1f",
                "seeds": "d",
                "error": ".3g",
                "distance": ".3g",
                "steps": ",d",
                "spent": ".2f",
            },
        ),
    ),
    "advise": (
        "advise",
        lambda r: figures(
            r,
            {
                "set": "",
                "method": "",
                "accuracy_0.1": ".3f",
                "sd_0.1": ".3f",
                "worst_0.1": ".2f",
                "accuracy_0.05": ".3f",
                "median": ".4f",
                "seeds": "d",
            },
        ),
    ),
}

if __name__ == "__main__":
    folder, page = Path(sys.argv[1]), Path(sys.argv[2])
    text = page.read_text()
    for key, (bench, made) in TABLES.items():
        path = folder / f"{bench}.json"
        if path.is_file():
            content = made(json.loads(path.read_text())["rows"])
            text = re.sub(
                rf"(<!-- table: {key} -->\n).*?(<!-- end -->)",
                lambda m, c=content: m[1] + "\n" + c + "\n\n" + m[2],
                text,
                flags=re.S,
            )
    page.write_text(text)
