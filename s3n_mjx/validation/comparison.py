"""Every simulator model against one reference, and what the rest of the error comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from s3n_mjx.errors import UserError
from s3n_mjx.normalization import Injection, Variant
from s3n_mjx.reference.imperfections import Level
from s3n_mjx.robot.model import Robot
from s3n_mjx.simulation.config import SimulationConfig, Timing
from s3n_mjx.validation.excitation import Chirp, Excited, joint_targets
from s3n_mjx.validation.leg import Gap, ReferenceResponse, gap, refer, sampled, simulate


@dataclass(frozen=True)
class Reference:
    """What the simulator is compared with: asked for a response, it gives one.

    Attributes:
        name: what it is, in a few words.
        respond: from control period in s, motors excited, command path's delay in s.
        recorded: whether it is a log, which answers the same whatever period and delay.
        loop_period_s: of a log's position loop; 0 where that is not known.
    """

    name: str
    respond: Callable[[float, Excited, float], ReferenceResponse]
    recorded: bool = False
    loop_period_s: float = 0.0

    def __call__(self, period: float, excited: Excited, delay: float) -> ReferenceResponse:
        """The response; arguments as of ``respond``."""
        return self.respond(period, excited, delay)


@dataclass(frozen=True)
class Refused:
    """What stands in the place of gaps where the simulator refused a model."""

    reason: str


Gaps = dict[Excited, Gap]


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

    @property
    def main(self) -> Excited:
        """The excitation that figures and summary are of: both motors, where that was tested."""
        return Excited.BOTH if Excited.BOTH in self.excitations else self.excitations[0]

    @property
    def has_weight(self) -> bool:
        """Whether the legs have weight."""
        return bool(np.any(self.stand.model.opt.gravity))


def closed_chain_reference(
    stand: Robot, chirp: Chirp, level: Level, seed: int, gravity: bool
) -> Reference:
    """References made on the closed chain when they are first asked for, and kept."""
    kept: dict[tuple[float, Excited, float], ReferenceResponse] = {}

    def respond(period: float, excited: Excited, delay: float) -> ReferenceResponse:
        key = (period, excited, delay)
        if key not in kept:
            time = chirp.times(period)
            targets = joint_targets(stand, chirp, excited, time)
            kept[key] = refer(stand, time, targets, level, seed, gravity, delay)
        return kept[key]

    return Reference(f"closed chain, {level}", respond)


def command_delay(stand: Robot) -> float:
    """Of the command path, in s."""
    return stand.description.torque_delay_ms * 1e-3


def run_config(setup: Setup, config: SimulationConfig, reference: Reference) -> Gaps:
    """Gaps of one configuration under every excitation."""
    time = setup.chirp.times(config.timestep_s)
    targets = [joint_targets(setup.stand, setup.chirp, e, time) for e in setup.excitations]
    responses = simulate(setup.stand, config, time, targets)
    delay = command_delay(setup.stand)
    gaps = {}
    for excited, response in zip(setup.excitations, responses, strict=True):
        theirs = sampled(reference(config.timestep_s, excited, delay), time, config.timing)
        gaps[excited] = gap(response, theirs, setup.motors)
    return gaps


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
) -> Iterator[tuple[Case, Gaps | Refused]]:
    """Each case and its gaps, one after the other; the first case is `kin_only`.

    Raises:
        UserError: `kin_only` is refused, with which all others are compared, or the reference.
    """
    for case in cases:
        try:
            gaps = run_config(setup, configure(setup, case), reference)
        except UserError as error:
            if case.variant is Variant.KIN_ONLY:
                raise
            gaps = Refused(str(error))
        yield case, gaps


def best_of(results: Mapping[Case, Gaps | Refused]) -> Case:
    """The most complete model that was not refused: cases stand in that order."""
    return [case for case, gaps in results.items() if not isinstance(gaps, Refused)][-1]


def explain(setup: Setup, case: Case, reference: Reference) -> Iterator[tuple[str, Gap | Refused]]:
    """Where the rest of ``case``'s error comes from: one source after the other switched off.

    What is switched off is switched off in the simulator and in the reference alike. A log stays
    as it is: what is a source in it, too, is left out.
    """
    only = dataclasses.replace(setup, excitations=(setup.main,))
    config = configure(setup, case)

    def of(config: SimulationConfig, setup: Setup = only) -> Gap | Refused:
        try:
            return run_config(setup, config, reference)[setup.main]
        except UserError as error:
            return Refused(str(error))

    yield "as it is", of(config)
    if not reference.recorded:
        description = dataclasses.replace(
            setup.stand.description, torque_delay_ms=0.0, identified={}
        )
        undelayed = dataclasses.replace(setup.stand, description=description)
        yield "no torque delay", of(config, dataclasses.replace(only, stand=undelayed))
    # The simulator runs its position loop once a step: below the period of a log's loop, which
    # cannot follow, that loop would be another source instead of one less.
    fine = max(config.timestep_s / 10, reference.loop_period_s)
    finer = fine < config.timestep_s
    if finer:
        yield f"time step {1e3 * fine:g} ms", of(dataclasses.replace(config, timestep_s=fine))
    terms: dict[str, bool] = {"velocity_terms": True}
    yield "with velocity terms", of(dataclasses.replace(config, **terms))
    linkages = setup.stand.description.linkages.values()
    moments_known = all(linkage.omitted_moment is not None for linkage in linkages)
    if setup.has_weight and moments_known:
        terms["link_gravity"] = True
        yield "with velocity terms and link gravity", of(dataclasses.replace(config, **terms))
    if finer:
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
