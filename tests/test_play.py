"""Playing a policy: keys, commands, the window's loop, and the video where there is no screen."""

import contextlib
import types
from pathlib import Path

import jax.numpy as jnp
import mujoco
import mujoco.viewer
import numpy as np
import pytest

from s3n_mjx import play
from s3n_mjx.envs import CircleEnv, PitchEnv
from s3n_mjx.envs.randomization import LegRandomization
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation.rollout import SimulatorPlayer
from s3n_mjx.evaluation.video import VideoOutcome
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.reference.rollout import ClosedChainPlayer, compiled_actor
from s3n_mjx.simulation.config import SimulationConfig

RANGES = {"vx_m_s": (0.0, 1.0), "wz_rad_s": (-1.0, 1.0)}
UP, DOWN, LEFT, RIGHT, ENTER, BACKSPACE = 265, 264, 263, 262, 257, 259


def test_keys_steer_within_the_trained_ranges():
    steering = play.Steering(RANGES, np.array([0.8, 0.8]))
    for key in (UP, UP, UP, RIGHT, RIGHT, RIGHT):
        steering.press(key)
    np.testing.assert_allclose(steering.command, [1.0, 0.5])
    assert steering.told() == "vx_m_s +1.0, wz_rad_s +0.5"
    for key in [DOWN] * 20 + [RIGHT] * 20 + [LEFT, 65]:
        steering.press(key)
    np.testing.assert_allclose(steering.command, [0.0, -0.9])
    steering.press(ENTER)
    np.testing.assert_allclose(steering.command, [0.8, 0.8])
    assert not steering.start_over
    steering.press(BACKSPACE)
    assert steering.start_over


def test_a_task_without_a_command_has_nothing_to_steer():
    steering = play.Steering({}, np.zeros(0))
    for key in (UP, LEFT, ENTER):
        steering.press(key)
    assert steering.command.shape == (0,)


@pytest.fixture(scope="module")
def circle(robot) -> CircleEnv:
    simulation = SimulationConfig(substeps=1)
    return CircleEnv(robot, simulation, leg_randomization=LegRandomization.NONE)


def test_commands(robot, circle):
    np.testing.assert_allclose(play.initial_command(circle, None), [0.8, 0.8])
    np.testing.assert_allclose(play.initial_command(circle, (0.5, -1.0)), [0.5, -1.0])
    with pytest.raises(UserError) as caught:
        play.initial_command(circle, (0.5, 3.0))
    assert str(caught.value).endswith("trained for: wz_rad_s 3 (-1 to 1)")
    with pytest.raises(UserError) as caught:
        play.initial_command(circle, (5.0, np.nan))
    assert str(caught.value).endswith(": vx_m_s 5 (0 to 1), wz_rad_s nan (-1 to 1)")
    with pytest.raises(UserError, match="--command: 1 numbers; the task takes vx_m_s and wz_rad_s"):
        play.initial_command(circle, (0.5,))
    pitch = PitchEnv(robot)
    assert play.initial_command(pitch, None).shape == (0,)
    with pytest.raises(UserError, match="--command: 2 numbers; the task takes none"):
        play.initial_command(pitch, (0.5, 1.0))


def test_a_video_is_named_by_plant_and_command(circle):
    def name(options, ranges, command):
        return play.video_name(options, ranges, np.array(command))

    here, ranges = Path("here"), circle.command_ranges
    chain = play.Play(here, on=play.CLOSED_CHAIN, level=Level.REALISTIC)
    assert name(play.Play(here), {}, []) == "play-simulator.mp4"
    assert name(chain, ranges, [0.5, -0.2]) == "play-closed_chain-realistic-vx0.5-wz-0.2.mp4"
    default = np.float32([0.8, 0.8])
    assert name(play.Play(here), ranges, default) == "play-simulator-vx0.8-wz0.8.mp4"


def test_the_command_line_rejects_a_command_before_a_network_is_built(monkeypatch):
    monkeypatch.setattr(play, "policy_of", lambda *_: pytest.fail("too late"))
    policy = Path(__file__).parents[1] / "assets" / "policies" / "circle-s3n_act"
    with pytest.raises(UserError, match=r"vx_m_s 5 .*, wz_rad_s 6 "):
        play.main(f"--checkpoint {policy} --command 5 6".split())


def test_a_video_in_the_place_of_another_says_so(monkeypatch, tmp_path, capsys):
    policy = Path(__file__).parents[1] / "assets" / "policies" / "circle-s3n_act"
    monkeypatch.setattr(play, "film", lambda *args: VideoOutcome(args[-1]))
    film = tmp_path / "film.mp4"
    for told in (False, True):
        play.main(f"--checkpoint {policy} --video {film}".split())
        said = capsys.readouterr().out
        assert str(film) in said
        assert ("(in the place of an earlier one)" in said) is told
        film.touch()


def turn_with_the_command(observation, _):
    """All joints follow w_z, which ends the observation."""
    return jnp.broadcast_to(0.5 * observation[-1:], (12,)), {}


def test_both_plants_obey_a_command_that_changes(circle):
    players = [
        SimulatorPlayer(circle, turn_with_the_command),
        ClosedChainPlayer(circle, compiled_actor(circle, turn_with_the_command)),
    ]
    for player in players:
        moved = {}
        for wz in (0.0, 1.0):
            start = player.reset()
            assert start.shape == (player.model.nq,)
            for _ in range(10):
                qpos, fell = player.step(np.array([0.0, wz]))
                assert not fell
            moved[wz] = np.abs(qpos[7:] - start[7:]).max()
        assert moved[1.0] > moved[0.0] + 0.02  # rad


class Falls:
    """Five steps on its feet, then down."""

    def __init__(self, model):
        self.model, self.resets, self.commands = model, 0, []

    def reset(self):
        self.resets += 1
        self.height = 0.3
        return self._qpos()

    def _qpos(self):
        qpos = np.zeros(self.model.nq)
        qpos[2:4] = self.height, 1.0
        return qpos

    def step(self, command):
        self.commands.append(command)
        self.height -= 0.02
        return self._qpos(), self.height < 0.205


def test_the_window_shows_every_step_and_starts_over_after_a_fall(robot, monkeypatch, capsys):
    heights, texts = [], []

    class Viewer(contextlib.AbstractContextManager):
        cam = types.SimpleNamespace()

        def __init__(self, model, data, key_callback, **_):
            self.data, self.press = data, key_callback

        def __exit__(self, *_):
            return None

        def is_running(self):
            return len(heights) < 12

        def lock(self):
            return contextlib.nullcontext()

        def set_texts(self, texts_):
            texts.append(texts_[3])

        def sync(self):
            heights.append(self.data.qpos[2])
            if len(heights) == 2:
                self.press(UP)
            if len(heights) == 8:
                self.press(BACKSPACE)

    monkeypatch.setattr(mujoco.viewer, "launch_passive", Viewer)
    player = Falls(robot.model)
    steering = play.Steering(RANGES, np.array([0.5, 0.0]))
    play.show(player, steering, period_s=0.001)
    np.testing.assert_allclose(heights[:5], [0.28, 0.26, 0.24, 0.22, 0.30])  # fell: on its feet
    np.testing.assert_allclose(heights[7:10], [0.24, 0.30, 0.28])  # Backspace
    assert capsys.readouterr().out.count("fell; starting over") == 1
    assert texts[1] == "vx_m_s +0.5, wz_rad_s +0.0"
    assert texts[2] == "vx_m_s +0.6, wz_rad_s +0.0"
    assert viewer_camera(Viewer) == robot.model.body(robot.description.trunk).id


def viewer_camera(viewer) -> int:
    assert viewer.cam.type == mujoco.mjtCamera.mjCAMERA_TRACKING
    return viewer.cam.trackbodyid


def test_a_machine_without_a_window_says_so(robot, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("launch_passive requires that the script is run under mjpython")

    monkeypatch.setattr(mujoco.viewer, "launch_passive", refuse)
    with pytest.raises(UserError, match=r"no window: .*mjpython; give --video FILE.mp4"):
        play.show(Falls(robot.model), play.Steering({}, np.zeros(0)), 0.018)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--on hardware", "--on: unknown 'hardware'; known: simulator, closed_chain"),
        ("--video film.avi", "--video: film.avi is neither .mp4 nor .gif"),
        ("", "no such checkpoint; give a checkpoint or run folder"),
    ],
)
def test_mistakes_are_one_line(flags, says):
    with pytest.raises(UserError) as caught:
        play.main(f"--checkpoint nowhere {flags}".split())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_screen_it_writes_a_video(circle, monkeypatch, tmp_path, capsys):
    """Of the plant that was asked for, under the command that was given."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(play.sys, "platform", "linux")
    assert play.no_screen() == "no screen (DISPLAY is not set)"
    monkeypatch.setenv("DISPLAY", ":4321")  # where no server is
    assert "no window can be opened" in play.no_screen()
    seen = []

    def render(model, recording, path, *_, **__):
        seen.append((model, recording))
        return VideoOutcome(path)

    monkeypatch.setattr(play.video, "render", render)
    for on in (play.SIMULATOR, play.CLOSED_CHAIN):
        options = play.Play(tmp_path, on=on, duration_s=0.03)
        outcome = play.film(
            options, circle, turn_with_the_command, np.array([0.3, -0.4]), tmp_path / "play.mp4"
        )
        assert outcome.path == tmp_path / "play.mp4"
    for model, recording in seen:
        assert recording.qpos.shape == (10, model.nq)
        assert recording.meta["vx_command_m_s"] == pytest.approx(0.3)
        np.testing.assert_allclose(recording.command["wz_rad_s"], -0.4, rtol=1e-6)
    assert seen[0][0].nq < seen[1][0].nq  # the linkages' joints
