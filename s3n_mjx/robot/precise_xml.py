"""An MJCF written out with every digit; MuJoCo's own writer keeps six."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

import mujoco
import numpy as np

# Of the compiler: what would change masses that are stated in full already.
_MASS_RULES = ("inertiafromgeom", "settotalmass", "boundmass", "boundinertia", "balanceinertia")
_SIZED = {
    mujoco.mjtGeom.mjGEOM_PLANE: 3,
    mujoco.mjtGeom.mjGEOM_SPHERE: 1,
    mujoco.mjtGeom.mjGEOM_CAPSULE: 2,
    mujoco.mjtGeom.mjGEOM_ELLIPSOID: 3,
    mujoco.mjtGeom.mjGEOM_CYLINDER: 2,
    mujoco.mjtGeom.mjGEOM_BOX: 3,
}


def number(value: float) -> str:
    """The shortest text that reads back as the same double."""
    text = repr(float(value))
    return text.removesuffix(".0")


def _row(values: Iterable[float]) -> str:
    return " ".join(number(value) for value in values)


def precise_xml(spec: mujoco.MjSpec) -> ElementTree.Element:
    """``spec`` as XML whose poses, inertias, joints and keyframes are those of the compiled model.

    Masses that the MJCF let MuJoCo infer from geoms are stated. What stands inside a `<frame>`
    keeps MuJoCo's six digits in its pose.

    Args:
        spec: every body, joint, geom and keyframe has a name.
    """
    model = spec.compile()
    root = ElementTree.fromstring(spec.to_xml())
    compiler = root.find("compiler")
    bodies = list(root.iter("body"))
    whole = len(bodies) == model.nbody - 1  # else static bodies were fused with their parents
    if compiler is not None and whole:
        for rule in _MASS_RULES:
            compiler.attrib.pop(rule, None)
    framed = {id(child) for frame in root.iter("frame") for child in frame}
    for element in bodies:
        _write_body(element, model, whole, id(element) in framed)
    world = root.find("worldbody")
    assert world is not None
    for element in world.iter("joint"):
        _write_joint(element, model, id(element) in framed)
    for element in world.iter("geom"):
        if id(element) not in framed:
            _write_geom(element, model)
    for element in root.iter("key"):
        key = model.key(element.get("name"))
        for attribute, values in (("qpos", key.qpos), ("ctrl", key.ctrl)):
            if attribute in element.attrib:
                element.set(attribute, _row(values))
    return root


def _write_body(
    element: ElementTree.Element, model: mujoco.MjModel, whole: bool, framed: bool
) -> None:
    body = model.body(element.get("name"))
    if not framed:
        element.set("pos", _row(body.pos))
        element.set("quat", _row(body.quat))
    if not whole or body.mass[0] == 0.0:
        return
    inertial = element.find("inertial")
    if inertial is None:
        inertial = ElementTree.Element("inertial")
        element.insert(0, inertial)
    inertial.attrib.clear()
    inertial.set("pos", _row(body.ipos))
    inertial.set("quat", _row(body.iquat))
    inertial.set("mass", number(body.mass[0]))
    inertial.set("diaginertia", _row(body.inertia))


def _write_joint(element: ElementTree.Element, model: mujoco.MjModel, framed: bool) -> None:
    name = element.get("name")
    if name is None or element.get("type") == "free":
        return
    joint = model.joint(name)
    dof = int(joint.dofadr[0])
    hinge_or_slide = model.jnt_type[joint.id] in (
        int(mujoco.mjtJoint.mjJNT_HINGE),
        int(mujoco.mjtJoint.mjJNT_SLIDE),
    )
    if not hinge_or_slide:
        return
    if not framed:
        element.set("pos", _row(joint.pos))
        element.set("axis", _row(joint.axis))
    if model.jnt_limited[joint.id]:
        element.set("range", _row(joint.range))
    for attribute, value in (
        ("ref", float(model.qpos0[joint.qposadr[0]])),
        ("armature", float(model.dof_armature[dof])),
        ("frictionloss", float(model.dof_frictionloss[dof])),
        ("damping", float(model.dof_damping[dof])),
        ("stiffness", float(joint.stiffness[0])),
        ("springref", float(model.qpos_spring[joint.qposadr[0]])),
    ):
        # Written where it is not nothing, or where a default class would say otherwise.
        if " " not in element.get(attribute, "") and (value or attribute in element.attrib):
            element.set(attribute, number(value))


def _write_geom(element: ElementTree.Element, model: mujoco.MjModel) -> None:
    geom = model.geom(element.get("name"))
    kind = mujoco.mjtGeom(model.geom_type[geom.id])
    if kind not in _SIZED or "mesh" in element.attrib:
        return  # a mesh is moved to its own centre when it is compiled
    element.attrib.pop("fromto", None)
    element.set("pos", _row(geom.pos))
    element.set("quat", _row(geom.quat))
    element.set("size", _row(np.array(geom.size)[: _SIZED[kind]]))
