"""What an evaluation of each task measures, draws and says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from s3n_mjx.evaluation import gaps, metrics, plots
from s3n_mjx.evaluation.recording import Recording

Figures = Mapping[str, float]

# By the names of their files, of all tasks: a folder's earlier ones are known by these.
PICTURES = ("pitch_tracking", "pitch_rate", "grf_norm", "velocity_tracking", "path", "velocity_gap")


@dataclass(frozen=True)
class Groups:
    """Simulated trials and, where there is a reference, trial by trial what that did."""

    simulated: list[Recording]
    reference: list[Recording]
    against: str  # name of the reference

    @property
    def labelled(self) -> plots.Recordings:
        """For figures that show both."""
        if not self.reference:
            return self.simulated
        return {"simulator": self.simulated, self.against: self.reference}


@dataclass(frozen=True)
class TaskEvaluation:
    """One task's functions; figures and gaps are flat, with units in their names."""

    metrics: Callable[[Sequence[Recording], float], dict[str, float]]
    gap: Callable[[Sequence[Recording], Sequence[Recording], float], dict[str, float]]
    pictures: Callable[[Groups, float], dict[str, tuple[Figure, str]]]  # by file, with captions
    summary: Callable[[Figures, Figures, str], str]  # of figures and gap to a named reference


def _pitch_pictures(groups: Groups, settle_s: float) -> dict[str, tuple[Figure, str]]:
    return {
        "pitch_tracking": (
            plots.pitch_tracking(groups.simulated[0]),
            "Pitch and pitch rate of the first episode in the simulator",
        ),
        "pitch_rate": (
            plots.phase_averaged_pitch_rate(groups.labelled, settle_s),
            "Pitch rate over one cycle of the command (as Fig. 10 of the paper)",
        ),
        "grf_norm": (
            plots.grf_norm(groups.labelled, settle_s),
            "Norm of each foot's ground reaction force over one cycle (as Fig. 11)",
        ),
    }


def _pitch_summary(figures: Figures, gap: Figures, against: str) -> str:
    summary = (
        f"Pitch error {figures['pitch_rmse_rad']:.4f} rad RMS with all feet down"
        f" {100 * figures['contact_kept_fraction']:.1f} % of the time."
    )
    if gap:
        summary += (
            f" Ground reaction forces differ from the reference ({against}) by"
            f" {gap['grf_norm_rmse_n']:.2f} N RMS, the pitch rate by"
            f" {gap['pitch_rate_rmse_percent']:.1f} % of its peak to peak."
        )
    return summary


def _circle_pictures(groups: Groups, settle_s: float) -> dict[str, tuple[Figure, str]]:
    pictures = {
        "velocity_tracking": (
            plots.velocity_tracking(groups.labelled, settle_s),
            "Forward velocity and yaw rate of the first episode",
        ),
        "path": (
            plots.path(groups.labelled, settle_s),
            "Top view of the path once it is walking; the command's circle begins at the same pose",
        ),
    }
    pairs = [
        metrics.after_settling(pair, settle_s)
        for pair in zip(groups.simulated, groups.reference, strict=False)
    ]
    trials = [gaps.circle_phase_gap(*pair) for pair in pairs if len(pair) == 2]
    if trials:
        pictures["velocity_gap"] = (
            plots.phase_gap(trials[0][0], np.array([gap for _, gap in trials])),
            "Velocity gap over the phase of the circular command, % (as Fig. 12)",
        )
    return pictures


def _circle_summary(figures: Figures, gap: Figures, against: str) -> str:
    summary = (
        f"Forward velocity off the command by {figures['vx_rmse_m_s']:.3f} m/s RMS and yaw rate by"
        f" {figures['wz_rmse_rad_s']:.3f} rad/s, {metrics.counted(figures['falls'], 'fall')}"
        f" in {metrics.counted(figures['episodes'], 'episode')}."
    )
    if gap:
        summary += (
            f" The reference ({against}) differs by {gap['e_vx_m_s']:.3f} m/s and"
            f" {gap['e_wz_rad_s']:.3f} rad/s RMS: E_RMSE {gap['e_rmse_percent']:.1f} %, E_phi"
            f" {gap['e_phi_percent']:.1f} %."
        )
    return summary


EVALUATIONS = {
    "pitch": TaskEvaluation(metrics.pitch_metrics, gaps.pitch_gap, _pitch_pictures, _pitch_summary),
    "circle": TaskEvaluation(
        metrics.circle_metrics, gaps.circle_gap, _circle_pictures, _circle_summary
    ),
}
