"""What every task shares: the robot, its simulation, actions, proprioception, falls.

A task's file has its command, observation, reward and termination; this one has no reward.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import brax.envs
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt
from brax.envs.base import State
from flax import struct
from mujoco import mjx
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT
from s3n_mjx.envs import randomization
from s3n_mjx.envs.randomization import LegRandomization
from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Variant
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.model import Robot, load_robot
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.control import (
    Simulation,
    SimulationState,
    StepRecord,
)
from s3n_mjx.simulation.injection import normalize, stability_margin, unstable_message


@dataclass(frozen=True, config=STRICT)
class BodyConfig:
    """Settings of every task: actions, resets, what counts as a fall."""

    action_scale_rad: Annotated[float, Gt(0)] = 0.2  # joint target moves this far per unit action
    reset_joint_noise_rad: Annotated[float, Ge(0)] = 0.05
    reset_velocity_noise: Annotated[float, Ge(0)] = 0.05  # rad/s and m/s
    fall_tilt_rad: Annotated[float, Gt(0)] = 0.6
    fall_height_fraction: Annotated[float, Gt(0)] = 0.5  # of the trunk's height at home


@dataclass(frozen=True)
class Figure:
    """A number that tells how training goes, from a mean over steps in `state.metrics`."""

    name: str  # with its SI unit
    label: str  # for the progress line
    root: bool = False  # of the mean, for RMS figures


def task_state(state: State) -> TaskState:
    """The task's part of brax's state, whose own type knows Brax's pipelines only."""
    return cast(TaskState, state.pipeline_state)


def default_randomization(variant: Variant) -> LegRandomization:
    """``kin_only_hr`` is ``kin_only`` trained with Heavy Leg-Rand (Table III)."""
    if variant is Variant.KIN_ONLY_HR:
        return LegRandomization.HEAVY_LEG_RAND
    return LegRandomization.NONE


@struct.dataclass
class TaskState:
    """A task's `pipeline_state`; all of it starts over at an automatic reset."""

    simulation: SimulationState
    action: jax.Array  # (nu,), the last one
    phase: jax.Array  # () rad, of the command


def rotate_inverse(quaternion: jax.Array, vector: jax.Array) -> jax.Array:
    """World vector (3,) in the frame of a unit quaternion (4,), wxyz."""
    w, xyz = quaternion[0], quaternion[1:]
    twice = 2.0 * jnp.cross(vector, xyz)
    return vector + w * twice + jnp.cross(twice, xyz)


def pitch_and_roll(quaternion: jax.Array) -> tuple[jax.Array, jax.Array]:
    """ZYX pitch and roll in rad of a unit quaternion (4,), wxyz."""
    w, x, y, z = quaternion
    pitch = jnp.arcsin(jnp.clip(2.0 * (w * y - z * x), -1.0, 1.0))
    roll = jnp.arctan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    return pitch, roll


class RobotEnv(brax.envs.Env):
    """Base of the tasks, a `brax.envs.Env` on MJX.

    Args:
        robot: a resolved robot, or the path of its description; the bundled one by default.
        simulation: dynamics and control loop.
        body: actions, resets and falls.
        leg_randomization: Table III by name; None takes that of the variant, which is
            `heavy_leg_rand` for `kin_only_hr` and `none` for the others.

    Raises:
        UserError: the robot and the settings do not go together.
    """

    def __init__(
        self,
        robot: Robot | str | Path | None = None,
        simulation: SimulationConfig = SimulationConfig(),
        body: BodyConfig = BodyConfig(),
        leg_randomization: LegRandomization | None = None,
    ):
        if not isinstance(robot, Robot):
            robot = load_robot(robot or bundled_robot())
        self.robot = robot
        self.body = body
        self.normalized = normalize(robot, simulation)
        self.simulation = Simulation(self.normalized)
        # Settable: brax's DomainRandomizationVmapWrapper puts its own model here.
        self.sys: mjx.Model = self.simulation.model
        if leg_randomization is None:
            leg_randomization = default_randomization(simulation.variant)
        self.leg_randomization = leg_randomization
        self._bodies = randomization.randomized_bodies(robot)
        self.stability_margin = self.normalized.stability_margin
        if self._ranges is not None:
            if not len(self._bodies):
                raise UserError(
                    f"{robot.path}: leg randomization {self.leg_randomization} has nothing to"
                    " change; list `randomized_links` of each leg"
                )
            self.stability_margin = stability_margin(
                self.normalized,
                randomization.corner_models(self.normalized.model, self._bodies, self._ranges),
            )
            if self.stability_margin >= 1.0:
                raise UserError(unstable_message(self.normalized, self.stability_margin))
        self._home_height = float(robot.home_qpos[2])
        self._static_foot_load = robot.mass * 9.81 / len(robot.feet)

    @property
    def _ranges(self) -> randomization.LegRandomizationRanges | None:
        return randomization.RANGES.get(self.leg_randomization)

    @property
    def action_size(self) -> int:
        """One joint target each, in the order of the description."""
        return len(self.robot.joints)

    @property
    def backend(self) -> str:
        return "mjx"

    @property
    def dt(self) -> float:
        """Policy period in s."""
        return self.simulation.config.control_timestep_s

    @property
    def observation_size(self) -> int:
        # Shapes only; nothing is compiled or computed.
        return jax.eval_shape(self.reset, jax.random.PRNGKey(0)).obs.shape[-1]

    def _reset_simulation(self, key: jax.Array) -> tuple[SimulationState, dict]:
        """A robot near home, and what `state.info` keeps of it over episodes."""
        robot = self.robot
        key_joint, key_velocity, key_links = jax.random.split(key, 3)
        noise = self.body.reset_joint_noise_rad
        joints = jax.random.uniform(key_joint, (len(robot.joints),), minval=-noise, maxval=noise)
        qpos = jnp.asarray(robot.home_qpos, jnp.float32).at[robot.qpos_index].add(joints)
        noise = self.body.reset_velocity_noise
        qvel = jax.random.uniform(key_velocity, (robot.model.nv,), minval=-noise, maxval=noise)
        info = {}
        if self._ranges is not None:
            info["leg_links"] = randomization.sample(
                key_links,
                self._ranges,
                randomization.nominal_links(self.normalized.model, self._bodies),
            )
        return self.simulation.init(qpos, qvel, self.simulation.standing_target), info

    def joint_targets(self, action: jax.Array) -> jax.Array:
        """Targets (nu,) in rad, serial coordinates; an action in [-1, 1] moves them around those
        of standing."""
        return self.simulation.standing_target + self.body.action_scale_rad * action

    def _advance(self, state: State, action: jax.Array) -> tuple[SimulationState, StepRecord]:
        """One policy step."""
        model = self.sys
        if "leg_links" in state.info:
            model = randomization.with_links(model, self._bodies, state.info["leg_links"])
        return self.simulation.control_step(
            model, task_state(state).simulation, self.joint_targets(action)
        )

    def _proprioception(self, simulation: SimulationState) -> jax.Array:
        """What the robot's own sensors give, (6 + 2 nu,): gyro, gravity, joints, joint rates."""
        robot, qvel = self.robot, self.simulation.velocity(simulation)
        return jnp.concatenate(
            [
                qvel[3:6],  # body frame, as a gyro reads it
                rotate_inverse(simulation.qpos[3:7], jnp.array([0.0, 0.0, -1.0])),
                simulation.qpos[robot.qpos_index] - robot.home_joints.astype(np.float32),
                0.1 * qvel[robot.dof_index],
            ]
        )

    def fallen(self, simulation: SimulationState) -> jax.Array:
        """Tilted, low, faster than any robot, or no longer a number."""
        up = -rotate_inverse(simulation.qpos[3:7], jnp.array([0.0, 0.0, -1.0]))[2]
        low = simulation.qpos[2] < self.body.fall_height_fraction * self._home_height
        # Comparisons with NaN are false, so this one catches it, too.
        sane = jnp.all(jnp.isfinite(simulation.qpos)) & jnp.all(jnp.abs(simulation.qvel) < 1e3)
        return low | (up < jnp.cos(self.body.fall_tilt_rad)) | ~sane
