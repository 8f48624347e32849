"""Benchmarks: what they make of rows, failures and limits. Nothing here is timed or compiled."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from benchmarks import gpu, time_to_target
from benchmarks.common import reason_of, table
from benchmarks.gpu import Backend, Engine, Job, Memory, Row, Series, Status
from benchmarks.time_to_target import Target
from s3n_mjx.cli import run
from s3n_mjx.normalization import Injection, Variant

ENVIRONMENT = Series(Engine.ENVIRONMENT, Variant.S3N_ACT, Injection.QFRC_APPLIED, Backend.JAX)
WARP = Series(Engine.BARE_STEP, Variant.KIN_ONLY, Injection.QFRC_APPLIED, Backend.WARP)


def curve(*errors: float, kept: float = 0.997) -> list[dict[str, float]]:
    """Evaluations 10 s apart, the first two after 20 s and 50 s of compilation."""
    times = [20.0, 80.0, *(90.0 + 10.0 * i for i in range(len(errors)))]
    return [
        {
            "env_steps": 1000 * i,
            "wall_s": times[i],
            "eval/pitch_rmse_rad": error,
            "eval/contact_kept_fraction": kept,
        }
        for i, error in enumerate(errors)
    ]


def measured(series: Series, num_envs: int) -> Row:
    return Row(
        series=series,
        num_envs=num_envs,
        status=Status.MEASURED,
        env_steps_per_s=100.0 * num_envs,
        physics_steps_per_s=600.0 * num_envs,
        trace_s=1.0,
        compile_s=2.0,
        first_call_s=0.5,
        round_s=[0.1],
        predicted=Memory(10, 20, 30, 10, 50),
    )


# --- time to the target


def test_target_is_met_by_the_first_evaluation_that_is_good_in_both():
    rows = curve(0.07, 0.06, 0.05, 0.044, 0.046)
    result = time_to_target.outcome(rows, 5.0, Target(), None)
    assert result.reached
    assert result.env_steps == 3000
    assert result.seconds == pytest.approx(5.0 + 100.0)
    # 20 s to the first evaluation, and 60 s for an epoch of 10 s.
    assert result.compile_s == pytest.approx(20.0 + 50.0)
    assert result.training_s == pytest.approx(100.0 - 20.0 - 50.0)
    lifted = time_to_target.outcome(curve(0.07, 0.02, 0.02, kept=0.9), 5.0, Target(), "the end")
    assert (lifted.reached, lifted.reason, lifted.seconds) == (False, "the end", None)


def test_rows_that_say_nothing_meet_no_target():
    assert not Target().met_by({"env_steps": 0, "wall_s": 1.0})
    nothing = time_to_target.outcome([], None, Target(), "training ended with code 2")
    assert nothing.reason == "training ended with code 2"
    assert nothing.compile_s is None
    assert "not reached" in time_to_target.sentence("seed 0", nothing)


def test_median_needs_every_training():
    reached = [
        time_to_target.outcome(curve(0.07, *[0.06] * i, *[0.04] * 4), 5.0, Target(), None)
        for i in (1, 2, 5)
    ]
    middle = time_to_target.median(reached)
    assert middle is not None
    assert middle.env_steps == reached[1].env_steps
    failed = dataclasses.replace(reached[0], reached=False)
    assert time_to_target.median([*reached, failed]) is None


class Training:
    """A process that writes a row every ten seconds of a clock that only `sleep` moves."""

    def __init__(self, metrics: Path, rows: list[dict[str, float]], startup_s: float = 5.0):
        self.metrics, self.rows, self.startup_s = metrics, rows, startup_s
        self.now, self.code = 0.0, None

    def clock(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += 1.0
        ready = [r for r in self.rows if r["wall_s"] + self.startup_s <= self.now]
        self.metrics.write_text("".join(json.dumps(r) + "\n" for r in ready))
        if len(ready) == len(self.rows) and self.code is None:
            self.code = 0

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.code = -15

    def wait(self, timeout: float | None = None) -> int | None:
        return self.code


def watch(training: Training, limit_s: float = 1e3, whole: bool = False):
    return time_to_target.watch(
        training, training.metrics, Target(), whole, limit_s, training.clock, training.sleep
    )


def test_watching_ends_soon_after_the_target(tmp_path):
    training = Training(tmp_path / "metrics.jsonl", curve(0.07, 0.06, *[0.04] * 20))
    result = watch(training)
    assert training.code == -15
    assert result.seconds == pytest.approx(95.0)
    assert 4 <= result.epochs <= 5  # enough to know what compilation took
    whole = Training(tmp_path / "metrics.jsonl", curve(0.07, 0.06, *[0.04] * 20))
    assert watch(whole, whole=True).epochs == 21
    assert whole.code == 0


def test_watching_ends_at_the_limit(tmp_path):
    training = Training(tmp_path / "metrics.jsonl", curve(*[0.07] * 20))
    result = watch(training, limit_s=100.0)
    assert (result.reached, result.reason) == (False, "not within 100 s")
    assert training.code == -15


# --- the sweep


def results(tmp_path: Path) -> gpu.Results:
    return gpu.Results(tmp_path, {"device": "Fake", "words": "1 x Fake"}, {})


def rows_of(tmp_path: Path) -> list[dict]:
    return json.loads((tmp_path / "results.json").read_text())["rows"]


def test_larger_sizes_are_skipped_after_a_failure(tmp_path):
    seen = []

    def measure(series):
        yield measured(series, 64)
        assert [r["num_envs"] for r in rows_of(tmp_path)][-1] == 64  # written before the next
        if series is ENVIRONMENT:
            yield Row(series, 128, Status.FAILED, "out of memory | RESOURCE_EXHAUSTED")
        else:
            yield measured(series, 128)
            yield measured(series, 256)

    done = results(tmp_path)
    gpu.sweep(
        done, [ENVIRONMENT, WARP], [64, 128, 256], measure, lambda: 1.0, seen.append, lambda: 0.0
    )
    assert [r["status"] for r in rows_of(tmp_path)] == [
        *("measured", "failed", "skipped"),
        *("measured", "measured", "measured"),
    ]
    assert rows_of(tmp_path)[2]["reason"] == "128 environments failed"
    assert rows_of(tmp_path)[0]["bytes_per_env"] == pytest.approx(50 / 64)
    assert len(seen) == 6
    report = (tmp_path / "report.md").read_text()
    assert "failed: out of memory / RESOURCE_EXHAUSTED" in report  # no new column
    assert "Not finished" in report
    assert (tmp_path / "physics_steps.png").stat().st_size > 0
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_what_the_time_limit_leaves_is_skipped_and_said(tmp_path):
    def measure(series):
        yield measured(series, 64)
        raise gpu.TimeIsUp

    left = iter([1.0, 0.0])
    done = results(tmp_path)
    gpu.sweep(done, [ENVIRONMENT, WARP], [64, 128], measure, lambda: next(left), lambda _: None)
    assert [row.status for row in done.rows] == ["measured", *["skipped"] * 3]
    assert all("--limit-s" in row.reason for row in done.rows[1:])


def test_nothing_measured_still_makes_a_report(tmp_path):
    done = results(tmp_path)
    done.rows.append(Row(WARP, 64, Status.FAILED, "warp-lang is not installed"))
    done.write()
    assert "warp-lang is not installed" in (tmp_path / "report.md").read_text()
    assert not (tmp_path / "physics_steps.png").exists()


def follow(tmp_path: Path, code: str, case_limit_s: float = 10.0, left_s: float = 100.0):
    job = Job(ENVIRONMENT, (64, 128), 1, 1)
    program = (sys.executable, "-S", "-c", code)
    return list(gpu.run_series(job, tmp_path / "series.log", case_limit_s, lambda: left_s, program))


def test_rows_of_a_process_come_back_and_its_death_is_a_row(tmp_path):
    row = json.dumps(dataclasses.asdict(measured(ENVIRONMENT, 64)))
    first, second = follow(
        tmp_path,
        f"import sys, os; print({row!r}, flush=True); sys.stderr.write('boom\\n'); os._exit(3)",
    )
    assert first == measured(ENVIRONMENT, 64)
    assert (second.num_envs, second.status) == (128, Status.FAILED)
    assert second.reason == "the process ended with code 3: boom"
    (killed,) = follow(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert "SIGKILL" in killed.reason
    assert "memory" in killed.reason


def test_a_case_that_hangs_is_a_row_and_the_sweeps_limit_is_none(tmp_path):
    hang = "import time; time.sleep(60)"
    (row,) = follow(tmp_path, hang, case_limit_s=0.1)
    assert "--case-limit-s" in row.reason
    with pytest.raises(gpu.TimeIsUp):
        follow(tmp_path, hang, left_s=0.0)


def test_a_variant_that_injects_nothing_is_measured_once():
    names = [series.name for series in gpu.plan(gpu.GpuBench(), quick=False)]
    assert names == [
        "s3n_act/qfrc_applied",
        *("bare mjx.step, jax", "bare mjx.step, warp"),
        *("kin_only", "s3n_full/qfrc_applied", "s3n_act/mass_matrix", "s3n_full/mass_matrix"),
    ]
    assert len(gpu.plan(gpu.GpuBench(), quick=True)) == 4


def test_reasons_are_one_line():
    said = reason_of(RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nwhile " + "x" * 1000))
    assert said.startswith("out of memory (RuntimeError: RESOURCE_EXHAUSTED")
    assert "\n" not in said
    assert len(said) <= 200
    assert reason_of(ValueError()) == "ValueError"
    assert table(("a", "b"), [("x", "1")]).splitlines()[1] == "| :-- | --: |"


@pytest.mark.parametrize(
    ("main", "args", "said"),
    [
        (gpu.main, ["--num-envs", "0"], "--num-envs"),
        (gpu.main, ["--num-envs", "many"], "--num-envs"),
        (gpu.main, ["--variants", "s3n"], "s3n"),
        (gpu.main, ["--quick", "--full"], "--quick and --full"),
        (gpu.main, ["--limit-s", "-1"], "--limit-s"),
        (time_to_target.main, ["--project", "/nowhere"], "--project"),
        (time_to_target.main, ["--checkpoints", "0"], "--checkpoints"),
        (time_to_target.main, ["--seeds", "-1"], "--seeds"),
        (time_to_target.main, ["--seeds"], "--seeds"),
        (time_to_target.main, ["--python", "/nowhere/python"], "--python"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(main, args, said, capfd, tmp_path):
    with pytest.raises(SystemExit) as stop:
        run(main, [*args, "--out", str(tmp_path)] if args != ["--seeds"] else args)
    assert stop.value.code == 2
    error = capfd.readouterr().err.strip()
    assert error.startswith("error: ")
    assert said in error
    assert "\n" not in error
