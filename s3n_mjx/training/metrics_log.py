"""Training curves: one JSON object a line, and the loggers that a user may ask for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from s3n_mjx.cli import python_command
from s3n_mjx.errors import UserError
from s3n_mjx.files import written_whole

Row = dict[str, float]


class Logger(Protocol):
    """Somewhere to send a row of metrics besides the file."""

    def log(self, step: int, row: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


def read_rows(path: Path) -> list[Row]:
    """Rows of a `metrics.jsonl`; a last line cut short by a kill is left out.

    Raises:
        UserError: the file cannot be read, or a line before the last is no row.
    """
    rows = []
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return rows
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # ValueError: neither text nor JSON
            row = None
        if _is_row(row):
            rows.append(row)
        elif number < len(lines):  # the last one ends without a line break
            raise UserError(f"{path}: line {number}: no row of metrics; remove the line")
    return rows


def _is_row(row: Any) -> bool:
    """Whether these are numbers by name, with those that training goes on from."""
    return (
        isinstance(row, dict)
        and all(isinstance(value, (int, float)) for value in row.values())
        and all(0 <= row.get(key, -1) < math.inf for key in ("env_steps", "wall_s"))
    )


class MetricsFile:
    """`metrics.jsonl` of a run. Opened for a resumed run it drops rows after ``from_step``."""

    def __init__(self, path: Path, from_step: int = 0):
        rows = [row for row in read_rows(path) if row["env_steps"] <= from_step]
        with written_whole(path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.rows = rows
        self._stream = path.open("a")

    def log(self, row: Row) -> None:
        """Append a row, flushed at once."""
        self.rows.append(row)
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


class TensorBoard:
    """Event files in the run folder, by tensorboardX (comes with Brax)."""

    def __init__(self, folder: Path):
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(logdir=str(folder))

    @staticmethod
    def in_use(folder: Path) -> bool:
        """Whether a run was logged so before."""
        return any(folder.glob("events.out.tfevents.*"))

    def log(self, step: int, row: Mapping[str, float]) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run on Weights & Biases; its own environment variables choose project and mode."""

    def __init__(self, name: str, config: dict[str, Any]):
        try:
            import wandb  # pyright: ignore[reportMissingImports] - an optional extra
        except ImportError:
            raise UserError(
                "--wandb: the package wandb is not installed; get it with"
                f" {python_command()} -m pip install wandb"
            ) from None
        self._run = wandb.init(name=name, config=config)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()
