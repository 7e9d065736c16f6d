"""A limit of the system on the length of files, which stands for a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def disk_of(length: int) -> Iterator[None]:
    """Files end at this byte. Skips the test where the system has no such limit."""
    resource = pytest.importorskip("resource", reason="this system sets no limits of a file's size")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
