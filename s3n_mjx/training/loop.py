"""A run from its start, or from where it stood, to its end: chunks, evaluations, checkpoints.

Brax's PPO trains; here is what it does not do: stop between two compiled chunks and go on there
bit by bit, say what goes wrong, and keep what was there before it did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from s3n_mjx import compat
from s3n_mjx.cli import python_command
from s3n_mjx.config_files import to_plain
from s3n_mjx.envs.base import Figure, RobotEnv
from s3n_mjx.errors import UserError
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import memory, snapshot
from s3n_mjx.training.brax_loop import stepped
from s3n_mjx.training.config import RunConfig
from s3n_mjx.training.divergence import DivergenceWatch
from s3n_mjx.training.interrupts import Interrupts
from s3n_mjx.training.metrics_log import Logger, MetricsFile, Row, read_rows
from s3n_mjx.training.policy import initial_params, load_params, make_policy, network_factory
from s3n_mjx.training.progress import Progress

from brax.envs.wrappers.training import wrap  # isort: skip
from brax.training import acting  # isort: skip
from brax.training.agents.ppo import train as ppo  # isort: skip

METRICS_FILE = "metrics.jsonl"

# At least so many between two checkpoints, where there are as many PPO iterations. A chunk should
# be short, so that a run stops soon when it is asked to, and long beside the milliseconds that
# it takes to start one.
_CHUNKS = 8


@dataclass(frozen=True)
class Start:
    """Where a run begins: from nothing, or from a checkpoint of the same run."""

    checkpoint: checkpoints.Checkpoint | None = None
    # What :func:`~s3n_mjx.training.snapshot.pack` wrote; without it learner and environments
    # start afresh around the checkpoint's parameters.
    state: bytes | None = None

    @property
    def env_steps(self) -> int:
        return self.checkpoint.env_steps if self.checkpoint else 0


@dataclass(frozen=True)
class Schedule:
    """How a run is cut into compiled chunks, all alike, so that one program does.

    A run can stop and go on between any two.
    """

    checkpoints: int
    chunks: int  # from one checkpoint to the next
    env_steps: int  # of a chunk

    @property
    def between(self) -> int:
        """Environment steps from one checkpoint to the next."""
        return self.chunks * self.env_steps

    @property
    def total(self) -> int:
        """Environment steps of the run."""
        return self.checkpoints * self.between


def schedule(config: RunConfig) -> Schedule:
    """The steps that were asked for, rounded up to whole PPO iterations at each checkpoint."""
    settings = config.ppo
    per_iteration = settings.steps_per_iteration
    iterations = -(-settings.num_timesteps // (settings.num_checkpoints * per_iteration))
    chunks = next(n for n in range(min(_CHUNKS, iterations), iterations + 1) if iterations % n == 0)
    return Schedule(settings.num_checkpoints, chunks, iterations // chunks * per_iteration)


def _sound(tree: Any) -> bool:
    """Whether all of it, on the host, are finite numbers."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def _params(learner: Any) -> Any:
    """Brax's (normalizer, policy, value) on the host."""
    params = learner.normalizer_params, learner.params.policy, learner.params.value
    return snapshot.of_one_device(params)


class _Processes:
    """All processes of the run, which call this in the same order."""

    def __init__(self) -> None:
        self._met = 0

    def meet(self) -> None:
        """Wait for all of them."""
        if jax.process_count() > 1:
            self._met += 1
            compat.meet(f"s3n_mjx.training.{self._met}")

    def all(self, value: int) -> np.ndarray:
        """``value``, below 2**31, of every process."""
        if jax.process_count() == 1:
            return np.array([value])
        self.meet()
        return np.asarray(multihost_utils.process_allgather(np.array(value)))


class _Finished(Exception):
    """The last chunk is done. Brax's own end adds nothing, and fails with several processes."""


class Training:
    """One stretch of a run; :meth:`run` is all of it.

    With several processes each has one of these, and the first of them writes.

    Args:
        config: the run.
        folder: of the run.
        start: where it begins.
        loggers: further receivers of each row of metrics.
        env: the task.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        start: Start,
        loggers: Sequence[Logger],
        env: RobotEnv,
    ):
        self._config, self._folder, self._start = config, folder, start
        self._loggers, self._env = loggers, env
        self._sizes = env.observation_size, env.action_size
        self._plan = schedule(config)
        self._leads = jax.process_index() == 0
        self._steps = self._saved = start.env_steps
        # Folder of the last whole checkpoint.
        self.kept = start.checkpoint.path if start.checkpoint else None
        self._processes = _Processes()
        self._interrupts = Interrupts(
            "stopped before anything was trained; go on with:"
            f" {python_command()} -m s3n_mjx.train --resume {folder}"
        )
        self._watch = DivergenceWatch(folder, env, config)
        self._compiled: Callable[..., Any] | None = None
        self._evaluator: Any = None
        self._learner: list[dict[str, Any]] = []  # of the chunks since the last row
        self._trained_s = 0.0  # likewise

    def run(self) -> Path:
        """Train to the end of the schedule.

        Returns:
            Folder of the last checkpoint.

        Raises:
            UserError, KeyboardInterrupt, Terminated, OSError: see
                :func:`~s3n_mjx.training.run.train`.
        """
        with ExitStack() as stack:
            for logger in self._loggers:
                stack.callback(logger.close)
            if self._leads:
                self._metrics = MetricsFile(self._folder / METRICS_FILE, self._steps)
                stack.callback(self._metrics.close)
                shown = {"eval/episode_reward": "reward"}
                shown |= {f"eval/{f.name}": f.label for f in self._env.figures.values()}
                self._progress = Progress(self._plan.total, self._steps, shown)
                stack.callback(self._progress.close)
            stack.enter_context(self._interrupts)
            if jax.process_count() > 1:  # none may leave alone
                self._interrupts.begin()
            self._train()
            if self._interrupts.asked:  # too late to stop this run, and before the next
                self._interrupts.stop(self._interrupts.asked, "the run is complete")
        return self.kept or self._folder

    def _train(self) -> None:
        """Brax's loop, chunk by chunk."""
        config, checkpoint = self._config, self._start.checkpoint
        if checkpoint is not None:
            params = load_params(checkpoint, *self._sizes)
        else:
            params = initial_params(config.ppo, *self._sizes, seed=config.seed)
        self._began = time.monotonic()
        rows = read_rows(self._folder / METRICS_FILE)
        self._wall_s = rows[-1]["wall_s"] if rows else 0.0
        reached = rows[-1]["env_steps"] if rows else -1
        if reached < self._steps and self._steps % self._plan.between == 0:
            self._evaluate(params, {})
        left = (self._plan.total - self._steps) // self._plan.env_steps
        with suppress(_Finished), stepped(self._chunk):
            ppo.train(
                environment=self._env,
                num_timesteps=left * self._plan.env_steps,
                num_evals=left + 1,  # how Brax is told the number of its epochs
                run_evals=False,
                seed=config.seed,
                network_factory=network_factory(config.ppo),
                normalize_observations=True,
                restore_params=params,
                **_brax_arguments(config),
            )

    # --- a chunk

    def _chunk(self, epoch: Any, learner: Any, environments: Any, _: Any) -> tuple[Any, Any, Any]:
        """In the place of Brax's compiled epoch, see :mod:`~s3n_mjx.training.brax_loop`."""
        if self._compiled is None:
            learner, environments = self._prepare(epoch, learner, environments)
        assert self._compiled is not None
        self._stop_if_asked(learner, environments)
        began = time.monotonic()
        before = learner, environments
        learner, environments, metrics = self._compiled(learner, environments, self._keys())
        own = jax.tree.map(snapshot.local, metrics)
        if not _sound(snapshot.of_one_device((learner.params, learner.normalizer_params))):
            raise self._broken_down(before, own)
        self._steps += self._plan.env_steps
        self._trained_s += time.monotonic() - began
        means = {name: np.mean(value) for name, value in own.items()}
        self._learner.append(means)
        diverged = self._diverged(environments)
        if self._leads:
            self._progress.reach(self._steps)
        if self._steps % self._plan.between == 0:
            counted = {"train/diverged_environments": float(self._processes.all(diverged).sum())}
            self._evaluate(_params(learner), self._training_row() | counted)
            # After its row: a run that is killed in between makes both again.
            self._save(learner, environments)
        if self._steps == self._plan.total:
            raise _Finished
        return learner, environments, means

    def _prepare(self, epoch: Any, learner: Any, environments: Any) -> tuple[Any, Any]:
        """Compile, see whether it fits, put what the checkpoint holds in the place of the new."""
        compiled = epoch.lower(learner, environments, self._keys()).compile()
        # Arrays of one process become those of all in `jax.pmap`'s own call only.
        self._compiled = compiled if jax.process_count() == 1 else epoch
        needed, available = memory.of_program(compiled), memory.of_device()
        if needed is not None and available is not None:
            # What one process refuses all have to.
            available = int(self._processes.all(available >> 10).min()) << 10
            memory.check(self._config.ppo, needed, available)
        if len(steps := set(self._processes.all(self._steps // self._plan.env_steps))) > 1:
            chunks = sorted(int(step) * self._plan.env_steps for step in steps)
            raise UserError(
                f"{self._folder}: processes would go on from different environment steps, {chunks};"
                " all of them have to see the same folder"
            )
        checkpoint, state = self._start.checkpoint, self._start.state
        if checkpoint is not None and state is not None:
            where = str(checkpoint.path / checkpoints.STATE)
            learner, environments = snapshot.unpack(state, learner, environments, where)
        self._interrupts.begin()
        return learner, environments

    def _keys(self) -> jax.Array:
        """Of the next chunk, (local_devices, 2): the same, however often a run was resumed."""
        chunk = self._steps // self._plan.env_steps
        key = jax.random.fold_in(jax.random.PRNGKey(self._config.seed), chunk)
        key = jax.random.fold_in(key, jax.process_index())
        return jax.random.split(key, jax.local_device_count())

    def _diverged(self, environments: Any) -> int:
        """How often environments of this process diverged so far; the first process says so."""
        if jax.process_count() == 1:
            return self._watch.check(environments, self._steps)
        count = int(snapshot.local(environments.info["divergence"].count).sum())
        if count and self._leads:
            own = environments.replace(info=jax.tree.map(snapshot.local, environments.info))
            return self._watch.check(own, self._steps)
        return count

    # --- what is written

    def _evaluate(self, params: Any, training: Mapping[str, float]) -> None:
        """A row of metrics: of the policy without noise, in the same episodes each time.

        Every process makes it: one that waited for the others would wait as long.

        Args:
            params: Brax's (normalizer, policy, value).
            training: metrics of training since the last row.
        """
        settings = self._config.ppo
        key = jax.random.PRNGKey(self._config.seed + 1)
        if self._evaluator is None:
            self._evaluator = acting.Evaluator(
                wrap(self._env, episode_length=settings.episode_length, action_repeat=1),
                lambda params: make_policy(settings, params, *self._sizes),
                num_eval_envs=settings.num_eval_envs,
                episode_length=settings.episode_length,
                action_repeat=1,
                key=key,
            )
        # Brax would draw others each time, and a resumed run not those of a whole one.
        self._evaluator._key = key
        found = self._evaluator.run_evaluation(params, training_metrics={**training})
        if not self._leads:
            return
        row: Row = {
            "env_steps": self._steps,
            "wall_s": round(self._wall_s + time.monotonic() - self._began, 2),
            **_row(self._env.figures, found),
        }
        self._metrics.log(row)
        for logger in self._loggers:
            logger.log(self._steps, row)
        self._progress.update(row)

    def _training_row(self) -> dict[str, float]:
        """The learner's metrics, means over the chunks since the last row or the resume."""
        chunks, seconds = self._learner, self._trained_s
        self._learner, self._trained_s = [], 0.0
        row = {
            f"training/{name}": float(np.mean([chunk[name] for chunk in chunks]))
            for name in chunks[0]
        }
        return row | {"training/sps": len(chunks) * self._plan.env_steps / seconds}

    def _save(self, learner: Any, environments: Any) -> None:
        """A checkpoint of all that the run goes on from."""
        self._processes.meet()
        state = snapshot.pack(learner, environments)  # with several processes all take part
        self._saved = self._steps
        if not self._leads:
            return
        self.kept = checkpoints.save(
            self._folder / "checkpoints",
            self._steps,
            self._config,
            self._env.normalized,
            _params(learner),
            state,
        )

    # --- how it may end early

    def _stop_if_asked(self, learner: Any, environments: Any) -> None:
        """Between two chunks: keep everything and stop, if a signal asks for it.

        Raises:
            KeyboardInterrupt, Terminated: as the signal wants it.
        """
        asked = int(self._processes.all(self._interrupts.asked or 0).max())
        if not asked:
            return
        if self._steps != self._saved:
            self._save(learner, environments)
        self._interrupts.stop(
            asked,
            f"the checkpoint at {self._steps:,} environment steps is kept"
            if self._steps
            else "before the first checkpoint",
        )

    def _broken_down(self, before: Any, metrics: Mapping[str, Any]) -> UserError:
        """The learner has no numbers any more: keep what it had.

        Args:
            before: learner and environments at the chunk's start.
            metrics: of the chunk.
        """
        if self._steps != self._saved:
            self._save(*before)
        broken = [name for name, value in metrics.items() if not np.isfinite(value).all()]
        kept = f"the last good parameters are in {self.kept}" if self.kept else "none were kept yet"
        return UserError(
            f"the learner broke down between {self._steps:,} and"
            f" {self._steps + self._plan.env_steps:,} environment steps: its parameters are no"
            f" numbers any more (nor are {', '.join(broken[:4]) or 'those of the next update'});"
            f" {kept}; start again with a smaller --learning-rate or --max-grad-norm"
        )


def _brax_arguments(config: RunConfig) -> dict[str, Any]:
    ours = {
        "policy_layers",
        "value_layers",
        "num_checkpoints",
        "num_timesteps",
        "num_eval_envs",
        "init_noise_std",
    }
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
