"""`mjx.step` for a robot under `qfrc_applied`, with inertia that couples joints.

MJX takes coupled inertia from fixed tendons only, and on a CPU these cost 7 % of a step. Here it is
added where MJX adds the joints' armature, which costs nothing. Constraints are solved by
:mod:`s3n_mjx.simulation.solver` where it knows all of them. The rest is `mjx.step` with Euler's
integrator, in MJX's own functions, less what a model without actuators does not need: cameras,
lights, transmission, actuation, sensors.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx
from mujoco.mjx._src.math import inert_mul  # not exported by MJX 3.17, nor is Data._impl

from s3n_mjx.simulation import solver
from s3n_mjx.simulation.neglected import BaseCoupling


def mass_matrix(
    model: mjx.Model,
    data: mjx.Data,
    coupling: jax.Array | None = None,
    base: BaseCoupling | None = None,
) -> mjx.Data:
    """Kinematics and mass matrix, factorized.

    Args:
        model: the tree.
        data: with `qpos`.
        coupling: (nv, nv) kg m^2, symmetric, between joints of one branch of the tree; added to
            the joint-space inertia. None for nothing.
        base: what the omitted links add between a pair and all that carries it. None for nothing.
    """
    data = mjx.kinematics(model, data)
    data = mjx.com_pos(model, data)
    if model.ntendon:  # the user's own
        data = mjx.tendon(model, data)
    data = _crb(model, data, coupling, base)
    if model.ntendon:
        data = mjx.tendon_armature(model, data)
    return mjx.factor_m(model, data)


def _crb(
    model: mjx.Model, data: mjx.Data, coupling: jax.Array | None, base: BaseCoupling | None
) -> mjx.Data:
    """`mjx.crb`, with ``coupling`` in the same sum as the armature."""
    data = mjx.crb(model, data)
    if coupling is None and base is None:
        return data
    if coupling is None:
        coupling = jnp.zeros((model.nv, model.nv))
    rows = np.repeat(np.arange(model.nv), model.M_rownnz)
    columns = model.M_colind
    if mjx.is_sparse(model):
        if base is not None:
            raise NotImplementedError("base coupling with a sparse mass matrix")
        return data.tree_replace({"_impl.M": data._impl.M + coupling[rows, columns]})
    # Anew from the composite inertias, since adding to MJX's result splits a fusion of XLA's;
    # that result is then dead code.
    momentum = jax.vmap(inert_mul)(data._impl.crb[np.array(model.dof_bodyid)], data.cdof)
    lower = np.zeros((model.nv, model.nv), np.float32)
    lower[rows, columns] = 1.0
    inertia = momentum @ data.cdof.T + (jnp.diag(model.dof_armature) + coupling)
    if base is not None:
        inertia = inertia + (base.momentum(model, data) @ data.cdof.T) * base.mask
    inertia = inertia * lower
    return data.tree_replace({"_impl.M": inertia + jnp.tril(inertia, -1).T})


def step(
    model: mjx.Model,
    data: mjx.Data,
    coupling: jax.Array | None = None,
    base: BaseCoupling | None = None,
) -> mjx.Data:
    """One simulation step; arguments as of :func:`mass_matrix`.

    Args:
        model: the tree.
        data: with `qpos`, `qvel`, `qacc_warmstart` and `qfrc_applied`.
        coupling, base: see :func:`mass_matrix`.
    """
    data = mass_matrix(model, data, coupling, base)
    data = mjx.collision(model, data)
    data = mjx.make_constraint(model, data)

    if model.ntendon:
        data = data.tree_replace({"_impl.ten_velocity": data._impl.ten_J @ data.qvel})
    data = mjx.com_vel(model, data)
    data = mjx.passive(model, data)
    data = mjx.rne(model, data)
    if model.ntendon:
        data = mjx.tendon_bias(model, data)

    data = mjx.fwd_acceleration(model, data)
    if data._impl.efc_J.size == 0:
        data = data.replace(qacc=data.qacc_smooth)
    elif solver.is_supported(model, data):
        data = solver.solve(model, data, mjx.full_m(model, data))
    else:
        data = mjx.solve(model, data)
    return mjx.euler(model, data)
