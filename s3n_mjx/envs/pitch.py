"""Pitch in place: the base follows a sinusoidal pitch with all feet planted (paper, VI-B).

The comparison of ground reaction forces needs a fixed-contact stance. At 5 Hz the full 0.1 rad
would take more inertial torque than the weight can balance, so a policy has to trade amplitude
for contact; the margin on each foot's load makes that trade before a foot lifts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT, NonNegative, Positive
from s3n_mjx.envs.base import (
    CLOCK,
    Block,
    BodyConfig,
    Figure,
    RobotEnv,
    TaskState,
    Weight,
    pitch_and_roll,
)
from s3n_mjx.envs.randomization import LegRandomization, RandomizationConfig
from s3n_mjx.evaluation.metrics import CONTACT_THRESHOLD_N
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.control import StepRecord


@dataclass(frozen=True, config=STRICT)
class PitchReward:
    """Weights of the terms; each term's sign and unit are in :meth:`PitchEnv.reward_terms`."""

    pitch: Weight = 2.0
    pitch_rate: Weight = 0.5
    alive: Weight = 0.2
    contact: Weight = 15.0
    slip: Weight = 1.0
    drift: Weight = 0.5
    posture: Weight = 20.0
    action_rate: Weight = 0.02
    torque: Weight = 0.0001


@dataclass(frozen=True, config=STRICT)
class PitchConfig:
    """Command, reward and body settings of the task."""

    amplitude_rad: NonNegative = 0.1
    frequency_hz: Positive = 5.0
    pitch_scale_rad: Positive = 0.06  # error at which the pitch term has fallen to 1/e
    pitch_rate_scale_rad_s: Positive = 2.0
    contact_margin: NonNegative = 0.6  # of a foot's static load
    reward: PitchReward = Field(default_factory=PitchReward)
    body: BodyConfig = Field(default_factory=BodyConfig)
    randomization: RandomizationConfig = Field(default_factory=RandomizationConfig)

    def evaluated(self) -> PitchConfig:
        """The task on the nominal robot."""
        return dataclasses.replace(self, randomization=RandomizationConfig())


class PitchEnv(RobotEnv):
    """Observation: proprioception, last action, command. Action: joint targets.

    Args:
        robot, simulation, leg_randomization: see :class:`RobotEnv`.
        task: command and reward.
    """

    figures: ClassVar = {
        "pitch_error_squared_per_step": Figure("pitch_rmse_rad", "pitch error [rad]", root=True),
        "contact_kept_per_step": Figure("contact_kept_fraction", "contact kept"),
    }

    def __init__(
        self,
        robot: Robot | str | Path | None = None,
        simulation: SimulationConfig = SimulationConfig(),
        task: PitchConfig = PitchConfig(),
        leg_randomization: LegRandomization | None = None,
    ):
        super().__init__(robot, simulation, task, leg_randomization)

    def command(self, phase: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Commanded pitch in rad and its rate in rad/s at ``phase`` in rad."""
        task = self.task
        rate = task.amplitude_rad * 2.0 * jnp.pi * task.frequency_hz
        return task.amplitude_rad * jnp.sin(phase), rate * jnp.cos(phase)

    @property
    def clock_hz(self) -> float:
        return self.task.frequency_hz

    def start(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A random phase of the command; nothing else varies."""
        return jax.random.uniform(key, maxval=2.0 * jnp.pi), jnp.zeros(0)

    @property
    def period_s(self) -> float:
        return 1.0 / self.task.frequency_hz

    @property
    def command_meta(self) -> dict[str, float]:
        return {"frequency_hz": self.task.frequency_hz, "amplitude_rad": self.task.amplitude_rad}

    def onset(self, phase: float) -> float:
        """A recording counts its time from phase 0."""
        return phase / (2.0 * np.pi * self.task.frequency_hz)

    def meta(self, phase: float, command: np.ndarray) -> dict[str, float]:
        return self.command_meta

    def command_at(self, time: float, meta: Mapping[str, float]) -> tuple[float, np.ndarray]:
        return float(np.mod(2.0 * np.pi * self.task.frequency_hz * time, 2.0 * np.pi)), np.zeros(0)

    def command_signals(self, time: np.ndarray, meta: Mapping[str, float]) -> dict[str, np.ndarray]:
        rate = 2.0 * np.pi * self.task.frequency_hz
        return {
            "pitch_rad": self.task.amplitude_rad * np.sin(rate * time),
            "pitch_rate_rad_s": self.task.amplitude_rad * rate * np.cos(rate * time),
        }

    def observe(self, state: TaskState) -> jax.Array:
        """What the policy sees, (observation_size,)."""
        clock = jnp.stack([jnp.sin(state.phase), jnp.cos(state.phase)])
        return self._observation(state, clock, jnp.stack(self.command(state.phase)))

    @property
    def command_layout(self) -> tuple[Block, ...]:
        amplitude = self.task.amplitude_rad
        rate = amplitude * 2.0 * np.pi * self.task.frequency_hz
        return (
            CLOCK,
            Block(
                "command",
                ("pitch_rad", "pitch_rate_rad_s"),
                "rad, rad/s",
                "commanded pitch of the trunk, positive with its front down, and its rate",
                of_clock=((amplitude, 0.0), (0.0, rate)),
            ),
        )

    def reward_terms(
        self, before: TaskState, state: TaskState, record: StepRecord
    ) -> dict[str, jax.Array]:
        task, qpos = self.task, state.simulation.qpos
        qvel = self.simulation.velocity(state.simulation)
        pitch, roll = pitch_and_roll(qpos[3:7])
        pitch_command, rate_command = self.command(state.phase)
        pitch_error = (pitch - pitch_command) / task.pitch_scale_rad
        rate_error = (qvel[4] - rate_command) / task.pitch_rate_scale_rad_s

        # A foot's load below its margin counts before the foot lifts, at every simulation step.
        margin = max(task.contact_margin * self._static_foot_load, 1.0)
        unloaded = jax.nn.relu(1.0 - jnp.linalg.norm(record.foot_force, axis=-1) / margin)
        foot_speed = self._foot_speed(record)
        height = (qpos[2] - self._home_height) / 0.05
        return {
            "pitch": jnp.exp(-(pitch_error**2)),
            "pitch_rate": jnp.exp(-(rate_error**2)),
            "alive": jnp.ones(()),
            "contact": -jnp.mean(unloaded**2),
            "slip": -jnp.sum(foot_speed**2),  # (m/s)^2
            "drift": -(jnp.sum(qvel[:2] ** 2) + qvel[5] ** 2),  # (m/s)^2 + (rad/s)^2
            "posture": -(roll**2 + 0.01 * height**2),  # rad^2, and height in units of 0.05 m
            **self._effort(before, state, record),
        }

    def figure_values(self, state: TaskState, record: StepRecord) -> dict[str, jax.Array]:
        pitch, _ = pitch_and_roll(state.simulation.qpos[3:7])
        touching = jnp.linalg.norm(record.foot_force, axis=-1) > CONTACT_THRESHOLD_N
        return {
            "pitch_error_squared_per_step": (self.command(state.phase)[0] - pitch) ** 2,
            "contact_kept_per_step": jnp.mean(jnp.all(touching, axis=-1)),
        }
