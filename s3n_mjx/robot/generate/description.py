"""Text of the robot description, `robot.yaml`, with comments for those who copy it."""

import yaml

from s3n_mjx.robot.generate.inertia import actuator_inertia, omitted_moment
from s3n_mjx.robot.generate.mjcf import number
from s3n_mjx.robot.generate.parameters import (
    CLOSED_CHAIN_FILE,
    HEADER,
    JACOBIAN,
    LEGS,
    SERIAL_FILE,
    Parameters,
)


def description(p: Parameters) -> str:
    """The text of `robot.yaml`.

    The linkage's inertia is that of `actuator_inertia`, rounded to the four significant digits that
    Eq. 31 of the S3N paper prints. (An identification gives no more, either.)
    """
    m11, m12, m22 = (f"{m:.4g}" for m in actuator_inertia(p))
    thigh, shank = (_yaml_float(float(f"{m:.6g}")) for m in omitted_moment(p))
    delay = _yaml_float(float(number(p.torque_delay * 1000)))  # 3.0, not 3.0000000000000004
    motor = p.motor
    jacobian = "[" + ", ".join("[" + ", ".join(f"{v:.1f}" for v in r) + "]" for r in JACOBIAN) + "]"
    text = f"""\
# {HEADER}
format: 1
name: {p.name}
model: {SERIAL_FILE}                 # MJCF of the serial model, relative to this file
closed_chain: {CLOSED_CHAIN_FILE}    # the same robot with its linkages; optional
trunk: trunk                      # body with the free joint
floor: floor                      # geom
home_keyframe: home
torque_delay_ms: {delay}              # command to torque

# Datasheet quantities at the rotor, SI; reflected inertia and damping are gear_ratio^2 times them.
# torque_limit [N m], kp [N m/rad] and kd [N m s/rad] are at the gear's output.
motors:
  drive:
    rotor_inertia: {_yaml_float(motor.rotor_inertia)}
    rotor_damping: {_yaml_float(motor.rotor_damping)}
    gear_ratio: {_yaml_float(motor.gear_ratio)}
    torque_limit: {_yaml_float(motor.torque_limit)}
    kp: {_yaml_float(motor.kp)}
    kd: {_yaml_float(motor.kd)}

linkages:
  parallelogram:
    # Actuator angles = jacobian @ [proximal, distal] joint angles.
    jacobian: {jacobian}
    # Total inertia of the leg with its motors, in actuator coordinates, kg m^2 (Eq. 31):
    # [[m11, m12 cos alpha], [m12 cos alpha, m22]].
    inertia: {{m11: {m11}, m12: {m12}, m22: {m22}}}
    angle_offset: 0.0             # rad, added to the distal joint's angle to give alpha
    # First moments along proximal and distal link of what the serial tree lacks, kg m; optional,
    # for --link-gravity.
    omitted_moment: [{thigh}, {shank}]

legs:
"""
    return text + "".join(_leg_description(leg) for leg in LEGS)


def _yaml_float(value: float) -> str:
    """A float that YAML 1.1 reads as one (it takes `2e-4`, without a point, for a string)."""
    return yaml.safe_dump(value, width=1000).splitlines()[0]


def _leg_description(leg: str) -> str:
    joints = "".join(
        f"      - {{joint: {leg}_{joint}, actuator: {leg}_{joint}, motor: drive{more}}}\n"
        for joint, more in (
            ("abduction", ""),
            ("hip", ""),
            ("knee", f", closed_chain_joint: {leg}_crank"),
        )
    )
    return (
        f"  - name: {leg}\n"
        f"    foot: {leg}_foot                 # geom\n"
        f"    joints:\n{joints}"
        f"    pair: {{proximal: {leg}_hip, distal: {leg}_knee, linkage: parallelogram}}\n"
        f"    randomized_links: [{leg}_thigh, {leg}_shank]\n"
    )
