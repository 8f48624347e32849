"""S3N put into a MuJoCo model: armature, damping, tendons, and what is left to lag.

The result is an ordinary MJCF plus a small table of lagged terms. The torques made from that
table each step are in :mod:`s3n_mjx.simulation.control`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import (
    Injection,
    PairIncrement,
    PairSplit,
    Variant,
    pair_increment,
    spectral_radius,
    split_increment,
)
from s3n_mjx.robot.geometry import mass_matrix
from s3n_mjx.robot.model import ResolvedPair, Robot
from s3n_mjx.robot.preparation import compiled
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.simulation.lean import without_visuals

_POSTURES = 9


@dataclass(frozen=True, eq=False)
class NormalizedModel:
    """A robot's MJCF with S3N in it, driven through `qfrc_applied` alone (no actuators)."""

    robot: Robot
    config: SimulationConfig
    model: mujoco.MjModel  # all of it, for C MuJoCo: the coupling rides on fixed tendons
    tree: mujoco.MjModel  # without those tendons, nor geoms to look at: for :func:`physics.step`
    coupling: NDArray[np.float64]  # (nv, nv) kg m^2, what they add to the mass matrix
    splits: tuple[PairSplit, ...]  # one per pair of the robot
    stability_margin: float  # rho over the posture range, nominal masses

    @property
    def uses_lag(self) -> bool:
        """Whether anything is left to be applied from the last step."""
        return any(
            split.lagged_inertia.magnitude > 0 or np.any(split.lagged_damping)
            for split in self.splits
        )

    def lagged_inertia(self, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        """Inertia applied from the last step's acceleration, shape (nv, nv).

        Args:
            alpha: distal joint angle of each pair in rad, shape (n_pairs,).
        """
        result = np.zeros((self.model.nv, self.model.nv))
        for pair, split, angle in zip(self.robot.pairs, self.splits, alpha, strict=True):
            dofs = self.robot.dof_index[[pair.proximal, pair.distal]]
            result[np.ix_(dofs, dofs)] += split.lagged_inertia(angle)
        return result


def normalize(robot: Robot, config: SimulationConfig) -> NormalizedModel:
    """Apply ``config.variant`` to ``robot`` by ``config.injection``.

    Args:
        robot: the resolved robot; not changed.
        config: variant, injection, time step and solver settings.

    Raises:
        UserError: the variant needs an identified linkage that the description lacks, or the
            lagged terms would be unstable (rho >= 1).
    """
    if config.base_coupling and not (
        config.variant is Variant.S3N_FULL and config.injection is Injection.MASS_MATRIX
    ):
        raise UserError(
            f"--base-coupling: needs --variant {Variant.S3N_FULL} and"
            f" --injection {Injection.MASS_MATRIX}"
        )
    splits = tuple(_pair_splits(robot, config))
    spec = _write_spec(robot, config, splits)
    tree = compiled(spec, robot.description, robot.path)
    lean = without_visuals(spec, tree, keep=(robot.floor, *robot.feet))
    tree = compiled(lean, robot.description, robot.path)
    coupling = np.zeros((tree.nv, tree.nv))
    for pair, split in zip(robot.pairs, splits, strict=True):
        dofs = robot.dof_index[[pair.proximal, pair.distal]]
        for tendon in split.tendons:
            inertia = tendon.armature * np.outer(tendon.coefficients, tendon.coefficients)
            coupling[np.ix_(dofs, dofs)] += inertia
    add_tendons(spec, robot, splits)
    model = compiled(spec, robot.description, robot.path)
    # MuJoCo makes a contact as soft as its bodies are light at compile time. The floor must not
    # become another one with the variant: all have the softness of the robot's MJCF as it is.
    for candidate in (model, tree):
        candidate.body_invweight0[:] = robot.model.body_invweight0
    tree.dof_invweight0[:] = model.dof_invweight0
    tree.stat.meaninertia = model.stat.meaninertia
    result = NormalizedModel(robot, config, model, tree, coupling, splits, 0.0)
    margin = stability_margin(result, [model])
    if margin >= 1.0:
        raise UserError(unstable_message(result, margin))
    return dataclasses.replace(result, stability_margin=margin)


def unstable_message(normalized: NormalizedModel, margin: float) -> str:
    """One line for a robot whose lagged terms would not settle."""
    config = normalized.config
    ways = []
    if config.injection != "mass_matrix":
        ways.append("--injection mass_matrix")
    if config.lagged_terms != "minimal":
        ways.append("--lagged-terms minimal")
    return (
        f"{normalized.robot.path}: {config.variant} by {config.injection} is unstable: spectral"
        f" radius of the lagged inertia is {margin:.3f}, it must stay below 1; use"
        f" {' or '.join(ways) or 'another variant, or heavier leg links in the serial model'}"
    )


def stability_margin(normalized: NormalizedModel, models: Iterable[mujoco.MjModel]) -> float:
    """Largest spectral radius rho of the lagged terms over the legs' posture range.

    Args:
        normalized: the model whose lagged terms are looked at.
        models: compiled models to look at them in: the nominal one, or randomized copies.
    """
    robot = normalized.robot
    if not robot.pairs or not any(s.lagged_inertia.magnitude for s in normalized.splits):
        return 0.0
    ranges = np.array([pair.angle_range for pair in robot.pairs])
    distal = robot.qpos_index[[pair.distal for pair in robot.pairs]]
    margin = 0.0
    for model in models:
        data = mujoco.MjData(model)
        for share in np.linspace(0.0, 1.0, _POSTURES):
            data.qpos[:] = robot.home_qpos
            data.qpos[distal] = ranges[:, 0] + share * (ranges[:, 1] - ranges[:, 0])
            margin = max(
                margin,
                spectral_radius(
                    mass_matrix(model, data),
                    model.dof_damping,
                    model.opt.timestep,
                    normalized.lagged_inertia(data.qpos[distal]),
                ),
            )
    return margin


def _pair_splits(robot: Robot, config: SimulationConfig) -> Iterable[PairSplit]:
    for pair in robot.pairs:
        if config.variant is Variant.S3N_FULL and pair.total is None:
            raise UserError(
                f"{robot.path}: leg {pair.leg}: variant s3n_full needs the identified `inertia`"
                " of its linkage; add it or use s3n_act"
            )
        both = [pair.proximal, pair.distal]
        yield split_increment(
            config.injection,
            pair.jacobian,
            robot.motor_inertia[both],
            robot.motor_damping[both],
            increment_of(robot, pair, config.variant),
            config.lagged_terms,
        )


def increment_of(robot: Robot, pair: ResolvedPair, variant: Variant) -> PairIncrement:
    """What ``variant`` adds to ``pair`` (Eq. 6)."""
    both = [pair.proximal, pair.distal]
    return pair_increment(
        variant,
        pair.jacobian,
        robot.motor_inertia[both],
        robot.motor_damping[both],
        pair.total,
        pair.serial_link,
    )


def _write_spec(
    robot: Robot, config: SimulationConfig, splits: tuple[PairSplit, ...]
) -> mujoco.MjSpec:
    spec = robot.spec.copy()
    # Torques enter through qfrc_applied, in one place; actuators and sensors would only cost.
    for element in [*spec.actuators, *spec.sensors]:
        spec.delete(element)
    for key in spec.keys:
        key.ctrl = []
        key.act = []

    write_dynamics(spec, robot, config, splits)
    return spec


def write_dynamics(
    spec: mujoco.MjSpec, robot: Robot, config: SimulationConfig, splits: tuple[PairSplit, ...]
) -> None:
    """Armature and damping of the driven joints, and the solver's settings, into ``spec``."""
    armature, damping = robot.motor_inertia.copy(), robot.motor_damping.copy()
    for pair, split in zip(robot.pairs, splits, strict=True):
        both = [pair.proximal, pair.distal]
        armature[both], damping[both] = split.armature, split.damping
    for name, inertia, viscous in zip(robot.joints, armature, damping, strict=True):
        joint = spec.joint(name)
        joint.armature = inertia
        joint.damping = [viscous, 0.0, 0.0]

    option = spec.option
    option.timestep = config.timestep_s
    option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    option.iterations = config.solver_iterations
    option.ls_iterations = config.solver_ls_iterations
    # The control loop takes realised accelerations from a semi-implicit step.
    option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    # Joint damping is solved implicitly; the stability margin counts on it.
    option.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP)


def add_tendons(spec: mujoco.MjSpec, robot: Robot, splits: tuple[PairSplit, ...]) -> None:
    """The fixed tendons of ``splits`` into ``spec``."""
    for pair, split in zip(robot.pairs, splits, strict=True):
        for number, tendon in enumerate(split.tendons):
            joints = [robot.joints[index] for index in (pair.proximal, pair.distal)]
            element = add_tendon(spec, f"s3n_{pair.leg}_{number}", joints, tendon.coefficients)
            element.armature = tendon.armature


def add_tendon(
    spec: mujoco.MjSpec, name: str, joints: Sequence[str], coefficients: Iterable[float]
):
    """A fixed tendon that does nothing by itself, whatever the MJCF's default classes say.

    Args:
        spec: changed in place.
        name: a taken one gets underscores.
        joints: that it wraps.
        coefficients: of each.
    """
    taken = {tendon.name for tendon in spec.tendons}
    while name in taken:
        name += "_"
    tendon = spec.add_tendon(name=name)
    tendon.armature = tendon.frictionloss = 0.0
    tendon.stiffness, tendon.damping = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    tendon.springlength = [-1.0, -1.0]
    tendon.limited = tendon.actfrclimited = mujoco.mjtLimited.mjLIMITED_FALSE
    for joint, coefficient in zip(joints, coefficients, strict=True):
        tendon.wrap_joint(joint, float(coefficient))
    return tendon
