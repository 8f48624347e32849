"""`python -m benchmarks.contact_tradeoff`: how much pitch costs how much contact.

Trains the `cpu` preset of the pitch task once for each weight of the contact term and evaluates
every policy alike. Finished runs are kept, so that an interrupted sweep goes on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic.dataclasses import dataclass

from s3n_mjx import runtime
from s3n_mjx.cli import parse_arguments, run
from s3n_mjx.config_files import STRICT
from s3n_mjx.eval import evaluate
from s3n_mjx.evaluation import metrics, plots
from s3n_mjx.files import written_whole
from s3n_mjx.normalization import Variant
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training import run as runs
from s3n_mjx.training.config import load_preset


@dataclass(frozen=True, config=STRICT)
class Tradeoff:
    """Sweep the weight of the contact term.

    Args:
        weights: of the contact term; 0 rewards tracking alone.
        variant: simulator model.
        preset: of the pitch task.
        folder: of the runs, the figure and `tradeoff.json`.
    """

    weights: tuple[float, ...] = (0.0, 2.0, 15.0, 60.0)
    variant: Variant = Variant.S3N_ACT
    preset: str = "cpu"
    folder: Path = Path("runs/tradeoff")


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Tradeoff, args, "python -m benchmarks.contact_tradeoff")
    points = []
    for weight in options.weights:
        base = load_preset("pitch", options.preset)
        config = dataclasses.replace(
            base,
            simulation=dataclasses.replace(base.simulation, variant=options.variant),
            env=dataclasses.replace(
                base.env, reward=dataclasses.replace(base.env.reward, contact=weight)
            ),
        )
        folder = options.folder / f"contact-{weight:g}"
        print(f"contact weight {weight:g}: {folder}", flush=True)
        if (folder / runs.CONFIG_FILE).exists():
            start, config = runs.resume_from(folder), runs.load_config(folder)
        else:
            runs.prepare_folder(folder, config)
            start = runs.Start()
        path = runs.train(config, folder, start)
        recordings, _ = evaluate(checkpoints.load(path), episodes=4, duration_s=10.0, seed=0)
        figures = metrics.pitch_metrics(recordings)
        points.append({"contact_weight": weight, **figures})
        print(metrics.metric_table(figures), flush=True)
        with written_whole(options.folder / "tradeoff.json") as temporary:
            temporary.write_text(json.dumps(points, indent=2) + "\n")
    figure = plots.tradeoff(
        [
            (
                f"contact weight {p['contact_weight']:g}",
                p["contact_kept_fraction"],
                p["pitch_rmse_rad"],
            )
            for p in points
        ]
    )
    print(f"results: {plots.save(figure, options.folder / 'tradeoff.png')}, tradeoff.json")


if __name__ == "__main__":
    run(main)
