"""Figures of merit of a recording, and of the gap between two, as pure functions.

Equation numbers are those of the S3N paper. Nothing here simulates, draws or prints: arrays
and recordings in, numbers out. "Simulated" and "reference" are only names for the two sides
of a gap; the reference is the closed-chain model or a measured log.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from s3n_mjx.evaluation.recording import FloatArray, Recording

CONTACT_THRESHOLD_N = 1.0
PHASE_BINS = 72  # N_phi of Eq. 35, 5 degrees each


# --- signals ------------------------------------------------------------------------------


def rmse(a: ArrayLike, b: ArrayLike) -> float:
    """Root mean square of a - b over all samples, in the unit of the signals.

    Args:
        a, b: equal shapes; no broadcasting, since a forgotten axis would pass unseen.

    Raises:
        ValueError: the shapes differ, or there is no sample.
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"rmse of shapes {a.shape} and {b.shape}: must be equal and not empty")
    return root_mean_square(a - b)


def root_mean_square(values: ArrayLike) -> float:
    """Root mean square over all entries; also pools per-foot RMSEs of equal length into one."""
    return float(np.sqrt(np.mean(np.square(np.asarray(values, dtype=float)))))


def wrap_angle(angle: float) -> float:
    """The angle in [rad], moved into (-pi, pi]."""
    return float(-((-angle + np.pi) % (2.0 * np.pi) - np.pi))


def _phase_bins(phase: FloatArray, n_bins: int) -> tuple[FloatArray, np.ndarray]:
    """Bin centres in [0, 2 pi), shape (n_bins,), and each sample's bin, shape (N,)."""
    position = np.asarray(phase, dtype=float) / (2.0 * np.pi) * n_bins
    # Samples often fall exactly on an edge (3 ms steps at 5 Hz do); the slack sends all of
    # them to the bin above, whichever way k * dt was rounded.
    index = np.floor(position + 1e-6).astype(int) % n_bins
    return (np.arange(n_bins) + 0.5) * 2.0 * np.pi / n_bins, index


def _bin_statistics(phase, signal, n_bins: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    phase, signal = np.asarray(phase, dtype=float), np.asarray(signal, dtype=float)
    if phase.ndim != 1 or signal.shape[:1] != phase.shape:
        raise ValueError(f"phase of shape {phase.shape} with signal of shape {signal.shape}")
    centres, index = _phase_bins(phase, n_bins)
    mean = np.full((n_bins, *signal.shape[1:]), np.nan)
    std = mean.copy()
    for b in np.unique(index):
        samples = signal[index == b]
        mean[b], std[b] = samples.mean(axis=0), samples.std(axis=0)
    return centres, mean, std


def phase_average(
    time: ArrayLike, signal: ArrayLike, frequency_hz: float, n_bins: int = PHASE_BINS
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """One cycle of a signal: samples binned by the phase of the command, then averaged.

    The period need not be a multiple of the time step: bins collect whatever falls into them.

    Args:
        time: shape (N,), in [s] from the command's onset (phase 0); any order, so that several
            episodes may be concatenated.
        signal: shape (N,) or (N, k).
        frequency_hz: frequency of the command.
        n_bins: number of equal bins of a cycle.

    Returns:
        Bin centres, shape (n_bins,), in [rad]; mean and standard deviation over the samples
        of each bin, shape (n_bins,) or (n_bins, k), NaN in bins without samples.
    """
    return _bin_statistics(2.0 * np.pi * frequency_hz * np.asarray(time), signal, n_bins)


def sine_fit(time: ArrayLike, signal: ArrayLike, frequency_hz: float) -> tuple[float, float, float]:
    """Least-squares fit of `offset + amplitude * sin(2 pi f t + phase)` at a known f.

    Args:
        time: shape (N,), in [s]. Whole periods are not needed: the fit is joint.
        signal: shape (N,).
        frequency_hz: f.

    Returns:
        amplitude (not negative) and offset in the unit of the signal, phase in [rad] within
        (-pi, pi].

    Raises:
        ValueError: fewer than three samples, or samples that do not tell the three apart.
    """
    time, signal = np.asarray(time, dtype=float), np.asarray(signal, dtype=float)
    if time.ndim != 1 or signal.shape != time.shape:
        raise ValueError(f"time of shape {time.shape} with signal of shape {signal.shape}")
    angle = 2.0 * np.pi * frequency_hz * time
    basis = np.stack([np.sin(angle), np.cos(angle), np.ones_like(angle)], axis=1)
    (in_phase, quadrature, offset), _, rank, _ = np.linalg.lstsq(basis, signal, rcond=1e-9)
    if rank < 3:
        raise ValueError(f"{time.size} samples do not determine a sine at {frequency_hz:g} Hz")
    return (
        float(np.hypot(in_phase, quadrature)),
        float(np.arctan2(quadrature, in_phase)),
        float(offset),
    )


def phase_lag(
    time: ArrayLike, command: ArrayLike, response: ArrayLike, frequency_hz: float
) -> float:
    """How far the response lags the command at its frequency, in [rad] within (-pi, pi].

    Arguments as of :func:`sine_fit`; positive means the response comes later.
    """
    _, command_phase, _ = sine_fit(time, command, frequency_hz)
    _, response_phase, _ = sine_fit(time, response, frequency_hz)
    return wrap_angle(command_phase - response_phase)


# --- contact ------------------------------------------------------------------------------


def contact_fractions(
    foot_force_norm: ArrayLike, threshold_n: float = CONTACT_THRESHOLD_N
) -> FloatArray:
    """Fraction of time each foot presses with more than the threshold.

    Args:
        foot_force_norm: shape (T, nfeet), in [N].
        threshold_n: in [N].

    Returns:
        Shape (nfeet,), within [0, 1].
    """
    return np.mean(np.asarray(foot_force_norm) > threshold_n, axis=0)


def contact_kept_fraction(
    foot_force_norm: ArrayLike, threshold_n: float = CONTACT_THRESHOLD_N
) -> float:
    """Fraction of time in which every foot is in contact; see :func:`contact_fractions`."""
    return float(np.mean(np.all(np.asarray(foot_force_norm) > threshold_n, axis=1)))


# --- gap between two recordings: pitching (section VI-B) -------------------------------------


def _check_same_feet(simulated: Recording, reference: Recording) -> None:
    if simulated.foot_names != reference.foot_names:
        raise ValueError(
            f"feet differ: {simulated.foot_names} simulated, {reference.foot_names} reference"
        )


def _frequency(recording: Recording) -> float:
    if "frequency_hz" not in recording.meta:
        raise ValueError("the recording's meta has no 'frequency_hz', so its command no phase")
    return recording.meta["frequency_hz"]


def _on_time(time: FloatArray, recording: Recording) -> FloatArray:
    """Foot-force norms at other times, linear between samples, shape (len(time), nfeet)."""
    norms = recording.foot_force_norm
    return np.stack([np.interp(time, recording.time, column) for column in norms.T], axis=1)


def grf_norm_rmse(simulated: Recording, reference: Recording) -> FloatArray:
    """RMSE of each foot's ground-reaction-force norm over the full record (Fig. 11b).

    The two are aligned at the command's onset and compared over the time both cover, at the
    simulated samples; a reference with other stamps is interpolated linearly.

    Returns:
        Shape (nfeet,), in [N]; `root_mean_square` of it is the RMSE over all feet.

    Raises:
        ValueError: the feet differ, or the two share no time.
    """
    _check_same_feet(simulated, reference)
    slack = 1e-3 * simulated.step_s
    start = max(simulated.time[0], reference.time[0]) - slack
    stop = min(simulated.time[-1], reference.time[-1]) + slack
    keep = (simulated.time >= start) & (simulated.time <= stop)
    if not keep.any():
        raise ValueError("the two recordings share no time")
    gap = simulated.foot_force_norm[keep] - _on_time(simulated.time[keep], reference)
    return np.sqrt(np.mean(np.square(gap), axis=0))


def grf_norm_phase_gap(
    simulated: Recording, reference: Recording, n_bins: int = PHASE_BINS
) -> tuple[FloatArray, FloatArray]:
    """Phase-wise absolute gap of the phase-averaged foot-force norms (Fig. 11a).

    Returns:
        Bin centres, shape (n_bins,), in [rad]; gap |F_ref - F_sim|, shape (n_bins, nfeet),
        in [N], NaN where either has no sample.
    """
    _check_same_feet(simulated, reference)
    centres, ours, _ = phase_average(
        simulated.time, simulated.foot_force_norm, _frequency(simulated), n_bins
    )
    _, theirs, _ = phase_average(
        reference.time, reference.foot_force_norm, _frequency(reference), n_bins
    )
    return centres, np.abs(theirs - ours)


def grf_norm_phase_rmse(
    simulated: Recording, reference: Recording, n_bins: int = PHASE_BINS
) -> FloatArray:
    """Root mean square over the cycle of :func:`grf_norm_phase_gap`, shape (nfeet,), in [N].

    Over the bins that both have samples in: a slow log meets only some phases of a fast command.
    NaN for a foot without any.
    """
    _, gap = grf_norm_phase_gap(simulated, reference, n_bins)
    known = np.isfinite(gap)
    count = known.sum(axis=0)
    total = np.square(np.where(known, gap, 0.0)).sum(axis=0)
    return np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), np.nan)


def pitch_rate_rmse_percent(simulated: ArrayLike, reference: ArrayLike) -> float:
    """100 * RMSE / peak-to-peak of the reference (section VI-B), in percent.

    Args:
        simulated, reference: pitch rates of equal shape, in [rad/s]; the paper's figures are
            of the phase-averaged cycles.
    """
    return 100.0 * rmse(simulated, reference) / float(np.ptp(np.asarray(reference)))


# --- gap between two recordings: circle (section VI-C) ---------------------------------------


def e_rmse(e_vx: float, e_wz: float, vx_command: float, wz_command: float) -> float:
    """E_RMSE of one trial, Eq. 34, in percent.

    Args:
        e_vx: RMSE of the forward velocity, in [m/s]; e_wz: of the yaw rate, in [rad/s].
        vx_command, wz_command: command magnitudes, in [m/s] and [rad/s].
    """
    return 100.0 / 2.0 * (e_vx / abs(vx_command) + e_wz / abs(wz_command))


def velocity_phase_gap(
    phase: ArrayLike,
    vx_simulated: ArrayLike,
    vx_reference: ArrayLike,
    wz_simulated: ArrayLike,
    wz_reference: ArrayLike,
    vx_command: float,
    wz_command: float,
    n_bins: int = PHASE_BINS,
) -> tuple[FloatArray, FloatArray]:
    """Command-normalised velocity gap in each phase bin of one trial, Eq. 35.

    Args:
        phase: shape (T,), in [rad], progress of the circular command (any number of laps).
        vx_simulated, vx_reference: shape (T,), in [m/s], forward velocity, paired samples.
        wz_simulated, wz_reference: shape (T,), in [rad/s], yaw rate, paired samples.
        vx_command, wz_command: command magnitudes, in [m/s] and [rad/s].
        n_bins: N_phi.

    Returns:
        Bin centres phi_j, shape (n_bins,), in [rad]; gap, shape (n_bins,), in percent, NaN in
        bins without samples.
    """
    signals = [
        np.asarray(s, dtype=float) for s in (vx_simulated, vx_reference, wz_simulated, wz_reference)
    ]
    shapes = [np.shape(phase)] + [s.shape for s in signals]
    if len(set(shapes)) != 1:
        raise ValueError(f"phase and paired velocities of shapes {shapes}: must be equal")
    vx_sim, vx_ref, wz_sim, wz_ref = signals
    gap = np.abs(vx_sim - vx_ref) / abs(vx_command) + np.abs(wz_sim - wz_ref) / abs(wz_command)
    centres, mean, _ = _bin_statistics(phase, 100.0 / 2.0 * gap, n_bins)
    return centres, mean


def e_phi(phase_gap: ArrayLike) -> float:
    """E_phi of one trial, Eq. 36: the mean over all phase bins, in percent.

    NaN when a bin is empty: a trial cut short has no E_phi, and the mean over the bins that
    it did reach would look better than the trial was.
    """
    return float(np.mean(np.asarray(phase_gap, dtype=float)))


# --- one robot's answer to the pitch command --------------------------------------------------


def after_settling(recordings: Sequence[Recording], settle_s: float) -> list[Recording]:
    """What is left of each episode once its first ``settle_s`` seconds are cut off."""
    ends = [(r, float(r.time[0]) + settle_s) for r in recordings]
    return [r.slice_time(end) for r, end in ends if r.time[-1] >= end]


def _pitch_phasors(recordings: Sequence[Recording]) -> tuple[float, complex]:
    """Mean pitch amplitude in [rad], and mean complex gain pitch / command.

    Averaging the complex gain, not lags, keeps the mean right where lags wrap around.
    """
    amplitudes, gains = [], []
    for r in recordings:
        frequency = _frequency(r)
        if r.duration_s * frequency < 1.0:
            continue  # less than one period says nothing about amplitude or lag
        amplitude, phase, _ = sine_fit(r.time, r.pitch, frequency)
        commanded, command_phase, _ = sine_fit(r.time, r.command["pitch_rad"], frequency)
        amplitudes.append(amplitude)
        if commanded > 0.0:
            gains.append(amplitude / commanded * np.exp(1j * (phase - command_phase)))
    return (
        float(np.mean(amplitudes)) if amplitudes else np.nan,
        complex(np.mean(gains)) if gains else complex(np.nan, np.nan),
    )


def pitch_metrics(recordings: Sequence[Recording], settle_s: float = 1.0) -> dict[str, float]:
    """How one robot answers the sinusoidal pitch command, pooled over episodes.

    Errors, contact, forces, RMS torque and height are pooled over all samples from `settle_s`
    on; peak torque, drift, falls and duration are of the whole episodes. The amplitude, the
    lag and the gain are means over episodes. An episode shorter than `settle_s` (a fall) still
    counts among the latter; where no sample is left, a figure is NaN.

    Args:
        recordings: one per episode, of one robot, each with the command signals "pitch_rad"
            and "pitch_rate_rad_s" and `meta["frequency_hz"]`.
        settle_s: start of each episode that is left out, in [s].

    Returns:
        Flat dict, units in the names. Of these, `pitch_phase_lag_rad` is positive where the
        robot lags, `pitch_in_phase_gain` is the pitch amplitude in phase with the command over
        the commanded amplitude (1 is perfect), `pitch_rate_peak_to_peak_rad_s` is that of the
        phase-averaged cycle (as in Fig. 10, so noise does not enter), `contact_kept_fraction`
        is the time with every foot on the ground, and `grf_norm_std_n` is over time for each
        foot and then the root mean square over the feet.

    Raises:
        ValueError: no recording, or recordings of different robots, or a command is missing.
    """
    if not recordings:
        raise ValueError("no recording to evaluate")
    for r in recordings:
        _check_same_feet(r, recordings[0])
        _frequency(r)
        for name in ("pitch_rad", "pitch_rate_rad_s"):
            if name not in r.command:
                raise ValueError(f"the recording has no command {name!r}; it has {set(r.command)}")

    result: dict[str, float] = {"episodes": len(recordings)}
    result["falls"] = sum(r.fell for r in recordings)
    result["duration_s"] = float(np.mean([r.duration_s for r in recordings]))

    settled = after_settling(recordings, settle_s)
    if settled:
        result |= _settled_pitch_metrics(settled)
    else:
        result |= dict.fromkeys(_settled_pitch_metrics([recordings[0]]), np.nan)

    result["torque_peak_nm"] = float(max(np.max(np.abs(r.motor_torque)) for r in recordings))
    drift = [np.linalg.norm(r.base_position[-1, :2] - r.base_position[0, :2]) for r in recordings]
    result["base_drift_m"] = float(np.mean(drift))
    return result


def _settled_pitch_metrics(settled: Sequence[Recording]) -> dict[str, float]:
    pitch = np.concatenate([r.pitch for r in settled])
    pitch_command = np.concatenate([r.command["pitch_rad"] for r in settled])
    rate = np.concatenate([r.pitch_rate for r in settled])
    rate_command = np.concatenate([r.command["pitch_rate_rad_s"] for r in settled])
    # The phase in cycles, so that episodes of different frequency may be pooled.
    cycles = np.concatenate([r.time * _frequency(r) for r in settled])
    _, rate_cycle, _ = phase_average(cycles, rate, frequency_hz=1.0)
    amplitude, gain = _pitch_phasors(settled)
    result = {
        "pitch_rmse_rad": rmse(pitch, pitch_command),
        "pitch_rate_rmse_rad_s": rmse(rate, rate_command),
        "pitch_rate_peak_to_peak_rad_s": float(np.nanmax(rate_cycle) - np.nanmin(rate_cycle)),
        "pitch_amplitude_rad": amplitude,
        "pitch_phase_lag_rad": float(-np.angle(gain)),
        "pitch_in_phase_gain": float(gain.real),
    }

    force = np.concatenate([r.foot_force_norm for r in settled])
    force_std = force.std(axis=0)
    pooled_and_per_foot = {
        "contact_kept_fraction": (contact_kept_fraction(force), contact_fractions(force)),
        "grf_norm_mean_n": (force.mean(), force.mean(axis=0)),
        "grf_norm_std_n": (root_mean_square(force_std), force_std),
    }
    for name, (pooled, per_foot) in pooled_and_per_foot.items():
        result[name] = float(pooled)
        for foot, value in zip(settled[0].foot_names, per_foot, strict=True):
            result[f"{name}_{foot}"] = float(value)

    height = np.concatenate([r.base_position[:, 2] for r in settled])
    result["base_height_mean_m"] = float(height.mean())
    result["torque_rms_nm"] = root_mean_square(np.concatenate([r.motor_torque for r in settled]))
    return result


# --- one robot's answer to a velocity command ---------------------------------------------------


def circle_command(recording: Recording) -> tuple[float, float]:
    """Commanded v_x in [m/s] and w_z in [rad/s] of a recording's metadata.

    Raises:
        ValueError: it has none.
    """
    try:
        return recording.meta["vx_command_m_s"], recording.meta["wz_command_rad_s"]
    except KeyError as missing:
        raise ValueError(f"the recording's meta has no {missing}, so no circle command") from None


def circle_metrics(recordings: Sequence[Recording], settle_s: float = 1.0) -> dict[str, float]:
    """How one robot follows a constant v_x and w_z, pooled over episodes.

    Errors, contact, RMS torque and height are pooled over all samples from `settle_s` on; falls,
    peak torque and duration are of the whole episodes. Where no sample is left, a figure is NaN.

    Args:
        recordings: one per episode, of one robot and one command, which `meta` has.
        settle_s: start of each episode that is left out, in [s].

    Returns:
        Flat dict, units in the names; `tracking_e_rmse_percent` is Eq. 34 with the errors against
        the command in the place of the gap to a reference, NaN for a command of zero.

    Raises:
        ValueError: no recording, or recordings of different robots or commands.
    """
    if not recordings:
        raise ValueError("no recording to evaluate")
    command = circle_command(recordings[0])
    for r in recordings:
        _check_same_feet(r, recordings[0])
        if circle_command(r) != command:
            raise ValueError(f"commands differ: {circle_command(r)} and {command}")
    result: dict[str, float] = {"episodes": len(recordings)}
    result["falls"] = sum(r.fell for r in recordings)
    result["duration_s"] = float(np.mean([r.duration_s for r in recordings]))
    settled = after_settling(recordings, settle_s)
    if settled:
        result |= _settled_circle_metrics(settled, *command)
    else:
        result |= dict.fromkeys(_settled_circle_metrics([recordings[0]], *command), np.nan)
    result["torque_peak_nm"] = float(max(np.max(np.abs(r.motor_torque)) for r in recordings))
    return result


def _settled_circle_metrics(
    settled: Sequence[Recording], vx_command: float, wz_command: float
) -> dict[str, float]:
    velocity = np.concatenate([r.body_velocity for r in settled])
    yaw_rate = np.concatenate([r.yaw_rate for r in settled])
    result = {
        "vx_mean_m_s": float(velocity[:, 0].mean()),
        "wz_mean_rad_s": float(yaw_rate.mean()),
        "vx_rmse_m_s": root_mean_square(velocity[:, 0] - vx_command),
        "vy_rms_m_s": root_mean_square(velocity[:, 1]),
        "wz_rmse_rad_s": root_mean_square(yaw_rate - wz_command),
    }
    result["tracking_e_rmse_percent"] = (
        e_rmse(result["vx_rmse_m_s"], result["wz_rmse_rad_s"], vx_command, wz_command)
        if vx_command and wz_command
        else np.nan
    )
    force = np.concatenate([r.foot_force_norm for r in settled])
    for foot, fraction in zip(settled[0].foot_names, contact_fractions(force), strict=True):
        result[f"contact_kept_fraction_{foot}"] = float(fraction)
    height = np.concatenate([r.base_position[:, 2] for r in settled])
    result["base_height_mean_m"] = float(height.mean())
    result["torque_rms_nm"] = root_mean_square(np.concatenate([r.motor_torque for r in settled]))
    return result


def finite(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """For JSON, which has no NaN: a figure that no sample was left for is None."""
    return {k: v if v is not None and np.isfinite(v) else None for k, v in figures.items()}


# --- table for the terminal ---------------------------------------------------------------

_SPREAD = "  std over trials"

# key: label, unit, factor from SI, decimals
_LABELS: dict[str, tuple[str, str, float, int]] = {
    "episodes": ("episodes", "", 1.0, 0),
    "falls": ("falls", "", 1.0, 0),
    "duration_s": ("duration of an episode", "s", 1.0, 2),
    "pitch_rmse_rad": ("pitch error, RMS", "rad", 1.0, 4),
    "pitch_rate_rmse_rad_s": ("pitch rate error, RMS", "rad/s", 1.0, 3),
    "pitch_rate_peak_to_peak_rad_s": ("pitch rate, peak to peak", "rad/s", 1.0, 3),
    "pitch_amplitude_rad": ("pitch amplitude", "rad", 1.0, 4),
    "pitch_phase_lag_rad": ("pitch lag behind the command", "deg", 180.0 / np.pi, 1),
    "pitch_in_phase_gain": ("pitch gain in phase with the command", "", 1.0, 3),
    "contact_kept_fraction": ("time with all feet on the ground", "%", 100.0, 1),
    "grf_norm_mean_n": ("ground reaction force, mean", "N", 1.0, 1),
    "grf_norm_std_n": ("ground reaction force, std", "N", 1.0, 1),
    "torque_rms_nm": ("motor torque, RMS", "N m", 1.0, 2),
    "torque_peak_nm": ("motor torque, peak", "N m", 1.0, 2),
    "base_height_mean_m": ("trunk height, mean", "m", 1.0, 3),
    "base_drift_m": ("drift over an episode", "m", 1.0, 3),
    "vx_mean_m_s": ("forward velocity, mean", "m/s", 1.0, 3),
    "wz_mean_rad_s": ("yaw rate, mean", "rad/s", 1.0, 3),
    "vx_rmse_m_s": ("forward velocity error, RMS", "m/s", 1.0, 3),
    "vy_rms_m_s": ("sideways velocity, RMS", "m/s", 1.0, 3),
    "wz_rmse_rad_s": ("yaw rate error, RMS", "rad/s", 1.0, 3),
    "tracking_e_rmse_percent": ("E_RMSE of tracking the command", "%", 1.0, 2),
    "trials": ("trials", "", 1.0, 0),
    "reference_falls": ("falls of the reference", "", 1.0, 0),
    "grf_norm_rmse_n": ("ground reaction force norm, RMSE", "N", 1.0, 2),
    "grf_norm_rmse_n_std": (_SPREAD, "N", 1.0, 2),
    "grf_norm_phase_rmse_n": ("ground reaction force norm, RMSE of mean cycle", "N", 1.0, 2),
    "grf_norm_phase_rmse_n_std": (_SPREAD, "N", 1.0, 2),
    "pitch_rate_rmse_percent": ("pitch rate, RMSE of peak to peak", "%", 1.0, 2),
    "pitch_rate_rmse_percent_std": (_SPREAD, "%", 1.0, 2),
    "e_vx_m_s": ("forward velocity, RMSE", "m/s", 1.0, 3),
    "e_vx_m_s_std": (_SPREAD, "m/s", 1.0, 3),
    "e_wz_rad_s": ("yaw rate, RMSE", "rad/s", 1.0, 3),
    "e_wz_rad_s_std": (_SPREAD, "rad/s", 1.0, 3),
    "e_rmse_percent": ("E_RMSE (Eq. 34)", "%", 1.0, 2),
    "e_rmse_percent_std": (_SPREAD, "%", 1.0, 2),
    "e_phi_percent": ("E_phi (Eq. 36)", "%", 1.0, 2),
    "e_phi_percent_std": (_SPREAD, "%", 1.0, 2),
}
_FOOT_LABELS = {
    "contact_kept_fraction": "  on the ground",
    "grf_norm_mean_n": "  force, mean",
    "grf_norm_std_n": "  force, std",
    "grf_norm_rmse_n": "  RMSE",
    "grf_norm_phase_rmse_n": "  RMSE of mean cycle",
}


def _known(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))


def metric_row(key: str, value: float) -> tuple[str, str, str]:
    """Label, value and unit of a figure as text; a key without a label stands for itself."""
    label, unit, factor, decimals = key, "", 1.0, None
    if key in _LABELS:
        label, unit, factor, decimals = _LABELS[key]
    else:
        for stem, foot_label in _FOOT_LABELS.items():
            if key.startswith(f"{stem}_"):
                _, unit, factor, decimals = _LABELS[stem]
                label = f"{foot_label}, {key.removeprefix(f'{stem}_')}"
    if not _known(value):
        return label, "-", unit
    return label, f"{value:.6g}" if decimals is None else f"{value * factor:.{decimals}f}", unit


def metric_rows(metrics: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Rows of a table in the given order; a spread that too few trials have is left out."""
    return [
        metric_row(key, value)
        for key, value in metrics.items()
        if _known(value) or _LABELS.get(key, ("",))[0] != _SPREAD
    ]


def counted(number: float, what: str) -> str:
    """`1 episode`, `4 episodes`."""
    return f"{number:.0f} {what}{'' if number == 1 else 's'}"


def metric_table(metrics: Mapping[str, float]) -> str:
    """Aligned text table, one metric a line: label, value, unit; see :func:`metric_rows`.

    Keys without a label (another task's metrics) are printed as they are.
    """
    rows = metric_rows(metrics)
    label_width = max((len(label) for label, _, _ in rows), default=0)
    value_width = max((len(value) for _, value, _ in rows), default=0)
    return "\n".join(
        f"{label:<{label_width}}  {value:>{value_width}} {unit}".rstrip()
        for label, value, unit in rows
    )
