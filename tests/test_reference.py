"""The closed-chain reference: it is the robot it claims to be, and its command path is the one."""

import mujoco
import numpy as np
import pytest

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Variant
from s3n_mjx.reference.closed_chain import ClosedChain, mean_over
from s3n_mjx.reference.imperfections import LEVELS, Level, disturb_links
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.model import load_robot
from s3n_mjx.robot.stand import on_stand
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.simulation.standing import standing_target

PERIOD = 0.003


@pytest.fixture
def closed_chain_robot(tmp_path):
    """The bundled robot with an edited description beside copies of both MJCFs."""

    def make(old: str, new: str):
        folder = bundled_robot().parent
        for name in ("serial.xml", "closed_chain.xml"):
            (tmp_path / name).write_text((folder / name).read_text())
        text = (folder / "robot.yaml").read_text()
        assert old in text
        (tmp_path / "robot.yaml").write_text(text.replace(old, new))
        return load_robot(tmp_path / "robot.yaml")

    return make


def test_it_stands_with_its_loops_closed(robot):
    """Level, at home height, the floor carrying its weight, for 2 s."""
    plant = ClosedChain(robot, PERIOD)
    target = standing_target(robot)
    plant.reset(robot.home_joints, target, robot.home_qpos[:7])
    samples = plant.run(target, round(2.0 / PERIOD))
    total = samples.foot_force[-1, :, 2].sum()
    np.testing.assert_allclose(total, plant.model.body_mass.sum() * 9.81, rtol=1e-3)
    assert abs(samples.base[-1, 2] - robot.home_qpos[2]) < 2e-3
    # The standing target knows nothing of the linkage's weight: a slight lean is physics.
    assert np.abs(samples.base[-1, 4:]).max() < 2e-3
    assert plant.loop_error() < 1e-5


def test_motors_are_read_in_actuator_coordinates(robot):
    """Whatever the posture, what the sensors give is the serial configuration."""
    plant = ClosedChain(robot, PERIOD)
    joints = robot.home_joints + np.tile([0.1, -0.3, 0.4], 4)
    plant.reset(joints, joints, robot.home_qpos[:7])
    qpos, qvel = plant.observe()
    np.testing.assert_allclose(qpos[robot.qpos_index], joints, atol=1e-9)
    np.testing.assert_allclose(qpos[:7], robot.home_qpos[:7], atol=1e-12)
    np.testing.assert_array_equal(qvel, 0.0)


def test_a_command_arrives_after_the_delay_and_is_clipped(robot):
    """A far target at t = 0 shows as torque 3 ms later, at the motors' limit."""
    stand = on_stand(robot, gravity=False)
    plant = ClosedChain(stand, PERIOD)
    plant.reset(stand.home_joints, stand.home_joints)
    samples = plant.run(stand.home_joints + 5.0, 3)
    delay = round(3e-3 / plant.model.opt.timestep)
    np.testing.assert_allclose(samples.motor_torque[:delay], 0.0, atol=1e-9)
    np.testing.assert_allclose(samples.motor_torque[delay], stand.torque_limit)


def test_no_delay_is_no_delay(robot):
    stand = on_stand(robot, gravity=False)
    plant = ClosedChain(stand, PERIOD, torque_delay_s=0.0)
    plant.reset(stand.home_joints, stand.home_joints)
    samples = plant.run(stand.home_joints + 5.0, 1)
    np.testing.assert_allclose(samples.motor_torque[0], stand.torque_limit)


def test_every_model_stands_on_the_same_floor(robot):
    """MuJoCo softens contacts by inertia at compile time; variants and reference must agree."""
    names = [f"{leg.name}_shank" for leg in robot.description.legs]
    expected = [robot.model.body(n).invweight0[0] for n in names]
    models = [normalize(robot, SimulationConfig(variant=v)) for v in Variant]
    for model in [
        *(n.model for n in models),
        *(n.tree for n in models),
        ClosedChain(robot, PERIOD).model,
    ]:
        np.testing.assert_allclose([model.body(n).invweight0[0] for n in names], expected)


def test_realistic_robots_differ_by_seed_within_their_bounds(robot):
    def make(seed):
        return ClosedChain(robot, PERIOD, Level.REALISTIC, seed).model

    first, again, other = make(1), make(1), make(2)
    np.testing.assert_array_equal(first.body_mass, again.body_mass)
    assert not np.allclose(first.body_mass, other.body_mass)
    ideal, sizes = ClosedChain(robot, PERIOD).model, LEVELS[Level.REALISTIC]
    moving = ideal.body_mass > 0
    ratio = first.body_mass[moving] / ideal.body_mass[moving]
    assert 0.2 * sizes.link_mass_error < np.abs(ratio - 1).max() <= sizes.link_mass_error
    assert first.body("trunk").mass == ideal.body("trunk").mass
    shift = np.abs(first.body_ipos - ideal.body_ipos)
    assert 0 < shift.max() <= sizes.link_com_error_m
    # A body's principal moments obey the triangle inequality.
    moments = np.sort(first.body_inertia[moving], axis=1)
    assert (moments[:, 0] + moments[:, 1] >= moments[:, 2] * (1 - 1e-9)).all()
    friction = first.dof_frictionloss[first.jnt_dofadr[first.joint("FL_crank").id]]
    assert friction == sizes.coulomb_friction_nm
    assert ideal.dof_frictionloss.max() == 0


def test_realistic_encoders_have_steps_and_noise(robot):
    stand = on_stand(robot)
    plant = ClosedChain(stand, PERIOD, Level.REALISTIC)
    plant.reset(stand.home_joints, stand.home_joints)
    step = LEVELS[Level.REALISTIC].encoder_step_rad
    read = np.array([plant._motors()[0] for _ in range(200)])
    np.testing.assert_allclose(read / step, np.round(read / step), atol=1e-6)
    assert 0 < read.std(axis=0).max() < 5e-4


def test_mean_over_is_of_the_step_or_around_its_sample():
    values = np.arange(12.0)
    np.testing.assert_array_equal(mean_over(values, 4, False), [1.5, 5.5, 9.5])
    # Around samples 0, 4, 8: what was before the first one is taken to be as there.
    np.testing.assert_array_equal(mean_over(values, 4, True), [0.25, 3.5, 7.5])
    assert mean_over(np.zeros((12, 3, 2)), 4, True).shape == (3, 3, 2)


def test_stand_keeps_the_pairs_alone(robot):
    stand = on_stand(robot)
    assert stand.joints == tuple(
        f"{leg}_{joint}" for leg in ("FL", "FR", "RL", "RR") for joint in ("hip", "knee")
    )
    assert stand.model.nv == 8
    np.testing.assert_allclose(stand.actuator_map[:2, :2], [[1, 0], [1, 1]])
    data = mujoco.MjData(stand.model)
    mujoco.mj_step(stand.model, data)
    assert data.ncon == 0
    assert on_stand(robot, gravity=False).model.opt.gravity[2] == 0


def test_stand_welds_a_joint_where_home_has_it(description, write_robot):
    """The foot must be where it was with the abduction joints moved to their home angle."""

    def spread(spec):
        qpos = np.array(spec.keys[0].qpos)
        qpos[[7, 10, 13, 16]] = [0.3, -0.3, 0.3, -0.3]
        spec.keys[0].qpos = qpos

    robot = load_robot(write_robot(description, spread))
    stand = on_stand(robot)
    free, fixed = mujoco.MjData(robot.model), mujoco.MjData(stand.model)
    free.qpos[:], fixed.qpos[:] = robot.home_qpos, stand.home_qpos
    mujoco.mj_kinematics(robot.model, free)
    mujoco.mj_kinematics(stand.model, fixed)
    for foot in robot.feet:
        np.testing.assert_allclose(
            fixed.geom(foot).xpos - fixed.body("trunk").xpos,
            free.geom(foot).xpos - free.body("trunk").xpos,
            atol=1e-7,
        )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("closed_chain_joint: FL_crank", "closed_chain_joint: FL_krank", "no joint 'FL_krank'"),
        (
            ", closed_chain_joint: FL_crank",
            "",
            "contradicts `jacobian` at the motor beside FL_knee",
        ),
        ("closed_chain: closed_chain.xml", "", "closed_chain: not given"),
    ],
)
def test_what_does_not_fit_is_one_line(closed_chain_robot, old, new, says):
    robot = closed_chain_robot(old, new)
    with pytest.raises(UserError, match=r"robot\.yaml|closed_chain\.xml") as caught:
        ClosedChain(robot, PERIOD)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_time_step_must_divide_the_control_period(robot):
    with pytest.raises(UserError, match="no whole part"):
        ClosedChain(robot, 0.0031)


def test_links_given_by_full_inertia_can_be_disturbed(robot):
    """As CAD exports write them."""
    spec = mujoco.MjSpec.from_string("""
      <mujoco><worldbody><body name="link"><freejoint/>
        <inertial pos="0 0 0.1" mass="1" fullinertia="0.02 0.03 0.04 0.001 0 0"/>
      </body></worldbody></mujoco>""")
    model = spec.compile()
    rng = np.random.default_rng(0)
    disturb_links(spec, model, set(), LEVELS[Level.REALISTIC], rng)
    ratio = spec.compile().body("link").inertia / model.body("link").inertia
    np.testing.assert_allclose(ratio, ratio[0])
    assert 0 < abs(ratio[0] - 1) < 0.1
