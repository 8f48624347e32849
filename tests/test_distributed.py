"""Several devices and several processes."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time

import flax.serialization
import numpy as np
import pytest
from conftest import SMALL

from s3n_mjx import runtime
from s3n_mjx.errors import UserError
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import run as runs
from s3n_mjx.training.metrics_log import read_rows

TRAIN = [sys.executable, "-m", "s3n_mjx.train"]


def environment(devices: int, **variables: str) -> dict[str, str]:
    flag = f"--xla_force_host_platform_device_count={devices}"
    return os.environ | {"XLA_FLAGS": flag} | variables


def start_two(arguments):
    """Two processes of one device each, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    return [
        subprocess.Popen(
            [*TRAIN, *map(str, arguments), "--distributed"],
            env=environment(1, **common, RANK=str(rank)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


def test_two_processes_train_stop_together_and_resume(tmp_path):
    """The signal reaches one of them only."""
    folder = tmp_path / "run"
    long = [*SMALL, "--num-timesteps", 80 * 60, "--num-checkpoints", 60, "--run-dir", folder]
    processes = start_two(long)
    deadline = time.monotonic() + 400.0
    while len(read_rows(folder / runs.METRICS_FILE)) < 3 and time.monotonic() < deadline:
        assert processes[0].poll() is None, processes[0].communicate()[0]
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=120.0)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "2 x cpu in 2 processes" in said[0]
    assert "is kept; go on with:" in said[0]
    assert "environment steps" not in said[1]  # the first one speaks for both
    stopped = runs.resume_from(folder)
    assert 160 <= stopped.env_steps < 80 * 60
    assert stopped.state is not None

    processes = start_two(["--resume", folder])
    said = [process.communicate(timeout=400.0)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    rows = read_rows(folder / runs.METRICS_FILE)
    assert [row["env_steps"] for row in rows] == list(range(0, 80 * 61, 80))
    end = checkpoints.load(folder)
    count = flax.serialization.msgpack_restore(end.params)["0"]["count"]
    # Observations of both, none lost and none twice.
    assert (int(count["lo"]) if isinstance(count, dict) else float(count)) == 80 * 60
    assert end.env_steps == 80 * 60


CURVE = shlex.split("""
    --preset cpu --num-envs 64 --batch-size 64 --num-minibatches 2 --unroll-length 10
    --num-updates-per-batch 4 --episode-length 50 --num-timesteps 38400 --num-checkpoints 5
    --num-eval-envs 32 --policy-layers 32 --value-layers 32 --init-noise-std 0.1
    --learning-rate 3e-4 --desired-kl 0.01 --discounting 0.9
""")


def test_two_devices_learn_like_one(tmp_path):
    """Other random numbers, the same learning: reward and exploration take the same course."""
    reward, noise = [], []
    for devices in (1, 2):
        folder = tmp_path / str(devices)
        subprocess.run(
            [*TRAIN, *CURVE, "--run-dir", folder],
            env=environment(devices),
            check=True,
            stdout=subprocess.PIPE,
        )
        rows = read_rows(folder / runs.METRICS_FILE)
        reward.append([row["eval/episode_reward"] for row in rows])
        noise.append([row["training/policy_dist_mean_std"] for row in rows[1:]])
    one, two = np.array(reward)
    np.testing.assert_allclose(one[0], two[0], rtol=1e-4)  # the same start
    assert np.ptp(one) > 50.0  # something happens
    assert np.abs(one - two).mean() < 0.25 * np.ptp(one)
    np.testing.assert_allclose(noise[0], noise[1], rtol=0.1)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "0"}, "RANK is set, but not MASTER_ADDR, MASTER_PORT, WORLD_SIZE"),
        (
            {"RANK": "a", "MASTER_ADDR": "x", "MASTER_PORT": "1", "WORLD_SIZE": "2"},
            "have to be whole numbers",
        ),
        ({}, "cannot join others; start it with srun or mpirun"),
    ],
)
def test_processes_that_cannot_join_say_why(monkeypatch, variables, says):
    for name in list(os.environ):
        if re.match("MASTER_|WORLD_SIZE|RANK|LOCAL_|SLURM_|OMPI_|PMI", name):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=says) as caught:
        runtime.join_processes()
    assert "\n" not in str(caught.value)
