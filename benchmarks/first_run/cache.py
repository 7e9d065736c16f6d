"""CompileCache: kernels that CuPy compiled, kept as one archive between machines."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import Self


class CompileCache:
    """archive: the file, or None to keep nothing. A folder of its own holds the kernels until the `with` block ends."""

    def __init__(self, archive: Path | None) -> None:
        self._archive = archive
        self._folder = tempfile.TemporaryDirectory(prefix="kernels", ignore_cleanup_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def environment(self) -> dict[str, str]:
        """What tells CuPy of the folder."""
        return {"CUPY_CACHE_DIR": self._folder.name}

    def unpack(self) -> str:
        """Take what the archive holds, if there is one. "", or why that failed: then kernels are compiled again."""
        if self._archive is None or not self._archive.exists():
            return ""
        try:
            with tarfile.open(self._archive) as archive:
                archive.extractall(self._folder.name, filter="data")
        except (OSError, EOFError, tarfile.TarError) as error:
            return f"cache: {error}"
        return ""

    def save(self) -> str:
        """Write the archive anew. "", or why that failed: no item needs it."""
        if self._archive is None:
            return ""
        made = self._archive.with_name(f"{self._archive.name}.part")
        try:
            with tarfile.open(made, "w:gz") as archive:
                archive.add(self._folder.name, ".")
            made.replace(self._archive)
        except OSError as error:
            made.unlink(missing_ok=True)
            return f"cache: {error}"
        return ""
