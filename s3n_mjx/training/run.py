"""A training run: environment, Brax PPO, metrics, checkpoints, resume."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml

from s3n_mjx import compat  # noqa: F401 - before brax
from s3n_mjx.config_files import dump_yaml, parse, read_yaml, to_plain
from s3n_mjx.envs import TASKS
from s3n_mjx.envs.base import Figure
from s3n_mjx.errors import UserError
from s3n_mjx.files import written_whole
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training.config import RUNS, RunConfig, check_batching, task_of
from s3n_mjx.training.metrics_log import Logger, MetricsFile, Row
from s3n_mjx.training.policy import initial_params, load_params, network_factory
from s3n_mjx.training.progress import Progress

from brax.training.agents.ppo import train as ppo  # isort: skip

CONFIG_FILE = "config.yaml"
METRICS_FILE = "metrics.jsonl"


@dataclass(frozen=True)
class Start:
    """Where a run begins: from nothing, or from a checkpoint of the same run."""

    checkpoint: checkpoints.Checkpoint | None = None

    @property
    def env_steps(self) -> int:
        return self.checkpoint.env_steps if self.checkpoint else 0


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


class _StopAfterEpoch:
    """The first Ctrl-C lets the epoch end, so that its checkpoint is kept; the second does not.

    A compiled epoch cannot be interrupted: without this it would run on, and be thrown away.
    """

    def __enter__(self) -> _StopAfterEpoch:
        self.asked = False
        # A background job whose shell ignores Ctrl-C for it goes on ignoring it.
        self._listens = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        )
        if self._listens:
            self._old = signal.signal(signal.SIGINT, self._ask)
            # Python calls a handler when compiled code returns, up to an epoch later; the byte
            # that the signal itself writes lets a thread answer at once.
            self._read, self._write = os.pipe()
            os.set_blocking(self._write, False)
            self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            threading.Thread(target=self._answer, args=(self._read,), daemon=True).start()
        return self

    @staticmethod
    def _answer(pipe: int) -> None:
        if os.read(pipe, 1):
            print(
                "\nstopping after this epoch, whose checkpoint is kept; Ctrl-C again drops it",
                file=sys.stderr,
                flush=True,
            )
            # Python would make one of two signals that come within an epoch. Checkpoints are
            # renamed when they are whole, so nothing is torn.
            if os.read(pipe, 1):
                os._exit(130)
        os.close(pipe)

    def _ask(self, *_: object) -> None:
        self.asked = True

    def check(self, kept: str) -> None:
        """Stop now, if asked to; ``kept`` says what there is to go on from."""
        if self.asked:
            raise KeyboardInterrupt(kept)

    def __exit__(self, *_: object) -> None:
        if self._listens:
            signal.set_wakeup_fd(self._old_fd)
            signal.signal(signal.SIGINT, self._old)
            os.close(self._write)  # ends the thread


def resume_from(folder: Path) -> Start:
    """The newest checkpoint of a run that is whole; damaged ones are named and passed over.

    Raises:
        UserError: no run there.
    """
    if not (folder / CONFIG_FILE).is_file():
        raise UserError(f"--resume: {folder} holds no run ({CONFIG_FILE} is missing)")
    for unfinished in (folder / "checkpoints").glob(".[0-9]*"):
        shutil.rmtree(unfinished)
    for path in sorted((folder / "checkpoints").glob("[0-9]*"), reverse=True):
        try:
            return Start(checkpoints.load(path))
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


def schedule(config: RunConfig, start: Start) -> tuple[int, int]:
    """Epochs left and environment steps in each.

    All epochs are alike, so that a resumed run compiles to the program that is in the cache.
    """
    ppo_config = config.ppo
    per_epoch = int(
        np.ceil(
            ppo_config.num_timesteps / (ppo_config.num_checkpoints * ppo_config.steps_per_iteration)
        )
        * ppo_config.steps_per_iteration
    )
    return ppo_config.num_checkpoints - start.env_steps // per_epoch, per_epoch


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
        UserError: settings that do not go together.
        KeyboardInterrupt: after an epoch in which Ctrl-C was pressed; says what was kept.
    """
    check_batching(config.ppo, jax.local_device_count())
    env = env or make_env(config)
    ppo_config = config.ppo
    epochs, per_epoch = schedule(config, start)
    total = per_epoch * ppo_config.num_checkpoints
    if epochs <= 0:
        assert start.checkpoint is not None
        return start.checkpoint.path

    sizes = env.observation_size, env.action_size
    if start.checkpoint is not None:
        params = load_params(start.checkpoint, *sizes)
    else:
        params = initial_params(ppo_config, *sizes, seed=config.seed)
    metrics = MetricsFile(folder / METRICS_FILE, start.env_steps)
    shown = {"eval/episode_reward": "reward"}
    shown |= {f"eval/{figure.name}": figure.label for figure in env.figures.values()}
    progress = Progress(total, start.env_steps, shown)
    began = time.monotonic()
    offset = metrics.rows[-1]["wall_s"] if metrics.rows else 0.0
    last = start.checkpoint.path if start.checkpoint else None
    reached = start.env_steps

    def check() -> None:
        stop.check(
            f"the checkpoint at {reached:,} environment steps is kept"
            if last
            else "before the first checkpoint"
        )

    def on_metrics(step: int, brax_metrics: Mapping[str, Any]) -> None:
        if step == 0 and metrics.rows and metrics.rows[-1]["env_steps"] >= start.env_steps:
            check()  # the run that is resumed has evaluated and logged it
            return
        row = _row(env.figures, brax_metrics)
        row = {
            "env_steps": step + start.env_steps,
            "wall_s": round(offset + time.monotonic() - began, 2),
            **row,
        }
        metrics.log(row)
        for logger in loggers:
            logger.log(step + start.env_steps, row)
        progress.update(row)
        # Brax hands out an epoch's parameters before it evaluates them: only here is the epoch's
        # row written, too.
        check()

    def on_params(step: int, _, params: Any) -> None:
        nonlocal last, reached
        if step:
            reached = step + start.env_steps
            last = checkpoints.save(folder / "checkpoints", reached, config, env.normalized, params)

    stop = _StopAfterEpoch()
    try:
        with stop:
            ppo.train(
                environment=env,
                num_timesteps=per_epoch * epochs,
                num_evals=epochs + 1,
                # A resumed run must not draw the numbers of the first one again.
                seed=config.seed + 1_000_003 * (start.env_steps // per_epoch),
                network_factory=network_factory(ppo_config),
                normalize_observations=True,
                deterministic_eval=True,
                restore_params=params,
                progress_fn=on_metrics,
                policy_params_fn=on_params,
                **_brax_arguments(config),
            )
    finally:
        metrics.close()
        progress.close()
        for logger in loggers:
            logger.close()
    assert last is not None
    return last


def _brax_arguments(config: RunConfig) -> dict[str, Any]:
    ours = {"policy_layers", "value_layers", "num_checkpoints", "num_timesteps", "init_noise_std"}
    arguments = {k: v for k, v in to_plain(config.ppo).items() if k not in ours}
    if arguments["desired_kl"] is None:
        del arguments["desired_kl"]
    else:
        arguments["learning_rate_schedule"] = "ADAPTIVE_KL"
    return arguments


def _row(named: Mapping[str, Figure], brax_metrics: Mapping[str, Any]) -> Row:
    """Brax's metrics as plain numbers, with the task's own figures in SI units."""
    row: Row = {}
    length = float(brax_metrics.get("eval/avg_episode_length", 1.0))
    for name, value in brax_metrics.items():
        value = float(value)
        short = name.removeprefix("eval/episode_")
        if short in named:
            figure = named[short]
            row[f"eval/{figure.name}"] = float(np.sqrt(value)) if figure.root else value
        elif short.startswith("reward/"):
            if not short.endswith("_std"):
                row[f"eval/{short}_per_step"] = value / length
        elif short.removesuffix("_std") in named:
            continue  # spread over episodes of a square says little
        else:
            row[name] = value
    return row
