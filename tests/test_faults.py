"""What may go wrong around a training: signals, disks, memory, other trainings, broken learners."""

import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import SMALL

from s3n_mjx import train
from s3n_mjx.errors import Terminated, UserError
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import loop, memory, snapshot
from s3n_mjx.training import run as runs
from s3n_mjx.training.config import load_preset
from s3n_mjx.training.interrupts import Interrupts
from s3n_mjx.training.metrics_log import read_rows

ONE_CHECKPOINT = [*SMALL, "--num-checkpoints", "1"]  # of three chunks


@pytest.fixture
def handlers():
    """A process that listens to both signals, whoever started it."""
    old = {n: signal.signal(n, signal.SIG_DFL) for n in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


def test_sigterm_keeps_a_chunk_and_exits_0(tmp_path, monkeypatch, capsys, handlers, run_folder):
    """Between two checkpoints; and what goes on from there equals a run that was left alone."""
    check, folder = loop.DivergenceWatch.check, tmp_path / "run"

    def check_and_signal(self, environments, steps):
        if steps == 160:
            os.kill(os.getpid(), signal.SIGTERM)
        return check(self, environments, steps)

    monkeypatch.setattr(loop.DivergenceWatch, "check", check_and_signal)
    with pytest.raises(SystemExit) as stopped:
        train.main([*ONE_CHECKPOINT, "--run-dir", str(folder)])
    assert stopped.value.code == 0
    said = capsys.readouterr().err
    assert "terminated, the checkpoint at 160 environment steps is kept; go on with" in said
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["000000000160"]
    assert [row["env_steps"] for row in read_rows(folder / runs.METRICS_FILE)] == [0]
    monkeypatch.undo()
    train.main(["--resume", str(folder)])
    assert [row["env_steps"] for row in read_rows(folder / runs.METRICS_FILE)] == [0, 240]
    # The same chunks as of three checkpoints.
    assert checkpoints.load(folder).params == checkpoints.load(run_folder).params


def test_signals_are_taken_once_and_given_back(handlers):
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        interrupts.begin()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.asked == signal.SIGTERM
        with pytest.raises(Terminated) as stopped:
            interrupts.stop(interrupts.asked, "kept")
    assert str(stopped.value) == "kept"
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_ignored_signal_stays_ignored(handlers):
    """As of a background job, or under nohup."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.asked is None


def test_one_training_holds_a_folder(tmp_path):
    other = f"""
import sys
from pathlib import Path
from s3n_mjx.training import run
with run.held(Path({str(tmp_path)!r})):
    print("holds", flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "holds\n"
        with (
            pytest.raises(UserError, match=rf"process {process.pid} on \S+ trains into it now"),
            runs.held(tmp_path),
        ):
            pass
    finally:
        process.kill()
        process.communicate()
    with runs.held(tmp_path):  # the system gave it back
        pass


def test_who_holds_a_folder_may_ask_again(tmp_path):
    with runs.held(tmp_path), runs.held(tmp_path):
        pass
    with runs.held(tmp_path):
        pass


def test_what_a_kill_left_half_made_is_cleared_by_who_holds_the_folder(tmp_path):
    half = tmp_path / "checkpoints" / ".000000000240.abc"
    half.mkdir(parents=True)
    with runs.held(tmp_path):
        assert not half.exists()


def test_a_full_disk_is_one_line_and_keeps_what_there_was(tmp_path, monkeypatch, capsys):
    write, folder = Path.write_bytes, tmp_path / "run"

    def until_it_is_full(self, data):
        if (folder / "checkpoints" / "000000000080").exists() and self.name == checkpoints.STATE:
            write(self, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", until_it_is_full)
    with pytest.raises(UserError) as caught:
        train.main([*SMALL, "--run-dir", str(folder)])
    said = str(caught.value)
    assert "No space left on device" in said
    assert str(folder / "checkpoints" / "000000000080") in said
    assert f"--resume {folder}" in said
    assert "\n" not in said
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["000000000080"]
    checkpoint = checkpoints.load(folder)
    assert checkpoints.load_state(checkpoint) is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot be written"):
        train.main([*SMALL, "--run-dir", str(tmp_path / "run")])


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError, match="cannot be written") as caught:
        train.main([*SMALL, "--run-dir", str(tmp_path / "run")])
    assert "\n" not in str(caught.value)


def test_a_learner_without_numbers_ends_the_run_and_keeps_the_last_good(
    tmp_path, monkeypatch, run_folder
):
    """It breaks down in the third chunk of the first interval."""
    sound, calls, folder = loop._sound, [], tmp_path / "run"

    def breaks(tree):
        calls.append(sound(tree))
        return len(calls) < 3

    monkeypatch.setattr(loop, "_sound", breaks)
    with pytest.raises(UserError) as caught:
        train.main([*ONE_CHECKPOINT, "--run-dir", str(folder)])
    assert calls == [True] * 3
    said = str(caught.value)
    assert "the learner broke down between 160 and 240 environment steps" in said
    assert str(folder / "checkpoints" / "000000000160") in said
    assert "smaller --learning-rate" in said
    assert "\n" not in said
    kept, same = checkpoints.load(folder), run_folder / "checkpoints" / "000000000160"
    assert kept.params == checkpoints.load(same).params


def test_what_counts_as_sound():
    good = {"a": np.ones(3), "b": (np.zeros((2, 2)), np.arange(3))}
    assert loop._sound(good)
    for bad in (np.nan, np.inf):
        assert not loop._sound(good | {"a": np.array([1.0, bad])})


# --- memory


def test_a_run_that_does_not_fit_says_what_will(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "of_device", lambda: 150_000)
    with pytest.raises(UserError, match=r"16 envi.* need .* use --num-envs 8 --batch-size 4$"):
        train.main([*SMALL, "--run-dir", str(tmp_path / "run")])
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_the_number_that_will_fit_follows_from_the_memory():
    ppo = dataclasses.replace(load_preset("pitch", "paper").ppo, num_envs=4096, batch_size=1024)
    gib = 2**30
    memory.check(ppo, 7 * gib, 8 * gib)
    with pytest.raises(UserError, match=r"--num-envs 2048 --batch-size 512$"):
        memory.check(ppo, 10 * gib, 8 * gib)
    with pytest.raises(UserError, match=r"--num-envs 512 --batch-size 128$"):
        memory.check(ppo, 50 * gib, 8 * gib)


def test_a_program_says_its_memory():
    """Arguments, result and what is in between, to the byte of what must be there."""

    def double(x):
        return 2.0 * x

    shape = jax.ShapeDtypeStruct((1024,), jnp.float32)
    assert memory.of_program(jax.jit(double).lower(shape).compile()) == 2 * 4096
    donated = jax.jit(double, donate_argnums=0).lower(shape).compile()
    assert memory.of_program(donated) == 4096
    assert memory.of_device() > 2**20


# --- state that is not this run's


def test_state_of_another_run_is_one_line(run_folder):
    state = checkpoints.load_state(checkpoints.load(run_folder))
    devices = jax.local_device_count()
    learner = {"a": jnp.zeros((devices, 3))}
    environments = {"b": jnp.zeros((devices, 2, 5))}
    learner, environments = (jax.pmap(lambda x: x)(tree) for tree in (learner, environments))
    with pytest.raises(UserError, match="not the state of this run"):
        snapshot.unpack(state, learner, environments, "state.msgpack")
    mine = snapshot.pack(learner, environments)
    back = snapshot.unpack(mine, learner, environments, "state.msgpack")
    jax.tree.map(np.testing.assert_array_equal, back, (learner, environments))
    fewer = {"b": environments["b"][:, :1]}
    with pytest.raises(UserError, match=r"\['b'\] has shape \(4, 5\), this run's has \(2, 5\)"):
        snapshot.unpack(mine, learner, jax.pmap(lambda x: x)(fewer), "state.msgpack")


def test_a_damaged_state_falls_back_to_the_checkpoint_before(run_folder, tmp_path, capsys):
    folder = Path(shutil.copytree(run_folder, tmp_path / "run"))
    newest = folder / "checkpoints" / "000000000240" / checkpoints.STATE
    newest.write_bytes(newest.read_bytes()[:-1])
    start = runs.resume_from(folder)
    assert start.env_steps == 160
    assert start.state is not None
    assert "passed over" in (said := capsys.readouterr().out)
    assert f"{checkpoints.STATE}: truncated or changed" in said
