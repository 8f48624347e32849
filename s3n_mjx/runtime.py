"""Process-wide settings that a command line makes before any computation."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import warnings
from pathlib import Path
from typing import Any

import jax

from s3n_mjx.errors import UserError

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


def join_processes() -> None:
    """Become one of several processes that train together; before JAX looks for devices.

    Slurm, Open MPI and what else JAX knows tell it by themselves; otherwise the variables that
    `torchrun` sets: MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK, and LOCAL_RANK where several
    processes share the accelerators of a machine.

    Raises:
        UserError: nothing says which process this is, or the others cannot be reached.
    """
    names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
    given = [name for name in names if os.environ.get(name)]
    arguments: dict[str, Any] = {}
    if "RANK" in given:
        missing = [name for name in names if name not in given]
        if missing:
            raise UserError(f"--distributed: RANK is set, but not {', '.join(missing)}")
        try:
            port, count, rank = (int(os.environ[name]) for name in names[1:])
            local = os.environ.get("LOCAL_RANK")
            if local is not None and int(os.environ.get("LOCAL_WORLD_SIZE", "2")) > 1:
                arguments["local_device_ids"] = [int(local)]
        except ValueError as error:
            raise UserError(
                f"--distributed: {', '.join(names[1:])} and LOCAL_RANK have to be whole numbers"
                f" ({error})"
            ) from None
        # torchrun itself listens on its port; JAX takes the next one.
        port += "TORCHELASTIC_RUN_ID" in os.environ
        arguments |= {
            "coordinator_address": f"{os.environ['MASTER_ADDR']}:{port}",
            "num_processes": count,
            "process_id": rank,
        }
    try:
        jax.distributed.initialize(**arguments)
    except (ValueError, RuntimeError) as error:
        raise UserError(
            "--distributed: this process cannot join others; start it with srun or mpirun, or set"
            f" {', '.join(names)} ({' '.join(str(error).split())[:200]})"
        ) from None


def has_accelerator() -> bool:
    """Whether JAX computes on something other than the CPU."""
    return jax.default_backend() != "cpu"


def machine() -> str:
    """Devices in words, for the first line of a run."""
    devices = jax.devices()
    processes = f" in {jax.process_count()} processes" if jax.process_count() > 1 else ""
    return f"{len(devices)} x {devices[0].device_kind}{processes}, jax {jax.__version__}"
