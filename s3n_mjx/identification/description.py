"""Results as numbers of a robot description, with where they come from."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from s3n_mjx.identification.actuator import ActuatorResult
from s3n_mjx.identification.fit import Estimate
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
