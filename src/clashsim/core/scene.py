"""A MuJoCo scene with its named parameters and the pair of geoms whose collision is learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from clashsim.core.contact_pairs import (
    GROUND,
    IMMOVABLE_MASS,
    STRIKE,
    free_from_mocap,
    is_generated_name,
    name_geoms,
    name_pairs,
)
from clashsim.core.default_params import default_params
from clashsim.core.errors import ParamError, SceneError, did_you_mean
from clashsim.core.ground_surface import GroundSurface
from clashsim.core.mechanism import Mechanism
from clashsim.core.mjcf_assets import parse_scene, scene_assets
from clashsim.core.mobility import Mobility, looks_same_rotated, plane_basis
from clashsim.core.pair_choice import choose_pair, collision_key, geom_named
from clashsim.core.params import Param, pair_rows
from clashsim.core.scene_model import (
    EXACT_EFFECTS,
    SAMPLED_EFFECTS,
    SceneModel,
    compiler_error,
    model_field,
)
from clashsim.core.settings_file import SceneSettings, load_settings
from clashsim.core.strike_distribution import StrikeDistribution

__all__ = [
    "EXACT_EFFECTS",
    "GROUND",
    "SAMPLED_EFFECTS",
    "STRIKE",
    "Scene",
    "author_model",
    "model_field",
    "scene_params",
    "shipped_scenes",
]

_NO_FALL = 1e-6  # m/s^2, up to which gravity is taken not to act
_SAME_NORMAL = 1e-6  # difference of cosines between axes that are taken to be parallel
_MAX_SENSED_DISTANCE = 1e3  # m, cutoff of the distance sensors; larger than any scene
# Sensors that are added for each pair of geoms that may collide in a strike.
CONTACT_SENSOR = "clashsim/contact"
DISTANCE_SENSOR = "clashsim/distance"
FROMTO_SENSOR = "clashsim/fromto"
# Settings of MuJoCo's contact sensor.
_REDUCE_TO_DEEPEST = 1
_REPORTED_CONTACTS = 1


@dataclass(frozen=True, eq=False)
class Scene(SceneModel):
    """MJCF text, the two geoms that collide, the ground if any, and the parameters to identify.

    Attributes:
        xml: The author's MJCF.
        struck: Name of the geom whose motion is predicted.
        striker: Name of the geom that `struck` collides with, on a driven, free or fixed body.
        ground: Name of the geom on which the struck body slides without leaving it; None for
            bodies on planar joints and for free flight.
        params: The parameters to identify, in the order of `theta`.
        strikes: The ranges from which strikes are drawn.
        assets: Content of the files that the MJCF names, by path.
        name: The scene's name in messages and file names.
        postures: (m,), recorded joint coordinates by the name of the joint, in rad or m. Inverse
            kinematics of an arm begins at the nearest of these m postures.
        in_space: Whether impacts are recorded in space although there is a ground. They are in the
            plane of the ground otherwise.
    """

    xml: str
    struck: str
    striker: str
    ground: str | None = None
    params: tuple[Param, ...] = ()
    strikes: StrikeDistribution = field(default_factory=StrikeDistribution)
    assets: Mapping[str, bytes] = field(default_factory=dict)
    name: str = "scene"
    postures: Mapping[str, np.ndarray] = field(default_factory=dict)
    in_space: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the fields; another process compiles its own models from them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def spec(self) -> mujoco.MjSpec:
        """The author's scene with named pairs for strike and ground, and contact sensors."""
        spec = parse_scene(self.xml, self.assets, self.name)
        name_geoms(spec)
        self._check_geom_names(spec)
        free_from_mocap(spec, (self.struck, self.striker))
        self.let_centres_move(spec)
        try:
            strike = name_pairs(spec, self.name, self.struck, self.striker, STRIKE)
            if self.ground is not None:
                name_pairs(spec, self.name, self.struck, self.ground, GROUND)
        except ValueError as error:
            raise compiler_error(self.name, error) from None
        # Each sensor gives the number of contacts of a pair of geoms, then the distance and the
        # relative velocity of the deepest one in that contact's axes, normal first.
        number_of_contacts = 1 << int(mujoco.mjtConDataField.mjCONDATA_FOUND)
        distance = 1 << int(mujoco.mjtConDataField.mjCONDATA_DIST)
        relative_velocity = 1 << int(mujoco.mjtConDataField.mjCONDATA_LINVEL)
        data = number_of_contacts | distance | relative_velocity
        for i, pair in enumerate(strike):
            spec.add_sensor(
                name=f"{CONTACT_SENSOR}/{i}",
                type=mujoco.mjtSensor.mjSENS_CONTACT,
                intprm=[data, _REDUCE_TO_DEEPEST, _REPORTED_CONTACTS],
                **_between(*pair),
            )
        return spec

    def _check_geom_names(self, spec: mujoco.MjSpec) -> None:
        """Raise a `SceneError` unless all named geoms exist and struck and striker differ."""
        geoms = [geom.name for geom in spec.geoms]
        choices = [body.name for body in spec.bodies if body.name and body.name != "world"]
        for geom in spec.geoms:
            if not is_generated_name(geom.name, geom.parent.name):
                choices.append(geom.name)
        roles = {"struck": self.struck, "striker": self.striker, "ground": self.ground}
        for role, name in roles.items():
            if name is not None and name not in geoms:
                raise SceneError(
                    f"scene {self.name!r} has no body or geom named {name!r} for the {role}; "
                    f"{did_you_mean(name, list(dict.fromkeys(choices)))}"
                )
        if self.struck == self.striker:
            raise SceneError(
                f"scene {self.name!r}: the pair needs two different geoms, "
                f"got {self.struck!r} twice"
            )

    @cached_property
    def strike_geoms(self) -> tuple[tuple[str, str], ...]:
        """Names of the geoms that may collide in a strike: one of the struck body, one striking.

        The first pair is `struck` and `striker`; there are more where a body has several geoms.
        """
        return self._geoms_of(STRIKE)

    @cached_property
    def ground_geoms(self) -> tuple[tuple[str, str], ...]:
        """Names of the geoms that may collide with the ground: one of the struck body, one of it.

        Empty without a ground.
        """
        return () if self.ground is None else self._geoms_of(GROUND)

    def _geoms_of(self, contact: str) -> tuple[tuple[str, str], ...]:
        """Names of the geoms of each pair of a contact, first that of the struck body."""
        model = self.base
        found = []
        for row in pair_rows(model, contact):
            pair = [int(model.pair_geom1[row]), int(model.pair_geom2[row])]
            pair.sort(key=lambda geom: model.body_weldid[model.geom_bodyid[geom]] != self._struck)
            found.append((model.geom(pair[0]).name, model.geom(pair[1]).name))
        return tuple(found)

    @property
    def _struck(self) -> int:
        """Index of the body that carries the struck geom."""
        return int(self.base.body_weldid[self.base.geom(self.struck).bodyid[0]])

    @cached_property
    def probe(self) -> mujoco.MjModel:
        """The model `base` with sensors for distance and nearest points of the pair.

        These sensors are slow, so this model is not used for time stepping.
        """
        spec = self.spec.copy()
        for kind, label in (
            (mujoco.mjtSensor.mjSENS_GEOMDIST, DISTANCE_SENSOR),
            (mujoco.mjtSensor.mjSENS_GEOMFROMTO, FROMTO_SENSOR),
        ):
            for i, pair in enumerate(self.strike_geoms):
                spec.add_sensor(
                    name=f"{label}/{i}", type=kind, cutoff=_MAX_SENSED_DISTANCE, **_between(*pair)
                )
        # The distance sensors do not need collision detection, so it is switched off.
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
        return spec.compile()

    @cached_property
    def struck_body(self) -> Mobility:
        """How the struck body moves."""
        return Mobility.of(self.base, self.struck, self.postures)

    @cached_property
    def free_fall(self) -> np.ndarray:
        """What gravity does to the struck body between contacts; see `Mobility.free_fall`.

        Zero where a ground carries it.
        """
        fall = self.struck_body.free_fall(self.base, self.plane)
        return fall if self.ground is None else np.zeros_like(fall)

    @property
    def striker_yields(self) -> bool:
        """Whether an impact changes the striker's motion.

        Not that of a fixed striker, nor of one in a hand, which goes on whatever it hits.
        """
        striker = self.striker_body
        return not striker.fixed and float(self.base.body_mass[striker.body]) < IMMOVABLE_MASS

    @cached_property
    def striker_body(self) -> Mobility:
        """How the striker's body moves."""
        normal = None if self.plane is None else self.plane[2]
        body = Mobility.of(self.base, self.striker, self.postures, plane_normal=normal)
        if body.mechanism is None or normal is None:
            return body
        # An arm can bring its tool to any height above the plane in which the struck body moves;
        # impacts in a plane do not say to which.
        if len(body.mechanism.postures):
            return _at_usual_height(body, body.mechanism, normal)
        height, half_height = self._extent(self.striker, normal, body.mechanism.reference)
        struck_height, struck_half_height = self._extent(self.struck, normal, self.base.qpos0)
        if abs(height - struck_height) < half_height + struck_half_height:
            return body
        return replace(body, position=body.position + (struck_height - height) * normal)

    def _extent(self, geom: str, normal: np.ndarray, qpos: np.ndarray) -> tuple[float, float]:
        """Height of a geom's centre along a normal, m, and half its extent, at qpos (nq,)."""
        data = mujoco.MjData(self.base)
        data.qpos[:] = qpos
        mujoco.mj_kinematics(self.base, data)
        index = int(self.base.geom(geom).id)
        rotation = data.geom_xmat[index].reshape(3, 3)
        box = self.base.geom_aabb[index]
        centre = data.geom_xpos[index] + rotation @ box[:3]
        half = float(np.abs(rotation.T @ normal) @ box[3:])
        return float(centre @ normal), min(half, float(self.base.geom_rbound[index]))

    @cached_property
    def plane(self) -> np.ndarray | None:
        """Rows e1, e2, n of the plane of the struck body's motion, (3, 3) in world axes.

        None where the body moves in space.
        """
        if self.ground is not None:
            if self.in_space:
                return None
            return plane_basis(GroundSurface.of(self.base, self.ground).normal)
        plane = self.struck_body.plane
        if plane is not None and len(self.struck_body.slides) != 2:
            striker = Mobility.of(self.base, self.striker)
            if not _stays_in_plane(striker, plane[2]):
                return None
        return plane

    @cached_property
    def is_round(self) -> bool:
        """Whether rotating the struck body about its origin changes nothing.

        True for a centred ball, and in a plane for a centred upright disc.
        """
        return looks_same_rotated(self.base, self.struck, self.struck_body, self.plane)

    @cached_property
    def striker_is_round(self) -> bool:
        """Whether rotating the striker about its origin changes nothing, as in `is_round`."""
        return looks_same_rotated(self.base, self.striker, self.striker_body, self.plane)

    def with_nominal(self, values: Mapping[str, float]) -> Scene:
        """Replace nominal values, which are assumed before any impact is recorded.

        Args:
            values: Natural units, by the name of the parameter.

        Returns:
            A copy of the scene with the new nominal values.
        """
        names = [param.name for param in self.params]
        for name in values:
            if name not in names:
                raise ParamError(
                    f"the scene {self.name!r} has no parameter {name!r}; "
                    f"{did_you_mean(name, names)}"
                )
        return self.with_params(
            [replace(p, nominal=float(values.get(p.name, p.nominal))) for p in self.params]
        )

    def recorded_in_space(self) -> Scene:
        """The scene for impacts in space, with the ground as a contact of its own.

        The same scene where impacts are in space already or joints keep the body in a plane.
        Effects of recordings in a plane are no parameters of it.
        """
        if self.ground is None or self.in_space:
            return self
        kept = [param for param in self.params if not param.target.startswith("effect/")]
        return replace(self, in_space=True, params=tuple(kept))

    @staticmethod
    def load(
        source: str | Path,
        *,
        struck: str | None = None,
        striker: str | None = None,
        ground: str | None = None,
    ) -> Scene:
        """Load a shipped scene by name, or an MJCF file with the settings file beside it.

        Args:
            source: Name of a shipped scene, or an MJCF or URDF file ending in .xml or .urdf. A
                settings file has the same name and ends in .toml; it may be absent. It does not
                count where `struck` and `striker` are another pair than the one that it names.
            struck: Name of the struck geom or of its body; by default the one in the settings file,
                or the only one that can be meant.
            striker: Likewise of the striker.
            ground: Likewise of the ground.

        Returns:
            The scene, with the parameters of the settings file, or `scene_params` without one.

        Raises:
            SceneError: A file is missing or malformed, or which geoms collide is not clear.
        """
        path = _scene_path(source)
        xml, assets = _read_scene(path)
        settings = load_settings(path.with_suffix(".toml"))
        if struck is not None and striker is not None and settings.struck and settings.striker:
            model = _author_model(xml, assets, path.stem)
            if not _is_pair_of(settings, model, struck, striker):
                settings = SceneSettings()
        struck = settings.struck if struck is None else struck
        striker = settings.striker if striker is None else striker
        ground = settings.ground if ground is None else ground
        # Settings name all geoms; without them, what is not given is chosen.
        if settings.struck is None or settings.striker is None:
            model = _author_model(xml, assets, path.stem)
            chosen = choose_pair(model, struck, striker)
            struck, striker = chosen.struck, chosen.striker
            ground = chosen.ground if ground is None else geom_named(model, ground)
        assert struck is not None and striker is not None
        scene = Scene(
            xml,
            struck,
            striker,
            ground,
            strikes=settings.strikes,
            assets=assets,
            name=path.stem,
        )
        params = scene_params(scene) if settings.param is None else settings.param
        return scene.with_params(params)


def shipped_scenes() -> list[str]:
    """List the names of the scenes that come with clashsim."""
    folder = resources.files("clashsim") / "scenes"
    files = [file.name for file in folder.iterdir()]
    return sorted(name.removesuffix(".xml") for name in files if name.endswith(".xml"))


def scene_params(scene: Scene) -> tuple[Param, ...]:
    """Name the parameters that are identified where a scene has no settings.

    Args:
        scene: The scene; its own parameters are not used.

    Returns:
        Friction, stiffness and damping of the strike, friction and damping of the ground, the
        striker's mass, the struck body's distribution of mass, and in a plane the effects that
        recordings show.
    """
    return default_params(
        scene.base,
        (scene.struck_body, scene.striker_body),
        struck=scene.struck,
        planar=scene.plane is not None,
        is_round=scene.is_round,
        falls=bool(np.abs(scene.free_fall).max() > _NO_FALL),
    )


def _scene_path(source: str | Path) -> Path:
    """Find the MJCF file of a shipped scene by name, or check that a given one exists."""
    path = Path(source)
    if path.suffix not in (".xml", ".urdf"):
        shipped = shipped_scenes()
        if str(source) not in shipped:
            raise SceneError(
                f"no scene {str(source)!r}: give an MJCF (.xml) or URDF (.urdf) file or a shipped "
                f"scene; {did_you_mean(str(source), shipped)}"
            )
        path = Path(str(resources.files("clashsim") / "scenes" / f"{source}.xml"))
    if not path.is_file():
        raise SceneError(f"there is no scene file {str(source)!r}")
    return path


def author_model(source: str | Path) -> mujoco.MjModel:
    """Compile a scene as its author wrote it, with names for all geoms.

    Args:
        source: Name of a shipped scene, or an MJCF or URDF file.
    """
    path = _scene_path(source)
    xml, assets = _read_scene(path)
    return _author_model(xml, assets, path.stem)


def read_scene_file(source: str | Path) -> tuple[Path, str, dict[str, bytes]]:
    """Read a scene's file.

    Args:
        source: Name of a shipped scene, or an MJCF or URDF file.

    Returns:
        Its path, its text, and the content of the files that it names.
    """
    path = _scene_path(source)
    return path, *_read_scene(path)


def _read_scene(path: Path) -> tuple[str, dict[str, bytes]]:
    """The text of a scene file, and the content of the files that it names."""
    try:
        # Not read_text, which would change the author's line endings.
        xml = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise SceneError(f"scene file {path.name!r} is not text") from None
    return xml, scene_assets(path, xml)


def _is_pair_of(settings: SceneSettings, model: mujoco.MjModel, struck: str, striker: str) -> bool:
    """Whether settings are of the pair that is named; also where a name is not in the model."""
    given = [geom_named(model, name) for name in (struck, striker)]
    named = [settings.struck, settings.striker]
    geoms = {model.geom(i).name for i in range(model.ngeom)}
    if not geoms.issuperset([*given, *named]):
        return True  # the scene says which name is missing
    keys = [collision_key(model, str(name)) for name in given]
    return keys == [collision_key(model, str(name)) for name in named]


def _author_model(xml: str, assets: Mapping[str, bytes], name: str) -> mujoco.MjModel:
    """The author's scene, compiled, with names for all geoms."""
    spec = parse_scene(xml, assets, name)
    name_geoms(spec)
    try:
        return spec.compile()
    except ValueError as error:
        raise compiler_error(name, error) from None


def _at_usual_height(body: Mobility, mechanism: Mechanism, normal: np.ndarray) -> Mobility:
    """A body with the height and tilt that an arm's recorded postures give it, of median height."""
    positions, rotations = mechanism.posture_poses
    heights = positions @ normal
    row = int(np.argsort(heights)[len(heights) // 2])
    turn = Rotation.from_matrix(rotations[row] @ body.rotation.T).as_quat(scalar_first=True)
    yaw = 2 * np.arctan2(turn[1:] @ normal, turn[0])
    level = Rotation.from_rotvec(-yaw * normal).as_matrix() @ rotations[row]
    higher = (heights[row] - body.position @ normal) * normal
    return replace(body, position=body.position + higher, rotation=level)


def _stays_in_plane(body: Mobility, normal: np.ndarray) -> bool:
    """Whether the joints of a body keep it in planes with a given normal (3,)."""
    if body.fixed:
        return True
    if body.mechanism is not None:
        own_normal = body.mechanism.normal
        return own_normal is not None and abs(float(own_normal @ normal)) > 1 - _SAME_NORMAL
    if body.free or np.abs(body.slides @ normal).max(initial=0.0) > _SAME_NORMAL:
        return False
    return body.hinge is None or abs(float(body.hinge @ normal)) > 1 - _SAME_NORMAL


def _between(struck: str, striker: str) -> dict[str, Any]:
    """Attributes that make a sensor measure between two geoms."""
    return {
        "objtype": mujoco.mjtObj.mjOBJ_GEOM,
        "objname": struck,
        "reftype": mujoco.mjtObj.mjOBJ_GEOM,
        "refname": striker,
    }
