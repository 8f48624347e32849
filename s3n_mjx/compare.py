"""`python -m s3n_mjx.compare`: the paper's methods, trained alike, against the reference.

Every method is trained from scratch with the same settings and seeds, then evaluated in its own
simulator and on the closed chain. Finished runs and evaluations are kept: a comparison that was
interrupted goes on, and further seeds can be added.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from s3n_mjx import compat, runtime  # noqa: F401 - compat before brax
from s3n_mjx.cli import make_folder, parse_arguments, run
from s3n_mjx.config_files import STRICT, Seed, to_plain
from s3n_mjx.errors import UserError
from s3n_mjx.eval import evaluate_against_closed_chain
from s3n_mjx.evaluation import metrics, plots, shipped
from s3n_mjx.evaluation.compared import SIMULATOR, Compared, Method, recording_file, run_folder
from s3n_mjx.evaluation.comparisons import COMPARISONS
from s3n_mjx.evaluation.report import Picture, Section, Table, Text, text_table, write_report
from s3n_mjx.evaluation.tasks import EVALUATIONS
from s3n_mjx.files import written_whole
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.reference.closed_chain import ClosedChain
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.model import load_robot
from s3n_mjx.simulation.config import Timing
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import run as runs
from s3n_mjx.training.config import RunConfig, load_preset


@dataclass(frozen=True, config=STRICT)
class Compare:
    """Train the methods with equal settings and compare their gaps to the reference.

    Args:
        task: `pitch` or `circle`.
        preset: of all runs.
        seeds: of training; each method is trained once for each.
        variants: methods to compare.
        once: those of them to train with the first seed alone; `s3n_full` there is both of its
            forms.
        injection: how S3N's terms enter; by default that of the preset.
        timing: of the control loop; by default that of the preset.
        beyond_paper: one method more, `s3n_full_beyond`: s3n_full with what the paper's terms
            leave out (base coupling, velocity terms, link gravity), by mass_matrix with staggered
            timing.
        levels: of the closed-chain reference.
        trials: of each policy; by default 3 of pitching and 5 of the circle, as in Table IV.
        duration_s: of a trial.
        settle_s: left out at the beginning of each trial, in s.
        robot: robot.yaml or its folder; the bundled robot by default.
        out: folder of runs, tables, pictures and report; by default runs/compare-TASK.
        policies: folder that gets the first seed's policy of every method, with its figures.
    """

    task: str = "pitch"
    preset: str = "cpu"
    seeds: tuple[Seed, ...] = (0, 1, 2)
    variants: tuple[Variant, ...] = tuple(Variant)
    once: tuple[Variant, ...] = ()
    injection: Injection | None = None
    timing: Timing | None = None
    beyond_paper: bool = False
    levels: tuple[Level, ...] = tuple(Level)
    trials: Annotated[int, Gt(0)] | None = None
    duration_s: Annotated[float, Gt(0)] = 10.0
    settle_s: Annotated[float, Ge(0)] = 1.0
    robot: Path | None = None
    out: Path | None = None
    policies: Path | None = None

    @property
    def folder(self) -> Path:
        """Of all results."""
        return self.out or Path(f"runs/compare-{self.task}")

    @property
    def trials_each(self) -> int:
        """Of each policy, in the simulator and at each level."""
        return self.trials or COMPARISONS[self.task].trials

    @property
    def methods(self) -> dict[Method, tuple[int, ...]]:
        """In the order of the table, with their training seeds."""
        methods = [Method(variant) for variant in self.variants]
        if self.beyond_paper:
            methods.append(Method(Variant.S3N_FULL, beyond_paper=True))
        return {m: self.seeds[:1] if m.variant in self.once else self.seeds for m in methods}


def simulation_of(options: Compare, method: Method) -> dict[str, Any]:
    """What a method changes in the preset's `simulation`."""
    given = {"injection": options.injection, "timing": options.timing}
    changes: dict[str, Any] = {"variant": method.variant}
    changes |= {key: value for key, value in given.items() if value is not None}
    if method.beyond_paper:
        changes |= {
            "injection": Injection.MASS_MATRIX,
            "timing": Timing.STAGGERED,
            "base_coupling": True,
            "velocity_terms": True,
            "link_gravity": True,
        }
    return changes


def run_config(options: Compare, method: Method, seed: int) -> RunConfig:
    """The settings of one run; only method and seed differ between runs."""
    base = load_preset(options.task, options.preset)
    return dataclasses.replace(
        base,
        seed=seed,
        robot=base.robot if options.robot is None else str(options.robot),
        simulation=dataclasses.replace(base.simulation, **simulation_of(options, method)),
    )


def train_command(options: Compare, method: Method, seed: int) -> str:
    """What trains the same policy by itself."""
    words = ["--task", options.task, "--preset", options.preset, "--seed", str(seed)]
    for key, value in simulation_of(options, method).items():
        flag = "--" + key.replace("_", "-")
        words += [flag] if value is True else [flag, str(value)]
    if options.robot is not None:
        words += ["--robot", str(options.robot)]
    return shlex.join(["python", "-m", "s3n_mjx.train", *words])


def changed_files(checkpoint: checkpoints.Checkpoint, config: RunConfig) -> list[str]:
    """Files of the robot that are not what ``checkpoint`` was trained with."""
    robot = load_robot(config.robot or bundled_robot())
    with tempfile.TemporaryDirectory() as folder:
        now = checkpoints.save_robot(robot, Path(folder) / "robot")
    then = checkpoint.metadata.get("robot_sha256") or {}
    # An archive's bytes hold times of day; its robot.yaml is compared all the same.
    return [n for n in now if not n.endswith(".zip") and then.get(n) != now[n]]


def check(options: Compare) -> None:
    """Refuse before the first training what could only fail after it.

    Raises:
        UserError: one line.
    """
    if options.settle_s >= options.duration_s:
        raise UserError(
            f"--settle-s: {options.settle_s:g} s leaves nothing of --duration-s"
            f" {options.duration_s:g} s"
        )
    for method in options.methods:
        config = run_config(options, method, options.seeds[0])
        env = runs.make_env(config)
        if options.duration_s < env.dt:
            raise UserError(
                f"--duration-s: {options.duration_s:g} s is less than a policy step of {env.dt:g} s"
            )
        if options.duration_s < options.settle_s + env.period_s:
            raise UserError(
                f"--duration-s: {options.duration_s:g} s; --settle-s {options.settle_s:g} s and"
                f" one period of {env.period_s:.2f} s are the least to compare"
            )
        if not all(env.command_meta.values()):
            zero = next(key for key, value in env.command_meta.items() if not value)
            raise UserError(f"--preset {options.preset}: {zero} is 0; nothing moves to compare")
        ClosedChain(env.robot, config.simulation.timestep_s)
    make_folder(options.folder)
    if options.policies is not None:
        make_folder(options.policies, "--policies")


def trained(config: RunConfig, folder: Path) -> Path:
    """The last checkpoint of the run in ``folder``, trained or trained on as far as need be.

    Raises:
        UserError: ``folder`` holds a run with other settings.
    """
    with runs.held(folder):
        return _trained(config, folder)


def _trained(config: RunConfig, folder: Path) -> Path:
    if (folder / runs.CONFIG_FILE).exists():
        kept = runs.load_config(folder)
        if to_plain(kept) != to_plain(config):
            raise UserError(
                f"{folder}: holds a run with other settings; name another --out, or remove it"
            )
        start = runs.resume_from(folder)
        env = None
        if start.checkpoint is not None:
            if changed_files(start.checkpoint, config):
                raise UserError(
                    f"{folder}: trained with other files of the robot"
                    f" ({', '.join(changed_files(start.checkpoint, config))} changed since);"
                    " name another --out, or remove it"
                )
            env = runs.make_env(config, start.checkpoint.robot)
        return runs.train(config, folder, start, env=env)
    runs.prepare_folder(folder, config)
    return runs.train(config, folder)


def gaps_of(options: Compare, path: Path, folder: Path) -> dict[str, dict[str, float]]:
    """A policy's figures in its simulator and its gap at every level; kept in ``folder``."""
    levels = [str(level) for level in options.levels]
    settings = {
        "checkpoint": path.name,
        "trials": options.trials_each,
        "duration_s": options.duration_s,
        "settle_s": options.settle_s,
    }
    file = folder / "gaps.json"
    kept = {}
    if file.is_file():
        stored = json.loads(file.read_text())
        if stored.get("settings") == settings:
            kept = {
                side: gap
                for side, gap in stored["gaps"].items()
                if recording_file(folder, side, options.trials_each - 1).is_file()
            }
    # Every level is measured beside the simulator, which is kept or measured with them.
    missing = [level for level in options.levels if {str(level), SIMULATOR} - set(kept)]
    if missing:
        task = EVALUATIONS[options.task]
        all_trials = evaluate_against_closed_chain(
            checkpoints.load(path), options.trials_each, options.duration_s, 0, missing
        )
        for level, trials in all_trials.items():
            kept[str(level)] = task.gap(trials.simulated, trials.reference, options.settle_s)
            kept[SIMULATOR] = task.metrics(trials.simulated, options.settle_s)
            for side, group in ((SIMULATOR, trials.simulated), (level, trials.reference)):
                for number, recording in enumerate(group):
                    recording.save(recording_file(folder, side, number))
        with written_whole(file) as temporary:
            temporary.write_text(json.dumps({"settings": settings, "gaps": kept}, indent=2) + "\n")
    return {key: kept[key] for key in [SIMULATOR, *levels]}


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Compare, args, "python -m s3n_mjx.compare")
    if options.task not in COMPARISONS:
        raise UserError(
            f"--task: no comparison of task {options.task!r}; known: {', '.join(COMPARISONS)}"
        )
    for name in ("seeds", "variants", "levels"):
        values = getattr(options, name)
        if not values or len(set(values)) != len(values):
            raise UserError(f"--{name}: give at least one, and none twice")
    for variant in options.once:
        if variant not in options.variants:
            raise UserError(f"--once: {variant} is not among --variants")
    check(options)
    task = COMPARISONS[options.task]
    gaps: dict[tuple[Method, int], dict[str, dict[str, float]]] = {}
    # Seed by seed, so that a comparison that is stopped has all methods of the seeds it did.
    work = [
        (method, seed)
        for seed in options.seeds
        for method, seeds in options.methods.items()
        if seed in seeds
    ]
    checkpoint_of = {}
    for number, (method, seed) in enumerate(work, start=1):
        folder = run_folder(options.folder, method, seed)
        print(f"run {number} of {len(work)}: {method.name}, seed {seed} ({folder})", flush=True)
        path = trained(run_config(options, method, seed), folder)
        checkpoint_of[method, seed] = path
        found = gaps_of(options, path, folder)
        gaps[method, seed] = found
        headline = task.headline
        told = ", ".join(
            f"{level} {found[level][headline.key]:.{headline.decimals}f}"
            for level in options.levels
        )
        print(f"  gap, {headline.header}: {told}", flush=True)
    compared = Compared(
        options.folder, options.methods, gaps, options.trials_each, options.settle_s
    )
    _write(options, compared, checkpoints.load(checkpoint_of[work[0]]).metadata)
    if options.policies is not None:
        for method, seeds in options.methods.items():
            shipped.ship(
                checkpoint_of[method, seeds[0]],
                options.policies / f"{options.task}-{method.name}",
                options.task,
                train_command(options, method, seeds[0]),
                {
                    "trials": options.trials_each,
                    "duration_s": options.duration_s,
                    "settle_s": options.settle_s,
                },
                gaps[method, seeds[0]],
            )
        shipped.write_index(options.policies)
        print(f"policies: {options.policies}")
    print(f"\nresults: {options.folder} (report.html, compare.json, *.png)")


def _write(options: Compare, compared: Compared, metadata: Mapping[str, Any]) -> None:
    task = COMPARISONS[options.task]
    levels = [str(level) for level in options.levels]
    seeds = ", ".join(str(seed) for seed in options.seeds)
    once = ", ".join(options.once)
    told = f"{seeds} ({once}: {options.seeds[0]})" if once else seeds
    sections = []
    for level in levels:
        header, rows = task.table(compared, level)
        print(f"\nclosed chain, {level}: mean over trials; mean ± std over training seeds {told}")
        print(text_table(header, rows))
        sections.append(
            Section(
                f"Closed chain, {level}",
                (Table(header, tuple(rows), "Mean ± sample standard deviation over seeds"),),
            )
        )
    data = {
        "settings": {k: v for k, v in to_plain(options).items() if k not in ("out", "policies")}
        | {"trials": options.trials_each},
        "gaps": {
            f"{method.name}-seed{seed}": {
                key: metrics.finite(values) for key, values in found.items()
            }
            for (method, seed), found in compared.gaps.items()
        },
    }
    with written_whole(options.folder / "compare.json") as temporary:
        temporary.write_text(json.dumps(data, indent=2) + "\n")
    pictures = task.pictures(compared, levels)
    for name, (figure, _) in pictures.items():
        plots.save(figure, options.folder / f"{name}.png")
    sections.append(
        Section(
            "Figures",
            tuple(Picture(figure, caption, caption) for figure, caption in pictures.values()),
        )
    )
    sections.append(
        Section(
            "How to read this",
            (
                Text(
                    "The reference is the closed-chain model, a stand-in for hardware; the paper's"
                    " columns are hardware and another robot, so only changes compare. GRF is the"
                    " norm of the ground reaction force of a foot; E_phi and E_RMSE are Eq. 36 and"
                    " 34 of the paper. s3n_full_beyond is s3n_full with base coupling, velocity"
                    " terms and link gravity, which the paper leaves out."
                ),
            ),
        )
    )
    write_report(
        options.folder / "report.html",
        f"{options.task}: methods against the closed chain",
        f"Training seeds {told}, preset {options.preset}, {options.trials_each} trials of"
        f" {options.duration_s:g} s each.",
        tuple(sections),
        {"seeds": told, "versions": _versions(metadata)},
    )


def _versions(metadata: Mapping) -> str:
    return ", ".join(f"{k} {v}" for k, v in (metadata.get("versions") or {}).items())


if __name__ == "__main__":
    run(main)
