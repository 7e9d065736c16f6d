"""Types of arrays and dtypes whose kind of number is known only when a script runs: one name each, for all rooms."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: NumPy's array, of any dtype.
Array: TypeAlias = NDArray[Any]
#: NumPy's dtype, any of them.
DType: TypeAlias = np.dtype[Any]

# What a device has is NumPy's on a CPU and CuPy's on a GPU. CuPy has no type information, and code above `runtime/`
# hands these on without looking into them.
#: An array over a device's memory.
DeviceArray: TypeAlias = Any
#: Memory that arrays are made over: an array of uint8, or CuPy's pointer.
DeviceMemory: TypeAlias = Any
#: A region that a device's pool has handed out; each pool has its own class.
DeviceRegion: TypeAlias = Any


class Shaped(Protocol):
    """An array of the user's, of whatever library, or a tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> object: ...
