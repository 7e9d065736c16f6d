"""Gradients of an embedding's rows: the same bits by every set, as their sums go in the order of the ids."""

from __future__ import annotations

import numpy as np
import pytest

from every_set import ON_CPU, parameter
from kernel_case import garbage, run
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY


@pytest.mark.parametrize("kernels", [parameter(kernels) for kernels in ON_CPU])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int16"])
@pytest.mark.parametrize("name", ["embedding_gradient", "embedding_gradient_add"])
@pytest.mark.parametrize("features", [1, 7, 1100])
def test_many_equal_ids_give_the_bits_of_the_reference(kernels: KernelSet, name, dtype, features):
    """Several groups of one id, others once or never, some below and above the rows, and the padding."""
    rng = np.random.default_rng(3)
    ids = np.where(rng.random((5, 131)) < 0.5, 9, rng.integers(0, 30, (5, 131))).astype(dtype)
    dy, old = (rng.standard_normal((*shape, features)).astype(np.float32) for shape in ((5, 131), (20,)))
    found = []
    for each in (NUMPY, kernels):
        dweight = old.copy() if name.endswith("add") else garbage(old.shape, old.dtype)
        run(each, name, [ids, dy, dweight], {"first": 4, "padding": 11})
        found.append(dweight.tobytes())
    assert found[0] == found[1]
