"""Tasks as `brax.envs` environments; importing this registers them under their names."""

import brax.envs

from s3n_mjx.envs.pitch import PitchConfig, PitchEnv

TASKS = {"pitch": PitchEnv}

for _name, _env in TASKS.items():
    brax.envs.register_environment(f"s3n_{_name}", _env)

__all__ = ["TASKS", "PitchConfig", "PitchEnv"]
