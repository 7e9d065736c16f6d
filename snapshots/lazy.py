"""An array of a tree, made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.tensor import Shape


class Lazy(NamedTuple):
    """An array that is made when it is asked for: writers hold one at a time. fetch(): C order, on the host."""

    shape: Shape
    dtype: np.dtype[Any]
    fetch: Callable[[], NDArray[Any]]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize

    def fetched(self, where: str) -> NDArray[Any]:
        """The array. SnapshotError unless it has the form that was announced. where: file and entry."""
        array = np.asarray(self.fetch(), order="C")
        if (array.shape, array.dtype) != (self.shape, self.dtype):
            raise SnapshotError(
                f"{where}: wanted {self.shape} {self.dtype}, received {array.shape} {array.dtype} at last"
            )
        return array
