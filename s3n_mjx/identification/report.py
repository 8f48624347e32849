"""Tables and the report of an identification."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from s3n_mjx.evaluation import plots
from s3n_mjx.evaluation.report import Picture, Section, Table, Text, write_report
from s3n_mjx.identification import figures
from s3n_mjx.identification.actuator import ActuatorResult
from s3n_mjx.identification.fit import Estimate
from s3n_mjx.identification.leg import LegResult
from s3n_mjx.normalization import Variant
from s3n_mjx.robot.model import ResolvedPair, Robot
from s3n_mjx.simulation.injection import increment_of

Row = tuple[str, ...]

MOTOR_HEADER = ("motor", "inertia [kg m²]", "damping [N m s/rad]", "delay [ms]", "friction [N m]")
LEG_HEADER = ("", "value", "95 % interval", "± [%]", "described so far")
TABLE_II_HEADER = ("at alpha = 90°, serial [kg m²]", "M11", "M12", "M22")


def _pm(estimate: Estimate, digits: int) -> str:
    half = (estimate.high - estimate.low) / 2
    return f"{estimate.value:.{digits}f} ± {half:.1g}"


def motor_rows(result: ActuatorResult) -> list[Row]:
    """Each motor and all of them together, with half of the 95 % interval."""
    fits = {motor.label: motor.fit for motor in result.motors}
    if len(fits) > 1:
        fits["all"] = result.pooled
    rows = []
    for label, fit in fits.items():
        e = fit.estimates
        friction = _pm(e["f1"], 4) if "f1" in e else "-"
        delay = _pm(e["delay"].scaled(1e3), 4)
        rows.append((label, _pm(e["m11"], 6), _pm(e["d11"], 5), delay, friction))
    return rows


def leg_rows(result: LegResult, known: tuple[float, float, float] | None) -> list[Row]:
    """M11, M12, M22 of Eq. 32 and what the description held before."""
    rows = []
    for i, (name, e) in enumerate(result.inertia.items()):
        share = 50 * (e.high - e.low) / abs(e.value) if e.value else np.inf
        rows.append(
            (
                f"M{name[1:]} [kg m²]",
                f"{e.value:.6f}",
                f"{e.low:.6f} to {e.high:.6f}",
                f"{share:.2f}",
                "-" if known is None else f"{known[i]:.6f}",
            )
        )
    return rows


def table_ii(robot: Robot, pair: ResolvedPair, alpha: float = np.pi / 2) -> list[Row]:
    """Total inertia in serial coordinates of every variant (the paper's Table II)."""
    both = [pair.proximal, pair.distal]
    base = pair.serial_link(alpha) + np.diag(robot.motor_inertia[both])
    rows: list[Row] = []
    for variant in (Variant.KIN_ONLY, Variant.S3N_ACT, Variant.S3N_FULL):
        if variant is Variant.S3N_FULL and pair.total is None:
            continue
        total = base + increment_of(robot, pair, variant).inertia(alpha)
        rows.append((str(variant), *(f"{x:.5f}" for x in (total[0, 0], total[0, 1], total[1, 1]))))
    return rows


def findings_text(findings: Sequence[str]) -> str:
    """For the terminal; empty without any."""
    return "\n".join(f"warning: {text}" for text in findings)


def motor_sections(result: ActuatorResult, folder: Path) -> list[Section]:
    """Tables and figures of motors; the figures are saved in ``folder``, too."""
    bode = figures.actuator_bode(result)
    left = figures.residuals(
        {motor.label: motor.fit for motor in result.motors}, "Motor: what the fit leaves"
    )
    plots.save(bode, folder / "actuator_bode.png")
    plots.save(left, folder / "actuator_residual.png")
    said = f" Noise explains the residuals where this is 1: {result.pooled.misfit:.2f}."
    return [
        Section(
            "Motors",
            (
                Table(MOTOR_HEADER, tuple(motor_rows(result)), "At the gear's output"),
                Text("± is half of the 95 % interval." + said),
                Picture(bode, "Bode plot as the paper's Fig. 4", "Bode plot of a motor"),
                Picture(left, "Residual by motor", "Residual over frequency"),
            ),
        )
    ]


def leg_sections(
    result: LegResult, known: tuple[float, float, float] | None, folder: Path
) -> list[Section]:
    """Tables and figures of a leg; the figures are saved in ``folder``, too."""
    blocks: list = [
        Table(LEG_HEADER, tuple(leg_rows(result, known)), "Actuator coordinates (Eq. 32)"),
        Text("Motors included; their share is taken out with the motors' own result (Eq. 15, 19)."),
    ]
    for number, posture in enumerate(result.postures):
        figure = figures.leg_matrix(posture)
        plots.save(figure, folder / f"leg_frf_{number}.png")
        caption = (
            f"Response matrix at alpha = {posture.alpha:.3f} rad; condition number of U"
            f" {np.median(posture.condition):.2f} (median), misfit {posture.fit.misfit:.2f}"
        )
        blocks.append(Picture(figure, caption, "Response matrix of a leg"))
    left = figures.residuals(
        {f"alpha {p.alpha:.2f} rad": p.fit for p in result.postures}, "Leg: what the fit leaves"
    )
    plots.save(left, folder / "leg_residual.png")
    blocks.append(Picture(left, "Residual by posture", "Residual over frequency"))
    return [Section("Leg", tuple(blocks))]


def write(
    folder: Path, sections: Sequence[Section], findings: Sequence[str], summary: str, facts: dict
) -> None:
    """`report.html` in ``folder``."""
    said = list(sections)
    if findings:
        rows = tuple((str(i + 1), text) for i, text in enumerate(findings))
        said.insert(0, Section("What speaks against the result", (Table(("", "finding"), rows),)))
    write_report(folder / "report.html", "Identification", summary, said, facts)
