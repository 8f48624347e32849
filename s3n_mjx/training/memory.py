"""Whether a training fits into memory, by XLA's own account of the compiled program."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import jax

from s3n_mjx.errors import UserError
from s3n_mjx.training.config import PPOConfig

# Allocators need room around what they hand out.
_USABLE = 0.95


def of_program(compiled: Any) -> int | None:
    """Bytes that a compiled program takes on one device: arguments, results, all in between.

    None where this backend does not say.
    """
    stats = compiled.memory_analysis()
    if stats is None:
        return None
    return (
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        + stats.temp_size_in_bytes
        - stats.alias_size_in_bytes
    )


def _host_bytes() -> int | None:
    """Memory of this machine that is free, or may be, within the container's limit."""
    available = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())  # "max" is no number
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        available = min(available or limit, limit - used)
    return available


def of_device() -> int | None:
    """Bytes that each local device may take; None where nothing says."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        total = _host_bytes()
        return None if total is None else total // jax.local_device_count()
    stats = device.memory_stats() or {}
    return stats.get("bytes_limit")


def check(ppo: PPOConfig, needed: int, available: int) -> None:
    """Refuse a run that won't fit.

    Args:
        ppo: the run's settings.
        needed: bytes on one device.
        available: bytes of one device.

    Raises:
        UserError: says which number of environments will.
    """
    if needed <= _USABLE * available:
        return
    halvings = 0
    # Environments and minibatches grow together, and all that grows with them is most of it.
    while needed / 2**halvings > _USABLE * available and ppo.batch_size >> halvings > 1:
        halvings += 1
    raise UserError(
        f"--num-envs: {ppo.num_envs} environments need {needed / 2**30:.1f} GiB on each device,"
        f" {available / 2**30:.1f} GiB are there; use --num-envs"
        f" {max(1, ppo.num_envs >> halvings)} --batch-size {max(1, ppo.batch_size >> halvings)}"
    )
