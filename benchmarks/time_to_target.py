"""`python -m benchmarks.time_to_target`: how long training takes until it is good enough.

Trains the pitch task through the command line and watches `metrics.jsonl` from outside, so that
another checkout can be measured by the same yardstick (`--project`, `--python`).
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from benchmarks.common import (
    PROJECT,
    end_cleanly_when_terminated,
    environment_of,
    one_line,
    table,
    write_json,
)
from s3n_mjx.cli import make_folder, parse_arguments, run
from s3n_mjx.config_files import STRICT
from s3n_mjx.errors import UserError
from s3n_mjx.training.metrics_log import Row, read_rows

_METRICS_FILE = "metrics.jsonl"
_POLL_S = 0.2
# Epochs after the first one: what a first epoch takes beyond their median is compilation.
_LATER_EPOCHS = 3


@dataclass(frozen=True, config=STRICT)
class Target:
    """What an evaluation of the pitch task has to reach."""

    # Fraction of the time, every foot down. An evaluation of training counts the landing after
    # the reset, a few simulation steps: a robot that never lifts a foot has 0.997 in 5 s.
    contact_kept: Annotated[float, Ge(0)] = 0.99
    pitch_rmse_rad: Annotated[float, Gt(0)] = 0.045

    def met_by(self, row: Row) -> bool:
        """Whether the evaluation in ``row`` of `metrics.jsonl` is good enough."""
        kept, error = row.get("eval/contact_kept_fraction"), row.get("eval/pitch_rmse_rad")
        if kept is None or error is None:
            return False
        return kept >= self.contact_kept and error <= self.pitch_rmse_rad


@dataclass(frozen=True, config=STRICT)
class TimeToTarget:
    """Train the pitch task until it is good enough, and say how long that took.

    Args:
        seeds: one training each, one after the other.
        preset: of `train`; without one what `train` takes by itself.
        checkpoints: evaluations in the whole of a training; many, since the target can only be
            seen at one.
        target: what is good enough.
        project: folder that holds the `s3n_mjx` to train with; this checkout by default.
        python: interpreter to train with; this one by default.
        whole: train to the end instead of stopping soon after the target.
        warm: share the user's cache of compiled programs instead of compiling anew every time.
        train_args: further flags of `train`, as in `--train-args="--variant kin_only"`.
        limit_s: time for each training, in s.
        out: folder of the runs and of `results.json`.
    """

    seeds: tuple[Annotated[int, Ge(0)], ...] = (0, 1, 2)
    preset: str | None = None
    checkpoints: Annotated[int, Gt(0)] = 24
    target: Target = Target()
    project: Path = PROJECT
    python: Path = Path(sys.executable)
    whole: bool = False
    warm: bool = False
    train_args: str = ""
    limit_s: Annotated[float, Gt(0)] = 3600.0
    out: Path = Path("runs/time-to-target")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One training; times in s, None where there is none to tell."""

    reached: bool
    reason: str | None  # why the target was not reached
    seconds: float | None  # from the start of the process to the evaluation that met the target
    training_s: float | None  # of those, spent neither on starting nor on compiling
    env_steps: int | None  # at that evaluation
    startup_s: float | None  # from the start of the process to that of the training's own clock
    first_row_s: float | None  # to the evaluation at step 0, on the training's own clock
    compile_s: float | None  # see :func:`compile_seconds`
    epoch_s: float | None  # median, after the first
    epochs: int


def epoch_seconds(rows: Sequence[Row]) -> list[float]:
    """Time between neighbouring evaluations, in s."""
    return [b["wall_s"] - a["wall_s"] for a, b in itertools.pairwise(rows)]


def compile_seconds(rows: Sequence[Row]) -> float | None:
    """Time in s that compilation took, as far as the rows tell; None before three epochs.

    That until the evaluation at step 0, and what the first epoch took beyond the median of the
    later ones. Evaluating at step 0 is in it, a small part.
    """
    excess = _first_epoch_excess(rows)
    return None if excess is None else rows[0]["wall_s"] + excess


def _first_epoch_excess(rows: Sequence[Row]) -> float | None:
    first, *later = epoch_seconds(rows) or [0.0]
    return max(0.0, first - statistics.median(later)) if len(later) > 1 else None


def outcome(
    rows: Sequence[Row], startup_s: float | None, target: Target, reason: str | None
) -> Outcome:
    """What rows of `metrics.jsonl` say.

    Args:
        rows: from step 0 on.
        startup_s: see :class:`Outcome`.
        target: what is good enough.
        reason: why there are no more rows.
    """
    met = next((row for row in rows if target.met_by(row)), None)
    excess = _first_epoch_excess(rows)
    training = None
    if met is not None and excess is not None:
        # Counted from the evaluation at step 0: a checkout may compile before its clock starts.
        training = met["wall_s"] - rows[0]["wall_s"] - (excess if met is not rows[0] else 0.0)
    later = epoch_seconds(rows)[1:]
    return Outcome(
        reached=met is not None,
        reason=None if met is not None else reason,
        seconds=None if met is None or startup_s is None else startup_s + met["wall_s"],
        training_s=training,
        env_steps=None if met is None else int(met["env_steps"]),
        startup_s=startup_s,
        first_row_s=rows[0]["wall_s"] if rows else None,
        compile_s=compile_seconds(rows),
        epoch_s=statistics.median(later) if later else None,
        epochs=max(0, len(rows) - 1),
    )


def finished(rows: Sequence[Row], target: Target) -> bool:
    """Whether more rows would say no more: the target is met, and compilation is known."""
    return len(rows) >= 2 + _LATER_EPOCHS and any(target.met_by(row) for row in rows)


def watch(
    process: Any,
    metrics: Path,
    target: Target,
    whole: bool,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Follow a training that has just been started, and end it when it has told enough.

    Args:
        process: the training, as `subprocess.Popen` gives it.
        metrics: its `metrics.jsonl`.
        target: what is good enough.
        whole: let it train to its end.
        limit_s: time that it may take, in s.
        clock: s.
        sleep: takes s.
    """
    began = clock()
    startup = None
    rows: list[Row] = []
    reason = None
    try:
        while True:
            code = process.poll()  # before the rows are read: none comes after it
            now = clock() - began
            rows = read_rows(metrics)
            if rows and startup is None:
                # The training's own clock tells the times from here; this one only sees rows late.
                startup = max(0.0, now - rows[-1]["wall_s"])
            if code is not None:
                reason = "trained to the end" if code == 0 else f"training ended with code {code}"
                break
            if not whole and finished(rows, target):
                break
            if now > limit_s:
                reason = f"not within {limit_s:g} s"
                break
            sleep(_POLL_S)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return outcome(rows, startup, target, reason)


def command(
    python: Path, folder: Path, seed: int, preset: str | None, checkpoints: int, *more: str
) -> list[str]:
    """Command line of a training of the pitch task into ``folder``."""
    return [
        *(str(python.absolute()), "-m", "s3n_mjx.train", "--task", "pitch"),
        *(("--preset", preset) if preset else ()),
        *("--seed", str(seed), "--num-checkpoints", str(checkpoints)),
        *("--run-dir", str(folder.absolute()), *more),
    ]


def measure(
    folder: Path,
    *,
    seed: int,
    preset: str | None,
    checkpoints: int,
    target: Target,
    limit_s: float,
    project: Path = PROJECT,
    python: Path = Path(sys.executable),
    whole: bool = False,
    warm: bool = False,
    more: Sequence[str] = (),
) -> Outcome:
    """Train once, in a process of its own; arguments as of :class:`TimeToTarget`.

    Args:
        folder: made, and emptied before; the run, and what it printed as `train.log`.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    environment = environment_of(project)
    cache = folder / "cache"
    if not warm:
        environment["S3N_MJX_CACHE"] = str(cache.absolute())
    log = folder / "train.log"
    try:
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command(python, folder / "run", seed, preset, checkpoints, *more),
                cwd=project,  # `-m` looks there first
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
            result = watch(process, folder / "run" / _METRICS_FILE, target, whole, limit_s)
    except OSError as error:
        raise UserError(f"--python: {python} cannot be started ({error.strerror})") from None
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    if not result.reached and process.returncode not in (0, None) and process.returncode > 0:
        said = log.read_text(errors="replace").strip().splitlines()
        if said:
            result = dataclasses.replace(result, reason=one_line(f"{result.reason}: {said[-1]}"))
    return result


def _number(value: float | None, unit: str = "", digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


HEADER = (
    *("training", "target after", "of that training", "environment steps"),
    *("compilation", "an epoch"),
)


def as_row(name: str, result: Outcome) -> tuple[str, ...]:
    """Cells under :data:`HEADER`; times in s."""
    return (
        name,
        _number(result.seconds, " s") if result.reached else f"not reached: {result.reason}",
        _number(result.training_s, " s"),
        _number(result.env_steps, digits=0),
        _number(result.compile_s, " s"),
        _number(result.epoch_s, " s"),
    )


def sentence(name: str, result: Outcome) -> str:
    """:func:`as_row` for a line of progress."""
    if not result.reached:
        return f"{name}: target not reached: {result.reason}"
    cells = as_row(name, result)
    named = zip(HEADER[1:], cells[1:], strict=True)
    return f"{name}: " + ", ".join(f"{title} {cell}" for title, cell in named)


def median(results: Sequence[Outcome]) -> Outcome | None:
    """Medians of the trainings that reached the target; None where fewer than all did."""
    if not results or not all(result.reached for result in results):
        return None
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Outcome):
        given = [getattr(result, field.name) for result in results]
        numbers = [value for value in given if value is not None]
        values[field.name] = statistics.median(numbers) if numbers else None
    return Outcome(**values | {"reached": True, "reason": None})


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    options = parse_arguments(TimeToTarget, args, "python -m benchmarks.time_to_target")
    if not options.seeds:
        raise UserError("--seeds: name at least one")
    if not (options.project / "s3n_mjx" / "train.py").is_file():
        raise UserError(f"--project: {options.project} holds no s3n_mjx/train.py")
    make_folder(options.out)
    target = options.target
    folder = options.out / datetime.now().strftime("%Y%m%d-%H%M%S")
    print(
        f"target: every foot down {target.contact_kept:.1%} of the time, pitch error"
        f" {target.pitch_rmse_rad:g} rad RMS; runs: {folder}",
        flush=True,
    )
    results: dict[int, Outcome] = {}
    for seed in options.seeds:
        results[seed] = measure(
            folder / f"seed{seed}",
            seed=seed,
            preset=options.preset,
            checkpoints=options.checkpoints,
            target=target,
            limit_s=options.limit_s,
            project=options.project,
            python=options.python,
            whole=options.whole,
            warm=options.warm,
            more=shlex.split(options.train_args),
        )
        print("  " + sentence(f"seed {seed}", results[seed]), flush=True)
        middle = median(list(results.values()))
        write_json(
            folder / "results.json",
            {
                "project": str(options.project),
                "preset": options.preset,
                "checkpoints": options.checkpoints,
                "warm": options.warm,
                "train_args": options.train_args,
                "target": dataclasses.asdict(target),
                "seeds": {seed: dataclasses.asdict(result) for seed, result in results.items()},
                "median": middle and dataclasses.asdict(middle),
            },
        )
    rows = [as_row(f"seed {seed}", result) for seed, result in results.items()]
    if middle is not None:
        rows.append(as_row("median", middle))
    print(f"\n{table(HEADER, rows)}\nresults: {folder / 'results.json'}")


if __name__ == "__main__":
    end_cleanly_when_terminated()
    run(main)
