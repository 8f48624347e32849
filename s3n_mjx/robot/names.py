"""A name for every body, joint, geom, actuator and keyframe of an MJCF, to point at."""

from __future__ import annotations

import mujoco


def check_names(spec: mujoco.MjSpec) -> None:
    """Read every name once: MuJoCo takes any bytes, Python only text.

    Raises:
        UnicodeDecodeError: a name is no UTF-8.
    """
    for elements in (
        *(spec.bodies, spec.joints, spec.geoms, spec.sites, spec.cameras, spec.lights),
        *(spec.actuators, spec.sensors, spec.tendons, spec.equalities, spec.pairs, spec.excludes),
        *(spec.keys, spec.meshes, spec.hfields, spec.materials, spec.textures),
    ):
        for element in elements:
            _ = element.name
    for actuator in spec.actuators:
        _ = actuator.target


def name_everything(spec: mujoco.MjSpec) -> None:
    """Name what has no name: by its body and its number there, `calf_geom2`, `base_free`.

    The same file always gets the same names. A name that is taken gets an underscore.

    Args:
        spec: changed in place.
    """
    for number, body in enumerate(spec.bodies):
        if not body.name:
            body.name = _free(f"body{number}", {b.name for b in spec.bodies})
    taken = {joint.name for joint in spec.joints}
    for body in spec.bodies:
        for number, joint in enumerate(body.joints):
            if not joint.name:
                free = joint.type == mujoco.mjtJoint.mjJNT_FREE
                word = "free" if free else _numbered("joint", number, len(body.joints))
                joint.name = _free(f"{body.name}_{word}", taken)
                taken.add(joint.name)
    taken = {geom.name for geom in spec.geoms}
    for body in spec.bodies:
        for number, geom in enumerate(body.geoms):
            if not geom.name:
                word = _numbered("geom", number, len(body.geoms))
                geom.name = _free(f"{body.name}_{word}", taken)
                taken.add(geom.name)
    taken = {actuator.name for actuator in spec.actuators}
    for number, actuator in enumerate(spec.actuators):
        if not actuator.name:
            actuator.name = _free(actuator.target or f"actuator{number}", taken)
            taken.add(actuator.name)

    taken = {key.name for key in spec.keys}
    for number, key in enumerate(spec.keys):
        if not key.name:
            key.name = _free(f"key{number}", taken)
            taken.add(key.name)


def _numbered(word: str, number: int, count: int) -> str:
    return f"{word}{number}" if count > 1 else word


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
