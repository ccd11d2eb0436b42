"""Pictures and tables of trials."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import clashsim
from clashsim import cli
from clashsim.core.contact_frame import contact_frame
from clashsim.core.contact_geometry import bring_into_contact
from clashsim.core.errors import DataError
from clashsim.core.impacts import Impacts, MotionBefore
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials, quaternion
from clashsim.data.impact_files import write_impacts
from clashsim.data.segmentation.segment import segment
from clashsim.report.trial_pictures import draw_trials, trials_table


@pytest.fixture(scope="module")
def trials() -> Trials:
    rng, t = np.random.default_rng(0), np.arange(0, 1.2, 1 / 200)
    gone = np.clip(t - 0.4, 0, 0.2)
    x = 0.6 * gone - 1.5 * gone**2
    made = []
    for name, travel in (("one <b>", x), ("still", 0 * x)):
        noise = 3e-4 * rng.normal(size=(len(t), 3))
        position = np.column_stack([travel, 0 * x, 0 * x]) + noise
        pose = np.column_stack([position, quaternion(0.3 * travel)])
        pose[50:53] = np.nan
        made.append(
            Trial(name, t, {"block": pose, "tool": np.where(np.isfinite(pose), pose, 0.0) + 0.1})
        )
    return Trials(tuple(made))


def test_table_says_what_was_seen_and_found(trials: Trials) -> None:
    out = segment(trials, struck="block")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(trials_table(trials, out.found))
    text = console.export_text()
    assert (
        "2 trials, 1 impacts" in text
        and "0.40" in text
        and "none" in text
        and "99 %" in text
        and "200" in text
    )


@pytest.mark.parametrize("name", ["look.png", "look.svg", "look.html"])
def test_pictures(trials: Trials, tmp_path: Path, name: str) -> None:
    out = segment(trials, struck="block")
    draw_trials(tmp_path / name, trials, out.found, struck="block", notes=out.notes)
    content = (tmp_path / name).read_bytes()
    assert len(content) > 10_000
    if name.endswith("html"):
        text = content.decode()
        assert (
            text.count("data:image/png;base64,") == 2
            and "one &lt;b&gt;" in text
            and "no impact found in trial &#x27;still&#x27;" in text
        )
        assert "http" not in text  # nothing is fetched


def test_nothing_found_and_bodies_never_seen_are_drawn_all_the_same(tmp_path: Path) -> None:
    t = np.arange(0, 1, 0.01)
    draw_trials(tmp_path / "a.png", [Trial("dark", t, {"block": np.full((100, 7), np.nan)})])
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_bad_input_is_one_sentence(trials: Trials, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.html"):
        draw_trials(tmp_path / "a.docx", trials)
    with pytest.raises(DataError, match="no trials"):
        draw_trials(tmp_path / "a.png", [])
    with pytest.raises(DataError, match="no body"):
        draw_trials(tmp_path / "a.png", trials, struck="blok")


def test_a_table_of_impacts_is_tabulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene.load("cube")
    rows = clashsim.sample(scene, 5, seed=3).before
    _, before = bring_into_contact(scene, rows)
    motion = MotionBefore.of(before)
    after = motion.struck.twist.copy()
    after[:, 2] = 0.4
    write_impacts(tmp_path / "five.csv", Impacts(False, before, after))
    path = str(tmp_path / "five.csv")
    assert cli.main(["inspect", path, "--scene", "cube"]) == 0
    printed = capsys.readouterr().out
    contact = contact_frame(scene, Impacts(False, before, after)).contact
    closing = -motion.struck.velocity_at(contact.point)[:, 2]
    assert "5 impacts" in printed
    for speed in closing:
        assert f"{speed:.3f}" in printed
    for arguments, words in (
        ([], "--scene"),
        (["--scene", "cube", "-o", str(tmp_path / "a.png")], "pictures are drawn of trials"),
        (["--scene", "puck"], "spatial but scene 'puck' is planar"),
        (["--scene", "cube", "--settings", str(tmp_path / "a.toml")], "bodies in space"),
    ):
        assert cli.main(["inspect", path, *arguments]) == 2
        assert words in capsys.readouterr().err
    assert not list(tmp_path.glob("a.*"))


def test_settings_are_proposed_from_a_table_of_impacts(tmp_path: Path) -> None:
    impacts = clashsim.sample(Scene.load("semi_cylinder"), 30, seed=0)
    write_impacts(tmp_path / "planar.csv", replace(impacts, theta=None))
    out = tmp_path / "mine.toml"
    command = ["inspect", str(tmp_path / "planar.csv"), "--scene", "semi_cylinder"]
    assert cli.main([*command, "--settings", str(out)]) == 0
    assert 'struck = "block"' in out.read_text() and "[strikes]" in out.read_text()
