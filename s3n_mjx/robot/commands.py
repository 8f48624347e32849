"""`python -m s3n_mjx.robot inspect MODEL.xml`: bring a robot of your own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated

import mujoco
import tyro
from annotated_types import Gt
from pydantic.dataclasses import dataclass

from s3n_mjx import runtime
from s3n_mjx.cli import make_folder, parse_arguments, python_command
from s3n_mjx.config_files import STRICT
from s3n_mjx.errors import UserError
from s3n_mjx.files import written_whole
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.robot.description import TODO
from s3n_mjx.robot.draft import draft
from s3n_mjx.robot.inspection import as_text
from s3n_mjx.robot.model import load_robot
from s3n_mjx.robot.survey import survey
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.export import Actuators, difference
from s3n_mjx.simulation.export import export as exported
from s3n_mjx.simulation.injection import normalize

PROG = "python -m s3n_mjx.robot"
# Relative; six digits of poses inside a frame are left.
_SAME = 1e-4


@dataclass(frozen=True, config=STRICT)
class Inspect:
    """Print what an MJCF says of a robot, what MJX makes of it, and what is missing.

    Args:
        model: MJCF of the robot or of a scene with it.
        json: for machines.
    """

    model: tyro.conf.Positional[Path]
    json: bool = False


def inspect(options: Inspect) -> None:
    """The command."""
    seen = survey(options.model)
    if options.json:
        print(json.dumps(dataclasses.asdict(seen) | {"file": str(seen.file)}, indent=2))
    else:
        print(as_text(seen))


@dataclass(frozen=True, config=STRICT)
class New:
    """Write a first robot.yaml for an MJCF; what the file does not say is asked for.

    Args:
        model: MJCF of the serial tree, of the robot alone or of a scene with it.
        out: file to write; printed by default, for a file beside the MJCF.
    """

    model: tyro.conf.Positional[Path]
    out: Path | None = None


def new(options: New) -> None:
    """The command."""
    text = draft(survey(options.model), options.out)
    if options.out is None:
        print(text, end="")
        return
    if options.out.exists():
        raise UserError(f"--out: {options.out} is there already; name another file")
    make_folder(options.out.parent)
    with written_whole(options.out) as temporary:
        temporary.write_text(text)
    print(f"description: {options.out}; answer each {TODO} in it")


@dataclass(frozen=True, config=STRICT)
class Check:
    """Look for everything that would go wrong in a training, in about a minute.

    Args:
        robot: robot.yaml or its folder.
        seconds: of random actions.
    """

    robot: tyro.conf.Positional[Path]
    seconds: Annotated[float, Gt(0)] = 3.0
    simulation: Annotated[SimulationConfig, tyro.conf.arg(name="")] = field(
        default_factory=SimulationConfig
    )


def check(options: Check) -> None:
    """The command."""
    from s3n_mjx.validation.readiness import checks  # loads JAX

    runtime.configure()
    robot = load_robot(options.robot)
    simulation = options.simulation
    print(f"{robot.path}: {robot.description.name}, {simulation.variant} by {simulation.injection}")
    failed = []
    for finding in checks(robot, simulation, options.seconds):
        mark = {True: "ok", False: "FAILED", None: "note"}[finding.passed]
        print(f"  {mark:<7} {finding.check}: {finding.text}", flush=True)
        if finding.passed is False:
            failed.append(finding.check)
    if failed:
        raise UserError(f"{robot.path}: not ready: {', '.join(failed)}; see above")
    variant = simulation.variant if robot.pairs else Variant.KIN_ONLY
    print(
        f"ready: {python_command()} -m s3n_mjx.train --task pitch --variant {variant}"
        f" --robot {options.robot}"
    )


@dataclass(frozen=True, config=STRICT)
class Export:
    """Write the normalized robot as a plain MJCF, for simulators that know nothing of S3N.

    Args:
        robot: robot.yaml or its folder.
        out: MJCF to write; meshes are named relative to it.
        variant: what is put into the model.
        actuators: what a control is, in actuator coordinates: the motor's angle under the
            description's gains, or its torque.
        timestep_s: of the MJCF.
    """

    robot: tyro.conf.Positional[Path]
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    variant: Variant = Variant.S3N_ACT
    actuators: Actuators = Actuators.POSITION
    timestep_s: Annotated[float, Gt(0)] = SimulationConfig().timestep_s


def export(options: Export) -> None:
    """The command."""
    robot = load_robot(options.robot)
    if options.out.suffix != ".xml":
        raise UserError(f"--out: {options.out} is no name of an MJCF; end it with .xml")
    if options.out.exists():
        raise UserError(f"--out: {options.out} is there already; name another file")
    config = SimulationConfig(
        variant=options.variant, injection=Injection.MASS_MATRIX, timestep_s=options.timestep_s
    )
    normalized = normalize(robot, config)
    make_folder(options.out.parent)
    with written_whole(options.out) as temporary:
        written = exported(normalized, options.actuators, options.out.parent)
        temporary.write_text(written.xml)
        try:
            model = mujoco.MjModel.from_xml_path(str(temporary))
        except ValueError as error:
            raise UserError(
                f"{robot.path}: what would be written does not compile"
                f" ({' '.join(str(error).split())}); nothing is written"
            ) from None
        off = difference(model, normalized, options.actuators)
        if not off < _SAME:
            raise UserError(
                f"{robot.path}: what would be written is another robot (mass matrix, bias force or"
                f" torques {off:.1e} off); nothing is written"
            )
    print("\n".join(["added:", *(f"  {line}" for line in written.added)]))
    print("\n".join(["left out, since no MJCF can say it:", *(f"  {x}" for x in written.left_out)]))
    print(
        f"mass matrix, bias force and torques are the package's, to {off:.1e} of the largest entry"
    )
    print(f"MJCF: {options.out}")


_COMMANDS = {
    "inspect": (Inspect, inspect),
    "new": (New, new),
    "check": (Check, check),
    "export": (Export, export),
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
