"""What every test of snapshots checks, that files are closed whatever goes wrong; and a file that many begin with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_nets import trained

DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def every_file_is_closed(tmp_path: Path) -> Iterator[None]:
    """After the test no descriptor of this process leads below its folder; checked where /proc is there."""
    yield
    if DESCRIPTORS.exists():
        found = [os.path.realpath(entry) for entry in DESCRIPTORS.iterdir()]
        left = [path for path in found if path.startswith(os.path.realpath(tmp_path))]
        assert not left, f"left open: {left}"


@pytest.fixture(scope="session")
def bytes_of_trained(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a snapshot of `trained()` holds; it is trained once."""
    path = tmp_path_factory.mktemp("trained") / "net.h5"
    trained().save(path)
    return path.read_bytes()


@pytest.fixture
def saved(tmp_path: Path, bytes_of_trained: bytes) -> Path:
    """A snapshot of `trained()`, Adam after three steps."""
    path = tmp_path / "net.h5"
    path.write_bytes(bytes_of_trained)
    return path
