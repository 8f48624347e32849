"""What every task shares: the robot, its simulation, actions, proprioception, falls, the step.

A task's file has its command, observation, reward and termination; this one has no reward.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import brax.envs
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from brax.envs.base import State
from flax import struct
from mujoco import mjx
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT, NonNegative, Positive
from s3n_mjx.envs import divergence, randomization
from s3n_mjx.envs.randomization import LegRandomization, RandomizationConfig
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

Weight = NonNegative

# Far beyond what a robot can do; keeps the running normalization sane after a divergence.
OBSERVATION_LIMIT = 100.0


@dataclass(frozen=True, config=STRICT)
class BodyConfig:
    """Settings of every task: actions, resets, what counts as a fall."""

    action_scale_rad: Positive = 0.2  # joint target moves this far per unit action
    reset_joint_noise_rad: NonNegative = 0.05
    reset_velocity_noise: NonNegative = 0.05  # rad/s and m/s
    fall_tilt_rad: Positive = 0.6
    fall_height_fraction: Positive = 0.5  # of the trunk's height at home


@dataclass(frozen=True)
class Figure:
    """A number that tells how training goes, from a mean over steps in `state.metrics`."""

    name: str  # with its SI unit
    label: str  # for the progress line
    root: bool = False  # of the mean, for RMS figures


@dataclass(frozen=True)
class Block:
    """Consecutive elements of the observation, for whoever has to make them without this code."""

    name: str
    elements: tuple[str, ...]
    unit: str  # of the quantity
    definition: str
    scale: float = 1.0  # what is observed is this many times the quantity
    # Of elements that the task's clock gives: factors on [sin, cos] of its phase.
    of_clock: tuple[tuple[float, float], ...] = ()


CLOCK = Block(
    "clock",
    ("sin", "cos"),
    "1",
    "sine and cosine of the task clock's phase",
    of_clock=((1.0, 0.0), (0.0, 1.0)),
)


def task_state(state: State) -> TaskState:
    """The task's part of brax's state, whose own type knows Brax's pipelines only."""
    return cast(TaskState, state.pipeline_state)


@struct.dataclass
class TaskState:
    """A task's `pipeline_state`; all of it starts over at an automatic reset."""

    simulation: SimulationState
    action: jax.Array  # (nu,), the last one
    phase: jax.Array  # () rad, of the task's clock
    command: jax.Array  # (n,), what this episode commands beside the clock


def finite(value: jax.Array) -> jax.Array:
    """Zero where a diverged robot has no number."""
    return jnp.where(jnp.isfinite(value), value, 0.0)


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
        task: the task's config, with `body`, `randomization` and `reward` among its fields.
        leg_randomization: Table III by name; None takes `heavy_leg_rand` for `kin_only_hr`, and
            for the other variants what the paper trained the task with.

    Raises:
        UserError: the robot and the settings do not go together.
    """

    # Figures of training by their names in `state.metrics`; Brax divides what ends in `per_step`
    # by the steps.
    figures: ClassVar[dict[str, Figure]] = {}
    # Of all variants but `kin_only_hr` (section VI-A).
    usual_leg_randomization: ClassVar[LegRandomization] = LegRandomization.NONE

    def __init__(
        self,
        robot: Robot | str | Path | None,
        simulation: SimulationConfig,
        task: Any,
        leg_randomization: LegRandomization | None,
    ):
        if not isinstance(robot, Robot):
            robot = load_robot(robot or bundled_robot())
        self.robot = robot
        self.task = task
        self.body: BodyConfig = task.body
        self.randomization: RandomizationConfig = task.randomization
        self.normalized = normalize(robot, simulation)
        self.simulation = Simulation(self.normalized)
        # Settable: brax's DomainRandomizationVmapWrapper puts its own model here.
        self.sys: mjx.Model = self.simulation.model
        if leg_randomization is None:
            # `kin_only_hr` is `kin_only` trained with Heavy Leg-Rand (Table III).
            heavy = simulation.variant is Variant.KIN_ONLY_HR
            leg_randomization = (
                LegRandomization.HEAVY_LEG_RAND if heavy else self.usual_leg_randomization
            )
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
        self._trunk = robot.model.body(robot.description.trunk).id
        self._grip = self._grip_in(self.normalized.tree)
        self._sensor_noise = self.randomization.sensor_noise(len(robot.joints))
        self._static_foot_load = robot.mass * 9.81 / len(robot.feet)

    def _grip_in(self, model: mujoco.MjModel) -> np.ndarray:
        """Geom ids of floor and feet; the tree has fewer geoms than the robot's own model."""
        return np.array([model.geom(name).id for name in (self.robot.floor, *self.robot.feet)])

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
        info |= randomization.sample_surroundings(jax.random.fold_in(key, 1), self.randomization)
        if self.randomization.every_step:
            # In `info`, which an automatic reset keeps: every episode has its own pushes.
            info["random_key"] = jax.random.fold_in(key, 2)
        target = self.simulation.standing_target
        simulation = self.simulation.init(qpos, qvel, target)
        info["divergence"] = divergence.none_yet(simulation, target)
        return simulation, info

    def joint_targets(self, action: jax.Array) -> jax.Array:
        """Targets (nu,) in rad, serial coordinates; an action in [-1, 1] moves them around those
        of standing."""
        return self.simulation.standing_target + self.body.action_scale_rad * action

    # --- what a task says of itself

    @property
    @abc.abstractmethod
    def clock_hz(self) -> float:
        """Frequency of the clock that `TaskState.phase` is the phase of."""

    @abc.abstractmethod
    def start(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Phase () in rad and command (n,) that an episode begins with."""

    @abc.abstractmethod
    def observe(self, state: TaskState) -> jax.Array:
        """What the policy sees, without noise, (observation_size,); proprioception first."""

    @property
    @abc.abstractmethod
    def command_layout(self) -> tuple[Block, ...]:
        """What :meth:`observe` puts behind proprioception and last action, in its order."""

    @abc.abstractmethod
    def reward_terms(
        self, before: TaskState, state: TaskState, record: StepRecord
    ) -> dict[str, jax.Array]:
        """Unweighted terms by the names of the task's weights; penalties are negative."""

    @abc.abstractmethod
    def figure_values(self, state: TaskState, record: StepRecord) -> dict[str, jax.Array]:
        """This step's part of each of `figures`."""

    def ended(self, state: TaskState, record: StepRecord) -> jax.Array:
        """Whether the episode ends here; time running out is the wrapper's."""
        return self.fallen(state.simulation)

    @property
    def command_ranges(self) -> dict[str, tuple[float, float]]:
        """Range that each element of the command was trained in, by the names that recordings
        use; empty for a task whose command cannot be steered."""
        return {}

    # --- what a recording of the task says of its command

    @property
    @abc.abstractmethod
    def period_s(self) -> float:
        """One cycle of the command in s; a comparison needs as much."""

    @property
    @abc.abstractmethod
    def command_meta(self) -> dict[str, float]:
        """What a log's metadata must say for its command to be the one that is evaluated."""

    @abc.abstractmethod
    def onset(self, phase: float) -> float:
        """Time in s, counted from the command's onset, at which an episode begins."""

    @abc.abstractmethod
    def meta(self, phase: float, command: np.ndarray) -> dict[str, float]:
        """Scalars that tell the command of an episode which began at ``phase``."""

    @abc.abstractmethod
    def command_at(self, time: float, meta: Mapping[str, float]) -> tuple[float, np.ndarray]:
        """Phase in rad and command (n,) at ``time`` in s, from what :meth:`meta` gave."""

    @abc.abstractmethod
    def command_signals(self, time: np.ndarray, meta: Mapping[str, float]) -> dict[str, np.ndarray]:
        """Command at ``time`` in s from its onset, by the names that recordings use."""

    # --- reset and step

    def reset(self, rng: jax.Array) -> State:
        """A robot near home at the task's start."""
        key, key_start = jax.random.split(rng)
        simulation, info = self._reset_simulation(key)
        phase, command = self.start(key_start)
        start = TaskState(simulation, jnp.zeros(self.action_size), phase, command)
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
        simulation, key_noise = before.simulation, None
        if self.randomization.every_step:
            key, key_push, key_noise = jax.random.split(state.info["random_key"], 3)
            state.info.update(random_key=key)
            simulation = randomization.pushed(key_push, simulation, self.randomization, self.dt)
        start, target = simulation, self.joint_targets(action)
        simulation, record = self.simulation.control_step(self.model_of(state.info), start, target)
        # A learner that has gone NaN shows in `target`; what physics makes of it counts, too.
        state.info.update(
            divergence=divergence.counted(state.info["divergence"], start, target, simulation)
        )
        phase = before.phase + 2.0 * jnp.pi * self.clock_hz * self.dt
        reached = TaskState(simulation, action, jnp.mod(phase, 2.0 * jnp.pi), before.command)

        terms = self.reward_terms(before, reached, record)
        weights = vars(self.task.reward)
        # A diverged robot ends its episode, and none of its numbers reach learner or metrics.
        rewards = {name: finite(weights[name] * value) for name, value in terms.items()}
        figures = self.figure_values(reached, record)
        # Extended, never replaced: brax's wrappers keep their own keys there.
        state.metrics.update({f"reward/{name}": value for name, value in rewards.items()})
        state.metrics.update({name: finite(value) for name, value in figures.items()})
        observation = self.observe(reached)
        if key_noise is not None and self._sensor_noise.any():
            noise = jax.random.uniform(key_noise, self._sensor_noise.shape, minval=-1.0)
            observation = observation.at[: noise.size].add(self._sensor_noise * noise)
        after = cast(Any, state).replace(
            pipeline_state=reached,
            obs=observation,
            reward=jnp.sum(jnp.stack(list(rewards.values()))),
            done=self.ended(reached, record).astype(jnp.float32),
        )
        return after, record

    def model_of(self, info: Mapping[str, Any]) -> mjx.Model:
        """The environment's own robot and floor, as ``info`` of its state has drawn them."""
        model = self.sys
        if "leg_links" in info:
            model = randomization.with_links(model, self._bodies, info["leg_links"])
        return randomization.with_surroundings(model, self._trunk, self._grip, info)

    def c_model_of(self, info: Mapping[str, Any]) -> mujoco.MjModel:
        """The same for C MuJoCo: a copy of `normalized.model`."""
        model = self.normalized.model
        return randomization.drawn_in_c(
            model, self._bodies, self._trunk, self._grip_in(model), info
        )

    @property
    def observation_layout(self) -> tuple[Block, ...]:
        """The observation block by block, as :meth:`_observation` puts it together."""
        axes, joints = ("x", "y", "z"), self.robot.joints
        return (
            Block("gyro", axes, "rad/s", "angular velocity of the trunk, in the trunk's frame"),
            Block("gravity", axes, "1", "unit vector straight down, in the trunk's frame"),
            Block("joint_position", joints, "rad", "joint angles minus those at home"),
            Block(
                "joint_velocity",
                joints,
                "rad/s",
                "joint velocities",
                scale=randomization.JOINT_RATE_SCALE,
            ),
            Block("last_action", joints, "1", "action of the step before; zero at the start"),
            *self.command_layout,
        )

    def _proprioception(self, simulation: SimulationState) -> tuple[jax.Array, ...]:
        """What the robot's own sensors give: gyro (3,), gravity (3,), joints and rates (nu,)."""
        robot, qvel = self.robot, self.simulation.velocity(simulation)
        return (
            qvel[3:6],  # body frame, as a gyro reads it
            rotate_inverse(simulation.qpos[3:7], jnp.array([0.0, 0.0, -1.0])),
            simulation.qpos[robot.qpos_index] - robot.home_joints.astype(np.float32),
            randomization.JOINT_RATE_SCALE * qvel[robot.dof_index],
        )

    def _observation(self, state: TaskState, *command: jax.Array) -> jax.Array:
        """Proprioception, last action and what the task says of its command, (n,)."""
        parts = [*self._proprioception(state.simulation), state.action, *command]
        for block, part in zip(self.observation_layout, parts, strict=True):
            assert part.shape == (len(block.elements),), block.name  # while tracing only
        limit = OBSERVATION_LIMIT
        return jnp.clip(finite(jnp.concatenate(parts)), -limit, limit)

    def _effort(
        self, before: TaskState, state: TaskState, record: StepRecord
    ) -> dict[str, jax.Array]:
        """Reward terms of every task for what its motion costs."""
        return {
            "action_rate": -jnp.sum((state.action - before.action) ** 2),
            "torque": -jnp.mean(jnp.sum(record.motor_torque**2, axis=-1)),  # (N m)^2
        }

    def _foot_speed(self, record: StepRecord) -> jax.Array:
        """Horizontal speed of each foot over a policy step, (nfeet,) m/s."""
        # From the first to the last simulation step; one step alone shows no travel.
        travel = record.foot_position[-1, :, :2] - record.foot_position[0, :, :2]
        between = max(self.dt - self.simulation.timestep_s, self.simulation.timestep_s)
        return jnp.linalg.norm(travel, axis=-1) / between

    def fallen(self, simulation: SimulationState) -> jax.Array:
        """Tilted, low, faster than any robot, or no longer a number."""
        up = -rotate_inverse(simulation.qpos[3:7], jnp.array([0.0, 0.0, -1.0]))[2]
        low = simulation.qpos[2] < self.body.fall_height_fraction * self._home_height
        tilted = up < jnp.cos(self.body.fall_tilt_rad)
        # Comparisons with NaN are false, so that neither of these sees one.
        return low | tilted | divergence.diverged(simulation)
