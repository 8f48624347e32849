"""A leg's inertia from closed-loop records about a posture (Eqs. 30 to 33)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from s3n_mjx.errors import UserError
from s3n_mjx.identification.checks import findings, input_condition
from s3n_mjx.identification.fit import Estimate, Fit, Terms, fit
from s3n_mjx.identification.logs import TorqueLog, motor_of
from s3n_mjx.identification.records import record_of
from s3n_mjx.identification.spectra import response

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

WANTED = ("m11", "m12", "m22")
_NORMAL = 1.959964
_SMALL_COSINE = 0.15


@dataclass(frozen=True, eq=False)
class Posture:
    """What two records about one posture gave."""

    alpha: float  # rad
    labels: tuple[str, str]
    fit: Fit
    frequency: Array  # (L,) Hz
    response: Complex  # (L, 2, 2) velocity by torque, measured (Eq. 30)
    condition: Array  # (L,) of U


@dataclass(frozen=True, eq=False)
class LegResult:
    """The leg's inertia in actuator coordinates: `m11`, `m12`, `m22` of Eq. 32, kg m^2."""

    postures: list[Posture]
    inertia: dict[str, Estimate]
    findings: list[str]


def identify_leg(
    logs: Sequence[TorqueLog],
    motors: tuple[str, str],
    jacobian: Array,
    angle_offset: float = 0.0,
    settle_periods: int = 1,
    stiffness: bool = True,
) -> LegResult:
    """Total inertia of a leg and its motors.

    Args:
        logs: two for each posture, with independent torques, one after the other.
        motors: names of the proximal and the distal joint's motor in the logs.
        jacobian: (2, 2), motors' angles from those of the joints.
        angle_offset: rad, see `Linkage` of the robot description.
        settle_periods: left out of each log.
        stiffness: whether the model has one, as a leg with weight has about its posture.

    Raises:
        UserError: a log that cannot be analysed, or that lacks positions.
    """
    if not logs or len(logs) % 2:
        raise UserError(
            f"{len(logs)} logs: give two for each posture, the motors driven once alike and once"
            " against each other"
        )
    postures = [
        _posture((first, second), motors, jacobian, angle_offset, settle_periods, stiffness)
        for first, second in zip(logs[::2], logs[1::2], strict=True)
    ]
    inertia, disagreement = _combined(postures)
    found = list(disagreement)
    for posture in postures:
        where = f"alpha {posture.alpha:.2f} rad: " if len(postures) > 1 else ""
        wanted = [n for n in WANTED if n != "m12" or abs(np.cos(posture.alpha)) > _SMALL_COSINE]
        found += [where + text for text in findings(posture.fit, wanted)]
    if all(abs(np.cos(p.alpha)) <= _SMALL_COSINE for p in postures):
        found.append(
            "M12 counts with cos(alpha), which is small in this posture; measure another one"
        )
    return LegResult(postures, inertia, found)


def _posture(
    pair: tuple[TorqueLog, TorqueLog],
    motors: tuple[str, str],
    jacobian: Array,
    angle_offset: float,
    settle_periods: int,
    stiffness: bool,
) -> Posture:
    records, angles = [], []
    for log in pair:
        columns = [motor_of(log, name) for name in motors]
        position = log.position[:, columns]
        if np.isnan(position).any():
            raise UserError(
                f"{log.path}: motor_position: missing; the leg's posture is taken from it"
            )
        records.append(record_of(log, columns, settle_periods))
        joints = np.linalg.solve(jacobian, position.mean(axis=0))
        angles.append(float(joints[1]) + angle_offset)
    first, second = (r.velocity.frequency for r in records)
    if len(first) != len(second) or not np.allclose(first, second, rtol=1e-6):
        raise UserError(f"{pair[1].path}: its lines are not those of {pair[0].path}; excite alike")
    if abs(angles[0] - angles[1]) > 0.05:
        raise UserError(
            f"{pair[1].path}: posture alpha {angles[1]:.3f} rad, {pair[0].path} has"
            f" {angles[0]:.3f}; give the two logs of one posture one after the other"
        )
    result = fit(records, Terms(friction=True, stiffness=stiffness))
    measured, _ = response([r.velocity for r in records], [r.torque for r in records])
    return Posture(
        float(np.mean(angles)),
        (pair[0].path.name, pair[1].path.name),
        result,
        first,
        measured,
        input_condition(result),
    )


def _combined(postures: Sequence[Posture]) -> tuple[dict[str, Estimate], list[str]]:
    """`m11`, `m12`, `m22` over all postures, each weighted by its variance."""
    result, found = {}, []
    for name in WANTED:
        factor = np.array([np.cos(p.alpha) if name == "m12" else 1.0 for p in postures])
        estimates = [p.fit.estimates[name] for p in postures]
        value = np.array([e.value for e in estimates])
        error = np.array([max(e.std_error, 1e-300) for e in estimates])
        weight = factor / error**2
        information = float(weight @ factor)
        mean = float(weight @ value) / information
        left = float(np.sum(((value - mean * factor) / error) ** 2))
        freedom = len(postures) - 1
        spread = 1.0 / np.sqrt(information)
        # Postures that disagree by more than their noise widen the interval.
        if freedom:
            spread *= np.sqrt(max(left / freedom, 1.0))
            share = np.abs(value - mean * factor).max() / abs(mean)
            if share > 0.05 and left > chi2.ppf(0.999, freedom):
                found.append(
                    f"M{name[1:]} changes with posture by {100 * share:.0f} % more than"
                    f" {'cos(alpha)' if name == 'm12' else 'a constant'} says: Eq. 32 does not hold"
                    " for this leg, or `angle_offset` is wrong"
                )
        half = _NORMAL * spread
        result[name] = Estimate(
            mean, float(spread), mean - half, mean + half, any(e.on_bound for e in estimates)
        )
    return result, found
