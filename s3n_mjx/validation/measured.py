"""Measured logs of the contact-free test as its reference, and the reference as such logs.

One log is one sweep of one leg. Its columns are those of every log (docs/logs.md); its metadata
say what was commanded, so that the simulator is commanded the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s3n_mjx.config_files import parse
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.log_files import read_table
from s3n_mjx.evaluation.logs import read_log, write_log
from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.robot.model import ResolvedPair, Robot
from s3n_mjx.validation.comparison import Reference, Setup, command_delay
from s3n_mjx.validation.excitation import Chirp, Excited
from s3n_mjx.validation.leg import ReferenceResponse

Array = NDArray[np.float64]

# Field of Chirp by key of the metadata.
CHIRP_KEYS = {
    "chirp_amplitude_rad": "amplitude_rad",
    "chirp_start_hz": "start_hz",
    "chirp_stop_hz": "stop_hz",
    "chirp_duration_s": "duration_s",
}
_EXCITED = {(1.0, 0.0): Excited.HIP, (0.0, 1.0): Excited.KNEE, (1.0, 1.0): Excited.BOTH}
_YES_NO = ("excited_hip", "excited_knee", "gravity", "torque_held")
_LOOP = "position_loop_s"

# How much of the sweep's end a recorder may miss. The simulator's steps need not divide the sweep,
# so a simulated run may end half a step before it, too.
_MISSED_END_S = 0.02
# Farther than that from home at the sweep's beginning, no weight of a leg explains it.
_FAR_FROM_HOME_RAD = 0.3
# In a period of the highest frequency; linear interpolation errs by 5 % of the amplitude then.
_FEWEST_SAMPLES = 10
# Torques are means over halves of a simulation step: both timings then average whole ones.
_CELLS = 2


@dataclass(frozen=True, eq=False)
class LegLog:
    """One sweep of one leg.

    Attributes:
        path: of the file, for messages.
        time: (T,) s from the sweep's beginning.
        position: (T, 2) rad, serial coordinates: proximal and distal joint.
        torque: (T, 2) N m, actuator coordinates.
        excited: which motors followed the chirp.
        chirp: the command; it begins at home.
        gravity: whether the leg had weight.
        torque_held: whether a torque acts from its time to the next one; otherwise it is a
            sample of a continuous one.
        position_loop_s: period of the position loop; 0 where it is not known.
    """

    path: Path
    time: Array
    position: Array
    torque: Array
    excited: Excited
    chirp: Chirp
    gravity: bool
    torque_held: bool
    position_loop_s: float


def read_leg_logs(paths: Sequence[Path], robot: Robot, pair: ResolvedPair) -> list[LegLog]:
    """One log for each excitation, all of the same test.

    Args:
        paths: of the logs.
        robot: on its stand or not.
        pair: the leg's, of ``robot``.

    Raises:
        UserError: a log does not hold up, or two are of different tests or the same excitation.
    """
    logs = [_read(path, robot, pair) for path in paths]
    first = logs[0]
    seen: dict[Excited, Path] = {}
    for log in logs:
        for key, field in CHIRP_KEYS.items():
            one, other = getattr(first.chirp, field), getattr(log.chirp, field)
            if one != other:
                raise UserError(
                    f"{log.path}: {key} is {other:g}, in {first.path} it is {one:g}; compare them"
                    " one by one"
                )
        if log.gravity != first.gravity:
            raise UserError(
                f"{log.path}: gravity is {log.gravity:d}, in {first.path} it is"
                f" {first.gravity:d}; compare them one by one"
            )
        if log.excited in seen:
            raise UserError(
                f"{log.path}: excites the same motors as {seen[log.excited]} ({log.excited});"
                " give one log of each excitation"
            )
        seen[log.excited] = log.path
    return logs


def _read(path: Path, robot: Robot, pair: ResolvedPair) -> LegLog:
    limits = {
        entry.joint: robot.description.motors[entry.motor].torque_limit
        for entry in robot.description.driven
    }
    wanted = [robot.joints[pair.proximal], robot.joints[pair.distal]]
    names = _joints_of(path, limits, wanted, robot, pair)
    # Feet are named so that a log of a whole robot passes; their forces are not looked at.
    log = read_log(path, names, robot.feet, [limits[name] for name in names])
    columns = [names.index(name) for name in wanted]
    position, torque = log.joint_position[:, columns], log.motor_torque[:, columns]
    if np.isnan(torque).any():
        raise UserError(
            f"{path}: column 'motor_torque/{wanted[0]}_n_m' is missing (and that of {wanted[1]});"
            " the leg test compares torques, too: add them"
        )
    result = LegLog(path, log.time, position, torque, **_described(path, log.meta))
    _check(result, log.step_s, wanted, robot.home_joints[[pair.proximal, pair.distal]])
    return result


def _joints_of(
    path: Path, known: dict[str, float], wanted: list[str], robot: Robot, pair: ResolvedPair
) -> list[str]:
    """Joints that the log has: of one leg, as a rig with nothing else, or of more of the robot."""
    columns = read_table(path).columns
    present = [name for name in known if f"joint_position/{name}_rad" in columns]
    if present and not set(wanted) & set(present):
        legs = [
            p.leg
            for p in robot.pairs
            if {robot.joints[p.proximal], robot.joints[p.distal]} <= {*present}
        ]
        if legs:
            raise UserError(
                f"{path}: has no joints of leg {pair.leg}, but those of {', '.join(legs)}; give"
                f" --leg {legs[0]}"
            )
    return [name for name in known if name in present or name in wanted]


def _described(path: Path, meta: dict[str, float]) -> dict:
    """What the metadata say of the test, as fields of LegLog."""
    missing = [key for key in (*CHIRP_KEYS, *_YES_NO) if key not in meta]
    if missing:
        raise UserError(
            f"{path}: metadata has no {', '.join(f'`{key}`' for key in missing)}; add"
            f" `# {missing[0]}: NUMBER` above the header{' for each' if missing[1:] else ''}, see"
            ' "Leg test" in docs/logs.md'
        )
    for key in _YES_NO:
        if meta[key] not in (0.0, 1.0):
            raise UserError(f"{path}: {key}: is {meta[key]:g}; write 1 for yes, 0 for no")
    excited = _EXCITED.get((meta["excited_hip"], meta["excited_knee"]))
    if excited is None:
        raise UserError(
            f"{path}: excited_hip and excited_knee are both 0; write 1 for a motor that followed"
            " the chirp"
        )
    loop = meta.get(_LOOP, 0.0)
    if loop < 0:
        raise UserError(f"{path}: {_LOOP}: is {loop:g}; give the period in s, or remove it")
    chirp = {field: meta[key] for key, field in CHIRP_KEYS.items()}
    return {
        "excited": excited,
        "chirp": parse(Chirp, chirp, f"{path}: metadata of the chirp"),
        "gravity": meta["gravity"] == 1.0,
        "torque_held": meta["torque_held"] == 1.0,
        "position_loop_s": loop,
    }


def _check(log: LegLog, step_s: float, joints: Sequence[str], home: Array) -> None:
    chirp = log.chirp
    slack = max(2 * step_s, _MISSED_END_S)
    if log.time[0] > 2 * step_s or log.time[-1] < chirp.duration_s - slack:
        raise UserError(
            f"{log.path}: covers {log.time[0]:.3f} to {log.time[-1]:.3f} s after onset_s; the sweep"
            f" is from 0 to {chirp.duration_s:g} s (chirp_duration_s); record all of it, or correct"
            " onset_s"
        )
    fastest = max(chirp.start_hz, chirp.stop_hz)
    if step_s * fastest * _FEWEST_SAMPLES > 1.0:
        raise UserError(
            f"{log.path}: {1 / step_s:.0f} samples per second are too few for {fastest:g} Hz;"
            f" record at {_FEWEST_SAMPLES * fastest:.0f} Hz or more"
        )
    for joint, column, rest in zip(joints, log.position.T, home, strict=True):
        begins = float(np.interp(0.0, log.time, column))
        if abs(begins - rest) > _FAR_FROM_HOME_RAD:
            raise UserError(
                f"{log.path}: 'joint_position/{joint}_rad' is {begins:.3f} rad at the sweep's"
                f" beginning, at home it is {rest:.3f} rad; correct its sign or zero, or record"
                " about the home keyframe"
            )


def logged_reference(
    logs: Sequence[LegLog], chirp: Chirp, stand: Robot, motors: Sequence[int]
) -> Reference:
    """Logs as a reference; motors of other legs are NaN.

    Args:
        logs: one for each excitation.
        chirp: theirs, with the simulator's time for settling.
        stand: the robot on its stand.
        motors: proximal and distal of the leg.
    """
    by_excitation = {log.excited: log for log in logs}
    pair = list(motors)
    to_motors = stand.actuator_map[np.ix_(pair, pair)].T

    def respond(period: float, excited: Excited, delay: float) -> ReferenceResponse:
        log = by_excitation[excited]
        stamps = chirp.times(period)
        count = np.arange(len(stamps) * _CELLS + 1, dtype=np.float64)
        edges = np.asarray(stamps[0] + period / _CELLS * count, dtype=np.float64)
        position, torque = (np.full((len(edges) - 1, len(stand.joints)), np.nan) for _ in range(2))
        # At rest before the log begins; at its end as it was last.
        serial = [np.interp(edges[:-1], log.time, column) for column in log.position.T]
        position[:, pair] = np.stack(serial, axis=1) @ to_motors
        torque[:, pair] = means(log.time, log.torque, log.torque_held, edges)
        return ReferenceResponse(edges[:-1], position, torque, loop_error_m=0.0)

    names = ", ".join(log.path.name for log in logs)
    return Reference(
        f"log{'s' if len(logs) > 1 else ''} {names}",
        respond,
        recorded=True,
        loop_period_s=max(log.position_loop_s for log in logs),
    )


def means(time: Array, values: Array, held: bool, edges: Array) -> Array:
    """Means of a sampled signal between ``edges``, whatever the rate of its samples.

    Args:
        time: (T,) s.
        values: (T, n); before the first and after the last as there.
        held: whether a value holds until the next one, instead of going there in a straight line.
        edges: (N + 1,) s.

    Returns:
        (N, n).
    """
    step = np.diff(time)[:, None]
    slope = np.zeros_like(values)
    if not held:
        slope[:-1] = np.diff(values, axis=0) / step
    integral = np.zeros_like(values)
    np.cumsum((values[:-1] + slope[:-1] * step / 2) * step, axis=0, out=integral[1:])
    at = np.maximum(np.searchsorted(time, edges, side="right") - 1, 0)
    since = (edges - time[at])[:, None]
    bend = np.where(since > 0, slope[at], 0.0)
    until = integral[at] + values[at] * since + bend * since**2 / 2
    return np.diff(until, axis=0) / np.diff(edges)[:, None]


def write_leg_logs(setup: Setup, reference: Reference, folder: Path) -> list[Path]:
    """The reference of each excitation as a log of the leg, `LEG_EXCITED.npz`.

    They have every time step of the mechanism (0.1 ms at the default step). Its torque is
    constant from one to the next and the simulator's stamps are among them, so a log at this rate
    gives the figures of the reference itself; at 1 kHz steps of the torque would be misplaced.
    """
    stand, pair = setup.stand, list(setup.motors)
    leg = next(p.leg for p in stand.pairs if [p.proximal, p.distal] == pair)
    to_serial = np.linalg.inv(stand.actuator_map[np.ix_(pair, pair)]).T
    paths = []
    for excited in setup.excitations:
        period = setup.base.timestep_s
        response = reference(period, excited, command_delay(stand))
        n = len(response.time)
        hip, knee = next(motors for motors, name in _EXCITED.items() if name is excited)
        chirp = {key: getattr(setup.chirp, field) for key, field in CHIRP_KEYS.items()}
        recording = Recording(
            joint_names=tuple(stand.joints[i] for i in pair),
            foot_names=(),
            time=response.time,
            joint_position=response.position[:, pair] @ to_serial,
            joint_velocity=np.full((n, 2), np.nan),
            motor_torque=response.torque[:, pair],
            base_position=np.full((n, 3), np.nan),
            base_quaternion=np.full((n, 4), np.nan),
            base_linear_velocity=np.full((n, 3), np.nan),
            base_angular_velocity=np.full((n, 3), np.nan),
            foot_force=np.empty((n, 0, 3)),
            qpos=np.empty((n, 0)),
            meta={
                **chirp,
                "excited_hip": hip,
                "excited_knee": knee,
                "gravity": float(setup.has_weight),
                "torque_held": 1.0,
                _LOOP: period,
            },
        )
        paths.append(write_log(recording, folder / f"{leg}_{excited}.npz"))
    return paths
