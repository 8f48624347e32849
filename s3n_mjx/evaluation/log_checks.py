"""What can be wrong with a measured log, each as one line that a person can act on.

A robot's logger is another program on another machine; most of its mistakes (a clock that jumps,
degrees, a quaternion in another order) would otherwise pass as a gap between robot and simulator.
Only what is never right is refused: a doubtful case passes.
"""

import difflib
from collections.abc import Sequence

import numpy as np

from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.log_files import COMMAND, TIME, Group, LogTable, shown
from s3n_mjx.evaluation.recording import FloatArray

FORMAT_VERSION = 1
# Metadata of the file; all other keys are the recording's.
RESERVED_KEYS = ("format", "onset_s", "fell")

# What no legged robot does, but the same motion in another unit soon does.
_LIMITS = (
    ("joint_position", 4.0 * np.pi, "rad", "degrees"),
    ("joint_velocity", 200.0, "rad/s", "degrees per second"),
    ("base_linear_velocity", 50.0, "m/s", "millimetres per second"),
    ("base_angular_velocity", 100.0, "rad/s", "degrees per second"),
)
_SLOWEST_STEP_S = 0.2
_JUMP = 5.0  # times the median step
_LONGEST_WAIT_S = 1e5  # between onset and the first sample; a day
_HIGHEST_BASE_M = 10.0
_FOOT_FORCE_MEAN_N = (0.5, 1e4)
_QUATERNION_NORM = 0.05
_TORQUE = 3.0  # times the motor's limit


def is_misspelt(key: str) -> bool:
    """Whether a key of the metadata is meant for `onset_s` and would go unheard."""
    return key.lower().startswith("onset") and key != "onset_s"


def check_columns(table: LogTable, groups: Sequence[Group]) -> list[Group]:
    """Refuse metadata and columns that are unknown, and columns that are missing.

    Args:
        table: the log.
        groups: all that it may have.

    Returns:
        The groups that it has.

    Raises:
        UserError: names the column.
    """
    _check_meta(table)  # first: another format has other columns
    known = [TIME, *(name for group in groups for name in group.columns)]
    # A misspelt column is also a missing one; its own name helps more, so this comes first.
    for name in table.columns:
        is_command = name.startswith(COMMAND) and name != COMMAND and name.isprintable()
        if name in known or is_command:
            continue
        _, slash, rest = name.partition("/")
        candidates = [*known, COMMAND + rest] if slash and rest else known
        close = difflib.get_close_matches(name, candidates, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "remove it; names are in docs/logs.md"
        raise UserError(f"{table.path}: unknown column {shown(name)}; {hint}")

    present = []
    for group in [Group("time", (TIME,)), *groups]:
        missing = [name for name in group.columns if name not in table.columns]
        if not missing:
            present.append(group)
            continue
        required = group.field in ("time", "joint_position")
        if required or len(missing) < len(group.columns):
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            hint = "add it" if required else "give all columns of its group, or none"
            raise UserError(f"{table.path}: column {missing[0]!r} is missing{more}; {hint}")
    return present[1:]


def _check_meta(table: LogTable) -> None:
    for key, value in table.meta.items():
        if not np.isfinite(value):
            raise table.error(shown(key), f"{value} is no finite number; correct or remove it")
        if is_misspelt(key):
            raise table.error(shown(key), "unknown key; did you mean 'onset_s'?")
    version = table.meta.get("format", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise table.error("format", f"is {version:g}, this program reads {FORMAT_VERSION}")
    if table.meta.get("fell", 0.0) not in (0.0, 1.0):
        raise table.error("fell", f"is {table.meta['fell']:g}; write 1 for a fall, 0 for none")


def check_samples(
    table: LogTable, groups: Sequence[Group], torque_limit: FloatArray | None = None
) -> None:
    """Refuse gaps, a clock that cannot be, and numbers that must be in another unit.

    Args:
        table: the log.
        groups: those that it has.
        torque_limit: shape (nu,), in [N m]; torques go unchecked without it.

    Raises:
        UserError: names the column and the first sample.
    """
    _check_finite(table)
    # Numbers near the largest float, or the smallest, overflow on the way to being refused.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        _check_time(table)
        _check_magnitudes(table, groups)
        if torque_limit is not None:
            _check_torques(table, groups, torque_limit)
        _check_forces(table, groups)
        _check_quaternions(table, groups)


def _check_finite(table: LogTable) -> None:
    for name, column in table.columns.items():
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size:
            raise table.error(
                name,
                f"{bad.size} of {column.size} values are NaN or infinite, the first at"
                f" {table.where(int(bad[0]))}; fill the gap, cut it off, or leave the group out",
            )


def _check_time(table: LogTable) -> None:
    time = table.columns[TIME]
    step = np.diff(time)
    back = np.flatnonzero(~(step > 0.0))
    if back.size:
        i = int(back[0]) + 1
        raise table.error(
            TIME,
            f"does not increase at {table.where(i)}: {time[i - 1]:.12g} s, then"
            f" {time[i]:.12g} s; sort the samples, drop repeated ones, write more digits",
        )
    if step.size:
        median = float(np.median(step))
        if median >= _SLOWEST_STEP_S:
            # Control loops log every 0.1 to 20 ms, which tells the units apart.
            unit = "milli" if median < 50.0 else "micro" if median < 5e4 else "nano"
            raise table.error(
                TIME, f"median step {median:g} s looks like {unit}seconds; convert it to seconds"
            )
        jump = np.flatnonzero(step > _JUMP * median)
        if jump.size:
            i = int(jump[0]) + 1
            raise table.error(
                TIME,
                f"clock jumps by {step[i - 1]:g} s at {table.where(i)} ({time[i - 1]:.12g} to"
                f" {time[i]:.12g} s), the median step is {median:g} s; cut the log there, or"
                " mend its clock",
            )
    else:
        median = 0.0
    _check_onset(table, time, median)


def _check_onset(table: LogTable, time: FloatArray, step: float) -> None:
    covers = f"the log covers {time[0]:.12g} to {time[-1]:.12g} s"
    if "onset_s" not in table.meta:
        # Taking 0 unasked for the onset of a log on any other clock would only shift its phase,
        # which no later figure shows as a mistake.
        if not time[0] - 1.5 * step <= 0.0 <= time[-1]:
            raise table.error(
                "onset_s",
                f"missing, and {covers}; add it: the log's time at which the command starts",
            )
        return
    onset = table.meta["onset_s"]
    if onset > time[-1] or time[0] - onset > _LONGEST_WAIT_S:
        raise table.error(
            "onset_s", f"{onset:.12g} s is not the start of this trial: {covers}; correct it"
        )


def _check_magnitudes(table: LogTable, groups: Sequence[Group]) -> None:
    present = {group.field: group for group in groups}
    for field, limit, unit, other in _LIMITS:
        for name in present[field].columns if field in present else ():
            column = table.columns[name]
            i = int(np.argmax(np.abs(column)))
            if abs(column[i]) > limit:
                raise table.error(
                    name,
                    f"{column[i]:g} {unit} at {table.where(i)} looks like {other}; convert the"
                    f" column to {unit}",
                )
    if "base_position" in present:
        height = float(np.median(table.columns["base_position/z_m"]))
        if abs(height) > _HIGHEST_BASE_M:
            raise table.error(
                "base_position/z_m",
                f"median {height:g} m looks like millimetres; convert to m, counted from the floor",
            )


def _check_torques(table: LogTable, groups: Sequence[Group], torque_limit: FloatArray) -> None:
    names = next((group.columns for group in groups if group.field == "motor_torque"), None)
    if names is None:
        return
    for name, limit in zip(names, torque_limit, strict=True):
        column = table.columns[name]
        i = int(np.argmax(np.abs(column)))
        if abs(column[i]) > _TORQUE * limit:
            raise table.error(
                name,
                f"{column[i]:g} N m at {table.where(i)} is more than {_TORQUE:g} times the motor's"
                f" limit of {limit:g} N m and looks like N mm or counts; convert it to N m",
            )


def _check_forces(table: LogTable, groups: Sequence[Group]) -> None:
    feet = [group.columns for group in groups if group.field == "foot_force"]
    if not feet:
        return
    force = np.stack([table.stack(names) for names in feet], axis=1)
    mean = float(np.mean(np.linalg.norm(force, axis=-1)))
    smallest, largest = _FOOT_FORCE_MEAN_N
    if mean < smallest:
        raise table.error(
            "foot_force",
            f"mean norm {mean:g} N looks like kN, or like plates that were off; convert it to N,"
            " or leave the columns out",
        )
    if mean > largest:
        raise table.error(
            "foot_force", f"mean norm {mean:g} N looks like mN or counts; convert it to N"
        )
    vertical = float(np.mean(force[..., 2]))
    if vertical < -smallest:
        raise table.error(
            "foot_force",
            f"mean vertical force {vertical:g} N pulls the feet down; give the ground's force on"
            " the foot, z up (change the signs of a plate that gives the foot's force on it)",
        )


def _check_quaternions(table: LogTable, groups: Sequence[Group]) -> None:
    present = {group.field: group.columns for group in groups}
    if "base_quaternion" not in present:
        return
    quaternion = table.stack(present["base_quaternion"])
    norm = np.linalg.norm(quaternion, axis=1)
    bad = np.flatnonzero(~(np.abs(norm - 1.0) <= _QUATERNION_NORM))
    if bad.size:
        raise table.error(
            "base_quaternion",
            f"norm {norm[bad[0]]:g} at {table.where(int(bad[0]))}, expected 1; give unit"
            " quaternions, w x y z",
        )
    # An upright x y z w is also an upright w x y z, turned about: the posture cannot tell the
    # order. A gyroscope can, since the misread one turns the other way or about another axis.
    time = table.columns[TIME]
    if "base_angular_velocity" not in present or time.size < 3:
        return
    rate = table.stack(present["base_angular_velocity"])

    def gap(order: list[int]) -> float:
        return float(np.sqrt(np.mean(np.square(_body_rate(time, quaternion[:, order]) - rate))))

    size = float(np.sqrt(np.mean(np.square(rate))))
    if size > 0.05 and gap([0, 1, 2, 3]) > 0.7 * size and gap([3, 0, 1, 2]) < 0.35 * size:
        raise table.error(
            "base_quaternion",
            "agrees with base_angular_velocity only as x y z w; give it as w x y z",
        )


def _body_rate(time: FloatArray, quaternion: FloatArray) -> FloatArray:
    """Angular velocity in the body frame by differences, 2 conj(q) dq/dt, shape (T, 3)."""
    turn = np.sign(np.sum(quaternion[1:] * quaternion[:-1], axis=1))
    sign = np.cumprod(np.where(turn < 0.0, -1.0, 1.0))  # q and -q are one rotation
    quaternion = quaternion * np.concatenate([[1.0], sign])[:, None]
    change = np.gradient(quaternion, time, axis=0)
    w, v = quaternion[:, :1], quaternion[:, 1:]
    return 2.0 * (w * change[:, 1:] - v * change[:, :1] - np.cross(v, change[:, 1:]))
