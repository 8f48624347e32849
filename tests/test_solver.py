"""The constraint solver against C MuJoCo and MJX, on one model that has every kind of row."""

import jax
import mujoco
import numpy as np
import pytest
from mujoco import mjx

from s3n_mjx.simulation import solver
from s3n_mjx.simulation.control import full_precision

MODEL = """
<mujoco>
  <compiler angle="radian" autolimits="true"/>
  <option iterations="50" ls_iterations="8" jacobian="dense" {option}/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 .1"/>
    <body name="trunk" pos="0 0 .3">
      <freejoint/>
      <geom name="low" type="sphere" size=".1" pos="0 0 -.21" mass="3"/>
      <body name="leg" pos=".3 0 0">
        <joint name="hip" axis="0 1 0" range="-.5 .5" armature=".01"/>
        <geom name="foot" type="sphere" size=".05" pos="0 0 -.26" mass="1"/>
        <body pos="0 .1 0">
          <joint name="knee" axis="0 1 0" range="-1 .3" armature=".01" {joint}/>
          <geom name="toe" type="sphere" size=".04" pos="0 0 -.27" mass=".5"/>
        </body>
      </body>
      <body name="arm" pos="-.3 0 0">
        <joint name="shoulder" type="ball" range="0 .4" armature=".01"/>
        <geom name="hand" type="sphere" size=".05" pos="0 0 -.26" mass="1"/>
      </body>
      <body pos="0 .3 0">
        <joint name="slide" type="slide" axis="1 0 0" armature=".1"/>
        <geom type="sphere" size=".05" mass=".5"/>
      </body>
    </body>
  </worldbody>
  <contact>
    <pair geom1="floor" geom2="low" condim="1"/>
    <pair geom1="floor" geom2="foot" condim="3"/>
    <pair geom1="floor" geom2="toe" condim="4" friction=".8 .8 .01 .001 .001"/>
    <pair geom1="floor" geom2="hand" condim="6"/>
  </contact>
  <tendon>
    <fixed name="rope" range="-1 .1">
      <joint joint="slide" coef="1"/>
      <joint joint="hip" coef=".5"/>
    </fixed>
  </tendon>
  <equality>
    <joint joint1="slide" joint2="knee" polycoef="0 .2 0 0 0"/>
  </equality>
</mujoco>
"""


def states(model, count):
    """Postures around limits and floor, some within and some beyond."""
    rng = np.random.default_rng(0)
    qpos = np.tile(model.qpos0, (count, 1))
    qpos[:, 2] += rng.uniform(-0.02, 0.02, count)
    qpos[:, 7:9] = rng.uniform(-0.7, 0.7, (count, 2))
    turn = rng.normal(size=(count, 4)) * 0.3 + [1, 0, 0, 0]
    qpos[:, 9:13] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
    qpos[:, 13] = rng.uniform(-0.1, 0.3, count)
    return qpos, rng.normal(size=(count, model.nv))


def solved(model, data, solve):
    """`qacc` and constraint forces on the joints, batched, with a solver's iterations."""

    def one(data):
        data = solve(model, data)
        return data.qacc, data.qfrc_constraint, data._impl.efc_J.T @ data._impl.efc_force

    return jax.jit(jax.vmap(full_precision(one)))(data)


def ours(model, data):
    return solver.solve(model, data, mjx.full_m(model, data))


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(MODEL.format(option="", joint=""))


@pytest.fixture(scope="module")
def problem(model):
    """States, the MJX model, and its data in them up to the constraint solver."""
    x = mjx.put_model(model)
    qpos, qvel = states(model, 40)

    def prepare(qpos, qvel):
        data = mjx.make_data(x).replace(qpos=qpos, qvel=qvel, qacc_warmstart=0.1 * qvel)
        data = mjx.fwd_velocity(x, mjx.fwd_position(x, data))
        data = mjx.fwd_acceleration(x, mjx.fwd_actuation(x, data))
        assert solver.is_supported(x, data)
        return data

    return qpos, qvel, x, jax.jit(jax.vmap(full_precision(prepare)))(qpos, qvel)


def test_every_kind_of_row_as_in_c(model, problem):
    qpos, qvel, x, prepared = problem
    qacc, force, from_rows = solved(x, prepared, ours)
    data, kinds = mujoco.MjData(model), set()
    for index in range(len(qpos)):
        data.qpos[:], data.qvel[:] = qpos[index], qvel[index]
        mujoco.mj_forward(model, data)
        kinds |= {(int(k), int(data.efc_force[i] > 0)) for i, k in enumerate(data.efc_type)}
        scale = np.abs(data.qacc).max()
        np.testing.assert_allclose(qacc[index], data.qacc, atol=2e-3 * scale)
        scale = np.abs(data.qfrc_constraint).max() + 1.0
        np.testing.assert_allclose(force[index], data.qfrc_constraint, atol=2e-3 * scale)
        np.testing.assert_allclose(from_rows[index], data.qfrc_constraint, atol=2e-3 * scale)
    row = mujoco.mjtConstraint
    for kind in (
        row.mjCNSTR_EQUALITY,
        row.mjCNSTR_LIMIT_JOINT,
        row.mjCNSTR_LIMIT_TENDON,
        row.mjCNSTR_CONTACT_FRICTIONLESS,
        row.mjCNSTR_CONTACT_PYRAMIDAL,
    ):
        assert (int(kind), 1) in kinds  # the states push on it


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_as_far_as_mjx_after_as_many_iterations(problem, iterations):
    """The same Newton steps: only the line search differs, and it finds the same minimum."""
    *_, x, prepared = problem
    x = x.tree_replace({"opt.iterations": iterations})
    a, b = (solved(x, prepared, solve)[0] for solve in (ours, mjx.solve))
    difference = np.abs(a - b).max(axis=1) / np.abs(b).max(axis=1)
    assert np.median(difference) < 1e-4
    assert np.quantile(difference, 0.9) < 1e-2


@pytest.mark.parametrize(
    ("option", "joint"),
    [
        ('solver="CG"', ""),
        ('cone="elliptic"', ""),
        ("", 'frictionloss=".1"'),
    ],
)
def test_what_it_does_not_know_is_left_to_mjx(option, joint):
    xml = MODEL.format(option=option, joint=joint).replace('condim="1"', 'condim="3"')
    model = mujoco.MjModel.from_xml_string(xml)
    x = mjx.put_model(model)
    data = jax.eval_shape(lambda: mjx.make_constraint(x, mjx.fwd_position(x, mjx.make_data(x))))
    assert not solver.is_supported(x, data)
