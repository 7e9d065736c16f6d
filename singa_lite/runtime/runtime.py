"""What a device asks of the runtime of its processor, and of its pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from singa_lite.kernels.kernel_set import Launch

HostArray = NDArray[Any]


class Region(Protocol):
    """Bytes from a pool. memory: what `Runtime.view` makes arrays over."""

    @property
    def nbytes(self) -> int: ...

    @property
    def memory(self) -> Any: ...


class MemoryPool(Protocol):
    """Take and give, a limit, and numbers in bytes; see `memory.pool.Pool`, which says what each means."""

    checked: bool

    def take(self, nbytes: int, owner: Any = None) -> Any: ...

    def give(self, region: Any) -> None: ...

    def check(self) -> None: ...

    @property
    def used(self) -> int: ...

    @property
    def free(self) -> int: ...

    @property
    def total(self) -> int: ...

    @property
    def limit(self) -> int | None: ...

    @property
    def high_water(self) -> int: ...

    def set_limit(self, limit: int | None) -> None: ...

    def reset_high_water(self) -> None: ...

    def release_free(self) -> int: ...


class Replay(Protocol):
    """What runs the launches of a step, again and again."""

    def __call__(self) -> None: ...

    def pausing(self, place: int, wait: Callable[[], object]) -> None:
        """Run them, and call `wait` once before the one at `place`, or earlier."""


class Runtime(Protocol):
    """Arrays over memory, values in and out, and how launches are replayed.

    alignment: bytes; offsets in an arena are multiples of it. feed_layout: the kind of tensor (`Device.empty`) as which
    batches of images are held, "" for C order.
    """

    alignment: int
    feed_layout: str

    def view(self, memory: Any, shape: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int], offset: int) -> Any:
        """An array over a region's memory, no copy. strides, offset: bytes."""

    def part(self, memory: Any, offset: int, nbytes: int) -> Any:
        """The memory of so many bytes within a region's memory, for `view`."""

    def write(self, array: Any, values: HostArray) -> None:
        """Overwrite with host values of this shape, whose dtype converts without changing kind."""

    def staged(self, owner: Any, values: HostArray) -> AbstractContextManager[Any] | None:
        """Memory with a batch's values in C order, for work asked for inside that brings them to where they are wanted.

        They come while work asked for earlier still runs. None where that gains nothing over `write`. owner: the block
        that is fed; what serves to feed it is kept for its next batch, and given back when it dies.
        """

    def read(self, array: Any) -> HostArray:
        """A copy of the values on the host, in C order; waits for them."""

    def export(self, keeper: Any, array: Any) -> Any:
        """The array in a form that speaks DLPack and keeps `keeper` alive."""

    def adopt(self, given: Any) -> tuple[Any, Any] | None:
        """(memory, array) of a foreign array that lies in this processor's memory, no copy; None if it does not."""

    def let_go(self, array: Any) -> None:
        """An adopted array will not be used any more; it is held until what it was used for is done."""

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> Replay:
        """What runs these launches, again and again. names: of what each does."""

    def here(self) -> AbstractContextManager[Any]:
        """Inside, this processor and its stream are the current ones."""

    def synchronize(self) -> None:
        """Wait until all that was asked for is done."""
