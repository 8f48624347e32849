"""A survey of an MJCF in words, for the terminal."""

from __future__ import annotations

from s3n_mjx.evaluation.report import text_table
from s3n_mjx.robot.draft import open_questions
from s3n_mjx.robot.survey import ActuatorSeen, JointSeen, LegSeen, Survey
from s3n_mjx.simulation.support import MANY_CONTACTS

FEET_ALONE = "with `collisions: feet` in the description nothing but feet and floor touch"


def as_text(survey: Survey) -> str:
    """Everything that a person wants to know before describing the robot."""
    paragraphs = [_summary(survey), _joints(survey), _legs(survey), _actuators(survey)]
    paragraphs.append(_mjx(survey))
    for title, lines in (
        ("looks like a mistake", survey.doubtful),
        ("in the way of a robot description", survey.missing),
    ):
        if lines:
            paragraphs.append("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    if not survey.missing:
        paragraphs.append(
            "`robot new` writes a description of it, and asks for what the file cannot tell:"
            f" {', '.join(open_questions(survey))}"
        )
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _summary(survey: Survey) -> str:
    lines = [
        f"{survey.file}: {survey.mass:.2f} kg, {survey.nv} degrees of freedom",
        f"trunk: {survey.trunk or 'none (no free joint)'}",
        f"floor: {', '.join(survey.floors) or 'none; a plane is laid under the robot'}",
        f"keyframes: {', '.join(survey.keyframes) or 'none; the description gives `home`'}",
    ]
    if survey.loops:
        lines.append(f"loops, closed by: {', '.join(survey.loops)}")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.4g}" if value else "0"


def _limit(value: float | None) -> str:
    return "-" if value is None else _number(value)


def _joint_row(joint: JointSeen) -> tuple[str, ...]:
    return (
        joint.name,
        joint.type,
        " ".join(f"{x:+.2f}" for x in joint.axis) if joint.type in ("hinge", "slide") else "-",
        "-" if joint.range is None else f"{joint.range[0]:.2f} to {joint.range[1]:.2f}",
        _number(joint.reference) if joint.type in ("hinge", "slide") else "-",
        _number(joint.armature),
        _number(joint.damping),
        _number(joint.frictionloss),
        _number(joint.stiffness),
    )


def _joints(survey: Survey) -> str:
    header = (
        "joint",
        "type",
        f"axis, world, at {survey.posture}",
        "range",
        "ref",
        "armature",
        "damping",
        "friction",
        "stiffness",
    )
    return text_table(header, [_joint_row(joint) for joint in survey.joints], left=2)


def _leg_lines(leg: LegSeen) -> list[str]:
    lines = [
        f"leg {leg.name}: {', '.join(leg.joints)}; foot {leg.foot} ({leg.foot_type}),"
        f" lowest point at {leg.foot_height:+.3f} m"
    ]
    for pair in leg.pairs:
        kind = "parallel" if pair.parallel else "antiparallel"
        row = ", ".join(f"{x:g}" for x in pair.absolute_row)
        lines.append(
            f"  {pair.proximal} and {pair.distal} are {kind}: a linkage whose second motor"
            f" turns the distal link's absolute angle has the Jacobian [[1, 0], [{row}]]"
        )
    return lines


def _legs(survey: Survey) -> str:
    lines = [line for leg in survey.legs for line in _leg_lines(leg)]
    if any(leg.pairs for leg in survey.legs):
        lines.append(
            "whether a pair shares a linkage at all the file cannot tell; where each joint has a"
            " motor of its own the Jacobian is the identity, and the pair is left out"
        )
    if survey.held_joints:
        lines.append(f"driven joints of no leg: {', '.join(survey.held_joints)}")
    if survey.passive_joints:
        lines.append(f"joints that nothing drives: {', '.join(survey.passive_joints)}")
    return "\n".join(lines)


def _actuator_row(actuator: ActuatorSeen) -> tuple[str, ...]:
    return (
        actuator.name,
        actuator.joint or "no joint",
        actuator.type,
        _number(actuator.gear),
        _number(actuator.kp),
        _number(actuator.kd),
        _limit(actuator.torque_limit),
    )


def _actuators(survey: Survey) -> str:
    if not survey.actuators:
        return "no actuators"
    header = ("actuator", "drives", "type", "gear", "kp", "kd", "torque limit")
    table = text_table(header, [_actuator_row(a) for a in survey.actuators], left=3)
    return f"{table}\nat the joint, gear included: kp in N m/rad, kd in N m s/rad, limit in N m"


def _mjx(survey: Survey) -> str:
    lines = [f"MJX refuses it: {line}" for line in survey.refused]
    if any("collision" in line for line in survey.refused):
        lines.append(f"  {FEET_ALONE}")
    lines += [
        f"MJX drops without a word, and the loader counts at the joint: {line}"
        for line in survey.converted
    ]
    if survey.contacts is not None:
        lines.append(
            f"MJX takes it, with up to {survey.contacts} contacts and {survey.constraint_rows}"
            " constraint rows in an environment (the bundled robot: 6 and 30)"
        )
        if survey.contacts > MANY_CONTACTS:
            lines.append(
                f"  beyond {MANY_CONTACTS} they cost more than everything else; {FEET_ALONE}"
            )
    return "\n".join(lines)
