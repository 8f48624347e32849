"""`python -m s3n_mjx.eval --checkpoint PATH`: what a trained policy does.

Prints a table and leaves `metrics.json`, plots, the recording and, where a GL is found, a video.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from s3n_mjx import compat, runtime  # noqa: F401 - compat before brax
from s3n_mjx.cli import parse_arguments, run
from s3n_mjx.config_files import STRICT
from s3n_mjx.envs.pitch import PitchEnv
from s3n_mjx.envs.randomization import LegRandomization
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation import metrics, plots, video
from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.evaluation.rollout import rollout
from s3n_mjx.files import written_whole
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import run as runs
from s3n_mjx.training.metrics_log import read_rows
from s3n_mjx.training.policy import load_params, make_policy


@dataclass(frozen=True, config=STRICT)
class Evaluate:
    """Evaluate a checkpoint in the simulator that it was trained in.

    Args:
        checkpoint: checkpoint folder, run folder, any level between, or a folder of runs; the
            newest checkpoint counts.
        out: folder for the results; by default `eval/STEP` in the run folder.
        episodes: how many, side by side.
        duration_s: length of each episode in s.
        settle_s: left out of the tracking figures at the start of each episode, in s.
        seed: of the resets.
        video: render an mp4 of the first episode where a GL is found.
        video_s: how much of the episode the video shows, in s.
        video_speed: seconds of the episode in a second of video.
    """

    checkpoint: Path
    out: Path | None = None
    episodes: Annotated[int, Gt(0)] = 4
    duration_s: Annotated[float, Gt(0)] = 10.0
    settle_s: Annotated[float, Ge(0)] = 1.0
    seed: Annotated[int, Ge(0)] = 0
    video: bool = True
    video_s: Annotated[float, Gt(0)] = 2.0
    video_speed: Annotated[float, Gt(0)] = 0.25


def evaluate(
    checkpoint: checkpoints.Checkpoint, episodes: int, duration_s: float, seed: int
) -> tuple[list[Recording], PitchEnv]:
    """Recordings of a checkpoint's deterministic policy, and the environment they are from."""
    # On the nominal robot, whatever the legs were randomized to in training.
    config = dataclasses.replace(checkpoint.config, leg_randomization=LegRandomization.NONE)
    env = runs.make_env(config, checkpoint.robot)
    params = load_params(checkpoint, env.observation_size, env.action_size)
    policy = make_policy(checkpoint.config.ppo, params, env.observation_size, env.action_size)
    return rollout(env, policy, episodes, duration_s, seed), env


def default_folder(checkpoint: Path) -> Path:
    """`RUN/eval/STEP` for a checkpoint of a run folder, `eval` inside any other one."""
    if checkpoint.parent.name == "checkpoints":
        return checkpoint.parent.parent / "eval" / checkpoint.name
    return checkpoint / "eval"


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Evaluate, args, "python -m s3n_mjx.eval")
    if options.settle_s >= options.duration_s:
        raise UserError(
            f"--settle-s: {options.settle_s:g} s leaves nothing of --duration-s"
            f" {options.duration_s:g} s"
        )
    checkpoint = checkpoints.load(options.checkpoint)
    period = checkpoint.config.simulation.control_timestep_s
    if options.duration_s < period:
        raise UserError(
            f"--duration-s: {options.duration_s:g} s is less than a policy step of {period:g} s"
        )
    simulation = checkpoint.config.simulation
    print(f"checkpoint {checkpoint.path}: {checkpoint.task}, {simulation.variant} by", end=" ")
    print(f"{simulation.injection}, {checkpoint.env_steps:,} environment steps")
    print(
        f"{options.episodes} episodes of {options.duration_s:g} s in the simulator it was trained"
        f" in, nominal robot, on {runtime.machine()}; compiling",
        flush=True,
    )
    recordings, env = evaluate(checkpoint, options.episodes, options.duration_s, options.seed)

    figures = metrics.pitch_metrics(recordings, options.settle_s)
    print()
    print(metrics.metric_table(figures))
    print()
    # NaN is no JSON: a figure that no sample was left for is null.
    finite = {k: v if np.isfinite(v) else None for k, v in figures.items()}
    folder = options.out or default_folder(checkpoint.path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / "metrics.json") as temporary:
            temporary.write_text(json.dumps(finite, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"--out: {folder} cannot be written ({error})") from None
    recordings[0].save(folder / "recording.npz")
    plots.save(plots.pitch_tracking(recordings[0]), folder / "pitch_tracking.png")
    plots.save(
        plots.phase_averaged_pitch_rate(recordings, options.settle_s), folder / "pitch_rate.png"
    )
    plots.save(plots.grf_norm(recordings, options.settle_s), folder / "grf_norm.png")
    rows = read_rows(checkpoint.path.parent.parent / runs.METRICS_FILE)
    if rows:
        plots.save(plots.training_curve(rows), folder / "training_curve.png")
    if options.video:
        print(
            f"rendering {options.video_s:g} s at {options.video_speed:g} of real time", flush=True
        )
        start = recordings[0].time[0] + options.settle_s
        outcome = video.render(
            env.normalized.model,
            recordings[0].slice_time(start, start + options.video_s),
            folder / "video.mp4",
            fps=25.0,
            camera="track",
            speed=options.video_speed,
        )
        print(outcome.message)
    print(f"results: {folder} (metrics.json, recording.npz, *.png)")


if __name__ == "__main__":
    run(main)
