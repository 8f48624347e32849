"""Domain randomization: leg links (S3N paper, Table III), floor, payload, pushes, sensor noise.

Each environment draws robot and floor once, at its first reset, from its own key, and keeps them
across episodes; pushes and sensor noise it draws anew at every step. So every device has its own
robots, and a seed gives every method the same ones. The lagged S3N terms stay those of the nominal
model.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, cast

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct
from mujoco import mjx
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT, NonNegative, Positive
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.control import SimulationState

# What an environment keeps of its own robot and floor, by its names in `state.info`.
DRAWS = ("leg_links", "friction_scale", "payload_kg")

# Joint rates are observed in units of 10 rad/s.
JOINT_RATE_SCALE = 0.1


class LegRandomization(StrEnum):
    """Settings of Table III."""

    NONE = "none"
    LEG_RAND = "leg_rand"
    HEAVY_LEG_RAND = "heavy_leg_rand"


@dataclasses.dataclass(frozen=True)
class LegRandomizationRanges:
    """Half-width of the CoM offset in m per axis; factors on inertia (about the CoM) and mass."""

    com_offset_m: float
    inertia_scale: tuple[float, float]
    mass_scale: tuple[float, float]


RANGES = {
    LegRandomization.LEG_RAND: LegRandomizationRanges(0.01, (0.95, 1.05), (0.95, 1.05)),
    LegRandomization.HEAVY_LEG_RAND: LegRandomizationRanges(0.03, (0.50, 1.50), (0.70, 1.30)),
}


@struct.dataclass
class LegLinks:
    """Inertial properties of the randomized links of one robot."""

    mass: jax.Array  # (n_links,) kg
    inertia: jax.Array  # (n_links, 3) kg m^2, principal, about the CoM
    com: jax.Array  # (n_links, 3) m, body frame


def randomized_bodies(robot: Robot) -> np.ndarray:
    """Body ids of the links that the description lists, shape (n_links,)."""
    names = [link for leg in robot.description.legs for link in leg.randomized_links]
    return np.array([robot.model.body(name).id for name in names], dtype=np.int64)


def sample(key: jax.Array, ranges: LegRandomizationRanges, nominal: LegLinks) -> LegLinks:
    """Draw one robot's links, uniform within ``ranges``, independent for each link.

    A scaled inertia about the CoM stays physically valid, and MuJoCo's inertias are about the
    CoM, so that moving it changes the inertia about the joint by the parallel-axis rule.
    """
    key_mass, key_inertia, key_com = jax.random.split(key, 3)
    count = nominal.mass.shape[0]
    mass = jax.random.uniform(
        key_mass, (count,), minval=ranges.mass_scale[0], maxval=ranges.mass_scale[1]
    )
    inertia = jax.random.uniform(
        key_inertia, (count, 1), minval=ranges.inertia_scale[0], maxval=ranges.inertia_scale[1]
    )
    offset = jax.random.uniform(
        key_com, (count, 3), minval=-ranges.com_offset_m, maxval=ranges.com_offset_m
    )
    return LegLinks(nominal.mass * mass, nominal.inertia * inertia, nominal.com + offset)


def nominal_links(model: mujoco.MjModel, bodies: np.ndarray) -> LegLinks:
    """Links as the MJCF has them."""
    return LegLinks(
        jnp.asarray(model.body_mass[bodies], jnp.float32),
        jnp.asarray(model.body_inertia[bodies], jnp.float32),
        jnp.asarray(model.body_ipos[bodies], jnp.float32),
    )


def with_links(model: mjx.Model, bodies: np.ndarray, links: LegLinks) -> mjx.Model:
    """``model`` with these links in the place of its own."""
    return model.replace(
        body_mass=model.body_mass.at[bodies].set(links.mass),
        body_inertia=model.body_inertia.at[bodies].set(links.inertia),
        body_ipos=model.body_ipos.at[bodies].set(links.com),
    )


def corner_models(
    model: mujoco.MjModel, bodies: np.ndarray, ranges: LegRandomizationRanges
) -> Iterator[mujoco.MjModel]:
    """Copies of ``model`` with every link at the same corner of ``ranges``.

    The stability margin is worst where the legs are lightest, which is at a corner.
    """
    offset = ranges.com_offset_m
    for mass, inertia, *shift in itertools.product(
        ranges.mass_scale, ranges.inertia_scale, (-offset, offset), (0.0,), (-offset, offset)
    ):
        copy = model.__copy__()
        copy.body_mass[bodies] *= mass
        copy.body_inertia[bodies] *= inertia
        copy.body_ipos[bodies] += shift
        yield copy


# --- contact and base, the same for all methods (section VI-A) ---------------------------------


def ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    """A range as it is, or a ValueError for one upside down."""
    if not bounds[0] <= bounds[1]:
        raise ValueError(f"lower bound {bounds[0]:g} is above the upper one, {bounds[1]:g}")
    return bounds


# A payload only adds inertia, so it never brings the lagged terms nearer to their limit.
PositiveRange = Annotated[tuple[Positive, Positive], AfterValidator(ordered)]
NonNegativeRange = Annotated[tuple[NonNegative, NonNegative], AfterValidator(ordered)]


@dataclass(frozen=True, config=STRICT)
class RandomizationConfig:
    """Ranges that environments draw from, uniformly; all of them are off by default."""

    friction_scale: PositiveRange = (1.0, 1.0)  # on the sliding friction of floor and feet
    payload_kg: NonNegativeRange = (0.0, 0.0)  # at the trunk's centre of mass
    push_m_s: NonNegative = 0.0  # a kick of the trunk's velocity, forward and sideways each
    push_interval_s: Positive = 4.0  # mean time between kicks
    gyro_noise_rad_s: NonNegative = 0.0  # these four: up to so much at every policy step
    gravity_noise: NonNegative = 0.0  # of the unit vector
    joint_position_noise_rad: NonNegative = 0.0
    joint_velocity_noise_rad_s: NonNegative = 0.0

    @property
    def every_step(self) -> bool:
        """Whether something is drawn at every step."""
        return self.push_m_s > 0 or bool(self.sensor_noise(1).any())

    def sensor_noise(self, n_joints: int) -> np.ndarray:
        """Half-widths in the order and units of proprioception, shape (6 + 2 n_joints,)."""
        return np.concatenate(
            [
                np.full(3, self.gyro_noise_rad_s),
                np.full(3, self.gravity_noise),
                np.full(n_joints, self.joint_position_noise_rad),
                np.full(n_joints, JOINT_RATE_SCALE * self.joint_velocity_noise_rad_s),
            ]
        ).astype(np.float32)


def sample_surroundings(key: jax.Array, config: RandomizationConfig) -> dict[str, jax.Array]:
    """One environment's `friction_scale` () and `payload_kg` (), those that have a range."""
    draws = {}
    for index, name in enumerate(("friction_scale", "payload_kg")):
        low, high = getattr(config, name)
        if (low, high) != getattr(RandomizationConfig, name):
            draws[name] = jax.random.uniform(
                jax.random.fold_in(key, index), minval=low, maxval=high
            )
    return draws


def with_surroundings(
    model: mjx.Model, trunk: int, grip: np.ndarray, draws: Mapping[str, Any]
) -> mjx.Model:
    """``model`` with this environment's friction and payload.

    Args:
        model: the MJX model.
        trunk: body id.
        grip: geom ids of floor and feet: MuJoCo takes either one's friction or the larger.
        draws: from :func:`sample_surroundings`, other entries beside them.
    """
    if "friction_scale" in draws:
        model = model.replace(
            geom_friction=model.geom_friction.at[grip, 0].multiply(draws["friction_scale"])
        )
    if "payload_kg" in draws:
        model = model.replace(body_mass=model.body_mass.at[trunk].add(draws["payload_kg"]))
    return model


def drawn_in_c(
    model: mujoco.MjModel,
    bodies: np.ndarray,
    trunk: int,
    grip: np.ndarray,
    draws: Mapping[str, Any],
) -> mujoco.MjModel:
    """What :func:`with_links` and :func:`with_surroundings` make, in a copy for C MuJoCo.

    Args:
        model: not changed.
        bodies: ids of the randomized links, (n_links,).
        trunk: body id.
        grip: geom ids of floor and feet.
        draws: one environment's, by their names in `state.info`, other entries beside them.
    """
    model = model.__copy__()
    if "leg_links" in draws:
        links = draws["leg_links"]
        model.body_mass[bodies] = links.mass
        model.body_inertia[bodies] = links.inertia
        model.body_ipos[bodies] = links.com
        # C takes short cuts where frames coincided at compile time, and its bounding volumes move
        # with the centre of mass; MJX does neither.
        none = int(mujoco.mjtSameFrame.mjSAMEFRAME_NONE)
        model.body_sameframe[bodies] = none
        model.geom_sameframe[np.isin(model.geom_bodyid, bodies)] = none
        model.site_sameframe[np.isin(model.site_bodyid, bodies)] = none
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    if "friction_scale" in draws:
        model.geom_friction[grip, 0] *= float(draws["friction_scale"])
    if "payload_kg" in draws:
        model.body_mass[trunk] += float(draws["payload_kg"])
    # MJX sums these up at every step. The rest of what a compiler derives stays, as it does there.
    model.body_subtreemass[:] = model.body_mass
    for body in range(model.nbody - 1, 0, -1):
        model.body_subtreemass[model.body_parentid[body]] += model.body_subtreemass[body]
    return model


def pushed(
    key: jax.Array, state: SimulationState, config: RandomizationConfig, period_s: float
) -> SimulationState:
    """``state`` with, once in `push_interval_s` on average, a kick of the trunk's velocity.

    The velocity of a step before moves with it: a kick is no acceleration that S3N may answer.
    """
    if config.push_m_s == 0:
        return state
    key_when, key_kick = jax.random.split(key)
    now = jax.random.bernoulli(key_when, min(period_s / config.push_interval_s, 1.0))
    kick = jax.random.uniform(key_kick, (2,), minval=-config.push_m_s, maxval=config.push_m_s)
    kick = now * kick
    return cast(Any, state).replace(
        qvel=state.qvel.at[:2].add(kick), qvel_last=state.qvel_last.at[:2].add(kick)
    )
