"""Identification from a closed-chain MJCF: known linkages, and MuJoCo's own simulation."""

from pathlib import Path

import mujoco
import numpy as np
import pytest

from s3n_mjx.errors import UserError
from s3n_mjx.identification.from_model import (
    identify_model,
    identify_pair,
    mass_rows,
    table_rows,
)
from s3n_mjx.identification.mechanism import Mechanism
from s3n_mjx.normalization import Variant, parallel_inertia
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.model import load_spec
from s3n_mjx.robot.stand import clamp

CLOSED = bundled_robot().parent / "closed_chain.xml"
SERIAL = bundled_robot().parent / "serial.xml"
GOLDEN = (0.04793, 0.005413, 0.02368)  # Eq. 31
G1 = (
    Path(__file__).parents[2] / "shared/robots/g1_ankle_closed_chain/urdf/23urdf311.xml"
)  # a third-party file that is no part of this project
PITCH_ROLL, LEFT_RIGHT = (
    ("pitch_joint", "roll_joint"),
    ("left_motor_joint", "right_motor_joint"),
)
needs_g1 = pytest.mark.skipif(not G1.is_file(), reason="shared robots are not there")


@pytest.fixture(scope="module")
def bundled():
    return identify_model(CLOSED, SERIAL)


def leg(coupler: str) -> mujoco.MjModel:
    """A parallelogram leg on a floating trunk, in the same plane by different joints.

    As drawn it is stretched, a dead centre; its keyframe has the knee bent by -1 rad.
    """
    rod = """<inertial pos="0 0 -0.1" mass="0.3" diaginertia="0.002 0.002 0.00002"/>
             <site name="rod_start"/><site name="rod_end" pos="0 0 -0.2"/>"""
    on_crank = {
        "hinge": f'<body name="rod" pos="0 0 -0.04"><joint name="rod" axis="0 1 0"/>{rod}</body>',
        "ball": f'<body name="rod" pos="0 0 -0.04"><joint name="rod" type="ball"/>{rod}</body>',
        "weld": f"""<body name="rod" pos="0 0 -0.04"><joint name="rod" axis="0 1 0"/>{rod}
             <body name="pin" pos="0 0 -0.2"><joint name="pin" axis="0 1 0"/>
             <inertial pos="0 0 0" mass="1e-7" diaginertia="1e-9 1e-9 1e-9"/></body></body>""",
        "free": "",
    }[coupler]
    free = f'<body pos="0 0 0.46"><freejoint name="rod"/>{rod}</body>' if coupler == "free" else ""
    loops = {
        "weld": '<weld body1="pin" body2="shank"/>',
        "free": '<connect site1="rod_start" site2="crank_pin"/>'
        '<connect site1="rod_end" site2="lever_pin"/>',
    }.get(coupler, '<connect name="loop" body1="rod" body2="shank" anchor="0 0 -0.2"/>')
    spec = mujoco.MjSpec.from_string(f"""
      <mujoco><compiler angle="radian"/><worldbody>
        <body name="trunk" pos="0 0 0.5"><freejoint/>
          <inertial pos="0 0 0" mass="5" diaginertia="0.1 0.1 0.1"/>
          <body name="thigh"><joint name="hip" axis="0 1 0" armature="0.01" damping="0.1"/>
            <inertial pos="0 0 -0.1" mass="0.8" diaginertia="0.003 0.003 0.001"/>
            <body name="shank" pos="0 0 -0.2"><joint name="knee" axis="0 1 0" damping="0.02"/>
              <inertial pos="0 0 -0.06" mass="0.2" diaginertia="0.001 0.001 0.0001"/>
              <site name="lever_pin" pos="0 0 -0.04"/></body></body>
          <body name="crank"><joint name="crank" axis="0 1 0" armature="0.02" damping="0.1"/>
            <inertial pos="0 0 0" mass="0.1" diaginertia="0.001 0.001 0.001"/>
            <site name="crank_pin" pos="0 0 -0.04"/>{on_crank}</body>
        </body>{free}
      </worldbody>
      <equality>{loops}</equality>
      <actuator><motor joint="hip"/><motor joint="crank"/></actuator>
      </mujoco>""")
    model = spec.compile()
    knee = -1.0
    lift = [-0.04 * np.sin(knee), 0.0, 0.5 - 0.04 * np.cos(knee)]  # of the crank pin
    rod_qpos = {
        "hinge": [-knee],
        "weld": [-knee],
        "ball": [np.cos(knee / 2), 0.0, -np.sin(knee / 2), 0.0],
        "free": [*lift, 1.0, 0.0, 0.0, 0.0],
    }[coupler]
    qpos = model.qpos0.copy()
    parts = {"knee": [knee], "crank": [knee], "rod": rod_qpos}
    if coupler == "weld":
        parts["pin"] = [knee]
    for name, values in parts.items():
        address = model.joint(name).qposadr[0]
        qpos[address : address + len(values)] = values
    spec.add_key(name="bent", qpos=qpos)
    return spec.compile()


RANGES = {"hip": (-0.5, 0.5), "knee": (-2.0, -0.5)}


# --- the bundled robot --------------------------------------------------------------------


def test_bundled_legs_are_those_of_the_paper(bundled):
    """Eq. 31 and 32, Table I, at every posture of the joint range, on every leg."""
    assert [p.serial_joints for p in bundled.pairs] == [
        (f"{leg}_hip", f"{leg}_knee") for leg in ("FL", "FR", "RL", "RR")
    ]
    for pair in bundled.pairs:
        name = pair.serial_joints[0][:2]
        assert pair.motor_joints == (f"{name}_hip", f"{name}_crank")
        assert not pair.unreachable
        np.testing.assert_allclose(pair.reach, [[-1, 2.6], [-2.5, -0.4]])
        expected = parallel_inertia(*GOLDEN)(pair.samples.posture[:, 1])
        # Measured: 1.2e-6, which is the rounding of the stand-in's link parameters.
        np.testing.assert_allclose(pair.samples.inertia, expected, rtol=1e-5)
        np.testing.assert_allclose(
            pair.samples.jacobian,
            np.broadcast_to([[1, 0], [1, 1]], pair.samples.jacobian.shape),
            atol=1e-9,
        )
        assert pair.constant_jacobian
        assert pair.parameters is not None
        p = pair.parameters
        np.testing.assert_allclose([p.m11, p.m12, p.m22], GOLDEN, rtol=1e-5)
        assert pair.angle_offset == 0.0
        np.testing.assert_allclose(pair.motor_inertia, 0.0162)
        np.testing.assert_allclose(pair.motor_damping, 0.0972)
        np.testing.assert_allclose(pair.damping, np.diag([0.0972, 0.0972]), atol=1e-9)


def test_bundled_against_its_serial_model(bundled):
    """Table II, what the serial tree lacks, and equal masses."""
    for pair in bundled.pairs:
        for variant, printed in {
            Variant.KIN_ONLY: (0.04058, 0.00232, 0.01852),
            Variant.S3N_ACT: (0.05678, 0.01852, 0.01852),
            Variant.S3N_FULL: (0.07161, 0.02368, 0.02368),
        }.items():
            total = pair.total_inertia(variant, np.pi / 2)
            np.testing.assert_allclose(total[[0, 0, 1], [0, 1, 1]], printed, atol=5e-6)
        np.testing.assert_allclose(pair.omitted_moment, [0.049, 0.0124143], rtol=1e-6)
        np.testing.assert_allclose(
            pair.link_increment(np.pi / 2),
            pair.total_inertia(Variant.S3N_FULL, np.pi / 2)
            - pair.total_inertia(Variant.S3N_ACT, np.pi / 2),
            atol=1e-12,
        )
    assert abs(bundled.mass_difference) < 1e-9


def test_weight_is_that_of_all_links(bundled):
    """Torque on thigh and crank, from the first moments of what turns with them."""
    pair = bundled.pairs[0]
    q1, q2 = pair.samples.posture.T
    # thigh 0.7 kg at 0.08 m, shank 0.25 kg at the knee and 0.07 m below; coupler and crank
    proximal = 0.7 * 0.08 + 0.25 * 0.21 + 0.049
    distal = 0.25 * 0.07 + 0.0124143
    expected = -9.81 * np.array([proximal * np.sin(q1), distal * np.sin(q1 + q2)]).T
    np.testing.assert_allclose(pair.samples.gravity, expected, atol=1e-6)


def test_alpha_need_not_be_the_joint_angle(tmp_path):
    """A knee that reads 0.3 rad more than alpha, in both MJCFs."""
    paths = []
    for source in (CLOSED, SERIAL):
        spec = load_spec(source)
        model = spec.compile()
        for name in ("FL_knee", "FR_knee", "RL_knee", "RR_knee"):
            spec.joint(name).ref = 0.3
            spec.joint(name).range = spec.joint(name).range + 0.3
            address = model.jnt_qposadr[model.joint(name).id]
            qpos = np.array(spec.keys[0].qpos)
            qpos[address] += 0.3
            spec.keys[0].qpos = qpos
        spec.compile()
        paths.append(tmp_path / source.name)
        paths[-1].write_text(spec.to_xml())
    pair = identify_model(*paths, serial_joints=[("FL_hip", "FL_knee")]).pairs[0]
    assert pair.parameters is not None
    p = pair.parameters
    np.testing.assert_allclose([p.m11, p.m12, p.m22], GOLDEN, rtol=1e-5)
    np.testing.assert_allclose(pair.angle_offset, -0.3, atol=1e-9)
    np.testing.assert_allclose(pair.omitted_moment, [0.049, 0.0124143], rtol=1e-6)
    total = pair.total_inertia(Variant.S3N_FULL, np.pi / 2)
    np.testing.assert_allclose(total[[0, 0, 1], [0, 1, 1]], [0.07161, 0.02368, 0.02368], atol=5e-6)


def test_antiparallel_axes_and_swapped_motors():
    """A knee that counts the other way round, and the crank's motor named first."""
    spec = load_spec(CLOSED)
    spec.joint("FL_knee").axis = [0, -1, 0]
    spec.joint("FL_knee").range = [0.4, 2.5]
    qpos = np.array(spec.keys[0].qpos)
    knee = spec.compile()
    address = knee.jnt_qposadr[knee.joint("FL_knee").id]
    qpos[address] *= -1
    spec.keys[0].qpos = qpos
    model = spec.compile()
    pair = identify_pair(model, ("FL_hip", "FL_knee"), ("FL_crank", "FL_hip"))
    np.testing.assert_allclose(pair.jacobian, [[1, -1], [1, 0]], atol=1e-9)
    assert pair.parameters is not None
    p = pair.parameters
    np.testing.assert_allclose([p.m22, p.m12, p.m11], GOLDEN, rtol=1e-5)


def simulated_inertia(model, motors, joints, posture, mechanism, torque, steps) -> np.ndarray:
    """``M_p`` from C MuJoCo: the motors' acceleration under a torque on either, from rest."""
    mechanism.at(np.array([posture]))
    response = []
    dofs = [model.jnt_dofadr[model.joint(m).id] for m in motors]
    for motor in dofs:
        data = mujoco.MjData(model)
        for i in range(model.njnt):
            full = mechanism.model.joint(model.joint(i).name)
            data.qpos[model.jnt_qposadr[i]] = mechanism.data.qpos[full.qposadr[0]]
        data.qfrc_applied[motor] = torque
        for _ in range(steps):
            mujoco.mj_step(model, data)
        response.append(data.qvel[dofs] / (torque * data.time))
    return np.linalg.inv(np.array(response).T)


@pytest.mark.parametrize("posture", [(0.8, -1.6), (-0.5, -0.6), (2.0, -2.3)])
def test_simulation_agrees(posture):
    """An independent way to M_p: gravity and damping off, loops held by MuJoCo's constraints."""
    joints = ("FL_hip", "FL_knee", "FL_crank", "FL_coupler")
    motors = ("FL_hip", "FL_crank")
    spec = load_spec(CLOSED)
    mechanism = Mechanism(spec.compile(), ("FL_hip", "FL_knee"), motors, "closed chain")
    clamp(spec, set(joints), {})
    spec.option.gravity = [0, 0, 0]
    for element in list(spec.actuators):
        spec.delete(element)
    model = spec.compile()
    model.dof_damping[:] = 0.0
    found = simulated_inertia(model, motors, joints, posture, mechanism, 0.5, 20)
    # Soft constraints of impedance 0.999 leave up to a part in a thousand. Measured: 2e-6 kg m^2,
    # mostly Coriolis torque in the 6 ms.
    np.testing.assert_allclose(found, parallel_inertia(*GOLDEN)(posture[1]), atol=1e-5)
    np.testing.assert_allclose(found, mechanism.dynamics().inertia[0], atol=1e-5)


# --- joints and equalities of other kinds -------------------------------------------------


@pytest.mark.parametrize(("coupler", "idle"), [("hinge", 0), ("ball", 1), ("weld", 0), ("free", 1)])
def test_the_kind_of_passive_joint_does_not_matter(coupler, idle):
    """Hinges, a ball, a free body by two connects, a weld: the same planar leg.

    By hand: M11 = hip armature + thigh + shank mass at the knee + rod about its start, M22 = crank
    armature + crank + shank + rod mass at the crank, coupling from the two transports.
    """
    pair = identify_pair(leg(coupler), ("hip", "knee"), ("hip", "crank"), ranges=RANGES)
    assert pair.idle_dofs == idle
    np.testing.assert_allclose(pair.jacobian, [[1, 0], [1, 1]], atol=1e-6)
    assert pair.parameters is not None
    p = pair.parameters
    expected = (
        0.01 + 0.003 + 0.8 * 0.1**2 + 0.2 * 0.2**2 + 0.002 + 0.3 * 0.1**2,
        0.2 * 0.2 * 0.06 + 0.3 * 0.1 * 0.04,
        0.02 + 0.001 + 0.001 + 0.2 * 0.06**2 + 0.3 * 0.04**2,
    )
    np.testing.assert_allclose([p.m11, p.m12, p.m22], expected, rtol=1e-4)
    # The knee's own damping acts between both motors.
    knee = 0.02 * np.array([[1, -1], [-1, 1]])
    np.testing.assert_allclose(pair.damping, 0.1 * np.eye(2) + knee, atol=1e-6)
    np.testing.assert_allclose(pair.motor_damping, 0.1)


def test_geared_rotor_by_joint_equality():
    """A knee motor on the thigh with 2:1 of its own: a diagonal Jacobian, and no Eq. 14."""
    model = mujoco.MjModel.from_xml_string("""
      <mujoco><compiler angle="radian"/><worldbody><body>
        <joint name="hip" axis="0 1 0" armature="0.01"/><geom size="0.05" pos="0 0 -0.1"/>
        <body pos="0 0 -0.2"><joint name="knee" axis="0 1 0"/>
          <geom size="0.05" pos="0 0 -0.1"/></body>
        <body><joint name="rotor" axis="0 1 0"/>
          <inertial pos="0 0 0" mass="0.1" diaginertia="0.001 0.001 0.001"/></body>
      </body></worldbody>
      <equality><joint joint1="knee" joint2="rotor" polycoef="0 0.5 0 0 0"/></equality>
      <actuator><motor joint="hip"/><motor joint="rotor" gear="3" armature="0.1"/></actuator>
      </mujoco>""")
    pair = identify_pair(model, ("hip", "knee"), ("hip", "rotor"))
    np.testing.assert_allclose(pair.jacobian, [[1, 0], [0, 2]], atol=1e-9)
    assert pair.constant_jacobian
    # The rotor's actuator brings its armature through a gear of its own.
    np.testing.assert_allclose(pair.motor_inertia, [0.01, 0.9])
    assert pair.parameters is None
    assert any("does not hold" in value for _, value, _ in table_rows(pair))


def test_a_third_motor_in_the_loops_is_held():
    """Here it leaves the pair too little freedom."""
    spec = load_spec(CLOSED)
    actuator = spec.add_actuator(name="third", target="FL_coupler")
    actuator.trntype = mujoco.mjtTrn.mjTRN_JOINT
    with pytest.raises(UserError, match=r"turn independently.*--motor-joints"):
        identify_pair(spec.compile(), ("FL_hip", "FL_knee"), ("FL_hip", "FL_crank"))


# --- a Jacobian that depends on the posture -----------------------------------------------


@needs_g1
def test_ankle_has_no_constant_jacobian():
    """Rows: left and right motor; columns: pitch and roll; signs of the file's own axes."""
    result = identify_model(G1, serial_joints=[PITCH_ROLL])
    pair = result.pairs[0]
    assert pair.motor_joints == LEFT_RIGHT
    np.testing.assert_allclose(pair.jacobian, [[-1.38, 0.90], [1.39, 0.91]], atol=0.01)
    assert not pair.constant_jacobian
    assert pair.parameters is None
    assert pair.inertia_fit is None
    assert any("does not hold" in value for _, value, _ in table_rows(pair))
    np.testing.assert_allclose(pair.motor_inertia, 0.001)


@needs_g1
def test_ankle_jacobian_over_pitch():
    """It is the derivative of the motors' angles, and changes along the pitch alone."""
    ranges = {"pitch_joint": (-0.87, 0.52), "roll_joint": (-0.01, 0.01)}
    pair = identify_model(G1, serial_joints=[PITCH_ROLL], ranges=ranges).pairs[0]
    assert not pair.unreachable
    # Left motor per pitch: -1.38 at neutral, -3.00 with the foot 0.87 rad up.
    assert 1.0 < pair.jacobian_change_alone[0] < 1.3
    np.testing.assert_allclose(pair.jacobian_low[0, 0], -3.0, atol=0.1)
    np.testing.assert_allclose(pair.jacobian_high[0, 0], -1.37, atol=0.02)
    assert pair.jacobian_change_alone[1] < 0.02
    mechanism = Mechanism(load_spec(G1).compile(), PITCH_ROLL, LEFT_RIGHT, "ankle")
    for posture in ((-0.8, 0.0), (0.0, 0.2), (0.4, -0.2)):
        at = mechanism.at(np.array([posture])).jacobian[0]
        step = 1e-5
        moves = np.array([[step, 0], [-step, 0], [0, step], [0, -step]])
        angles = mechanism.at(posture + moves).motor_angle
        slope = np.array([angles[0] - angles[1], angles[2] - angles[3]]).T / (2 * step)
        np.testing.assert_allclose(at, slope, atol=1e-6)


@needs_g1
@pytest.mark.parametrize("posture", [(0.0, 0.0), (-0.7, 0.1), (0.4, -0.2)])
def test_ankle_simulation_agrees(posture):
    """Two loops in space; the file's soft constraints stiffened. Measured: within 6e-9 kg m^2."""
    spec = load_spec(G1)
    mechanism = Mechanism(spec.compile(), PITCH_ROLL, LEFT_RIGHT, "ankle")
    spec.option.gravity = [0, 0, 0]
    spec.option.timestep = 1e-4
    spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    spec.option.tolerance = 1e-14
    for element in list(spec.actuators):
        spec.delete(element)
    for equality in spec.equalities:
        equality.solref[:] = [2e-4, 1]
        equality.solimp[:3] = [0.9999, 0.9999, 0.001]
    model = spec.compile()
    names = [model.joint(i).name for i in range(model.njnt)]
    found = simulated_inertia(model, LEFT_RIGHT, names, posture, mechanism, 0.01, 20)
    np.testing.assert_allclose(found, mechanism.dynamics().inertia[0], atol=1e-7)


# --- what cannot be -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("joints", "motors", "says"),
    [
        (
            ("FL_hip", "FL_nee"),
            ("FL_hip", "FL_crank"),
            "no joint 'FL_nee'; correct --serial-joints",
        ),
        (("FL_hip", "FL_knee"), ("FL_hip", "root"), "joint 'root' is not a hinge"),
        (("FL_knee", "FL_hip"), ("FL_hip", "FL_crank"), "FL_hip does not hang on FL_knee"),
        (("FL_hip", "FL_hip"), ("FL_hip", "FL_crank"), "--serial-joints names FL_hip twice"),
        (("FL_hip", "FL_knee"), ("FL_crank", "FL_crank"), "--motor-joints names FL_crank twice"),
        (
            ("FL_hip", "FL_knee"),
            ("FL_hip", "FR_crank"),
            "FL_hip and FR_crank do not turn FL_hip and FL_knee",
        ),
    ],
)
def test_joints_that_do_not_fit_are_one_line(joints, motors, says):
    model = load_spec(CLOSED).compile()
    with pytest.raises(UserError) as caught:
        identify_pair(model, joints, motors)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_open_loops_are_one_line(tmp_path):
    """A coupler 15 mm too short, 10.6 mm along either axis at home: any branch would be a guess."""
    spec = load_spec(CLOSED)
    spec.site("FL_coupler_end").pos[2] += 0.015
    path = tmp_path / "open.xml"
    spec.compile()
    path.write_text(spec.to_xml())
    with pytest.raises(UserError, match=r"open\.xml: FL_loop: open by 10\.6 mm.*keyframe"):
        identify_model(path, SERIAL, serial_joints=[("FL_hip", "FL_knee")])


def test_range_beyond_the_linkage(bundled):
    model = leg("hinge")
    ranges = {"hip": (-0.1, 0.1), "knee": (-2.0, 1.0)}
    with pytest.raises(UserError, match=r"cannot be reached \(.*\); narrow --range"):
        identify_pair(model, ("hip", "knee"), ("hip", "crank"), ranges=ranges)
    with pytest.raises(UserError, match="is empty"):
        identify_pair(model, ("hip", "knee"), ("hip", "crank"), ranges={"hip": (1, 0)})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((CLOSED,), "--serial-joints PROXIMAL DISTAL, or the serial MJCF"),
        ((SERIAL,), "no loop is closed by an equality"),
        ((CLOSED, CLOSED, [("FL_hip", "FL_knee")]), "are in a loop; give the serial tree"),
        ((CLOSED, SERIAL, [("FL_hip", "FL_nee")]), "no joint 'FL_nee'"),
        ((CLOSED, SERIAL, [], [("FL_hip", "FL_krank")]), "correct --motor-joints"),
        ((CLOSED, SERIAL, [("FL_hip", "FL_knee")], [("a", "b"), ("c", "d")]), "names 1 pairs"),
        ((CLOSED, SERIAL, [], [], {"FL_ankle": (0, 1)}), "--range: 'FL_ankle'"),
        ((Path("nowhere.xml"),), "nowhere.xml: no such MJCF file"),
    ],
)
def test_a_guess_is_refused_in_one_line(arguments, says):
    with pytest.raises(UserError) as caught:
        identify_model(*arguments)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_serial_model_with_another_sign(tmp_path):
    """Numbers of a knee that counts the other way round would be wrong without a word."""
    spec = load_spec(SERIAL)
    for name in ("FL_hip", "FL_knee"):
        spec.joint(name).axis = [0, -1, 0]
    spec.compile()
    path = tmp_path / "mirrored.xml"
    path.write_text(spec.to_xml())
    with pytest.raises(UserError, match=r"mirrored\.xml: axes of FL_hip and FL_knee"):
        identify_model(CLOSED, path, serial_joints=[("FL_hip", "FL_knee")])


def test_tables_print(bundled):
    rows = {name: (value, unit) for name, value, unit in table_rows(bundled.pairs[0])}
    assert rows["m11, m12, m22"] == ("[0.04793, 0.005413, 0.02368]", "kg m^2")
    assert rows["J"] == ("[[1, 0], [1, 1]]", "")
    assert rows["motor damping"] == ("[0.0972, 0.0972]", "N m s/rad")
    assert ("mass, serial", "15.4", "kg") in mass_rows(bundled)
