"""Settings of the hybrid simulator that a user might change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HybridConfig:
    """When a learned model resolves a collision, and how simulations are run.

    Attributes:
        min_impact_speed: m/s, pairs that approach slower are left to MuJoCo: that is a push.
        min_time_between_impacts: s, a collision that follows sooner on the last one of its pair is
            left to MuJoCo.
        max_relative_std: A model whose standard deviation is larger, relative to the approach
            speed, is not used.
        fine_timestep: s, of collisions that MuJoCo resolves; None takes the author's timestep.
        first_timestep: s, of the first step after a learned collision; None takes `fine_timestep`.
        step_growth: Longest step after a collision, as a share of the time since that collision.
        threads: Of a batch of simulations; 0 takes one for each core.
    """

    min_impact_speed: float = 0.05
    min_time_between_impacts: float = 0.005
    max_relative_std: float = 0.3
    fine_timestep: float | None = None
    first_timestep: float | None = None
    step_growth: float = 0.1
    threads: int = 0
