"""Recorded joint angles: which joint of a scene a recording means, and the poses that follow.

A robot's log has the angles of its joints, under names that are often not quite those of the model:
"q_shoulder" for "shoulder", "panda_joint1" for "joint1".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import mujoco
import numpy as np

from clashsim.core.contact_geometry import PairPoser
from clashsim.core.errors import DataError, did_you_mean
from clashsim.core.impacts import (
    BODY_COLUMNS,
    Impacts,
    MotionBefore,
    after_columns,
    before_columns,
)
from clashsim.core.mechanism import joints_to_world
from clashsim.core.scene import Scene
from clashsim.core.trials import Trial, Trials

_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
# rad or m, by which recordings may be outside of a joint's range.
_RANGE_MARGIN = 0.5
_WORDS = re.compile(r"[A-Za-z]+?(?=[A-Z][a-z]|[^A-Za-z]|$)|\d+")
# Words of the name of a joint that do not tell which joint it is.
_NO_NAMES = {"q", "qpos", "joint", "joints", "jnt", "j", "pos", "position", "angle", "deg", "rad"}

# Endings of a column's name: a joint's velocity before contact, and after it.
_VELOCITY = "_velocity"
_VELOCITY_AFTER = "_velocity_after"
_SMALLEST_RATE = 1e-12  # m/s or rad/s: smaller components are those that joints do not have

Angles = Mapping[str, np.ndarray]  # (n,) each, rad or m, by the name of the joint


def joints_of(scene: Scene) -> tuple[str, ...]:
    """Names of the joints that carry the two bodies of a scene's pair, from the world outwards."""
    names: dict[str, None] = {}
    for body in (scene.struck_body, scene.striker_body):
        for joint in joints_to_world(scene.base, body.body):
            if int(scene.base.jnt_type[joint]) in _SCALAR:
                names[scene.base.joint(joint).name] = None
    return tuple(name for name in names if name)


def match_joints(wanted: Collection[str], recorded: Iterable[str]) -> dict[str, str]:
    """Find which recorded quantity is the angle of which joint.

    Names that are equal come first. Otherwise words such as "joint" or "q" do not count, nor does
    a prefix that all names of the joints share, such as that of the robot.

    Args:
        wanted: Names of joints.
        recorded: Names of recorded quantities.

    Returns:
        The name in the recording by that of the joint, for those that are found.
    """
    recorded = list(recorded)
    best = {name: name for name in wanted if name in recorded}
    own_words = {name: _words_of(name) for name in wanted}
    recorded_words = {name: _words_of(name) for name in recorded}
    for own_prefix in _shared_prefixes(list(own_words.values())):
        for prefix in _prefixes(recorded_words.values()):
            by_words: dict[tuple[str, ...], list[str]] = {}
            for name, words in recorded_words.items():
                if words[: len(prefix)] == prefix:
                    by_words.setdefault(words[len(prefix) :], []).append(name)
            found = {}
            for name, words in own_words.items():
                same = by_words.get(words[len(own_prefix) :], [])
                if len(same) == 1 and words:
                    found[name] = same[0]
            if len(found) > len(best):
                best = found
    return best


def poses_of_body(model: mujoco.MjModel, body: int, angles: Angles) -> np.ndarray:
    """Compute poses of a body from recorded joint angles.

    Args:
        model: The model; joints that do not carry the body do not matter.
        body: Index of the body.
        angles: By the joint's name in the model or, where they can be matched, in a recording.

    Returns:
        (n, 7), position and quaternion wxyz, world axes; NaN where an angle is.

    Raises:
        DataError: A joint that carries the body was not recorded, or is far out of its range.
    """
    values = _angles_of_body(model, body, angles)
    n = len(next(iter(values.values())))
    poses = np.full((n, 7), np.nan)
    data = mujoco.MjData(model)
    columns = [int(model.joint(name).qposadr[0]) for name in values]
    table = np.column_stack(list(values.values()))
    for row in np.flatnonzero(np.isfinite(table).all(1)):
        data.qpos[columns] = table[row]
        mujoco.mj_kinematics(model, data)
        poses[row, :3] = data.xpos[body]
        poses[row, 3:] = data.xquat[body]
    return poses


def twists_of_body(model: mujoco.MjModel, body: int, angles: Angles, rates: Angles) -> np.ndarray:
    """Compute twists of a body's origin from recorded joint angles and their rates.

    Args:
        model: The model.
        body: Index of the body.
        angles: As for `poses_of_body`.
        rates: rad/s or m/s, likewise.

    Returns:
        (n, 6), linear and angular velocity, world axes; NaN where a number is missing.
    """
    values = _angles_of_body(model, body, angles)
    speeds = _angles_of_body(model, body, rates, kind="the velocity of joint")
    n = len(next(iter(values.values())))
    twists = np.full((n, 6), np.nan)
    data = mujoco.MjData(model)
    table = np.column_stack(list(values.values()))
    speed_table = np.column_stack([speeds[name] for name in values])
    positions = [int(model.joint(name).qposadr[0]) for name in values]
    velocities = [int(model.joint(name).dofadr[0]) for name in values]
    jacobian = np.zeros((6, model.nv))
    for row in np.flatnonzero(np.isfinite(np.hstack([table, speed_table])).all(1)):
        data.qpos[positions] = table[row]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], body)
        twists[row] = jacobian[:, velocities] @ speed_table[row]
    return twists


def with_poses_from_joints(
    trials: Trials, scene: Scene, names: tuple[str | None, str | None] = (None, None)
) -> Trials:
    """Add poses that follow from recorded joint angles to trials that lack them.

    Args:
        trials: The trials; joint angles are signals, by the name of the joint.
        scene: The scene of the pair.
        names: Names of struck body and striker in the trials, where they are not those of the
            scene.

    Returns:
        The trials, with poses of both bodies where they or their joints were recorded.

    Raises:
        DataError: Some joints of a body were recorded and others were not.
    """
    items = list(trials)
    for body, name in zip((scene.struck_body, scene.striker_body), names, strict=True):
        name = body.name if name is None else name
        if body.fixed or all(name in trial.poses for trial in items) or body.free:
            continue
        for i, trial in enumerate(items):
            if name not in trial.poses:
                items[i] = _with_pose(trial, scene, body.body, name)
    return replace(trials, items=tuple(items))


def joint_columns(scene: Scene) -> tuple[str, ...]:
    """Names of the columns that a table of impacts may have for the joints of a scene's pair.

    The name of a joint for its coordinate at contact, with `_velocity` for its velocity, and with
    `_velocity_after` for that after the impact.
    """
    planar = scene.plane is not None
    own = {*before_columns(planar), *after_columns(planar), *BODY_COLUMNS}
    names = []
    for name in joints_of(scene):
        columns = (name, name + _VELOCITY, name + _VELOCITY_AFTER)
        names += [column for column in columns if column not in own]
    return tuple(names)


def joint_motion(scene: Scene, before: np.ndarray) -> dict[str, np.ndarray]:
    """Coordinates and velocities of the joints that carry a pair; the inverse of the columns.

    Args:
        scene: The scene of the pair.
        before: Motion (N, d), as in `Impacts`, that the joints allow.

    Returns:
        Values (N,) by the names of `joint_columns`, rad or m and per second.
    """
    model = scene.base
    qpos = np.tile(model.qpos0, (len(before), 1))
    qvel = np.zeros((len(before), model.nv))
    PairPoser(scene).write(before, qpos, qvel)
    columns = joint_columns(scene)
    motion = {}
    for name in joints_of(scene):
        joint = model.joint(name)
        if name in columns:
            motion[name] = qpos[:, int(joint.qposadr[0])]
        if name + _VELOCITY in columns:
            motion[name + _VELOCITY] = qvel[:, int(joint.dofadr[0])]
    return motion


def with_motion_from_joints(impacts: Impacts, scene: Scene) -> Impacts:
    """Fill in motions before impact, and outcomes, of bodies whose joints were recorded.

    Args:
        impacts: Impacts of a table, which has the columns of joints among `known`.
        scene: The scene of the pair.

    Returns:
        The impacts; poses and twists that the table has, and did not leave at zero, stay.

    Raises:
        DataError: Some joints of a body were recorded and others were not.
    """
    columns = joint_columns(scene)
    rates = {}
    rates_after = {}
    angles = dict(impacts.joints)
    known = dict(impacts.known)
    for name in columns:
        if name in known and name.endswith(_VELOCITY_AFTER):
            joint = name.removesuffix(_VELOCITY_AFTER)
            rates_after[joint] = np.asarray(known.pop(name), float)
        elif name in known and name.endswith(_VELOCITY):
            rates[name.removesuffix(_VELOCITY)] = np.asarray(known.pop(name), float)
        elif name in known:
            angles[name] = np.asarray(known.pop(name), float)
    for joint in rates_after:
        if joint not in angles:
            raise DataError(
                f"impacts have a column {joint + _VELOCITY_AFTER!r} and none of the joint's "
                f"coordinate at contact: give {joint!r} as well"
            )
    if not angles:
        return impacts
    if impacts.planar and scene.plane is None and not impacts.before.any():
        impacts = _in_space(impacts)  # joints alone say nothing about a plane
    poser = PairPoser(scene)
    before = impacts.before.copy()
    motion = MotionBefore.of(before)
    for body, recorded in (
        (scene.struck_body, motion.struck),
        (scene.striker_body, motion.striker),
    ):
        if body.fixed or body.free:
            continue
        own = [scene.base.joint(joint).name for joint in joints_to_world(scene.base, body.body)]
        if not set(own) & set(angles):
            continue
        if _is_left_out(recorded.pose):
            poses = poses_of_body(scene.base, body.body, angles)
            recorded.pose[:] = poser.scene_pose(poses[:, :3], poses[:, 3:], body)
        if set(own) & set(rates) and not recorded.twist.any():
            twists = twists_of_body(scene.base, body.body, angles, rates)
            recorded.twist[:] = poser.scene_twist(twists[:, :3], twists[:, 3:])
    after, striker_after = _outcomes_from_joints(impacts, scene, angles, rates_after)
    return replace(
        impacts,
        before=before,
        after=after,
        striker_after=striker_after,
        known=known,
        joints=angles,
    )


def _outcomes_from_joints(
    impacts: Impacts, scene: Scene, angles: Angles, rates_after: Angles
) -> tuple[np.ndarray, np.ndarray | None]:
    """Outcomes of struck body and striker, from velocities of their joints where recorded.

    A component that the joints do not let a body have counts as not measured, as it tells nothing.
    """
    poser = PairPoser(scene)
    outcomes = [impacts.after, impacts.striker_after]
    for i, body in enumerate((scene.struck_body, scene.striker_body)):
        recorded = outcomes[i]
        own = {scene.base.joint(joint).name for joint in joints_to_world(scene.base, body.body)}
        if not own & set(rates_after) or (recorded is not None and np.isfinite(recorded).any()):
            continue
        twists = twists_of_body(scene.base, body.body, angles, rates_after)
        outcome = poser.scene_twist(twists[:, :3], twists[:, 3:])
        is_possible = np.nanmax(np.abs(outcome), axis=0, initial=0.0) > _SMALLEST_RATE
        outcomes[i] = np.where(is_possible, outcome, np.nan)
    of_struck, of_striker = outcomes
    assert of_struck is not None
    return of_struck, of_striker


def _in_space(impacts: Impacts) -> Impacts:
    """Impacts of a table that has columns of joints alone, as impacts in space."""
    n = len(impacts)
    before, motion = MotionBefore.at_origin(n, planar=False)
    for body in (motion.struck, motion.striker):
        body.quaternion[:, 0] = 1.0
    nothing = np.full((n, len(after_columns(False))), np.nan)
    return replace(impacts, planar=False, before=before, after=nothing)


def with_postures(scene: Scene, impacts: Impacts) -> Scene:
    """A scene in which recorded joint angles say how an arm reaches the poses of impacts.

    Args:
        scene: The scene.
        impacts: The impacts; those without recorded joints change nothing.
    """
    finite = np.ones(len(impacts), bool)
    for values in impacts.joints.values():
        finite &= np.isfinite(values)
    if not impacts.joints or not finite.any():
        return scene
    postures = {}
    for name, values in impacts.joints.items():
        postures[name] = np.concatenate([scene.postures.get(name, values[:0]), values[finite]])
    return replace(scene, postures=postures)


def angles_at(trial: Trial, scene: Scene, time: float) -> dict[str, float]:
    """Coordinates of the joints that carry a scene's pair at a time (s), as far as recorded."""
    angles = {}
    for name, values in recorded_angles(trial, scene).items():
        seen = np.isfinite(values)
        if seen.any():
            angles[name] = float(np.interp(time, trial.t[seen], values[seen]))
    return angles


def recorded_angles(trial: Trial, scene: Scene) -> dict[str, np.ndarray]:
    """Angles (T,) of the joints that carry a scene's pair, by their names, as far as recorded."""
    signals = scalar_signals(trial)
    found = match_joints(joints_of(scene), signals)
    return {joint: signals[name] for joint, name in found.items()}


def scalar_signals(trial: Trial) -> dict[str, np.ndarray]:
    """The signals of a trial that are one number in each row, by name."""
    return {name: values for name, values in trial.signals.items() if values.ndim == 1}


def _is_left_out(pose: np.ndarray) -> bool:
    """Whether poses (n, 3) or (n, 7) are those of columns that a table does not have."""
    numbers = pose if pose.shape[1] == 3 else pose[:, [0, 1, 2, 4, 5, 6]]
    return not numbers.any()


def _with_pose(trial: Trial, scene: Scene, body: int, name: str) -> Trial:
    """A trial with the pose of a body that joints carry; unchanged where none was recorded."""
    signals = scalar_signals(trial)
    joints = joints_to_world(scene.base, body)
    if not match_joints([scene.base.joint(joint).name for joint in joints], signals):
        return trial
    try:
        poses = poses_of_body(scene.base, body, signals)
    except DataError as error:
        raise DataError(f"trial {trial.name!r}: {error}") from None
    return replace(trial, poses={**trial.poses, name: poses})


def _angles_of_body(
    model: mujoco.MjModel, body: int, recorded: Angles, kind: str = "joint"
) -> dict[str, np.ndarray]:
    """Recorded values of the joints that carry a body, by their names in the model."""
    name = model.body(body).name
    joints = joints_to_world(model, body)
    for joint in joints:
        if int(model.jnt_type[joint]) not in _SCALAR:
            raise DataError(
                f"body {name!r} is carried by joint {model.joint(joint).name!r}, which turns or "
                "moves in all directions: record the pose of the body, or angles of hinges and "
                "slides"
            )
    names = [model.joint(joint).name for joint in joints]
    found = match_joints(names, recorded)
    missing = [joint for joint in names if joint not in found]
    if missing:
        others = [signal for signal in recorded if signal not in found.values()]
        raise DataError(
            f"body {name!r} has no recorded pose, and {kind} {missing[0]!r}, which moves it, was "
            f"not recorded (not named so in the recording); {did_you_mean(missing[0], others)}"
        )
    values = {}
    for joint, joint_name in zip(joints, names, strict=True):
        values[joint_name] = np.asarray(recorded[found[joint_name]], float)
        if kind == "joint":
            _check_range(model, joint, values[joint_name])
    return values


def _check_range(model: mujoco.MjModel, joint: int, values: np.ndarray) -> None:
    """Raise a DataError for recorded values (n,) that are far out of the range of a joint."""
    low, high = map(float, model.jnt_range[joint])
    seen = values[np.isfinite(values)]
    if not model.jnt_limited[joint] or len(seen) == 0:
        return
    if seen.min() >= low - _RANGE_MARGIN and seen.max() <= high + _RANGE_MARGIN:
        return
    is_hinge = int(model.jnt_type[joint]) == int(mujoco.mjtJoint.mjJNT_HINGE)
    unit = "rad" if is_hinge else "m"
    other = "degrees" if is_hinge else "millimetres"
    raise DataError(
        f"joint {model.joint(joint).name!r} is recorded from {seen.min():.3g} to {seen.max():.3g} "
        f"{unit}, out of its range of {low:.3g} to {high:.3g}: is it in {other}, or another joint?"
    )


def _words_of(name: str) -> tuple[str, ...]:
    """The words and numbers of a name that tell which joint it is, in small letters."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return tuple(word for word in words if word not in _NO_NAMES)


def _prefixes(names: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """All proper beginnings of names, the shortest first."""
    found = {words[:size] for words in names for size in range(max(len(words), 1))}
    return sorted(found, key=lambda words: (len(words), words))


def _shared_prefixes(names: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Proper beginnings that all names share, the shortest first."""
    shared = []
    for prefix in _prefixes(names):
        if all(words[: len(prefix)] == prefix and len(words) > len(prefix) for words in names):
            shared.append(prefix)
    return shared or [()]
