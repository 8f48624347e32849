"""`python -m s3n_mjx.compare`: the paper's four methods, trained alike, against the reference.

Every method is trained from scratch with the same settings and seeds, then evaluated in its own
simulator and on the closed chain. Finished runs and evaluations are kept: a comparison that was
interrupted goes on, and further seeds can be added.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from s3n_mjx import compat, runtime  # noqa: F401 - compat before brax
from s3n_mjx.cli import parse_arguments, run
from s3n_mjx.config_files import STRICT, to_plain
from s3n_mjx.errors import UserError
from s3n_mjx.eval import Trials, evaluate_against_closed_chain
from s3n_mjx.evaluation import comparison_plots, metrics, plots
from s3n_mjx.evaluation.gaps import pitch_gap
from s3n_mjx.evaluation.report import Picture, Section, Table, Text, text_table, write_report
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

# Rear-right GRF-norm RMSE in N and pitch-rate RMSE in percent of its peak to peak on hardware
# (paper, Figs. 10 and 11); the paper's text gives no GRF figure for Kin-Only HR.
PAPER_PITCH: dict[Variant, tuple[float | None, float]] = {
    Variant.KIN_ONLY: (27.1, 3.95),
    Variant.KIN_ONLY_HR: (None, 4.92),
    Variant.S3N_ACT: (9.5, 1.62),
    Variant.S3N_FULL: (10.2, 2.64),
}


@dataclass(frozen=True, config=STRICT)
class Compare:
    """Train the four methods with equal settings and compare their gaps to the reference.

    Args:
        task: only `pitch` so far.
        preset: of all runs.
        seeds: of training; each method is trained once for each.
        variants: methods to compare.
        injection: how S3N's terms enter; by default that of the preset.
        timing: of the control loop; by default that of the preset.
        beyond_paper: give s3n_full what the paper's terms leave out, by mass_matrix with staggered
            timing: base coupling, velocity terms and link gravity.
        levels: of the closed-chain reference.
        trials: of each policy.
        duration_s: of a trial.
        settle_s: left out at the beginning of each trial, in s.
        robot: robot.yaml or its folder; the bundled robot by default.
        out: folder of runs, tables, pictures and report.
    """

    task: str = "pitch"
    preset: str = "cpu"
    seeds: tuple[Annotated[int, Ge(0)], ...] = (0, 1, 2)
    variants: tuple[Variant, ...] = tuple(Variant)
    injection: Injection | None = None
    timing: Timing | None = None
    beyond_paper: bool = False
    levels: tuple[Level, ...] = tuple(Level)
    trials: Annotated[int, Gt(0)] = 3
    duration_s: Annotated[float, Gt(0)] = 10.0
    settle_s: Annotated[float, Ge(0)] = 1.0
    robot: Path | None = None
    out: Path = Path("runs/compare-pitch")


Gaps = dict[tuple[Variant, int], dict[str, dict[str, float]]]  # by level, and "simulator"


def run_config(options: Compare, variant: Variant, seed: int) -> RunConfig:
    """The settings of one run; only variant and seed differ between runs."""
    base = load_preset(options.task, options.preset)
    given = {"injection": options.injection, "timing": options.timing}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if options.beyond_paper and variant is Variant.S3N_FULL:
        changes |= {
            "injection": Injection.MASS_MATRIX,
            "timing": Timing.STAGGERED,
            "base_coupling": True,
            "velocity_terms": True,
            "link_gravity": True,
        }
    robot = base.robot if options.robot is None else str(options.robot)
    return dataclasses.replace(
        base,
        seed=seed,
        robot=robot,
        simulation=dataclasses.replace(base.simulation, variant=variant, **changes),
    )


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
    for variant in options.variants:
        config = run_config(options, variant, options.seeds[0])
        env = runs.make_env(config)
        if options.duration_s < env.dt:
            raise UserError(
                f"--duration-s: {options.duration_s:g} s is less than a policy step of {env.dt:g} s"
            )
        ClosedChain(env.robot, config.simulation.timestep_s)


def trained(config: RunConfig, folder: Path) -> Path:
    """The last checkpoint of the run in ``folder``, trained or trained on as far as need be.

    Raises:
        UserError: ``folder`` holds a run with other settings.
    """
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
        "trials": options.trials,
        "duration_s": options.duration_s,
        "settle_s": options.settle_s,
    }
    file = folder / "gaps.json"
    kept = {}
    if file.is_file():
        stored = json.loads(file.read_text())
        if stored.get("settings") == settings:
            kept = stored["gaps"]
    missing = [level for level in options.levels if str(level) not in kept]
    if missing:
        all_trials = evaluate_against_closed_chain(
            checkpoints.load(path), options.trials, options.duration_s, 0, missing
        )
        for level, trials in all_trials.items():
            kept[str(level)] = pitch_gap(trials.simulated, trials.reference, options.settle_s)
            kept["simulator"] = metrics.pitch_metrics(trials.simulated, options.settle_s)
            _keep_recordings(folder / "recordings", level, trials)
        with written_whole(file) as temporary:
            temporary.write_text(json.dumps({"settings": settings, "gaps": kept}, indent=2) + "\n")
    return {key: kept[key] for key in ["simulator", *levels]}


def _keep_recordings(folder: Path, level: Level, trials: Trials) -> None:
    """One trial of each side, for the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    trials.simulated[0].save(folder / "simulator.npz")
    trials.reference[0].save(folder / f"{level}.npz")


def _mean_and_spread(values: Sequence[float], decimals: int) -> str:
    known = [v for v in values if v is not None and np.isfinite(v)]
    if not known:
        return "-"
    mean = f"{np.mean(known):.{decimals}f}"
    return f"{mean} ± {np.std(known, ddof=1):.{decimals}f}" if len(known) > 1 else mean


HEADER = (
    "method",
    "GRF, all feet [N]",
    "change",
    "GRF, {foot} [N]",
    "pitch rate [%]",
    "all feet down [%]",
    "pitch error [rad]",
    "paper, GRF [N]",
    "paper, pitch rate [%]",
)


def rows_of(options: Compare, gaps: Gaps, level: Level, foot: str) -> list[tuple[str, ...]]:
    """A row for each method: mean and sample standard deviation over seeds."""

    def forces_of(variant: Variant) -> list[float]:
        return [gaps[variant, seed][level]["grf_norm_rmse_n"] for seed in options.seeds]

    rows = []
    base = None
    if Variant.KIN_ONLY in options.variants:
        base = np.mean(forces_of(Variant.KIN_ONLY))
    for variant in options.variants:
        of = [gaps[variant, seed] for seed in options.seeds]
        forces = forces_of(variant)
        change = (
            ""
            if base is None or variant is Variant.KIN_ONLY
            else (f"{100 * (np.mean(forces) / base - 1):+.1f} %")
        )
        paper = PAPER_PITCH[variant]
        rows.append(
            (
                str(variant),
                _mean_and_spread(forces, 2),
                change,
                _mean_and_spread([g[level][f"grf_norm_rmse_n_{foot}"] for g in of], 2),
                _mean_and_spread([g[level]["pitch_rate_rmse_percent"] for g in of], 2),
                _mean_and_spread([100 * g["simulator"]["contact_kept_fraction"] for g in of], 1),
                _mean_and_spread([g["simulator"]["pitch_rmse_rad"] for g in of], 4),
                "-" if paper[0] is None else f"{paper[0]:.1f}",
                f"{paper[1]:.2f}",
            )
        )
    return rows


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Compare, args, "python -m s3n_mjx.compare")
    if options.task != "pitch":
        raise UserError(f"--task: no comparison of task {options.task!r}; known: pitch")
    for name in ("seeds", "variants", "levels"):
        values = getattr(options, name)
        if not values or len(set(values)) != len(values):
            raise UserError(f"--{name}: give at least one, and none twice")
    check(options)
    gaps: Gaps = {}
    total = len(options.seeds) * len(options.variants)
    for seed in options.seeds:
        for variant in options.variants:
            folder = options.out / f"{variant}-seed{seed}"
            print(f"run {len(gaps) + 1} of {total}: {variant}, seed {seed} ({folder})", flush=True)
            path = trained(run_config(options, variant, seed), folder)
            found = gaps_of(options, path, folder)
            gaps[variant, seed] = found
            told = ", ".join(
                f"{level} {found[level]['grf_norm_rmse_n']:.2f} N" for level in options.levels
            )
            print(f"  gap of ground reaction forces, RMSE: {told}", flush=True)
    _write(options, gaps)


def _write(options: Compare, gaps: Gaps) -> None:
    first = checkpoints.load(options.out / f"{options.variants[0]}-seed{options.seeds[0]}")
    feet = first.robot.feet
    foot = feet[-1]  # rear right on the bundled robot, as in the paper
    header = tuple(h.format(foot=foot) for h in HEADER)
    data: dict[str, object] = {
        "settings": {k: v for k, v in to_plain(options).items() if k != "out"}
    }
    sections = []
    for level in options.levels:
        rows = rows_of(options, gaps, level, foot)
        print(f"\nclosed chain, {level}: RMSE over trials, mean ± std over seeds {_list(options)}")
        print(text_table(header, rows))
        sections.append(
            Section(
                f"Closed chain, {level}",
                (Table(header, tuple(rows), "Mean ± sample standard deviation over seeds"),),
            )
        )
    data["gaps"] = {
        f"{variant}-seed{seed}": {key: metrics.finite(values) for key, values in found.items()}
        for (variant, seed), found in gaps.items()
    }
    with written_whole(options.out / "compare.json") as temporary:
        temporary.write_text(json.dumps(data, indent=2) + "\n")
    level = options.levels[0]
    pictures = {
        "grf_gap": comparison_plots.grf_gap(
            options.out, options.variants, options.seeds, str(level), options.settle_s
        ),
        "grf_rmse": comparison_plots.grf_bars(
            gaps, options.variants, options.seeds, options.levels
        ),
        "pitch_rate": comparison_plots.pitch_rates(
            options.out, options.variants, options.seeds[0], str(level), options.settle_s
        ),
    }
    for name, figure in pictures.items():
        plots.save(figure, options.out / f"{name}.png")
    captions = {
        "grf_gap": "Gap of the ground-reaction-force norm over one cycle (as Fig. 11a)",
        "grf_rmse": "RMSE of the ground-reaction-force norm, every seed (as Fig. 11b)",
        "pitch_rate": "Pitch rate over one cycle, simulator and reference (as Fig. 10)",
    }
    sections.append(
        Section(
            "Figures",
            tuple(Picture(figure, captions[n], captions[n]) for n, figure in pictures.items()),
        )
    )
    sections.append(
        Section(
            "How to read this",
            (
                Text(
                    "The reference is the closed-chain model, a stand-in for hardware; the paper's"
                    " columns are hardware and another robot, so only changes compare. GRF is the"
                    " norm of the ground reaction force of a foot."
                ),
            ),
        )
    )
    write_report(
        options.out / "report.html",
        f"{options.task}: four methods against the closed chain",
        f"{len(options.seeds)} training seeds, preset {options.preset}.",
        tuple(sections),
        {
            "seeds": _list(options),
            "terms": "s3n_full with base coupling, velocity terms and link gravity"
            if options.beyond_paper
            else "the paper's",
            "versions": _versions(first.metadata),
        },
    )
    print(f"\nresults: {options.out} (report.html, compare.json, *.png)")


def _list(options: Compare) -> str:
    return ", ".join(str(seed) for seed in options.seeds)


def _versions(metadata: Mapping) -> str:
    return ", ".join(f"{k} {v}" for k, v in (metadata.get("versions") or {}).items())


if __name__ == "__main__":
    run(main)
