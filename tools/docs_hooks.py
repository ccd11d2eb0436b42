"""Pages of the documentation that are generated while it is built.

There is one page per command, from its --help, and the API pages, from docstrings. mkdocs.yml names
this file as a hook; `python tools/docs_hooks.py plan` prints the page of a command.
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
# Pages that explain a command at length.
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
    "fit": ["trajectories"],
    "train": ["pushing"],
    "evaluate": ["pushing"],
    "loop": ["loop"],
    "sample": ["how-it-works", "scaling"],
    "sweep": ["scaling"],
    "record": ["laboratory"],
    "bench": ["benchmarks"],
}
# Further modules that users call from Python, by page, in the order in which data moves.
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
    "Runs": [
        "clashsim.fit.calibrated_run",
        "clashsim.fit.run_folder",
        "clashsim.fit.motion_run",
        "clashsim.fit.recorded_scene",
    ],
    "Simulators": [
        "clashsim.core.protocols",
        "clashsim.sim.mujoco.simulator",
        "clashsim.sim.hybrid.simulator",
        "clashsim.sim.hybrid.pairs",
        "clashsim.sim.mjx.simulator",
        "clashsim.sim.augmented.simulator",
        "clashsim.core.augmentation_spec",
        "clashsim.core.friction_formula",
        "clashsim.sim.graph.simulator",
        "clashsim.slides.law",
        "clashsim.nets.strike_table",
    ],
    "Fitting in MJX": [
        "clashsim.fit.mjx_windows",
        "clashsim.fit.augmented",
        "clashsim.fit.learned_friction",
        "clashsim.fit.friction_formulas",
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
    "Executors": [
        "clashsim.core.executor",
        "clashsim.scale.ray_executor",
        "clashsim.scale.cluster",
        "clashsim.data.checkpoints",
    ],
    "Errors": ["clashsim.core.errors"],
}


# The widest terminal on which tyro does not put boxes of many options side by side.
_HELP_WIDTH = 129


def command_names() -> list[str]:
    """Names of all commands, in the order of --help."""
    from clashsim.cli import COMMANDS

    return list(COMMANDS)


def help_text(command: str) -> str:
    """What `clashsim COMMAND --help` prints on a terminal that has room for one column of boxes."""
    from clashsim import cli

    raw = io.BytesIO()
    # The command prints what the encoding of its stream can show.
    out = io.TextIOWrapper(raw, encoding="utf-8")
    columns_before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(_HELP_WIDTH)
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            cli.main([command, "--help"])
    finally:
        if columns_before is None:
            os.environ.pop("COLUMNS")
        else:
            os.environ["COLUMNS"] = columns_before
    out.flush()
    return re.sub(r"\x1b\[[0-9;]*m", "", raw.getvalue().decode())


def command_page(command: str) -> str:
    """A page of Markdown: what the command does, its example, and tables of its arguments."""
    text = help_text(command)
    about = text[: text.index("╭")]
    boxes = re.findall(r"╭─ (.+?) ─+╮\n(.*?)╰", text, re.S)
    usage, *paragraphs = [" ".join(p.split()) for p in about.strip().split("\n\n")]
    lines = [f"# clashsim {command}", ""]
    for paragraph in paragraphs:
        example = re.fullmatch(r"Example: (.+)", paragraph)
        lines += ["    " + example[1] if example else _linked(paragraph), ""]
    lines += [f"Usage: `{usage.removeprefix('usage: ')}`", ""]
    for name, content in boxes:
        lines += _argument_table(name, content)
    guides = _guide_links(command)
    if guides:
        lines.append("More: " + ", ".join(guides) + ".")
    return "\n".join(lines) + "\n"


def _argument_table(name: str, content: str) -> list[str]:
    """Lines of a section with the arguments of one box of the help text."""
    rows, introduction = _rows(content)
    lines = [f"## {name.capitalize()}", ""]
    if introduction:
        lines += [introduction, ""]
    lines += ["| argument | meaning | default |", "|---|---|---|"]
    for argument, meaning, default in rows:
        lines.append(f"| `{argument}` | {_linked(meaning)} | {default} |")
    return [*lines, ""]


def _guide_links(command: str) -> list[str]:
    """Links to the pages that explain a command, with their titles."""
    links = []
    for guide in GUIDES.get(command, ()):
        path = SRC.parent / "docs" / f"{guide}.md"
        if path.is_file():
            title = path.read_text().splitlines()[0].lstrip("# ")
            links.append(f"[{title}](../{guide}.md)")
    return links


def _rows(content: str) -> tuple[list[tuple[str, str, str]], str]:
    """Arguments with their meanings and defaults, and the text above them."""
    rows: list[list[str]] = []
    introduction = ""
    for line in content.splitlines():
        inner = line.strip().removeprefix("│").removesuffix("│")[1:].rstrip()
        if not inner:
            continue
        if set(inner) == {"─"}:
            # What came before a rule was text and not arguments.
            introduction = " ".join(" ".join(row).strip() for row in rows)
            rows = []
        elif inner[0] == " " and rows:
            rows[-1][1] += " " + inner.strip()
        else:
            rows.append([*re.split(r"\s{2,}", inner, maxsplit=1), ""][:2])
    out = []
    for argument, text in rows:
        if argument.startswith("-h,"):
            continue
        meaning, default = _meaning_and_default(text)
        out.append((argument.replace("|", "\\|"), meaning, default))
    return out, introduction


def _meaning_and_default(text: str) -> tuple[str, str]:
    """The meaning of an argument, and its default as a table shows it."""
    found = re.search(r"\s*\((?:default: (.*)|(required))\)$", text)
    if found is None:
        return text.strip(), ""
    meaning = text[: found.start()].strip()
    if found[2]:
        return meaning, "required"
    if found[1] in ("None", "False"):
        return meaning, ""
    return meaning, f"`{found[1]}`"


def _linked(text: str) -> str:
    """Text for a table cell: pages of the docs become links, and bars and brackets are escaped."""
    text = text.replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", text)


def overview() -> str:
    """A page that lists all commands with their first sentences."""
    lines = [
        "# Commands",
        "",
        "Each page is made from the output of `clashsim COMMAND --help`.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    for command in command_names():
        paragraphs = help_text(command).strip().split("\n\n")
        summary = _linked(" ".join(paragraphs[1].split()))
        lines.append(f"| [`{command}`]({command}.md) | {summary} |")
    return "\n".join(lines) + "\n"


def api_page(modules: list[str], title: str) -> str:
    """A page for mkdocstrings to fill."""
    return f"# {title}\n\n" + "\n".join(f"::: {module}\n" for module in modules)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation, after the guides."""
    assert config.nav is not None
    docs = Path(config.docs_dir)
    named = set(re.findall(r"[\w-]+\.md", str(config.nav)))
    for entry in config.nav:
        if "Guides" in entry:  # a new page is a guide until mkdocs.yml says otherwise
            entry["Guides"] += sorted(p.name for p in docs.glob("*.md") if p.name not in named)
        if "Commands" in entry:
            pages = [f"commands/{command}.md" for command in command_names()]
            entry["Commands"] = ["commands/index.md", *pages]
        if "Python" in entry:
            entry["Python"] = [f"api/{_slug(title)}.md" for title in api_pages()]
        if "Decisions" in entry:
            records = (docs / "decisions").glob("*.md")
            entry["Decisions"] = sorted(f"decisions/{p.name}" for p in records)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"commands/index.md": overview()}
    for command in command_names():
        pages[f"commands/{command}.md"] = command_page(command)
    for title, modules in api_pages().items():
        pages[f"api/{_slug(title)}.md"] = api_page(modules, title)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def api_pages() -> dict[str, list[str]]:
    """Modules by title of their page; the library functions behind the commands come first.

    A public name whose module is not in `API` is added to the page of its package.
    """
    import clashsim

    pages: dict[str, list[str]] = {"Runs from start to end": []}
    packages = {"pipeline": "Runs from start to end"}
    for title, modules in API.items():
        pages[title] = list(modules)
        for module in modules:
            packages.setdefault(module.split(".")[1], title)
    listed = {module for modules in API.values() for module in modules}
    for home in sorted(set(clashsim._HOMES.values())):
        module = f"clashsim.{home}"
        if module not in listed:
            package = home.split(".")[0]
            pages[packages[package]].append(module)
    return pages


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


if __name__ == "__main__":
    print(command_page(sys.argv[1]))
