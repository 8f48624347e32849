"""Copy an MJCF with everything that it includes, so that the copy needs nothing else."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

import mujoco

from s3n_mjx.errors import UserError

_ABSOLUTE = re.compile(r"""(?:file|dir)\s*=\s*["'](/[^"']+|[A-Za-z]:[\\/][^"']+)["']""")

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def _files(source: Path) -> list[Path]:
    """The MJCF and all that it reads, each once, without `..` in its path."""
    found = [source, *map(Path, mujoco.mju_getXMLDependencies(str(source)))]
    return list(dict.fromkeys(Path(os.path.abspath(file)) for file in found))


def check_packable(source: Path) -> None:
    """Whether :func:`pack` can make a whole copy.

    Raises:
        UserError: the MJCF names a file by an absolute path, which no copy can hold.
    """
    if source.suffix != ".xml":
        return
    for file in _files(source):
        if file.suffix != ".xml":
            continue
        absolute = _ABSOLUTE.search(_COMMENT.sub("", file.read_text(errors="replace")))
        if absolute is not None:
            raise UserError(
                f"{file}: names {absolute[1]} by an absolute path, so that no checkpoint can hold"
                " the robot; make it relative to the MJCF"
            )


def pack(source: Path, folder: Path, name: str) -> str:
    """Copy byte by byte: written out by MuJoCo again, numbers would be cut to six digits.

    Args:
        source: MJCF, or a zip archive of one.
        folder: where to.
        name: of the copy: a file of this name if the MJCF is one, else a folder.

    Returns:
        Path of the copied MJCF, relative to ``folder``.
    """
    files = _files(source) if source.suffix == ".xml" else [source]
    if len(files) == 1:
        shutil.copyfile(source, folder / f"{name}{source.suffix}")
        return f"{name}{source.suffix}"
    # Files keep their places to each other, so that the MJCF finds them.
    common = Path(os.path.commonpath([file.parent for file in files]))
    for file in files:
        copy = folder / name / file.relative_to(common)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return str(PurePosixPath(name) / files[0].relative_to(common).as_posix())
