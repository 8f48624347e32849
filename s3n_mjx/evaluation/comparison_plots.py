"""Figures of several methods side by side (the paper's Figs. 10 to 12)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from s3n_mjx.evaluation import gaps, metrics
from s3n_mjx.evaluation.compared import SIMULATOR, Compared, Method
from s3n_mjx.evaluation.plots import PALETTE, cycle_gap, draw_phase_gap, new_figure, style_axes
from s3n_mjx.evaluation.recording import Recording

_BINS = 36


def _first_pair(
    compared: Compared, method: Method, seed: int, level: str
) -> tuple[Recording, Recording]:
    """The first trial in the simulator and on the reference, settled where it lasts so long."""
    simulated, reference = (
        (metrics.after_settling(recordings[:1], compared.settle_s) or recordings)[0]
        for recordings in (
            compared.recordings(method, seed, SIMULATOR),
            compared.recordings(method, seed, level),
        )
    )
    return simulated, reference


def grf_gap(compared: Compared, level: str) -> Figure:
    """Phase-wise absolute gap of each foot's force norm, mean over seeds (Fig. 11a)."""
    feet = compared.feet
    columns = 2 if len(feet) == 4 else len(feet)
    rows = -(-len(feet) // columns)
    fig = new_figure(
        4.2 * columns, 2.5 * rows + 1.0, "Gap of ground reaction forces over one cycle"
    )
    axes = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for (method, seeds), colour in zip(compared.seeds.items(), PALETTE, strict=False):
        curves = []
        for seed in seeds:
            phase, gap = metrics.grf_norm_phase_gap(
                *_first_pair(compared, method, seed, level), _BINS
            )
            curves.append(gap)
        mean = np.mean(curves, axis=0)
        for foot, ax in enumerate(axes.flat[: len(feet)]):
            line = {"color": colour, "linewidth": 1.6, "label": method.name}
            ax.plot(np.rad2deg(phase), mean[:, foot], **line)
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
    fig.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=9, frameon=False)
    return fig


def bars(compared: Compared, levels: Sequence[str], key: str, title: str, ylabel: str) -> Figure:
    """A gap of every method: a bar for the mean, a dot for each seed (Fig. 11b)."""
    fig = new_figure(max(7.0, 1.6 * len(compared.seeds)), 4.0, title)
    ax = fig.subplots()
    width = 0.8 / len(levels)
    labelled: set[str] = set()
    for k, level in enumerate(levels):
        for i, method in enumerate(compared.seeds):
            values = [v for v in compared.values(method, level, key) if np.isfinite(v)]
            if not values:
                continue
            x = i + (k - (len(levels) - 1) / 2) * width
            ax.bar(
                x, np.mean(values), 0.92 * width, color=PALETTE[k], alpha=0.75,
                label=str(level) if level not in labelled else None,
            )  # fmt: skip
            labelled.add(level)
            ax.scatter(np.full(len(values), x), values, color="0.2", s=14, zorder=3)
    ax.set_xticks(range(len(compared.seeds)), [method.name for method in compared.seeds])
    style_axes(ax, "", ylabel)
    fig.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return fig


def pitch_rates(compared: Compared, level: str) -> Figure:
    """Phase-averaged pitch rate of the first seed, simulator and reference (Fig. 10)."""
    methods = list(compared.seeds)
    fig = new_figure(
        2.6 * len(methods) + 0.8, 3.2, "Pitch rate: simulator (solid), reference (dashed)"
    )
    axes = fig.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for i, (method, ax) in enumerate(zip(methods, axes, strict=True)):
        pair = _first_pair(compared, method, compared.seeds[method][0], level)
        for r, style in zip(pair, ("-", "--"), strict=True):
            phase, mean, _ = metrics.phase_average(
                r.time, r.pitch_rate, r.meta["frequency_hz"], _BINS
            )
            ax.plot(np.rad2deg(phase), mean, style, color=PALETTE[i], linewidth=1.6)
        style_axes(ax, "phase [deg]", "pitch rate [rad/s]" if i == 0 else "")
        ax.set_title(method.name, fontsize=11, loc="left")
        ax.set_xticks(np.arange(0, 361, 180))
    return fig


def velocity_gaps(compared: Compared, level: str) -> Figure:
    """Velocity gap over the phase of the circular command, a polar panel a method (Fig. 12).

    Thin lines are trials of every seed, the thick one is their mean; E_phi is written below.
    """
    methods = list(compared.seeds)
    fig = new_figure(3.0 * len(methods) + 0.4, 3.9, "Velocity gap over the circle [%]")
    axes = fig.subplots(1, len(methods), squeeze=False, subplot_kw={"projection": "polar"})[0]
    highest = 0.0
    for i, (method, ax) in enumerate(zip(methods, axes, strict=True)):
        trials, phase = [], np.zeros(0)
        for seed in compared.seeds[method]:
            for pair in zip(
                compared.recordings(method, seed, SIMULATOR),
                compared.recordings(method, seed, level),
                strict=True,
            ):
                settled = metrics.after_settling(pair, compared.settle_s)
                if len(settled) == 2:
                    phase, gap = gaps.circle_phase_gap(*settled)
                    trials.append(gap)
        if trials:
            draw_phase_gap(ax, phase, np.array(trials), PALETTE[i])
            highest = max(highest, np.nanmax(trials, initial=0.0))
        ax.set_title(method.name, fontsize=11)
        cycle = cycle_gap(np.array(trials)) if trials else np.nan
        told = f"{cycle:.1f} %" if np.isfinite(cycle) else "unknown: it fell"
        ax.set_xlabel(f"E_phi {told}", fontsize=11)
        ax.tick_params(labelsize=8)
        ax.set_rlabel_position(112.5)
    for ax in axes:
        ax.set_ylim(0.0, 1.05 * highest or 1.0)  # one scale, so that panels compare
    return fig
