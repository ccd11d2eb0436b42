"""Make the base models that come with clashsim: sample each shipped scene, distil it, write
scenes/NAME.safetensors.

python tools/ship_base_models.py [NAME ...] [--device cuda]
"""

import argparse
from pathlib import Path

import clashsim
from clashsim.core.files import write_atomic
from clashsim.core.progress import bar
from clashsim.core.scene import Scene, shipped_scenes
from clashsim.fit.base import base_bytes
from clashsim.fit.distil import SHIPPED, distil
from clashsim.fit.sample import sample

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("names", nargs="*", default=shipped_scenes())
parser.add_argument("--device", default="cpu")
parser.add_argument("-n", type=int, default=200_000)
arguments = parser.parse_args()
for name in arguments.names:
    scene = Scene.load(name)
    base = distil(
        scene,
        sample(scene, arguments.n, 0, progress=bar),
        config=SHIPPED,
        device=arguments.device,
        progress=bar,
    )
    write_atomic(
        Path(clashsim.__file__).parent / "scenes" / f"{name}.safetensors", base_bytes(base)
    )
