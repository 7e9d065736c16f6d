"""Softmax of the CUDA set: rows and columns of all lengths, layouts, infinities; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_values import NAN, normal

from kernel_case import garbage, run
from layouts import PAIRS, check, image
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.cuda_kernels import routine, softmax
from singa_lite.kernels.kernel_set import KernelSet, TensorSpec

Array = np.ndarray

#: Parts of a warp, all of one, what registers hold of a row and one more; half and double hold other lengths.
LENGTHS = [1, 2, 3, 5, 8, 9, 21, 100, 127, 128, 129, 511, 512, 513, 1000, 1023, 1024, 1025, 2048, 2051, 8193]


def probabilities(x: Array, axis: int) -> Array:
    powers = np.exp(x.astype(np.float64))
    return (powers / powers.sum(axis, keepdims=True)).astype(x.dtype)


def check_both(kernels: KernelSet, x: Array, axis: int, lay: Any = PAIRS["c order"], roundings: int = 16) -> None:
    """Softmax of x and its derivative, at even probabilities: where one is almost 1, dy - sum of dy * y cancels."""
    one, other = lay
    dy, p, empty = normal(*x.shape, seed=4, dtype=x.dtype), probabilities(x / 4, axis), np.full_like(x, NAN)
    check(kernels, "softmax", [one(x), other(empty)], {"axis": axis}, roundings)
    for third in {one, other}:
        check(kernels, "softmax_derivative", [one(dy), other(p), third(empty)], {"axis": axis}, roundings)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_rows(cuda, length, dtype):
    for rows in (1, 3) if length > 100 else (1, 67):
        check_both(cuda, 3 * normal(rows, length, dtype=dtype), -1)
    check_both(cuda, normal(length, dtype=dtype), 0)


@pytest.mark.parametrize("length", [n for n in LENGTHS if n < 2000])
def test_columns(cuda, length):
    for columns in (1, 7) if length > 100 else (1, 41, 257):
        check_both(cuda, 3 * normal(length, columns), 0)
        check_both(cuda, 3 * normal(2, length, columns), 1)


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("lay", PAIRS.values(), ids=PAIRS)
def test_layouts(cuda, lay, axis):
    for shape in ((2, 5, 7, 3), (3, 8, 4, 12)):
        check_both(cuda, 3 * normal(*shape), axis, lay)


@pytest.mark.parametrize("lay", [PAIRS["channels last"], PAIRS["c order"]], ids=["rows", "columns"])
def test_half(cuda, lay):
    for channels in (5, 16, 1024, 1032):
        check_both(cuda, normal(2, channels, 1, 3, dtype=np.float16), 1, lay, roundings=2**13)


@pytest.mark.parametrize(
    "shape, axis",
    [((301, 9), 1), ((2111, 3), 1), ((5, 1033), 1), ((9, 771), 0)],
    ids=["rows", "single", "long", "columns"],
)
def test_more_lines_than_threads(cuda, monkeypatch, shape, axis):
    monkeypatch.setattr(routine, "MOST_BLOCKS", 2)
    check_both(cuda, normal(*shape), axis)


def test_rows_are_found():
    """Channels innermost, and the last axis in C order, are read and written once."""

    def kernel(spec: TensorSpec, axis: int) -> str:
        made = softmax.softmax(spec, spec, axis=axis)
        return made.launches[0].kernel if made else ""

    def plain(*shape: int) -> TensorSpec:
        return TensorSpec(shape, np.dtype("f4"), ordered_strides(shape, range(len(shape)), 4))

    assert kernel(image(8, 21, 64, 64), 1) == "softmax_short_rows"
    assert kernel(plain(8, 21, 64, 64), 1) == "softmax_columns"
    assert kernel(plain(128, 1000), 1) == "softmax_short_rows"
    assert kernel(plain(8, 12, 512, 1024), -1) == "softmax_short_rows"
    assert kernel(plain(64, 50257), 1) == "softmax_long_rows"
    assert kernel(TensorSpec((5, 5), np.dtype("i4"), (20, 4)), 1) == ""


def test_bits_do_not_hang_on_how_far_apart_samples_lie(cuda):
    for shape, axis in (((3, 1031), 1), ((5, 21), 1), ((5, 129, 2), 1), *(((n, 1), 0) for n in (1031, 1499, 2999))):
        x, y, z = 3 * normal(*shape), garbage(shape, np.float32), garbage((2 * shape[0], *shape[1:]), np.float32)[::2]
        run(cuda, "softmax", [x, y], {"axis": axis})
        run(cuda, "softmax", [np.repeat(x, 2, axis=0)[1::2], z], {"axis": axis})
        np.testing.assert_array_equal(y, z)
