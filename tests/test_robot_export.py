"""The exported MJCF in C MuJoCo alone: the package's dynamics, or what is left out, as stated."""

import re

import mujoco
import numpy as np
import pytest
from mujoco import mjx
from test_draft import answered
from test_hazards import ARM, described, load  # noqa: F401 - a fixture
from test_simulation import TABLE_II
from test_survey import SHARED, needs_robots

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.reference.serial import SerialRobot
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot import commands
from s3n_mjx.robot.draft import draft
from s3n_mjx.robot.model import load_robot
from s3n_mjx.robot.stand import clamp, on_stand
from s3n_mjx.robot.survey import survey
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.validation.excitation import Chirp, Excited, joint_targets


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Path of the bundled robot's export by variant and actuators, made once."""
    folder = tmp_path_factory.mktemp("exported")

    def path(variant: Variant, actuators: str = "motor"):
        file = folder / f"{variant}-{actuators}.xml"
        if not file.exists():
            args = ["export", str(bundled_robot()), "--variant", str(variant)]
            commands.main([*args, "--actuators", actuators, "-o", str(file)])
        return file

    return path


@pytest.mark.parametrize("variant", TABLE_II)
def test_table_ii(exported, variant):
    """At 90 degrees, where the part of s3n_full that is left out vanishes."""
    model = mujoco.MjModel.from_xml_path(str(exported(variant)))
    data = mujoco.MjData(model)
    data.qpos[:] = model.key("home").qpos
    for leg in ("FL", "FR", "RL", "RR"):
        data.joint(f"{leg}_knee").qpos = -np.pi / 2
    mujoco.mj_forward(model, data)
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    for leg in ("FL", "FR", "RL", "RR"):
        hip, knee = (model.joint(f"{leg}_{j}").dofadr[0] for j in ("hip", "knee"))
        found = full[hip, hip], full[hip, knee], full[knee, knee]
        assert tuple(f"{value:.5f}" for value in found) == TABLE_II[variant]


def on_a_stand(file, stand) -> mujoco.MjModel:
    """The file with its trunk clamped, by MuJoCo's own means but for the welding."""
    spec = mujoco.MjSpec.from_file(str(file))
    names = set(stand.joints)
    tendons = {tendon.name for tendon in spec.tendons}
    home = spec.key("home")
    compiled = spec.compile()
    angles = {compiled.joint(i).name: home.qpos[compiled.jnt_qposadr[i]] for i in range(1, 13)}
    for key in spec.keys:
        key.ctrl = []
    for actuator in list(spec.actuators):
        if actuator.target not in names | tendons:
            spec.delete(actuator)
    clamp(spec, names, angles)
    spec.option.gravity = [0, 0, 0]
    return spec.compile()


def chirped(stand, seconds=4.0):
    """Targets (T, 8) of the leg test's chirp, both motors of each pair, up to 25 Hz."""
    chirp = Chirp(duration_s=seconds, settle_s=0.1)
    return joint_targets(stand, chirp, Excited.BOTH, chirp.times(0.003))


def package_path(stand, variant, targets):
    """The leg test's mass-matrix model in C MuJoCo."""
    config = SimulationConfig(variant=variant, injection=Injection.MASS_MATRIX)
    loop = SerialRobot(normalize(stand, config))
    loop.reset(stand.home_qpos, np.zeros(loop.model.nv), targets[0])
    path = []
    for target in targets:
        loop.step(target)
        path.append(loop.data.qpos.copy())
    return np.array(path)


def exported_path(model, stand, targets, remainder=None):
    """The export under the position loop of a drive: torque a step late, as the robot has it."""
    data = mujoco.MjData(model)
    data.qpos[:] = stand.home_qpos
    command = np.zeros(model.nu)
    last = np.zeros(model.nv)
    path = []
    for step, target in enumerate(targets):
        q, dq = data.qpos[stand.qpos_index], data.qvel[stand.dof_index]
        new = stand.kp * (stand.actuator_map @ (target - q)) - stand.kd * (stand.actuator_map @ dq)
        new = np.clip(new, -stand.torque_limit, stand.torque_limit)
        data.ctrl[:] = command if step else new
        command = new
        if remainder is not None:
            data.qfrc_applied[:] = -remainder(data.qpos) @ ((data.qvel - last) / 0.003)
        last = data.qvel.copy()
        mujoco.mj_step(model, data)
        path.append(data.qpos.copy())
    return np.array(path)


def test_s3n_act_moves_as_in_the_package(exported, robot):
    stand = on_stand(robot, gravity=False)
    targets = chirped(stand)
    ours = package_path(stand, Variant.S3N_ACT, targets)
    theirs = exported_path(on_a_stand(exported(Variant.S3N_ACT), stand), stand, targets)
    assert np.ptp(ours) > 0.3  # it does move
    np.testing.assert_allclose(theirs, ours, atol=1e-9)


def test_s3n_full_moves_so_but_for_the_stated_remainder(exported, robot):
    file = exported(Variant.S3N_FULL)
    stand = on_stand(robot, gravity=False)
    targets = chirped(stand)
    ours = package_path(stand, Variant.S3N_FULL, targets)
    model = on_a_stand(file, stand)
    without = exported_path(model, stand, targets)
    assert 1e-4 < np.abs(without - ours).max() < 0.05
    # The comment's own numbers, put back by Eq. 26.
    stated = re.search(r"leg FL: inertia \[\[(.*?)\], \[(.*?)\]\] cos\(FL_knee\)", file.read_text())
    inertia = np.array([[float(x) for x in row.split(", ")] for row in stated.groups()])

    def remainder(qpos):
        full = np.zeros((8, 8))
        for leg in range(4):
            both = slice(2 * leg, 2 * leg + 2)
            full[both, both] = inertia * np.cos(qpos[2 * leg + 1])
        return full

    np.testing.assert_allclose(exported_path(model, stand, targets, remainder), ours, atol=1e-9)


def test_position_actuators_are_the_drives_loops(exported, robot):
    """Motor angles as controls; without the command path's delay, which no MJCF has."""
    stand = on_stand(robot, gravity=False)
    targets = chirped(stand, 1.0)
    motor, position = (
        on_a_stand(exported(Variant.S3N_ACT, kind), stand) for kind in ("motor", "position")
    )
    paths = []
    for model in (motor, position):
        data = mujoco.MjData(model)
        data.qpos[:] = stand.home_qpos
        for target in targets:
            q, dq = stand.actuator_map @ data.qpos, stand.actuator_map @ data.qvel
            wanted = stand.actuator_map @ target
            torque = np.clip(stand.kp * (wanted - q) - stand.kd * dq, -30, 30)
            data.ctrl[:] = wanted if model is position else torque
            mujoco.mj_step(model, data)
        paths.append(data.qpos.copy())
    np.testing.assert_allclose(*paths, atol=1e-12)


def test_the_whole_robot_stands_and_mjx_takes_it(exported, robot):
    model = mujoco.MjModel.from_xml_path(str(exported(Variant.S3N_ACT, "position")))
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    for _ in range(700):
        mujoco.mj_step(model, data)
    assert abs(data.qpos[2] - robot.home_qpos[2]) < 0.01
    assert np.abs(data.qvel).max() < 0.05
    put = mjx.put_model(model, impl="jax")
    np.testing.assert_allclose(put.tendon_armature, model.tendon_armature, rtol=1e-6)
    np.testing.assert_allclose(put.tendon_damping, model.tendon_damping, rtol=1e-6)


def test_the_comment_says_what_was_done(exported, capsys):
    text = exported(Variant.S3N_FULL).read_text()
    head = text[: text.index("<compiler")]
    for words in ("s3n_full", "tendon of armature 0.02136", "delay of 3 ms", "contacts as soft"):
        assert words in head
    assert "inertia [[" not in exported(Variant.S3N_ACT).read_text().split("<compiler")[0]


PAIR = [{"proximal": f"{s}_hip", "distal": f"{s}_knee", "linkage": "linkage"} for s in ("l", "r")]
DEFAULTS = """<default><motor ctrlrange="-1 1" ctrllimited="true" gear="3"/>
<general armature="0.05"/><geom solref="0.01 1"/>
<tendon damping="0.5" stiffness="10" frictionloss="1" limited="true" range="-0.1 0.1"/></default>"""


@pytest.mark.parametrize(
    "changes",
    [
        {"default": DEFAULTS},
        {"arm": '<frame pos="0.1 0 0" euler="0 .4 0">' + ARM + "</frame>"},
        {"arm": ARM.replace("<joint", '<frame euler=".5 .3 0" pos=".02 0 0"><joint')
         .replace('armature="0.01"/>', 'armature="0.01"/></frame>')},
        {"end": '<sensor><actuatorfrc actuator="l_hip"/><jointpos joint="l_hip"/></sensor>'},
        {"end": '<tendon><fixed name="s3n_l_0"><joint joint="l_hip" coef="1"/></fixed></tendon>'},
    ],
    ids=["defaults", "framed body", "framed joint", "sensors", "taken name"],
)  # fmt: skip
@pytest.mark.parametrize("actuators", ["position", "motor"])
def test_a_stranger_s_export_falls_like_the_stranger(load, tmp_path, changes, actuators):  # noqa: F811
    """Two legs with linkages, thrown and driven: the file alone, and the package in C MuJoCo."""
    description = described(linkages={"linkage": {"jacobian": [[1.0, 0.0], [1.0, 1.0]]}})
    for leg, pair in zip(description["legs"], PAIR, strict=True):
        leg["pair"] = pair
    if "arm" in changes:
        description["passive"] = ["shoulder"]
    robot = load(description, **changes)
    out = tmp_path / "normalized.xml"
    commands.main(["export", str(robot.path), "--actuators", actuators, "-o", str(out)])
    model = mujoco.MjModel.from_xml_path(str(out))
    config = SimulationConfig(injection=Injection.MASS_MATRIX)
    loop = SerialRobot(normalize(robot, config))
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    qpos, qvel = robot.home_qpos.copy(), 0.5 * rng.normal(size=model.nv)
    qpos[2] += 1.0
    data.qpos[:], data.qvel[:] = qpos, qvel
    target = robot.home_joints
    loop.reset(qpos, qvel, target)
    joints = robot.actuator_map
    for _ in range(60):
        target = target + rng.uniform(-0.05, 0.05, 4)
        q, dq = joints @ data.qpos[robot.qpos_index], joints @ data.qvel[robot.dof_index]
        wanted = joints @ target
        torque = np.clip(robot.kp * (wanted - q) - robot.kd * dq, -20, 20)
        data.ctrl[:] = wanted if actuators == "position" else torque
        loop.step(target)
        mujoco.mj_step(model, data)
    rounded = 1e-5 if "frame" in str(changes) else 1e-9  # six digits of a pose
    np.testing.assert_allclose(data.qpos, loop.data.qpos, atol=rounded)


@pytest.mark.parametrize(
    ("name", "says"), [("robot.urdf", "end it with .xml"), ("there.xml", "is there already")]
)
def test_mistakes_are_one_line(tmp_path, name, says):
    (tmp_path / "there.xml").write_text("<mujoco/>")
    with pytest.raises(UserError, match=says):
        commands.main(["export", str(bundled_robot()), "-o", str(tmp_path / name)])


@needs_robots
def test_meshes_are_found_from_another_folder(tmp_path):
    path = tmp_path / "robot.yaml"
    seen = survey(SHARED / "aliengo" / "scene_flat.xml")
    answers = {"linkages": "{}", "torque_delay_ms": 0.0, "kp": 30.0, "kd": 1.0}
    answers["collisions"] = "feet"
    path.write_text(answered(draft(seen, path), **answers))
    out = tmp_path / "deep" / "er" / "aliengo.xml"
    commands.main(["export", str(path), "-o", str(out)])
    model = mujoco.MjModel.from_xml_path(str(out))
    robot = load_robot(path)
    assert model.nmesh == robot.model.nmesh
    np.testing.assert_allclose(model.body_mass, robot.model.body_mass, rtol=1e-12)
    np.testing.assert_allclose(model.body_inertia, robot.model.body_inertia, rtol=1e-9)
