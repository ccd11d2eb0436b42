"""Fill the tables of docs/benchmarks.md from the JSON files of `clashsim bench`; a table whose file
is not there stays as it is.

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
    """Markdown."""
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows])


def name(method: str) -> str:
    """Ours in bold."""
    return f"**{method}**" if method.startswith("clashsim") else method


def accuracies(rows: list[dict]) -> str:
    """Accuracy of every method on every set and number of impacts, one table a set and draw."""
    out = []
    for draw in ("random", "block"):
        for of in sorted({r["set"] for r in rows}):
            mine = [r for r in rows if r["set"] == of and r["draw"] == draw]
            counts = sorted({r["n"] for r in mine if r["n"]})
            if not counts:
                continue
            body = []
            for method in [*METHODS, *sorted({r["method"] for r in mine} - set(METHODS))]:
                own = {r["n"]: r for r in mine if r["method"] == method}
                if own:
                    cells = [own.get(n, own.get(0)) for n in counts]
                    body.append(
                        [
                            name(method),
                            *(
                                ""
                                if r is None
                                else "cannot"
                                if "why" in r
                                else f"{r['accuracy_0.1']:.3f} ({r['worst_0.1']:.2f})"
                                for r in cells
                            ),
                        ]
                    )
            out.append(
                f"**{of}**, {draw} draw: accuracy(0.1), in brackets the worst repetition\n\n"
                + table(["method", *(f"N = {n}" for n in counts)], body)
            )
    whys = {(r["set"], r["method"]): r["why"] for r in rows if "why" in r}
    return "\n\n".join(
        out + [f"{of}, {method}: cannot, {why}" for (of, method), why in whys.items()]
    )


def laboratory(rows: list[dict], draw: str) -> str:
    """Accuracy(0.1) / accuracy(0.05) / median error of sets of the laboratory."""
    sets = sorted(
        {r["set"] for r in rows}, key=lambda s: (SHAPES.index(s) if s in SHAPES else 9, s)
    )
    body = []
    for method in METHODS:
        own = {
            r["set"]: r
            for r in rows
            if r["method"] == method
            and r["draw"] == ("random" if method == "mujoco-default" else draw)
        }
        if own:
            cells = [own.get(s, {"why": ""}) for s in sets]
            body.append(
                [
                    name(method),
                    *(
                        "cannot"
                        if "why" in r
                        else f"{r['accuracy_0.1']:.3f} / {r['accuracy_0.05']:.2f} / {r['median']:.3f}"
                        for r in cells
                    ),
                ]
            )
    return table(["method", *sets], body)


def planning(rows: list[dict]) -> str:
    """Position and orientation error of executed plans."""

    def cell(r: dict | None) -> str:
        if r is not None and "why" in r:
            return "cannot"
        return (
            ""
            if r is None
            else f"{1e3 * r['position_m']:.1f} ± {1e3 * r['position_sd']:.1f} mm, {r['orientation_rad']:.3f} ± {r['orientation_sd']:.3f} rad"
        )

    body = [
        [
            name(m),
            *(
                cell(next((r for r in rows if (r["shape"], r["method"]) == (s, m)), None))
                for s in SHAPES
            ),
        ]
        for m in dict.fromkeys(r["method"] for r in rows)
    ]
    return table(["method", *SHAPES], body)


def loops(rows: list[dict]) -> str:
    """Error of the simulator over the strikes made, when random strikes' last error was reached,
    and successes.
    """
    means = [r for r in rows if r["seed"] == "mean"]
    counts = sorted({r["strikes"] for r in means})
    body = []
    for change, algorithm, method in dict.fromkeys(
        (r["change"], r["algorithm"], r["method"]) for r in means
    ):
        mine = {
            r["strikes"]: r
            for r in means
            if (r["change"], r["algorithm"], r["method"]) == (change, algorithm, method)
        }
        needed = [
            r["strikes"]
            for r in rows
            if r["seed"] == "needed"
            and (r["change"], r["algorithm"], r["method"]) == (change, algorithm, method)
        ]
        last = mine[max(mine)]
        body.append(
            [
                change,
                algorithm,
                method,
                *(f"{mine[n]['error_mm']:.2f}" if n in mine else "" for n in counts),
                f"{last['error_rad']:.3f}",
                "" if not needed else "never" if needed[0] is None else str(needed[0]),
                f"{last['success']} of {last['trials']}",
            ]
        )
    return table(
        [
            "change",
            "algorithm",
            "method",
            *(f"{n}, mm" for n in counts),
            "last, rad",
            "strikes needed",
            "success",
        ],
        body,
    )


def pendulum(rows: list[dict]) -> str:
    """Median error at each frame with its interval, the mean, the ratio to the analytic model, and
    how long a prediction is good for.
    """
    rows = [r for r in rows if "why" not in r]
    frames = sorted({r["frame"] for r in rows})
    body = []
    for method in dict.fromkeys(r["method"] for r in rows):
        own = {r["frame"]: r for r in rows if r["method"] == method}
        cells = [
            f"{own[f]['error_mm']:.2f} ({own[f]['low_mm']:.2f} to {own[f]['high_mm']:.2f}), {own[f]['mean_mm']:.2f}"
            for f in frames
        ]
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
                "position_pct": ".2f",
                "rotation_deg": ".2f",
                "position_median": ".2f",
                "rotation_median": ".2f",
                "position_soon": ".2f",
                "rotation_soon": ".2f",
                "wrong_face": ".3f",
                "seeds": "d",
            },
        ),
    ),
    "push-to-stop": (
        "push-to-stop",
        lambda r: figures(
            [x for x in r if x["start"] == "all" or x["epoch"] in (0, 10)],
            dict.fromkeys(
                ("start", "epoch", "velocity", "distance_mm", "converged", "of", "mujoco_mm"), ""
            ),
        ),
    ),
    "bowling-error": (
        "bowling",
        lambda r: figures(
            [x for x in r if x["what"] == "error"],
            dict.fromkeys(("frame", "seconds", "position_pct", "rotation_deg", "scenes"), ""),
        ),
    ),
    "bowling-cost": (
        "bowling",
        lambda r: figures(
            [x for x in r if x["what"] == "cost"],
            dict.fromkeys(("cubes", "device", "graph_s", "mujoco_s", "ratio"), ""),
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
