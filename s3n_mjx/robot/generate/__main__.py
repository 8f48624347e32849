"""`python -m s3n_mjx.robot.generate [PARAMETERS.yaml] [--out FOLDER] [--check]`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import tyro
from pydantic.dataclasses import dataclass

from s3n_mjx.cli import parse_arguments, run
from s3n_mjx.config_files import STRICT
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.generate import generate, stale_files


@dataclass(frozen=True, config=STRICT)
class Generate:
    """Write serial.xml, closed_chain.xml and robot.yaml from a robot's parameters.

    Args:
        parameters: parameter file; the bundled robot's by default.
        out: folder for the files; the parameter file's by default.
        check: write nothing; exit with 1 if the files are not what would be written.
    """

    parameters: tyro.conf.Positional[Path | None] = None
    out: Path | None = None
    check: bool = False


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    options = parse_arguments(Generate, args, "python -m s3n_mjx.robot.generate")
    parameters = options.parameters or bundled_robot().with_name("parameters.yaml")
    folder = options.out or parameters.parent
    if not options.check:
        for path in generate(parameters, folder):
            print(path)
        return
    stale = stale_files(parameters, folder)
    for path in stale:
        print(f"{path}: not what {parameters} gives; run without --check", file=sys.stderr)
    raise SystemExit(1 if stale else 0)


if __name__ == "__main__":
    run(main)
