"""Writing while training goes on: a copy of the net on the host, and a thread that writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from singa_lite.snapshots.tree import Lazy, Tree
from singa_lite.tensor import Tensor, to_numpy

Work = Callable[[], None]


class HostCopy:
    """One copy of a net's bytes. Its memory is used again at the next copy: fresh memory would take longer than that.

    Measured with 100 MB on two cores of an AMD EPYC (Zen 5): see docs/snapshots.md.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def of(self, contents: Tree, tensors: Mapping[str, Tensor]) -> Tree:
        """The tree with its arrays that are tensors' copied now; valid until the next call."""
        copied = {path: _lazy(self._copied(path, tensor)) for path, tensor in tensors.items()}
        return replace(contents, arrays=contents.arrays | copied)

    def _copied(self, path: str, tensor: Tensor) -> NDArray[Any]:
        """The values, lying in memory as the tensor's do: the writer brings them in order, in its own time."""
        array = tensor.device.array(tensor)
        if not isinstance(array, np.ndarray):  # a GPU's, which come over into memory of their own
            return to_numpy(tensor)
        kept = self._arrays.get(path)
        if kept is None or (kept.shape, kept.dtype, kept.strides) != (array.shape, array.dtype, array.strides):
            kept = self._arrays[path] = np.empty_like(array)
        np.copyto(kept, array)
        return kept


def _lazy(array: NDArray[Any]) -> Lazy:
    return Lazy(array.shape, array.dtype, lambda: np.ascontiguousarray(array).reshape(array.shape))


class Writer:
    """Does one piece of work at a time. background: in a thread; else at once, before `start` returns.

    An error of the thread's is raised by the next call, once. The thread stays until `close`, as each new one would
    take some memory for itself.
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
        """Begin, once the work before it is done."""
        self.wait()
        if not self.background:
            work()
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._work = self._thread.submit(work)

    def wait(self) -> None:
        """Until nothing is under way."""
        if self._work is not None:
            wait([self._work])
        self.check()

    def check(self) -> None:
        """Raise the error of work that failed."""
        if self._work is not None and self._work.done():
            done, self._work = self._work, None
            done.result()

    def close(self) -> None:
        """Let the thread end, after the work that may be under way."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None
