"""Pages of the documentation that are made while it is built: one a verb, from its --help, and the
API, from docstrings.

mkdocs.yml names this file as a hook; `python tools/docs_hooks.py plan` prints the page of a verb.
"""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SRC = Path(__file__).parent.parent / "src"
# Where a verb is explained at length.
GUIDES = {
    "import": ["logs"],
    "inspect": ["tutorial", "logs"],
    "segment": ["logs"],
    "calibrate": ["tutorial", "how-it-works"],
    "show": ["tutorial"],
    "view": ["viewer"],
    "export": ["tutorial"],
    "advise": ["advise"],
    "plan": ["planning"],
    "execute": ["planning", "laboratory"],
    "train": ["pushing"],
    "evaluate": ["pushing"],
    "loop": ["loop"],
    "sample": ["how-it-works", "scaling"],
    "sweep": ["scaling"],
    "record": ["laboratory"],
    "bench": ["benchmarks"],
}
# What users call from Python, in the order of the way through it; the public names of `clashsim`
# come first.
API = {
    "Data": [
        "clashsim.core.impacts",
        "clashsim.core.trials",
        "clashsim.slides.slide",
        "clashsim.data.logs",
        "clashsim.data.segmentation.segment",
        "clashsim.data.trial_files",
        "clashsim.data.impact_files",
    ],
    "Scenes": [
        "clashsim.core.scene",
        "clashsim.core.params",
        "clashsim.core.strike_distribution",
        "clashsim.data.mjcf",
        "clashsim.fit.settings",
    ],
    "Calibration": [
        "clashsim.fit.sample",
        "clashsim.fit.base",
        "clashsim.fit.distil",
        "clashsim.fit.calibrate",
        "clashsim.slides.identify",
        "clashsim.slides.ground_friction",
        "clashsim.fit.advise",
        "clashsim.fit.candidates",
    ],
    "Runs": ["clashsim.fit.calibrated_run", "clashsim.fit.run_folder"],
    "Simulators": [
        "clashsim.core.protocols",
        "clashsim.sim.mujoco.simulator",
        "clashsim.sim.hybrid.simulator",
        "clashsim.sim.hybrid.pairs",
        "clashsim.sim.mjx.simulator",
        "clashsim.sim.augmented.simulator",
        "clashsim.core.augmentation_spec",
        "clashsim.sim.graph.simulator",
        "clashsim.slides.law",
        "clashsim.nets.strike_table",
    ],
    "Fitting in MJX": [
        "clashsim.fit.mjx_windows",
        "clashsim.fit.augmented",
        "clashsim.optim.basin_hopping",
    ],
    "Planning": [
        "clashsim.plan.tasks",
        "clashsim.plan.planner",
        "clashsim.optim.search",
        "clashsim.plan.path",
    ],
    "Learning": [
        "clashsim.rl.task",
        "clashsim.rl.env",
        "clashsim.rl.sac_training",
        "clashsim.rl.informative",
    ],
    "Laboratory": ["clashsim.lab"],
    "Many machines": [
        "clashsim.core.executor",
        "clashsim.scale.ray_executor",
        "clashsim.scale.cluster",
        "clashsim.data.checkpoints",
    ],
    "Errors": ["clashsim.core.errors"],
}


def verbs() -> list[str]:
    """Names of all verbs, in the order of --help."""
    from clashsim.cli import COMMANDS

    return [kind.__name__.lower() for kind in COMMANDS]


def help_of(verb: str) -> str:
    """What `clashsim VERB --help` prints on a terminal so wide that no line is folded."""
    from clashsim import cli

    raw, before = io.BytesIO(), os.environ.get("COLUMNS")
    out = io.TextIOWrapper(
        raw, encoding="utf-8"
    )  # what it prints depends on what the stream can show
    os.environ["COLUMNS"] = "2000"
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            cli.main([verb, "--help"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    out.flush()
    return re.sub(r"\x1b\[[0-9;]*m", "", raw.getvalue().decode())


def verb_page(verb: str) -> str:
    """A page of Markdown: what the verb does, its example, and tables of its arguments."""
    text = help_of(verb)
    about, boxes = text[: text.index("╭")], re.findall(r"╭─ (.+?) ─+╮\n(.*?)╰", text, re.S)
    usage, *paragraphs = [" ".join(p.split()) for p in about.strip().split("\n\n")]
    lines = [f"# clashsim {verb}", ""]
    for paragraph in paragraphs:
        example = re.fullmatch(r"Example: (.+)", paragraph)
        lines += ["    " + example[1] if example else _linked(paragraph), ""]
    lines += [f"Usage: `{usage.removeprefix('usage: ')}`", ""]
    for name, content in boxes:
        rows, said = _rows(content)
        lines += [
            f"## {name.capitalize()}",
            "",
            *([said, ""] if said else []),
            "| argument | meaning | default |",
            "|---|---|---|",
        ]
        lines += [
            f"| `{arg}` | {_linked(meaning)} | {default} |" for arg, meaning, default in rows
        ] + [""]
    pages = [(guide, SRC.parent / "docs" / f"{guide}.md") for guide in GUIDES.get(verb, ())]
    seen = [
        f"[{path.read_text().splitlines()[0].lstrip('# ')}](../{guide}.md)"
        for guide, path in pages
        if path.is_file()
    ]
    return "\n".join([*lines, *(["More: " + ", ".join(seen) + "."] if seen else [])]) + "\n"


def _rows(content: str) -> tuple[list[tuple[str, str, str]], str]:
    """Arguments with their meanings and defaults, and what stands above them."""
    rows: list[list[str]] = []
    said = ""
    for line in content.splitlines():
        inner = line.strip().removeprefix("│").removesuffix("│")[1:].rstrip()
        if not inner or set(inner) == {"─"}:
            if inner:
                said, rows = " ".join(" ".join(r).strip() for r in rows), []
        elif inner[0] == " " and rows:
            rows[-1][1] += " " + inner.strip()
        else:
            rows.append([*re.split(r"\s{2,}", inner, maxsplit=1), ""][:2])
    out = []
    for arg, meaning in rows:
        default = re.search(r"\s*\((?:default: (.*)|(required))\)$", meaning)
        told = (
            ""
            if default is None
            else "required"
            if default[2]
            else ""
            if default[1] in ("None", "False")
            else f"`{default[1]}`"
        )
        out.append(
            (
                arg.replace("|", "\\|"),
                (meaning if default is None else meaning[: default.start()]).strip(),
                told,
            )
        )
    return [row for row in out if not row[0].startswith("-h,")], said


def _linked(text: str) -> str:
    """Pages of the docs as links; a bar would end a cell, and what is in brackets is no link."""
    text = text.replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", text)


def overview() -> str:
    """All verbs with their first sentences."""
    lines = [
        "# Verbs",
        "",
        "Each page is made from what `clashsim VERB --help` prints.",
        "",
        "| verb | what it does |",
        "|---|---|",
    ]
    for verb in verbs():
        text = help_of(verb)
        lines.append(
            f"| [`{verb}`]({verb}.md) | {_linked(' '.join(text.strip().split(chr(10) + chr(10))[1].split()))} |"
        )
    return "\n".join(lines) + "\n"


def api_page(modules: list[str], title: str) -> str:
    """A page for mkdocstrings to fill."""
    return f"# {title}\n\n" + "\n".join(f"::: {module}\n" for module in modules)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add what is generated to the navigation, after the guides."""
    assert config.nav is not None
    named = set(re.findall(r"[\w-]+\.md", str(config.nav)))
    for entry in config.nav:
        if "Guides" in entry:  # a page that is new is a guide until mkdocs.yml says otherwise
            entry["Guides"] += sorted(
                p.name for p in Path(config.docs_dir).glob("*.md") if p.name not in named
            )
        if "Verbs" in entry:
            entry["Verbs"] = ["verbs/index.md", *(f"verbs/{verb}.md" for verb in verbs())]
        if "Python" in entry:
            entry["Python"] = [f"api/{_slug(title)}.md" for title in API]
        if "Decisions" in entry:
            entry["Decisions"] = sorted(
                f"decisions/{p.name}" for p in (Path(config.docs_dir) / "decisions").glob("*.md")
            )
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    made = {"verbs/index.md": overview()} | {
        f"verbs/{verb}.md": verb_page(verb) for verb in verbs()
    }
    made |= {f"api/{_slug(title)}.md": api_page(modules, title) for title, modules in API.items()}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


if __name__ == "__main__":
    print(verb_page(sys.argv[1]))
