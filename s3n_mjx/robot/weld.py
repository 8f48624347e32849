"""Take a joint out of an MJCF and leave its body where the joint had put it."""

from __future__ import annotations

import mujoco
import numpy as np


def weld(spec: mujoco.MjSpec, model: mujoco.MjModel, name: str, value: float) -> None:
    """Delete a hinge or slide; its body keeps the pose that the joint has at ``value``.

    Args:
        spec: changed in place. What refers to the joint is the caller's affair. Of a body with
            several joints the first ones can be welded, in their order.
        model: ``spec`` compiled before any joint of that body was welded.
        name: of the joint.
        value: rad or m, as in qpos (a reference counts).
    """
    joint = spec.joint(name)
    compiled = model.joint(name)
    body, index = joint.parent, int(model.jnt_bodyid[compiled.id])
    first = model.jnt_bodyid[compiled.id - 1] != index if compiled.id else True
    # Compiled: in one form, whatever the file wrote the orientation in.
    position = model.body_pos[index].copy() if first else np.array(body.pos)
    at_rest = model.body_quat[index].copy() if first else np.array(body.quat)
    moved_by = value - float(model.qpos0[compiled.qposadr[0]])
    axis, anchor = model.jnt_axis[compiled.id], model.jnt_pos[compiled.id]
    moved, quaternion = np.zeros(3), at_rest
    if model.jnt_type[compiled.id] == mujoco.mjtJoint.mjJNT_SLIDE:
        mujoco.mju_rotVecQuat(moved, axis * moved_by, at_rest)
    elif moved_by:
        rotation, turned, quaternion = np.zeros(4), np.zeros(3), np.zeros(4)
        mujoco.mju_axisAngle2Quat(rotation, axis, moved_by)
        mujoco.mju_rotVecQuat(turned, anchor, rotation)
        mujoco.mju_rotVecQuat(moved, anchor - turned, at_rest)
        mujoco.mju_mulQuat(quaternion, at_rest, rotation)
    if first and body.frame is not None:
        body.set_frame(body.parent.add_frame())  # the compiled pose has its frames in it
    body.pos = position + moved
    body.quat = quaternion
    body.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
    spec.delete(joint)
