"""The public sets: read as recorded, consistent with mechanics, and refusing damaged files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from clashsim.core.contact_frame import contact_frame
from clashsim.core.errors import DataError
from clashsim.core.scene import Scene
from clashsim.data import datasets

FILES = (
    "mit_ellipse/data_ellipse.mat",
    "mit_ellipse/v_models.mat",
    "lasa_strikes/hits.npz",
    "tud_puck/puck_traj.npz",
    "contactnets_cube/tosses_processed.zip",
)
needs_data = pytest.mark.skipif(
    not os.environ.get(datasets.DATA_ROOT_VARIABLE),
    reason=f"set {datasets.DATA_ROOT_VARIABLE} to a folder with the public recordings",
)


@pytest.fixture
def root() -> Path:
    return datasets.find_data_root(None)


def load_or_skip(name: str, root: Path) -> datasets.RealDataset:
    if name not in datasets.names(root):
        pytest.skip(f"the data root holds no {name}")
    return datasets.load(name, root)


@needs_data
def test_every_set_is_finite_and_complete(root: Path) -> None:
    found = datasets.names(root)
    assert found
    for name in found:
        real = datasets.load(name, root)
        n = len(real.impacts)
        assert n > 0 and real.name == name and real.session.shape == (n,) and real.gyration > 0
        for values in (
            real.impacts.before,
            real.impacts.after,
            *real.impacts.known.values(),
            *real.published.values(),
        ):
            assert np.isfinite(values).all()
        assert all(p.shape == real.impacts.after.shape for p in real.published.values())


@needs_data
def test_one_impulse_at_the_contact_explains_the_ellipse(root: Path) -> None:
    real = load_or_skip("mit_ellipse", root)
    scene = Scene.load(real.scene)
    frame = contact_frame(scene, real.impacts)
    assert (frame.contact.normal @ [0, 1] > 0.999).all()
    arm = frame.contact.point - real.impacts.pose[:, :2]
    assert (arm[:, 1] < -0.02).all() and np.abs(frame.contact.point[:, 1]).max() < 1e-3
    assert unexplained(real, arm) < 0.05
    assert unexplained(real, arm * [1, -1]) > 0.2  # what the published sign of dx amounts to


def unexplained(real: datasets.RealDataset, arm: np.ndarray) -> float:
    """Median share of the twist after that no single impulse at the contact accounts for."""
    weight = np.array([1, 1, real.gyration])
    change = (real.impacts.after - real.impacts.twist) * weight
    free = np.column_stack(
        [arm[:, 1], -arm[:, 0], np.full(len(arm), real.gyration)]
    )  # the direction that no impulse reaches
    left = np.abs((change * free).sum(1)) / np.linalg.norm(free, axis=1)
    return float(np.median(left / np.linalg.norm(real.impacts.after * weight, axis=1)))


@needs_data
def test_published_models_are_in_the_axes_of_the_data(root: Path) -> None:
    real = load_or_skip("mit_ellipse", root)
    if not real.published:
        pytest.skip("the data root holds no v_models.mat")
    weight = np.array([1, 1, real.gyration])
    for predicted in real.published.values():
        error = np.linalg.norm((predicted - real.impacts.after) * weight, axis=1) / np.linalg.norm(
            real.impacts.after * weight, axis=1
        )
        assert np.median(error) < 0.6
    a = 0.035  # m, semi-axes
    b = 0.025
    theta = real.impacts.pose[:, 2]
    arm = -(a**2 - b**2) * np.sin(theta) * np.cos(theta) / real.impacts.pose[:, 1]
    closing = {}
    for name, twist in (("before", real.impacts.twist), *real.published.items()):
        closing[name] = twist[:, 1] + arm * twist[:, 2]
    # Newton's restitution is one number, so its standard deviation shows the order of columns.
    std = {model: np.std(-closing[model] / closing["before"]) for model in real.published}
    assert std["ap-newton"] < min(std["ap-poisson"], std["mirtich"], std["drumwright-shell"])


@needs_data
def test_the_angle_between_the_faces_turns_the_box(root: Path) -> None:
    real = load_or_skip("lasa/D1", root)
    yaw_rate = real.impacts.after[:, 2] / real.impacts.striker_twist[:, 1]
    angle = real.impacts.striker_pose[:, 2] - real.impacts.pose[:, 2]
    assert np.corrcoef(angle, yaw_rate)[0, 1] > 0.8
    assert {"arm_mass", "tool_pitch", "tool_height"} <= set(real.impacts.known)


@needs_data
def test_restitution_and_torque_of_the_puck(root: Path) -> None:
    real = load_or_skip("tud_puck", root)
    restitution = -real.impacts.after[:, 0] / real.impacts.twist[:, 0]
    assert abs(np.median(restitution) - 0.8) < 0.04
    change = real.impacts.after - real.impacts.twist
    hard = np.abs(change[:, 1]) > 0.15
    assert (
        1.3 < np.median(-0.03165 * change[hard, 2] / change[hard, 1]) < 2.1
    )  # friction at the rim turns the puck; 2 is a solid disc
    frame = contact_frame(Scene.load(real.scene), real.impacts)
    assert np.abs(frame.contact.normal - [1, 0]).max() < 1e-6


@needs_data
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_truncated_files_are_refused_in_one_sentence(
    root: Path, tmp_path: Path, file: str, share: float
) -> None:
    if not (root / file).is_file():
        pytest.skip(f"the data root holds no {file}")
    for other in FILES:
        if (root / other).is_file():
            (tmp_path / other).parent.mkdir(exist_ok=True)
            content = (root / other).read_bytes()
            (tmp_path / other).write_bytes(
                content[: int(share * len(content))] if other == file else content
            )
    folder = file.split("/")[0]
    name = "lasa/D1" if folder == "lasa_strikes" else folder
    with pytest.raises(DataError) as caught:
        datasets.load(name, tmp_path)
    assert Path(file).name in str(caught.value) and "\n" not in str(caught.value)


@needs_data
@pytest.mark.parametrize("name", ["mit_elipse", "lasa/D9", "lasa", "tud_puck/x", ""])
def test_unknown_names_list_the_nearest(root: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"did you mean|choices:"):
        datasets.load(name, root)


def test_pickles_and_wrong_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tud_puck" / "puck_traj.npz"
    path.parent.mkdir()
    for rows, offset in (
        (np.array([{}] * 4, object), np.array([0, 4])),
        (np.zeros((4, 3)), np.array([0, 4])),
        (np.zeros((4, 4)), np.array([0, 9])),
    ):
        np.savez(path, x_y_yaw_t=rows, offset=offset)
        with pytest.raises(DataError, match="puck_traj"):
            datasets.load("tud_puck", tmp_path)


def test_a_bounce_of_known_restitution_is_recovered(tmp_path: Path) -> None:
    t = np.arange(60) / 120 + 0.003
    contact, wall = 0.25, 1.038 / 2 - 0.03165
    y = np.where(t < contact, wall - 2.0 * (contact - t), wall - 1.6 * (t - contact))
    x = np.where(t < contact, 1.0 * (t - contact), 0.7 * (t - contact))
    yaw = np.where(t < contact, 5.0 * (t - contact), 25.0 * (t - contact))
    (tmp_path / "tud_puck").mkdir()
    np.savez(
        tmp_path / "tud_puck" / "puck_traj.npz",
        x_y_yaw_t=np.column_stack([x, y, (yaw + np.pi) % (2 * np.pi) - np.pi, t]),
        offset=np.array([0, len(t)]),
    )
    real = datasets.load("tud_puck", tmp_path)
    # seen from the wall at +y, whose inward normal is -y: along is +x
    assert np.allclose(real.impacts.twist, [[-2.0, 1.0, 5.0]], atol=0.03) and np.allclose(
        real.impacts.after, [[1.6, 0.7, 25.0]], atol=0.03
    )
    assert datasets.names(tmp_path) == ["tud_puck"]


def test_without_a_root_the_message_says_where_the_sets_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(datasets.DATA_ROOT_VARIABLE, raising=False)
    with pytest.raises(DataError, match=r"epfl-lasa/air_hockey.*--data.*CLASHSIM_DATA"):
        datasets.find_data_root(None)
    with pytest.raises(DataError, match="not a folder"):
        datasets.find_data_root(tmp_path / "absent")
    assert datasets.names(tmp_path) == []
