"""Randomized leg links as mechanics: mass, centre of mass, parallel axes, definite mass matrix."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mujoco import mjx

from s3n_mjx.envs import CircleEnv, PitchEnv, randomization
from s3n_mjx.envs.randomization import RANGES, LegLinks, LegRandomization
from s3n_mjx.normalization import Variant
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.injection import stability_margin

HEAVY = LegRandomization.HEAVY_LEG_RAND
DRAWS = 64


@pytest.fixture(scope="module")
def bodies(robot) -> np.ndarray:
    return randomization.randomized_bodies(robot)


@pytest.fixture(scope="module")
def drawn(robot, bodies) -> LegLinks:
    """As many robots as an environment would draw, one an environment."""
    nominal = randomization.nominal_links(robot.model, bodies)
    keys = jax.random.split(jax.random.PRNGKey(3), DRAWS)
    return jax.vmap(lambda key: randomization.sample(key, RANGES[HEAVY], nominal))(keys)


@pytest.fixture(scope="module")
def crouched(robot) -> mujoco.MjData:
    """A posture with no angle at zero."""
    data = mujoco.MjData(robot.model)
    data.qpos[:] = robot.home_qpos
    data.qpos[robot.qpos_index] += np.linspace(-0.2, 0.3, len(robot.joints))
    data.qpos[3:7] = [0.9, 0.2, -0.3, 0.1]
    mujoco.mj_normalizeQuat(robot.model, data.qpos)
    mujoco.mj_forward(robot.model, data)
    return data


@pytest.fixture(scope="module")
def computed(robot, bodies, drawn, crouched):
    """MJX's total mass, centre of mass and mass matrix of every drawn robot."""
    model = mjx.put_model(robot.model, impl="jax")
    template = mjx.put_data(robot.model, crouched, impl="jax")

    @jax.jit
    @jax.vmap
    def compute(links):
        randomized = randomization.with_links(model, bodies, links)
        data = mjx.crb(randomized, mjx.com_pos(randomized, mjx.kinematics(randomized, template)))
        return jnp.sum(randomized.body_mass), data.subtree_com[0], mjx.full_m(randomized, data)

    with jax.default_matmul_precision("highest"):
        return jax.device_get(compute(drawn))


def test_total_mass_and_centre_of_mass(robot, bodies, drawn, crouched, computed):
    """By hand from each link's pose, mass and centre of mass."""
    mass, com, _ = computed
    for i in range(DRAWS):
        masses, local = robot.model.body_mass.copy(), robot.model.body_ipos.copy()
        masses[bodies], local[bodies] = drawn.mass[i], drawn.com[i]
        rotation = crouched.xmat.reshape(-1, 3, 3)
        centres = crouched.xpos + np.einsum("bij,bj->bi", rotation, local)
        assert mass[i] == pytest.approx(masses.sum(), rel=1e-6)
        np.testing.assert_allclose(com[i], masses @ centres / masses.sum(), atol=1e-6)
    assert mass.std() > 0.01  # they do differ
    assert com.std(axis=0).min() > 1e-4


def test_moving_a_centre_of_mass_follows_the_parallel_axis_rule(
    robot, bodies, drawn, crouched, computed
):
    """Inertia about each joint: sum of I_com along its axis plus m d^2, over the links it moves."""
    model, matrix = robot.model, computed[2]
    rotation = crouched.xmat.reshape(-1, 3, 3)
    for i in range(0, DRAWS, 8):
        masses, local = model.body_mass.copy(), model.body_ipos.copy()
        inertias = model.body_inertia.copy()
        masses[bodies], local[bodies] = drawn.mass[i], drawn.com[i]
        inertias[bodies] = drawn.inertia[i]
        for joint, dof in zip(robot.joints, robot.dof_index, strict=True):
            axis, anchor = crouched.joint(joint).xaxis, crouched.joint(joint).xanchor
            about_axis = model.dof_armature[dof]
            for body in range(1, model.nbody):
                if not _moves(model, model.joint(joint).bodyid[0], body):
                    continue
                principal = np.zeros(9)
                mujoco.mju_quat2Mat(principal, model.body_iquat[body])
                frame = rotation[body] @ principal.reshape(3, 3)
                arm = crouched.xpos[body] + rotation[body] @ local[body] - anchor
                across = arm - axis * (axis @ arm)
                about_axis += (frame.T @ axis) ** 2 @ inertias[body]
                about_axis += masses[body] * across @ across
            assert matrix[i, dof, dof] == pytest.approx(about_axis, rel=2e-5), joint


def _moves(model: mujoco.MjModel, root: int, body: int) -> bool:
    while body > root:
        body = model.body_parentid[body]
    return body == root


def test_every_robot_has_a_positive_definite_mass_matrix(computed):
    assert np.linalg.eigvalsh(computed[2]).min() > 0.0


def test_rho_is_of_the_whole_randomized_set(robot, bodies, drawn):
    """The margin that is reported bounds that of every robot that was drawn."""
    env = PitchEnv(robot, SimulationConfig(variant=Variant.S3N_FULL), leg_randomization=HEAVY)
    copies = []
    for i in range(0, DRAWS, 8):
        copy = env.normalized.model.__copy__()
        copy.body_mass[bodies] = drawn.mass[i]
        copy.body_inertia[bodies] = drawn.inertia[i]
        copy.body_ipos[bodies] = drawn.com[i]
        copies.append(copy)
    assert stability_margin(env.normalized, copies) <= env.stability_margin < 1.0


def test_every_device_draws_other_robots_and_floors(robot):
    """Two fake devices, two environments each, as Brax hands them their keys."""
    env = CircleEnv(robot)
    keys = jax.random.split(jax.random.PRNGKey(0), 4).reshape(2, 2, 2)

    def draw(key):
        info = env.reset(key).info
        return info["leg_links"].mass[0], info["friction_scale"], info["payload_kg"]

    on_devices = jax.pmap(jax.vmap(draw))
    first, again = on_devices(keys), on_devices(keys)
    for values, same in zip(first, again, strict=True):
        assert np.unique(np.asarray(values)).size == 4
        np.testing.assert_array_equal(values, same)
