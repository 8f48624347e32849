"""Process-wide settings that a command line makes before any computation."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import warnings
from pathlib import Path

import jax

_DEVICE_FLAG = "--xla_force_host_platform_device_count"


def cache_folder() -> Path:
    """Folder of compiled programs; `S3N_MJX_CACHE` moves it.

    XLA's CPU programs use what the processor offers, so processors don't share them.
    """
    base = os.environ.get("S3N_MJX_CACHE")
    if base is None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "s3n_mjx"
    try:
        flags = [
            line
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith(("flags", "Features"))
        ][:1]
    except OSError:
        flags = []
    machine = hashlib.sha256("".join([platform.machine(), *flags]).encode()).hexdigest()[:12]
    return Path(base) / "xla" / machine


def _cpu_devices() -> int:
    """Host devices to split environments over: the largest power of two within the cores.

    At most eight: small batches gain nothing from more. A container's CPU quota counts.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))  # "max" is no number
    return 1 << (min(cores, 8).bit_length() - 1)


def configure() -> None:
    """Devices, compile cache, third parties' chatter off. Call once, before any computation.

    XLA runs the many small operations of a physics step on one core per device, so on a CPU
    each core becomes a device (1.8 times the throughput on two cores). A device count in
    `XLA_FLAGS` is left as it is; accelerators take no notice.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if _DEVICE_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_DEVICE_FLAG}={_cpu_devices()}".strip()
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(f"no compile cache: {folder} cannot be made ({error})", stacklevel=2)
    else:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    logging.getLogger("absl").setLevel(logging.ERROR)
    logging.getLogger("jax").setLevel(logging.ERROR)


def has_accelerator() -> bool:
    """Whether JAX computes on something other than the CPU."""
    return jax.default_backend() != "cpu"


def machine() -> str:
    """Devices in words, for the first line of a run."""
    devices = jax.devices()
    return f"{len(devices)} x {devices[0].device_kind}, jax {jax.__version__}"
