"""What the hybrid simulator does to each simulation in each step, compiled.

Of a small batch a step of MuJoCo takes less time than one call of numpy, and of a large one numpy
would keep all cores but one waiting. Each function goes through its rows one after the other, so
that the result for a row does not depend on the other rows.

Indices of a body's entries in qpos and qvel are given as arrays (7,) and (6,) for a free body.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clashsim.core.compiled import compiled, forget_stale

forget_stale(Path(__file__).parent)

# Entries of a body in qpos, whether it is free, and where it is not its position (3,), m, without
# any slide, and the axes (s, 3) of its slides.
Placement = tuple[np.ndarray, bool, np.ndarray, np.ndarray]
_STILL_COLLIDING = 1e-12  # s: the time since a collision while MuJoCo resolves it
_ROUNDING = 1e-6  # a step count this little above a whole number is that number


@compiled
def step_durations(
    userdata: np.ndarray,
    active: np.ndarray,
    remaining: np.ndarray,
    entries: tuple[np.ndarray, np.ndarray],
    limits: tuple[float, float, float],
    exact_slides: bool,
) -> np.ndarray:
    """Durations (a,) of the next steps: short after a collision, growing with time.

    A sudden change of twist shakes soft ground for a few milliseconds. Steps that begin short and
    grow follow that and cost little.

    Args:
        userdata: (n, nuserdata).
        active: (a,), indices of the simulations that are stepped.
        remaining: (a,), s, until the end of the simulator's timestep.
        entries: Of each pair in userdata, (pairs,) each: the phase, positive while MuJoCo resolves
            the pair, and the time (s) since its last collision ended, 0 for none.
        limits: s, of steps while MuJoCo resolves a pair; s, of the first steps after a collision;
            and the longest step after one, as a share of the time since then.
        exact_slides: Whether a slide model moves bodies, which is exact for any step.
    """
    phase_entries, since_entries = entries
    fine, first, growth = limits
    duration = np.empty(len(active))
    for i in range(len(active)):
        row = active[i]
        latest = np.inf
        by_mujoco = False
        for pair in range(len(phase_entries)):
            since = userdata[row, since_entries[pair]]
            if since > 0 and not exact_slides:
                latest = min(latest, since)
            by_mujoco = by_mujoco or userdata[row, phase_entries[pair]] > 0
        longest = remaining[i]
        if by_mujoco:
            longest = min(longest, max(fine, growth * _STILL_COLLIDING))
        elif latest < np.inf:
            longest = min(longest, max(first, growth * latest))
        count = np.ceil(remaining[i] / longest - _ROUNDING)  # equal steps fill what remains
        duration[i] = remaining[i] / count
    return duration


@compiled
def origin_of(qpos: np.ndarray, row: int, body: Placement) -> tuple[float, float, float]:
    """Position (m) of the origin of a body."""
    entries, free, home, axes = body
    if free:
        return qpos[row, entries[0]], qpos[row, entries[1]], qpos[row, entries[2]]
    x, y, z = home[0], home[1], home[2]
    for i in range(len(axes)):
        x += qpos[row, entries[i]] * axes[i, 0]
        y += qpos[row, entries[i]] * axes[i, 1]
        z += qpos[row, entries[i]] * axes[i, 2]
    return x, y, z


@compiled
def near_rows(
    qpos: np.ndarray,
    active: np.ndarray,
    struck: Placement,
    striker: Placement,
    bounds: tuple[np.ndarray, np.ndarray, float],
) -> np.ndarray:
    """Whether a sphere about the striker's origin reaches a box about the struck body, (a,).

    Args:
        qpos: (n, nq).
        active: (a,), indices of the simulations.
        struck: Where the struck body is.
        striker: Where the striker is.
        bounds: Centre (3,), m, and half size (3,), m, of the box in the struck body's frame, and
            radius (m) of the sphere.
    """
    centre, half_size, radius = bounds
    struck_entries, struck_free, _, _ = struck
    near = np.empty(len(active), np.bool_)
    for i in range(len(active)):
        row = active[i]
        ax, ay, az = origin_of(qpos, row, struck)
        bx, by, bz = origin_of(qpos, row, striker)
        x, y, z = bx - ax, by - ay, bz - az
        if struck_free:
            w = qpos[row, struck_entries[3]]
            x, y, z = rotated(
                w,
                -qpos[row, struck_entries[4]],
                -qpos[row, struck_entries[5]],
                -qpos[row, struck_entries[6]],
                x,
                y,
                z,
            )
        x = max(abs(x - centre[0]) - half_size[0], 0.0)
        y = max(abs(y - centre[1]) - half_size[1], 0.0)
        z = max(abs(z - centre[2]) - half_size[2], 0.0)
        near[i] = x * x + y * y + z * z < radius * radius
    return near


@compiled
def rotated(
    w: float, qx: float, qy: float, qz: float, x: float, y: float, z: float
) -> tuple[float, float, float]:
    """A vector rotated by a unit quaternion."""
    ax = 2 * (qy * z - qz * y)
    ay = 2 * (qz * x - qx * z)
    az = 2 * (qx * y - qy * x)
    return (
        x + w * ax + (qy * az - qz * ay),
        y + w * ay + (qz * ax - qx * az),
        z + w * az + (qx * ay - qy * ax),
    )


@compiled
def move_in_body_axes(qpos: np.ndarray, change: np.ndarray, quaternion: int, rotation: int) -> None:
    """Rotate quaternions of qpos (m, nq) in place by rotation vectors in change (m, nv), rad."""
    for i in range(len(qpos)):
        x, y, z = change[i, rotation], change[i, rotation + 1], change[i, rotation + 2]
        angle = np.sqrt(x * x + y * y + z * z)
        factor = 0.5 if angle == 0 else np.sin(0.5 * angle) / angle
        write_product(qpos, i, quaternion, np.cos(0.5 * angle), factor * x, factor * y, factor * z)


@compiled
def write_product(
    qpos: np.ndarray, row: int, quaternion: int, w: float, x: float, y: float, z: float
) -> None:
    """Multiply a quaternion of qpos from the right by another one, and make it of unit length."""
    pw, px = qpos[row, quaternion], qpos[row, quaternion + 1]
    py, pz = qpos[row, quaternion + 2], qpos[row, quaternion + 3]
    rw = pw * w - px * x - py * y - pz * z
    rx = pw * x + px * w + py * z - pz * y
    ry = pw * y - px * z + py * w + pz * x
    rz = pw * z + px * y - py * x + pz * w
    length = np.sqrt(rw * rw + rx * rx + ry * ry + rz * rz)
    qpos[row, quaternion] = rw / length
    qpos[row, quaternion + 1] = rx / length
    qpos[row, quaternion + 2] = ry / length
    qpos[row, quaternion + 3] = rz / length


@compiled
def correct_joint_slides(
    qpos: np.ndarray,
    qvel: np.ndarray,
    rows: np.ndarray,
    qvel_before: np.ndarray,
    duration: np.ndarray,
    qpos_entries: np.ndarray,
    qvel_entries: np.ndarray,
) -> None:
    """Move bodies on joints by the mean of their velocities before and after a step.

    Args:
        qpos: (n, nq), written to.
        qvel: (n, nv).
        rows: (a,), indices of the simulations.
        qvel_before: (a, nv), at the beginning of the step.
        duration: (a,), s, of the step.
        qpos_entries: Of the body.
        qvel_entries: Of the body.
    """
    for i in range(len(rows)):
        for k in range(len(qpos_entries)):
            change = qvel_before[i, qvel_entries[k]] - qvel[rows[i], qvel_entries[k]]
            qpos[rows[i], qpos_entries[k]] += 0.5 * duration[i] * change


@compiled
def correct_free_slides(
    state: tuple[np.ndarray, np.ndarray],
    rows: np.ndarray,
    before: tuple[np.ndarray, np.ndarray],
    duration: np.ndarray,
    entries: tuple[np.ndarray, np.ndarray],
    axes: tuple[np.ndarray, np.ndarray],
    corrections: tuple[bool, bool],
) -> None:
    """The work of `clashsim.sim.hybrid.slide_step.correct_sliding` for free bodies.

    Args:
        state: qpos (n, nq) and qvel (n, nv), written to.
        rows: (a,), indices of the simulations.
        before: qpos (a, nq) and qvel (a, nv) at the beginning of the step.
        duration: (a,), s, of the step.
        entries: Of the body in qpos (7,) and in qvel (6,).
        axes: Normal (3,) of the plane of sliding, and the same in the axes of the body.
        corrections: Whether to move bodies by the mean of their velocities before and after the
            step, and whether to set tilt and tilting rate to zero.
    """
    qpos, qvel = state
    qpos_before, qvel_before = before
    qpos_entries, qvel_entries = entries
    normal, body_up = axes
    euler, level = corrections
    p, q = qpos_entries[0], qpos_entries[3]
    v, a = qvel_entries[0], qvel_entries[3]
    nx, ny, nz = normal[0], normal[1], normal[2]
    for i in range(len(rows)):
        row = rows[i]
        half_step = 0.5 * duration[i]
        w, x, y, z = qpos[row, q], qpos[row, q + 1], qpos[row, q + 2], qpos[row, q + 3]
        rate = rotated(w, x, y, z, qvel[row, a], qvel[row, a + 1], qvel[row, a + 2])
        yaw_rate = rate[0] * nx + rate[1] * ny + rate[2] * nz
        rx, ry, rz = 0.0, 0.0, 0.0  # rotation vector that corrects the orientation, world axes
        if euler:
            rate = rotated(
                qpos_before[i, q],
                qpos_before[i, q + 1],
                qpos_before[i, q + 2],
                qpos_before[i, q + 3],
                qvel_before[i, a],
                qvel_before[i, a + 1],
                qvel_before[i, a + 2],
            )
            yaw_change = half_step * (rate[0] * nx + rate[1] * ny + rate[2] * nz - yaw_rate)
            rx, ry, rz = yaw_change * nx, yaw_change * ny, yaw_change * nz
            # From where the velocity at the end of the step leads to where the mean velocity does.
            sx = half_step * (qvel_before[i, v] - qvel[row, v])
            sy = half_step * (qvel_before[i, v + 1] - qvel[row, v + 1])
            sz = half_step * (qvel_before[i, v + 2] - qvel[row, v + 2])
            rise = sx * nx + sy * ny + sz * nz
            qpos[row, p] += sx - rise * nx
            qpos[row, p + 1] += sy - rise * ny
            qpos[row, p + 2] += sz - rise * nz
        if level:
            # From the tilted up direction to the normal; the length of the vector product is the
            # sine of the tilt, which is small enough to serve as the angle.
            ux, uy, uz = rotated(w, x, y, z, body_up[0], body_up[1], body_up[2])
            rx += uy * nz - uz * ny
            ry += uz * nx - ux * nz
            rz += ux * ny - uy * nx
            # In the axes of a level body its up direction is the normal.
            qvel[row, a] = yaw_rate * body_up[0]
            qvel[row, a + 1] = yaw_rate * body_up[1]
            qvel[row, a + 2] = yaw_rate * body_up[2]
        # A rotation in world axes before the orientation is one in body axes after it.
        rx, ry, rz = rotated(w, -x, -y, -z, rx, ry, rz)
        angle = np.sqrt(rx * rx + ry * ry + rz * rz)
        factor = 0.5 if angle == 0 else np.sin(0.5 * angle) / angle
        write_product(qpos, row, q, np.cos(0.5 * angle), factor * rx, factor * ry, factor * rz)


@compiled
def rest_since(
    qvel: np.ndarray,
    time: np.ndarray,
    rows: np.ndarray,
    body: tuple[np.ndarray, float],
    still_speed: float,
    earliest: np.ndarray,
    still_since: np.ndarray,
) -> np.ndarray:
    """For how long (m,), s, bodies have been still; negative where they are not.

    Args:
        qvel: (n, nv).
        time: (n,), s.
        rows: (m,), indices of the simulations.
        body: Its entries (6,) in qvel, and its radius (m) about its origin.
        still_speed: m/s, of the fastest point of a still body.
        earliest: (n,), s, before which no body counts as still.
        still_since: (n,), s, written to; NaN for bodies that move.
    """
    qvel_entries, radius = body
    found = np.empty(len(rows))
    v, a = qvel_entries[0], qvel_entries[3]
    for i in range(len(rows)):
        row = rows[i]
        x, y, z = qvel[row, v], qvel[row, v + 1], qvel[row, v + 2]
        speed = np.sqrt(x * x + y * y + z * z)
        x, y, z = qvel[row, a], qvel[row, a + 1], qvel[row, a + 2]
        speed += radius * np.sqrt(x * x + y * y + z * z)
        if not speed < still_speed or time[row] < earliest[row]:
            still_since[row] = np.nan
            found[i] = -1.0
            continue
        if np.isnan(still_since[row]):
            still_since[row] = time[row]
        found[i] = time[row] - still_since[row]
    return found
