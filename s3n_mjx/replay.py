"""`python -m s3n_mjx.replay --dump PATH`: a diverged environment's first bad step, once more.

In C MuJoCo in double precision and in MJX as trained, side by side, to tell whose fault it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from annotated_types import Ge
from pydantic.dataclasses import dataclass

from s3n_mjx import compat, runtime  # noqa: F401 - compat before brax
from s3n_mjx.cli import parse_arguments, run
from s3n_mjx.config_files import STRICT
from s3n_mjx.training import divergence
from s3n_mjx.training.run import make_env
from s3n_mjx.validation import replay


@dataclass(frozen=True, config=STRICT)
class Replay:
    """Replay the policy step in which an environment diverged.

    Args:
        dump: folder that the training's message names; or the run folder, of whose dumps the first
            counts.
        steps: further policy steps under the same targets.
        exact: show C MuJoCo with 100 solver iterations in place of as many as were trained with.
    """

    dump: Path
    steps: Annotated[int, Ge(0)] = 0
    exact: bool = False


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Replay, args, "python -m s3n_mjx.replay")
    dump = divergence.load(options.dump)
    simulation = dump.config.simulation
    env = make_env(dump.config, dump.robot)
    print(
        f"dump {dump.path}: {env.robot.description.name}, {dump.metadata['task']},"
        f" {simulation.variant} by {simulation.injection}, environment {dump.environment},"
        f" found at {dump.env_steps:,} environment steps",
        flush=True,
    )
    print(f"its own robot: {replay.drawn(dump)}")
    unfit = replay.not_finite(env, dump)
    if unfit:
        print(unfit)
        return
    left_out = replay.left_out(simulation)
    if left_out:
        print(f"C MuJoCo goes without {', '.join(left_out)}, which MJX has")
    trained = replay.in_c(env, dump, options.steps)
    exact = replay.in_c(env, dump, options.steps, exact=True)
    print("compiling MJX's step", flush=True)
    mjx = replay.in_mjx(env, dump, options.steps)
    print()
    print(replay.table(env, exact if options.exact else trained, mjx))
    print()
    print(replay.verdict(env, trained, exact, mjx))


if __name__ == "__main__":
    run(main)
