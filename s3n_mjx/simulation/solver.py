"""Newton's method for MuJoCo's constraints: `mjx.solve` at a smaller price.

The problem, the method and the names are MuJoCo's (https://mujoco.readthedocs.io, "Computation",
constraint solver): accelerations minimise

    1/2 (a - a_smooth)^T M (a - a_smooth) + 1/2 sum_i D_i min(J_i a - aref_i, 0)^2,

equality rows counting on both sides of zero. What differs from MJX:

- A joint limit's row has one entry, so limits cost additions and no products with matrices.
- Few rows are summed up row by row into the Hessian, and the step times the mass matrix follows
  from the Hessian's own equation.
- The line search evaluates one point an iteration instead of three. Along a line the cost is
  convex and piecewise quadratic, and Newton's method on its slope, kept inside a bracket, ends
  on the minimum after as many steps as it crosses kinks.
- Of the two warm starts only the better one is worked out.
- The Hessian is factorized once an iteration; MJX factorizes once more for a step never taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx
from numpy.typing import NDArray

# Rows up to which sums over them are written out.
_UNROLLED = 32
# Of float32 in a difference of sums over all rows.
_ROUNDING = 1e-5


def is_supported(model: mjx.Model, data: mjx.Data) -> bool:
    """Whether :func:`solve` knows all of the model's constraints; `mjx.solve` knows more.

    Args:
        model: the MJX model.
        data: after `mjx.make_constraint`.
    """
    option = model.opt
    return (
        option.solver == mjx.SolverType.NEWTON
        and option.cone == mjx.ConeType.PYRAMIDAL
        and not data._impl.nf  # friction loss
        and not option.disableflags & mjx.DisableBit.WARMSTART
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Constraint rows, joint limits first; MJX's own order has equalities before them."""

    sign: jax.Array  # (n_limits,), the one entry of each limit's row; 0 for a joint within
    limited: NDArray[np.int64]  # (n_limits,) their dofs
    from_limit: NDArray[np.int64]  # (nv,) into the limits, n_limits for a dof without
    dense: jax.Array  # (n_dense, nv), the other rows
    always: NDArray[np.bool_]  # (nefc,), equalities
    order: NDArray[np.int64]  # (nefc,) into MJX's order
    stiffness: jax.Array  # (nefc,), D
    reference: jax.Array  # (nefc,), aref

    @classmethod
    def of(cls, model: mjx.Model, data: mjx.Data) -> _Rows:
        impl = data._impl
        hinge = np.isin(model.jnt_type, (mjx.JointType.SLIDE, mjx.JointType.HINGE))
        joints = np.nonzero(hinge & np.asarray(model.jnt_limited, bool))[0]
        if model.opt.disableflags & mjx.DisableBit.LIMIT:
            joints = joints[:0]
        ball = (model.jnt_type == mjx.JointType.BALL) & np.asarray(model.jnt_limited, bool)
        start = impl.ne + (0 if model.opt.disableflags & mjx.DisableBit.LIMIT else ball.sum())
        limits = start + np.arange(len(joints))
        limited = np.asarray(model.jnt_dofadr)[joints]
        others = np.setdiff1d(np.arange(impl.efc_J.shape[0]), limits)
        order = np.concatenate([limits, others])
        from_limit = np.full(model.nv, len(joints))
        from_limit[limited] = np.arange(len(joints))
        return cls(
            sign=impl.efc_J[limits, limited],
            limited=limited,
            from_limit=from_limit,
            dense=impl.efc_J[others],
            always=order < impl.ne,
            order=order,
            stiffness=impl.efc_D[order],
            reference=impl.efc_aref[order],
        )

    def times(self, vector: jax.Array) -> jax.Array:
        """``J x``, (nefc,)."""
        return jnp.concatenate([self.sign * vector[self.limited], self.dense @ vector])

    def transposed_times(self, force: jax.Array) -> jax.Array:
        """``J^T f``, (nv,)."""
        count = len(self.limited)
        limits = jnp.append(self.sign * force[:count], 0.0)[self.from_limit]
        return limits + self.dense.T @ force[count:]

    def active(self, distance: jax.Array) -> jax.Array:
        """1.0 for the rows that push at ``J a - aref``, (nefc,)."""
        return ((distance < 0.0) | self.always).astype(distance.dtype)

    def force(self, distance: jax.Array) -> jax.Array:
        """What the rows push with, (nefc,)."""
        return -self.stiffness * distance * self.active(distance)

    def cost(self, distance: jax.Array) -> jax.Array:
        """The second term, ()."""
        return 0.5 * jnp.sum(self.stiffness * distance**2 * self.active(distance))

    def hessian(self, inertia: jax.Array, active: jax.Array) -> jax.Array:
        """``M + J^T diag(D) J`` over the active rows, (nv, nv)."""
        weight, count = self.stiffness * active, len(self.limited)
        limits = jnp.append(self.sign**2 * weight[:count], 0.0)[self.from_limit]
        weighted = self.dense * weight[count:, None]
        if len(weighted) > _UNROLLED:
            # Rows weighted, not columns: XLA's CPU product is a third faster that way round.
            contacts = jnp.einsum("ki,kj->ij", weighted, self.dense)
        else:
            # Few rows are faster written out, which fuses into one loop.
            contacts = sum(
                (weighted[k, :, None] * self.dense[k] for k in range(len(weighted))),
                jnp.zeros_like(inertia),
            )
        return inertia + jnp.diag(limits) + contacts


def _line_search(
    rows: _Rows,
    distance: jax.Array,
    along: jax.Array,
    slope: jax.Array,
    curvature: jax.Array,
    iterations: int,
) -> jax.Array:
    """Step length () that minimises the cost along a line.

    Args:
        rows: the constraints.
        distance: ``J a - aref`` at its start, (nefc,).
        along: ``J`` times the direction, (nefc,).
        slope: of the first, smooth term at the start, ().
        curvature: of that term, ().
        iterations: evaluations of slope and curvature.
    """
    weighted = rows.stiffness * along

    def evaluate(_, state):
        step, low, high, best, least = state
        reached = distance + step * along
        pushing = rows.active(reached) * weighted
        first = slope + step * curvature + jnp.sum(pushing * reached)
        second = curvature + jnp.sum(pushing * along)
        better = jnp.abs(first) < least
        best, least = jnp.where(better, step, best), jnp.where(better, jnp.abs(first), least)
        low, high = jnp.where(first < 0.0, step, low), jnp.where(first < 0.0, high, step)
        newton = step - first / second
        inside = (newton > low) & (newton < high)
        return jnp.where(inside, newton, 0.5 * (low + high)), low, high, best, least

    zero, infinite = jnp.zeros(()), jnp.full((), jnp.inf)
    # No step beats none whose slope is steeper.
    start = jnp.abs(slope + jnp.sum(rows.active(distance) * weighted * distance))
    # A full step first: with all rows as they are at the start, that is the minimum.
    state = (jnp.ones(()), zero, infinite, zero, start)
    # Unrolled, a few evaluations fuse; many would only make XLA slow.
    best = jax.lax.fori_loop(0, iterations, evaluate, state, unroll=iterations <= 16)[3]
    return best


def solve(model: mjx.Model, data: mjx.Data, inertia: jax.Array) -> mjx.Data:
    """Accelerations and forces that satisfy the constraints.

    Args:
        model: of a kind that :func:`is_supported`.
        data: after `mjx.fwd_acceleration`.
        inertia: joint-space inertia, (nv, nv).

    Returns:
        ``data`` with `qacc`, `qfrc_constraint` and `efc_force`.
    """
    rows = _Rows.of(model, data)
    option = model.opt
    scale = 1.0 / jnp.trace(inertia)

    # Of the last step's accelerations and the unconstrained ones, those of the lower cost.
    warm, smooth = data.qacc_warmstart, data.qacc_smooth
    warm_force = inertia @ warm - data.qfrc_smooth  # M (a - a_smooth)
    warm_distance = rows.times(warm) - rows.reference
    smooth_distance = rows.times(smooth) - rows.reference
    warm_cost = 0.5 * jnp.dot(warm_force, warm - smooth) + rows.cost(warm_distance)
    take = warm_cost < rows.cost(smooth_distance)
    distance = jnp.where(take, warm_distance, smooth_distance)
    warm_force = jax.lax.select(take, warm_force, jnp.zeros_like(warm_force))
    gradient = warm_force - rows.transposed_times(rows.force(distance))

    def improve(state):
        qacc, distance, gradient, _, count = state
        active = rows.active(distance)
        factor = jax.scipy.linalg.cho_factor(rows.hessian(inertia, active))
        search = -jax.scipy.linalg.cho_solve(factor, gradient)
        along = rows.times(search)
        # H s = -g with H = M + J^T D J, so that M s = -g - J^T D J s needs no product with M.
        force, pushed = rows.force(distance), rows.stiffness * active * along
        descent = -jnp.dot(search, gradient)  # s^T H s
        slope = jnp.dot(along, force) - descent  # of the smooth term: s^T M (a - a_smooth)
        curvature = jnp.maximum(descent - jnp.dot(along, pushed), _ROUNDING * descent)  # s^T M s
        step = _line_search(rows, distance, along, slope, curvature, option.ls_iterations)
        reached = distance + step * along
        change = force - step * pushed - rows.force(reached)
        gradient = (1.0 - step) * gradient + rows.transposed_times(change)
        saved = rows.cost(distance) - rows.cost(reached)
        saved = saved - step * (slope + 0.5 * step * curvature)
        return qacc + step * search, reached, gradient, saved, count + 1

    def unfinished(state):
        *_, gradient, saved, count = state
        return (
            (count < option.iterations)
            & (scale * saved >= option.tolerance)
            & (scale * jnp.linalg.norm(gradient) >= option.tolerance)
        )

    state: Any = (jnp.where(take, warm, smooth), distance, gradient, jnp.inf, 0)
    if option.iterations == 1:
        state = improve(state)
    else:
        state = jax.lax.while_loop(unfinished, improve, state)
    qacc, distance, *_ = state
    force = rows.force(distance)
    return data.tree_replace(
        {
            "qacc": qacc,
            "qfrc_constraint": rows.transposed_times(force),
            "_impl.efc_force": jnp.zeros_like(force).at[rows.order].set(force),
        }
    )
