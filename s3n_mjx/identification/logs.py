"""Records of an identification: torques commanded and motions measured, motor by motor.

The file has the form of every log here (docs/logs.md), with columns of its own, all in actuator
coordinates at the gear's output.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s3n_mjx.config_files import LARGEST
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.log_files import TIME, LogTable, read_table, write_table

Array = NDArray[np.float64]

FORMAT_VERSION = 1
TORQUE, POSITION, VELOCITY = "torque_command", "motor_position", "motor_velocity"
_UNITS = {TORQUE: "n_m", POSITION: "rad", VELOCITY: "rad_s"}
# Of the excitation; without them a log cannot be cut into periods.
_REQUIRED = ("period_s", "low_hz", "high_hz")
# `settle_periods` stands in the files that `identify excitation` writes.
_KNOWN = ("format", *_REQUIRED, "odd", "held", "torque_limit_n_m", "settle_periods")


@dataclass(frozen=True, eq=False)
class TorqueLog:
    """One record of n motors under a periodic torque.

    Attributes:
        path: of the file, for messages.
        motors: names, n of them; a motor is named as the serial joint beside it.
        time: (T,) s.
        torque: (T, n) N m, the total command: feedback and excitation, before any delay.
        position: (T, n) rad; NaN where it is not known.
        velocity: (T, n) rad/s.
        period_s: of the excitation.
        low_hz, high_hz: its band.
        odd: whether only odd lines are excited.
        held: whether the drive holds each sample of the command until the next one; otherwise
            the torque is a measured, continuous one.
        torque_limit: N m, of the drive; NaN where it is not known.
    """

    path: Path
    motors: tuple[str, ...]
    time: Array
    torque: Array
    position: Array
    velocity: Array
    period_s: float
    low_hz: float
    high_hz: float
    odd: bool = False
    held: bool = True
    torque_limit: float = np.nan

    @property
    def rate_hz(self) -> float:
        """Of the samples."""
        return float((len(self.time) - 1) / (self.time[-1] - self.time[0]))


def _columns(kind: str, motors: Sequence[str]) -> list[str]:
    return [f"{kind}/{motor}_{_UNITS[kind]}" for motor in motors]


def write_torque_log(log: TorqueLog, path: Path) -> Path:
    """Write a log, whole or not at all.

    Raises:
        UserError: the suffix is none of a log.
    """
    columns = {TIME: log.time}
    for kind, values in ((TORQUE, log.torque), (POSITION, log.position), (VELOCITY, log.velocity)):
        if not np.isnan(values).all():
            columns |= dict(zip(_columns(kind, log.motors), values.T, strict=True))
    meta = {
        "format": FORMAT_VERSION,
        "period_s": log.period_s,
        "low_hz": log.low_hz,
        "high_hz": log.high_hz,
        "odd": float(log.odd),
        "held": float(log.held),
        "torque_limit_n_m": log.torque_limit,
    }
    return write_table(path, columns, {k: v for k, v in meta.items() if not np.isnan(v)})


def read_torque_log(path: Path) -> TorqueLog:
    """Read a log; whether it can be analysed is asked in `records.py`.

    Raises:
        UserError: it is no such log: columns or metadata missing, unknown or not finite, or
            time that does not increase.
    """
    table = read_table(path)
    meta = _checked_meta(table)
    motors = _motors(table)

    def group(kind: str, required: bool) -> Array:
        names = _columns(kind, motors)
        missing = [name for name in names if name not in table.columns]
        if required and missing:
            raise table.error(missing[0], "missing; add it (docs/identification.md)")
        if missing and len(missing) < len(names):
            raise table.error(missing[0], "missing, others of its kind are there; add it")
        if missing:
            return np.full((len(table.columns[TIME]), len(names)), np.nan)
        return table.stack(names)

    torque, velocity = group(TORQUE, True), group(VELOCITY, True)
    position = group(POSITION, False)
    for name, column in table.columns.items():
        bad = np.flatnonzero(~(np.abs(column) <= LARGEST))
        if len(bad):
            raise table.error(name, f"{column[bad[0]]} at {table.where(int(bad[0]))}; mend the gap")
    time = table.columns[TIME]
    if len(time) < 2 or not np.all(np.diff(time) > 0):
        at = int(np.flatnonzero(np.diff(time) <= 0)[0]) + 1 if len(time) > 1 else 0
        raise table.error(TIME, f"must increase; it does not at {table.where(at)}")
    return TorqueLog(
        path=path,
        motors=motors,
        time=time,
        torque=torque,
        position=position,
        velocity=velocity,
        period_s=meta["period_s"],
        low_hz=meta["low_hz"],
        high_hz=meta["high_hz"],
        odd=bool(meta.get("odd", 0.0)),
        held=bool(meta.get("held", 1.0)),
        torque_limit=meta.get("torque_limit_n_m", np.nan),
    )


def _checked_meta(table: LogTable) -> dict[str, float]:
    meta = table.meta
    for key in meta:
        if key not in _KNOWN:
            close = difflib.get_close_matches(key, _KNOWN, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_KNOWN)}"
            raise table.error(key, f"unknown key; {hint}")
    for key in _REQUIRED:
        if key not in meta:
            raise table.error(key, "missing in the metadata; add `# " + key + ": VALUE`")
    for key, value in meta.items():
        if not 0 <= value <= LARGEST or (key in _REQUIRED and value == 0):
            raise table.error(key, f"is {value:g}; give a positive number")
        if key in ("odd", "held") and value not in (0.0, 1.0):
            raise table.error(key, f"is {value:g}; write 1 for yes, 0 for no")
    if meta.get("format", FORMAT_VERSION) != FORMAT_VERSION:
        raise table.error("format", f"is {meta['format']:g}, this program reads {FORMAT_VERSION}")
    return meta


def _motors(table: LogTable) -> tuple[str, ...]:
    """Names of the motors, in the order of their torque columns."""
    found: list[str] = []
    known = [f"{kind}/MOTOR_{unit}" for kind, unit in _UNITS.items()]
    for name in table.columns:
        if name == TIME:
            continue
        kind, slash, rest = name.partition("/")
        suffix = "_" + _UNITS.get(kind, "\0")
        if not slash or not rest.endswith(suffix) or len(rest) == len(suffix):
            raise table.error(name, f"unknown column; columns are {TIME}, {', '.join(known)}")
        if kind == TORQUE:
            found.append(rest.removesuffix(suffix))
    if TIME not in table.columns:
        raise table.error(TIME, "missing; add it")
    if not found:
        raise table.error(f"{TORQUE}/MOTOR_n_m", "missing; add the torque that was commanded")
    for name in table.columns:
        kind, slash, rest = name.partition("/")
        if slash and rest.removesuffix("_" + _UNITS[kind]) not in found:
            raise table.error(name, f"of a motor without a torque; known: {', '.join(found)}")
    return tuple(found)


def motor_of(log: TorqueLog, name: str) -> int:
    """Column of a motor.

    Raises:
        UserError: no such motor.
    """
    if name not in log.motors:
        raise UserError(f"{log.path}: no motor {name!r}; it has {', '.join(log.motors)}")
    return log.motors.index(name)


def columns_of(log: TorqueLog, motors: Sequence[int]) -> TorqueLog:
    """The same record of some of its motors."""
    keep = list(motors)
    return replace(
        log,
        motors=tuple(log.motors[i] for i in keep),
        torque=log.torque[:, keep],
        position=log.position[:, keep],
        velocity=log.velocity[:, keep],
    )
