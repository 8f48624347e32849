"""The gap between simulated trials and their references, as the paper tabulates it (section VI)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from s3n_mjx.evaluation import metrics
from s3n_mjx.evaluation.recording import Recording

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
    rows = []
    for ours, theirs in zip(simulated, reference, strict=True):
        pair = metrics.after_settling([ours, theirs], settle_s)
        if len(pair) == 2:
            rows.append(_pitch_trial(*pair))
    feet = simulated[0].foot_names
    names = [*_PITCH, *(f"{name}_{foot}" for name in _PITCH[:2] for foot in feet)]
    result: dict[str, float] = {"trials": len(rows)}
    result["reference_falls"] = sum(r.fell for r in reference)
    for name in names:
        values = np.array([row[name] for row in rows])
        result[name] = float(values.mean()) if len(values) else np.nan
        if name in _PITCH:
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
