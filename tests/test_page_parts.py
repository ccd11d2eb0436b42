"""Sections on confidence, data efficiency, rest poses and data are true to their input."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials
from clashsim.data.checks.findings import finding
from clashsim.data.trial_files import read_trials, write_trials
from clashsim.evaluate.data_efficiency import DataEfficiency
from clashsim.evaluate.rest_poses import RestDisplacements
from clashsim.evaluate.trust_map import TrustMap, circumstances
from clashsim.fit.sample import sample_strikes
from clashsim.report.comparison import Comparison
from clashsim.report.data_efficiency import FittedErrors, efficiency_sentence
from clashsim.report.findings import finding_sentences
from clashsim.report.trust_maps import draw_maps
from test_page import Estimate, Page, inputs, page_text

NAMES = (
    "bearing of the point struck, degrees",
    "angle to the normal, degrees",
    "approach speed, m/s",
)


def trust_map(n: int = 500, turned: float = 0.0) -> TrustMap:
    rng = np.random.default_rng(0)
    bearing = (rng.uniform(-60, 60, n) + turned + 180) % 360 - 180
    axes = dict(
        zip(NAMES, (bearing, rng.uniform(-20, 20, n), rng.uniform(0.2, 0.8, n)), strict=True)
    )
    return TrustMap(
        axes,
        np.where(axes[NAMES[1]] > 0, 0.07, 0.3),
        np.ones(n, bool),
        {k: v[:10] for k, v in axes.items()},
        np.arange(10) > 0,
        1234.0,
    )


def test_confidence_is_shown_and_has_tooltips() -> None:
    page = Page(page_text(**inputs(), trust_map=trust_map(), predictions_per_second=1234.0))
    assert (
        "1 of the 10 impacts fitted lie outside" in page.text
        and "1,200 impacts per second" in page.text
    )
    cells = [a for a in page.of("rect") if "data-t" in a]
    assert (
        {"cell t2", "cell t5"} <= {a["class"] for a in cells} <= {"cell t2", "cell t4", "cell t5"}
    )
    assert (
        sum(int(re.findall(r"median of (\d+)", a["data-l"])[0]) for a in cells) == 2 * 500
    )  # every strike is in one cell of each map
    assert sum(a.get("data-l", "").startswith("fitted impact") for a in page.of("path")) == 2 * 10


def test_a_side_across_half_a_turn_is_drawn_in_one_piece() -> None:
    for turned in (0.0, 180.0, -120.0):
        chart = str(draw_maps(trust_map(turned=turned))[0])
        columns = {float(x) for x in re.findall(r'class="cell[^>]* x="([\d.]+)"', chart)}
        assert 18 <= len(columns) <= 22, turned  # cells fill the width


def test_fewer_impacts() -> None:
    given = inputs()
    rng = np.random.default_rng(0)
    efficiency = DataEfficiency(
        (3, 5), tuple(tuple(abs(rng.normal(0, s, 100)) for _ in range(3)) for s in (0.4, 0.2))
    )
    page = Page(
        page_text(
            **given,
            data_efficiency=efficiency,
            advice="ten more strikes would help: after ten an error of 3 % is expected",
        )
    )
    assert "Ten more strikes would help" in page.text and "MuJoCo, nominal, no impacts" in page.text
    dots = [a for a in page.of("path") if "impacts" in a.get("data-l", "")]
    assert [a["data-l"] for a in dots] == [
        "3 impacts, 3 subsets",
        "5 impacts, 3 subsets",
        "10 impacts",
    ]
    assert efficiency_sentence(efficiency, FittedErrors(10, np.full(4, 0.05))).endswith("to 5.0 %.")


def test_rest_poses_in_millimetres_and_degrees() -> None:
    given = inputs()
    measured = np.random.default_rng(1).normal(0, 0.1, (50, 3))
    predicted = {
        "clashsim": measured + np.array([0.003, 0.004, np.radians(2)]),
        "MuJoCo, nominal": measured + np.array([0.03, 0.04, np.radians(-12)]),
        "MuJoCo, identified by grid search": np.full_like(measured, np.nan),
    }
    displacements = RestDisplacements(np.arange(0, 100, 2), measured, predicted)
    page = Page(
        page_text(
            **given, rest_displacements=displacements, labels=[f"strike {i}" for i in range(100)]
        )
    )
    assert (
        "come to rest 5.0 mm and 2.0° from its prediction (median of 50)" in page.text
        and "50.0 mm" in page.text
        and "12.0°" in page.text
    )
    dots = [a for a in page.of("path") if "displacement in x" in a.get("data-t", "")]
    assert {a["data-i"] for a in dots} == {str(i) for i in range(0, 100, 2)} and all(
        a["data-l"] == f"strike {a['data-i']}" for a in dots
    )


def test_data_slide_and_timing() -> None:
    rows = [{"trial": f"t{i}", "s": "1.00", "impacts": "fitted at 0.10 s"} for i in range(30)]
    page = Page(
        page_text(
            **(inputs() | {"durations": {"base model": 130.0, "judging": 1.25}}),
            trials=rows,
            findings=["dropout, box: lost for 3 rows (trial t1)"],
            slide_estimates=[Estimate("spin", 0.03, 0.02, 0.04, "fitted")],
            slide_units={"spin": "m"},
        )
    )
    for expected in (
        "Findings of the import",
        "dropout, box",
        "18 more",
        "t29",
        "2.2 min",
        "1.2 s",
        "Slide model",
        "0.02 to 0.04",
    ):
        assert expected in page.text
    assert "no problems were found" in Page(page_text(**inputs(), trials=rows)).text


def test_the_headline_uses_a_finer_threshold_if_all_are_within_ten_percent() -> None:
    measured = np.tile([1.0, 0.0, 0.0], (100, 1))
    predicted = {"clashsim": 1.02 * measured, "MuJoCo": 1.07 * measured}
    assert (
        "100 of 100 held-out impacts to within 5 %; MuJoCo: 0."
        in Comparison.of(
            measured, predicted, gyration=0.05, ours="clashsim", baseline=None
        ).headline()
    )


@pytest.mark.parametrize("name", ["square", "ellipse", "puck"])
def test_conditions_of_sampled_strikes_lie_in_their_ranges(name: str) -> None:
    scene = Scene.load(name)
    strikes = sample_strikes(scene, 64, np.random.default_rng(0))
    contact, before = advance_to_contact(scene, strikes.before[strikes.contact.touching])
    found = circumstances(scene, before, contact)
    assert set(found) == set(NAMES)
    assert (np.abs(found[NAMES[1]]) < 90).all() and np.isfinite(
        np.array(list(found.values()))
    ).all()
    if name == "square":
        low, high = scene.strikes.speed
        assert (found[NAMES[2]] > low - 1e-6).all() and (found[NAMES[2]] < high + 1e-6).all()
        assert (np.abs(found[NAMES[1]]) <= np.degrees(scene.strikes.deflection[1]) + 1e-6).all()


def test_findings_are_stored_with_the_trials(tmp_path: Path) -> None:
    trials = Trials(
        (Trial("a", np.arange(3.0), {"box": np.zeros((3, 7))}),), notes=("dropout, box: lost",)
    )
    write_trials(tmp_path / "t.safetensors", trials)
    assert (
        read_trials(tmp_path / "t.safetensors").notes == trials[:1].notes == ("dropout, box: lost",)
    )
    wrong = [
        finding("dropout", "warn", "lost for 1 row", trial=name, body="box", rows=[1])
        for name in ("a", "b")
    ]
    assert finding_sentences(wrong) == ("dropout, box: lost for 1 row (trial a, and 1 more)",)
