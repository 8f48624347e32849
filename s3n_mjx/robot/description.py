"""The robot description, `robot.yaml`: everything S3N knows of a robot besides its MJCF.

One file per robot. Serial model, normalization, control loop, tests and documentation take
their numbers from here.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT, parse, read_yaml
from s3n_mjx.errors import UserError

FORMAT = 1

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Row = tuple[float, float]


@dataclass(frozen=True, config=STRICT)
class Motor:
    """A type of motor with its gear and position loop; torques and gains at the gear output."""

    rotor_inertia: NonNegative  # kg m^2, before the gear
    rotor_damping: NonNegative  # N m s/rad, before the gear
    gear_ratio: Positive
    torque_limit: Positive  # N m
    kp: NonNegative  # N m/rad
    kd: NonNegative  # N m s/rad

    @property
    def reflected_inertia(self) -> float:
        """``N^2 J_m`` in kg m^2 (Eq. 7)."""
        return self.gear_ratio**2 * self.rotor_inertia

    @property
    def reflected_damping(self) -> float:
        """``N^2 B_m`` in N m s/rad (Eq. 7)."""
        return self.gear_ratio**2 * self.rotor_damping


@dataclass(frozen=True, config=STRICT)
class LinkageInertia:
    """Identified total inertia of the parallel leg in actuator coordinates, kg m^2 (Eq. 14)."""

    m11: Positive
    m12: float
    m22: Positive

    @model_validator(mode="after")
    def _positive_definite(self) -> LinkageInertia:
        if self.m12**2 >= self.m11 * self.m22:
            raise ValueError("m12^2 must be below m11 m22, or the leg's inertia is not positive")
        return self


@dataclass(frozen=True, config=STRICT)
class Linkage:
    """How two motors drive a pair of serial joints: ``q_p = J q_s`` (Eq. 1)."""

    jacobian: tuple[Row, Row]
    inertia: LinkageInertia | None = None
    angle_offset: float = 0.0  # rad, added to the distal joint's angle to give alpha
    # kg m, first moments along proximal and distal link of the links that the serial tree lacks.
    omitted_moment: Row | None = None

    @model_validator(mode="after")
    def _invertible(self) -> Linkage:
        matrix = np.array(self.jacobian)
        (a, b), (c, d) = self.jacobian
        if abs(a * d - b * c) < 1e-6 * max(np.abs(matrix).max(), 1e-300) ** 2:
            raise ValueError(f"jacobian {matrix.tolist()} is singular: both motors drive the same")
        return self


@dataclass(frozen=True, config=STRICT)
class LegJoint:
    """A joint, the actuator of the MJCF that drives it, and that actuator's type of motor.

    For the joints of a pair the motors are in actuator coordinates: the motor named beside the
    proximal joint is the first row of ``J``, the one beside the distal joint the second.
    """

    joint: str
    actuator: str
    motor: str
    # Joint that this motor turns in the closed-chain MJCF; the same one by default.
    closed_chain_joint: str | None = None


@dataclass(frozen=True, config=STRICT)
class Pair:
    """The two joints of a leg that share a linkage."""

    proximal: str
    distal: str
    linkage: str


@dataclass(frozen=True, config=STRICT)
class Leg:
    """One leg; joints from the trunk outwards."""

    name: str
    foot: str  # geom that touches the floor
    joints: tuple[LegJoint, ...]
    pair: Pair | None = None
    randomized_links: tuple[str, ...] = ()  # bodies that leg-link randomization changes


@dataclass(frozen=True, config=STRICT)
class RobotDescription:
    """Contents of `robot.yaml`."""

    format: int
    name: str
    model: str  # MJCF of the serial tree, relative to this file
    trunk: str  # body with the free joint
    floor: str  # geom
    home_keyframe: str
    torque_delay_ms: NonNegative  # command path, T_d
    motors: dict[str, Motor]
    legs: tuple[Leg, ...]
    linkages: dict[str, Linkage] = field(default_factory=dict)
    closed_chain: str | None = None  # MJCF of the real mechanism, relative to this file

    @model_validator(mode="after")
    def _references(self) -> RobotDescription:
        if self.format != FORMAT:
            raise ValueError(f"format {self.format} is not known; this version reads {FORMAT}")
        if not self.legs:
            raise ValueError("no legs; list at least one")
        for key in ("name", "foot"):
            values = [getattr(leg, key) for leg in self.legs]
            twice = next((v for v in values if values.count(v) > 1), None)
            if twice is not None:
                raise ValueError(f"two legs have the {key} {twice!r}")
        seen: set[str] = set()
        for leg in self.legs:
            where = f"leg {leg.name}"
            names = [joint.joint for joint in leg.joints]
            for entry in leg.joints:
                if entry.motor not in self.motors:
                    raise ValueError(
                        f"{where}, joint {entry.joint}: no motor type named {entry.motor!r};"
                        f" known: {', '.join(self.motors)}"
                    )
                if entry.joint in seen:
                    raise ValueError(f"{where}: joint {entry.joint} is listed twice")
                seen.add(entry.joint)
            if leg.pair is None:
                continue
            if leg.pair.linkage not in self.linkages:
                raise ValueError(
                    f"{where}: no linkage named {leg.pair.linkage!r};"
                    f" known: {', '.join(self.linkages) or 'none'}"
                )
            if leg.pair.proximal == leg.pair.distal:
                raise ValueError(f"{where}: pair names {leg.pair.proximal} twice")
            for joint in (leg.pair.proximal, leg.pair.distal):
                if joint not in names:
                    raise ValueError(
                        f"{where}: pair names joint {joint!r}, which is not among the leg's"
                        f" joints {', '.join(names)}"
                    )
        return self


def load_description(path: Path) -> RobotDescription:
    """Read and check a `robot.yaml` (its MJCF is not opened here).

    Raises:
        UserError: names file, key and reason.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: not a robot description; expected keys such as `legs:`")
    if isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise UserError(
            f"{path}: format {data['format']} is newer than this version reads ({FORMAT});"
            " update s3n_mjx"
        )
    return parse(RobotDescription, data, str(path))
