"""A video of a recording, rendered off screen; a machine without OpenGL gets a reason instead.

MuJoCo chooses its OpenGL backend once, when it is first imported, by the environment variable
MUJOCO_GL, and a backend that does not work may raise, print garbage or abort the process. So
backends are tried, and the video is rendered, in processes of their own: this module run as

    python -m s3n_mjx.evaluation.video MODEL.mjb RECORDING.npz OUT.mp4 [--fps 50 ...]

The caller prints the outcome:

    print(render(model, recording, path).message)
"""

import argparse
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from s3n_mjx.evaluation.recording import Recording
from s3n_mjx.files import written_whole

_OFF = ("disable", "disabled", "off", "false", "0")  # MuJoCo's own words for "no rendering"
_HOW_TO_GET_GL = "install libegl1 or libosmesa6, or set MUJOCO_GL to a backend that works here"
_PROBE_LIMIT_S = 60.0

# Draws a lit box: a backend counts as working only if something arrives in the image.
_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 3"/><geom type="box" size="1 1 1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    if renderer.render().max() == 0:
        raise SystemExit("the image stays black")
print("rendered")
"""


@dataclass(frozen=True)
class VideoOutcome:
    """What came of a rendering: a path, or the reason why there is none.

    Attributes:
        path: the video, or None.
        reason: one line; empty if there is a video.
    """

    path: Path | None
    reason: str = ""

    @property
    def message(self) -> str:
        """One line for the terminal."""
        return f"video: {self.path}" if self.path else f"no video: {self.reason}"


def _environment(backend: str) -> dict[str, str]:
    environment = dict(os.environ)
    environment["MUJOCO_GL"] = backend
    # Set by a MuJoCo that this process has imported with another backend; it must not bind
    # the child, which would refuse the contradiction.
    environment.pop("PYOPENGL_PLATFORM", None)
    # The child finds this very package, wherever the caller runs.
    root = str(Path(__file__).resolve().parents[2])
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = root + (os.pathsep + inherited if inherited else "")
    return environment


def _last_line(text: str, returncode: int) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Errors while a half-made context is taken down are no cause; the exception before them is.
    causes = [line for line in lines if not line.startswith(("Exception ignored", "During"))]
    detail = (causes or [f"exit code {returncode}"])[-1]
    return detail if len(detail) <= 160 else detail[:157] + "..."


@functools.cache
def _probe(backend: str, display: str) -> str:
    """Empty if the backend renders here, else why not. `display` only keys the cache."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=_environment(backend),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_LIMIT_S:.0f} s"
    if done.returncode == 0 and "rendered" in done.stdout:
        return ""
    return _last_line(done.stderr, done.returncode)


def _candidates() -> list[str]:
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    if sys.platform == "linux":
        backends = ["egl", "osmesa"] + (["glfw"] if os.environ.get("DISPLAY") else [])
    else:
        backends = ["cgl", "glfw"] if sys.platform == "darwin" else ["glfw"]
    return list(dict.fromkeys(([chosen] if chosen else []) + backends))


def find_backend() -> tuple[str | None, str]:
    """The first OpenGL backend that renders on this machine.

    MUJOCO_GL is tried first where set (and switches rendering off if it says so), then EGL
    and OSMesa, then GLFW if there is a display. Each is probed once a process.

    Returns:
        The value for MUJOCO_GL and an empty string, or None and the reason in one line.
    """
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    if chosen in _OFF:
        return None, f"MUJOCO_GL={chosen} switches rendering off; unset it"
    failures = []
    for backend in _candidates():
        failure = _probe(backend, os.environ.get("DISPLAY", ""))
        if not failure:
            return backend, ""
        failures.append(f"{backend}: {failure}")
    return None, f"no OpenGL ({'; '.join(failures)}); {_HOW_TO_GET_GL}"


def render(
    model: mujoco.MjModel,
    recording: Recording,
    path: Path | str,
    fps: float = 50.0,
    size: tuple[int, int] = (640, 480),
    camera: str | None = None,
    speed: float = 1.0,
) -> VideoOutcome:
    """Render a recording's `qpos` as an mp4 or, by its suffix, a GIF, whole or not at all.

    Args:
        model: the model that `recording.qpos` belongs to.
        recording: shape of qpos (T, model.nq).
        path: where it goes, .mp4 or .gif; an older file stays if rendering fails.
        fps: frames per second of the video.
        size: width and height, in [pixel].
        camera: name of a camera of the model; without one, or if the model has none of that
            name, the view follows the trunk from the side.
        speed: seconds of the recording per second of video; 0.25 is slow motion.

    Returns:
        The path, or the reason why there is no video; nothing is raised for a machine that
        cannot render.

    Raises:
        ValueError: qpos is not of this model, or fps, size or speed is not positive.
    """
    path = Path(path)
    if recording.qpos.shape[1] != model.nq:
        raise ValueError(
            f"qpos: shape {recording.qpos.shape}, the model needs ({recording.time.size}, "
            f"{model.nq})"
        )
    if not (fps > 0.0 and speed > 0.0 and min(size) > 0):
        raise ValueError(f"fps {fps}, speed {speed} and size {size} must be positive")

    backend, reason = find_backend()
    if backend is None:
        return VideoOutcome(None, reason)

    try:
        # Raising inside `written_whole` is what keeps an unfinished video from the path.
        with written_whole(path) as temporary:
            _render_in_child(model, recording, temporary, backend, fps, size, camera, speed)
    except _RenderingFailed as failure:
        return VideoOutcome(None, f"rendering with {backend} failed: {failure}")
    return VideoOutcome(path)


class _RenderingFailed(Exception):
    pass


def _render_in_child(
    model: mujoco.MjModel,
    recording: Recording,
    path: Path,
    backend: str,
    fps: float,
    size: tuple[int, int],
    camera: str | None,
    speed: float,
) -> None:
    # A second a frame is far more than software rendering takes, so only a hang meets it.
    limit_s = 120.0 + fps * recording.duration_s / speed
    with tempfile.TemporaryDirectory() as folder:
        model_file, recording_file = Path(folder, "model.mjb"), Path(folder, "recording.npz")
        mujoco.mj_saveModel(model, str(model_file), None)
        recording.save(recording_file)
        command = [sys.executable, "-m", "s3n_mjx.evaluation.video"]
        command += [str(model_file), str(recording_file), str(path)]
        command += [f"--fps={fps}", f"--speed={speed}"]
        command += [f"--width={size[0]}", f"--height={size[1]}"]
        command += [f"--camera={camera}"] if camera else []
        try:
            done = subprocess.run(
                command,
                env=_environment(backend),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            raise _RenderingFailed(f"not done after {limit_s:.0f} s") from None
    if done.returncode != 0 or not path.is_file():
        raise _RenderingFailed(_last_line(done.stderr, done.returncode))


# --- the child process ----------------------------------------------------------------------


def frame_indices(time: np.ndarray, fps: float, speed: float) -> np.ndarray:
    """Index of the sample nearest to each frame's time.

    Args:
        time: shape (T,), in [s], increasing.
        fps: frames per second of the video.
        speed: seconds of recording per second of video.

    Returns:
        Shape (n_frames,): frames from the first sample on, as long as the recording lasts.
    """
    n_frames = int((time[-1] - time[0]) * fps / speed + 1e-6) + 1
    wanted = time[0] + np.arange(n_frames) * speed / fps
    right = np.clip(np.searchsorted(time, wanted), 1, max(len(time) - 1, 1))
    left = right - 1
    right = np.minimum(right, len(time) - 1)  # a single sample has no right neighbour
    return np.where(wanted - time[left] <= time[right] - wanted, left, right)


def trunk_of(model: mujoco.MjModel) -> int:
    """The first body with a free joint, else the first body below the world."""
    free = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    return int(model.jnt_bodyid[free[0]]) if free.size else min(1, model.nbody - 1)


def _views(model: mujoco.MjModel, data: mujoco.MjData, name: str | None) -> Iterator:
    """The camera for each frame: the named one, or a free one that goes along with the trunk."""
    if name and mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name) >= 0:
        while True:
            yield name
    trunk = trunk_of(model)
    view = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, view)
    own = model.body_rootid[model.geom_bodyid] == model.body_rootid[trunk]
    if own.any():
        offsets = np.linalg.norm(data.geom_xpos[own] - data.xpos[trunk], axis=1)
        view.distance = 3.5 * float(np.max(offsets + model.geom_rbound[own]))
    view.azimuth, view.elevation = 110.0, -12.0  # from the robot's side, where pitching shows
    centre = data.subtree_com[trunk].copy()
    while True:
        # Horizontally only: a view that heaved with the trunk would hide that it heaves.
        centre[:2] = data.xpos[trunk, :2]
        view.lookat[:] = centre
        yield view


def _render_here(
    model: mujoco.MjModel,
    recording: Recording,
    path: Path,
    fps: float,
    size: tuple[int, int],
    camera: str | None,
    speed: float,
) -> None:
    import imageio_ffmpeg  # only the child needs the encoder
    import mediapy

    mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())
    width, height = size
    # Renderer refuses an image larger than the model's off-screen buffer, 640 x 480 unless set.
    model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
    model.vis.global_.offheight = max(height, model.vis.global_.offheight)
    data = mujoco.MjData(model)
    data.qpos[:] = recording.qpos[0]
    mujoco.mj_forward(model, data)
    views = _views(model, data, camera)
    with (
        mujoco.Renderer(model, height, width) as renderer,
        mediapy.VideoWriter(
            path,
            shape=(height, width),
            fps=fps,
            codec="gif" if path.suffix == ".gif" else "h264",
        ) as writer,
    ):
        for index in frame_indices(recording.time, fps, speed):
            data.qpos[:] = recording.qpos[index]
            mujoco.mj_fwdPosition(model, data)  # positions, tendons, cameras and lights
            renderer.update_scene(data, next(views))
            writer.add_image(renderer.render())


def main(arguments: list[str] | None = None) -> None:
    """Render with whatever backend MUJOCO_GL names; meant to be started by :func:`render`."""
    parser = argparse.ArgumentParser(prog="python -m s3n_mjx.evaluation.video")
    parser.add_argument("model", type=Path, help="compiled model, .mjb")
    parser.add_argument("recording", type=Path, help="recording, .npz")
    parser.add_argument("out", type=Path, help="video to write, .mp4")
    parser.add_argument("--fps", type=float, default=50.0)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--camera", default=None)
    parser.add_argument("--speed", type=float, default=1.0)
    args = parser.parse_args(arguments)
    _render_here(
        mujoco.MjModel.from_binary_path(str(args.model)),
        Recording.load(args.recording),
        args.out,
        args.fps,
        (args.width, args.height),
        args.camera,
        args.speed,
    )


if __name__ == "__main__":
    main()
