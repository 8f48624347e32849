"""Which part of an increment the simulator solves for, and which part lags one step behind.

A simulator takes constant diagonal inertia as joint armature, and constant inertia along any
fixed direction as the armature of a fixed tendon; both enter its mass matrix. What is left is
applied as a torque from the last step's acceleration and velocity (Eq. 25-27).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s3n_mjx.normalization.harmonic import HarmonicMatrix
from s3n_mjx.normalization.increments import PairIncrement, actuator_increment

# Entries below this share of the largest one are rounding, not physics.
_RELATIVE_ZERO = 1e-12


class Injection(StrEnum):
    """How the normalized inertia and damping enter the simulator."""

    QFRC_APPLIED = "qfrc_applied"  # the paper's: armature, and torques from the last step
    MASS_MATRIX = "mass_matrix"  # a fixed tendon per pair: no lag in the constant inertia


class LaggedTerms(StrEnum):
    """What ``qfrc_applied`` leaves to the lagged torque."""

    MINIMAL = "minimal"  # the constant diagonal of the whole increment goes into armature
    PAPER = "paper"  # verbatim Eq. 25-27: all of dM_link is lagged


@dataclass(frozen=True, eq=False)
class Tendon:
    """Fixed tendon over the pair: adds ``armature c c^T`` to the mass matrix."""

    coefficients: NDArray[np.float64]  # (2,), c
    armature: float


@dataclass(frozen=True, eq=False)
class PairSplit:
    """Dynamics of one pair, shared out; the parts add up to kin-only plus the increment."""

    armature: NDArray[np.float64]  # (2,) of the serial joints
    damping: NDArray[np.float64]  # (2,) of the serial joints
    tendons: tuple[Tendon, ...]
    lagged_inertia: HarmonicMatrix
    lagged_damping: NDArray[np.float64]  # (2, 2)

    def total_inertia(self) -> HarmonicMatrix:
        """Motors and increment together, in serial coordinates, links of the tree left out."""
        implicit = np.diag(self.armature) + sum(
            t.armature * np.outer(t.coefficients, t.coefficients) for t in self.tendons
        )
        return HarmonicMatrix.of_constant(implicit) + self.lagged_inertia

    def total_damping(self) -> NDArray[np.float64]:
        """As :meth:`total_inertia`, shape (2, 2) in N m s/rad."""
        return np.diag(self.damping) + self.lagged_damping


def split_qfrc_applied(
    jacobian: ArrayLike,
    motor_inertia: ArrayLike,
    motor_damping: ArrayLike,
    increment: PairIncrement,
    lagged: LaggedTerms = LaggedTerms.MINIMAL,
) -> PairSplit:
    """Diagonal through armature and damping, the rest lagged (Eq. 25-27).

    With ``MINIMAL`` the constant diagonal of the whole increment becomes armature wherever the
    sum stays positive; with ``PAPER`` only that of ``dM_act`` does.
    """
    motor_inertia = np.asarray(motor_inertia, dtype=np.float64)
    total = HarmonicMatrix.of_constant(np.diag(motor_inertia)) + increment.inertia
    if lagged is LaggedTerms.PAPER and increment.inertia.magnitude > 0:
        diagonal = motor_inertia + np.diag(actuator_increment(jacobian, motor_inertia))
    else:
        diagonal = np.diag(total.constant)
    armature = np.where(diagonal > 0, diagonal, motor_inertia)
    damping = np.diag(motor_damping) + increment.damping
    return PairSplit(
        armature=armature,
        damping=np.diag(damping).copy(),
        tendons=(),
        lagged_inertia=total - HarmonicMatrix.of_constant(np.diag(armature)),
        lagged_damping=damping - np.diag(np.diag(damping)),
    )


def split_mass_matrix(
    jacobian: ArrayLike,
    motor_inertia: ArrayLike,
    motor_damping: ArrayLike,
    increment: PairIncrement,
) -> PairSplit:
    """Constant inertia through armature, its coupling through one fixed tendon; the rest lagged.

    A fixed tendon with coefficients ``c`` and armature ``t`` adds ``t c c^T`` to the mass matrix;
    with the row of ``J`` of a motor that turns with both joints this is that motor. Any constant
    positive semidefinite pair needs one such tendon and the joints' own armature. What no
    armature can carry stays lagged: the part that varies with alpha, and the excess of a
    coupling too strong for its diagonal.

    Damping goes the way of :func:`split_qfrc_applied`: MuJoCo's Euler step solves the joints'
    implicitly, a tendon's it would only take from the velocity before the step.
    """
    explicit = split_qfrc_applied(jacobian, motor_inertia, motor_damping, increment)
    total = explicit.total_inertia()
    tendon = _coupling_tendon(total.constant)
    if tendon is None:
        return explicit
    joints = np.diag(total.constant) - tendon.armature * tendon.coefficients**2
    implicit = replace(
        explicit,
        armature=np.maximum(joints, 0.0),
        tendons=(tendon,),
        lagged_inertia=HarmonicMatrix.of_constant(np.zeros((2, 2))),
    )
    rest = total - implicit.total_inertia()
    scale = total.magnitude
    return replace(
        implicit,
        lagged_inertia=HarmonicMatrix(
            _without_rounding(rest.constant, scale),
            _without_rounding(rest.cosine, scale),
            _without_rounding(rest.sine, scale),
        ),
    )


def _coupling_tendon(inertia: NDArray[np.float64]) -> Tendon | None:
    """The tendon that carries the off-diagonal of ``inertia``, as far as the diagonal allows.

    With coefficients ``(1, r)`` and armature ``b / r`` the joints keep ``a - b / r`` and
    ``c - b r``: both stay positive for ``r`` between ``b / a`` and ``c / b``. One motor that
    turns with both joints has ``|r| = 1`` there.
    """
    (a, b), (_, c) = inertia.tolist()
    if b == 0.0 or a <= 0.0 or c <= 0.0:
        return None
    # A coupling that no positive semidefinite matrix has is carried up to the largest that one has.
    carried = min(abs(b), math.sqrt(a * c))
    ratio = min(max(1.0, carried / a), c / carried)
    return Tendon(np.array([1.0, math.copysign(ratio, b)]), carried / ratio)


def _without_rounding(matrix: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    return np.where(np.abs(matrix) > _RELATIVE_ZERO * scale, matrix, 0.0)


def split_increment(
    injection: Injection,
    jacobian: ArrayLike,
    motor_inertia: ArrayLike,
    motor_damping: ArrayLike,
    increment: PairIncrement,
    lagged: LaggedTerms = LaggedTerms.MINIMAL,
) -> PairSplit:
    """Share out ``increment`` for ``injection``; see the two functions it calls."""
    if injection is Injection.MASS_MATRIX:
        return split_mass_matrix(jacobian, motor_inertia, motor_damping, increment)
    return split_qfrc_applied(jacobian, motor_inertia, motor_damping, increment, lagged)
