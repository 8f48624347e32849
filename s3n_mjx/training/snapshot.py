"""Everything that a training goes on from, as bytes: learner, environments, and nothing less.

Brax's training state holds parameters, optimiser with its adapted learning rate, observation
statistics and step count; its environment states hold physics, episodes, and the keys that
environments draw from.
"""

from __future__ import annotations

from typing import Any

import flax.serialization
import jax
import numpy as np
from jax.experimental import multihost_utils

from s3n_mjx import compat
from s3n_mjx.errors import UserError
from s3n_mjx.training.checkpoint import DECODE_ERRORS


def local(leaf: jax.Array) -> np.ndarray:
    """This process's part of something that is spread over devices, (local_devices, ...)."""
    shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def of_one_device(tree: Any) -> Any:
    """What is the same on every device, from the first one to the host."""
    return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_shards[0].data)[0], tree)


def _of_all(leaf: jax.Array) -> np.ndarray:
    """(num_envs, ...), of the environments of all devices of all processes."""
    parts = local(leaf)
    if jax.process_count() > 1:
        parts = np.asarray(multihost_utils.process_allgather(parts))  # (processes, devices, ...)
        parts = np.concatenate(parts)
    return parts.reshape(parts.shape[0] * parts.shape[1], *parts.shape[2:])


def pack(training_state: Any, env_state: Any) -> bytes:
    """The state of a run; every process has to call it.

    Args:
        training_state: Brax's, leaves of shape (local_devices, ...), the same on each.
        env_state: Brax's, leaves of shape (local_devices, environments each, ...).
    """
    return flax.serialization.to_bytes(
        {
            "training": of_one_device(training_state),
            "environments": jax.tree.map(_of_all, env_state),
        }
    )


def unpack(data: bytes, training_state: Any, env_state: Any, where: str) -> tuple[Any, Any]:
    """The state that :func:`pack` wrote, on the devices.

    Devices and processes may be others than they were, as long as they share out the
    environments evenly.

    Args:
        data: from :func:`pack`.
        training_state: of the fresh run, for structure and placement.
        env_state: likewise.
        where: the data's file, for messages.

    Raises:
        UserError: it belongs to another network, task, robot or number of environments.
    """
    template = {
        "training": of_one_device(training_state),
        "environments": env_state,
    }
    try:
        state = flax.serialization.from_bytes(template, data)
    except DECODE_ERRORS as error:
        raise UserError(f"{where}: not the state of this run ({str(error)[:120]})") from None

    def check(path: Any, expected: tuple[int, ...], leaf: Any) -> None:
        if np.shape(leaf) != expected:
            raise UserError(
                f"{where}: {jax.tree_util.keystr(path)} has shape {np.shape(leaf)}, this run's has"
                f" {expected}; it belongs to another robot, task or number of environments"
            )

    def replicated(path: Any, live: jax.Array, leaf: Any) -> Any:
        check(path, live.shape[1:], leaf)
        return np.asarray(leaf, live.dtype)

    def divided(path: Any, live: jax.Array, leaf: Any) -> jax.Array:
        mine = local(live).shape
        processes = jax.process_count()
        check(path, (processes * mine[0] * mine[1], *mine[2:]), leaf)
        parts = np.asarray(leaf, live.dtype).reshape(processes, *mine)
        return jax.make_array_from_process_local_data(
            live.sharding, parts[jax.process_index()], live.shape
        )

    training = jax.tree_util.tree_map_with_path(replicated, training_state, state["training"])
    environments = jax.tree_util.tree_map_with_path(divided, env_state, state["environments"])
    return compat.device_put_replicated(training, jax.local_devices()), environments
