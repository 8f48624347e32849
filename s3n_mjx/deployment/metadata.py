"""What a controller must know beside the network, as plain values for the file's metadata."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import mujoco
import numpy as np

from s3n_mjx import __version__
from s3n_mjx.config_files import to_plain
from s3n_mjx.deployment.controller import FORMAT, KIND
from s3n_mjx.envs.base import OBSERVATION_LIMIT, RobotEnv
from s3n_mjx.reference.closed_chain import ClosedChain
from s3n_mjx.robot.model import Robot
from s3n_mjx.training.checkpoint import Checkpoint

_ONE_COORDINATE = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)


def metadata(checkpoint: Checkpoint, env: RobotEnv) -> dict[str, Any]:
    """Everything that the example controller reads, SI units in the names.

    S3N is not in it: its terms act inside the simulator only, never on a robot.

    Args:
        checkpoint: of the policy.
        env: its task on the nominal robot.

    Raises:
        UserError: the closed-chain MJCF contradicts the description.
    """
    robot, config = env.robot, env.simulation.config
    entries = robot.description.driven
    return {
        "kind": KIND,
        "format": FORMAT,
        "task": checkpoint.task,
        "robot": robot.description.name,
        # Order of every list over joints and over motors; joint and motor of a place go together.
        "joints": list(robot.joints),
        "motors": [entry.actuator or entry.joint for entry in entries],
        "closed_chain_joints": [entry.closed_chain_joint or entry.joint for entry in entries],
        "actuator_map": robot.actuator_map.tolist(),
        "target": (
            "motor_position = actuator_map @ joint_position, at the gear's output, zero where all"
            " joints are zero; a policy step sets the motors' position targets to"
            " actuator_map @ (standing_target_rad + action_scale_rad * action)"
        ),
        "action_scale_rad": env.body.action_scale_rad,
        "standing_target_rad": np.asarray(env.simulation.standing_target, dtype=float).tolist(),
        # The drives' position loop and what lies between it and the torque.
        "kp_nm_rad": robot.kp.tolist(),
        "kd_nms_rad": robot.kd.tolist(),
        "torque_limit_nm": robot.torque_limit.tolist(),
        "torque_delay_s": robot.description.torque_delay_ms * 1e-3,
        "policy_period_s": config.control_timestep_s,
        "pd_period_s": config.timestep_s,
        # The posture at the start.
        "home_joints_rad": robot.home_joints.tolist(),
        "home_base": robot.home_qpos[:7].tolist(),  # m, quaternion wxyz
        "fall_tilt_rad": env.body.fall_tilt_rad,
        # What the policy sees.
        "observation": [to_plain(block) for block in env.observation_layout],
        "observation_limit": OBSERVATION_LIMIT,
        "clock_hz": env.clock_hz,
        "commands": _commands(env),
        "trunk": robot.description.trunk,
        "feet": list(robot.feet),
        "floor": robot.floor,
        "mujoco": _mujoco_robot(robot, config.timestep_s),
        "checkpoint": {
            "name": checkpoint.path.resolve().name,
            "env_steps": checkpoint.env_steps,
            "seed": checkpoint.config.seed,
            "variant": str(config.variant),
            "injection": str(config.injection),
            "params_sha256": checkpoint.metadata["params_sha256"],
            "versions": checkpoint.metadata.get("versions") or {},
        },
        "versions": {"s3n_mjx": __version__}
        | {name: version(name) for name in ("onnx", "onnxruntime", "mujoco", "brax")},
    }


def _commands(env: RobotEnv) -> list[dict[str, Any]]:
    """Name, range and default of each element that can be steered."""
    _, default = env.command_at(0.0, env.command_meta)
    return [
        # The default is trained with, too, wherever it lies.
        {"name": name, "range": [min(low, value), max(high, value)], "default": value}
        for (name, (low, high)), value in zip(
            env.command_ranges.items(), map(float, default), strict=True
        )
    ]


def _mujoco_robot(robot: Robot, control_period_s: float) -> dict[str, Any]:
    """What a MuJoCo model needs to be this robot at home; a real one needs none of it."""
    joints = _angles(robot.model, robot.home_qpos)
    offset = np.zeros(len(robot.joints))
    if robot.description.closed_chain is not None:
        plant = ClosedChain(robot, control_period_s)
        plant.assemble(robot.home_joints, robot.home_qpos[:7])
        joints |= _angles(plant.model, plant.data.qpos)
        offset = plant.motor_offset
    model = robot.model
    return {
        # Joints that the description holds at home, rad or m.
        "held": robot.held,
        # Joints with one coordinate, loops closed.
        "home_qpos": joints,
        # Angle of the closed-chain MJCF's motor joints where motor_position is zero.
        "motor_offset_rad": offset.tolist(),
        # MuJoCo softens a contact by the inertia behind it; a floor as hard as in training.
        "body_invweight0": {
            model.body(i).name: model.body_invweight0[i].tolist() for i in range(1, model.nbody)
        },
    }


def _angles(model: mujoco.MjModel, qpos: np.ndarray) -> dict[str, float]:
    return {
        model.joint(i).name: float(qpos[model.jnt_qposadr[i]])
        for i in range(model.njnt)
        if mujoco.mjtJoint(model.jnt_type[i]) in _ONE_COORDINATE
    }
