"""From a MuJoCo scene and about ten recorded impacts to a calibrated collision model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from clashsim.core.errors import ClashError as ClashError
    from clashsim.core.impacts import Impacts as Impacts
    from clashsim.core.params import Param as Param
    from clashsim.core.scene import Scene as Scene
    from clashsim.core.strike_distribution import StrikeDistribution as StrikeDistribution
    from clashsim.core.trials import Trial as Trial
    from clashsim.core.trials import Trials as Trials
    from clashsim.data.impact_files import read_impacts as read_impacts
    from clashsim.data.impact_files import write_impacts as write_impacts
    from clashsim.data.logs import read_logs as read_logs
    from clashsim.data.mjcf import write_back as write_back
    from clashsim.data.segmentation.pair_setup import SegmentConfig as SegmentConfig
    from clashsim.data.segmentation.segment import segment as segment
    from clashsim.data.trial_files import read_trials as read_trials
    from clashsim.data.trial_files import write_trials as write_trials
    from clashsim.fit.base import distilled_model as distilled_model
    from clashsim.fit.calibrate import calibrate as calibrate
    from clashsim.fit.calibrated_pairs import CalibratedPairs as CalibratedPairs
    from clashsim.fit.calibrated_run import CalibratedRun as CalibratedRun
    from clashsim.fit.calibration import Calibration as Calibration
    from clashsim.fit.distil import DistillationConfig as DistillationConfig
    from clashsim.fit.distil import DistilledModel as DistilledModel
    from clashsim.fit.distil import distil as distil
    from clashsim.fit.motion_run import MotionRun as MotionRun
    from clashsim.fit.pairs_folder import load as load
    from clashsim.fit.run_folder import save_run as save_run
    from clashsim.fit.sample import sample as sample
    from clashsim.fit.solved_model import SolvedModel as SolvedModel
    from clashsim.pipeline.calibration import CalibrationConfig as CalibrationConfig
    from clashsim.pipeline.calibration import CalibrationResult as CalibrationResult
    from clashsim.pipeline.calibration import calibrate_run as calibrate_run
    from clashsim.pipeline.log_import import ImportConfig as ImportConfig
    from clashsim.pipeline.log_import import import_logs as import_logs
    from clashsim.pipeline.motion_fitting import FitRunConfig as FitRunConfig
    from clashsim.pipeline.motion_fitting import FitRunResult as FitRunResult
    from clashsim.pipeline.motion_fitting import fit_run as fit_run
    from clashsim.pipeline.pair_calibration import PairsResult as PairsResult
    from clashsim.pipeline.pair_calibration import calibrate_pairs as calibrate_pairs
    from clashsim.pipeline.planning import PlanConfig as PlanConfig
    from clashsim.pipeline.planning import PlanResult as PlanResult
    from clashsim.pipeline.planning import plan_run as plan_run
    from clashsim.pipeline.real_sim_real import LoopResult as LoopResult
    from clashsim.pipeline.real_sim_real import LoopRunConfig as LoopRunConfig
    from clashsim.pipeline.real_sim_real import loop_run as loop_run
    from clashsim.pipeline.second_test import RunTest as RunTest
    from clashsim.pipeline.second_test import judge_run as judge_run
    from clashsim.pipeline.training import TrainingConfig as TrainingConfig
    from clashsim.pipeline.training import TrainingResult as TrainingResult
    from clashsim.pipeline.training import train_run as train_run
    from clashsim.sim.augmented.simulator import AugmentedSim as AugmentedSim
    from clashsim.sim.graph.simulator import GraphSim as GraphSim
    from clashsim.sim.hybrid.pairs import LearnedPair as LearnedPair
    from clashsim.sim.hybrid.simulator import HybridSim as HybridSim
    from clashsim.sim.mjx.simulator import MjxSim as MjxSim
    from clashsim.sim.mujoco.contact_parameters import ContactRequest as ContactRequest
    from clashsim.sim.mujoco.contact_parameters import ConvertedContact as ConvertedContact
    from clashsim.sim.mujoco.contact_parameters import contact_behaviour as contact_behaviour
    from clashsim.sim.mujoco.contact_parameters import contact_parameters as contact_parameters
    from clashsim.sim.mujoco.drop import DropConditions as DropConditions
    from clashsim.sim.mujoco.simulator import MujocoSim as MujocoSim
    from clashsim.slides.ground_friction import ground_friction as ground_friction
    from clashsim.slides.slide import Slide as Slide

# Where each public name lives; looked up on first use, so that `import clashsim` costs nothing and
# torch loads only when needed.
_HOMES = {
    "calibrate_run": "pipeline.calibration",
    "calibrate_pairs": "pipeline.pair_calibration",
    "PairsResult": "pipeline.pair_calibration",
    "fit_run": "pipeline.motion_fitting",
    "FitRunConfig": "pipeline.motion_fitting",
    "FitRunResult": "pipeline.motion_fitting",
    "MotionRun": "fit.motion_run",
    "CalibratedPairs": "fit.calibrated_pairs",
    "CalibrationConfig": "pipeline.calibration",
    "CalibrationResult": "pipeline.calibration",
    "plan_run": "pipeline.planning",
    "PlanConfig": "pipeline.planning",
    "PlanResult": "pipeline.planning",
    "train_run": "pipeline.training",
    "TrainingConfig": "pipeline.training",
    "TrainingResult": "pipeline.training",
    "loop_run": "pipeline.real_sim_real",
    "LoopRunConfig": "pipeline.real_sim_real",
    "LoopResult": "pipeline.real_sim_real",
    "judge_run": "pipeline.second_test",
    "RunTest": "pipeline.second_test",
    "import_logs": "pipeline.log_import",
    "ImportConfig": "pipeline.log_import",
    "StrikeDistribution": "core.strike_distribution",
    "ClashError": "core.errors",
    "Impacts": "core.impacts",
    "Param": "core.params",
    "Scene": "core.scene",
    "Trial": "core.trials",
    "Trials": "core.trials",
    "read_logs": "data.logs",
    "segment": "data.segmentation.segment",
    "SegmentConfig": "data.segmentation.pair_setup",
    "read_trials": "data.trial_files",
    "write_trials": "data.trial_files",
    "read_impacts": "data.impact_files",
    "write_impacts": "data.impact_files",
    "write_back": "data.mjcf",
    "distilled_model": "fit.base",
    "SolvedModel": "fit.solved_model",
    "Calibration": "fit.calibration",
    "calibrate": "fit.calibrate",
    "DistilledModel": "fit.distil",
    "DistillationConfig": "fit.distil",
    "distil": "fit.distil",
    "CalibratedRun": "fit.calibrated_run",
    "load": "fit.pairs_folder",
    "save_run": "fit.run_folder",
    "sample": "fit.sample",
    "Slide": "slides.slide",
    "ground_friction": "slides.ground_friction",
    "AugmentedSim": "sim.augmented.simulator",
    "GraphSim": "sim.graph.simulator",
    "HybridSim": "sim.hybrid.simulator",
    "MjxSim": "sim.mjx.simulator",
    "ConvertedContact": "sim.mujoco.contact_parameters",
    "ContactRequest": "sim.mujoco.contact_parameters",
    "contact_behaviour": "sim.mujoco.contact_parameters",
    "contact_parameters": "sim.mujoco.contact_parameters",
    "DropConditions": "sim.mujoco.drop",
    "MujocoSim": "sim.mujoco.simulator",
    "LearnedPair": "sim.hybrid.pairs",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'clashsim' has no attribute {name!r}")
    return getattr(import_module(f"clashsim.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
