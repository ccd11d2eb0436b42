"""The report page is well-formed, self-contained, safe and true to its input."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clashsim.core.errors import DataError
from clashsim.core.params import Param
from clashsim.evaluate.metrics import accuracy, relative_error
from clashsim.report.chart_frame import ticks
from clashsim.report.comparison import Comparison, coverage_sentence
from clashsim.report.content import ReportContent
from clashsim.report.markup import Markup, tag
from clashsim.report.page import report, write_report

VOID = {"meta"}
HOSTILE = (
    "</script><script>alert('x')</script><img src=x onerror=\"alert(1)\">"
    "$body ${allowed} {data} %s & '"
)
GYRATION = 0.05


@dataclass(frozen=True)
class Estimate:
    name: str
    value: float
    low: float
    high: float
    status: str


class Page(HTMLParser):
    """Elements and text of a page; fails where tags are not balanced."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of {tag} is given twice"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += " " + data.replace("\u00a0", " ")

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def inputs(n: int = 100, k: int = 3, seed: int = 0) -> dict[str, Any]:
    """A made-up calibration whose method errs less than its baseline."""
    rng = np.random.default_rng(seed)
    is_linear = np.arange(k) < (2 if k == 3 else 3)
    measured = rng.normal(size=(n, k)) * np.where(is_linear, 0.5, 5.0)
    weighted = measured * np.where(is_linear, 1.0, GYRATION)
    size = np.linalg.norm(weighted, axis=1, keepdims=True)
    relative_unit = size * np.where(is_linear, 1.0, 1 / GYRATION)  # an error of 100 %
    std = 0.05 * relative_unit
    predicted = {
        "MuJoCo, nominal": measured + 0.3 * relative_unit * rng.normal(size=(n, k)),
        "clashsim": measured + std * rng.normal(size=(n, k)),
        "MuJoCo, identified by grid search": (
            measured + 0.1 * relative_unit * rng.normal(size=(n, k))
        ),
    }
    params = (
        Param("friction", "pair/strike/friction[0:2]", 0.3, 0.05, 1.0),
        Param("stiffness", "pair/strike/solref[0]", 1e5, 1e4, 1e6, "1/s^2", "log"),
        Param("damping", "pair/strike/solref[1]", 200.0, 10.0, 2000.0, "1/s", "log"),
        Param("mass", "body/block/mass", 0.4, 0.1, 1.0, "kg"),
    )
    estimates = (
        Estimate("friction", 0.42, 0.37, 0.48, "fitted"),
        Estimate("stiffness", 1e4, 1e4, 2e4, "at bound"),
        Estimate("damping", 215.0, 20.0, 1800.0, "unidentifiable"),
        Estimate("mass", 0.41, 0.41, 0.41, "known"),
    )
    return {
        "title": "semi_cylinder",
        "data": "resin.csv",
        "measured": measured,
        "predicted": predicted,
        "gyration": GYRATION,
        "num_fitted": 10,
        "half_widths": np.stack([std, 1.645 * std]),
        "conditions": {"approach speed, m/s": rng.uniform(0.2, 0.8, n)},
        "params": params,
        "estimates": estimates,
        "restitution": {
            "speeds": [0.2, 0.5, 0.8],
            "nominal": [0.1, 0.2, 0.25],
            "identified": [0.71, 0.69, 0.66],
        },
        "notes": ["trial 3: no impact"],
        "durations": {"calibrate": 12.34},
        "versions": {"clashsim": "0.1.0", "mujoco": "4.0.0"},
    }


def page_text(**fields: Any) -> str:
    """The page with the given fields of its content."""
    return report(ReportContent(**fields))


def test_says_what_was_computed() -> None:
    given = inputs()
    page = Page(page_text(**given))
    errors = {
        name: relative_error(p, given["measured"], GYRATION)
        for name, p in given["predicted"].items()
    }
    ours = errors["clashsim"]
    baseline = errors["MuJoCo, identified by grid search"]
    headline = (
        f"clashsim predicts {np.sum(ours < 0.1)} of 100 held-out impacts to within 10 %; "
        f"MuJoCo, identified by grid search: {np.sum(baseline < 0.1)}."
    )
    assert headline in page.text
    assert f"Its median error is {100 * np.median(ours):.1f} % of the motion" in page.text
    gap = given["predicted"]["clashsim"] - given["measured"]
    speed = float(f"{np.median(np.linalg.norm(gap[:, :2], axis=1)):.2g}")
    assert f"{speed:g} m/s and" in page.text and f"or {100 * speed:g} mm and" in page.text
    assert f"closer of the two in {np.sum(ours < baseline)} of 100." in page.text
    for error in errors.values():
        for alpha in (0.1, 0.2):
            assert f" {100 * accuracy(error, alpha):.0f} %" in page.text
        assert f" {100 * np.median(error):.1f} %" in page.text
    for expected in (
        "0.37 to 0.48",
        "10000 to 20000",
        "1e6",
        "1/s²",
        "fitted",
        "at bound",
        "unidentifiable",
        "known",
        "0.71",
        "12.3 s",
        "mujoco 4.0.0",
        "resin.csv",
        "trial 3",
    ):
        assert expected in page.text
    for share in (np.abs(gap) <= given["half_widths"][0]).mean(0):
        assert f" {100 * share:.0f} %" in page.text
    assert "recorded" in page.text and "stand-in" not in page.text


def test_every_impact_is_drawn_and_named_for_every_output_and_method() -> None:
    given = inputs(20)
    page = Page(page_text(**given, labels=[f"strike {i}" for i in range(20)]))
    dots = [a for a in page.of("path") if "data-i" in a]
    assert len(dots) == 20 * 3 * (3 + 1)  # three outputs and the errors over speed
    assert {a["data-l"] for a in dots} == {f"strike {i}" for i in range(20)}
    value = given["predicted"]["clashsim"][7, 2]
    assert any(a["data-i"] == "7" and f"clashsim: w {value:.3g} rad/s" in a["data-t"] for a in dots)


def test_the_curve_holds_the_accuracies() -> None:
    given = inputs()
    curve = next(
        json.loads(a["data-curve"]) for a in Page(page_text(**given)).of("svg") if "data-curve" in a
    )
    error = relative_error(given["predicted"]["clashsim"], given["measured"], GYRATION)
    assert (
        curve["series"][0]["name"] == "clashsim"
        and curve["alpha"][0] == 0
        and curve["alpha"][-1] == 0.5
    )
    assert curve["series"][0]["y"][curve["alpha"].index(0.1)] == pytest.approx(accuracy(error, 0.1))


def test_needs_no_network() -> None:
    text = page_text(**inputs())
    assert (
        not re.search(r"https?:|//[a-z]|@import|url\(", text.split("<body>")[0])
        and "http" not in text.split("<body>")[1]
    )
    page = Page(text)
    assert not any(
        name in attributes
        for _, attributes in page.elements
        for name in ("src", "href", "srcset", "action")
    )
    assert not {"link", "iframe", "object", "embed", "img", "base"} & {
        name for name, _ in page.elements
    }


@pytest.mark.parametrize("source", ["real", "lab", HOSTILE])
def test_hostile_names_stay_text(source: str) -> None:
    given = inputs(8)
    given["predicted"] = {
        name if name == "clashsim" else HOSTILE + name: p for name, p in given["predicted"].items()
    }
    given["params"] = tuple(
        replace(p, name=HOSTILE, target=HOSTILE, unit=HOSTILE) for p in given["params"]
    )
    given["estimates"] = tuple(replace(e, status=HOSTILE) for e in given["estimates"])
    given |= {
        "title": HOSTILE,
        "data": HOSTILE,
        "notes": [HOSTILE] * 30,
        "labels": [HOSTILE] * 8,
        "versions": {HOSTILE: HOSTILE},
        "durations": {HOSTILE: 1.0},
        "conditions": {HOSTILE: np.arange(8.0)},
        "test_description": HOSTILE,
        "source": source,
    }
    text = page_text(**given)
    page, plain = Page(text), Page(page_text(**inputs(8)))
    assert len(page.of("script")) == 1 and not page.of("img")
    assert {name for name, _ in page.elements} == {name for name, _ in plain.elements} | {
        "details",
        "summary",
    }
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.text.count("alert('x')") >= 30 + 4  # shown, as what it is
    assert text.count("<script>") == 1 and "<img" not in text


def test_the_only_script_is_the_one_that_the_page_allows() -> None:
    text = page_text(**inputs(8))
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = next(
        a["content"]
        for a in Page(text).of("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_same_input_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(tmp_path / f"{name}.html", ReportContent(**inputs()))
    assert (
        (tmp_path / "a.html").read_bytes()
        == (tmp_path / "b.html").read_bytes()
        == page_text(**inputs()).encode()
    )


@pytest.mark.parametrize(
    ("n", "k", "most"), [(100, 3, 400_000), (20_000, 3, 1_500_000), (20_000, 6, 2_500_000)]
)
def test_stays_small(n: int, k: int, most: int) -> None:
    text = page_text(**inputs(n, k))
    assert len(text.encode()) < most
    assert ("500 of 20000 impacts are drawn" in text) == (n == 20_000)


def test_speaks_of_a_stand_in_as_such() -> None:
    assert (
        "the virtual laboratory, a stand-in for reality: resin.csv"
        in Page(page_text(**inputs(8), source="lab")).text
    )


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_impacts_make_a_page(n: int) -> None:
    page = Page(page_text(**inputs(n)))
    assert ("No impacts were held out" in page.text) == (n == 0)
    assert "Parameters" in page.text


def test_methods_without_outcomes_count_as_wrong() -> None:
    given = inputs(10)
    given["predicted"]["MuJoCo, nominal"][:4] = np.nan
    assert (
        "MuJoCo, nominal predicted no outcome for 4, which count as wrong."
        in Page(page_text(**given)).text
    )
    given["predicted"]["clashsim"][:] = np.nan
    page = Page(page_text(**given))
    assert "clashsim predicts no outcome for most of them." in page.text and "nan" not in page.text


def test_bare_minimum_and_identical_values() -> None:
    still = np.tile([0.3, 0.0, 0.0], (4, 1))
    page = Page(
        page_text(
            title="t",
            data="d",
            measured=still,
            predicted={"clashsim": still},
            gyration=GYRATION,
            num_fitted=3,
        )
    )
    assert "clashsim predicts 4 of 4 held-out impacts to within 10 %." in page.text


def test_says_when_it_does_worse_and_when_it_cannot_tell() -> None:
    given = inputs()
    names = {"ours": "MuJoCo, nominal", "baseline": "clashsim"}
    assert "so it is worse here" in Page(page_text(**given, **names)).text
    error = given["predicted"]["clashsim"] - given["measured"]
    better_or_worse = np.where(np.arange(100) % 2, 0.9, 1.1)
    given["predicted"]["other"] = given["measured"] + error * better_or_worse[:, None]
    assert "which is not significant" in Page(page_text(**given, baseline="other")).text


def test_sentence_on_the_coverage() -> None:
    assert "as large as predicted" in coverage_sentence(np.array([0.68, 0.90]), 100)
    assert "overconfident" in coverage_sentence(np.array([0.4, 0.7]), 100)
    assert "too cautious" in coverage_sentence(np.array([0.9, 0.99]), 100)
    assert "as large as predicted" in coverage_sentence(np.array([0.5, 0.9]), 5)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ours": "clashsin"}, "clashsim"),
        ({"half_widths": np.ones((2, 5, 3))}, "half_widths"),
        ({"labels": ["a"]}, "labels"),
        ({"estimates": ()}, "one estimate for each"),
        ({"measured": np.ones((100, 4))}, "measured"),
        ({"predicted": {"clashsim": np.ones((3, 3))}}, "shape"),
        ({"conditions": {"speed": np.ones(3)}}, "speed"),
    ],
)
def test_refuses_what_does_not_fit_together(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        page_text(**(inputs() | change))


def test_the_default_baseline_is_the_best_mujoco_row() -> None:
    measured = np.tile([1.0, 0.0, 0.0], (100, 1))
    predicted = {
        "clashsim": 1.01 * measured,
        "network without pre-training": 1.02 * measured,
        "MuJoCo, grid search": 1.2 * measured,
        "MuJoCo, identified": 1.05 * measured,
    }
    for names in (list(predicted), ["clashsim", "network without pre-training"]):
        given = {name: predicted[name] for name in names}
        compared = Comparison.of(measured, given, gyration=GYRATION, ours="clashsim", baseline=None)
        mujoco = "MuJoCo, identified" in names
        best = "MuJoCo, identified" if mujoco else "network without pre-training"
        assert compared.baseline == best


def test_interval_of_a_share() -> None:
    given = inputs()
    found = Comparison.of(
        given["measured"], given["predicted"], gyration=GYRATION, ours="clashsim", baseline=None
    )
    assert (
        list(found.errors)[:2]
        == ["clashsim", "MuJoCo, identified by grid search"]
        == [found.ours, found.baseline]
    )
    low, high = found.interval(0.5)
    assert low == pytest.approx(0.419, abs=1e-3) and high == pytest.approx(0.581, abs=1e-3)
    assert found.interval(1.0)[1] == 1.0 and found.interval(0.0)[0] == 0.0


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    rng = np.random.default_rng(0)
    for _ in range(200):
        low = rng.normal() * 10 ** rng.uniform(-4, 4)
        high = low + 10 ** rng.uniform(-3, 4)
        found = ticks(low, high)
        assert (
            2 <= len(found) <= 7
            and low - 1e-6 * (high - low) <= found[0]
            and found[-1] <= high + 1e-6 * (high - low)
        )


def test_markup_escapes_all_but_itself() -> None:
    assert (
        tag(
            "b",
            "<i>",
            Markup("<i></i>"),
            None,
            ["&", 3],
            title='"',
            data_i=1,
            class_="c",
            width=1.25,
            role=None,
        )
        == '<b title="&quot;" data-i="1" class="c" width="1.2">&lt;i&gt;<i></i>&amp;3</b>'
    )
