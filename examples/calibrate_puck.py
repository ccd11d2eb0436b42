"""Calibrate the shipped puck scene against twelve impacts of a puck with other friction,
restitution and inertia than it expects.

python examples/calibrate_puck.py
"""

import numpy as np

import clashsim

scene = clashsim.Scene.load("puck")
base = clashsim.base_model(scene)
drawn = clashsim.sample(
    scene, 400, seed=1
)  # stands in for recordings: every impact has a theta of its own ...
assert drawn.theta is not None
centre = drawn.theta[7]
near = np.argsort(np.abs(np.log(drawn.theta / centre)).sum(1))[
    :24
]  # ... so take those of nearly one puck
real = clashsim.Impacts(True, drawn.before[near], drawn.after[near])

model = clashsim.calibrate(base, real[np.arange(12)])
test = real[np.arange(12, 24)]
for name, predicted in (
    ("MuJoCo, nominal", base.predict(test, scene.nominal)),
    ("clashsim", model.predict(test)),
):
    error = np.linalg.norm((predicted - test.after)[:, :2], axis=1) / np.linalg.norm(
        test.after[:, :2], axis=1
    )
    print(f"{name:16s} median error of the velocity {np.median(error):.1%}")
for estimate in model.theta:
    print(
        f"{estimate.name:22s} {estimate.value:.3g}  ({estimate.low:.3g} to {estimate.high:.3g})  {estimate.status}"
    )
