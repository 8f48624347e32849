"""Networks of a run, and a policy from a checkpoint."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.training.acme import running_statistics, specs
from brax.training.agents.ppo import networks as ppo_networks
from brax.training.types import Policy

from s3n_mjx.training.checkpoint import Checkpoint, restore_params
from s3n_mjx.training.config import PPOConfig

# Of an observation. A standing robot's gravity vector hardly varies; without a floor its first
# movements would be scaled up a thousandfold and upset the value function for many updates.
_VARIANCE_FLOOR = 1e-4


def network_factory(ppo: PPOConfig) -> Any:
    """Brax's `network_factory` for these layers."""
    return functools.partial(
        ppo_networks.make_ppo_networks,
        policy_hidden_layer_sizes=ppo.policy_layers,
        value_hidden_layer_sizes=ppo.value_layers,
        # The same noise in every state: a smaller gradient variance than brax's default.
        distribution_type="normal",
        noise_std_type="log",
        init_noise_std=ppo.init_noise_std,
    )


def initial_params(ppo: PPOConfig, observation_size: int, action_size: int, seed: int = 0) -> Any:
    """Brax's (normalizer, policy, value) before training.

    Brax would make the same, but some of weak type, and trained parameters are not: its
    evaluation would compile once for either.
    """
    networks = network_factory(ppo)(
        observation_size, action_size, preprocess_observations_fn=running_statistics.normalize
    )
    key_policy, key_value = jax.random.split(jax.random.PRNGKey(seed))
    params = (
        running_statistics.init_state(
            specs.Array((observation_size,), np.dtype("float32")), std_eps=_VARIANCE_FLOOR
        ),
        networks.policy_network.init(key_policy),
        networks.value_network.init(key_value),
    )
    return jax.tree.map(lambda x: jnp.asarray(x, dtype=jnp.result_type(x)), params)


def make_policy(
    ppo: PPOConfig, params: Any, observation_size: int, action_size: int, deterministic: bool = True
) -> Policy:
    """``(observation, key) -> (action, extras)``, jit- and vmap-able."""
    networks = network_factory(ppo)(
        observation_size, action_size, preprocess_observations_fn=running_statistics.normalize
    )
    return ppo_networks.make_inference_fn(networks)(params, deterministic=deterministic)


def load_params(checkpoint: Checkpoint, observation_size: int, action_size: int) -> Any:
    """Parameters of a checkpoint for this observation.

    Raises:
        UserError: they belong to another network or observation.
    """
    template = initial_params(checkpoint.config.ppo, observation_size, action_size)
    return restore_params(checkpoint, template)
