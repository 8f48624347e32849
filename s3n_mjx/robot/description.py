"""The robot description, `robot.yaml`: everything S3N knows of a robot besides its MJCF.

One file per robot. Serial model, normalization, control loop, tests and documentation take
their numbers from here.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import math
from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen
from pydantic import BeforeValidator, StringConstraints, model_validator
from pydantic.dataclasses import dataclass

from s3n_mjx.config_files import STRICT, NonNegative, Number, Positive, parse, read_yaml
from s3n_mjx.errors import UserError

FORMAT = 1

# What stands in a draft where only the robot's owner knows the answer.
TODO = "TODO"

# Relative; a number and its entry in `identified` are the same up to this.
SAME = 1e-6

Row = tuple[Number, Number]
Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

# The way to a value through names and places in lists: ("motors", "drive", "rotor_inertia").
Keys = tuple[str | int, ...]


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
    m12: Number
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
    angle_offset: Number = 0.0  # rad, added to the distal joint's angle to give alpha
    # kg m, first moments along proximal and distal link of the links that the serial tree lacks.
    omitted_moment: Row | None = None

    @model_validator(mode="after")
    def _invertible(self) -> Linkage:
        matrix = np.array(self.jacobian)
        (a, b), (c, d) = self.jacobian
        if abs(a * d - b * c) <= 1e-6 * max(np.abs(matrix).max(), 1e-300) ** 2:
            raise ValueError(f"jacobian {matrix.tolist()} is singular: both motors drive the same")
        return self


@dataclass(frozen=True, config=STRICT, kw_only=True)
class LegJoint:
    """A joint, the actuator of the MJCF that drives it, and the type of motor that does.

    For the joints of a pair the motors are in actuator coordinates: the motor named beside the
    proximal joint is the first row of ``J``, the one beside the distal joint the second.
    """

    joint: str
    actuator: str | None = None  # where the MJCF has one
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


class Collisions(StrEnum):
    """Which geoms may touch."""

    ALL = "all"  # as the MJCF has it
    FEET = "feet"  # feet and floor, nothing else


def _date_text(value: Any) -> Any:
    # YAML takes a date without quotes for more than text.
    return value.isoformat() if type(value) is datetime.date else value


@dataclass(frozen=True, config=STRICT)
class SourceFile:
    """A file that a number was identified from; named for the reader, never opened."""

    file: Line
    sha256: Sha256


@dataclass(frozen=True, config=STRICT)
class Provenance:
    """Where an identified number comes from; value and interval in the number's own unit."""

    value: Number
    interval: Row  # 95 %, (low, high)
    date: Annotated[str, BeforeValidator(_date_text)]  # ISO, 2026-01-31
    sources: Annotated[tuple[SourceFile, ...], MinLen(1)]
    method: Line

    @model_validator(mode="after")
    def _sensible(self) -> Provenance:
        low, high = self.interval
        room = SAME * max(abs(self.value), abs(low), abs(high))  # for rounding
        if not low <= high:
            raise ValueError(f"interval [{low:g}, {high:g}] is not [low, high]")
        if not low - room <= self.value <= high + room:
            raise ValueError(
                f"value {self.value:g} is outside its interval [{low:g}, {high:g}];"
                " give both in the same unit"
            )
        try:
            iso = datetime.date.fromisoformat(self.date).isoformat()
        except ValueError:
            iso = None
        if iso != self.date:
            raise ValueError(f"date {self.date!r} is not an ISO date such as 2026-01-31")
        return self


@dataclass(frozen=True, config=STRICT, kw_only=True)
class RobotDescription:
    """Contents of `robot.yaml`."""

    format: int
    name: str
    model: str  # MJCF of the serial tree, relative to this file
    trunk: str  # body with the free joint
    floor: str | None = None  # geom; without one a plane is laid under the robot
    home_keyframe: str | None = None
    # Where the MJCF has no keyframe: joint angles in rad, the others at the MJCF's own. The trunk
    # is set down until the lowest foot touches the floor.
    home: dict[str, Number] = field(default_factory=dict)
    torque_delay_ms: NonNegative  # command path, T_d
    motors: dict[str, Motor]
    legs: tuple[Leg, ...]
    # Every joint that no leg has stands in one of these three.
    controlled: tuple[LegJoint, ...] = ()  # driven by the policy, after the legs' joints
    held: tuple[str, ...] = ()  # welded at home
    passive: tuple[str, ...] = ()  # moved by nothing but spring, damper and contact
    collisions: Collisions = Collisions.ALL
    linkages: dict[str, Linkage] = field(default_factory=dict)
    closed_chain: str | None = None  # MJCF of the real mechanism, relative to this file
    # Which of the numbers above were identified, and how; by dotted path, such as
    # `motors.drive.rotor_inertia` or `linkages.parallelogram.jacobian.0.1`.
    identified: dict[str, Provenance] = field(default_factory=dict)

    @property
    def driven(self) -> tuple[LegJoint, ...]:
        """Actuated joints, leg by leg, then those of no leg."""
        return (*(entry for leg in self.legs for entry in leg.joints), *self.controlled)

    @model_validator(mode="after")
    def _references(self) -> RobotDescription:
        if self.format != FORMAT:
            raise ValueError(f"format {self.format} is not known; this version reads {FORMAT}")
        if not self.legs:
            raise ValueError("no legs; list at least one")
        if (self.home_keyframe is None) == (not self.home):
            raise ValueError(
                "give the posture to stand in, either as `home_keyframe` of the MJCF or as `home`,"
                " joint by joint in rad"
            )
        for key in ("name", "foot"):
            values = [getattr(leg, key) for leg in self.legs]
            twice = next((v for v in values if values.count(v) > 1), None)
            if twice is not None:
                raise ValueError(f"two legs have the {key} {twice!r}")
        seen: set[str] = set()

        def once(where: str, joint: str) -> None:
            if joint in seen:
                raise ValueError(f"{where}: joint {joint} is listed twice")
            seen.add(joint)

        groups = [(f"leg {leg.name}", leg.joints) for leg in self.legs]
        for where, entries in [*groups, ("controlled", self.controlled)]:
            for entry in entries:
                if entry.motor not in self.motors:
                    raise ValueError(
                        f"{where}, joint {entry.joint}: no motor type named {entry.motor!r};"
                        f" known: {', '.join(self.motors)}"
                    )
                once(where, entry.joint)
        for key in ("held", "passive"):
            for joint in getattr(self, key):
                once(key, joint)
        for leg in self.legs:
            where = f"leg {leg.name}"
            names = [joint.joint for joint in leg.joints]
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

    @model_validator(mode="after")
    def _linkages_used(self) -> RobotDescription:
        used = {leg.pair.linkage for leg in self.legs if leg.pair is not None}
        for name in self.linkages:
            if name not in used:
                raise ValueError(
                    f"linkages.{name}: no leg has a `pair` with it; add the pair to each leg that"
                    " has this linkage, or remove it"
                )
        return self

    @model_validator(mode="after")
    def _identified_as_stated(self) -> RobotDescription:
        known = numbers(self) if self.identified else {}
        for path, entry in self.identified.items():
            if path not in known:
                raise ValueError(
                    f"identified.{path}: no such number in the file; {suggestion(path, known)}"
                )
            if not math.isclose(entry.value, known[path], rel_tol=SAME):
                raise ValueError(
                    f"identified.{path}: {path} is {known[path]:.7g}, identified was"
                    f" {entry.value:.7g}; it was edited after identification; remove the entry"
                    " or restore the value"
                )
        return self


def number_paths(value: Any) -> Iterator[tuple[Keys, float]]:
    """Keys that lead to each number that can be identified, and the number (SI, delay in ms)."""
    if isinstance(value, float):
        yield (), value
        return
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value) if f.name != "identified"]
        items = [(name, getattr(value, name)) for name in names]
    elif isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, tuple):
        items = list(enumerate(value))
    else:
        return
    for key, child in items:
        for rest, number in number_paths(child):
            yield (key, *rest), number


def dotted(parts: Keys) -> str:
    """Keys as one text: `motors.drive.rotor_inertia`."""
    return ".".join(map(str, parts))


def numbers(description: RobotDescription) -> dict[str, float]:
    """Every number that can be identified, by its dotted path (SI, delay in ms)."""
    return {dotted(parts): number for parts, number in number_paths(description)}


def suggestion(name: str, known: Iterable[str]) -> str:
    """What a misspelt ``name`` may have meant."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"


def load_description(path: Path) -> RobotDescription:
    """Read and check a `robot.yaml` (its MJCF is not opened here).

    Raises:
        UserError: names file, key and reason.
    """
    if path.suffix in (".xml", ".zip", ".urdf"):
        raise UserError(
            f"{path}: this is a model; give its description, robot.yaml (`robot new` writes one)"
        )
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: not a robot description; expected keys such as `legs:`")
    if isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise UserError(
            f"{path}: format {data['format']} is newer than this version reads ({FORMAT});"
            " update s3n_mjx"
        )
    open_questions = [dotted(keys) for keys in _todo_paths(data)]
    if open_questions:
        more = f" (and {len(open_questions) - 1} more)" if open_questions[1:] else ""
        raise UserError(
            f"{path}: {open_questions[0]}: still {TODO}; fill it in, the comment beside it says"
            f" with what{more}"
        )
    return parse(RobotDescription, data, str(path))


def _todo_paths(value: Any) -> Iterator[Keys]:
    if value == TODO:
        yield ()
    items = value.items() if isinstance(value, dict) else []
    if isinstance(value, list):
        items = enumerate(value)
    for key, child in items:
        for rest in _todo_paths(child):
            yield (key, *rest)
