"""What an MJCF says of a robot, before anybody has described it: `python -m s3n_mjx.robot inspect`.

Nothing here depends on names: legs are the chains of hinges below the free body that end lowest,
feet the geoms at their ends.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.robot.actuators import drives_joint, torque_limit
from s3n_mjx.robot.geometry import lowest_point
from s3n_mjx.robot.model import load_spec
from s3n_mjx.robot.names import name_everything
from s3n_mjx.robot.preparation import check_bounded
from s3n_mjx.robot.warned import listening
from s3n_mjx.simulation.support import constraint_rows, contact_count, impossible_collisions

from mujoco import mjx  # isort: skip - after what silences it

# A chain is a leg if it ends within this share of the robot's height from its lowest point.
_NEAR_THE_FLOOR = 0.25
_PARALLEL = 0.999
_JOINTS = {
    mujoco.mjtJoint.mjJNT_FREE: "free",
    mujoco.mjtJoint.mjJNT_BALL: "ball",
    mujoco.mjtJoint.mjJNT_SLIDE: "slide",
    mujoco.mjtJoint.mjJNT_HINGE: "hinge",
}


@dataclass(frozen=True)
class JointSeen:
    """A joint; SI units, rad. `axis` is in the world frame at the posture."""

    name: str
    body: str
    type: str
    axis: tuple[float, float, float]
    range: tuple[float, float] | None
    reference: float  # qpos0, MJCF's `ref`
    armature: float
    damping: float
    frictionloss: float
    stiffness: float
    torque_limit: float | None  # `actuatorfrcrange`, on the joint


@dataclass(frozen=True)
class ActuatorSeen:
    """An actuator; torques, gains and limits at the joint, gear included."""

    name: str
    joint: str | None  # that it drives; None of a tendon, a site or a body
    type: str  # torque, position, velocity, or other
    gear: float
    kp: float  # N m/rad, built in
    kd: float  # N m s/rad, built in
    torque_limit: float | None  # N m
    armature: float  # kg m^2, of its own, at the joint; MJX drops it, the loader converts it
    damping: float  # N m s/rad, likewise


@dataclass(frozen=True)
class PairSeen:
    """Two hinges that a linkage could couple: parallel, the second one moving the leg's end."""

    proximal: str
    distal: str
    parallel: bool  # else antiparallel

    @property
    def absolute_row(self) -> tuple[float, float]:
        """The row of the Jacobian of a motor that turns the distal link's absolute angle."""
        return (1.0, 1.0) if self.parallel else (1.0, -1.0)


@dataclass(frozen=True)
class LegSeen:
    """A chain from the trunk to the floor."""

    name: str
    joints: tuple[str, ...]  # driven ones, from the trunk outwards
    actuators: tuple[str | None, ...]  # of each joint; None in a file without actuators
    links: tuple[str, ...]  # bodies
    foot: str  # geom
    foot_type: str
    foot_height: float  # m, of its lowest point at the posture, above the floor if that is a plane
    pairs: tuple[PairSeen, ...]  # neighbours that a planar linkage could couple


@dataclass(frozen=True)
class Survey:
    """Everything that `inspect` prints.

    Attributes:
        file: the MJCF.
        name: of the model in it.
        posture: where axes and heights were read: a keyframe, or "qpos0".
        mass: kg, all of it.
        trunk: body of the free joint, or None.
        held_joints: driven ones of no leg.
        passive_joints: those that nothing drives, in legs or elsewhere; the free one left out.
        floors: geoms of the world that feet can touch.
        loops: equalities that close kinematic loops.
        refused: why MJX takes the file not, a line each.
        converted: what MJX would drop without a word, and the loader keeps.
        contacts: most contacts of an environment in MJX, or None where it refuses.
        constraint_rows: of MJX's solver, in an environment, likewise.
        doubtful: what looks like a mistake in the file.
        missing: what a description cannot do without, with the way out. (Floor and keyframe it
            can: see :func:`~s3n_mjx.robot.model.complete`.)
    """

    file: Path
    name: str
    posture: str
    mass: float
    nv: int
    trunk: str | None
    joints: tuple[JointSeen, ...]
    legs: tuple[LegSeen, ...]
    held_joints: tuple[str, ...]
    passive_joints: tuple[str, ...]
    actuators: tuple[ActuatorSeen, ...]
    floors: tuple[str, ...]
    keyframes: tuple[str, ...]
    loops: tuple[str, ...]
    refused: tuple[str, ...]
    converted: tuple[str, ...]
    contacts: int | None
    constraint_rows: int | None
    doubtful: tuple[str, ...]
    missing: tuple[str, ...]


def survey(path: Path) -> Survey:
    """Read an MJCF.

    Raises:
        UserError: no such file, not a valid MJCF, or a model that does not compile.
    """
    spec = load_spec(path)
    name_everything(spec)
    try:
        with listening() as warned:
            model = spec.compile()
    except ValueError as error:
        raise UserError(f"{path}: does not compile ({' '.join(str(error).split())})") from None
    check_bounded(model, f"{path}:")
    data = mujoco.MjData(model)
    posture = "qpos0"
    keyframes = tuple(model.key(i).name for i in range(model.nkey))
    if keyframes:
        chosen = keyframes.index("home") if "home" in keyframes else 0
        mujoco.mj_resetDataKeyframe(model, data, chosen)
        posture = keyframes[chosen]
    with listening() as at_posture:
        mujoco.mj_forward(model, data)
    if warned or at_posture:
        raise UserError(f"{path}: cannot be simulated ({[*warned, *at_posture][0]})")
    trunk = _trunk(model)
    actuators = tuple(_actuator(model, i) for i in range(model.nu))
    legs = _legs(model, data, trunk, actuators)
    in_legs = {joint for leg in legs for joint in leg.joints}
    joints = tuple(_joint(model, data, i) for i in range(model.njnt))
    others = [j.name for j in joints if j.type != "free" and j.name not in in_legs]
    driven = {a.joint for a in actuators}
    floors = tuple(
        model.geom(i).name
        for i in range(model.ngeom)
        if model.body_weldid[model.geom_bodyid[i]] == 0 and _collides(model, i)
    )
    loops = tuple(
        model.equality(i).name or f"equality {i}"
        for i in range(model.neq)
        if mujoco.mjtEq(model.eq_type[i]) in (mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD)
    )
    refused = _mjx_refuses(model)
    return Survey(
        file=path,
        name=spec.modelname or path.stem,
        posture=posture,
        mass=float(model.body_mass.sum()),
        nv=model.nv,
        trunk=None if trunk is None else model.body(trunk).name,
        joints=joints,
        legs=legs,
        held_joints=tuple(j for j in others if j in driven),
        passive_joints=tuple(j for j in others if j not in driven),
        actuators=actuators,
        floors=floors,
        keyframes=keyframes,
        loops=loops,
        refused=refused,
        converted=tuple(
            f"actuator {a.name}: {what} of its own ({value:g} at the joint)"
            for a in actuators
            for what, value in (("armature", a.armature), ("damping", a.damping))
            if value
        ),
        contacts=None if refused else contact_count(model),
        constraint_rows=None if refused else constraint_rows(model),
        doubtful=tuple(_doubtful(model, joints, actuators)),
        missing=tuple(_missing(trunk, legs, actuators, loops)),
    )


def _trunk(model: mujoco.MjModel) -> int | None:
    free = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    return int(model.jnt_bodyid[free[0]]) if len(free) else None


def _joint(model: mujoco.MjModel, data: mujoco.MjData, joint: int) -> JointSeen:
    dof, qpos = model.jnt_dofadr[joint], model.jnt_qposadr[joint]
    limited = bool(model.jnt_limited[joint])
    return JointSeen(
        name=model.joint(joint).name,
        body=model.body(model.jnt_bodyid[joint]).name,
        type=_JOINTS[mujoco.mjtJoint(model.jnt_type[joint])],
        axis=(*(float(x) for x in data.xaxis[joint]),),  # type: ignore[arg-type]
        range=(float(model.jnt_range[joint, 0]), float(model.jnt_range[joint, 1]))
        if limited
        else None,
        reference=float(model.qpos0[qpos]),
        armature=float(model.dof_armature[dof]),
        damping=float(model.dof_damping[dof]),
        frictionloss=float(model.dof_frictionloss[dof]),
        stiffness=float(model.jnt_stiffness[joint]),
        torque_limit=_largest(model.jnt_actfrcrange[joint])
        if model.jnt_actfrclimited[joint]
        else None,
    )


def _largest(bounds: NDArray[np.float64]) -> float:
    return float(np.abs(bounds).max())


def _actuator(model: mujoco.MjModel, actuator: int) -> ActuatorSeen:
    """What it does at the joint: force times gear, of length and velocity times gear."""
    gear = float(model.actuator_gear[actuator, 0])
    gain, bias = model.actuator_gainprm[actuator], model.actuator_biasprm[actuator]
    affine = model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_AFFINE
    plain = (
        model.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_FIXED
        and model.actuator_dyntype[actuator] == mujoco.mjtDyn.mjDYN_NONE
        and (affine or model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE)
    )
    kp, kd = (-bias[1], -bias[2]) if affine else (0.0, 0.0)
    if not plain or bias[0]:
        kind = "other"
    elif not affine or not (kp or kd):
        kind = "torque"
    elif kp and gain[0] == kp:
        kind = "position"
    elif kd and not kp and gain[0] == kd:
        kind = "velocity"
    else:
        kind = "other"
    target = model.actuator_trnid[actuator, 0]
    joint = model.joint(target).name if drives_joint(model, actuator, target) else None
    limit = torque_limit(model, actuator)
    return ActuatorSeen(
        name=model.actuator(actuator).name,
        joint=joint,
        type=kind,
        gear=gear,
        kp=float(kp) * gear**2,
        kd=float(kd) * gear**2,
        torque_limit=limit if np.isfinite(limit) else None,
        armature=float(np.max(model.actuator_armature[actuator])) * gear**2,
        damping=float(np.max(model.actuator_damping[actuator])) * gear**2,
    )


def _collides(model: mujoco.MjModel, geom: int) -> bool:
    return bool(model.geom_contype[geom] or model.geom_conaffinity[geom])


def _legs(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    trunk: int | None,
    actuators: tuple[ActuatorSeen, ...],
) -> tuple[LegSeen, ...]:
    if trunk is None:
        return ()
    heights = {
        geom: lowest_point(model, data, geom)
        for geom in range(model.ngeom)
        if model.body_rootid[model.geom_bodyid[geom]] == model.body_rootid[trunk]
        and _collides(model, geom)
    }
    if not heights:
        return ()
    floor = min(heights.values())
    near = floor + _NEAR_THE_FLOOR * max(float(data.xpos[trunk, 2]) - floor, 0.0)
    # Chains of joints by the bodies that end them; fixed bodies and toes belong to their chain.
    ends: dict[tuple[int, ...], list[int]] = {}
    for body in range(trunk + 1, model.nbody):
        chain = _chain(model, trunk, body)
        if chain:
            ends.setdefault(chain, []).append(body)
    longest = [c for c in ends if not any(c != d and d[: len(c)] == c for d in ends)]
    feet = {}
    for chain in longest:
        touching = [g for g in heights if model.geom_bodyid[g] in ends[chain]]
        foot = min(touching, key=heights.__getitem__, default=None)
        if foot is not None and heights[foot] <= near:
            feet[chain] = foot
    # A joint that several of them go through is a waist, and no leg's.
    through = Counter(joint for chain in feet for joint in chain)
    drivers = {a.joint: a.name for a in actuators if a.joint is not None}
    level = _plane_height(model, data)
    legs = []
    for chain, foot in feet.items():
        hinges = [
            j for j in chain if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE and through[j] == 1
        ]
        if len(hinges) < 2:
            continue
        driven = [j for j in hinges if model.joint(j).name in drivers]
        if len(driven) > 1:  # the others are sprung toes and the like
            hinges = driven
        names = [model.joint(j).name for j in hinges]
        bodies = list(dict.fromkeys(int(model.jnt_bodyid[j]) for j in hinges))
        legs.append(
            LegSeen(
                name=_leg_name(names),
                joints=tuple(names),
                actuators=tuple(drivers.get(name) for name in names),
                links=tuple(model.body(b).name for b in bodies),
                foot=model.geom(foot).name,
                foot_type=mujoco.mjtGeom(model.geom_type[foot])
                .name.removeprefix("mjGEOM_")
                .lower(),
                foot_height=heights[foot] - level,
                pairs=tuple(_pairs(model, data, chain, hinges)),
            )
        )
    return tuple(_with_distinct_names(legs))


def _plane_height(model: mujoco.MjModel, data: mujoco.MjData) -> float:
    """Of the first plane of the world that can be touched, m; 0 without one."""
    for geom in range(model.ngeom):
        plane = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE
        if plane and model.body_weldid[model.geom_bodyid[geom]] == 0 and _collides(model, geom):
            return float(data.geom_xpos[geom, 2])
    return 0.0


def _chain(model: mujoco.MjModel, trunk: int, body: int) -> tuple[int, ...]:
    """Joints between trunk and body, from the trunk outwards; empty if it hangs elsewhere."""
    joints: list[int] = []
    while body > trunk:
        first, count = model.body_jntadr[body], model.body_jntnum[body]
        joints[:0] = range(first, first + count)
        body = model.body_parentid[body]
    return tuple(joints) if body == trunk else ()


def _pairs(
    model: mujoco.MjModel, data: mujoco.MjData, chain: tuple[int, ...], hinges: list[int]
) -> Iterator[PairSeen]:
    """Driven hinges that follow each other and are parallel: what two motors could share."""
    for proximal, distal in itertools.pairwise(hinges):
        cosine = float(data.xaxis[proximal] @ data.xaxis[distal])
        if chain.index(distal) == chain.index(proximal) + 1 and abs(cosine) > _PARALLEL:
            yield PairSeen(model.joint(proximal).name, model.joint(distal).name, cosine > 0)


def _leg_name(joints: list[str]) -> str:
    """What the names of its joints share: `FL` of FL_hip and FL_knee, else the first joint's."""
    words = [set(_words(name)) for name in joints]
    shared = set.intersection(*words) - {"joint", "leg"}
    inside = [word for word in _words(joints[0]) if word in shared]
    return "_".join(inside) or joints[0]


def _words(name: str) -> list[str]:
    return [w for w in name.replace("-", "_").replace("/", "_").split("_") if w]


def _with_distinct_names(legs: list[LegSeen]) -> list[LegSeen]:
    names = [leg.name for leg in legs]
    if len(set(names)) == len(names):
        return legs
    return [LegSeen(**{**vars(leg), "name": f"leg{i}"}) for i, leg in enumerate(legs)]


def _mjx_refuses(model: mujoco.MjModel) -> tuple[str, ...]:
    """What MJX says of the model, its geom types put back into geoms."""
    refused = impossible_collisions(model)
    if refused:
        return refused
    try:
        # With the solver and the integrator that training sets.
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
        # Of what is beyond float32 and no part of the robot's dynamics, MJX makes an infinity.
        with np.errstate(over="ignore"):
            mjx.put_model(model, impl="jax")
    except NotImplementedError as error:
        return (str(error),)
    return ()


def _doubtful(
    model: mujoco.MjModel, joints: tuple[JointSeen, ...], actuators: tuple[ActuatorSeen, ...]
) -> Iterator[str]:
    degrees = [
        j.name
        for j in joints
        if j.type == "hinge" and j.range and max(map(abs, j.range)) > 2.5 * 2.0 * np.pi
    ]
    if degrees:
        yield (
            f"range of {', '.join(degrees)} is beyond 2 turns: degrees under"
            ' <compiler angle="radian"/>?'
        )
    free = [j.name for j in joints if j.type == "free" and (j.armature or j.damping)]
    if free:
        yield (
            f"free joint {', '.join(free)} has armature or damping, as if the trunk moved in"
            " honey: a default class that reaches it? write it as <freejoint/>"
        )
    lopsided = [
        actuator.name
        for i, actuator in enumerate(actuators)
        for limited, bounds in (
            (model.actuator_forcelimited[i], model.actuator_forcerange[i]),
            (
                model.actuator_ctrllimited[i] and actuator.type == "torque",
                model.actuator_ctrlrange[i],
            ),
        )
        if limited and not np.isclose(-bounds[0], bounds[1])
    ]
    if lopsided:
        yield (
            f"torque limits of {', '.join(dict.fromkeys(lopsided))} are not alike to both sides;"
            " the larger one is shown"
        )


def _missing(
    trunk: int | None,
    legs: tuple[LegSeen, ...],
    actuators: tuple[ActuatorSeen, ...],
    loops: tuple[str, ...],
) -> list[str]:
    missing = []
    if loops:
        missing.append(
            f"a serial tree: {', '.join(loops)} close loops; describe the serial model and name"
            " this file as its `closed_chain`"
        )
    if trunk is None:
        missing.append(
            "a free joint: the trunk's body needs <freejoint/> (a URDF has none: save it as MJCF"
            " from MuJoCo, and add it there)"
        )
    elif not legs:
        missing.append("legs: no chain of two driven hinges or more ends near the lowest point")
    other = [a.name for a in actuators if a.joint is None]
    if other:
        missing.append(
            f"a joint for actuator {', '.join(other)}: what drives a tendon, a site or a body S3N's"
            " control loop cannot stand in for; take it out of the MJCF"
        )
    for leg in legs:
        idle = [j for j, a in zip(leg.joints, leg.actuators, strict=True) if a is None]
        if idle and actuators:
            missing.append(f"an actuator for {', '.join(idle)} of leg {leg.name}")
        for joint in leg.joints:
            drivers = [a.name for a in actuators if a.joint == joint]
            if len(drivers) > 1:
                missing.append(f"one actuator for {joint}, in the place of {', '.join(drivers)}")
    return missing
