"""The model that is fitted: inertia, damping and stiffness behind a delayed, held torque.

A motor is the case of one coordinate (Eq. 29), a leg that of two (Eq. 32).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import expm

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


def velocity_response(
    frequency_hz: ArrayLike,
    inertia: ArrayLike,
    damping: ArrayLike,
    stiffness: ArrayLike | None = None,
    delay_s: float = 0.0,
    hold_s: float = 0.0,
) -> Complex:
    """Torque to velocity, ``exp(-j w T_d) (j w M + D + K / (j w))^-1`` (Eq. 29).

    A command that a drive holds from sample to sample is no sampled sine: at 100 Hz and 1 ms the
    hold alone adds half a millisecond of delay. With ``hold_s`` the response is the exact one
    from the samples of such a command to the samples of velocity.

    Args:
        frequency_hz: (L,), above 0; with ``hold_s`` below half of its inverse.
        inertia: (n, n) kg m^2.
        damping: (n, n) N m s/rad.
        stiffness: (n, n) N m/rad; none by default.
        delay_s: between command and torque.
        hold_s: how long a command is held; 0 if the torque is given continuously.

    Returns:
        (L, n, n) rad/s per N m.
    """
    s = 2j * np.pi * np.asarray(frequency_hz, dtype=np.float64)[:, None, None]
    m, d = np.asarray(inertia, dtype=np.float64), np.asarray(damping, dtype=np.float64)
    k = np.zeros_like(m) if stiffness is None else np.asarray(stiffness, dtype=np.float64)
    if hold_s == 0.0:
        smooth = np.exp(-s * delay_s) * np.linalg.inv(s * m + d + k / s)
        return np.asarray(smooth, dtype=np.complex128)
    a, b = _state_space(m, d, k)
    n, states = len(m), len(a)
    whole, part = divmod(delay_s, hold_s)
    # During a step the older command acts for `part`, the newer one for the rest.
    step, old = _held(a, b, part)
    rest, new = _held(a, b, hold_s - part)
    z = np.exp(s * hold_s)
    drive = (rest @ old) * z ** -(whole + 1) + new * z**-whole
    response = np.linalg.inv(z * np.eye(states) - rest @ step) @ drive
    return np.asarray(response[:, -n:, :], dtype=np.complex128)


def _state_space(m: Array, d: Array, k: Array) -> tuple[Array, Array]:
    """``x' = a x + b u`` of positions, where they count, and velocities."""
    inverse = np.asarray(np.linalg.inv(m), dtype=np.float64)
    if not np.any(k):
        return -inverse @ d, inverse
    n = len(m)
    a = np.block([[np.zeros((n, n)), np.eye(n)], [-inverse @ k, -inverse @ d]])
    return a, np.vstack([np.zeros((n, n)), inverse])


def _held(a: Array, b: Array, time: float) -> tuple[Array, Array]:
    """State transition and input matrix of a constant input over ``time``."""
    states, inputs = b.shape
    block = np.zeros((states + inputs, states + inputs))
    block[:states, :states], block[:states, states:] = a * time, b * time
    whole = np.asarray(expm(block), dtype=np.float64)
    return whole[:states, :states], whole[:states, states:]
