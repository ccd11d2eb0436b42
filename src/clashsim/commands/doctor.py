"""`clashsim doctor`."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from packaging.requirements import Requirement

from clashsim.commands.shared import cache, console
from clashsim.core.errors import ClashError

if TYPE_CHECKING:
    from clashsim.cli import Doctor

# What each extra is for, and the modules that must be importable for it.
_EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "viser": ("clashsim view", ("viser",)),
    "io": (
        "logs in HDF5, Parquet, C3D, ROS bags, MCAP",
        ("h5py", "pyarrow", "ezc3d", "rosbags", "mcap", "lz4", "zstandard"),
    ),
    "lab": ("the virtual laboratory: record, execute, evaluate", ("pydrake",)),
    "rl": ("train, loop, Gymnasium environments", ("gymnasium", "stable_baselines3")),
    "mjx": ("MjxSim, AugmentedSim", ("jax", "mujoco.mjx")),
    "graph": ("GraphSim", ("coal",)),
    "scale": ("--on ray, shards on any file system", ("ray", "fsspec")),
    "sysid": ("the baseline mujoco.sysid", ("mujoco.sysid",)),
    "dev": ("the tests", ("pytest",)),
    "docs": ("this documentation as a site", ("mkdocs",)),
}


class Say(Protocol):
    """Prints a text, followed by `end`."""

    def __call__(self, text: str, end: str = " ") -> None: ...


@dataclass(frozen=True)
class Extra:
    """An extra: what it is for, versions of its packages, and what is missing, too old or broken."""

    name: str
    purpose: str
    versions: dict[str, str]
    lacks: tuple[str, ...]

    @property
    def install(self) -> str:
        """What gives it."""
        return f"pip install 'clashsim[{self.name}]'"


def run(verb: Doctor) -> None:
    """`clashsim doctor`."""
    say = _silent if verb.json else _say
    about: dict[str, Any] = {"clashsim": _clashsim(), "packages": _core()}
    _say_about(about, say)
    about["extras"] = _described(extras(say))
    about["machine"] = machine()
    if not verb.json:
        _print(about)
    checks = [] if verb.quick else _self_test(say)
    failed = [str(c["name"]) for c in checks if not c["passed"]]
    if verb.json:
        print(json.dumps(about | {"self_test": checks, "healthy": not failed}, indent=1))
    elif checks and not failed:
        print("all is well")
    if failed:
        raise ClashError(f"the self-test failed: {'; '.join(failed)}")


def _say(text: str, end: str = " ") -> None:
    """Print what is begun without ending the line: its time follows when it is done."""
    print(text, end=end, flush=True)


def _silent(text: str, end: str = " ") -> None:
    """Print nothing."""


def _self_test(say: Say) -> list[dict[str, Any]]:
    """Run the checks; each is named when it begins, and what it found follows when it ends."""
    from clashsim.commands.self_test import SelfTest

    say("self-test:", end="\n")
    checks = []
    for check in SelfTest(begin=lambda name: say(f"  {name} ...")):
        checks.append(asdict(check))
        say(
            f"{'pass' if check.passed else 'FAIL'}: {check.found} ({check.seconds:.1f} s)", end="\n"
        )
    return checks


def _described(found: list[Extra]) -> list[dict[str, Any]]:
    return [asdict(e) | {"ready": not e.lacks, "install": e.install} for e in found]


def extras(say: Say = _silent) -> list[Extra]:
    """The extras of this installation, those that are ready first.

    Args:
        say: Prints which extra is imported and how long that took.
    """
    wanted: dict[str, list[Requirement]] = {
        name: [] for name in metadata.metadata("clashsim").get_all("Provides-Extra") or ()
    }
    for line in metadata.requires("clashsim") or ():
        need = Requirement(line)
        for name, needs in wanted.items():
            if (
                need.marker is not None
                and need.marker.evaluate({"extra": name})
                and not need.marker.evaluate({"extra": ""})
            ):
                needs.append(need)
    say("importing the packages of the extras, with the seconds each takes:", end="\n ")
    found = []
    for name, needs in wanted.items():
        start = time.perf_counter()
        say(f" {name}")
        found.append(_extra(name, needs))
        say(f"{time.perf_counter() - start:.1f}", end="")
    say("", end="\n")
    return sorted(found, key=lambda e: (bool(e.lacks), e.name))


def _extra(name: str, needs: list[Requirement]) -> Extra:
    purpose, modules = _EXTRAS.get(name, ("", ()))
    versions, lacks = {}, []
    for need in needs:
        version = _version(need.name)
        if version is None:
            lacks.append(f"{need.name} is not installed")
        else:
            versions[need.name] = version
            if not need.specifier.contains(version, prereleases=True):
                lacks.append(f"{need.name} is {version}, needed is {need.specifier}")
    if not lacks:
        lacks = [why for module in modules if (why := _broken(module))]
    return Extra(name, purpose, versions, tuple(lacks))


def machine() -> dict[str, Any]:
    """Cores, threads, memory, GPU and folders, as clashsim will use them."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        if torch.cuda.is_available()
        else []
    )
    kept = cache()
    return {
        "system": platform.platform(),
        "cores": cores,
        "threads_of_torch": torch.get_num_threads(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
        if hasattr(os, "sysconf")
        else None,
        "gpus": gpus,
        "cache": str(kept),
        "cached_models": len(list(kept.glob("*.safetensors"))) if kept.is_dir() else 0,
        "CLASHSIM_DATA": os.environ.get("CLASHSIM_DATA"),
    }


def _clashsim() -> dict[str, str]:
    import clashsim

    return {
        "version": clashsim.__version__,
        "python": platform.python_version(),
        "executable": sys.executable,
    }


def _core() -> dict[str, str | None]:
    """Versions of what clashsim always needs."""
    needs = [Requirement(line) for line in metadata.requires("clashsim") or ()]
    return {
        n.name: _version(n.name)
        for n in needs
        if n.marker is None or n.marker.evaluate({"extra": ""})
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _broken(module: str) -> str | None:
    """Why a module that is installed cannot be used."""
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):  # some have much to say
            importlib.import_module(module)
    except Exception as error:  # compiled packages fail in many ways
        return f"{module} is installed but does not import ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
    return None


def _say_about(found: dict[str, Any], say: Say) -> None:
    about = found["clashsim"]
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    say(f"clashsim {about['version']}, Python {about['python']}; {packages}", end="\n")


def _print(found: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    here = found["machine"]
    threads = f"{here['cores']} cores, torch uses {here['threads_of_torch']} threads" + (
        f" (OMP_NUM_THREADS={here['OMP_NUM_THREADS']})" if here["OMP_NUM_THREADS"] else ""
    )
    print(
        f"{here['system']}; {threads}; {here['memory_gb']} GB of memory; GPU: {', '.join(here['gpus']) or 'none that torch can use, and none is needed'}"
    )
    print(
        f"distilled models are kept in {here['cache']} ({here['cached_models']} there); public sets: {here['CLASHSIM_DATA'] or 'CLASHSIM_DATA is not set'}"
    )
    table = Table(title="Extras", title_justify="left")
    for column in ("extra", "for", "", "packages"):
        table.add_column(column)
    for e in found["extras"]:
        packages = ", ".join(f"{k} {v}" for k, v in e["versions"].items())
        rest = packages if e["ready"] else f"{'; '.join(e['lacks'])}: {e['install']}"
        table.add_row(
            e["name"], e["purpose"], "ready" if e["ready"] else "missing", escape(rest)
        )  # [viser] is no markup
    console().print(table)
