"""The control loop and S3N once more, in NumPy on C MuJoCo: an independent twin for tests.

Written from the equations with whole matrices in double precision; shares no code with
`s3n_mjx.simulation.control`.
"""

import mujoco
import numpy as np

from s3n_mjx.simulation.injection import NormalizedModel


class ReferenceLoop:
    """Steps C MuJoCo under position targets; `qacc_last` is the realised acceleration."""

    def __init__(self, normalized: NormalizedModel, delay_steps: int, staggered: bool = False):
        self.normalized, self.robot, self.model = (
            normalized,
            normalized.robot,
            normalized.model,
        )
        self.data = mujoco.MjData(self.model)
        self.delay, self.staggered = delay_steps, staggered
        self.history: list[np.ndarray] = []

    def reset(self, qpos, qvel, target):
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self.last = np.array(qvel, dtype=float)
        self.history = [self.command(target, self.data.qvel)] * (self.delay + 2)

    def command(self, target, qvel):
        robot = self.robot
        error = robot.actuator_map @ (target - self.data.qpos[robot.qpos_index])
        rate = robot.actuator_map @ qvel[robot.dof_index]
        return np.clip(robot.kp * error - robot.kd * rate, -robot.torque_limit, robot.torque_limit)

    def step(self, target):
        robot, data, dt = self.robot, self.data, self.model.opt.timestep
        qacc = (data.qvel - self.last) / dt
        qvel = data.qvel + (dt / 2 * qacc if self.staggered else 0)
        self.history.insert(0, self.command(target, qvel))
        torque = self.history[self.delay]
        if self.staggered:
            torque = (torque + self.history[self.delay + 1]) / 2
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

    def foot_force(self):
        """Of the last step, shape (nfeet, 3), N, world frame, from the floor on the foot."""
        total = np.zeros((len(self.robot.feet), 3))
        for index in range(self.data.ncon):
            contact = self.data.contact[index]
            local = np.zeros(6)
            mujoco.mj_contactForce(self.model, self.data, index, local)
            world = contact.frame.reshape(3, 3).T @ local[:3]
            for foot, name in enumerate(self.robot.feet):
                geom = self.model.geom(name).id
                if geom == contact.geom2:
                    total[foot] += world
                elif geom == contact.geom1:
                    total[foot] -= world
        return total


def mass_matrix(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Joint-space inertia with armature of joints and tendons, shape (nv, nv)."""
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return full
