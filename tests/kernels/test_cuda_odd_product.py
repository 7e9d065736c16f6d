"""Products in 16 bits whose extents are no multiple of 8: in two parts, with the numbers of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_cuda_values import of_the_host

import skips
from host_kernels import cuda_with_libraries_on_host
from singa_lite.kernels.cuda_kernels import odd_product
from singa_lite.kernels.kernel_set import specs_of
from singa_lite.testing.kernel_call import run

BFLOAT16 = np.dtype(skips.library("ml_dtypes").bfloat16)
ROWS, CLASSES, FEATURES = 5, 27, 16


def rows_of(rng: np.random.Generator, rows: int, columns: int, dtype: Any, gap: int) -> np.ndarray:
    """With a gap behind each row."""
    return rng.normal(size=(rows, columns + gap)).astype(dtype)[:, :columns]


#: (kernel, a, b, y, transpose_a, transpose_b), each matrix as (rows, columns, dtype, gap).
PRODUCTS = {
    "scores": (
        *("matmul", (ROWS, FEATURES, BFLOAT16, 0), (CLASSES, FEATURES, "f4", 0), (ROWS, CLASSES, "f4", 1)),
        *(False, True),
    ),
    "scores of columns": (
        *("matmul", (ROWS, FEATURES, BFLOAT16, 0), (FEATURES, CLASSES, "f4", 0), (ROWS, CLASSES, "f4", 1)),
        *(False, False),
    ),
    "derivative": (
        *("matmul", (ROWS, CLASSES, "f4", 1), (CLASSES, FEATURES, "f4", 0), (ROWS, FEATURES, BFLOAT16, 0)),
        *(False, False),
    ),
    "added": (
        *("matmul_add", (ROWS, CLASSES, BFLOAT16, 1), (FEATURES, CLASSES, BFLOAT16, 1), (ROWS, FEATURES, "f4", 0)),
        *(False, True),
    ),
}


@of_the_host
@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_in_two_parts(case, monkeypatch):
    monkeypatch.setattr(odd_product, "LEAST", 16)
    monkeypatch.setattr(odd_product, "LEAST_TERMS", 1)
    name, *matrices, transpose_a, transpose_b = PRODUCTS[case]
    rng = np.random.default_rng(3)
    a, b, y = (rows_of(rng, *given) for given in matrices)
    settings = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    left, right = (x.astype(BFLOAT16).astype(np.float64) for x in (a, b))
    wanted = (left.T if transpose_a else left) @ (right.T if transpose_b else right)
    wanted += y.astype(np.float64) if name == "matmul_add" else 0
    kernels = cuda_with_libraries_on_host()
    assert kernels.choose(name, specs_of((a, b, y)), settings) is kernels.kernels[name]
    run(kernels, name, [a, b, y], settings)
    off = 2.0**-7 if y.dtype == BFLOAT16 else 2.0**-18
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=off, atol=off * np.abs(wanted).max())


@of_the_host
def test_products_of_few_terms_or_aligned_ones_stay_whole(monkeypatch):
    kernels = cuda_with_libraries_on_host()
    settings = {"transpose_a": False, "transpose_b": True}
    a, b, y = (np.zeros(shape, BFLOAT16) for shape in ((8, 16), (27, 16), (8, 27)))
    assert kernels.choose("matmul", specs_of((a, b, y)), settings) is not kernels.kernels["matmul"]
    monkeypatch.setattr(odd_product, "LEAST", 16)
    monkeypatch.setattr(odd_product, "LEAST_TERMS", 1)
    b, y = b[:24], y[:, :24]
    assert kernels.choose("matmul", specs_of((a, b, y)), settings) is not kernels.kernels["matmul"]
