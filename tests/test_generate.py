"""The generated models against the parameters, the paper's numbers and each other (C MuJoCo only).

Nothing here trusts the generator's formulas: inertias are read back from the compiled models.
"""

from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np
import pytest
import yaml

from s3n_mjx import cli
from s3n_mjx.errors import UserError
from s3n_mjx.resources import assets_folder
from s3n_mjx.robot import generate as gen
from s3n_mjx.robot.generate.__main__ import main

FOLDER = assets_folder() / "parallel_quadruped"
PARAMETERS = FOLDER / "parameters.yaml"
LEGS = ("FL", "FR", "RL", "RR")
HOME = (0.0, 0.7853981634, -1.5707963268)

# The PD loop of the paper's robot, in actuator coordinates.
KP, KD, TORQUE_LIMIT = 50.0, 1.5, 30.0
JACOBIAN = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])


@pytest.fixture(scope="module")
def parameters() -> gen.Parameters:
    return gen.load_parameters(PARAMETERS)


@pytest.fixture(scope="module")
def serial() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(FOLDER / "serial.xml"))


@pytest.fixture(scope="module")
def closed_chain() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(FOLDER / "closed_chain.xml"))


@pytest.fixture(params=["serial", "closed_chain"])
def model(request: pytest.FixtureRequest) -> mujoco.MjModel:
    return request.getfixturevalue(request.param)


def at_home(model: mujoco.MjModel) -> mujoco.MjData:
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    mujoco.mj_forward(model, data)
    return data


def mass_matrix(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return full


def dofs(model: mujoco.MjModel, *joints: str) -> np.ndarray:
    return np.array([model.joint(name).dofadr[0] for name in joints])


def loop_error(data: mujoco.MjData) -> float:
    """Largest distance between the two sides of a loop's pin, over the legs, in [m]."""
    return max(
        float(
            np.linalg.norm(
                data.site(f"{leg}_coupler_end").xpos - data.site(f"{leg}_lever_pin").xpos
            )
        )
        for leg in LEGS
    )


def hold_home(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    seconds: float,
    *,
    closed: bool,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Steps the model under the PD loop, with the home posture as its target."""
    joints = ("abduction", "hip", "crank" if closed else "knee")
    names = [[f"{leg}_{joint}" for joint in joints] for leg in LEGS]
    qpos = np.array([[model.joint(n).qposadr[0] for n in leg] for leg in names])
    qvel = np.array([[model.joint(n).dofadr[0] for n in leg] for leg in names])
    act = np.array([[model.actuator(n).id for n in leg] for leg in names])
    to_motors = np.eye(3) if closed else JACOBIAN  # the closed chain's joints are the motors'
    target = JACOBIAN @ HOME
    for _ in range(round(seconds / model.opt.timestep)):
        position, velocity = data.qpos[qpos] @ to_motors.T, data.qvel[qvel] @ to_motors.T
        torque = np.clip(KP * (target - position) - KD * velocity, -TORQUE_LIMIT, TORQUE_LIMIT)
        data.ctrl[act] = torque @ to_motors  # tau_s = J^T tau_p, a row per leg
        mujoco.mj_step(model, data)
        watch()


# ---------------------------------------------------------------------------- generation


def test_files_are_what_the_parameters_give(tmp_path: Path) -> None:
    paths = gen.generate(PARAMETERS, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    for path in paths:
        assert path.read_bytes() == (FOLDER / path.name).read_bytes(), path.name
    assert gen.stale_files(PARAMETERS, FOLDER) == []


def test_check_sees_edited_and_missing_files(tmp_path: Path) -> None:
    gen.generate(PARAMETERS, tmp_path)
    edited, missing = tmp_path / "serial.xml", tmp_path / "robot.yaml"
    edited.write_text(edited.read_text().replace("0.0162", "0.0163"))
    missing.unlink()
    assert gen.stale_files(PARAMETERS, tmp_path) == [edited, missing]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("crank_radius:", "crank_radios:", "geometry.crank_radios"),
        ("mass: 6.0", "mass: -6.0", "trunk.mass"),
        ("mass: 6.0", "mass: .nan", "trunk.mass"),
        ("[0.00650, 0.006555, 0.00080]", "[0.00650, 0.016555, 0.00080]", "links.thigh.inertia"),
        ("knee: [-2.5, -0.4]", "knee: [-2.5, 0.4]", "singular"),
        ("knee: -1.5707963268", "knee: -2.6", "home.knee"),
        ("trunk:", "trunk: [", "not valid YAML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = PARAMETERS.read_text()
    assert old in text
    path = tmp_path / "parameters.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError, match=says) as caught:
        gen.load_parameters(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        gen.load_parameters(tmp_path / "nowhere.yaml")


def test_specs_compile_to_the_same_models(
    parameters: gen.Parameters, serial: mujoco.MjModel, closed_chain: mujoco.MjModel
) -> None:
    for spec, model in (
        (gen.serial_spec(parameters), serial),
        (gen.closed_chain_spec(parameters), closed_chain),
    ):
        compiled = spec.compile()
        np.testing.assert_array_equal(compiled.body_inertia, model.body_inertia)
        np.testing.assert_array_equal(compiled.key_qpos, model.key_qpos)


def test_description_names_what_the_models_have(serial: mujoco.MjModel) -> None:
    robot = yaml.safe_load((FOLDER / "robot.yaml").read_text())
    assert (FOLDER / robot["model"]).is_file()
    assert (FOLDER / robot["closed_chain"]).is_file()
    assert [leg["name"] for leg in robot["legs"]] == list(LEGS)
    assert robot["torque_delay_ms"] == 3.0
    assert robot["motors"]["drive"] == {
        "rotor_inertia": 2.0e-4,
        "rotor_damping": 1.2e-3,
        "gear_ratio": 9.0,
        "torque_limit": TORQUE_LIMIT,
        "kp": KP,
        "kd": KD,
    }
    # Eq. 31, every digit.
    linkage = robot["linkages"]["parallelogram"]
    assert linkage["inertia"] == {"m11": 0.04793, "m12": 0.005413, "m22": 0.02368}
    np.testing.assert_array_equal(linkage["jacobian"], JACOBIAN[1:, 1:])
    # `model.joint(name)` and its like raise KeyError for a name that isn't there.
    serial.body(robot["trunk"])
    serial.geom(robot["floor"])
    serial.key(robot["home_keyframe"])
    for leg in robot["legs"]:
        serial.geom(leg["foot"])
        for joint in leg["joints"]:
            actuator = serial.actuator(joint["actuator"])
            assert actuator.trnid[0] == serial.joint(joint["joint"]).id
        for link in leg["randomized_links"]:
            serial.body(link)


# ----------------------------------------------------------------------------- the models


def test_free_joint_is_free_and_actuators_carry_no_motor_terms(model: mujoco.MjModel) -> None:
    assert model.joint("root").type[0] == mujoco.mjtJoint.mjJNT_FREE
    for quantity in (model.dof_armature, model.dof_damping, model.dof_frictionloss):
        assert not quantity[:6].any()
    # MJX ignores armature and damping of an actuator; they must be on joints.
    for name in ("actuator_armature", "actuator_damping"):
        assert not np.any(getattr(model, name, 0.0)), name
    assert (model.actuator_gear[:, 0] == 1).all()


def test_motor_terms_are_on_the_motors_joints(
    serial: mujoco.MjModel, closed_chain: mujoco.MjModel
) -> None:
    # Table I: 9^2 * 2.0e-4 and 9^2 * 1.2e-3.
    for model, driven, passive in (
        (serial, ("abduction", "hip", "knee"), ()),
        (closed_chain, ("abduction", "hip", "crank"), ("knee", "coupler")),
    ):
        for leg in LEGS:
            on = dofs(model, *(f"{leg}_{joint}" for joint in driven))
            np.testing.assert_allclose(model.dof_armature[on], 0.0162, rtol=1e-9)
            np.testing.assert_allclose(model.dof_damping[on], 0.0972, rtol=1e-9)
            off = dofs(model, *(f"{leg}_{joint}" for joint in passive)).astype(int)
            assert not model.dof_armature[off].any()
            assert not model.dof_damping[off].any()


def test_serial_torque_limits_leave_room_for_both_motors(serial: mujoco.MjModel) -> None:
    # tau_s = J^T tau_p with |tau_p| <= 30 reaches 60 N m on the hip, 30 on the others.
    limits = {"abduction": 30.0, "hip": 60.0, "knee": 30.0}
    for leg in LEGS:
        for joint, limit in limits.items():
            actuator = serial.actuator(f"{leg}_{joint}")
            np.testing.assert_array_equal(actuator.ctrlrange, [-limit, limit])
            np.testing.assert_array_equal(actuator.forcerange, [-limit, limit])


def test_only_feet_and_trunk_can_touch_the_floor(model: mujoco.MjModel) -> None:
    floor = model.geom("floor").id
    meets_floor = {
        model.geom(g).name
        for g in range(model.ngeom)
        if g != floor
        and (
            model.geom_contype[floor] & model.geom_conaffinity[g]
            or model.geom_contype[g] & model.geom_conaffinity[floor]
        )
    }
    assert meets_floor == {"trunk_collision", *(f"{leg}_foot" for leg in LEGS)}
    others = [g for g in range(model.ngeom) if g != floor]
    assert not model.geom_contype[others].any()  # so no pair among them collides


def test_contacts_cost_few_rows(serial: mujoco.MjModel) -> None:
    # Sunk into the floor everything that can touch does: a pyramid of four rows per foot, and one
    # row for each end of the trunk's capsule.
    data = at_home(serial)
    data.qpos[2] = 0.04
    mujoco.mj_forward(serial, data)
    assert sorted(data.contact.dim) == [1, 1, 3, 3, 3, 3]
    feet = data.contact.friction[data.contact.dim == 3]
    np.testing.assert_allclose(feet[:, :2], 0.8)
    assert (data.contact.solref[:, 0] >= 2 * serial.opt.timestep).all()


def test_total_masses_are_equal(serial: mujoco.MjModel, closed_chain: mujoco.MjModel) -> None:
    # 6.0 + 4 (0.9 + 0.7 + 0.25 + 0.35 + 0.15) kg
    assert serial.body_mass.sum() == pytest.approx(15.4, abs=1e-9)
    assert closed_chain.body_mass.sum() == pytest.approx(15.4, abs=1e-9)


def test_trunk_feels_the_same_robot_at_home(
    serial: mujoco.MjModel, closed_chain: mujoco.MjModel
) -> None:
    # The serial hip body carries the linkage as it lies at home, so the rigid-body inertia of the
    # whole (mass, centre of mass, inertia) agrees; 1e-8 is what ten printed digits leave.
    blocks = [mass_matrix(m, at_home(m))[:6, :6] for m in (serial, closed_chain)]
    np.testing.assert_allclose(blocks[0], blocks[1], atol=1e-8)


@pytest.mark.parametrize("leg", LEGS)
def test_serial_inertia_is_kin_only_of_table_2(serial: mujoco.MjModel, leg: str) -> None:
    data = at_home(serial)
    pair = dofs(serial, f"{leg}_hip", f"{leg}_knee")
    block = mass_matrix(serial, data)[np.ix_(pair, pair)]
    # Table II at 90 degrees, printed to five decimals.
    np.testing.assert_array_equal(np.round(block, 5), [[0.04058, 0.00232], [0.00232, 0.01852]])


def test_derived_inertia_is_eq_31(parameters: gen.Parameters) -> None:
    m11, m12, m22 = gen.actuator_inertia(parameters)
    assert (round(m11, 5), round(m12, 6), round(m22, 5)) == (0.04793, 0.005413, 0.02368)


def inertia_through_the_loop(model: mujoco.MjModel, leg: str, alpha: float) -> np.ndarray:
    """A linkage's (2, 2) inertia in actuator coordinates, projected through the loop's Jacobian.

    Base, abduction and the other legs are held.
    """
    data = at_home(model)
    hip = 0.6
    for joint, angle in (
        ("hip", hip),
        ("knee", alpha),
        ("crank", hip + alpha),
        ("coupler", -alpha),
    ):
        data.qpos[model.joint(f"{leg}_{joint}").qposadr[0]] = angle
    mujoco.mj_forward(model, data)
    assert loop_error(data) < 1e-9

    independent = dofs(model, f"{leg}_hip", f"{leg}_crank")
    dependent = dofs(model, f"{leg}_knee", f"{leg}_coupler")
    # Velocity of one side of the pin relative to the other: zero for motions the loop allows.
    jacobians = []
    for site in (f"{leg}_coupler_end", f"{leg}_lever_pin"):
        jacobian = np.zeros((3, model.nv))
        mujoco.mj_jacSite(model, data, jacobian, None, model.site(site).id)
        jacobians.append(jacobian)
    loop = jacobians[0] - jacobians[1]
    null = np.zeros((model.nv, 2))
    null[independent] = np.eye(2)
    null[dependent] = -np.linalg.pinv(loop[:, dependent]) @ loop[:, independent]
    np.testing.assert_allclose(loop @ null, 0, atol=1e-12)
    return null.T @ mass_matrix(model, data) @ null


@pytest.mark.parametrize("leg", LEGS)
@pytest.mark.parametrize("alpha", [-2.4, -np.pi / 2, -1.0, -0.5])
def test_closed_chain_inertia_is_eq_32(
    closed_chain: mujoco.MjModel, leg: str, alpha: float
) -> None:
    m12 = 0.005413 * np.cos(alpha)
    # 0.1 % of each entry; where cos(alpha) vanishes, of what multiplies it.
    np.testing.assert_allclose(
        inertia_through_the_loop(closed_chain, leg, alpha),
        [[0.04793, m12], [m12, 0.02368]],
        rtol=1e-3,
        atol=1e-3 * 0.005413,
    )


def test_another_robots_inertia_follows_its_parameters(tmp_path: Path) -> None:
    # Every term of the closed form at work, the crank's centre of mass included. Same mechanism,
    # two derivations: they agree to the ten digits that the MJCF prints.
    changes = {
        "thigh_length: 0.21": "thigh_length: 0.25",
        "crank_radius: 0.0354694": "crank_radius: 0.05",
        "com: 0.0  ": "com: 0.02 ",
        "com: 0.07": "com: 0.09",
        "gear_ratio: 9.0": "gear_ratio: 6.5",
    }
    text = PARAMETERS.read_text()
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = tmp_path / "parameters.yaml"
    path.write_text(text)
    p = gen.load_parameters(path)
    m11, m12, m22 = gen.actuator_inertia(p)
    alpha = -0.9
    coupling = m12 * np.cos(alpha)
    np.testing.assert_allclose(
        inertia_through_the_loop(gen.closed_chain_spec(p).compile(), "RR", alpha),
        [[m11, coupling], [coupling, m22]],
        rtol=1e-8,
    )


def test_loops_are_assembled_at_home(closed_chain: mujoco.MjModel) -> None:
    assert loop_error(at_home(closed_chain)) < 1e-9


def test_home_stands_on_the_floor(model: mujoco.MjModel) -> None:
    data = at_home(model)
    for leg in LEGS:
        # Ten printed digits of the height.
        assert data.geom(f"{leg}_foot").xpos[2] == pytest.approx(0.02, abs=1e-9)


# ------------------------------------------------------------------------------ movement


def test_loops_stay_closed(closed_chain: mujoco.MjModel) -> None:
    # Dropped from 5 cm: 0.1 s of fall, the impact, and holding after it.
    data = at_home(closed_chain)
    data.qpos[2] += 0.05
    errors = []
    hold_home(closed_chain, data, 0.3, closed=True, watch=lambda: errors.append(loop_error(data)))
    assert max(errors) < 1e-5  # a few 1e-7 as generated
    assert not data.warning.number.any()


def static_height() -> float:
    """Trunk height at which gravity and the PD loop balance, in [m], by statics alone.

    With the foot below the hip, thigh and shank stand at +h and -h to the vertical, and both motors
    of each leg give way by h - h_home. Gravity's potential falls by sin(h) times `moment` per rad.
    """
    trunk_and_hips, thighs, shanks, length = 6.0 + 4 * 1.4, 4 * 0.7, 4 * 0.25, 0.21
    moment = 9.81 * (
        trunk_and_hips * 2 * length + thighs * (2 * length - 0.08) + shanks * (length - 0.07)
    )
    h = HOME[1]
    for _ in range(50):  # a contraction: moment / (8 KP) = 0.15
        h = HOME[1] + moment * np.sin(h) / (8 * KP)
    return 0.02 + 2 * length * np.cos(h)


@pytest.mark.parametrize("closed", [False, True])
def test_home_stands_still_under_pd(closed: bool, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue("closed_chain" if closed else "serial")
    data = at_home(model)
    hold_home(model, data, 2.0, closed=closed)
    mujoco.mj_forward(model, data)

    assert np.arccos(data.body("trunk").xmat[8]) < 0.02
    # The statics leave out the abduction's sag (0.026 rad at 0.085 m: 2 mm), the floor's give
    # (0.6 mm) and that the links' weight bends thigh and shank unequally.
    assert static_height() == pytest.approx(0.281, abs=0.001)
    assert data.qpos[2] == pytest.approx(static_height(), abs=0.01)
    # Norm over all joint and base velocities; the fall into the sag has died down to about 0.015.
    assert np.linalg.norm(data.qvel) < 0.05
    assert abs(data.qpos[1]) < 1e-6  # left and right are mirror images
    assert data.ncon == 4
    touching = {model.geom(g).name for g in data.contact.geom.ravel()}
    assert touching == {"floor", *(f"{leg}_foot" for leg in LEGS)}
    assert not data.warning.number.any()


# -------------------------------------------------------------------------- command line


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> int:
        try:
            cli.run(main, arguments)
        except SystemExit as exit_:
            return int(exit_.code or 0)
        return 0

    assert run("--check") == 0  # the bundled robot
    out = ("--out", str(tmp_path))
    assert run(str(PARAMETERS), "--check", *out) == 1
    assert not any(tmp_path.iterdir())
    assert run(str(PARAMETERS), *out) == 0
    assert run(str(PARAMETERS), "--check", *out) == 0
    capsys.readouterr()
    assert run(str(tmp_path / "nowhere.yaml")) == 2
    assert "nowhere.yaml" in capsys.readouterr().err
