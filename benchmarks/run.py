"""`python -m benchmarks.run`: what S3N and the environment cost, against what they build on.

Every case is compiled first, then all are timed in turn, round after round, so that a slow
moment of the machine hits all alike; a ratio is the median of the rounds' ratios. Nothing here
asserts a time.
"""

from __future__ import annotations

import copy
import dataclasses
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt
from pydantic.dataclasses import dataclass as checked_dataclass

from benchmarks.common import versions, write_json
from s3n_mjx import compat, runtime
from s3n_mjx.cli import parse_arguments, run
from s3n_mjx.config_files import STRICT
from s3n_mjx.errors import UserError

import jax  # isort: skip
import jax.numpy as jnp  # isort: skip

from s3n_mjx.envs import PitchEnv  # isort: skip
from s3n_mjx.normalization import Injection, Variant  # isort: skip
from s3n_mjx.simulation.config import SimulationConfig  # isort: skip
from s3n_mjx.simulation.control import full_precision  # isort: skip


@checked_dataclass(frozen=True, config=STRICT)
class Bench:
    """Benchmark simulation and environment.

    Args:
        num_envs: environments over all devices.
        policy_steps: in a timed call; short ones, so that neighbours see the same machine.
        rounds: timed calls of each case.
        scaling: time `s3n_act` at 64 to 2,048 environments, too.
        scaling_rounds: timed calls of each of these.
        playground_assets: folder that holds `mujoco_menagerie`, for MuJoCo Playground's Go1.
        out: JSON file of the results.
    """

    num_envs: Annotated[int, Gt(0)] = 256
    policy_steps: Annotated[int, Gt(0)] = 5
    rounds: Annotated[int, Gt(0)] = 40
    scaling: bool = True
    scaling_rounds: Annotated[int, Gt(0)] = 8
    playground_assets: Path = Path("../shared/playground_assets")
    out: Path = Path("runs/bench.json")


SCALING_SIZES = (64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Case:
    """Something to time: a compiled call without arguments, and the work that it does."""

    call: Callable[[], Any]
    env_steps: int
    physics_steps: int


def _split(options: Bench) -> tuple[int, int]:
    devices = jax.local_device_count()
    if options.num_envs % devices:
        raise UserError(f"--num-envs: {options.num_envs} is no multiple of {devices} devices")
    return devices, options.num_envs // devices


def _actions(options: Bench, size: int) -> jax.Array:
    """The same small random actions for every case: a robot that moves, feet on the floor."""
    devices, each = _split(options)
    noise = jax.random.normal(jax.random.PRNGKey(1), (devices, options.policy_steps, each, size))
    return jnp.clip(0.2 * noise, -1.0, 1.0)


def _reset(options: Bench, env: Any) -> Any:
    devices, each = _split(options)
    keys = jax.random.split(jax.random.PRNGKey(0), options.num_envs)
    return jax.pmap(jax.vmap(env.reset))(keys.reshape(devices, each, -1))


def environment(options: Bench, env: Any, substeps: int) -> Case:
    """Environment steps of any environment with brax's `reset` and `step`."""
    state, actions = _reset(options, env), _actions(options, env.action_size)

    def advance(state, actions):
        return jax.lax.scan(lambda s, a: (jax.vmap(env.step)(s, a), None), state, actions)[0]

    compiled = jax.pmap(advance)
    count = options.num_envs * options.policy_steps
    return Case(lambda: compiled(state, actions), count, count * substeps)


def bare_step(options: Bench, env: PitchEnv) -> Case:
    """`mjx.step` alone over the same motion: the forces of the environment's run, replayed."""
    mjx, simulation = compat.mjx, env.simulation
    state, actions = _reset(options, env), _actions(options, env.action_size)
    scale = env.body.action_scale_rad

    def forces(state, actions):
        def one(carry, action):
            target = simulation.standing_target + scale * action

            def substep(inner, _):
                force, *_ = simulation.generalized_force(inner, target)
                return simulation.step(simulation.model, inner, target)[0], force

            return jax.lax.scan(substep, carry, length=simulation.config.substeps)

        over_envs = jax.vmap(one)
        return jax.lax.scan(over_envs, state.pipeline_state.simulation, actions)[1]

    force = jax.pmap(forces)(state, actions)  # (device, policy step, env, substep, nv)
    force = jnp.moveaxis(force, 3, 2)
    force = force.reshape(force.shape[0], -1, *force.shape[3:])

    def begin(simulation_state):
        return mjx.make_data(simulation.model).replace(
            qpos=simulation_state.qpos, qvel=simulation_state.qvel
        )

    data = jax.pmap(jax.vmap(begin))(state.pipeline_state.simulation)

    def loop(data, force):
        def substep(data, applied):
            step = jax.vmap(full_precision(mjx.step), in_axes=(None, 0))
            return step(simulation.model, data.replace(qfrc_applied=applied)), None

        return jax.lax.scan(substep, data, force)[0]

    compiled = jax.pmap(loop)
    count = options.num_envs * options.policy_steps
    return Case(lambda: compiled(data, force), count, count * simulation.config.substeps)


def playground_go1(options: Bench) -> Any:
    """MuJoCo Playground's flat Go1 as it comes, or why it cannot be had, a `str`."""
    menagerie = options.playground_assets / "mujoco_menagerie"
    if not menagerie.is_dir():
        return f"{menagerie} is not there (--playground-assets)"
    try:
        from mujoco_playground import registry
        from mujoco_playground._src import mjx_env
    except ImportError:
        return "playground is not installed; pip install 's3n-mjx[bench]'"
    # It would look for the meshes in its own folder, and else clone them from the network.
    mjx_env.MENAGERIE_PATH = type(mjx_env.MENAGERIE_PATH)(menagerie.resolve())
    return registry.load("Go1JoystickFlatTerrain", config_overrides={"impl": "jax"})


def solver_of(env: Any) -> tuple[int, int]:
    """Iterations of the solver and of its line search that a Playground environment has."""
    options = env.mjx_model.opt
    return int(options.iterations), int(options.ls_iterations)


def with_solver(env: Any, iterations: int, ls_iterations: int) -> Any:
    """A Playground environment with these two settings; everything else stays Playground's."""
    changed = copy.copy(env)
    changed._mjx_model = env._mjx_model.tree_replace(
        {"opt.iterations": iterations, "opt.ls_iterations": ls_iterations}
    )
    return changed


def measure(cases: dict[str, Case], rounds: int) -> dict[str, list[float]]:
    """Seconds of each case in each round; the first call of each compiles and is not counted."""
    for name, case in cases.items():
        begin = time.perf_counter()
        jax.block_until_ready(case.call())
        print(f"  compiled {name} in {time.perf_counter() - begin:.0f} s", flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            begin = time.perf_counter()
            jax.block_until_ready(case.call())
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def ratio(cases: dict[str, Case], seconds: dict[str, list[float]], above: str, below: str) -> float:
    """Median over rounds of the ratio of physics steps per second."""
    work = cases[above].physics_steps / cases[below].physics_steps
    rounds = zip(seconds[above], seconds[below], strict=True)
    return statistics.median(work * b / a for a, b in rounds)


def scaling(options: Bench, sizes: Sequence[int]) -> dict[str, dict[str, float]]:
    """Environment steps per second of `s3n_act` by number of environments, and over the first."""
    env = PitchEnv(simulation=SimulationConfig(variant=Variant.S3N_ACT))
    substeps = env.simulation.config.substeps
    cases = {
        f"{size} environments": environment(
            dataclasses.replace(options, num_envs=size), env, substeps
        )
        for size in sizes
    }
    seconds = measure(cases, options.scaling_rounds)
    first = next(iter(cases))
    return {
        str(size): {
            "env_steps_per_s": case.env_steps / statistics.median(seconds[name]),
            f"over_{sizes[0]}": ratio(cases, seconds, name, first),
        }
        for size, (name, case) in zip(sizes, cases.items(), strict=True)
    }


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Bench, args, "python -m benchmarks.run")
    print(f"{options.num_envs} environments on {runtime.machine()}")

    cases: dict[str, Case] = {}
    env = PitchEnv(simulation=SimulationConfig(variant=Variant.KIN_ONLY))
    config = env.simulation.config
    cases["kin_only"] = environment(options, env, config.substeps)
    for injection in Injection:
        for variant in (Variant.S3N_ACT, Variant.S3N_FULL):
            env = PitchEnv(simulation=SimulationConfig(variant=variant, injection=injection))
            cases[f"{variant}/{injection}"] = environment(options, env, config.substeps)
    env = PitchEnv(simulation=SimulationConfig(variant=Variant.S3N_ACT))
    cases["bare mjx.step"] = bare_step(options, env)
    solver = config.solver_iterations, config.solver_ls_iterations
    go1 = playground_go1(options)
    go1_solver = None
    if isinstance(go1, str):
        print(f"  no comparison with Playground: {go1}")
    else:
        go1_solver = solver_of(go1)
        same = with_solver(go1, *solver)
        cases["playground go1"] = environment(options, same, go1.n_substeps)
        cases["playground go1, its own"] = environment(options, go1, go1.n_substeps)

    seconds = measure(cases, options.rounds)
    rates = {
        name: {
            "env_steps_per_s": case.env_steps / statistics.median(seconds[name]),
            "physics_steps_per_s": case.physics_steps / statistics.median(seconds[name]),
        }
        for name, case in cases.items()
    }

    def over(above: str, below: str) -> float:
        return ratio(cases, seconds, above, below)

    ours = "s3n_act/qfrc_applied"
    ratios = {f"{name} over kin_only": over(name, "kin_only") for name in cases if "/" in name}
    ratios["environment over bare mjx.step"] = over(ours, "bare mjx.step")
    if go1_solver is not None:
        ratios["s3n_act over playground go1"] = over(ours, "playground go1")
        ratios["s3n_act over playground go1, each at its own defaults"] = over(
            ours, "playground go1, its own"
        )

    print(f"\nphysics steps per second, Newton {solver[0]}/{solver[1]}")
    for name, rate in rates.items():
        print(f"  {name:<24} {rate['physics_steps_per_s']:>12,.0f}")
    if go1_solver is not None:
        print(f"  (Playground's own is {go1_solver[0]}/{go1_solver[1]})")
    print("\nratios (median of rounds)")
    for name, value in ratios.items():
        print(f"  {name:<54} {value:6.3f}")
    devices = jax.local_device_count()
    sizes = [size for size in SCALING_SIZES if size % devices == 0] if options.scaling else []
    scaled = scaling(options, sizes) if sizes else {}
    if scaled:
        print(f"\nenvironment steps per second of s3n_act, and over {sizes[0]} environments")
        for size, numbers in scaled.items():
            rate, relative = numbers.values()
            print(f"  {int(size):>6,} environments {rate:>12,.0f} {relative:6.3f}")
    result = {
        "machine": runtime.machine(),
        "processor": platform.processor() or platform.machine(),
        "python": sys.version.split()[0],
        "versions": versions(),
        "num_envs": options.num_envs,
        "solver_iterations": solver[0],
        "solver_ls_iterations": solver[1],
        "rates": rates,
        "ratios": ratios,
        "scaling": scaled,
        "seconds": seconds,
        "playground": go1 if isinstance(go1, str) else "measured",
        "playground_solver_iterations": go1_solver and go1_solver[0],
        "playground_solver_ls_iterations": go1_solver and go1_solver[1],
    }
    write_json(options.out, result)
    print(f"\nresults: {options.out}")


if __name__ == "__main__":
    run(main)
