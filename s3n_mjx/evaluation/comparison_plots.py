"""Figures of several methods side by side (the paper's Figs. 10 and 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from s3n_mjx.evaluation import metrics
from s3n_mjx.evaluation.plots import PALETTE, new_figure, style_axes
from s3n_mjx.evaluation.recording import Recording

_BINS = 36


def _settled(path: Path, settle_s: float) -> Recording:
    recording = Recording.load(path)
    return (metrics.after_settling([recording], settle_s) or [recording])[0]


def grf_gap(
    folder: Path, variants: Sequence[str], seeds: Sequence[int], level: str, settle_s: float
) -> Figure:
    """Phase-wise absolute gap of each foot's force norm, mean over seeds (Fig. 11a)."""
    first = _settled(folder / f"{variants[0]}-seed{seeds[0]}/recordings/simulator.npz", settle_s)
    feet = first.foot_names
    columns = 2 if len(feet) == 4 else len(feet)
    rows = -(-len(feet) // columns)
    fig = new_figure(
        4.2 * columns, 2.5 * rows + 1.0, "Gap of ground reaction forces over one cycle"
    )
    axes = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for i, variant in enumerate(variants):
        curves = []
        for seed in seeds:
            trials = folder / f"{variant}-seed{seed}" / "recordings"
            phase, gap = metrics.grf_norm_phase_gap(
                _settled(trials / "simulator.npz", settle_s),
                _settled(trials / f"{level}.npz", settle_s),
                _BINS,
            )
            curves.append(gap)
        mean = np.mean(curves, axis=0)
        for foot, ax in enumerate(axes.flat[: len(feet)]):
            ax.plot(
                np.rad2deg(phase), mean[:, foot], color=PALETTE[i], linewidth=1.6, label=variant
            )
    for foot, ax in enumerate(axes.flat[: len(feet)]):
        style_axes(
            ax,
            "phase of the command [deg]" if foot + columns >= len(feet) else "",
            "|reference - simulator| [N]" if foot % columns == 0 else "",
        )
        ax.set_title(feet[foot], fontsize=11, loc="left")
        ax.set_xlim(0, 360)
        ax.set_xticks(np.arange(0, 361, 90))
        ax.set_ylim(bottom=0)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return fig


def grf_bars(
    gaps: Mapping[tuple, Mapping[str, Mapping[str, float]]],
    variants: Sequence[str],
    seeds: Sequence[int],
    levels: Sequence[str],
) -> Figure:
    """RMSE of the force norm over all feet: a bar for the mean, a dot for each seed (Fig. 11b)."""
    fig = new_figure(7.0, 4.0, "RMSE of ground reaction forces against the closed chain")
    ax = fig.subplots()
    width = 0.8 / len(levels)
    for k, level in enumerate(levels):
        for i, variant in enumerate(variants):
            values = [gaps[variant, seed][level]["grf_norm_rmse_n"] for seed in seeds]
            x = i + (k - (len(levels) - 1) / 2) * width
            ax.bar(
                x, np.mean(values), 0.92 * width, color=PALETTE[k], alpha=0.75,
                label=str(level) if i == 0 else None,
            )  # fmt: skip
            ax.scatter(np.full(len(values), x), values, color="0.2", s=14, zorder=3)
    ax.set_xticks(range(len(variants)), [str(v) for v in variants])
    style_axes(ax, "", "GRF norm, RMSE over all feet [N]")
    fig.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return fig


def pitch_rates(
    folder: Path, variants: Sequence[str], seed: int, level: str, settle_s: float
) -> Figure:
    """One cycle of pitch rate of each method, in its simulator and on the reference (Fig. 10)."""
    fig = new_figure(8.5, 4.0, "Pitch rate over one cycle: simulator (line), reference (dashed)")
    axes = fig.subplots(1, len(variants), sharey=True, squeeze=False)[0]
    for i, (variant, ax) in enumerate(zip(variants, axes, strict=True)):
        trials = folder / f"{variant}-seed{seed}" / "recordings"
        for name, style in (("simulator", "-"), (level, "--")):
            r = _settled(trials / f"{name}.npz", settle_s)
            phase, mean, _ = metrics.phase_average(
                r.time, r.pitch_rate, r.meta["frequency_hz"], _BINS
            )
            ax.plot(np.rad2deg(phase), mean, style, color=PALETTE[i], linewidth=1.6)
        style_axes(ax, "phase [deg]", "pitch rate [rad/s]" if i == 0 else "")
        ax.set_title(str(variant), fontsize=11, loc="left")
        ax.set_xticks(np.arange(0, 361, 180))
    return fig
