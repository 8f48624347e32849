"""Diverged environments of a run: counted, said once, and the first one kept to be replayed.

diverged/000000012345/
    divergence.yaml   format, steps, environment, config, versions, hashes
    state.npz         state and targets of its policy step, and what it drew of its robot
    robot/            description and MJCF as used, as in a checkpoint
"""

from __future__ import annotations

import hashlib
import shlex
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml
from numpy.typing import NDArray
from tqdm import tqdm

from s3n_mjx import __version__
from s3n_mjx.cli import python_command
from s3n_mjx.config_files import parse, read_yaml, to_plain
from s3n_mjx.envs.base import RobotEnv
from s3n_mjx.envs.divergence import Divergence
from s3n_mjx.envs.randomization import DRAWS, LegLinks
from s3n_mjx.errors import UserError
from s3n_mjx.files import folder_written_whole
from s3n_mjx.robot.model import Robot, load_robot
from s3n_mjx.simulation.control import SimulationState
from s3n_mjx.training.checkpoint import save_robot
from s3n_mjx.training.config import RUNS, RunConfig, task_of

FOLDER = "diverged"
FORMAT = 1
_KIND = "s3n_mjx divergence"
_META = "divergence.yaml"
_STATE = "state.npz"
_PACKAGES = ("mujoco", "mujoco-mjx", "jax", "jaxlib", "brax", "numpy")  # that have a hand in it
_LINKS = "leg_links."
_FIELDS = tuple(SimulationState.__dataclass_fields__)


@dataclass(frozen=True, eq=False)
class Dump:
    """One policy step of one environment; arrays are NumPy's."""

    path: Path
    env_steps: int  # of the run, when it was found
    environment: int  # index in the batch
    config: RunConfig
    robot: Robot
    start: SimulationState  # what the physics began with
    target: NDArray[np.float32]  # (nu,) rad
    draws: dict[str, Any]  # of the environment's own robot and floor, as in `state.info`
    metadata: dict[str, Any]


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _arrays(start: SimulationState, target: Any, draws: Mapping[str, Any]) -> dict[str, Any]:
    """Flat, by names in `state.npz`."""
    arrays = {name: getattr(start, name) for name in _FIELDS} | {"target": target}
    for name in DRAWS:
        if isinstance(draws.get(name), LegLinks):
            arrays |= {f"{_LINKS}{key}": value for key, value in vars(draws[name]).items()}
        elif name in draws:
            arrays[name] = draws[name]
    return arrays


def write(
    path: Path,
    env_steps: int,
    config: RunConfig,
    robot: Robot,
    divergence: Divergence,
    draws: Mapping[str, Any],
    environment: int = 0,
) -> Path:
    """Write a dump, whole or not at all.

    Args:
        path: folder to make; one that is there is replaced.
        env_steps: of the run.
        config: the whole run.
        robot: as used.
        divergence: one environment's.
        draws: its `state.info`; what is not of its robot and floor is left out.
        environment: its index in the batch.

    Returns:
        ``path``.

    Raises:
        OSError: it cannot be written.
        UserError: it cannot hold the robot, see :func:`~s3n_mjx.training.checkpoint.save_robot`.
    """
    with folder_written_whole(path) as folder:
        np.savez(folder / _STATE, **_arrays(divergence.start, divergence.target, draws))
        robot_sha256 = save_robot(robot, folder / "robot")
        metadata = {
            "kind": _KIND,
            "format": FORMAT,
            "env_steps": env_steps,
            "environment": environment,
            "policy_steps_before": int(divergence.survived),
            "task": task_of(config),
            "seed": config.seed,
            "config": to_plain(config),
            "robot_sha256": robot_sha256,
            "state_sha256": _sha256(folder / _STATE),
            "versions": {"s3n_mjx": __version__} | {name: version(name) for name in _PACKAGES},
            "device": jax.devices()[0].device_kind,
        }
        (folder / _META).write_text(yaml.safe_dump(metadata, sort_keys=False, width=100))
    return path


def replay_command(path: Path) -> str:
    """To paste."""
    return f"{python_command()} -m s3n_mjx.replay --dump {shlex.quote(str(path))}"


def dumps(folder: Path) -> list[Path]:
    """Dumps of a run folder, earliest first."""
    return sorted(file.parent for file in (folder / FOLDER).glob(f"[0-9]*/{_META}"))


def load(path: Path) -> Dump:
    """Read a dump: its folder, or its run's folder, of which the first counts.

    Raises:
        UserError: missing, damaged, not ours, or of another version; says which.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: no such dump; give a folder that a run's {FOLDER}/ holds")
    if path.name == _META:
        path = path.parent
    if not (path / _META).is_file():
        inside = dumps(path.parent if path.name == FOLDER else path)
        if not inside:
            raise UserError(f"{path}: no dump of a divergence in it ({_META} is missing)")
        path = inside[0]
    metadata = read_yaml(path / _META)
    if not isinstance(metadata, dict) or metadata.get("kind") != _KIND:
        raise UserError(f"{path}: not a dump of a divergence")
    if metadata.get("format") != FORMAT:
        raise UserError(
            f"{path}: dump format {metadata.get('format')!r}, this version reads {FORMAT};"
            f" it was written by s3n_mjx {(metadata.get('versions') or {}).get('s3n_mjx', '?')}"
        )
    task = metadata.get("task")
    if task not in RUNS:
        raise UserError(f"{path}: of task {task!r}, which this version does not know")
    files = metadata.get("robot_sha256")
    if not isinstance(files, dict):
        raise UserError(f"{path}: damaged ({_META} says nothing of the robot)")
    hashes = {f"robot/{name}": digest for name, digest in files.items()}
    for name, expected in (hashes | {_STATE: metadata.get("state_sha256")}).items():
        if not (path / name).is_file() or _sha256(path / name) != expected:
            raise UserError(f"{path}: {name} is missing or changed; this dump cannot be replayed")
    try:
        with np.load(path / _STATE, allow_pickle=False) as stored:
            arrays = dict(stored)
        start = SimulationState(**{name: arrays[name] for name in _FIELDS})
        target = arrays["target"]
        draws: dict[str, Any] = {name: arrays[name] for name in DRAWS if name in arrays}
        links = {k.removeprefix(_LINKS): v for k, v in arrays.items() if k.startswith(_LINKS)}
        if links:
            draws["leg_links"] = LegLinks(**links)
        steps, environment = int(metadata["env_steps"]), int(metadata["environment"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: damaged ({error})") from None
    config = parse(RUNS[task], metadata.get("config"), str(path / _META))
    robot = load_robot(path / "robot")
    return Dump(path, steps, environment, config, robot, start, target, draws, metadata)


class DivergenceWatch:
    """Looks after a run's environments from outside of the compiled training.

    A process says one line, at the first divergence that it sees; a run keeps one dump.

    Args:
        folder: of the run.
        env: the task, without wrappers.
        config: the whole run.
    """

    def __init__(self, folder: Path, env: RobotEnv, config: RunConfig):
        self._folder, self._env, self._config = Path(folder), env, config
        self._said = False

    def check(self, env_state: Any, env_steps: int) -> int:
        """Call whenever the environments come out of the compiled training.

        Args:
            env_state: Brax's, batched: leaves of shape (local devices, environments each, ...),
                or with any other leading axes; may be spread over devices.
            env_steps: of the run so far.

        Returns:
            How often environments diverged so far in this run, all of them together.
        """
        # Numbers of a few kilobytes; the states stay where they are while nothing diverges.
        counts = np.asarray(jax.device_get(env_state.info["divergence"].count))
        total = int(counts.sum(dtype=np.int64))
        if total and not self._said:
            self._said = True
            self._report(env_state.info, counts, env_steps)
        return total

    def _report(self, info: Mapping[str, Any], counts: NDArray[Any], env_steps: int) -> None:
        """One line, and the run's dump if it has none yet."""
        divergence: Divergence = info["divergence"]
        survived = np.asarray(jax.device_get(divergence.survived)).ravel()
        # The earliest of all, by policy steps; of several the first.
        index = int(np.where(counts.ravel() > 0, survived, np.iinfo(np.int32).max).argmin())

        def own(leaf: Any) -> NDArray[Any]:
            leaf = np.asarray(jax.device_get(leaf))
            return leaf.reshape(counts.size, *leaf.shape[counts.ndim :])[index]

        first: Divergence = jax.tree.map(own, divergence)
        line = (
            f"physics diverged in {np.count_nonzero(counts):,} of {counts.size:,} environments so"
            " far; they were reset and go on."
        )
        if not np.isfinite(first.target).all():
            line += " The first one had targets that are no numbers: look at the learner."
        try:
            path = next(iter(dumps(self._folder)), None) or write(
                self._folder / FOLDER / f"{env_steps:012d}",
                env_steps,
                self._config,
                self._env.robot,
                first,
                {name: jax.tree.map(own, info[name]) for name in DRAWS if name in info},
                environment=index,
            )
            line += f" Kept in {path}; replay it in C MuJoCo: {replay_command(path)}"
        except (OSError, ValueError, UserError) as error:
            # A full disk, a robot that was moved: the training is worth more than the dump.
            line += f" The first one could not be kept ({' '.join(str(error).split())})."
        tqdm.write(line, file=sys.stderr)  # above the progress bar, if there is one
