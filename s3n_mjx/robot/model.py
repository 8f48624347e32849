"""A robot: its description resolved against its serial-tree MJCF, once, by name.

Everything that follows works on the indices and arrays gathered here. What does not fit is
said here, before anything is simulated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.files import is_file
from s3n_mjx.normalization import HarmonicMatrix, parallel_inertia
from s3n_mjx.robot.actuators import drives_joint
from s3n_mjx.robot.description import LegJoint, RobotDescription, load_description
from s3n_mjx.robot.geometry import mass_matrix
from s3n_mjx.robot.names import check_names
from s3n_mjx.robot.preparation import (
    ADDED_FLOOR,
    ADDED_HOME,
    Prepared,
    choices,
    compiled,
    prepare,
)
from s3n_mjx.robot.warned import listening

# The fit of the serial link inertia is exact for a planar pair; this leaves room for rounding
# in MuJoCo's mass matrix and for axes that a CAD export turned by a hundredth of a degree.
_FIT_TOLERANCE = 1e-6
_PARALLEL = 0.999


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
    held: dict[str, float]  # welded joints of the MJCF, and at what, rad or m
    lifted: float  # m, how far the home keyframe's trunk was moved to set the feet on the floor

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
    if closed_chain is not None and not is_file(path.parent / closed_chain):
        raise UserError(
            f"{path}: closed_chain: no such file {closed_chain!r}; correct or remove it"
        )
    model = path.parent / description.model
    if not is_file(model):
        raise UserError(f"{model}: no such MJCF file (key `model` of {path})")
    spec = load_spec(model)
    prepared = prepare(spec, description, path)
    return resolve(description, spec, path, prepared)


def load_spec(path: Path) -> mujoco.MjSpec:
    """MJCF file, or zip archive of one with its assets, as an editable spec.

    Raises:
        UserError: no such file or not a valid MJCF.
    """
    if not is_file(path):
        raise UserError(f"{path}: no such MJCF file")
    if path.suffix in (".yaml", ".yml"):
        raise UserError(f"{path}: this is a description; give the MJCF that it names as `model`")
    read = mujoco.MjSpec.from_zip if path.suffix == ".zip" else mujoco.MjSpec.from_file
    try:
        with listening() as warned:
            spec = read(str(path))
        check_names(spec)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: a name in it is no text in UTF-8 ({error}); correct it") from None
    except ValueError as error:
        raise UserError(f"{path}: not a valid MJCF ({' '.join(str(error).split())})") from None
    if warned:
        raise UserError(f"{path}: not a valid MJCF ({warned[0]})")
    return spec


def resolve(
    description: RobotDescription, spec: mujoco.MjSpec, path: Path, prepared: Prepared
) -> Robot:
    """Match names, check axes, fit the serial link inertia.

    Args:
        description: contents of the robot description.
        spec: the serial tree, as :func:`~s3n_mjx.robot.preparation.prepare` leaves it; not
            changed.
        path: where the description came from, for messages.
        prepared: what that told.

    Raises:
        UserError: as :func:`load_robot`.
    """
    model = compiled(spec, description, path)

    def need(kind: mujoco.mjtObj, name: str, key: str, known: Iterable[str]) -> int:
        found = mujoco.mj_name2id(model, kind, name)
        if found < 0:
            label = kind.name.removeprefix("mjOBJ_").lower()
            raise UserError(
                f"{path}: {key}: no {label} named {name!r} in {description.model};"
                f" {choices(name, known)}"
            )
        return found

    obj = mujoco.mjtObj
    body_names = [model.body(i).name for i in range(model.nbody)]
    geom_names = [model.geom(i).name for i in range(model.ngeom)]
    trunk = need(obj.mjOBJ_BODY, description.trunk, "trunk", body_names)
    _check_trunk(model, trunk, path)
    floor = description.floor or ADDED_FLOOR
    floor_id = need(obj.mjOBJ_GEOM, floor, "floor", geom_names)
    key = need(
        obj.mjOBJ_KEY,
        description.home_keyframe or ADDED_HOME,
        "home_keyframe",
        [model.key(i).name for i in range(model.nkey)],
    )

    joint_names = [model.joint(i).name for i in range(model.njnt)]
    actuator_names = [model.actuator(i).name for i in range(model.nu)]

    def driven_joint(where: str, entry: LegJoint) -> int:
        joint = need(obj.mjOBJ_JOINT, entry.joint, f"{where}: joint", joint_names)
        if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE:
            raise UserError(f"{path}: {where}: joint {entry.joint!r} is not a hinge")
        if entry.actuator is not None:
            actuator = need(
                obj.mjOBJ_ACTUATOR,
                entry.actuator,
                f"{where}: actuator of {entry.joint}",
                actuator_names,
            )
            if not drives_joint(model, actuator, joint):
                raise UserError(
                    f"{path}: {where}: actuator {entry.actuator!r} does not drive joint"
                    f" {entry.joint!r} in {description.model}"
                )
        return joint

    joint_ids: list[int] = []
    for leg in description.legs:
        where = f"leg {leg.name}"
        foot = need(obj.mjOBJ_GEOM, leg.foot, f"{where}: foot", geom_names)
        _check_touch(model, foot, floor_id, f"{path}: {where}: foot")
        for link in leg.randomized_links:
            need(obj.mjOBJ_BODY, link, f"{where}: randomized_links", body_names)
        joint_ids += [driven_joint(where, entry) for entry in leg.joints]
    joint_ids += [driven_joint("controlled", entry) for entry in description.controlled]
    _check_actuators(model, description, path)

    names = [entry.joint for entry in description.driven]
    motors = [description.motors[entry.motor] for entry in description.driven]
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
        held=prepared.held,
        lifted=prepared.lifted,
    )


def _check_trunk(model: mujoco.MjModel, trunk: int, path: Path) -> None:
    """A free joint and nothing else, first in qpos, and nothing that slows its flight."""
    name = model.body(trunk).name
    joint = model.body_jntadr[trunk]
    free = mujoco.mjtJoint.mjJNT_FREE
    if model.body_jntnum[trunk] != 1 or model.jnt_type[joint] != free:
        raise UserError(f"{path}: trunk: body {name!r} has no free joint; add one")
    if model.jnt_qposadr[joint] != 0:
        raise UserError(
            f"{path}: trunk: joints of other bodies come before {name!r} in the MJCF; put the"
            " robot's body first in <worldbody>"
        )
    dofs = slice(model.jnt_dofadr[joint], model.jnt_dofadr[joint] + 6)
    for what in ("armature", "damping", "frictionloss"):
        value = getattr(model, f"dof_{what}")[dofs].max()
        if value > 0:
            raise UserError(
                f"{path}: trunk: the free joint of {name!r} has {what} {value:g}, as if the robot"
                " moved in honey; write it as <freejoint/>, which takes no defaults"
            )


def _check_touch(model: mujoco.MjModel, foot: int, floor: int, where: str) -> None:
    """Foot and floor must be able to collide, by their bits or as a stated pair."""
    bits = (
        model.geom_contype[foot] & model.geom_conaffinity[floor]
        or model.geom_contype[floor] & model.geom_conaffinity[foot]
    )
    off = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    if model.opt.disableflags & int(off):
        raise UserError(f"{where}: the MJCF disables contact by <flag>; take that out")
    bodies = sorted((int(model.geom_bodyid[foot]), int(model.geom_bodyid[floor])))
    if (bodies[0] << 16) + bodies[1] in model.exclude_signature:
        bits = 0
    pairs = zip(model.pair_geom1, model.pair_geom2, strict=True)
    if not bits and not any({foot, floor} == {int(a), int(b)} for a, b in pairs):
        raise UserError(
            f"{where}: geom {model.geom(foot).name!r} cannot touch floor"
            f" {model.geom(floor).name!r}; correct their contype and conaffinity, the <exclude>, or"
            " name the geom that does"
        )


def _check_actuators(model: mujoco.MjModel, description: RobotDescription, path: Path) -> None:
    """All of the MJCF's are replaced, so each must be one that the description stands in for."""
    named = {entry.joint: entry.actuator for entry in description.driven}
    for actuator in range(model.nu):
        name = model.actuator(actuator).name
        joint = model.actuator_trnid[actuator, 0]
        on_joint = drives_joint(model, actuator, joint)
        target = model.joint(joint).name if on_joint else None
        if target is None or target not in named:
            what = f"joint {target}, which is passive" if target else "no joint"
            way = "list that under `controlled` or `held`" if target else "take it out of the MJCF"
            raise UserError(
                f"{path}: actuator {name!r} of {description.model} drives {what}, and S3N's control"
                f" loop would leave it out; {way}"
            )
        if named[target] not in (None, name):
            raise UserError(
                f"{path}: joint {target} is driven by {named[target]!r} and by {name!r}, too, in"
                f" {description.model}, and the latter would be left out; take it out of the MJCF"
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
    for alpha in angles:
        data.qpos[:] = home_qpos
        data.qpos[model.jnt_qposadr[hinges]] += rng.uniform(-0.5, 0.5, hinges.sum())
        data.qpos[model.jnt_qposadr[distal]] = alpha
        full = mass_matrix(model, data)
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
