"""Bode plots of what was measured and what was fitted, in the manner of the paper's Fig. 4."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from s3n_mjx.evaluation.plots import PALETTE, new_figure, style_axes
from s3n_mjx.identification.actuator import ActuatorResult
from s3n_mjx.identification.fit import Fit, predict
from s3n_mjx.identification.leg import Posture

Complex = NDArray[np.complex128]

# What the fit would be with one parameter wrong, for the eye to judge what carries it.
_MISMATCHES = {
    "inertia +30 %": ("m11", 1.3),
    "damping +100 %": ("d11", 2.0),
    "no torque delay": ("delay", 0.0),
}


def _decibel(values: Complex) -> NDArray[np.float64]:
    return 20 * np.log10(np.maximum(np.abs(values), 1e-300))


def _degrees(values: Complex) -> NDArray[np.float64]:
    return np.degrees(np.unwrap(np.angle(values)))


def actuator_bode(result: ActuatorResult) -> Figure:
    """Torque to velocity of every motor, the pooled fit, and three cases of mismatch."""
    fit = result.pooled
    fig = new_figure(9.0, 6.5, "Motor: torque to velocity, measured and fitted")
    above, below = fig.subplots(2, 1, sharex=True)
    for i, motor in enumerate(result.motors):
        record = motor.fit.records[0]
        measured = _through(motor.fit, record.velocity.mean[:, 0])
        above.semilogx(
            record.velocity.frequency, _decibel(measured), ".", color="0.6", markersize=3,
            label="measured" if i == 0 else None,
        )  # fmt: skip
        below.semilogx(
            record.velocity.frequency, _degrees(measured), ".", color="0.6", markersize=3
        )
    record = fit.records[0]
    values = {name: e.value for name, e in fit.estimates.items()}
    cases = {"fitted": values}
    for label, (name, factor) in _MISMATCHES.items():
        cases[label] = values | {name: factor * values[name]}
    for i, (label, case) in enumerate(cases.items()):
        curve = _through(fit, predict(case, record, fit.directions[0])[:, 0])
        style = {"color": PALETTE[i], "linewidth": 1.8 if i == 0 else 1.2}
        style["linestyle"] = "-" if i == 0 else "--"
        above.semilogx(record.velocity.frequency, _decibel(curve), label=label, **style)
        below.semilogx(record.velocity.frequency, _degrees(curve), **style)
    style_axes(above, ylabel="magnitude [dB re rad/s per N m]")
    style_axes(below, "frequency [Hz]", "phase [deg]")
    above.legend(fontsize=9, frameon=False)
    return fig


def _through(fit: Fit, velocity: Complex) -> Complex:
    """Response to torque less friction: friction is no linear part of the motor."""
    record = fit.records[0]
    torque = record.torque.mean[:, 0]
    if "f1" in fit.estimates:
        torque = torque - fit.estimates["f1"].value * fit.directions[0][:, 0]
    return velocity / torque


def leg_matrix(posture: Posture) -> Figure:
    """The 2x2 response of a leg, measured and fitted, magnitude and phase."""
    fit = posture.fit
    u = np.stack([r.torque.mean for r in fit.records], axis=-1)
    fitted = np.stack(fit.modelled, axis=-1) @ np.linalg.pinv(u)
    fig = new_figure(
        10.0, 8.0, f"Leg at alpha = {posture.alpha:.2f} rad: torque to velocity (Eq. 30)"
    )
    axes = fig.subplots(4, 2, sharex=True, height_ratios=(3, 2, 3, 2))
    for i in range(2):
        for j in range(2):
            for row, of in ((2 * i, _decibel), (2 * i + 1, _degrees)):
                ax = axes[row, j]
                ax.semilogx(
                    posture.frequency, of(posture.response[:, i, j]), ".", color="0.6",
                    markersize=3, label="measured",
                )  # fmt: skip
                ax.semilogx(
                    posture.frequency, of(fitted[:, i, j]), color=PALETTE[0], label="fitted"
                )
                style_axes(ax, ylabel=("dB" if row % 2 == 0 else "deg") if j == 0 else "")
            axes[2 * i, j].set_title(f"G{i + 1}{j + 1}", fontsize=11, loc="left")
    for ax in axes[-1]:
        ax.set_xlabel("frequency [Hz]", fontsize=11)
    axes[0, 0].legend(fontsize=9, frameon=False)
    return fig


def residuals(fits: Mapping[str, Fit], title: str) -> Figure:
    """Share of the response that the fit leaves, over frequency, by label."""
    fig = new_figure(9.0, 3.6, title)
    ax = fig.subplots()
    for i, (label, fit) in enumerate(fits.items()):
        for k, (record, left) in enumerate(zip(fit.records, fit.relative_residual(), strict=True)):
            ax.loglog(
                record.velocity.frequency, left.max(axis=1), ".", markersize=3,
                color=PALETTE[i % len(PALETTE)], label=label if k == 0 else None,
            )  # fmt: skip
    style_axes(ax, "frequency [Hz]", "|measured - fitted| / |measured|")
    ax.legend(fontsize=9, frameon=False)
    return fig
