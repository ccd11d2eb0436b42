"""Turn rows of `clashsim bench real-impacts` (JSON or JSON lines) into the tables of docs/benchmarks.md.

    python tools/bench_tables.py runs/real-impacts.json > tables.md
"""

import json
import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text()
rows = json.loads(text)["rows"] if text.lstrip().startswith('{\n') or '"rows"' in text[:4000] else [json.loads(line) for line in text.splitlines()]
methods = ["mujoco-default", "mujoco-grid", "mujoco-cmaes", "mujoco-sysid", "mjx-gradient", "newton-coulomb", "ridge", "gp", "scratch", "clash-paper", "clashsim"]
for draw in ("random", "block"):
    for name in sorted({r["set"] for r in rows}):
        mine = [r for r in rows if r["set"] == name and r["draw"] == draw]
        counts = sorted({r["n"] for r in mine if r["n"]})
        if not counts:
            continue
        print(f"\n**{name}**, {draw} draw: accuracy(0.1), in brackets the worst repetition\n")
        print("| method | " + " | ".join(f"N = {n}" for n in counts) + " |")
        print("|---|" + "---|" * len(counts))
        for method in [*methods, *sorted({r["method"] for r in mine} - set(methods))]:
            own = {r["n"]: r for r in mine if r["method"] == method}
            if not own:
                continue
            cells = []
            for n in counts:
                row = own.get(n, own.get(0))
                if row is None:
                    cells.append("")
                elif "why" in row:
                    cells.append("cannot: " + row["why"][:60])
                else:
                    cells.append(f"{row['accuracy_0.1']:.3f} ({row['worst_0.1']:.2f})")
            label = f"**{method}**" if method == "clashsim" else method
            print(f"| {label} | " + " | ".join(cells) + " |")
