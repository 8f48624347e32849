"""A robot on a test stand: trunk clamped, only the coupled pairs move, nothing touches.

This is how legs are validated and identified without contact (paper, sections IV and V).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set

import mujoco
import numpy as np

from s3n_mjx.errors import UserError
from s3n_mjx.robot.model import ResolvedPair, Robot
from s3n_mjx.robot.weld import weld


def clamp(spec: mujoco.MjSpec, movable: Set[str], angles: Mapping[str, float]) -> None:
    """Weld every joint of ``spec`` that is not in ``movable``, and switch contacts off.

    Args:
        spec: changed in place; its keyframes are removed, since they no longer fit.
        movable: names of the joints that stay.
        angles: rad or m, where a welded joint is held; one that is not named is held at its
            reference, the pose the MJCF draws.
    """
    model = spec.compile()
    for key in list(spec.keys):
        spec.delete(key)
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    for joint in list(spec.joints):
        if joint.name in movable:
            continue
        if joint.name in angles and joint.type == mujoco.mjtJoint.mjJNT_HINGE:
            weld(spec, model, joint.name, angles[joint.name])
        else:
            spec.delete(joint)


def drop_idle_loops(spec: mujoco.MjSpec) -> None:
    """Delete equalities among bodies that no longer move, in place: they constrain nothing."""
    model = spec.compile()
    for i in reversed(range(model.neq)):
        if _is_static(model, i):
            spec.delete(spec.equalities[i])


def _is_static(model: mujoco.MjModel, equality: int) -> bool:
    ids = [int(model.eq_obj1id[equality]), int(model.eq_obj2id[equality])]
    kind = model.eq_objtype[equality]
    if kind == int(mujoco.mjtObj.mjOBJ_SITE):
        ids = [int(model.site_bodyid[i]) for i in ids]
    elif kind != int(mujoco.mjtObj.mjOBJ_BODY):
        return False
    return all(model.body_weldid[i] == 0 for i in ids if i >= 0)


def pair_of(robot: Robot, leg: str | None) -> ResolvedPair:
    """The pair of a leg; of the first one that has any if none is named.

    Raises:
        UserError: there is none.
    """
    pairs = {pair.leg: pair for pair in robot.pairs}
    if not pairs:
        raise UserError(f"{robot.path}: no leg has a `pair`; there is no linkage to test")
    if leg is not None and leg not in pairs:
        raise UserError(f"--leg: no leg {leg!r} with a pair; known: {', '.join(pairs)}")
    return pairs[leg or next(iter(pairs))]


def on_stand(robot: Robot, gravity: bool = True, leg: str | None = None) -> Robot:
    """The robot with its trunk clamped and every joint but those of the pairs welded at home.

    Args:
        robot: free-standing; not changed.
        gravity: whether it has weight there. Without, as with the legs' planes level.
        leg: weld the pairs of all other legs, too.

    Raises:
        UserError: no leg has a coupled pair.
    """
    pairs = [pair for pair in robot.pairs if leg in (None, pair.leg)]
    kept = np.array([i for p in pairs for i in (p.proximal, p.distal)], dtype=np.int64)
    if not len(kept):
        raise UserError(f"{robot.path}: no leg has a `pair`; there is no linkage to test")
    names = tuple(robot.joints[i] for i in kept)
    home = dict(zip(robot.joints, robot.home_joints, strict=True))
    spec = robot.spec.copy()
    clamp(spec, set(names), home)
    for actuator in list(spec.actuators):
        if actuator.target not in names:
            spec.delete(actuator)
    for sensor in list(spec.sensors):  # they may be of what is gone
        spec.delete(sensor)
    drop_idle_loops(spec)
    if not gravity:
        spec.option.gravity = [0.0, 0.0, 0.0]
    model = spec.compile()

    joints = [model.joint(name).id for name in names]
    qpos_index = model.jnt_qposadr[joints].astype(np.int64)
    home_qpos = model.qpos0.copy()
    home_qpos[qpos_index] = robot.home_joints[kept]
    place = {int(old): new for new, old in enumerate(kept)}

    def moved(pair: ResolvedPair) -> ResolvedPair:
        return dataclasses.replace(pair, proximal=place[pair.proximal], distal=place[pair.distal])

    return dataclasses.replace(
        robot,
        spec=spec,
        model=model,
        joints=names,
        qpos_index=qpos_index,
        dof_index=model.jnt_dofadr[joints].astype(np.int64),
        actuator_map=robot.actuator_map[np.ix_(kept, kept)],
        motor_inertia=robot.motor_inertia[kept],
        motor_damping=robot.motor_damping[kept],
        torque_limit=robot.torque_limit[kept],
        kp=robot.kp[kept],
        kd=robot.kd[kept],
        pairs=tuple(moved(pair) for pair in pairs),
        home_qpos=home_qpos,
    )
