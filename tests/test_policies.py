"""The policies that come with the project: whole, of the bundled robot, made as they say."""

import json
import shlex

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3n_mjx import train
from s3n_mjx.compare import changed_files
from s3n_mjx.eval import default_folder, nominal_env, policy_of
from s3n_mjx.evaluation.compared import SIMULATOR
from s3n_mjx.evaluation.shipped import FIGURES, write_index
from s3n_mjx.resources import assets_folder
from s3n_mjx.training import checkpoint as checkpoints

FOLDER = assets_folder() / "policies"
METHODS = ("kin_only", "kin_only_hr", "s3n_act", "s3n_full", "s3n_full_beyond")
NAMES = [f"{task}-{method}" for task in ("circle", "pitch") for method in METHODS]


def test_every_method_of_both_tasks_is_there():
    assert sorted(path.name for path in FOLDER.iterdir() if path.is_dir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_policy_is_of_its_command_and_of_the_bundled_robot(name):
    checkpoint = checkpoints.load(FOLDER / name)
    told = json.loads((FOLDER / name / FIGURES).read_text())
    config = train.parse(shlex.split(told["command"])[3:])[1]
    assert checkpoint.config == config
    assert changed_files(checkpoint, config) == []
    assert checkpoint.env_steps >= config.ppo.num_timesteps
    figures = told["figures"]
    assert set(figures) == {SIMULATOR, "ideal", "realistic"}
    assert figures[SIMULATOR]["falls"] == 0
    assert figures["ideal"]["reference_falls"] == figures["realistic"]["reference_falls"] == 0


def test_policies_act():
    """On what an upright robot sees at rest in mid-stride, and not alike."""
    actions = []
    for name in ("circle-kin_only", "circle-s3n_full"):
        checkpoint = checkpoints.load(FOLDER / name)
        env = nominal_env(checkpoint)
        policy = policy_of(checkpoint, env)
        seen = jnp.zeros(env.observation_size).at[5].set(-1.0)  # gravity
        seen = seen.at[-4:].set(jnp.array([1.0, 0.0, 0.8, 0.8]))  # clock and command
        actions.append(policy(seen, jax.random.PRNGKey(0))[0])
    assert np.isfinite(actions).all()
    assert np.abs(actions).max() < 5.0
    assert np.abs(actions[0] - actions[1]).max() > 0.05


def test_index_is_what_the_figures_say(tmp_path):
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / FIGURES).write_text((FOLDER / name / FIGURES).read_text())
    write_index(tmp_path)
    assert (tmp_path / "README.md").read_text() == (FOLDER / "README.md").read_text()


def test_results_never_go_into_the_assets():
    path = default_folder(FOLDER / "circle-s3n_full")
    assert path.parts == ("runs", "eval", "circle-s3n_full")
