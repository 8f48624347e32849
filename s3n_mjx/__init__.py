"""S3N in MuJoCo MJX: parallel-leg robots trained with the dynamics that they really have."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("s3n-mjx")
except PackageNotFoundError:  # a source tree that nobody installed
    __version__ = "0+unknown"
