"""Files that are written whole or not at all."""

import os
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
