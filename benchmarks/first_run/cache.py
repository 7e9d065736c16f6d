"""CompileCache: kernels that CuPy compiled, kept as one archive between machines."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path


class CompileCache:
    """archive: the file, or None to keep nothing. A folder of its own holds the kernels while items run."""

    def __init__(self, archive: Path | None) -> None:
        self._archive = archive
        self._folder = tempfile.TemporaryDirectory(prefix="kernels")

    @property
    def environment(self) -> dict[str, str]:
        """What tells CuPy of the folder."""
        return {"CUPY_CACHE_DIR": self._folder.name}

    def unpack(self) -> None:
        """Take what the archive holds, if there is one."""
        if self._archive is not None and self._archive.exists():
            with tarfile.open(self._archive) as archive:
                archive.extractall(self._folder.name, filter="data")

    def save(self) -> None:
        """Write the archive anew."""
        if self._archive is not None:
            made = self._archive.with_name(f"{self._archive.name}.part")
            with tarfile.open(made, "w:gz") as archive:
                archive.add(self._folder.name, ".")
            made.replace(self._archive)
