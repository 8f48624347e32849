"""From logs to spectra, with a refusal of every log that cannot be cut into periods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.identification.excitation import excited_lines
from s3n_mjx.identification.fit import Record
from s3n_mjx.identification.logs import TorqueLog
from s3n_mjx.identification.spectra import Spectrum, spectrum

_UNIFORM = 0.01  # of a step
_WHOLE = 0.02  # of a sample, by which a period may miss a whole number of them
_PLATEAU = 5  # samples of a period at the largest torque, beyond those of one held command
_LONGEST = 1e9  # samples of a period
_DEGREES = 180.0 / np.pi


def record_of(log: TorqueLog, motors: Sequence[int], settle_periods: int = 1) -> Record:
    """Spectra of some motors over the whole periods after the transient.

    Args:
        log: of an excitation that was switched on with its first sample, or before.
        motors: columns of the log.
        settle_periods: left out at the beginning.

    Raises:
        UserError: the log cannot be analysed; names file, column and sample.
    """
    columns = list(motors)
    check_sampling(log)
    samples = round(log.period_s * log.rate_hz)
    periods = len(log.time) // samples - settle_periods
    if periods < 2:
        raise UserError(
            f"{log.path}: holds {len(log.time) / samples:.2f} periods of {log.period_s:g} s;"
            f" {settle_periods} to settle and at least 2 to measure are needed: record longer"
        )
    check_torque(log, columns, samples)
    check_units(log, columns)
    keep = slice(settle_periods * samples, (settle_periods + periods) * samples)
    velocity, torque = log.velocity[keep][:, columns], log.torque[keep][:, columns]
    lines = _lines(log, samples)
    commanded = spectrum(torque, samples, lines, log.rate_hz)
    _check_lines(log, commanded, lines)
    return Record(
        velocity=spectrum(velocity, samples, lines, log.rate_hz),
        torque=commanded,
        mean_velocity=velocity.reshape(periods, samples, -1).mean(axis=0),
        mean_torque=torque.reshape(periods, samples, -1).mean(axis=0),
        lines=lines,
        step_s=1.0 / log.rate_hz,
        held=log.held,
    )


def _lines(log: TorqueLog, samples: int) -> NDArray[np.int64]:
    """(L,) lines of the log's band, in cycles per period."""
    if log.high_hz >= log.rate_hz / 2:
        raise UserError(
            f"{log.path}: high_hz {log.high_hz:g} is not below half of the sampling rate of"
            f" {log.rate_hz:g} Hz; sample faster, or correct it"
        )
    if not log.low_hz < log.high_hz:
        raise UserError(
            f"{log.path}: low_hz {log.low_hz:g} is not below high_hz {log.high_hz:g}; correct them"
        )
    lines = excited_lines(log.low_hz, log.high_hz, log.period_s, log.odd)
    lines = lines[lines < samples // 2]
    if len(lines) < 4:
        raise UserError(
            f"{log.path}: {len(lines)} lines between low_hz {log.low_hz:g} and high_hz"
            f" {log.high_hz:g}, {1 / log.period_s:g} Hz apart; at least 4 are needed"
        )
    return lines


def _check_lines(log: TorqueLog, torque: Spectrum, lines: NDArray[np.int64]) -> None:
    """Refuse lines that were not excited, half of them most likely."""
    size = np.abs(torque.mean).max(axis=1)
    if not log.odd and np.median(size[lines % 2 == 0]) < 0.05 * np.median(size[lines % 2 == 1]):
        raise UserError(
            f"{log.path}: odd: only odd multiples of {1 / log.period_s:g} Hz are excited; say so"
            " with `# odd: 1`"
        )


def check_sampling(log: TorqueLog) -> None:
    """Refuse samples that are not equally spaced, or that a period is no whole number of."""
    steps = np.diff(log.time)
    step = float(np.median(steps))
    off = np.flatnonzero(np.abs(steps - step) > _UNIFORM * step)
    if len(off):
        at = int(off[0])
        raise UserError(
            f"{log.path}: time_s: not sampled uniformly: {steps[at] * 1e3:.4g} ms after sample"
            f" {at} (at {log.time[at]:.6g} s), {step * 1e3:.4g} ms elsewhere; resample it on the"
            " drive's clock"
        )
    samples = log.period_s * log.rate_hz
    if not samples < _LONGEST:
        raise UserError(
            f"{log.path}: period_s: {log.period_s:g} s holds {samples:g} samples; correct it or"
            " the clock"
        )
    if samples < 8:
        raise UserError(
            f"{log.path}: period_s: {log.period_s:g} s is less than 8 samples of"
            f" {1e3 / log.rate_hz:.4g} ms; correct it"
        )
    if abs(samples - round(samples)) > _WHOLE:
        raise UserError(
            f"{log.path}: period_s: {log.period_s:g} s holds {samples:.2f} samples; a whole number"
            " of samples makes a period, or its lines leak: correct period_s or the clock"
        )


def check_torque(log: TorqueLog, motors: Sequence[int], samples: int) -> None:
    """Refuse torque that was clipped: the drive then gave another one than it was told."""
    for i in motors:
        torque = log.torque[:, i]
        peak = float(np.abs(torque).max())
        name = log.motors[i]
        if peak == 0.0:
            raise UserError(f"{log.path}: torque of {name}: zero throughout; nothing was excited")
        if peak > log.torque_limit * (1 + 1e-6):
            raise UserError(
                f"{log.path}: torque of {name}: commands reach {peak:.3g} N m, beyond the limit of"
                f" {log.torque_limit:g} N m, so they were clipped; lower the amplitude"
            )
        at_peak = np.abs(torque) > peak * (1 - 1e-9)
        # Commands held over several samples are alike without being clipped.
        changes = np.count_nonzero(np.diff(torque)) + 1
        held = int(np.ceil(len(torque) / changes))
        runs = _longest_run(at_peak)
        if runs > _PLATEAU * held and runs < samples // 4:
            raise UserError(
                f"{log.path}: torque of {name}: stays at its peak of {peak:.3g} N m for {runs}"
                " samples: clipped; lower the amplitude"
            )


def _longest_run(mask: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(int)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def check_units(log: TorqueLog, motors: Sequence[int]) -> None:
    """Refuse velocities that never change, and positions and velocities not of one unit."""
    for i in motors:
        if np.ptp(log.velocity[:, i]) == 0.0:
            raise UserError(
                f"{log.path}: velocity of {log.motors[i]}: constant throughout; nothing moved, or"
                " it was not recorded"
            )
        position = log.position[:, i]
        if np.isnan(position).any():
            continue
        change = np.diff(position)
        step = (log.velocity[1:, i] + log.velocity[:-1, i]) / 2 / log.rate_hz
        # Over a hundredth of a second and more, so that an encoder's noise does not count.
        stride = max(1, int(log.rate_hz / 100))
        moved = np.add.reduceat(change, np.arange(0, len(change), stride))
        expected = np.add.reduceat(step, np.arange(0, len(step), stride))
        power = float(expected @ expected)
        if power == 0.0 and not moved.any():
            continue  # a velocity about zero, of a position at rest
        ratio = float(moved @ expected) / power if power > 0.0 else np.inf
        for factor, what in ((_DEGREES, "velocity"), (1 / _DEGREES, "position")):
            if abs(ratio * factor - 1.0) < 0.2:
                raise UserError(
                    f"{log.path}: {what} of {log.motors[i]}: is in degrees beside the other one in"
                    " radians (their ratio is 57.3); columns are in rad and rad/s"
                )
        if not 0.5 < ratio < 2.0:
            raise UserError(
                f"{log.path}: velocity of {log.motors[i]}: is not the rate of its position (moves"
                f" {ratio:.3g} rad per rad of velocity's integral); check gear, sign and unit"
            )
