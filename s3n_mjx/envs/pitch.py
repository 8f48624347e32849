"""Pitch in place: the base follows a sinusoidal pitch with all feet planted (paper, VI-B).

The comparison of ground reaction forces needs a fixed-contact stance. At 5 Hz the full 0.1 rad
would take more inertial torque than the weight can balance, so a policy has to trade amplitude
for contact; the margin on each foot's load makes that trade before a foot lifts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge
from brax.envs.base import State
from pydantic import Field
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT
from s3n_mjx.envs.base import BodyConfig, Figure, RobotEnv, TaskState, pitch_and_roll, task_state
from s3n_mjx.envs.randomization import LegRandomization
from s3n_mjx.evaluation.metrics import CONTACT_THRESHOLD_N
from s3n_mjx.robot.description import Positive
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.control import StepRecord

Weight = Annotated[float, Ge(0)]


@dataclass(frozen=True, config=STRICT)
class PitchReward:
    """Weights of the terms; each term's sign and unit are in :meth:`PitchEnv._reward_terms`."""

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

    amplitude_rad: Annotated[float, Ge(0)] = 0.1
    frequency_hz: Positive = 5.0
    pitch_scale_rad: Positive = 0.06  # error at which the pitch term has fallen to 1/e
    pitch_rate_scale_rad_s: Positive = 2.0
    contact_margin: Annotated[float, Ge(0)] = 0.6  # of a foot's static load
    reward: PitchReward = Field(default_factory=PitchReward)
    body: BodyConfig = Field(default_factory=BodyConfig)


def _finite(value: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(value), value, 0.0)


class PitchEnv(RobotEnv):
    """Observation: proprioception, last action, command. Action: joint targets.

    Args:
        robot, simulation, leg_randomization: see :class:`RobotEnv`.
        task: command and reward.
    """

    # By their names in `state.metrics`; Brax divides what ends in `per_step` by the steps.
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
        super().__init__(robot, simulation, task.body, leg_randomization)
        self.task = task

    def command(self, phase: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Commanded pitch in rad and its rate in rad/s at ``phase`` in rad."""
        task = self.task
        rate = task.amplitude_rad * 2.0 * jnp.pi * task.frequency_hz
        return task.amplitude_rad * jnp.sin(phase), rate * jnp.cos(phase)

    def command_signals(self, time: np.ndarray) -> dict[str, np.ndarray]:
        """Command at ``time`` in s from its onset, by the names that recordings use."""
        rate = 2.0 * np.pi * self.task.frequency_hz
        return {
            "pitch_rad": self.task.amplitude_rad * np.sin(rate * time),
            "pitch_rate_rad_s": self.task.amplitude_rad * rate * np.cos(rate * time),
        }

    @property
    def meta(self) -> dict[str, float]:
        """What a recording of this task says of its command."""
        return {"frequency_hz": self.task.frequency_hz, "amplitude_rad": self.task.amplitude_rad}

    def reset(self, rng: jax.Array) -> State:
        """A robot near home at a random phase of the command."""
        key, key_phase = jax.random.split(rng)
        simulation, info = self._reset_simulation(key)
        start = TaskState(
            simulation=simulation,
            action=jnp.zeros(self.action_size),
            phase=jax.random.uniform(key_phase, maxval=2.0 * jnp.pi),
        )
        zero = jnp.zeros(())
        metrics = {f"reward/{name}": zero for name in vars(self.task.reward)}
        metrics |= dict.fromkeys(self.figures, zero)
        return State(cast(Any, start), self.observe(start), zero, zero, metrics, info)

    def step(self, state: State, action: jax.Array) -> State:
        """One policy step."""
        return self.step_recorded(state, action)[0]

    def step_recorded(self, state: State, action: jax.Array) -> tuple[State, StepRecord]:
        """One policy step, and what happened in each of its simulation steps."""
        action = jnp.clip(action, -1.0, 1.0)
        before = task_state(state)
        simulation, record = self._advance(state, action)
        phase = before.phase + 2.0 * jnp.pi * self.task.frequency_hz * self.dt
        reached = TaskState(simulation, action, jnp.mod(phase, 2.0 * jnp.pi))

        terms = self._reward_terms(before, reached, record)
        weights = vars(self.task.reward)
        # A diverged robot ends its episode, and none of its numbers reach learner or metrics.
        rewards = {name: _finite(weights[name] * value) for name, value in terms.items()}
        fallen = self.fallen(simulation)
        pitch, _ = pitch_and_roll(simulation.qpos[3:7])
        touching = jnp.linalg.norm(record.foot_force, axis=-1) > CONTACT_THRESHOLD_N
        # Extended, never replaced: brax's wrappers keep their own keys there.
        state.metrics.update({f"reward/{name}": value for name, value in rewards.items()})
        state.metrics.update(
            pitch_error_squared_per_step=_finite((self.command(reached.phase)[0] - pitch) ** 2),
            contact_kept_per_step=jnp.mean(jnp.all(touching, axis=-1)),
        )
        after = cast(Any, state).replace(
            pipeline_state=reached,
            obs=self.observe(reached),
            reward=jnp.sum(jnp.stack(list(rewards.values()))),
            done=fallen.astype(jnp.float32),
        )
        return after, record

    def observe(self, state: TaskState) -> jax.Array:
        """What the policy sees, (observation_size,)."""
        pitch, rate = self.command(state.phase)
        command = jnp.stack([jnp.sin(state.phase), jnp.cos(state.phase), pitch, rate])
        observation = [self._proprioception(state.simulation), state.action, command]
        # Far beyond what a robot can do; keeps the running normalization sane after a divergence.
        return jnp.clip(_finite(jnp.concatenate(observation)), -100.0, 100.0)

    def _reward_terms(
        self, before: TaskState, state: TaskState, record: StepRecord
    ) -> dict[str, jax.Array]:
        """Unweighted terms, each a scalar; penalties are negative."""
        task, qpos = self.task, state.simulation.qpos
        qvel = self.simulation.velocity(state.simulation)
        pitch, roll = pitch_and_roll(qpos[3:7])
        pitch_command, rate_command = self.command(state.phase)
        pitch_error = (pitch - pitch_command) / task.pitch_scale_rad
        rate_error = (qvel[4] - rate_command) / task.pitch_rate_scale_rad_s

        # A foot's load below its margin counts before the foot lifts, at every simulation step.
        margin = max(task.contact_margin * self._static_foot_load, 1.0)
        unloaded = jax.nn.relu(1.0 - jnp.linalg.norm(record.foot_force, axis=-1) / margin)
        # From the first to the last simulation step; one step alone shows no travel.
        travel = record.foot_position[-1, :, :2] - record.foot_position[0, :, :2]
        between = max(self.dt - self.simulation.timestep_s, self.simulation.timestep_s)
        foot_speed = jnp.linalg.norm(travel, axis=-1) / between
        height = (qpos[2] - self._home_height) / 0.05
        return {
            "pitch": jnp.exp(-(pitch_error**2)),
            "pitch_rate": jnp.exp(-(rate_error**2)),
            "alive": jnp.ones(()),
            "contact": -jnp.mean(unloaded**2),
            "slip": -jnp.sum(foot_speed**2),  # (m/s)^2
            "drift": -(jnp.sum(qvel[:2] ** 2) + qvel[5] ** 2),  # (m/s)^2 + (rad/s)^2
            "posture": -(roll**2 + 0.01 * height**2),  # rad^2, and height in units of 0.05 m
            "action_rate": -jnp.sum((state.action - before.action) ** 2),
            "torque": -jnp.mean(jnp.sum(record.motor_torque**2, axis=-1)),  # (N m)^2
        }
