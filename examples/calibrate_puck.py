"""Calibrate the shipped puck scene on twelve impacts of a puck with other parameters.

    python examples/calibrate_puck.py

The impacts are simulated here, as a stand-in for recordings: friction, restitution and inertia
differ from what the scene expects.
"""

import numpy as np

import clashsim

scene = clashsim.Scene.load("puck")
base = clashsim.distilled_model(scene)

# Each simulated impact has its own theta. Take the 24 whose theta is closest to that of number 7:
# they are nearly impacts of one puck.
simulated = clashsim.sample(scene, 400, seed=1)
assert simulated.theta is not None
distance = np.abs(np.log(simulated.theta / simulated.theta[7])).sum(1)
closest = np.argsort(distance)[:24]
impacts = clashsim.Impacts(True, simulated.before[closest], simulated.after[closest])
fitted = impacts[np.arange(12)]
test = impacts[np.arange(12, 24)]

model = clashsim.calibrate(base, fitted)
predictions = {
    "MuJoCo, nominal": base.predict(test, scene.nominal),
    "clashsim": model.predict(test),
}
for name, predicted in predictions.items():
    error = np.linalg.norm((predicted - test.after)[:, :2], axis=1)
    speed = np.linalg.norm(test.after[:, :2], axis=1)
    print(f"{name:16s} median error of the velocity {np.median(error / speed):.1%}")
for estimate in model.theta:
    interval = f"({estimate.low:.3g} to {estimate.high:.3g})"
    print(f"{estimate.name:22s} {estimate.value:.3g}  {interval}  {estimate.status}")
