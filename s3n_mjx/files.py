"""Files that are written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_file(path: Path) -> bool:
    """Whether there is such a file; False for a name that none can have, such as one too long."""
    try:
        return path.is_file()
    except OSError:
        return False


@contextmanager
def written_whole(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds.

    A reader never sees half a file, and an interrupted run leaves the old file alone. The
    temporary name keeps the suffix, since writers choose the format by it. Missing parent
    folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(path: Path | str) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; rename it to `path` if the block succeeds.

    As :func:`written_whole`; what is in it is on the disk before it gets its name, so that the
    name never outlives the contents. A folder that is there already is replaced.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        os.chmod(temporary, 0o755)
        for file in temporary.rglob("*"):
            if file.is_file():
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
        aside = path.with_name(f".{path.name}.old")
        if path.exists():  # at no moment is there neither
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
        os.rename(temporary, path)
        shutil.rmtree(aside, ignore_errors=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
