"""Every simulator model against one reference, and what the rest of the error comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.config import SimulationConfig, Timing
from s3n_mjx.validation.excitation import Chirp, Excited, joint_targets
from s3n_mjx.validation.leg import Gap, ReferenceResponse, gap, refer, sampled, simulate

# Asks for a reference: control period, motors excited, command path's delay in s.
Reference = Callable[[float, Excited, float], ReferenceResponse]


@dataclass(frozen=True)
class Case:
    """One simulator model in the test."""

    variant: Variant
    injection: Injection
    timing: Timing

    @property
    def label(self) -> str:
        """Short, for tables and legends."""
        if self.variant in (Variant.KIN_ONLY, Variant.KIN_ONLY_HR):
            return f"{self.variant}, {self.timing}"
        return f"{self.variant}, {self.injection}, {self.timing}"


def all_cases(timings: tuple[Timing, ...]) -> list[Case]:
    """Every variant whose dynamics differ, by every injection, with every timing."""
    cases = []
    for timing in timings:
        cases.append(Case(Variant.KIN_ONLY, Injection.QFRC_APPLIED, timing))
        for variant in (Variant.S3N_ACT, Variant.S3N_FULL):
            cases += [Case(variant, injection, timing) for injection in Injection]
    return cases


@dataclass(frozen=True)
class Setup:
    """What the robot on its stand is asked to do."""

    stand: Robot
    motors: tuple[int, int]  # of the leg that is looked at: proximal and distal
    chirp: Chirp
    base: SimulationConfig  # all that a case does not set
    excitations: tuple[Excited, ...] = tuple(Excited)


def closed_chain_reference(
    stand: Robot, chirp: Chirp, level: Level, seed: int, gravity: bool
) -> Reference:
    """References made on the closed chain when they are first asked for, and kept."""
    kept: dict[tuple[float, Excited, float], ReferenceResponse] = {}

    def reference(period: float, excited: Excited, delay: float) -> ReferenceResponse:
        key = (period, excited, delay)
        if key not in kept:
            time = chirp.times(period)
            targets = joint_targets(stand, chirp, excited, time)
            kept[key] = refer(stand, time, targets, level, seed, gravity, delay)
        return kept[key]

    return reference


def _delay(stand: Robot) -> float:
    return stand.description.torque_delay_ms * 1e-3


def run_config(setup: Setup, config: SimulationConfig, reference: Reference) -> dict[Excited, Gap]:
    """Gaps of one configuration under every excitation."""
    time = setup.chirp.times(config.timestep_s)
    targets = [joint_targets(setup.stand, setup.chirp, e, time) for e in setup.excitations]
    responses = simulate(setup.stand, config, time, targets)
    return {
        excited: gap(
            response,
            sampled(
                reference(config.timestep_s, excited, _delay(setup.stand)), time, config.timing
            ),
            setup.motors,
        )
        for excited, response in zip(setup.excitations, responses, strict=True)
    }


def configure(setup: Setup, case: Case, **changes) -> SimulationConfig:
    """The simulator's settings for ``case``."""
    return dataclasses.replace(
        setup.base,
        variant=case.variant,
        injection=case.injection,
        timing=case.timing,
        **changes,
    )


def compare(
    setup: Setup, cases: list[Case], reference: Reference
) -> Iterator[tuple[Case, dict[Excited, Gap]]]:
    """Each case and its gaps, one after the other."""
    for case in cases:
        yield case, run_config(setup, configure(setup, case), reference)


def explain(setup: Setup, case: Case, reference: Reference) -> Iterator[tuple[str, Gap]]:
    """Where the rest of ``case``'s error comes from: one source after the other switched off.

    What is switched off is switched off in the simulator and in the reference alike.
    """
    only = dataclasses.replace(setup, excitations=(Excited.BOTH,))

    def of(config: SimulationConfig, setup: Setup = only) -> Gap:
        return run_config(setup, config, reference)[Excited.BOTH]

    config = configure(setup, case)
    yield "as it is", of(config)
    description = dataclasses.replace(setup.stand.description, torque_delay_ms=0.0)
    undelayed = dataclasses.replace(setup.stand, description=description)
    yield "no torque delay", of(config, dataclasses.replace(only, stand=undelayed))
    fine = config.timestep_s / 10
    yield f"time step {1e3 * fine:g} ms", of(dataclasses.replace(config, timestep_s=fine))
    terms: dict[str, bool] = {"velocity_terms": True}
    yield "with velocity terms", of(dataclasses.replace(config, **terms))
    linkages = setup.stand.description.linkages.values()
    moments_known = all(linkage.omitted_moment is not None for linkage in linkages)
    if np.any(setup.stand.model.opt.gravity) and moments_known:
        terms["link_gravity"] = True
        yield "with velocity terms and link gravity", of(dataclasses.replace(config, **terms))
    yield (
        f"all of the terms, time step {1e3 * fine:g} ms",
        of(dataclasses.replace(config, timestep_s=fine, **terms)),
    )


def reduction(gaps: Mapping[Excited, Gap], base: Mapping[Excited, Gap], excited: Excited):
    """Change of the mean position and torque RMSE against ``base``, in percent."""
    position, torque = (
        100.0 * (np.mean(getattr(gaps[excited], n)) / np.mean(getattr(base[excited], n)) - 1.0)
        for n in ("position_rmse", "torque_rmse")
    )
    return float(position), float(torque)
