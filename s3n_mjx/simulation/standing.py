"""Position targets under which the robot stands still in its home pose."""

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.robot.model import Robot


def standing_target(robot: Robot) -> NDArray[np.float64]:
    """Serial joint targets whose proportional torque carries the robot at home.

    A proportional loop needs an error to hold a load, so targets at the home pose itself would
    let the robot sag. Feet share the load by the least-squares solution of the base's
    equilibrium; from the contact forces follow joint torques, then motor torques, then the
    error that makes them.

    Returns:
        Shape (nu,), rad. The home pose itself where a motor has no proportional gain.
    """
    model = robot.model
    data = mujoco.MjData(model)
    data.qpos[:] = robot.home_qpos
    mujoco.mj_forward(model, data)
    # At rest, so of what is passive springs and compensated weight alone.
    load = data.qfrc_bias - data.qfrc_passive
    serial_torque = (load - _foot_load(robot, data, load))[robot.dof_index]
    motor_torque = np.linalg.solve(robot.actuator_map.T, serial_torque)
    error = np.divide(motor_torque, robot.kp, out=np.zeros_like(motor_torque), where=robot.kp > 0)
    return robot.home_joints + np.linalg.solve(robot.actuator_map, error)


def _foot_load(robot: Robot, data: mujoco.MjData, load: NDArray[np.float64]) -> NDArray[np.float64]:
    """Generalized force of the floor on the feet, shape (nv,); none where the base is fixed."""
    model = robot.model
    trunk = model.body(robot.description.trunk).id
    if model.body_dofnum[trunk] != 6:
        return np.zeros(model.nv)
    base = model.jnt_dofadr[model.body_jntadr[trunk]]
    base_rows = np.arange(base, base + 6)
    jacobian = np.zeros((3 * len(robot.feet), model.nv))
    for index, foot in enumerate(robot.feet):
        geom = model.geom(foot).id
        rows = jacobian[3 * index : 3 * index + 3]
        mujoco.mj_jac(model, data, rows, None, data.geom_xpos[geom], model.geom_bodyid[geom])
    force, *_ = np.linalg.lstsq(jacobian[:, base_rows].T, load[base_rows], rcond=None)
    return jacobian.T @ force
