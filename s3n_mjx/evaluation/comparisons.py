"""What a comparison of methods tabulates and draws for each task, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from s3n_mjx.evaluation import comparison_plots
from s3n_mjx.evaluation.compared import SIMULATOR, Compared, Method
from s3n_mjx.normalization import Variant


@dataclass(frozen=True)
class Column:
    """A figure as a column of the table; `{foot}` stands for the robot's last foot.

    Attributes:
        header: with the unit.
        key: name of the figure.
        decimals: shown.
        scale: from SI to what is shown.
        simulated: read in the simulator, not against the reference.
    """

    header: str
    key: str
    decimals: int = 2
    scale: float = 1.0
    simulated: bool = False


@dataclass(frozen=True)
class TaskComparison:
    """One task's table and figures.

    Attributes:
        headline: the gap that methods are ranked by.
        columns: beside it.
        paper_header: of the paper's columns.
        paper: their contents, figures on hardware.
        trials: of each policy by default.
        pictures: by file name, with captions, at a level of the reference.
    """

    headline: Column
    columns: tuple[Column, ...]
    paper_header: tuple[str, ...]
    paper: Mapping[Variant, tuple[str, ...]]
    trials: int
    pictures: Callable[[Compared, Sequence[str]], dict[str, tuple[Figure, str]]]

    def table(
        self, compared: Compared, level: str
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and a row for each method: mean and sample standard deviation over seeds.

        The paper's columns stand beside the headline, where they compare.
        """
        foot = compared.feet[-1]  # rear right on the bundled robot, as in the paper
        columns = [column.header.format(foot=foot) for column in (self.headline, *self.columns)]
        header = ("method", columns[0], "change", *self.paper_header, *columns[1:])
        rows = []
        mean = {
            method: _mean(compared.values(method, level, self.headline.key))
            for method in compared.seeds
        }
        base = mean.get(Method(Variant.KIN_ONLY))
        for method in compared.seeds:
            change = ""
            known_both = base is not None and np.isfinite(base) and np.isfinite(mean[method])
            if base is not None and known_both and method.variant is not Variant.KIN_ONLY:
                change = f"{100.0 * (mean[method] / base - 1.0):+.1f} %"
            cells = []
            for column in (self.headline, *self.columns):
                side = SIMULATOR if column.simulated else level
                values = compared.values(method, side, column.key.format(foot=foot))
                cells.append(mean_and_spread([v * column.scale for v in values], column.decimals))
            known = not method.beyond_paper and self.paper.get(method.variant)
            paper = known or ["-"] * len(self.paper_header)
            rows.append((method.name, cells[0], change, *paper, *cells[1:]))
        return header, rows


def _mean(values: Sequence[float]) -> float:
    """Of those that are numbers; NaN without one."""
    known = [v for v in values if np.isfinite(v)]
    return float(np.mean(known)) if known else float("nan")


def mean_and_spread(values: Sequence[float], decimals: int) -> str:
    """`mean ± sample standard deviation` of those that are numbers, the mean alone of one.

    Where a fall left some without, it says how many there are: `11.0 ± 1.4 (2 of 3)`.
    """
    known = [v for v in values if np.isfinite(v)]
    if not known:
        return "-"
    told = f"{np.mean(known):.{decimals}f}"
    if len(known) > 1:
        told += f" ± {np.std(known, ddof=1):.{decimals}f}"
    return told if len(known) == len(values) else f"{told} ({len(known)} of {len(values)})"


def _pitch_pictures(compared: Compared, levels: Sequence[str]) -> dict[str, tuple[Figure, str]]:
    return {
        "grf_gap": (
            comparison_plots.grf_gap(compared, levels[0]),
            "Gap of the ground-reaction-force norm over one cycle (as Fig. 11a)",
        ),
        "grf_rmse": (
            comparison_plots.bars(
                compared,
                levels,
                PITCH.headline.key,
                "RMSE of ground reaction forces against the closed chain",
                "GRF norm, RMSE over all feet [N]",
            ),
            "RMSE of the ground-reaction-force norm, every seed (as Fig. 11b)",
        ),
        "pitch_rate": (
            comparison_plots.pitch_rates(compared, levels[0]),
            "Pitch rate over one cycle, simulator and reference (as Fig. 10)",
        ),
    }


def _circle_pictures(compared: Compared, levels: Sequence[str]) -> dict[str, tuple[Figure, str]]:
    return {
        "velocity_gap": (
            comparison_plots.velocity_gaps(compared, levels[0]),
            f"Velocity gap over the circle in %, closed chain, {levels[0]}; thin lines are trials"
            " (as Fig. 12)",
        ),
        "e_phi": (
            comparison_plots.bars(
                compared,
                levels,
                CIRCLE.headline.key,
                "Phase-averaged velocity gap against the closed chain",
                "E_phi [%]",
            ),
            "E_phi, every seed",
        ),
    }


# The paper's GRF-norm RMSE of the rear right foot in N and pitch-rate RMSE in percent of its peak
# to peak (Figs. 10 and 11); its text gives no GRF figure for Kin-Only HR.
PITCH = TaskComparison(
    headline=Column("GRF, all feet [N]", "grf_norm_rmse_n"),
    columns=(
        Column("GRF, {foot} [N]", "grf_norm_rmse_n_{foot}"),
        Column("pitch rate [%]", "pitch_rate_rmse_percent"),
        Column("all feet down [%]", "contact_kept_fraction", 1, 100.0, simulated=True),
        Column("pitch error [rad]", "pitch_rmse_rad", 4, simulated=True),
    ),
    paper_header=("paper, GRF [N]", "paper, pitch rate [%]"),
    paper={
        Variant.KIN_ONLY: ("27.1", "3.95"),
        Variant.KIN_ONLY_HR: ("-", "4.92"),
        Variant.S3N_ACT: ("9.5", "1.62"),
        Variant.S3N_FULL: ("10.2", "2.64"),
    },
    trials=3,
    pictures=_pitch_pictures,
)

# Table IV: mean and sample standard deviation over five laps on hardware.
CIRCLE = TaskComparison(
    headline=Column("E_phi [%]", "e_phi_percent"),
    columns=(
        Column("E_RMSE [%]", "e_rmse_percent"),
        Column("e_vx [m/s]", "e_vx_m_s", 3),
        Column("e_wz [rad/s]", "e_wz_rad_s", 3),
        Column("falls", "reference_falls", 1),
        Column("v_x off command [m/s]", "vx_rmse_m_s", 3, simulated=True),
        Column("w_z off command [rad/s]", "wz_rmse_rad_s", 3, simulated=True),
    ),
    paper_header=("paper, E_phi [%]", "paper, E_RMSE [%]"),
    paper={
        Variant.KIN_ONLY: ("17.3 ± 1.0", "19.46 ± 0.87"),
        Variant.KIN_ONLY_HR: ("21.5 ± 2.4", "24.17 ± 2.50"),
        Variant.S3N_ACT: ("15.7 ± 1.2", "18.26 ± 1.47"),
        Variant.S3N_FULL: ("9.9 ± 0.9", "12.23 ± 0.99"),
    },
    trials=5,
    pictures=_circle_pictures,
)

COMPARISONS = {"pitch": PITCH, "circle": CIRCLE}
