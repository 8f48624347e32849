"""Run an exported policy: the controller of a robot, and a MuJoCo robot to try it on.

    python controller.py policy.onnx closed_chain.xml --duration-s 10

`Controller` is what a robot needs; it takes numpy and onnxruntime, and reads the rest from the
policy's file. `MotorLoop` stands in for the drives and `Plant` for the robot. Change this copy as
you like; each list over joints or motors is in the order of `joints` in the file's metadata.
"""

import argparse
import json
import os
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np
import onnxruntime

KIND, FORMAT = "s3n_mjx policy", 1


class Controller:
    """From sensors to position targets of the motors, once every `policy_period_s`.

    A motor's position is at its gear's output, and zero where all joints are: motors that share
    a linkage with the joints turn by q_p = J q_s, with J the `actuator_map`.
    """

    def __init__(self, policy):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the network is small; more threads only add jitter
        self._session = onnxruntime.InferenceSession(
            str(policy), options, providers=["CPUExecutionProvider"]
        )
        stored = self._session.get_modelmeta().custom_metadata_map
        if stored.get("kind") != json.dumps(KIND):
            raise ValueError("not a policy of s3n_mjx.export")
        if stored["format"] != str(FORMAT):
            raise ValueError(f"policy format {stored['format']}, this controller reads {FORMAT}")
        self.meta = meta = {key: json.loads(value) for key, value in stored.items()}
        self._map = np.array(meta["actuator_map"])
        self._inverse = np.linalg.inv(self._map)
        self._home = np.array(meta["home_joints_rad"], dtype=np.float32)
        self._standing = np.array(meta["standing_target_rad"])
        self._ranges = np.array([c["range"] for c in meta["commands"]]).reshape(-1, 2)
        self.default_command = np.array([c["default"] for c in meta["commands"]])
        self.reset()

    def reset(self, phase=0.0):
        """Start over, the task's clock at `phase` in rad."""
        self.observation = None  # the last one, for a log
        self.action = np.zeros(len(self._map), dtype=np.float32)
        self._phase, self._steps = phase, 0

    @property
    def standing(self):
        """Motor positions (nu,) in rad to hold before the policy takes over."""
        return self._map @ self._standing

    def step(self, gyro, gravity, motor_position, motor_velocity, command=None):
        """One policy step.

        Args:
            gyro: (3,) rad/s, angular velocity of the trunk in its own frame (x forward, z up).
            gravity: (3,) unit vector straight down in that frame; (0, 0, -1) when level.
            motor_position: (nu,) rad, encoders.
            motor_velocity: (nu,) rad/s.
            command: one number for each of `commands`; their defaults if None.

        Returns:
            Motor position targets (nu,) in rad, to be held until the next step.
        """
        meta = self.meta
        elapsed = self._steps * meta["policy_period_s"]
        self._steps += 1
        phase = self._phase + 2.0 * np.pi * meta["clock_hz"] * elapsed
        phase = np.float32(np.mod(phase, 2.0 * np.pi))
        command = self.default_command if command is None else np.array(command, dtype=float)
        if command.shape != self.default_command.shape:
            raise ValueError(f"command: {len(self.default_command)} numbers are needed")
        known = {
            "gyro": gyro,
            "gravity": gravity,
            "joint_position": np.float32(self._inverse @ motor_position) - self._home,
            "joint_velocity": self._inverse @ motor_velocity,
            "last_action": self.action,
            # It was never trained outside of these.
            "command": np.clip(command, self._ranges[:, 0], self._ranges[:, 1]),
        }
        parts = []
        for block in meta["observation"]:
            if block["of_clock"]:
                part = np.float32(block["of_clock"]) @ np.array([np.sin(phase), np.cos(phase)])
            else:
                part = np.float32(block["scale"]) * np.float32(known[block["name"]])
            if part.shape != (len(block["elements"]),):
                raise ValueError(f"{block['name']}: {len(block['elements'])} numbers are needed")
            parts.append(part)
        limit = meta["observation_limit"]
        observation = np.nan_to_num(np.concatenate(parts), nan=0.0, posinf=0.0, neginf=0.0)
        self.observation = np.clip(observation, -limit, limit).astype(np.float32)

        # Normalization and the clip to [-1, 1] are inside the network's file.
        actions = self._session.run(["action"], {"observation": self.observation[None]})
        self.action = np.asarray(actions[0])[0]
        return self._map @ (self._standing + meta["action_scale_rad"] * self.action)

    def fallen(self, gravity):
        """Whether the trunk is tilted further than in training; switch the motors off then."""
        return not gravity[2] < -np.cos(self.meta["fall_tilt_rad"])


class MotorLoop:
    """What the drives do: every `pd_period_s` a torque by position and velocity, clipped.

    The command path delays it by `torque_delay_s`, here in steps of `timestep_s`.
    """

    def __init__(self, meta, timestep_s):
        self._kp, self._kd = np.array(meta["kp_nm_rad"]), np.array(meta["kd_nms_rad"])
        self._limit = np.array(meta["torque_limit_nm"])
        self._delay_steps = round(meta["torque_delay_s"] / timestep_s)

    def reset(self, target, position, velocity):
        """As if `target` had been there for long."""
        self.update(target, position, velocity)
        self._line = deque([self.command] * self._delay_steps)

    def update(self, target, position, velocity):
        """A new command from targets and encoders, all (nu,)."""
        command = self._kp * (target - position) - self._kd * velocity
        self.command = np.clip(command, -self._limit, self._limit)

    def torque(self):
        """Torque (nu,) in N m at the motors in this time step."""
        self._line.append(self.command)
        return self._line.popleft()


class Plant:
    """A MuJoCo robot with the motors and sensors of the real one.

    On the closed-chain MJCF each motor turns its own joint. On the serial one, motors that share
    a linkage drive the joints through it: q_p = J q_s, tau_s = J^T tau_p.
    """

    def __init__(self, meta, mjcf):
        import mujoco  # here, since a robot needs none of it

        self._mujoco, self._meta = mujoco, meta
        if str(mjcf).endswith(".zip"):  # with its meshes, as a checkpoint keeps it
            with open(mjcf, "rb") as file:
                spec = mujoco.MjSpec.from_zip(file)
        else:
            spec = mujoco.MjSpec.from_file(str(mjcf))
        floor = spec.geom(meta["floor"])
        if floor is None and not any(
            g.parent.name == "world" and g.contype | g.conaffinity for g in spec.geoms
        ):
            self._add_floor(spec)
        self._hold(spec)
        self.model = model = spec.compile()
        # Torques come in as generalized forces; actuators of the MJCF would add to them.
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
        self._names = [model.joint(i).name for i in range(model.njnt)]
        bodies = {model.body(i).name: i for i in range(model.nbody)}
        if meta["trunk"] not in bodies:
            raise ValueError(f"no body {meta['trunk']!r}; it is another robot")
        # A contact is softened by the inertia behind it; the same floor as in training.
        for name, weight in meta["mujoco"]["body_invweight0"].items():
            if name in bodies:
                model.body_invweight0[bodies[name]] = weight

        joints, motors = meta["joints"], meta["closed_chain_joints"]
        closed = motors != joints and all(name in self._names for name in motors)
        driven = motors if closed else joints
        missing = [name for name in driven if name not in self._names]
        if missing:
            raise ValueError(f"no joint {missing[0]!r}; it is another robot")
        index = [model.joint(name).id for name in driven]
        self._qpos, self._dof = model.jnt_qposadr[index], model.jnt_dofadr[index]
        actuator_map = np.array(meta["actuator_map"])
        self._map = np.eye(len(joints)) if closed else actuator_map
        self._offset = np.array(meta["mujoco"]["motor_offset_rad"]) if closed else 0.0
        root = model.body_jntadr[bodies[meta["trunk"]]]
        if root < 0 or model.jnt_type[root] != mujoco.mjtJoint.mjJNT_FREE:
            raise ValueError(f"body {meta['trunk']!r} has no free joint")
        self._base = slice(model.jnt_qposadr[root], model.jnt_qposadr[root] + 7)
        self._base_dof = slice(model.jnt_dofadr[root], model.jnt_dofadr[root] + 6)
        self.data = mujoco.MjData(model)
        self.reset()

    def _add_floor(self, spec):
        touching = 0
        for geom in spec.geoms:
            touching |= geom.contype | geom.conaffinity
        spec.worldbody.add_geom(
            name=self._meta["floor"],
            type=self._mujoco.mjtGeom.mjGEOM_PLANE,
            size=[0.0, 0.0, 0.05],
            contype=touching,
            conaffinity=touching,
        )

    def _hold(self, spec):
        """Joints that no motor of the policy turns stay where they were in training."""
        drawn = spec.compile()
        known = {drawn.joint(i).name for i in range(drawn.njnt)}
        for name, value in self._meta["mujoco"]["held"].items():
            if name in known:
                moved = value - float(drawn.qpos0[drawn.joint(name).qposadr[0]])
                hold = spec.add_equality(type=self._mujoco.mjtEq.mjEQ_JOINT, name1=name)
                hold.data[:5] = [moved, 0.0, 0.0, 0.0, 0.0]

    def reset(self, qpos=None):
        """At rest at home, or in the configuration `qpos` (nq,), which must close the loops."""
        self._mujoco.mj_resetData(self.model, self.data)
        if qpos is None:
            for name, angle in self._meta["mujoco"]["home_qpos"].items():
                if name in self._names:
                    self.data.joint(name).qpos[:] = angle
            self.data.qpos[self._base] = self._meta["home_base"]
        else:
            self.data.qpos[:] = qpos
        self._mujoco.mj_forward(self.model, self.data)

    def motors(self):
        """Encoders: position in rad and velocity in rad/s of the motors, (nu,) each."""
        position = self._map @ self.data.qpos[self._qpos] - self._offset
        return position, self._map @ self.data.qvel[self._dof]

    def imu(self):
        """Angular velocity in rad/s and direction of gravity in the trunk's frame, (3,) each."""
        gravity, back = np.zeros(3), np.zeros(4)
        self._mujoco.mju_negQuat(back, self.data.qpos[self._base][3:])
        self._mujoco.mju_rotVecQuat(gravity, np.array([0.0, 0.0, -1.0]), back)
        return self.data.qvel[self._base_dof][3:].copy(), gravity

    def step(self, torque):
        """One time step under the motors' torque (nu,) in N m."""
        self.data.qfrc_applied[self._dof] = self._map.T @ torque
        self._mujoco.mj_step(self.model, self.data)


def run(controller, plant, duration_s, command=None, phase=0.0, each=lambda: True) -> dict:
    """Let the controller act on the plant from where that is.

    Args:
        controller, plant: of the same metadata.
        duration_s: at most; it ends with a fall.
        command: for the controller.
        phase: of the task's clock at the start, in rad.
        each: called after every policy step; ends it with False.

    Returns:
        Arrays by name: of every period of the motors' loop, and `observation` and `action` of
        every policy step.
    """
    meta, timestep = controller.meta, plant.model.opt.timestep
    pd_steps = round(meta["pd_period_s"] / timestep)
    if pd_steps < 1 or abs(pd_steps * timestep - meta["pd_period_s"]) > 1e-6 * timestep:
        raise ValueError(
            f"time step {timestep:g} s is no whole part of the motors' {meta['pd_period_s']:g} s"
        )
    pd_periods = round(meta["policy_period_s"] / meta["pd_period_s"])
    drives = MotorLoop(meta, timestep)
    controller.reset(phase)
    drives.reset(controller.standing, *plant.motors())
    log = {}

    def note(**values):
        for name, value in values.items():
            log.setdefault(name, []).append(np.array(value))

    for _ in range(round(duration_s / meta["policy_period_s"])):
        gyro, gravity = plant.imu()
        if controller.fallen(gravity):
            break
        target = controller.step(gyro, gravity, *plant.motors(), command)
        note(observation=controller.observation, action=controller.action)
        for _ in range(pd_periods):
            position, velocity = plant.motors()
            drives.update(target, position, velocity)
            note(time_s=plant.data.time, qpos=plant.data.qpos, qvel=plant.data.qvel)
            note(motor_position_rad=position, motor_velocity_rad_s=velocity)
            note(motor_target_rad=target, motor_command_nm=drives.command)
            for _ in range(pd_steps):
                plant.step(drives.torque())
        if not each():
            break
    return {name: np.array(values) for name, values in log.items()}


def in_window(plant, period_s):
    """MuJoCo's viewer, and a function that shows the plant there in real time."""
    # Without a screen GLFW ends the program by itself.
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        raise ValueError("--viewer: no screen (DISPLAY is not set)")
    import mujoco.viewer

    viewer = mujoco.viewer.launch_passive(
        plant.model, plant.data, show_left_ui=False, show_right_ui=False
    )
    due = time.monotonic()

    def each():
        nonlocal due
        viewer.sync()
        due = max(due + period_s, time.monotonic() - period_s)
        time.sleep(max(due - time.monotonic(), 0.0))
        return viewer.is_running()

    return viewer, each


def loaded(kind, path, *args):
    """`kind(*args, path)`, any trouble in one line."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        return kind(*args, path)
    except Exception as error:  # onnxruntime and MuJoCo have many kinds
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None


def main():
    """The command; see `--help`."""
    parser = argparse.ArgumentParser(description="Try an exported policy on a MuJoCo robot.")
    parser.add_argument("policy", type=Path, help="policy.onnx, of s3n_mjx.export")
    parser.add_argument("mjcf", type=Path, help="the robot: closed-chain or serial MJCF")
    parser.add_argument("--duration-s", type=float, default=10.0)
    parser.add_argument("--command", type=float, nargs="*", help="for a task that can be steered")
    parser.add_argument("--viewer", action="store_true", help="show it, in real time")
    parser.add_argument("--save", type=Path, metavar="FILE.npz", help="keep what happened")
    options = parser.parse_args()

    controller = loaded(Controller, options.policy)
    meta = controller.meta
    plant = loaded(Plant, options.mjcf, meta)
    if not options.duration_s >= meta["policy_period_s"]:
        raise ValueError("--duration-s: less than a policy step")
    if options.command is not None and len(options.command) != len(meta["commands"]):
        names = " and ".join(c["name"] for c in meta["commands"]) or "no numbers"
        raise ValueError(f"--command: the task takes {names}")
    for value, command in zip(options.command or [], meta["commands"], strict=False):
        low, high = command["range"]
        if not low <= value <= high:
            raise ValueError(f"--command: {command['name']} is trained from {low:g} to {high:g}")

    started = time.monotonic()
    if options.viewer:
        viewer, each = in_window(plant, meta["policy_period_s"])
        with viewer:
            log = run(controller, plant, options.duration_s, options.command, each=each)
    else:
        log = run(controller, plant, options.duration_s, options.command)
    if options.save:
        with options.save.open("wb") as file:
            np.savez_compressed(file, **log)
    fell = controller.fallen(plant.imu()[1])
    seconds = len(log["action"]) * meta["policy_period_s"]
    tilt = np.degrees(np.arccos(np.clip(-log["observation"][:, 5], -1.0, 1.0)).max())
    print(
        f"{meta['task']}, {meta['robot']}: {'fell after' if fell else 'on its feet for'}"
        f" {seconds:.2f} s; tilted by {tilt:.1f} deg at most, mean yaw rate"
        f" {log['observation'][:, 2].mean():+.2f} rad/s, motor commands up to"
        f" {np.abs(log['motor_command_nm']).max():.1f} N m ({time.monotonic() - started:.1f} s)"
    )


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
