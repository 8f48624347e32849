"""The closed-chain robot in C MuJoCo, under the command path that the hardware has.

Position targets go in, as they would to the robot; what its sensors say comes out. Everything
here is in real time steps of the mechanism (0.3 ms), far below the simulator's.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.reference.imperfections import LEVELS, Level, add_friction, disturb_links
from s3n_mjx.robot.actuators import convert_armature
from s3n_mjx.robot.loops import close_loops
from s3n_mjx.robot.model import Robot, load_spec
from s3n_mjx.robot.names import name_everything
from s3n_mjx.robot.preparation import add_floor, floors
from s3n_mjx.robot.stand import clamp, drop_idle_loops
from s3n_mjx.robot.weld import weld

Array = NDArray[np.float64]

# A linkage that misses by more than this cannot be put together in that posture.
_ASSEMBLY_TOLERANCE_M = 1e-4
_ASSEMBLY_MOVE_RAD = 0.2


@dataclass(frozen=True)
class Samples:
    """What the sensors gave over N steps of the mechanism; every array starts with axis N.

    Torque and foot force are of the step that begins at the sample's time.
    """

    joint_position: Array  # (N, nu) rad, serial coordinates
    joint_velocity: Array  # (N, nu) rad/s
    motor_torque: Array  # (N, nu) N m, actuator coordinates, after clip and delay
    motor_command: Array  # (N, nu) N m, actuator coordinates, after clip, before the delay
    base: Array  # (N, 7) m and wxyz; (N, 0) on a stand
    base_velocity: Array  # (N, 6) m/s world, rad/s body; (N, 0) on a stand
    foot_force: Array  # (N, nfeet, 3) N, world frame, from the floor on the foot
    qpos: Array  # (N, nq) true configuration of the closed-chain model, for rendering


class ClosedChain:
    """A robot's closed-chain model as the stand-in for its hardware.

    Args:
        robot: the serial robot; on a stand (:func:`s3n_mjx.robot.stand.on_stand`) its
            reference is on one, too.
        control_period_s: period of the position loop, whose commands are held in between.
        level: imperfections by name.
        seed: of link errors and noise.
        timestep_s: of the mechanism; by default that of its MJCF.
        gravity: whether it has weight.
        torque_delay_s: of the command path; by default that of the description.

    Raises:
        UserError: no closed-chain MJCF, a joint that it lacks, or a Jacobian that it contradicts.
    """

    def __init__(
        self,
        robot: Robot,
        control_period_s: float,
        level: Level = Level.IDEAL,
        seed: int = 0,
        timestep_s: float | None = None,
        gravity: bool = True,
        torque_delay_s: float | None = None,
    ):
        if robot.description.closed_chain is None:
            raise UserError(
                f"{robot.path}: closed_chain: not given; name the closed-chain MJCF, or compare"
                " with a log"
            )
        self.robot = robot
        self.level = level
        self.imperfections = LEVELS[level]
        self._rng = np.random.default_rng(seed)
        self._file = robot.path.parent / robot.description.closed_chain
        self._on_stand = robot.model.nv == len(robot.joints)
        entries = {e.joint: e for e in robot.description.driven}
        motor_joints = [entries[j].closed_chain_joint or j for j in robot.joints]

        self.model = self._compile(motor_joints, gravity, timestep_s)
        self.data = mujoco.MjData(self.model)
        steps = control_period_s / self.model.opt.timestep
        if abs(steps - round(steps)) > 1e-6:
            raise UserError(
                f"{self._file}: time step {self.model.opt.timestep:g} s is no whole part of the"
                f" control period of {control_period_s:g} s"
            )
        self.steps_per_control = round(steps)
        delay = (
            robot.description.torque_delay_ms * 1e-3 if torque_delay_s is None else torque_delay_s
        )
        self._delay_steps = round(delay / self.model.opt.timestep)

        index = [self.model.joint(name).id for name in robot.joints]
        self._qpos = self.model.jnt_qposadr[index]
        self._dof = self.model.jnt_dofadr[index]
        motors = [self.model.joint(name).id for name in motor_joints]
        self._motor_qpos = self.model.jnt_qposadr[motors]
        self._motor_dof = self.model.jnt_dofadr[motors]
        self._feet = np.array([self.model.geom(foot).id for foot in robot.feet])
        self._foot_of_geom = {int(g): i for i, g in enumerate(self._feet)}
        self._check_jacobian()

    def _compile(
        self, motor_joints: list[str], gravity: bool, timestep_s: float | None
    ) -> mujoco.MjModel:
        robot, im = self.robot, self.imperfections
        spec = load_spec(self._file)
        name_everything(spec)
        convert_armature(spec, self._file)  # before the actuators go
        if not floors(spec):
            add_floor(spec)
        model = self._compiled(spec)
        # Where the loops are known to be closed: the home keyframe, else the pose as drawn.
        drawn = model.qpos0
        if model.nkey:
            names = [model.key(i).name for i in range(model.nkey)]
            home = robot.description.home_keyframe
            drawn = model.key_qpos[names.index(home) if home in names else 0]
        self._closed = {
            model.joint(i).name: float(drawn[model.jnt_qposadr[i]]) for i in range(model.njnt)
        }
        known = [model.joint(i).name for i in range(model.njnt)]
        held = [name for name in known if name in robot.held]
        for name in held:
            weld(spec, model, name, robot.held[name])
        if held:
            for key in list(spec.keys):  # of another size now
                spec.delete(key)
        for name in [*robot.joints, *motor_joints]:
            if name not in known:
                raise UserError(
                    f"{self._file}: no joint {name!r}; the closed-chain MJCF must have the serial"
                    " joints under their names, and `closed_chain_joint` names the motors'"
                )
        known = [model.geom(i).name for i in range(model.ngeom)]
        for foot in robot.feet:
            if foot not in known:
                raise UserError(f"{self._file}: no foot geom {foot!r}")
        # Motors are driven through their joints' generalized forces.
        for element in [*spec.actuators, *spec.sensors]:
            spec.delete(element)
        for key in spec.keys:
            key.ctrl, key.act = [], []
        if held:
            model = spec.compile()
        disturb_links(spec, model, {robot.description.trunk}, im, self._rng)
        for name in motor_joints:
            add_friction(
                spec.joint(name), im.coulomb_friction_nm, timestep_s or spec.option.timestep
            )
        if self._on_stand:
            linkage = self._linkage_joints(model, set(robot.joints) | set(motor_joints))
            clamp(spec, linkage, self._closed)
            drop_idle_loops(spec)
        if timestep_s is not None:
            # Loop stiffness is given as a time constant of some steps.
            factor = timestep_s / spec.option.timestep
            for equality in spec.equalities:
                if equality.solref[0] > 0:
                    equality.solref[0] *= factor
            spec.option.timestep = timestep_s
        if not gravity:
            spec.option.gravity = [0.0, 0.0, 0.0]
        result = self._compiled(spec)
        # The same floor: see `normalize`. The linkage's bodies touch nothing.
        serial = robot.model
        names = {serial.body(i).name: i for i in range(1, serial.nbody)}
        for i in range(1, result.nbody):
            if result.body(i).name in names:
                weight = serial.body_invweight0[names[result.body(i).name]]
                result.body_invweight0[i] = weight
        return result

    def _compiled(self, spec: mujoco.MjSpec) -> mujoco.MjModel:
        try:
            return spec.compile()
        except ValueError as error:
            raise UserError(
                f"{self._file}: does not compile ({' '.join(str(error).split())})"
            ) from None

    @staticmethod
    def _linkage_joints(model: mujoco.MjModel, driven: set[str]) -> set[str]:
        """Driven joints, and every passive one that hangs on them."""
        result = set(driven)
        for i in range(model.njnt):
            body = model.jnt_bodyid[i]
            while body:
                first = model.body_jntadr[body]
                above = {model.joint(first + k).name for k in range(model.body_jntnum[body])}
                if above & driven:
                    result.add(model.joint(i).name)
                    break
                body = model.body_parentid[body]
        return result

    def _check_jacobian(self) -> None:
        """The motors' angles must be ``J q_s`` up to a constant, over the pairs' range."""
        robot = self.robot
        offsets = []
        home = robot.home_joints
        for share, turn in ((0.2, -0.1), (0.5, 0.2), (0.8, 0.1)):
            joints = home.copy()
            for index, name in enumerate(robot.joints):  # those of no pair have motors, too
                joints[index] += turn
                joint = robot.model.joint(name)
                if robot.model.jnt_limited[joint.id]:
                    joints[index] = np.clip(joints[index], *joint.range)
            for pair in robot.pairs:
                low, high = pair.angle_range
                joints[pair.distal] = low + share * (high - low)
            self.assemble(joints)
            offsets.append(self.data.qpos[self._motor_qpos] - robot.actuator_map @ joints)
        error = np.ptp(np.array(offsets), axis=0)
        worst = int(error.argmax())
        if error[worst] > 1e-3:
            raise UserError(
                f"{robot.path}: the closed-chain MJCF contradicts `jacobian` at the motor beside"
                f" {robot.joints[worst]}: {error[worst]:.3f} rad off over the posture range;"
                " correct `jacobian`, or name the joint that it turns as `closed_chain_joint`"
            )
        # Angles of the motors' joints where their encoders read zero, (nu,) rad.
        self.motor_offset = np.mean(offsets, axis=0)

    def assemble(self, joints: Array, base: Array | None = None) -> float:
        """Close the loops with the serial joints at ``joints``, at rest.

        Args:
            joints: (nu,) rad.
            base: (7,) pose of the trunk; ignored on a stand.

        Returns:
            What is left open, in m.

        Raises:
            UserError: the linkage cannot reach that posture.
        """
        model, data = self.model, self.data
        mujoco.mj_resetData(model, data)
        hinges = [i for i in range(model.njnt) if model.jnt_type[i] != mujoco.mjtJoint.mjJNT_FREE]
        for i in hinges:
            data.qpos[model.jnt_qposadr[i]] = self._closed[model.joint(i).name]
        if base is not None and not self._on_stand:
            data.qpos[:7] = base
        free = np.setdiff1d(model.jnt_dofadr[hinges], self._dof).astype(np.int64)

        # In small moves from where the loops are closed, so that none flips to its other branch.
        start = data.qpos[self._qpos].copy()
        moves = max(1, math.ceil(np.abs(joints - start).max() / _ASSEMBLY_MOVE_RAD))
        for move in range(1, moves + 1):
            data.qpos[self._qpos] = start + (joints - start) * move / moves
            close_loops(model, data, free)
        error = self.loop_error()
        if error > _ASSEMBLY_TOLERANCE_M:
            raise UserError(
                f"{self._file}: the loops stay {error * 1e3:.2f} mm open in posture"
                f" {np.round(joints, 3).tolist()} rad"
            )
        return error

    def loop_error(self) -> float:
        """Largest gap of a loop in m."""
        return float(np.abs(self.data.efc_pos[: self.data.ne]).max(initial=0.0))

    def reset(self, joints: Array, target: Array, base: Array | None = None) -> None:
        """At rest in a posture, ``target`` commanded since long ago.

        Args:
            joints: (nu,) rad, serial coordinates.
            target: (nu,) rad, serial coordinates.
            base: (7,), see :meth:`assemble`.
        """
        self.assemble(joints, base)
        mujoco.mj_forward(self.model, self.data)
        self._command = self._position_loop(target, np.zeros(len(self.robot.joints)))
        self._line = deque([self._command] * self._delay_steps)

    def _noisy(self, values: Array, sigma: float) -> Array:
        return values + sigma * self._rng.standard_normal(values.shape) if sigma else values

    def _encoder(self, angles: Array) -> Array:
        im = self.imperfections
        read = self._noisy(angles, im.encoder_noise_rad)
        step = im.encoder_step_rad
        return np.round(read / step) * step if step else read

    def _motors(self) -> tuple[Array, Array]:
        """Position and velocity in actuator coordinates as the drives read them."""
        position = self._encoder(self.data.qpos[self._motor_qpos] - self.motor_offset)
        velocity = self.data.qvel[self._motor_dof]
        return position, self._noisy(velocity, self.imperfections.velocity_noise_rad_s)

    def _position_loop(self, target: Array, feedforward: Array) -> Array:
        robot = self.robot
        position, velocity = self._motors()
        command = robot.kp * (robot.actuator_map @ target - position) - robot.kd * velocity
        command += feedforward
        return np.clip(command, -robot.torque_limit, robot.torque_limit)

    def observe(self) -> tuple[Array, Array]:
        """Configuration (nq,) and velocity (nv,) of the *serial* robot, from the sensors."""
        robot, im = self.robot, self.imperfections
        qpos, qvel = robot.home_qpos.copy(), np.zeros(robot.model.nv)
        position, velocity = self._motors()
        inverse = np.linalg.inv(robot.actuator_map)
        qpos[robot.qpos_index], qvel[robot.dof_index] = inverse @ position, inverse @ velocity
        if not self._on_stand:
            qpos[:7], qvel[:6] = self.data.qpos[:7], self.data.qvel[:6]
            qvel[3:6] = self._noisy(qvel[3:6], im.gyro_noise_rad_s)
            if im.attitude_noise_rad:
                mujoco.mju_quatIntegrate(
                    qpos[3:7], self._noisy(np.zeros(3), im.attitude_noise_rad), 1.0
                )
        return qpos, qvel

    def run(self, target: Array, control_steps: int, feedforward: Array | float = 0.0) -> Samples:
        """Hold ``target`` for some periods of the position loop.

        Args:
            target: (nu,) rad, serial coordinates; or (control_steps, nu), one for each period.
            control_steps: how many periods.
            feedforward: N m, actuator coordinates, added to the loop's torque; shaped as target.
        """
        robot, data, im = self.robot, self.data, self.imperfections
        targets = np.broadcast_to(target, (control_steps, len(robot.joints)))
        added = np.broadcast_to(feedforward, targets.shape)
        count = control_steps * self.steps_per_control
        nu, nfeet = len(robot.joints), len(robot.feet)
        position, velocity, torque, command = (np.empty((count, nu)) for _ in range(4))
        floating = 0 if self._on_stand else 7
        base, base_velocity = np.empty((count, floating)), np.empty((count, max(floating - 1, 0)))
        force, qpos = np.zeros((count, nfeet, 3)), np.empty((count, self.model.nq))
        for k in range(count):
            if k % self.steps_per_control == 0:
                period = k // self.steps_per_control
                self._command = self._position_loop(targets[period], added[period])
            self._line.append(self._command)
            applied = self._line.popleft()
            position[k], velocity[k] = data.qpos[self._qpos], data.qvel[self._dof]
            base[k], base_velocity[k] = data.qpos[:floating], data.qvel[: base_velocity.shape[1]]
            qpos[k], torque[k], command[k] = data.qpos, applied, self._command
            data.qfrc_applied[self._motor_dof] = applied
            mujoco.mj_step(self.model, data)
            if data.ncon:
                self._foot_forces(force[k])
        force[force != 0] = self._noisy(force[force != 0], im.force_plate_noise_n)
        return Samples(
            joint_position=self._noisy(position, im.encoder_noise_rad),
            joint_velocity=self._noisy(velocity, im.velocity_noise_rad_s),
            motor_torque=self._noisy(torque, im.torque_noise_nm),
            motor_command=command,
            base=base,
            base_velocity=base_velocity,
            foot_force=force,
            qpos=qpos,
        )

    def _foot_forces(self, out: Array) -> None:
        local = np.zeros(6)
        for i in range(self.data.ncon):
            contact = self.data.contact[i]
            first, second = int(contact.geom1), int(contact.geom2)
            foot, sign = self._foot_of_geom.get(second), 1.0
            if foot is None:
                foot, sign = self._foot_of_geom.get(first), -1.0
            if foot is None:
                continue
            mujoco.mj_contactForce(self.model, self.data, i, local)
            out[foot] += sign * (contact.frame.reshape(3, 3).T @ local[:3])


def concatenated(parts: Sequence[Samples]) -> Samples:
    """One after the other."""
    names = [f.name for f in dataclasses.fields(Samples)]
    return Samples(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in names})


def mean_over(values: Array, steps: int, centred: bool) -> Array:
    """Means over ``steps`` samples, (N,...) to (N // steps, ...).

    Args:
        values: of the steps that begin at the samples.
        steps: samples in a mean.
        centred: whether a mean is around its sample instead of from it on; what was before the
            first sample is taken to be as there.
    """
    if centred:
        before = np.repeat(values[:1], steps // 2, axis=0)
        values = np.concatenate([before, values])[: len(values)]
    return values.reshape(-1, steps, *values.shape[1:]).mean(axis=1)
