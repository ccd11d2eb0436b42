"""Which geoms of a scene collide, where its author does not say.

Bodies are told apart by what moves them: nothing (floors, walls), actuators or motion capture
(arms, pushers), or only contact (objects). An object is struck by what actuators move, or hits what
stands still; it slides on what it lies on in the reference configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from clashsim.core.errors import SceneError

_LEVEL_COSINE = 0.99  # between gravity and the normal of a geom on which bodies can lie
_RESTING_GAP = 5e-3  # m: a body this close above a flat geom lies on it
_MAX_LISTED = 6  # names in an error message
_ROLES = {"struck": "is struck", "striker": "strikes"}


@dataclass(frozen=True)
class PairChoice:
    """Names of the geoms that collide, and of the ground; None without a ground."""

    struck: str
    striker: str
    ground: str | None


def choose_pair(model: mujoco.MjModel, struck: str | None, striker: str | None) -> PairChoice:
    """Find the geoms that collide, where only one pair can be meant.

    Args:
        model: The compiled scene, all of whose geoms have names.
        struck: Name of the struck geom or body; None to choose it.
        striker: Name of the striking geom or body; None to choose it.

    Returns:
        The names of geoms.

    Raises:
        SceneError: Several pairs could be meant; the message lists the candidates.
    """
    bodies = _Bodies(model)
    struck_geom = None if struck is None else geom_named(model, struck)
    striker_geom = None if striker is None else geom_named(model, striker)
    if struck_geom is None:
        others = [body for body in bodies.objects if body != bodies.of_geom(striker_geom)]
        struck_geom = bodies.only_one("struck", "objects that nothing drives", others)
    struck_body = bodies.of_geom(struck_geom)
    ground = bodies.ground(struck_body)
    if striker_geom is None:
        others = [body for body in bodies.objects if body != struck_body]
        candidates = bodies.tools or others
        if candidates:
            kind = "driven bodies" if bodies.tools else "other objects"
            striker_geom = bodies.only_one("striker", kind, candidates)
        else:
            striker_geom = bodies.only_fixed(ground)
    if striker_geom == ground:
        ground = None
    return PairChoice(struck_geom, striker_geom, ground)


def geom_named(model: mujoco.MjModel, name: str) -> str:
    """The geom of that name, or the first of the body of that name that can collide."""
    if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, name) >= 0:
        return name
    body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name)
    if body < 0:
        return name  # whoever looks for the geom says that it is missing
    geoms = [geom for geom in range(model.ngeom) if int(model.geom_bodyid[geom]) == body]
    colliding = [geom for geom in geoms if _collides(model, geom)]
    if not colliding:
        raise SceneError(f"body {name!r} has no geom that can collide")
    return str(model.geom(colliding[0]).name)


def collision_key(model: mujoco.MjModel, geom: str) -> tuple[str, int]:
    """What collides where a geom does: equal for geoms that belong to the same thing.

    That is the body whose joints or whose motion capture move the geom. Of what stands still it is
    the geom's own body, and of the world's own geoms each one.

    Args:
        model: The compiled scene.
        geom: Name of a geom.

    Returns:
        A kind and a number.
    """
    body = int(model.geom(geom).bodyid[0])
    mover = _mover(model, body)
    if mover != 0 or body != 0:
        return "body", mover or body
    return "geom", int(model.geom(geom).id)


class _Bodies:
    """The bodies of a model that can collide, each as the one whose joints move it.

    Attributes:
        objects: Bodies that only contact moves.
        tools: Bodies at the end of chains that actuators or motion capture move.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self._model = model
        self._geoms: dict[int, list[int]] = {}
        for geom in range(model.ngeom):
            if _collides(model, geom):
                self._geoms.setdefault(_mover(model, int(model.geom_bodyid[geom])), []).append(geom)
        moving = [body for body in self._geoms if body != 0]
        driven = {int(model.body_rootid[body]) for body in moving if self._is_driven(body)}
        self.objects = [body for body in moving if int(model.body_rootid[body]) not in driven]
        links = [body for body in moving if int(model.body_rootid[body]) in driven]
        self.tools = [body for body in links if not any(self._carries(body, o) for o in links)]

    def of_geom(self, geom: str | None) -> int | None:
        """The body that moves a geom."""
        if geom is None or mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_GEOM, geom) < 0:
            return None
        return _mover(self._model, int(self._model.geom(geom).bodyid[0]))

    def only_one(self, role: str, kind: str, bodies: list[int]) -> str:
        """The first geom of the only body, or an error that lists several."""
        if len(bodies) != 1:
            if not bodies:
                self._refuse_nothing(role, kind)
            found = f"there are {len(bodies)} {kind}"
            raise SceneError(
                f"which geom {_ROLES[role]} is not clear, since {found} "
                f"({self._listed(bodies)}): give --{role}"
            )
        return str(self._model.geom(self._geoms[bodies[0]][0]).name)

    def _refuse_nothing(self, role: str, kind: str) -> None:
        """Raise a `SceneError` that says why no body can have a role."""
        model = self._model
        moving = {int(model.body_weldid[body]) for body in range(1, model.nbody)} - {0}
        silent = sorted(body for body in moving if body not in self._geoms)
        if silent:
            raise SceneError(
                f"there are no {kind} that can collide: no geom of {self._listed(silent)} collides "
                "(contype and conaffinity are 0)"
            )
        raise SceneError(
            f"which geom {_ROLES[role]} is not clear, since there are no {kind}: its body needs a "
            f"free joint, slides or hinges; if it has them, give --{role}"
        )

    def _listed(self, bodies: list[int]) -> str:
        """Names of bodies, for a message."""
        names = [self._model.body(body).name or f"body {body}" for body in bodies]
        return ", ".join(names[:_MAX_LISTED])

    def only_fixed(self, ground: str | None) -> str:
        """The only geom that stands still, besides the ground if there is another."""
        fixed = [str(self._model.geom(geom).name) for geom in self._geoms.get(0, [])]
        others = [name for name in fixed if name != ground]
        if len(others) == 1 or len(fixed) == 1:
            return (others or fixed)[0]
        found = f"there are {len(fixed)} that stand still" if fixed else "nothing else can collide"
        listed = f" ({', '.join(fixed[:_MAX_LISTED])})" if fixed else ""
        raise SceneError(f"which geom strikes is not clear, since {found}{listed}: give --striker")

    def ground(self, body: int | None) -> str | None:
        """The flat geom that stands still and on which a free body lies, if any."""
        model = self._model
        if body is None or body == 0 or self._joint_kinds(body) != [mujoco.mjtJoint.mjJNT_FREE]:
            return None
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        flat = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_BOX))
        down = _unit(model.opt.gravity)
        for geom in self._geoms.get(0, []):
            if int(model.geom_type[geom]) not in flat:
                continue
            normal = data.geom_xmat[geom].reshape(3, 3)[:, 2]
            if down.any() and abs(float(normal @ down)) < _LEVEL_COSINE:
                continue
            gaps = [
                mujoco.mj_geomDistance(model, data, own, geom, 1.0, None)
                for own in self._geoms[body]
            ]
            if min(gaps) < _RESTING_GAP:
                return str(model.geom(geom).name)
        return None

    def _is_driven(self, body: int) -> bool:
        """Whether actuators, tendons of actuators or motion capture move a body."""
        model = self._model
        root = int(model.body_rootid[body])
        if int(model.body_mocapid[root]) >= 0:
            return True
        for actuator in range(model.nu):
            kind = int(model.actuator_trntype[actuator])
            target = int(model.actuator_trnid[actuator, 0])
            if kind == int(mujoco.mjtTrn.mjTRN_JOINT):
                moved = int(model.jnt_bodyid[target])
                if int(model.body_rootid[moved]) == root:
                    return True
        return False

    def _carries(self, body: int, other: int) -> bool:
        """Whether a body moves another one further out on the same chain."""
        model = self._model
        if body == other:
            return False
        while other > 0:
            other = int(model.body_weldid[model.body_parentid[other]])
            if other == body:
                return True
        return False

    def _joint_kinds(self, body: int) -> list[int]:
        first = int(self._model.body_jntadr[body])
        count = int(self._model.body_jntnum[body])
        return [int(kind) for kind in self._model.jnt_type[first : first + count]]


def _mover(model: mujoco.MjModel, body: int) -> int:
    """The body whose joints, or whose motion capture, move a body; 0 for what stands still."""
    root = int(model.body_rootid[body])
    if int(model.body_mocapid[root]) >= 0 and int(model.body_weldid[body]) == 0:
        return root
    return int(model.body_weldid[body])


def _collides(model: mujoco.MjModel, geom: int) -> bool:
    """Whether a geom can collide with anything."""
    if model.geom_contype[geom] or model.geom_conaffinity[geom]:
        return True
    return geom in model.pair_geom1 or geom in model.pair_geom2


def _unit(vector: np.ndarray) -> np.ndarray:
    """A vector (3,) of length one, or zero."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else np.zeros(3)
