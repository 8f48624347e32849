"""Measured logs: one table of columns for one trial, read into a Recording and written from it.

The format is described for those who write such a file in docs/logs.md: SI units in the column
names, one clock, and in the metadata `onset_s`, the log's time at which the command starts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from s3n_mjx.evaluation.log_checks import (
    FORMAT_VERSION,
    RESERVED_KEYS,
    check_columns,
    check_samples,
    is_misspelt,
)
from s3n_mjx.evaluation.log_files import (
    COMMAND,
    TIME,
    Group,
    LogTable,
    log_groups,
    read_table,
    write_table,
)
from s3n_mjx.evaluation.recording import FloatArray, Recording


def read_log(
    path: Path | str,
    joint_names: Iterable[str],
    foot_names: Iterable[str],
    torque_limit: ArrayLike | None = None,
) -> Recording:
    """Read a log of one trial, check it, and count its time from the command's onset.

    Groups that the log leaves out are NaN. The recording's `qpos` is base position, base
    quaternion and joints, shape (T, 7 + nu), or empty, (T, 0), where the base is not known.

    Args:
        path: `.csv`, `.npz` or, with pyarrow installed, `.parquet`.
        joint_names: serial joints, nu of them, in the order wanted.
        foot_names: feet, in the order wanted.
        torque_limit: shape (nu,), in [N m], actuator coordinates; without it the unit of the
            torques is not checked.

    Raises:
        UserError: the file cannot be read, or its contents do not hold up; see docs/logs.md.
        ValueError: `torque_limit` has another shape.
    """
    path = Path(path)
    joint_names, foot_names = tuple(joint_names), tuple(foot_names)
    if torque_limit is not None:
        torque_limit = np.asarray(torque_limit, dtype=float)
        if torque_limit.shape != (len(joint_names),):
            raise ValueError(
                f"torque_limit: shape {torque_limit.shape}, expected ({len(joint_names)},)"
            )
    table = read_table(path)
    groups = check_columns(table, log_groups(joint_names, foot_names))
    check_samples(table, groups, torque_limit)
    return _recording(table, groups, joint_names, foot_names)


def _recording(
    table: LogTable, groups: Sequence[Group], joints: tuple[str, ...], feet: tuple[str, ...]
) -> Recording:
    n = table.columns[TIME].size
    values: dict[str, FloatArray] = {
        group.field: np.full((n, len(group.columns)), np.nan) for group in log_groups(joints, ())
    }
    values["foot_force"] = np.full((n, len(feet), 3), np.nan)
    for group in groups:
        group.part(values[group.field])[:] = table.stack(group.columns)
    pose = ("base_position", "base_quaternion", "joint_position")
    known = {group.field for group in groups}
    qpos = np.concatenate([values[f] for f in pose], axis=1) if known >= set(pose) else None
    return Recording(
        joint_names=joints,
        foot_names=feet,
        time=table.columns[TIME] - table.meta.get("onset_s", 0.0),
        qpos=np.empty((n, 0)) if qpos is None else qpos,
        command={
            name.removeprefix(COMMAND): column
            for name, column in table.columns.items()
            if name.startswith(COMMAND)
        },
        meta={key: value for key, value in table.meta.items() if key not in RESERVED_KEYS},
        fell=table.meta.get("fell", 0.0) == 1.0,
        **values,
    )


def write_log(recording: Recording, path: Path | str) -> Path:
    """Write a recording as a log, whole or not at all; the inverse of :func:`read_log`.

    The log's clock is the recording's, so `onset_s` is 0, and every number is written exactly.
    Groups and metadata that are NaN are left out, and so is `qpos`.

    Raises:
        UserError: the suffix is none of a log, or pyarrow is missing for `.parquet`.
        ValueError: a group is NaN in part or infinite, or a name or key cannot be written.
    """
    path = Path(path)
    columns = {TIME: recording.time}
    for group in log_groups(recording.joint_names, recording.foot_names):
        part = group.part(getattr(recording, group.field))
        if group.field == "joint_position" or not np.all(np.isnan(part)):
            columns |= dict(zip(group.columns, part.T, strict=True))
    for name, signal in recording.command.items():
        if not np.all(np.isnan(signal)):
            columns[COMMAND + name] = signal
    reserved = sorted(k for k in recording.meta if k in RESERVED_KEYS or is_misspelt(k))
    if reserved:
        raise ValueError(f"meta: {reserved[0]!r} is or resembles a key of the log's own; rename it")
    meta = {"format": float(FORMAT_VERSION), "onset_s": 0.0, "fell": float(recording.fell)}
    meta |= {key: value for key, value in recording.meta.items() if not np.isnan(value)}

    for name, values in (columns | meta).items():
        if not np.all(np.isfinite(values)):
            raise ValueError(f"{name}: has NaN or infinite values, which a log cannot hold")
        if not name.isprintable() or name != name.strip() or name == COMMAND:
            raise ValueError(f"{name!r}: no name, blanks at an end, or control characters in it")
    for key in meta:
        if ":" in key or not key or key.startswith("#"):
            raise ValueError(f"meta: {key!r} cannot be a key of a log")
    return write_table(path, columns, meta)


def common_time(simulated: Recording, reference: Recording) -> FloatArray:
    """Stamps of the simulated recording that the reference covers, too, shape (N,), in [s].

    Raises:
        ValueError: the two share no time.
    """
    slack = 1e-3 * min(simulated.step_s, reference.step_s)
    time = simulated.time
    keep = (time >= reference.time[0] - slack) & (time <= reference.time[-1] + slack)
    if not keep.any():
        raise ValueError("the two recordings share no time")
    return time[keep]


def resample(recording: Recording, time: ArrayLike) -> Recording:
    """The recording at other times: linear between samples, spherically so for the base.

    At a stamp of the recording the values are its own. NaN stays NaN.

    Args:
        recording: T samples.
        time: shape (N,), in [s] from the command's onset, strictly increasing and within the
            recording, but for a thousandth of a step.

    Raises:
        ValueError: times outside the recording, or not increasing.
    """
    time = np.asarray(time, dtype=float)
    slack = 1e-3 * recording.step_s
    first, last = recording.time[0], recording.time[-1]
    if time.ndim != 1 or not np.all((time >= first - slack) & (time <= last + slack)):
        raise ValueError(f"times outside the recording, which covers {first:g} to {last:g} s")
    before = np.clip(np.searchsorted(recording.time, time, side="right") - 1, 0, None)
    after = np.minimum(before + 1, recording.time.size - 1)
    step = recording.time[after] - recording.time[before]
    part = np.zeros_like(time)
    np.divide(time - recording.time[before], step, out=part, where=step > 0.0)
    part = np.clip(part, 0.0, 1.0)

    def linear(values: FloatArray) -> FloatArray:
        a, b = values[before], values[after]
        share = part.reshape(-1, *[1] * (values.ndim - 1))
        # Not only faster: b may be NaN where it does not count.
        return np.where(share == 0.0, a, a + share * (b - a))

    arrays = {name: linear(getattr(recording, name)) for name in Recording.array_names()}
    quaternion = recording.base_quaternion
    arrays["base_quaternion"] = _slerp(quaternion[before], quaternion[after], part)
    if recording.qpos.shape[1] >= 7:  # a free joint comes first
        pose = recording.qpos[:, 3:7]
        arrays["qpos"][:, 3:7] = _slerp(pose[before], pose[after], part)
    command = {name: linear(signal) for name, signal in recording.command.items()}
    return replace(recording, **(arrays | {"time": time}), command=command)


def _slerp(a: FloatArray, b: FloatArray, part: FloatArray) -> FloatArray:
    """Between rotations a and b of shape (N, 4), the shorter way; norms may be a little off 1."""
    cosine = np.sum(a * b, axis=1)
    b = np.where(cosine[:, None] < 0.0, -b, b)  # q and -q are one rotation
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    ratio = np.ones_like(part)
    np.divide(np.abs(cosine), norms, out=ratio, where=norms > 0.0)
    angle = np.arccos(np.clip(ratio, 0.0, 1.0))
    near = ~(angle > 1e-6)  # where the arc is straight to rounding; NaN goes here, too
    sine = np.where(near, 1.0, np.sin(angle))
    share_a = np.where(near, 1.0 - part, np.sin((1.0 - part) * angle) / sine)
    share_b = np.where(near, part, np.sin(part * angle) / sine)
    mixed = share_a[:, None] * a + share_b[:, None] * b
    return np.where(part[:, None] == 0.0, a, mixed)
