"""The policy step in which an environment diverged, once more in C MuJoCo and in MJX."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from s3n_mjx.envs.base import RobotEnv
from s3n_mjx.envs.divergence import SPEED_LIMIT
from s3n_mjx.evaluation.metrics import counted
from s3n_mjx.evaluation.report import text_table
from s3n_mjx.reference.serial import SerialRobot
from s3n_mjx.simulation.config import SimulationConfig
from s3n_mjx.training.divergence import Dump

# Of C MuJoCo as the measure: what it says when its solver is let to converge.
EXACT_ITERATIONS, EXACT_LS_ITERATIONS = 100, 50

_HEADER = ("|qvel|", "of", "|qacc|", "contacts", "foot [N]")


@dataclass(frozen=True, eq=False)
class Trace:
    """A plant's simulation steps; it ends with the first one that is no longer a number.

    Velocities have a row more, the start's.
    """

    name: str
    qpos: NDArray[np.float64]  # (n + 1, nq)
    qvel: NDArray[np.float64]  # (n + 1, nv)
    qacc: NDArray[np.float64]  # (n, nv), of the solver
    contacts: NDArray[np.int64]  # (n,), that touch
    foot_force: NDArray[np.float64]  # (n, nfeet, 3), N, world frame

    @property
    def diverged_at(self) -> int | None:
        """The first row that training takes for diverged; 0 is the start."""
        sane = np.isfinite(self.qpos).all(axis=1) & (np.abs(self.qvel) < SPEED_LIMIT).all(axis=1)
        return None if sane.all() else int(sane.argmin())


@dataclass(frozen=True)
class _Step:
    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]
    qacc: NDArray[np.float64]
    contacts: int
    foot_force: NDArray[np.float64]


def _trace(name: str, dump: Dump, steps: Iterable[_Step]) -> Trace:
    start = dump.start
    done: list[_Step] = []
    for step in steps:
        done.append(step)
        if not (np.isfinite(step.qpos).all() and np.isfinite(step.qvel).all()):
            break
    return Trace(
        name,
        np.array([np.asarray(start.qpos, dtype=np.float64), *(s.qpos for s in done)]),
        np.array([np.asarray(start.qvel, dtype=np.float64), *(s.qvel for s in done)]),
        np.array([s.qacc for s in done]),
        np.array([s.contacts for s in done]),
        np.array([s.foot_force for s in done]),
    )


def _length(env: RobotEnv, more: int) -> int:
    return env.simulation.config.substeps * (1 + more)


def in_c(env: RobotEnv, dump: Dump, more: int = 0, exact: bool = False) -> Trace:
    """In C MuJoCo, in double precision, on the environment's own robot.

    Args:
        env: of the dump's config and robot.
        dump: where to start, and under which targets.
        more: further policy steps under the same targets.
        exact: let the solver converge; otherwise it has as many iterations as MJX.
    """
    model = env.c_model_of(dump.draws)
    # It would start over from the home pose and go on, as if nothing had happened.
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    if exact:
        model.opt.iterations, model.opt.ls_iterations = EXACT_ITERATIONS, EXACT_LS_ITERATIONS
    plant = SerialRobot(dataclasses.replace(env.normalized, model=model))
    plant.resume(**{field: getattr(dump.start, field) for field in vars(dump.start)})

    def steps() -> Iterable[_Step]:
        data, target = plant.data, np.asarray(dump.target, dtype=np.float64)
        for _ in range(_length(env, more)):
            plant.step(target)
            yield _Step(
                data.qpos.copy(),
                data.qvel.copy(),
                data.qacc.copy(),
                int((data.contact.dist < 0.0).sum()),
                plant.foot_force(),
            )

    # Its warnings would go into a file in the current folder; the table says it all.
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        name = f"C MuJoCo, double precision, {counted(model.opt.iterations, 'iteration')}"
        return _trace(name, dump, steps())
    finally:
        mujoco.set_mju_user_warning(before)


def in_mjx(env: RobotEnv, dump: Dump, more: int = 0) -> Trace:
    """As :func:`in_c`, in MJX as trained; compiles one simulation step."""
    simulation = env.simulation

    @jax.jit
    def advance(model, state, target):
        state, record, data = simulation.step_with_data(model, state, target)
        contact = data._impl.contact
        touching = jnp.sum(contact.dist < 0.0) if data._impl.ncon else jnp.zeros((), jnp.int32)
        return state, (data.qacc, touching, record.foot_force)

    def steps() -> Iterable[_Step]:
        model = env.model_of(jax.tree.map(jnp.asarray, dump.draws))
        state, target = jax.tree.map(jnp.asarray, (dump.start, dump.target))
        for _ in range(_length(env, more)):
            state, (qacc, touching, force) = advance(model, state, target)
            qpos, qvel, qacc, force = (
                np.asarray(x, dtype=np.float64) for x in (state.qpos, state.qvel, qacc, force)
            )
            yield _Step(qpos, qvel, qacc, int(touching), force)

    iterations = counted(simulation.config.solver_iterations, "iteration")
    return _trace(f"MJX as trained, float32, {iterations}", dump, steps())


def drawn(dump: Dump) -> str:
    """What the environment drew, in words."""
    parts = []
    if "leg_links" in dump.draws:
        mass = np.asarray(dump.draws["leg_links"].mass)
        parts.append(f"{mass.size} randomized links of {mass.sum():.3f} kg")
    if "friction_scale" in dump.draws:
        parts.append(f"friction x {float(dump.draws['friction_scale']):.3f}")
    if "payload_kg" in dump.draws:
        parts.append(f"payload {float(dump.draws['payload_kg']):.3f} kg")
    return ", ".join(parts) or "the nominal one"


def left_out(config: SimulationConfig) -> list[str]:
    """Flags of the terms that :class:`SerialRobot` does not have."""
    terms = ("velocity_terms", "link_gravity", "base_coupling")
    return [f"--{name.replace('_', '-')}" for name in terms if getattr(config, name)]


def dof_names(model: mujoco.MjModel) -> list[str]:
    """A name for each of qvel's entries: its joint's, with an axis where that has several."""
    names = []
    for dof in range(model.nv):
        joint = int(model.dof_jntid[dof])
        name = model.joint(joint).name or model.body(model.jnt_bodyid[joint]).name
        axes = {
            int(mujoco.mjtJoint.mjJNT_FREE): ("x", "y", "z", "rx", "ry", "rz"),
            int(mujoco.mjtJoint.mjJNT_BALL): ("rx", "ry", "rz"),
        }.get(int(model.jnt_type[joint]))
        names.append(f"{name}.{axes[dof - model.jnt_dofadr[joint]]}" if axes else name)
    return names


def _worst(values: NDArray[np.float64]) -> int:
    """Index of what is no number, else of the largest."""
    return int(np.where(np.isfinite(values), np.abs(values), np.inf).argmax())


def _said(value: float) -> str:
    return f"{abs(value):.4g}"


def _row(trace: Trace, index: int, names: list[str]) -> list[str]:
    if index >= len(trace.qvel):
        return ["-"] * len(_HEADER)
    worst = _worst(trace.qvel[index])
    cells = [_said(trace.qvel[index, worst]), names[worst]]
    if not index:
        return [*cells, "", "", ""]
    qacc, force = trace.qacc[index - 1], np.linalg.norm(trace.foot_force[index - 1], axis=-1)
    return [
        *cells,
        _said(qacc[_worst(qacc)]),
        str(trace.contacts[index - 1]),
        _said(force[_worst(force)]),
    ]


def table(env: RobotEnv, c: Trace, mjx: Trace) -> str:
    """Largest velocity (m/s or rad/s), acceleration and foot force of each simulation step."""
    names, timestep_ms = dof_names(env.normalized.model), 1e3 * env.simulation.timestep_s
    rows = [
        [f"{index * timestep_ms:g}", *_row(c, index, names), *_row(mjx, index, names)]
        for index in range(max(len(c.qvel), len(mjx.qvel)))
    ]
    header = ["t [ms]", *(f"C {h}" for h in _HEADER), *(f"MJX {h}" for h in _HEADER)]
    return "\n".join(
        [
            f"C:   {c.name}",
            f"MJX: {mjx.name}",
            "largest values of each simulation step; velocities (m/s, rad/s) at its end",
            "",
            text_table(header, rows, left=0),
        ]
    )


def not_finite(env: RobotEnv, dump: Dump) -> str | None:
    """Verdict on a step that cannot be replayed, since what it began with are no numbers."""
    if not np.isfinite(dump.target).all():
        bad = [n for n, x in zip(env.robot.joints, dump.target, strict=True) if not np.isfinite(x)]
        return (
            f"the policy: its targets are no finite numbers ({', '.join(bad)}); physics had no part"
            " in it. Look at the learner: --learning-rate, --max-grad-norm, rewards."
        )
    bad = [name for name, x in vars(dump.start).items() if not np.isfinite(np.asarray(x)).all()]
    if not bad:
        return None
    return (
        f"the start: {', '.join(bad)} of it is no finite number already; no step of physics made"
        " it so, since that one would have been caught. Look at resets and pushes."
    )


def verdict(env: RobotEnv, trained: Trace, exact: Trace, mjx: Trace) -> str:
    """Who diverges, and what to try, in one or two lines.

    Args:
        env: of the dump's config and robot.
        trained: C MuJoCo with MJX's solver iterations.
        exact: with as many as it takes.
        mjx: MJX as trained.
    """
    config = env.simulation.config
    names, start = dof_names(env.normalized.model), mjx.qvel[0]
    more_iterations = (
        f"try --solver-iterations {2 * config.solver_iterations}"
        f" --solver-ls-iterations {2 * config.solver_ls_iterations}"
    )
    if mjx.diverged_at == 0:
        worst = _worst(start)
        settles = bool((np.abs(exact.qvel[-1]) < SPEED_LIMIT).all())
        return (
            f"the start: {names[worst]} moves at {_said(start[worst])} (m/s or rad/s) before the"
            f" step, where {SPEED_LIMIT:g} counts as diverged; C MuJoCo"
            f" {'brings it down again' if settles else 'does not bring it down either'}."
        )
    if mjx.diverged_at is None:
        if exact.diverged_at is None:
            return (
                "neither: MJX does not diverge in this replay. It hangs on rounding, or on"
                " another device (divergence.yaml), or shows later (--steps)."
            )
        return (
            "C MuJoCo alone: from there MJX does not diverge in this replay; it hangs on rounding."
        )
    if exact.diverged_at is not None:
        return (
            "both: C MuJoCo diverges, too, in double precision and with a converged solver. It is"
            " the model, the time step or the state, not MJX:\n"
            f"look at the joints above, and try --timestep-s {config.timestep_s / 2:g}"
            f" --substeps {2 * config.substeps}."
        )
    if trained.diverged_at is not None:
        return (
            "the solver: C MuJoCo diverges, too, with"
            f" {counted(config.solver_iterations, 'iteration')}, and does not with"
            f" {EXACT_ITERATIONS}:\n{more_iterations}."
        )
    return (
        "MJX alone: C MuJoCo does not diverge from there. The solver's iterations are the first"
        f" suspect, float32 the second:\n{more_iterations}, or a smaller --timestep-s."
    )
