"""Types of arrays and dtypes whose kind of number is known only when a script runs: one name each, for all rooms."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: NumPy's array, of any dtype.
Array: TypeAlias = NDArray[Any]
#: NumPy's dtype, any of them.
DType: TypeAlias = np.dtype[Any]
