"""`python -m s3n_mjx.play --checkpoint PATH`: watch a policy in MuJoCo's viewer, or as a video.

Where there is a screen the policy runs in a window, and the arrow keys steer a task that can be
steered. Elsewhere, or with `--video`, it is rendered to an mp4.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Protocol

import mujoco
import numpy as np
from annotated_types import Gt
from pydantic.dataclasses import dataclass

from s3n_mjx import compat, runtime  # noqa: F401 - compat before brax
from s3n_mjx.cli import make_folder, parse_arguments, run
from s3n_mjx.config_files import STRICT, Seed
from s3n_mjx.envs.base import RobotEnv
from s3n_mjx.errors import UserError
from s3n_mjx.eval import CLOSED_CHAIN, default_folder, nominal_env, policy_of
from s3n_mjx.evaluation import video
from s3n_mjx.evaluation.compared import SIMULATOR
from s3n_mjx.evaluation.rollout import SimulatorPlayer, rollout
from s3n_mjx.reference.closed_chain import ClosedChain
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.reference.rollout import ClosedChainPlayer, compiled_actor, rollout_reference
from s3n_mjx.training import checkpoint as checkpoints
from s3n_mjx.training.policy import Policy

STEP = 0.1  # of an arrow key, m/s or rad/s

# GLFW's numbers of keys: the element of the command and the direction.
_ARROWS = {265: (0, 1), 264: (0, -1), 263: (1, 1), 262: (1, -1)}
_ENTER, _BACKSPACE = 257, 259


@dataclass(frozen=True, config=STRICT)
class Play:
    """Watch a checkpoint's policy.

    Args:
        checkpoint: checkpoint folder, run folder, any level between, or a folder of runs; the
            newest checkpoint counts.
        on: `simulator`, the one it was trained in, or `closed_chain`, the stand-in for hardware.
        level: of the closed chain.
        command: what the policy is told at first, in the task's order; for the circle v_x in m/s
            and w_z in rad/s. By default the task's own.
        video: mp4 or gif to write in place of a window; where there is no screen by default an
            mp4 in the folder of the evaluation, named by plant and command.
        duration_s: of the video, in s.
        fps: frames per second of the video.
        size: width and height of the video, in pixel.
        seed: of the start, and of the closed chain's imperfections.
    """

    checkpoint: Path
    on: str = SIMULATOR
    level: Level = Level.IDEAL
    command: tuple[float, ...] | None = None
    video: Path | None = None
    duration_s: Annotated[float, Gt(0)] = 10.0
    fps: Annotated[float, Gt(0)] = 25.0
    size: tuple[Annotated[int, Gt(0)], Annotated[int, Gt(0)]] = (640, 480)
    seed: Seed = 0


class Player(Protocol):
    """A plant under a policy."""

    model: mujoco.MjModel

    def reset(self) -> np.ndarray:
        """Start over; returns qpos."""
        ...

    def step(self, command: np.ndarray) -> tuple[np.ndarray, bool]:
        """One policy step; returns qpos and whether it fell."""
        ...


class Steering:
    """A command that keys change, within the ranges that the policy was trained in.

    Up and down change the first element, left and right the second; Enter brings the initial
    command back, Backspace the robot.

    Args:
        ranges: by the names of the command's elements, in their order.
        initial: the command at first.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float]], initial: np.ndarray):
        self.ranges = dict(ranges)
        self.initial = np.asarray(initial, dtype=np.float64)
        self.command = self.initial.copy()
        self.start_over = False

    def press(self, key: int) -> None:
        """Take a key of MuJoCo's viewer."""
        if key == _BACKSPACE:
            self.start_over = True
        elif key == _ENTER:
            self.command = self.initial.copy()
        elif key in _ARROWS and _ARROWS[key][0] < len(self.ranges):
            element, direction = _ARROWS[key]
            low, high = list(self.ranges.values())[element]
            command = self.command.copy()
            command[element] = np.clip(command[element] + direction * STEP, low, high)
            self.command = command

    def told(self) -> str:
        """The command in words."""
        return ", ".join(
            f"{name} {value:+.1f}" for name, value in zip(self.ranges, self.command, strict=True)
        )


def initial_command(env: RobotEnv, given: Sequence[float] | None) -> np.ndarray:
    """The command to start with, one element for each of the task's `command_ranges`.

    Raises:
        UserError: too many or too few numbers, or outside of what the policy has learnt.
    """
    ranges = env.command_ranges
    if given is None:
        return env.command_at(0.0, env.command_meta)[1]
    if len(given) != len(ranges):
        takes = " and ".join(ranges) or "none"
        raise UserError(f"--command: {len(given)} numbers; the task takes {takes}")
    outside = [
        f"{name} {value:g} ({low:g} to {high:g})"
        for value, (name, (low, high)) in zip(given, ranges.items(), strict=True)
        if not low <= value <= high
    ]
    if outside:
        raise UserError(
            f"--command: outside of what the policy was trained for: {', '.join(outside)}"
        )
    return np.array(given, dtype=np.float64)


def video_name(options: Play, ranges: Iterable[str], command: np.ndarray) -> str:
    """`play-closed_chain-ideal-vx0.5-wz0.2.mp4`: another plant or command is another file.

    Args:
        options: of the command line.
        ranges: names of the command's elements.
        command: the first one.
    """
    parts = ["play", options.on]
    if options.on == CLOSED_CHAIN:
        parts.append(str(options.level))
    parts += [
        f"{name.split('_')[0]}{value:.4g}" for name, value in zip(ranges, command, strict=True)
    ]
    return "-".join(parts) + ".mp4"


def no_screen() -> str:
    """Why there can be no window, or an empty string."""
    if sys.platform != "linux":
        return ""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "no screen (DISPLAY is not set)"
    # GLFW takes a platform without windows where nothing answers, and MuJoCo's viewer crashes
    # on that; asked in a process of its own, since GLFW can be started once.
    ask = "import glfw; print(glfw.init() and glfw.get_platform() != glfw.PLATFORM_NULL)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    if done.stdout.strip() not in ("1", "True"):
        return "no screen (DISPLAY is set, but no window can be opened there)"
    return ""


def show(player: Player, steering: Steering, period_s: float) -> None:
    """Run in MuJoCo's viewer in real time until its window is closed.

    Args:
        player: the plant under the policy.
        steering: takes the keys.
        period_s: of a policy step.
    """
    import mujoco.viewer  # needs a screen's libraries

    data = mujoco.MjData(player.model)
    data.qpos[:] = player.reset()
    player.step(steering.command)  # compiles, so that the window does not hang
    data.qpos[:] = player.reset()
    mujoco.mj_forward(player.model, data)
    try:
        viewer = mujoco.viewer.launch_passive(
            player.model, data, key_callback=steering.press, show_left_ui=False, show_right_ui=False
        )
    except RuntimeError as error:
        raise UserError(f"no window: {error}; give --video FILE.mp4") from None
    trunk = video.trunk_of(player.model)
    with viewer:
        viewer.cam.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        viewer.cam.trackbodyid = trunk
        viewer.cam.distance, viewer.cam.azimuth, viewer.cam.elevation = 2.0, 110.0, -15.0
        due = time.monotonic()
        while viewer.is_running():
            qpos, fell = player.step(steering.command)
            if fell or steering.start_over:
                if fell:
                    print("fell; starting over", flush=True)
                qpos, steering.start_over = player.reset(), False
            with viewer.lock():
                data.qpos[:] = qpos
                mujoco.mj_forward(player.model, data)
            if steering.ranges:
                viewer.set_texts((None, None, "command", steering.told()))
            viewer.sync()
            # A slow machine plays in slow motion and does not hurry to catch up.
            due = max(due + period_s, time.monotonic() - period_s)
            time.sleep(max(due - time.monotonic(), 0.0))


def film(
    options: Play, env: RobotEnv, policy: Policy, command: np.ndarray, path: Path
) -> video.VideoOutcome:
    """Render `--duration-s` of the policy in real time; the recording ends with a fall."""
    model, duration_s = env.normalized.model, options.duration_s
    if options.on == CLOSED_CHAIN:
        timestep_s = env.simulation.config.timestep_s
        model = ClosedChain(env.robot, timestep_s, options.level, options.seed).model
        duration_s = env.dt  # the simulator only gives the start
    recording = rollout(
        env, policy, 1, duration_s, options.seed, command=command if command.size else None
    )[0]
    if options.on == CLOSED_CHAIN:
        recordings = rollout_reference(
            env, policy, [recording], options.duration_s, options.level, options.seed
        )
        recording = recordings[0]
    if recording.fell:
        print(f"fell after {recording.duration_s:.1f} s")
    print(f"rendering {recording.duration_s:.1f} s", flush=True)
    return video.render(model, recording, path, options.fps, options.size, camera="track")


def main(args: Sequence[str]) -> None:
    """The command; see `--help`."""
    runtime.configure()
    options = parse_arguments(Play, args, "python -m s3n_mjx.play")
    if options.on not in (SIMULATOR, CLOSED_CHAIN):
        raise UserError(f"--on: unknown {options.on!r}; known: {SIMULATOR}, {CLOSED_CHAIN}")
    if options.video is not None and options.video.suffix not in (".mp4", ".gif"):
        raise UserError(f"--video: {options.video} is neither .mp4 nor .gif")
    checkpoint = checkpoints.load(options.checkpoint)
    env = nominal_env(checkpoint, at_rest=options.on == CLOSED_CHAIN)
    if options.duration_s < env.dt:
        raise UserError(
            f"--duration-s: {options.duration_s:g} s is less than a policy step of {env.dt:g} s"
        )
    command = initial_command(env, options.command)
    policy = policy_of(checkpoint, env)
    simulation = checkpoint.config.simulation
    print(
        f"checkpoint {checkpoint.path}: {checkpoint.task}, {simulation.variant} by"
        f" {simulation.injection}, on the {options.on.replace('_', ' ')}; compiling",
        flush=True,
    )
    reason = no_screen()
    if options.video is None and not reason:
        steering = Steering(env.command_ranges, command)
        if steering.ranges:
            up, left = list(steering.ranges)[:2]
            print(f"arrow keys: up and down change {up}, left and right {left};", end=" ")
        print("Enter: the first command again, Backspace: start over")
        if options.on == CLOSED_CHAIN:
            act = compiled_actor(env, policy)
            player: Player = ClosedChainPlayer(env, act, options.level, options.seed)
        else:
            player = SimulatorPlayer(env, policy, options.seed)
        show(player, steering, env.dt)
        return
    name = video_name(options, env.command_ranges, command)
    path = options.video or default_folder(checkpoint.path) / name
    make_folder(path.parent, "--video")
    replaces = path.exists()
    if options.video is None:
        print(f"{reason}; writing a video")
    outcome = film(options, env, policy, command, path)
    if outcome.path is None:
        raise UserError(outcome.message)
    print(f"{outcome.message}{' (in the place of an earlier one)' if replaces else ''}")


if __name__ == "__main__":
    run(main)
