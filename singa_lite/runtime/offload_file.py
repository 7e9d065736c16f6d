"""OffloadFile: on a CPU, values that are offloaded lie in a temporary file.

It has no name, so nothing is left of it however the process ends. Its bytes are allocated beforehand: a full disk is
told before the first step. It is read and written and not mapped: mapped pages would count as the process's memory,
which is what a budget bounds, and a disk that fails would end the process instead of the call.
"""

from __future__ import annotations

import os
from functools import partial
from tempfile import TemporaryFile
from weakref import finalize

from singa_lite.common.array_types import Array
from singa_lite.runtime.host_memory import Copying

#: Written at a time where the system cannot allocate a file's bytes.
_ZEROS = 1 << 20


def checked_folder(folder: str) -> str:
    """Its whole path. OSError where no temporary file can be made in it, ValueError for the word that GPUs know."""
    if folder == "host":
        raise ValueError(
            "offload: wanted a folder for a temporary file, as on a CPU the host's memory is what a budget bounds, "
            "received 'host' (the folder of that name is './host')"
        )
    folder = os.path.abspath(folder)
    OffloadFile(folder, 0)
    return folder


class OffloadFile:
    """A `HostMemory` of `nbytes` bytes in a folder. OSError where that cannot be had there."""

    def __init__(self, folder: str, nbytes: int) -> None:
        self.nbytes = nbytes
        self._folder = folder
        self._open()

    def _open(self) -> None:
        try:
            file = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  closed with this object
            finalize(self, file.close)
            self._file = file.fileno()
            _allocate(self._file, self.nbytes)
        except OSError as error:
            raise OSError(
                error.errno,
                f"offload: wanted a temporary file of {self.nbytes:,} bytes in {self._folder!r}, received: "
                f"{error.strerror}",
            ) from error
        self._process = os.getpid()

    def _own(self) -> int:
        """The file, by its number. A child process gets one of its own, as it would write where its parent reads."""
        if self._process != os.getpid():
            self._open()
        return self._file

    def out(self, array: Array, offset: int) -> Copying:
        """Writes the bytes; the page cache takes them, and the system writes them to the disk when it wants to."""
        return Copying(partial(self._write, array.data, offset), _no_op)

    def back(self, array: Array, offset: int) -> Copying:
        """Reads them."""
        return Copying(partial(self._read, array.data, offset), _no_op)

    def _write(self, values: memoryview, offset: int) -> None:
        """A call writes 2 GiB at most."""
        file = self._own()
        while values:
            count = os.pwrite(file, values, offset)
            values, offset = values[count:], offset + count

    def _read(self, values: memoryview, offset: int) -> None:
        file = self._own()
        while values:
            count = os.preadv(file, [values], offset)
            if not count:
                raise OSError(f"offload: wanted {len(values):,} more bytes of the temporary file, received its end")
            values, offset = values[count:], offset + count

    def settle(self) -> None:
        """Nothing: each copy is done when its call returns."""


def _no_op() -> None:
    """The end of a copy that is done at once."""


def _allocate(file: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate") and nbytes:
        os.posix_fallocate(file, 0, nbytes)
        return
    for start in range(0, nbytes, _ZEROS):
        os.write(file, bytes(min(_ZEROS, nbytes - start)))
