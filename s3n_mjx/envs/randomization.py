"""Leg-link randomization (S3N paper, Table III): masses, centres of mass, inertias of leg links.

Each environment draws once, at its first reset, from its own key, and keeps its robot across
episodes; so every device has its own robots, and a seed gives every method the same ones. The
lagged S3N terms stay those of the nominal model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct
from mujoco import mjx

from s3n_mjx.robot.model import Robot


class LegRandomization(StrEnum):
    """Settings of Table III."""

    NONE = "none"
    LEG_RAND = "leg_rand"
    HEAVY_LEG_RAND = "heavy_leg_rand"


@dataclass(frozen=True)
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
