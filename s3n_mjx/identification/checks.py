"""Whether the data carries the result: each way in which it may not, as one line.

A finding stands in the way of writing a parameter, not of looking at it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from s3n_mjx.identification.fit import Fit
from s3n_mjx.identification.spectra import coherence
from s3n_mjx.robot.description import Motor

Array = NDArray[np.float64]

_COHERENT = 0.9
_UNSURE = 0.1  # half of the interval over the value
_STIFFER = 3.0  # by how much inertia must outweigh damping at the band's upper end
_DELAY_PHASE = 0.1  # rad at the band's upper end
_RESONANCE = 0.25  # of the response, left unexplained in a third of an octave
_SIGNIFICANT = 4.0  # times what noise explains
_CONDITION = 30.0
_MISFIT, _MISFIT_SHARE = 2.0, 0.02
_LOOP = 0.3  # of the position loop's stiffness
_FRICTION = 0.33  # of the excitation's RMS
_ALIKE = 0.15

NAMES = {
    "m11": "inertia",
    "d11": "damping",
    "f1": "friction",
    "delay": "torque delay",
}


def _words(name: str, size: int) -> str:
    if size == 1:
        return NAMES.get(name, name)
    if name == "delay":
        return "torque delay"
    kind = {"m": "M", "d": "damping D", "k": "stiffness K", "f": "friction of motor "}[name[0]]
    return kind + name[1:]


def findings(fit: Fit, wanted: Sequence[str]) -> list[str]:
    """All that speaks against a fit.

    Args:
        fit: of one or more records.
        wanted: estimates that matter, by name; the others may stay unsure.
    """
    found = [
        *_incoherent(fit),
        *_dependent_inputs(fit),
        *_narrow_band(fit, wanted),
        *_friction_dominated(fit, wanted),
        *_resonances(fit),
        *_misfit(fit),
    ]
    for name in wanted:
        estimate, word = fit.estimates[name], _words(name, fit.size)
        if estimate.on_bound:
            found.append(
                f"{word} lies on its bound ({estimate.value:.4g}): the data contradicts the model;"
                " check signs and units"
            )
        elif (estimate.high - estimate.low) / 2 > _UNSURE * abs(estimate.value):
            found.append(
                f"{word} is known only from {estimate.low:.4g} to {estimate.high:.4g} (95 %);"
                " record more periods, at a higher amplitude or in a wider band"
            )
    return list(dict.fromkeys(found))


def _incoherent(fit: Fit) -> list[str]:
    values = np.concatenate([coherence(r.velocity) for r in fit.records])
    frequency = np.concatenate([r.velocity.frequency for r in fit.records])
    poor = (values < _COHERENT).any(axis=1)
    # Some lines may lie in an antiresonance; a band of them is noise.
    if np.median(values) >= _COHERENT and poor.mean() < 0.2:
        return []
    low, high = frequency[poor].min(), frequency[poor].max()
    return [
        f"low coherence (median {np.median(values):.2f}, below {_COHERENT:g} at"
        f" {100 * poor.mean():.0f} % of the lines, {low:.3g} to {high:.3g} Hz): noise or something"
        " that is not periodic; raise the amplitude or record more periods"
    ]


def _dependent_inputs(fit: Fit) -> list[str]:
    if fit.size == 1:
        return []
    if len(fit.records) < fit.size:
        return [f"{len(fit.records)} record for {fit.size} motors: fewer inputs than unknowns"]
    condition = input_condition(fit)
    if np.median(condition) < _CONDITION:
        return []
    return [
        f"fewer than two independent inputs (median condition number of U"
        f" {np.median(condition):.3g}); drive the motors once alike and once against each other"
    ]


def input_condition(fit: Fit) -> Array:
    """Condition number of the inputs of all records at every line, (L,)."""
    u = np.stack([r.torque.mean for r in fit.records], axis=-1)
    size = np.abs(u).mean(axis=(0, 1), keepdims=True)  # amplitudes may differ, directions count
    return np.asarray(np.linalg.cond(u / size))


def _narrow_band(fit: Fit, wanted: Sequence[str]) -> list[str]:
    found = []
    high = max(r.velocity.frequency.max() for r in fit.records)
    omega = 2 * np.pi * high
    m, d, _ = fit.matrices()
    for i in range(fit.size):
        name = f"m{i + 1}{i + 1}"
        if name in wanted and omega * m[i, i] < _STIFFER * d[i, i]:
            corner = d[i, i] / m[i, i] / (2 * np.pi) if m[i, i] else np.inf
            found.append(
                f"band too narrow for {_words(name, fit.size)}: it ends at {high:.3g} Hz, and"
                f" damping prevails up to {corner:.3g} Hz; excite up to several times that"
            )
    if "delay" in wanted and fit.delay_s * omega < _DELAY_PHASE:
        found.append(
            f"band too narrow for torque delay: at its upper end of {high:.3g} Hz"
            f" {1e3 * fit.delay_s:.3g} ms are {np.degrees(fit.delay_s * omega):.1f} degrees of"
            " phase; excite up to higher frequencies"
        )
    return found


def _friction_dominated(fit: Fit, wanted: Sequence[str]) -> list[str]:
    found = []
    for i in range(fit.size):
        if f"d{i + 1}{i + 1}" not in wanted:
            continue
        friction = abs(fit.estimates[f"f{i + 1}"].value) if f"f{i + 1}" in fit.estimates else 0.0
        for record in fit.records:
            rms = float(np.sqrt(np.sum(np.abs(record.torque.mean[:, i]) ** 2) / 2))
            if friction > _FRICTION * rms:
                found.append(
                    f"friction ({friction:.3g} N m) is {100 * friction / rms:.0f} % of the"
                    f" excitation's RMS ({rms:.3g} N m): the low band, and with it damping, is"
                    " friction's; raise the amplitude"
                )
    return found


def _misfit(fit: Fit) -> list[str]:
    left = float(np.median(np.concatenate([r.ravel() for r in fit.relative_residual()])))
    if fit.misfit < _MISFIT or left < _MISFIT_SHARE:
        return []
    return [
        f"the model leaves {fit.misfit:.1f} times what noise explains, {100 * left:.1f} % of the"
        " response: something acts that is not in the torque column or in the model"
    ]


def leg_findings(fit: Fit, motor_inertia: Array, motor_damping: Array, kp: Array) -> list[str]:
    """Results that a leg cannot have, given its motors.

    Args:
        fit: of two motors.
        motor_inertia, motor_damping: (2,) reflected, as described.
        kp: (2,) N m/rad, of the motors' position loop.
    """
    m, d, k = fit.matrices()
    found = []
    if np.any(np.diag(m) < motor_inertia) or np.linalg.det(m) <= 0:
        found.append(
            f"M11, M22 of {m[0, 0]:.4g}, {m[1, 1]:.4g} kg m^2 are less than the motors alone have"
            f" ({motor_inertia[0]:.4g}, {motor_inertia[1]:.4g}), or M12 is too large: check units"
            " and gear of torque and velocity"
        )
    if np.any(np.diag(k) > _LOOP * kp) or np.any(np.diag(d) > 5 * motor_damping + 0.1):
        found.append(
            f"stiffness {k[0, 0]:.3g}, {k[1, 1]:.3g} N m/rad and damping {d[0, 0]:.3g},"
            f" {d[1, 1]:.3g} N m s/rad look like the position loop's: the torque column must hold"
            " the total command, feedback and excitation"
        )
    return found


def _resonances(fit: Fit) -> list[str]:
    """Where a part of the band stays unexplained: something moves that the model has not."""
    worst: tuple[float, float] | None = None
    for record, modelled in zip(fit.records, fit.modelled, strict=True):
        frequency = record.velocity.frequency
        for i in range(fit.size):
            measured = record.velocity.mean[:, i]
            left = np.abs(measured - modelled[:, i])
            noise = np.sqrt(record.velocity.variance[:, i])
            band = np.floor(3 * np.log2(frequency)).astype(int)
            for which in np.unique(band):
                inside = band == which
                if np.count_nonzero(inside) < 3:
                    continue
                share = float(np.median(left[inside] / np.abs(measured[inside])))
                significance = float(
                    np.median(left[inside]) / max(float(np.median(noise[inside])), 1e-300)
                )
                if (
                    share > _RESONANCE
                    and significance > _SIGNIFICANT
                    and (worst is None or share > worst[0])
                ):
                    worst = share, float(np.sqrt(frequency[inside].min() * frequency[inside].max()))
    if worst is None:
        return []
    return [
        f"around {worst[1]:.3g} Hz {100 * worst[0]:.0f} % of the response is not the model's: a"
        " resonance (belt, mount, cable) or another unmodelled part; excite below it, or stiffen it"
    ]


def unit_findings(fit: Fit, motor: Motor) -> list[str]:
    """Results that differ from what is known by just a unit or a gear.

    Args:
        fit: of a motor.
        motor: as described so far.
    """
    gear = motor.gear_ratio
    inertia = fit.estimates["m11"].value / max(motor.reflected_inertia, 1e-300)
    damping = fit.estimates["d11"].value / max(motor.reflected_damping, 1e-300)
    factors = {
        np.pi / 180.0: "57.3 times below: velocity is in deg/s",
        180.0 / np.pi: "57.3 times above: velocity is scaled by pi / 180 once too often",
        np.pi / 30.0: "9.55 times below: velocity is in rev/min",
    }
    if gear > 1.0 + _ALIKE:
        factors |= {
            1 / gear: f"the gear ratio of {gear:g} below: torque or velocity is at the rotor",
            1 / gear**2: f"the squared gear ratio of {gear:g} below: both are at the rotor",
            gear: f"the gear ratio of {gear:g} above: velocity or torque is divided once too often",
            gear**2: f"the squared gear ratio of {gear:g} above: both are scaled the wrong way",
        }
    ratios = [r for r in (inertia, damping if motor.reflected_damping else inertia) if r > 0]
    if not ratios:
        return []
    # Factors lie close to each other (rev/min and a gear of 9): the nearest one counts.
    distance = {f: max(abs(np.log(r / f)) for r in ratios) for f in factors}
    nearest = min(distance, key=lambda f: distance[f])
    if distance[nearest] > _ALIKE:
        return []
    return [
        f"inertia and damping are {factors[nearest]}; the description says"
        f" {motor.reflected_inertia:.4g} kg m^2 at the output"
    ]
