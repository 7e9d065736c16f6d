"""Values of the NumPy set's extremes, bounds, comparisons, choices and reversed axes, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from test_pointwise import call, result

from singa_lite.kernels.numpy_kernels import NUMPY

A = np.array([[1.0, 2.0, 3.0], [-1.0, 0.0, 5.0]])
B = np.array([[2.0], [0.0]])
DY = np.array([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])


@pytest.mark.parametrize(
    ("kernel", "inputs", "settings", "wanted"),
    [
        ("absolute", (A,), {}, [[1, 2, 3], [1, 0, 5]]),
        ("absolute_derivative", (DY, A), {}, [[10, 20, 30], [-40, 0, 60]]),
        ("clip", (A,), {"low": 0.0, "high": 2.5}, [[1, 2, 2.5], [0, 0, 2.5]]),
        ("clip_derivative", (DY, A), {"low": 0.0, "high": 2.0}, [[10, 20, 0], [0, 50, 0]]),
        ("maximum", (A, B), {}, [[2, 2, 3], [0, 0, 5]]),
        ("minimum", (A, B), {}, [[1, 2, 2], [-1, 0, 0]]),
        ("maximum_derivative", (DY, A, B), {}, [[0, 10, 30], [0, 25, 60]]),
        ("maximum_derivative", (DY, B, A), {}, [[10, 10, 0], [40, 25, 0]]),
        ("compare", (A, B), {"relation": "less"}, [[1, 0, 0], [1, 0, 0]]),
        ("compare", (A, B), {"relation": "less_equal"}, [[1, 1, 0], [1, 1, 0]]),
        ("compare", (A, B), {"relation": "equal"}, [[0, 1, 0], [0, 1, 0]]),
        ("compare", (A, B), {"relation": "not_equal"}, [[1, 0, 1], [1, 0, 1]]),
        ("flip", (A,), {"axes": (0,)}, [[-1, 0, 5], [1, 2, 3]]),
        ("flip", (A,), {"axes": (0, 1)}, [[5, 0, -1], [3, 2, 1]]),
    ],
)
def test_values(kernel, inputs, settings, wanted):
    for dtype in ("f", "d"):
        given = [array.astype(dtype) for array in inputs]
        np.testing.assert_array_equal(result(kernel, *given, shape=A.shape, **settings), wanted)


@pytest.mark.parametrize(
    ("axes", "shape", "largest", "smallest"),
    [
        ((0,), (3,), [1, 2, 5], [-1, 0, 3]),
        ((1,), (2, 1), [[3], [5]], [[1], [-1]]),
        ((0, -1), (), 5, -1),
        ((0, 1), (1, 1), [[5]], [[-1]]),
    ],
)
def test_extremes_along_axes(axes, shape, largest, smallest):
    np.testing.assert_array_equal(result("reduce_max", A, shape=shape, axes=axes), largest)
    np.testing.assert_array_equal(result("reduce_min", A, shape=shape, axes=axes), smallest)


def test_an_extreme_is_nan_where_one_element_is():
    x = np.array([[1.0, np.nan, np.inf], [2.0, 3.0, -np.inf]])
    np.testing.assert_array_equal(result("reduce_max", x, shape=(2,), axes=(1,)), [np.nan, 3])
    np.testing.assert_array_equal(result("reduce_min", x, shape=(3,), axes=(0,)), [1, np.nan, -np.inf])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "bool"])
def test_a_choice_keeps_every_bit_of_any_dtype(dtype):
    random = np.random.default_rng(3)
    a, b = (random.integers(0, 256, (3, 40000 * np.dtype(dtype).itemsize), np.uint8).view(dtype) for _ in range(2))
    a, b = (given > 0 if dtype == "bool" else given for given in (a, b))
    condition, y = random.random((1, a.shape[1])) < 0.3, np.empty_like(a)
    call("where", condition, a, b, y)
    assert y.tobytes() == np.where(condition, a, b).tobytes()


def test_a_choice_takes_nothing_from_what_is_not_chosen():
    a, b = np.array([np.nan, 1, np.inf, -0.0]), np.array([2, np.nan, -np.inf, 4])
    y = result("where", np.array([False, True, False, True]), a, b)
    np.testing.assert_array_equal(y, [2, 1, -np.inf, 0])
    assert np.signbit(y[3])


def test_comparisons_make_bool_or_numbers():
    for dtype in (np.bool_, np.float32):
        y = np.empty(A.shape, dtype)
        call("compare", A, B, y, relation="less")
        np.testing.assert_array_equal(y, A < B)
    assert NUMPY.scratch_bytes("compare", [A, B, A], {"relation": "less"}) == 0
