"""Inertia, limits and height that follow from the parameters, in closed form."""

from math import cos

import numpy as np

from s3n_mjx.robot.generate.parameters import JACOBIAN, Parameters


def actuator_inertia(p: Parameters) -> tuple[float, float, float]:
    """`M11, M12, M22` of a leg with its linkage and motors, in [kg m^2].

    The inertia in actuator coordinates (thigh angle, crank angle) is
    `[[M11, M12 cos q_knee], [M12 cos q_knee, M22]]` (S3N paper, Eq. 31). Thigh and coupler turn
    with the first angle, shank and crank with the second. The crank carries the coupler's start,
    the thigh carries the shank's (the knee); those two transports give the coupling.
    """
    links, g, motor = p.links, p.geometry, p.motor
    m11 = (
        motor.reflected_inertia
        + links.thigh.inertia_about_axis
        + links.shank.mass * g.thigh_length**2
        + links.coupler.inertia_about_axis
    )
    m22 = (
        motor.reflected_inertia
        + links.shank.inertia_about_axis
        + links.crank.inertia_about_axis
        + links.coupler.mass * g.crank_radius**2
    )
    m12 = (
        links.shank.mass * g.thigh_length * links.shank.com
        + links.coupler.mass * links.coupler.com * g.crank_radius
    )
    return m11, m12, m22


def omitted_moment(p: Parameters) -> tuple[float, float]:
    """First moments of crank and coupler along thigh and shank, in [kg m].

    The serial model carries both rigidly in its hip body; these give their weight's torque.
    """
    links, g = p.links, p.geometry
    along_shank = links.coupler.mass * g.crank_radius + links.crank.mass * links.crank.com
    return links.coupler.mass * links.coupler.com, along_shank


def serial_torque_limits(p: Parameters) -> tuple[float, float, float]:
    """Largest torque on the serial abduction, hip and knee joint, in [N m].

    The motors' limits hold in actuator coordinates and are clipped there. Behind `J^T` both motors
    can push the hip at once, so its limit is the sum, not that of one motor.
    """
    hip, knee = np.abs(JACOBIAN).sum(axis=0) * p.motor.torque_limit
    return p.motor.torque_limit, float(hip), float(knee)


def home_height(p: Parameters) -> float:
    """Height of the trunk frame with every foot sphere touching the floor at home, in [m]."""
    g, home = p.geometry, p.home
    return (
        g.foot_radius + g.thigh_length * cos(home.hip) + g.shank_length * cos(home.hip + home.knee)
    )


def _about_y(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def serial_hip_body(p: Parameters, side: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass [kg], centre of mass [m], (3,), and inertia about it [kg m^2], (3, 3), of a hip body.

    An open chain has no place for the linkage, so its mass rides in the hip body, as if crank and
    coupler were welded to it in the home posture: there the serial model has the same total mass,
    centre of mass and trunk inertia as the closed chain. `side` is +1 left, -1 right.
    """
    links, g, home = p.links, p.geometry, p.home
    leg_plane = np.array([0, side * g.thigh_offset, 0])
    down = np.array([0, 0, -1])
    thigh, crank = _about_y(home.hip), _about_y(home.hip + home.knee)
    parts = [
        (links.hip, np.array([0, side * links.hip.com, 0]), np.eye(3)),
        (links.crank, leg_plane + crank @ down * links.crank.com, crank),
        (
            links.coupler,
            leg_plane + crank @ down * g.crank_radius + thigh @ down * links.coupler.com,
            thigh,
        ),
    ]
    mass = sum(link.mass for link, _, _ in parts)
    com = np.sum([link.mass * position for link, position, _ in parts], axis=0) / mass
    inertia = np.zeros((3, 3))
    for link, position, rotation in parts:
        r = position - com
        inertia += rotation @ np.diag(link.inertia) @ rotation.T
        inertia += link.mass * (r @ r * np.eye(3) - np.outer(r, r))
    return mass, com, inertia
