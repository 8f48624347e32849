"""The contact-free test: S3N brings the serial model to the closed chain, and how near."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.reference.closed_chain import ClosedChain
from s3n_mjx.robot.stand import on_stand
from s3n_mjx.simulation.config import SimulationConfig, Timing
from s3n_mjx.simulation.neglected import LinkGravity, VelocityTerms
from s3n_mjx.validation.excitation import Chirp, Excited, joint_targets
from s3n_mjx.validation.leg import Response, gap, refer, sampled, simulate

SWEEP = Chirp(duration_s=5.0, settle_s=0.3)


def both(stand, config, chirp=SWEEP, gravity=False):
    time = chirp.times(config.timestep_s)
    targets = joint_targets(stand, chirp, Excited.BOTH, time)
    (response,) = simulate(stand, config, time, [targets])
    reference = sampled(refer(stand, time, targets, gravity=gravity), time, config.timing)
    return gap(response, reference, [0, 1])


def test_chirp_sweeps_between_its_frequencies():
    chirp = Chirp()
    assert chirp.frequency([0.0, 25.0]).tolist() == [0.1, 25.0]
    time = np.linspace(0, 25, 200_001)
    value = chirp(time)
    assert np.abs(value).max() == pytest.approx(0.2, rel=1e-3)
    crossings = time[1:][(value[:-1] < 0) & (value[1:] >= 0)]
    late = 1 / np.diff(crossings)[-5:]
    np.testing.assert_allclose(late, chirp.frequency(crossings[-5:]), rtol=0.02)
    np.testing.assert_array_equal(chirp([-1.0, 0.0]), 0.0)


@pytest.mark.parametrize(
    ("excited", "moves"), [(Excited.HIP, [1, 0]), (Excited.KNEE, [0, 1]), (Excited.BOTH, [1, 1])]
)
def test_targets_move_motors_not_joints(robot, excited, moves):
    stand = on_stand(robot)
    time = SWEEP.times(0.003)
    targets = joint_targets(stand, SWEEP, excited, time)
    motors = (targets - stand.home_joints) @ stand.actuator_map.T
    np.testing.assert_allclose(motors, np.outer(SWEEP(time), np.tile(moves, 4)), atol=1e-12)


def test_amplitude_beyond_the_limits_is_refused(robot):
    with pytest.raises(UserError, match="--amplitude-rad: 1 rad drives joint FL_knee"):
        joint_targets(on_stand(robot), Chirp(amplitude_rad=1.0), Excited.KNEE, [0.0])


def test_reductions_in_a_short_sweep(robot):
    """s3n_full in the mass matrix with staggered timing leaves a few percent of the error."""
    stand = on_stand(robot, gravity=False)
    config = SimulationConfig(variant=Variant.KIN_ONLY, timing=Timing.STAGGERED)
    base = both(stand, config)
    full = both(
        stand,
        dataclasses.replace(config, variant=Variant.S3N_FULL, injection=Injection.MASS_MATRIX),
    )
    assert full.position_rmse.mean() < 0.05 * base.position_rmse.mean()
    assert full.torque_rmse.mean() < 0.05 * base.torque_rmse.mean()
    assert 0.01 < base.position_rmse.mean() < 0.1  # rad: the command has 0.2


@pytest.mark.parametrize(
    "duration_s", [5.0, pytest.param(25.0, marks=pytest.mark.slow)], ids=["short", "whole"]
)
def test_with_the_neglected_terms_the_serial_model_becomes_the_closed_chain(robot, duration_s):
    """dt towards 0, weight included: RMSE below 1e-3 rad over the sweep, and not without them."""
    chirp = Chirp(duration_s=duration_s, settle_s=0.3)
    stand = on_stand(robot)
    config = SimulationConfig(
        variant=Variant.S3N_FULL,
        injection=Injection.MASS_MATRIX,
        timing=Timing.STAGGERED,
        timestep_s=3e-4,
        velocity_terms=True,
        link_gravity=True,
    )
    near = both(stand, config, chirp, gravity=True).position_rmse
    assert near.max() < 1e-3
    without = dataclasses.replace(config, link_gravity=False)
    assert both(stand, without, chirp, gravity=True).position_rmse.max() > 3e-3


def test_velocity_terms_are_those_of_the_parallelogram(robot):
    """-dC sin(a) thd2^2 and +dC sin(a) thd1^2 in absolute angles, pulled back by J^T."""
    terms = VelocityTerms.of(robot, SimulationConfig(variant=Variant.S3N_FULL))
    rng = np.random.default_rng(0)
    position, velocity = rng.uniform(-1, 1, 12), rng.uniform(-9, 9, 12)
    ours = np.asarray(jax.jit(terms.torque)(jnp.asarray(position), jnp.asarray(velocity))).reshape(
        4, 3
    )
    coupling = 0.005413 - 0.003675  # kg m^2, what the serial model lacks of M12
    for leg in range(4):
        alpha = position[3 * leg + 2]
        first = velocity[3 * leg + 1]
        second = first + velocity[3 * leg + 2]
        absolute = coupling * np.sin(alpha) * np.array([second**2, -(first**2)])
        expected = np.array([[1, 1], [0, 1]]) @ absolute
        np.testing.assert_allclose(ours[leg, 1:], expected, rtol=1e-4, atol=1e-6)
        assert ours[leg, 0] == 0


def test_link_gravity_is_the_slope_of_the_missing_potential(robot):
    """Potential energy of the closed chain minus the serial tree's, by finite differences."""
    closed = ClosedChain(robot, 0.003)
    for model in (closed.model, robot.model):
        model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    rng = np.random.default_rng(3)
    base = robot.home_qpos[:7].copy()
    base[3:7] = [0.9, 0.2, -0.3, 0.1]
    base[3:7] /= np.linalg.norm(base[3:7])
    joints = robot.home_joints + rng.uniform(-0.3, 0.3, 12)

    def potential(joints):
        closed.assemble(joints, base)
        mujoco.mj_energyPos(closed.model, closed.data)
        serial = mujoco.MjData(robot.model)
        serial.qpos[:7], serial.qpos[robot.qpos_index] = base, joints
        mujoco.mj_fwdPosition(robot.model, serial)
        mujoco.mj_energyPos(robot.model, serial)
        return closed.data.energy[0] - serial.energy[0]

    qpos = robot.home_qpos.copy()
    qpos[:7], qpos[robot.qpos_index] = base, joints
    ours = np.asarray(jax.jit(LinkGravity(robot).torque)(jnp.asarray(qpos, jnp.float32)))
    for index in range(12):
        if index % 3 == 0:
            continue  # the abduction joint's share is neglected
        step = np.zeros(12)
        step[index] = 1e-4
        slope = (potential(joints + step) - potential(joints - step)) / 2e-4
        np.testing.assert_allclose(ours[index], -slope, atol=2e-3)
    assert np.abs(ours).max() > 0.1


def test_gap_leaves_the_settling_out():
    time = np.array([-1.0, 0.0, 1.0])
    ours = Response(time, np.array([[9.0, 9], [1, 2], [3, 4]]), np.ones((3, 2)))
    theirs = Response(time, np.zeros((3, 2)), np.zeros((3, 2)))
    found = gap(ours, theirs, [1, 0])
    np.testing.assert_allclose(found.position_rmse, np.sqrt([(4 + 16) / 2, (1 + 9) / 2]))
    np.testing.assert_allclose(found.torque_rmse, 1.0)
