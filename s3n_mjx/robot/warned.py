"""What MuJoCo warns of, kept for a message instead of a MUJOCO_LOG.TXT in the current folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import mujoco

# Of a model that cannot be simulated; MuJoCo's other warnings are of style.
_GRAVE = ("nan", "singular")


@contextmanager
def listening() -> Iterator[list[str]]:
    """Yield a list that takes MuJoCo's grave warnings while the block runs, one line each."""
    grave: list[str] = []

    def hear(message: str) -> None:
        line = " ".join(message.split())
        if any(word in line.lower() for word in _GRAVE):
            grave.append(line)

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(hear)
    try:
        # The compiler gives its warnings to Python, too.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            yield grave
    finally:
        mujoco.set_mju_user_warning(before)
