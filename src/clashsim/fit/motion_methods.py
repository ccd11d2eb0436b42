"""The methods of `clashsim fit`: how each finds its model of recorded trajectories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clashsim.core.errors import ClashError
from clashsim.core.progress import Progress, quiet
from clashsim.fit.motion_fit import MotionFit, fit_motion
from clashsim.fit.motion_run import MotionMethod, MotionModel
from clashsim.fit.recorded_scene import MotionFitConfig, RecordedScene

if TYPE_CHECKING:
    from clashsim.fit.learned_friction import LearnedFriction


@dataclass(frozen=True, eq=False)
class MethodResult:
    """What a method found.

    Attributes:
        model: The model.
        fit: How its parameters were identified.
        notes: Sentences on the method.
        friction: Formulas that describe what networks learned, joint by joint.
    """

    model: MotionModel
    fit: MotionFit
    notes: tuple[str, ...] = ()
    friction: tuple[LearnedFriction, ...] = ()


def fit_with_mujoco(
    recorded: RecordedScene, *, config: MotionFitConfig, progress: Progress = quiet
) -> MethodResult:
    """MuJoCo with identified parameters, by CMA-ES and Gauss-Newton steps on batched rollouts.

    Args:
        recorded: The scene with its parameters, and the trials to fit.
        config: How to go on.
        progress: Shows the progress.
    """
    fit = fit_motion(recorded, config=config, progress=progress, title="fitting mujoco")
    return _result(recorded, fit, "mujoco")


def fit_with_mjx(
    recorded: RecordedScene, *, config: MotionFitConfig, progress: Progress = quiet
) -> MethodResult:
    """The same model, by gradients of MJX instead of a search.

    Args:
        recorded: The scene with its parameters, and the trials to fit.
        config: How to go on.
        progress: Shows the progress.
    """
    from clashsim.fit.motion_mjx import MjxDerivatives

    derivatives = MjxDerivatives(recorded.scene)
    fit = fit_motion(
        recorded,
        config=replace(config, search=False),
        differentiate=derivatives,
        progress=progress,
        title="fitting mjx",
    )
    return _result(recorded, fit, "mjx")


def _result(recorded: RecordedScene, fit: MotionFit, method: MotionMethod) -> MethodResult:
    """A fit of parameters alone as the result of a method."""
    bodies = recorded.motion.observer.body_names
    return MethodResult(MotionModel(recorded.scene, fit.estimates, method, bodies=bodies), fit)


def fit_with_networks(
    recorded: RecordedScene,
    *,
    config: MotionFitConfig,
    progress: Progress = quiet,
    analytic: MethodResult | None = None,
) -> MethodResult:
    """MuJoCo's parameters as by `fit_with_mujoco`, and a network in the torque of each joint.

    Args:
        recorded: The scene with its parameters, and the trials to fit.
        config: How to go on.
        progress: Shows the progress.
        analytic: Result of `fit_with_mujoco`, if there is one.
    """
    from clashsim.fit.motion_neural import NeuralFitConfig, joint_networks, train_networks

    joint_networks(recorded, 1)  # refuses other joints before the work
    if analytic is None:
        analytic = fit_with_mujoco(recorded, config=config, progress=progress)
    settings = NeuralFitConfig(dissipative=config.dissipative, seed=config.seed)
    trained = train_networks(recorded, analytic.fit, settings, progress=progress)
    model = replace(
        analytic.model,
        method="neural",
        augmentation=trained.augmentation,
        weights=trained.weights,
    )
    change = 100 * (trained.error / trained.error_without - 1)
    note = f"the networks change the error on trials that judge them by {change:.0f} %"
    if not trained.kept:
        note += ", which is no clear gain, so they output zero: the predictions are those of mujoco"
    return MethodResult(model, analytic.fit, (note,), trained.friction)


def fit_with_graph(
    recorded: RecordedScene, *, config: MotionFitConfig, progress: Progress = quiet
) -> MethodResult:
    """The shipped graph network, with parameters that are identified in MuJoCo.

    Args:
        recorded: The scene, whose own parameters are not used, and the trials to fit.
        config: How to go on.
        progress: Shows the progress.
    """
    from clashsim.fit.motion_graph import graph_scene

    changed = graph_scene(recorded)
    analytic = fit_with_mujoco(changed, config=config, progress=progress)
    model = replace(analytic.model, method="graph")
    timestep = float(changed.scene.author.opt.timestep)
    note = (
        "the graph network takes contact, size, rounding, inertia and gravity as parameters, which "
        f"were identified in MuJoCo with its time step of {timestep:.3g} s, whatever --params says"
    )
    return MethodResult(model, analytic.fit, (note,))


def refusal(name: MotionMethod, recorded: RecordedScene) -> ClashError | None:
    """Why a method cannot take a scene, found before any work; None if it can.

    Args:
        name: Name of the method.
        recorded: The scene with its parameters, and the trials to fit.
    """
    try:
        if name == "mjx":
            from clashsim.sim.mjx.model import put_scene

            put_scene(recorded.scene, faithful=True)
        elif name == "neural":
            from clashsim.fit.motion_neural import joint_networks

            joint_networks(recorded, 1)
        elif name == "graph":
            from clashsim.fit.motion_graph import graph_scene

            graph_scene(recorded)
    except ClashError as error:
        return error
    return None


FitMethod = Callable[..., MethodResult]


def method_named(name: MotionMethod) -> FitMethod:
    """The function of a method.

    Args:
        name: Name of the method.
    """
    methods: dict[MotionMethod, FitMethod] = {
        "mujoco": fit_with_mujoco,
        "mjx": fit_with_mjx,
        "neural": fit_with_networks,
        "graph": fit_with_graph,
    }
    return methods[name]
