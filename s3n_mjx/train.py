"""`python -m s3n_mjx.train --task pitch --variant s3n_act`: train a policy.

Flags are the fields of the task's config; `--preset` sets what they start from.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import make_dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import jax
import tyro

from s3n_mjx import compat, runtime  # noqa: F401 - compat before brax
from s3n_mjx.cli import parse_arguments, python_command, run
from s3n_mjx.config_files import to_plain
from s3n_mjx.errors import Terminated, UserError
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import run as runs
from s3n_mjx.training.config import (
    RUNS,
    RunConfig,
    check_batching,
    load_preset,
    preset_names,
    task_of,
)
from s3n_mjx.training.loop import schedule
from s3n_mjx.training.metrics_log import Logger, TensorBoard, WeightsAndBiases
from s3n_mjx.training.progress import duration

# Flags that may stand beside --resume; any other one would ask for another run.
_WITH_RESUME = (
    "--resume",
    "--distributed",
    "--tensorboard",
    "--no-tensorboard",
    "--wandb",
    "--no-wandb",
)


class _FirstLook(argparse.ArgumentParser):
    """Says a mistake as every other one is said."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument "))


def parse(args: Sequence[str]) -> tuple[Any, RunConfig]:
    """Options of the command and the config that they and the preset make.

    Raises:
        UserError: unknown task, preset, flag or value.
    """
    # Task and preset decide what the other flags are and what they start from.
    first = _FirstLook(add_help=False, allow_abbrev=False)
    first.add_argument("--task", default="pitch")
    first.add_argument("--preset")
    known, _ = first.parse_known_args(args)
    preset = known.preset or ("paper" if runtime.has_accelerator() else "cpu")
    default = load_preset(known.task, preset)
    cls = make_dataclass(
        "Train",
        [
            ("task", str, "pitch"),
            ("preset", str, preset),
            ("run_dir", Path | None, None),
            ("resume", Path | None, None),
            ("distributed", bool, False),
            ("tensorboard", bool, False),
            ("wandb", bool, False),
            ("config", Annotated[RUNS[known.task], tyro.conf.arg(name="")], default),
        ],
    )
    cls.__doc__ = f"""Train a policy.

    Args:
        task: what to learn: {", ".join(RUNS)}.
        preset: values to start from: {", ".join(preset_names())}, or a .yaml file. Without one,
            `paper` where there is an accelerator and `cpu` elsewhere.
        run_dir: folder of the run; made. By default runs/TASK-VARIANT-INJECTION-seedN-TIME.
        resume: run folder to go on with, from its last checkpoint; its own config counts.
        distributed: this is one of several processes that train together, started by srun,
            mpirun, or with torchrun's variables; see train/README.md.
        tensorboard: event files in the run folder; a run that has some goes on with them when it
            is resumed.
        wandb: log to Weights & Biases; a run that is resumed is told so again.
    """
    options = parse_arguments(cls, args, "python -m s3n_mjx.train")
    return options, options.config


def default_folder(config: RunConfig) -> Path:
    """`runs/pitch-s3n_act-qfrc_applied-seed0-20250131-120000`."""
    simulation = config.simulation
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / (
        f"{task_of(config)}-{simulation.variant}-{simulation.injection}-seed{config.seed}-{stamp}"
    )


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    if "--distributed" not in args:
        with ExitStack() as holding:
            _main(args, holding)
        return
    runtime.join_processes()
    if jax.process_index():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the first process speaks for all
    try:
        with ExitStack() as holding:
            _main(args, holding)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        # Leaving in good order would wait for the others, and they for this one.
        os._exit(2)


def _main(args: Sequence[str], holding: ExitStack) -> None:
    """Args: the command's arguments; what holds the run folder to the end."""
    began = time.monotonic()
    leads = jax.process_index() == 0
    options, config = parse(args)
    start = runs.Start()
    tensorboard = options.tensorboard
    if options.resume is not None:
        if options.run_dir is not None:
            raise UserError("--run-dir: a resumed run stays in its folder; leave it out")
        folder = runs.find(options.resume)
        runs.check_holds_run(folder)
        if leads:
            holding.enter_context(runs.held(folder))
        tensorboard |= TensorBoard.in_use(folder) and "--no-tensorboard" not in args
        start = runs.resume_from(folder)
        stored = runs.load_config(folder)
        given = [a for a in args if a.startswith("--") and a.split("=")[0] not in _WITH_RESUME]
        if given and config != stored:
            raise UserError(
                f"--resume: {folder} goes on with its own config; leave out {', '.join(given)}"
            )
        config = stored
    else:
        folder = options.run_dir or default_folder(config)

    print(f"s3n_mjx: {task_of(config)}, {config.simulation.variant} by", end=" ")
    print(f"{config.simulation.injection}, seed {config.seed}, on {runtime.machine()}")
    if options.resume is not None:
        print(f"resuming {folder} at {start.env_steps:,} environment steps")
        if start.checkpoint is not None and start.state is None:
            print(
                "this checkpoint holds no training state: parameters and observation statistics go"
                " on, optimiser and environments start afresh"
            )
    elif any(argument.startswith("--preset") for argument in args):
        print(f"preset {options.preset}")
    elif runtime.has_accelerator():
        print("preset paper (an accelerator was found)")
    else:
        print("preset cpu (no accelerator was found; --preset paper for the full training)")
    check_batching(config.ppo, jax.device_count())
    env = runs.make_env(config, start.checkpoint.robot if start.checkpoint else None)
    checkpoints.check_saveable(env.robot)
    loggers: list[Logger] = []
    if options.wandb and leads:
        loggers.append(WeightsAndBiases(folder.name, to_plain(config)))
    if not env.robot.pairs and config.simulation.variant.startswith("s3n"):
        print(f"no leg has a `pair`, so {config.simulation.variant} adds nothing to kin_only")
    print(
        f"stability margin rho = {env.stability_margin:.3f} (lagged terms settle below 1)"
        if env.normalized.uses_lag
        else "no lagged terms",
        f"leg randomization {env.leg_randomization}",
        sep="; ",
    )
    if options.resume is None and leads:
        runs.prepare_folder(folder, config)
        holding.enter_context(runs.held(folder))
    print(f"run folder: {folder}")
    if start.env_steps >= schedule(config).total:
        print("this run is complete")
    else:
        print("compiling; the first time this takes a minute or two, later starts use the cache")
    sys.stdout.flush()

    if tensorboard and leads:
        loggers.append(TensorBoard(folder))
    again = f"{python_command()} -m s3n_mjx.train --resume {folder}"
    try:
        checkpoint = runs.train(config, folder, start, loggers, env)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - or Python's own end would stumble
        print(f"the output was closed, training stops; go on with: {again}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt as stop:
        terminated = isinstance(stop, Terminated)
        said = "terminated" if terminated else "interrupted"
        kept = f", {stop}" if str(stop) else ""
        if leads:
            print(f"\n{said}{kept}; go on with: {again}", file=sys.stderr)
        raise SystemExit(0 if terminated else 130) from None

    print(f"done in {duration(time.monotonic() - began)}; curve: {folder / runs.METRICS_FILE}")
    print(f"checkpoint: {checkpoint}")
    print(f"evaluate it: {python_command()} -m s3n_mjx.eval --checkpoint {checkpoint}")


if __name__ == "__main__":
    run(main)
