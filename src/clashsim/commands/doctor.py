"""`clashsim doctor`: what is installed, what is missing, and a self-test of the main steps."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Protocol

from packaging.requirements import Requirement

from clashsim.commands.shared import console
from clashsim.core.errors import ClashError

# What each extra is for, and the modules that must be importable for it.
_EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "viser": ("clashsim view", ("viser",)),
    "io": (
        "logs in HDF5, Parquet, C3D, ROS bags, MCAP",
        ("h5py", "pyarrow", "lz4", "zstandard"),
    ),
    "lab": ("the virtual laboratory: record, execute, evaluate", ("pydrake",)),
    "rl": ("train, loop, Gymnasium environments", ("gymnasium", "stable_baselines3")),
    "mjx": ("MjxSim, AugmentedSim", ("jax", "mujoco.mjx")),
    "graph": ("GraphSim (needs no more)", ()),
    "scale": ("--executor ray, shards on any file system", ("ray", "fsspec")),
    "sysid": ("the baseline mujoco.sysid", ("mujoco.sysid",)),
    "onnx": ("export --surrogate", ("onnx", "onnxruntime")),
    "brax": ("rows of bench real-tosses", ("brax",)),
    "dev": ("the tests", ("pytest",)),
    "docs": ("this documentation as a site", ("mkdocs",)),
}
_LONGEST_REASON = 100  # characters of the message of an import that fails


@dataclass(frozen=True)
class DoctorOptions:
    """Report what is installed and which extras are missing, and run a self-test.

    Example: clashsim doctor

    The self-test samples strikes, calibrates on recorded ones, plans a strike and steps it; if it
    fails, the exit code is not 0.
    """

    quick: bool = False
    """Skip the self-test."""
    json: bool = False
    """Print everything as JSON."""


class Say(Protocol):
    """Prints a text, followed by `end`."""

    def __call__(self, text: str, end: str = " ") -> None: ...


@dataclass(frozen=True)
class Extra:
    """An optional set of packages.

    Attributes:
        name: As in `pip install 'clashsim[name]'`.
        purpose: What it is for.
        versions: Installed versions by package.
        lacks: What is missing, too old or broken, as sentences.
    """

    name: str
    purpose: str
    versions: dict[str, str]
    lacks: tuple[str, ...]

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install 'clashsim[{self.name}]'"


def run(options: DoctorOptions) -> None:
    """Run `clashsim doctor`."""
    say = _say_nothing if options.json else _say
    report: dict[str, Any] = {"clashsim": _clashsim(), "packages": _required_packages()}
    _say_versions(report, say)
    report["extras"] = [_describe(extra) for extra in extras(say)]
    report["machine"] = machine()
    if not options.json:
        _print_machine(report["machine"])
        _print_extras(report["extras"])
    checks = [] if options.quick else _self_test(say)
    failed = [str(check["name"]) for check in checks if not check["passed"]]
    if options.json:
        print(json.dumps(report | {"self_test": checks, "healthy": not failed}, indent=1))
    elif checks and not failed:
        print("all is well")
    if failed:
        raise ClashError(f"the self-test failed: {'; '.join(failed)}")


def extras(say: Say | None = None) -> list[Extra]:
    """The extras of this installation, those that are ready first.

    Args:
        say: Prints which extra is imported and how long that took; None prints nothing.
    """
    say = say or _say_nothing
    say("importing the packages of the extras, with the seconds each takes:", end="\n ")
    found = []
    for name, requirements in _requirements_by_extra().items():
        start = time.perf_counter()
        say(f" {name}")
        found.append(_extra(name, requirements))
        say(f"{time.perf_counter() - start:.1f}", end="")
    say("", end="\n")
    return sorted(found, key=lambda extra: (bool(extra.lacks), extra.name))


def machine() -> dict[str, Any]:
    """Cores, threads, memory, GPU and folders, as clashsim will use them."""
    import torch

    from clashsim.pipeline.arguments import model_cache

    if hasattr(os, "sched_getaffinity"):
        cores: int | None = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count()
    gpus = []
    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    memory_gb = None
    if hasattr(os, "sysconf"):
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory_gb = round(memory_bytes / 1e9, 1)
    cache = model_cache()
    models = list(cache.glob("*.safetensors")) if cache.is_dir() else []
    return {
        "system": platform.platform(),
        "cores": cores,
        "threads_of_torch": torch.get_num_threads(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "memory_gb": memory_gb,
        "gpus": gpus,
        "cache": str(cache),
        "cached_models": len(models),
        "CLASHSIM_DATA": os.environ.get("CLASHSIM_DATA"),
    }


def _say(text: str, end: str = " ") -> None:
    """Print a text without ending the line, so that its duration can follow when it is done."""
    print(text, end=end, flush=True)


def _say_nothing(text: str, end: str = " ") -> None:
    """Print nothing."""


def _self_test(say: Say) -> list[dict[str, Any]]:
    """Run the checks; each is named when it begins, and its result follows when it ends."""
    from clashsim.commands.self_test import SelfTest

    say("self-test:", end="\n")
    checks = []
    for check in SelfTest(begin=lambda name: say(f"  {name} ...")):
        checks.append(asdict(check))
        outcome = "pass" if check.passed else "FAIL"
        say(f"{outcome}: {check.found} ({check.seconds:.1f} s)", end="\n")
    return checks


def _describe(extra: Extra) -> dict[str, Any]:
    """Entry of an extra in the JSON output."""
    return asdict(extra) | {"ready": not extra.lacks, "install": extra.install}


def _requirements_by_extra() -> dict[str, list[Requirement]]:
    """The packages that each extra needs beyond those that clashsim always needs."""
    names = metadata.metadata("clashsim").get_all("Provides-Extra") or ()
    requirements: dict[str, list[Requirement]] = {name: [] for name in names}
    for line in metadata.requires("clashsim") or ():
        requirement = Requirement(line)
        if requirement.marker is None or _applies(requirement, ""):
            continue
        for name in requirements:
            if _applies(requirement, name):
                requirements[name].append(requirement)
    return requirements


def _applies(requirement: Requirement, extra: str) -> bool:
    """Whether a requirement with a marker applies with an extra."""
    assert requirement.marker is not None
    return requirement.marker.evaluate({"extra": extra})


def _extra(name: str, requirements: Sequence[Requirement]) -> Extra:
    """Check the packages of an extra."""
    purpose, modules = _EXTRAS.get(name, ("", ()))
    versions: dict[str, str] = {}
    lacks: list[str] = []
    for requirement in requirements:
        version = _version(requirement.name)
        if version is None:
            lacks.append(f"{requirement.name} is not installed")
            continue
        versions[requirement.name] = version
        if not requirement.specifier.contains(version, prereleases=True):
            lacks.append(f"{requirement.name} is {version}, needed is {requirement.specifier}")
    if not lacks:
        problems = [_broken(module) for module in modules]
        lacks = [problem for problem in problems if problem is not None]
    return Extra(name, purpose, versions, tuple(lacks))


def _clashsim() -> dict[str, str]:
    """Versions of clashsim and Python, and where Python is."""
    import clashsim

    return {
        "version": clashsim.__version__,
        "python": platform.python_version(),
        "executable": sys.executable,
    }


def _required_packages() -> dict[str, str | None]:
    """Versions of the packages that clashsim always needs."""
    versions = {}
    for line in metadata.requires("clashsim") or ():
        requirement = Requirement(line)
        if requirement.marker is None or _applies(requirement, ""):
            versions[requirement.name] = _version(requirement.name)
    return versions


def _version(package: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _broken(module: str) -> str | None:
    """Why a module that is installed cannot be used; None where it can."""
    ignored = io.StringIO()  # some modules print a lot when they are imported
    try:
        with contextlib.redirect_stdout(ignored), contextlib.redirect_stderr(ignored):
            importlib.import_module(module)
    except Exception as error:  # compiled packages fail in many ways
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        return f"{module} is installed but does not import ({type(error).__name__}: {reason})"
    return None


def _say_versions(report: dict[str, Any], say: Say) -> None:
    """Print the versions of clashsim and of the packages that it needs."""
    about = report["clashsim"]
    packages = ", ".join(f"{name} {version}" for name, version in report["packages"].items())
    say(f"clashsim {about['version']}, Python {about['python']}; {packages}", end="\n")


def _print_machine(machine: dict[str, Any]) -> None:
    """Print what `machine()` returned."""
    threads = f"{machine['cores']} cores, torch uses {machine['threads_of_torch']} threads"
    if machine["OMP_NUM_THREADS"]:
        threads += f" (OMP_NUM_THREADS={machine['OMP_NUM_THREADS']})"
    gpus = ", ".join(machine["gpus"]) or "none that torch can use, and none is needed"
    print(f"{machine['system']}; {threads}; {machine['memory_gb']} GB of memory; GPU: {gpus}")
    data = machine["CLASHSIM_DATA"] or "CLASHSIM_DATA is not set"
    print(
        f"distilled models are kept in {machine['cache']} ({machine['cached_models']} there); "
        f"public sets: {data}"
    )


def _print_extras(extras: Sequence[dict[str, Any]]) -> None:
    """Print the extras as a table."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Extras", title_justify="left")
    for column in ("extra", "for", "", "packages"):
        table.add_column(column)
    for extra in extras:
        if extra["ready"]:
            state = "ready"
            packages = ", ".join(f"{name} {ver}" for name, ver in extra["versions"].items())
        else:
            state = "missing"
            packages = f"{'; '.join(extra['lacks'])}: {extra['install']}"
        # As text: [viser] is no markup.
        table.add_row(extra["name"], extra["purpose"], state, escape(packages))
    console().print(table)
