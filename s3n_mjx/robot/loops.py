"""Kinematic loops of a MuJoCo model: their Jacobian, and how to close them.

Everything that MuJoCo writes as an equality counts (`connect`, `weld`, `joint`, `tendon`), by
body or by site, over joints of any type.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ITERATIONS = 40
_CLOSED = 1e-13  # m or rad, as near as rounding lets them come
_STEP = 0.1  # rad or m; longer steps could land on another branch
_RANK = 1e-8  # of the largest singular value; smaller ones are of redundant rows


def loop_constraints(model: mujoco.MjModel, data: mujoco.MjData) -> tuple[Array, Array]:
    """Gaps (ne,) in m or rad and their Jacobian (ne, nv), after `mj_fwdPosition`."""
    count = data.ne
    gaps = data.efc_pos[:count].copy()
    if not mujoco.mj_isSparse(model):
        return gaps, data.efc_J[: count * model.nv].reshape(count, model.nv).copy()
    jacobian = np.zeros((count, model.nv))
    for row in range(count):
        first, entries = data.efc_J_rowadr[row], data.efc_J_rownnz[row]
        entries = slice(first, first + entries)
        jacobian[row, data.efc_J_colind[entries]] = data.efc_J[entries]
    return gaps, jacobian


def close_loops(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    dofs: NDArray[np.int64],
    equalities: NDArray[np.int64] | None = None,
) -> float:
    """Close loops by moving some degrees of freedom, from where they are, all others held.

    Gauss-Newton with short steps, the smallest that close: where something can move freely, such
    as a rod about its own axis, it stays. Leaves ``data`` as after `mj_fwdPosition`.

    Args:
        model: of ``data``.
        data: its ``qpos`` is changed.
        dofs: (n,) which may move, indices of velocities.
        equalities: ids of those to close; all by default.

    Returns:
        The largest gap left, in m or rad.
    """
    best = np.inf
    for _ in range(_ITERATIONS):
        mujoco.mj_fwdPosition(model, data)
        gaps, jacobian = loop_constraints(model, data)
        if equalities is not None:
            rows = np.isin(data.efc_id[: data.ne], equalities)
            gaps, jacobian = gaps[rows], jacobian[rows]
        gap = float(np.abs(gaps).max(initial=0.0))
        # Below a micrometre, one that stops shrinking is rounding.
        if gap < _CLOSED or not len(dofs) or (gap < 1e-6 and gap > 0.5 * best):
            break
        best = gap
        step, *_ = np.linalg.lstsq(jacobian[:, dofs], -gaps, rcond=_RANK)
        step *= min(1.0, _STEP / max(np.abs(step).max(), 1e-300))
        move = np.zeros(model.nv)
        move[dofs] = step
        mujoco.mj_integratePos(model, data.qpos, move, 1.0)
    return gap
