"""A policy on the closed-chain reference: what the hardware would be sent, and what it would do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from s3n_mjx.envs.base import RobotEnv, TaskState
from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.reference.closed_chain import ClosedChain, Samples, concatenated, mean_over
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.simulation.config import Timing
from s3n_mjx.simulation.control import SimulationState
from s3n_mjx.training.policy import Policy


def rollout_reference(
    env: RobotEnv,
    policy: Policy,
    starts: Sequence[Recording],
    duration_s: float,
    level: Level = Level.IDEAL,
    seed: int = 0,
) -> list[Recording]:
    """The closed chain from where each of ``starts`` began, under the same policy and command.

    Args:
        env: the task that gives observations, commands and falls; its physics is not used.
        policy: deterministic.
        starts: simulated recordings that began at rest.
        duration_s: at most; a fall ends a recording.
        level: imperfections of the reference.
        seed: of the first one's imperfections; each start has another robot and other noise.
    """
    act = compiled_actor(env, policy)
    return [
        _perform(env, act, start, duration_s, level, seed + i) for i, start in enumerate(starts)
    ]


Actor = Callable[..., Any]


def compiled_actor(env: RobotEnv, policy: Policy) -> Actor:
    """(qpos, qvel, last action, phase, command) -> (action, joint targets, fallen), compiled."""
    key = jax.random.PRNGKey(0)  # a deterministic policy makes no use of it

    @jax.jit
    def act(qpos, qvel, action, phase, command):
        simulation = SimulationState(
            qpos=qpos,
            qvel=qvel,
            qvel_last=qvel,  # measured, so already of this time
            qacc_warmstart=jnp.zeros_like(qvel),
            command_history=jnp.zeros((0, env.action_size)),
        )
        observation = env.observe(TaskState(simulation, action, phase, command))
        action = jnp.clip(policy(observation, key)[0], -1.0, 1.0)
        return action, env.joint_targets(action), env.fallen(simulation)

    return act


class ClosedChainPlayer:
    """A policy on the closed chain, one policy step at a time, under a command that may change.

    Args:
        env: the task that gives observations and falls; its physics is not used.
        act: from :func:`compiled_actor`.
        level: imperfections of the reference.
        seed: of the imperfections.
    """

    def __init__(self, env: RobotEnv, act: Actor, level: Level = Level.IDEAL, seed: int = 0):
        self._env = env
        self._act = act
        self.plant = ClosedChain(env.robot, env.simulation.config.timestep_s, level, seed)
        self.model = self.plant.model
        self._still = np.asarray(env.joint_targets(jnp.zeros(env.action_size)))

    def start(self, joints: np.ndarray, base: np.ndarray) -> None:
        """At rest with these joints (nu,) in rad and the trunk at ``base`` (7,)."""
        self.plant.reset(joints, self._still, base)
        self._action = np.zeros(self._env.action_size, np.float32)
        self._time = 0.0

    def reset(self) -> np.ndarray:
        """At rest at home; returns the closed chain's qpos."""
        robot = self._env.robot
        self.start(robot.home_joints, robot.home_qpos[:7])
        return self.plant.data.qpos.copy()

    def perform(self, phase: float, command: np.ndarray) -> Samples | None:
        """One policy step; None if the robot has fallen."""
        qpos, qvel = self.plant.observe()
        self._action, target, fallen = jax.device_get(
            self._act(
                qpos.astype(np.float32),
                qvel.astype(np.float32),
                self._action,
                np.float32(phase),
                command.astype(np.float32),
            )
        )
        if fallen:
            return None
        substeps = self._env.simulation.config.substeps
        return self.plant.run(np.asarray(target, dtype=np.float64), substeps)

    def step(self, command: np.ndarray) -> tuple[np.ndarray, bool]:
        """One policy step under ``command`` (n,); returns qpos and whether it fell."""
        phase = np.mod(2.0 * np.pi * self._env.clock_hz * self._time, 2.0 * np.pi)
        fell = self.perform(phase, command) is None
        self._time += self._env.dt
        return self.plant.data.qpos.copy(), fell


def _perform(
    env: RobotEnv, act: Actor, start: Recording, duration_s: float, level: Level, seed: int
) -> Recording:
    player = ClosedChainPlayer(env, act, level, seed)
    player.start(start.joint_position[0], start.qpos[0, :7])
    parts: list[Samples] = []
    steps = round(duration_s / env.dt)
    for step in range(steps):
        done = player.perform(*env.command_at(start.time[0] + step * env.dt, start.meta))
        if done is None:
            break
        parts.append(done)
    fell = len(parts) < steps
    return _recording(env, player.plant, concatenated(parts), start, fell)


def _recording(
    env: RobotEnv, plant: ClosedChain, samples: Samples, start: Recording, fell: bool
) -> Recording:
    """At the simulator's sample times; torque and force as means over its steps."""
    config, steps = env.simulation.config, plant.steps_per_control
    centred = config.timing is Timing.STAGGERED
    position = samples.joint_position[::steps]
    base, velocity = samples.base[::steps], samples.base_velocity[::steps]
    time = np.asarray(
        start.time[0] + config.timestep_s * np.arange(len(position)), dtype=np.float64
    )
    return Recording(
        joint_names=env.robot.joints,
        foot_names=env.robot.feet,
        time=time,
        joint_position=position,
        joint_velocity=samples.joint_velocity[::steps],
        motor_torque=mean_over(samples.motor_torque, steps, centred),
        base_position=base[:, :3],
        base_quaternion=base[:, 3:],
        base_linear_velocity=velocity[:, :3],
        base_angular_velocity=velocity[:, 3:],
        foot_force=mean_over(samples.foot_force, steps, centred),
        qpos=samples.qpos[::steps],
        command=env.command_signals(time, start.meta),
        meta=start.meta,
        fell=fell,
    )
