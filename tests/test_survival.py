"""Killed and resumed, a training ends where it would have ended; slow, in processes of its own."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time

import pytest
from conftest import lasting

from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import run as runs
from s3n_mjx.training.metrics_log import read_rows

CHECKPOINTS = 300
KILLS = 20
COMMAND = [sys.executable, "-m", "s3n_mjx.train"]
FLAGS = shlex.split(f"""
    --preset cpu --num-envs 16 --batch-size 8 --num-minibatches 2 --unroll-length 5
    --num-updates-per-batch 1 --episode-length 10 --num-timesteps {240 * CHECKPOINTS}
    --num-checkpoints {CHECKPOINTS} --num-eval-envs 2 --policy-layers 8 --value-layers 8
""")


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_twenty_kills_change_nothing(tmp_path, devices):
    flag = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flag}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(
        [*COMMAND, *FLAGS, "--run-dir", whole], env=environment, check=True, stdout=subprocess.PIPE
    )

    moments = random.Random(devices)
    kills, seen = 0, []
    while kills < KILLS:
        first = not (killed / runs.CONFIG_FILE).exists()
        arguments = [*FLAGS, "--run-dir", killed] if first else ["--resume", killed]
        rows = len(read_rows(killed / runs.METRICS_FILE))
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        # Half of them while it starts, half while it trains and writes.
        if moments.random() < 0.5:
            time.sleep(moments.uniform(0.0, 12.0))
        else:
            deadline = time.monotonic() + 120.0
            while (
                len(read_rows(killed / runs.METRICS_FILE)) <= rows and time.monotonic() < deadline
            ):
                time.sleep(0.01)
            time.sleep(moments.uniform(0.0, 1.5))
        assert process.poll() is None, process.stdout.read().decode()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        kills += 1
        seen.append(runs.resume_from(killed).env_steps if not first else 0)
    assert seen == sorted(seen)  # nothing that was kept is lost again
    subprocess.run(
        [*COMMAND, "--resume", killed], env=environment, check=True, stdout=subprocess.PIPE
    )

    ends = [checkpoints.load(folder) for folder in (whole, killed)]
    assert ends[0].env_steps == ends[1].env_steps == 240 * CHECKPOINTS
    assert ends[0].params == ends[1].params
    assert checkpoints.load_state(ends[0]) == checkpoints.load_state(ends[1])
    rows = [read_rows(folder / runs.METRICS_FILE) for folder in (whole, killed)]
    assert [lasting(row) for row in rows[0]] == [lasting(row) for row in rows[1]]
    print(f"{devices} devices: steps after each kill {seen}")
