"""A small training for real: checkpoints, resume, evaluation, and broken checkpoints."""

import dataclasses
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import flax.serialization
import jax
import numpy as np
import pytest
import yaml
from conftest import SMALL, lasting

from s3n_mjx import compat, train
from s3n_mjx import eval as evaluation
from s3n_mjx.cli import python_command
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.tasks import PICTURES
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import run as runs
from s3n_mjx.training.config import load_preset
from s3n_mjx.training.metrics_log import MetricsFile, TensorBoard, WeightsAndBiases, read_rows


def test_run_leaves_curve_and_checkpoints(run_folder):
    rows = read_rows(run_folder / runs.METRICS_FILE)
    assert [row["env_steps"] for row in rows] == [0, 80, 160, 240]
    for key in ("eval/episode_reward", "eval/pitch_rmse_rad", "eval/reward/contact_per_step"):
        assert all(np.isfinite(row[key]) for row in rows)
    names = sorted(p.name for p in (run_folder / "checkpoints").iterdir())
    assert names == ["000000000080", "000000000160", "000000000240"]


def test_checkpoint_describes_itself(run_folder, robot):
    checkpoint = checkpoints.load(run_folder)
    assert checkpoint.env_steps == 240
    assert checkpoint.metadata["seed"] == 0
    assert checkpoint.metadata["s3n"]["variant"] == "s3n_act"
    assert checkpoint.metadata["s3n"]["pairs"]["FL"]["joint_armature"] == pytest.approx(
        [0.0324, 0.0162]
    )
    assert {"mujoco", "jax", "brax", "s3n_mjx"} <= set(checkpoint.metadata["versions"])
    # The robot as used, from the checkpoint alone.
    assert checkpoint.robot.path.is_relative_to(run_folder)
    np.testing.assert_array_equal(checkpoint.robot.model.body_mass, robot.model.body_mass)
    np.testing.assert_array_equal(checkpoint.robot.home_qpos, robot.home_qpos)


def test_any_level_of_the_folder_will_do(run_folder):
    last = run_folder / "checkpoints" / "000000000240"
    for path in (run_folder, run_folder / "checkpoints", last, last / "checkpoint.yaml"):
        assert checkpoints.find(path) == last
    first = run_folder / "checkpoints" / "000000000080"
    assert checkpoints.load(first).env_steps == 80


def test_a_resumed_run_equals_a_whole_one(run_folder, copied):
    """Bit by bit: parameters, optimiser, statistics, environments, and the curve."""
    shutil.rmtree(copied / "checkpoints" / "000000000240")
    train.main(["--resume", str(copied)])
    whole, resumed = checkpoints.load(run_folder), checkpoints.load(copied)
    assert resumed.env_steps == 240
    assert resumed.params == whole.params
    assert checkpoints.load_state(resumed) == checkpoints.load_state(whole) is not None
    rows = [read_rows(folder / runs.METRICS_FILE) for folder in (run_folder, copied)]
    assert [lasting(row) for row in rows[0]] == [lasting(row) for row in rows[1]]


def test_the_newest_two_checkpoints_hold_the_state(run_folder):
    holding = sorted(path.parent.name for path in run_folder.glob("checkpoints/*/state.msgpack"))
    assert holding == ["000000000160", "000000000240"]
    # The oldest does not, which is no damage: its parameters go on.
    assert checkpoints.load_state(checkpoints.load(run_folder / "checkpoints/000000000080")) is None


def test_resume_goes_on_where_the_kill_left_it(copied, capsys):
    """As after a SIGKILL: last checkpoint gone, another half-made, a line of the curve cut."""
    shutil.rmtree(copied / "checkpoints" / "000000000240")
    half = copied / "checkpoints" / ".000000000240.abc"
    half.mkdir()
    (half / "params.msgpack").write_bytes(b"half")
    # The row of step 160 was never written, that of 240 only in part.
    rows = (copied / runs.METRICS_FILE).read_text().splitlines(keepends=True)
    (copied / runs.METRICS_FILE).write_text("".join(rows[:2]) + rows[3][:20])
    before = checkpoints.load(copied)
    assert before.env_steps == 160

    train.main(["--resume", str(copied)])
    said = capsys.readouterr().out
    assert "at 160 environment steps" in said
    assert "000000000240" in said
    rows = read_rows(copied / runs.METRICS_FILE)
    assert [row["env_steps"] for row in rows] == [0, 80, 160, 240]
    wall = [row["wall_s"] for row in rows]
    assert wall == sorted(wall)
    after = checkpoints.load(copied)
    assert after.env_steps == 240
    # The observation normalizer went on counting: 80 more samples, none lost, none twice.
    count = [flax.serialization.msgpack_restore(c.params)["0"]["count"] for c in (before, after)]
    totals = [
        int(c["hi"]) * 2**32 + int(c["lo"]) if isinstance(c, dict) else float(c) for c in count
    ]
    assert totals[1] - totals[0] == 80


def test_resume_passes_over_a_damaged_checkpoint(copied, capsys):
    newest = copied / "checkpoints" / "000000000240" / "params.msgpack"
    newest.write_bytes(newest.read_bytes()[:100])
    start = runs.resume_from(copied)
    assert start.env_steps == 160
    assert "truncated" in capsys.readouterr().out


def test_resume_refuses_flags_of_another_run(run_folder):
    with pytest.raises(UserError, match="goes on with its own config; leave out --seed"):
        train.main(["--resume", str(run_folder), "--seed", "7"])


def test_resume_refuses_another_folder(run_folder, tmp_path):
    with pytest.raises(UserError, match="--run-dir: a resumed run stays in its folder"):
        train.main(["--resume", str(run_folder), "--run-dir", str(tmp_path / "elsewhere")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "files", "logs"),
    [
        ([], [], False),
        (["--tensorboard"], [], True),
        ([], ["events.out.tfevents.1.host"], True),
        (["--no-tensorboard"], ["events.out.tfevents.1.host"], False),
    ],
)
def test_resume_goes_on_with_tensorboard(copied, monkeypatch, flags, files, logs):
    for name in files:
        (copied / name).touch()
    seen = []

    def remember(config, folder, start, loggers, env):
        seen.extend(loggers)
        return folder

    monkeypatch.setattr(runs, "train", remember)
    train.main(["--resume", str(copied), *flags])
    assert [isinstance(logger, TensorBoard) for logger in seen] == [True] * logs


def test_a_missing_wandb_is_one_line_that_can_be_pasted(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError) as caught:
        WeightsAndBiases("run", {})
    assert str(caught.value).endswith(f"{python_command()} -m pip install wandb")
    assert "\n" not in str(caught.value)


def test_resuming_a_finished_run_trains_nothing(run_folder, capsys):
    before = read_rows(run_folder / runs.METRICS_FILE)
    train.main(["--resume", str(run_folder)])
    assert "000000000240" in capsys.readouterr().out
    assert read_rows(run_folder / runs.METRICS_FILE) == before


def test_two_runs_into_one_folder_are_refused(run_folder):
    with pytest.raises(UserError, match="holds a run already; resume it with"):
        train.main([*SMALL, "--run-dir", str(run_folder)])


def test_resume_needs_a_run(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        train.main(["--resume", str(tmp_path)])


def test_ctrl_c_keeps_the_chunk_and_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    """The signal comes while a checkpoint is written: it becomes whole, then the run stops."""
    save = checkpoints.save

    def save_and_signal(*args):
        path = save(*args)
        os.kill(os.getpid(), signal.SIGINT)
        return path

    monkeypatch.setattr(checkpoints, "save", save_and_signal)
    folder = tmp_path / "run"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as stopped:
            train.main([*SMALL, "--run-dir", str(folder)])
        after = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)  # ignored, where the tests are a background job
    assert stopped.value.code == 130
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["000000000080"]
    said = capsys.readouterr().err
    assert "interrupted, the checkpoint at 80 environment steps is kept; go on with" in said
    assert f"--resume {folder}" in said
    # Brax evaluates an epoch after it hands out its parameters.
    assert [row["env_steps"] for row in read_rows(folder / runs.METRICS_FILE)] == [0, 80]
    assert after is signal.default_int_handler
    monkeypatch.undo()
    train.main(["--resume", str(tmp_path)])  # a folder of runs will do
    assert checkpoints.load(folder).env_steps == 240
    rows = read_rows(folder / runs.METRICS_FILE)
    assert [row["env_steps"] for row in rows] == [0, 80, 160, 240]


@pytest.mark.parametrize("injection", ["qfrc_applied", "mass_matrix"])
def test_every_injection_can_be_written_down(robot, tmp_path, injection):
    base = load_preset("pitch", "cpu")
    simulation = dataclasses.replace(
        base.simulation, variant=Variant.S3N_FULL, injection=Injection(injection)
    )
    config = dataclasses.replace(base, simulation=simulation)
    path = checkpoints.save(tmp_path, 1, config, normalize(robot, simulation), {"a": np.zeros(2)})
    read = checkpoints.load(path)
    assert read.config.simulation == simulation
    assert bool(read.metadata["s3n"]["pairs"]["FL"]["tendons"]) is (injection == "mass_matrix")


def test_eval_against_the_closed_chain_and_a_log(run_folder, tmp_path, capsys):
    """A recording of the stand-in, written as a log, is evaluated like one of a robot."""
    flags = f"--checkpoint {run_folder} --episodes 2 --duration-s 0.9 --settle-s 0.2 --no-video"
    reference = "--against closed_chain --level realistic --write-logs"
    evaluation.main(f"{flags} {reference} --out {tmp_path / 'a'}".split())
    assert "gap to the reference (closed chain, realistic)" in capsys.readouterr().out
    figures = json.loads((tmp_path / "a" / "metrics.json").read_text())
    for key in ("grf_norm_rmse_n", "grf_norm_phase_rmse_n", "pitch_rate_rmse_percent"):
        assert 0 < figures[key] < 100
    log = tmp_path / "a" / "logs" / "reference_0.csv"
    evaluation.main(f"{flags} --against {log} --out {tmp_path / 'b'}".split())
    figures = json.loads((tmp_path / "b" / "metrics.json").read_text())
    assert figures["trials"] == 1
    assert 0 < figures["grf_norm_rmse_n"] < 100
    assert (tmp_path / "b" / "report.html").stat().st_size > 10_000

    log.write_text(re.sub("# frequency_hz: .*", "# frequency_hz: 4", log.read_text()))
    with pytest.raises(UserError, match="frequency_hz is 4, the policy was trained for 5"):
        evaluation.main(f"{flags} --against {log}".split())


def test_results_of_each_reference_have_a_folder_of_their_own():
    step = Path("run/checkpoints/000000000080")
    shipped = Path("assets/policies/circle-s3n_act")
    for checkpoint, base in (
        (step, Path("run/eval/000000000080")),
        (shipped, Path("runs/eval/circle-s3n_act")),
    ):
        for against, suffix in (
            (None, ""),
            ("closed_chain", "-closed_chain-realistic"),
            ("lab/trial.csv", "-log-trial"),
        ):
            found = evaluation.suffix_of(against, Level.REALISTIC)
            folder = evaluation.default_folder(checkpoint, suffix=found)
            assert folder == base.with_name(f"{base.name}{suffix}")


def test_a_second_evaluation_removes_the_first_and_nothing_else(tmp_path):
    stale = ["video.mp4", "metrics.json", "path.png", "training_curve.png", "report.html"]
    stale += ["recording.npz", "logs/simulated_0.csv", "logs/reference_11.csv"]
    others = ["play-simulator.mp4", "my.png", "logs/trial.csv", "logs/reference_0.csv.bak"]
    (tmp_path / "logs").mkdir()
    for name in stale + others:
        (tmp_path / name).touch()
    log = tmp_path / "logs" / "reference_0.csv"
    log.touch()
    evaluation.remove_results(tmp_path, but=log)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {*others, "logs/reference_0.csv"}
    (tmp_path / "other" / "logs").mkdir(parents=True)
    (tmp_path / "other" / "logs" / "simulated_0.csv").touch()
    evaluation.remove_results(tmp_path / "other")
    assert not list((tmp_path / "other").iterdir())
    evaluation.remove_results(tmp_path / "missing")


def test_eval_against_nothing_is_one_line(run_folder):
    with pytest.raises(UserError, match="--against: no log 'closed-chain'"):
        evaluation.main(f"--checkpoint {run_folder} --against closed-chain".split())


def test_eval_writes_metrics_and_plots(run_folder, tmp_path, capsys):
    out = tmp_path / "eval"
    out.mkdir()
    (out / "video.mp4").write_text("of an earlier evaluation")
    evaluation.main(
        f"--checkpoint {run_folder} --episodes 2 --duration-s 0.9 --settle-s 0.2"
        f" --no-video --out {out}".split()
    )
    figures = json.loads((out / "metrics.json").read_text())
    for key in (
        "pitch_rmse_rad",
        "pitch_rate_rmse_rad_s",
        "contact_kept_fraction",
        "falls",
        "grf_norm_mean_n",
        "torque_rms_nm",
    ):
        assert np.isfinite(figures[key])
    assert {p.stem for p in out.glob("*.png")} <= {*PICTURES, "training_curve"}
    # Whatever the policy, the floor carries the robot's weight on average.
    assert figures["grf_norm_mean_n"] == pytest.approx(15.4 * 9.81 / 4, rel=0.25)
    assert {p.name for p in out.iterdir()} == {
        "metrics.json",
        "report.html",
        "recording.npz",
        "pitch_tracking.png",
        "pitch_rate.png",
        "grf_norm.png",
        "training_curve.png",
    }
    assert str(out) in capsys.readouterr().out


def _edit(path: Path, **changes) -> None:
    data = yaml.safe_load(path.read_text())
    data.update(changes)
    path.write_text(yaml.safe_dump(data))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda c: shutil.rmtree(c), "no such checkpoint"),
        (lambda c: (c / "checkpoint.yaml").unlink(), "no checkpoint in it"),
        (lambda c: (c / "checkpoint.yaml").write_bytes(b"\x00\xff{"), "damaged"),
        (lambda c: (c / "checkpoint.yaml").write_text("a: 1"), "not an s3n_mjx checkpoint"),
        (lambda c: _edit(c / "checkpoint.yaml", format=99), "checkpoint format 99"),
        (lambda c: _edit(c / "checkpoint.yaml", task="walk"), "does not know"),
        (lambda c: _edit(c / "checkpoint.yaml", config={"speed": 1}), "unknown key"),
        (lambda c: (c / "params.msgpack").unlink(), "missing"),
        (
            lambda c: (c / "params.msgpack").write_bytes((c / "params.msgpack").read_bytes()[:50]),
            "truncated",
        ),
        (lambda c: (c / "robot" / "model.xml").write_text("<mujoco/>"), "robot/model.xml"),
    ],
)
def test_broken_checkpoints_are_one_line(copied, harm, says):
    checkpoint = copied / "checkpoints" / "000000000240"
    harm(checkpoint)
    with pytest.raises(UserError) as caught:
        checkpoints.load(checkpoint)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_of_checkpoints_by_name_says_which(tmp_path):
    """As the shipped policies lie: none of them is the newest."""
    for name in ("pitch-b", "pitch-a", "empty"):
        (tmp_path / name).mkdir()
    for name in ("pitch-b", "pitch-a"):
        (tmp_path / name / "checkpoint.yaml").touch()
    with pytest.raises(UserError, match="no checkpoint in it; it holds pitch-a, pitch-b: name one"):
        checkpoints.find(tmp_path)


def test_parameters_of_another_network_are_one_line(copied):
    """Whole, ours, but of other layers than the config says."""
    checkpoint = copied / "checkpoints" / "000000000240"
    path = checkpoint / "checkpoint.yaml"
    data = yaml.safe_load(path.read_text())
    data["config"]["ppo"]["policy_layers"] = [9]
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(UserError, match="do not fit"):
        evaluation.main(["--checkpoint", str(checkpoint), "--duration-s", "2"])


def test_metrics_file_drops_rows_after_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsFile(path)
    for step in (0, 10, 20):
        log.log({"env_steps": step, "wall_s": step})
    log.close()
    log = MetricsFile(path, from_step=10)
    log.log({"env_steps": 20, "wall_s": 21})
    log.close()
    assert [row["wall_s"] for row in read_rows(path)] == [0, 10, 21]


def test_replication_onto_devices():
    """The stand-in for what left JAX: one copy a device, along a new leading axis."""
    tree = compat.device_put_replicated({"a": np.arange(3.0), "b": 2}, jax.devices())
    assert tree["a"].shape == (2, 3)
    assert len(tree["a"].addressable_shards) == 2
    np.testing.assert_array_equal(tree["a"][1], np.arange(3.0))
    assert tree["b"].shape == (2,)
