"""The state of an open file, which differs once the file was changed."""

from __future__ import annotations

import os
from io import FileIO
from typing import NamedTuple


class FileState(NamedTuple):
    """size: bytes; modified: when the contents were last changed; changed: when anything was; both in nanoseconds."""

    size: int
    modified: int
    changed: int


def state_of(file: FileIO) -> FileState:
    """The file's state, which differs once the file was changed."""
    found = os.fstat(file.fileno())
    return FileState(found.st_size, found.st_mtime_ns, found.st_ctime_ns)
