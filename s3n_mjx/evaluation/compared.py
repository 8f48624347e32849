"""Trained and evaluated methods, as the tables and figures of a comparison read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.normalization import Variant

SIMULATOR = "simulator"  # the side of a trial that is no reference

# By level of the reference, and SIMULATOR: figures by name.
Gaps = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Method:
    """One of the paper's methods, or s3n_full with the terms that the paper leaves out."""

    variant: Variant
    beyond_paper: bool = False

    @property
    def name(self) -> str:
        """As folders and tables have it."""
        return f"{self.variant}_beyond" if self.beyond_paper else str(self.variant)


@dataclass(frozen=True)
class Compared:
    """Trained and evaluated methods.

    Attributes:
        folder: holds `METHOD-seedN/recordings`.
        seeds: of training, by method, in the order of the table.
        gaps: by method and seed.
        trials: recordings of each side.
        settle_s: start of a trial that figures leave out, in s.
    """

    folder: Path
    seeds: Mapping[Method, tuple[int, ...]]
    gaps: Mapping[tuple[Method, int], Gaps]
    trials: int
    settle_s: float

    @cached_property
    def feet(self) -> tuple[str, ...]:
        """Names of the robot's feet."""
        method, seeds = next(iter(self.seeds.items()))
        return self.recordings(method, seeds[0], SIMULATOR)[0].foot_names

    def recordings(self, method: Method, seed: int, side: str) -> list[Recording]:
        """Trials of one policy in the simulator or on a level of the reference."""
        run = run_folder(self.folder, method, seed)
        return [Recording.load(recording_file(run, side, i)) for i in range(self.trials)]

    def values(self, method: Method, side: str, key: str) -> list[float]:
        """A figure of every seed."""
        return [self.gaps[method, seed][side][key] for seed in self.seeds[method]]


def run_folder(folder: Path, method: Method, seed: int) -> Path:
    """Of one training and its evaluation."""
    return folder / f"{method.name}-seed{seed}"


def recording_file(run: Path, side: str, trial: int) -> Path:
    """Where a comparison keeps a trial."""
    return run / "recordings" / f"{side}_{trial}.npz"
