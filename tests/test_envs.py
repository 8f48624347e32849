"""The pitch task as a `brax.envs` environment, and leg-link randomization."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from s3n_mjx.envs import PitchConfig, PitchEnv, randomization
from s3n_mjx.envs.base import pitch_and_roll, rotate_inverse
from s3n_mjx.envs.randomization import RANGES, LegRandomization
from s3n_mjx.errors import UserError
from s3n_mjx.robot.model import load_robot

ENVS = 4


@pytest.fixture(scope="session")
def env(pitch_env) -> PitchEnv:
    return pitch_env


@pytest.fixture(scope="session")
def wrapped(wrapped_pitch):
    return wrapped_pitch


@pytest.fixture(scope="session")
def episode(env, wrapped):
    """States of eight steps under brax's own wrappers: two more than an episode."""
    state = wrapped.reset(jax.random.split(jax.random.PRNGKey(0), ENVS))
    states = [state]
    for _ in range(8):
        state = wrapped.step(state, jnp.zeros((ENVS, env.action_size)))
        states.append(jax.device_get(state))
    return states


def test_runs_under_braxs_wrappers(env, episode):
    assert env.action_size == 12
    assert episode[0].obs.shape == (ENVS, env.observation_size)
    for state in episode:
        assert np.isfinite(state.obs).all()
        assert np.isfinite(state.reward).all()
    np.testing.assert_array_equal(episode[6].done, 1)
    np.testing.assert_array_equal(episode[6].info["truncation"], 1)  # time ran out, no fall
    # The automatic reset starts the command over, too.
    np.testing.assert_allclose(
        episode[6].pipeline_state.phase, episode[0].pipeline_state.phase, atol=1e-6
    )


def test_nothing_is_traced_twice(wrapped, episode):
    """Once for the first step and once for the carry that it gives back, never per call."""
    assert wrapped.traces["reset"] == 1
    assert wrapped.traces["step"] <= 2
    before = dict(wrapped.traces)
    state = wrapped.step(episode[-1], jnp.ones((ENVS, 12)))
    wrapped.step(state, jnp.ones((ENVS, 12)))
    assert wrapped.traces == before


def test_reward_terms_are_logged_one_by_one(env, episode):
    state = episode[3]
    terms = {k: v for k, v in state.metrics.items() if k.startswith("reward/")}
    assert set(terms) == {f"reward/{name}" for name in vars(env.task.reward)}
    np.testing.assert_allclose(sum(terms.values()), state.reward, rtol=1e-5)
    for name in ("contact", "slip", "drift", "posture", "action_rate", "torque"):
        assert (terms[f"reward/{name}"] <= 0).all()


def test_observation_is_what_hardware_measures(env, episode):
    """Gyro, gravity, joints, joint rates, last action, command; nothing else."""
    state = episode[2]
    qpos = state.pipeline_state.simulation.qpos[0]
    qvel = state.pipeline_state.simulation.qvel[0]
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, qpos[3:7].astype(float))
    phase = state.pipeline_state.phase[0]
    expected = np.concatenate(
        [
            qvel[3:6],
            rotation.reshape(3, 3).T @ [0, 0, -1],
            qpos[7:] - env.robot.home_joints,
            0.1 * qvel[6:],
            np.zeros(12),
            [np.sin(phase), np.cos(phase), 0.1 * np.sin(phase), np.pi * np.cos(phase)],
        ]
    )
    np.testing.assert_allclose(state.obs[0], expected, atol=1e-5)


def test_phase_advances_by_the_frequency(env, episode):
    step = np.mod(episode[2].pipeline_state.phase - episode[1].pipeline_state.phase, 2 * np.pi)
    np.testing.assert_allclose(step, 2 * np.pi * 5.0 * 0.018, rtol=1e-5)


def test_what_counts_as_a_fall(env):
    state = jax.jit(env.reset)(jax.random.PRNGKey(1))
    simulation = state.pipeline_state.simulation
    fallen = jax.jit(env.fallen)
    assert not fallen(simulation)
    tilted = simulation.qpos.at[3:7].set(jnp.array([np.cos(0.35), 0, np.sin(0.35), 0]))
    assert fallen(simulation.replace(qpos=tilted))  # 0.7 rad
    assert fallen(simulation.replace(qpos=simulation.qpos.at[2].set(0.1)))
    assert fallen(simulation.replace(qvel=simulation.qvel.at[0].set(jnp.nan)))
    assert fallen(simulation.replace(qvel=simulation.qvel.at[9].set(-2e3)))


def test_divergence_never_reaches_the_learner(wrapped, episode):
    """One environment full of NaN: it ends, scores finite numbers, and leaves the others alone."""
    state = jax.tree.map(jnp.asarray, episode[1])
    simulation = state.pipeline_state.simulation
    broken = simulation.replace(qvel=simulation.qvel.at[0].set(jnp.nan))
    state = state.replace(pipeline_state=state.pipeline_state.replace(simulation=broken))
    after = wrapped.step(state, jnp.zeros((ENVS, 12)))
    np.testing.assert_array_equal(after.done, [1, 0, 0, 0])
    for value in (after.obs, after.reward, *after.metrics.values()):
        assert np.isfinite(value).all()
    np.testing.assert_allclose(after.obs[1:], episode[2].obs[1:], atol=1e-4)


def test_rotations_against_mujoco():
    rng = np.random.default_rng(0)
    for _ in range(5):
        quaternion = rng.normal(size=4)
        quaternion /= np.linalg.norm(quaternion)
        matrix, vector = np.zeros(9), rng.normal(size=3)
        mujoco.mju_quat2Mat(matrix, quaternion)
        matrix = matrix.reshape(3, 3)
        np.testing.assert_allclose(
            rotate_inverse(jnp.array(quaternion), jnp.array(vector)), matrix.T @ vector, atol=1e-5
        )
        pitch, roll = pitch_and_roll(jnp.array(quaternion))
        np.testing.assert_allclose(pitch, np.arcsin(-matrix[2, 0]), atol=1e-5)
        np.testing.assert_allclose(roll, np.arctan2(matrix[2, 1], matrix[2, 2]), atol=1e-5)


def test_kin_only_hr_is_kin_only_with_heavy_randomization(env, episode):
    assert env.leg_randomization is LegRandomization.HEAVY_LEG_RAND
    assert env.stability_margin == 0.0
    links = episode[0].info["leg_links"]
    assert links.mass.shape == (ENVS, 8)  # thigh and shank of each leg
    assert np.unique(links.mass[:, 0]).size == ENVS  # every environment has its own robot
    np.testing.assert_array_equal(links.mass, episode[-1].info["leg_links"].mass)  # and keeps it


@pytest.mark.parametrize("setting", list(RANGES))
def test_randomization_fills_its_ranges(robot, setting):
    """Table III: bounds are respected and reached; links stay physically valid."""
    ranges = RANGES[setting]
    bodies = randomization.randomized_bodies(robot)
    nominal = randomization.nominal_links(robot.model, bodies)
    links = jax.vmap(lambda key: randomization.sample(key, ranges, nominal))(
        jax.random.split(jax.random.PRNGKey(0), 2000)
    )
    for ratio, (low, high) in (
        (links.mass / nominal.mass, ranges.mass_scale),
        (links.inertia / nominal.inertia, ranges.inertia_scale),
        (
            links.com - nominal.com,
            (-ranges.com_offset_m, ranges.com_offset_m),
        ),
    ):
        width = high - low
        assert low - 1e-5 <= ratio.min() < low + 0.01 * width
        assert high - 0.01 * width < ratio.max() <= high + 1e-5
    assert (links.mass > 0).all()
    assert (links.inertia.sum(-1, keepdims=True) >= 2 * links.inertia - 1e-9).all()


def test_randomization_differs_on_every_device(env):
    """Each device's environments come from its own keys."""
    keys = jax.random.split(jax.random.PRNGKey(0), 4).reshape(2, 2, 2)
    mass = jax.pmap(jax.vmap(lambda key: env.reset(key).info["leg_links"].mass))(keys)
    assert np.unique(np.asarray(mass)[..., 0]).size == 4
    again = jax.pmap(jax.vmap(lambda key: env.reset(key).info["leg_links"].mass))(keys)
    np.testing.assert_array_equal(mass, again)


def test_stability_margin_covers_the_randomized_robots(robot):
    nominal = PitchEnv(robot)
    heavy = PitchEnv(robot, leg_randomization=LegRandomization.HEAVY_LEG_RAND)
    assert nominal.stability_margin < heavy.stability_margin < 0.7


def test_randomization_without_links_is_refused(description, write_robot):
    for leg in description["legs"]:
        leg["randomized_links"] = []
    robot = load_robot(write_robot(description))
    with pytest.raises(UserError, match="list `randomized_links`"):
        PitchEnv(robot, leg_randomization=LegRandomization.LEG_RAND)


def test_command_is_a_parameter(robot):
    env = PitchEnv(robot, task=PitchConfig(amplitude_rad=0.02, frequency_hz=2.0))
    pitch, rate = env.command(jnp.array(np.pi / 6))
    np.testing.assert_allclose(pitch, 0.01, rtol=1e-5)
    np.testing.assert_allclose(rate, 0.02 * 4 * np.pi * np.cos(np.pi / 6), rtol=1e-5)
