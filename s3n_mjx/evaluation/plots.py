"""Figures of recordings and of training, one function a figure.

Built on matplotlib's `Figure` alone: no pyplot, hence no global state, no display and no
figure that has to be closed. Titles say what the figure shows; numbers come from `metrics.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from s3n_mjx.evaluation import metrics
from s3n_mjx.evaluation.recording import FloatArray, Recording
from s3n_mjx.files import written_whole

DPI = 150
# Okabe and Ito's palette: told apart with every common kind of colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_COMMAND = {"color": "0.35", "linestyle": "--", "linewidth": 1.4, "label": "command"}
_MEAN = "mean ± 1 standard deviation"

Recordings = Sequence[Recording] | Mapping[str, Sequence[Recording]]


def save(fig: Figure, path: Path | str) -> Path:
    """Write the figure as PNG at 150 dpi, whole or not at all; return the path."""
    path = Path(path)
    with written_whole(path) as temporary:
        fig.savefig(temporary, dpi=DPI, format="png")
    return path


def new_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure of this project's looks; sizes in inches."""
    fig = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    fig.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    return fig


def style_axes(ax: Axes, xlabel: str = "", ylabel: str = "") -> None:
    """Labels, grid and spines as in every other figure."""
    ax.set_xlabel(xlabel, fontsize=11)
    ax.set_ylabel(ylabel, fontsize=11)
    ax.tick_params(labelsize=10)
    ax.grid(True, color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _phase_axis(ax: Axes) -> None:
    ax.set_xlim(0.0, 360.0)
    ax.set_xticks(np.arange(0, 361, 90))


def _groups(recs: Recordings, settle_s: float) -> dict[str, list[Recording]]:
    """Recordings by label, each without its first `settle_s`; a fall before that stays whole."""
    groups = dict(recs) if isinstance(recs, Mapping) else {"": recs}
    if not groups or not all(groups.values()):
        raise ValueError("no recording to draw")
    return {
        label: metrics.after_settling(group, settle_s) or list(group)
        for label, group in groups.items()
    }


def _range(values: Sequence[float], decimals: int) -> str:
    texts = [f"{v:.{decimals}f}" for v in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _cycle(
    recordings: Sequence[Recording], signals: Sequence[FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Phase in [deg], mean and std over all the recordings' cycles; see `phase_average`."""
    cycles = np.concatenate([r.time * r.meta["frequency_hz"] for r in recordings])
    phase, mean, std = metrics.phase_average(cycles, np.concatenate(signals), frequency_hz=1.0)
    return np.rad2deg(phase), mean, std


def _band(ax: Axes, phase: FloatArray, mean: FloatArray, std: FloatArray, **line) -> None:
    ax.plot(phase, mean, linewidth=1.8, **line)
    ax.fill_between(phase, mean - std, mean + std, color=line["color"], alpha=0.2, linewidth=0)


def pitch_tracking(rec: Recording, window_s: float = 2.0) -> Figure:
    """Pitch and pitch rate against the command over the last `window_s` of one episode."""
    shown = rec.slice_time(rec.time[-1] - window_s)
    error = metrics.rmse(shown.pitch, shown.command["pitch_rad"])
    frequency = rec.meta.get("frequency_hz")
    title = f"{frequency:g} Hz pitch" if frequency else "Pitch"
    title += f": {error:.3f} rad RMS off the command in these {window_s:g} s"
    if rec.fell:
        title = f"The robot fell {rec.time[-1]:.1f} s after the command's onset"
    fig = new_figure(8.0, 5.0, title)
    top, bottom = fig.subplots(2, 1, sharex=True)
    top.plot(shown.time, shown.command["pitch_rad"], **_COMMAND)
    top.plot(shown.time, shown.pitch, color=PALETTE[0], linewidth=1.8, label="robot")
    style_axes(top, ylabel="pitch [rad]")
    bottom.plot(shown.time, shown.command["pitch_rate_rad_s"], **_COMMAND)
    bottom.plot(shown.time, shown.pitch_rate, color=PALETTE[0], linewidth=1.8)
    style_axes(bottom, xlabel="time since the command's onset [s]", ylabel="pitch rate [rad/s]")
    bottom.set_xlim(shown.time[0], shown.time[-1] + shown.step_s)
    fig.legend(
        *top.get_legend_handles_labels(),
        loc="outside upper right",
        ncols=2,
        fontsize=9,
        frameon=False,
    )
    return fig


def phase_averaged_pitch_rate(recs: Recordings, settle_s: float = 1.0) -> Figure:
    """One cycle of pitch rate, mean and +-1 standard deviation (as the paper's Fig. 10).

    Args:
        recs: recordings pooled into one curve, or such a sequence for each label.
        settle_s: start of each recording that is left out, in [s].
    """
    groups = _groups(recs, settle_s)
    curves = {k: _cycle(group, [r.pitch_rate for r in group]) for k, group in groups.items()}
    # A log without base velocities has no curve.
    known = [mean[np.isfinite(mean)] for _, mean, _ in curves.values()]
    spans = [np.ptp(mean) for mean in known if len(mean)] or [np.nan]
    fig = new_figure(7.0, 4.2, f"Pitch rate over one cycle: {_range(spans, 2)} rad/s peak to peak")
    ax = fig.subplots()
    first = next(iter(groups.values()))
    phase, command, _ = _cycle(first, [r.command["pitch_rate_rad_s"] for r in first])
    ax.plot(phase, command, **_COMMAND)
    for i, (label, curve) in enumerate(curves.items()):
        _band(ax, *curve, color=PALETTE[i % len(PALETTE)], label=label or _MEAN)
    style_axes(ax, "phase of the pitch command [deg]", "pitch rate [rad/s]")
    _phase_axis(ax)
    fig.legend(loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return fig


def grf_norm(recs: Recordings, settle_s: float = 1.0) -> Figure:
    """One cycle of each foot's ground-reaction-force norm, mean and +-1 standard deviation.

    Args:
        recs: recordings pooled into one curve, or such a sequence for each label; all of
            robots with the same feet.
        settle_s: start of each recording that is left out, in [s].
    """
    groups = _groups(recs, settle_s)
    everyone = [r for group in groups.values() for r in group]
    feet = everyone[0].foot_names
    if any(r.foot_names != feet for r in everyone):
        raise ValueError("the recordings are of robots with different feet")
    kept = [
        100.0 * metrics.contact_kept_fraction(np.concatenate([r.foot_force_norm for r in group]))
        for group in groups.values()
        if all(np.isfinite(r.foot_force).all() for r in group)  # not a log without every plate
    ] or [np.nan]
    n_columns = 2 if len(feet) == 4 else min(len(feet), 3)  # a quadruped reads best as 2x2
    n_rows = -(-len(feet) // n_columns)
    fig = new_figure(
        max(3.6 * n_columns, 6.5),
        2.4 * n_rows + 1.0,
        f"Ground reaction force over one cycle: all feet down {_range(kept, 1)} % of it",
    )
    axes = fig.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    for i, (label, group) in enumerate(groups.items()):
        phase, mean, std = _cycle(group, [r.foot_force_norm for r in group])
        for foot, ax in zip(range(len(feet)), axes.flat, strict=False):
            colour = PALETTE[i % len(PALETTE)]
            _band(ax, phase, mean[:, foot], std[:, foot], color=colour, label=label or _MEAN)
    for foot, ax in enumerate(axes.flat):
        if foot >= len(feet):
            ax.set_axis_off()
            continue
        style_axes(ax)
        _phase_axis(ax)
        ax.set_title(feet[foot], fontsize=11, loc="left")
        if foot % n_columns == 0:
            ax.set_ylabel("force norm [N]", fontsize=11)
        if foot + n_columns >= len(feet):
            ax.set_xlabel("phase of the command [deg]", fontsize=11)
            ax.tick_params(labelbottom=True)  # also above an empty cell
    axes[0, 0].set_ylim(bottom=0.0)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return fig


def velocity_tracking(recs: Recordings, settle_s: float = 1.0, window_s: float = 10.0) -> Figure:
    """Forward velocity and yaw rate against the command over the first episode of each label.

    Args:
        recs: recordings of one command, or such a sequence for each label.
        settle_s: start of each episode that the title's figures leave out, in [s].
        window_s: how much of the episodes is shown, in [s].
    """
    firsts = {label: group[0] for label, group in _groups(recs, 0.0).items()}
    first = next(iter(firsts.values()))
    shown = first.slice_time(first.time[0], first.time[0] + window_s)
    title = f"The robot fell {first.time[-1]:.1f} s after the command's onset"
    settled = metrics.after_settling([shown], settle_s)
    if settled and not first.fell:
        forward = metrics.rmse(settled[0].body_velocity[:, 0], settled[0].command["vx_m_s"])
        yaw = metrics.rmse(settled[0].yaw_rate, settled[0].command["wz_rad_s"])
        title = f"{forward:.3f} m/s and {yaw:.3f} rad/s RMS off the command"
        title += f" after the first {settle_s:g} s"
    fig = new_figure(8.0, 5.0, title)
    top, bottom = fig.subplots(2, 1, sharex=True)
    top.plot(shown.time, shown.command["vx_m_s"], **_COMMAND)
    bottom.plot(shown.time, shown.command["wz_rad_s"], **_COMMAND)
    for (label, rec), colour in zip(firsts.items(), PALETTE, strict=False):
        rec = rec.slice_time(rec.time[0], rec.time[0] + window_s)
        line = {"color": colour, "linewidth": 1.2, "label": label or "robot"}
        top.plot(rec.time, rec.body_velocity[:, 0], **line)
        bottom.plot(rec.time, rec.yaw_rate, **line)
    style_axes(top, ylabel="forward velocity [m/s]")
    style_axes(bottom, xlabel="time since the command's onset [s]", ylabel="yaw rate [rad/s]")
    fig.legend(
        *top.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9,
        frameon=False,
    )  # fmt: skip
    return fig


_STRIDE_S = 0.5  # about one: a trunk that walks sways around its heading


def path(recs: Recordings, settle_s: float = 1.0) -> Figure:
    """Top view of where the trunk went, all episodes, each from its own pose after `settle_s`.

    A robot at rest cannot be on the command's circle at once; from where it walks, it can.

    Args:
        recs: recordings of one command, or such a sequence for each label.
        settle_s: start of each recording that is left out, in [s].
    """
    whole, groups = _groups(recs, 0.0), _groups(recs, settle_s)
    falls = {label: sum(r.fell for r in group) for label, group in whole.items()}
    episodes = metrics.counted(len(next(iter(whole.values()))), "episode")
    title = f"Path of the trunk after {settle_s:g} s, {episodes}{' each' * (len(whole) > 1)}"
    fig = new_figure(6.0, 6.0, f"{title}: {metrics.counted(sum(falls.values()), 'fall')}")
    ax = fig.subplots()
    first = next(iter(groups.values()))[0]
    vx, wz = metrics.circle_command(first)
    for (label, group), colour in zip(groups.items(), PALETTE, strict=False):
        for i, r in enumerate(group):
            w, x, y, z = r.base_quaternion.T
            yaw = np.unwrap(np.arctan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z))
            time = r.time - r.time[0]
            heading = np.mean((yaw - wz * time)[time <= _STRIDE_S])
            cos, sin = np.cos(heading), np.sin(heading)
            points = (r.base_position[:, :2] - r.base_position[0, :2]) @ [[cos, -sin], [sin, cos]]
            name = f"{label or 'robot'}{f' ({falls[label]} fell)' if falls[label] else ''}"
            name = name if i == 0 else "_"  # matplotlib leaves these out of legends
            ax.plot(*points.T, color=colour, linewidth=1.2, alpha=0.8, label=name)
    if wz:
        angle = wz * np.linspace(0.0, first.duration_s, 361)
        ax.plot(vx / wz * np.sin(angle), vx / wz * (1.0 - np.cos(angle)), **_COMMAND)
    ax.plot(0.0, 0.0, marker="o", color="0.35", markersize=5)
    ax.set_aspect("equal", adjustable="datalim")
    style_axes(ax, f"forward of the pose after {settle_s:g} s [m]", "left of it [m]")
    fig.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return fig


def phase_gap(phase: FloatArray, trials: FloatArray) -> Figure:
    """Velocity gap over the phase of the circular command (as the paper's Fig. 12).

    Args:
        phase: bin centres, shape (n_bins,), in [rad].
        trials: gap of each trial, shape (n_trials, n_bins), in [percent]; NaN in empty bins.
    """
    if not len(trials):
        raise ValueError("no trial to draw")
    fig = new_figure(5.5, 5.5, f"Velocity gap over the circle: E_phi {cycle_gap(trials):.1f} %")
    ax = fig.subplots(subplot_kw={"projection": "polar"})
    draw_phase_gap(ax, phase, trials, PALETTE[0])
    ax.set_ylim(bottom=0.0)
    ax.yaxis.set_major_formatter("{x:g} %")
    ax.tick_params(labelsize=9)
    return fig


def cycle_gap(trials: FloatArray) -> float:
    """Mean over phase of the trials (n_trials, n_bins) that have every bin; NaN without one."""
    known = trials[np.isfinite(trials).all(axis=1)]
    return float(known.mean()) if len(known) else float("nan")


def draw_phase_gap(ax: Axes, phase: FloatArray, trials: FloatArray, colour: str) -> None:
    """Trials as thin lines, and the mean of the whole ones as a thick one, on polar axes.

    Args:
        ax: polar.
        phase, trials: see :func:`phase_gap`.
        colour: of all lines.
    """
    closed = np.append(phase, phase[0] + 2.0 * np.pi)
    for gap in trials:
        ax.plot(closed, np.append(gap, gap[0]), color=colour, linewidth=0.8, alpha=0.35)
    known = trials[np.isfinite(trials).all(axis=1)]
    if len(known):
        mean = known.mean(axis=0)
        ax.plot(closed, np.append(mean, mean[0]), color=colour, linewidth=2.0)


_REWARD_PANEL = ("eval/episode_reward", "episode\nreward", 1.0)
# The first whose figures a run has logged; the first of all before there are any.
_TASK_PANELS = (
    (
        ("eval/pitch_rmse_rad", "pitch error,\nRMS [rad]", 1.0),
        ("eval/contact_kept_fraction", "all feet on the\nground [%]", 100.0),
    ),
    (
        ("eval/velocity_rmse_m_s", "velocity error,\nRMS [m/s]", 1.0),
        ("eval/yaw_rate_rmse_rad_s", "yaw rate error,\nRMS [rad/s]", 1.0),
    ),
)


def training_curve(rows: Sequence[Mapping[str, float | None]]) -> Figure:
    """Reward and the task's own figures over environment steps.

    Args:
        rows: the evaluations of `metrics.jsonl`, with "env_steps", "wall_s" and "eval/..."
            keys. Rows or keys may be missing: a run that has just begun, or another task.
    """

    def column(key: str) -> FloatArray:
        return np.array([np.nan if r.get(key) is None else r[key] for r in rows], dtype=float)

    steps = column("env_steps") / 1e6
    title = "No evaluation yet"
    rewards = column("eval/episode_reward")
    if np.isfinite(rewards).any():
        last = np.flatnonzero(np.isfinite(rewards))[-1]
        title = f"Reward {rewards[last]:.3g} after {steps[last]:.3g} million steps"
        if np.isfinite(wall := column("wall_s")[last]):
            title += f" and {wall / 60.0:.1f} min"
    fig = new_figure(7.0, 6.0, title)
    logged = {key for row in rows for key in row}
    known_tasks = [panels for panels in _TASK_PANELS if any(key in logged for key, *_ in panels)]
    panels = (_REWARD_PANEL, *(known_tasks or _TASK_PANELS)[0])
    axes = fig.subplots(len(panels), 1, sharex=True)
    for ax, (key, label, factor), colour in zip(axes, panels, PALETTE, strict=False):
        values = column(key) * factor
        known = np.isfinite(values)  # rows without an evaluation must not break the line
        ax.plot(steps[known], values[known], color=colour, linewidth=1.8, marker="o", markersize=3)
        style_axes(ax, ylabel=label)
        if not known.any():
            ax.text(0.5, 0.5, "not recorded", transform=ax.transAxes, ha="center", color="0.5")
            ax.set_yticks([])
    axes[-1].set_xlabel("environment steps [million]", fontsize=11)
    fig.align_ylabels(axes)
    return fig


def tradeoff(points: Sequence[tuple[str, float, float]]) -> Figure:
    """Pitch error against kept contact, one labelled point each, joined in order of contact.

    Args:
        points: (label, contact_kept_fraction within [0, 1], pitch_rmse in [rad]).
    """
    if not points:
        raise ValueError("no point to draw")
    ordered = sorted(points, key=lambda p: p[1])
    contact = np.array([100.0 * p[1] for p in ordered])
    error = np.array([p[2] for p in ordered])
    best = ordered[int(np.argmin(error))]
    fig = new_figure(
        7.0,
        4.2,
        f"Least pitch error, {best[2]:.3f} rad, with feet down {100 * best[1]:.1f} % of the time",
    )
    ax = fig.subplots()
    ax.plot(contact, error, color="0.75", linewidth=1.2, zorder=1)
    ax.scatter(contact, error, color=PALETTE[0], s=40, zorder=2)
    for (label, _, _), x, y in zip(ordered, contact, error, strict=True):
        ax.annotate(label, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=9)
    style_axes(ax, "time with all feet on the ground [%]", "pitch error, RMS [rad]")
    ax.margins(x=0.15, y=0.2)
    return fig
