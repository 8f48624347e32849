"""Figures of the contact-free test, in the manner of the paper's Figs. 6-8."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from s3n_mjx.evaluation.plots import PALETTE, new_figure, style_axes
from s3n_mjx.validation.excitation import Chirp
from s3n_mjx.validation.leg import Gap

_MOTORS = ("hip motor", "knee motor")
_QUANTITIES = {
    "position": ("position", "rad"),
    "torque": ("torque", "N m"),
}


def errors_over_time(gaps: Mapping[str, Gap], quantity: str, title: str) -> Figure:
    """Error of each model over the sweep (Fig. 6 for position, Fig. 7 for torque).

    Args:
        gaps: by label, the one to be drawn at the back first.
        quantity: "position" or "torque".
        title: what it shows.
    """
    name, unit = _QUANTITIES[quantity]
    fig = new_figure(9.0, 5.0, title)
    axes = fig.subplots(2, 1, sharex=True)
    for motor, ax in enumerate(axes):
        for i, (label, gap) in enumerate(gaps.items()):
            error = getattr(gap, quantity)[:, motor]
            ax.plot(gap.time, error, color=PALETTE[i], linewidth=0.9, label=label)
        style_axes(ax, ylabel=f"{_MOTORS[motor]},\n{name} error [{unit}]")
        ax.margins(x=0)
    axes[-1].set_xlabel("time since the sweep's beginning [s]", fontsize=11)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return fig


def errors_over_frequency(gaps: Mapping[str, Gap], chirp: Chirp, title: str) -> Figure:
    """RMS error in bands of the sweep's frequency, position above and torque below."""
    fig = new_figure(9.0, 6.0, title)
    axes = fig.subplots(2, 2, sharex=True)
    edges = np.linspace(chirp.start_hz, chirp.stop_hz, 26)
    centres = (edges[:-1] + edges[1:]) / 2
    for row, quantity in enumerate(_QUANTITIES):
        name, unit = _QUANTITIES[quantity]
        for motor in range(2):
            ax = axes[row, motor]
            for i, (label, gap) in enumerate(gaps.items()):
                band = np.digitize(chirp.frequency(gap.time), edges[1:-1])
                squared = getattr(gap, quantity)[:, motor] ** 2
                count = np.bincount(band, minlength=len(centres))
                total = np.bincount(band, squared, minlength=len(centres))
                rms = np.sqrt(total / np.maximum(count, 1))
                ax.semilogy(centres, rms, color=PALETTE[i], linewidth=1.6, label=label)
            style_axes(ax, ylabel=f"{name} error, RMS [{unit}]" if motor == 0 else "")
            if row == 0:
                ax.set_title(_MOTORS[motor], fontsize=11, loc="left")
    for ax in axes[1]:
        ax.set_xlabel("frequency of the sweep [Hz]", fontsize=11)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return fig


def rmse_bars(gaps: Mapping[str, Gap], title: str) -> Figure:
    """RMSE of every model, both motors (Fig. 8)."""
    fig = new_figure(9.0, 0.45 * len(gaps) + 2.2, title)
    axes = fig.subplots(1, 2, sharey=True)
    place = np.arange(len(gaps))
    for ax, quantity in zip(axes, _QUANTITIES, strict=True):
        name, unit = _QUANTITIES[quantity]
        for motor in range(2):
            values = [getattr(gap, f"{quantity}_rmse")[motor] for gap in gaps.values()]
            bars = ax.barh(
                place + 0.2 * (2 * motor - 1),
                values,
                0.38,
                color=PALETTE[motor],
                label=_MOTORS[motor],
            )
            ax.bar_label(
                bars, fmt="%.4f" if quantity == "position" else "%.2f", fontsize=8, padding=2
            )
        style_axes(ax, f"{name} RMSE [{unit}]")
        ax.margins(x=0.18)
    axes[0].set_yticks(place, list(gaps))
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return fig
