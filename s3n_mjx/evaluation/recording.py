"""What a robot answers to a command, over one episode: the form every evaluation reads.

The MJX simulator, the closed-chain model and a measured log all end up as a
:class:`Recording`, so that metrics, plots and videos never ask where the numbers came from.
This module holds and stores them; it judges nothing (see `metrics.py`) and runs nothing.
"""

import zipfile
import zlib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.files import written_whole

FloatArray = NDArray[np.float64]

_FORMAT_VERSION = 1
_NAMES = ("joint_names", "foot_names")
# What numpy raises on a file that is something else: cut short, no zip, no npz, other keys.
_UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def _read_only(values: object) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class Recording:
    """One episode, sampled at the simulation step rate. T samples, all arrays read-only.

    What a source cannot give (a log without a force plate under some foot) is NaN there.

    Attributes:
        joint_names: names of the actuated joints, nu of them.
        foot_names: names of the feet, nfeet of them.
        time: shape (T,), in [s] from the onset of the command, strictly increasing. The
            command's phase is counted from 0, so cutting a recording keeps the stamps.
        joint_position: shape (T, nu), in [rad], serial coordinates.
        joint_velocity: shape (T, nu), in [rad/s], serial coordinates.
        motor_torque: shape (T, nu), in [N m], actuator coordinates: what the motor applies,
            after clip and delay.
        base_position: shape (T, 3), in [m], world frame.
        base_quaternion: shape (T, 4), w x y z, body to world.
        base_linear_velocity: shape (T, 3), in [m/s], world frame.
        base_angular_velocity: shape (T, 3), in [rad/s], body frame.
        foot_force: shape (T, nfeet, 3), in [N], force of the ground on the foot, world frame.
        qpos: shape (T, nq), the model's configuration, for rendering only.
        command: signals of shape (T,); for pitching "pitch_rad" and "pitch_rate_rad_s", for a
            circle "vx_m_s" and "wz_rad_s".
        meta: scalars of the episode, such as "frequency_hz" or "vx_command_m_s".
        fell: whether the episode ended in a fall.

    Raises:
        ValueError: an array's shape disagrees with the rest, or time does not increase.
    """

    joint_names: tuple[str, ...]
    foot_names: tuple[str, ...]
    time: FloatArray
    joint_position: FloatArray
    joint_velocity: FloatArray
    motor_torque: FloatArray
    base_position: FloatArray
    base_quaternion: FloatArray
    base_linear_velocity: FloatArray
    base_angular_velocity: FloatArray
    foot_force: FloatArray
    qpos: FloatArray
    command: dict[str, FloatArray] = field(default_factory=dict)
    meta: dict[str, float] = field(default_factory=dict)
    fell: bool = False

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)  # the dataclass is frozen

        for name in _NAMES:
            put(name, tuple(str(n) for n in getattr(self, name)))
        for name in self.array_names():
            put(name, _read_only(getattr(self, name)))
        put("command", {str(k): _read_only(v) for k, v in self.command.items()})
        put("meta", {str(k): float(v) for k, v in self.meta.items()})
        put("fell", bool(self.fell))
        self._check()

    def _check(self) -> None:
        if self.time.ndim != 1 or self.time.size == 0:
            raise ValueError(f"time: shape {self.time.shape}, expected (T,) with T at least 1")
        n, nu, nfeet = self.time.size, len(self.joint_names), len(self.foot_names)
        expected = {
            "joint_position": (n, nu),
            "joint_velocity": (n, nu),
            "motor_torque": (n, nu),
            "base_position": (n, 3),
            "base_quaternion": (n, 4),
            "base_linear_velocity": (n, 3),
            "base_angular_velocity": (n, 3),
            "foot_force": (n, nfeet, 3),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name}: shape {getattr(self, name).shape}, expected {shape}")
        if self.qpos.ndim != 2 or len(self.qpos) != n:
            raise ValueError(f"qpos: shape {self.qpos.shape}, expected ({n}, nq)")
        for name, signal in self.command.items():
            if signal.shape != (n,):
                raise ValueError(f"command[{name!r}]: shape {signal.shape}, expected {(n,)}")
        if not np.all(np.diff(self.time) > 0.0):  # written so that NaN fails too
            raise ValueError("time: must increase strictly from sample to sample")

    @classmethod
    def array_names(cls) -> tuple[str, ...]:
        """Names of the fields that are arrays with time as their first axis."""
        others = {*_NAMES, "command", "meta", "fell"}
        return tuple(f.name for f in fields(cls) if f.name not in others)

    @property
    def step_s(self) -> float:
        """Time between samples (the median), in [s]; 0 for a single sample."""
        return float(np.median(np.diff(self.time))) if self.time.size > 1 else 0.0

    @property
    def duration_s(self) -> float:
        """Time covered by the T samples, each standing for one step, in [s]."""
        return self.time.size * self.step_s

    @property
    def pitch(self) -> FloatArray:
        """Shape (T,), in [rad]: the ZYX pitch angle, a rotation about +y, so nose down > 0."""
        w, x, y, z = self.base_quaternion.T
        # Dividing by the squared norm accepts quaternions that integration has drifted off 1.
        sine = 2.0 * (w * y - x * z) / (w * w + x * x + y * y + z * z)
        return np.arcsin(np.clip(sine, -1.0, 1.0))

    @property
    def roll(self) -> FloatArray:
        """Shape (T,), in [rad]: the ZYX roll angle, a rotation about +x."""
        w, x, y, z = self.base_quaternion.T
        return np.arctan2(2.0 * (w * x + y * z), w * w - x * x - y * y + z * z)

    @property
    def pitch_rate(self) -> FloatArray:
        """Shape (T,), in [rad/s]: d(pitch)/dt = cos(roll) w_y - sin(roll) w_z, w in the body.

        Taken from the angular velocity rather than by differencing the pitch, which would
        amplify the noise of a measured log.
        """
        roll = self.roll
        _, w_y, w_z = self.base_angular_velocity.T
        return np.cos(roll) * w_y - np.sin(roll) * w_z

    @property
    def body_velocity(self) -> FloatArray:
        """Shape (T, 3), in [m/s]: linear velocity in the body frame, forward, left, up."""
        w, xyz = self.base_quaternion[:, :1], self.base_quaternion[:, 1:]
        squared = np.sum(self.base_quaternion**2, axis=1, keepdims=True)
        twice = 2.0 * np.cross(self.base_linear_velocity, xyz) / squared
        return self.base_linear_velocity + w * twice + np.cross(twice, xyz)

    @property
    def yaw_rate(self) -> FloatArray:
        """Shape (T,), in [rad/s]: about the body's own vertical axis, as a gyro reads it."""
        return self.base_angular_velocity[:, 2]

    @property
    def foot_force_norm(self) -> FloatArray:
        """Shape (T, nfeet), in [N]: Euclidean norm of the ground reaction force."""
        return np.linalg.norm(self.foot_force, axis=-1)

    def slice_time(self, start_s: float, stop_s: float = np.inf) -> "Recording":
        """Samples with start_s <= time < stop_s, in [s]; stamps, meta and `fell` are kept.

        Raises:
            ValueError: no sample lies in that interval.
        """
        # A thousandth of a step forgives the rounding of k * dt at both ends.
        slack = 1e-3 * self.step_s
        keep = (self.time >= start_s - slack) & (self.time < stop_s - slack)
        if not keep.any():
            raise ValueError(
                f"no sample in [{start_s:g}, {stop_s:g}) s; the recording covers "
                f"{self.time[0]:g} to {self.time[-1]:g} s"
            )
        return replace(
            self,
            **{name: getattr(self, name)[keep] for name in self.array_names()},
            command={name: signal[keep] for name, signal in self.command.items()},
        )

    def save(self, path: Path | str) -> Path:
        """Write to `path` as compressed npz, whole or not at all; return the path."""
        path = Path(path)
        content = {name: getattr(self, name) for name in self.array_names()}
        content |= {name: np.array(getattr(self, name), dtype=np.str_) for name in _NAMES}
        content |= {f"command/{name}": signal for name, signal in self.command.items()}
        content |= {f"meta/{name}": np.float64(value) for name, value in self.meta.items()}
        content |= {"fell": np.bool_(self.fell), "format_version": np.int64(_FORMAT_VERSION)}
        # A handle, not a name: numpy would append ".npz" to a name without that suffix.
        with written_whole(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **content)
        return path

    @classmethod
    def load(cls, path: Path | str) -> "Recording":
        """Read what :meth:`save` wrote.

        Raises:
            UserError: the file is missing, or is no recording of this format.
        """
        path = Path(path)
        try:
            # Opened here, since numpy leaves its own handle open on a file cut short.
            with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                content = {name: file[name] for name in file.files}
            version = int(content.pop("format_version"))
            if version != _FORMAT_VERSION:
                raise UserError(
                    f"{path}: recording of format {version}, this program reads "
                    f"{_FORMAT_VERSION}; record it anew"
                )

            def group(prefix: str) -> dict[str, FloatArray]:
                names = [name for name in content if name.startswith(prefix)]
                return {name.removeprefix(prefix): content[name] for name in names}

            values: dict[str, Any] = {name: content[name] for name in cls.array_names()}
            values |= {name: tuple(content[name].tolist()) for name in _NAMES}
            values["command"] = group("command/")
            values["meta"] = {name: float(value) for name, value in group("meta/").items()}
            values["fell"] = bool(content["fell"])
            return cls(**values)
        except FileNotFoundError:
            raise UserError(f"{path}: no such recording") from None
        except _UNREADABLE as e:
            raise UserError(f"{path}: not a recording ({e})") from e
