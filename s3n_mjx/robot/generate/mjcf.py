"""The MJCF of both models: bodies, joints, visuals, contacts, loops, home pose."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import mujoco
import numpy as np

from s3n_mjx.robot.generate.inertia import home_height, serial_hip_body, serial_torque_limits
from s3n_mjx.robot.generate.parameters import HEADER, LEGS, Parameters

_Attribute = str | float | Sequence[float] | np.ndarray


def number(value: float) -> str:
    """Ten significant digits, without `-0` and without rounding dirt such as 1e-18."""
    value = float(value)
    return f"{0.0 if abs(value) < 1e-12 else value:.10g}"


def _text(value: _Attribute) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return number(value)
    return " ".join(number(v) for v in value)


def _add(parent: ET.Element, tag: str, **attributes: _Attribute) -> ET.Element:
    """A child element; a trailing `_` (as in `class_`) only keeps clear of Python's keywords."""
    return ET.SubElement(parent, tag, {k.rstrip("_"): _text(v) for k, v in attributes.items()})


def _note(parent: ET.Element, text: str) -> None:
    parent.append(ET.Comment(f" {text} "))


def _between(p1: tuple[float, ...], p2: tuple[float, ...]) -> str:
    return f"{_text(p1)} {_text(p2)}"


def _assets(root: ET.Element) -> None:
    visual = _add(root, "visual")
    _add(visual, "headlight", ambient=(0.35,) * 3, diffuse=(0.45,) * 3, specular=(0.1,) * 3)
    _add(visual, "rgba", haze="0.80 0.86 0.92 1")
    _add(visual, "global", azimuth=130, elevation=-18, offwidth=1920, offheight=1080)
    _add(visual, "quality", shadowsize=2048)
    _add(visual, "map", znear=0.02, shadowclip=2)
    _add(root, "statistic", extent=0.9, center=(0, 0, 0.25))

    asset = _add(root, "asset")
    _add(
        asset,
        "texture",
        name="sky",
        type="skybox",
        builtin="gradient",
        rgb1="0.55 0.70 0.86",
        rgb2="0.93 0.95 0.97",
        width=512,
        height=3072,
    )
    _add(
        asset,
        "texture",
        name="checker",
        type="2d",
        builtin="checker",
        mark="edge",
        rgb1="0.62 0.66 0.70",
        rgb2="0.55 0.59 0.63",
        markrgb="0.80 0.82 0.84",
        width=512,
        height=512,
    )
    _add(
        asset,
        "material",
        name="floor",
        texture="checker",
        texrepeat=(2, 2),
        texuniform="true",
        shininess=0.1,
        specular=0.1,
    )
    for name, rgba, specular, shininess in (
        ("shell", "0.90 0.91 0.92 1", 0.5, 0.5),
        ("frame", "0.20 0.22 0.25 1", 0.3, 0.3),
        ("motor", "0.11 0.12 0.14 1", 0.6, 0.5),
        ("accent", "0.95 0.47 0.13 1", 0.4, 0.5),
        ("metal", "0.66 0.69 0.73 1", 0.9, 0.8),
        ("rubber", "0.06 0.06 0.07 1", 0.05, 0.05),
        ("lens", "0.05 0.12 0.20 1", 1.0, 1.0),
    ):
        _add(asset, "material", name=name, rgba=rgba, specular=specular, shininess=shininess)


def _defaults(root: ET.Element, p: Parameters, *, closed: bool) -> None:
    limits, motor = p.joint_limits, p.motor
    top = _add(root, "default")

    _note(top, "Motor inertia and damping, N^2 times the rotor's, on the joints the motors turn.")
    driven = _add(top, "default", class_="drive")
    _add(driven, "joint", armature=motor.reflected_inertia, damping=motor.reflected_damping)
    _add(_add(driven, "default", class_="abduction"), "joint", axis="1 0 0", range=limits.abduction)
    _add(_add(driven, "default", class_="hip"), "joint", axis="0 1 0", range=limits.hip)
    if closed:
        _add(_add(driven, "default", class_="crank"), "joint", axis="0 1 0")
        _note(top, "Passive joints of the linkage: no motor, so neither armature nor damping.")
        passive = _add(top, "default", class_="passive")
        _add(passive, "joint", axis="0 1 0")
        _add(_add(passive, "default", class_="knee"), "joint", range=limits.knee)
    else:
        _add(_add(driven, "default", class_="knee"), "joint", axis="0 1 0", range=limits.knee)

    _note(
        top,
        "Only floor-foot and floor-trunk can touch: the floor's contype meets their "
        "conaffinity, and nothing else has both.",
    )
    shape = _add(top, "default", class_="visual")
    _add(shape, "geom", group="2", contype="0", conaffinity="0", mass="0", material="frame")
    body = _add(top, "default", class_="trunk_collision")
    _add(body, "geom", group="3", contype="0", conaffinity="1", condim="1", mass="0")
    _note(top, "Priority: friction and condim of a contact are the foot's, whatever the floor has.")
    foot = _add(top, "default", class_="foot")
    _add(
        foot,
        "geom",
        type="sphere",
        size=p.geometry.foot_radius,
        group="2",
        contype="0",
        conaffinity="1",
        condim="3",
        priority="1",
        friction=(p.foot_friction, 0.005, 0.0001),
        mass="0",
        material="rubber",
    )
    _add(_add(top, "default", class_="marker"), "site", group="4", size=0.005)


def _visual(body: ET.Element, **attributes: _Attribute) -> None:
    _add(body, "geom", class_="visual", **attributes)


def _trunk(world: ET.Element, p: Parameters) -> ET.Element:
    g, (length, width, height) = p.geometry, p.trunk.size
    trunk = _add(world, "body", name="trunk", pos=(0, 0, home_height(p)))
    _add(trunk, "freejoint", name="root")
    _add(trunk, "inertial", pos=p.trunk.com, mass=p.trunk.mass, diaginertia=p.trunk.inertia)
    _add(
        trunk,
        "geom",
        name="trunk_collision",
        class_="trunk_collision",
        type="capsule",
        fromto=_between((-0.36 * length, 0, 0), (0.36 * length, 0, 0)),
        size=height / 2,
    )
    _add(trunk, "site", name="imu", class_="marker", pos="0 0 0")
    _add(
        trunk,
        "camera",
        name="track",
        mode="trackcom",
        pos="0.70 -0.85 0.25",
        xyaxes="0.85 0.70 0 -0.2 0.25 1.25",
        fovy="45",
    )
    _add(
        trunk,
        "light",
        name="sun",
        mode="trackcom",
        type="directional",
        pos="0.5 -0.8 3",
        dir="-0.25 0.35 -1",
        diffuse="0.55 0.55 0.53",
        specular="0.2 0.2 0.2",
    )

    # Shell, deck and rails between the two shoulder blocks that hold the abduction motors.
    _visual(trunk, type="box", size=(0.36 * length, 0.30 * width, 0.40 * height), material="shell")
    for side in (1, -1):
        y = side * 0.30 * width
        _visual(
            trunk,
            type="capsule",
            size=0.32 * height,
            material="shell",
            fromto=_between((-0.33 * length, y, 0), (0.33 * length, y, 0)),
        )
        _visual(
            trunk,
            type="box",
            size=(0.22 * length, 0.006, 0.10 * height),
            material="accent",
            pos=(0, side * (0.30 * width + 0.30 * height), 0),
        )
    _visual(
        trunk,
        type="box",
        size=(0.24 * length, 0.20 * width, 0.06 * height),
        pos=(-0.03 * length, 0, 0.42 * height),
    )
    for end in (1, -1):
        _visual(
            trunk,
            type="box",
            size=(0.022, 0.40 * width, 0.42 * height),
            pos=(end * (g.abduction_x - 0.045), 0, 0),
        )
    _visual(
        trunk,
        type="box",
        size=(0.022, 0.22 * width, 0.30 * height),
        material="shell",
        pos=(g.abduction_x + 0.012, 0, 0.02 * height),
    )
    for side in (1, -1):
        x, y, z = g.abduction_x + 0.034, side * 0.11 * width, 0.10 * height
        _visual(
            trunk,
            type="cylinder",
            size=0.011,
            material="lens",
            fromto=_between((x - 0.003, y, z), (x + 0.003, y, z)),
        )
    return trunk


def _leg(trunk: ET.Element, p: Parameters, leg: str, *, closed: bool) -> None:
    g, links = p.geometry, p.links
    front, side = LEGS[leg]
    outside = side * 0.034  # the linkage is drawn beside the leg plane; its dynamics are in it

    _note(trunk, f"{leg}: {'front' if front > 0 else 'rear'} {'left' if side > 0 else 'right'}")
    hip = _add(
        trunk, "body", name=f"{leg}_hip_body", pos=(front * g.abduction_x, side * g.abduction_y, 0)
    )
    if closed:
        _add(
            hip,
            "inertial",
            pos=(0, side * links.hip.com, 0),
            mass=links.hip.mass,
            diaginertia=links.hip.inertia,
        )
    else:
        mass, com, i = serial_hip_body(p, side)
        _note(hip, "With the mass of crank and coupler, held in the home posture.")
        _add(
            hip,
            "inertial",
            pos=com,
            mass=mass,
            fullinertia=(i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]),
        )
    _add(hip, "joint", name=f"{leg}_abduction", class_="abduction")
    inner, outer = side * 0.010, side * (g.thigh_offset - 0.030)
    _visual(
        hip,
        type="cylinder",
        size=0.036,
        material="motor",
        fromto=_between((-front * 0.030, 0, 0), (front * 0.030, 0, 0)),
    )
    _visual(
        hip,
        type="cylinder",
        size=0.025,
        material="metal",
        fromto=_between((front * 0.030, 0, 0), (front * 0.034, 0, 0)),
    )
    _visual(
        hip,
        type="cylinder",
        size=0.046,
        material="motor",
        fromto=_between((0, inner, 0), (0, outer, 0)),
    )
    _visual(
        hip,
        type="cylinder",
        size=0.047,
        material="accent",
        fromto=_between((0, outer - side * 0.012, 0), (0, outer - side * 0.007, 0)),
    )

    thigh = _add(hip, "body", name=f"{leg}_thigh", pos=(0, side * g.thigh_offset, 0))
    _add(
        thigh,
        "inertial",
        pos=(0, 0, -links.thigh.com),
        mass=links.thigh.mass,
        diaginertia=links.thigh.inertia,
    )
    _add(thigh, "joint", name=f"{leg}_hip", class_="hip")
    knee = -g.thigh_length
    _visual(
        thigh,
        type="cylinder",
        size=0.040,
        material="shell",
        fromto=_between((0, -side * 0.026, 0), (0, side * 0.022, 0)),
    )
    _visual(
        thigh,
        type="cylinder",
        size=0.022,
        material="metal",
        fromto=_between((0, side * 0.022, 0), (0, side * 0.026, 0)),
    )
    _visual(
        thigh,
        type="ellipsoid",
        size=(0.034, 0.024, 0.46 * g.thigh_length),
        material="shell",
        pos=(0, 0, 0.40 * knee),
    )
    _visual(
        thigh,
        type="capsule",
        size=0.0185,
        material="shell",
        fromto=_between((0, 0, 0.3 * knee), (0, 0, knee)),
    )
    _visual(
        thigh,
        type="cylinder",
        size=0.023,
        material="frame",
        fromto=_between((0, -0.022, knee), (0, 0.022, knee)),
    )

    shank = _add(thigh, "body", name=f"{leg}_shank", pos=(0, 0, knee))
    _add(
        shank,
        "inertial",
        pos=(0, 0, -links.shank.com),
        mass=links.shank.mass,
        diaginertia=links.shank.inertia,
    )
    _add(shank, "joint", name=f"{leg}_knee", class_="knee")
    _visual(
        shank,
        type="capsule",
        size=0.0145,
        fromto=_between((0, 0, 0), (0, 0, -0.55 * g.shank_length)),
    )
    _visual(
        shank,
        type="capsule",
        size=0.0105,
        fromto=_between((0, 0, -0.5 * g.shank_length), (0, 0, -g.shank_length)),
    )
    _visual(
        shank,
        type="capsule",
        size=0.0075,
        material="metal",
        fromto=_between((0, outside, 0), (0, outside, -g.crank_radius)),
    )
    _visual(
        shank,
        type="cylinder",
        size=0.006,
        material="metal",
        fromto=_between((0, 0, 0), (0, outside, 0)),
    )
    _add(shank, "geom", name=f"{leg}_foot", class_="foot", pos=(0, 0, -g.shank_length))

    if closed:
        _add(shank, "site", name=f"{leg}_lever_pin", class_="marker", pos=(0, 0, -g.crank_radius))
        crank = _add(hip, "body", name=f"{leg}_crank_body", pos=(0, side * g.thigh_offset, 0))
        _add(
            crank,
            "inertial",
            pos=(0, 0, -links.crank.com),
            mass=links.crank.mass,
            diaginertia=links.crank.inertia,
        )
        _add(crank, "joint", name=f"{leg}_crank", class_="crank", limited="false")
        _visual(
            crank,
            type="cylinder",
            size=0.020,
            material="accent",
            fromto=_between((0, outside - side * 0.006, 0), (0, outside + side * 0.006, 0)),
        )
        _visual(
            crank,
            type="capsule",
            size=0.009,
            material="accent",
            fromto=_between((0, outside, 0), (0, outside, -g.crank_radius)),
        )
        coupler = _add(crank, "body", name=f"{leg}_coupler_body", pos=(0, 0, -g.crank_radius))
        _add(
            coupler,
            "inertial",
            pos=(0, 0, -links.coupler.com),
            mass=links.coupler.mass,
            diaginertia=links.coupler.inertia,
        )
        _add(coupler, "joint", name=f"{leg}_coupler", class_="passive", limited="false")
        bar = outside + side * 0.012
        _visual(
            coupler,
            type="capsule",
            size=0.0065,
            material="metal",
            fromto=_between((0, bar, 0), (0, bar, -g.thigh_length)),
        )
        _add(
            coupler, "site", name=f"{leg}_coupler_end", class_="marker", pos=(0, 0, -g.thigh_length)
        )


def _home_key(root: ET.Element, p: Parameters, *, closed: bool) -> None:
    hip, knee = p.home.hip, p.home.knee
    leg = [0.0, hip, knee]
    if closed:
        leg += [hip + knee, -knee]  # crank parallel to the shank, coupler parallel to the thigh
    keyframe = _add(root, "keyframe")
    _add(keyframe, "key", name="home", qpos=[0, 0, home_height(p), 1, 0, 0, 0, *(leg * len(LEGS))])


def _actuators(root: ET.Element, limits: dict[str, float]) -> None:
    actuator = _add(root, "actuator")
    for leg in LEGS:
        for joint, limit in limits.items():
            bounds = (-limit, limit)
            _add(
                actuator,
                "motor",
                name=f"{leg}_{joint}",
                joint=f"{leg}_{joint}",
                gear="1",
                ctrlrange=bounds,
                forcerange=bounds,
            )


def _model(p: Parameters, *, closed: bool) -> ET.Element:
    root = ET.Element("mujoco", model=p.name + ("_closed_chain" if closed else ""))
    _add(root, "compiler", angle="radian", autolimits="true", inertiafromgeom="false")
    if closed:
        _add(
            root,
            "option",
            timestep=p.timestep.closed_chain,
            integrator="implicitfast",
            solver="Newton",
            cone="pyramidal",
            iterations="50",
            ls_iterations="50",
            tolerance="1e-12",
        )
    else:
        _add(
            root,
            "option",
            timestep=p.timestep.serial,
            integrator="Euler",
            solver="Newton",
            cone="pyramidal",
            iterations="4",
            ls_iterations="8",
        )
    _assets(root)
    _defaults(root, p, closed=closed)
    world = _add(root, "worldbody")
    _add(
        world,
        "geom",
        name="floor",
        type="plane",
        size="0 0 0.05",
        material="floor",
        contype="1",
        conaffinity="0",
        condim="1",
        friction=(p.foot_friction, 0.005, 0.0001),
    )
    trunk = _trunk(world, p)
    for leg in LEGS:
        _leg(trunk, p, leg, closed=closed)
    if closed:
        equality = _add(root, "equality")
        _note(equality, "The loops. Time constant: the shortest MuJoCo allows, two steps.")
        for leg in LEGS:
            _add(
                equality,
                "connect",
                name=f"{leg}_loop",
                site1=f"{leg}_coupler_end",
                site2=f"{leg}_lever_pin",
                solref=(2 * p.timestep.closed_chain, 1),
                solimp="0.999 0.9999 0.001",
            )
        limit = p.motor.torque_limit
        _actuators(root, {"abduction": limit, "hip": limit, "crank": limit})
    else:
        _actuators(
            root, dict(zip(("abduction", "hip", "knee"), serial_torque_limits(p), strict=True))
        )
    _home_key(root, p, closed=closed)
    return root


def _xml(root: ET.Element) -> str:
    ET.indent(root)
    return f"<!-- {HEADER} -->\n{ET.tostring(root, encoding='unicode')}\n"


def serial_xml(p: Parameters) -> str:
    """MJCF of the serial model, in its `kin_only` form (S3N paper, Eq. 11)."""
    return _xml(_model(p, closed=False))


def closed_chain_xml(p: Parameters) -> str:
    """MJCF of the model with the linkage: crank and coupler as bodies, closed by `connect`."""
    return _xml(_model(p, closed=True))


def serial_spec(p: Parameters) -> mujoco.MjSpec:
    """The serial model, not yet compiled."""
    return mujoco.MjSpec.from_string(serial_xml(p))


def closed_chain_spec(p: Parameters) -> mujoco.MjSpec:
    """The closed-chain model, not yet compiled."""
    return mujoco.MjSpec.from_string(closed_chain_xml(p))
