"""What the tests of Keras's layout share: files with a manifest that says what the test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from singa_lite import SnapshotError
from singa_lite.snapshots import formats


def remade(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest of a file, and its digest."""
    with h5py.File(path, "r+") as file:
        contents = json.loads(file["singa_lite/manifest"][()].tobytes())
        change(contents)
        data = json.dumps(contents).encode()
        del file["singa_lite/manifest"]
        file["singa_lite/manifest"] = np.frombuffer(data, np.uint8)
        file["singa_lite"].attrs["sha256"] = sha256(data).hexdigest()


def assert_refused(path: Path, message: str) -> None:
    """It is when the file is opened, by our error that names it."""
    with pytest.raises(SnapshotError, match=message) as caught, formats.opened(path):
        pass
    assert str(caught.value).startswith(f"{path}: ")
