"""The CPU: NumPy arrays over bytes of the pool; everything is done at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from singa_lite.kernels.kernel_set import Launch
from singa_lite.runtime.runtime import HostArray

_HERE = nullcontext()


class Host:
    """The runtime of CPUs, see `runtime.Runtime`."""

    alignment = 64  # a cache line, and the widest vector register
    feed_layout = ""

    def view(
        self, memory: Any, shape: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int], offset: int
    ) -> HostArray:
        """NumPy's."""
        return np.ndarray(shape, dtype, memory, offset, strides)

    def part(self, memory: Any, offset: int, nbytes: int) -> Any:
        """A slice."""
        return memory[offset : offset + nbytes]

    def write(self, array: HostArray, values: HostArray) -> None:
        """A copy."""
        np.copyto(array, values, casting="same_kind")

    def staged(self, owner: Any, values: HostArray) -> None:
        """Nothing runs meanwhile."""
        return None

    def read(self, array: HostArray) -> HostArray:
        """A copy."""
        return np.array(array, order="C")

    def export(self, keeper: Any, array: HostArray) -> HostArray:
        """NumPy's own protocol."""
        return np.asarray(_Export(keeper, array))

    def adopt(self, given: Any) -> None:
        """Foreign arrays are copied: they may be read-only, and lie anyhow."""
        return None

    def let_go(self, array: Any) -> None:
        """None is ever adopted."""

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> _Loop:
        """A loop."""
        return _Loop(tuple(launches))

    def here(self) -> AbstractContextManager[Any]:
        """There is one CPU."""
        return _HERE

    def synchronize(self) -> None:
        """Nothing is ever under way."""


class _Loop:
    """A `runtime.Replay` one launch after the other."""

    __slots__ = ("_launches",)

    def __init__(self, launches: tuple[Launch, ...]) -> None:
        self._launches = launches

    def __call__(self) -> None:
        for launch in self._launches:
            launch()

    def pausing(self, place: int, wait: Callable[[], object]) -> None:
        """See `runtime.Replay`."""
        for launch in self._launches[:place]:
            launch()
        wait()
        for launch in self._launches[place:]:
            launch()


class _Export:
    """Holds a tensor for as long as NumPy holds an array over its bytes."""

    def __init__(self, keeper: Any, array: HostArray) -> None:
        self.keeper = keeper
        self.__array_interface__ = array.__array_interface__
