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
    with contextlib.suppress(OSError, ValueError, KeyError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())  # "max" is no number
        used = int((group / "memory.current").read_text())
        stats = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used -= int(stats["inactive_file"])  # cached files, which give way
        available = min(available or limit, max(limit - used, 0))
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
    # Environments and minibatches shrink together, and all that grows with them is most of it.
    way_out = "and half as many nearly as much; this robot needs more memory"
    for halvings in range(1, 20):
        divisor = 2**halvings * jax.device_count()
        if ppo.num_envs % divisor or ppo.batch_size % divisor:
            break
        if needed / 2**halvings <= _USABLE * available:
            way_out = (
                f"use --num-envs {ppo.num_envs >> halvings} --batch-size"
                f" {ppo.batch_size >> halvings}"
            )
            break
    raise UserError(
        f"--num-envs: {ppo.num_envs} environments need {needed / 2**30:.3g} GiB on each device,"
        f" {available / 2**30:.3g} GiB are there; {way_out}"
    )
