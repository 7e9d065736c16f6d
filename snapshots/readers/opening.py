"""Opens an ordinary file to be read, and refuses anything else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO

from singa_lite.common.atomic import SelfClosing
from singa_lite.common.errors import SnapshotError


@contextmanager
def to_read(path: str | bytes | os.PathLike[str], refusal: str) -> Iterator[FileIO]:
    """The file, without a buffer. refusal: what the SnapshotError says, between the file's name and the cause.

    SnapshotError for a folder, a device or what may not be read; FileNotFoundError if there is none.
    """
    name = os.fsdecode(path)
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):  # before it is opened: opening a pipe waits for a writer
            raise OSError("it is no ordinary file")
        file = SelfClosing(name)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise SnapshotError(f"{name}: {refusal}: {error}") from error
    with file:
        yield file
