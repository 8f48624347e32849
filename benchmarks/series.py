"""One series of `benchmarks.gpu`: one program at growing numbers of environments.

Runs in a process of its own, so that memory peaks are the series' own and a crash ends nothing
else; what it measures leaves as JSON, a line each, on stdout.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from benchmarks.common import reason_of
from benchmarks.gpu import Engine, Job, Memory, Row, Series, Status
from s3n_mjx import compat, runtime
from s3n_mjx.cli import run
from s3n_mjx.config_files import parse
from s3n_mjx.errors import UserError

import jax  # isort: skip
import jax.numpy as jnp  # isort: skip

from brax.envs.wrappers.training import wrap  # isort: skip
from s3n_mjx.envs import PitchEnv  # isort: skip
from s3n_mjx.envs.base import task_state  # isort: skip
from s3n_mjx.simulation.config import SimulationConfig  # isort: skip
from s3n_mjx.simulation.control import SimulationState, full_precision  # isort: skip
from s3n_mjx.training.memory import of_program  # isort: skip


@dataclasses.dataclass(frozen=True)
class Program:
    """Something to time; a carry holds a whole batch of environments."""

    begin: Callable[[jax.Array], Any]  # keys (n, 2) -> carry
    advance: Callable[[Any, jax.Array], Any]  # carry, key -> carry one policy step later
    substeps: int  # physics steps of each environment in it


def _environment(series: Series) -> PitchEnv:
    return PitchEnv(simulation=SimulationConfig(variant=series.variant, injection=series.injection))


def environment(series: Series) -> Program:
    """The environment as training has it: wrapped by Brax, small random actions."""
    env = _environment(series)
    wrapped = wrap(env, episode_length=280)

    def advance(state, key):
        noise = jax.random.normal(key, (*state.done.shape, env.action_size))
        return wrapped.step(state, jnp.clip(0.2 * noise, -1.0, 1.0))

    return Program(wrapped.reset, advance, env.simulation.config.substeps)


def _without_chatter(model: Any) -> Any:
    """A Warp model that does not print, from the device, that a solver used its iterations up.

    That is how it is meant, and printing every step would be timed, too; overflows stay said.
    """
    from mujoco.mjx.third_party.mujoco_warp._src.types import OverflowType

    usual = OverflowType.ITERATIONS | OverflowType.LS_ITERATIONS
    said = int(model.opt._impl.warn_overflow) & ~int(usual)
    return model.tree_replace({"opt._impl.warn_overflow": said})


def bare_step(series: Series, num_envs: int) -> Program:
    """`mjx.step` of the robot's tree, standing under the environment's position loop.

    The tree is that of `kin_only`: what S3N adds beside the model, another backend knows not of.
    """
    mjx = compat.mjx
    env = _environment(series)
    simulation, tree = env.simulation, env.normalized.tree
    model = mjx.put_model(tree, impl=series.backend)
    # MJX's arrays hold every contact that there can be; Warp wants to be told how many.
    largest = mjx.make_data(simulation.model)
    room = {}
    if series.backend == "warp":
        room["naconmax"] = num_envs * largest._impl.contact.dist.shape[0]
        room["njmax"] = largest._impl.efc_J.shape[0]
        model = _without_chatter(model)

    def one(key):
        # `make_data` of a model in C: Warp takes no other.
        data = mjx.make_data(tree, impl=series.backend, **room)
        start = task_state(env.reset(key)).simulation
        return data.replace(qpos=start.qpos, qvel=start.qvel), start.command_history

    def substep(carry, _):
        data, history = carry
        state = SimulationState(data.qpos, data.qvel, data.qvel, data.qacc_warmstart, history)
        force, _, history = simulation.generalized_force(state, simulation.standing_target)
        return (mjx.step(model, data.replace(qfrc_applied=force)), history), None

    def advance(carry, _):
        over_envs = jax.vmap(full_precision(lambda c: substep(c, None)[0]))
        length = simulation.config.substeps
        return jax.lax.scan(lambda c, _: (over_envs(c), None), carry, length=length)[0]

    return Program(jax.vmap(one), advance, simulation.config.substeps)


def _predicted(compiled: Any) -> Memory | None:
    """What XLA says that the program takes; not every backend says it."""
    total = of_program(compiled)
    if total is None:
        return None
    analysis = compiled.memory_analysis()
    return Memory(
        argument=analysis.argument_size_in_bytes,
        output=analysis.output_size_in_bytes,
        temporary=analysis.temp_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        total=total,
    )


def _peak(device: Any) -> int | None:
    """Bytes that this process has held at most on ``device``; CPUs don't say."""
    return (device.memory_stats() or {}).get("peak_bytes_in_use")


def measure(series: Series, num_envs: int, policy_steps: int, rounds: int) -> Row:
    """Compile for ``num_envs`` environments and time it.

    Args:
        series: what to measure.
        num_envs: on one device.
        policy_steps: in a timed call.
        rounds: timed calls.
    """
    if series.engine is Engine.ENVIRONMENT:
        program = environment(series)
    else:
        program = bare_step(series, num_envs)
    keys = jax.random.split(jax.random.PRNGKey(0), num_envs)
    # Jitted: without it each leaf of the batch would be a program of its own.
    carry = jax.block_until_ready(jax.jit(program.begin)(keys))

    def loop(carry, key):
        keys = jax.random.split(key, policy_steps)
        return jax.lax.scan(lambda c, k: (program.advance(c, k), None), carry, keys)[0]

    clock = time.perf_counter
    begin = clock()
    lowered = jax.jit(loop, donate_argnums=0).lower(carry, keys[0])
    trace_s = clock() - begin
    begin = clock()
    compiled = lowered.compile()
    compile_s = clock() - begin

    seconds = []
    for i in range(rounds + 1):
        key = jax.random.fold_in(keys[0], i)
        jax.block_until_ready(key)
        begin = clock()
        carry = jax.block_until_ready(compiled(carry, key))
        seconds.append(clock() - begin)
    # Warp compiles its own kernels in the first call.
    first_call_s, *seconds = seconds
    rate = num_envs * policy_steps / statistics.median(seconds)
    return Row(
        series=series,
        num_envs=num_envs,
        status=Status.MEASURED,
        env_steps_per_s=rate if series.engine is Engine.ENVIRONMENT else None,
        physics_steps_per_s=rate * program.substeps,
        trace_s=trace_s,
        compile_s=compile_s,
        first_call_s=first_call_s,
        round_s=seconds,
        predicted=_predicted(compiled),
        peak_bytes=_peak(jax.devices()[0]),
    )


def measured(job: Job) -> Iterator[Row]:
    """A row for each number of environments, up to the first one that fails."""
    for num_envs in job.num_envs:
        try:
            yield measure(job.series, num_envs, job.policy_steps, job.rounds)
        # Whatever it is, it belongs into the table.
        except Exception as error:
            yield Row(job.series, num_envs, Status.FAILED, reason_of(error))
            return


def describe() -> dict[str, Any]:
    """The machine, as far as the figures need it."""
    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "device": device.device_kind,
        "devices": jax.local_device_count() if device.platform != "cpu" else 1,
        "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
        "words": runtime.machine(),
        "cores": os.cpu_count(),
    }


def _results_only() -> TextIO:
    """stdout for results alone: what libraries print, some of it in C, goes to stderr."""
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return results


def main(args: Sequence[str]) -> None:
    """What `benchmarks.gpu` starts: with a job as JSON, or without for the machine."""
    results = _results_only()
    runtime.configure()
    # Compile times of an earlier sweep's programs would tell nothing.
    jax.config.update("jax_enable_compilation_cache", False)
    if not args:
        print(json.dumps(describe()), file=results)
        return
    try:
        data = json.loads(args[0])
    except json.JSONDecodeError as error:
        raise UserError(f"not a job: {error}") from None
    for row in measured(parse(Job, data, "job")):
        print(json.dumps(dataclasses.asdict(row)), file=results)


if __name__ == "__main__":
    run(main, sys.argv[1:])
