"""Results of the contact-free test as tables, JSON, pictures and a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from s3n_mjx.evaluation import plots
from s3n_mjx.evaluation.report import Picture, Section, Table, Text, text_table, write_report
from s3n_mjx.files import written_whole
from s3n_mjx.normalization import Variant
from s3n_mjx.validation import comparison
from s3n_mjx.validation import plots as figures
from s3n_mjx.validation.comparison import Case, Gaps, Reference, Refused, Setup
from s3n_mjx.validation.excitation import Excited
from s3n_mjx.validation.leg import Gap

# Hardware, same chirp: Kin-Only to S3N-Full, mean of hip and knee (paper, section V).
PAPER_REDUCTION = (-80.9, -82.1)

# Names of several logs are cut off at a figure's edge.
_LONGEST_IN_TITLE = 45

EXCITED = {
    Excited.HIP: "hip motor excited",
    Excited.KNEE: "knee motor excited",
    Excited.BOTH: "both motors excited",
}
HEADER = (
    "variant",
    "injection",
    "timing",
    "hip [rad]",
    "knee [rad]",
    "mean",
    "hip [N m]",
    "knee [N m]",
    "mean",
)
REST_HEADER = ("source", "hip [rad]", "knee [rad]", "hip [N m]", "knee [N m]")


@dataclass(frozen=True)
class Outcome:
    """All that a validation found.

    Attributes:
        setup: what was tested.
        reference: with what it was compared.
        results: gaps of each case, or why the simulator refused it; never `kin_only`.
        rest: of the best case, by source of the rest of its error.
    """

    setup: Setup
    reference: Reference
    results: Mapping[Case, Gaps | Refused]
    rest: Mapping[str, Gap | Refused]

    @property
    def measured(self) -> dict[Case, Gaps]:
        """Cases that were not refused."""
        return {c: gaps for c, gaps in self.results.items() if not isinstance(gaps, Refused)}

    @property
    def best(self) -> Case:
        """See :func:`comparison.best_of`."""
        return comparison.best_of(self.results)

    def changes(self, case: Case, excited: Excited) -> tuple[float, float]:
        """Position and torque error of ``case`` against `kin_only` of its timing, in percent."""
        measured = self.measured
        base = next(
            gaps
            for c, gaps in measured.items()
            if c.variant is Variant.KIN_ONLY and c.timing is case.timing
        )
        return comparison.reduction(measured[case], base, excited)

    def rows(self, excited: Excited) -> list[tuple[str, ...]]:
        """A row for each model, below :data:`HEADER`."""
        rows = []
        for case, gaps in self.results.items():
            first = case.variant is Variant.KIN_ONLY
            name = (str(case.variant), "-" if first else str(case.injection))
            if isinstance(gaps, Refused):
                rows.append((*name, f"{case.timing}, refused", *6 * ("-",)))
                continue
            position, torque = self.changes(case, excited)
            rows.append(
                (
                    *name,
                    str(case.timing),
                    *(f"{x:.4f}" for x in gaps[excited].position_rmse),
                    "" if first else f"{position:+.1f} %",
                    *(f"{x:.2f}" for x in gaps[excited].torque_rmse),
                    "" if first else f"{torque:+.1f} %",
                )
            )
        return rows

    def rest_rows(self) -> list[tuple[str, ...]]:
        """A row for each source, below :data:`REST_HEADER`."""
        return [
            (f"{label}, refused", *4 * ("-",))
            if isinstance(gap, Refused)
            else (
                label,
                *(f"{x:.5f}" for x in gap.position_rmse),
                *(f"{x:.3f}" for x in gap.torque_rmse),
            )
            for label, gap in self.rest.items()
        ]

    def refusals(self) -> list[str]:
        """Why models were refused, a line each."""
        return _reasons({case.label: gaps for case, gaps in self.results.items()})

    def rest_refusals(self) -> list[str]:
        """Why sources of the rest were not measured, a line each."""
        return _reasons(self.rest)

    def as_data(self, settings: Mapping[str, object]) -> dict:
        """All figures as plain data: RMSEs of both motors, changes against `kin_only` in percent.

        Args:
            settings: of the command.
        """
        models = []
        for case, gaps in self.results.items():
            entry: dict = {
                "variant": str(case.variant),
                "injection": str(case.injection),
                "timing": str(case.timing),
            }
            if isinstance(gaps, Refused):
                models.append(entry | {"refused": gaps.reason})
                continue
            for excited, gap in gaps.items():
                position, torque = self.changes(case, excited)
                entry[str(excited)] = {
                    **_rmse(gap),
                    "position_change_percent": position,
                    "torque_change_percent": torque,
                }
            models.append(entry)
        return {
            "reference": self.reference.name,
            "settings": dict(settings),
            "models": models,
            "rest_of_the_error": {
                label: {"refused": gap.reason} if isinstance(gap, Refused) else _rmse(gap)
                for label, gap in self.rest.items()
            },
        }


def _reasons(results: Mapping[str, object]) -> list[str]:
    return [f"{k}: {v.reason}" for k, v in results.items() if isinstance(v, Refused)]


def _rmse(gap: Gap) -> dict[str, list[float]]:
    return {
        "position_rmse_rad": gap.position_rmse.tolist(),
        "torque_rmse_nm": gap.torque_rmse.tolist(),
    }


def print_tables(outcome: Outcome) -> None:
    """All tables for the terminal."""
    for excited in outcome.setup.excitations:
        print(f"\n{EXCITED[excited]}: RMSE against the reference ({outcome.reference.name})")
        print(text_table(HEADER, outcome.rows(excited), left=3))
    _print_refusals(outcome.refusals())
    if outcome.rest:
        main = EXCITED[outcome.setup.main]
        print(f"\nwhat the rest comes from ({outcome.best.label}; {main})")
        print(text_table(REST_HEADER, outcome.rest_rows()))
        _print_refusals(outcome.rest_refusals())


def _print_refusals(lines: list[str]) -> None:
    if lines:
        print("\n".join(["", *(f"refused: {line}" for line in lines)]))


def write_results(
    outcome: Outcome, robot: str, settings: Mapping[str, object], out: Path, copy: Path | None
) -> None:
    """Pictures, JSON and report, each whole or not at all.

    Args:
        outcome: what was found.
        robot: its file or name.
        settings: of the command.
        out: folder.
        copy: further file for the JSON.
    """
    pictures = _pictures(outcome)
    for name, (figure, _) in pictures.items():
        plots.save(figure, out / f"{name}.png")
    data = outcome.as_data(settings)
    for path in filter(None, (out / "validate.json", copy)):
        with written_whole(path) as temporary:
            temporary.write_text(json.dumps(data, indent=2) + "\n")
    write_report(
        out / "report.html",
        "Leg dynamics without contact",
        _summary(outcome),
        _sections(outcome, pictures),
        {
            "robot": robot,
            "reference": outcome.reference.name,
            "command": "python -m s3n_mjx.validate",
        },
    )


def _pictures(outcome: Outcome) -> dict[str, tuple[Figure, str]]:
    """By file name: figure and caption."""
    measured, best, main = outcome.measured, outcome.best, outcome.setup.main
    position, torque = outcome.changes(best, main)
    name = outcome.reference.name
    fits = len(name) <= _LONGEST_IN_TITLE
    shown = {
        case.label: gaps[main]
        for case, gaps in measured.items()
        if case.timing is best.timing
        and (case.variant is Variant.KIN_ONLY or case.injection is best.injection)
    }
    return {
        "position_error": (
            figures.errors_over_time(
                shown,
                "position",
                f"Position error over the sweep: {position:+.1f} % with {best.variant}",
            ),
            "Position error (as Fig. 6 of the paper)",
        ),
        "torque_error": (
            figures.errors_over_time(
                shown,
                "torque",
                f"Torque error over the sweep: {torque:+.1f} % with {best.variant}",
            ),
            "Torque error (as Fig. 7)",
        ),
        "rmse": (
            figures.rmse_bars(
                {case.label: gaps[main] for case, gaps in measured.items()},
                f"RMSE against the {name if fits else 'reference'}; {EXCITED[main]}",
            ),
            f"RMSE of all models against the {name} (as Fig. 8)",
        ),
        "error_over_frequency": (
            figures.errors_over_frequency(
                shown, outcome.setup.chirp, "Errors grow with frequency where inertia is missing"
            ),
            "RMS error in bands of the sweep's frequency",
        ),
    }


def _sections(outcome: Outcome, pictures: Mapping[str, tuple[Figure, str]]) -> tuple[Section, ...]:
    setup = outcome.setup
    tables = (Table(HEADER, tuple(outcome.rows(e)), EXCITED[e]) for e in setup.excitations)
    sections = [
        Section(
            "Errors",
            (
                *tables,
                *(Text(f"Refused: {line}") for line in outcome.refusals()),
                Text(
                    "Motor positions and torques in actuator coordinates, over the whole sweep."
                    " Means are changes against kin_only with the same timing. On the paper's"
                    f" hardware they were {PAPER_REDUCTION[0]} % and {PAPER_REDUCTION[1]} %."
                ),
            ),
        ),
        Section(
            "Figures",
            tuple(Picture(figure, caption, caption) for figure, caption in pictures.values()),
        ),
    ]
    if outcome.rest:
        caption = f"{outcome.best.label}; {EXCITED[setup.main]}"
        sections.append(
            Section(
                "What the rest comes from",
                (
                    Table(REST_HEADER, tuple(outcome.rest_rows()), caption),
                    *(Text(f"Refused: {line}") for line in outcome.rest_refusals()),
                    Text(
                        "Each source is switched off in the simulator alone; the log stays as it"
                        " was recorded."
                        if outcome.reference.recorded
                        else "Each source is switched off in simulator and reference alike."
                    ),
                ),
            )
        )
    return tuple(sections)


def _summary(outcome: Outcome) -> str:
    best, main = outcome.best, outcome.setup.main
    if best.variant is Variant.KIN_ONLY:
        return "Only kin_only could be simulated; the reasons stand below the tables."
    position, torque = outcome.changes(best, main)
    return (
        f"{best.label} changes the error against the reference ({outcome.reference.name}) by"
        f" {position:+.1f} % in motor position and {torque:+.1f} % in torque, compared with"
        f" kin_only; {EXCITED[main]}."
    )
