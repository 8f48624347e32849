"""The control loop: from a policy's joint targets to `qfrc_applied` to the next state.

Read :meth:`Simulation.generalized_force` top to bottom to follow one torque. Everything here
is pure, jit-compiled by its caller and vmapped over environments.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct
from mujoco import mjx
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.simulation import physics
from s3n_mjx.simulation.config import Timing
from s3n_mjx.simulation.contact import body_contact, foot_forces
from s3n_mjx.simulation.injection import NormalizedModel
from s3n_mjx.simulation.neglected import BaseCoupling, LinkGravity, VelocityTerms
from s3n_mjx.simulation.standing import standing_target
from s3n_mjx.simulation.support import impossible_collisions


def full_precision(function):
    """Physics in full float32 wherever it runs: accelerators would multiply in 10 or 8 bits."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return wrapped


@struct.dataclass
class SimulationState:
    """What one simulation step needs of the one before; far smaller than `mjx.Data`."""

    qpos: jax.Array  # (nq,)
    qvel: jax.Array  # (nv,)
    qvel_last: jax.Array  # (nv,), one step earlier; equal to qvel at reset
    qacc_warmstart: jax.Array  # (nv,), the constraint solver's first guess
    command_history: jax.Array  # (n_delay, nu), clipped motor commands in N m, newest first


@struct.dataclass
class StepRecord:
    """What happened in a simulation step, at the time of the state it started from."""

    qpos: jax.Array  # (nq,)
    qvel: jax.Array  # (nv,)
    motor_torque: jax.Array  # (nu,) N m in actuator coordinates, after clip and delay
    foot_force: jax.Array  # (nfeet, 3) N, world frame, from the floor on the foot
    foot_position: jax.Array  # (nfeet, 3) m, world frame
    body_contact: jax.Array  # () bool, whether anything but a foot touches something


def delay_weights(delay_s: float, timestep_s: float, timing: Timing) -> NDArray[np.float64]:
    """Weights of the motor commands of this and earlier steps in the torque of this step.

    A command held from its sample time and delayed by ``T_d`` covers parts of two simulation
    steps; the weights are those parts, so that the impulse is kept. With staggered timing a
    step's torque acts from half a step before its positions to half a step after, which is half
    a step more.

    Returns:
        Shape (n_delay + 1,), newest first, sum 1.
    """
    steps = delay_s / timestep_s + (0.5 if timing is Timing.STAGGERED else 0.0)
    # A delay of 3 ms over a step of 3 ms must not become two weights by rounding.
    steps = round(steps, 9)
    whole = math.floor(steps)
    weights = np.zeros(math.ceil(steps) + 1)
    weights[whole] = 1.0 - (steps - whole)
    if steps > whole:
        weights[whole + 1] = steps - whole
    return weights


def _refusal(model: mujoco.MjModel, error: NotImplementedError) -> str:
    geoms = impossible_collisions(model)
    if not geoms:
        return f"MJX cannot simulate this model: {error}"
    return (
        f"MJX has {'; '.join(geoms)}; write `collisions: feet` into the description, so that"
        " nothing but feet and floor touch, or make one geom of each pair a capsule, box or mesh"
    )


@dataclass(frozen=True, eq=False)
class _LaggedTerms:
    """Lagged increments of all pairs as arrays over pairs, entry by entry."""

    index: NDArray[np.int64]  # (2, n_pairs) actuated joints, proximal and distal
    scatter: NDArray[np.int64]  # (nu,) into the 2 n_pairs torques, 2 n_pairs for none
    constant: NDArray[np.float32]  # (2, 2, n_pairs) kg m^2
    cosine: NDArray[np.float32]
    sine: NDArray[np.float32]
    damping: NDArray[np.float32]  # (2, 2, n_pairs) N m s/rad

    @classmethod
    def of(cls, normalized: NormalizedModel) -> _LaggedTerms:
        pairs, splits = normalized.robot.pairs, normalized.splits
        index = np.array([[p.proximal for p in pairs], [p.distal for p in pairs]])
        scatter = np.full(len(normalized.robot.joints), index.size)
        scatter[index.ravel()] = np.arange(index.size)

        def stack(parts: list[NDArray[np.float64]]) -> NDArray[np.float32]:
            return np.stack(parts, axis=-1).astype(np.float32)

        return cls(
            index,
            scatter,
            stack([s.lagged_inertia.constant for s in splits]),
            stack([s.lagged_inertia.cosine for s in splits]),
            stack([s.lagged_inertia.sine for s in splits]),
            stack([s.lagged_damping for s in splits]),
        )

    def torque(self, position: jax.Array, velocity: jax.Array, acceleration: jax.Array):
        """``-dM(alpha) qacc_last - dD qvel`` on the actuated joints, (nu,) N m (Eq. 26, 27)."""
        alpha = position[self.index[1]]
        inertia = self.constant + self.cosine * jnp.cos(alpha) + self.sine * jnp.sin(alpha)
        # Written out: a batched 2x2 product is far slower on CPU than these fused products.
        qacc, qvel = acceleration[self.index], velocity[self.index]
        torque = -(
            inertia[:, 0] * qacc[0]
            + inertia[:, 1] * qacc[1]
            + self.damping[:, 0] * qvel[0]
            + self.damping[:, 1] * qvel[1]
        )
        return jnp.append(torque.ravel(), 0.0)[self.scatter]


class Simulation:
    """A normalized robot in MJX under position control in actuator coordinates.

    Args:
        normalized: the robot with S3N in its model.

    Raises:
        UserError: MJX cannot simulate the model; the line names what it refuses.
    """

    def __init__(self, normalized: NormalizedModel):
        robot, config = normalized.robot, normalized.config
        self.normalized = normalized
        self.robot = robot
        self.config = config
        # MJX would take the first device of all, which may be another process's.
        device = jax.local_devices()[0]
        try:
            self.model: mjx.Model = mjx.put_model(normalized.tree, device, impl="jax")
        except NotImplementedError as error:
            raise UserError(f"{robot.path}: {_refusal(normalized.tree, error)}") from None
        if config.base_coupling and mjx.is_sparse(self.model):
            raise UserError(
                f"{robot.path}: --base-coupling needs MJX's dense mass matrix; set"
                ' <option jacobian="dense"/> in the MJCF'
            )
        self._template = mjx.make_data(self.model, device)
        self._timestep = config.timestep_s
        self._delay = delay_weights(
            robot.description.torque_delay_ms * 1e-3, config.timestep_s, config.timing
        ).astype(np.float32)
        self._staggered = config.timing is Timing.STAGGERED
        coupling = jnp.asarray(normalized.coupling, jnp.float32)
        self._coupling = coupling if normalized.coupling.any() else None
        self._base = BaseCoupling(robot) if config.base_coupling else None
        self._lagged = _LaggedTerms.of(normalized) if normalized.uses_lag else None
        self._velocity = VelocityTerms.of(robot, config) if config.velocity_terms else None
        self._gravity = LinkGravity(robot) if config.link_gravity else None
        self._map = robot.actuator_map.astype(np.float32)
        self._kp, self._kd, self._limit = (
            x.astype(np.float32) for x in (robot.kp, robot.kd, robot.torque_limit)
        )
        self._from_joint = np.full(normalized.model.nv, len(robot.joints))
        self._from_joint[robot.dof_index] = np.arange(len(robot.joints))
        self._feet = np.array([normalized.tree.geom(foot).id for foot in robot.feet])
        # Targets, rad, shape (nu,), under which the robot stands still at home.
        self.standing_target = jnp.asarray(standing_target(robot), jnp.float32)

    @property
    def timestep_s(self) -> float:
        """Simulation step in s."""
        return self._timestep

    @full_precision
    def init(self, qpos: jax.Array, qvel: jax.Array, target: jax.Array) -> SimulationState:
        """State at reset: no acceleration yet, and ``target`` commanded since long ago.

        Args:
            qpos: shape (nq,).
            qvel: shape (nv,).
            target: joint targets in rad, shape (nu,).
        """
        qpos, qvel = jnp.asarray(qpos, jnp.float32), jnp.asarray(qvel, jnp.float32)
        command = self._motor_command(
            target, qpos[self.robot.qpos_index], qvel[self.robot.dof_index]
        )
        return SimulationState(
            qpos=qpos,
            qvel=qvel,
            qvel_last=qvel,
            qacc_warmstart=jnp.zeros_like(qvel),
            command_history=jnp.tile(command, (len(self._delay) - 1, 1)),
        )

    def velocity(self, state: SimulationState) -> jax.Array:
        """Generalized velocity (nv,) at the time of ``state.qpos``, as the timing has it."""
        if not self._staggered:
            return state.qvel
        return state.qvel + 0.5 * (state.qvel - state.qvel_last)

    def _motor_command(
        self, target: jax.Array, position: jax.Array, velocity: jax.Array
    ) -> jax.Array:
        """PD in actuator coordinates, clipped by the motors' limits, (nu,) N m."""
        error = self._map @ (target - position)
        command = self._kp * error - self._kd * (self._map @ velocity)
        return jnp.clip(command, -self._limit, self._limit)

    def generalized_force(
        self, state: SimulationState, target: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The one place where a torque goes from a policy's targets to `qfrc_applied`.

        Args:
            state: at the start of the simulation step.
            target: joint targets in rad, serial coordinates, shape (nu,).

        Returns:
            ``qfrc_applied`` (nv,), motor torque (nu,) in actuator coordinates, and the new
            command history.
        """
        position = state.qpos[self.robot.qpos_index]
        velocity = self.velocity(state)[self.robot.dof_index]
        # Realised, unfiltered, zero at reset. `Data.qacc` is another one: damping is solved
        # implicitly after it.
        acceleration = (state.qvel - state.qvel_last)[self.robot.dof_index] / self._timestep

        # Serial targets -> actuator coordinates -> PD -> motor limit (SPEC of the hardware loop).
        command = self._motor_command(target, position, velocity)
        # -> command-path delay T_d.
        commands = jnp.concatenate([command[None], state.command_history])
        motor_torque = jnp.asarray(self._delay) @ commands
        # -> serial coordinates, tau_s = J^T tau_p (Eq. 4).
        torque = self._map.T @ motor_torque
        # S3N: inside the simulator only, never delayed, never clipped with the motors' (Eq. 25).
        if self._lagged is not None:
            torque = torque + self._lagged.torque(position, velocity, acceleration)
        if self._velocity is not None:
            torque = torque + self._velocity.torque(position, velocity)
        if self._gravity is not None:
            torque = torque + self._gravity.torque(state.qpos)
        qfrc_applied = jnp.append(torque, 0.0)[self._from_joint]
        return qfrc_applied, motor_torque, commands[: len(self._delay) - 1]

    def step(
        self, model: mjx.Model, state: SimulationState, target: jax.Array
    ) -> tuple[SimulationState, StepRecord]:
        """One simulation step of ``timestep_s``.

        Args:
            model: ``self.model``, or a copy with randomized masses.
            state: of the step before.
            target: joint targets in rad, shape (nu,).
        """
        state, record, _ = self.step_with_data(model, state, target)
        return state, record

    @full_precision
    def step_with_data(
        self, model: mjx.Model, state: SimulationState, target: jax.Array
    ) -> tuple[SimulationState, StepRecord, mjx.Data]:
        """As :meth:`step`, with all that MJX leaves behind, for a look inside."""
        qfrc_applied, motor_torque, history = self.generalized_force(state, target)
        data = physics.step(
            model,
            self._template.replace(
                qpos=state.qpos,
                qvel=state.qvel,
                qacc_warmstart=state.qacc_warmstart,
                qfrc_applied=qfrc_applied,
            ),
            self._coupling,
            self._base,
        )
        record = StepRecord(
            qpos=state.qpos,
            qvel=self.velocity(state),
            motor_torque=motor_torque,
            foot_force=foot_forces(model, data, self._feet),
            foot_position=data.geom_xpos[self._feet],
            body_contact=body_contact(data, self._feet),
        )
        return (
            SimulationState(
                qpos=data.qpos,
                qvel=data.qvel,
                qvel_last=state.qvel,
                qacc_warmstart=data.qacc_warmstart,
                command_history=history,
            ),
            record,
            data,
        )

    def control_step(
        self, model: mjx.Model, state: SimulationState, target: jax.Array
    ) -> tuple[SimulationState, StepRecord]:
        """``substeps`` simulation steps under one target: a policy step.

        Returns:
            The state after them, and the record of each, stacked along a leading axis.
        """
        return jax.lax.scan(
            lambda carry, _: self.step(model, carry, target),
            state,
            length=self.config.substeps,
        )
