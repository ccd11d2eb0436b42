"""What all tests share: slow work is done once per worker, and the longest modules start first."""

from __future__ import annotations

import hashlib
import os
import resource

import numpy as np
import pytest

# The modules that take longest, longest first. A module runs on one worker of pytest-xdist (`--dist
# loadfile`), so that its fixtures are made once; with the long ones first, no worker ends long
# after the others.
LONGEST = (
    "test_snippets",
    "test_scale",
    "test_cli",
    "test_mjx_sim",
    "test_cli_logs",
    "test_augmented",
    "test_view_browser",
    "test_docs",
    "test_cli_plan",
    "test_pipeline",
    "test_contact_solver",
    "test_user_scenes",
    "test_several_pairs",
    "test_hybrid",
    "test_mjx_striker",
    "test_lab",
    "test_fit",
    "test_segment",
    "test_advise",
    "test_view",
    "test_loop",
    "test_site",
)
STRIKE_TABLES: dict[bytes, object] = {}


def pytest_configure(config: pytest.Config) -> None:
    # Workers inherit this: a program that one of them has compiled is read by the other, and by the
    # next session.
    flags = hashlib.sha256(os.environ.get("XLA_FLAGS", "").encode()).hexdigest()[:8]
    folder = config.rootpath / "build" / "jax-cache" / flags
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))  # the sort is stable


@pytest.fixture(autouse=True)
def one_strike_table_per_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the strike table of a calibrated run once.

    It takes seconds, and many tests plan with the same run.
    """
    from clashsim.fit import calibrated_run
    from clashsim.sim.hybrid.strike_table import strike_table

    def kept(hybrid: object, theta: np.ndarray | None = None) -> object:
        key = _identity(hybrid, theta)
        if key not in STRIKE_TABLES:
            STRIKE_TABLES[key] = strike_table(hybrid, theta)
        return STRIKE_TABLES[key]

    monkeypatch.setattr(calibrated_run, "strike_table", kept)


def _identity(hybrid, theta: np.ndarray | None) -> bytes:
    """A hash of what a strike table depends on, the predictions for a few strikes among it."""
    from clashsim.fit.sample import sample_strikes

    probes = sample_strikes(hybrid.scene, 8, np.random.default_rng(0)).before
    outcome = hybrid.outcome(probes) if theta is None else hybrid.outcome(probes, theta)
    slide = None if hybrid.slide_model is None else repr(hybrid.slide_model.content())
    text = f"{hybrid.scene.xml} {hybrid.scene.strikes} {slide}"
    return hashlib.sha256(text.encode() + np.asarray(outcome).tobytes()).digest()


def _cpu_seconds() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Note the CPU time of each test, fixtures included, for `--junitxml`.

    Unlike the duration, it does not depend on load.
    """
    before = _cpu_seconds()
    item.user_properties.append(("cpu_seconds_before", before))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if call.when == "teardown":
        before = dict(item.user_properties).get("cpu_seconds_before", 0.0)
        item.user_properties[:] = [("cpu_seconds", round(_cpu_seconds() - before, 2))]
        report.user_properties = list(item.user_properties)
    return report


@pytest.fixture
def quick_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of calibrated runs with the same sections, from fewer strikes and subsets."""
    from clashsim.evaluate import data_efficiency, trust_map
    from clashsim.pipeline import advice

    monkeypatch.setattr(trust_map, "_NUM_STRIKES", 64)
    monkeypatch.setattr(advice, "_CANDIDATES", 32)
    monkeypatch.setattr(data_efficiency, "_NUM_SUBSETS", 1)
    monkeypatch.setattr(data_efficiency, "_SIZES", (3, 5))
