"""Writes the bundled robot's models from one parameter set, so that they can't drift apart.

    parameters.yaml -> serial.xml         what is trained on: each leg an open chain
                       closed_chain.xml   the stand-in for hardware: each leg with its linkage
                       robot.yaml         the description of both that the rest of S3N reads

This is for `assets/parallel_quadruped` and variants of it (other lengths, masses, motors).
It is not a general robot importer: a robot of another shape brings its own MJCF and robot.yaml.

Angles of a leg: `q_hip` turns the thigh, `q_knee` the shank relative to the thigh, and the crank is
parallel to the shank, so it stands at `q_hip + q_knee` relative to the hip body. With the motors on
thigh and crank, `q_p = J q_s` with `J = [[1, 0], [1, 1]]`.
"""

from collections.abc import Callable
from pathlib import Path

from s3n_mjx.files import written_whole
from s3n_mjx.robot.generate.description import description
from s3n_mjx.robot.generate.inertia import actuator_inertia
from s3n_mjx.robot.generate.mjcf import (
    closed_chain_spec,
    closed_chain_xml,
    serial_spec,
    serial_xml,
)
from s3n_mjx.robot.generate.parameters import (
    CLOSED_CHAIN_FILE,
    DESCRIPTION_FILE,
    SERIAL_FILE,
    Parameters,
    load_parameters,
)

_FILES: dict[str, Callable[[Parameters], str]] = {
    SERIAL_FILE: serial_xml,
    CLOSED_CHAIN_FILE: closed_chain_xml,
    DESCRIPTION_FILE: description,
}


def _contents(parameters_path: Path) -> dict[str, bytes]:
    p = load_parameters(parameters_path)
    contents = {name: write(p).encode() for name, write in _FILES.items()}
    for spec in (serial_spec(p), closed_chain_spec(p)):
        spec.compile()  # nothing is written that MuJoCo can't load
    return contents


def generate(parameters_path: Path, out_folder: Path) -> list[Path]:
    """Write the three files; each appears whole or not at all. The same input, the same bytes."""
    paths = []
    contents = _contents(parameters_path)
    for name, content in contents.items():
        path = out_folder / name
        with written_whole(path) as temporary:
            temporary.write_bytes(content)
        paths.append(path)
    return paths


def stale_files(parameters_path: Path, out_folder: Path) -> list[Path]:
    """The files in `out_folder` that `generate` would change or that are missing."""
    paths = {out_folder / name: content for name, content in _contents(parameters_path).items()}
    return [path for path, new in paths.items() if not path.is_file() or path.read_bytes() != new]


__all__ = [
    "Parameters",
    "actuator_inertia",
    "closed_chain_spec",
    "generate",
    "load_parameters",
    "serial_spec",
    "stale_files",
]
