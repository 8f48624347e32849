"""Inertia, damping and delay fitted to spectra, in the complex domain, weighted by variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import t as student

from s3n_mjx.identification.inertial_model import velocity_response
from s3n_mjx.identification.spectra import Spectrum, mean_direction, smoothed, variance_of_mean

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

# No model is better than this; keeps noise-free lines from outweighing all others.
_MODEL_FLOOR = 1e-3
_CONFIDENCE = 0.95
_LONGEST_DELAY_S = 0.05
_DELAYS_S = np.linspace(0.0, 0.02, 81)  # to start from
_ROUNDS = 4
# Of the size of a parameter: standard error of what friction's direction, known from a noisy
# velocity, and the model itself leave, found as the scatter over seeds beyond that of noise.
_ACCURACY = 3e-4
_SLOW = 0.1  # of the band


@dataclass(frozen=True, eq=False)
class Record:
    """One record's spectra at its excited lines, n coordinates, and its mean period."""

    velocity: Spectrum  # rad/s
    torque: Spectrum  # N m, commanded
    mean_velocity: Array  # (N, n) rad/s, over periods
    mean_torque: Array  # (N, n) N m
    lines: NDArray[np.int64]  # (L,) cycles per period
    step_s: float  # from sample to sample
    held: bool  # whether a sample of the command acts until the next one

    @property
    def hold_s(self) -> float:
        """How long a sample of the command acts; 0 if it is continuous."""
        return self.step_s if self.held else 0.0

    @property
    def size(self) -> int:
        """Coordinates n."""
        return self.mean_velocity.shape[1]

    def amplitudes(self, period: Array) -> Complex:
        """Of the excited lines of one period, (N, n) to (L, n)."""
        return 2.0 / len(period) * np.fft.rfft(period, axis=0)[self.lines]


@dataclass(frozen=True)
class Terms:
    """What besides inertia, damping and delay the model has."""

    friction: bool = True  # Coulomb friction of every motor
    stiffness: bool = False  # such as weight about a posture


@dataclass(frozen=True)
class Estimate:
    """A parameter as fitted."""

    value: float
    std_error: float
    low: float  # of the 95 % interval
    high: float
    on_bound: bool = False

    def scaled(self, factor: float) -> Estimate:
        """In another unit; ``factor`` above 0."""
        return Estimate(
            self.value * factor,
            self.std_error * factor,
            self.low * factor,
            self.high * factor,
            self.on_bound,
        )


@dataclass(frozen=True, eq=False)
class Fit:
    """Result over all records.

    Attributes:
        estimates: by name: `m11`, `m12`, `m22` (kg m^2), `d11`, `d22` (N m s/rad), `k11`, `k12`,
            `k22` (N m/rad), `f1`, `f2` (N m), `delay` (s); of a motor `m11`, `d11`, `f1`, `delay`.
        modelled: (L, n) rad/s for each record.
        directions: (L, n) for each record, of the sign of velocity; friction is proportional.
        records: what it was fitted to.
        misfit: RMS of the weighted residuals; 1 where nothing but noise is left.
    """

    estimates: dict[str, Estimate]
    modelled: list[Complex]
    directions: list[Complex]
    records: list[Record]
    misfit: float

    @property
    def size(self) -> int:
        """Coordinates n."""
        return self.records[0].size

    def matrices(self) -> tuple[Array, Array, Array]:
        """Inertia, damping and stiffness, each (n, n)."""
        values = {name: e.value for name, e in self.estimates.items()}
        return _matrices(values, self.size)

    @property
    def delay_s(self) -> float:
        """Between command and torque."""
        return self.estimates["delay"].value

    def relative_residual(self) -> list[Array]:
        """``|measured - modelled| / |measured|``, (L, n) for each record."""
        return [
            np.abs(r.velocity.mean - m) / np.abs(r.velocity.mean)
            for r, m in zip(self.records, self.modelled, strict=True)
        ]


def _symmetric(n: int, letter: str) -> list[str]:
    return [f"{letter}{i + 1}{j + 1}" for i in range(n) for j in range(i, n)]


def _names(n: int, terms: Terms) -> list[str]:
    names = _symmetric(n, "m") + [f"d{i + 1}{i + 1}" for i in range(n)]
    if terms.stiffness:
        names += _symmetric(n, "k")
    if terms.friction:
        names += [f"f{i + 1}" for i in range(n)]
    return names


def _matrices(values: dict[str, float], n: int) -> tuple[Array, Array, Array]:
    result = []
    for letter in "mdk":
        matrix = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                first, second = sorted((i + 1, j + 1))
                matrix[i, j] = values.get(f"{letter}{first}{second}", 0.0)
        result.append(matrix)
    return result[0], result[1], result[2]


def predict(values: dict[str, float], record: Record, direction: Complex) -> Complex:
    """Velocity of one record at its lines under given parameters, (L, n) rad/s."""
    m, d, k = _matrices(values, record.size)
    frequency = record.velocity.frequency
    held = velocity_response(frequency, m, d, k, values["delay"], record.hold_s)
    result = np.einsum("lij,lj->li", held, record.torque.mean)
    friction = _friction(values, record.size)
    if friction.any():
        free = velocity_response(frequency, m, d, k, 0.0, record.step_s)
        result -= np.einsum("lij,lj->li", free, friction * direction)
    return result


def _friction(values: dict[str, float], n: int) -> Array:
    return np.array([values.get(f"f{i + 1}", 0.0) for i in range(n)])


def _directions(values: dict[str, float], record: Record, direction: Array) -> Array:
    """Mean direction from sample to sample, (N, n), of a velocity with less noise.

    A measured velocity turns wherever noise makes it turn. Torque is known without noise, so what
    the model makes of it stands in for the lines that were not excited. At slow ones the model's
    own errors would grow from round to round, since there friction decides; those stay.

    Args:
        values: parameters.
        record: with its mean period.
        direction: (N, n), from the round before.
    """
    m, d, k = _matrices(values, record.size)
    samples = len(record.mean_torque)
    spectrum_ = np.fft.rfft(record.mean_velocity, axis=0)
    line = np.arange(len(spectrum_))
    modelled = (line > _SLOW * record.lines[-1]) & ~np.isin(line, record.lines)
    frequency = line[modelled] / (samples * record.step_s)
    held = velocity_response(frequency, m, d, k, values["delay"], record.hold_s)
    free = velocity_response(frequency, m, d, k, 0.0, record.step_s)
    torque = np.fft.rfft(record.mean_torque, axis=0)[modelled]
    friction = _friction(values, record.size) * np.fft.rfft(direction, axis=0)[modelled]
    spectrum_[modelled] = np.einsum("lij,lj->li", held, torque)
    spectrum_[modelled] -= np.einsum("lij,lj->li", free, friction)
    return mean_direction(np.fft.irfft(spectrum_, samples, axis=0))


def _linear_start(
    records: Sequence[Record], directions: Sequence[Complex], names: list[str], delay: float
) -> tuple[Array, float]:
    """Parameters that balance torques for a given delay, and what is left of the torque."""
    n = records[0].size
    rows, right = [], []
    for record, direction in zip(records, directions, strict=True):
        s = 2j * np.pi * record.velocity.frequency
        path = np.exp(-s * (delay + record.hold_s / 2)) * np.sinc(
            record.velocity.frequency * record.hold_s
        )
        # Held from sample to sample, too.
        half = np.exp(-s * record.step_s / 2) * np.sinc(record.velocity.frequency * record.step_s)
        for i in range(n):
            columns = []
            for name in names:
                part = _basis(name, i, n)
                if name[0] == "f":
                    columns.append(half * (direction @ part))
                    continue
                power = {"m": s, "d": np.ones_like(s), "k": 1 / s}[name[0]]
                columns.append(power * (record.velocity.mean @ part))
            weight = 1.0 / np.abs(record.torque.mean[:, i]).mean()
            rows.append(np.stack(columns, axis=-1) * weight)
            right.append(path * record.torque.mean[:, i] * weight)
    a: Complex = np.concatenate(rows)
    b: Complex = np.concatenate(right)
    stacked = np.concatenate([a.real, a.imag]), np.concatenate([b.real, b.imag])
    scale = np.linalg.norm(stacked[0], axis=0)
    scale[scale == 0.0] = 1.0
    solution, *_ = np.linalg.lstsq(stacked[0] / scale, stacked[1], rcond=None)
    left = float(np.linalg.norm(stacked[0] / scale @ solution - stacked[1]))
    return np.asarray(solution / scale, dtype=np.float64), left


def _basis(name: str, row: int, n: int) -> Array:
    """Coordinates that a parameter multiplies in the torque balance of ``row``, (n,)."""
    part = np.zeros(n)
    if name[0] == "f":
        part[row] = float(name == f"f{row + 1}")
        return part
    i, j = int(name[1]) - 1, int(name[2]) - 1
    if row == i:
        part[j] = 1.0
    elif row == j:
        part[i] = 1.0
    return part


def _weights(records: Sequence[Record], values: dict[str, float]) -> list[Array]:
    """Inverse standard deviations, (L, n) for each record.

    Of what differs from period to period once the model has followed the torque: where the loop
    is closed, noise of the sensors is in the torque, too, and the motor really answers to it.
    """
    result = []
    for record in records:
        m, d, k = _matrices(values, record.size)
        held = velocity_response(record.velocity.frequency, m, d, k, values["delay"], record.hold_s)
        each = record.velocity.each - np.einsum("lij,plj->pli", held, record.torque.each)
        floor = (_MODEL_FLOOR * np.abs(record.velocity.mean)) ** 2
        result.append(1.0 / np.sqrt(smoothed(variance_of_mean(each)) + floor))
    return result


def fit(records: Sequence[Record], terms: Terms) -> Fit:
    """Parameters that all records share, by maximum likelihood under noise at the output.

    Args:
        records: of a motor one is enough; of a leg two with independent torques.
        terms: of the model.
    """
    records = list(records)
    n = records[0].size
    names = _names(n, terms)
    turns = [mean_direction(record.mean_velocity) for record in records]
    directions = [r.amplitudes(turn) for r, turn in zip(records, turns, strict=True)]
    found = [(*_linear_start(records, directions, names, d), d) for d in _DELAYS_S]
    start, _, delay = min(found, key=lambda item: item[1])
    free = [*names, "delay"]
    lower, upper = _bounds(free)
    vector = np.array([*start, delay], dtype=np.float64)
    scale = np.array([_scale(name, start, names) for name in free])
    vector = np.clip(vector, lower + 1e-6 * scale, upper)

    def values_of(x: Array) -> dict[str, float]:
        return dict(zip(free, x.tolist(), strict=True))

    def residual(x: Array, weights: list[Array]) -> Array:
        values = values_of(x)
        parts = [
            ((record.velocity.mean - predict(values, record, direction)) * weight).ravel()
            for record, direction, weight in zip(records, directions, weights, strict=True)
        ]
        whole = np.concatenate(parts)
        return np.concatenate([whole.real, whole.imag])

    solution = None
    for round_ in range(_ROUNDS):  # weights and directions follow from the model, and it from them
        values = values_of(vector)
        if terms.friction and round_:
            turns = [_directions(values, r, turn) for r, turn in zip(records, turns, strict=True)]
            directions = [r.amplitudes(turn) for r, turn in zip(records, turns, strict=True)]
        weights = _weights(records, values)
        solution = least_squares(
            residual, vector, bounds=(lower, upper), x_scale=scale, args=(weights,)
        )
        vector = solution.x
    assert solution is not None
    count = len(solution.fun)
    # Each half of a complex residual carries half of its variance.
    reduced = float(2.0 * np.sum(solution.fun**2) / (count - len(free)))
    covariance = np.linalg.pinv(solution.jac.T @ solution.jac) / 2.0 * max(reduced, 1.0)
    sizes = np.array([_size(name, values_of(vector)) for name in free])
    errors = np.sqrt(np.diag(covariance) + (_ACCURACY * sizes) ** 2)
    # Variances themselves are known from a few periods only.
    periods = min(record.velocity.periods for record in records)
    quantile = float(student.ppf(0.5 + _CONFIDENCE / 2, max(20, count * (periods - 1))))
    estimates = {}
    for i, name in enumerate(free):
        half = quantile * errors[i]
        estimates[name] = Estimate(
            float(vector[i]),
            float(errors[i]),
            float(vector[i] - half),
            float(vector[i] + half),
            bool(solution.active_mask[i]),
        )
    values = values_of(vector)
    modelled = [predict(values, r, s) for r, s in zip(records, directions, strict=True)]
    return Fit(estimates, modelled, directions, records, float(np.sqrt(reduced)))


def _bounds(names: Sequence[str]) -> tuple[Array, Array]:
    """What is physically possible: no negative inertia, no torque before its command."""
    positive = [n == "delay" or (n[0] in "md" and n[1] == n[2]) for n in names]
    lower = [0.0 if p else -np.inf for p in positive]
    upper = [_LONGEST_DELAY_S if n == "delay" else np.inf for n in names]
    return np.array(lower), np.array(upper)


def _size(name: str, values: dict[str, float]) -> float:
    """Of a parameter; of a coupling, the mean of what it couples."""
    if len(name) == 3 and name[1] != name[2]:
        first, second = (abs(values[name[0] + i + i]) for i in name[1:])
        return float(np.sqrt(first * second))
    return abs(values[name])


def _scale(name: str, start: Array, names: Sequence[str]) -> float:
    """Typical size of a parameter, for the solver."""
    if name == "delay":
        return 1e-3
    alike = [abs(v) for v, n in zip(start, names, strict=True) if n[0] == name[0]]
    return max(max(alike), 1e-6)
