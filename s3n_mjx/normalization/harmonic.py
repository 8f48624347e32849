"""Symmetric 2x2 inertia of a planar pair as a function of the distal joint angle.

The inertia of two links with parallel axes depends on the angle between them alone, and every
entry is exactly ``A + B cos(alpha) + C sin(alpha)``: links contribute products of two position
vectors, one of which turns with ``alpha``. Everything S3N adds has this form too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class HarmonicMatrix:
    """``constant + cosine cos(alpha) + sine sin(alpha)``, each of shape (2, 2), in kg m^2."""

    constant: NDArray[np.float64]
    cosine: NDArray[np.float64]
    sine: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("constant", "cosine", "sine"):
            value = np.array(getattr(self, name), dtype=np.float64)
            if value.shape != (2, 2):
                raise ValueError(f"{name} has shape {value.shape}, expected (2, 2)")
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    @classmethod
    def of_constant(cls, matrix: ArrayLike) -> HarmonicMatrix:
        """The same matrix, shape (2, 2), at every angle."""
        return cls(np.asarray(matrix, dtype=np.float64), np.zeros((2, 2)), np.zeros((2, 2)))

    @classmethod
    def fit(cls, alpha: ArrayLike, matrices: ArrayLike) -> tuple[HarmonicMatrix, float]:
        """Least-squares fit per entry.

        Args:
            alpha: angles in rad, shape (n,), n >= 3 and not all alike.
            matrices: samples in kg m^2, shape (n, 2, 2).

        Returns:
            The fit and its largest absolute residual in kg m^2.
        """
        alpha = np.asarray(alpha, dtype=np.float64)
        matrices = np.asarray(matrices, dtype=np.float64)
        basis = np.stack([np.ones_like(alpha), np.cos(alpha), np.sin(alpha)], axis=-1)
        coefficients, *_ = np.linalg.lstsq(basis, matrices.reshape(-1, 4), rcond=None)
        residual = float(np.abs(basis @ coefficients - matrices.reshape(-1, 4)).max())
        constant, cosine, sine = np.asarray(coefficients, dtype=np.float64).reshape(3, 2, 2)
        return cls(constant, cosine, sine), residual

    def __call__(self, alpha: ArrayLike) -> NDArray[np.float64]:
        """Value at ``alpha`` in rad, any shape (...); returns shape (..., 2, 2)."""
        alpha = np.asarray(alpha, dtype=np.float64)[..., None, None]
        return self.constant + self.cosine * np.cos(alpha) + self.sine * np.sin(alpha)

    def __add__(self, other: HarmonicMatrix) -> HarmonicMatrix:
        return HarmonicMatrix(
            self.constant + other.constant, self.cosine + other.cosine, self.sine + other.sine
        )

    def __sub__(self, other: HarmonicMatrix) -> HarmonicMatrix:
        return HarmonicMatrix(
            self.constant - other.constant, self.cosine - other.cosine, self.sine - other.sine
        )

    def pull_back(self, jacobian: ArrayLike) -> HarmonicMatrix:
        """``J^T M J``: from actuator to serial coordinates (Eq. 9, 10, 16)."""
        j = np.asarray(jacobian, dtype=np.float64)
        return HarmonicMatrix(j.T @ self.constant @ j, j.T @ self.cosine @ j, j.T @ self.sine @ j)

    @property
    def magnitude(self) -> float:
        """Bound on the absolute value of any entry at any angle, in kg m^2."""
        varying = np.sqrt(self.cosine**2 + self.sine**2)
        return float((np.abs(self.constant) + varying).max())
