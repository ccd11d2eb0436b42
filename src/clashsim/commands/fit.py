"""`clashsim fit`: identify a scene's parameters on whole recorded trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from clashsim.commands.motion_tables import print_motion_run
from clashsim.commands.option_types import Names, OutputPath, SceneArgument, TrialsArgument
from clashsim.commands.shared import say
from clashsim.core.progress import bar

if TYPE_CHECKING:
    from clashsim.pipeline.motion_fitting import FitRunConfig

MethodName = Literal["mujoco", "mjx", "neural", "graph"]


@dataclass(frozen=True)
class FitOptions:
    """Fit a scene to whole trajectories: tosses, pendulums, arms, anything with joints or contact.

    Example: clashsim fit scene.xml trials.safetensors -o runs/pendulum

    Trials are files of clashsim import or record. Bodies and joints are found by their names; what
    was recorded can be poses of bodies, coordinates of hinges and slides, or both. Each trial is
    predicted from a state that is fitted to its first frames. A quarter of the trials is held out
    to test the result.

    Methods: mujoco identifies parameters by CMA-ES and Gauss-Newton steps on MuJoCo's rollouts;
    mjx by gradients in MJX; neural adds a small network to the torque of each joint, or with
    --dissipative to its damping; graph uses the graph network for one free body
    of box, mesh or cylinder geoms.

    In Python: clashsim.load("runs/pendulum").simulator().
    """

    scene: SceneArgument
    """MJCF (.xml) or URDF file, or name of a built-in scene."""
    trials: TrialsArgument
    """File with trials (.safetensors of clashsim import, .npz of clashsim record)."""
    out: OutputPath
    """Folder to write the run to."""
    method: MethodName = "mujoco"
    """What is fitted and simulates."""
    compare: Annotated[tuple[MethodName, ...], arg(metavar="METHODS")] = ()
    """Further methods to fit and test on the same trials, for one table."""
    params: Names = ()
    """Parameters to identify: names, patterns as in "*_damping", or groups (joints, masses,
    inertia, centres, contact, gravity, size). "default" stands for those that are identified
    without this option: --params default gravity.
    """
    bodies: Names = ()
    """Recorded bodies to use; by default all."""
    hold_out: float = 0.25
    """Share of the trials kept back to test the result, from 0 to below 1."""
    seed: int = 0
    """Seed of the fit and of the choice of held-out trials."""
    duration: float = 10.0
    """Seconds of each trial that are used at most."""
    dissipative: bool = False
    """Networks of the method neural only take energy from joints: they act on the damping, which
    stays positive.
    """
    threads: int = 0
    """Threads of MuJoCo; 0 uses all cores."""
    overwrite: bool = False
    """Replace the run if it exists."""


def config_from(options: FitOptions) -> FitRunConfig:
    """Convert options of the command line to the configuration of `fit_run`.

    Args:
        options: As given on the command line.
    """
    from clashsim.fit.recorded_scene import MotionFitConfig
    from clashsim.pipeline.motion_fitting import FitRunConfig

    return FitRunConfig(
        method=options.method,
        compare=options.compare,
        params=options.params,
        bodies=options.bodies,
        hold_out=options.hold_out,
        seed=options.seed,
        duration=options.duration,
        overwrite=options.overwrite,
        fit=MotionFitConfig(threads=options.threads, dissipative=options.dissipative),
    )


def run(options: FitOptions) -> None:
    """Run `clashsim fit`."""
    from clashsim.pipeline.motion_fitting import fit_run

    result = fit_run(
        options.scene,
        options.trials,
        options.out,
        config=config_from(options),
        notify=say,
        progress=bar,
    )
    print_motion_run(result.run)
    print(f"run written to {options.out}; open {options.out / 'report.html'} in a browser")
