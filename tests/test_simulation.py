"""The simulated dynamics: golden numbers read back, and two independent ways to the same path."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mujoco import mjx
from test_generate import mass_matrix

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Injection, LaggedTerms, Variant
from s3n_mjx.reference.closed_chain import ClosedChain
from s3n_mjx.reference.serial import SerialRobot
from s3n_mjx.robot.model import load_robot
from s3n_mjx.robot.stand import on_stand
from s3n_mjx.simulation import physics
from s3n_mjx.simulation.config import SimulationConfig, Timing
from s3n_mjx.simulation.control import Simulation, delay_weights
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.simulation.neglected import BaseCoupling
from s3n_mjx.simulation.standing import standing_target

TABLE_II = {  # at alpha = 90 deg, M11, M12, M22 in kg m^2
    Variant.KIN_ONLY: ("0.04058", "0.00232", "0.01852"),
    Variant.S3N_ACT: ("0.05678", "0.01852", "0.01852"),
    Variant.S3N_FULL: ("0.07161", "0.02368", "0.02368"),
}


def config(variant=Variant.S3N_FULL, injection=Injection.QFRC_APPLIED, **changes):
    return SimulationConfig(variant=variant, injection=injection, **changes)


@pytest.fixture(scope="session", params=list(Injection))
def simulation(robot, request) -> Simulation:
    """s3n_full, free base, MJX; shared, because each compiles for a while."""
    return Simulation(normalize(robot, config(injection=request.param)))


@pytest.fixture(scope="session")
def step(simulation):
    return jax.jit(lambda state, target: simulation.step(simulation.model, state, target))


@pytest.mark.parametrize("injection", list(Injection))
@pytest.mark.parametrize("variant", TABLE_II)
def test_table_ii_read_from_the_model(robot, variant, injection):
    """What the simulator solves with, plus what it is pushed with per unit of acceleration.

    The mass matrix is MuJoCo's; the lagged share is read from the torques that the control loop
    applies at unit accelerations, not from the formula behind them.
    """
    normalized = normalize(robot, config(variant, injection))
    data = mujoco.MjData(normalized.model)
    data.qpos[:] = robot.home_qpos
    data.qpos[robot.qpos_index[[p.distal for p in robot.pairs]]] = -np.pi / 2
    mujoco.mj_forward(normalized.model, data)
    inertia = mass_matrix(normalized.model, data)

    simulation = Simulation(normalized)
    dt = simulation.timestep_s
    target = data.qpos[robot.qpos_index]
    force = jax.jit(lambda state: simulation.generalized_force(state, target)[0])
    rest = simulation.init(data.qpos, np.zeros(normalized.model.nv), target)
    for pair in robot.pairs:
        dofs = robot.dof_index[[pair.proximal, pair.distal]]
        lagged = np.zeros((2, 2))
        for column, dof in enumerate(dofs):
            # qvel = 0 now and -dt a step ago: a realised acceleration of 1 rad/s^2.
            moving = rest.replace(qvel_last=rest.qvel.at[dof].add(-dt))
            lagged[:, column] = -(force(moving) - force(rest))[dofs]
        total = inertia[np.ix_(dofs, dofs)] + lagged
        read = tuple(f"{x:.5f}" for x in (total[0, 0], total[0, 1], total[1, 1]))
        assert read == TABLE_II[variant]
        np.testing.assert_allclose(total, total.T, atol=1e-7)


def test_mass_matrix_is_the_same_in_mjx(robot):
    """The whole normalized inertia reaches MJX's solver: what C MuJoCo has through tendons."""
    normalized = normalize(robot, config(Variant.S3N_ACT, Injection.MASS_MATRIX))
    assert normalized.coupling.any()
    data = mujoco.MjData(normalized.model)
    data.qpos[:] = robot.home_qpos
    mujoco.mj_forward(normalized.model, data)

    model = mjx.put_model(normalized.tree, impl="jax")
    coupling = normalized.coupling.astype(np.float32)

    @jax.jit
    def inertia(qpos):
        d = physics.mass_matrix(model, mjx.make_data(model).replace(qpos=qpos), coupling)
        return mjx.full_m(model, d)

    np.testing.assert_allclose(
        inertia(jnp.asarray(data.qpos, jnp.float32)),
        mass_matrix(normalized.model, data),
        atol=3e-6,  # float32 of entries up to 15 kg
    )


def test_physics_step_is_mjx_step(robot):
    """What is left out of `mjx.step` must not be missed: landing, with contact forces."""
    model = mjx.put_model(normalize(robot, config()).tree, impl="jax")
    rng = np.random.default_rng(0)
    start = mjx.make_data(model).replace(
        qpos=jnp.asarray(robot.home_qpos, jnp.float32).at[2].add(-0.005),  # feet in the floor
        qvel=jnp.asarray(rng.uniform(-0.5, 0.5, model.nv), jnp.float32),
        qfrc_applied=jnp.asarray(rng.uniform(-3, 3, model.nv), jnp.float32),
    )
    ours = jax.jit(lambda d: physics.step(model, d))(start)
    theirs = jax.jit(lambda d: mjx.step(model, d))(start)
    assert np.abs(np.asarray(ours.qfrc_constraint)).max() > 1
    np.testing.assert_allclose(ours.qpos, theirs.qpos, atol=1e-6)
    np.testing.assert_allclose(ours.qvel, theirs.qvel, atol=1e-4)


def test_mjx_and_c_agree_step_for_step(robot, simulation, step):
    """MJX with S3N torques against the NumPy twin on C MuJoCo: flight, landing and stance.

    Compared step by step: each starts from the twin's state, so that contact does not amplify
    float32 rounding. The largest accelerations are those of landing, about 1e3 rad/s^2.
    """
    twin = SerialRobot(simulation.normalized)
    rng = np.random.default_rng(0)
    qpos = robot.home_qpos.copy()
    qpos[2] += 0.01
    qvel = rng.uniform(-0.2, 0.2, robot.model.nv)
    target = np.asarray(simulation.standing_target, dtype=float)
    twin.reset(qpos, qvel, target)
    state = simulation.init(qpos, qvel, target)
    worst = 0.0
    contacts = 0
    for _ in range(60):
        target = target + rng.uniform(-0.03, 0.03, 12)
        before = twin.data.qvel.copy()
        state = state.replace(
            qpos=jnp.asarray(twin.data.qpos, jnp.float32),
            qvel=jnp.asarray(twin.data.qvel, jnp.float32),
            qvel_last=jnp.asarray(twin.last, jnp.float32),
            command_history=jnp.asarray(twin.history[0], jnp.float32)[None],
        )
        twin.step(target)
        state, record = step(state, jnp.asarray(target, jnp.float32))
        np.testing.assert_allclose(
            robot.actuator_map.T @ np.asarray(record.motor_torque, dtype=float),
            twin.motor_force[robot.dof_index],
            atol=2e-3,  # float32 of targets and velocities, times the gains
        )
        # Force of the floor on each foot, world frame; signs and axes would show.
        scale = 1.0 + np.abs(twin.foot_force()).max()
        np.testing.assert_allclose(
            np.asarray(record.foot_force) / scale, twin.foot_force() / scale, atol=2e-2
        )
        # Acceleration of this step, the quantity in which an error would show first.
        mjx_qacc = (np.asarray(state.qvel, dtype=float) - before) / simulation.timestep_s
        c_qacc = (twin.data.qvel - before) / simulation.timestep_s
        scale = 1.0 + np.abs(c_qacc).max()
        worst = max(worst, np.abs(mjx_qacc - c_qacc).max() / scale)
        np.testing.assert_allclose(state.qpos, twin.data.qpos, atol=2e-5)
        contacts += twin.data.ncon > 0
    assert 10 < contacts < 60  # both flight and stance were seen
    # float32 velocities of order 1 rad/s over 3 ms resolve about 1e-7 / 3e-3 = 4e-5 rad/s^2;
    # the contact solver, stopped after four iterations, adds the rest.
    assert worst < 5e-3


def test_staggered_timing_against_the_twin(robot):
    """Velocity half a step ahead, the mean of two commands around the delay."""
    normalized = normalize(on_stand(robot), config(timing=Timing.STAGGERED))
    simulation = Simulation(normalized)
    force = jax.jit(lambda state, target: simulation.generalized_force(state, target)[0])
    twin = SerialRobot(normalized)
    rng = np.random.default_rng(1)
    home = normalized.robot.home_joints
    twin.reset(normalized.robot.home_qpos, np.zeros(normalized.model.nv), home)
    for _ in range(6):
        target = home + rng.uniform(-0.2, 0.2, 8)
        state = simulation.init(twin.data.qpos, twin.data.qvel, target).replace(
            qvel_last=jnp.asarray(twin.last, jnp.float32),
            command_history=jnp.asarray(np.stack(twin.history[:2]), jnp.float32),
        )
        ours = force(state, target)
        twin.step(target)
        np.testing.assert_allclose(ours, twin.data.qfrc_applied, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("variant", "expected_order"), [(Variant.S3N_ACT, 1.0), (Variant.S3N_FULL, 1.0)]
)
def test_both_injections_converge_to_each_other(robot, variant, expected_order):
    """Fixed base, a 4 Hz sweep of hip and knee for 0.3 s, on C MuJoCo in double precision.

    The lagged form is a step behind, so the gap between the injections shrinks with the step.
    """
    stand = on_stand(robot)
    gaps, steps = [], [1.5e-3, 0.75e-3, 0.375e-3]
    for dt in steps:
        paths = []
        for injection in Injection:
            normalized = normalize(stand, config(variant, injection, timestep_s=dt))
            loop = SerialRobot(normalized)
            loop.reset(stand.home_qpos, np.zeros(8), stand.home_joints)
            path = []
            for k in range(round(0.3 / dt)):
                sweep = 0.2 * np.sin(2 * np.pi * 4.0 * k * dt) * np.tile([1, -1], 4)
                loop.step(stand.home_joints + sweep)
                path.append(loop.data.qpos.copy())
            paths.append(np.array(path)[:: round(1.5e-3 / dt)])
        gaps.append(np.sqrt(np.mean((paths[0] - paths[1]) ** 2)))
    orders = np.log2(np.array(gaps[:-1]) / gaps[1:])
    assert gaps[-1] < 1e-3  # rad, of a motion of 0.2 rad
    np.testing.assert_allclose(orders, expected_order, atol=0.25)


def test_antiparallel_robot_moves_like_the_straight_one(robot, description, write_robot):
    """Signs of axes and Jacobian are bookkeeping: the motion must not know of them."""
    knees = [9, 12, 15, 18]

    def flip(spec):
        for leg in ("FL", "FR", "RL", "RR"):
            joint = spec.joint(f"{leg}_knee")
            joint.axis = [0, -1, 0]
            joint.range = sorted(-np.array(joint.range))
        qpos = np.array(robot.home_qpos)
        qpos[knees] *= -1
        spec.keys[0].qpos = qpos

    description["linkages"]["parallelogram"]["jacobian"] = [[1, 0], [1, -1]]
    flipped = load_robot(write_robot(description, flip))
    sign = np.tile([1, 1, -1], 4)
    ends = []
    for candidate, turn in ((robot, np.ones(12)), (flipped, sign)):
        loop = SerialRobot(normalize(candidate, config()))
        target = standing_target(candidate)
        loop.reset(candidate.home_qpos, np.zeros(18), target)
        for k in range(100):
            move = 0.1 * np.sin(0.2 * k) * np.tile([0.2, 1, -0.7], 4)
            loop.step(target + turn * move)
        joints = loop.data.qpos[candidate.qpos_index] * turn
        ends.append(np.concatenate([loop.data.qpos[:7], joints]))
    # The flipped MJCF was written with six digits: its home pose is 4e-6 rad off.
    np.testing.assert_allclose(ends[1], ends[0], atol=2e-5)


def test_stability_margin_matches_the_table(robot):
    """Ranges measured on the floating base over alpha -2.5 .. -0.4."""
    expected = {
        (Variant.KIN_ONLY, Injection.QFRC_APPLIED, LaggedTerms.MINIMAL): (0.0, 0.0),
        (Variant.S3N_ACT, Injection.QFRC_APPLIED, LaggedTerms.MINIMAL): (0.57, 0.60),
        (Variant.S3N_FULL, Injection.QFRC_APPLIED, LaggedTerms.MINIMAL): (0.59, 0.62),
        (Variant.S3N_FULL, Injection.QFRC_APPLIED, LaggedTerms.PAPER): (0.93, 0.96),
        (Variant.S3N_ACT, Injection.MASS_MATRIX, LaggedTerms.MINIMAL): (0.0, 0.0),
        (Variant.S3N_FULL, Injection.MASS_MATRIX, LaggedTerms.MINIMAL): (0.04, 0.07),
    }
    for (variant, injection, lagged), (low, high) in expected.items():
        normalized = normalize(robot, config(variant, injection, lagged_terms=lagged))
        assert low <= normalized.stability_margin <= high, (variant, injection, lagged)


def test_unstable_lag_is_refused_with_the_way_out(description, write_robot):
    """Half the leg's weight, and the paper's verbatim split rings (rho 1.08)."""

    def lighten(spec):
        for body in spec.bodies:
            if body.name.endswith(("_thigh", "_shank")):
                body.mass *= 0.5
                body.inertia = np.array(body.inertia) * 0.5

    robot = load_robot(write_robot(description, lighten))
    with pytest.raises(UserError, match="must stay below 1; use --injection mass_matrix") as caught:
        normalize(robot, config(lagged_terms=LaggedTerms.PAPER))
    assert "--lagged-terms minimal" in str(caught.value)
    assert normalize(robot, config()).stability_margin < 0.7


def test_full_without_identified_inertia_is_refused(description, write_robot):
    del description["linkages"]["parallelogram"]["inertia"]
    robot = load_robot(write_robot(description))
    with pytest.raises(UserError, match="s3n_full needs the identified `inertia`"):
        normalize(robot, config())
    normalize(robot, config(Variant.S3N_ACT))


@pytest.mark.parametrize(
    ("delay_ms", "timing", "weights"),
    [
        (3.0, Timing.PAPER, [0, 1]),  # one step (Table I)
        (3.0, Timing.STAGGERED, [0, 0.5, 0.5]),  # mean of the last two commands
        (0.0, Timing.PAPER, [1]),
        (0.0, Timing.STAGGERED, [0.5, 0.5]),
        (4.5, Timing.PAPER, [0, 0.5, 0.5]),
        (7.5, Timing.STAGGERED, [0, 0, 0, 1]),
    ],
)
def test_delay_weights(delay_ms, timing, weights):
    np.testing.assert_allclose(delay_weights(delay_ms * 1e-3, 3e-3, timing), weights, atol=1e-9)


def test_motor_limit_clips_motors_but_not_s3n(robot):
    """Far targets saturate the motors; S3N's torque is added after the clip."""
    simulation = Simulation(normalize(robot, config()))
    far = jnp.asarray(robot.home_joints, jnp.float32) + 5.0
    rest = simulation.init(robot.home_qpos, np.zeros(18), far)
    moving = rest.replace(qvel_last=rest.qvel.at[6:].add(-3.0))  # 1,000 rad/s^2
    force = jax.jit(lambda state: simulation.generalized_force(state, far)[:2])
    (still, torque), (pushed, _) = force(rest), force(moving)
    np.testing.assert_allclose(torque, 30.0)
    assert np.abs(pushed - still).max() > 15  # about 0.0162 x 1,000 N m, not cut by 30


def test_standing_target_stands(robot, simulation):
    """On C MuJoCo, for 2 s: level, at home height, every foot at its share of the load."""
    loop = SerialRobot(simulation.normalized)
    target = standing_target(robot)
    loop.reset(robot.home_qpos, np.zeros(18), target)
    for _ in range(667):
        loop.step(target)
    assert abs(loop.data.qpos[2] - robot.home_qpos[2]) < 2e-3  # contact compliance
    assert np.abs(loop.data.qpos[4:7]).max() < 1e-3
    assert np.abs(loop.data.qvel).max() < 1e-2


def through_the_loops(plant, joints: np.ndarray, base: np.ndarray) -> np.ndarray:
    """The closed chain's mass matrix in the serial robot's velocities, (18, 18), projected.

    Motions that keep the loops closed are the null space of the constraints' Jacobian.
    """
    model, data = plant.model, plant.data
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    plant.assemble(joints, base)
    mujoco.mj_forward(model, data)
    full = mass_matrix(model, data)
    loops = data.efc_J.reshape(-1, model.nv)[: data.ne]
    serial = np.concatenate([np.arange(6), plant._dof])
    rest = np.setdiff1d(np.arange(model.nv), serial)
    map_ = np.zeros((model.nv, len(serial)))
    map_[serial, np.arange(len(serial))] = 1.0
    map_[rest] = -np.linalg.lstsq(loops[:, rest], loops[:, serial], rcond=None)[0]
    return map_.T @ full @ map_


def test_base_coupling_completes_the_mass_matrix(robot):
    """s3n_full on a floating base against the closed chain's, projected through its loops.

    Without it the entries between trunk and legs lack what the linkage carries; the block of the
    trunk alone is the serial model's and right at home, where this looks.
    """
    plant = ClosedChain(robot, 0.003)
    base = robot.home_qpos[:7].copy()
    exact = through_the_loops(plant, robot.home_joints, base)
    settings = config(Variant.S3N_FULL, Injection.MASS_MATRIX, base_coupling=True)
    normalized = normalize(robot, settings)
    model = mjx.put_model(normalized.tree, impl="jax")

    def inertia(base_coupling):
        @jax.jit
        def compute(qpos):
            data = mjx.make_data(model).replace(qpos=qpos)
            coupling = jnp.asarray(normalized.coupling, jnp.float32)
            return mjx.full_m(model, physics.mass_matrix(model, data, coupling, base_coupling))

        return np.asarray(compute(jnp.asarray(robot.home_qpos, jnp.float32)), dtype=float)

    order = np.concatenate([np.arange(6), robot.dof_index])
    missing = np.abs(inertia(None)[np.ix_(order, order)] - exact)
    ours = inertia(BaseCoupling(robot))[np.ix_(order, order)]
    # Home is alpha = -90 deg, where the lagged cos(alpha) coupling vanishes.
    np.testing.assert_allclose(ours, exact, atol=2e-4)
    assert missing.max() > 0.01
    assert missing[:6, :6].max() < 2e-4


def test_base_coupling_needs_the_mass_matrix(robot):
    with pytest.raises(UserError, match="--base-coupling: needs --variant s3n_full and"):
        normalize(robot, config(base_coupling=True))


def test_mjx_gets_no_geoms_that_are_only_seen(robot):
    """And the bodies keep the inertia that the geoms may have given them."""
    normalized = normalize(robot, SimulationConfig())
    tree, model = normalized.tree, normalized.model
    names = {tree.geom(i).name for i in range(tree.ngeom)}
    assert {robot.floor, *robot.feet} <= names
    assert tree.ngeom < model.ngeom
    for geom in range(model.ngeom):
        if model.geom_contype[geom] or model.geom_conaffinity[geom]:
            assert model.geom(geom).name in names
    for name in ("body_mass", "body_inertia", "body_ipos", "dof_armature", "dof_damping"):
        np.testing.assert_allclose(getattr(tree, name), getattr(model, name))
