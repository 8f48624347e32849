"""What a person sees while a run trains: a bar with ETA, reward and the task's own number."""

from __future__ import annotations

import sys
import time

from tqdm import tqdm

from s3n_mjx.training.metrics_log import Row


def duration(seconds: float) -> str:
    """``3:05`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """A line for each evaluation, and on a terminal a bar below them.

    Args:
        total: environment steps of the whole run.
        done: steps that an earlier, resumed run did.
        shown: metrics to show, name to label.
    """

    def __init__(self, total: int, done: int, shown: dict[str, str]):
        self._total, self._done, self._shown = total, done, shown
        self._first: tuple[float, int] | None = None
        self._start = time.monotonic()
        interactive = sys.stderr.isatty()
        self._bar = (
            tqdm(
                total=total,
                initial=done,
                unit="step",
                unit_scale=True,
                dynamic_ncols=True,
                # tqdm's own estimate would count the compilation.
                bar_format="{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} {elapsed}{postfix}",
            )
            if interactive
            else None
        )

    def update(self, row: Row) -> None:
        """Show a row of metrics."""
        step, now = int(row["env_steps"]), time.monotonic()
        # The first interval holds the compilation and would spoil the estimate.
        if self._first is None and step > self._done:
            self._first = now, step
        eta = ""
        if self._first is not None and step > self._first[1]:
            rate = (step - self._first[1]) / (now - self._first[0])
            eta = duration(max(self._total - step, 0) / rate)
        numbers = ", ".join(
            f"{label} {row[name]:.4g}" for name, label in self._shown.items() if name in row
        )
        line = (
            f"{step:>12,} steps {100.0 * step / self._total:5.1f} %"
            f"  {duration(now - self._start):>7} elapsed  ETA {eta or '-':>7}  {numbers}"
        )
        if self._bar is None:
            print(line, flush=True)
            return
        # The numbers stay on the screen, above the bar.
        self._bar.write(line)
        self._bar.set_postfix_str(f"ETA {eta or '-'}", refresh=False)
        self._bar.update(step - self._bar.n)

    def reach(self, step: int) -> None:
        """Move the bar between two rows."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
