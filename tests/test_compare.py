"""`compare` on a training of seconds: kept runs, tables, and runs that do not fit."""

import hashlib
import json

import pytest

from s3n_mjx import compare
from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.training.config import load_preset

SMALL = """
pitch:
  ppo:
    num_envs: 16
    batch_size: 8
    num_minibatches: 2
    unroll_length: 5
    num_updates_per_batch: 1
    episode_length: 10
    num_timesteps: 240
    num_checkpoints: 3
    num_eval_envs: 2
    policy_layers: [8]
    value_layers: [8]
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    out = tmp_path / "out"
    return out, (
        f"--preset {path} --variants s3n_act --seeds 0 --levels ideal --trials 2 --duration-s 0.9"
        f" --settle-s 0.2 --out {out}"
    ).split()


def test_it_trains_evaluates_and_keeps_what_is_done(small, capsys):
    out, flags = small
    compare.main(flags)
    printed = capsys.readouterr().out
    assert "closed chain, ideal" in printed
    for name in ("report.html", "compare.json", "grf_gap.png", "grf_rmse.png", "pitch_rate.png"):
        assert (out / name).stat().st_size > 0
    first = json.loads((out / "compare.json").read_text())["gaps"]["s3n_act-seed0"]
    assert set(first) == {"simulator", "ideal"}
    assert 0 < first["ideal"]["grf_norm_rmse_n"] < 100
    parameters = next((out / "s3n_act-seed0" / "checkpoints").glob("*240/params.msgpack"))
    stamp = parameters.stat().st_mtime_ns

    compare.main(flags)  # nothing is trained or evaluated again
    assert parameters.stat().st_mtime_ns == stamp
    assert json.loads((out / "compare.json").read_text())["gaps"]["s3n_act-seed0"] == first

    with pytest.raises(UserError, match="holds a run with other settings"):
        compare.main([*flags, "--timing", "staggered"])


def test_methods_differ_in_variant_and_seed_alone():
    options = compare.Compare(beyond_paper=True)
    base = load_preset("pitch", "cpu")
    kin = compare.run_config(options, Variant.KIN_ONLY, 2)
    assert (kin.seed, kin.simulation.variant) == (2, Variant.KIN_ONLY)
    assert (kin.ppo, kin.env) == (base.ppo, base.env)
    assert not kin.simulation.base_coupling
    full = compare.run_config(options, Variant.S3N_FULL, 0).simulation
    assert full.injection is Injection.MASS_MATRIX
    assert (full.base_coupling, full.velocity_terms, full.link_gravity) == (True, True, True)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--task circle", "--task: no comparison of task 'circle'; known: pitch"),
        ("--seeds 1 1", "--seeds: give at least one, and none twice"),
        ("--preset nowhere", "--preset: unknown preset 'nowhere'"),
    ],
)
def test_mistakes_are_one_line(tmp_path, flags, says):
    with pytest.raises(UserError) as caught:
        compare.main([*flags.split(), "--out", str(tmp_path / "out")])
    assert says in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--duration-s 1 --settle-s 1", "--settle-s: 1 s leaves nothing of --duration-s 1 s"),
        ("--duration-s 0.01 --settle-s 0", "--duration-s: 0.01 s is less than a policy step"),
    ],
)
def test_nothing_is_trained_for_a_trial_that_cannot_be(tmp_path, flags, says):
    with pytest.raises(UserError, match=says):
        compare.main([*flags.split(), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_run_of_another_robot_is_not_mixed_in(small):
    out, flags = small
    compare.main(flags)
    meta = next((out / "s3n_act-seed0" / "checkpoints").glob("*240/checkpoint.yaml"))
    robot = meta.parent / "robot" / "robot.yaml"
    old = hashlib.sha256(robot.read_bytes()).hexdigest()
    robot.write_text(robot.read_text() + "# edited\n")
    new = hashlib.sha256(robot.read_bytes()).hexdigest()
    meta.write_text(meta.read_text().replace(old, new))
    with pytest.raises(UserError, match=r"trained with other files of the robot \(robot\.yaml"):
        compare.main(flags)
