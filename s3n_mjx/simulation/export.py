"""A normalized robot as a plain MJCF, for simulators that know nothing of S3N.

Armature, damping, fixed tendons and actuators say all of S3N that an MJCF can say; what it cannot
is named with its size.
"""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx import __version__
from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Injection
from s3n_mjx.robot.model import Robot
from s3n_mjx.robot.precise_xml import number, precise_xml
from s3n_mjx.robot.preparation import compiled
from s3n_mjx.simulation.config import Timing
from s3n_mjx.simulation.injection import NormalizedModel, add_tendon, add_tendons, write_dynamics
from s3n_mjx.simulation.standing import standing_target

Array = NDArray[np.float64]

_POSTURES = 10
_ACTUATOR_DEFAULTS = ("general", "motor", "position", "velocity", "adhesion", "muscle", "cylinder")


class Actuators(StrEnum):
    """What a control of the exported MJCF is; both in actuator coordinates."""

    POSITION = "position"  # motor angle in rad, under the description's kp and kd
    MOTOR = "motor"  # motor torque in N m


@dataclass(frozen=True, eq=False)
class Exported:
    """An exported robot.

    Attributes:
        xml: the MJCF.
        added: what S3N put into it, a line each.
        left_out: what no MJCF can carry, a line each, with its size.
    """

    xml: str
    added: tuple[str, ...]
    left_out: tuple[str, ...]


def export(normalized: NormalizedModel, actuators: Actuators, folder: Path) -> Exported:
    """Write a normalized robot as an MJCF.

    Args:
        normalized: by the mass-matrix injection; the other one's lag is no MJCF's.
        actuators: what controls are.
        folder: where the file will lie; paths to meshes are written relative to it.

    Raises:
        UserError: meshes lie in an archive, out of reach for any other file.
    """
    if normalized.config.injection is not Injection.MASS_MATRIX:
        raise ValueError("only the mass-matrix injection can be exported")
    robot = normalized.robot
    source = robot.path.parent / robot.description.model
    spec = robot.spec.copy()
    write_dynamics(spec, robot, normalized.config, normalized.splits)
    add_tendons(spec, robot, normalized.splits)
    _add_damping_tendons(spec, normalized)
    _add_actuators(spec, robot, actuators)
    compiled(spec, robot.description, robot.path)
    root = precise_xml(spec)
    _write_actuators(root, robot, actuators)
    _move_assets(root, source, folder)
    added, left_out = _added(normalized, actuators), _left_out(normalized)
    comment = [
        f"{robot.description.name}, normalized by s3n_mjx {__version__}:"
        f" {normalized.config.variant}.",
        "Added to the serial model:",
        *(f"  {line}" for line in added),
        "Left out, because no MJCF can say it:",
        *(f"  {line}" for line in left_out),
    ]
    root.insert(0, ElementTree.Comment(_safe("\n" + "\n".join(map(_wrapped, comment)) + "\n")))
    ElementTree.indent(root)
    xml = ElementTree.tostring(root, encoding="unicode") + "\n"
    return Exported(xml, added, left_out)


def _safe(text: str) -> str:
    return text.replace("--", "- -")  # not allowed in XML comments


def _wrapped(line: str) -> str:
    indent = "    " + " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(line.strip(), 96, initial_indent=indent, subsequent_indent=indent + "  ")


def _add_damping_tendons(spec: mujoco.MjSpec, normalized: NormalizedModel) -> None:
    """The coupling of the damping, explicit like here, by two tendons that cancel on the diagonal.

    ``b (q1' q2')`` is half of ``b`` along (1, 1) less half of ``b`` along (1, -1). One tendon with
    ``b`` along (1, 1) would do the same in continuous time, but take the diagonal from the joints,
    whose damping MuJoCo solves implicitly.
    """
    robot = normalized.robot
    for pair, split in zip(robot.pairs, normalized.splits, strict=True):
        coupling = float(split.lagged_damping[0, 1])
        if coupling == 0.0:
            continue
        for name, sign in (("sum", 1.0), ("difference", -1.0)):
            joints = [robot.joints[pair.proximal], robot.joints[pair.distal]]
            tendon = add_tendon(spec, f"s3n_{pair.leg}_damping_{name}", joints, (1.0, sign))
            tendon.damping = [sign * coupling / 2.0, 0.0, 0.0]


def _add_actuators(spec: mujoco.MjSpec, robot: Robot, actuators: Actuators) -> None:
    """One per motor in the order of the description; of a pair along the rows of its Jacobian."""
    for element in list(spec.actuators):
        spec.delete(element)
    home = robot.actuator_map @ standing_target(robot)
    taken: set[str] = set()
    for index, entry in enumerate(robot.description.driven):
        # The description's limits count: a joint's own would clip both motors' sum.
        spec.joint(entry.joint).actfrclimited = mujoco.mjtLimited.mjLIMITED_FALSE
        row = robot.actuator_map[index]
        turned = np.flatnonzero(row)
        name = entry.actuator or entry.joint
        while name in taken:
            name += "_"
        taken.add(name)
        actuator = spec.add_actuator(name=name)
        if len(turned) == 1:
            actuator.trntype = mujoco.mjtTrn.mjTRN_JOINT
            actuator.target = robot.joints[turned[0]]
            actuator.gear = [row[turned[0]], 0, 0, 0, 0, 0]
        else:
            joints = [robot.joints[joint] for joint in turned]
            tendon = add_tendon(spec, f"{name}_motor", joints, row[turned])
            actuator.trntype = mujoco.mjtTrn.mjTRN_TENDON
            actuator.target = tendon.name
        actuator.set_to_motor()
    for sensor in list(spec.sensors):  # of an actuator that is no more
        if sensor.objtype == mujoco.mjtObj.mjOBJ_ACTUATOR and sensor.objname not in taken:
            spec.delete(sensor)
    torque = robot.kp * (home - robot.actuator_map @ robot.home_joints)
    for key in spec.keys:
        key.ctrl = home if actuators is Actuators.POSITION else torque
        key.act = []


def _write_actuators(root: ElementTree.Element, robot: Robot, actuators: Actuators) -> None:
    """By the shortcuts that every MuJoCo reads; it writes `<general>` with what is new in it."""
    for default in root.iter("default"):  # of the actuators that are no more
        for element in list(default):
            if element.tag in _ACTUATOR_DEFAULTS:
                default.remove(element)
    section = root.find("actuator")
    assert section is not None
    for index, element in enumerate(section):
        limit = number(float(robot.torque_limit[index]))
        kept = {k: element.attrib[k] for k in ("name", "joint", "tendon") if k in element.attrib}
        element.attrib.clear()
        element.tag = str(actuators)
        element.attrib.update(kept)
        element.set("forcerange", f"-{limit} {limit}")
        element.set("forcelimited", "true")
        if "joint" in kept:
            gear = robot.actuator_map[index][robot.actuator_map[index] != 0][0]
            element.set("gear", number(float(gear)))
        if actuators is Actuators.POSITION:
            element.set("kp", number(float(robot.kp[index])))
            element.set("kv", number(float(robot.kd[index])))


def _move_assets(root: ElementTree.Element, source: Path, folder: Path) -> None:
    files = [e for e in root.iter() if e.tag in ("mesh", "texture", "hfield") and e.get("file")]
    if not files:
        return
    if source.suffix != ".xml":
        raise UserError(
            f"{source}: its meshes lie in the archive, where an exported file cannot find them;"
            " unpack it and name the MJCF in it as `model`"
        )
    compiler = root.find("compiler")
    if compiler is None:
        compiler = ElementTree.Element("compiler")
        root.insert(0, compiler)
    shared = compiler.attrib.pop("assetdir", "")
    for key in ("meshdir", "texturedir"):
        there = source.parent / compiler.get(key, shared)
        compiler.set(key, os.path.relpath(there.resolve(), folder.resolve()))
    compiler.attrib.pop("strippath", None)


def _added(normalized: NormalizedModel, actuators: Actuators) -> tuple[str, ...]:
    robot = normalized.robot
    lines = ["armature and damping of each driven joint, from the motors (Eq. 7, 11)"]
    for pair, split in zip(robot.pairs, normalized.splits, strict=True):
        tendons = ", ".join(
            f"tendon of armature {number(round(t.armature, 9))} kg m^2 along"
            f" ({', '.join(number(round(c, 9)) for c in t.coefficients)})"
            for t in split.tendons
        )
        lines.append(
            f"leg {pair.leg}, {robot.joints[pair.proximal]} and {robot.joints[pair.distal]}:"
            f" armature {_rounded(split.armature)} kg m^2, damping {_rounded(split.damping)} N m"
            f" s/rad{', ' + tendons if tendons else ''}, coupled damping"
            f" {number(round(float(split.lagged_damping[0, 1]), 9))} by two tendons"
        )
    what = "motor angle in rad" if actuators is Actuators.POSITION else "motor torque in N m"
    lines.append(
        f"actuators in actuator coordinates, q_p = J q_s: a control is a {what}; limits are the"
        " motors'"
    )
    return tuple(lines)


def _rounded(values: Array) -> str:
    return ", ".join(number(round(float(value), 9)) for value in values)


def _left_out(normalized: NormalizedModel) -> tuple[str, ...]:
    robot, config = normalized.robot, normalized.config
    lines = []
    for pair, split in zip(robot.pairs, normalized.splits, strict=True):
        lagged = split.lagged_inertia
        if not lagged.magnitude:
            continue
        parts = [
            f"[[{_rounded(matrix[0])}], [{_rounded(matrix[1])}]]{wave}"
            for matrix, wave in (
                (lagged.constant, ""),
                (lagged.cosine, f" cos({robot.joints[pair.distal]})"),
                (lagged.sine, f" sin({robot.joints[pair.distal]})"),
            )
            if matrix.any()
        ]
        share = lagged.magnitude / split.total_inertia().magnitude
        lines.append(
            f"leg {pair.leg}: inertia {' + '.join(parts)} kg m^2 of {robot.joints[pair.proximal]},"
            f" {robot.joints[pair.distal]}, up to {100 * share:.0f} % of what S3N and motors give"
            " the pair; a simulator can apply its product with the last step's acceleration as a"
            " torque (Eq. 26)"
        )
    delay = robot.description.torque_delay_ms
    if delay:
        lines.append(f"the command path's delay of {delay:g} ms from command to torque")
    if config.timing is Timing.STAGGERED:
        lines.append("staggered timing: velocity half a step ahead, torque half a step late")
    for flag in ("velocity_terms", "link_gravity", "base_coupling"):
        if getattr(config, flag):
            lines.append(f"{flag.replace('_', ' ')} of the omitted links (beyond the paper)")
    soft = _softness(normalized)
    if soft > 1e-3:
        lines.append(
            f"contacts as soft as those of the serial MJCF: MuJoCo makes them {100 * soft:.1f} %"
            " harder or softer, by the inverse weight of the feet's bodies"
        )
    return tuple(lines) or ("nothing",)


def _softness(normalized: NormalizedModel) -> float:
    """Largest relative change of the feet's inverse weights by the variant."""
    robot = normalized.robot
    spec = robot.spec.copy()
    write_dynamics(spec, robot, normalized.config, normalized.splits)
    add_tendons(spec, robot, normalized.splits)
    model = spec.compile()
    bodies = [int(model.geom_bodyid[model.geom(foot).id]) for foot in robot.feet]
    ours, theirs = robot.model.body_invweight0[bodies, 0], model.body_invweight0[bodies, 0]
    return float(np.abs(theirs / ours - 1.0).max())


def difference(model: mujoco.MjModel, normalized: NormalizedModel, actuators: Actuators) -> float:
    """How far an exported model is from the one simulated here.

    Args:
        model: the export, compiled.
        normalized: what it was exported from.
        actuators: what its controls are.

    Returns:
        Largest difference of mass matrix, bias force and the motors' torques at the joints over
        random postures, velocities and controls, relative to the largest entry.
    """
    robot = normalized.robot
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(_POSTURES):
        qpos = robot.home_qpos.copy()
        qpos[robot.qpos_index] += rng.uniform(-0.3, 0.3, len(robot.joints))
        qvel = rng.normal(size=normalized.model.nv)
        control = robot.actuator_map @ rng.uniform(-1.0, 1.0, len(robot.joints))
        torque = 30.0 * control
        if actuators is Actuators.POSITION:
            off = control - robot.actuator_map @ qpos[robot.qpos_index]
            torque = robot.kp * off - robot.kd * (robot.actuator_map @ qvel[robot.dof_index])
        else:
            control = torque
        clipped = np.clip(torque, -robot.torque_limit, robot.torque_limit)
        wanted = np.zeros(normalized.model.nv)
        wanted[robot.dof_index] = robot.actuator_map.T @ clipped
        found = []
        for candidate in (normalized.model, model):
            data = mujoco.MjData(candidate)
            data.qpos[:], data.qvel[:] = qpos, qvel
            if candidate is model:
                data.ctrl[:] = control
            mujoco.mj_forward(candidate, data)
            mass_matrix = np.zeros((candidate.nv, candidate.nv))
            mujoco.mj_fullM(candidate, data, mass_matrix)
            driven = data.qfrc_actuator if candidate is model else wanted
            found.append((mass_matrix, data.qfrc_bias.copy(), driven.copy()))
        for ours, theirs in zip(*found, strict=True):
            worst = max(worst, float(np.abs(ours - theirs).max() / np.abs(ours).max()))
    return worst
