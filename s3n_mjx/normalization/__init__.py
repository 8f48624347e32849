"""S3N as maths: increments, how to share them out, stability. NumPy only."""

from s3n_mjx.normalization.harmonic import HarmonicMatrix
from s3n_mjx.normalization.increments import (
    PairIncrement,
    Variant,
    actuator_increment,
    link_increment,
    pair_increment,
    parallel_inertia,
)
from s3n_mjx.normalization.split import Injection, LaggedTerms, PairSplit, Tendon, split_increment
from s3n_mjx.normalization.stability import spectral_radius

__all__ = [
    "HarmonicMatrix",
    "Injection",
    "LaggedTerms",
    "PairIncrement",
    "PairSplit",
    "Tendon",
    "Variant",
    "actuator_increment",
    "link_increment",
    "pair_increment",
    "parallel_inertia",
    "spectral_radius",
    "split_increment",
]
