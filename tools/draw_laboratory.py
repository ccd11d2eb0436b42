"""Draw the pictures of docs/laboratory.md and print its numbers: how the laboratory differs from
MuJoCo, and how well it repeats.

python tools/draw_laboratory.py docs
"""

import io
import sys
from pathlib import Path

import mujoco
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.signal import savgol_filter

from clashsim import lab
from clashsim.core.files import write_atomic
from clashsim.core.scene import Scene
from clashsim.core.trials import quaternion, yaw
from clashsim.lab import arm
from clashsim.lab.mocap import RATE
from clashsim.lab.rig import TrueMotion, planar_pose, rig_of
from clashsim.lab.strike import TIP_RADIUS
from clashsim.sim.mujoco.impacts import simulate_impacts

COLOURS = {"resin": "#d1495b", "nylon": "#00798c", "petg_cf": "#edae49"}
SPEEDS = np.array([0.2, 0.35, 0.5, 0.65, 0.8])


class Exact(np.random.Generator):
    """An arm without scatter."""

    def normal(self, *args: object, size: int | None = None, **kwargs: object) -> object:  # type: ignore[override]
        """Zero."""
        return 0.0 if size is None else np.zeros(size)


def motion(setting: lab.Setting, strike: lab.Strike) -> TrueMotion:
    """The true motion of a strike without scatter, block at the table's middle."""
    rig = rig_of(setting)
    centre, way = rig.shape.touch(strike)
    return rig.run(np.zeros(3), arm.tip_path(centre, strike.speed * way, Exact(np.random.PCG64(0))))


def restitution(setting: lab.Setting, speed: float) -> float:
    """Parting over closing speed along the normal of a central strike, from the true motion."""
    done = motion(setting, lab.Strike(speed, np.pi / 2))
    shape = rig_of(setting).shape
    gap = np.array(
        [
            shape.gap(planar_pose(np.roll(b, -3)), s[:2])
            for b, s in zip(done.block, done.striker, strict=True)
        ]
    )
    parted = np.flatnonzero(gap < 0)[-1] + 2  # the first whole millisecond apart
    rate = np.gradient(done.block[:, 1] - done.striker[:, 1], done.t)
    return float(-rate[parted + 1] / rate[parted - 12])


def mujoco_restitution(damping: float) -> np.ndarray:
    """The same in the MuJoCo twin at a damping ratio, (5,)."""
    scene = Scene.load("semi_cylinder")
    theta = np.tile(scene.nominal, (len(SPEEDS), 1))
    theta[:, [p.name for p in scene.params].index("damping_ratio")] = damping
    before = np.zeros((len(SPEEDS), 12))
    before[:, 7], before[:, 10] = 0.05 + TIP_RADIUS - 1e-5, -SPEEDS
    return -simulate_impacts(scene, before, theta).after[:, 1] / SPEEDS - 1


def save(figure: Figure, path: Path) -> None:
    """Write a picture, small."""
    FigureCanvasAgg(figure)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=90)
    write_atomic(path, content.getvalue())


def draw_restitution(folder: Path) -> None:
    """Restitution over speed."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for material, colour in COLOURS.items():
        values = [restitution(lab.Setting("semi_cylinder", material, "high"), v) for v in SPEEDS]
        print(f"restitution, laboratory, {material}: " + " ".join(f"{e:.2f}" for e in values))
        axes.plot(SPEEDS, values, "o-", color=colour, label=f"laboratory, {material}")
    for damping, style in ((0.1, ":"), (1.0, "--"), (3.0, "-.")):
        values = mujoco_restitution(damping)
        print(
            f"restitution, MuJoCo, damping ratio {damping}: " + " ".join(f"{e:.2f}" for e in values)
        )
        axes.plot(
            SPEEDS, values, style, color="#808080", label=f"MuJoCo, damping ratio {damping:g}"
        )
    axes.set(xlabel="speed of the tip, m/s", ylabel="restitution", ylim=(0, 1.6))
    axes.legend(frameon=False, fontsize=8, ncols=2)
    save(figure, folder / "laboratory-restitution.png")


def mujoco_slide(shape: str, start: np.ndarray, friction: float, duration: float) -> np.ndarray:
    """Speed and spin (M, 2) each millisecond of the MuJoCo twin's block sliding from pose (x, y,
    yaw) and twist, start (6,).
    """
    scene = Scene.load(shape)
    theta = scene.nominal.copy()
    theta[[p.name for p in scene.params].index("ground_friction")] = friction
    model = scene.model(theta)
    data = mujoco.MjData(model)
    joint = int(model.jnt_qposadr[model.body("block").jntadr[0]])
    data.qpos[joint : joint + 7] = [start[0], start[1], 0, *quaternion(start[2:3])[0]]
    dof = int(model.body("block").dofadr[0])
    data.qvel[dof : dof + 6] = [start[3], start[4], 0, 0, 0, start[5]]
    data.qpos[model.joint("striker_x").qposadr[0]] = -5
    rows = []
    for _ in range(round(duration / 1e-3)):
        rows.append([np.hypot(*data.qvel[dof : dof + 2]), data.qvel[dof + 5]])
        mujoco.mj_step(model, data, nstep=round(1e-3 / model.opt.timestep))
    return np.array(rows)


def draw_spin(folder: Path) -> None:
    """Decay of speed and spin after a strike off the centre, as Fig. 5 of the paper."""
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    grid = figure.subplots(2, 3, sharex="col")
    for column, (shape, point) in enumerate(
        (("semi_cylinder", 0.7), ("square", 0.45), ("triangle", 2.9))
    ):
        setting, strike = lab.Setting(shape, "resin", "high"), lab.Strike(0.7, point)
        true = motion(setting, strike)
        trial = lab.execute(strike, setting, 1)[0]
        t, pose = trial.seen("block")
        even = np.arange(t[0], t[-1], 1 / RATE)
        flat = np.column_stack([np.interp(even, t, c) for c in (*pose[:, :2].T, yaw(pose[:, 3:]))])
        raw, smooth = (
            np.gradient(flat, 1 / RATE, axis=0),
            savgol_filter(flat, 9, 2, deriv=1, delta=1 / RATE, axis=0),
        )
        first = int(np.argmax(true.rates[:, 0])) + 3
        place, later = (
            planar_pose(np.roll(true.block[first], -3)),
            planar_pose(np.roll(true.block[first + 1], -3)),
        )
        twist = (later - place) / (true.t[1] - true.t[0])
        slide = mujoco_slide(
            shape,
            np.concatenate([place, twist]),
            lab.SURFACES["high"].friction["resin"],
            true.t[-1] - true.t[first],
        )
        at = true.t[first] + np.arange(len(slide)) * 1e-3
        for row, (measured, rough, truth) in enumerate(
            (
                (np.hypot(*smooth[:, :2].T), np.hypot(*raw[:, :2].T), true.rates[:, 0]),
                (smooth[:, 2], raw[:, 2], true.rates[:, 1]),
            )
        ):
            axes = grid[row, column]
            axes.plot(even, rough, ".", color="#c0c0c0", markersize=3, label="motion capture, raw")
            axes.plot(even, measured, color="#00798c", label="smoothed")
            axes.plot(true.t, truth, color="black", linewidth=0.8, label="laboratory, true")
            axes.plot(at, slide[:, row], "--", color="#d1495b", label="MuJoCo from the same start")
        grid[0, column].set_title(shape, fontsize=10)
        grid[1, column].set_xlabel("t, s")
        spin = np.abs(true.rates[first:, 1])
        half = [float(np.argmax(np.abs(w) < 0.5 * spin[0])) for w in (spin, slide[:, 1])]
        print(f"spin halves, {shape}: laboratory {half[0]:.0f} ms, MuJoCo {half[1]:.0f} ms")
    grid[0, 0].set_ylabel("speed, m/s")
    grid[1, 0].set_ylabel("spin, rad/s")
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=8,
    )
    save(figure, folder / "laboratory-spin.png")


def draw_spread(folder: Path, repeats: int = 30) -> None:
    """Where a block ends when the same strike is repeated."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, (shape, point) in zip(
        figure.subplots(1, 3),
        (("semi_cylinder", 1.2), ("square", 0.4), ("triangle", 2.9)),
        strict=True,
    ):
        setting, strike = lab.Setting(shape, "nylon", "high"), lab.Strike(0.5, point, 0.1)
        ends = []
        for trial in lab.execute_independently([strike] * repeats, setting, 0, workers=1):
            _, pose = trial.seen("block")
            turn = yaw(pose[:, 3:])
            ends.append(
                [
                    *(pose[-6:, :2].mean(0) - pose[:8, :2].mean(0)),
                    turn[-6:].mean() - turn[:8].mean(),
                ]
            )
        x, y, turn = np.array(ends).T
        way = np.hypot(x, y)
        print(
            f"spread of {repeats}, {shape}: way {1e3 * way.mean():.1f} mm +- {100 * way.std() / way.mean():.1f} %, turn {turn.mean():.3f} +- {turn.std():.3f} rad"
        )
        axes.scatter(1e3 * way, turn, s=12, color="#00798c")
        axes.set(xlabel="way, mm", title=shape)
        axes.title.set_fontsize(10)
    figure.axes[0].set_ylabel("turn, rad")
    save(figure, folder / "laboratory-spread.png")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    draw_restitution(target)
    draw_spin(target)
    draw_spread(target)
