"""Writes while training goes on: from a copy of the net on the host, in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.snapshots.tree import LazyArray, Tree
from singa_lite.tensor import Block, Tensor, to_numpy

Work = Callable[[], None]

#: Beginnings of paths of tensors that a step does not write before its first update.
_CHANGED_LAST = ("parameters/", "optimizer/")


class Copying(NamedTuple):
    """A copy of a net that was begun. contents: valid once `finish` was called, by any thread.

    read_later: the blocks that `finish` reads; they may not be written before it is done.
    """

    contents: Tree
    finish: Work
    read_later: frozenset[Block]


class HostCopy:
    """One copy of a net's bytes. Its memory is used again for the next copy: fresh memory would take longer than that.

    Only what a forward pass changes is copied at once. A training step changes parameters and the optimizer's state
    after its forward pass, so that they are copied during it.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def reserve(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the memory now. It is filled, as the system gives pages only when they are touched."""
        for path, tensor in tensors.items():
            array = tensor.device.array(tensor)
            if isinstance(array, np.ndarray):
                self._buffer(path, array).fill(0)

    def begin(self, contents: Tree, tensors: Mapping[str, Tensor]) -> Copying:
        """Copy those of the tree's arrays that are the tensors'. The copy is valid until the next call."""
        copied: dict[str, LazyArray] = {}
        later: list[tuple[Array, Array]] = []
        blocks: set[Block] = set()
        for path, tensor in tensors.items():
            array = tensor.device.array(tensor)
            if not isinstance(array, np.ndarray):  # a GPU's: `to_numpy` copies it to the host
                copied[path] = _lazy(to_numpy(tensor))
                continue
            kept = self._buffer(path, array)
            copied[path] = _lazy(kept)
            if path.startswith(_CHANGED_LAST):
                later.append((kept, array))
                blocks.add(tensor.block)
            else:
                np.copyto(kept, array)

        def finish() -> None:
            for kept, array in later:
                np.copyto(kept, array)

        return Copying(replace(contents, arrays=contents.arrays | copied), finish, frozenset(blocks))

    def copies_of(self, arrays: Mapping[str, LazyArray]) -> dict[str, LazyArray]:
        """Copies of arrays that are fetched now. They are valid until the next call."""
        found = dict[str, LazyArray]()
        for path, lazy in arrays.items():
            array = lazy.fetch()
            np.copyto(kept := self._buffer(path, array), array)
            found[path] = _lazy(kept)
        return found

    def _buffer(self, path: str, array: Array) -> Array:
        """Memory for an array, with its strides, so that the copy is fast. The writer brings it into C order later."""
        kept = self._arrays.get(path)
        if kept is None or (kept.shape, kept.dtype, kept.strides) != (array.shape, array.dtype, array.strides):
            kept = self._arrays[path] = np.empty_like(array)
        return kept


def _lazy(array: Array) -> LazyArray:
    return LazyArray(array.shape, array.dtype, lambda: np.ascontiguousarray(array).reshape(array.shape))


class Writer:
    """Does one piece of work at a time. background: in a thread; else `start` does it before it returns.

    The next call raises an error of the thread, once. One thread is used until `close`, as each new one takes memory.
    """

    def __init__(self, background: bool) -> None:
        self.background = background
        self._thread: ThreadPoolExecutor | None = None
        self._work: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether work is still under way."""
        return self._work is not None and not self._work.done()

    def start(self, work: Work) -> None:
        """Begin the work, once the work before it is done."""
        self.wait()
        if not self.background:
            work()
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._work = self._thread.submit(work)

    def wait(self) -> None:
        """Wait until no work is under way; raises its error."""
        self.settle()
        self.check()

    def settle(self) -> None:
        """Wait until no work is under way, whether or not it failed."""
        if self._work is not None:
            wait([self._work])

    def check(self) -> None:
        """Raise the error of work that failed."""
        if self._work is not None and self._work.done():
            done, self._work = self._work, None
            done.result()

    def close(self) -> None:
        """Let the thread end after the work that is under way."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None
