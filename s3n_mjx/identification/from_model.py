"""What S3N needs of a linkage, from a closed-chain MJCF instead of recordings.

Jacobian, motors and total inertia of a pair (Eq. 1, 7, 14 of the S3N paper) as the mechanism has
them; with the serial MJCF also what that lacks. Where the Jacobian depends on the posture there
is nothing to fit, and the result says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.identification.mechanism import (
    Dynamics,
    Mechanism,
    coupled_joints,
    driven_joints,
    equality_joints,
    joint_label,
    joints_above,
)
from s3n_mjx.normalization import (
    HarmonicMatrix,
    Variant,
    link_increment,
    pair_increment,
    parallel_inertia,
)
from s3n_mjx.robot.actuators import convert_armature
from s3n_mjx.robot.description import LinkageInertia
from s3n_mjx.robot.model import load_spec

Array = NDArray[np.float64]
Names = tuple[str, str]

_PROXIMAL_ANGLES, _DISTAL_ANGLES = 5, 13
_HALF_RANGE_RAD = 0.5  # of a joint without limits that can be believed
# As the closed-chain reference demands of `jacobian`: motor angles over the range.
_CONSTANT_JACOBIAN_RAD = 1e-3
# Of the largest entry: Eq. 14 is to four digits, a mechanism from CAD is no exact parallelogram.
_FORM_TOLERANCE = 1e-2
_SERIAL_TOLERANCE = 1e-6  # as for the serial model of a robot description
_MOMENT_TOLERANCE = 1e-2
_AXES_TOLERANCE = 1e-2  # of unit vectors


@dataclass(frozen=True, eq=False)
class PairIdentification:
    """A pair and its linkage; matrices in actuator coordinates unless said otherwise.

    Attributes:
        serial_joints: proximal and distal; columns of `jacobian`.
        motor_joints: rows of `jacobian`, and indices of all in actuator coordinates.
        moving_joints: all that the loops move with the pair.
        held_motors: other driven joints in the same loops, which were held.
        idle_dofs: how much can move with motors and pair at rest, such as a rod's spin.
        neutral: (2,) rad, serial joints in the MJCF's home keyframe, or as drawn.
        reach: (2, 2) rad, lowest and highest angle reached, one row a serial joint.
        unreachable: postures of the asked grid that the linkage cannot take.
        unreachable_reason: of the first of those; empty if there is none.
        jacobian: (2, 2) dq_p / dq_s: the mean over the range if it is constant, else at neutral.
        jacobian_low, jacobian_high: (2, 2) least and greatest of each entry over the range.
        jacobian_change: largest change from neutral, of the largest entry there.
        jacobian_change_alone: (2,) the same with only the proximal or only the distal joint moved.
        jacobian_error: rad, motor angles over the range against the best constant Jacobian.
        constant_jacobian: whether a `jacobian` in robot.yaml can hold. If not, no fit is made.
        motor_inertia: (2,) kg m^2, armature of the motor joints (N^2 J_m, Eq. 7).
        motor_damping: (2,) N m s/rad, damping of the motor joints (N^2 B_m, Eq. 7).
        inertia: (2, 2) kg m^2, M_p at neutral, armature included.
        damping: (2, 2) N m s/rad, D_p at neutral; more than the motors' if passive joints have
            some.
        inertia_fit: M_p by the distal joint's angle, in kg m^2.
        inertia_residual: kg m^2, largest difference of the fit from the mechanism.
        parameters: m11, m12, m22 of Eq. 14; none if M_p is not of that form.
        angle_offset: rad, added to the distal joint's angle to give alpha.
        form_error: largest difference of Eq. 14 from the mechanism, of the largest entry.
        serial_link: serial coordinates, the serial model's own inertia without armature.
        serial_residual: kg m^2, of the fit of `serial_link`.
        link_increment: serial coordinates, dM_link by the distal joint's angle (Eq. 19).
        omitted_moment: (2,) kg m, first moments along both links of what the serial tree lacks.
        moment_residual: N m per m/s^2, gravity that `omitted_moment` does not explain.
        samples: all postures.
    """

    serial_joints: Names
    motor_joints: Names
    moving_joints: tuple[str, ...]
    held_motors: tuple[str, ...]
    idle_dofs: int
    neutral: Array
    reach: Array
    unreachable: int
    unreachable_reason: str
    jacobian: Array
    jacobian_low: Array
    jacobian_high: Array
    jacobian_change: float
    jacobian_change_alone: Array
    jacobian_error: float
    constant_jacobian: bool
    motor_inertia: Array
    motor_damping: Array
    inertia: Array
    damping: Array
    inertia_fit: HarmonicMatrix | None
    inertia_residual: float | None
    parameters: LinkageInertia | None
    angle_offset: float
    form_error: float | None
    serial_link: HarmonicMatrix | None
    serial_residual: float | None
    link_increment: HarmonicMatrix | None
    omitted_moment: Array | None
    moment_residual: float | None
    samples: Dynamics

    def joint_angle(self, alpha: float) -> float:
        """Of the distal joint, in rad, where the angle of Eq. 14 is ``alpha``."""
        return alpha - self.angle_offset

    def total_inertia(self, variant: Variant, alpha: float) -> Array | None:
        """Inertia of a simulator model in serial coordinates, (2, 2) kg m^2, as in Table II.

        None without a serial MJCF, without a constant Jacobian, or for `s3n_full` without
        `parameters`.
        """
        if self.serial_link is None:
            return None
        total = None
        if self.parameters is not None:
            p = self.parameters
            total = parallel_inertia(p.m11, p.m12, p.m22, self.angle_offset)
        elif variant is Variant.S3N_FULL:
            return None
        increment = pair_increment(
            variant,
            self.jacobian,
            self.motor_inertia,
            self.motor_damping,
            total,
            self.serial_link,
        )
        angle = self.joint_angle(alpha)
        return self.serial_link(angle) + np.diag(self.motor_inertia) + increment.inertia(angle)


@dataclass(frozen=True, eq=False)
class ModelIdentification:
    """What the MJCFs give, pair by pair."""

    closed_chain: Path
    serial: Path | None
    mass: float  # kg, of the closed-chain model
    serial_mass: float | None  # kg
    pairs: tuple[PairIdentification, ...]

    @property
    def mass_difference(self) -> float | None:
        """Closed chain minus serial, kg."""
        return None if self.serial_mass is None else self.mass - self.serial_mass


# --- one pair -----------------------------------------------------------------------------


def identify_pair(
    model: mujoco.MjModel,
    serial_joints: Sequence[str],
    motor_joints: Sequence[str],
    serial: mujoco.MjModel | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    where: str = "closed-chain model",
    serial_where: str = "serial model",
) -> PairIdentification:
    """Identify a pair of joints and the two motors that drive it.

    Args:
        model: closed-chain; not changed.
        serial_joints: proximal and distal.
        motor_joints: in the order of the rows of the Jacobian.
        serial: the tree that is to be normalized; not changed.
        ranges: rad, of serial joints by name, over which the postures are spread; by default
            their limits, or 0.5 rad around neutral where they have none.
        where: the closed-chain model's file, for messages.
        serial_where: the serial model's.

    Raises:
        UserError: joints that do not fit, or loops that do not close.
    """
    mechanism = Mechanism(model, serial_joints, motor_joints, where)
    proximal, distal = (
        _angles(mechanism, i, ranges or {}, count)
        for i, count in enumerate((_PROXIMAL_ANGLES, _DISTAL_ANGLES))
    )
    neutral = mechanism.dynamics()
    alone = (
        mechanism.sweep(proximal, mechanism.neutral[1:])[0],
        mechanism.sweep(mechanism.neutral[:1], distal)[0],
    )
    samples, refused = mechanism.sweep(proximal, distal)
    _refuse_asked(mechanism, refused, ranges or {})

    def change(of: Dynamics) -> float:
        largest = np.abs(of.jacobian - neutral.jacobian).max()
        return float(largest / np.abs(neutral.jacobian).max())

    mean, error = _constant_jacobian(samples)
    constant = error <= _CONSTANT_JACOBIAN_RAD
    fit = residual = form_error = parameters = None
    offset = 0.0
    if constant:
        fit, residual = _fit(mechanism, samples)
        parameters, offset, form_error = _parameters(fit, samples)
    link, link_residual = None, None
    moment, moment_residual = None, None
    if serial is not None:
        _refuse_loops(serial, serial_joints, serial_where)
        tree = Mechanism(serial, serial_joints, serial_joints, serial_where)
        own = _serial_samples(tree, mechanism, neutral, samples)
        if constant:
            link, link_residual = HarmonicMatrix.fit(
                samples.posture[:, 1], own.inertia - np.diag(tree.motor_inertia)
            )
            if link_residual > _SERIAL_TOLERANCE * link.magnitude:
                link = None
            moment, moment_residual = _omitted_moment(samples, own, offset)
    increment = None
    if parameters is not None and link is not None:
        p = parameters
        total = parallel_inertia(p.m11, p.m12, p.m22, offset)
        increment = link_increment(mean, total, mechanism.motor_inertia, link)
    return PairIdentification(
        serial_joints=mechanism.serial_joints,
        motor_joints=mechanism.motor_joints,
        moving_joints=mechanism.moving,
        held_motors=mechanism.held_motors,
        idle_dofs=mechanism.idle_dofs,
        neutral=mechanism.neutral,
        reach=np.array([samples.posture.min(axis=0), samples.posture.max(axis=0)]).T,
        unreachable=len(refused),
        unreachable_reason=next(iter(refused.values()), ""),
        jacobian=mean if constant else neutral.jacobian[0],
        jacobian_low=np.minimum(neutral.jacobian[0], samples.jacobian.min(axis=0)),
        jacobian_high=np.maximum(neutral.jacobian[0], samples.jacobian.max(axis=0)),
        jacobian_change=change(samples),
        jacobian_change_alone=np.array([change(a) for a in alone]),
        jacobian_error=error,
        constant_jacobian=constant,
        motor_inertia=mechanism.motor_inertia,
        motor_damping=mechanism.motor_damping,
        inertia=neutral.inertia[0],
        damping=neutral.damping[0],
        inertia_fit=fit,
        inertia_residual=residual,
        parameters=parameters,
        angle_offset=offset,
        form_error=form_error,
        serial_link=link,
        serial_residual=link_residual,
        link_increment=increment,
        omitted_moment=moment,
        moment_residual=moment_residual,
        samples=samples,
    )


def _refuse_loops(model: mujoco.MjModel, joints: Sequence[str], where: str) -> None:
    ids = {mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name) for name in joints}
    if -1 not in ids and _system_of(model, sorted(ids))[1]:
        raise UserError(
            f"{where}: {' and '.join(joints)} are in a loop; give the serial tree as the second"
            " file"
        )


def _angles(
    mechanism: Mechanism, which: int, ranges: Mapping[str, tuple[float, float]], count: int
) -> Array:
    name, neutral = mechanism.serial_joints[which], float(mechanism.neutral[which])
    around = (neutral - _HALF_RANGE_RAD, neutral + _HALF_RANGE_RAD)
    low, high = ranges.get(name) or mechanism.range(which) or around
    if not low < high:
        raise UserError(f"--range of {name}: {low:g} to {high:g} rad is empty; give low, then high")
    return np.linspace(low, high, count)


def _refuse_asked(
    mechanism: Mechanism, refused: Mapping[tuple, str], ranges: Mapping[str, tuple[float, float]]
) -> None:
    """A range that the user gave must be reached; joint limits may be wider than the linkage."""
    if refused and all(name in ranges for name in mechanism.serial_joints):
        posture, reason = next(iter(refused.items()))
        angles = ", ".join(
            f"{n} {a:.3f}" for n, a in zip(mechanism.serial_joints, posture, strict=True)
        )
        raise UserError(
            f"{mechanism.where}: posture {angles} rad cannot be reached ({reason}); narrow --range"
        )


def _constant_jacobian(samples: Dynamics) -> tuple[Array, float]:
    """Mean Jacobian, and by how much motor angles over the range differ from it, in rad."""
    mean = samples.jacobian.mean(axis=0)
    offset = samples.motor_angle - samples.posture @ mean.T
    return mean, float(np.ptp(offset, axis=0).max())


def _fit(mechanism: Mechanism, samples: Dynamics) -> tuple[HarmonicMatrix, float]:
    if len(np.unique(samples.posture[:, 1])) < 4:
        raise UserError(
            f"{mechanism.where}: {mechanism.serial_joints[1]}: too few angles can be reached for a"
            " fit; give --range of what the linkage can do"
        )
    return HarmonicMatrix.fit(samples.posture[:, 1], samples.inertia)


def _parameters(
    fit: HarmonicMatrix, samples: Dynamics
) -> tuple[LinkageInertia | None, float, float]:
    """`M11, M12, M22` and angle offset of Eq. 14, and its error of the largest entry."""
    cosine, sine = float(fit.cosine[0, 1]), float(fit.sine[0, 1])
    size = math.hypot(cosine, sine)
    scale = np.abs(samples.inertia).max()
    m11, m22 = (float(fit.constant[i, i]) for i in range(2))
    # M12 cos(q2 + offset) = M12 cos(offset) cos(q2) - M12 sin(offset) sin(q2)
    offset = math.atan2(-sine, cosine) if size > 1e-6 * scale else 0.0
    if abs(offset) < 1e-9:
        offset = 0.0
    m12 = size
    if abs(offset) > math.pi / 2:
        m12, offset = -size, offset - math.copysign(math.pi, offset)
        offset = 0.0 if abs(offset) < 1e-9 else offset
    form = parallel_inertia(m11, m12, m22, offset)(samples.posture[:, 1])
    error = float(np.abs(form - samples.inertia).max() / scale)
    if error > _FORM_TOLERANCE or m11 <= 0 or m22 <= 0 or m12**2 >= m11 * m22:
        return None, 0.0, error
    return LinkageInertia(m11, m12, m22), offset, error


def _serial_samples(
    tree: Mechanism, mechanism: Mechanism, neutral: Dynamics, samples: Dynamics
) -> Dynamics:
    """The serial tree at the same postures, gravity along the same directions of the pair.

    Raises:
        UserError: its joints do not turn as those of the closed chain.
    """
    tree.take_frame(neutral.posture[0])
    own = tree.at(samples.posture)
    # The trunk may be drawn another way, but hardly upside down.
    same_first = tree.proximal_axis @ mechanism.proximal_axis > 0
    if not same_first or np.abs(own.directions - samples.directions).max() > _AXES_TOLERANCE:
        raise UserError(
            f"{tree.where}: axes of {' and '.join(tree.serial_joints)} are not as in"
            f" {mechanism.where}; both must have the same joints, with the same signs"
        )
    return own


def _omitted_moment(samples: Dynamics, own: Dynamics, offset: float) -> tuple[Array | None, float]:
    """First moments from what gravity does to the closed chain and not to the serial tree.

    Of the form that `simulation.neglected.LinkGravity` has: along the line from the proximal to
    the distal axis, and along that line turned by alpha.

    Returns:
        (2,) kg m, or none where they do not explain the difference; and what they leave of it.
    """
    # Serial coordinates: (n, direction of gravity, joint).
    closed = samples.unit_gravity @ samples.jacobian
    lacking = closed - own.unit_gravity @ own.jacobian
    first, second, along = (own.directions[:, i] for i in range(3))
    alpha = (samples.posture[:, 1] + offset)[:, None]
    outer = along * np.cos(alpha) + np.cross(second, along) * np.sin(alpha)
    none = np.zeros_like(along)
    # Torque of unit gravity along x and y of the pair's frame: (n, 2, joint, moment).
    columns = np.array(
        [
            [np.cross(first, along), np.cross(first, outer)],
            [none, np.cross(second, outer)],
        ]
    )[..., :2].transpose(2, 3, 0, 1)
    moment, *_ = np.linalg.lstsq(columns.reshape(-1, 2), lacking.reshape(-1), rcond=None)
    left = float(np.abs(columns @ moment - lacking).max())
    if left > _MOMENT_TOLERANCE * np.abs(closed).max():
        return None, left
    return np.where(np.abs(moment) < 1e-9, 0.0, moment), left


# --- files --------------------------------------------------------------------------------


def identify_model(
    closed_chain: Path,
    serial: Path | None = None,
    serial_joints: Sequence[Names] = (),
    motor_joints: Sequence[Names] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> ModelIdentification:
    """Identify every pair of a closed-chain MJCF.

    Args:
        closed_chain: MJCF of the mechanism.
        serial: MJCF of the serial tree, whose joints have the same names.
        serial_joints: proximal and distal joint of each pair. By default the two hinges of each
            system of loops that the serial MJCF has, too.
        motor_joints: those of each pair, in the order of the rows of the Jacobian. By default the
            two driven hinges of each system of loops: one that is the proximal joint itself is
            the first, one that is the distal joint the second, else as the actuators come.
        ranges: rad, by joint, see :func:`identify_pair`.

    Raises:
        UserError: files, names or loops that do not fit; or a choice that would be a guess.
    """
    model = _load(closed_chain)
    tree = None if serial is None else _load(serial)
    pairs = _pairs(model, tree, closed_chain, serial_joints, motor_joints)
    for name in ranges or {}:
        if not any(name in joints for joints, _ in pairs):
            raise UserError(
                f"--range: {name!r} is not a serial joint of a pair; they are"
                f" {', '.join(j for joints, _ in pairs for j in joints)}"
            )
    return ModelIdentification(
        closed_chain=closed_chain,
        serial=serial,
        mass=float(model.body_mass.sum()),
        serial_mass=None if tree is None else float(tree.body_mass.sum()),
        pairs=tuple(
            identify_pair(model, joints, motors, tree, ranges, str(closed_chain), str(serial))
            for joints, motors in pairs
        ),
    )


def _load(path: Path) -> mujoco.MjModel:
    spec = load_spec(path)
    convert_armature(spec, path)  # a motor's inertia is looked for at its joint
    try:
        return spec.compile()
    except ValueError as error:
        raise UserError(f"{path}: does not compile ({' '.join(str(error).split())})") from None


def _pairs(
    model: mujoco.MjModel,
    tree: mujoco.MjModel | None,
    path: Path,
    serial_joints: Sequence[Names],
    motor_joints: Sequence[Names],
) -> list[tuple[Names, Names]]:
    """Serial and motor joints of every pair, by name."""
    if serial_joints and motor_joints and len(serial_joints) != len(motor_joints):
        raise UserError(
            f"--serial-joints names {len(serial_joints)} pairs and --motor-joints"
            f" {len(motor_joints)}; give as many, in the same order"
        )
    if serial_joints and motor_joints:
        return list(zip(serial_joints, motor_joints, strict=True))
    given, flag = (serial_joints, "--serial-joints")
    if motor_joints:
        given, flag = (motor_joints, "--motor-joints")
    if given:
        systems = [_system_of(model, [_named(model, n, path, flag) for n in p])[0] for p in given]
    else:
        systems = _systems(model)
        if not systems:
            raise UserError(
                f"{path}: no loop is closed by an equality; give the closed-chain MJCF, or"
                " --serial-joints and --motor-joints of a robot without loops"
            )
    result = []
    for i, system in enumerate(systems):
        joints = serial_joints[i] if serial_joints else _serial_of(model, tree, path, system)
        motors = motor_joints[i] if motor_joints else _motors_of(model, path, system)
        result.append((joints, motors if motor_joints else _ordered(motors, joints)))
    return result


def _named(model: mujoco.MjModel, name: str, path: Path, flag: str) -> int:
    joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
    if joint < 0:
        names = [model.joint(i).name for i in range(model.njnt) if model.joint(i).name]
        raise UserError(f"{path}: no joint {name!r}; correct {flag}; there are {_listed(names)}")
    return joint


def _system_of(model: mujoco.MjModel, joints: Sequence[int]) -> tuple[set[int], set[int]]:
    """Joints that equalities couple with the given ones, all that these hang on held; and those."""
    above = [joints_above(model, int(model.jnt_bodyid[j])) for j in joints]
    return coupled_joints(model, joints, set.intersection(*above) - set(joints))


def _systems(model: mujoco.MjModel) -> list[set[int]]:
    """Joints of each system of loops, in the order of the MJCF; a floating trunk is held."""
    held = {
        j
        for j in range(model.njnt)
        if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE
        and any(
            j in joints_above(model, int(model.jnt_bodyid[i])) for i in range(model.njnt) if i != j
        )
    }
    left = set().union(*equality_joints(model).values()) - held
    result: list[set[int]] = []
    while left:
        system, _ = coupled_joints(model, {min(left)}, held)
        result.append(system)
        left -= system
    return result


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:24]) + (", ..." if len(names) > 24 else "")


def _label(model: mujoco.MjModel, system: set[int]) -> str:
    return _listed([joint_label(model, j) for j in sorted(system)])


def _serial_of(
    model: mujoco.MjModel, tree: mujoco.MjModel | None, path: Path, system: set[int]
) -> Names:
    ask = f"{path}: loops of {_label(model, system)}"
    if tree is None:
        raise UserError(
            f"{ask}: which two joints does the serial model have? give --serial-joints"
            " PROXIMAL DISTAL, or the serial MJCF as the second file"
        )
    hinge = mujoco.mjtJoint.mjJNT_HINGE
    of_tree = {tree.joint(i).name for i in range(tree.njnt) if tree.jnt_type[i] == hinge}
    joints = [
        j
        for j in sorted(system)
        if model.jnt_type[j] == hinge and model.joint(j).name and model.joint(j).name in of_tree
    ]
    if len(joints) != 2 or joints[0] not in joints_above(model, int(model.jnt_bodyid[joints[1]])):
        found = ", ".join(joint_label(model, j) for j in joints) or "none"
        raise UserError(
            f"{ask}: not two hinges in series are in the serial MJCF, too ({found}); give"
            " --serial-joints PROXIMAL DISTAL"
        )
    return model.joint(joints[0]).name, model.joint(joints[1]).name


def _motors_of(model: mujoco.MjModel, path: Path, system: set[int]) -> Names:
    hinge = mujoco.mjtJoint.mjJNT_HINGE
    motors = [j for j in driven_joints(model) if j in system]
    if len(motors) != 2 or any(
        model.jnt_type[j] != hinge or not model.joint(j).name for j in motors
    ):
        found = ", ".join(joint_label(model, j) for j in motors) or "none"
        raise UserError(
            f"{path}: loops of {_label(model, system)}: not two hinges are driven by actuators"
            f" ({found}); give --motor-joints FIRST SECOND"
        )
    return model.joint(motors[0]).name, model.joint(motors[1]).name


def _ordered(motors: Names, joints: Names) -> Names:
    if motors[1] == joints[0] or motors[0] == joints[1]:
        return motors[1], motors[0]
    return motors


# --- tables -------------------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-12 else value:.5g}"


def _matrix(matrix: Array) -> str:
    # Rounding noise beside ones is not information.
    floor = 1e-8 * np.abs(matrix).max(initial=0.0)
    rows = np.where(np.abs(matrix) < floor, 0.0, matrix)
    if rows.ndim == 1:
        return "[" + ", ".join(_number(v) for v in rows) + "]"
    return "[" + ", ".join(_matrix(row) for row in rows) + "]"


def table_rows(pair: PairIdentification) -> list[tuple[str, str, str]]:
    """Quantity, value and unit, line by line, for printing."""
    rows = [
        ("serial joints", ", ".join(pair.serial_joints), ""),
        ("motors (rows of J)", ", ".join(pair.motor_joints), ""),
        ("neutral", _matrix(pair.neutral), "rad"),
        ("range reached", _matrix(pair.reach), "rad"),
    ]
    if pair.unreachable:
        rows.append(("postures out of reach", f"{pair.unreachable}: {pair.unreachable_reason}", ""))
    if pair.held_motors:
        rows.append(("other motors in the loops, held", ", ".join(pair.held_motors), ""))
    if pair.constant_jacobian:
        rows.append(("J", _matrix(pair.jacobian), ""))
        rows.append((" motor angles off it", f"{pair.jacobian_error:.1e}", "rad"))
    else:
        rows += [
            ("J at neutral", _matrix(pair.jacobian), ""),
            (" least over the range", _matrix(pair.jacobian_low), ""),
            (" greatest over the range", _matrix(pair.jacobian_high), ""),
            (" largest change", f"{100 * pair.jacobian_change:.0f}", "% of the largest entry"),
            *(
                (f"  over {name} alone", f"{100 * change:.0f}", "%")
                for name, change in zip(pair.serial_joints, pair.jacobian_change_alone, strict=True)
            ),
            (
                " constant `jacobian`",
                f"does not hold: motor angles {pair.jacobian_error:.3f} rad off",
                "",
            ),
        ]
    rows += [
        ("motor inertia", _matrix(pair.motor_inertia), "kg m^2"),
        ("motor damping", _matrix(pair.motor_damping), "N m s/rad"),
        ("D at neutral", _matrix(pair.damping), "N m s/rad"),
    ]
    if not pair.constant_jacobian:
        rows.append(("M at neutral", _matrix(pair.inertia), "kg m^2"))
    elif pair.parameters is None:
        rows += [
            ("M at neutral", _matrix(pair.inertia), "kg m^2"),
            (" Eq. 14", f"does not hold: {100 * (pair.form_error or 0.0):.1f} % off", ""),
        ]
    else:
        p = pair.parameters
        rows += [
            ("m11, m12, m22", _matrix(np.array([p.m11, p.m12, p.m22])), "kg m^2"),
            (" angle offset", _number(pair.angle_offset), "rad"),
            (" off the mechanism", f"{100 * (pair.form_error or 0.0):.1e}", "% of the largest"),
        ]
    if pair.serial_residual is not None and pair.serial_link is None:
        rows.append(("serial model's own inertia", "not of the distal angle alone", ""))
    for variant in (Variant.KIN_ONLY, Variant.S3N_ACT, Variant.S3N_FULL):
        total = pair.total_inertia(variant, math.pi / 2)
        if total is not None:
            entries = np.array([total[0, 0], total[0, 1], total[1, 1]])
            rows.append((f"{variant} at alpha 90 deg (M11, M12, M22)", _matrix(entries), "kg m^2"))
    if pair.link_increment is not None:
        value = pair.link_increment(pair.joint_angle(math.pi / 2))
        rows.append(("dM_link at alpha 90 deg", _matrix(value), "kg m^2"))
    if pair.omitted_moment is not None:
        rows.append(("omitted first moments", _matrix(pair.omitted_moment), "kg m"))
    elif pair.moment_residual is not None:
        rows.append(("omitted first moments", "not along the links; left out", ""))
    return rows


def as_data(pair: PairIdentification) -> dict:
    """The figures as plain data, for machines; names and units of :class:`PairIdentification`."""
    parameters = pair.parameters
    inertia = parameters and {"m11": parameters.m11, "m12": parameters.m12, "m22": parameters.m22}
    arrays = ("neutral", "reach", "jacobian", "jacobian_low", "jacobian_high", "motor_inertia")
    arrays += ("motor_damping", "inertia", "damping")
    return {
        "serial_joints": list(pair.serial_joints),
        "motor_joints": list(pair.motor_joints),
        **{name: getattr(pair, name).tolist() for name in arrays},
        "jacobian_change": float(pair.jacobian_change),
        "jacobian_error": float(pair.jacobian_error),
        "constant_jacobian": bool(pair.constant_jacobian),
        "parameters": inertia,
        "angle_offset": float(pair.angle_offset),
        "omitted_moment": None if pair.omitted_moment is None else pair.omitted_moment.tolist(),
    }


def mass_rows(result: ModelIdentification) -> list[tuple[str, str, str]]:
    """The same for total masses."""
    rows = [("mass, closed chain", _number(result.mass), "kg")]
    if result.serial_mass is not None:
        rows.append(("mass, serial", _number(result.serial_mass), "kg"))
        rows.append((" difference", _number(result.mass - result.serial_mass), "kg"))
    return rows
