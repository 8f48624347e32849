"""Figures get drawn from what is there; videos get rendered, or a reason is given."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

from s3n_mjx.evaluation import metrics, plots, recording, video
from s3n_mjx.evaluation.recording import Recording

MJCF = """
<mujoco>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="above" pos="0 0 2"/>
    <body name="trunk" pos="0 0 1">
      <freejoint/>
      <geom type="box" size="0.3 0.1 0.05" rgba="0.9 0.1 0.1 1"/>
    </body>
  </worldbody>
</mujoco>
"""


def make_recording(feet=("FL", "FR", "RL", "RR"), n=500, noise=0.0, **fields) -> Recording:
    time = 0.003 * np.arange(n)
    omega = 10.0 * np.pi
    pitch = 0.08 * np.sin(omega * time - 0.3)
    rng = np.random.default_rng(0)
    rate = 0.08 * omega * np.cos(omega * time - 0.3) + noise * rng.standard_normal(n)
    zero = np.zeros(n)
    position = np.stack([0.1 * time, zero, zero + 1.0], axis=1)
    quaternion = np.stack([np.cos(pitch / 2), zero, np.sin(pitch / 2), zero], axis=1)
    force = np.zeros((n, len(feet), 3))
    force[..., 2] = 20.0 + 5.0 * np.sin(omega * time)[:, None]
    content = {
        "joint_names": ("hip",),
        "foot_names": feet,
        "time": time,
        "joint_position": zero[:, None],
        "joint_velocity": zero[:, None],
        "motor_torque": zero[:, None],
        "base_position": position,
        "base_quaternion": quaternion,
        "base_linear_velocity": np.zeros((n, 3)),
        "base_angular_velocity": np.stack([zero, rate, zero], axis=1),
        "foot_force": force,
        "qpos": np.concatenate([position, quaternion], axis=1),
        "command": {
            "pitch_rad": 0.1 * np.sin(omega * time),
            "pitch_rate_rad_s": 0.1 * omega * np.cos(omega * time),
        },
        "meta": {"frequency_hz": 5.0},
    }
    return Recording(**(content | fields))


def line(ax, label):
    (found,) = [one for one in ax.lines if one.get_label() == label]
    return found


# --- plots --------------------------------------------------------------------------------


def test_pitch_tracking_shows_the_last_window():
    rec = make_recording()
    fig = plots.pitch_tracking(rec, window_s=0.6)
    top, bottom = fig.axes
    x, y = line(top, "robot").get_data()
    assert x[0] >= rec.time[-1] - 0.6 - 1e-9
    assert x[-1] == rec.time[-1]
    np.testing.assert_array_equal(y, rec.pitch[-len(x) :])
    assert "[rad]" in top.get_ylabel()
    assert "[rad/s]" in bottom.get_ylabel()
    assert "5 Hz" in fig.get_suptitle()
    fallen = plots.pitch_tracking(make_recording(n=50, fell=True))
    assert "fell" in fallen.get_suptitle()


def test_phase_averaged_pitch_rate_draws_mean_and_band():
    fig = plots.phase_averaged_pitch_rate([make_recording(n=1200, noise=0.3)] * 2)
    (ax,) = fig.axes
    phase, mean = line(ax, plots._MEAN).get_data()
    # 11 or so noisy samples a bin: 5 standard errors, plus half a bin's slope (2.5 rad/s).
    expected = 0.8 * np.pi * np.cos(np.deg2rad(phase) - 0.3)
    np.testing.assert_allclose(mean, expected, atol=5 * 0.3 / np.sqrt(6) + 0.11)
    assert len(ax.collections) == 1
    two = plots.phase_averaged_pitch_rate({"a": [make_recording()], "b": [make_recording()]})
    assert {one.get_label() for one in two.axes[0].lines} == {"command", "a", "b"}


@pytest.mark.parametrize(("n_feet", "n_axes"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6)])
def test_grf_norm_has_a_panel_for_each_foot(n_feet, n_axes, tmp_path):
    feet = tuple(f"foot{i}" for i in range(n_feet))
    fig = plots.grf_norm([make_recording(feet)])
    assert len(fig.axes) == n_axes
    assert [ax.get_title("left") for ax in fig.axes if ax.axison] == list(feet)
    assert "100.0 %" in fig.get_suptitle()
    plots.save(fig, tmp_path / "grf.png")  # the layout holds for every grid


def test_plots_of_a_fall_before_settling_keep_what_there_is():
    rec = make_recording(n=100, fell=True)
    for fig in (plots.grf_norm([rec]), plots.phase_averaged_pitch_rate([rec])):
        assert np.isfinite(fig.axes[0].lines[0].get_ydata()).any()
    with pytest.raises(ValueError, match="no recording"):
        plots.grf_norm([])


def test_training_curve_passes_over_rows_without_an_evaluation():
    rows = [
        {"env_steps": 1e6, "wall_s": 60, "eval/episode_reward": 1.0, "eval/pitch_rmse_rad": 0.1},
        {"env_steps": 2e6, "wall_s": 90},
        {"env_steps": 3e6, "wall_s": 120, "eval/episode_reward": 2.5, "eval/pitch_rmse_rad": None},
    ]
    fig = plots.training_curve(rows)
    reward, error, contact = fig.axes
    np.testing.assert_allclose(reward.lines[0].get_xdata(), [1.0, 3.0])
    np.testing.assert_allclose(error.lines[0].get_xdata(), [1.0])
    assert contact.texts[0].get_text() == "not recorded"
    assert fig.get_suptitle() == "Reward 2.5 after 3 million steps and 2.0 min"
    assert plots.training_curve([]).get_suptitle() == "No evaluation yet"


def test_tradeoff_names_the_least_error():
    fig = plots.tradeoff([("b", 0.99, 0.030), ("a", 0.85, 0.020)])
    np.testing.assert_allclose(fig.axes[0].lines[0].get_xdata(), [85.0, 99.0])
    assert {text.get_text() for text in fig.axes[0].texts} == {"a", "b"}
    assert "0.020 rad" in fig.get_suptitle()
    assert "85.0 %" in fig.get_suptitle()


def test_save_writes_a_png_whole_at_150_dpi(tmp_path):
    path = plots.save(plots.pitch_tracking(make_recording()), tmp_path / "sub" / "figure.png")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert list(path.parent.iterdir()) == [path]
    assert int.from_bytes(content[16:20], "big") == 8 * 150  # width in the PNG header


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        (recording, {"jax", "mujoco", "matplotlib"}),
        (metrics, {"jax", "mujoco", "matplotlib"}),
        (plots, {"jax", "mujoco", "matplotlib.pyplot"}),
        (video, {"jax", "matplotlib"}),
    ],
)
def test_modules_import_only_what_their_job_needs(module, forbidden):
    imported = set()
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert "numpy" in imported  # the search finds imports at all
    for name in forbidden:
        assert not {i for i in imported if i == name or i.startswith(f"{name}.")}


# --- video --------------------------------------------------------------------------------


@pytest.fixture
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MJCF)


@pytest.fixture
def backend() -> str:
    found, reason = video.find_backend()
    if found is None:
        pytest.skip(f"this machine cannot render: {reason}")
    return found


@pytest.fixture
def fresh_probe():
    """Forget what was probed under another environment, before and after."""
    video._probe.cache_clear()
    yield
    video._probe.cache_clear()


def test_frames_are_the_nearest_samples():
    time = 0.003 * np.arange(334)  # 0 to 0.999 s
    index = video.frame_indices(time, fps=50.0, speed=1.0)
    assert len(index) == 50
    assert index[0] == 0
    np.testing.assert_allclose(time[index], np.arange(50) / 50.0, atol=0.0015 + 1e-9)
    assert len(video.frame_indices(time, fps=50.0, speed=0.25)) == 200
    np.testing.assert_array_equal(video.frame_indices(np.array([2.0]), 50.0, 1.0), [0])


def test_rendering_switched_off_gives_a_reason_and_no_file(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    outcome = video.render(model, make_recording(), tmp_path / "out.mp4")
    assert outcome.path is None
    assert "MUJOCO_GL=disabled" in outcome.message
    assert outcome.message.startswith("no video: ")
    assert not list(tmp_path.iterdir())


def test_no_backend_gives_every_cause_and_the_way_out(model, tmp_path, monkeypatch):
    monkeypatch.setattr(video, "_probe", lambda backend, display: f"{backend} is missing")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    outcome = video.render(model, make_recording(), tmp_path / "out.mp4")
    for words in ("egl is missing", "osmesa is missing", "libegl1", "libosmesa6", "MUJOCO_GL"):
        assert words in outcome.message
    assert "glfw" not in outcome.message
    assert "\n" not in outcome.message
    assert not list(tmp_path.iterdir())


def test_a_bogus_backend_fails_its_probe_with_mujocos_words(fresh_probe):
    assert "invalid value" in video._probe("bogus", "")


def test_the_users_backend_is_tried_first(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("MUJOCO_GL", "OSMesa")
    monkeypatch.setenv("DISPLAY", ":0")
    assert video._candidates() == ["osmesa", "egl", "glfw"]


def test_a_backend_that_aborts_or_hangs_harms_nobody(monkeypatch, fresh_probe):
    monkeypatch.setattr(video, "_PROBE", "import os; os.abort()")
    assert "exit code" in video._probe("egl", "")
    video._probe.cache_clear()
    monkeypatch.setattr(video, "_PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(video, "_PROBE_LIMIT_S", 0.5)
    assert "no answer" in video._probe("egl", "")


def test_wrong_input_is_refused_before_anything_is_started(model, tmp_path):
    rec = make_recording(qpos=np.zeros((500, 9)))
    with pytest.raises(ValueError, match=r"qpos: shape \(500, 9\).*\(500, 7\)"):
        video.render(model, rec, tmp_path / "out.mp4")
    with pytest.raises(ValueError, match="positive"):
        video.render(model, make_recording(), tmp_path / "out.mp4", speed=0.0)


def test_a_failed_rendering_keeps_the_old_video(model, tmp_path, monkeypatch):
    monkeypatch.setattr(video, "find_backend", lambda: ("bogus", ""))
    path = tmp_path / "out.mp4"
    path.write_bytes(b"old")
    outcome = video.render(model, make_recording(n=10), path)
    assert outcome.path is None
    assert "bogus failed" in outcome.reason
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def read_frames(path, width, height) -> np.ndarray:
    """Shape (n_frames, height, width, 3), decoded by the bundled ffmpeg."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    command = [ffmpeg, "-loglevel", "error", "-i", str(path)]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


@pytest.mark.parametrize("camera", [None, "above", "no such camera"])
def test_the_video_shows_the_robot_move(model, tmp_path, backend, camera):
    rec = make_recording(n=100)  # 0.297 s: frames at 0, 0.04 ... 0.28
    outcome = video.render(model, rec, tmp_path / "a.mp4", fps=25, size=(64, 48), camera=camera)
    assert outcome.path == tmp_path / "a.mp4", outcome.message
    frames = read_frames(outcome.path, 64, 48).astype(int)
    assert len(frames) == 8
    red = frames[..., 0] - frames[..., 1:].max(axis=-1)
    share = np.mean(red > 40, axis=(1, 2))
    assert np.all(share > 0.02), "the red trunk is in view in every frame"
    assert np.abs(frames[0] - frames[2]).max() > 40, "it pitches"
    assert list(tmp_path.iterdir()) == [outcome.path]


def test_an_image_larger_than_the_models_buffer(model, tmp_path, backend):
    rec = make_recording(n=2)
    outcome = video.render(model, rec, tmp_path / "a.mp4", size=(800, 600))
    assert outcome.path is not None, outcome.message
    assert read_frames(outcome.path, 800, 600).shape[0] == 1


def test_the_parents_own_backend_does_not_bind_the_child(model, tmp_path, backend, monkeypatch):
    other = "osmesa" if backend == "egl" else "egl"
    monkeypatch.setitem(os.environ, "PYOPENGL_PLATFORM", other)  # what importing it leaves
    outcome = video.render(model, make_recording(n=2), tmp_path / "a.mp4", size=(64, 48))
    assert outcome.path is not None, outcome.message
