"""Stability margin of torques that lag one simulation step.

Applying ``-dM qacc_last`` turns ``(M + dM) qacc = f`` into the fixed-point iteration
``qacc_k = (M + dt D)^-1 (f - dM qacc_{k-1})``. It converges while the spectral radius of
``(M + dt D)^-1 dM`` is below 1 and rings at the Nyquist rate close to it.
"""

import numpy as np
from numpy.typing import NDArray


def spectral_radius(
    mass_matrix: NDArray[np.float64],
    damping: NDArray[np.float64],
    timestep: float,
    lagged_inertia: NDArray[np.float64],
) -> float:
    """Largest ``|eigenvalue|`` of ``(M + dt diag(D))^-1 dM_lagged``.

    Args:
        mass_matrix: whole robot with armature, shape (nv, nv), kg m^2 (mixed for a free base).
        damping: joint damping that the integrator solves implicitly, shape (nv,), N m s/rad.
        timestep: in s.
        lagged_inertia: inertia applied from the last step's acceleration, shape (nv, nv).
    """
    if not np.any(lagged_inertia):
        return 0.0
    implicit = mass_matrix + timestep * np.diag(damping)
    return float(np.abs(np.linalg.eigvals(np.linalg.solve(implicit, lagged_inertia))).max())
