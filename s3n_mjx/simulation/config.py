"""Settings of the simulated dynamics and of the control loop."""

from __future__ import annotations

from enum import StrEnum

from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT, Count, Positive
from s3n_mjx.normalization import Injection, LaggedTerms, Variant


class Timing(StrEnum):
    """At what time a simulation step's velocity and torque are taken to be.

    Semi-implicit Euler is a leapfrog: velocities stand half a step before positions.
    """

    PAPER = "paper"  # both taken as simultaneous
    STAGGERED = "staggered"  # velocity read half a step ahead, torque delayed by half a step


@dataclass(frozen=True, config=STRICT)
class SimulationConfig:
    """Everything that decides how the robot moves for a given sequence of position targets."""

    variant: Variant = Variant.S3N_ACT
    injection: Injection = Injection.QFRC_APPLIED
    lagged_terms: LaggedTerms = LaggedTerms.MINIMAL
    timing: Timing = Timing.PAPER
    velocity_terms: bool = False  # Coriolis torque of the linkage's inertia (not in the paper)
    link_gravity: bool = False  # weight of the omitted links (not in the paper)
    base_coupling: bool = False  # their reaction on trunk and abduction (not in the paper)
    timestep_s: Positive = 0.003  # Table I
    substeps: Count = 6  # simulation steps per policy step: 18 ms (Table I)
    solver_iterations: Count = 4  # Newton
    solver_ls_iterations: Count = 8

    @property
    def control_timestep_s(self) -> float:
        """Policy period in s."""
        return self.timestep_s * self.substeps
