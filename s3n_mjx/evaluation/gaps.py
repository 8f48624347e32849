"""The gap between simulated trials and their references, as the paper tabulates it (section VI)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from s3n_mjx.evaluation import metrics
from s3n_mjx.evaluation.recording import Recording

_CIRCLE = ("e_vx_m_s", "e_wz_rad_s", "e_rmse_percent", "e_phi_percent")
_PITCH = ("grf_norm_rmse_n", "grf_norm_phase_rmse_n", "pitch_rate_rmse_percent")


def pitch_gap(
    simulated: Sequence[Recording], reference: Sequence[Recording], settle_s: float = 1.0
) -> dict[str, float]:
    """Gap of pitching: means over trials, and sample standard deviations under `KEY_std`.

    Args:
        simulated, reference: trial by trial, aligned at the command's onset.
        settle_s: left out at the beginning of both, in s.

    Returns:
        `grf_norm_rmse_n` over the full record and `grf_norm_phase_rmse_n` of the phase-averaged
        cycles, each over all feet and, with the foot's name behind it, of every foot;
        `pitch_rate_rmse_percent` of the phase-averaged cycles, in percent of the reference's
        peak to peak; `trials` and `reference_falls`. A foot without a force plate is NaN, and so
        is everything where no trial outlasts `settle_s`.
    """
    rows = _trials(_pitch_trial, simulated, reference, settle_s)
    feet = simulated[0].foot_names
    names = [*_PITCH, *(f"{name}_{foot}" for name in _PITCH[:2] for foot in feet)]
    return _over_trials(rows, names, _PITCH, reference)


def circle_gap(
    simulated: Sequence[Recording], reference: Sequence[Recording], settle_s: float = 1.0
) -> dict[str, float]:
    """Gap of walking a circle: means over trials, and sample standard deviations under `KEY_std`.

    Args:
        simulated, reference: trial by trial, aligned at the command's onset.
        settle_s: left out at the beginning of both, in s.

    Returns:
        `e_vx_m_s` and `e_wz_rad_s`, RMSE of forward velocity and yaw rate over the time that both
        cover, `e_rmse_percent` (Eq. 34) and `e_phi_percent` (Eq. 36), as in Table IV; `trials` and
        `reference_falls`. E_phi is NaN unless every trial goes once around the circle, and
        everything where no trial outlasts `settle_s`.
    """
    rows = _trials(_circle_trial, simulated, reference, settle_s)
    return _over_trials(rows, _CIRCLE, _CIRCLE, reference)


def paired_velocities(simulated: Recording, reference: Recording) -> dict[str, NDArray[np.float64]]:
    """Both sides at the simulated samples of the time that both cover, each of shape (N,).

    Returns:
        `time` in s, `phase` of the circular command in rad, and forward velocities `vx_simulated`,
        `vx_reference` in m/s and yaw rates `wz_simulated`, `wz_reference` in rad/s; the reference
        is interpolated linearly.

    Raises:
        ValueError: the two share no time.
    """
    slack = 1e-3 * simulated.step_s
    start = max(simulated.time[0], reference.time[0]) - slack
    stop = min(simulated.time[-1], reference.time[-1]) + slack
    keep = (simulated.time >= start) & (simulated.time <= stop)
    if not keep.any():
        raise ValueError("the two recordings share no time")
    time = simulated.time[keep]
    _, wz_command = metrics.circle_command(simulated)
    return {
        "time": time,
        "phase": abs(wz_command) * time,
        "vx_simulated": simulated.body_velocity[keep, 0],
        "vx_reference": np.interp(time, reference.time, reference.body_velocity[:, 0]),
        "wz_simulated": simulated.yaw_rate[keep],
        "wz_reference": np.interp(time, reference.time, reference.yaw_rate),
    }


def circle_phase_gap(
    simulated: Recording, reference: Recording
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Phase bins in rad and gap in each in percent, Eq. 35; see `metrics.velocity_phase_gap`."""
    pair = paired_velocities(simulated, reference)
    return metrics.velocity_phase_gap(
        pair["phase"],
        pair["vx_simulated"],
        pair["vx_reference"],
        pair["wz_simulated"],
        pair["wz_reference"],
        *metrics.circle_command(simulated),
    )


def _circle_trial(simulated: Recording, reference: Recording) -> dict[str, float]:
    pair = paired_velocities(simulated, reference)
    e_vx = metrics.rmse(pair["vx_simulated"], pair["vx_reference"])
    e_wz = metrics.rmse(pair["wz_simulated"], pair["wz_reference"])
    row = {"e_vx_m_s": e_vx, "e_wz_rad_s": e_wz}
    vx_command, wz_command = metrics.circle_command(simulated)
    if not (vx_command and wz_command):  # no circle, so nothing to put the errors in relation to
        return row | {"e_rmse_percent": np.nan, "e_phi_percent": np.nan}
    return row | {
        "e_rmse_percent": metrics.e_rmse(e_vx, e_wz, vx_command, wz_command),
        "e_phi_percent": metrics.e_phi(circle_phase_gap(simulated, reference)[1]),
    }


def _trials(
    gap: Callable[[Recording, Recording], dict[str, float]],
    simulated: Sequence[Recording],
    reference: Sequence[Recording],
    settle_s: float,
) -> list[dict[str, float]]:
    """``gap`` of each trial that outlasts ``settle_s`` on both sides."""
    pairs = [
        metrics.after_settling(pair, settle_s) for pair in zip(simulated, reference, strict=True)
    ]
    return [gap(*pair) for pair in pairs if len(pair) == 2]


def _over_trials(
    rows: Sequence[Mapping[str, float]],
    names: Sequence[str],
    with_spread: Sequence[str],
    reference: Sequence[Recording],
) -> dict[str, float]:
    result: dict[str, float] = {"trials": len(rows)}
    result["reference_falls"] = sum(r.fell for r in reference)
    for name in names:
        values = np.array([row[name] for row in rows])
        result[name] = float(values.mean()) if len(values) else np.nan
        if name in with_spread:
            result[f"{name}_std"] = float(values.std(ddof=1)) if len(values) > 1 else np.nan
    return result


def _pitch_trial(simulated: Recording, reference: Recording) -> dict[str, float]:
    per_foot = {
        "grf_norm_rmse_n": metrics.grf_norm_rmse(simulated, reference),
        "grf_norm_phase_rmse_n": metrics.grf_norm_phase_rmse(simulated, reference),
    }
    row: dict[str, float] = {}
    for name, values in per_foot.items():
        row[name] = metrics.root_mean_square(measured(values))
        row |= {
            f"{name}_{foot}": float(value)
            for foot, value in zip(simulated.foot_names, values, strict=True)
        }
    cycles = [
        metrics.phase_average(r.time, r.pitch_rate, r.meta["frequency_hz"])[1]
        for r in (simulated, reference)
    ]
    both = np.isfinite(cycles[0]) & np.isfinite(cycles[1])
    row["pitch_rate_rmse_percent"] = (
        metrics.pitch_rate_rmse_percent(cycles[0][both], cycles[1][both]) if both.any() else np.nan
    )
    return row


def measured(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Those of the feet that a reference has forces of; all of them, NaN, if there is none."""
    known = np.isfinite(values)
    return values[known] if known.any() else values
