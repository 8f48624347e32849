"""Which part of an increment the simulator solves for, and which part lags one step behind.

A simulator takes constant diagonal inertia as joint armature, and constant inertia along any
fixed direction as the armature of a fixed tendon; both enter its mass matrix. What is left is
applied as a torque from the last step's acceleration and velocity (Eq. 25-27).
"""

from __future__ import annotations

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
    MASS_MATRIX = "mass_matrix"  # fixed tendons, one per motor: no lag in the inertia


class LaggedTerms(StrEnum):
    """What ``qfrc_applied`` leaves to the lagged torque."""

    MINIMAL = "minimal"  # the constant diagonal of the whole increment goes into armature
    PAPER = "paper"  # verbatim Eq. 25-27: all of dM_link is lagged


@dataclass(frozen=True, eq=False)
class Tendon:
    """Fixed tendon over the pair: adds ``armature c c^T`` and ``damping c c^T``."""

    coefficients: NDArray[np.float64]  # (2,), c
    armature: float
    damping: float


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
        implicit = np.diag(self.damping) + sum(
            t.damping * np.outer(t.coefficients, t.coefficients) for t in self.tendons
        )
        return implicit + self.lagged_damping


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
    """Constant inertia and all damping on fixed tendons; only what varies with alpha is lagged.

    MuJoCo's Euler step solves joint damping implicitly but takes tendon damping from the
    velocity before the step, so the damping here is as late as any velocity of that step.

    With the rows of ``J`` as coefficients the tendons' armature adds ``J^T diag(.) J``. Where
    the constant part is not diagonal in actuator coordinates its eigenvectors give the tendons;
    a negative eigenvalue, which no armature can carry, stays in the lagged part.
    """
    j = np.asarray(jacobian, dtype=np.float64)
    motor_inertia = np.asarray(motor_inertia, dtype=np.float64)
    motor_damping = np.asarray(motor_damping, dtype=np.float64)
    total = HarmonicMatrix.of_constant(np.diag(motor_inertia)) + increment.inertia
    damping = np.diag(motor_damping) + increment.damping
    if not np.any(increment.damping) and increment.inertia.magnitude == 0:
        # Kin-only: the motors sit on the serial joints themselves (Eq. 11).
        return split_qfrc_applied(j, motor_inertia, motor_damping, increment)

    inverse = np.linalg.inv(j)
    in_actuator = inverse.T @ total.constant @ inverse
    if abs(in_actuator[0, 1]) <= 1e-9 * np.abs(in_actuator).max():
        tendons = [
            Tendon(j[k], max(float(in_actuator[k, k]), 0.0), float(motor_damping[k]))
            for k in range(2)
        ]
    else:
        values, directions = np.linalg.eigh(in_actuator)
        tendons = [Tendon(directions[:, k] @ j, max(float(values[k]), 0.0), 0.0) for k in range(2)]
        tendons += [Tendon(j[k], 0.0, float(motor_damping[k])) for k in range(2)]
    implicit = PairSplit(
        armature=np.zeros(2),
        damping=np.zeros(2),
        tendons=tuple(tendons),
        lagged_inertia=HarmonicMatrix.of_constant(np.zeros((2, 2))),
        lagged_damping=np.zeros((2, 2)),
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
        lagged_damping=_without_rounding(
            damping - implicit.total_damping(), float(np.abs(damping).max())
        ),
    )


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
