"""A pair of serial joints, the two motors that drive it, and the loops between them.

Dynamics of the pair in actuator coordinates, projected from MuJoCo's own mass matrix at
postures where the loops are closed. With ``A`` the loops' Jacobian and ``N`` a basis of its null
space, ``A N = 0``, whose coordinates are the motors' velocities, ``qdot = N qdot_p``:

    M_p = N^T M N,  D_p = N^T D N,  J = dq_p / dq_s = (rows of N at the serial joints)^-1
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.robot.loops import close_loops, loop_constraints

Array = NDArray[np.float64]

_GAP_M = 1e-7  # of loops that count as closed; m or rad
_DRAWN_GAP_M = 0.01  # of the pose they are closed from: beyond, the branch would be a guess
_MOVE_RAD = 0.1
_RANK = 1e-7  # of the largest singular value of the loops' Jacobian
_CONDITION = 1e4  # of J; beyond, the posture is a dead centre
_JOINT = mujoco.mjtJoint
_TRN_JOINT = (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)


class _OutOfReach(Exception):
    """A posture that the linkage cannot take; the message says why."""


@dataclass(frozen=True, eq=False)
class Dynamics:
    """A pair at n postures; everything but `posture` and `jacobian` is in actuator coordinates."""

    posture: Array  # (n, 2) rad, serial joints, proximal and distal
    motor_angle: Array  # (n, 2) rad
    jacobian: Array  # (n, 2, 2) dq_p / dq_s
    inertia: Array  # (n, 2, 2) kg m^2, M_p with the motors' armature
    damping: Array  # (n, 2, 2) N m s/rad, D_p
    gravity: Array  # (n, 2) N m, torque of the weight on the motors
    # (n, 2, 2) kg m: the same per unit of gravity along the proximal link as it lies at neutral
    # (first row), and across it (second).
    unit_gravity: Array
    # (n, 3, 3) unit vectors as rows: proximal axis, distal axis, direction of the proximal link;
    # in a frame whose x and y are these directions of gravity, z the proximal axis at neutral.
    directions: Array

    @classmethod
    def of(cls, samples: Sequence[Dynamics]) -> Dynamics:
        """One after the other."""
        names = cls.__dataclass_fields__
        return cls(**{n: np.concatenate([getattr(s, n) for s in samples]) for n in names})


def joint_label(model: mujoco.MjModel, joint: int) -> str:
    """Its name, or where it is if it has none."""
    return model.joint(joint).name or (
        f"joint {joint} of body {model.body(model.jnt_bodyid[joint]).name!r}"
    )


def driven_joints(model: mujoco.MjModel) -> list[int]:
    """Joints with an actuator on them, in the order of the actuators."""
    joints = [
        int(model.actuator_trnid[i, 0])
        for i in range(model.nu)
        if mujoco.mjtTrn(model.actuator_trntype[i]) in _TRN_JOINT
    ]
    return list(dict.fromkeys(joints))


def joints_above(model: mujoco.MjModel, body: int) -> set[int]:
    """Joints between the world and a body, its own included."""
    result: set[int] = set()
    while body:
        first = int(model.body_jntadr[body])
        result |= set(range(first, first + int(model.body_jntnum[body])))
        body = int(model.body_parentid[body])
    return result


def equality_joints(model: mujoco.MjModel) -> dict[int, set[int]]:
    """Joints that each active equality acts on: for a loop, those all around it."""
    types = mujoco.mjtEq
    data = mujoco.MjData(model)
    mujoco.mj_fwdPosition(model, data)
    _, jacobian = loop_constraints(model, data)
    result: dict[int, set[int]] = {}
    for i in range(model.neq):
        if not model.eq_active0[i]:
            continue
        kind = mujoco.mjtEq(model.eq_type[i])
        objects = [int(model.eq_obj1id[i]), int(model.eq_obj2id[i])]
        if kind in (types.mjEQ_CONNECT, types.mjEQ_WELD):
            if model.eq_objtype[i] == mujoco.mjtObj.mjOBJ_SITE:
                objects = [int(model.site_bodyid[o]) for o in objects]
            first, second = (joints_above(model, o) for o in objects)
            result[i] = first ^ second
        elif kind is types.mjEQ_JOINT:
            result[i] = {o for o in objects if o >= 0}
        else:  # of tendons: whatever they run over
            rows = jacobian[data.efc_id[: data.ne] == i]
            used = np.flatnonzero(np.abs(rows).max(axis=0, initial=0.0))
            result[i] = {int(model.dof_jntid[d]) for d in used}
    return result


def coupled_joints(
    model: mujoco.MjModel, start: Iterable[int], held: set[int]
) -> tuple[set[int], set[int]]:
    """Joints that move when those of ``start`` do, by way of equalities; ids of these.

    Args:
        model: of any kind.
        start: joints.
        held: joints that do not move, and through which nothing is coupled.
    """
    equalities = {i: joints - held for i, joints in equality_joints(model).items()}
    joints, used = set(start), set()
    while found := {i for i, of in equalities.items() if i not in used and of & joints}:
        used |= found
        joints |= set().union(*(equalities[i] for i in found))
    return joints, used


def quiet(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy without contacts, limits and Coulomb friction, which are not of the linkage."""
    model = copy.copy(model)
    flags = mujoco.mjtDisableBit
    for flag in (flags.mjDSBL_CONTACT, flags.mjDSBL_LIMIT, flags.mjDSBL_FRICTIONLOSS):
        model.opt.disableflags |= int(flag)
    return model


def believable_range(model: mujoco.MjModel, joint: int) -> tuple[float, float] | None:
    """Limits of a hinge in rad; none if it has none or they exceed a turn (degrees as radians)."""
    low, high = (float(v) for v in model.jnt_range[joint])
    limited = model.jnt_limited[joint] and high - low <= 2.0 * math.pi
    return (low, high) if limited else None


class Mechanism:
    """A pair with its motors and loops; the trunk and all other joints held.

    They are held as rows and columns that are left out, not welded: welding moves the anchors of
    `connect` and `weld`, which MuJoCo takes from the pose as drawn.

    Args:
        model: closed-chain, or a serial tree whose motors sit on the joints.
        serial_joints: names, proximal and distal.
        motor_joints: names, in the order of the rows of J.
        where: for messages.

    Raises:
        UserError: a joint that is not there or no hinge, loops that are open as drawn, or motors
            that do not determine the pair.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        serial_joints: Sequence[str],
        motor_joints: Sequence[str],
        where: str,
    ):
        self.model = quiet(model)
        self.data = mujoco.MjData(self.model)
        self.where = where
        self.serial_joints = (serial_joints[0], serial_joints[1])
        self.motor_joints = (motor_joints[0], motor_joints[1])
        self._serial = [self._hinge(n, "--serial-joints") for n in self.serial_joints]
        self._motors = [self._hinge(n, "--motor-joints") for n in self.motor_joints]
        for flag, pair in (("--serial-joints", self._serial), ("--motor-joints", self._motors)):
            if pair[0] == pair[1]:
                name = joint_label(model, pair[0])
                raise UserError(f"{where}: {flag} names {name} twice; name two joints")
        if self._serial[0] not in joints_above(model, int(model.jnt_bodyid[self._serial[1]])):
            raise UserError(
                f"{where}: {self.serial_joints[1]} does not hang on {self.serial_joints[0]};"
                " --serial-joints takes the proximal joint, then the distal one"
            )
        named = set(self._serial) | set(self._motors)
        above = [joints_above(model, int(model.jnt_bodyid[j])) for j in named]
        others = set(driven_joints(model)) - named
        held = (set.intersection(*above) - named) | others
        joints, equalities = coupled_joints(model, named, held)
        self.joints = sorted(joints)
        self.equalities = np.array(sorted(equalities), dtype=np.int64)
        around = set().union(*(equality_joints(model)[i] for i in equalities))
        self.held_motors = tuple(joint_label(model, j) for j in sorted(others & around))
        self._dofs = np.array(
            [d for d in range(model.nv) if model.dof_jntid[d] in joints], dtype=np.int64
        )
        self._serial_dof = model.jnt_dofadr[self._serial].astype(np.int64)
        self._motor_dof = model.jnt_dofadr[self._motors].astype(np.int64)
        self._serial_qpos = model.jnt_qposadr[self._serial].astype(np.int64)
        self._free_dofs = np.setdiff1d(self._dofs, self._serial_dof)
        self._start()
        self.neutral = self.data.qpos[self._serial_qpos].copy()
        self._frame = self._gravity_frame()
        try:
            _, self.idle_dofs = self._basis()
            self._check()
        except _OutOfReach as error:
            raise UserError(
                f"{where}: {error}, in the posture of its keyframe or as drawn; correct that"
                " posture or the joints named by --serial-joints and --motor-joints"
            ) from None

    # --- what is there --------------------------------------------------------------------

    def _hinge(self, name: str, flag: str) -> int:
        model = self.model
        joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
        if joint < 0:
            names = [model.joint(i).name for i in range(model.njnt) if model.joint(i).name]
            raise UserError(
                f"{self.where}: no joint {name!r}; correct {flag}; there are"
                f" {', '.join(names[:24])}{', ...' if len(names) > 24 else ''}"
            )
        if model.jnt_type[joint] != _JOINT.mjJNT_HINGE:
            raise UserError(f"{self.where}: joint {name!r} is not a hinge; correct {flag}")
        return joint

    @property
    def moving(self) -> tuple[str, ...]:
        """All joints that move with the pair."""
        return tuple(joint_label(self.model, j) for j in self.joints)

    def of_motors(self, of_dof: Array, of_actuator: Array) -> Array:
        """Of the motors, (2,): what the joint has, and what its actuators have times gear^2."""
        result = of_dof[self._motor_dof].astype(np.float64)
        for i in range(self.model.nu):
            joint = int(self.model.actuator_trnid[i, 0])
            if mujoco.mjtTrn(self.model.actuator_trntype[i]) in _TRN_JOINT:
                mine = np.array([joint == m for m in self._motors])
                result += mine * self.model.actuator_gear[i, 0] ** 2 * of_actuator[i]
        return result

    @property
    def motor_inertia(self) -> Array:
        """Armature of the motors, (2,) kg m^2."""
        return self.of_motors(self.model.dof_armature, self.model.actuator_armature)

    @property
    def motor_damping(self) -> Array:
        """Damping of the motors, (2,) N m s/rad."""
        return self.of_motors(self.model.dof_damping, self.model.actuator_damping)

    def range(self, which: int) -> tuple[float, float] | None:
        """Limits of the proximal (0) or distal (1) joint in rad, if they can be believed."""
        return believable_range(self.model, self._serial[which])

    # --- postures -------------------------------------------------------------------------

    def _start(self) -> None:
        """From the first pose with closed loops: keyframe `home`, other ones, as drawn."""
        model, data = self.model, self.data
        keys = sorted(range(model.nkey), key=lambda k: model.key(k).name != "home")
        gaps = []
        for qpos in [*(model.key_qpos[k] for k in keys), model.qpos0]:
            data.qpos[:] = qpos
            mujoco.mj_fwdPosition(model, data)
            gaps.append(self._gap())
            if gaps[-1] > _DRAWN_GAP_M:
                continue
            if close_loops(model, data, self._free_dofs, self.equalities) < _GAP_M:
                return
        names = [model.equality(i).name or f"equality {i}" for i in self.equalities]
        raise UserError(
            f"{self.where}: {', '.join(names)}: open by {min(gaps) * 1e3:.1f} mm or more in every"
            " keyframe and as drawn, and cannot be closed from there; add a keyframe `home` in"
            " which the loops are closed"
        )

    def _gap(self) -> float:
        gaps, _ = loop_constraints(self.model, self.data)
        mine = gaps[np.isin(self.data.efc_id[: self.data.ne], self.equalities)]
        return float(np.abs(mine).max(initial=0.0))

    def _move(self, target: Array) -> None:
        """Serial joints to ``target``, loops closed, in small moves so that no branch flips."""
        model, data = self.model, self.data
        start = data.qpos[self._serial_qpos].copy()
        moves = max(1, math.ceil(np.abs(target - start).max() / _MOVE_RAD))
        for move in range(1, moves + 1):
            goal = start + (target - start) * move / moves
            velocity = np.zeros(model.nv)
            if len(self.equalities):
                basis, _ = self._basis()
                step = goal - data.qpos[self._serial_qpos]
                motors = np.linalg.lstsq(self._rows(basis, self._serial_dof), step, rcond=None)[0]
                velocity[self._dofs] = basis @ motors
                if np.abs(velocity).max() > 10.0 * _MOVE_RAD:
                    raise _OutOfReach("the linkage is at a dead centre")
            mujoco.mj_integratePos(model, data.qpos, velocity, 1.0)
            data.qpos[self._serial_qpos] = goal
            expected = data.qpos.copy()
            gap = close_loops(model, data, self._free_dofs, self.equalities)
            if gap > _GAP_M:
                raise _OutOfReach(f"the loops stay {gap * 1e3:.2f} mm open")
            mujoco.mj_differentiatePos(model, velocity, 1.0, expected, data.qpos)
            # The prediction is good to second order in the move.
            if np.abs(velocity).max() > _MOVE_RAD:
                raise _OutOfReach("the linkage is close to another branch")
        self._check()

    def _check(self) -> None:
        basis, _ = self._basis()
        if np.linalg.cond(self._rows(basis, self._serial_dof)) > _CONDITION:
            raise _OutOfReach(
                f"the motors {' and '.join(self.motor_joints)} do not turn"
                f" {' and '.join(self.serial_joints)} independently"
            )
        for joint in self.joints:
            limits = believable_range(self.model, joint)
            if limits is None or self.model.jnt_type[joint] != _JOINT.mjJNT_HINGE:
                continue
            angle = float(self.data.qpos[self.model.jnt_qposadr[joint]])
            if joint not in self._serial and not limits[0] - 1e-6 <= angle <= limits[1] + 1e-6:
                raise _OutOfReach(f"{joint_label(self.model, joint)} is beyond its limit")

    def sweep(self, proximal: Array, distal: Array) -> tuple[Dynamics, dict[tuple, str]]:
        """Dynamics at a grid of postures.

        Args:
            proximal: (m,) rad.
            distal: (n,) rad.

        Returns:
            At those that can be reached; and, for the others, why not.
        """
        samples: list[Dynamics] = []
        refused: dict[tuple, str] = {}
        home = self.data.qpos.copy()

        def outwards(values: Array, neutral: float, start: Array, visit) -> None:
            """Away from neutral on either side, each posture from the one before it."""
            for side in (1.0, -1.0):
                inside = values[(values - neutral) * side >= (0.0 if side > 0 else 1e-12)]
                self.data.qpos[:] = start
                mujoco.mj_fwdPosition(self.model, self.data)
                reason = ""
                for value in sorted(inside, key=lambda v: abs(v - neutral)):
                    reason = visit(float(value), reason)

        def row(angle: float, reason: str) -> str:
            def cell(first: float, reason: str) -> str:
                target = np.array([first, angle])
                try:
                    if reason:
                        raise _OutOfReach(reason)
                    self._move(target)
                    samples.append(self.dynamics())
                except _OutOfReach as error:
                    refused[first, angle] = str(error)
                    return str(error)
                return ""

            if not reason:
                try:
                    self._move(np.array([self.neutral[0], angle]))
                except _OutOfReach as error:
                    reason = str(error)
            if reason:
                refused.update({(float(p), angle): reason for p in proximal})
                return reason
            here = self.data.qpos.copy()
            outwards(proximal, float(self.neutral[0]), here, cell)
            self.data.qpos[:] = here
            mujoco.mj_fwdPosition(self.model, self.data)
            return ""

        outwards(distal, float(self.neutral[1]), home, row)
        self.data.qpos[:] = home
        mujoco.mj_fwdPosition(self.model, self.data)
        if not samples:
            first = next(iter(refused.values()))
            raise UserError(
                f"{self.where}: {' and '.join(self.serial_joints)}: no posture can be reached"
                f" ({first}); give --range of what the linkage can do"
            )
        return Dynamics.of(samples), refused

    def at(self, postures: Array) -> Dynamics:
        """Dynamics at given postures, (n, 2) rad, each from the one before.

        Raises:
            UserError: one that the linkage cannot take.
        """
        samples = []
        for posture in postures:
            try:
                self._move(posture)
            except _OutOfReach as error:
                angles = ", ".join(
                    f"{n} {a:.3f}" for n, a in zip(self.serial_joints, posture, strict=True)
                )
                raise UserError(f"{self.where}: posture {angles} rad: {error}") from None
            samples.append(self.dynamics())
        return Dynamics.of(samples)

    # --- dynamics -------------------------------------------------------------------------

    def _rows(self, basis: Array, dofs: NDArray[np.int64]) -> Array:
        return basis[np.searchsorted(self._dofs, dofs)]

    def _mass_matrix(self) -> Array:
        full = np.zeros((self.model.nv, self.model.nv))
        mujoco.mj_fullM(self.model, self.data, full)
        return full[np.ix_(self._dofs, self._dofs)]

    def _basis(self) -> tuple[Array, int]:
        """``N``, (n, 2) over the moving degrees of freedom, and how many of these are idle.

        Idle is what can move while motors and pair stand still, such as a rod that spins about
        its own axis. No torque acts there, so it moves as inertia has it.

        Raises:
            _OutOfReach: the motors do not determine the pair.
        """
        _, jacobian = loop_constraints(self.model, self.data)
        rows = np.isin(self.data.efc_id[: self.data.ne], self.equalities)
        a = jacobian[np.ix_(rows, self._dofs)]
        _, values, right = np.linalg.svd(a)
        rank = int(np.count_nonzero(values > _RANK * values.max(initial=0.0)))
        null = right[rank:].T
        motors = self._rows(null, self._motor_dof)
        left, values, right = np.linalg.svd(motors)
        names = " and ".join(self.motor_joints)
        if len(null.T) < 2 or values[1] < _RANK:
            raise _OutOfReach(f"the loops do not let the motors {names} turn independently")
        basis = null @ right[:2].T @ np.diag(1.0 / values) @ left.T
        idle = null @ right[2:].T
        if not idle.shape[1]:
            return basis, 0
        free = np.abs(self._rows(idle, self._serial_dof)).max(axis=1)
        if free.max() > 1e-5:
            joint = self.serial_joints[int(free.argmax())]
            raise _OutOfReach(f"{joint} can move while the motors {names} stand still")
        mass = self._mass_matrix()
        own = np.linalg.solve(idle.T @ mass @ idle, idle.T @ mass @ basis)
        return basis - idle @ own, idle.shape[1]

    @property
    def proximal_axis(self) -> Array:
        """At neutral, (3,), world frame."""
        return self._frame[2]

    def take_frame(self, posture: Array) -> None:
        """Give `unit_gravity` and `directions` in the frame of another neutral posture, (2,)."""
        home = self.data.qpos.copy()
        self.at(posture[None])
        self._frame = self._gravity_frame()
        self.data.qpos[:] = home
        mujoco.mj_fwdPosition(self.model, self.data)

    def _gravity_frame(self) -> Array:
        """Directions along and across the proximal link and its axis, at neutral, as rows."""
        first, _, along = self._directions()
        return np.array([along, np.cross(first, along), first])

    def _directions(self) -> Array:
        """Both axes and the proximal link's direction in the world frame, (3, 3) as rows.

        Where both axes meet there is no such direction; any that is square to the first will do.
        """
        first, second = (self.data.xaxis[j] for j in self._serial)
        along = self.data.xanchor[self._serial[1]] - self.data.xanchor[self._serial[0]]
        along = along - first * (first @ along)
        if np.linalg.norm(along) < 1e-6:
            along = np.cross(first, np.eye(3)[np.abs(first).argmin()])
        return np.array([first, second, along / np.linalg.norm(along)])

    def _weight(self, basis: Array, gravity: Array) -> Array:
        """Torque of the weight on the motors, (2,)."""
        model, data = self.model, self.data
        before = model.opt.gravity.copy()
        model.opt.gravity[:] = gravity
        bias = np.zeros(model.nv)
        data.qvel[:] = 0.0
        mujoco.mj_comVel(model, data)
        mujoco.mj_rne(model, data, 0, bias)
        model.opt.gravity[:] = before
        return -basis.T @ bias[self._dofs]

    def _damping(self, basis: Array) -> Array:
        """``N^T D N`` by difference of MuJoCo's passive forces, whatever they come from."""
        model, data = self.model, self.data
        small, columns = 1e-6, []
        for column in basis.T:
            force = []
            for sign in (1.0, -1.0):
                data.qvel[:] = 0.0
                data.qvel[self._dofs] = sign * small * column
                mujoco.mj_fwdVelocity(model, data)
                force.append(data.qfrc_passive[self._dofs].copy())
            columns.append(-basis.T @ (force[0] - force[1]) / (2.0 * small))
        data.qvel[:] = 0.0
        return np.array(columns).T

    def dynamics(self) -> Dynamics:
        """At the posture as it is."""
        basis, _ = self._basis()
        unit = [self._weight(basis, direction) for direction in self._frame[:2]]
        parts = (
            self.data.qpos[self._serial_qpos],
            self.data.qpos[self.model.jnt_qposadr[self._motors]],
            np.linalg.inv(self._rows(basis, self._serial_dof)),
            basis.T @ self._mass_matrix() @ basis,
            self._damping(basis),
            self._weight(basis, self.model.opt.gravity.copy()),
            np.array(unit),
            self._directions() @ self._frame.T,
        )
        return Dynamics(*(np.array(part, dtype=np.float64)[None] for part in parts))
