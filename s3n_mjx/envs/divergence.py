"""Diverged physics: what counts as it, how often it happened, and what the first one started from.

Kept in `state.info`, which automatic resets leave alone, so that a count is that of a whole run.
"""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import struct

from s3n_mjx.simulation.control import SimulationState

# Of generalized velocities, m/s and rad/s: far beyond any robot, far below float32's limit.
SPEED_LIMIT = 1e3


@struct.dataclass
class Divergence:
    """What one environment remembers of its divergences.

    `start` and `target` are what the policy step got in which the first one happened, after
    pushes and randomization; zeros until there is one.
    """

    count: jax.Array  # () int32, policy steps that ended diverged
    survived: jax.Array  # () int32, policy steps before the first of them
    start: SimulationState
    target: jax.Array  # (nu,) rad, joint targets


def diverged(state: SimulationState) -> jax.Array:
    """Whether anything in ``state`` is no finite number, or moves at `SPEED_LIMIT` or more, ()."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state)]
    return ~(jnp.all(jnp.stack(finite)) & jnp.all(jnp.abs(state.qvel) < SPEED_LIMIT))


def none_yet(state: SimulationState, target: jax.Array) -> Divergence:
    """For an environment at its first reset; of the arguments only shapes and types count."""
    zero = jnp.zeros((), jnp.int32)
    return Divergence(
        count=zero,
        survived=zero,
        start=jax.tree.map(jnp.zeros_like, state),
        target=jnp.zeros_like(target),
    )


def counted(
    before: Divergence, start: SimulationState, target: jax.Array, reached: SimulationState
) -> Divergence:
    """``before`` and one policy step more.

    Args:
        before: of the environment so far.
        start: what the physics began the policy step with.
        target: its joint targets in rad, (nu,).
        reached: the state after it.
    """
    now, none = diverged(reached), before.count == 0
    first = now & none

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda x, y: jnp.where(first, x, y), new, old)

    return cast(Any, before).replace(
        count=before.count + now.astype(jnp.int32),
        survived=before.survived + (none & ~now).astype(jnp.int32),
        start=keep(start, before.start),
        target=keep(target, before.target),
    )
