"""The stand-in's test benches: a motor alone, and a leg on a stand, driven by a multisine.

What they give is what a lab's recorder would: torque logs. They know the true parameters only as
far as the robot description and its closed-chain MJCF hold them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s3n_mjx.identification.excitation import Multisine
from s3n_mjx.identification.logs import TorqueLog
from s3n_mjx.reference.closed_chain import ClosedChain
from s3n_mjx.reference.imperfections import LEVELS, Level
from s3n_mjx.robot.description import Motor
from s3n_mjx.robot.model import Robot

Array = NDArray[np.float64]

# At 0.1 ms MuJoCo's friction, which turns within two steps, passes for 0.05 % of inertia.
_STEP_S = 5e-5


class Mode(StrEnum):
    """Which way both motors of a leg are driven; the two make independent inputs (Eq. 30)."""

    SUM = "sum"
    DIFFERENCE = "difference"


_SIGNS = {Mode.SUM: (1.0, 1.0), Mode.DIFFERENCE: (1.0, -1.0)}


def _steps(excitation: Multisine) -> int:
    return max(1, round(1.0 / excitation.rate_hz / _STEP_S))


def _log(excitation: Multisine, name: str, motors: tuple[str, ...], limit: float, **signals):
    return TorqueLog(
        path=Path(name),
        motors=motors,
        time=excitation.times(),
        period_s=excitation.period_s,
        low_hz=excitation.low_hz,
        high_hz=excitation.high_hz,
        odd=excitation.odd,
        torque_limit=limit,
        **signals,
    )


def motor_bench(
    motor: Motor,
    delay_s: float,
    excitation: Multisine,
    name: str = "motor",
    level: Level = Level.IDEAL,
    seed: int = 0,
) -> TorqueLog:
    """A free motor with its gear under open-loop torque (paper, section IV-A).

    Args:
        motor: its inertia, damping and torque limit.
        delay_s: of the command path.
        excitation: torque, with the rate at which it is commanded and sampled.
        name: of the motor in the log.
        level: imperfections.
        seed: of their noise.
    """
    im, rng = LEVELS[level], np.random.default_rng(seed)
    rotor = _Rotor(motor.reflected_inertia, motor.reflected_damping, im.coulomb_friction_nm)
    torque = np.clip(excitation.signal(), -motor.torque_limit, motor.torque_limit)
    position, velocity = np.empty_like(torque), np.empty_like(torque)
    period = 1.0 / excitation.rate_hz
    whole, part = divmod(delay_s, period)
    late = np.concatenate([np.zeros(int(whole) + 1), torque])
    angle = speed = 0.0
    for k in range(len(torque)):
        position[k], velocity[k] = angle, speed
        # During a sample the older command acts first, for the delay's broken part.
        for command, time in ((late[k], part), (late[k + 1], period - part)):
            before = speed
            speed = rotor.speed_after(speed, command, time)
            angle += time * (before + speed) / 2
    position = position + im.encoder_noise_rad * rng.standard_normal(len(position))
    velocity = velocity + im.velocity_noise_rad_s * rng.standard_normal(len(velocity))
    return _log(
        excitation,
        f"motor bench, {level}",
        (name,),
        motor.torque_limit,
        torque=torque[:, None],
        position=position[:, None],
        velocity=velocity[:, None],
    )


def leg_bench(
    stand: Robot,
    leg: str,
    mode: Mode,
    excitation: Multisine,
    alpha: float,
    level: Level = Level.IDEAL,
    seed: int = 0,
    gravity: bool = False,
) -> TorqueLog:
    """A leg of the closed chain about a posture, held by its position loop (Eq. 30).

    Args:
        stand: robot on a stand.
        leg: whose pair is driven.
        mode: signs of both motors.
        excitation: torque added to that of the position loop.
        alpha: distal joint's angle in rad; the sign of its range is taken where only that fits.
        level: imperfections.
        seed: of the links' errors and the noise.
        gravity: whether the leg has weight.
    """
    plant = ClosedChain(
        stand, 1.0 / excitation.rate_hz, level, seed,
        timestep_s=1.0 / excitation.rate_hz / _steps(excitation), gravity=gravity,
    )  # fmt: skip
    pair = next(p for p in stand.pairs if p.leg == leg)
    motors = [pair.proximal, pair.distal]
    joints = stand.home_joints.copy()
    joints[pair.distal] = alpha
    injected = np.zeros((len(excitation.times()), len(stand.joints)))
    injected[:, motors] = np.multiply.outer(excitation.signal(), _SIGNS[mode])
    plant.reset(joints, joints)
    samples = plant.run(joints, len(injected), injected)
    every = plant.steps_per_control
    to_motor = stand.actuator_map.T
    return _log(
        excitation,
        f"leg bench, {mode}, {level}",
        tuple(stand.joints[i] for i in motors),
        float(min(stand.torque_limit[motors])),
        torque=samples.motor_command[::every][:, motors],
        position=(samples.joint_position @ to_motor)[::every][:, motors],
        velocity=(samples.joint_velocity @ to_motor)[::every][:, motors],
    )


@dataclass(frozen=True)
class _Rotor:
    """``J v' = tau - B v - F sign(v)``, solved exactly for a constant torque."""

    inertia: float  # kg m^2
    damping: float  # N m s/rad
    friction: float  # N m

    def speed_after(self, speed: float, torque: float, time: float) -> float:
        """Speed in rad/s after ``time`` in s under ``torque`` in N m."""
        while time > 0.0:
            direction = math.copysign(1.0, speed if speed else torque)
            drive = torque - direction * self.friction
            if speed == 0.0 and drive * direction <= 0.0:
                return 0.0  # it sticks
            decay = time * self.damping / self.inertia
            share = -math.expm1(-decay) / decay if decay else 1.0
            after = speed * math.exp(-decay) + drive * share * time / self.inertia
            if after * direction >= 0.0 or not self.friction:
                return after
            # Friction turns where the motor stops: go on from there.
            time -= self._time_to_stop(speed, drive)
            speed = 0.0
        return speed

    def _time_to_stop(self, speed: float, drive: float) -> float:
        if not self.damping:
            return -speed * self.inertia / drive
        return self.inertia / self.damping * math.log1p(-self.damping * speed / drive)


def describe(excitation: Multisine) -> str:
    """One line for people."""
    return (
        f"multisine of {len(excitation.lines)} {'odd ' if excitation.odd else ''}lines,"
        f" {excitation.low_hz:g} to {excitation.high_hz:g} Hz, peak {excitation.amplitude_nm:g}"
        f" N m, crest factor {excitation.crest_factor:.2f}, {excitation.periods} periods of"
        f" {excitation.period_s:g} s after {excitation.settle_periods} to settle"
    )
