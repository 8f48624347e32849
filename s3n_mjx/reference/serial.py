"""The serial robot with S3N in C MuJoCo: the control loop once more, in NumPy and double precision.

Written from the equations with whole matrices; shares no code with
:mod:`s3n_mjx.simulation.control`, so that each can be checked against the other.
"""

from __future__ import annotations

import math

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from s3n_mjx.simulation.config import Timing
from s3n_mjx.simulation.injection import NormalizedModel

Array = NDArray[np.float64]


class SerialRobot:
    """Steps C MuJoCo under position targets.

    The paper's terms alone: what `SimulationConfig` has beyond them is left out.

    Args:
        normalized: the robot with S3N in its model.
    """

    def __init__(self, normalized: NormalizedModel):
        self.normalized, self.robot, self.model = normalized, normalized.robot, normalized.model
        self.data = mujoco.MjData(self.model)
        self._staggered = normalized.config.timing is Timing.STAGGERED
        steps = self.robot.description.torque_delay_ms * 1e-3 / self.model.opt.timestep
        self._delay = round(steps + 0.5 * self._staggered, 9)

    def reset(self, qpos: ArrayLike, qvel: ArrayLike, target: ArrayLike) -> None:
        """No acceleration yet, and ``target`` (nu,) in rad commanded since long ago."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self.last = self.data.qvel.copy()  # qvel of the step before
        command = self._command(np.asarray(target), self.data.qvel)
        self.history = [command] * (math.ceil(self._delay) + 1)  # newest first

    def resume(
        self,
        qpos: ArrayLike,
        qvel: ArrayLike,
        qvel_last: ArrayLike,
        qacc_warmstart: ArrayLike,
        command_history: ArrayLike,
    ) -> None:
        """Go on from a state under way; arguments as the fields of `SimulationState`."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self.data.qacc_warmstart[:] = qacc_warmstart
        self.last = np.array(qvel_last, dtype=np.float64)
        self.history = list(np.array(command_history, dtype=np.float64))

    def _command(self, target: Array, qvel: Array) -> Array:
        robot = self.robot
        error = robot.actuator_map @ (target - self.data.qpos[robot.qpos_index])
        rate = robot.actuator_map @ qvel[robot.dof_index]
        return np.clip(robot.kp * error - robot.kd * rate, -robot.torque_limit, robot.torque_limit)

    def step(self, target: ArrayLike) -> None:
        """One simulation step under joint targets (nu,) in rad."""
        robot, data, dt = self.robot, self.data, self.model.opt.timestep
        qacc = (data.qvel - self.last) / dt  # realised
        qvel = data.qvel + (dt / 2 * qacc if self._staggered else 0)
        self.history.insert(0, self._command(np.asarray(target), qvel))
        whole = math.floor(self._delay)
        share = self._delay - whole
        torque = (1 - share) * self.history[whole]
        if share:
            torque = torque + share * self.history[whole + 1]
        del self.history[math.ceil(self._delay) + 1 :]
        force = np.zeros(self.model.nv)
        force[robot.dof_index] = robot.actuator_map.T @ torque
        self.motor_force = force.copy()
        alpha = data.qpos[[robot.qpos_index[pair.distal] for pair in robot.pairs]]
        damping = np.zeros((self.model.nv, self.model.nv))
        for pair, split in zip(robot.pairs, self.normalized.splits, strict=True):
            dofs = robot.dof_index[[pair.proximal, pair.distal]]
            damping[np.ix_(dofs, dofs)] = split.lagged_damping
        force -= self.normalized.lagged_inertia(alpha) @ qacc + damping @ qvel
        data.qfrc_applied[:] = force
        self.last = data.qvel.copy()
        mujoco.mj_step(self.model, data)

    def foot_force(self) -> Array:
        """Of the last step, shape (nfeet, 3), N, world frame, from all else on the foot."""
        total = np.zeros((len(self.robot.feet), 3))
        local = np.zeros(6)
        for index in range(self.data.ncon):
            contact = self.data.contact[index]
            mujoco.mj_contactForce(self.model, self.data, index, local)
            world = contact.frame.reshape(3, 3).T @ local[:3]
            for foot, name in enumerate(self.robot.feet):
                geom = self.model.geom(name).id
                if geom == contact.geom2:
                    total[foot] += world
                elif geom == contact.geom1:
                    total[foot] -= world
        return total
