"""Everything a training run depends on, as one tree of dataclasses, and the presets.

A run writes this tree beside its checkpoints; evaluation rebuilds from that alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro
from annotated_types import Ge, Le
from pydantic import Field
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import (
    STRICT,
    Count,
    NonNegative,
    Positive,
    Seed,
    parse,
    read_yaml,
    to_plain,
)
from s3n_mjx.envs.circle import CircleConfig
from s3n_mjx.envs.pitch import PitchConfig
from s3n_mjx.envs.randomization import LegRandomization
from s3n_mjx.errors import UserError
from s3n_mjx.resources import presets_folder
from s3n_mjx.simulation.config import SimulationConfig

Fraction = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True, config=STRICT)
class PPOConfig:
    """Brax PPO; names as in `brax.training.agents.ppo.train.train`."""

    num_timesteps: Count = 600_000  # environment steps in all
    num_envs: Count = 256  # parallel environments
    episode_length: Count = 280  # policy steps
    unroll_length: Count = 20
    batch_size: Count = 64  # trajectories in a minibatch
    num_minibatches: Count = 4
    num_updates_per_batch: Count = 6
    learning_rate: Positive = 5e-4  # at the start, where it is adapted
    desired_kl: Positive | None = 0.02  # adapts the learning rate; None keeps it constant
    entropy_cost: NonNegative = 0.0
    discounting: Fraction = 0.95
    gae_lambda: Fraction = 0.95
    clipping_epsilon: Positive = 0.2
    max_grad_norm: Positive = 1.0
    reward_scaling: Positive = 0.1
    init_noise_std: Positive = 0.25  # of the actions at the start
    policy_layers: tuple[Count, ...] = (128, 128)
    value_layers: tuple[Count, ...] = (256, 256)
    num_checkpoints: Count = 10  # evaluations and checkpoints, evenly spaced
    num_eval_envs: Count = 16

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps between two policy updates."""
        return self.batch_size * self.num_minibatches * self.unroll_length


@dataclass(frozen=True, config=STRICT)
class RunConfig:
    """One training run; the tasks' own classes give `env` its type."""

    robot: str | None = None  # robot.yaml or its folder; the bundled robot by default
    seed: Seed = 0
    leg_randomization: LegRandomization | None = None  # Table III; None: as variant and task want
    simulation: Annotated[SimulationConfig, tyro.conf.arg(name="")] = Field(
        default_factory=SimulationConfig
    )
    ppo: Annotated[PPOConfig, tyro.conf.arg(name="")] = Field(default_factory=PPOConfig)
    env: Any = None  # the task's own class, see below


@dataclass(frozen=True, config=STRICT)
class PitchRun(RunConfig):
    """Training on the pitch task."""

    env: PitchConfig = Field(default_factory=PitchConfig)


@dataclass(frozen=True, config=STRICT)
class CircleRun(RunConfig):
    """Training on the circle task."""

    env: CircleConfig = Field(default_factory=CircleConfig)


RUNS: dict[str, type[RunConfig]] = {"pitch": PitchRun, "circle": CircleRun}


def task_of(config: RunConfig) -> str:
    """Name of the task that ``config`` trains on."""
    return next(name for name, cls in RUNS.items() if type(config) is cls)


def run_class(task: str) -> type[RunConfig]:
    """Config class of a task.

    Raises:
        UserError: unknown task.
    """
    if task not in RUNS:
        raise UserError(f"--task: unknown task {task!r}; known: {', '.join(RUNS)}")
    return RUNS[task]


def preset_names() -> list[str]:
    """Names of the bundled presets."""
    return sorted(path.stem for path in presets_folder().glob("*.yaml"))


def load_preset(task: str, preset: str) -> RunConfig:
    """Config of ``task`` with the values of a preset.

    Args:
        task: name of a task.
        preset: name of a bundled preset, or the path of a YAML file of the same form: under
            each task's name, and under `all`, any part of the task's config.

    Raises:
        UserError: unknown task or preset, or a key or value that the config does not take.
    """
    cls = run_class(task)
    path = Path(preset) if preset.endswith((".yaml", ".yml")) else None
    if path is None:
        path = presets_folder() / f"{preset}.yaml"
        if preset not in preset_names():
            raise UserError(
                f"--preset: unknown preset {preset!r}; known: {', '.join(preset_names())},"
                " or the path of a .yaml file"
            )
    data = read_yaml(path) or {}
    if not isinstance(data, dict):
        raise UserError(f"{path}: not a preset; expected keys {', '.join(['all', *RUNS])}")
    for key in data:
        if key != "all" and key not in RUNS:
            raise UserError(f"{path}: {key}: unknown task; known: {', '.join(['all', *RUNS])}")
    merged = _merge(to_plain(cls()), data.get("all") or {}, path, "all")
    merged = _merge(merged, data.get(task) or {}, path, task)
    return parse(cls, merged, str(path))


def _merge(base: dict[str, Any], update: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(update, dict):
        raise UserError(f"{path}: {where}: expected keys and values, got {update!r}")
    result = dict(base)
    for key, value in update.items():
        if isinstance(result.get(key), dict):
            value = _merge(result[key], value, path, f"{where}.{key}")
        result[key] = value
    return result


def check_batching(ppo: PPOConfig, devices: int) -> None:
    """What Brax would only assert.

    Raises:
        UserError: names the flags, the numbers and the nearest that fit.
    """
    if ppo.num_envs % devices:
        fits = max(devices, ppo.num_envs // devices * devices)
        raise UserError(
            f"--num-envs: {ppo.num_envs} environments cannot be split over {devices} devices;"
            f" use a multiple of {devices}, such as {fits}"
        )
    if ppo.batch_size % devices:
        raise UserError(
            f"--batch-size: minibatches of {ppo.batch_size} trajectories cannot be split over"
            f" {devices} devices; use a multiple of {devices}"
        )
    trajectories = ppo.batch_size * ppo.num_minibatches
    if trajectories % ppo.num_envs:
        fits = max(1, trajectories // ppo.num_envs) * ppo.num_envs
        raise UserError(
            f"--batch-size x --num-minibatches = {ppo.batch_size} x {ppo.num_minibatches} ="
            f" {trajectories} trajectories is no multiple of --num-envs {ppo.num_envs}; make the"
            f" product {fits}"
        )
