"""`python -m s3n_mjx.validate`: the legs' dynamics without contact, against the closed chain.

A chirp in position on a test stand (paper, section V): every variant and injection, errors of
motor position and torque, and what the rest of them comes from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from annotated_types import Ge
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from s3n_mjx import compat, runtime  # noqa: F401 - compat before mjx
from s3n_mjx.cli import parse_arguments, run
from s3n_mjx.config_files import STRICT, to_plain
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation import plots
from s3n_mjx.evaluation.report import Picture, Section, Table, Text, text_table, write_report
from s3n_mjx.files import written_whole
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.description import Positive
from s3n_mjx.robot.model import load_robot
from s3n_mjx.robot.stand import on_stand
from s3n_mjx.simulation.config import SimulationConfig, Timing
from s3n_mjx.validation import comparison
from s3n_mjx.validation import plots as figures
from s3n_mjx.validation.comparison import Case, Setup
from s3n_mjx.validation.excitation import Chirp, Excited, joint_targets
from s3n_mjx.validation.leg import Gap

# Hardware, same chirp: Kin-Only to S3N-Full, mean of hip and knee (paper, section V).
PAPER_REDUCTION = (-80.9, -82.1)


class Timings(StrEnum):
    """Which timings of the control loop to compare."""

    PAPER = "paper"
    STAGGERED = "staggered"
    BOTH = "both"


@dataclass(frozen=True, config=STRICT)
class Validate:
    """Compare every simulator model with the closed chain in a contact-free chirp.

    Args:
        robot: robot.yaml or its folder; the bundled robot by default.
        leg: whose pair is looked at; the first one with a pair by default.
        level: of the reference: ideal linkage, or with friction, noise and parameter error.
        seed: of the reference's imperfections.
        gravity: give the legs their weight; off, as with the legs' planes level.
        timing: of the control loop.
        velocity_terms: add the Coriolis torque of the linkage's inertia.
        link_gravity: add the weight of the omitted links (with --gravity).
        timestep_s: of the simulator.
        explain: measure what the rest of the best model's error comes from.
        chirp: the command.
        json: file for all figures, for machines.
        out: folder for report and pictures.
    """

    robot: Path | None = None
    leg: str | None = None
    level: Level = Level.IDEAL
    seed: Annotated[int, Ge(0)] = 0
    gravity: bool = False
    timing: Timings = Timings.BOTH
    velocity_terms: bool = False
    link_gravity: bool = False
    timestep_s: Positive = 0.003
    explain: bool = True
    chirp: Annotated[Chirp, tyro.conf.arg(name="")] = field(default_factory=Chirp)
    json: Path | None = None
    out: Path = Path("runs/validate")


def setup_of(options: Validate) -> Setup:
    """The robot on its stand, and what is asked of it.

    Raises:
        UserError: no such leg, it has no pair, or the command exceeds a joint's limits.
    """
    robot = load_robot(options.robot or bundled_robot())
    stand = on_stand(robot, options.gravity)
    pairs = {pair.leg: pair for pair in stand.pairs}
    leg = options.leg or next(iter(pairs))
    if leg not in pairs:
        raise UserError(f"--leg: no leg {leg!r} with a pair; known: {', '.join(pairs)}")
    base = SimulationConfig(
        timestep_s=options.timestep_s,
        velocity_terms=options.velocity_terms,
        link_gravity=options.link_gravity,
    )
    setup = Setup(stand, (pairs[leg].proximal, pairs[leg].distal), options.chirp, base)
    for excited in setup.excitations:  # refuses what the joints cannot follow
        joint_targets(stand, options.chirp, excited, [0.0])
    return setup


Results = dict[Case, dict[Excited, Gap]]


def result_rows(results: Results, excited: Excited) -> list[tuple[str, ...]]:
    """A row for each model: RMSE of both motors, reductions against `kin_only`."""
    rows = []
    for case, gaps in results.items():
        base = results[_kin_only(results, case.timing)]
        position, torque = comparison.reduction(gaps, base, excited)
        first = case.variant is Variant.KIN_ONLY
        rows.append(
            (
                str(case.variant),
                "-" if first else str(case.injection),
                str(case.timing),
                *(f"{x:.4f}" for x in gaps[excited].position_rmse),
                "" if first else f"{position:+.1f} %",
                *(f"{x:.2f}" for x in gaps[excited].torque_rmse),
                "" if first else f"{torque:+.1f} %",
            )
        )
    return rows


def _kin_only(results: Results, timing: Timing) -> Case:
    return next(c for c in results if c.variant is Variant.KIN_ONLY and c.timing is timing)


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


def as_data(results: Results, rest: Mapping[str, Gap], options: Validate) -> dict:
    """All figures as plain data: RMSEs of both motors, changes against `kin_only` in percent."""
    models = []
    for case, gaps in results.items():
        base = results[_kin_only(results, case.timing)]
        entry: dict = {
            "variant": str(case.variant),
            "injection": str(case.injection),
            "timing": str(case.timing),
        }
        for excited, gap in gaps.items():
            position, torque = comparison.reduction(gaps, base, excited)
            entry[str(excited)] = {
                "position_rmse_rad": gap.position_rmse.tolist(),
                "torque_rmse_nm": gap.torque_rmse.tolist(),
                "position_change_percent": position,
                "torque_change_percent": torque,
            }
        models.append(entry)
    sources = {
        label: {
            "position_rmse_rad": gap.position_rmse.tolist(),
            "torque_rmse_nm": gap.torque_rmse.tolist(),
        }
        for label, gap in rest.items()
    }
    settings = to_plain(options)
    return {
        "reference": f"closed chain, {options.level}",
        "settings": {k: v for k, v in settings.items() if k not in ("json", "out")},
        "models": models,
        "rest_of_the_error": sources,
    }


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Validate, args, "python -m s3n_mjx.validate")
    if options.link_gravity and not options.gravity:
        raise UserError("--link-gravity: needs --gravity; without weight there is none to add")
    setup = setup_of(options)
    for path in filter(None, (options.out, options.json and options.json.parent)):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out: {path} cannot be made ({error})") from None
    timings = tuple(t for t in Timing if options.timing in (Timings.BOTH, str(t)))
    cases = comparison.all_cases(timings)
    reference = comparison.closed_chain_reference(
        setup.stand, options.chirp, options.level, options.seed, options.gravity
    )
    chirp = options.chirp
    print(
        f"{setup.stand.description.name}, leg motors on a stand"
        f"{' with weight' if options.gravity else ''}: chirp of {chirp.amplitude_rad:g} rad,"
        f" {chirp.start_hz:g} to {chirp.stop_hz:g} Hz in {chirp.duration_s:g} s; reference:"
        f" closed chain, {options.level}",
        flush=True,
    )

    results: Results = {}
    bar = tqdm(total=len(cases), unit="model", dynamic_ncols=True)
    for case, gaps in comparison.compare(setup, cases, reference):
        results[case] = gaps
        rmse = float(np.mean(gaps[Excited.BOTH].position_rmse))
        bar.set_postfix_str(f"{case.label}: {rmse:.4f} rad")
        bar.update()
    bar.close()
    best = Case(Variant.S3N_FULL, Injection.MASS_MATRIX, timings[-1])
    rest: dict[str, Gap] = {}
    if options.explain:
        sources = comparison.explain(setup, best, reference)
        for label, gap in tqdm(sources, desc="sources of the rest", unit="run"):
            rest[label] = gap

    for excited in setup.excitations:
        print(f"\n{_EXCITED[excited]}: RMSE against the reference")
        print(text_table(HEADER, result_rows(results, excited), left=3))
    rest_rows = _rest_rows(rest)
    if rest:
        print(f"\nwhat the rest comes from ({best.label}; both motors excited)")
        print(text_table(_REST_HEADER, rest_rows))
    _write(options, setup, results, best, rest)


_EXCITED = {
    Excited.HIP: "hip motor excited",
    Excited.KNEE: "knee motor excited",
    Excited.BOTH: "both motors excited",
}
_REST_HEADER = ("source", "hip [rad]", "knee [rad]", "hip [N m]", "knee [N m]")


def _rest_rows(rest: Mapping[str, Gap]) -> list[tuple[str, ...]]:
    return [
        (
            label,
            *(f"{x:.5f}" for x in gap.position_rmse),
            *(f"{x:.3f}" for x in gap.torque_rmse),
        )
        for label, gap in rest.items()
    ]


def _write(
    options: Validate, setup: Setup, results: Results, best: Case, rest: Mapping[str, Gap]
) -> None:
    timing = best.timing
    base = results[_kin_only(results, timing)]
    position, torque = comparison.reduction(results[best], base, Excited.BOTH)
    shown = {
        case.label: gaps[Excited.BOTH]
        for case, gaps in results.items()
        if case.timing is timing
        and (case.variant is Variant.KIN_ONLY or case.injection is best.injection)
    }
    pictures = {
        "position_error": figures.errors_over_time(
            shown, "position", f"Position error over the sweep: {position:+.1f} % with s3n_full"
        ),
        "torque_error": figures.errors_over_time(
            shown, "torque", f"Torque error over the sweep: {torque:+.1f} % with s3n_full"
        ),
        "rmse": figures.rmse_bars(
            {case.label: gaps[Excited.BOTH] for case, gaps in results.items()},
            f"RMSE against the closed chain ({options.level}), both motors excited",
        ),
        "error_over_frequency": figures.errors_over_frequency(
            shown, options.chirp, "Errors grow with frequency where inertia is missing"
        ),
    }
    for name, figure in pictures.items():
        plots.save(figure, options.out / f"{name}.png")
    data = as_data(results, rest, options)
    for path in filter(None, (options.out / "validate.json", options.json)):
        with written_whole(path) as temporary:
            temporary.write_text(json.dumps(data, indent=2) + "\n")
    sections = [
        Section(
            "Errors",
            (
                *(
                    Table(HEADER, tuple(result_rows(results, e)), _EXCITED[e])
                    for e in setup.excitations
                ),
                Text(
                    "Motor positions and torques in actuator coordinates, over the whole sweep."
                    " Means are changes against kin_only with the same timing. On the paper's"
                    f" hardware they were {PAPER_REDUCTION[0]} % and {PAPER_REDUCTION[1]} %."
                ),
            ),
        ),
        Section(
            "Figures",
            tuple(
                Picture(figure, caption, caption)
                for figure, caption in zip(
                    pictures.values(),
                    (
                        "Position error (as Fig. 6 of the paper)",
                        "Torque error (as Fig. 7)",
                        "RMSE of all models (as Fig. 8)",
                        "RMS error in bands of the sweep's frequency",
                    ),
                    strict=True,
                )
            ),
        ),
    ]
    if rest:
        sections.append(
            Section(
                "What the rest comes from",
                (
                    Table(_REST_HEADER, tuple(_rest_rows(rest)), f"{best.label}, both excited"),
                    Text("Each source is switched off in simulator and reference alike."),
                ),
            )
        )
    summary = (
        f"{best.label} changes the error against the closed-chain reference ({options.level}) by"
        f" {position:+.1f} % in motor position and {torque:+.1f} % in torque, compared with"
        " kin_only; both motors excited."
    )
    write_report(
        options.out / "report.html",
        "Leg dynamics without contact",
        summary,
        tuple(sections),
        {
            "robot": str(options.robot or setup.stand.description.name),
            "reference": f"closed chain in C MuJoCo, {options.level}",
            "command": "python -m s3n_mjx.validate",
        },
    )
    print(f"\nresults: {options.out} (report.html, validate.json, *.png)")


if __name__ == "__main__":
    run(main)
