"""A robot: its description resolved against its serial-tree MJCF, once, by name.

Everything that follows works on the indices and arrays gathered here. What does not fit is
said here, before anything is simulated.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import HarmonicMatrix, parallel_inertia
from s3n_mjx.robot.description import Leg, LegJoint, RobotDescription, load_description
from s3n_mjx.robot.geometry import lowest_point
from s3n_mjx.robot.names import name_everything

# The fit of the serial link inertia is exact for a planar pair; this leaves room for rounding
# in MuJoCo's mass matrix and for axes that a CAD export turned by a hundredth of a degree.
_FIT_TOLERANCE = 1e-6
_PARALLEL = 0.999
# Names of what a bare robot is given.
ADDED_FLOOR = "s3n_floor"
ADDED_HOME = "s3n_home"


@dataclass(frozen=True, eq=False)
class ResolvedPair:
    """The two coupled joints of a leg; indices count the actuated joints of :class:`Robot`."""

    leg: str
    proximal: int
    distal: int
    jacobian: NDArray[np.float64]  # (2, 2)
    total: HarmonicMatrix | None  # identified M_p(alpha), actuator coordinates (Eq. 14)
    serial_link: HarmonicMatrix  # M_link^s(alpha) of the tree, without armature (Eq. 17)
    angle_range: tuple[float, float]  # rad, of the distal joint


@dataclass(frozen=True, eq=False)
class Robot:
    """Description, MJCF and what the one says of the other.

    Actuated joints are counted leg by leg in the order of the description; arrays over them
    have shape (nu,). Serial joint j and motor j of the same index stand at the same place.
    """

    path: Path
    description: RobotDescription
    floor: str  # geom
    spec: mujoco.MjSpec
    model: mujoco.MjModel
    joints: tuple[str, ...]
    qpos_index: NDArray[np.int64]  # (nu,) into qpos
    dof_index: NDArray[np.int64]  # (nu,) into qvel
    actuator_map: NDArray[np.float64]  # (nu, nu), q_p = map q_s, block-diagonal (Eq. 1)
    motor_inertia: NDArray[np.float64]  # (nu,) reflected, kg m^2 (Eq. 7)
    motor_damping: NDArray[np.float64]  # (nu,) reflected, N m s/rad (Eq. 7)
    torque_limit: NDArray[np.float64]  # (nu,) N m, actuator coordinates
    kp: NDArray[np.float64]  # (nu,) N m/rad, actuator coordinates
    kd: NDArray[np.float64]  # (nu,) N m s/rad, actuator coordinates
    pairs: tuple[ResolvedPair, ...]
    home_qpos: NDArray[np.float64]  # (nq,)

    @property
    def feet(self) -> tuple[str, ...]:
        """Foot geoms, leg by leg."""
        return tuple(leg.foot for leg in self.description.legs)

    @property
    def home_joints(self) -> NDArray[np.float64]:
        """Actuated joints at home, shape (nu,), rad."""
        return self.home_qpos[self.qpos_index]

    @property
    def mass(self) -> float:
        """Total mass in kg."""
        return float(self.model.body_mass.sum())


def load_robot(path: str | Path) -> Robot:
    """Read `robot.yaml` and its MJCF and resolve one against the other.

    Raises:
        UserError: names the file, the key or joint, and what to do.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "robot.yaml"
    description = load_description(path)
    closed_chain = description.closed_chain
    if closed_chain is not None and not (path.parent / closed_chain).is_file():
        raise UserError(
            f"{path}: closed_chain: no such file {closed_chain!r}; correct or remove it"
        )
    model = path.parent / description.model
    if not model.is_file():
        raise UserError(f"{model}: no such MJCF file (key `model` of {path})")
    spec = load_spec(model)
    name_everything(spec)
    complete(spec, description, path)
    return resolve(description, spec, path)


def load_spec(path: Path) -> mujoco.MjSpec:
    """MJCF file, or zip archive of one with its assets, as an editable spec.

    Raises:
        UserError: no such file or not a valid MJCF.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such MJCF file")
    try:
        if path.suffix == ".zip":
            return mujoco.MjSpec.from_zip(str(path))
        return mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise UserError(f"{path}: not a valid MJCF ({' '.join(str(error).split())})") from None


def _choices(name: str, known: Iterable[str]) -> str:
    known = [k for k in known if k]
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"the MJCF has: {shown or 'none with a name'}"


def complete(spec: mujoco.MjSpec, description: RobotDescription, path: Path) -> None:
    """Add what the MJCF of a bare robot lacks: floor and home keyframe.

    Args:
        spec: changed in place; every element has a name.
        description: names no floor, or no keyframe, where the MJCF has none.
        path: of the description, for messages.

    Raises:
        UserError: it has a floor that the description does not name, or `home` names no hinge.
    """
    if description.floor is None:
        _add_floor(spec, description, path)
    if description.home_keyframe is None:
        _add_home(spec, description, path)


def _add_floor(spec: mujoco.MjSpec, description: RobotDescription, path: Path) -> None:
    touching = 0
    for geom in spec.geoms:
        if _never_moves(geom.parent) and (geom.contype or geom.conaffinity):
            raise UserError(
                f"{path}: floor: missing, and {description.model} has a geom {geom.name!r} in the"
                " world that feet can touch; name the floor"
            )
        touching |= geom.contype | geom.conaffinity
    if spec.geom(ADDED_FLOOR) is not None:
        raise UserError(
            f"{path}: floor: {description.model} already has a geom {ADDED_FLOOR!r}; name the floor"
        )
    spec.worldbody.add_geom(
        name=ADDED_FLOOR,
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[0.0, 0.0, 0.05],  # without end
        contype=touching,  # everything that can touch anything touches it
        conaffinity=touching,
        rgba=[0.6, 0.65, 0.7, 1.0],
    )


def _never_moves(body) -> bool:
    """Whether no joint is between the world and ``body``, of an MjSpec."""
    while body.name != "world":
        if body.joints:
            return False
        body = body.parent
    return True


def _add_home(spec: mujoco.MjSpec, description: RobotDescription, path: Path) -> None:
    try:
        model = spec.compile()
    except ValueError as error:
        raise UserError(
            f"{path}: {description.model} does not compile ({' '.join(str(error).split())})"
        ) from None
    data = mujoco.MjData(model)
    hinges = {
        model.joint(i).name: i
        for i in range(model.njnt)
        if model.jnt_type[i] == mujoco.mjtJoint.mjJNT_HINGE
    }
    for name, angle in description.home.items():
        if name not in hinges:
            raise UserError(f"{path}: home: no hinge named {name!r}; {_choices(name, hinges)}")
        low, high = model.jnt_range[hinges[name]]
        if model.jnt_limited[hinges[name]] and not low - 1e-6 <= angle <= high + 1e-6:
            raise UserError(
                f"{path}: home: {name} at {angle:g} rad is outside its range,"
                f" {low:.4g} to {high:.4g} rad"
            )
        data.qpos[model.jnt_qposadr[hinges[name]]] = angle
    mujoco.mj_kinematics(model, data)
    feet = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, g.foot) for g in description.legs]
    floor = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, description.floor or ADDED_FLOOR)
    trunk = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, description.trunk)
    # Names that are wrong here are said by `resolve`, with what may have been meant.
    if min(*feet, floor, trunk) >= 0 and model.body_dofnum[trunk] == 6:
        if model.geom_type[floor] != mujoco.mjtGeom.mjGEOM_PLANE:
            raise UserError(
                f"{path}: home: the trunk can be set down on a plane alone, and floor"
                f" {description.floor!r} is none; add a keyframe to {description.model} and name"
                " it as `home_keyframe`"
            )
        lowest = min(lowest_point(model, data, foot) for foot in feet)
        height = model.jnt_qposadr[model.body_jntadr[trunk]] + 2
        data.qpos[height] += data.geom_xpos[floor, 2] - lowest
    spec.add_key(name=ADDED_HOME, qpos=data.qpos)


def resolve(description: RobotDescription, spec: mujoco.MjSpec, path: Path) -> Robot:
    """Match names, check axes, fit the serial link inertia.

    Args:
        description: contents of the robot description.
        spec: the serial tree, as :func:`complete` leaves it; not changed.
        path: where the description came from, for messages.

    Raises:
        UserError: as :func:`load_robot`.
    """
    try:
        model = spec.compile()
    except ValueError as error:
        raise UserError(
            f"{path}: {description.model} does not compile ({' '.join(str(error).split())})"
        ) from None
    _refuse_unsupported(model, path)

    def need(kind: mujoco.mjtObj, name: str, key: str, known: Iterable[str]) -> int:
        found = mujoco.mj_name2id(model, kind, name)
        if found < 0:
            label = kind.name.removeprefix("mjOBJ_").lower()
            raise UserError(
                f"{path}: {key}: no {label} named {name!r} in {description.model};"
                f" {_choices(name, known)}"
            )
        return found

    obj = mujoco.mjtObj
    body_names = [model.body(i).name for i in range(model.nbody)]
    geom_names = [model.geom(i).name for i in range(model.ngeom)]
    trunk = need(obj.mjOBJ_BODY, description.trunk, "trunk", body_names)
    if model.body_dofnum[trunk] != 6:
        raise UserError(f"{path}: trunk: body {description.trunk!r} has no free joint; add one")
    floor = description.floor or ADDED_FLOOR
    need(obj.mjOBJ_GEOM, floor, "floor", geom_names)
    key = need(
        obj.mjOBJ_KEY,
        description.home_keyframe or ADDED_HOME,
        "home_keyframe",
        [model.key(i).name for i in range(model.nkey)],
    )

    entries: list[tuple[Leg, LegJoint]] = []
    joint_ids: list[int] = []
    for leg in description.legs:
        where = f"leg {leg.name}"
        need(obj.mjOBJ_GEOM, leg.foot, f"{where}: foot", geom_names)
        for link in leg.randomized_links:
            need(obj.mjOBJ_BODY, link, f"{where}: randomized_links", body_names)
        for entry in leg.joints:
            joint = need(
                obj.mjOBJ_JOINT,
                entry.joint,
                f"{where}: joint",
                [model.joint(i).name for i in range(model.njnt)],
            )
            actuator = need(
                obj.mjOBJ_ACTUATOR,
                entry.actuator,
                f"{where}: actuator of {entry.joint}",
                [model.actuator(i).name for i in range(model.nu)],
            )
            if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE:
                raise UserError(f"{path}: {where}: joint {entry.joint!r} is not a hinge")
            if (
                model.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_JOINT
                or model.actuator_trnid[actuator, 0] != joint
            ):
                raise UserError(
                    f"{path}: {where}: actuator {entry.actuator!r} does not drive joint"
                    f" {entry.joint!r} in {description.model}"
                )
            entries.append((leg, entry))
            joint_ids.append(joint)

    names = [entry.joint for _, entry in entries]
    motors = [description.motors[entry.motor] for _, entry in entries]
    actuator_map = np.eye(len(names))
    pairs = []
    for leg in description.legs:
        if leg.pair is None:
            continue
        proximal, distal = names.index(leg.pair.proximal), names.index(leg.pair.distal)
        linkage = description.linkages[leg.pair.linkage]
        jacobian = np.array(linkage.jacobian)
        _check_axis_signs(
            model, joint_ids[proximal], joint_ids[distal], jacobian, key, f"{path}: leg {leg.name}"
        )
        actuator_map[np.ix_([proximal, distal], [proximal, distal])] = jacobian
        angle_range = _angle_range(model, joint_ids[distal])
        total = None
        if linkage.inertia is not None:
            m = linkage.inertia
            total = parallel_inertia(m.m11, m.m12, m.m22, linkage.angle_offset)
        pairs.append(
            ResolvedPair(
                leg=leg.name,
                proximal=proximal,
                distal=distal,
                jacobian=jacobian,
                total=total,
                serial_link=_fit_serial_link(
                    model,
                    joint_ids[proximal],
                    joint_ids[distal],
                    angle_range,
                    model.key_qpos[key],
                    f"{path}: leg {leg.name}",
                ),
                angle_range=angle_range,
            )
        )
    return Robot(
        path=path,
        description=description,
        floor=floor,
        spec=spec,
        model=model,
        joints=tuple(names),
        qpos_index=model.jnt_qposadr[joint_ids].astype(np.int64),
        dof_index=model.jnt_dofadr[joint_ids].astype(np.int64),
        actuator_map=actuator_map,
        motor_inertia=np.array([m.reflected_inertia for m in motors]),
        motor_damping=np.array([m.reflected_damping for m in motors]),
        torque_limit=np.array([m.torque_limit for m in motors]),
        kp=np.array([m.kp for m in motors]),
        kd=np.array([m.kd for m in motors]),
        pairs=tuple(pairs),
        home_qpos=model.key_qpos[key].copy(),
    )


def _refuse_unsupported(model: mujoco.MjModel, path: Path) -> None:
    loops = [
        model.equality(i).name or f"equality {i}"
        for i in range(model.neq)
        if mujoco.mjtEq(model.eq_type[i]) in (mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD)
    ]
    if loops:
        raise UserError(
            f"{path}: the MJCF is not a serial tree: closed by {', '.join(loops)};"
            " give the serial model here and this one as `closed_chain`"
        )
    # MJX 3.17 ignores these two without a word, C MuJoCo does not.
    for i in range(model.nu):
        if np.any(model.actuator_armature[i]) or np.any(model.actuator_damping[i]):
            raise UserError(
                f"{path}: actuator {model.actuator(i).name!r} has armature or damping of its own,"
                " which MJX drops silently; state the motor in the robot description and remove"
                " both from the MJCF"
            )


def _angle_range(model: mujoco.MjModel, joint: int) -> tuple[float, float]:
    if model.jnt_limited[joint]:
        low, high = model.jnt_range[joint]
        return float(low), float(high)
    return -np.pi, np.pi


def _check_axis_signs(
    model: mujoco.MjModel,
    proximal: int,
    distal: int,
    jacobian: NDArray[np.float64],
    key: int,
    where: str,
) -> None:
    """Compare the Jacobian's signs with the joint axes in the world frame.

    Where one motor turns the distal link's absolute angle and the other the proximal joint alone,
    that angle is ``q1 + q2`` for parallel axes and ``q1 - q2`` for antiparallel ones.
    A differential (both rows full) has no such rule, and an identity couples nothing.
    """
    data = mujoco.MjData(model)
    data.qpos[:] = model.key_qpos[key]
    mujoco.mj_kinematics(model, data)
    cosine = float(data.xaxis[proximal] @ data.xaxis[distal])
    coupled = np.count_nonzero(jacobian) > 2
    if not coupled:
        return
    if abs(cosine) < _PARALLEL:
        raise UserError(
            f"{where}: axes of {model.joint(proximal).name} and {model.joint(distal).name} are"
            f" neither parallel nor antiparallel (cosine {cosine:.3f}); only a planar pair can"
            " share a linkage"
        )
    for row, other in ((0, 1), (1, 0)):
        first, second = jacobian[row]
        if jacobian[other, 1] != 0 or np.sign(first * second) == np.sign(cosine):
            continue
        kind = "parallel" if cosine > 0 else "antiparallel"
        raise UserError(
            f"{where}: axes of {model.joint(proximal).name} and {model.joint(distal).name} are"
            f" {kind} in the world frame, so row {row + 1} of `jacobian` must be"
            f" [{first:g}, {-second:g}], not [{first:g}, {second:g}]"
        )


def _fit_serial_link(
    model: mujoco.MjModel,
    proximal: int,
    distal: int,
    angle_range: tuple[float, float],
    home_qpos: NDArray[np.float64],
    where: str,
) -> HarmonicMatrix:
    """``M_link^s(alpha)`` from MuJoCo's own mass matrix, armature left out (Eq. 17)."""
    data = mujoco.MjData(model)
    dofs = model.jnt_dofadr[[proximal, distal]]
    hinges = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
    # A fixed seed: postures only have to be varied enough to show a dependence on anything
    # but alpha.
    rng = np.random.default_rng(0)
    angles = np.linspace(*angle_range, 13)
    blocks = []
    full = np.zeros((model.nv, model.nv))
    for alpha in angles:
        data.qpos[:] = home_qpos
        data.qpos[model.jnt_qposadr[hinges]] += rng.uniform(-0.5, 0.5, hinges.sum())
        data.qpos[model.jnt_qposadr[distal]] = alpha
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, data, full)
        blocks.append(full[np.ix_(dofs, dofs)] - np.diag(model.dof_armature[dofs]))
    fit, residual = HarmonicMatrix.fit(angles, blocks)
    if residual > _FIT_TOLERANCE * fit.magnitude:
        raise UserError(
            f"{where}: inertia of the pair {model.joint(proximal).name},"
            f" {model.joint(distal).name} does not depend on the distal angle alone (residual"
            f" {residual:.2e} of {fit.magnitude:.2e} kg m^2); S3N needs two parallel hinges with"
            " nothing moving beyond them"
        )
    return fit
