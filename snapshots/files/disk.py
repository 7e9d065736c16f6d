"""The file that HDF5 writes through: it hides errors from HDF5, and raises them when HDF5 is done."""

from __future__ import annotations

from io import FileIO
from typing import Any


class Disk(FileIO):
    """Keeps the first error, writes nothing after it, and raises it in `check` and at the end.

    It must not reach HDF5, which writes much of a file only when it closes it: there h5py drops errors, or the
    process dies of them (h5py issues 914 and 1120).
    """

    def __init__(self, file: FileIO) -> None:
        super().__init__(file.fileno(), "r+b", closefd=False)
        self._error: BaseException | None = None

    def write(self, data: Any) -> int:
        """Write all of `data`, of which one call to the system may write less."""
        left = memoryview(data)
        try:
            while left and self._error is None:
                left = left[super().write(left) :]
        except OSError as error:
            self._error = OSError(error.errno, f"{error.strerror}, with {len(left)} of {len(data)} bytes not written")
        except BaseException as error:  # an interrupt too
            self._error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """As in any file, but for errors."""
        try:
            return super().truncate(size) if self._error is None else 0
        except BaseException as error:
            self._error = error
            return 0

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self._error is not None:
            raise self._error

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        self.check()
