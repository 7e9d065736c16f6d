"""What tells that a file was changed while it is open."""

from __future__ import annotations

import os
from io import FileIO
from typing import NamedTuple


class State(NamedTuple):
    """Bytes, and when contents and anything at all were last changed, in nanoseconds."""

    size: int
    modified: int
    changed: int


def state_of(file: FileIO) -> State:
    """Another one if the file was changed since."""
    found = os.fstat(file.fileno())
    return State(found.st_size, found.st_mtime_ns, found.st_ctime_ns)
