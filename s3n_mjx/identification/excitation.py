"""What the motors are driven with: a multisine with Schroeder's phases.

Periodic, so that its spectrum lies on known lines and noise shows as what differs from period to
period; phases after Schroeder (1970), so that its peak stays low at any number of lines.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT

Array = NDArray[np.float64]


@dataclass(frozen=True, config=STRICT)
class Multisine:
    """Lines of equal amplitude between two frequencies, repeated.

    Args:
        low_hz: lowest line; no line lies below one per period.
        high_hz: highest line.
        amplitude_nm: peak of the torque, N m.
        period_s: of the multisine; lines are its inverse apart.
        periods: measured ones.
        settle_periods: before those, for the transient; they are left out.
        rate_hz: of commands and samples.
        odd: only lines at odd multiples: what a response has at even ones is then nonlinear, and
            no nonlinearity of even order (such as Coriolis torques) disturbs the lines.
    """

    low_hz: Annotated[float, Gt(0)] = 0.1
    high_hz: Annotated[float, Gt(0)] = 100.0
    amplitude_nm: Annotated[float, Gt(0)] = 4.0
    period_s: Annotated[float, Gt(0)] = 10.0
    periods: Annotated[int, Ge(2)] = 6
    settle_periods: Annotated[int, Ge(0)] = 1
    rate_hz: Annotated[float, Gt(0)] = 1000.0
    odd: bool = True

    @model_validator(mode="after")
    def _sampled(self) -> Multisine:
        samples = self.period_s * self.rate_hz
        if abs(samples - round(samples)) > 1e-6 * samples:
            raise ValueError(
                f"period_s holds {samples:g} samples of rate_hz; make it a whole number"
            )
        if not self.low_hz < self.high_hz < self.rate_hz / 2:
            raise ValueError(
                f"high_hz {self.high_hz:g} must lie between low_hz {self.low_hz:g} and half of"
                f" rate_hz, {self.rate_hz / 2:g}"
            )
        if len(self.lines) < 2:
            raise ValueError(
                f"less than two lines between {self.low_hz:g} and {self.high_hz:g} Hz; lengthen"
                " period_s"
            )
        return self

    @property
    def samples(self) -> int:
        """Samples of a period."""
        return round(self.period_s * self.rate_hz)

    @property
    def lines(self) -> NDArray[np.int64]:
        """(L,) excited lines in cycles per period."""
        return excited_lines(self.low_hz, self.high_hz, self.period_s, self.odd)

    def period(self) -> Array:
        """One period, shape (samples,), N m; its largest absolute value is the amplitude."""
        count = np.arange(1, len(self.lines) + 1)
        phases = -np.pi * count * (count - 1) / len(self.lines)
        spectrum = np.zeros(self.samples // 2 + 1, complex)
        spectrum[self.lines] = np.exp(1j * phases)
        signal = np.fft.irfft(spectrum, self.samples)
        return np.asarray(self.amplitude_nm * signal / np.abs(signal).max(), dtype=np.float64)

    def signal(self) -> Array:
        """All periods with those for settling first, shape (T,), N m."""
        return np.tile(self.period(), self.settle_periods + self.periods)

    def times(self) -> Array:
        """(T,) s; 0 where the measured periods begin."""
        total = self.samples * (self.settle_periods + self.periods)
        return (np.arange(total) - self.samples * self.settle_periods) / self.rate_hz

    @property
    def crest_factor(self) -> float:
        """Peak over RMS; 1.41 for a sine, about 1.7 for a good multisine."""
        period = self.period()
        return float(np.abs(period).max() / np.sqrt(np.mean(period**2)))


def excited_lines(low_hz: float, high_hz: float, period_s: float, odd: bool) -> NDArray[np.int64]:
    """(L,) lines of a band in cycles per period, or only the odd ones of them."""
    # A band's end is a line of its own in spite of rounding.
    first = max(1, int(np.ceil(low_hz * period_s - 1e-6)))
    last = int(np.floor(high_hz * period_s + 1e-6))
    lines = np.arange(first, last + 1, dtype=np.int64)
    return lines[lines % 2 == 1] if odd else lines
