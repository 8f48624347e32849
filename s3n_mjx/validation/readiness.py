"""Everything that would go wrong in a training of a new robot, looked for in a minute.

Each check gives a line with the number that it is about. None of them needs a policy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Variant
from s3n_mjx.reference.closed_chain import ClosedChain
from s3n_mjx.reference.serial import SerialRobot
from s3n_mjx.robot.actuators import drives_joint, torque_limit
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.control import Simulation
from s3n_mjx.simulation.injection import NormalizedModel, normalize
from s3n_mjx.simulation.standing import standing_target
from s3n_mjx.simulation.support import MANY_CONTACTS, constraint_rows, contact_count

Array = NDArray[np.float64]

STAND_S = 2.0
_SETTLED_S = 0.5  # of which the end of the stand is judged
_FALLEN_RAD = 0.3
_SAG = 0.2  # of the trunk's height
_WEIGHT = 0.05  # relative, how well the feet's forces have to carry it
_STILL_RAD_S = 0.5
_STANDS_ALONE = 3  # so many feet stand without balancing
# Float32, and a solver that stops after a few iterations; see tests/test_simulation.py.
_SAME_ACCELERATION = 5e-3
_ROBOTS = 16  # side by side under random actions
_ACTION_RAD = 0.3
_LIMIT_ROOM = 1.01


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: what was looked at.
        text: what was found, with numbers.
        passed: None where there is nothing to pass, only something to know.
    """

    check: str
    text: str
    passed: bool | None


@dataclass(frozen=True)
class _Stand:
    """A robot at the end of its stand."""

    tilt: float  # rad, of the trunk since home
    sag: float  # m
    speed: float  # rad/s, RMS of the joints
    force: Array  # (nfeet,) N, upwards


def checks(robot: Robot, config: SimulationConfig, seconds: float) -> Iterator[Finding]:
    """Run all checks; each is given when it is done.

    Args:
        robot: as the loader gives it.
        config: variant, injection and solver; terms beyond the paper are left out.
        seconds: of random actions.

    Raises:
        UserError: the robot cannot be simulated by these settings.
    """
    config = dataclasses.replace(
        config, velocity_terms=False, link_gravity=False, base_coupling=False
    )
    yield _description(robot)
    if robot.lifted:
        side = "below" if robot.lifted > 0 else "above"
        yield Finding(
            "home",
            f"lowest foot was {1e3 * abs(robot.lifted):.1f} mm {side} the floor; trunk moved",
            None,
        )
    yield from _limits(robot)
    if robot.description.closed_chain is not None:
        yield _closed_chain(robot, config)
    yield _load(robot)
    normalized = normalize(robot, config)
    yield _lag(normalized)
    simulation = Simulation(normalized)
    contacts = contact_count(normalized.tree)
    yield Finding(
        "contacts",
        f"up to {contacts} in an environment, {constraint_rows(normalized.tree)} constraint rows"
        + ("; `collisions: feet` would make it faster" if contacts > MANY_CONTACTS else ""),
        None,
    )
    step = jax.jit(lambda state, target: simulation.step(simulation.model, state, target))
    yield _first_step(simulation, step)
    yield _stands("stands in C MuJoCo", robot, _stand_in_c(normalized, simulation))
    yield _stands("stands in MJX", robot, _stand_in_mjx(simulation))
    yield _random_actions(simulation, seconds)


def _description(robot: Robot) -> Finding:
    description = robot.description
    parts = [
        f"{robot.mass:.2f} kg",
        f"{len(robot.joints)} driven joints",
        f"{len(description.legs)} legs",
        f"{len(robot.pairs)} with a linkage" if robot.pairs else "none with a linkage",
    ]
    if robot.held:
        parts.append(f"{len(robot.held)} welded")
    if description.passive:
        parts.append(f"{len(description.passive)} passive")
    return Finding("description", ", ".join(parts), True)


def _limits(robot: Robot) -> Iterator[Finding]:
    """Torque limits of the description beside those of the MJCF, at the joints."""
    most = np.abs(robot.actuator_map.T) @ robot.torque_limit
    beyond = []
    for name, ours, theirs in zip(robot.joints, most, file_limits(robot), strict=True):
        if ours > _LIMIT_ROOM * theirs:
            beyond.append(f"{name} {ours:.3g} against {theirs:.3g}")
    if beyond:
        yield Finding(
            "torque limits",
            "the motors can do more than the MJCF allows at"
            f" {', '.join(beyond[:3])}{', ...' if beyond[3:] else ''} N m; the motors' count",
            None,
        )


def _closed_chain(robot: Robot, config: SimulationConfig) -> Finding:
    """Its loops close over the pairs' ranges, and its motors turn by the Jacobian."""
    try:
        plant = ClosedChain(robot, config.timestep_s)
        plant.reset(robot.home_joints, robot.home_joints, robot.home_qpos[:7])
    except UserError as error:
        return Finding("closed chain", str(error), False)
    mass = float(plant.model.body_mass.sum())
    return Finding(
        "closed chain",
        f"closes over the postures, motors turn by `jacobian`; {mass:.2f} kg, the serial model"
        f" {robot.mass:.2f} kg",
        True,
    )


def file_limits(robot: Robot) -> Array:
    """What the MJCF lets its actuators do at each driven joint, (nu,) N m; inf without a limit."""
    model = robot.model
    limits = np.full(len(robot.joints), np.inf)
    for index, name in enumerate(robot.joints):
        joint = model.joint(name).id
        for actuator in range(model.nu):
            if drives_joint(model, actuator, joint):
                limits[index] = min(limits[index], torque_limit(model, actuator))
    return limits


def _load(robot: Robot) -> Finding:
    """Motors' share of their limits in a stand, from the statics of the home pose."""
    if not np.all(robot.kp > 0):
        idle = [n for n, kp in zip(robot.joints, robot.kp, strict=True) if kp <= 0]
        return Finding("motors", f"kp is 0 at {', '.join(idle)}: targets move nothing", False)
    target = standing_target(robot)
    torque = robot.kp * (robot.actuator_map @ (target - robot.home_joints))
    share = np.abs(torque) / robot.torque_limit
    worst = int(share.argmax())
    error = float(np.abs(target - robot.home_joints).max())
    return Finding(
        "motors",
        f"standing takes {abs(torque[worst]):.2f} N m of {robot.joints[worst]}'s motor,"
        f" {100 * share[worst]:.0f} % of its limit; targets lie up to {error:.3f} rad from home",
        bool(share[worst] < 1.0),
    )


def _lag(normalized: NormalizedModel) -> Finding:
    variant = normalized.config.variant
    if not normalized.robot.pairs and variant in (Variant.S3N_ACT, Variant.S3N_FULL):
        text = f"no leg has a `pair`, so {variant} adds nothing to kin_only"
        return Finding("stability", text, None)
    if not normalized.uses_lag:
        return Finding("stability", "nothing lags a step behind", True)
    margin = normalized.stability_margin
    return Finding("stability", f"rho = {margin:.3f} over the postures, below 1", margin < 1.0)


def _still(simulation: Simulation) -> tuple[Array, Array]:
    """Configuration at home and the targets that carry it there."""
    return simulation.robot.home_qpos, np.asarray(simulation.standing_target, dtype=np.float64)


def _first_step(simulation: Simulation, step) -> Finding:
    """One step of both engines from the same state, in motion and in the air or on the floor."""
    normalized = simulation.normalized
    home, target = _still(simulation)
    rng = np.random.default_rng(0)
    twin = SerialRobot(normalized)
    worst = 0.0
    # A foot that just touches would do so by rounding in one of the two alone.
    for height in (-0.001, 0.05):
        qpos = home.copy()
        qpos[2] += height
        qvel = rng.uniform(-0.2, 0.2, normalized.model.nv)
        twin.reset(qpos, qvel, target)
        twin.step(target)
        state, _ = step(
            simulation.init(jnp.asarray(qpos), jnp.asarray(qvel), jnp.asarray(target)),
            jnp.asarray(target, jnp.float32),
        )
        theirs = twin.data.qvel - qvel
        ours = np.asarray(state.qvel, dtype=np.float64) - qvel
        worst = max(worst, float(np.abs(ours - theirs).max() / (np.abs(theirs).max() + 1e-3)))
    return Finding(
        "MJX against C MuJoCo",
        f"accelerations of a first step differ by {100 * worst:.3f} % of the largest",
        worst < _SAME_ACCELERATION,
    )


def _stand_in_c(normalized: NormalizedModel, simulation: Simulation) -> _Stand:
    home, target = _still(simulation)
    twin = SerialRobot(normalized)
    twin.reset(home, np.zeros(normalized.model.nv), target)
    rates, forces = [], []
    steps = round(STAND_S / simulation.timestep_s)
    last = steps - round(_SETTLED_S / simulation.timestep_s)
    for k in range(steps):
        twin.step(target)
        if k >= last:
            rates.append(twin.data.qvel[normalized.robot.dof_index].copy())
            forces.append(twin.foot_force()[:, 2])
    return _judged(home, twin.data.qpos, np.array(rates), np.array(forces))


def _stand_in_mjx(simulation: Simulation) -> _Stand:
    home, target = _still(simulation)
    steps = round(STAND_S / simulation.timestep_s)

    @jax.jit
    def run(state):
        def advance(state, _):
            after, record = simulation.step(simulation.model, state, jnp.asarray(target))
            return after, (record.qvel, record.foot_force[:, 2])

        return jax.lax.scan(advance, state, length=steps)

    start = simulation.init(
        jnp.asarray(home), jnp.zeros(simulation.robot.model.nv), jnp.asarray(target)
    )
    state, (qvel, force) = jax.device_get(run(start))
    settled = slice(-round(_SETTLED_S / simulation.timestep_s), None)
    rates = np.asarray(qvel, dtype=np.float64)[settled][:, simulation.robot.dof_index]
    return _judged(
        home, np.asarray(state.qpos, dtype=np.float64), rates, np.asarray(force)[settled]
    )


def _judged(home: Array, qpos: Array, rates: Array, forces: Array) -> _Stand:
    turned = np.zeros(3)
    mujoco.mju_subQuat(turned, qpos[3:7], home[3:7])
    with np.errstate(all="ignore"):
        return _Stand(
            tilt=float(np.linalg.norm(turned[:2])),
            sag=float(home[2] - qpos[2]),
            speed=float(np.sqrt(np.mean(rates**2))),
            force=np.mean(forces, axis=0),
        )


def _stands(check: str, robot: Robot, stand: _Stand) -> Finding:
    weight = robot.mass * float(np.linalg.norm(robot.model.opt.gravity))
    carried = float(stand.force.sum())
    height = float(robot.home_qpos[2])
    reasons = [
        reason
        for wrong, reason in (
            (not np.isfinite(stand.speed), "the state is no number any more"),
            (stand.sag > height, "it has fallen, and through the floor: nothing but feet collide"),
            (not stand.tilt < _FALLEN_RAD, "it has fallen over"),
            (not abs(stand.sag) < _SAG * height, "it has sunk or risen"),
            (not stand.speed < _STILL_RAD_S, "it does not come to rest"),
            (
                not abs(carried - weight) < _WEIGHT * weight,
                "the feet do not carry it: does something else touch the floor?",
            ),
        )
        if wrong
    ]
    text = (
        f"after {STAND_S:g} s trunk {1e3 * stand.sag:+.1f} mm down, {stand.tilt:.3f} rad tilted,"
        f" joints {stand.speed:.3f} rad/s RMS, feet carry {carried:.1f} of {weight:.1f} N"
    )
    if reasons and len(robot.feet) < _STANDS_ALONE:
        return Finding(check, f"{text}: {reasons[0]}; a policy has to balance it", None)
    return Finding(check, f"{text}: {reasons[0]}" if reasons else text, not reasons)


def _random_actions(simulation: Simulation, seconds: float) -> Finding:
    """Robots side by side under random targets: falls are expected, NaN is not."""
    home, target = _still(simulation)
    holds = max(1, round(seconds / simulation.config.control_timestep_s))
    start = simulation.init(
        jnp.asarray(home), jnp.zeros(simulation.robot.model.nv), jnp.asarray(target)
    )

    @jax.jit
    def run(keys):
        def hold(state, key):
            moved = jax.random.uniform(key, target.shape, minval=-_ACTION_RAD, maxval=_ACTION_RAD)
            reached, record = simulation.control_step(
                simulation.model, state, jnp.asarray(target) + moved
            )
            finite = jnp.all(jnp.isfinite(reached.qpos)) & jnp.all(jnp.isfinite(reached.qvel))
            return reached, (finite, jnp.max(jnp.abs(record.qvel[:, simulation.robot.dof_index])))

        return jax.vmap(lambda k: jax.lax.scan(hold, start, jax.random.split(k, holds))[1])(keys)

    finite, speed = jax.device_get(run(jax.random.split(jax.random.PRNGKey(0), _ROBOTS)))
    lost = int(np.sum(~np.all(finite, axis=1)))
    text = (
        f"{_ROBOTS} robots, {holds * simulation.config.control_timestep_s:.1f} s, targets"
        f" ±{_ACTION_RAD:g} rad: joints up to {np.nanmax(speed):.1f} rad/s,"
    )
    return Finding(
        "random actions",
        f"{text} {f'{lost} became NaN' if lost else 'no NaN'}",
        not lost,
    )
