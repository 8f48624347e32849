"""Other people's robots: what each may do differently loads right, or is one clear line.

Right means that the robot here moves as the same robot does in C MuJoCo under its own file.
"""

import mujoco
import numpy as np
import pytest
import yaml
from test_draft import answered
from test_survey import SHARED, needs_robots

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Variant
from s3n_mjx.reference.closed_chain import ClosedChain
from s3n_mjx.reference.serial import SerialRobot
from s3n_mjx.resources import bundled_robot
from s3n_mjx.robot.draft import draft
from s3n_mjx.robot.model import Robot, load_robot, load_spec
from s3n_mjx.robot.survey import survey
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.control import Simulation
from s3n_mjx.simulation.injection import normalize
from s3n_mjx.simulation.standing import standing_target
from s3n_mjx.simulation.support import contact_count

# Two legs of two joints; {...} is what a test changes.
LEG = """
<body name="{side}_thigh" pos="0 {y} -0.05">
  <joint name="{side}_hip" axis="{hip}" {joint}/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.2" mass="0.5"/>
  <body name="{side}_shank" pos="0 0 -0.2">
    <joint name="{side}_knee" axis="{knee}" {joint}/>
    <geom type="capsule" size="0.015" fromto="0 0 0 0 0 -0.18" mass="0.2" contype="0"
      conaffinity="0"/>
    {foot}
    {toe}
  </body>
</body>
"""
ROBOT = """
<mujoco>
  <compiler angle="{angle}"/>
  {default}
  <worldbody>
    {floor}
    {other}
    <body name="box" pos="0 0 0.465">
      {free}
      <geom name="chassis" type="{chassis}" size="0.1 0.1 0.05" mass="4"/>
      {legs}
      {arm}
    </body>
  </worldbody>
  <actuator>
    {actuators}
    {more_actuators}
  </actuator>
  {end}
</mujoco>
"""
JOINTS = ("l_hip", "l_knee", "r_hip", "r_knee")
SPHERE = 'type="sphere" size="0.02"'
FOOT = '<geom name="{side}_foot" type="sphere" size="0.02" pos="0 0 -0.195" mass="0.05"/>'
ARM = """<body name="arm" pos="0 0 0.1"><joint name="shoulder" axis="1 0 0" armature="0.01"/>
<geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0" mass="0.3"/></body>"""
DEFAULTS = {
    "angle": "radian",
    "default": "",
    "floor": '<geom name="ground" type="plane" size="5 5 0.1"/>',
    "other": "",
    "free": "<freejoint/>",
    "chassis": "box",
    "hip": "0 1 0",
    "knee": "0 1 0",
    "joint": 'range="-2 2"',
    "foot": FOOT,
    "toe": "",
    "arm": "",
    "actuators": "".join(
        f'<motor name="{name}" joint="{name}" forcerange="-20 20" forcelimited="true"/>'
        for name in JOINTS
    ),
    "more_actuators": "",
    "end": "",
}


def mjcf(**changes: str) -> str:
    words = DEFAULTS | changes
    legs = ""
    for side, y in (("l", 0.1), ("r", -0.1)):
        inside = {key: words[key].replace("{side}", side) for key in ("foot", "toe")}
        legs += LEG.format(**(words | inside), side=side, y=y)
    return ROBOT.format(**words, legs=legs)


def described(**changes) -> dict:
    """A description of it, each joint with a motor of its own."""
    return {
        "format": 1,
        "name": "stranger",
        "model": "robot.xml",
        "trunk": "box",
        "floor": "ground",
        "home": {"l_hip": 0.3, "l_knee": -0.6, "r_hip": 0.3, "r_knee": -0.6},
        "torque_delay_ms": 0.0,
        "motors": {
            "drive": {
                "rotor_inertia": 1e-4,
                "rotor_damping": 1e-3,
                "gear_ratio": 10.0,
                "torque_limit": 20.0,
                "kp": 60.0,
                "kd": 1.0,
            }
        },
        "legs": [
            {
                "name": side,
                "foot": f"{side}_foot",
                "joints": [
                    {"joint": f"{side}_{j}", "actuator": f"{side}_{j}", "motor": "drive"}
                    for j in ("hip", "knee")
                ],
            }
            for side in ("l", "r")
        ],
    } | changes


@pytest.fixture
def load(tmp_path):
    def load(description: dict | None = None, **changes: str) -> Robot:
        (tmp_path / "robot.xml").write_text(mjcf(**changes))
        path = tmp_path / "robot.yaml"
        path.write_text(yaml.safe_dump(description or described()))
        return load_robot(path)

    return load


def flight(robot: Robot, steps: int = 40) -> dict[str, np.ndarray]:
    """Every joint's angle and every body's place while it flies under moving targets."""
    loop = SerialRobot(normalize(robot, SimulationConfig(variant=Variant.KIN_ONLY)))
    qpos = robot.home_qpos.copy()
    qpos[2] += 0.5
    target = robot.home_joints.copy()
    loop.reset(qpos, np.zeros(robot.model.nv), target)
    for k in range(steps):
        loop.step(target + 0.3 * np.sin(0.1 * k + np.arange(len(target))))
    data = loop.data
    result = {name: data.joint(name).qpos.copy() for name in robot.joints}
    return result | {
        robot.model.body(i).name: data.xpos[i].copy() for i in range(1, robot.model.nbody)
    }


def moves_like(robot: Robot, other: Robot, tolerance: float = 1e-9) -> None:
    ours, theirs = flight(robot), flight(other)
    for name in ours.keys() & theirs.keys():
        np.testing.assert_allclose(ours[name], theirs[name], atol=tolerance, err_msg=name)


def stands(robot: Robot) -> None:
    """Under its standing target, on all its feet, for half a second."""
    loop = SerialRobot(normalize(robot, SimulationConfig(variant=Variant.KIN_ONLY)))
    target = standing_target(robot)
    loop.reset(robot.home_qpos, np.zeros(robot.model.nv), target)
    for _ in range(160):
        loop.step(target)
    assert abs(loop.data.qpos[2] - robot.home_qpos[2]) < 0.02
    assert (loop.foot_force()[:, 2] > 1.0).all()


# --- units and references


def test_degrees(load):
    degrees = load(angle="degree", joint=f'range="{-np.rad2deg(2)} {np.rad2deg(2)}"')
    moves_like(degrees, load(joint='range="-2 2"'))
    np.testing.assert_allclose(degrees.home_joints, [0.3, -0.6, 0.3, -0.6])


def test_a_reference_angle_is_where_the_file_draws_the_joint(load):
    """With `ref` the same posture has other joint angles; shifted by it the motion is the same."""
    plain = load()
    home = {"l_hip": 0.5, "l_knee": -0.4, "r_hip": 0.5, "r_knee": -0.4}
    shifted = load(described(home=home), joint='range="-2 2" ref="0.2"')
    np.testing.assert_allclose(shifted.home_qpos[2], plain.home_qpos[2], atol=1e-12)
    ours, theirs = flight(shifted), flight(plain)
    for name in JOINTS:
        np.testing.assert_allclose(ours[name] - 0.2, theirs[name], atol=1e-9)
    np.testing.assert_allclose(ours["l_shank"], theirs["l_shank"], atol=1e-9)


def test_settings_of_default_classes_arrive(load):
    default = '<default><joint armature="0.3" damping="0.4" range="-1 1"/></default>'
    robot = load(default=default, joint="")
    np.testing.assert_allclose(robot.model.jnt_range[1:5], [[-1, 1]] * 4)
    normalized = normalize(robot, SimulationConfig(variant=Variant.KIN_ONLY))
    # The description's motors replace them.
    np.testing.assert_allclose(normalized.model.dof_armature[6:], 0.01)
    np.testing.assert_allclose(normalized.model.dof_damping[6:], 0.1)


# --- axes


@pytest.mark.parametrize("axis", ["1 0 0", "0 1 0", "0 0 1", "0.6 0.8 0"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_pair_along_any_axis(load, axis, sign):
    """The row of the Jacobian is [1, 1] for parallel axes and [1, -1] for antiparallel ones."""
    knee = " ".join(str(sign * float(x)) for x in axis.split())
    description = described(linkages={"linkage": {"jacobian": [[1.0, 0.0], [1.0, float(sign)]]}})
    for leg in description["legs"]:
        leg["pair"] = {
            "proximal": f"{leg['name']}_hip",
            "distal": f"{leg['name']}_knee",
            "linkage": "linkage",
        }
    robot = load(description, hip=axis, knee=knee)
    assert len(robot.pairs) == 2
    wrong = yaml.safe_load(yaml.safe_dump(description))
    wrong["linkages"]["linkage"]["jacobian"][1][1] = float(-sign)
    with pytest.raises(UserError, match="row 2 of `jacobian` must be"):
        load(wrong, hip=axis, knee=knee)


def test_crossed_axes_cannot_share_a_linkage(load):
    description = described(linkages={"linkage": {"jacobian": [[1.0, 0.0], [1.0, 1.0]]}})
    description["legs"][0]["pair"] = {"proximal": "l_hip", "distal": "l_knee", "linkage": "linkage"}
    with pytest.raises(UserError, match="neither parallel nor antiparallel"):
        load(description, knee="1 0 0")


def test_a_mirrored_joint_turns_the_other_way(load):
    home = {"l_hip": 0.3, "l_knee": 0.6, "r_hip": 0.3, "r_knee": 0.6}
    mirrored = load(described(home=home), knee="0 -1 0")
    plain = load()
    loops = []
    for robot, sign in ((mirrored, -1), (plain, 1)):
        loop = SerialRobot(normalize(robot, SimulationConfig(variant=Variant.KIN_ONLY)))
        loop.reset(robot.home_qpos + np.r_[0, 0, 1, np.zeros(8)], np.zeros(10), robot.home_joints)
        for _ in range(30):
            loop.step(robot.home_joints + np.array([0.1, 0.2 * sign, 0.1, 0.2 * sign]))
        loops.append(loop.data.body("l_shank").xpos.copy())
    np.testing.assert_allclose(*loops, atol=1e-12)


# --- actuators


def actuators(tag: str, **attributes) -> str:
    said = " ".join(f'{key}="{value}"' for key, value in attributes.items())
    return "".join(f'<{tag} name="{name}" joint="{name}" {said}/>' for name in JOINTS)


@pytest.mark.parametrize(
    "theirs",
    [
        actuators("motor", gear=7),
        actuators("motor", gear=-3, ctrlrange="-1 1", ctrllimited="true"),
        actuators("position", kp=500, kv=20),
        actuators("velocity", kv=3),
        actuators("general", dyntype="filter", dynprm=0.1, gainprm=3),
    ],
)
def test_their_control_is_replaced(load, theirs):
    """Whatever drove the joints, the description's motors do now, in its order."""
    moves_like(load(actuators=theirs), load(), 0.0)


def test_order_is_the_description_s(load):
    shuffled = "".join(f'<motor name="m{i}" joint="{n}"/>' for i, n in enumerate(reversed(JOINTS)))
    description = described()
    for leg in description["legs"]:
        for entry in leg["joints"]:
            entry["actuator"] = f"m{3 - JOINTS.index(entry['joint'])}"
    robot = load(description, actuators=shuffled)
    assert robot.joints == JOINTS
    moves_like(robot, load(), 0.0)
    description["legs"].reverse()
    assert load(description, actuators=shuffled).joints == (*JOINTS[2:], *JOINTS[:2])
    description["legs"][0]["joints"][0]["actuator"] = "m0"
    with pytest.raises(UserError, match="actuator 'm0' does not drive joint 'r_hip'"):
        load(description, actuators=shuffled)


def test_a_file_without_actuators(load):
    description = described()
    for leg in description["legs"]:
        for entry in leg["joints"]:
            del entry["actuator"]
    moves_like(load(description, actuators=""), load(), 0.0)


def test_an_actuator_s_own_armature_reaches_the_joint(load, tmp_path):
    """C MuJoCo adds it, through the gear twice; MJX would drop it."""
    own = '<position name="s" joint="shoulder" gear="3" kp="0" armature="0.02" damping="0.1"/>'
    description = described(passive=["shoulder"])
    with pytest.raises(UserError, match="drives joint shoulder, which is passive"):
        load(description, arm=ARM, more_actuators=own)
    description = described(controlled=[{"joint": "shoulder", "actuator": "s", "motor": "drive"}])
    robot = load(description, arm=ARM, more_actuators=own)
    theirs = mujoco.MjModel.from_xml_path(str(tmp_path / "robot.xml"))
    found = []
    for model in (robot.model, theirs):
        data = mujoco.MjData(model)
        data.qpos[:] = robot.home_qpos
        data.qvel[-1] = 1.0
        mujoco.mj_forward(model, data)
        full = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, full)
        found.append((full, data.qfrc_passive.copy()))
    for ours, other in zip(*found, strict=True):
        np.testing.assert_allclose(ours, other, atol=1e-12)
    assert robot.model.dof_armature[-1] == pytest.approx(0.01 + 9 * 0.02)
    assert not robot.model.actuator_armature.any()


def test_armature_that_no_joint_can_take_is_refused(load):
    site = '<site name="hook" pos="0 0 0.1"/>'
    with pytest.raises(UserError, match="actuator 'pull' has armature or damping of its own"):
        load(arm=site, more_actuators='<motor name="pull" site="hook" armature="1"/>')


def test_an_actuator_that_drives_no_joint_is_refused(load):
    tendon = '<tendon><fixed name="t"><joint joint="l_hip" coef="1"/></fixed></tendon>'
    with pytest.raises(UserError, match=r"actuator 'pull' of robot\.xml drives no joint"):
        load(more_actuators='<motor name="pull" tendon="t"/>', end=tendon)


def test_a_second_actuator_on_a_joint_is_refused(load):
    damper = '<velocity name="damper" joint="l_hip" kv="1"/>'
    with pytest.raises(UserError, match=r"l_hip is driven by 'l_hip' and by 'damper', too"):
        load(more_actuators=damper)


# --- more joints than legs


def test_a_forgotten_joint_never_hangs_loose(load):
    with pytest.raises(UserError, match=r"no leg has the joints shoulder; list each under `held`"):
        load(arm=ARM)


def test_a_held_joint_is_welded_where_home_has_it(load, tmp_path):
    """The same places of all bodies as with the joint at that angle; other joints as before."""
    home = described()["home"] | {"shoulder": 0.7}
    actuator = '<motor name="s" joint="shoulder"/>'
    held = load(described(held=["shoulder"], home=home), arm=ARM, more_actuators=actuator)
    assert held.held == {"shoulder": 0.7}
    assert held.model.nv == 6 + 4
    full = mujoco.MjModel.from_xml_path(str(tmp_path / "robot.xml"))
    a, b = mujoco.MjData(full), mujoco.MjData(held.model)
    a.qpos[:7] = b.qpos[:7] = held.home_qpos[:7]
    for name, angle in home.items():
        a.joint(name).qpos = angle
        if name != "shoulder":
            b.joint(name).qpos = angle
    for model, data in ((full, a), (held.model, b)):
        mujoco.mj_forward(model, data)
    np.testing.assert_allclose(b.xpos, a.xpos, atol=1e-12)
    np.testing.assert_allclose(b.subtree_com[0], a.subtree_com[0], atol=1e-12)


@pytest.mark.parametrize(
    "arm",
    [
        # A turned and shifted body with the joint off its origin, and one inside a frame.
        ARM.replace('pos="0 0 0.1">', 'pos="0 0 0.1" euler="0.3 0.2 0">').replace(
            'axis="1 0 0"', 'axis="1 0 1" pos="0.02 0.01 0" ref="0.1"'
        ),
        f'<frame pos="0.1 0 0" euler="0 .4 0">{ARM}</frame>',
        ARM.replace('axis="1 0 0"', 'axis="1 0 0" type="slide"'),
    ],
)  # fmt: skip
def test_held_joints_of_every_make(load, tmp_path, arm):
    key = '<keyframe><key name="up" qpos="0 0 .4 1 0 0 0 .3 -.6 .3 -.6 .25"/></keyframe>'
    description = described(held=["shoulder"], home_keyframe="up")
    del description["home"]
    held = load(description, arm=arm, end=key)
    assert held.held == {"shoulder": 0.25}
    full = mujoco.MjModel.from_xml_path(str(tmp_path / "robot.xml"))
    a, b = mujoco.MjData(full), mujoco.MjData(held.model)
    a.qpos[:] = full.key("up").qpos
    a.qpos[2] = held.home_qpos[2]
    b.qpos[:] = held.home_qpos
    for model, data in ((full, a), (held.model, b)):
        mujoco.mj_forward(model, data)
    np.testing.assert_allclose(b.xpos, a.xpos, atol=1e-9)
    np.testing.assert_allclose(b.subtree_com[0], a.subtree_com[0], atol=1e-9)


def test_a_controlled_joint_comes_after_the_legs(load):
    description = described(controlled=[{"joint": "shoulder", "actuator": "s", "motor": "drive"}])
    robot = load(description, arm=ARM, more_actuators='<motor name="s" joint="shoulder"/>')
    assert robot.joints == (*JOINTS, "shoulder")
    assert Simulation(normalize(robot, SimulationConfig())).standing_target.shape == (5,)


def test_a_waist_above_the_legs_can_be_held(load, tmp_path):
    """All legs hang on it; welded, it is as if it had never been there."""
    plain = load()
    text = mjcf()
    start, stop = text.index('<body name="l_thigh"'), text.rindex("</body>\n  </worldbody>")
    waist = '<body name="hips"><joint name="waist" axis="0 0 1"/><geom size="0.01" mass="1e-9"/>'
    text = f"{text[:start]}{waist}{text[start:stop]}</body>{text[stop:]}"
    (tmp_path / "robot.xml").write_text(text)
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(described(held=["waist"])))
    moves_like(load_robot(tmp_path / "robot.yaml"), plain, 1e-6)


def test_a_passive_toe_keeps_its_spring(load):
    toe = """<body name="{side}_toe" pos="0 0 -0.19"><joint name="{side}_toe" stiffness="2"
      damping="0.1" axis="0 1 0"/><inertial pos="0.03 0 0" mass="0.02" diaginertia="1e-5 1e-5
      1e-5"/></body>"""
    robot = load(described(passive=["l_toe", "r_toe"]), toe=toe)
    model = normalize(robot, SimulationConfig()).model
    for name in ("l_toe", "r_toe"):
        assert model.joint(name).stiffness[0] == 2.0
        assert model.joint(name).damping[0] == 0.1
    assert robot.joints == JOINTS


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (
            '<tendon><fixed name="t"><joint joint="shoulder" coef="1"/></fixed></tendon>',
            "held: shoulder is part of tendon 't'",
        ),
        (
            '<equality><joint name="mimic" joint1="shoulder" joint2="l_hip"/></equality>',
            "held: shoulder is coupled to another joint by equality 'mimic'",
        ),
    ],
)
def test_a_held_joint_that_others_need_is_refused(load, end, says):
    with pytest.raises(UserError, match=says):
        load(described(held=["shoulder"]), arm=ARM, end=end)


# --- trunk, floor, feet


def test_a_floor_is_laid_under_a_bare_robot(load):
    description = described()
    del description["floor"]
    bare = load(description, floor="")
    plain = load()
    np.testing.assert_allclose(bare.home_qpos, plain.home_qpos, atol=1e-12)
    stands(bare)


@pytest.mark.parametrize("value", ["damping", "armature", "frictionloss"])
def test_a_free_joint_that_defaults_reach_is_refused(load, value):
    default = f'<default><joint {value}="0.2"/></default>'
    with pytest.raises(UserError, match=f"the free joint of 'box' has {value} 0.2.*<freejoint/>"):
        load(default=default, free='<joint name="root" type="free"/>')
    load(default=default)  # <freejoint/> takes no defaults


def test_another_free_body_is_refused(load):
    ball = '<body name="ball" pos="1 0 1"><freejoint name="ball"/><geom size="0.1"/></body>'
    with pytest.raises(UserError, match="another free body, by joint ball"):
        load(other=ball)


def test_a_trunk_on_slides_and_hinges_is_no_free_one(load):
    free = "".join(f'<joint name="{a}" type="slide"/>' for a in ("x", "y", "z"))
    free = free.replace('"x" ', '"x" axis="1 0 0" ').replace('"y" ', '"y" axis="0 1 0" ')
    turns = zip("uvw", ("1 0 0", "0 1 0", "0 0 1"), strict=True)
    free += "".join(f'<joint name="{name}" axis="{axis}"/>' for name, axis in turns)
    description = described(passive=list("xyzuvw"))
    with pytest.raises(UserError, match="body 'box' has no free joint"):
        load(description, free=free)


@pytest.mark.parametrize(
    "foot",
    [
        FOOT,
        FOOT.replace(SPHERE, 'type="capsule" size="0.015 0.03" euler="0 1.57 0"'),
        FOOT.replace(SPHERE, 'type="box" size="0.03 0.02 0.01"'),
        FOOT.replace(SPHERE, 'type="mesh" mesh="sole"'),
        FOOT.replace('name="{side}_foot" ', ""),
    ],
    ids=["sphere", "capsule", "box", "mesh", "unnamed"],
)  # fmt: skip
def test_feet_of_every_shape(load, foot):
    """Set down until they touch, they carry the robot's weight in C and are taken by MJX."""
    corners = " ".join(
        f"{x} {y} {z}" for x in (-0.03, 0.03) for y in (-0.02, 0.02) for z in (-0.01, 0.01)
    )
    asset = f'<asset><mesh name="sole" vertex="{corners}"/></asset>'
    description = described()
    if "name=" not in foot:
        for leg in description["legs"]:
            leg["foot"] = f"{leg['name']}_shank_geom1"
    robot = load(description, foot=foot, end=asset if "mesh=" in foot else "")
    stands(robot)
    assert contact_count(Simulation(normalize(robot, SimulationConfig())).normalized.tree) > 0


def test_a_foot_that_cannot_touch_the_floor_is_refused(load):
    ghost = FOOT.replace("/>", ' contype="0" conaffinity="2"/>')
    with pytest.raises(UserError, match=r"leg l: foot: geom 'l_foot' cannot touch floor 'ground'"):
        load(foot=ghost)
    # Unless the file states the pair.
    pairs = "".join(f'<pair geom1="{s}_foot" geom2="ground"/>' for s in ("l", "r"))
    stands(load(foot=ghost, end=f"<contact>{pairs}</contact>"))


def test_feet_of_a_keyframe_are_set_on_the_floor(load):
    key = '<keyframe><key name="up" qpos="0 0 {z} 1 0 0 0 .3 -.6 .3 -.6"/></keyframe>'
    description = described(home_keyframe="up")
    del description["home"]
    plain = load()
    for z, moved in ((0.40, True), (0.46, True), (plain.home_qpos[2] + 0.001, False)):
        robot = load(description, end=key.replace("{z}", str(z)))
        expected = plain.home_qpos[2] if moved else z
        assert robot.home_qpos[2] == pytest.approx(expected, abs=1e-9)
        assert robot.lifted == pytest.approx(expected - z, abs=1e-9)


def test_feet_alone_collide_where_the_description_says_so(load):
    crowded = load()
    alone = load(described(collisions="feet"))
    counts = [contact_count(normalize(r, SimulationConfig()).tree) for r in (crowded, alone)]
    assert counts[1] == 2 < counts[0]
    stands(alone)


def test_geoms_that_mjx_cannot_collide_are_named_with_the_way_out(load):
    """A cylinder of a chassis above box feet."""
    boxes = FOOT.replace(SPHERE, 'type="box" size="0.03 0.02 0.01"')
    robot = load(foot=boxes, chassis="cylinder")
    with pytest.raises(UserError, match="no collision of cylinder with box") as caught:
        Simulation(normalize(robot, SimulationConfig()))
    message = str(caught.value)
    assert "chassis" in message
    assert "l_foot" in message
    assert "`collisions: feet`" in message
    assert "\n" not in message
    alone = load(described(collisions="feet"), foot=boxes, chassis="cylinder")
    Simulation(normalize(alone, SimulationConfig()))


# --- public robots


@pytest.fixture
def public(tmp_path):
    """A public robot by its file, its draft's questions answered."""

    def robot(file: str, collisions: str) -> Robot:
        path = tmp_path / "robot.yaml"
        answers = {"linkages": "{}", "torque_delay_ms": 3.0, "kp": 40.0, "kd": 1.0}
        text = draft(survey(SHARED / file), path)
        path.write_text(answered(text, collisions=collisions, **answers))
        return load_robot(path)

    return robot


@needs_robots
@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("unitree_go2/scene.xml", r"cylinder with box \(\d+ pairs: base_geom\d+ and "),
        ("booster_t1/scene.xml", r"cylinder with box \(\d+ pairs: \w+ and Trunk_geom1"),
    ],
)
def test_public_robots_that_mjx_refuses_as_they_are(public, file, names):
    """In one line that names the geoms; with feet alone it takes them."""
    with pytest.raises(UserError, match=names) as caught:
        Simulation(normalize(public(file, "all"), SimulationConfig()))
    assert "\n" not in str(caught.value)
    assert "`collisions: feet`" in str(caught.value)
    simulation = Simulation(normalize(public(file, "feet"), SimulationConfig()))
    assert simulation.standing_target.shape == (12,)


@needs_robots
@pytest.mark.parametrize(
    "file",
    ["unitree_go2/scene_mjx.xml", "aliengo/scene_flat.xml", "google_barkour_vb/scene_mjx.xml"],
)
def test_public_quadrupeds_stand(public, file):
    robot = public(file, "feet")
    stands(robot)
    loop = SerialRobot(normalize(robot, SimulationConfig()))
    loop.reset(robot.home_qpos, np.zeros(18), standing_target(robot))
    for _ in range(600):
        loop.step(standing_target(robot))
    assert loop.foot_force()[:, 2].sum() == pytest.approx(9.81 * robot.mass, rel=0.01)


@needs_robots
def test_cassie_is_refused_with_its_loops_named(public, tmp_path):
    description = described(trunk="cassie-pelvis")
    description["model"] = str(SHARED / "agility_cassie" / "scene.xml")
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(description))
    with pytest.raises(UserError, match="not a serial tree: closed by ") as caught:
        load_robot(path)
    assert "\n" not in str(caught.value)
    assert "`closed_chain`" in str(caught.value)


# --- the identity


@pytest.mark.parametrize("variant", [Variant.S3N_ACT, Variant.S3N_FULL])
def test_with_a_motor_at_each_joint_every_variant_is_kin_only(load, variant):
    robot = load()
    ours = normalize(robot, SimulationConfig(variant=variant))
    kin = normalize(robot, SimulationConfig(variant=Variant.KIN_ONLY))
    assert not ours.uses_lag
    np.testing.assert_array_equal(ours.model.dof_armature, kin.model.dof_armature)
    np.testing.assert_array_equal(ours.model.dof_damping, kin.model.dof_damping)
    np.testing.assert_array_equal(robot.actuator_map, np.eye(4))


def test_a_diagonal_linkage_is_the_identity_of_a_gear(load):
    """A pair whose Jacobian is diagonal couples nothing; a motor may yet turn faster than it."""
    description = described(linkages={"straight": {"jacobian": [[1.0, 0.0], [0.0, 1.0]]}})
    for leg in description["legs"]:
        names = [entry["joint"] for entry in leg["joints"]]
        leg["pair"] = {"proximal": names[0], "distal": names[1], "linkage": "straight"}
    moves_like(load(description), load(), 0.0)


@pytest.mark.parametrize("key", ["held", "passive"])
def test_a_misspelt_joint_is_said(load, key):
    with pytest.raises(
        UserError, match=f"{key}: no joint named 'sholder'.*did you mean 'shoulder'"
    ):
        load(described(**{key: ["sholder"]}), arm=ARM)


def test_a_joint_listed_twice_is_said(load):
    with pytest.raises(UserError, match="held: joint l_hip is listed twice"):
        load(described(held=["l_hip"]))


def test_includes_resolve(load, tmp_path):
    (tmp_path / "part.xml").write_text(f"<mujocoinclude>{ARM}</mujocoinclude>")
    robot = load(described(held=["shoulder"]), arm='<include file="part.xml"/>')
    moves_like(robot, load(described(held=["shoulder"]), arm=ARM), 0.0)
    assert load_spec(tmp_path / "robot.xml").body("arm") is not None


# --- the closed chain's file


def test_a_closed_chain_of_the_same_making(tmp_path, robot):
    """Motors' inertia at the actuators, no floor, one more joint that is held: the same answer."""
    bundled = bundled_robot().parent
    found = []
    for theirs in (False, True):
        folder = tmp_path / str(theirs)
        folder.mkdir()
        description = yaml.safe_load(bundled_robot().read_text())
        for name in ("serial.xml", "closed_chain.xml"):
            spec = load_spec(bundled / name)
            if theirs:
                _strange(spec, own_armature=name == "closed_chain.xml")
            spec.compile()
            (folder / name).write_text(spec.to_xml())
        if theirs:
            description |= {"held": ["tail"]}
            del description["floor"]
        (folder / "robot.yaml").write_text(yaml.safe_dump(description))
        loaded = load_robot(folder)
        plant = ClosedChain(loaded, 0.003)
        plant.reset(loaded.home_joints, loaded.home_joints, loaded.home_qpos[:7])
        samples = plant.run(standing_target(loaded), 100)
        found.append((samples.joint_position[-1], samples.foot_force[-1].sum(axis=0)))
    np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-4)
    assert found[1][1][2] == pytest.approx(9.81 * robot.mass, rel=0.1)


def _strange(spec: mujoco.MjSpec, own_armature: bool) -> None:
    spec.delete(spec.geom("floor"))
    tail = spec.body("trunk").add_body(name="tail", pos=[-0.2, 0, 0])
    tail.add_joint(name="tail", axis=[0, 1, 0])
    tail.explicitinertial = True
    tail.mass, tail.ipos, tail.inertia = 1e-6, [0, 0, 0], [1e-9] * 3
    for key in spec.keys:
        key.qpos = np.insert(np.array(key.qpos), _after_the_trunk(spec), 0.0)
    if own_armature:
        for actuator in spec.actuators:
            joint = spec.joint(actuator.target)
            value = float(spec.compile().joint(joint.name).armature[0])
            actuator.armature, joint.armature = value, 0.0


def _after_the_trunk(spec: mujoco.MjSpec) -> int:
    """Where the tail's angle stands in qpos."""
    bare = [key.qpos for key in spec.keys]
    for key in spec.keys:
        key.qpos = []
    index = int(spec.compile().joint("tail").qposadr[0])
    for key, qpos in zip(spec.keys, bare, strict=True):
        key.qpos = qpos
    return index


# --- what only shows in motion


def test_a_trunk_behind_other_joints_is_refused(load):
    """Attitude and height are read from the beginning of qpos."""
    door = '<body name="door"><joint name="hinge" axis="0 0 1"/><geom size=".1" mass="1"/></body>'
    with pytest.raises(UserError, match=r"joints of other bodies come before 'box'.*put the"):
        load(described(passive=["hinge"]), other=door)


def test_a_held_joint_behind_a_loose_one_is_refused(load):
    wrist = ARM.replace(
        'armature="0.01"/>', '/><joint name="b" axis="0 1 0"/><joint name="c" axis="0 0 1"/>'
    )
    for held, passive in ((["b"], ["shoulder", "c"]), (["c"], ["shoulder", "b"])):
        with pytest.raises(UserError, match=f"held: {held[0]} is turned by .* on the same body"):
            load(described(held=held, passive=passive), arm=wrist)
    assert load(described(held=["shoulder"], passive=["b", "c"]), arm=wrist).held == {"shoulder": 0}


def test_a_foot_that_an_exclude_lets_through_the_floor_is_refused(load):
    exclude = '<contact><exclude body1="world" body2="l_shank"/></contact>'
    with pytest.raises(UserError, match="'l_foot' cannot touch floor 'ground'"):
        load(end=exclude)
    with pytest.raises(UserError, match="disables contact by <flag>"):
        load(end='<option><flag contact="disable"/></option>')


@pytest.mark.parametrize("joint", ['range="-2 2" stiffness="40"', 'range="-2 2" springref="0.4"'])
def test_springs_of_driven_joints_are_in_the_standing_target(load, joint):
    stands(load(joint=joint))


def test_compensated_weight_stays_compensated(load):
    """Also where MuJoCo lets the actuator do it, which is gone here."""
    for how in ("", 'actuatorgravcomp="true"'):
        arm = ARM.replace('name="arm"', 'name="arm" gravcomp="1"')
        arm = arm.replace('armature="0.01"', how).replace('axis="1 0 0"', 'axis="0 1 0"')
        robot = load(described(passive=["shoulder"]), arm=arm)
        model = normalize(robot, SimulationConfig()).model
        data = mujoco.MjData(model)
        data.qpos[:] = robot.home_qpos
        data.qpos[-1] = 0.5
        mujoco.mj_forward(model, data)
        assert data.qfrc_passive[-1] == pytest.approx(data.qfrc_bias[-1], abs=1e-9)
        assert abs(data.qfrc_bias[-1]) > 0.01


def test_home_follows_a_coupling(load):
    couple = '<equality><joint joint1="shoulder" joint2="l_hip" polycoef="0 2 0 0 0"/></equality>'
    robot = load(described(passive=["shoulder"]), arm=ARM, end=couple)
    assert robot.home_qpos[-1] == pytest.approx(0.6)
    home = described()["home"] | {"shoulder": 0.1}
    with pytest.raises(UserError, match=r"home: shoulder is at 0\.1, and equality .* at 0\.6"):
        load(described(passive=["shoulder"], home=home), arm=ARM, end=couple)


def test_the_laid_floor_is_not_a_default_of_the_robot(load):
    description = described()
    del description["floor"]
    default = '<default><geom friction="0.1 0 0" condim="1" margin="0.05"/></default>'
    robot = load(description, floor="", default=default)
    floor = robot.model.geom(robot.floor)
    np.testing.assert_allclose(floor.friction, [1.0, 0.005, 0.0001])
    assert (floor.condim[0], floor.margin[0]) == (3, 0.0)


def test_a_linkage_that_no_leg_uses_is_refused(load):
    """Its `pair` may have been left a comment."""
    with pytest.raises(UserError, match=r"linkages\.linkage: no leg has a `pair` with it"):
        load(described(linkages={"linkage": {"jacobian": [[1.0, 0.0], [1.0, 1.0]]}}))


def test_a_closed_chain_speaks_for_legs_without_a_pair_too(tmp_path):
    """A crank at the hip cannot be a knee's own motor."""
    description = yaml.safe_load(bundled_robot().read_text())
    del description["legs"][3]["pair"]
    for key in ("model", "closed_chain"):
        description[key] = str(bundled_robot().parent / description[key])
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(description))
    with pytest.raises(UserError, match="contradicts `jacobian` at the motor beside RR_"):
        ClosedChain(load_robot(tmp_path), 0.003)


def test_model_and_description_mixed_up(load, tmp_path):
    robot = load()
    with pytest.raises(UserError, match=r"robot\.xml: this is a model; give its description"):
        load_robot(tmp_path / "robot.xml")
    with pytest.raises(UserError, match=r"robot\.yaml: this is a description"):
        load_spec(robot.path)
