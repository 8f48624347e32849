"""Contact forces on the feet, from MJX's constraint forces, and contacts of the rest."""

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx
from mujoco.mjx._src import support  # contact_force is not exported by mjx 3.17
from numpy.typing import NDArray


def foot_forces(model: mjx.Model, data: mjx.Data, feet: NDArray[np.int64]) -> jax.Array:
    """Force of everything that touches each foot, on the foot, in the world frame.

    Args:
        model: the MJX model.
        data: after `mjx.forward` or `mjx.step`.
        feet: geom ids, shape (nfeet,).

    Returns:
        Shape (nfeet, 3), N. Zero where a model has no contacts.
    """
    contact = data._impl.contact
    dims = np.unique(np.asarray(contact.dim)) if data._impl.ncon else []
    total = jnp.zeros((len(feet), 3))
    for dim in dims:
        force, index = support.contact_force_dim(model, data, int(dim))
        if not len(index):
            continue
        # Rows of `frame` are the contact axes; the force acts on the second geom.
        world = jnp.sum(force[:, :3, None] * contact.frame[index], axis=1)
        geom = contact.geom[index]
        sign = (geom[:, 1] == feet[:, None]) * 1.0 - (geom[:, 0] == feet[:, None]) * 1.0
        total = total + jnp.sum(sign[..., None] * world, axis=1)
    return total


def body_contact(data: mjx.Data, feet: NDArray[np.int64]) -> jax.Array:
    """Whether two geoms touch of which neither is a foot, () bool.

    Args:
        data: after `mjx.forward` or `mjx.step`.
        feet: geom ids, shape (nfeet,).
    """
    if not data._impl.ncon:
        return jnp.zeros((), bool)
    contact = data._impl.contact
    of_foot = jnp.any(contact.geom[:, :, None] == feet, axis=(1, 2))
    return jnp.any((contact.dist < 0.0) & ~of_foot)
