"""Descriptions resolved against MJCF: right numbers, and one clear line for what is wrong."""

import mujoco
import numpy as np
import pytest
import yaml

from s3n_mjx.errors import UserError
from s3n_mjx.robot.description import load_description
from s3n_mjx.robot.model import load_robot
from s3n_mjx.training.checkpoint import save_robot


def test_bundled_robot(robot):
    assert len(robot.joints) == 12
    assert len(robot.pairs) == 4
    np.testing.assert_allclose(robot.motor_inertia, 0.0162)  # Table I, from 9^2 x 2e-4
    np.testing.assert_allclose(robot.motor_damping, 0.0972)
    assert robot.description.torque_delay_ms == 3.0
    for pair in robot.pairs:
        # Table II at 90 deg, less the motors.
        np.testing.assert_allclose(
            pair.serial_link(-np.pi / 2),
            [[0.02438, 0.00232], [0.00232, 0.00232]],
            atol=1e-9,
        )
        both = [pair.proximal, pair.distal]
        block = robot.actuator_map[np.ix_(both, both)]
        np.testing.assert_array_equal(block, [[1, 0], [1, 1]])


def test_abduction_is_not_coupled(robot):
    index = robot.joints.index("FL_abduction")
    np.testing.assert_array_equal(robot.actuator_map[index], np.eye(12)[index])


def _set(path: str, value):
    """Change one entry of a description, e.g. ``legs.0.foot``; ``...`` deletes it."""

    def change(description: dict) -> None:
        *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        for part in parents:
            description = description[part]
        if value is ...:
            del description[last]
        else:
            description[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set("legs.1.joints.0.joint", "FR_abductor"), "did you mean 'FR_abduction'"),
        (_set("legs.0.joints.0.actuator", "FL_hip"), "does not drive joint 'FL_abduction'"),
        (_set("legs.0.foot", "FL_toe"), "leg FL: foot: no geom named 'FL_toe'"),
        (_set("trunk", "body"), "trunk: no body named 'body'"),
        (_set("trunk", "FL_thigh"), "has no free joint"),
        (_set("floor", "ground"), "floor: no geom named 'ground'"),
        (_set("home_keyframe", "stand"), "home_keyframe: no key named 'stand'"),
        (_set("legs.0.randomized_links", ["thigh"]), "randomized_links: no body named 'thigh'"),
        (_set("legs.0.joints.1.motor", "servo"), "no motor type named 'servo'; known: drive"),
        (_set("legs.0.pair.linkage", "fivebar"), "no linkage named 'fivebar'"),
        (_set("legs.0.pair.distal", "FR_knee"), "not among the leg's joints"),
        (_set("linkages.parallelogram.jacobian", [[1, 0], [1, 0]]), "is singular"),
        (_set("linkages.parallelogram.jacobian", [[1, 0, 0], [1, 1, 0]]), "jacobian"),
        (_set("linkages.parallelogram.jacobian", [[1, 0]]), "jacobian"),
        (_set("linkages.parallelogram.jacobian", [[1, 0], [1, -1]]), "must be [1, 1], not [1, -1]"),
        (_set("linkages.parallelogram.jacobian", [[1, -1], [1, 0]]), "row 1 of `jacobian` must be"),
        (_set("linkages.parallelogram.inertia.m12", 0.05), "m12^2 must be below"),
        (_set("motors.drive.rotor_inertia", -1e-4), "rotor_inertia"),
        (_set("motors.drive.rotor_inertia", "two"), "got 'two'"),
        (_set("motors.drive.stiffness", 3.0), "motors.drive.stiffness: unknown key"),
        (_set("torque_delay_ms", -1.0), "torque_delay_ms"),
        (_set("torque_delay_ms", float("nan")), "torque_delay_ms"),
        (_set("torque_delay_ms", ...), "torque_delay_ms: missing"),
        (_set("format", 2), "format 2 is newer"),
        (_set("legs", []), "no legs"),
        (_set("legs.1.name", "FL"), "two legs have the name 'FL'"),
        (_set("legs.1.foot", "FL_foot"), "two legs have the foot 'FL_foot'"),
        (_set("colour", "red"), "colour: unknown key"),
    ],
)
def test_bad_description_is_one_line(description, write_robot, change, says):
    change(description)
    path = write_robot(description)
    with pytest.raises(UserError) as caught:
        load_robot(path)
    line = str(caught.value)
    assert says in line
    assert str(path) in line
    assert "\n" not in line


def test_not_a_description(tmp_path):
    path = tmp_path / "robot.yaml"
    for text, says in [("- 1\n", "not a robot description"), ("a: [1\n", "not valid YAML")]:
        path.write_text(text)
        with pytest.raises(UserError, match=says):
            load_robot(path)
    with pytest.raises(UserError, match="no such file"):
        load_robot(tmp_path / "nowhere.yaml")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        load_robot(path)


def test_missing_mjcf(description, tmp_path):
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(description))
    with pytest.raises(UserError, match=r"closed_chain: no such file 'closed_chain.xml'"):
        load_robot(path)
    del description["closed_chain"]
    path.write_text(yaml.safe_dump(description))
    with pytest.raises(UserError, match=r"serial\.xml: no such MJCF"):
        load_robot(path)


def test_antiparallel_axes_need_the_other_sign(description, write_robot):
    """A knee axis turned round: the shank's angle is q1 - q2, and J must say so."""

    def flip(spec):
        for leg in ("FL", "FR", "RL", "RR"):
            joint = spec.joint(f"{leg}_knee")
            joint.axis = [0, -1, 0]
            joint.range = sorted(-np.array(joint.range))
        key = spec.keys[0]
        qpos = np.array(key.qpos)
        qpos[[9, 12, 15, 18]] *= -1
        key.qpos = qpos

    with pytest.raises(UserError, match=r"antiparallel .* must be \[1, -1\], not \[1, 1\]"):
        load_robot(write_robot(description, flip))
    description["linkages"]["parallelogram"]["jacobian"] = [[1, 0], [1, -1]]
    robot = load_robot(write_robot(description, flip))
    # The same mechanism in other coordinates: q2 -> -q2.
    turn = np.diag([1, -1])
    straight = [[0.02438, 0.00232], [0.00232, 0.00232]]
    np.testing.assert_allclose(
        robot.pairs[0].serial_link(np.pi / 2), turn @ straight @ turn, atol=1e-9
    )


def test_crossed_axes_are_refused(description, write_robot):
    def cross(spec):
        spec.joint("FL_knee").axis = [1, 0, 0]

    with pytest.raises(UserError, match="neither parallel nor antiparallel"):
        load_robot(write_robot(description, cross))


def test_inertia_beyond_the_pair_is_refused(description, write_robot):
    """A sprung toe of weight: the pair's inertia would depend on its angle, too."""

    def add_toe(spec):
        toe = spec.body("FL_shank").add_body(name="toe", pos=[0, 0, -0.1])
        toe.explicitinertial = True
        toe.add_joint(name="toe", axis=[0, 1, 0])
        toe.mass, toe.ipos, toe.inertia = 0.3, [0.1, 0, 0], [1e-4] * 3
        spec.keys[0].qpos = np.insert(np.array(spec.keys[0].qpos), 10, 0.0)

    description["passive"] = ["toe"]
    with pytest.raises(UserError, match="does not depend on the distal angle alone"):
        load_robot(write_robot(description, add_toe))


def test_closed_loop_is_refused(description, write_robot):
    def close(spec):
        import mujoco

        spec.add_equality(
            name="loop",
            type=mujoco.mjtEq.mjEQ_CONNECT,
            objtype=mujoco.mjtObj.mjOBJ_BODY,
            name1="FL_shank",
            name2="FR_shank",
        )

    with pytest.raises(UserError, match="not a serial tree: closed by loop"):
        load_robot(write_robot(description, close))


def test_description_round_trip(robot, tmp_path):
    from s3n_mjx.config_files import dump_yaml

    path = tmp_path / "robot.yaml"
    path.write_text(dump_yaml(robot.description))
    assert load_description(path) == robot.description


# --- bare robots ---------------------------------------------------------------------------


def _bare(spec) -> None:
    """As a robot's own file comes without a scene around it."""
    spec.delete(spec.geom("floor"))
    for key in list(spec.keys):
        spec.delete(key)


@pytest.fixture
def bare(description, robot):
    """Its description: angles of home by joint, no floor."""
    del description["floor"], description["home_keyframe"]
    angles = zip(robot.joints, robot.home_joints, strict=True)
    description["home"] = {name: float(angle) for name, angle in angles}
    return description


def test_a_bare_robot_gets_a_floor_and_stands_on_it(bare, write_robot, robot):
    found = load_robot(write_robot(bare, _bare))
    np.testing.assert_allclose(found.home_qpos[3:], robot.home_qpos[3:], atol=1e-9)
    data = mujoco.MjData(found.model)
    data.qpos[:] = found.home_qpos
    mujoco.mj_forward(found.model, data)
    floor = found.model.geom(found.floor)
    assert floor.type == mujoco.mjtGeom.mjGEOM_PLANE
    lowest = [data.geom(foot).xpos[2] - found.model.geom(foot).size[0] for foot in found.feet]
    assert min(lowest) == pytest.approx(0.0, abs=1e-9)
    assert data.ncon == 0 or data.contact.dist.min() > -1e-6  # on it, not in it
    data.qpos[2] -= 0.01
    mujoco.mj_forward(found.model, data)
    touched = {int(g) for contact in data.contact for g in contact.geom}
    assert touched == {int(floor.id), *(int(found.model.geom(foot).id) for foot in found.feet)}


def test_a_bare_robot_s_checkpoint_holds_the_same_robot(bare, write_robot, tmp_path):
    found = load_robot(write_robot(bare, _bare))
    save_robot(found, tmp_path / "kept")
    again = load_robot(tmp_path / "kept")
    np.testing.assert_array_equal(again.home_qpos, found.home_qpos)
    assert (again.floor, again.joints) == (found.floor, found.joints)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["home"].update(FL_hipp=0.0), "home: no hinge named 'FL_hipp'; did you mean"),
        (lambda d: d["home"].update(FL_knee=9.0), "home: FL_knee at 9 rad is outside its range"),
        (lambda d: d.update(home={}), "give the posture to stand in"),
        (lambda d: d.update(home_keyframe="home"), "give the posture to stand in"),
    ],
)
def test_a_home_that_cannot_be_is_one_line(bare, write_robot, change, says):
    change(bare)
    with pytest.raises(UserError, match=says) as caught:
        load_robot(write_robot(bare, _bare))
    assert "\n" not in str(caught.value)


def test_a_bare_robot_is_set_down_on_a_plane_alone(bare, write_robot):
    def on_a_box(spec):
        _bare(spec)
        box = mujoco.mjtGeom.mjGEOM_BOX
        spec.worldbody.add_geom(name="slab", type=box, size=[5, 5, 0.5], pos=[0, 0, -0.5])

    bare["floor"] = "slab"
    with pytest.raises(UserError, match="on a level plane alone, and floor 'slab' is none"):
        load_robot(write_robot(bare, on_a_box))


def test_a_floor_in_a_body_that_never_moves_counts(bare, write_robot):
    def in_a_body(spec):
        _bare(spec)
        scene = spec.worldbody.add_body(name="scene")
        scene.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_BOX, size=[5, 5, 0.1])

    with pytest.raises(UserError, match=r"floor: missing, and .* has a geom 'ground'"):
        load_robot(write_robot(bare, in_a_body))


def test_a_floor_of_the_file_s_own_has_to_be_named(bare, write_robot):
    with pytest.raises(UserError, match=r"floor: missing, and serial\.xml has a geom 'floor'"):
        load_robot(write_robot(bare))
