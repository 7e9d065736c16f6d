"""Whether all ranks have equal parameters: a digest of all, and where it differs which rank and which parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import ParallelError
from singa_lite.device import device_of
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.tensor import Tensor


class Comparison:
    """values: gives what is to be equal, by name."""

    def __init__(self, values: Callable[[], Mapping[str, Tensor]]) -> None:
        self._values = values

    def digest(self) -> bytes:
        """Equal where all values have equal bits, names and forms, and lie in memory alike: sums go by its order."""
        return repr(list(self._digests().items())).encode()

    def refuse(self, ranks: DataParallel, where: str) -> NoReturn:
        """Say which rank and which parameter differ. All ranks call it."""
        raise ParallelError(f"{where}: wanted equal parameters on all ranks, received {self._difference(ranks)}")

    def _difference(self, ranks: DataParallel) -> str:
        first, *others = ranks.gathered(self._digests())
        if not isinstance(first, dict):
            return "ranks that do something else"
        for rank, other in enumerate(others, 1):
            if not isinstance(other, dict) or list(other) != list(first):
                return f"another net on rank {rank} than on rank 0"
            lies = [name for name in first if first[name][0] != other[name][0]]
            if lies:
                return f"{lies[0]!r} in another order in memory on rank {rank} than on rank 0, as by other kernels"
            wrong = [name for name in first if first[name] != other[name]]
            if wrong:
                more = f" and {len(wrong) - 1} others" if len(wrong) > 1 else ""
                return f"another value of {wrong[0]!r}{more} on rank {rank} than on rank 0"
        return "parameters that changed meanwhile"

    def _digests(self) -> dict[str, tuple[object, ...]]:
        return {name: (value.memory_order(), *_digest(_on_host(value))) for name, value in self._values().items()}


def _on_host(value: Tensor) -> Array:
    device = device_of(value)
    array = device.array(value)
    return array if isinstance(array, np.ndarray) else device.runtime.read(array)


def _digest(array: Array) -> tuple[object, ...]:
    """Form and sums of the bits, in one pass over memory each: quicker than any hash, and no two roundings agree."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = flat[: flat.size // 8 * 8].view(np.uint64)
    rest = flat[words.size * 8 :].tobytes()
    odd = words[::2].sum(dtype=np.uint64)
    return str(array.dtype), array.shape, int(words.sum(dtype=np.uint64)), int(odd), rest
