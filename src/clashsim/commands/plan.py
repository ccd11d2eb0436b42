"""`clashsim plan` and `clashsim execute`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clashsim.commands.shared import console, needs_drake, not_negative, refuse_file
from clashsim.core.errors import DataError, ParamError
from clashsim.core.parsing import JSON_BYTES, parse_json, read_bounded

if TYPE_CHECKING:
    from clashsim.cli import Execute
    from clashsim.cli import Plan as PlanVerb
    from clashsim.core.scene import Scene
    from clashsim.plan.tasks import Plan

PLAN, PICTURE, OUTCOME = "plan.json", "plan.png", "outcome.png"


def run(verb: PlanVerb) -> None:
    """`clashsim plan`."""
    from clashsim.fit.run_folder import load
    from clashsim.plan.execution import strikes_at_corners
    from clashsim.plan.path import Limits
    from clashsim.plan.planner import plan, plan_fewest_strikes
    from clashsim.plan.tasks import PlanningTask, Reach

    not_negative(seed=verb.seed, draws=verb.draws)
    if (verb.target is None) == (verb.targets is None):
        raise ParamError(
            "say where the body shall come to rest: --target X Y YAW, or --targets FILE.csv, one of them"
        )
    if verb.targets is None and (verb.where.on is not None or verb.where.workers):
        raise ParamError("--on and --workers are for many targets: give --targets as well")
    made = load(verb.run)
    if verb.draws > 10_000:
        raise ParamError(f"--draws must be at most 10000, got {verb.draws}")
    limits = Limits(verb.limits.speed, verb.limits.acceleration, verb.limits.jerk)
    low = float(made.scene.strikes.speed[0])
    if limits.speed <= low:
        raise ParamError(
            f"the arm's speed of {limits.speed:g} m/s is not above the slowest strike that was calibrated, {low:g} m/s"
        )
    side = None if verb.side is None else tuple(np.radians(verb.side).tolist())
    reach = Reach(speed=(low, limits.speed), bearing=side, workspace=verb.workspace)  # type: ignore[arg-type]
    target, start = (
        (*pose[:2], float(np.radians(pose[2])))
        for pose in (verb.target or (0.0, 0.0, 0.0), verb.start)
    )
    task = PlanningTask(
        target, start, strikes=1 if verb.strikes is None else verb.strikes, reach=reach
    )
    options: dict[str, Any] = {"method": verb.method, "draws": verb.draws, "seed": verb.seed}
    if verb.targets is not None:
        from clashsim.commands import plan_targets

        plan_targets.run(verb, made.scene, task, options)
        return
    options["device"] = verb.device
    model = made.strikes()
    found = (
        plan_fewest_strikes(model, task, **options)
        if verb.strikes is None
        else plan(model, task, **options)
    )
    console().print(_table(found, made.scene), markup=False)
    print(f"{found.status}: {found.reason}")
    if corners := strikes_at_corners(made.scene, found):
        print(
            f"strike {' and '.join(map(str, corners))} touches a corner, where bodies end further off than the spread says: try --strikes, --side or another target"
        )
    if model.fidelity is not None and model.fidelity.untrusted_share > 0.05:
        print(
            f"the model doubts itself on {100 * model.fidelity.untrusted_share:.0f} % of the strikes it may choose from: record more of them"
        )
    if verb.out is not None:
        _write(verb.out, found, made.scene, limits, overwrite=verb.overwrite)


def execute(verb: Execute) -> None:
    """`clashsim execute`."""
    from clashsim import lab
    from clashsim.core.scene import Scene
    from clashsim.core.trials import Trials, yaw
    from clashsim.data.trial_files import write_trials
    from clashsim.plan.execution import plan_from_json
    from clashsim.plan.tasks import pose_error

    not_negative(seed=verb.seed)
    needs_drake()
    if verb.times < 1:
        raise ParamError(f"--times must be at least 1, got {verb.times}")
    if verb.out is not None:
        refuse_file(verb.out, (".png", ".svg", ".pdf", ".safetensors"), overwrite=verb.overwrite)
    path = verb.plan / PLAN if verb.plan.is_dir() else verb.plan
    if not path.is_file():
        raise DataError(f"there is no plan at {str(path)!r}: make one with clashsim plan -o FOLDER")
    text = read_bounded(path, f"plan {str(path)!r}", limit=JSON_BYTES).decode(errors="replace")
    plan, shape = plan_from_json(text), _shape(text)
    setting = lab.Setting(shape, verb.material, verb.surface)
    if set(plan.names) != {"speed", "point", "deflection"}:
        raise DataError(
            f"the laboratory takes speed, point and deflection of a strike, but the plan has {', '.join(plan.names)}"
        )
    strikes = [lab.Strike(**dict(zip(plan.names, s.tolist(), strict=True))) for s in plan.strikes]
    trials = [
        lab.execute(strikes, setting, verb.seed + i, start=plan.task.start)
        for i in range(verb.times)
    ]
    ends = []
    for done in trials:
        _, seen = done[-1].seen("block")
        ends.append(
            [*np.median(seen[-10:, :2], 0), float(np.median(np.unwrap(yaw(seen[-10:, 3:]))))]
        )
    outcomes = np.array(ends)
    scene = Scene.load(shape)
    for words, pose in (
        ("from the target", np.array(plan.task.target)),
        ("from what was expected", plan.predicted[-1]),
    ):
        far, turn = pose_error(outcomes, pose)
        print(
            f"came to rest {1e3 * far.mean():.1f} mm and {np.degrees(np.abs(turn)).mean():.1f} degrees {words}"
            + (f" (mean of {verb.times})" if verb.times > 1 else "")
        )
    print(
        f"executed in the laboratory, a stand-in for reality: {shape}, {verb.material} on {verb.surface}-friction sand"
    )
    if verb.out is not None:
        verb.out.parent.mkdir(parents=True, exist_ok=True)
        if verb.out.suffix == ".safetensors":
            write_trials(
                verb.out,
                Trials(
                    tuple(
                        replace(t, name=f"{t.name}-{i}")
                        for i, done in enumerate(trials)
                        for t in done
                    )
                ),
            )
        else:
            _picture(verb.out, plan, scene, outcomes)
        print(f"written to {verb.out}")


def _shape(text: str) -> str:
    from clashsim import lab

    name = str(parse_json(text, "the plan").get("scene"))
    if name not in lab.SHAPES:
        raise DataError(
            f"the laboratory has no block of scene {name!r}: it has {', '.join(lab.SHAPES)}"
        )
    return name


def _table(plan: Plan, scene: Scene) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from clashsim.plan.execution import UNITS, touches

    count = "Strike" if len(plan.strikes) == 1 else f"{len(plan.strikes)} strikes"
    table = Table(title=escape(f"{count} of {scene.name}"), title_justify="left")
    for name in (
        "",
        *(f"{n}, {UNITS[n]}" for n in plan.names),
        "touch x, y, mm",
        "velocity, m/s",
        "then at x, y, mm",
        "yaw, deg",
    ):
        table.add_column(name, justify="right")
    for k, (strike, touch, end) in enumerate(
        zip(plan.strikes, touches(scene, plan), plan.predicted, strict=True)
    ):
        sd = plan.std if k + 1 == len(plan.strikes) and plan.std.any() else None
        place = f"{1e3 * end[0]:.1f}, {1e3 * end[1]:.1f}" + (
            "" if sd is None else f" ± {1e3 * float(np.linalg.norm(sd[:2])):.1f}"
        )
        turn = f"{np.degrees(end[2]):.1f}" + ("" if sd is None else f" ± {np.degrees(sd[2]):.1f}")
        table.add_row(
            str(k + 1),
            *(f"{v:.3f}" for v in strike),
            f"{1e3 * touch[0]:.1f}, {1e3 * touch[1]:.1f}",
            f"{touch[3]:.3f}, {touch[4]:.3f}",
            place,
            turn,
        )
    return table


def _write(out: Path, plan: Plan, scene: Scene, limits: Any, *, overwrite: bool) -> None:
    """The plan, the arm's paths as CSV and JSON, and a picture, as one folder."""
    import tempfile

    from clashsim.data.folders import dumps, write_folder
    from clashsim.plan.execution import plan_to_dict, tip_paths
    from clashsim.plan.path import write_path

    files = {PLAN: dumps(plan_to_dict(plan, scene))}
    with tempfile.TemporaryDirectory() as made:
        for k, path in enumerate(tip_paths(scene, plan, limits), 1):
            for suffix in ("csv", "json"):
                write_path(path, Path(made) / f"path-{k}.{suffix}")
        _picture(Path(made) / PICTURE, plan, scene)
        files |= {p.name: p.read_bytes() for p in sorted(Path(made).iterdir())}
    write_folder(out, files, overwrite=overwrite, kind="plan")
    print(f"{', '.join(files)} written to {out}")


def _picture(path: Path, plan: Plan, scene: Scene, outcomes: np.ndarray | None = None) -> None:
    from clashsim.core.outline import outline
    from clashsim.plan.execution import touches
    from clashsim.report.plan_picture import PlanPicture, draw_plan

    picture = PlanPicture(
        body=outline(scene, scene.struck, scene.struck_body),
        tip=outline(scene, scene.striker, scene.striker_body),
        starts=plan.starts,
        touches=touches(scene, plan),
        predicted=plan.predicted,
        target=np.array(plan.task.target),
        std=plan.std,
        outcomes=outcomes,
        title=plan.reason,
    )
    draw_plan(path, picture)
