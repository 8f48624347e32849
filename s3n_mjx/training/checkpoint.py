"""Self-describing checkpoints: a folder that evaluation needs nothing besides.

    000001024000/
        checkpoint.yaml   format, step, config, S3N parameters, versions, hashes
        params.msgpack    observation normalizer, policy and value network (flax)
        state.msgpack     what the training goes on from; in the newest two of a run only
        robot/            description and MJCF as used, with all that it includes

A checkpoint is made under a temporary name and renamed when it is whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import msgpack
import numpy as np
import yaml

from s3n_mjx import __version__
from s3n_mjx.config_files import parse, read_yaml, to_plain
from s3n_mjx.errors import UserError
from s3n_mjx.files import folder_written_whole
from s3n_mjx.robot.model import Robot, load_robot
from s3n_mjx.robot.packing import check_packable, pack
from s3n_mjx.simulation.injection import NormalizedModel
from s3n_mjx.training.config import RUNS, RunConfig, task_of

FORMAT = 1
_KIND = "s3n_mjx checkpoint"
_META = "checkpoint.yaml"
_PARAMS = "params.msgpack"
STATE = "state.msgpack"
_STATES_KEPT = 2  # the second for the case that the first is damaged
_WORTH_SHARING = 64 * 1024  # bytes
_PACKAGES = ("mujoco", "mujoco-mjx", "jax", "jaxlib", "brax", "flax", "numpy")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint read back; parameters stay bytes until a network gives them a shape."""

    path: Path
    env_steps: int
    config: RunConfig
    robot: Robot
    metadata: dict[str, Any]
    params: bytes

    @property
    def task(self) -> str:
        """Name of the task it was trained on."""
        return task_of(self.config)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_saveable(robot: Robot) -> None:
    """Before a training rather than at its first checkpoint.

    Raises:
        UserError: a checkpoint could not hold the robot.
    """
    for name in (robot.description.model, robot.description.closed_chain):
        if name is not None:
            check_packable(robot.path.parent / name)


def save_robot(robot: Robot, folder: Path) -> dict[str, str]:
    """Write description and MJCF as used into ``folder``; returns their SHA-256 by file name.

    Everything is copied as it is, with includes, meshes and textures.
    """
    folder.mkdir(parents=True)
    renamed: dict[str, str] = {}
    for key in ("model", "closed_chain"):
        name = getattr(robot.description, key)
        if name is not None:
            renamed[key] = pack(robot.path.parent / name, folder, key)
    contents = to_plain(dataclasses.replace(robot.description, **renamed))
    default = {"collisions": "all"}
    for key in ("controlled", "held", "passive", "collisions", "home", "identified"):
        if not contents[key] or contents[key] == default.get(key):
            # The file of a robot without it stays what it was, so that older runs can go on.
            del contents[key]
    (folder / "robot.yaml").write_text(yaml.safe_dump(contents, sort_keys=False, width=100))
    return {
        file.relative_to(folder).as_posix(): _sha256(file.read_bytes())
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def _share(folder: Path, sha256: Mapping[str, str], earlier: Path | None) -> None:
    """Let a robot's large files, such as meshes, be those of an earlier checkpoint on disk."""
    if earlier is None:
        return
    for name, expected in sha256.items():
        ours, theirs = folder / name, earlier / "robot" / name
        if ours.stat().st_size < _WORTH_SHARING or not theirs.is_file():
            continue
        if _sha256(theirs.read_bytes()) == expected:
            with contextlib.suppress(OSError):  # a file system without hard links
                link = ours.with_name(f".{ours.name}.link")
                os.link(theirs, link)
                os.replace(link, ours)


def _s3n_parameters(normalized: NormalizedModel) -> dict[str, Any]:
    """What S3N put into the model, for a reader and for comparison."""
    return {
        "variant": str(normalized.config.variant),
        "injection": str(normalized.config.injection),
        "stability_margin": normalized.stability_margin,
        "pairs": {
            pair.leg: {
                "jacobian": pair.jacobian.tolist(),
                "joint_armature": split.armature.tolist(),
                "joint_damping": split.damping.tolist(),
                "tendons": [
                    {
                        "coefficients": tendon.coefficients.tolist(),
                        "armature": tendon.armature,
                    }
                    for tendon in split.tendons
                ],
                "lagged_inertia_constant": split.lagged_inertia.constant.tolist(),
                "lagged_inertia_cosine": split.lagged_inertia.cosine.tolist(),
                "lagged_inertia_sine": split.lagged_inertia.sine.tolist(),
                "lagged_damping": split.lagged_damping.tolist(),
            }
            for pair, split in zip(normalized.robot.pairs, normalized.splits, strict=True)
        },
    }


def name(env_steps: int) -> str:
    """Of a checkpoint's folder; sorts by step."""
    return f"{env_steps:012d}"


def save(
    folder: Path,
    env_steps: int,
    config: RunConfig,
    normalized: NormalizedModel,
    params: Any,
    state: bytes | None = None,
) -> Path:
    """Write a checkpoint into ``folder``, whole or not at all.

    Args:
        folder: the run's `checkpoints` folder; made if missing.
        env_steps: environment steps trained so far.
        config: the whole run.
        normalized: the robot's model with S3N.
        params: Brax's (normalizer, policy, value).
        state: what :func:`~s3n_mjx.training.snapshot.pack` made of the training.

    Returns:
        The checkpoint's folder, named by its step.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    path = folder / name(env_steps)
    data = flax.serialization.to_bytes(jax.device_get(params))
    with folder_written_whole(path) as temporary:
        (temporary / _PARAMS).write_bytes(data)
        if state is not None:
            (temporary / STATE).write_bytes(state)
        robot_sha256 = save_robot(normalized.robot, temporary / "robot")
        earlier = max(folder.glob("[0-9]*"), default=None)
        _share(temporary / "robot", robot_sha256, earlier)
        metadata = {
            "kind": _KIND,
            "format": FORMAT,
            "env_steps": env_steps,
            "task": task_of(config),
            "seed": config.seed,
            "config": to_plain(config),
            "s3n": _s3n_parameters(normalized),
            "robot_sha256": robot_sha256,
            "params_sha256": _sha256(data),
            **({} if state is None else {"state_sha256": _sha256(state)}),
            "versions": {"s3n_mjx": __version__}
            | {package: version(package) for package in _PACKAGES},
        }
        (temporary / _META).write_text(yaml.safe_dump(metadata, sort_keys=False, width=100))
    # Of this run's own past: later folders are damaged ones, which a resumed run passed over.
    with_state = sorted(f for f in folder.glob(f"[0-9]*/{STATE}") if f.parent.name <= path.name)
    for old in with_state[:-_STATES_KEPT]:
        old.unlink()
    return path


def find(path: Path) -> Path:
    """The checkpoint folder meant by ``path``.

    Itself; the newest of a run folder or of its `checkpoints`; or that of the newest run in a
    folder of runs.

    Raises:
        UserError: nothing there, no checkpoint in it, or several of which none is the newest.
    """
    if not path.exists():
        raise UserError(f"{path}: no such checkpoint; give a checkpoint or run folder")
    if path.is_file():
        path = path.parent
    if (path / _META).is_file():
        return path
    for folder in (path, path / "checkpoints"):
        steps = sorted(f for f in folder.glob("[0-9]*") if (f / _META).is_file())
        if steps:
            return steps[-1]
    runs = [f for f in path.iterdir() if any(f.glob("checkpoints/[0-9]*"))]
    if runs:
        return find(max(runs, key=lambda f: (f / "checkpoints").stat().st_mtime))
    several = sorted(f.name for f in path.iterdir() if (f / _META).is_file())
    if several:
        raise UserError(f"{path}: no checkpoint in it; it holds {', '.join(several)}: name one")
    raise UserError(
        f"{path}: no checkpoint in it (a checkpoint folder holds {_META}; a run folder holds"
        " checkpoints/)"
    )


# Of what is read here and by those who evaluate; the rest is for a reader.
_METADATA_TYPES = {
    "env_steps": int,
    "task": str,
    "config": dict,
    "robot_sha256": dict,
    "params_sha256": str,
    "versions": dict,
}


def _check_metadata(metadata: Mapping[str, Any], file: Path) -> None:
    for key, kind in _METADATA_TYPES.items():
        value = metadata.get(key)
        ok = isinstance(value, kind) and not isinstance(value, bool)
        if isinstance(value, dict) and key != "config":
            ok = all(isinstance(text, str) for pair in value.items() for text in pair)
        if not ok or (isinstance(value, int) and not 0 <= value < 10**12):
            raise UserError(f"{file}: {key}: missing or damaged; use an earlier checkpoint")


def load(path: Path) -> Checkpoint:
    """Read a checkpoint: its folder, its run's folder, or any level between.

    Raises:
        UserError: missing, truncated, not ours, or of a later version; says which.
    """
    path = find(Path(path))
    try:
        metadata = read_yaml(path / _META)
    except UserError:
        raise UserError(f"{path / _META}: damaged; use an earlier checkpoint") from None
    if not isinstance(metadata, dict) or metadata.get("kind") != _KIND:
        raise UserError(f"{path}: not an s3n_mjx checkpoint")
    if metadata.get("format") != FORMAT:
        versions = metadata.get("versions")
        writer = versions.get("s3n_mjx", "?") if isinstance(versions, dict) else "?"
        raise UserError(
            f"{path}: checkpoint format {metadata.get('format')!r}, this version reads {FORMAT};"
            f" it was written by s3n_mjx {writer}"
        )
    _check_metadata(metadata, path / _META)
    task = metadata["task"]
    if task not in RUNS:
        raise UserError(f"{path}: trained on task {task!r}, which this version does not know")
    try:
        params = (path / _PARAMS).read_bytes()
    except OSError:
        raise UserError(f"{path}: {_PARAMS} is missing; use an earlier checkpoint") from None
    if _sha256(params) != metadata.get("params_sha256"):
        raise UserError(f"{path}: {_PARAMS} is truncated or changed; use an earlier checkpoint")
    for name, expected in metadata["robot_sha256"].items():
        file = path / "robot" / name
        try:
            same = file.is_file() and _sha256(file.read_bytes()) == expected
        except (OSError, ValueError):  # also a name that no file can have
            same = False
        if not same:
            raise UserError(
                f"{path}: robot/{name} is missing or changed; use an earlier checkpoint"
            )
    return Checkpoint(
        path=path,
        env_steps=metadata["env_steps"],
        config=parse(RUNS[task], metadata.get("config"), str(path / _META)),
        robot=load_robot(path / "robot"),
        metadata=metadata,
        params=params,
    )


def load_state(checkpoint: Checkpoint) -> bytes | None:
    """What the training goes on from; None for a checkpoint that does not hold it (any more).

    Raises:
        UserError: it is damaged.
    """
    expected = checkpoint.metadata.get("state_sha256")
    path = checkpoint.path / STATE
    if expected is None or not path.is_file():
        return None
    state = path.read_bytes()
    if _sha256(state) != expected:
        raise UserError(f"{path}: truncated or changed; use an earlier checkpoint")
    return state


# What flax and msgpack raise on bytes of something else, and on other trees than the template.
DECODE_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
    np.exceptions.ComplexWarning,
    msgpack.exceptions.UnpackException,
)


def restore_params(checkpoint: Checkpoint, template: Any) -> Any:
    """Parameters in the shape of ``template``, Brax's (normalizer, policy, value).

    Raises:
        UserError: they belong to another network or observation, or are not finite.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            params = flax.serialization.from_bytes(template, checkpoint.params)
    except DECODE_ERRORS as error:
        raise UserError(
            f"{checkpoint.path}: parameters do not fit the network ({str(error)[:120]})"
        ) from None
    (ours, structure), (theirs, found) = jax.tree.flatten(template), jax.tree.flatten(params)

    def form(leaf: Any) -> tuple[Any, Any]:
        return getattr(leaf, "shape", None), getattr(leaf, "dtype", None)

    if found != structure or list(map(form, theirs)) != list(map(form, ours)):
        raise UserError(
            f"{checkpoint.path}: parameters do not fit the observation of this version's"
            f" {checkpoint.task} task"
        )
    if not all(np.isfinite(leaf).all() for leaf in theirs):
        raise UserError(
            f"{checkpoint.path}: parameters are not finite, the training diverged; use an earlier"
            " checkpoint"
        )
    return params
