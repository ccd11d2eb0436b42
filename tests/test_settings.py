"""Settings proposed from recorded impacts: they load and hold what was recorded.

Impacts outside of a scene's ranges are reported at once.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from clashsim import cli, lab
from clashsim.core.contact_geometry import advance_to_contact
from clashsim.core.errors import SceneError
from clashsim.core.impacts import Impacts
from clashsim.core.scene import Scene
from clashsim.core.strike_geometry import before_from_strikes, strikes_from_before
from clashsim.data.trial_files import write_trials
from clashsim.fit.sample import sample_strikes
from clashsim.fit.settings import _arc, outside_strike_ranges, propose_settings, ranges

SCENES = Path(__file__).parent.parent / "src" / "clashsim" / "scenes"


def struck(scene: Scene, n: int = 20, **ranges: tuple[float, float]) -> Impacts:
    rng = np.random.default_rng(0)
    drawn = {"speed": (0.3, 0.6), "point": (0.4, 2.6), "deflection": (-0.2, 0.2)} | ranges
    before, _ = before_from_strikes(scene, {name: rng.uniform(*r, n) for name, r in drawn.items()})
    return Impacts(True, before, np.zeros((n, 3)))


def test_strikes_come_back_from_the_motion_that_they_give() -> None:
    scene = Scene.load("semi_cylinder")
    rng = np.random.default_rng(0)
    given = {
        "speed": rng.uniform(0.2, 0.8, 50),
        "point": rng.uniform(0.3, 2.8, 50),
        "deflection": rng.uniform(-0.25, 0.25, 50),
    }
    before, contact = before_from_strikes(scene, given)
    found = strikes_from_before(scene, before, contact)
    for name, value in given.items():
        assert np.allclose(found[name], value, atol=1e-6), name
    assert np.allclose(found["turn"], 0, atol=1e-6)


@pytest.mark.parametrize("name", ["semi_cylinder", "puck", "ellipse"])
def test_a_proposal_loads_beside_the_scene_and_holds_the_impacts(tmp_path: Path, name: str) -> None:
    scene = Scene.load(name)
    strikes = sample_strikes(scene, 20, np.random.default_rng(0))
    before = strikes.before[strikes.contact.touching]
    impacts = Impacts(True, advance_to_contact(scene, before)[1], np.zeros((len(before), 3)))
    shutil.copy(SCENES / f"{name}.xml", tmp_path / "mine.xml")
    (tmp_path / "mine.toml").write_text(propose_settings(scene, impacts))
    mine = Scene.load(tmp_path / "mine.xml")
    assert (
        mine.struck == scene.struck
        and mine.striker == scene.striker
        and len(mine.slots) == len(mine.params)
    )
    assert outside_strike_ranges(mine, impacts) is None
    assert {"friction", "stiffness", "damping", "tangential_stiffness"} <= {
        p.name for p in mine.params
    }


def test_impacts_outside_the_ranges_of_strikes_are_reported(tmp_path: Path) -> None:
    scene = Scene.load("semi_cylinder")
    assert outside_strike_ranges(scene, struck(scene)) is None
    report = outside_strike_ranges(scene, struck(scene, deflection=(-0.7, 0.7), speed=(0.3, 1.6)))
    assert report is not None
    for words in (
        "of 20 impacts lie outside",
        "deflection",
        "speed",
        "--settings semi_cylinder.toml",
    ):
        assert words in report


def test_the_contact_is_scaled_to_the_time_step(tmp_path: Path) -> None:
    xml = (SCENES / "semi_cylinder.xml").read_text()
    (tmp_path / "slow.xml").write_text(xml.replace('timestep="0.0002"', 'timestep="0.001"'))
    slow = Scene.load(tmp_path / "slow.xml", struck="block", striker="striker", ground="table")
    text = propose_settings(slow, struck(slow))
    assert "nominal = 250000" in text and "nominal = 1e+06" in propose_settings(
        Scene.load("semi_cylinder"), struck(slow)
    )


def test_arcs() -> None:
    across_pi = _arc(np.array([3.0, -3.0, 3.1]), 0.1)
    below = np.allclose(across_pi, (2.9 - 2 * np.pi, -2.9))
    above = np.allclose(across_pi, (2.9, 2 * np.pi - 2.9))
    assert below or above
    assert _arc(np.linspace(-np.pi, np.pi, 30), 0.1) == (-np.pi, np.pi)
    low, high = ranges(Scene.load("semi_cylinder"), struck(Scene.load("semi_cylinder")))["point"]
    assert 0.1 < low < 0.4 and 2.6 < high < 2.9


def test_bodies_in_space_are_refused() -> None:
    with pytest.raises(SceneError, match="by hand"):
        propose_settings(
            Scene.load("semi_cylinder"), Impacts(False, np.zeros((1, 26)), np.zeros((1, 6)))
        )


def test_settings_are_proposed_on_the_command_line_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(SCENES / "semi_cylinder.xml", "mine.xml")
    write_trials("t.safetensors", lab.recorded("semi_cylinder", "resin", "high")[:4])
    names = ["--struck", "block", "--striker", "striker", "--ground", "table"]
    command = ["inspect", "t.safetensors", "--scene", "mine.xml", *names, "--settings", "mine.toml"]
    assert (
        cli.main(command) == 0
        and "proposed settings written to mine.toml: look" in capsys.readouterr().out
    )
    assert Scene.load("mine.xml").ground == "table"
    assert cli.main(command) == 2 and "already exists" in capsys.readouterr().err
    assert (
        cli.main(["inspect", "t.safetensors", "--settings", "b.toml"]) == 2
        and "--scene" in capsys.readouterr().err
    )
    # Names of geoms are taken although the scene has settings by now: the same command is given
    # again.
    text = (
        Path("mine.xml")
        .read_text()
        .replace('geom name="block"', 'geom name="shell"')
        .replace('geom1="block"', 'geom1="shell"')
    )
    Path("mine.xml").write_text(text)
    Path("mine.toml").write_text(
        Path("mine.toml").read_text().replace('struck = "block"', 'struck = "shell"')
    )
    assert (
        cli.main(
            [
                "inspect",
                "t.safetensors",
                "--scene",
                "mine.xml",
                "--struck",
                "shell",
                "--settings",
                "other.toml",
            ]
        )
        == 0
    )
    assert "reads them from mine.toml beside mine.xml" in capsys.readouterr().out


def test_a_mapping_beside_the_scene_is_not_its_settings(tmp_path: Path) -> None:
    shutil.copy(SCENES / "puck.xml", tmp_path / "mine.xml")
    (tmp_path / "mine.toml").write_text('[[logs]]\ntime = "t"\n')
    with pytest.raises(SceneError, match="give the mapping another name"):
        Scene.load(tmp_path / "mine.xml")
