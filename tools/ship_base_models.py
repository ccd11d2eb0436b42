"""Make the base models that come with clashsim: sample and distil their scenes.

    python tools/ship_base_models.py [NAME ...] [--device cuda]

writes scenes/NAME.safetensors in the package.
"""

import argparse
from pathlib import Path

import clashsim
from clashsim.core.files import write_atomic
from clashsim.core.progress import bar
from clashsim.core.scene import Scene
from clashsim.fit.base import base_bytes, scenes_with_network
from clashsim.fit.distil import SHIPPED, distil
from clashsim.fit.sample import sample

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("names", nargs="*", default=scenes_with_network())
parser.add_argument("--device", default="cpu")
parser.add_argument("-n", type=int, default=200_000)
arguments = parser.parse_args()
for name in arguments.names:
    scene = Scene.load(name)
    impacts = sample(scene, arguments.n, 0, progress=bar)
    base = distil(scene, impacts, config=SHIPPED, device=arguments.device, progress=bar)
    path = Path(clashsim.__file__).parent / "scenes" / f"{name}.safetensors"
    write_atomic(path, base_bytes(base))
