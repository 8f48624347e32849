"""`python -m s3n_mjx.validate`: the legs' dynamics without contact, against a reference.

A chirp in position on a test stand (paper, section V): every variant and injection, errors of
motor position and torque, and what the rest of them comes from. The reference is the closed
chain, or with `--against` measured logs of the same test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from s3n_mjx import compat, runtime  # noqa: F401 - compat before mjx
from s3n_mjx.cli import make_folder, parse_arguments, run
from s3n_mjx.config_files import STRICT, Positive, Seed, to_plain
from s3n_mjx.errors import UserError
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.model import Robot, load_robot
from s3n_mjx.robot.stand import on_stand, pair_of
from s3n_mjx.simulation.config import SimulationConfig, Timing
from s3n_mjx.validation import comparison
from s3n_mjx.validation.comparison import Case, Gaps, Reference, Refused, Setup
from s3n_mjx.validation.excitation import Chirp, Excited, joint_targets
from s3n_mjx.validation.leg import Gap
from s3n_mjx.validation.measured import (
    CHIRP_KEYS,
    LegLog,
    logged_reference,
    read_leg_logs,
    write_leg_logs,
)
from s3n_mjx.validation.report import Outcome, print_tables, write_results


class Timings(StrEnum):
    """Which timings of the control loop to compare."""

    PAPER = "paper"
    STAGGERED = "staggered"
    BOTH = "both"


@dataclass(frozen=True, config=STRICT)
class Validate:
    """Compare every simulator model with a reference in a contact-free chirp.

    Args:
        robot: robot.yaml or its folder; the bundled robot by default.
        leg: whose pair is looked at; the first one with a pair by default.
        against: measured logs of one leg instead of the closed chain, one for each excitation
            (CSV, NPZ or Parquet, see docs/logs.md); they say what the chirp was.
        level: of the closed chain: ideal linkage, or with friction, noise and parameter error.
        seed: of the closed chain's imperfections.
        gravity: give the legs their weight; off, as with the legs' planes level.
        timing: of the control loop.
        velocity_terms: add the Coriolis torque of the linkage's inertia.
        link_gravity: add the weight of the omitted links (with --gravity).
        timestep_s: of the simulator.
        explain: measure what the rest of the best model's error comes from.
        chirp: the command.
        json: file for all figures, for machines.
        write_logs: keep what the closed chain did as logs, too, such as measured ones are read
            from; in `logs` below --out.
        out: folder for report and pictures.
    """

    robot: Path | None = None
    leg: str | None = None
    against: tuple[Path, ...] = ()
    level: Level = Level.IDEAL
    seed: Seed = 0
    gravity: bool = False
    timing: Timings = Timings.BOTH
    velocity_terms: bool = False
    link_gravity: bool = False
    timestep_s: Positive = 0.003
    explain: bool = True
    chirp: Annotated[Chirp, tyro.conf.arg(name="")] = field(default_factory=Chirp)
    json: Path | None = None
    write_logs: bool = False
    out: Path = Path("runs/validate")


def prepared(options: Validate) -> tuple[Validate, Setup, Reference]:
    """Options with what the logs say in them, what the robot is asked to do, and the reference.

    Raises:
        UserError: no such leg, it has no pair, flags that contradict each other or a log, a log
            that does not hold up, or a command that exceeds a joint's limits.
    """
    robot = load_robot(options.robot or bundled_robot())
    pair = pair_of(robot, options.leg)
    logs: list[LegLog] = []
    if options.against:
        _refuse_flags_of_the_closed_chain(options)
        logs = read_leg_logs(options.against, robot, pair)
        options = _as_logged(options, logs[0])
    if options.link_gravity and not options.gravity:
        raise UserError("--link-gravity: needs --gravity; without weight there is none to add")

    stand = on_stand(robot, options.gravity)
    on_its_stand = pair_of(stand, pair.leg)
    setup = Setup(
        stand,
        (on_its_stand.proximal, on_its_stand.distal),
        options.chirp,
        SimulationConfig(
            timestep_s=options.timestep_s,
            velocity_terms=options.velocity_terms,
            link_gravity=options.link_gravity,
        ),
        tuple(e for e in Excited if not logs or any(log.excited is e for log in logs)),
    )
    for excited in setup.excitations:  # refuses what the joints cannot follow
        joint_targets(stand, options.chirp, excited, [0.0])
    return options, setup, _reference(options, stand, logs, setup.motors)


def _reference(
    options: Validate, stand: Robot, logs: list[LegLog], motors: Sequence[int]
) -> Reference:
    if logs:
        return logged_reference(logs, options.chirp, stand, motors)
    return comparison.closed_chain_reference(
        stand, options.chirp, options.level, options.seed, options.gravity
    )


def _refuse_flags_of_the_closed_chain(options: Validate) -> None:
    for flag, given, default in (
        ("--level", options.level, Level.IDEAL),
        ("--seed", options.seed, 0),
        ("--write-logs", options.write_logs, False),
    ):
        if given != default:
            raise UserError(f"{flag}: is of the closed chain; leave it out beside --against")


def _as_logged(options: Validate, log: LegLog) -> Validate:
    """The log's chirp and weight in place of the flags', which may not say something else."""
    for key, name in CHIRP_KEYS.items():
        given, logged = getattr(options.chirp, name), getattr(log.chirp, name)
        if given != getattr(Chirp(), name) and not np.isclose(given, logged, rtol=1e-9):
            raise UserError(
                f"--{name.replace('_', '-')}: {given:g} contradicts {log.path}, where {key} is"
                f" {logged:g}; leave the flag out"
            )
    if options.gravity and not log.gravity:
        raise UserError(
            f"--gravity: contradicts {log.path}, where gravity is 0; leave the flag out, or"
            " correct the log"
        )
    chirp = dataclasses.replace(log.chirp, settle_s=options.chirp.settle_s)
    return dataclasses.replace(options, chirp=chirp, gravity=log.gravity)


def _settings(options: Validate) -> dict[str, object]:
    """What decided the figures; of the reference only what it took notice of."""
    unused = {"json", "out", "write_logs"} | ({"level", "seed"} if options.against else {"against"})
    return {key: value for key, value in to_plain(options).items() if key not in unused}


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Validate, args, "python -m s3n_mjx.validate")
    options, setup, reference = prepared(options)
    for path in filter(None, (options.out, options.json and options.json.parent)):
        make_folder(path)
    timings = tuple(t for t in Timing if options.timing in (Timings.BOTH, str(t)))
    cases = comparison.all_cases(timings)
    chirp = options.chirp
    print(
        f"{setup.stand.description.name}, leg motors on a stand"
        f"{' with weight' if options.gravity else ''}: chirp of {chirp.amplitude_rad:g} rad,"
        f" {chirp.start_hz:g} to {chirp.stop_hz:g} Hz in {chirp.duration_s:g} s; reference:"
        f" {reference.name}",
        flush=True,
    )

    results: dict[Case, Gaps | Refused] = {}
    with tqdm(total=len(cases), unit="model", dynamic_ncols=True) as bar:
        for case, gaps in comparison.compare(setup, cases, reference):
            results[case] = gaps
            if isinstance(gaps, Refused):
                said = "refused"
            else:
                said = f"{float(np.mean(gaps[setup.main].position_rmse)):.4f} rad"
            bar.set_postfix_str(f"{case.label}: {said}")
            bar.update()
    rest: dict[str, Gap | Refused] = {}
    if options.explain:
        sources = comparison.explain(setup, comparison.best_of(results), reference)
        for label, gap in tqdm(sources, desc="sources of the rest", unit="run"):
            rest[label] = gap

    outcome = Outcome(setup, reference, results, rest)
    print_tables(outcome)
    if options.write_logs:
        write_leg_logs(setup, reference, options.out / "logs")
    robot = str(options.robot or setup.stand.description.name)
    write_results(outcome, robot, _settings(options), options.out, options.json)
    written = "report.html, validate.json, *.png" + (", logs" if options.write_logs else "")
    print(f"\nresults: {options.out} ({written})")


if __name__ == "__main__":
    run(main)
