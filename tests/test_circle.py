"""The circle task: command, gait, reward, termination, randomization; figures in closed form."""

import dataclasses
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mujoco import mjx
from test_metrics import make_recording, quaternion_zyx

from s3n_mjx.config_files import parse
from s3n_mjx.envs import CircleConfig, CircleEnv, randomization
from s3n_mjx.envs.base import TaskState
from s3n_mjx.envs.circle import trot_offsets
from s3n_mjx.envs.randomization import LegRandomization, RandomizationConfig
from s3n_mjx.errors import UserError
from s3n_mjx.evaluation import metrics, plots
from s3n_mjx.evaluation.gaps import circle_gap
from s3n_mjx.evaluation.rollout import rollout
from s3n_mjx.evaluation.tasks import EVALUATIONS, PICTURES, Groups
from s3n_mjx.normalization import Variant
from s3n_mjx.reference.rollout import rollout_reference
from s3n_mjx.robot.model import load_robot
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.contact import body_contact
from s3n_mjx.simulation.control import StepRecord

ENVS = 4
FEET = 4
# Strong and frequent, so that a few steps show all of it.
RANDOM = RandomizationConfig(
    friction_scale=(0.5, 1.5),
    payload_kg=(0.0, 2.0),
    push_m_s=0.5,
    push_interval_s=0.03,
    gyro_noise_rad_s=0.1,
    gravity_noise=0.02,
    joint_position_noise_rad=0.01,
    joint_velocity_noise_rad_s=0.5,
)


@pytest.fixture(scope="session")
def env(robot) -> CircleEnv:
    return CircleEnv(robot, task=CircleConfig(randomization=RANDOM))


@pytest.fixture(scope="session")
def reset(env):
    return jax.jit(jax.vmap(env.reset))


@pytest.fixture(scope="session")
def states(env, reset):
    """Two steps of four environments."""
    step = jax.jit(jax.vmap(env.step))
    state = reset(jax.random.split(jax.random.PRNGKey(0), ENVS))
    states = [jax.device_get(state)]
    for _ in range(2):
        state = step(state, jnp.zeros((ENVS, env.action_size)))
        states.append(jax.device_get(state))
    return states


@pytest.fixture(scope="session")
def standing(env) -> TaskState:
    """At home, at rest, in mid-stride of the first diagonal pair, told to walk the circle."""
    simulation = env.simulation.init(
        jnp.asarray(env.robot.home_qpos, jnp.float32),
        jnp.zeros(env.robot.model.nv),
        env.simulation.standing_target,
    )
    return TaskState(
        simulation, jnp.zeros(env.action_size), jnp.float32(np.pi / 2), jnp.array([0.8, 0.8])
    )


def record(env, height=0.0, travel=0.0, force=38.0, body_contact=False) -> StepRecord:
    """Every foot ``height`` m up, ``travel`` m from first to last step, under ``force`` N."""
    steps = env.simulation.config.substeps
    position = np.zeros((steps, FEET, 3), np.float32)
    position[:, :, 2] = env._feet_down + height
    position[-1, :, 0] += travel
    foot_force = np.zeros((steps, FEET, 3), np.float32)
    foot_force[:, :, 2] = force
    return StepRecord(
        qpos=jnp.zeros((steps, env.robot.model.nq)),
        qvel=jnp.zeros((steps, env.robot.model.nv)),
        motor_torque=jnp.full((steps, env.action_size), 2.0),
        foot_force=jnp.asarray(foot_force),
        foot_position=jnp.asarray(position),
        body_contact=jnp.zeros(steps, bool).at[2].set(body_contact),
    )


@pytest.fixture(scope="session")
def terms(env):
    return jax.jit(env.reward_terms)


def with_velocity(state: TaskState, qvel, qpos=None) -> TaskState:
    simulation = state.simulation
    qvel = simulation.qvel.at[: len(qvel)].set(jnp.array(qvel, jnp.float32))
    simulation = simulation.replace(qvel=qvel, qvel_last=qvel)
    if qpos is not None:
        simulation = simulation.replace(qpos=jnp.asarray(qpos, jnp.float32))
    return state.replace(simulation=simulation)


def test_terms_of_a_standing_robot(env, standing, terms):
    """In mid-stride one pair should be up: each term by hand."""
    got = terms(standing, standing, record(env))
    expected = {
        "velocity": np.exp(-0.8 / 0.3),
        "yaw_rate": np.exp(-0.8 / 0.4),
        "gait": 0.0,  # two feet down rightly, two wrongly
        "foot_height": -0.5,  # two feet a whole lift too low
        "upright": 0.0,
        "height": 0.0,
        "bounce": 0.0,
        "slip": 0.0,
        "posture": 0.0,
        "action_rate": 0.0,
        "torque": -48.0,
        "fall": 0.0,
    }
    assert set(got) == set(vars(env.task.reward))
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, atol=1e-5, err_msg=name)


def test_terms_of_a_robot_that_walks_the_circle(env, standing, terms):
    """Turned left by 90 degrees and walking along +y: v_x is the body's, not the world's."""
    half = np.sqrt(0.5)
    qpos = np.array(env.robot.home_qpos)
    qpos[3:7] = [half, 0.0, 0.0, half]
    walking = with_velocity(standing, [0.0, 0.8, 0.1, 0.2, 0.0, 0.8], qpos)
    walking = walking.replace(action=jnp.full(env.action_size, 0.5))
    lifted = record(env)
    swinging = np.sin(np.pi / 2 + trot_offsets(env.robot)) > 0
    assert swinging.sum() == 2
    up = swinging[None, :, None]
    lifted = lifted.replace(
        foot_force=lifted.foot_force * ~up,
        foot_position=lifted.foot_position + up * jnp.array([0.0, 0.0, env.task.foot_lift_m]),
    )
    got = terms(standing, walking, lifted)
    for name, value in {
        "velocity": 1.0,
        "yaw_rate": 1.0,
        "gait": 0.5,
        "foot_height": 0.0,
        "bounce": -(0.1**2 + 0.05 * 0.2**2),
        "action_rate": -12 * 0.25,
    }.items():
        np.testing.assert_allclose(got[name], value, atol=1e-4, err_msg=name)


def test_penalties_see_what_they_are_for(env, standing, terms):
    qpos = np.array(env.robot.home_qpos)
    qpos[2] -= 0.05
    qpos[3:7] = [np.cos(0.1), np.sin(0.1), 0.0, 0.0]  # rolled by 0.2 rad
    qpos[7:] += 0.1
    got = terms(standing, with_velocity(standing, [], qpos), record(env, travel=0.003))
    np.testing.assert_allclose(got["height"], -1.0, rtol=1e-4)
    np.testing.assert_allclose(got["upright"], -(np.sin(0.2) ** 2), rtol=1e-4)
    np.testing.assert_allclose(got["posture"], -0.01, rtol=1e-3)
    np.testing.assert_allclose(got["slip"], -4 * (0.003 / 0.015) ** 2, rtol=1e-3)
    in_the_air = terms(standing, standing, record(env, travel=0.003, force=0.0))
    assert in_the_air["slip"] == 0.0
    # Sideways counts as much as forward.
    sideways = terms(standing, with_velocity(standing, [0.8, 0.3]), record(env))
    np.testing.assert_allclose(sideways["velocity"], np.exp(-1.0), rtol=1e-4)


def test_what_ends_an_episode(env, standing, terms):
    ended = jax.jit(env.ended)
    touching = record(env, body_contact=True)
    assert not ended(standing, record(env))
    assert ended(standing, touching)
    assert terms(standing, standing, touching)["fall"] == -1.0
    low = with_velocity(standing, [], np.array(env.robot.home_qpos) * [1, 1, 0.4, *[1] * 16])
    assert ended(low, record(env))


def test_what_counts_as_body_contact(env):
    """The trunk lying on the floor does; the standing robot's feet do not."""
    model, feet = env.simulation.model, env.simulation._feet

    @jax.jit
    def touches(qpos):
        data = mjx.kinematics(model, mjx.make_data(model).replace(qpos=qpos))
        return body_contact(mjx.collision(model, data), feet)

    qpos = jnp.asarray(env.robot.home_qpos, jnp.float32)
    assert not touches(qpos)
    assert touches(qpos.at[2].set(0.05))


def test_observation_layout(env, standing):
    observation = np.asarray(jax.jit(env.observe)(standing))
    assert observation.shape == (6 + 3 * 12 + 4,)
    np.testing.assert_allclose(observation[3:6], [0, 0, -1], atol=1e-6)
    np.testing.assert_allclose(observation[6:-4], 0.0, atol=1e-6)
    np.testing.assert_allclose(observation[-4:], [1.0, 0.0, 0.8, 0.8], atol=1e-6)


def test_the_clock_runs_at_the_gait_and_the_command_stays(states):
    phases = [s.pipeline_state.phase for s in states]
    step = np.mod(phases[2] - phases[1], 2 * np.pi)
    np.testing.assert_allclose(step, 2 * np.pi * 2.2 * 0.018, rtol=1e-4)
    np.testing.assert_array_equal(
        states[0].pipeline_state.command, states[2].pipeline_state.command
    )
    for state in states:
        assert np.isfinite(state.obs).all()
        assert np.isfinite(state.reward).all()


def test_commands_fill_their_ranges_and_half_are_the_circle(env):
    _, command = jax.vmap(env.start)(jax.random.split(jax.random.PRNGKey(0), 4000))
    command = np.asarray(command)
    circle = (command == np.float32(0.8)).all(axis=1)
    assert circle.mean() == pytest.approx(0.5, abs=0.03)
    for column, (low, high) in zip(
        command[~circle].T, (env.task.vx_range_m_s, env.task.wz_range_rad_s), strict=True
    ):
        width = high - low
        assert low <= column.min() < low + 0.01 * width
        assert high - 0.01 * width < column.max() <= high
    only = CircleEnv(env.robot, task=env.task.evaluated())
    _, command = jax.vmap(only.start)(jax.random.split(jax.random.PRNGKey(0), 50))
    np.testing.assert_array_equal(command, np.full((50, 2), np.float32(0.8)))


def test_diagonal_feet_swing_together(robot):
    offsets = dict(zip(robot.feet, trot_offsets(robot), strict=True))
    assert list(offsets.values()) == [0.0, np.pi, np.pi, 0.0]  # front left with rear right


def test_a_robot_that_cannot_trot_is_one_line(description, write_robot):
    def three_in_front(spec):
        spec.body("RR_hip_body").pos[0] = 0.4

    with pytest.raises(UserError, match="takes four feet, one in each corner") as caught:
        trot_offsets(load_robot(write_robot(description, three_in_front)))
    assert "\n" not in str(caught.value)


# --- randomization ------------------------------------------------------------------------


def test_surroundings_fill_their_ranges():
    keys = jax.random.split(jax.random.PRNGKey(0), 3000)
    draws = jax.vmap(lambda key: randomization.sample_surroundings(key, RANDOM))(keys)
    for name in ("friction_scale", "payload_kg"):
        low, high = getattr(RANDOM, name)
        values = np.asarray(draws[name])
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high
    assert abs(np.corrcoef(draws["friction_scale"], draws["payload_kg"])[0, 1]) < 0.05


def test_surroundings_reach_the_model(env):
    draws = {"friction_scale": jnp.float32(0.5), "payload_kg": jnp.float32(1.5)}
    nominal = env.simulation.model
    model = randomization.with_surroundings(nominal, env._trunk, env._grip, draws)
    np.testing.assert_allclose(
        model.geom_friction[env._grip, 0], 0.5 * nominal.geom_friction[env._grip, 0]
    )
    np.testing.assert_allclose(model.geom_friction[:, 1:], nominal.geom_friction[:, 1:])
    heavier = np.asarray(model.body_mass - nominal.body_mass)
    assert heavier[env._trunk] == pytest.approx(1.5, rel=1e-5)
    assert np.count_nonzero(heavier) == 1


def test_pushes_are_kicks_within_their_bound(env, standing):
    """Half of the steps here; the velocity before moves along, so S3N sees no acceleration."""
    config = dataclasses.replace(RANDOM, push_interval_s=0.036)
    keys = jax.random.split(jax.random.PRNGKey(0), 2000)
    pushed = jax.vmap(lambda key: randomization.pushed(key, standing.simulation, config, env.dt))(
        keys
    )
    kick = np.asarray(pushed.qvel - standing.simulation.qvel)
    hit = kick[:, :2].any(axis=1)
    assert hit.mean() == pytest.approx(0.5, abs=0.04)
    assert 0.49 < np.abs(kick).max() <= 0.5
    assert not kick[:, 2:].any()
    np.testing.assert_array_equal(pushed.qvel, pushed.qvel_last)


def test_sensor_noise_is_bounded_and_only_on_the_sensors(env, states):
    clean = np.asarray(jax.vmap(env.observe)(jax.tree.map(jnp.asarray, states[2].pipeline_state)))
    noise = states[2].obs - clean
    bound = RANDOM.sensor_noise(12)
    assert (np.abs(noise[:, : bound.size]) <= bound + 1e-6).all()
    assert (np.abs(noise[:, : bound.size]) > 0.0).mean() > 0.9
    assert not noise[:, bound.size :].any()


def test_equal_seeds_give_every_method_the_same_samples(env, states, robot):
    """Other links for kin_only_hr, which is what makes it; the rest is the same."""
    other = CircleEnv(robot, SimulationConfig(variant=Variant.KIN_ONLY_HR), task=env.task)
    assert env.leg_randomization is LegRandomization.LEG_RAND
    assert other.leg_randomization is LegRandomization.HEAVY_LEG_RAND
    theirs = jax.jit(jax.vmap(other.reset))(jax.random.split(jax.random.PRNGKey(0), ENVS))
    ours = states[0]
    for name in ("friction_scale", "payload_kg", "random_key"):
        np.testing.assert_array_equal(ours.info[name], theirs.info[name])
    np.testing.assert_array_equal(ours.pipeline_state.command, theirs.pipeline_state.command)
    assert np.unique(ours.info["friction_scale"]).size == ENVS
    for name in ("friction_scale", "payload_kg", "leg_links"):
        jax.tree.map(np.testing.assert_array_equal, ours.info[name], states[2].info[name])
    assert (ours.info["random_key"] != states[2].info["random_key"]).any()


def test_evaluation_is_of_the_circle_on_the_nominal_robot(env):
    """Simulator and closed chain: the same command, clock and time stamps."""
    task = env.task.evaluated()
    task = dataclasses.replace(task, body=dataclasses.replace(task.body, reset_velocity_noise=0.0))
    nominal = CircleEnv(env.robot, task=task, leg_randomization=LegRandomization.NONE)
    assert set(jax.eval_shape(nominal.reset, jax.random.PRNGKey(0)).info) == {"divergence"}

    def stand(observation, _):
        return jnp.zeros((*observation.shape[:-1], nominal.action_size)), {}

    simulated = rollout(nominal, stand, episodes=2, duration_s=0.3, seed=0)
    reference = rollout_reference(nominal, stand, simulated, duration_s=0.3)
    for ours, theirs in zip(simulated, reference, strict=True):
        assert not ours.fell
        assert not theirs.fell
        assert ours.time[0] == 0.0
        assert ours.meta == theirs.meta
        assert ours.meta["vx_command_m_s"] == pytest.approx(0.8)
        np.testing.assert_allclose(ours.time, theirs.time, atol=1e-9)
        np.testing.assert_allclose(ours.command["wz_rad_s"], 0.8, rtol=1e-6)
    assert simulated[0].meta["gait_phase_rad"] != simulated[1].meta["gait_phase_rad"]
    gap = circle_gap(simulated, reference, settle_s=0.1)
    assert gap["e_vx_m_s"] < 0.05
    assert np.isnan(gap["e_phi_percent"])
    phase, command = nominal.command_at(0.3, simulated[0].meta)
    expected = simulated[0].meta["gait_phase_rad"] + 2 * np.pi * 2.2 * 0.3
    assert phase == pytest.approx(expected % (2 * np.pi))
    np.testing.assert_allclose(command, [0.8, 0.8], rtol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"vx_range_m_s": [1.0, 0.0]},
        {"randomization": {"friction_scale": [0.0, 1.0]}},
        {"randomization": {"payload_kg": [2.0, 1.0]}},
        {"randomization": {"payload_kg": [-1.0, 1.0]}},
        {"circle_fraction": 1.5},
    ],
)
def test_ranges_that_make_no_sense_are_one_line(change):
    with pytest.raises(UserError) as caught:
        parse(CircleConfig, change, "config.yaml")
    assert "\n" not in str(caught.value)


# --- figures ------------------------------------------------------------------------------

META = {"vx_command_m_s": 0.8, "wz_command_rad_s": 0.8}
LAP = 2.0 * np.pi / 0.8


def circling(vx=0.8, wz=0.8, vy=0.0, n=3600):
    """A robot on a circle: v_x forward, v_y to its left, w_z, at 3 ms."""
    time = 0.003 * np.arange(n)
    yaw = wz * time
    zero = np.zeros(n)
    world = [vx * np.cos(yaw) - vy * np.sin(yaw), vx * np.sin(yaw) + vy * np.cos(yaw), zero]
    content = {
        "time": time,
        "base_quaternion": quaternion_zyx(yaw, zero, zero),
        "base_linear_velocity": np.stack(world, axis=1),
        "base_angular_velocity": np.stack([zero, zero, wz + zero], axis=1),
        "meta": META,
    }
    command = {"vx_m_s": zero + 0.8, "wz_rad_s": zero + 0.8}
    return replace(make_recording(n=n), command=command, **content)


def test_body_velocity_is_in_the_turning_frame():
    recording = circling(vx=0.7, vy=0.1)
    np.testing.assert_allclose(recording.body_velocity[:, 0], 0.7, atol=1e-12)
    np.testing.assert_allclose(recording.body_velocity[:, 1], 0.1, atol=1e-12)


def test_tracking_figures_of_known_errors():
    figures = metrics.circle_metrics([circling(vx=0.72, wz=0.84, vy=0.05)], settle_s=0.5)
    assert figures["vx_rmse_m_s"] == pytest.approx(0.08)
    assert figures["wz_rmse_rad_s"] == pytest.approx(0.04)
    assert figures["vy_rms_m_s"] == pytest.approx(0.05)
    assert figures["tracking_e_rmse_percent"] == pytest.approx(7.5)  # (10 + 5) / 2
    assert figures["falls"] == 0
    for key in figures:
        assert metrics.metric_row(key, 1.0)[0] != key or key in ("episodes", "falls")


def test_gap_of_known_offsets():
    """0.08 m/s and 0.04 rad/s apart: 10 % and 5 %, in every phase bin alike."""
    simulated, reference = circling(), circling(vx=0.72, wz=0.84)
    gap = circle_gap([simulated, simulated], [reference, simulated], settle_s=0.5)
    assert gap["trials"] == 2
    assert gap["e_vx_m_s"] == pytest.approx(0.04)
    assert gap["e_vx_m_s_std"] == pytest.approx(0.08 / np.sqrt(2))
    assert gap["e_wz_rad_s"] == pytest.approx(0.02)
    assert gap["e_rmse_percent"] == pytest.approx(3.75)
    assert gap["e_phi_percent"] == pytest.approx(3.75)


def test_gap_to_a_slower_log_and_to_less_than_a_lap():
    simulated, reference = circling(), circling(vx=0.72)
    slow = replace(
        reference,
        **{name: getattr(reference, name)[::4] for name in reference.array_names()},
        command={name: signal[::4] for name, signal in reference.command.items()},
    )
    gap = circle_gap([simulated], [slow], settle_s=0.5)
    assert gap["e_vx_m_s"] == pytest.approx(0.08, rel=1e-3)
    fallen = replace(reference.slice_time(0.0, 0.5 * LAP), fell=True)
    gap = circle_gap([simulated], [fallen], settle_s=0.5)
    assert gap["reference_falls"] == 1
    assert gap["e_vx_m_s"] == pytest.approx(0.08)
    assert np.isnan(gap["e_phi_percent"])  # half a circle is no circle


def test_gap_without_a_trial_that_lasts():
    fallen = replace(circling().slice_time(0.0, 0.3), fell=True)
    gap = circle_gap([circling()], [fallen], settle_s=0.5)
    assert (gap["trials"], gap["reference_falls"]) == (0, 1)
    assert np.isnan(gap["e_rmse_percent"])


def test_pictures_and_summary():
    groups = Groups([circling()], [circling(vx=0.72)], "closed chain, ideal")
    task = EVALUATIONS["circle"]
    pictures = task.pictures(groups, 0.5)
    assert set(pictures) == {"velocity_tracking", "path", "velocity_gap"}
    assert set(pictures) <= set(PICTURES)  # or a second evaluation would leave the first's
    assert "E_phi 5.0 %" in pictures["velocity_gap"][0].get_suptitle()
    assert set(task.pictures(Groups([circling()], [], ""), 0.5)) == {"velocity_tracking", "path"}
    gap = task.gap(groups.simulated, groups.reference, 0.5)
    said = task.summary(task.metrics(groups.simulated, 0.5), gap, groups.against)
    assert "E_RMSE 5.0 %" in said
    rows = [{"env_steps": 1, "eval/episode_reward": 1.0, "eval/velocity_rmse_m_s": 0.1}]
    labels = [ax.get_ylabel() for ax in plots.training_curve(rows).axes]
    assert labels[1].startswith("velocity error")
    assert pictures["velocity_gap"][0].axes[0].yaxis.get_major_formatter()(2.0) == "2 %"
    summary = task.summary(metrics.circle_metrics([circling()], 0.5), {}, "")
    assert "0 falls in 1 episode." in summary


def starting_slowly(yaw_at_first, fell=False):
    """From rest to the command's circle within 0.9 s, the trunk swaying at 2 Hz."""
    r = circling()
    speed = np.minimum(r.time / 0.9, 1.0)
    course = yaw_at_first + 0.8 * np.cumsum(speed) * 0.003
    velocity = 0.8 * speed[:, None] * np.stack([np.cos(course), np.sin(course)], axis=1)
    position = np.column_stack([np.cumsum(velocity, axis=0) * 0.003, 0.3 + 0.0 * r.time])
    zero = 0.0 * r.time
    sway = 0.1 * np.sin(4.0 * np.pi * r.time + 1.0)
    quaternion = quaternion_zyx(course + sway, zero, zero)
    return replace(r, base_position=position, base_quaternion=quaternion, fell=fell)


def test_path_and_the_commands_circle_begin_alike():
    """Whoever walks as told is on the circle, however slowly and wherever to it began."""
    groups = {"a": [starting_slowly(0.0), starting_slowly(2.0)], "b": [starting_slowly(-1.0, True)]}
    fig = plots.path(groups, settle_s=1.0)
    assert fig.get_suptitle() == "Path of the trunk after 1 s, 2 episodes each: 1 fall"
    (ax,) = fig.axes
    labels = [line.get_label() for line in ax.lines]
    assert {"a", "b (1 fell)", "command"} <= set(labels)
    for line in ax.lines[:4]:
        x, y = line.get_data()
        # All lie on the circle of radius v / w about the point to the left.
        np.testing.assert_allclose(np.hypot(x, y - 1.0), 1.0, atol=0.01)
    assert plots.path([starting_slowly(0.0)]).get_suptitle().endswith("1 episode: 0 falls")
