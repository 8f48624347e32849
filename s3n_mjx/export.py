"""`python -m s3n_mjx.export --checkpoint PATH`: a policy for a robot, as ONNX.

Leaves `policy.onnx`, which holds network, normalizer and all that a controller must know, and
`controller.py`, an example of one that needs nothing of this package; and for a robot without a
closed-chain MJCF, `robot.xml` to try them on.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from pydantic.dataclasses import dataclass

from s3n_mjx import compat, runtime  # noqa: F401 - compat before brax
from s3n_mjx.cli import make_folder, parse_arguments, python_command, run
from s3n_mjx.config_files import STRICT
from s3n_mjx.deployment import controller
from s3n_mjx.deployment.metadata import metadata
from s3n_mjx.deployment.onnx_policy import (
    actions_jax,
    actions_onnx,
    drawn_observations,
    policy_model,
)
from s3n_mjx.envs.base import OBSERVATION_LIMIT
from s3n_mjx.errors import UserError
from s3n_mjx.eval import default_folder, nominal_env
from s3n_mjx.normalization import Injection
from s3n_mjx.simulation import export as mjcf
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training.policy import load_params, make_policy

POLICY, CONTROLLER, ROBOT = "policy.onnx", "controller.py", "robot.xml"

# Largest difference of an action, of [-1, 1]: some hundred roundings in float32.
PARITY = 1e-5
_DRAWS = 10_000
_FAR = 5.0  # times the deviation that training saw


@dataclass(frozen=True, config=STRICT)
class Export:
    """Write a checkpoint's policy as ONNX, with an example controller.

    Args:
        checkpoint: checkpoint folder, run folder, any level between, or a folder of runs; the
            newest checkpoint counts.
        out: folder for the files; by default `export/STEP` in the run folder, and
            `runs/export/NAME` for a checkpoint outside of one.
    """

    checkpoint: Path
    out: Path | None = None


def export(checkpoint: checkpoints.Checkpoint) -> tuple[onnx.ModelProto, dict[float, float]]:
    """The policy as ONNX, and its largest difference to JAX by the spread of observations.

    Raises:
        UserError: both differ by more than rounding.
    """
    env = nominal_env(checkpoint)
    params = load_params(checkpoint, env.observation_size, env.action_size)
    policy = make_policy(checkpoint.config.ppo, params, env.observation_size, env.action_size)
    model = policy_model(params, metadata(checkpoint, env))
    parity = {}
    for spread in (1.0, _FAR):
        drawn = drawn_observations(params, _DRAWS, spread, OBSERVATION_LIMIT)
        difference = np.abs(actions_onnx(model, drawn) - actions_jax(policy, drawn))
        parity[spread] = float(difference.max())
    # Also where one of them is no number.
    if not parity[1.0] <= PARITY:
        raise UserError(
            f"{checkpoint.path}: the ONNX policy differs from the one in JAX by up to"
            f" {parity[1.0]:.1e}, more than {PARITY:g}; nothing is written"
        )
    return model, parity


def _example() -> bytes:
    return Path(controller.__file__).read_bytes()


def prepare(folder: Path) -> None:
    """Make ``folder``, before any work is done.

    Raises:
        UserError: it cannot be written, or a controller that somebody changed lies there.
    """
    make_folder(folder)
    there = folder / CONTROLLER
    if there.exists() and not (there.is_file() and there.read_bytes() == _example()):
        raise UserError(
            f"--out: {there} is not the example as it comes; move it away, or name another folder"
        )


def stand_in(checkpoint: checkpoints.Checkpoint, folder: Path) -> str | None:
    """MJCF, for ``folder``, of a robot without a closed chain: what it was trained as.

    Returns:
        None for a robot with a closed chain, which is nearer to the real one, or in an archive.
    """
    if checkpoint.robot.description.closed_chain is not None:
        return None
    config = dataclasses.replace(
        checkpoint.config.simulation, injection=Injection.MASS_MATRIX, base_coupling=False
    )
    if checkpoint.robot.description.model.endswith(".zip"):
        return None  # its meshes lie in the archive, which the controller takes as it is
    return mjcf.export(normalize(checkpoint.robot, config), mjcf.Actuators.MOTOR, folder).xml


def write(model: onnx.ModelProto, robot: str | None, folder: Path) -> None:
    """Put policy, example controller and robot, if there is one, into ``folder``: all or none."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".export.") as temporary:
        onnx.save_model(model, str(Path(temporary) / POLICY))
        (Path(temporary) / CONTROLLER).write_bytes(_example())
        names = [CONTROLLER, POLICY]
        if robot is not None:
            (Path(temporary) / ROBOT).write_text(robot)
            names.append(ROBOT)
        for name in names:
            os.replace(Path(temporary) / name, folder / name)


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Export, args, "python -m s3n_mjx.export")
    checkpoint = checkpoints.load(options.checkpoint)
    folder = options.out or default_folder(checkpoint.path, "export")
    simulation = checkpoint.config.simulation
    print(
        f"checkpoint {checkpoint.path}: {checkpoint.task}, {simulation.variant} by"
        f" {simulation.injection}, {checkpoint.env_steps:,} environment steps",
        flush=True,
    )
    prepare(folder)
    model, parity = export(checkpoint)
    robot = stand_in(checkpoint, folder)
    write(model, robot, folder)
    print(
        f"ONNX and JAX differ by {parity[1.0]:.1e} at most, over {_DRAWS:,} observations spread"
        f" as in training ({parity[_FAR]:.1e} where they spread {_FAR:g} times as far)"
    )
    print(f"policy:     {folder / POLICY}")
    print(f"controller: {folder / CONTROLLER}")
    description = checkpoint.robot.description
    model_file = folder / ROBOT
    if robot is None:
        model_file = checkpoint.robot.path.parent / (description.closed_chain or description.model)
    else:
        print(f"robot:      {model_file} (the simulator's own; there is no closed chain)")
    parts = [python_command(), folder / CONTROLLER, folder / POLICY, model_file]
    print("\ntry them (--viewer shows it):\n  " + shlex.join(map(str, parts)))


if __name__ == "__main__":
    run(main)
