"""Run folders: made, found, held by one training at a time, resumed, trained into."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import yaml

from s3n_mjx.config_files import dump_yaml, parse, read_yaml
from s3n_mjx.envs import TASKS
from s3n_mjx.errors import UserError
from s3n_mjx.files import written_whole
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training.config import RUNS, RunConfig, check_batching, task_of
from s3n_mjx.training.loop import METRICS_FILE as METRICS_FILE
from s3n_mjx.training.loop import Start, Training, schedule
from s3n_mjx.training.metrics_log import Logger

CONFIG_FILE = "config.yaml"
LOCK_FILE = ".lock"


def make_env(config: RunConfig, robot: Any = None):
    """The task's environment as ``config`` describes it.

    Args:
        config: the run.
        robot: a resolved robot instead of the path in ``config`` (from a checkpoint).
    """
    return TASKS[task_of(config)](
        robot=robot or config.robot,
        simulation=config.simulation,
        task=config.env,
        leg_randomization=config.leg_randomization,
    )


def prepare_folder(folder: Path, config: RunConfig) -> None:
    """Make a new run's folder and write its config.

    Raises:
        UserError: a run is there already, or the folder cannot be written.
    """
    if (folder / CONFIG_FILE).exists():
        with held(folder):  # who trains into it now is said first
            pass
        raise UserError(f"{folder}: holds a run already; resume it with --resume {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / CONFIG_FILE) as temporary:
            temporary.write_text(yaml.safe_dump({"task": task_of(config)}) + dump_yaml(config))
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error})") from None


def find(path: Path) -> Path:
    """The run folder meant by ``path``: itself, or the newest run in a folder of runs."""
    if (path / CONFIG_FILE).is_file() or not path.is_dir():
        return path
    inside = [folder for folder in path.iterdir() if (folder / CONFIG_FILE).is_file()]
    return max(inside, key=lambda f: (f / CONFIG_FILE).stat().st_mtime, default=path)


def check_holds_run(folder: Path) -> None:
    """Before anything is made of it.

    Raises:
        UserError: there is no run.
    """
    if not (folder / CONFIG_FILE).is_file():
        raise UserError(f"--resume: {folder} holds no run ({CONFIG_FILE} is missing)")


def resume_from(folder: Path) -> Start:
    """The newest checkpoint of a run that is whole; damaged ones are named and passed over.

    Raises:
        UserError: no run there.
    """
    check_holds_run(folder)
    for path in sorted((folder / "checkpoints").glob("[0-9]*"), reverse=True):
        try:
            checkpoint = checkpoints.load(path)
            return Start(checkpoint, checkpoints.load_state(checkpoint))
        except UserError as error:
            print(f"passed over: {error}")
    return Start()


def load_config(folder: Path) -> RunConfig:
    """Config that a run folder was made with.

    Raises:
        UserError: the file is damaged or of another version.
    """
    path = folder / CONFIG_FILE
    data = read_yaml(path)
    task = data.pop("task", None) if isinstance(data, dict) else None
    if not isinstance(task, str) or task not in RUNS:
        raise UserError(f"{path}: task: unknown task {task!r}; known: {', '.join(RUNS)}")
    return parse(RUNS[task], data, str(path))


_HELD: set[Path] = set()  # by this process


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other trainings out of a run folder; the system lets go of it when the process ends.

    To be held from before its checkpoints are looked at until training is over; within that, it
    may be asked for again.

    Raises:
        UserError: one trains into it now, or the folder cannot be written.
    """
    if folder.resolve() in _HELD:
        yield
        return
    path = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            raise UserError(
                f"{folder}: {stream.read().strip() or 'another process'} trains into it now; stop"
                " that one or name another folder with --run-dir"
            ) from None
        except OSError:
            pass  # a file system without locks
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {platform.node()}\n")
        stream.flush()
        # Left behind by a kill; no one else writes now.
        for unfinished in (folder / "checkpoints").glob(".[0-9]*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        _HELD.add(folder.resolve())
        try:
            yield
        finally:
            _HELD.remove(folder.resolve())


def train(
    config: RunConfig,
    folder: Path,
    start: Start = Start(),
    loggers: Sequence[Logger] = (),
    env: Any = None,
) -> Path:
    """Train with Brax PPO; metrics and checkpoints go into ``folder`` as training goes.

    Args:
        config: the run.
        folder: made by :func:`prepare_folder`.
        start: from :func:`resume_from`.
        loggers: further receivers of each row of metrics.
        env: the run's environment, if the caller made it already.

    Returns:
        Folder of the last checkpoint.

    Raises:
        UserError: settings that do not go together, too little memory, a disk that is full, a
            learner that broke down, or a folder that another process trains into.
        KeyboardInterrupt: Ctrl-C stopped it; says what was kept.
        Terminated: SIGTERM stopped it; says what was kept.
    """
    check_batching(config.ppo, jax.device_count())
    if start.env_steps >= schedule(config).total:
        assert start.checkpoint is not None
        return start.checkpoint.path
    training = Training(config, folder, start, loggers, env or make_env(config))
    if jax.process_index():
        return training.run()
    with held(folder):
        try:
            return training.run()
        except BrokenPipeError:  # whoever read the output is gone
            raise
        except OSError as error:
            room = "make room and " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise UserError(
                f"{folder}: cannot be written ({error.strerror or error}); the last whole"
                f" checkpoint is {training.kept or 'none'}; {room}go on with --resume {folder}"
            ) from None
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise UserError(
                f"--num-envs: {config.ppo.num_envs} environments do not fit into the device's"
                f" memory ({str(error).splitlines()[0][:200]}); take half as many, and half the"
                " --batch-size"
            ) from None
