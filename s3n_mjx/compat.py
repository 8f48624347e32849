"""The one seam between this package and versions of JAX, Brax and MJX that differ.

Import it before `brax` or `mujoco.mjx`. Locked versions need almost nothing of it; GPU machines
often carry a newer JAX.
"""

import contextlib
import io

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed  # not exported


def device_put_replicated(tree, devices):
    """One copy of every leaf on each device, stacked along a new leading axis.

    `jax.device_put_replicated` left JAX in 0.10; Brax 0.14.2 still calls it.
    """
    # Brax's own axis name: with another one its first training epoch would compile twice.
    mesh = jax.sharding.Mesh(np.array(devices), ("i",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))

    def put(leaf):
        leaf = jnp.asarray(leaf)
        return jax.device_put(jnp.broadcast_to(leaf, (len(devices), *leaf.shape)), sharding)

    return jax.tree.map(put, tree)


# JAX 0.9 still has the name, but warns; one path for every version is easier to trust.
jax.device_put_replicated = device_put_replicated


def meet(name: str, timeout_s: float = 3600.0) -> None:
    """Wait until all processes are here, by JAX's coordination service.

    Collectives on CPUs give up after 30 s, so that whoever compiles longer loses the others; JAX
    has this barrier and does not export it.

    Args:
        name: of the place; each is used once.
        timeout_s: how long to wait.
    """
    client = distributed.global_state.client
    if client is not None:
        client.wait_at_barrier(name, timeout_in_ms=int(timeout_s * 1000.0))


# MJX prints to stdout that its optional Warp backend is missing.
with contextlib.redirect_stdout(io.StringIO()):
    from mujoco import mjx as mjx
