"""`python -m s3n_mjx.eval --checkpoint PATH`: what a trained policy does.

Prints a table and leaves a report, `metrics.json`, plots, the recording and, where a GL is found,
a video. With `--against` it measures the gap to the closed-chain robot or to a measured log.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt
from matplotlib.figure import Figure
from pydantic.dataclasses import dataclass

from s3n_mjx import compat, runtime  # noqa: F401 - compat before brax
from s3n_mjx.cli import parse_arguments, run
from s3n_mjx.config_files import STRICT, Seed
from s3n_mjx.envs.base import RobotEnv
from s3n_mjx.envs.randomization import LegRandomization
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation import metrics, plots, report, video
from s3n_mjx.evaluation.logs import read_log, write_log
from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.evaluation.rollout import rollout
from s3n_mjx.evaluation.tasks import EVALUATIONS, PICTURES, Groups
from s3n_mjx.files import written_whole
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.reference.rollout import rollout_reference
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import run as runs
from s3n_mjx.training.metrics_log import read_rows
from s3n_mjx.training.policy import Policy, load_params, make_policy

CLOSED_CHAIN = "closed_chain"


@dataclass(frozen=True, config=STRICT)
class Evaluate:
    """Evaluate a checkpoint in the simulator that it was trained in, and against a reference.

    Args:
        checkpoint: checkpoint folder, run folder, any level between, or a folder of runs; the
            newest checkpoint counts.
        against: `closed_chain` for the stand-in for hardware, or a measured log (CSV, NPZ or
            Parquet, see docs/logs.md); the gap to it is measured then.
        level: of the closed chain: ideal linkage, or with friction, noise and parameter error.
        out: folder for the results; by default `eval/STEP` in the run folder, and
            `runs/eval/NAME` for a checkpoint outside of one, with `-closed_chain-LEVEL` or
            `-log-NAME` behind it when there is a reference. Results of an earlier evaluation
            there give way.
        episodes: how many, side by side.
        duration_s: length of each episode in s.
        settle_s: left out of the tracking figures at the start of each episode, in s.
        seed: of the resets, and of the reference's imperfections.
        write_logs: keep every recording as a log, too, such as measured ones are read from.
        video: render an mp4 of the first episode where a GL is found.
        video_s: how much of the episode the video shows, in s.
        video_speed: seconds of the episode in a second of video.
    """

    checkpoint: Path
    against: str | None = None
    level: Level = Level.IDEAL
    out: Path | None = None
    episodes: Annotated[int, Gt(0)] = 4
    duration_s: Annotated[float, Gt(0)] = 10.0
    settle_s: Annotated[float, Ge(0)] = 1.0
    seed: Seed = 0
    write_logs: bool = False
    video: bool = True
    video_s: Annotated[float, Gt(0)] = 2.0
    video_speed: Annotated[float, Gt(0)] = 0.25


def nominal_env(checkpoint: checkpoints.Checkpoint, at_rest: bool = False) -> RobotEnv:
    """The checkpoint's task as it is evaluated, on the nominal robot.

    Args:
        checkpoint: read back.
        at_rest: let episodes begin without velocity, as a robot on the ground does.
    """
    task = checkpoint.config.env.evaluated()
    if at_rest:
        body = dataclasses.replace(task.body, reset_velocity_noise=0.0)
        task = dataclasses.replace(task, body=body)
    config = dataclasses.replace(
        checkpoint.config, leg_randomization=LegRandomization.NONE, env=task
    )
    return runs.make_env(config, checkpoint.robot)


def policy_of(checkpoint: checkpoints.Checkpoint, env: RobotEnv) -> Policy:
    """The checkpoint's deterministic policy."""
    params = load_params(checkpoint, env.observation_size, env.action_size)
    return make_policy(checkpoint.config.ppo, params, env.observation_size, env.action_size)


def evaluate(
    checkpoint: checkpoints.Checkpoint, episodes: int, duration_s: float, seed: int
) -> tuple[list[Recording], RobotEnv]:
    """Recordings of a checkpoint's deterministic policy, and the environment they are from."""
    env = nominal_env(checkpoint)
    return rollout(env, policy_of(checkpoint, env), episodes, duration_s, seed), env


@dataclasses.dataclass(frozen=True)
class Trials:
    """Simulated trials and, trial by trial, what the reference did."""

    env: RobotEnv
    simulated: list[Recording]
    reference: list[Recording]


def evaluate_against_closed_chain(
    checkpoint: checkpoints.Checkpoint,
    episodes: int,
    duration_s: float,
    seed: int,
    levels: Sequence[Level] = (Level.IDEAL,),
) -> dict[Level, Trials]:
    """The same policy, from the same postures at rest, in the simulator and on the closed chain."""
    env = nominal_env(checkpoint, at_rest=True)
    policy = policy_of(checkpoint, env)
    simulated = rollout(env, policy, episodes, duration_s, seed)
    return {
        level: Trials(
            env,
            simulated,
            rollout_reference(env, policy, simulated, duration_s, level, seed),
        )
        for level in levels
    }


def evaluate_against_log(
    checkpoint: checkpoints.Checkpoint, path: Path, duration_s: float, settle_s: float, seed: int
) -> Trials:
    """A simulated trial from the command's onset on, beside a measured one, cut to the same time.

    Raises:
        UserError: the log is not valid, too short, or of another command.
    """
    env = nominal_env(checkpoint, at_rest=True)
    robot = env.robot
    log = read_log(path, robot.joints, robot.feet, robot.torque_limit)
    for key, value in env.command_meta.items():
        logged = log.meta.get(key)
        if logged is None:
            raise UserError(
                f"{path}: metadata has no `{key}`; add `# {key}: VALUE` above the header"
            )
        if not np.isclose(logged, value, rtol=1e-3):
            raise UserError(
                f"{path}: {key} is {logged:g}, the policy was trained for {value:g}; record that"
                " command, or train for this one"
            )
    duration = min(duration_s, float(log.time[-1]))
    needed = settle_s + env.period_s
    if log.time[0] > settle_s or duration < needed:
        raise UserError(
            f"{path}: covers {log.time[0]:.3f} to {log.time[-1]:.3f} s after the command's onset;"
            f" at least {settle_s:g} to {needed:g} s are needed (--settle-s {settle_s:g} and one"
            " period)"
        )
    log = log.slice_time(0.0, duration)
    phase, _ = env.command_at(0.0, log.meta)
    simulated = rollout(env, policy_of(checkpoint, env), 1, duration, seed, phase)
    return Trials(env, simulated, [log])


def default_folder(checkpoint: Path, kind: str = "eval", suffix: str = "") -> Path:
    """`RUN/eval/STEP` for a checkpoint of a run folder, `runs/eval/NAME` for any other one.

    Args:
        checkpoint: its folder.
        kind: what lies there, in the place of `eval`.
        suffix: of the last folder's name.
    """
    if checkpoint.parent.name == "checkpoints":
        return checkpoint.parent.parent / kind / f"{checkpoint.name}{suffix}"
    return Path("runs") / kind / f"{checkpoint.resolve().name}{suffix}"


def suffix_of(against: str | None, level: Level) -> str:
    """Of the folder of an evaluation: results against a reference lie beside those without one.

    Args:
        against: as of the command line.
        level: of the closed chain.
    """
    if against is None:
        return ""
    return f"-{against}-{level}" if against == CLOSED_CHAIN else f"-log-{Path(against).stem}"


TRAINING_CURVE = "training_curve"
_WRITTEN = (
    *("metrics.json", "report.html", "recording.npz", "video.mp4"),
    *(f"{name}.png" for name in (*PICTURES, TRAINING_CURVE)),
)
_WRITTEN_LOG = re.compile(r"(simulated|reference)_\d+\.csv")


def remove_results(folder: Path, but: Path | None = None) -> None:
    """Remove what an earlier evaluation left in ``folder``, and nothing that others did.

    Args:
        folder: of results; may be missing.
        but: a file to keep: the log to compare with may be one that an evaluation wrote.
    """
    logs = folder / "logs"
    written = [folder / name for name in _WRITTEN]
    if logs.is_dir():
        written += [path for path in logs.iterdir() if _WRITTEN_LOG.fullmatch(path.name)]
    for path in written:
        if but is None or path.resolve() != but.resolve():
            path.unlink(missing_ok=True)
    if logs.is_dir() and not any(logs.iterdir()):
        logs.rmdir()


def _checked(options: Evaluate) -> checkpoints.Checkpoint:
    if options.settle_s >= options.duration_s:
        raise UserError(
            f"--settle-s: {options.settle_s:g} s leaves nothing of --duration-s"
            f" {options.duration_s:g} s"
        )
    against = options.against
    if against not in (None, CLOSED_CHAIN) and not Path(against).is_file():
        raise UserError(f"--against: no log {against!r}; give {CLOSED_CHAIN} or the path of a log")
    checkpoint = checkpoints.load(options.checkpoint)
    period = checkpoint.config.simulation.control_timestep_s
    if options.duration_s < period:
        raise UserError(
            f"--duration-s: {options.duration_s:g} s is less than a policy step of {period:g} s"
        )
    return checkpoint


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Evaluate, args, "python -m s3n_mjx.eval")
    checkpoint = _checked(options)
    simulation = checkpoint.config.simulation
    print(f"checkpoint {checkpoint.path}: {checkpoint.task}, {simulation.variant} by", end=" ")
    print(f"{simulation.injection}, {checkpoint.env_steps:,} environment steps")
    log = options.against not in (None, CLOSED_CHAIN)
    print(
        f"{metrics.counted(1 if log else options.episodes, 'episode')} of {options.duration_s:g} s"
        f"{' at most' if log else ''} in the simulator it was trained in, nominal robot, on"
        f" {runtime.machine()}; compiling",
        flush=True,
    )
    length = options.episodes, options.duration_s, options.seed
    reference: list[Recording] = []
    against = ""
    if options.against is None:
        recordings, env = evaluate(checkpoint, *length)
    else:
        if options.against == CLOSED_CHAIN:
            against = f"closed chain, {options.level}"
            trials = evaluate_against_closed_chain(checkpoint, *length, (options.level,))[
                options.level
            ]
        else:
            against = f"log {options.against}"
            trials = evaluate_against_log(
                checkpoint,
                Path(options.against),
                options.duration_s,
                options.settle_s,
                options.seed,
            )
        env, recordings, reference = trials.env, trials.simulated, trials.reference

    task = EVALUATIONS[checkpoint.task]
    figures = task.metrics(recordings, options.settle_s)
    print()
    print(metrics.metric_table(figures))
    gap: dict[str, float] = {}
    if reference:
        gap = task.gap(recordings, reference, options.settle_s)
        print(f"\ngap to the reference ({against})")
        print(metrics.metric_table(gap))
    print()
    folder = options.out or default_folder(
        checkpoint.path, suffix=suffix_of(options.against, options.level)
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_results(folder, Path(options.against) if options.against else None)
        write_json(folder / "metrics.json", figures | gap)
    except OSError as error:
        raise UserError(f"--out: {folder} cannot be written ({error})") from None
    recordings[0].save(folder / "recording.npz")
    if options.write_logs:
        for name, group in (("simulated", recordings), ("reference", reference)):
            for number, recording in enumerate(group):
                write_log(recording, folder / "logs" / f"{name}_{number}.csv")
    groups = Groups(recordings, reference, against)
    pictures = task.pictures(groups, options.settle_s)
    rows = read_rows(checkpoint.path.parent.parent / runs.METRICS_FILE)
    if rows:
        pictures[TRAINING_CURVE] = plots.training_curve(rows), "How it was learnt"
    for name, (figure, _) in pictures.items():
        plots.save(figure, folder / f"{name}.png")
    film = _render(options, env, recordings[0], folder) if options.video else None
    _report(options, checkpoint, figures, gap, against, pictures, film, folder)
    print(f"results: {folder} (report.html, metrics.json, recording.npz, *.png)")


def write_json(path: Path, figures: Mapping[str, float]) -> None:
    """Figures as a JSON object, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(metrics.finite(figures), indent=2) + "\n")


def _render(options: Evaluate, env: RobotEnv, recording: Recording, folder: Path) -> Path | None:
    print(f"rendering {options.video_s:g} s at {options.video_speed:g} of real time", flush=True)
    settled = recording.duration_s > options.settle_s  # it may have fallen before
    start = recording.time[0] + (options.settle_s if settled else 0.0)
    outcome = video.render(
        env.normalized.model,
        recording.slice_time(start, start + options.video_s),
        folder / "video.mp4",
        fps=25.0,
        camera="track",
        speed=options.video_speed,
    )
    print(outcome.message)
    return outcome.path


def _report(
    options: Evaluate,
    checkpoint: checkpoints.Checkpoint,
    figures: Mapping[str, float],
    gap: Mapping[str, float],
    against: str,
    pictures: Mapping[str, tuple[Figure, str]],
    film: Path | None,
    folder: Path,
) -> None:
    simulation = checkpoint.config.simulation
    sections = [report.Section("In the simulator", (report.table_of(figures),))]
    if gap:
        sections.append(report.Section(f"Gap to the {against}", (report.table_of(gap),)))
    blocks: list[report.Block] = [
        report.Picture(figure, caption, caption) for figure, caption in pictures.values()
    ]
    if film is not None:
        blocks.append(
            report.Video(film, f"The first episode at {options.video_speed:g} of real time")
        )
    sections.append(report.Section("Figures", tuple(blocks)))
    versions = checkpoint.metadata.get("versions") or {}
    report.write_report(
        folder / "report.html",
        f"{checkpoint.task}: {simulation.variant} by {simulation.injection}",
        EVALUATIONS[checkpoint.task].summary(figures, gap, against),
        tuple(sections),
        {
            "checkpoint": f"{checkpoint.path.name}, seed {checkpoint.config.seed}",
            "robot": checkpoint.robot.description.name,
            "timing": str(simulation.timing),
            "episodes": f"{int(figures['episodes'])} of {figures['duration_s']:.2f} s,"
            f" seed {options.seed}",
            "trained with": ", ".join(f"{k} {v}" for k, v in versions.items()),
        },
    )


if __name__ == "__main__":
    run(main)
