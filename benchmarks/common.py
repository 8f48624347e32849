"""What the benchmarks share: result files, versions, reasons in one line."""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from s3n_mjx.files import written_whole

PROJECT = Path(__file__).resolve().parents[1]
_PACKAGES = ("jax", "jaxlib", "mujoco", "mujoco-mjx", "brax", "warp-lang", "playground")
_REASON_LENGTH = 200
# As XLA, CUDA and Warp say it.
_OUT_OF_MEMORY = ("resource_exhausted", "out of memory", "failed to allocate")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all; missing folders are made."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")


def environment_of(project: Path) -> dict[str, str]:
    """Variables for a process that imports `s3n_mjx` and `benchmarks` from ``project``."""
    paths = [str(project.absolute()), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def end_cleanly_when_terminated() -> None:
    """Make a SIGTERM, as `timeout` sends it, an exception: a process must not leave another that
    holds the device."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def versions() -> dict[str, str]:
    """Versions of what speed depends on; a package that is not installed is left out."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def one_line(text: str) -> str:
    """``text`` without line breaks, cut where it would no longer fit into a table."""
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 1] + "…"


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line; running out of memory by that name."""
    said = one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    lower = f"{type(error).__name__}: {error}".lower()
    if isinstance(error, MemoryError) or any(sign in lower for sign in _OUT_OF_MEMORY):
        return one_line(f"out of memory ({said})")
    return said


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table, first column to the left, others to the right."""
    lines = [header, (":--", *["--:"] * (len(header) - 1)), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in line) + " |\n" for line in lines
    )
