"""Periodic records to spectra: means over periods, their variance, coherence, responses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Amplitudes of some signals at the excited lines, from whole periods.

    A value c at frequency f stands for ``Re(c exp(2 pi j f t))``.
    """

    frequency: Array  # (L,) Hz
    mean: Complex  # (L, n) over periods
    variance: Array  # (L, n) of that mean, E |mean - true|^2
    each: Complex  # (P, L, n) period by period

    @property
    def periods(self) -> int:
        """How many."""
        return len(self.each)


def spectrum(signals: Array, samples: int, lines: NDArray[np.int64], rate_hz: float) -> Spectrum:
    """Spectra of whole periods at given lines.

    Args:
        signals: (P * samples, n).
        samples: of a period.
        lines: (L,) cycles per period.
        rate_hz: of the samples.
    """
    periods = signals.reshape(-1, samples, signals.shape[1])
    each = 2.0 / samples * np.fft.rfft(periods, axis=1)[:, lines]
    return Spectrum(lines * rate_hz / samples, each.mean(axis=0), variance_of_mean(each), each)


def variance_of_mean(each: Complex) -> Array:
    """Of the mean over periods, (P, L, n) to (L, n), from what differs between them."""
    count = len(each)
    spread = np.sum(np.abs(each - each.mean(axis=0)) ** 2, axis=0)
    return np.asarray(spread / (count - 1) / count, dtype=np.float64)


def smoothed(variance: Array, width: int = 21) -> Array:
    """Variance averaged over neighbouring lines, (L, n): noise spectra are smooth, and a few
    periods give one line's variance only roughly."""
    width = min(width, len(variance))
    kernel = np.ones(width)
    share = np.convolve(np.ones(len(variance)), kernel, mode="same")
    columns = [np.convolve(column, kernel, mode="same") / share for column in variance.T]
    return np.stack(columns, axis=-1)


def coherence(output: Spectrum) -> Array:
    """Share of each signal's power that repeats with the period, (L, n), 0 to 1.

    For an input that repeats exactly this is the magnitude-squared coherence with it.
    """
    power = np.mean(np.abs(output.each) ** 2, axis=0)
    repeats = np.abs(output.mean) ** 2
    return np.divide(repeats, power, out=np.zeros_like(power), where=power > 0.0)


def response(outputs: list[Spectrum], inputs: list[Spectrum]) -> tuple[Complex, Array]:
    """``G = Y U^-1`` from as many records as there are inputs (Eq. 30).

    Returns:
        (L, n, n) response, and the condition number of ``U`` at every line, (L,).
    """
    y = np.stack([s.mean for s in outputs], axis=-1)
    u = np.stack([s.mean for s in inputs], axis=-1)
    condition = np.linalg.cond(u)
    # A singular U is reported by its condition number; its inverse would raise.
    return y @ np.linalg.pinv(u), np.asarray(condition)


def mean_direction(velocity: Array) -> Array:
    """Mean sign of a periodic velocity from each sample to the next, shape as ``velocity``.

    Coulomb friction is proportional to it. A velocity turns between samples; there it is taken
    for the line that joins them, which under a held torque it nearly is.

    Args:
        velocity: (N, n), one period.
    """
    following = np.roll(velocity, -1, axis=0)
    size = np.abs(velocity) + np.abs(following)
    # Where both have one sign this is that sign.
    return np.divide(
        np.abs(following) * np.sign(following) + np.abs(velocity) * np.sign(velocity),
        size,
        out=np.zeros_like(size),
        where=size > 0.0,
    )
