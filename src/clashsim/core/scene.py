"""A MuJoCo scene with its named parameters and the pair of geoms whose collision is learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from clashsim.core.errors import ParamError, SceneError, did_you_mean
from clashsim.core.mjcf_assets import parse_scene, scene_assets
from clashsim.core.mobility import Mobility
from clashsim.core.params import Param, Slot, locate_param, nominal
from clashsim.core.settings_file import load_settings
from clashsim.core.strike_distribution import StrikeDistribution

STRIKE, GROUND = (
    "strike",
    "ground",
)  # names given to the two contact pairs where the author's file has none
# What real impacts show and MuJoCo's contact does not have; sampled like any other parameter
# (`clashsim.core.effects`).
SAMPLED_EFFECTS = ("effect/tangential_stiffness", "effect/x", "effect/y", "effect/yaw")
# Those that act on the outcome by a formula (`clashsim.nets.effects`), so that no network has to
# learn them.
EXACT_EFFECTS = (
    "effect/drag",
    "effect/height",
    "effect/pitch",
    "effect/tip_height",
    "effect/tip_reach",
    "effect/tip_pitch",
    "effect/tip_gyration",
)
EFFECTS = SAMPLED_EFFECTS + EXACT_EFFECTS
# Fields whose derived constants MuJoCo must recompute after a write.
_CONST_FIELDS = ("body_mass", "body_inertia", "body_ipos", "body_iquat", "dof_armature", "qpos0")


@dataclass(frozen=True, eq=False)
class Scene:
    """MJCF text, its assets, the two geoms that collide, the ground if there is one, and what may
    be identified.

    `struck` is the geom whose motion is predicted, `striker` the geom it meets (on a driven, free
    or fixed body), `ground` the geom on which the struck body slides with contact maintained; None
    for bodies on planar joints and for free flight.
    """

    xml: str
    struck: str
    striker: str
    ground: str | None = None
    params: tuple[Param, ...] = ()
    strikes: StrikeDistribution = field(default_factory=StrikeDistribution)
    assets: Mapping[str, bytes] = field(default_factory=dict)
    name: str = "scene"

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process: the fields; what was compiled of them is compiled again
        there.
        """
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def spec(self) -> mujoco.MjSpec:
        """The author's scene with a named `<pair>` for the strike (and the ground) and two sensors
        that see the strike.
        """
        spec = parse_scene(self.xml, self.assets, self.name)
        geoms = {g.name: g for g in spec.geoms if g.name}
        for role, name in (
            ("struck", self.struck),
            ("striker", self.striker),
            ("ground", self.ground),
        ):
            if name is not None and name not in geoms:
                raise SceneError(
                    f"scene {self.name!r} has no geom named {name!r} for the {role}; {did_you_mean(name, geoms)}{_unnamed(spec)}"
                )
        if self.struck == self.striker:
            raise SceneError(
                f"scene {self.name!r}: the pair needs two different geoms, got {self.struck!r} twice"
            )
        ensure_named_pair(spec, self.name, geoms[self.struck], geoms[self.striker], STRIKE)
        if self.ground is not None:
            ensure_named_pair(spec, self.name, geoms[self.struck], geoms[self.ground], GROUND)
        both = {
            "objtype": mujoco.mjtObj.mjOBJ_GEOM,
            "objname": self.struck,
            "reftype": mujoco.mjtObj.mjOBJ_GEOM,
            "refname": self.striker,
        }
        wanted = (1 << int(mujoco.mjtConDataField.mjCONDATA_FOUND)) | (
            1 << int(mujoco.mjtConDataField.mjCONDATA_LINVEL)
        )
        # found (how many contacts), then the relative velocity of the deepest one in its own frame,
        # normal first
        spec.add_sensor(
            name="clashsim/contact",
            type=mujoco.mjtSensor.mjSENS_CONTACT,
            intprm=[wanted, 1, 1],
            **both,
        )
        return spec

    @cached_property
    def base(self) -> mujoco.MjModel:
        """The compiled model at the author's own parameter values."""
        try:
            return self.spec.compile()
        except ValueError as error:
            raise SceneError(
                f"scene {self.name!r} does not compile: {_first_line(error)}"
            ) from None

    @cached_property
    def probe(self) -> mujoco.MjModel:
        """The same model with sensors for distance and nearest points of the pair (costly, so not
        used while stepping).
        """
        spec = self.spec.copy()
        both = {
            "objtype": mujoco.mjtObj.mjOBJ_GEOM,
            "objname": self.struck,
            "reftype": mujoco.mjtObj.mjOBJ_GEOM,
            "refname": self.striker,
        }
        spec.add_sensor(
            name="clashsim/distance", type=mujoco.mjtSensor.mjSENS_GEOMDIST, cutoff=1e3, **both
        )
        spec.add_sensor(
            name="clashsim/fromto", type=mujoco.mjtSensor.mjSENS_GEOMFROMTO, cutoff=1e3, **both
        )
        spec.option.disableflags |= int(
            mujoco.mjtDisableBit.mjDSBL_CONTACT
        )  # distances need no collision detection
        return spec.compile()

    @cached_property
    def slots(self) -> tuple[Slot | None, ...]:
        """Where each parameter lives in the model, in `params` order; None for effects that MuJoCo
        does not have.
        """
        names = [p.name for p in self.params]
        for name in names:
            if names.count(name) > 1:
                raise ParamError(f"two parameters are both named {name!r}")
        for p in self.params:
            if p.target.startswith("effect/") and p.target not in EFFECTS:
                raise ParamError(
                    f"there is no effect {p.target!r}; {did_you_mean(p.target, EFFECTS)}"
                )
        return tuple(
            None if p.target in EFFECTS else locate_param(self.base, p.target) for p in self.params
        )

    def write(self, theta: np.ndarray, field: Callable[[str], np.ndarray]) -> None:
        """Write theta (p,) or (n, p) into the arrays that `field` gives for field names (of a
        model, or of a batch's simulations).
        """
        for slot, param, value in zip(
            self.slots, self.params, np.asarray(theta, float).T, strict=True
        ):
            if slot is not None:
                slot.write(field(slot.field), param.sign * value)

    def model(self, theta: np.ndarray | None = None) -> mujoco.MjModel:
        """A fresh MjModel with theta (p,) written into it; the author's values where theta is None."""
        model = self.spec.compile()
        if theta is not None:
            self.write(theta, lambda name: model_field(model, name))
            mujoco.mj_setConst(model, mujoco.MjData(model))
        return model

    @property
    def nominal(self) -> np.ndarray:
        """Nominal theta, (p,)."""
        return nominal(self.params)

    @property
    def needs_const(self) -> bool:
        """Whether writing theta calls for MuJoCo's derived constants to be recomputed."""
        return any(slot is not None and slot.field in _CONST_FIELDS for slot in self.slots)

    @cached_property
    def struck_body(self) -> Mobility:
        """How the struck body moves."""
        return Mobility.of(self.base, self.struck)

    @cached_property
    def striker_body(self) -> Mobility:
        """How the striker's body moves."""
        return Mobility.of(self.base, self.striker)

    @cached_property
    def plane(self) -> np.ndarray | None:
        """Rows e1, e2, n of the plane in which the struck body moves, (3, 3) in world axes; None in
        free space.
        """
        if self.ground is not None:
            data = mujoco.MjData(self.base)
            mujoco.mj_kinematics(self.base, data)
            return _basis(data.geom(self.ground).xmat.reshape(3, 3)[:, 2])
        return self.struck_body.plane

    @cached_property
    def is_round(self) -> bool:
        """Whether turning the struck body about its origin (in the plane, if there is one) changes
        nothing: a centred ball or disc.
        """
        return self._is_round(self.struck, self.struck_body)

    @cached_property
    def striker_is_round(self) -> bool:
        """Likewise for the striker."""
        return self._is_round(self.striker, self.striker_body)

    def _is_round(self, name: str, body: Mobility) -> bool:
        geom = self.base.geom(name)
        if np.abs(geom.pos[:2]).max() > 1e-9 or int(geom.bodyid[0]) != body.body:
            return False
        if int(geom.type[0]) == int(mujoco.mjtGeom.mjGEOM_SPHERE):
            return abs(float(geom.pos[2])) < 1e-9
        upright = (
            self.plane is not None
            and abs(float((body.rotation @ _axis(geom.quat)) @ self.plane[2])) > 1 - 1e-9
        )
        return upright and int(geom.type[0]) in (
            int(mujoco.mjtGeom.mjGEOM_CYLINDER),
            int(mujoco.mjtGeom.mjGEOM_CAPSULE),
        )

    def with_nominal(self, values: Mapping[str, float]) -> Scene:
        """The scene with other nominal values, by parameter: what is expected before any impact was
        seen.
        """
        unknown = next((name for name in values if name not in {p.name for p in self.params}), None)
        if unknown is not None:
            raise ParamError(
                f"the scene {self.name!r} has no parameter {unknown!r}; {did_you_mean(unknown, (p.name for p in self.params))}"
            )
        return self.with_params(
            [replace(p, nominal=float(values.get(p.name, p.nominal))) for p in self.params]
        )

    def with_params(self, params: Sequence[Param]) -> Scene:
        """The same scene with other parameters to identify."""
        return replace(self, params=tuple(params))

    @staticmethod
    def load(
        source: str | Path,
        *,
        struck: str | None = None,
        striker: str | None = None,
        ground: str | None = None,
    ) -> Scene:
        """A scene shipped by name, or from an MJCF file with an optional settings file (same name,
        .toml) beside it.
        """
        path = Path(source)
        if path.suffix != ".xml":
            shipped = shipped_scenes()
            if str(source) not in shipped:
                raise SceneError(
                    f"no scene {str(source)!r}: give an MJCF file ending in .xml or a shipped scene; {did_you_mean(str(source), shipped)}"
                )
            path = Path(str(resources.files("clashsim") / "scenes" / f"{source}.xml"))
        if not path.is_file():
            raise SceneError(f"there is no scene file {str(source)!r}")
        settings = load_settings(path.with_suffix(".toml"))
        struck = settings.struck if struck is None else struck
        striker = settings.striker if striker is None else striker
        ground = settings.ground if ground is None else ground
        if struck is None or striker is None:
            raise SceneError(
                f"scene {path.name!r} does not say which geoms collide: give --struck and --striker, or a {path.stem}.toml beside it"
            )
        try:
            xml = (
                path.read_bytes().decode()
            )  # not read_text, which would change the author's line ends
        except UnicodeDecodeError:
            raise SceneError(f"scene file {path.name!r} is not text") from None
        assets = scene_assets(path, xml)
        scene = Scene(xml, struck, striker, ground, (), settings.strikes, assets, path.stem)
        params = contact_params(scene) if settings.param is None else settings.param
        return scene.with_params(params)


def shipped_scenes() -> list[str]:
    """Names of the scenes that come with clashsim."""
    return sorted(
        p.name[:-4]
        for p in (resources.files("clashsim") / "scenes").iterdir()
        if p.name.endswith(".xml")
    )


def contact_params(scene: Scene) -> tuple[Param, ...]:
    """The paper's four parameters (Table I) for any scene: friction and damping ratio, of the pair
    and of the ground.

    Where the author's solref is in the direct form, the damping takes the place of the damping
    ratio, over a range that spans restitution 0 to 1.
    """
    found: list[Param] = []
    for pair, label in ((STRIKE, ""), (GROUND, "ground_")):
        row = mujoco.mj_name2id(scene.base, mujoco.mjtObj.mjOBJ_PAIR, pair)
        if row < 0:
            continue
        mu, ref = float(scene.base.pair_friction[row, 0]), scene.base.pair_solref[row]
        low = 0.05 if pair == STRIKE else 0.02
        found.append(
            Param(
                f"{label}friction",
                f"pair/{pair}/friction[0:2]",
                float(np.clip(mu, low, 1.0)),
                low,
                1.0,
            )
        )
        if ref[0] < 0:
            critical = 2 * float(np.sqrt(-ref[0]))
            least, most = 0.005 * critical, 2 * critical
            found.append(
                Param(
                    f"{label}damping",
                    f"pair/{pair}/solref[1]",
                    float(np.clip(-ref[1], least, most)),
                    least,
                    most,
                    "1/s",
                    "log",
                    -1,
                )
            )
        else:
            found.append(
                Param(
                    f"{label}damping_ratio",
                    f"pair/{pair}/solref[1]",
                    float(np.clip(ref[1], 0.1, 3.0)),
                    0.1,
                    3.0,
                )
            )
    return tuple(found)


def ensure_named_pair(
    spec: mujoco.MjSpec, scene: str, a: mujoco.MjsGeom, b: mujoco.MjsGeom, name: str
) -> None:
    """Name the author's own `<pair>` of two geoms, or add one that keeps the contact as their geoms
    define it.
    """
    for pair in spec.pairs:
        if {pair.geomname1, pair.geomname2} == {a.name, b.name}:
            if not pair.name:
                pair.name = name
            elif pair.name != name:
                raise SceneError(
                    f"scene {scene!r}: the pair of {a.name!r} and {b.name!r} is named {pair.name!r}; name it {name!r} or leave it unnamed"
                )
            return
    bodies = {a.parent.name, b.parent.name}
    for exclude in spec.excludes:
        if {exclude.bodyname1, exclude.bodyname2} == bodies:
            raise SceneError(
                f"scene {scene!r} excludes contact between {a.name!r} and {b.name!r} (<exclude>): remove that to learn their collision"
            )
    if a.parent == b.parent:
        raise SceneError(
            f"scene {scene!r}: geoms {a.name!r} and {b.name!r} belong to one body and cannot collide"
        )
    if not (a.contype & b.conaffinity or b.contype & a.conaffinity):
        raise SceneError(
            f"scene {scene!r} excludes contact between {a.name!r} and {b.name!r} (contype and conaffinity do not match): change that to learn their collision"
        )
    spec.add_pair(name=name, geomname1=a.name, geomname2=b.name, **_mixed(spec, a.name, b.name))


def _mixed(spec: mujoco.MjSpec, first: str, second: str) -> dict[str, Any]:
    """Contact attributes of two geoms combined as MuJoCo does for contacts without a `<pair>`: by
    priority, else friction by maximum and solver parameters by the geoms' solmix.
    """
    model = spec.copy().compile()
    a, b = model.geom(first), model.geom(second)
    if a.priority[0] != b.priority[0]:
        a = b = a if a.priority[0] > b.priority[0] else b
    total = float(a.solmix[0] + b.solmix[0])
    share = float(a.solmix[0]) / total if total > 1e-15 else 0.5
    slide, turn, roll = np.maximum(a.friction, b.friction)
    standard = a.solref[0] > 0 and b.solref[0] > 0
    return {
        "condim": int(max(a.condim[0], b.condim[0])),
        "friction": [slide, slide, turn, roll, roll],
        "solref": share * a.solref + (1 - share) * b.solref
        if standard
        else np.minimum(a.solref, b.solref),
        "solimp": share * a.solimp + (1 - share) * b.solimp,
        "margin": float(max(a.margin[0], b.margin[0])),
        "gap": float(max(a.gap[0], b.gap[0])),
    }


def model_field(model: mujoco.MjModel, name: str) -> np.ndarray:
    """The array of a model that a slot's field names."""
    if name.startswith("opt."):
        value = getattr(model.opt, name[4:])
        if not isinstance(value, np.ndarray):
            raise ParamError(
                f"option {name[4:]!r} is a single number; only vector options such as gravity can be parameters"
            )
        return value
    return getattr(model, name)


def _axis(quat: np.ndarray) -> np.ndarray:
    """The z axis (3,) of a frame given by a quaternion wxyz."""
    out = np.zeros(3)
    mujoco.mju_rotVecQuat(out, np.array([0.0, 0, 1]), np.asarray(quat, float))
    return out


def _basis(normal: np.ndarray) -> np.ndarray:
    """Right-handed rows (e1, e2, normal), with e1 the world axis x (or z) laid into the plane."""
    guess = np.array([1.0, 0, 0]) if abs(normal[0]) < 0.9 else np.array([0, 0, 1.0])
    e1 = guess - normal * (guess @ normal)
    e1 /= np.linalg.norm(e1)
    return np.stack([e1, np.cross(normal, e1), normal])


def _unnamed(spec: mujoco.MjSpec) -> str:
    """A hint at geoms that cannot be called."""
    count = sum(not g.name for g in spec.geoms)
    return f" ({count} of its geoms have no name)" if count else ""


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())
