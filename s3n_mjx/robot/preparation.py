"""An MJCF as the loader wants it: names for all, a floor, a home pose, idle joints welded.

Everything here changes the MJCF's spec before it is compiled for good; the file stays as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.config_files import LARGEST
from s3n_mjx.errors import UserError
from s3n_mjx.robot.actuators import JOINT_TRANSMISSIONS, convert_armature
from s3n_mjx.robot.description import Collisions, RobotDescription
from s3n_mjx.robot.geometry import lowest_point
from s3n_mjx.robot.names import name_everything
from s3n_mjx.robot.warned import listening
from s3n_mjx.robot.weld import weld

# Names of what a bare robot is given.
ADDED_FLOOR = "s3n_floor"
ADDED_HOME = "s3n_home"
# Feet of a home keyframe may be so far from the floor, as a soft contact has them.
AFLOAT_M = 0.002
_COUPLED_RAD = 1e-3  # that a joint may be off an equality with another
# Of a compiled model: what its dynamics at home are computed from.
_BOUNDED = (
    *("body_mass", "body_inertia", "body_pos", "body_ipos", "geom_pos", "geom_size"),
    *("jnt_pos", "jnt_axis", "jnt_range", "jnt_stiffness", "qpos0", "qpos_spring", "key_qpos"),
    *("dof_armature", "dof_damping", "dof_frictionloss", "tendon_armature", "eq_data"),
)


@dataclass(frozen=True)
class Prepared:
    """What preparation knows beside the spec.

    Attributes:
        held: joints that were welded, and at what, rad or m.
        lifted: m, how far the home keyframe's trunk was moved to set its feet on the floor.
    """

    held: dict[str, float]
    lifted: float


def prepare(spec: mujoco.MjSpec, description: RobotDescription, path: Path) -> Prepared:
    """Complete an MJCF, and take out of it what the description says stands still.

    Args:
        spec: changed in place.
        description: contents of the robot description.
        path: of the description, for messages.

    Raises:
        UserError: names that are not there, joints nobody accounts for, a floor not named; says
            which.
    """
    name_everything(spec)
    _refuse_loops(spec, path)
    convert_armature(spec, path)
    for joint in spec.joints:
        # Weight that MuJoCo lets an actuator carry; without one, nothing would.
        joint.actgravcomp = False
    _account_for_joints(spec, description, path)
    if description.floor is None:
        _add_floor(spec, description, path)
    if description.collisions is Collisions.FEET:
        _leave_feet_alone_colliding(spec, description, path)
    home, lifted = _home(spec, description, path)
    return Prepared(_hold(spec, description, home, path), lifted)


def compiled(spec: mujoco.MjSpec, description: RobotDescription, path: Path) -> mujoco.MjModel:
    """``spec`` compiled.

    Raises:
        UserError: MuJoCo refuses it, or could not simulate it.
    """
    try:
        with listening() as warned:
            model = spec.compile()
    except ValueError as error:
        raise UserError(
            f"{path}: {description.model} does not compile ({' '.join(str(error).split())})"
        ) from None
    if warned:
        raise UserError(f"{path}: {description.model} cannot be simulated ({warned[0]})")
    check_bounded(model, f"{path}: {description.model}")
    return model


def check_bounded(model: mujoco.MjModel, where: str) -> None:
    """Refuse a model with numbers that are not finite, or beyond use in a simulation's float32.

    Raises:
        UserError: begins with ``where`` and names MuJoCo's field.
    """
    for what in _BOUNDED:
        values = np.ravel(getattr(model, what))
        beyond = ~(np.abs(values) <= LARGEST)
        if beyond.any():
            raise UserError(
                f"{where} cannot be simulated ({what} is {values[beyond][0]:g}); correct it"
            )


def choices(name: str, known: Iterable[str]) -> str:
    """What a misspelt ``name`` may have meant, or what there is."""
    known = [k for k in known if k]
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"the MJCF has: {shown or 'none with a name'}"


def _refuse_loops(spec: mujoco.MjSpec, path: Path) -> None:
    closing = (mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD)
    loops = [
        equality.name or f"equality {i}"
        for i, equality in enumerate(spec.equalities)
        if equality.type in closing
    ]
    if loops:
        raise UserError(
            f"{path}: the MJCF is not a serial tree: closed by {', '.join(loops)};"
            " give the serial model here and this one as `closed_chain`"
        )


def _account_for_joints(spec: mujoco.MjSpec, description: RobotDescription, path: Path) -> None:
    """Each joint is driven, held or passive: none may hang loose because nobody thought of it."""
    joints = {joint.name: joint for joint in spec.joints}
    for key in ("held", "passive"):
        for name in getattr(description, key):
            if name not in joints:
                raise UserError(f"{path}: {key}: no joint named {name!r}; {choices(name, joints)}")
    known = {entry.joint for entry in description.driven}
    if not known <= set(joints):
        return  # a misspelt one, which `resolve` says better
    known |= {*description.held, *description.passive}
    free = [joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]
    others = [name for name in joints if name not in known and joints[name] not in free]
    if others:
        raise UserError(
            f"{path}: no leg has the joints {', '.join(others)}; list each under `held` (welded at"
            " home), `controlled` (driven by the policy) or `passive` (moved by nothing but its"
            " spring and damper)"
        )
    floating = [joint.name for joint in free if joint.parent.name != description.trunk]
    if floating and len(floating) < len(free):
        raise UserError(
            f"{path}: trunk: {description.model} has another free body, by joint"
            f" {', '.join(floating)}; take it out of the MJCF"
        )


def _add_floor(spec: mujoco.MjSpec, description: RobotDescription, path: Path) -> None:
    there = floors(spec)
    if there:
        raise UserError(
            f"{path}: floor: missing, and {description.model} has a geom {there[0]!r} in the"
            " world that feet can touch; name the floor"
        )
    if spec.geom(ADDED_FLOOR) is not None:
        raise UserError(
            f"{path}: floor: {description.model} already has a geom {ADDED_FLOOR!r}; name the floor"
        )
    add_floor(spec)


def floors(spec: mujoco.MjSpec) -> list[str]:
    """Geoms of the world that others can touch."""
    return [
        geom.name
        for geom in spec.geoms
        if (geom.contype or geom.conaffinity) and _never_moves(geom.parent)
    ]


def add_floor(spec: mujoco.MjSpec) -> None:
    """A plane without end at height 0, which everything touches that can touch anything."""
    touching = 0
    for geom in spec.geoms:
        touching |= geom.contype | geom.conaffinity
    spec.worldbody.add_geom(
        name=ADDED_FLOOR,
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[0.0, 0.0, 0.05],
        contype=touching,
        conaffinity=touching,
        rgba=[0.6, 0.65, 0.7, 1.0],
        # MuJoCo's own; defaults of the MJCF are meant for the robot's geoms.
        condim=3,
        friction=[1.0, 0.005, 0.0001],
        priority=0,
        margin=0.0,
        gap=0.0,
        fromto=[np.nan] * 6,
    )


def _never_moves(body) -> bool:
    """Whether no joint is between the world and ``body``, of an MjSpec."""
    while body.name != "world":
        if body.joints:
            return False
        body = body.parent
    return True


def _leave_feet_alone_colliding(
    spec: mujoco.MjSpec, description: RobotDescription, path: Path
) -> None:
    """Nothing but a foot and the floor collide; a pair of these two that the MJCF states stays."""
    feet = {leg.foot for leg in description.legs}
    floor = description.floor or ADDED_FLOOR
    stated = set()
    for pair in list(spec.pairs):
        both = {pair.geomname1, pair.geomname2}
        if floor in both and both & feet:
            stated |= both & feet
        else:
            spec.delete(pair)
    for geom in spec.geoms:
        geom.contype = int(geom.name == floor)
        geom.conaffinity = int(geom.name in feet - stated)


def _home(
    spec: mujoco.MjSpec, description: RobotDescription, path: Path
) -> tuple[NDArray[np.float64], float]:
    """Home configuration (nq,), as a keyframe of the spec, too, and how far it was lifted in m."""
    model = compiled(spec, description, path)
    name = description.home_keyframe
    if name is None:
        qpos = _posture(model, description, path)
        _follow_equalities(model, qpos, set(description.home), f"{path}: home")
        _set_down(model, description, qpos, path)
        spec.add_key(name=ADDED_HOME, qpos=qpos)
        return qpos, 0.0
    keys = {model.key(i).name: i for i in range(model.nkey)}
    if name not in keys:
        raise UserError(
            f"{path}: home_keyframe: no key named {name!r} in {description.model};"
            f" {choices(name, keys)}"
        )
    qpos = model.key_qpos[keys[name]].copy()
    every = {model.joint(i).name for i in range(model.njnt)}
    _follow_equalities(model, qpos, every, f"{path}: home_keyframe {name}")
    before = qpos.copy()
    gap = _set_down(model, description, qpos, None)
    if abs(gap) <= AFLOAT_M:
        return before, 0.0
    spec.keys[keys[name]].qpos = qpos
    return qpos, -gap


def _posture(
    model: mujoco.MjModel, description: RobotDescription, path: Path
) -> NDArray[np.float64]:
    """The MJCF's own with the angles of `home`, (nq,)."""
    qpos = model.qpos0.copy()
    hinges = {
        model.joint(i).name: i
        for i in range(model.njnt)
        if model.jnt_type[i] == mujoco.mjtJoint.mjJNT_HINGE
    }
    for name, angle in description.home.items():
        if name not in hinges:
            raise UserError(f"{path}: home: no hinge named {name!r}; {choices(name, hinges)}")
        low, high = model.jnt_range[hinges[name]]
        if model.jnt_limited[hinges[name]] and not low - 1e-6 <= angle <= high + 1e-6:
            raise UserError(
                f"{path}: home: {name} at {angle:g} rad is outside its range,"
                f" {low:.4g} to {high:.4g} rad"
            )
        qpos[model.jnt_qposadr[hinges[name]]] = angle
    return qpos


def _follow_equalities(
    model: mujoco.MjModel, qpos: NDArray[np.float64], given: set[str], where: str
) -> None:
    """Move joints that are coupled to others to where the coupling has them.

    Args:
        model: the robot.
        qpos: (nq,), changed in place.
        given: joints that stay.
        where: for messages.

    Raises:
        UserError: a given one contradicts its coupling.
    """
    for i in range(model.neq):
        kind, active = mujoco.mjtEq(model.eq_type[i]), model.eq_active0[i]
        if kind != mujoco.mjtEq.mjEQ_JOINT or not active:
            continue
        first, second = int(model.eq_obj1id[i]), int(model.eq_obj2id[i])
        address = model.jnt_qposadr[first]
        moved = 0.0
        if second >= 0:
            other = model.jnt_qposadr[second]
            moved = float(qpos[other] - model.qpos0[other])
        wanted = model.qpos0[address] + np.polyval(model.eq_data[i, 4::-1], moved)
        name = model.joint(first).name
        if name not in given:
            qpos[address] = wanted
        elif abs(qpos[address] - wanted) > _COUPLED_RAD:
            raise UserError(
                f"{where}: {name} is at {qpos[address]:.4g}, and equality"
                f" {model.equality(i).name or i!r} has it at {wanted:.4g}; correct it"
            )


def _set_down(
    model: mujoco.MjModel,
    description: RobotDescription,
    qpos: NDArray[np.float64],
    path: Path | None,
) -> float:
    """Move the trunk until the lowest foot touches the floor; returns how far that was off, in m.

    Args:
        model: the robot.
        description: its feet, floor and trunk.
        qpos: (nq,), changed in place.
        path: for messages; None leaves a floor alone that is no plane.
    """
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    feet = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, g.foot) for g in description.legs]
    floor = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, description.floor or ADDED_FLOOR)
    trunk = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, description.trunk)
    # Names that are wrong here are said by `resolve`, with what may have been meant.
    if min(*feet, floor, trunk) < 0 or model.body_dofnum[trunk] != 6:
        return 0.0
    level = data.geom_xmat[floor].reshape(3, 3)[2, 2] > 1.0 - 1e-9
    if model.geom_type[floor] != mujoco.mjtGeom.mjGEOM_PLANE or not level:
        if path is None:
            return 0.0
        raise UserError(
            f"{path}: home: the trunk can be set down on a level plane alone, and floor"
            f" {description.floor!r} is none; add a keyframe to {description.model} and name"
            " it as `home_keyframe`"
        )
    gap = min(lowest_point(model, data, foot) for foot in feet) - float(data.geom_xpos[floor, 2])
    qpos[model.jnt_qposadr[model.body_jntadr[trunk]] + 2] -= gap
    return gap


def _hold(
    spec: mujoco.MjSpec,
    description: RobotDescription,
    home: NDArray[np.float64],
    path: Path,
) -> dict[str, float]:
    """Weld what the description holds; returns each joint's angle in rad, or m."""
    if not description.held:
        return {}
    model = compiled(spec, description, path)
    straight = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    for body in spec.bodies:
        loose = None
        for joint in body.joints:
            if joint.name not in description.held:
                loose = joint.name
            elif loose is not None:
                raise UserError(
                    f"{path}: held: {joint.name} is turned by {loose} on the same body; give each"
                    " joint a body of its own in the MJCF"
                )
    values = {}
    for name in description.held:
        joint = model.joint(name)
        if mujoco.mjtJoint(model.jnt_type[joint.id]) not in straight:
            raise UserError(f"{path}: held: {name} is neither hinge nor slide and cannot be welded")
        values[name] = float(home[joint.qposadr[0]])
    _let_go(spec, set(values), path)
    for joint in [j.name for j in spec.joints if j.name in values]:  # in the order of their bodies
        weld(spec, model, joint, values[joint])
    for key in list(spec.keys):  # of another size now
        spec.delete(key)
    shorter = compiled(spec, description, path)
    qpos = shorter.qpos0.copy()
    for i in range(shorter.njnt):
        width = 7 if shorter.jnt_type[i] == mujoco.mjtJoint.mjJNT_FREE else 1
        width = 4 if shorter.jnt_type[i] == mujoco.mjtJoint.mjJNT_BALL else width
        old = model.joint(shorter.joint(i).name).qposadr[0]
        new = shorter.jnt_qposadr[i]
        qpos[new : new + width] = home[old : old + width]
    spec.add_key(name=description.home_keyframe or ADDED_HOME, qpos=qpos)
    return values


def _let_go(spec: mujoco.MjSpec, joints: set[str], path: Path) -> None:
    """Remove what drives or measures joints that are about to go.

    Raises:
        UserError: a tendon or an equality has one of them, and would mean something else without.
    """
    for tendon in spec.tendons:
        for wrap in tendon.path:
            if wrap.type == mujoco.mjtWrap.mjWRAP_JOINT and wrap.target.name in joints:
                raise UserError(
                    f"{path}: held: {wrap.target.name} is part of tendon {tendon.name!r}; make it"
                    " `passive`, or take the tendon out of the MJCF"
                )
    for equality in spec.equalities:
        both = {equality.name1, equality.name2} & joints
        if equality.type == mujoco.mjtEq.mjEQ_JOINT and both:
            raise UserError(
                f"{path}: held: {min(both)} is coupled to another joint by equality"
                f" {equality.name!r}; take that out of the MJCF"
            )
    for actuator in list(spec.actuators):
        if actuator.target in joints and actuator.trntype in JOINT_TRANSMISSIONS:
            spec.delete(actuator)
    for sensor in list(spec.sensors):  # the simulation has none either
        spec.delete(sensor)
