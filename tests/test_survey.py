"""`robot inspect`: an unknown MJCF read right, whatever its names, units and conventions."""

import json
from pathlib import Path

import mujoco
import numpy as np
import pytest

from s3n_mjx.errors import UserError
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot import commands
from s3n_mjx.robot.names import name_everything
from s3n_mjx.robot.survey import survey

SHARED = Path(__file__).resolve().parents[2] / "shared" / "robots"
needs_robots = pytest.mark.skipif(not SHARED.is_dir(), reason="public robots are not here")

# Two legs in degrees: hip and knee antiparallel, `ref`, one gear of 3, a position actuator behind a
# gear of 2, a passive toe, an arm, a waist that nothing shares, unnamed geoms and a capsule foot.
LEG = """
<body name="{side}thigh" pos="0 {y} -0.05">
  <joint name="{side}a" axis="0 1 0" range="-60 60" armature="0.01"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.2" mass="0.5"/>
  <body pos="0 0 -0.2">
    <joint name="{side}b" axis="0 -1 0" range="0 120" ref="20"/>
    <geom type="box" size="0.01 0.01 0.1" pos="0 0 -0.1" mass="0.2" contype="0" conaffinity="0"/>
    <geom type="capsule" size="0.015" fromto="-0.03 0 -0.2 0.03 0 -0.2" mass="0.1"/>
  </body>
</body>
"""
ROBOT = f"""
<mujoco>
  <compiler angle="degree"/>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 0.1"/>
    <body name="box" pos="0 0 0.46">
      <freejoint/>
      <geom type="box" size="0.1 0.1 0.05" mass="4"/>
      {LEG.format(side="l", y=0.1)}
      {LEG.format(side="r", y=-0.1)}
      <body pos="0 0 0.1"><joint name="arm1" axis="1 0 0"/>
        <geom type="sphere" size="0.03" mass="0.1"/>
        <body pos="0.1 0 0"><joint name="arm2" axis="1 0 0"/>
          <geom type="sphere" size="0.03" mass="0.1"/></body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="lb" gear="3" ctrllimited="true" ctrlrange="-4 5"/>
    <position name="left" joint="la" kp="10" kv="0.5" gear="2" forcelimited="true"
      forcerange="-7 7"/>
    <motor name="right" joint="ra"/>
    <motor joint="rb"/>
    <velocity name="spin" joint="arm1" kv="0.3"/>
  </actuator>
</mujoco>
"""


@pytest.fixture
def write(tmp_path):
    def write(*changes: tuple[str, str]) -> Path:
        text = ROBOT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "robot.xml"
        path.write_text(text)
        return path

    return write


def test_legs_are_found_without_names(write):
    seen = survey(write())
    assert seen.trunk == "box"
    assert seen.floors == ("ground",)
    assert [leg.joints for leg in seen.legs] == [("la", "lb"), ("ra", "rb")]
    assert seen.held_joints == ("arm1",)
    assert seen.passive_joints == ("arm2",)
    left = seen.legs[0]
    assert left.actuators == ("left", "lb")
    assert left.links[0] == "lthigh"
    assert left.foot_type == "capsule"
    assert left.foot.endswith("_geom1")
    assert left.foot_height == pytest.approx(0.46 - 0.05 - 0.2 - 0.2 - 0.015)
    [pair] = left.pairs
    assert (pair.proximal, pair.distal, pair.parallel) == ("la", "lb", False)
    assert pair.absolute_row == (1.0, -1.0)
    assert (seen.keyframes, seen.posture, seen.missing) == ((), "qpos0", ())


def test_degrees_reference_and_axes(write):
    joints = {joint.name: joint for joint in survey(write()).joints}
    assert joints["la"].range == pytest.approx((-np.pi / 3, np.pi / 3))
    assert joints["lb"].reference == pytest.approx(np.deg2rad(20.0))
    assert joints["lb"].axis == pytest.approx((0.0, -1.0, 0.0))
    assert joints["la"].armature == 0.01
    assert joints["box_free"].type == "free"


def test_axes_are_in_the_world_frame(write):
    """A leg mounted turned by 90 degrees about z has its hip along -x."""
    turned = write(('<body name="lthigh"', '<body name="lthigh" euler="0 0 90"'))
    axes = {joint.name: joint.axis for joint in survey(turned).joints}
    assert axes["la"] == pytest.approx((-1.0, 0.0, 0.0), abs=1e-9)
    assert axes["lb"] == pytest.approx((1.0, 0.0, 0.0), abs=1e-9)


def test_actuators_are_told_at_the_joint(write):
    actuators = {actuator.name: actuator for actuator in survey(write()).actuators}
    left, knee, spin = actuators["left"], actuators["lb"], actuators["spin"]
    assert (left.type, left.joint, left.gear, left.torque_limit) == ("position", "la", 2.0, 14.0)
    assert (knee.type, knee.torque_limit) == ("torque", 15.0)  # the larger side, times the gear
    assert (spin.type, spin.kp, spin.kd) == ("velocity", 0.0, 0.3)
    assert actuators["right"].torque_limit is None
    # The torque that C MuJoCo makes, by finite differences.
    model = mujoco.MjModel.from_xml_path(str(write()))
    for what, value in (("qpos", left.kp), ("qvel", left.kd)):
        torques = []
        for change in (-1e-6, 1e-6):
            data = mujoco.MjData(model)
            index = model.jnt_qposadr if what == "qpos" else model.jnt_dofadr
            getattr(data, what)[index[model.joint("la").id]] += change
            data.ctrl[model.actuator("left").id] = 0.1
            mujoco.mj_forward(model, data)
            torques.append(data.qfrc_actuator[model.jnt_dofadr[model.joint("la").id]])
        assert value == pytest.approx((torques[0] - torques[1]) / 2e-6, rel=1e-5)


def test_what_mjx_drops_and_refuses(write):
    own = '<motor joint="rb" gear="2" armature="0.02" damping="1"/>'
    seen = survey(write(('<motor joint="rb"/>', own)))
    assert seen.converted == (
        "actuator rb: armature of its own (0.08 at the joint)",
        "actuator rb: damping of its own (4 at the joint)",
    )
    assert not seen.refused
    assert seen.contacts is not None
    cylinder = survey(
        write(('<geom type="sphere" size="0.03"', '<geom type="cylinder" size="0.03 0.05"'))
    )
    assert cylinder.contacts is None
    [line] = cylinder.refused
    assert "no collision of cylinder with box" in line
    assert "box_geom" in line


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([("<freejoint/>", "")], "a free joint: the trunk's body needs <freejoint/>"),
        (
            [('<motor joint="rb"/>', '<motor joint="rb"/><velocity name="damper" joint="rb"/>')],
            "one actuator for rb, in the place of rb, damper",
        ),
        ([('<motor name="right" joint="ra"/>', "")], "an actuator for ra of leg"),
        (
            [
                (
                    "</worldbody>",
                    '</worldbody><equality><connect name="rod" body1="lthigh" body2="rthigh"'
                    ' anchor="0 0 0"/></equality>',
                )
            ],
            "a serial tree: rod close loops",
        ),
    ],
)
def test_what_is_missing(write, changes, says):
    assert any(says in line for line in survey(write(*changes)).missing)


def test_a_bare_robot_without_floor_or_keyframe_lacks_nothing(write):
    seen = survey(write(('<geom name="ground" type="plane" size="5 5 0.1"/>', "")))
    assert (seen.floors, seen.missing) == ((), ())


def test_a_keyframe_without_a_name_gets_one(write):
    seen = survey(
        write(
            (
                "<actuator>",
                '<keyframe><key qpos="0 0 .5 1 0 0 0 0 0 0 0 0 0"/></keyframe><actuator>',
            )
        )
    )
    assert (seen.keyframes, seen.posture) == (("key0",), "key0")


def test_what_looks_like_a_mistake(write):
    radians = survey(write(('angle="degree"', 'angle="radian"')))
    assert any("degrees under" in line and "la" in line for line in radians.doubtful)
    honey = survey(write(("<freejoint/>", '<joint type="free" damping="2"/>')))
    assert any("free joint box_free has armature or damping" in line for line in honey.doubtful)
    assert survey(write()).doubtful == (
        "torque limits of lb are not alike to both sides; the larger one is shown",
    )
    assert survey(write(('"-4 5"', '"-5 5"'))).doubtful == ()


def test_a_joint_that_both_legs_hang_on_is_no_leg_s(write):
    waist = write(
        (
            '<geom type="box" size="0.1 0.1 0.05" mass="4"/>',
            '<geom type="box" size="0.1 0.1 0.05" mass="4"/><body name="hips"><joint name="waist"'
            ' axis="0 0 1"/><geom type="sphere" size="0.02" mass="1"/>',
        ),
        ('<body pos="0 0 0.1"><joint name="arm1"', '</body><body pos="0 0 0.1"><joint name="arm1"'),
    )
    seen = survey(waist)
    assert [leg.joints for leg in seen.legs] == [("la", "lb"), ("ra", "rb")]
    assert "waist" in seen.passive_joints


def test_names_are_distinct_and_the_same_every_time(write):
    names = []
    for _ in range(2):
        spec = mujoco.MjSpec.from_file(str(write()))
        name_everything(spec)
        model = spec.compile()
        named = [model.geom(i).name for i in range(model.ngeom)]
        named += [model.joint(i).name for i in range(model.njnt)]
        named += [model.body(i).name for i in range(model.nbody)]
        assert all(named)
        names.append(named)
    assert names[0] == names[1]


def test_bundled_robot_is_recognised_as_it_is_described(robot):
    seen = survey(bundled_robot().parent / "serial.xml")
    described = robot.description
    assert [leg.joints for leg in seen.legs] == [
        tuple(entry.joint for entry in leg.joints) for leg in described.legs
    ]
    assert tuple(leg.foot for leg in seen.legs) == robot.feet
    assert seen.trunk == described.trunk
    assert all(len(leg.pairs) == 1 and leg.pairs[0].parallel for leg in seen.legs)
    assert not seen.missing
    assert not seen.refused
    assert (seen.contacts, seen.constraint_rows) == (6, 30)  # `inspect` compares with these


def test_the_command(write, capsys):
    commands.main(["inspect", str(write())])
    printed = capsys.readouterr().out
    for words in (
        "la and lb are antiparallel",
        "[[1, 0], [1, -1]]",
        "driven joints of no leg: arm1",
    ):
        assert words in printed
    commands.main(["inspect", str(write()), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert data["legs"][0]["pairs"][0]["parallel"] is False
    assert data["actuators"][1]["torque_limit"] == 14.0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["inspect", "nowhere.xml"], "no such MJCF file"),
        (["look"], "unknown command 'look'; known: inspect, new"),
    ],
)
def test_mistakes_are_one_line(args, says):
    with pytest.raises(UserError, match=says) as caught:
        commands.main(args)
    assert "\n" not in str(caught.value)


@needs_robots
@pytest.mark.parametrize(
    ("file", "legs", "parallel", "refused"),
    [
        ("unitree_go2/scene_mjx.xml", ["FL", "FR", "RL", "RR"], True, ""),
        ("unitree_go2/scene.xml", ["FL", "FR", "RL", "RR"], True, "cylinder with box"),
        ("aliengo/scene_flat.xml", ["FL", "FR", "RL", "RR"], True, ""),
        (
            "google_barkour_vb/scene_mjx.xml",
            ["front_left", "hind_left", "front_right", "hind_right"],
            False,
            "",
        ),
        ("booster_t1/scene.xml", ["Left", "Right"], True, "cylinder with box"),
        ("agility_cassie/scene.xml", ["left", "right"], None, ""),
    ],
)
def test_public_robots(file, legs, parallel, refused):
    seen = survey(SHARED / file)
    assert [leg.name for leg in seen.legs] == legs
    if parallel is not None:
        assert [pair.parallel for leg in seen.legs for pair in leg.pairs] == [parallel] * len(legs)
    assert refused in "".join(seen.refused)
    assert bool(seen.refused) == bool(refused)
    assert bool(seen.loops) == ("cassie" in file)
