"""What separates a real robot from its ideal mechanism, in two named levels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import mujoco
import numpy as np


class Level(StrEnum):
    """How much of a real robot the closed-chain reference has."""

    IDEAL = "ideal"  # nothing but the linkage
    REALISTIC = "realistic"  # friction, sensor noise, quantization, parameter error


@dataclass(frozen=True)
class Imperfections:
    """Zero everywhere is the ideal robot. Noise is white, standard deviation per sample."""

    coulomb_friction_nm: float = 0.0  # at the output of every motor
    encoder_step_rad: float = 0.0  # at the output
    encoder_noise_rad: float = 0.0
    velocity_noise_rad_s: float = 0.0
    torque_noise_nm: float = 0.0  # of the current sensor; it is only logged
    gyro_noise_rad_s: float = 0.0
    attitude_noise_rad: float = 0.0
    force_plate_noise_n: float = 0.0
    link_mass_error: float = 0.0  # +- share, uniform, drawn once; scales inertia with it
    link_inertia_error: float = 0.0  # +- share on top of that
    link_com_error_m: float = 0.0  # +- per axis


# Sizes as data sheets of quasi-direct drives and MEMS inertial sensors give them: friction of
# 0.5 % of the torque limit, a 15-bit encoder, links weighed to 3 %.
LEVELS: dict[Level, Imperfections] = {
    Level.IDEAL: Imperfections(),
    Level.REALISTIC: Imperfections(
        coulomb_friction_nm=0.15,
        encoder_step_rad=2.0 * np.pi / 2**15,
        encoder_noise_rad=1e-4,
        velocity_noise_rad_s=0.02,
        torque_noise_nm=0.05,
        gyro_noise_rad_s=0.005,
        attitude_noise_rad=0.001,
        force_plate_noise_n=0.3,
        link_mass_error=0.03,
        link_inertia_error=0.05,
        link_com_error_m=0.002,
    ),
}


def add_friction(joint: mujoco.MjsJoint, torque: float, timestep: float) -> None:
    """Coulomb friction on a joint, in place.

    MuJoCo's friction opposes ``acceleration + b velocity`` with ``b`` the inverse of its time
    constant: with the default of 20 ms, a motor that accelerates at 100 rad/s^2 would feel it
    against its velocity only above 1 rad/s.

    Args:
        joint: edited.
        torque: N m, added to what it has.
        timestep: s; the time constant is two of them, the least that is stable.
    """
    if torque:
        joint.frictionloss += torque
        joint.solref_friction[:] = [2.0 * timestep, 1.0]


def disturb_links(
    spec: mujoco.MjSpec, model: mujoco.MjModel, spared: set[str], imperfections: Imperfections, rng
) -> None:
    """Draw masses, inertias and centres of mass of every body anew, in place.

    Args:
        spec: edited.
        model: compiled from it, for the values to start from.
        spared: bodies that stay, such as the trunk, whose weight is easily measured.
        imperfections: sizes.
        rng: `numpy.random.Generator`.
    """
    im = imperfections
    if not (im.link_mass_error or im.link_inertia_error or im.link_com_error_m):
        return
    for body in spec.bodies:
        index = model.body(body.name).id if body.name else 0
        if index == 0 or body.name in spared or model.body_mass[index] == 0:
            continue
        mass = 1.0 + im.link_mass_error * rng.uniform(-1, 1)
        inertia = mass * (1.0 + im.link_inertia_error * rng.uniform(-1, 1))
        body.mass = model.body_mass[index] * mass
        # One factor for all axes keeps the inertia that of a body.
        body.inertia = model.body_inertia[index] * inertia
        body.fullinertia = np.full(6, np.nan)  # given as moments and a frame from here on
        body.iquat = model.body_iquat[index]
        body.ipos = model.body_ipos[index] + im.link_com_error_m * rng.uniform(-1, 1, 3)
        body.explicitinertial = True
