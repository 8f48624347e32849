"""Two fake devices, a compile cache, and what is expensive to compile, shared by all tests."""

import os

# Before JAX starts: bugs that need several devices show on a laptop.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import copy
import shlex
import shutil
from pathlib import Path

import jax
import pytest
import yaml

from s3n_mjx import compat, runtime, train  # noqa: F401 - compat before brax
from s3n_mjx.envs import PitchEnv
from s3n_mjx.normalization import Variant
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.model import Robot, load_robot, load_spec
from s3n_mjx.simulation.config import SimulationConfig

import brax.envs  # isort: skip
from brax.envs.wrappers import training  # isort: skip

runtime.configure()

SMALL = shlex.split("""
    --preset cpu --num-envs 16 --batch-size 8 --num-minibatches 2 --unroll-length 5
    --num-updates-per-batch 1 --episode-length 10 --num-timesteps 240 --num-checkpoints 3
    --num-eval-envs 2 --policy-layers 8 --value-layers 8
""")


def lasting(row: dict) -> dict:
    """A row of metrics without what depends on the clock."""
    return {k: v for k, v in row.items() if not k.endswith(("wall_s", "walltime", "sps", "time"))}


@pytest.fixture(scope="session")
def robot() -> Robot:
    """The bundled robot."""
    return load_robot(bundled_robot())


@pytest.fixture
def description() -> dict:
    """Contents of the bundled `robot.yaml`, free to be changed."""
    return copy.deepcopy(yaml.safe_load(bundled_robot().read_text()))


@pytest.fixture
def write_robot(tmp_path):
    """Write a description (and a changed MJCF) into a folder; returns the description's path."""

    def write(description: dict, change=None) -> Path:
        spec = load_spec(bundled_robot().parent / "serial.xml")
        if change is not None:
            change(spec)
        spec.compile()
        (tmp_path / "serial.xml").write_text(spec.to_xml())
        description["model"] = "serial.xml"
        description.pop("closed_chain", None)
        path = tmp_path / "robot.yaml"
        path.write_text(yaml.safe_dump(description))
        return path

    return write


@pytest.fixture(scope="session")
def pitch_env(robot) -> PitchEnv:
    """`kin_only_hr`, so that one compiled step shows randomization, too."""
    return brax.envs.get_environment(
        "s3n_pitch",
        robot=robot,
        simulation=SimulationConfig(variant=Variant.KIN_ONLY_HR),
    )


class Counted:
    """The wrapped environment, jitted, counting how often Python traces it."""

    def __init__(self, env):
        self.traces = {"reset": 0, "step": 0}
        wrapped = training.wrap(env, episode_length=6, action_repeat=1)

        def reset(keys):
            self.traces["reset"] += 1
            return wrapped.reset(keys)

        def step(state, action):
            self.traces["step"] += 1
            return wrapped.step(state, action)

        self.reset, self.step = jax.jit(reset), jax.jit(step)


@pytest.fixture(scope="session")
def wrapped_pitch(pitch_env) -> Counted:
    return Counted(pitch_env)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory) -> Path:
    """A finished run of three epochs on two devices."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    train.main([*SMALL, "--run-dir", str(folder)])
    return folder


@pytest.fixture
def copied(run_folder, tmp_path) -> Path:
    """A copy to be broken."""
    return Path(shutil.copytree(run_folder, tmp_path / "copy"))
