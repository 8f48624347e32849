"""`python -m s3n_mjx.identify`: from measured frequency responses to a robot description.

Excitation for hardware, recordings of the stand-in, motors and legs from logs, a leg straight from
its closed-chain MJCF, and all of it in one go (paper, section IV).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated

import tyro
from annotated_types import Ge
from pydantic.dataclasses import dataclass
from tqdm import tqdm

from s3n_mjx.cli import make_folder, parse_arguments, python_command, run
from s3n_mjx.config_files import STRICT, Seed
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.log_files import TIME, write_table
from s3n_mjx.evaluation.report import Section, Table, text_table
from s3n_mjx.files import written_whole
from s3n_mjx.identification import report
from s3n_mjx.identification.actuator import ActuatorResult, identify_actuator
from s3n_mjx.identification.bench import Mode, describe, leg_bench, motor_bench
from s3n_mjx.identification.checks import leg_findings
from s3n_mjx.identification.description import (
    actuator_changes,
    description_lines,
    inertia_changes,
)
from s3n_mjx.identification.excitation import Multisine
from s3n_mjx.identification.from_model import (
    ModelIdentification,
    as_data,
    identify_model,
    mass_rows,
    table_rows,
)
from s3n_mjx.identification.leg import LegResult, identify_leg
from s3n_mjx.identification.logs import TorqueLog, read_torque_log, write_torque_log
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.description import RobotDescription
from s3n_mjx.robot.model import ResolvedPair, Robot, load_robot
from s3n_mjx.robot.rewrite import Identified, rewrite
from s3n_mjx.robot.stand import on_stand, pair_of

PROG = "python -m s3n_mjx.identify"
# The paper's posture of a leg (section IV-B).
PAPER_ALPHA = math.pi / 3


def _leg_multisine() -> Multisine:
    """Shorter than a motor's: the position loop leaves nothing to see below its lowest line."""
    return Multisine(low_hz=0.25, period_s=4.0, periods=8)


Signal = Annotated[Multisine, tyro.conf.arg(name="")]


@dataclass(frozen=True, config=STRICT)
class Excitation:
    """Write a Schroeder-phase multisine as a command file for hardware.

    Args:
        out: `.csv`, `.npz` or `.parquet`: columns `time_s` and `torque_n_m`.
        multisine: the signal.
    """

    out: Path
    multisine: Signal = field(default_factory=Multisine)


@dataclass(frozen=True, config=STRICT)
class PlayMotors:
    """Record the motors of the stand-in, each free on a bench, under a multisine.

    Args:
        out: folder of the logs.
        robot: robot.yaml or its folder; the bundled robot by default.
        leg: whose motors; the first one with a pair by default.
        level: ideal, or with friction and noise.
        seed: of noise.
        multisine: the torque.
    """

    out: Path = Path("runs/identify/logs")
    robot: Path | None = None
    leg: str | None = None
    level: Level = Level.IDEAL
    seed: Seed = 0
    multisine: Signal = field(default_factory=Multisine)


@dataclass(frozen=True, config=STRICT)
class PlayLeg:
    """Record a leg of the closed chain about a posture, sum and difference mode.

    Args:
        out: folder of the logs.
        robot: robot.yaml or its folder; the bundled robot by default.
        leg: the first one with a pair by default.
        level: ideal, or with friction, noise and parameter error.
        seed: of the links' errors and of noise.
        gravity: give the leg its weight.
        alpha: postures in rad; pi / 3 by default, with the sign of the joint's range.
        multisine: the torque added to the position loop's.
    """

    out: Path = Path("runs/identify/logs")
    robot: Path | None = None
    leg: str | None = None
    level: Level = Level.IDEAL
    seed: Seed = 0
    gravity: bool = False
    alpha: tuple[float, ...] = ()
    multisine: Signal = field(default_factory=_leg_multisine)


@dataclass(frozen=True, config=STRICT)
class Target:
    """Where a result goes.

    Args:
        to: write a copy of the description with the result to this file.
        write: let `--to` overwrite a file; without `--to`, write into the description itself.
        accept: write in spite of warnings.
    """

    to: Path | None = None
    write: bool = False
    accept: bool = False


Where = Annotated[Target, tyro.conf.arg(name="")]


@dataclass(frozen=True, config=STRICT)
class Actuator:
    """Inertia, damping and delay of motors from open-loop torque.

    Args:
        logs: of motors of one type (docs/identification.md); each motor is fitted, then all.
        robot: robot.yaml or its folder; the bundled robot by default.
        motor: type in the description; by default that of the motors' names.
        settle_periods: left out at the beginning of each log.
        friction: give the model Coulomb friction.
        out: folder of report and figures.
        target: the description to write.
    """

    logs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    robot: Path | None = None
    motor: str | None = None
    settle_periods: Annotated[int, Ge(0)] = 1
    friction: bool = True
    out: Path = Path("runs/identify/actuator")
    target: Where = field(default_factory=Target)


@dataclass(frozen=True, config=STRICT)
class Leg:
    """Total inertia of a leg from closed-loop records, two for each posture.

    Args:
        logs: sum and difference mode of a posture, then those of the next one.
        robot: robot.yaml or its folder; the bundled robot by default.
        leg: by default that of the motors' names.
        settle_periods: left out at the beginning of each log.
        stiffness: give the model a stiffness, as a leg with weight has.
        out: folder of report and figures.
        target: the description to write.
    """

    logs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    robot: Path | None = None
    leg: str | None = None
    settle_periods: Annotated[int, Ge(0)] = 1
    stiffness: bool = True
    out: Path = Path("runs/identify/leg")
    target: Where = field(default_factory=Target)


@dataclass(frozen=True, config=STRICT)
class Model:
    """A leg straight from its closed-chain MJCF: its mass matrix projected through the loops.

    Args:
        closed_chain: MJCF with loops closed by equality constraints.
        serial: MJCF of the serial tree, for what that lacks.
        serial_joints: proximal and distal joint of each pair, where they cannot be told.
        motor_joints: the joints that the two motors of each pair turn, likewise.
        range: joint, least and greatest angle in rad, where its limits are not the range wanted.
        out: folder of `model.json` and `report.html`.
    """

    closed_chain: Annotated[Path, tyro.conf.Positional]
    serial: Annotated[Path | None, tyro.conf.Positional] = None
    serial_joints: tuple[tuple[str, str], ...] = ()
    motor_joints: tuple[tuple[str, str], ...] = ()
    range: tuple[tuple[str, float, float], ...] = ()
    out: Path = Path("runs/identify/model")


@dataclass(frozen=True, config=STRICT)
class Loop:
    """All of it on the stand-in: excite, record, identify, write a description, validate.

    Args:
        robot: robot.yaml or its folder; the bundled robot by default.
        leg: the first one with a pair by default.
        level: ideal, or with friction, noise and parameter error.
        seed: of errors and noise.
        alpha: postures in rad; pi / 3 by default, with the sign of the joint's range.
        validate: compare the result with the closed chain, as `s3n_mjx.validate` does.
        out: folder of logs, report, `robot.yaml` and validation.
    """

    robot: Path | None = None
    leg: str | None = None
    level: Level = Level.IDEAL
    seed: Seed = 0
    alpha: tuple[float, ...] = ()
    validate: bool = True
    out: Path = Path("runs/identify")


def _postures(pair: ResolvedPair, alpha: Sequence[float]) -> list[float]:
    """Distal joint angles: those given, or the paper's on the side where the joint goes.

    Raises:
        UserError: beyond the joint's range.
    """
    low, high = pair.angle_range
    if not alpha:
        known = [a for a in (PAPER_ALPHA, -PAPER_ALPHA) if low <= a <= high]
        return known[:1] or [(low + high) / 2]
    for angle in alpha:
        if not low <= angle <= high:
            raise UserError(f"--alpha: {angle:g} rad is beyond the joint's {low:.2f} to {high:.2f}")
    return list(alpha)


def _read_logs(paths: Sequence[Path]) -> tuple[list[TorqueLog], dict[Path, str]]:
    """Logs and their SHA-256; none twice, or noise would look smaller than it is."""
    logs: list[TorqueLog] = []
    digests: dict[Path, str] = {}
    for path in paths:
        logs.append(read_torque_log(path))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        same = next((other for other, known in digests.items() if known == digest), None)
        if same is not None:
            raise UserError(f"{path}: the same log as {same}; give each log once")
        digests[path] = digest
    return logs, digests


def write_excitation(options: Excitation) -> None:
    """`excitation`."""
    m = options.multisine
    make_folder(options.out.parent)
    meta = {"format": 1.0, "period_s": m.period_s, "low_hz": m.low_hz, "high_hz": m.high_hz}
    meta |= {"odd": float(m.odd), "held": 1.0, "settle_periods": float(m.settle_periods)}
    write_table(options.out, {TIME: m.times(), "torque_n_m": m.signal()}, meta)
    print(describe(m))
    print(f"written: {options.out}")


def play_motors(options: PlayMotors) -> list[Path]:
    """`play-motors`: one log for each of the leg's coupled motors."""
    robot = load_robot(options.robot or bundled_robot())
    pair = pair_of(robot, options.leg)
    entries = {e.joint: e for e in robot.description.driven}
    make_folder(options.out)
    paths = []
    print(f"motors, {options.level}: {describe(options.multisine)}")
    for i, index in enumerate((pair.proximal, pair.distal)):
        name = robot.joints[index]
        log = motor_bench(
            robot.description.motors[entries[name].motor],
            robot.description.torque_delay_ms * 1e-3,
            options.multisine,
            name,
            options.level,
            2 * options.seed + i,
        )
        paths.append(write_torque_log(log, options.out / f"motor_{name}.npz"))
    print(f"logs: {', '.join(map(str, paths))}")
    return paths


def play_leg(options: PlayLeg) -> list[Path]:
    """`play-leg`: two logs for each posture."""
    robot = load_robot(options.robot or bundled_robot())
    pair = pair_of(robot, options.leg)
    postures = _postures(pair, options.alpha)
    make_folder(options.out)
    stand = on_stand(robot, options.gravity, pair.leg)
    print(f"leg {pair.leg}, {options.level}: {describe(options.multisine)}")
    paths = []
    todo = [(alpha, mode) for alpha in postures for mode in Mode]
    for alpha, mode in tqdm(todo, unit="record", dynamic_ncols=True):
        log = leg_bench(
            stand,
            pair.leg,
            mode,
            options.multisine,
            alpha,
            options.level,
            options.seed,
            options.gravity,
        )
        name = f"leg_{pair.leg}_{mode}" + (f"_{alpha:+.2f}" if len(postures) > 1 else "")
        paths.append(write_torque_log(log, options.out / f"{name}.npz"))
    print(f"logs: {', '.join(map(str, paths))}")
    return paths


def _motor_type(options: Actuator, description: RobotDescription, logs: Sequence[TorqueLog]) -> str:
    if options.motor is not None:
        if options.motor not in description.motors:
            raise UserError(
                f"--motor: no type {options.motor!r}; known: {', '.join(description.motors)}"
            )
        return options.motor
    types = {e.joint: e.motor for e in description.driven}
    named = {name: types.get(name) for log in logs for name in log.motors}
    found = {kind for kind in named.values() if kind}
    if len(found) != 1 or None in named.values():
        raise UserError(
            f"--motor: name the type of {', '.join(named)}; known: {', '.join(description.motors)}"
        )
    return found.pop()


def actuator(options: Actuator) -> ActuatorResult:
    """`actuator`."""
    robot = load_robot(options.robot or bundled_robot())
    logs, digests = _read_logs(options.logs)
    if not logs:
        raise UserError("give at least one log")
    make_folder(options.out)
    kind = _motor_type(options, robot.description, logs)
    result = identify_actuator(
        logs, robot.description.motors[kind], options.settle_periods, options.friction
    )
    print(text_table(report.MOTOR_HEADER, report.motor_rows(result)))
    print("± is half of the 95 % interval")
    changes = actuator_changes(robot.description, kind, result, digests)
    _finish(
        options.out,
        report.motor_sections(result, options.out),
        result.findings,
        f"Motors of type {kind}: inertia {result.pooled.estimates['m11'].value:.6f} kg m²,"
        f" damping {result.pooled.estimates['d11'].value:.5f} N m s/rad, torque delay"
        f" {1e3 * result.pooled.delay_s:.4f} ms.",
        {"robot": robot.description.name, "logs": ", ".join(log.path.name for log in logs)},
        changes,
    )
    _write_description(robot, changes, options.target, result.findings)
    return result


def leg(options: Leg) -> LegResult:
    """`leg`."""
    robot = load_robot(options.robot or bundled_robot())
    logs, digests = _read_logs(options.logs)
    named = next(
        (p for p in robot.pairs if logs and robot.joints[p.proximal] in logs[0].motors), None
    )
    pair = pair_of(robot, options.leg or (named.leg if named else None))
    motors = robot.joints[pair.proximal], robot.joints[pair.distal]
    make_folder(options.out)
    linkage = _linkage_of(robot, pair)
    known = robot.description.linkages[linkage]
    result = identify_leg(
        logs,
        motors,
        pair.jacobian,
        known.angle_offset,
        options.settle_periods,
        options.stiffness,
    )
    both = [pair.proximal, pair.distal]
    low, high = pair.angle_range
    for posture in result.postures:
        angle = posture.alpha - known.angle_offset
        if not low - 0.1 <= angle <= high + 0.1:
            raise UserError(
                f"{logs[0].path}: motor_position: puts the distal joint at {angle:.3g} rad, its"
                f" range is {low:.3g} to {high:.3g} rad; check unit and zero of the positions"
            )
        result.findings.extend(
            leg_findings(
                posture.fit, robot.motor_inertia[both], robot.motor_damping[both], robot.kp[both]
            )
        )
    before = known.inertia and (known.inertia.m11, known.inertia.m12, known.inertia.m22)
    print(text_table(report.LEG_HEADER, report.leg_rows(result, before)))
    changes = inertia_changes(linkage, result, digests)
    _finish(
        options.out,
        report.leg_sections(result, before, options.out),
        result.findings,
        f"Leg {pair.leg}: M11 {result.inertia['m11'].value:.6f}, M12"
        f" {result.inertia['m12'].value:.6f}, M22 {result.inertia['m22'].value:.6f} kg m².",
        {"robot": robot.description.name, "logs": ", ".join(log.path.name for log in logs)},
        changes,
    )
    _write_description(robot, changes, options.target, result.findings)
    return result


def _linkage_of(robot: Robot, pair: ResolvedPair) -> str:
    entry = next(e for e in robot.description.legs if e.name == pair.leg)
    assert entry.pair is not None
    return entry.pair.linkage


def _finish(
    out: Path,
    sections: list[Section],
    findings: Sequence[str],
    summary: str,
    facts: dict[str, str],
    changes: dict[str, Identified],
) -> None:
    if findings:
        print(report.findings_text(findings))
    with written_whole(out / "identified.json") as temporary:
        values = {
            key: {"value": c.value, "interval_95": list(c.interval)} for key, c in changes.items()
        }
        text = json.dumps({"identified": values, "findings": list(findings)}, indent=2)
        temporary.write_text(text + "\n")
    report.write(out, sections, findings, summary, facts)
    print(f"results: {out} (report.html, identified.json, *.png)")


def _write_description(
    robot: Robot, changes: dict[str, Identified], target: Target, findings: Sequence[str]
) -> None:
    if target.to is None and not target.write:
        print("robot description: not written; --to FILE for a copy, --write for the file itself")
        return
    if findings and not target.accept:
        raise UserError(
            f"robot description not written: {len(findings)} warnings above speak against the"
            " result; record anew, or give --accept"
        )
    path = rewrite(robot.path, changes, target.to or robot.path, overwrite=target.write)
    print(f"robot description: {path}")


def model(options: Model) -> ModelIdentification:
    """`model`."""
    ranges = {joint: (low, high) for joint, low, high in options.range}
    found = identify_model(
        options.closed_chain, options.serial, options.serial_joints, options.motor_joints, ranges
    )
    make_folder(options.out)
    header = ("quantity", "value", "unit")
    sections = []
    for pair in found.pairs:
        rows = tuple(table_rows(pair))
        print(f"{text_table(header, rows, left=2)}\n")
        sections.append(Section(", ".join(pair.serial_joints), (Table(header, rows),)))
    rows = tuple(mass_rows(found))
    print(text_table(header, rows, left=2))
    sections.append(Section("Masses", (Table(header, rows),)))
    with written_whole(options.out / "model.json") as temporary:
        temporary.write_text(json.dumps([as_data(pair) for pair in found.pairs], indent=2) + "\n")
    facts = {"closed chain": options.closed_chain.name}
    if options.serial is not None:
        facts["serial"] = options.serial.name
    report.write(options.out, sections, [], "From the closed-chain MJCF.", facts)
    print("\nfor the robot description:\n\n" + "\n".join(description_lines(found.pairs)))
    print(f"\nresults: {options.out} (report.html, model.json)")
    return found


def loop(options: Loop) -> None:
    """`loop`: from excitation to validation with nothing but what was identified."""
    robot = load_robot(options.robot or bundled_robot())
    pair = pair_of(robot, options.leg)
    _postures(pair, options.alpha)  # refused before anything is recorded
    common = {"robot": options.robot, "leg": pair.leg, "level": options.level}
    common |= {"seed": options.seed, "out": options.out / "logs"}
    motors = play_motors(PlayMotors(**common))
    legs = play_leg(PlayLeg(**common, alpha=options.alpha))
    first, final = options.out / "motors.yaml", options.out / "robot.yaml"
    print("\nmotors")
    actuator(
        Actuator(
            logs=tuple(motors),
            robot=robot.path,
            out=options.out / "actuator",
            target=Target(to=first, write=True),
        )
    )
    print("\nleg")
    leg(
        Leg(
            logs=tuple(legs),
            robot=first,
            leg=pair.leg,
            out=options.out / "leg",
            target=Target(to=final, write=True),
        )
    )
    first.unlink()
    found = load_robot(final)
    rows = report.table_ii(found, next(p for p in found.pairs if p.leg == pair.leg))
    print(f"\n{text_table(report.TABLE_II_HEADER, rows)}")
    sections = [Section("Table II", (Table(report.TABLE_II_HEADER, tuple(rows)),))]
    report.write(
        options.out, sections, [], "Total inertia from identified parameters.",
        {"robot": str(final), "level": str(options.level)},
    )  # fmt: skip
    if not options.validate:
        print(
            f"compare with the closed chain: {python_command()} -m s3n_mjx.validate --robot {final}"
        )
        return
    from s3n_mjx import validate  # MJX takes seconds to import, and the rest does without

    print("\nvalidation with the identified parameters")
    arguments = ["--robot", final, "--leg", pair.leg, "--level", options.level]
    arguments += ["--seed", options.seed, "--out", options.out / "validate"]
    validate.main([str(a) for a in arguments])


_COMMANDS = {
    "excitation": (Excitation, write_excitation),
    "play-motors": (PlayMotors, play_motors),
    "play-leg": (PlayLeg, play_leg),
    "actuator": (Actuator, actuator),
    "leg": (Leg, leg),
    "model": (Model, model),
    "loop": (Loop, loop),
}


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {PROG} COMMAND [options]; each has a --help\n")
        for name, (options, _) in _COMMANDS.items():
            print(f"  {name:<12} {(options.__doc__ or '').splitlines()[0]}")
        raise SystemExit(0 if args else 2)
    if args[0] not in _COMMANDS:
        raise UserError(f"unknown command {args[0]!r}; known: {', '.join(_COMMANDS)}")
    cls, command = _COMMANDS[args[0]]
    command(parse_arguments(cls, args[1:], f"{PROG} {args[0]}"))


if __name__ == "__main__":
    run(main)
