"""Presets, flags and what is wrong with them: one line each, before anything is written."""

import shlex
import subprocess
import sys

import pytest

from s3n_mjx import eval as evaluation
from s3n_mjx import play, train
from s3n_mjx.cli import parse_arguments
from s3n_mjx.config_files import parse, to_plain
from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.training.config import PitchRun, PPOConfig, check_batching, load_preset


def test_paper_preset_is_the_papers():
    ppo = load_preset("pitch", "paper").ppo
    assert ppo.num_envs == 4096
    assert ppo.num_timesteps / ppo.steps_per_iteration == 1500
    check_batching(ppo, 1)
    check_batching(ppo, 8)


def test_cpu_preset_fits_two_devices():
    check_batching(load_preset("pitch", "cpu").ppo, 2)


def test_every_value_can_be_overridden():
    flags = """
        --preset cpu --variant s3n_full --injection mass_matrix --timing staggered --seed 3
        --num-envs 64 --policy-layers 32 16 --env.reward.contact 7 --env.body.fall-tilt-rad 0.5
        --env.amplitude-rad 0.05 --timestep-s 0.0015 --max-grad-norm 2
    """
    _, config = train.parse(shlex.split(flags))
    assert config.simulation.variant is Variant.S3N_FULL
    assert config.simulation.injection is Injection.MASS_MATRIX
    assert config.seed == 3
    assert config.ppo.num_envs == 64
    assert config.ppo.policy_layers == (32, 16)
    assert config.ppo.num_timesteps == load_preset("pitch", "cpu").ppo.num_timesteps
    assert config.env.reward.contact == 7
    assert config.env.body.fall_tilt_rad == 0.5
    assert config.simulation.timestep_s == 0.0015


def test_config_round_trip():
    config = load_preset("pitch", "paper")
    assert parse(PitchRun, to_plain(config), "test") == config


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--task walk", "unknown task 'walk'; known: pitch"),
        ("--preset laptop", "unknown preset 'laptop'; known: cpu, paper"),
        ("--variant s3n", "--variant"),
        ("--injection tendon", "--injection"),
        ("--num-envz 3", "--num-envz"),
        ("--num-envs many", "--num-envs"),
        ("--num-envs 0", "--num-envs"),
        ("--discounting 1.5", "--discounting"),
        ("--env.frequency-hz -1", "--env.frequency-hz: Input should be greater than 0"),
        ("--task", "--task: expected one argument"),
    ],
)
def test_bad_flags_are_one_line(args, says):
    with pytest.raises(UserError) as caught:
        train.parse(args.split())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cls", "flags", "says"),
    [
        (play.Play, "--duration-s -1", "--duration-s: Input should be greater than 0"),
        (play.Play, "--size 0 3", "--size: Input should be greater than 0"),
        (evaluation.Evaluate, "--episodes 0", "--episodes: Input should be greater than 0"),
    ],
)
def test_a_flag_is_named_as_it_was_typed(cls, flags, says):
    with pytest.raises(UserError) as caught:
        parse_arguments(cls, f"--checkpoint here {flags}".split(), "test")
    assert str(caught.value) == says


@pytest.mark.parametrize("task", ["pitch", "circle"])
def test_help_is_free_of_markup_for_another_reader(task, capsys):
    with pytest.raises(SystemExit) as stopped:
        train.main(["--task", task, "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert "Env.reward_terms`" in said  # a reference stays a word
    for markup in (":meth:", ":class:", ":func:", "``"):
        assert markup not in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pitch: {ppo: {num_envz: 3}}", "num_envz: unknown key"),
        ("walk: {}", "walk: unknown task"),
        ("pitch: 3", "expected keys and values"),
        ("- 1", "not a preset"),
        ("pitch: {seed: -1}", "seed"),
        ("pitch: {simulation: {variant: s3n}}", "simulation.variant"),
        ("all: {env: {reward: {contact: lots}}}", "env.reward.contact"),
    ],
)
def test_bad_presets_are_one_line(tmp_path, text, says):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_preset("pitch", str(path))
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_own_preset(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("all: {seed: 5}\npitch: {ppo: {learning_rate: 1e-3}}\n")
    config = load_preset("pitch", str(path))
    assert config.seed == 5
    assert config.ppo.learning_rate == 1e-3


def test_batching_is_checked_before_brax_asserts():
    with pytest.raises(UserError, match="255 environments cannot be split over 2 devices"):
        check_batching(PPOConfig(num_envs=255), 2)
    with pytest.raises(UserError, match="no multiple of --num-envs 96"):
        check_batching(PPOConfig(num_envs=96), 2)


def test_mistake_exits_with_2_and_writes_nothing(tmp_path):
    """The whole command, as a person types it."""
    done = subprocess.run(
        [sys.executable, "-m", "s3n_mjx.train", "--num-envs", "100", "--run-dir", "here"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --batch-size x --num-minibatches")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
