"""Threads of a saver beside the one that writes: one hashes the array, one brings written bytes to the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from singa_lite.common.array_types import Array
from singa_lite.snapshots.manifest import Manifest

#: The least bytes of an array that is hashed in a thread.
_LARGE = 1 << 20


class SaverThreads:
    """Two threads of one saver. handle: of the new file. `entering` or the end raises an error of a thread."""

    def __init__(self, known: Manifest, handle: int) -> None:
        self._known, self._handle = known, handle
        self._threads = ThreadPoolExecutor(2)
        self._synced: Future[None] | None = None

    @contextmanager
    def entering(self, path: str, array: Array) -> Iterator[None]:
        """Enter an array into the manifest while the body writes it.

        After the body the bytes of a large one are brought to the disk while the next one is hashed. Otherwise the
        fsync in the end would have to wait for all of them.
        """
        if array.nbytes < _LARGE:
            self._known.enter(path, array)
            yield
            return
        entered = self._threads.submit(self._known.enter, path, array)
        yield
        entered.result()
        if self._synced is None or self._synced.done():
            self._check()
            self._synced = self._threads.submit(os.fsync, self._handle)

    def _check(self) -> None:
        """Raise the error of the last fsync. The system reports an error once: a later fsync would not repeat it."""
        if self._synced is not None:
            self._synced.result()

    def __enter__(self) -> SaverThreads:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._threads.shutdown()
        if kind is None:
            self._check()
