"""S3N in MuJoCo MJX: parallel-leg robots trained with the dynamics that they really have."""

import os
from importlib.metadata import PackageNotFoundError, version

# XLA's C++ side would complain about every program that it takes from the cache, since its tuning
# flags are no features of the processor. It reads this when JAX is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

try:
    __version__ = version("s3n-mjx")
except PackageNotFoundError:  # a source tree that nobody installed
    __version__ = "0+unknown"
