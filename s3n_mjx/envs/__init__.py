"""Tasks as `brax.envs` environments; importing this registers them under their names."""

from s3n_mjx import compat  # noqa: F401 - before brax

import brax.envs  # isort: skip

from s3n_mjx.envs.circle import CircleConfig, CircleEnv
from s3n_mjx.envs.pitch import PitchConfig, PitchEnv

TASKS = {"pitch": PitchEnv, "circle": CircleEnv}

for _name, _env in TASKS.items():
    brax.envs.register_environment(f"s3n_{_name}", _env)

__all__ = ["TASKS", "CircleConfig", "CircleEnv", "PitchConfig", "PitchEnv"]
