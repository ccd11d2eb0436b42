"""Films a MuJoCo scene with AprilTags on its bodies, by MuJoCo's own camera."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import mujoco
import numpy as np

from clashsim.core.errors import ParamError
from clashsim.core.files import write_atomic
from clashsim.data.readers.camera_file import Camera, Placement, TagPlacement
from clashsim.data.readers.frames import import_opencv

_CELLS = 8  # of tag36h11, along a side of the black square
_CELL_PIXELS = 16  # of the texture
_MARGIN_CELLS = 1  # white, around the square
_THICKNESS = 2e-4  # m of the plate that a tag is printed on
_FAMILY = "tag36h11"
_AMBIENT, _HEADLIGHT, _LIGHT = 0.3, 0.25, 0.35  # of the light, by where it comes from


@dataclass(frozen=True)
class FilmSettings:
    """The camera, and what a real one does to its frames.

    Attributes:
        width: Of a frame, pixels.
        height: Of a frame, pixels.
        fovy: Vertical field of view, degrees.
        position: Of the camera in the world, m.
        target: Point that it looks at, m.
        rate: Frames per second.
        noise: Standard deviation of grey values (0 to 255).
        seed: Of the noise.
    """

    width: int = 640
    height: int = 480
    fovy: float = 45.0
    position: tuple[float, float, float] = (0.0, -0.25, 0.4)
    target: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rate: float = 120.0
    noise: float = 2.0
    seed: int = 0


class TagFilm:
    """A scene with tags and a camera.

    Args:
        xml: The scene (MJCF).
        tags: Tags of the family tag36h11 on its bodies (or on the body `world`), each with a size.
        settings: The camera.
    """

    def __init__(
        self, xml: str, tags: Sequence[TagPlacement], settings: FilmSettings = FilmSettings()
    ) -> None:
        self.settings = settings
        self.tags = tuple(tags)
        spec = mujoco.MjSpec.from_string(xml)
        spec.visual.global_.offwidth = settings.width
        spec.visual.global_.offheight = settings.height
        spec.visual.quality.offsamples = 8
        # White must not be brighter than the frame can show: edges of overexposed tags move.
        spec.visual.headlight.ambient = 3 * [_AMBIENT]
        spec.visual.headlight.diffuse = 3 * [_HEADLIGHT]
        spec.visual.headlight.specular = 3 * [0.0]
        for light in spec.lights:
            light.diffuse = 3 * [_LIGHT / len(spec.lights)]
            light.specular = 3 * [0.0]
        for tag in tags:
            _add_plate(spec, tag)
        axes = self._axes() * (1, -1, -1)  # MuJoCo's cameras have y up and look along -z
        spec.worldbody.add_camera(
            name="film", pos=settings.position, quat=_quaternion(axes), fovy=settings.fovy
        )
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)

    @property
    def camera(self) -> Camera:
        """The camera file of this camera, with its exact intrinsics and pose."""
        s = self.settings
        focal = s.height / 2 / np.tan(np.radians(s.fovy) / 2)
        matrix = (
            (focal, 0.0, s.width / 2 - 0.5),
            (0.0, focal, s.height / 2 - 0.5),
            (0.0, 0.0, 1.0),
        )
        rows = tuple(tuple(float(value) for value in row) for row in self._axes())
        has_world_tag = any(tag.body == "world" for tag in self.tags)
        pose = None if has_world_tag else Placement(s.position, matrix=rows)
        return Camera(s.width, s.height, matrix, _FAMILY, self.tags, rate=s.rate, pose=pose)

    def write_camera(self, path: Path) -> None:
        """Write the camera file (.json)."""
        content = json.dumps(_without_none(asdict(self.camera)), indent=1)
        write_atomic(path, content.encode())

    def frames(self, qpos: np.ndarray) -> Iterator[np.ndarray]:
        """Render frames.

        Args:
            qpos: Positions (T, nq) of the scene at the times of the frames; or (T, k, nq) at k
                times within each exposure, which blurs what moves.

        Yields:
            Grey values (height, width) of 8 bits.
        """
        s = self.settings
        random = np.random.default_rng(s.seed)
        exposures = qpos[:, None] if qpos.ndim == 2 else qpos
        try:
            renderer = mujoco.Renderer(self.model, s.height, s.width)
        except Exception as error:  # of EGL, OSMesa or GLFW, each with errors of its own
            raise ParamError(f"MuJoCo has no renderer here ({error}); set MUJOCO_GL=egl") from None
        with renderer:
            for exposure in exposures:
                light = np.zeros((s.height, s.width))
                for q in exposure:
                    self.data.qpos[:] = q
                    mujoco.mj_forward(self.model, self.data)
                    renderer.update_scene(self.data, "film")
                    light += renderer.render() @ (0.299, 0.587, 0.114)
                grey = light / len(exposure) + s.noise * random.standard_normal(light.shape)
                yield np.clip(np.round(grey), 0, 255).astype(np.uint8)

    def write_frames(self, folder: Path, qpos: np.ndarray) -> None:
        """Render frames into a folder as frame_0000.png and so on."""
        from PIL import Image

        folder.mkdir(parents=True)
        for number, grey in enumerate(self.frames(qpos)):
            Image.fromarray(grey).save(folder / f"frame_{number:04d}.png")

    def pose_of(self, body: str, qpos: np.ndarray) -> np.ndarray:
        """True poses (T, 7) of a body, m and wxyz, for positions (T, nq) of the scene."""
        poses = []
        for q in qpos:
            self.data.qpos[:] = q
            mujoco.mj_kinematics(self.model, self.data)
            poses.append(np.r_[self.data.body(body).xpos, self.data.body(body).xquat])
        return np.array(poses)

    def _axes(self) -> np.ndarray:
        """The camera's axes in the world (3, 3), as columns: right, down, forward."""
        forward = np.subtract(self.settings.target, self.settings.position)
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, [0, 0, 1])
        if np.linalg.norm(right) < 1e-6:  # it looks straight down
            right = np.array([1.0, 0, 0])
        right = right / np.linalg.norm(right)
        return np.column_stack([right, np.cross(forward, right), forward])


def tag_picture(number: int, *, family: str = _FAMILY) -> np.ndarray:
    """A tag with its white margin, grey values (n, n), as OpenCV draws it."""
    cv2 = import_opencv()
    name = "DICT_APRILTAG_" + family.removeprefix("tag")
    dictionary = cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, name))
    cells = dictionary.markerSize + 2
    square = cv2.aruco.generateImageMarker(dictionary, number, cells * _CELL_PIXELS)
    return np.pad(square, _MARGIN_CELLS * _CELL_PIXELS, constant_values=255)


def _add_plate(spec: mujoco.MjSpec, tag: TagPlacement) -> None:
    """Add a plate without mass and contact, on which a tag is printed."""
    assert tag.size is not None
    picture = tag_picture(tag.tag)
    name = f"tag_{tag.tag}"
    spec.assets[f"{name}.png"] = _png(picture)
    spec.add_texture(name=name, type=mujoco.mjtTexture.mjTEXTURE_2D, file=f"{name}.png")
    material = spec.add_material(name=name, specular=0.0, shininess=0.0)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    half = tag.size * (_CELLS + 2 * _MARGIN_CELLS) / _CELLS / 2
    transform = Placement(tag.position, tag.quaternion, tag.matrix).transform(name)
    body = spec.worldbody if tag.body == "world" else spec.body(tag.body)
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[half, half, _THICKNESS / 2],
        pos=transform[:3, 3] - _THICKNESS / 2 * transform[:3, 2],
        quat=_quaternion(transform[:3, :3]),
        material=name,
        contype=0,
        conaffinity=0,
        mass=0,
    )


def _quaternion(rotation: np.ndarray) -> np.ndarray:
    """Quaternion wxyz of a rotation (3, 3)."""
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(rotation).ravel())
    return quaternion


def _png(picture: np.ndarray) -> bytes:
    """Grey values (n, n) as a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


def _without_none(value: object) -> object:
    """Tables without their empty entries, since JSON files leave these out."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value
