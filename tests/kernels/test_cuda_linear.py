"""Matrix products and biases of the CUDA set itself: sizes about a tile, strides, batches, NaN, halves."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_values import normal

from kernel_case import garbage, run
from layouts import c_order, check, serves
from singa_lite.kernels.cuda_kernels import linear
from singa_lite.kernels.cuda_kernels.reduction import contiguous

Array = np.ndarray

#: (rows, depth, columns): one of each, and about the tile's 64 and the depth of 16.
SIZES = [(1, 1, 1), (1, 37, 5), (64, 16, 64), (65, 17, 63), (3, 33, 129), (130, 5, 2), (67, 64, 68)]
PLAIN = {"transpose_a": False, "transpose_b": False}


def turned(a: Array) -> Array:
    """Columns outermost."""
    return np.asfortranarray(a)


def gaps(a: Array) -> Array:
    """Every other element of each axis of a larger tensor."""
    return np.repeat(np.repeat(a, 2, axis=-1), 2, axis=0)[::2, ..., ::2]


LAYS = {"rows": c_order, "columns": turned, "gaps": gaps}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows, depth, columns", SIZES)
def test_sizes(cuda, rows, depth, columns, dtype):
    x, weight, bias = (normal(*shape, dtype=dtype) for shape in ((rows, depth), (depth, columns), (columns,)))
    for given in (bias, None):
        y = garbage((rows, columns), dtype)
        check(cuda, "linear", [x, weight, given, y], {})
        check(cuda, "linear_activation", [x, weight, given, y], {"activation": "relu"})
        check(cuda, "linear_activation", [x, weight, given, y], {"activation": "sigmoid"})


@pytest.mark.parametrize("left", LAYS)
@pytest.mark.parametrize("right", LAYS)
@pytest.mark.parametrize("result", LAYS)
def test_strides(cuda, left, right, result):
    x, weight, bias = normal(9, 40), normal(40, 70), normal(140)[::2]
    y = LAYS[result](garbage((9, 70), np.float32))
    check(cuda, "linear", [LAYS[left](x), LAYS[right](weight), bias, y], {})


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("a_lead, b_lead", [((), ()), ((3, 2), (3, 2)), ((3, 2), ()), ((), (3, 2))], ids=str)
def test_batches(cuda, a_lead, b_lead, transpose_a, transpose_b):
    for lay in (c_order, gaps):
        a = lay(normal(*a_lead, *((19, 65) if transpose_a else (65, 19))))
        b = lay(normal(*b_lead, *((7, 19) if transpose_b else (19, 7))))
        y = garbage((*(a_lead or b_lead), 65, 7), np.float32)
        check(cuda, "matmul", [a, b, y], {"transpose_a": transpose_a, "transpose_b": transpose_b})


def test_rows_of_a_batch_are_rows_of_one_product():
    a, b, y = (contiguous(shape, np.dtype(np.float32)) for shape in ((9, 5, 8), (8, 3), (9, 5, 3)))
    routine = linear.matmul(a, b, y, transpose_a=False, transpose_b=False)
    assert routine is not None and routine.launches[0].grid == (1, 1, 1)


def test_more_matrices_than_a_grid_has_blocks(cuda, monkeypatch):
    monkeypatch.setattr(linear, "MOST_ACROSS", 2)
    a, b = normal(5, 3, 17), normal(5, 17, 2)
    check(cuda, "matmul", [a, b, garbage((5, 3, 2), np.float32)], PLAIN)


def test_half_is_added_in_single_precision(cuda):
    x, weight, bias = normal(65, 200, dtype=np.float16), normal(200, 9, dtype=np.float16), normal(9, dtype=np.float16)
    y = garbage((65, 9), np.float16)
    run(cuda, "linear", [x, weight, bias, y], {})
    wanted = x.astype(np.float64) @ weight + bias
    np.testing.assert_allclose(y, wanted, rtol=2**-10, atol=1e-4)


def test_what_is_left_to_others(cuda):
    x, weight = np.ones((2, 3), np.int32), np.ones((3, 4), np.int32)
    assert not serves(cuda, "linear", [x, weight, None, np.ones((2, 4), np.int32)], {})
    assert not serves(cuda, "linear", [normal(2, 3), normal(3, 4, dtype=np.float64), None, normal(2, 4)], {})
