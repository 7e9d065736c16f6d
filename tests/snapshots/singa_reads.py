"""What the tests of SINGA's files share: a file that is read back as arrays, or refused, and what that costs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from singa_lite.errors import SnapshotError
from singa_lite.snapshots import formats


def written(folder: Path, data: bytes, name: str = "net.bin") -> Path:
    """The path of a new file."""
    path = folder / name
    path.write_bytes(data)
    return path


def contents(path: Path) -> dict[str, np.ndarray]:
    """All arrays by our paths; they are as announced."""
    with formats.opened(path) as source:
        arrays = {entry: source.read(entry) for entry in source.specs}
        assert {entry: (array.shape, array.dtype) for entry, array in arrays.items()} == dict(source.specs)
        assert source.attributes.get("entries") == len(arrays)
    return arrays


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Fail unless they are equal, in order, and lie as C has them."""
    assert list(found) == list(wanted)
    for path, array in wanted.items():
        assert found[path].dtype == array.dtype and found[path].flags.c_contiguous
        assert found[path].tobytes() == array.tobytes(), path


def refused(path: Path, words: str = "") -> None:
    """Fail unless the file is refused by an error that names it and has these words."""
    with pytest.raises(SnapshotError) as caught:
        contents(path)
    assert path.name in str(caught.value) and words in str(caught.value)
    assert len(str(caught.value)) < 1000


def peak(call: Callable[[], object]) -> int:
    """Bytes of memory that a call takes at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
