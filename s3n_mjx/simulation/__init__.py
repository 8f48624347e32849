"""The normalized robot in MJX, and its control loop."""

from s3n_mjx import compat as compat  # before mujoco.mjx
