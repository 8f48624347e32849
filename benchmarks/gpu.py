"""`python -m benchmarks.gpu`: what an accelerator makes of the environments, in one call.

Sweeps numbers of environments, variants, injections and MJX's backends, and trains to the pitch
target. Whatever fails is a row that says why. Results are written anew after every case, so that
a sweep that is killed leaves what it has. This process itself touches no device: an accelerator's
memory belongs to the one that is measured.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt
from pydantic.dataclasses import dataclass

from benchmarks import time_to_target
from benchmarks.common import (
    PROJECT,
    end_cleanly_when_terminated,
    environment_of,
    one_line,
    table,
    versions,
    write_json,
)
from benchmarks.time_to_target import Outcome, Target
from s3n_mjx.cli import make_folder, parse_arguments, run
from s3n_mjx.config_files import STRICT, parse
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation import plots
from s3n_mjx.files import written_whole
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.training.progress import duration

Count = Annotated[int, Gt(0)]
Seconds = Annotated[float, Gt(0)]

FULL_SIZES = tuple(2**power for power in range(8, 16))  # 256 to 32,768
QUICK_SIZES = (64, 128)
_MIB = 2**20


class Backend(StrEnum):
    """MJX's implementations of a physics step."""

    JAX = "jax"
    WARP = "warp"


class Engine(StrEnum):
    """What a series times."""

    ENVIRONMENT = "environment"
    BARE_STEP = "mjx.step"


@dataclass(frozen=True, config=STRICT)
class Series:
    """A program that is measured at several numbers of environments."""

    engine: Engine
    variant: Variant
    injection: Injection
    backend: Backend

    @property
    def name(self) -> str:
        if self.engine is Engine.BARE_STEP:
            return f"bare mjx.step, {self.backend}"
        if self.variant in (Variant.KIN_ONLY, Variant.KIN_ONLY_HR):
            return self.variant.value  # nothing is injected
        return f"{self.variant}/{self.injection}"


@dataclass(frozen=True, config=STRICT)
class Job:
    """What a process of `benchmarks.series` is asked for."""

    series: Series
    num_envs: tuple[Count, ...]  # ascending
    policy_steps: Count
    rounds: Count


class Status(StrEnum):
    """What became of a case."""

    MEASURED = "measured"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, config=STRICT)
class Memory:
    """Bytes of a compiled program, as XLA plans them."""

    argument: int
    output: int
    temporary: int
    aliased: int  # of the output, in the place of donated arguments
    total: int


@dataclass(frozen=True, config=STRICT)
class Row:
    """One case: a series at one number of environments."""

    series: Series
    num_envs: Count
    status: Status
    reason: str = ""  # why nothing was measured
    env_steps_per_s: float | None = None  # of all environments together; None for a bare step
    physics_steps_per_s: float | None = None
    trace_s: float | None = None  # Python and lowering
    compile_s: float | None = None
    first_call_s: float | None = None  # after compilation, before the rounds
    round_s: list[float] = dataclasses.field(default_factory=list)
    predicted: Memory | None = None
    peak_bytes: int | None = None  # that the process has held on the device so far

    @property
    def bytes_per_env(self) -> float | None:
        """Of the device's peak where there is one, else of XLA's prediction."""
        total = self.peak_bytes or (self.predicted and self.predicted.total)
        return total / self.num_envs if total else None


@dataclass(frozen=True, config=STRICT)
class GpuBench:
    """Measure environments and training on an accelerator.

    Args:
        num_envs: numbers of environments; by default powers of two from 256 to 32,768, and 64
            and 128 where quick.
        variants: simulator models.
        injections: ways that their terms enter.
        backends: of a bare `mjx.step`; the environments themselves run on `jax`.
        quick: a small sweep without training, for two cores in about five minutes; by itself
            where there is no accelerator.
        full: the whole sweep even there.
        policy_steps: in a timed call; 20, or 5 where quick.
        rounds: timed calls of each case; 10, or 5 where quick.
        train: train to the pitch target, too, before the sweep; not where quick.
        preset: of that training.
        checkpoints: evaluations in the whole of that training; many, since the target can only
            be seen at one.
        train_limit_s: time for that training, in s.
        target: of that training.
        case_limit_s: time for one case, in s; one that takes longer counts as failed.
        limit_s: time for all, in s; what is left then is skipped.
        out: folder of `results.json`, `report.md` and `physics_steps.png`.
    """

    num_envs: tuple[Count, ...] = ()
    variants: tuple[Variant, ...] = (Variant.S3N_ACT, Variant.KIN_ONLY, Variant.S3N_FULL)
    injections: tuple[Injection, ...] = (Injection.QFRC_APPLIED, Injection.MASS_MATRIX)
    backends: tuple[Backend, ...] = (Backend.JAX, Backend.WARP)
    quick: bool = False
    full: bool = False
    policy_steps: Count | None = None
    rounds: Count | None = None
    train: bool = True
    preset: str = "paper"
    checkpoints: Count = 150
    train_limit_s: Seconds = 1200.0
    target: Target = Target()
    case_limit_s: Seconds = 600.0
    limit_s: Seconds | None = None
    out: Path = Path("runs/bench-gpu")


def plan(options: GpuBench, quick: bool) -> list[Series]:
    """Series in order of interest, so that a time limit cuts the least of them."""
    variants, injections = options.variants, options.injections
    if quick:
        variants, injections = variants[:2], injections[:1]
    environments = [
        Series(Engine.ENVIRONMENT, variant, injection, Backend.JAX)
        for injection in injections
        for variant in variants
    ]
    bare = [
        Series(Engine.BARE_STEP, Variant.KIN_ONLY, Injection.QFRC_APPLIED, backend)
        for backend in options.backends
    ]
    # By name: a variant without anything to inject is the same by every injection.
    ordered = {series.name: series for series in environments[:1] + bare}
    for series in environments[1:]:
        ordered.setdefault(series.name, series)
    return list(ordered.values())


class TimeIsUp(Exception):
    """The sweep's own limit has passed."""


_SERIES = (sys.executable, "-m", "benchmarks.series")


def run_series(
    job: Job,
    log: Path,
    case_limit_s: float,
    left_s: Callable[[], float],
    program: Sequence[str] = _SERIES,
) -> Iterator[Row]:
    """Measure a series in a process of its own; rows come as they are measured.

    Args:
        job: the series.
        log: file for what the process prints.
        case_limit_s: time for one row, in s.
        left_s: s until the sweep's limit.
        program: takes the job as JSON behind its own arguments, prints a row of JSON a line.

    Raises:
        TimeIsUp: in the midst of a case.
    """
    text = json.dumps(dataclasses.asdict(job))
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [*program, text],
            env=environment_of(PROJECT),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        )
    lines: queue.Queue[str | None] = queue.Queue()
    assert process.stdout is not None
    threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True).start()
    try:
        for num_envs in job.num_envs:
            try:
                line = lines.get(timeout=max(0.0, min(case_limit_s, left_s())))
            except queue.Empty:
                if left_s() <= 0:
                    raise TimeIsUp from None
                reason = f"took longer than {case_limit_s:g} s (--case-limit-s)"
                yield Row(job.series, num_envs, Status.FAILED, reason)
                return
            if line is None:
                yield Row(job.series, num_envs, Status.FAILED, _death(process.wait(), log))
                return
            yield (row := parse(Row, json.loads(line), "series"))
            if row.status is Status.FAILED:
                return
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def _pump(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _death(code: int, log: Path) -> str:
    """Why a process ended without its row."""
    said = log.read_text(errors="replace").strip().splitlines() or [""]
    if code < 0:
        name = signal.Signals(-code).name
        hint = ", as a system does that runs out of memory" if -code == signal.SIGKILL else ""
        return one_line(f"the process was ended by {name}{hint}; last words: {said[-1]}")
    return one_line(f"the process ended with code {code}: {said[-1]}")


@dataclasses.dataclass
class Results:
    """What there is so far, and the files of it."""

    folder: Path
    machine: dict[str, Any]
    options: dict[str, Any]
    rows: list[Row] = dataclasses.field(default_factory=list)
    training: Outcome | str = "not asked for"
    preset: str = "paper"
    finished: bool = False

    def write(self) -> None:
        """Write all three files anew, each whole or not at all."""
        trained = self.training
        write_json(
            self.folder / "results.json",
            {
                "machine": self.machine,
                "versions": versions(),
                "options": self.options,
                "finished": self.finished,
                "rows": [
                    {"case": row.series.name}
                    | dataclasses.asdict(row)
                    | {"bytes_per_env": row.bytes_per_env}
                    for row in self.rows
                ],
                "time_to_target": (
                    dataclasses.asdict(trained) if isinstance(trained, Outcome) else trained
                ),
            },
        )
        with written_whole(self.folder / "report.md") as temporary:
            temporary.write_text(self.report())
        figure = self.figure()
        if figure is not None:
            plots.save(figure, self.folder / "physics_steps.png")

    def report(self) -> str:
        """The results as Markdown."""
        named = ", ".join(f"{name} {number}" for name, number in versions().items())
        text = f"# {self.machine.get('device', 'unknown device')}\n\n"
        text += f"One device of: {self.machine.get('words', '?')}; {named}.\n"
        if not self.finished:
            text += "\nNot finished.\n"
        text += "\n## Speed and memory\n\n"
        text += table(_HEADER, [_cells(row) for row in self.rows])
        text += (
            "\nAn environment step is six physics steps and the automatic reset; a bare"
            " `mjx.step` stands still under the position loop. Compilation holds tracing. Peak is"
            " the device's own figure, without what Warp allocates beside it; planned is XLA's,"
            " arguments, outputs and temporaries of one program, donated ones once. An"
            " environment's share is of the peak where there is one, else of the plan.\n"
        )
        text += f"\n## Training to the pitch target, preset `{self.preset}`\n\n"
        if isinstance(self.training, str):
            return text + self.training + "\n"
        return text + table(time_to_target.HEADER, [time_to_target.as_row("seed 0", self.training)])

    def figure(self) -> Any:
        """Physics steps per second over environments, or None where nothing was measured."""
        curves: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.status is Status.MEASURED:
                curves.setdefault(row.series.name, []).append(row)
        if not curves:
            return None
        fig = plots.new_figure(8.0, 5.0, f"Physics steps on {self.machine.get('device', '?')}")
        ax = fig.subplots()
        for name, rows in curves.items():
            ax.plot(
                [row.num_envs for row in rows],
                [row.physics_steps_per_s or 0.0 for row in rows],
                marker="o",
                markersize=4,
                linewidth=1.6,
                label=name,
                **_line(rows[0].series),
            )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        sizes = sorted({row.num_envs for rows in curves.values() for row in rows})
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        plots.style_axes(ax, "environments", "physics steps per second")
        ax.grid(True, which="minor", axis="y", color="0.95", linewidth=0.6)
        fig.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
        return fig


def _line(series: Series) -> dict[str, Any]:
    """Colour for the model, dashes for the way that it is computed."""
    if series.engine is Engine.BARE_STEP:
        warp = series.backend is Backend.WARP
        return {"color": plots.PALETTE[3 if warp else 4], "linestyle": ":"}
    colours = {Variant.S3N_ACT: 0, Variant.S3N_FULL: 1}
    dashed = series.injection is Injection.MASS_MATRIX
    return {
        "color": plots.PALETTE[colours.get(series.variant, 2)],
        "linestyle": "--" if dashed else "-",
    }


_HEADER = (
    *("case", "environments", "environment steps/s", "physics steps/s", "compilation"),
    *("peak", "planned", "an environment"),
)


def _cells(row: Row) -> tuple[str, ...]:
    """A row under :data:`_HEADER`."""
    name, count = row.series.name, f"{row.num_envs:,}"
    if row.status is not Status.MEASURED:
        return (name, count, f"{row.status}: {row.reason}", *[""] * (len(_HEADER) - 3))

    def number(value: float | None, unit: str = "", per: float = 1.0, digits: int = 0) -> str:
        return "-" if value is None else f"{value / per:,.{digits}f}{unit}"

    return (
        name,
        count,
        number(row.env_steps_per_s),
        number(row.physics_steps_per_s),
        number((row.trace_s or 0.0) + (row.compile_s or 0.0), " s", digits=1),
        number(row.peak_bytes, " MiB", _MIB),
        number(row.predicted and row.predicted.total, " MiB", _MIB, 1),
        number(row.bytes_per_env, " KiB", 1024, 1),
    )


def sweep(
    results: Results,
    series: Sequence[Series],
    sizes: Sequence[int],
    measure: Callable[[Series], Iterator[Row]],
    left_s: Callable[[], float],
    say: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure every series at every size; files are written after every case.

    Args:
        results: filled.
        series: in the order to measure them in.
        sizes: numbers of environments, ascending.
        measure: rows of a series, up to the first that fails; may raise :class:`TimeIsUp`.
        left_s: s until the limit.
        say: takes a line of progress.
        clock: s.
    """
    total, began, taken = len(series) * len(sizes), clock(), 0

    def add(row: Row) -> None:
        results.rows.append(row)
        results.write()
        done = len(results.rows)
        passed = clock() - began
        line = f"[{done:>3}/{total}] {_sentence(row)}"
        if taken:
            line += f"; {duration(passed)} so far"
            line += f", about {duration(passed / taken * (total - done))} to go"
        say(line)

    for each in series:
        missing, why = list(sizes), ""
        try:
            if left_s() <= 0:
                raise TimeIsUp
            for row in measure(each):
                missing.remove(row.num_envs)
                taken += 1
                add(row)
                if row.status is Status.FAILED:
                    why = f"{row.num_envs:,} environments failed"
        except TimeIsUp:
            why = "the time limit has passed (--limit-s)"
        for num_envs in missing:
            add(Row(each, num_envs, Status.SKIPPED, why))


def _sentence(row: Row) -> str:
    text = f"{row.series.name}, {row.num_envs:,} environments: "
    if row.status is not Status.MEASURED:
        return f"{text}{row.status}, {row.reason}"
    if row.env_steps_per_s is not None:
        text += f"{row.env_steps_per_s:,.0f} environment steps/s, "
    text += f"{row.physics_steps_per_s:,.0f} physics steps/s"
    return f"{text}, compiled in {(row.trace_s or 0.0) + (row.compile_s or 0.0):.0f} s"


def describe_machine(log: Path) -> dict[str, Any]:
    """The machine as a process of its own sees it.

    Raises:
        UserError: JAX finds no device there.
    """
    with log.open("ab") as stream:
        done = subprocess.run(
            _SERIES,
            env=environment_of(PROJECT),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        )
    if done.returncode:
        raise UserError(f"JAX does not start here: {_death(done.returncode, log)}")
    return json.loads(done.stdout)


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    options = parse_arguments(GpuBench, args, "python -m benchmarks.gpu")
    if options.quick and options.full:
        raise UserError("--quick and --full: name one of them")
    for name in ("variants", "injections"):
        if not getattr(options, name):
            raise UserError(f"--{name}: name at least one")
    make_folder(options.out)
    began = time.monotonic()

    def left_s() -> float:
        limit = float("inf") if options.limit_s is None else options.limit_s
        return began + limit - time.monotonic()

    log = options.out / "series.log"
    log.write_bytes(b"")
    machine = describe_machine(log)
    quick = options.quick or (machine["platform"] == "cpu" and not options.full)
    sizes = sorted(set(options.num_envs)) or list(QUICK_SIZES if quick else FULL_SIZES)
    series = plan(options, quick)
    policy_steps = options.policy_steps or (5 if quick else 20)
    rounds = options.rounds or (5 if quick else 10)
    print(
        f"{'quick: ' if quick else ''}{len(series)} series of {len(sizes)} on"
        f" {machine['words']}; results: {options.out}",
        flush=True,
    )
    asked = {k: v for k, v in dataclasses.asdict(options).items() if k not in ("out", "target")}
    results = Results(
        options.out,
        machine,
        asked | {"quick": quick, "policy_steps": policy_steps, "rounds": rounds},
        preset=options.preset,
    )
    if quick:
        results.training = "left out of a quick sweep; python -m benchmarks.time_to_target"
    results.write()
    if options.train and not quick:
        results.training = _trained(options, min(options.train_limit_s, left_s()))
        results.write()

    def measure(each: Series) -> Iterator[Row]:
        job = Job(each, tuple(sizes), policy_steps, rounds)
        return run_series(job, log, options.case_limit_s, left_s)

    sweep(results, series, sizes, measure, left_s, lambda line: print(line, flush=True))
    results.finished = True
    results.write()
    print(f"\n{results.report()}\nresults: {options.out} in {duration(time.monotonic() - began)}")


def _trained(options: GpuBench, limit_s: float) -> Outcome | str:
    """Train to the target; a sentence where that could not be tried."""
    if limit_s <= 0:
        return "the time limit has passed (--limit-s)"
    print(f"training with preset {options.preset} to the pitch target", flush=True)
    try:
        trained = time_to_target.measure(
            options.out / "training",
            seed=0,
            preset=options.preset,
            checkpoints=options.checkpoints,
            target=options.target,
            limit_s=limit_s,
        )
    except (UserError, OSError) as error:
        return one_line(str(error))
    print("  " + time_to_target.sentence("seed 0", trained), flush=True)
    return trained


if __name__ == "__main__":
    end_cleanly_when_terminated()
    run(main)
