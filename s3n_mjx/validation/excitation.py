"""What the motors are commanded in the contact-free test: a chirp in position."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import ArrayLike, NDArray
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT
from s3n_mjx.errors import UserError
from s3n_mjx.robot.model import Robot


class Excited(StrEnum):
    """Which motors of each pair follow the chirp; the other one holds."""

    HIP = "hip"  # the motor of the proximal joint
    KNEE = "knee"  # the motor of the distal joint
    BOTH = "both"


_MOTORS = {Excited.HIP: (1.0, 0.0), Excited.KNEE: (0.0, 1.0), Excited.BOTH: (1.0, 1.0)}


@dataclass(frozen=True, config=STRICT)
class Chirp:
    """A linear sweep, ``amplitude sin(2 pi (f0 t + (f1 - f0) t^2 / 2T))`` (paper, section V)."""

    amplitude_rad: Annotated[float, Gt(0)] = 0.2
    start_hz: Annotated[float, Ge(0)] = 0.1
    stop_hz: Annotated[float, Gt(0)] = 25.0
    duration_s: Annotated[float, Gt(0)] = 25.0
    settle_s: Annotated[float, Ge(0)] = 1.0  # at rest before it; left out of every figure

    def __call__(self, time: ArrayLike) -> NDArray[np.float64]:
        """Rad at ``time`` in s from its beginning; 0 before that."""
        time = np.maximum(np.asarray(time, dtype=np.float64), 0.0)
        rate = (self.stop_hz - self.start_hz) / self.duration_s
        phase = 2 * np.pi * (self.start_hz * time + rate * time**2 / 2)
        return np.asarray(self.amplitude_rad * np.sin(phase), dtype=np.float64)

    def frequency(self, time: ArrayLike) -> NDArray[np.float64]:
        """Hz at ``time`` in s from its beginning."""
        share = np.asarray(time, dtype=np.float64) / self.duration_s
        frequency = self.start_hz + (self.stop_hz - self.start_hz) * share
        return np.asarray(frequency, dtype=np.float64)

    def times(self, step_s: float) -> NDArray[np.float64]:
        """Stamps of settling and sweep; the sweep begins at 0."""
        before, after = round(self.settle_s / step_s), round(self.duration_s / step_s)
        return np.arange(-before, after, dtype=np.float64) * step_s


def joint_targets(
    robot: Robot, chirp: Chirp, excited: Excited, time: ArrayLike
) -> NDArray[np.float64]:
    """Serial joint targets under which the motors follow the chirp, (T, nu) rad.

    Raises:
        UserError: a joint would be driven beyond its limits.
    """
    motors = np.zeros(len(robot.joints))
    for pair in robot.pairs:
        motors[[pair.proximal, pair.distal]] = _MOTORS[excited]
    serial = np.linalg.solve(robot.actuator_map, motors)
    reach = np.abs(serial) * chirp.amplitude_rad
    for name, home, far in zip(robot.joints, robot.home_joints, reach, strict=True):
        joint = robot.model.joint(name)
        low, high = robot.model.jnt_range[joint.id]
        if robot.model.jnt_limited[joint.id] and not low <= home - far <= home + far <= high:
            raise UserError(
                f"--amplitude-rad: {chirp.amplitude_rad:g} rad drives joint {name} from"
                f" {home:.2f} beyond its limits {low:.2f} to {high:.2f} rad"
            )
    moves = np.multiply.outer(chirp(time), serial)
    return np.asarray(robot.home_joints + moves, dtype=np.float64)
