"""Motors from open-loop torque: inertia, damping, delay (Eqs. 28, 29)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s3n_mjx.identification.checks import findings, unit_findings
from s3n_mjx.identification.fit import Fit, Record, Terms, fit
from s3n_mjx.identification.logs import TorqueLog
from s3n_mjx.identification.records import record_of
from s3n_mjx.robot.description import Motor

# Names in a fit: inertia, damping and delay.
WANTED = ("m11", "d11", "delay")


@dataclass(frozen=True, eq=False)
class MotorResult:
    """One motor in one log."""

    label: str
    fit: Fit
    findings: list[str]


@dataclass(frozen=True, eq=False)
class ActuatorResult:
    """Motors of one type, one by one and pooled."""

    motors: list[MotorResult]
    pooled: Fit
    findings: list[str]


def identify_actuator(
    logs: Sequence[TorqueLog],
    known: Motor | None = None,
    settle_periods: int = 1,
    friction: bool = True,
) -> ActuatorResult:
    """Fit every motor, and all of them together.

    Args:
        logs: of motors of one type, free to turn, under open-loop torque.
        known: what the motor's data sheet says, to tell a wrong unit.
        settle_periods: left out of each log.
        friction: whether the model has Coulomb friction.

    Raises:
        UserError: a log that cannot be analysed.
    """
    terms = Terms(friction=friction)
    short = [log.path.name for log in logs]
    names = {
        log.path: log.path.name if short.count(log.path.name) == 1 else str(log.path)
        for log in logs
    }
    records: list[Record] = []
    motors = []
    for log in logs:
        for i, name in enumerate(log.motors):
            record = record_of(log, [i], settle_periods)
            result = fit([record], terms)
            records.append(record)
            motors.append(
                MotorResult(f"{names[log.path]}: {name}", result, _findings(result, known))
            )
    pooled = motors[0].fit if len(motors) == 1 else fit(records, terms)
    said = [f"{motor.label}: {text}" for motor in motors for text in motor.findings] + _spread(
        motors, pooled
    )
    return ActuatorResult(motors, pooled, said)


def _findings(result: Fit, known: Motor | None) -> list[str]:
    return findings(result, WANTED) + (unit_findings(result, known) if known else [])


def _spread(motors: Sequence[MotorResult], pooled: Fit) -> list[str]:
    """Motors of one type that are not alike."""
    found = []
    for name in WANTED:
        values = [motor.fit.estimates[name].value for motor in motors]
        middle = pooled.estimates[name].value
        if middle and max(abs(v / middle - 1) for v in values) > 0.2:
            word = {"m11": "inertia", "d11": "damping", "delay": "delay"}[name]
            found.append(
                f"{word} differs from motor to motor ({min(values):.4g} to {max(values):.4g}); are"
                " they of one type?"
            )
    return found
