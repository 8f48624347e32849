"""Results as numbers of a robot description, with where they come from."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from s3n_mjx.identification.actuator import ActuatorResult
from s3n_mjx.identification.fit import Estimate
from s3n_mjx.identification.from_model import PairIdentification
from s3n_mjx.identification.leg import LegResult
from s3n_mjx.robot.description import RobotDescription, SourceFile
from s3n_mjx.robot.rewrite import Identified, motor_changes

Hashes = Mapping[Path, str]  # SHA-256 of the logs


def _identified(estimate: Estimate, sources: Hashes, method: str) -> Identified:
    return Identified(
        value=float(estimate.value),
        interval=(float(estimate.low), float(estimate.high)),
        date=datetime.date.today().isoformat(),
        sources=tuple(SourceFile(path.name, digest) for path, digest in sources.items()),
        method=method,
    )


def actuator_changes(
    description: RobotDescription, kind: str, result: ActuatorResult, sources: Hashes
) -> dict[str, Identified]:
    """Inertia and damping of a type of motor before its gear, and the command path's delay."""
    method = "open-loop torque-to-velocity response of motors (Eq. 29)"
    inertia, damping, delay = (
        _identified(estimate, sources, method)
        for estimate in (
            result.pooled.estimates["m11"],
            result.pooled.estimates["d11"],
            result.pooled.estimates["delay"].scaled(1e3),
        )
    )
    return motor_changes(description, kind, inertia, damping) | {"torque_delay_ms": delay}


def inertia_changes(linkage: str, result: LegResult, sources: Hashes) -> dict[str, Identified]:
    """Total inertia of the leg with its motors (Eq. 32)."""
    method = "closed-loop torque-to-velocity response of a leg (Eq. 30)"
    return {
        f"linkages.{linkage}.inertia.{name}": _identified(estimate, sources, method)
        for name, estimate in result.inertia.items()
    }


def description_lines(pairs: Sequence[PairIdentification]) -> list[str]:
    """What a closed-chain model gives for `linkages` and `legs` of a description, as YAML.

    Pairs that agree to six digits, mirrored legs above all, share a linkage.
    """
    linkages: dict[str, str] = {}
    users = []
    for pair in pairs:
        body = "\n".join(_linkage_lines(pair))
        name = linkages.setdefault(body, f"linkage{len(linkages) + 1}")
        driven = ", ".join(
            f"{joint} -> closed_chain_joint: {motor}"
            for joint, motor in zip(pair.serial_joints, pair.motor_joints, strict=True)
            if joint != motor
        )
        proximal, distal = pair.serial_joints
        users.append(f"pair: {{proximal: {proximal}, distal: {distal}, linkage: {name}}}")
        if driven:
            users[-1] += f"  # {driven}"
    lines = ["linkages:"]
    for body, name in linkages.items():
        lines += [f"  {name}:", *body.splitlines()]
    return [*lines, "", "# one line in each leg", *users]


def _linkage_lines(pair: PairIdentification) -> list[str]:
    def row(values: Iterable[float]) -> str:
        return f"[{', '.join(repr(round(float(value), 6) + 0.0) for value in values)}]"

    lines = [f"    jacobian: [{row(pair.jacobian[0])}, {row(pair.jacobian[1])}]"]
    if not pair.constant_jacobian:
        lines[0] += "  # at neutral; it changes with the posture, and a constant one does not hold"
    if pair.parameters is not None:
        values = vars(pair.parameters)
        numbers = ", ".join(f"{name}: {float(f'{value:.6g}')!r}" for name, value in values.items())
        lines.append(f"    inertia: {{{numbers}}}")
        lines.append(f"    angle_offset: {round(pair.angle_offset, 6) + 0.0!r}")
    if pair.omitted_moment is not None:
        moments = ", ".join(repr(float(f"{value:.6g}")) for value in pair.omitted_moment)
        lines.append(f"    omitted_moment: [{moments}]")
    return lines
