"""A first `robot.yaml` from a survey: what the MJCF says is filled in, the rest is asked for.

A number that the file does not hold becomes TODO, which the loader refuses until it is answered: a
guessed rotor inertia or Jacobian would train for a robot that nobody has.
"""

from __future__ import annotations

import itertools
import json
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3n_mjx.errors import UserError
from s3n_mjx.robot.description import FORMAT, TODO
from s3n_mjx.robot.preparation import AFLOAT_M
from s3n_mjx.robot.survey import ActuatorSeen, JointSeen, LegSeen, Survey
from s3n_mjx.simulation.support import MANY_CONTACTS


@dataclass(frozen=True)
class _MotorType:
    """What the file knows of a joint's drive; None where it says nothing."""

    inertia: float | None
    damping: float
    limit: float | None
    kp: float | None
    kd: float | None


def draft(seen: Survey, out: Path | None = None) -> str:
    """Commented text of a robot description.

    Args:
        seen: the survey of the serial model's MJCF.
        out: where the description will lie; beside the MJCF by default.

    Raises:
        UserError: the file cannot be described; says what it lacks.
    """
    if seen.missing:
        raise UserError(f"{seen.file}: no robot to describe: {'; '.join(seen.missing)}")
    joints = {joint.name: joint for joint in seen.joints}
    actuators = {actuator.name: actuator for actuator in seen.actuators}
    types = _motor_types(seen.legs, joints, actuators)
    lines = [
        f"# Drafted from {seen.file.name} by `python -m s3n_mjx.robot new`. {TODO} stands where",
        "# the file says nothing and a guess would be another robot. SI units: kg m^2, N m, rad.",
        f"format: {FORMAT}",
        f"name: {_text('_'.join(seen.name.split()))}",
        f"model: {_text(_relative(seen.file, out))}  # MJCF of the serial model, relative to this"
        " file",
        "#closed_chain: FILE.xml  # MJCF of the real mechanism; optional, for eval and validate",
        f"trunk: {_text(seen.trunk or '')}  # body with the free joint",
        *_floor(seen),
        *_home(seen),
        *_collisions(seen),
        f"torque_delay_ms: {TODO}  # from command to torque; `identify actuator` measures it, 0 for"
        " none",
        "",
        "# At the rotor; reflected inertia and damping are gear_ratio^2 times them and replace the",
        "# joints' armature and damping. torque_limit, kp and kd are at the gear's output.",
        "motors:",
    ]
    for name, (motor, driven) in types.items():
        lines += _motor(name, motor, driven)
    lines += ["", *_linkages(seen.legs), "", "legs:"]
    name_of = {joint: name for name, (_, driven) in types.items() for joint in driven}
    for leg in seen.legs:
        lines += _leg(leg, name_of)
    lines += _other_joints(seen)
    return "\n".join(lines) + "\n"


def open_questions(seen: Survey) -> list[str]:
    """Keys that :func:`draft` leaves to be answered, each once."""
    keys = (line.split("#")[0].partition(":") for line in draft(seen).splitlines())
    return list(dict.fromkeys(key.strip() for key, _, value in keys if value.strip() == TODO))


def _text(value: str) -> str:
    """As YAML: quoted only where it has to be."""
    plain = value.replace("_", "").replace("-", "").replace(".", "").replace("/", "")
    safe = plain.isalnum() and not plain.isdigit() and value[0].isalpha()
    words = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
    return value if safe and value.lower() not in words else json.dumps(value)


def _relative(model: Path, out: Path | None) -> str:
    if out is None:
        return model.name
    return os.path.relpath(model.resolve(), out.resolve().parent)


def _floor(seen: Survey) -> list[str]:
    if not seen.floors:
        return ["# No floor in the file: a plane is laid under the robot."]
    others = f"; the world also has {', '.join(seen.floors[1:])}" if seen.floors[1:] else ""
    return [f"floor: {_text(seen.floors[0])}  # geom{others}"]


def _home(seen: Survey) -> list[str]:
    if seen.keyframes:
        others = [name for name in seen.keyframes if name != seen.posture]
        note = f"  # or {', '.join(others)}" if others else ""
        lines = [f"home_keyframe: {_text(seen.posture)}{note}"]
        gap = min(leg.foot_height for leg in seen.legs)
        if seen.floors and abs(gap) > AFLOAT_M:
            side = "above" if gap > 0 else "below"
            lines.append(
                f"# There the lowest foot is {1e3 * abs(gap):.0f} mm {side} the floor; the loader"
                " moves the trunk until it touches."
            )
        return lines
    angles = [f"  {_text(joint)}: {TODO}" for leg in seen.legs for joint in leg.joints]
    return [
        "# The posture to stand in, rad; the trunk is set down until the lowest foot touches.",
        "home:",
        *angles,
    ]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 96, initial_indent="# ", subsequent_indent="# ")


def _collisions(seen: Survey) -> list[str]:
    if any("collision" in line for line in seen.refused):
        return [
            *_comment(
                f"MJX has {'; '.join(seen.refused)}. `feet`: nothing but feet and floor touch,"
                " which MJX takes. `all`: once the MJCF is changed."
            ),
            f"collisions: {TODO}",
        ]
    if (seen.contacts or 0) > MANY_CONTACTS:
        return [
            *_comment(
                f"The MJCF allows {seen.contacts} contacts, which cost more than all else in a"
                " training. `feet`: nothing but feet and floor touch; `all`: as the MJCF has it."
            ),
            f"collisions: {TODO}",
        ]
    return ["collisions: all  # as the MJCF has it; or feet: nothing but feet and floor touch"]


def _other_joints(seen: Survey) -> list[str]:
    lines = []
    if seen.held_joints:
        lines += [
            "",
            "# Driven joints of no leg: welded at home. Those that the policy shall drive go under",
            "# `controlled`, as {joint, actuator, motor} like those of a leg.",
            f"held: [{', '.join(_text(name) for name in seen.held_joints)}]",
        ]
    if seen.passive_joints:
        lines += [
            "",
            "# Nothing in the file drives these; spring, damper and contact alone move them.",
            f"passive: [{', '.join(_text(name) for name in seen.passive_joints)}]",
        ]
    return lines


def _motor_types(
    legs: Sequence[LegSeen],
    joints: dict[str, JointSeen],
    actuators: dict[str, ActuatorSeen],
) -> dict[str, tuple[_MotorType, list[str]]]:
    """Motors that the file makes equal, by a name that their joints share."""
    groups: dict[_MotorType, list[str]] = {}
    for leg in legs:
        for name, driver in zip(leg.joints, leg.actuators, strict=True):
            joint = joints[name]
            if driver is None:
                motor = _MotorType(
                    joint.armature or None, joint.damping, joint.torque_limit, None, None
                )
            else:
                actuator = actuators[driver]
                own = actuator.type in ("position", "velocity")
                motor = _MotorType(
                    # MuJoCo adds an actuator's own armature and damping to the joint's.
                    inertia=joint.armature + actuator.armature or None,
                    damping=joint.damping + actuator.damping,
                    limit=actuator.torque_limit,
                    kp=actuator.kp if actuator.type == "position" else None,
                    kd=actuator.kd if own else None,
                )
            groups.setdefault(motor, []).append(name)
    leg_words = {word for leg in legs for word in _words(leg.name)}
    named: dict[str, tuple[_MotorType, list[str]]] = {}
    for number, (motor, driven) in enumerate(groups.items(), start=1):
        shared = set.intersection(*(set(_words(name)) for name in driven)) - leg_words - {"joint"}
        name = "_".join(word for word in _words(driven[0]) if word in shared)
        if len(driven) == 1 or not name or name in named:
            alone = "drive" if len(groups) == 1 else f"motor{number}"
            name = driven[0] if len(driven) == 1 else alone
        named[name] = motor, driven
    return named


def _words(name: str) -> list[str]:
    return [word for word in name.replace("-", "_").split("_") if word]


def _value(value: float | None) -> str:
    return TODO if value is None else repr(float(f"{value:.7g}"))


def _motor(name: str, motor: _MotorType, driven: list[str]) -> list[str]:
    shown = ", ".join(driven[:4]) + (", ..." if len(driven) > 4 else "")
    inertia = (
        "the joints have no armature"
        if motor.inertia is None
        else "armature of the file, taken as it is at the joint"
    )
    gains = "the file drives them by torque" if motor.kp is None else "built in"
    return [
        f"  {_text(name)}:  # {shown}",
        f"    rotor_inertia: {_value(motor.inertia)}  # {inertia}",
        f"    rotor_damping: {_value(motor.damping)}  # damping of the file; the motor's alone?",
        f"    gear_ratio: {'1.0' if motor.inertia is not None else TODO}",
        f"    torque_limit: {_value(motor.limit)}",
        f"    kp: {_value(motor.kp)}  # {gains}",
        f"    kd: {_value(motor.kd)}",
    ]


def _linkages(legs: Iterable[LegSeen]) -> list[str]:
    pairs = [pair for leg in legs for pair in leg.pairs]
    if not pairs:
        return [
            "# No leg has two parallel joints in a row, so no planar linkage can couple any.",
            "linkages: {}",
        ]
    rows = {pair.absolute_row for pair in pairs}
    return [
        *_comment(
            "The file cannot tell how the motors drive these pairs. Where each joint has a motor of"
            " its own: {}. Where both motors sit at the hip, and the second turns the distal link's"
            " absolute angle through a linkage, with the signs of these axes:"
        ),
        *(f"#   linkage: {{jacobian: [[1.0, 0.0], [{row[0]}, {row[1]}]]}}" for row in sorted(rows)),
        *_comment(
            "and the right `pair:` of every leg, below; motors and limits above are then the"
            " motors' own; the file has them at the joints. `identify leg` or `identify model` adds"
            " the inertia."
        ),
        f"linkages: {TODO}",
    ]


def _leg(leg: LegSeen, motor_of: dict[str, str]) -> list[str]:
    lines = [
        f"  - name: {_text(leg.name)}",
        f"    foot: {_text(leg.foot)}  # geom, {leg.foot_type}",
        "    joints:",
    ]
    for joint, actuator in zip(leg.joints, leg.actuators, strict=True):
        driver = f" actuator: {_text(actuator)}," if actuator else ""
        lines.append(f"      - {{joint: {_text(joint)},{driver} motor: {_text(motor_of[joint])}}}")
    for pair in leg.pairs:
        lines.append(
            f"    #pair: {{proximal: {_text(pair.proximal)},"
            f" distal: {_text(pair.distal)}, linkage: linkage}}"
        )
    links = ", ".join(_text(link) for link in itertools.islice(leg.links, 1, None))
    lines.append(f"    randomized_links: [{links}]")
    return lines
