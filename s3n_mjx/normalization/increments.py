"""What the serial tree of a parallel-leg robot is missing (S3N paper, section III).

Coordinates: ``q_s = [q1, q2]`` proximal and distal joint of the serial tree, ``q_p = J q_s``
the motors, ``tau_s = J^T tau_p`` (Eq. 1-4). All inertias in kg m^2, damping in N m s/rad.
Inside this package every increment is taken relative to the kin-only model, whose serial
joints carry the motors' own reflected values ``diag(MA)``, ``diag(DA)`` (Eq. 11).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s3n_mjx.normalization.harmonic import HarmonicMatrix


class Variant(StrEnum):
    """Simulator models compared in the paper (section VI-A)."""

    KIN_ONLY = "kin_only"
    KIN_ONLY_HR = "kin_only_hr"  # dynamics of KIN_ONLY, trained with Heavy Leg-Rand (Table III)
    S3N_ACT = "s3n_act"
    S3N_FULL = "s3n_full"


@dataclass(frozen=True, eq=False)
class PairIncrement:
    """``dM^s(alpha)`` and ``dD^s`` of one pair (Eq. 6), relative to kin-only."""

    inertia: HarmonicMatrix
    damping: NDArray[np.float64]  # (2, 2)


def actuator_increment(jacobian: ArrayLike, reflected: ArrayLike) -> NDArray[np.float64]:
    """``J^T diag(x) J - diag(x)``, shape (2, 2), for inertia (Eq. 12) or damping (Eq. 13).

    Args:
        jacobian: ``J``, shape (2, 2).
        reflected: output-side values of the two motors, shape (2,).
    """
    j = np.asarray(jacobian, dtype=np.float64)
    diagonal = np.diag(np.asarray(reflected, dtype=np.float64))
    return j.T @ diagonal @ j - diagonal


def parallel_inertia(
    m11: float, m12: float, m22: float, angle_offset: float = 0.0
) -> HarmonicMatrix:
    """Total inertia ``M_p(alpha)`` in actuator coordinates (Eq. 14).

    ``angle_offset`` in rad is added to the distal joint's angle to give the ``alpha`` of Eq. 14,
    for robots whose knee does not read zero where thigh and shank are aligned.
    """
    coupling = np.array([[0.0, m12], [m12, 0.0]])
    return HarmonicMatrix(
        np.diag([m11, m22]), coupling * np.cos(angle_offset), -coupling * np.sin(angle_offset)
    )


def link_increment(
    jacobian: ArrayLike,
    total: HarmonicMatrix,
    motor_inertia: ArrayLike,
    serial_link: HarmonicMatrix,
) -> HarmonicMatrix:
    """Residual linkage inertia ``dM_link(alpha)`` in serial coordinates (Eq. 15, 16, 19).

    The motors' share leaves the identified total before it is compared with the serial model,
    so that no actuator inertia is counted twice.

    Args:
        jacobian: ``J``, shape (2, 2).
        total: ``M_p(alpha)``, actuator coordinates.
        motor_inertia: ``diag(MA)``, shape (2,).
        serial_link: ``M_link^s(alpha)``, the serial model's own inertia without armature.
    """
    motors = HarmonicMatrix.of_constant(np.diag(np.asarray(motor_inertia, dtype=np.float64)))
    return (total - motors).pull_back(jacobian) - serial_link


def pair_increment(
    variant: Variant,
    jacobian: ArrayLike,
    motor_inertia: ArrayLike,
    motor_damping: ArrayLike,
    total: HarmonicMatrix | None,
    serial_link: HarmonicMatrix,
) -> PairIncrement:
    """Everything ``variant`` adds to one pair of the kin-only model (Eq. 6, 18, 20, 21).

    Raises:
        ValueError: ``S3N_FULL`` without an identified ``total``.
    """
    if variant in (Variant.KIN_ONLY, Variant.KIN_ONLY_HR):
        return PairIncrement(HarmonicMatrix.of_constant(np.zeros((2, 2))), np.zeros((2, 2)))
    inertia = HarmonicMatrix.of_constant(actuator_increment(jacobian, motor_inertia))
    damping = actuator_increment(jacobian, motor_damping)
    if variant is Variant.S3N_FULL:
        if total is None:
            raise ValueError("s3n_full needs the identified inertia of the linkage (Eq. 14)")
        inertia = inertia + link_increment(jacobian, total, motor_inertia, serial_link)
    return PairIncrement(inertia, damping)
