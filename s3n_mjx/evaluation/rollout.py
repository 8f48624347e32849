"""Let a policy act in the MJX simulator and record it at every simulation step."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from brax.envs.base import State

from s3n_mjx.envs.base import RobotEnv, task_state
from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.training.policy import Policy


def rollout(
    env: RobotEnv,
    policy: Policy,
    episodes: int,
    duration_s: float,
    seed: int,
    phase: float | None = None,
    command: np.ndarray | None = None,
) -> list[Recording]:
    """Episodes side by side, each from its own reset; a fall ends a recording.

    Args:
        env: the task.
        policy: deterministic.
        episodes: how many.
        duration_s: length of each in s.
        seed: of the resets.
        phase: of the task's clock at the beginning, in rad; None leaves it to the reset.
        command: of all episodes, (n,); None leaves it to the reset.
    """
    steps = round(duration_s / env.dt)

    @jax.jit
    def run(keys):
        def advance(carry, _):
            state, key = carry
            key, key_action = jax.random.split(key)
            action, _ = policy(state.obs, key_action)
            before = task_state(state)
            state, record = env.step_recorded(state, action)
            return (state, key), (record, (before.phase, before.command), state.done)

        def episode(key):
            key_reset, key_run = jax.random.split(key)
            state = env.reset(key_reset)
            if phase is not None:
                state = _with(env, state, phase=jnp.float32(phase))
            if command is not None:
                state = _with(env, state, command=jnp.asarray(command, jnp.float32))
            return jax.lax.scan(advance, (state, key_run), length=steps)[1]

        return jax.vmap(episode)(keys)

    record, (phases, commands), done = jax.device_get(
        run(jax.random.split(jax.random.PRNGKey(seed), episodes))
    )
    return [
        _recording(
            env,
            jax.tree.map(lambda x, i=i: x[i], record),
            float(phases[i, 0]),
            commands[i, 0],
            done[i],
        )
        for i in range(episodes)
    ]


def _with(env: RobotEnv, state: State, **changes: jax.Array) -> State:
    """``state`` with another phase or command, seen by the policy at once."""
    task = cast(Any, task_state(state)).replace(**changes)
    return cast(Any, state).replace(pipeline_state=task, obs=env.observe(task))


class SimulatorPlayer:
    """A policy in the simulator, one policy step at a time, under a command that may change.

    Args:
        env: the task.
        policy: deterministic.
        seed: of the resets.
    """

    def __init__(self, env: RobotEnv, policy: Policy, seed: int = 0):
        self.model: mujoco.MjModel = env.normalized.model
        self._key = jax.random.PRNGKey(seed)
        self._env_reset = jax.jit(env.reset)

        @jax.jit
        def advance(state: State, command: jax.Array) -> tuple[State, jax.Array, jax.Array]:
            state = _with(env, state, command=command)
            action, _ = policy(state.obs, self._key)  # deterministic: makes no use of the key
            state = env.step(state, action)
            return state, task_state(state).simulation.qpos, state.done

        self._advance = advance

    def reset(self) -> np.ndarray:
        """Start over near home; returns qpos (nq,)."""
        self._key, key = jax.random.split(self._key)
        self._state = self._env_reset(key)
        return np.asarray(task_state(self._state).simulation.qpos, dtype=np.float64)

    def step(self, command: np.ndarray) -> tuple[np.ndarray, bool]:
        """One policy step under ``command`` (n,); returns qpos (nq,) and whether it fell."""
        self._state, qpos, done = self._advance(self._state, jnp.asarray(command, jnp.float32))
        return np.asarray(qpos, dtype=np.float64), bool(done)


def _recording(
    env: RobotEnv, record, phase: float, command: np.ndarray, done: np.ndarray
) -> Recording:
    """Arrays of (policy step, substep, ...) as one recording, cut at the first fall."""
    robot = env.robot
    fell = bool(done.any())
    steps = int(done.argmax()) + 1 if fell else len(done)
    substeps = env.simulation.config.substeps

    def flat(x) -> np.ndarray:
        x = np.asarray(x[:steps], dtype=np.float64)
        return x.reshape(steps * substeps, *x.shape[2:])

    qpos, qvel = flat(record.qpos), flat(record.qvel)
    timestep = env.simulation.timestep_s
    time = np.asarray(env.onset(phase) + timestep * np.arange(len(qpos)), dtype=np.float64)
    meta = env.meta(phase, command)
    return Recording(
        joint_names=robot.joints,
        foot_names=robot.feet,
        time=time,
        joint_position=qpos[:, robot.qpos_index],
        joint_velocity=qvel[:, robot.dof_index],
        motor_torque=flat(record.motor_torque),
        base_position=qpos[:, :3],
        base_quaternion=qpos[:, 3:7],
        base_linear_velocity=qvel[:, :3],
        base_angular_velocity=qvel[:, 3:6],
        foot_force=flat(record.foot_force),
        qpos=qpos,
        command=env.command_signals(time, meta),
        meta=meta,
        fell=fell,
    )
