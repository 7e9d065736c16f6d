"""NaN, infinities, zeros and kinks in every kernel set: element-wise kernels by one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from every_set import ALL, parameter
from kernel_case import garbage, run
from kernel_edges import DIFFERENT, EDGES, LEFT_BELOW, NUMPY_WARNS, Edge
from layouts import serves
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet

#: Part of a vector, a few vectors and a rest; and more than a core's cache holds, for a set that leaves small tensors
#: to another one, or shares large ones out among threads.
SIZES, LARGE = (5, 83), {"onednn": (270_001,)}


def rows(kernels: KernelSet) -> Iterator[tuple[str, Edge]]:
    """The rows of the table of kernels that the set has."""
    for key, edge in EDGES.items():
        if kernels.fallback is not None or key.split(":")[0] in kernels.kernels:
            yield key, edge


def tensors(edge: Edge, name: str, size: int, dtype: Any) -> list[np.ndarray]:
    """The row's numbers again and again, and the result if the kernel does not update its last tensor."""
    given = [np.resize(np.array(row, np.float64).astype(dtype), size) for row in edge.inputs]
    result = garbage((size,), dtype)
    if edge.of_samples:
        is_derivative = name.endswith("_derivative")
        images = range(1, 3) if is_derivative else range(2)
        given = [t if i not in images else t.reshape(size, 1) for i, t in enumerate(given)]
        result = result.reshape(size, 1) if is_derivative else result
    return [*given, result] if SIGNATURES[name].roles[-1] == "Write" else given


@pytest.mark.parametrize("kernels, key, edge", [parameter(s, *row, label=row[0]) for s in ALL for row in rows(s)])
def test_element_by_element(kernels: KernelSet, key: str, edge: Edge) -> None:
    name, served = key.split(":")[0], False
    for dtype in (np.float32, np.float64):
        for size in (*SIZES, *(LARGE.get(kernels.name, ()) if dtype is np.float32 else ())):
            call = tensors(edge, name, size, dtype)
            own = name in kernels.kernels and serves(kernels, name, call, edge.settings)
            with np.errstate(invalid="ignore" if name in NUMPY_WARNS else "raise"):
                run(kernels, name, call, edge.settings)
            row = DIFFERENT.get((kernels.name, key), edge.wanted) if own else edge.wanted
            wanted = np.resize(np.array(row, np.float64), size)
            np.testing.assert_allclose(call[-1].reshape(-1), wanted, rtol=edge.rtol, atol=edge.atol)
            served = served or own
    left = name not in kernels.kernels or (kernels.name, key) in LEFT_BELOW
    assert served != left, "whether the set itself does it"
