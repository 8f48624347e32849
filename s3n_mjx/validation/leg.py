"""Both sides of the contact-free test: the serial simulator in MJX and the closed chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.reference.closed_chain import ClosedChain, mean_over
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.config import SimulationConfig, Timing
from s3n_mjx.simulation.control import Simulation
from s3n_mjx.simulation.injection import normalize

# Steps of the mechanism. The reference has the error of half a step in its velocities, too; at
# these it is a tenth of what the best simulator model leaves.
_REFERENCE_STEP_S = 1e-4
_STEPS_PER_PERIOD = 4

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Response:
    """Motors of all pairs over time, in actuator coordinates, as their encoders read them.

    Torque at a time is the mean over the control period around which, or from which on, it acts:
    see :func:`torque_at`.
    """

    time: Array  # (T,) s from the beginning of the sweep
    position: Array  # (T, nu) rad
    torque: Array  # (T, nu) N m


@dataclass(frozen=True)
class ReferenceResponse:
    """The reference at the mechanism's own time steps."""

    time: Array  # (N,) s
    position: Array  # (N, nu) rad, actuator coordinates
    torque: Array  # (N, nu) N m
    loop_error_m: float  # largest gap of a loop at the end


def simulate(
    stand: Robot, config: SimulationConfig, time: Array, targets: Sequence[Array]
) -> list[Response]:
    """The serial model's response to several commands, compiled once and run side by side.

    Args:
        stand: robot on a stand.
        config: dynamics; its time step is that of ``time``.
        time: (T,) s.
        targets: each (T, nu) rad, serial coordinates.
    """
    simulation = Simulation(normalize(stand, config))
    start = simulation.init(
        jnp.asarray(stand.home_qpos), jnp.zeros(stand.model.nv), jnp.asarray(targets[0][0])
    )

    @jax.jit
    def run(targets):
        def advance(state, target):
            after, record = simulation.step(simulation.model, state, target)
            return after, (record.qpos, record.motor_torque)

        return jax.vmap(lambda t: jax.lax.scan(advance, start, t)[1])(targets)

    qpos, torque = jax.device_get(run(jnp.asarray(np.stack(targets), jnp.float32)))
    joints = np.asarray(qpos, dtype=np.float64)[..., stand.qpos_index]
    return [
        Response(time, q @ stand.actuator_map.T, np.asarray(t, dtype=np.float64))
        for q, t in zip(joints, torque, strict=True)
    ]


def refer(
    stand: Robot,
    time: Array,
    targets: Array,
    level: Level = Level.IDEAL,
    seed: int = 0,
    gravity: bool = False,
    torque_delay_s: float | None = None,
) -> ReferenceResponse:
    """The closed chain's response to one command; arguments as of :func:`simulate`."""
    period = float(np.median(np.diff(time)))
    steps = max(_STEPS_PER_PERIOD, round(period / _REFERENCE_STEP_S))
    plant = ClosedChain(
        stand,
        period,
        level,
        seed,
        timestep_s=period / steps,
        gravity=gravity,
        torque_delay_s=torque_delay_s,
    )
    plant.reset(stand.home_joints, targets[0])
    samples = plant.run(targets, len(targets))
    return ReferenceResponse(
        time[0] + period / steps * np.arange(len(samples.joint_position)),
        samples.joint_position @ stand.actuator_map.T,
        samples.motor_torque,
        plant.loop_error(),
    )


def sampled(reference: ReferenceResponse, time: Array, timing: Timing) -> Response:
    """The reference at a simulator's sample times.

    A simulation step's torque acts from its time on for one step; with staggered timing from
    half a step before to half a step after. The reference's torque is averaged over the same
    interval.
    """
    steps = round(float(np.median(np.diff(time)) / np.median(np.diff(reference.time))))
    torque = reference.torque[: len(time) * steps]
    mean = mean_over(torque, steps, timing is Timing.STAGGERED)
    return Response(time, reference.position[::steps][: len(time)], mean)


@dataclass(frozen=True)
class Gap:
    """Errors of one model against the reference over the sweep, motors of one leg's pair."""

    time: Array  # (T,) s
    position: Array  # (T, 2) rad, simulated minus reference; proximal and distal motor
    torque: Array  # (T, 2) N m

    @property
    def position_rmse(self) -> Array:
        """(2,) rad."""
        return np.sqrt(np.mean(self.position**2, axis=0))

    @property
    def torque_rmse(self) -> Array:
        """(2,) N m."""
        return np.sqrt(np.mean(self.torque**2, axis=0))


def gap(simulated: Response, reference: Response, motors: Sequence[int]) -> Gap:
    """Errors after the sweep's beginning; ``motors`` are those of the pair."""
    keep, columns = simulated.time >= -1e-9, list(motors)
    return Gap(
        simulated.time[keep],
        (simulated.position - reference.position)[keep][:, columns],
        (simulated.torque - reference.torque)[keep][:, columns],
    )
