"""What holds in every test of snapshots: whatever goes wrong, files are closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def every_file_is_closed(tmp_path: Path) -> Iterator[None]:
    """After the test no descriptor of this process leads below its folder; checked where /proc is there."""
    yield
    if DESCRIPTORS.exists():
        found = [os.path.realpath(entry) for entry in DESCRIPTORS.iterdir()]
        left = [path for path in found if path.startswith(os.path.realpath(tmp_path))]
        assert not left, f"left open: {left}"
