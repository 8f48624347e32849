"""Actuators of other people's MJCF: what S3N's control loop replaces, and what must not be lost.

Torques reach the robot through `qfrc_applied`, so an MJCF's actuators are taken out. Their own
armature and damping are part of the robot, though: C MuJoCo adds them to the joint, MJX 3.17 drops
them without a word.
"""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np

from s3n_mjx.errors import UserError

JOINT_TRANSMISSIONS = (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)


def convert_armature(spec: mujoco.MjSpec, path: Path) -> None:
    """Move armature and damping of actuators to the joints and tendons that they drive.

    Reflected through the gear, which counts twice (MuJoCo XML reference, actuator `armature`).

    Args:
        spec: changed in place; C MuJoCo gives the same dynamics before and after.
        path: of the description or MJCF, for messages.

    Raises:
        UserError: an actuator drives something that can have neither.
    """
    for actuator in spec.actuators:
        damping = np.array(actuator.damping)
        if not (actuator.armature or damping.any()):
            continue
        target = _target(spec, actuator)
        if target is None:
            raise UserError(
                f"{path}: actuator {actuator.name!r} has armature or damping of its own and drives"
                " neither a hinge, a slide nor a tendon, so MJX would drop both; remove them from"
                " the MJCF"
            )
        square = actuator.gear[0] ** 2
        target.armature += square * actuator.armature
        target.damping = np.array(target.damping) + square * damping
        actuator.armature = 0.0
        actuator.damping = np.zeros_like(damping)


def _target(spec: mujoco.MjSpec, actuator):
    """The joint or tendon whose length the actuator's is; None where there is no such thing."""
    kind = mujoco.mjtTrn(actuator.trntype)
    if kind == mujoco.mjtTrn.mjTRN_TENDON:
        return spec.tendon(actuator.target)
    joint = spec.joint(actuator.target) if kind in JOINT_TRANSMISSIONS else None
    straight = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    return joint if joint is not None and joint.type in straight else None


def drives_joint(model: mujoco.MjModel, actuator: int, joint: int) -> bool:
    """Whether an actuator acts on a joint, and on nothing else."""
    return (
        mujoco.mjtTrn(model.actuator_trntype[actuator]) in JOINT_TRANSMISSIONS
        and model.actuator_trnid[actuator, 0] == joint
    )


def torque_limit(model: mujoco.MjModel, actuator: int) -> float:
    """What an actuator can do at its joint at most, N m, gear included; inf without a limit.

    By its force range, by the control range of one that makes torque, and by the joint's own
    limit on what actuators do. The larger side counts.
    """
    gear = abs(float(model.actuator_gear[actuator, 0]))
    limits = [np.inf]
    if model.actuator_forcelimited[actuator]:
        limits.append(gear * np.abs(model.actuator_forcerange[actuator]).max())
    if model.actuator_ctrllimited[actuator] and makes_torque(model, actuator):
        gain = abs(float(model.actuator_gainprm[actuator, 0]))
        limits.append(gear * gain * np.abs(model.actuator_ctrlrange[actuator]).max())
    joint = model.actuator_trnid[actuator, 0]
    if drives_joint(model, actuator, joint) and model.jnt_actfrclimited[joint]:
        limits.append(np.abs(model.jnt_actfrcrange[joint]).max())
    return float(min(limits))


def makes_torque(model: mujoco.MjModel, actuator: int) -> bool:
    """Whether its force is a constant times its control, and nothing else."""
    return (
        model.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_FIXED
        and model.actuator_dyntype[actuator] == mujoco.mjtDyn.mjDYN_NONE
        and (
            model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE
            or not model.actuator_biasprm[actuator, :3].any()
        )
    )
