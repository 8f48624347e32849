"""`python -m s3n_mjx.robot`; see :mod:`s3n_mjx.robot.commands`."""

from s3n_mjx.cli import run
from s3n_mjx.robot.commands import main

if __name__ == "__main__":
    run(main)
