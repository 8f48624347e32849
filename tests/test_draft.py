"""`robot new`: a first description that holds what the MJCF says and asks for the rest."""

import mujoco
import numpy as np
import pytest
import yaml
from test_survey import SHARED, needs_robots, write  # noqa: F401 - a fixture

from s3n_mjx.errors import UserError
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot import commands
from s3n_mjx.robot.description import TODO
from s3n_mjx.robot.draft import draft, open_questions
from s3n_mjx.robot.model import load_robot
from s3n_mjx.robot.survey import survey


def answered(text: str, **values) -> str:
    """The draft with its questions answered, by key."""
    lines = []
    for line in text.splitlines():
        key = line.split(":")[0].strip()
        lines.append(line.replace(TODO, str(values[key])) if f": {TODO}" in line else line)
    return "\n".join(lines) + "\n"


def test_the_bundled_robot_s_draft_becomes_the_same_robot(tmp_path, robot):
    """Its MJCF has the motors' inertia as armature, so only delay, gains and linkage are asked.

    At the hip joint the file allows the torque of both motors, which is no motor's own limit.
    """
    source = bundled_robot().parent / "serial.xml"
    text = draft(survey(source), tmp_path / "robot.yaml")
    asked = {line.split(":")[0].strip() for line in text.splitlines() if f": {TODO}" in line}
    assert asked == {"torque_delay_ms", "kp", "kd", "linkages"}
    assert asked == set(open_questions(survey(source)))
    answers = {
        "torque_delay_ms": 3.0,
        "kp": 50.0,
        "kd": 1.5,
        "linkages": "{linkage: {jacobian: [[1.0, 0.0], [1.0, 1.0]]}}",
    }
    path = tmp_path / "robot.yaml"
    assert "torque_limit: 60.0" in text
    text = text.replace("torque_limit: 60.0", "torque_limit: 30.0")
    path.write_text(answered(text, **answers).replace("    #pair:", "    pair:"))
    found = load_robot(path)
    assert found.joints == robot.joints
    assert found.feet == robot.feet
    assert [leg.name for leg in found.description.legs] == ["FL", "FR", "RL", "RR"]
    for name in ("actuator_map", "torque_limit", "kp", "kd", "home_qpos"):
        np.testing.assert_allclose(getattr(found, name), getattr(robot, name), rtol=1e-6)
    np.testing.assert_allclose(found.motor_inertia, robot.motor_inertia, rtol=1e-6)
    np.testing.assert_allclose(found.motor_damping, robot.motor_damping, rtol=1e-6)


def test_a_stranger_s_draft(write, tmp_path):  # noqa: F811
    """Gears, degrees, no keyframe, unnamed feet: everything at the joint and in SI."""
    source = write()
    text = draft(survey(source), tmp_path / "robot.yaml")
    data = yaml.safe_load(text)
    assert data["home"] == {"la": TODO, "lb": TODO, "ra": TODO, "rb": TODO}
    assert data["linkages"] == TODO
    assert "#   linkage: {jacobian: [[1.0, 0.0], [1.0, -1.0]]}" in text
    motors = {
        entry["joint"]: data["motors"][entry["motor"]]
        for leg in data["legs"]
        for entry in leg["joints"]
    }
    la, lb = motors["la"], motors["lb"]
    assert (la["rotor_inertia"], la["gear_ratio"]) == (0.01, 1.0)
    assert (la["torque_limit"], la["kp"], la["kd"]) == (14.0, 40.0, 2.0)  # gear 2, squared
    assert (lb["rotor_inertia"], lb["gear_ratio"]) == (TODO, TODO)
    assert (lb["torque_limit"], lb["kp"]) == (15.0, TODO)
    assert motors["ra"]["torque_limit"] == TODO

    answers = {
        "la": 0.1, "lb": 0.4, "ra": 0.1, "rb": 0.4, "linkages": "{}", "torque_delay_ms": 0.0,
        "rotor_inertia": 0.02, "gear_ratio": 1.0, "torque_limit": 9.0, "kp": 30.0, "kd": 1.0,
        "collisions": "all",
    }  # fmt: skip
    path = tmp_path / "robot.yaml"
    path.write_text(answered(text, **answers))
    robot = load_robot(path)
    assert robot.joints == ("la", "lb", "ra", "rb")
    # The arm's driven joint is welded, the one that nothing drives stays loose.
    assert robot.held == {"arm1": 0.0}
    assert robot.description.passive == ("arm2",)
    assert robot.model.nv == 6 + 4 + 1
    np.testing.assert_allclose(robot.home_joints, [0.1, 0.4, 0.1, 0.4])
    data = mujoco.MjData(robot.model)
    data.qpos[:] = robot.home_qpos
    mujoco.mj_forward(robot.model, data)
    assert len(data.contact) >= 2
    assert np.abs(data.contact.dist).max() < 1e-3  # the capsules lie on the floor


def test_a_question_left_open_is_said_with_its_place(tmp_path):
    source = bundled_robot().parent / "serial.xml"
    path = tmp_path / "robot.yaml"
    path.write_text(draft(survey(source), path))
    with pytest.raises(UserError, match=r"robot\.yaml: torque_delay_ms: still TODO.*and \d+ more"):
        load_robot(path)


def test_the_command_writes_once(tmp_path, capsys):
    source = str(bundled_robot().parent / "serial.xml")
    commands.main(["new", source])
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["trunk"] == "trunk"
    out = tmp_path / "mine" / "robot.yaml"
    commands.main(["new", source, "--out", str(out)])
    assert (out.parent / yaml.safe_load(out.read_text())["model"]).resolve().is_file()
    with pytest.raises(UserError, match="is there already"):
        commands.main(["new", source, "--out", str(out)])


@needs_robots
def test_a_robot_with_loops_is_not_described():
    with pytest.raises(UserError, match=r"a serial tree: .* close loops") as caught:
        draft(survey(SHARED / "agility_cassie" / "scene.xml"))
    assert "\n" not in str(caught.value)


@needs_robots
@pytest.mark.parametrize(
    "file",
    [
        "unitree_go2/scene_mjx.xml",
        "unitree_go2/go2_mjx.xml",
        "aliengo/scene_flat.xml",
        "aliengo/aliengo.xml",
        "google_barkour_vb/scene_mjx.xml",
    ],
)
def test_public_robots_load_once_their_questions_are_answered(file, tmp_path):
    if not (SHARED / file).is_file():
        pytest.skip(f"{file} is not here")
    seen = survey(SHARED / file)
    text = draft(seen, tmp_path / "robot.yaml")
    answers = {"linkages": "{}", "torque_delay_ms": 0.0, "kp": 30.0, "kd": 1.0}
    answers["collisions"] = "feet"
    answers |= {joint: 0.5 for leg in seen.legs for joint in leg.joints}
    path = tmp_path / "robot.yaml"
    path.write_text(answered(text, **answers))
    robot = load_robot(path)
    assert len(robot.joints) == 12
    joints = {joint.name: joint for joint in seen.joints}
    np.testing.assert_allclose(
        robot.motor_inertia, [joints[name].armature for name in robot.joints], rtol=1e-6
    )
