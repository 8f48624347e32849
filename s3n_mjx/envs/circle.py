"""Circle: velocity tracking on flat ground in a trot (paper, VI-C).

A constant forward velocity and yaw rate make the robot walk a circle. The gait comes from a clock
in the observation: one diagonal pair of feet swings in the first half of its cycle, the other in
the second, and the reward asks for feet at the height that the clock gives them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT, Number, Positive
from s3n_mjx.envs.base import (
    CLOCK,
    Block,
    BodyConfig,
    Figure,
    RobotEnv,
    TaskState,
    Weight,
    rotate_inverse,
)
from s3n_mjx.envs.randomization import LegRandomization, RandomizationConfig, ordered
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.metrics import CONTACT_THRESHOLD_N
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.control import StepRecord

Range = Annotated[tuple[Number, Number], AfterValidator(ordered)]


@dataclass(frozen=True, config=STRICT)
class CircleReward:
    """Weights of the terms; each term's sign and unit are in :meth:`CircleEnv.reward_terms`."""

    velocity: Weight = 3.0
    yaw_rate: Weight = 1.5
    gait: Weight = 0.5
    foot_height: Weight = 1.0
    upright: Weight = 2.0
    height: Weight = 0.2
    bounce: Weight = 0.5
    slip: Weight = 0.1
    posture: Weight = 0.5
    action_rate: Weight = 0.02
    torque: Weight = 0.0001
    fall: Weight = 5.0


@dataclass(frozen=True, config=STRICT)
class CircleConfig:
    """Command, gait, reward, randomization and body settings of the task."""

    vx_m_s: Number = 0.8  # the paper's circle: these two,
    wz_rad_s: Number = 0.8
    circle_fraction: Annotated[float, Ge(0), Le(1)] = 0.5  # of the environments get exactly them
    vx_range_m_s: Range = (0.0, 1.0)  # and the others a uniform draw
    wz_range_rad_s: Range = (-1.0, 1.0)
    gait_hz: Positive = 2.2
    foot_lift_m: Positive = 0.06  # of a swinging foot
    velocity_scale_m_s: Positive = 0.3  # error at which the velocity term has fallen to 1/e
    yaw_rate_scale_rad_s: Positive = 0.4
    reward: CircleReward = Field(default_factory=CircleReward)
    body: BodyConfig = Field(default_factory=lambda: BodyConfig(action_scale_rad=0.4))
    randomization: RandomizationConfig = Field(
        default_factory=lambda: RandomizationConfig(
            friction_scale=(0.75, 1.25),
            payload_kg=(0.0, 1.0),
            push_m_s=0.3,
            push_interval_s=4.0,
            gyro_noise_rad_s=0.1,
            gravity_noise=0.02,
            joint_position_noise_rad=0.01,
            joint_velocity_noise_rad_s=0.5,
        )
    )

    def evaluated(self) -> CircleConfig:
        """The circle alone, on the nominal robot."""
        return dataclasses.replace(self, circle_fraction=1.0, randomization=RandomizationConfig())


def trot_offsets(robot: Robot) -> NDArray[np.float64]:
    """Phase of each foot's swing in rad, shape (nfeet,): 0 for one diagonal pair, pi for the other.

    Raises:
        UserError: the feet at home are not in the four corners that a trot needs.
    """
    position = feet_at_home(robot)
    side = np.sign(np.round(position - position.mean(axis=0), 3))[:, :2]
    if len({tuple(corner) for corner in side}) != 4 or len(side) != 4 or not side.all():
        raise UserError(
            f"{robot.path}: the circle task trots, which takes four feet, one in each corner of"
            f" the home pose; this robot's are {', '.join(robot.feet)}"
        )
    return np.where(side.prod(axis=1) > 0, 0.0, np.pi)


def feet_at_home(robot: Robot) -> NDArray[np.float64]:
    """Centres of the foot geoms in the home pose, shape (nfeet, 3), m, world frame."""
    data = mujoco.MjData(robot.model)
    data.qpos[:] = robot.home_qpos
    mujoco.mj_kinematics(robot.model, data)
    return np.array([data.geom(foot).xpos for foot in robot.feet])


class CircleEnv(RobotEnv):
    """Observation: proprioception, last action, clock, command. Action: joint targets.

    Args:
        robot, simulation, leg_randomization: see :class:`RobotEnv`.
        task: command, gait, reward and randomization.
    """

    figures: ClassVar = {
        "velocity_error_squared_per_step": Figure(
            "velocity_rmse_m_s", "velocity error [m/s]", root=True
        ),
        "yaw_rate_error_squared_per_step": Figure(
            "yaw_rate_rmse_rad_s", "yaw rate error [rad/s]", root=True
        ),
        "fallen": Figure("falls_per_episode", "falls"),
    }
    usual_leg_randomization: ClassVar = LegRandomization.LEG_RAND

    def __init__(
        self,
        robot: Robot | str | Path | None = None,
        simulation: SimulationConfig = SimulationConfig(),
        task: CircleConfig = CircleConfig(),
        leg_randomization: LegRandomization | None = None,
    ):
        super().__init__(robot, simulation, task, leg_randomization)
        self.task: CircleConfig = task
        self._swing_phase = trot_offsets(self.robot).astype(np.float32)
        self._feet_down = feet_at_home(self.robot)[:, 2].astype(np.float32)

    @property
    def clock_hz(self) -> float:
        return self.task.gait_hz

    def start(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A random phase of the gait, and [v_x in m/s, w_z in rad/s]."""
        task = self.task
        key_phase, key_circle, key_vx, key_wz = jax.random.split(key, 4)
        drawn = [
            jax.random.uniform(key_vx, minval=task.vx_range_m_s[0], maxval=task.vx_range_m_s[1]),
            jax.random.uniform(
                key_wz, minval=task.wz_range_rad_s[0], maxval=task.wz_range_rad_s[1]
            ),
        ]
        circle = jax.random.bernoulli(key_circle, task.circle_fraction)
        command = jnp.where(circle, jnp.array([task.vx_m_s, task.wz_rad_s]), jnp.stack(drawn))
        return jax.random.uniform(key_phase, maxval=2.0 * jnp.pi), command

    @property
    def command_ranges(self) -> dict[str, tuple[float, float]]:
        return {"vx_m_s": self.task.vx_range_m_s, "wz_rad_s": self.task.wz_range_rad_s}

    @property
    def period_s(self) -> float:
        """A lap."""
        return 2.0 * np.pi / abs(self.task.wz_rad_s) if self.task.wz_rad_s else 0.0

    @property
    def command_meta(self) -> dict[str, float]:
        return {"vx_command_m_s": self.task.vx_m_s, "wz_command_rad_s": self.task.wz_rad_s}

    def onset(self, phase: float) -> float:
        """The command starts with the episode, wherever the gait's clock is."""
        return 0.0

    def meta(self, phase: float, command: np.ndarray) -> dict[str, float]:
        return {
            "vx_command_m_s": float(command[0]),
            "wz_command_rad_s": float(command[1]),
            "gait_hz": self.task.gait_hz,
            "gait_phase_rad": float(phase),
        }

    def command_at(self, time: float, meta: Mapping[str, float]) -> tuple[float, np.ndarray]:
        # A measured log need not know the gait's clock.
        phase = meta.get("gait_phase_rad", 0.0) + 2.0 * np.pi * self.task.gait_hz * time
        command = np.array([meta["vx_command_m_s"], meta["wz_command_rad_s"]])
        return float(np.mod(phase, 2.0 * np.pi)), command

    def command_signals(self, time: np.ndarray, meta: Mapping[str, float]) -> dict[str, np.ndarray]:
        return {
            "vx_m_s": np.full_like(time, meta["vx_command_m_s"]),
            "wz_rad_s": np.full_like(time, meta["wz_command_rad_s"]),
        }

    def observe(self, state: TaskState) -> jax.Array:
        clock = jnp.stack([jnp.sin(state.phase), jnp.cos(state.phase)])
        return self._observation(state, clock, state.command)

    @property
    def command_layout(self) -> tuple[Block, ...]:
        meaning = "forward velocity of the trunk and its yaw rate, as commanded"
        return CLOCK, Block("command", tuple(self.command_ranges), "m/s, rad/s", meaning)

    def ended(self, state: TaskState, record: StepRecord) -> jax.Array:
        """A fall, or anything but the feet on the floor."""
        return self.fallen(state.simulation) | jnp.any(record.body_contact)

    def _velocity_error(self, state: TaskState) -> tuple[jax.Array, jax.Array]:
        """[v_x - command, v_y] in m/s and w_z - command in rad/s, body frame."""
        qvel = self.simulation.velocity(state.simulation)
        velocity = rotate_inverse(state.simulation.qpos[3:7], qvel[:3])
        return velocity[:2].at[0].add(-state.command[0]), qvel[5] - state.command[1]

    def reward_terms(
        self, before: TaskState, state: TaskState, record: StepRecord
    ) -> dict[str, jax.Array]:
        task, qpos = self.task, state.simulation.qpos
        qvel = self.simulation.velocity(state.simulation)
        velocity_error, yaw_rate_error = self._velocity_error(state)
        gravity = rotate_inverse(qpos[3:7], jnp.array([0.0, 0.0, -1.0]))
        height = (qpos[2] - self._home_height) / 0.05
        joints = qpos[self.robot.qpos_index] - self.robot.home_joints.astype(np.float32)

        # A foot swings while its sine is positive.
        swing = jnp.sin(state.phase + self._swing_phase)
        lift = task.foot_lift_m * jax.nn.relu(swing)
        lift_error = (record.foot_position[-1, :, 2] - self._feet_down - lift) / task.foot_lift_m
        touching = jnp.linalg.norm(record.foot_force, axis=-1) > CONTACT_THRESHOLD_N
        as_the_clock = jnp.mean(touching, axis=0) * jnp.where(swing > 0.0, -1.0, 1.0)
        planted = jnp.all(touching, axis=0)
        foot_speed = planted * self._foot_speed(record)
        return {
            # Sharp at zero, so that the last 0.1 m/s counts, and with a slope far from it.
            "velocity": jnp.exp(-jnp.linalg.norm(velocity_error) / task.velocity_scale_m_s),
            "yaw_rate": jnp.exp(-jnp.abs(yaw_rate_error) / task.yaw_rate_scale_rad_s),
            "gait": jnp.mean(as_the_clock),  # 1/2: down in stance only, -1/2: in swing only
            "foot_height": -jnp.mean(lift_error**2),  # in units of the lift
            "upright": -jnp.sum(gravity[:2] ** 2),  # (sine of the tilt)^2
            "height": -(height**2),  # in units of 0.05 m
            "bounce": -(qvel[2] ** 2 + 0.05 * jnp.sum(qvel[3:5] ** 2)),  # m/s, rad/s
            "slip": -jnp.sum(foot_speed**2),  # (m/s)^2
            "posture": -jnp.mean(joints**2),  # rad^2
            **self._effort(before, state, record),
            "fall": -self.ended(state, record).astype(jnp.float32),
        }

    def figure_values(self, state: TaskState, record: StepRecord) -> dict[str, jax.Array]:
        velocity_error, yaw_rate_error = self._velocity_error(state)
        return {
            "velocity_error_squared_per_step": jnp.sum(velocity_error**2),
            "yaw_rate_error_squared_per_step": yaw_rate_error**2,
            "fallen": self.ended(state, record).astype(jnp.float32),
        }
