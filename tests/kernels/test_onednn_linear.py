"""Products and biases of the oneDNN set: layouts, ways to do it, NaN and infinity; the contract shows the rest."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_case import garbage, run
from singa_lite.kernels.kernel_set import KernelSet, specs_of

PLAIN = {"transpose_a": False, "transpose_b": False}
LEFT = {"transpose_a": True, "transpose_b": False}
RIGHT = {"transpose_a": False, "transpose_b": True}


def normal(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def by_columns(a: np.ndarray) -> np.ndarray:
    """The same matrix, its columns one behind the other in memory."""
    return np.asfortranarray(a)


def product(kernels: KernelSet, a: np.ndarray, b: np.ndarray, transpose_a: bool, transpose_b: bool) -> np.ndarray:
    left = a.swapaxes(-1, -2) if transpose_a else a
    right = b.swapaxes(-1, -2) if transpose_b else b
    y = garbage((left @ right).shape, np.float32)
    settings = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    assert kernels.kernels["matmul"].supports(specs_of((a, b, y)), settings)
    run(kernels, "matmul", (a, b, y), settings)
    return y


def assert_is_product(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """To 16 roundings of the largest element."""
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=16 * np.finfo(np.float32).eps * np.abs(wanted).max())


# Few rows are done another way than many; from 2**18 elements of the weight on, few rows times its transpose too.


@pytest.mark.parametrize("order", [np.ascontiguousarray, by_columns], ids=["by_rows", "by_columns"])
@pytest.mark.parametrize("extents", [(37, 41), (513, 515), (256, 1024)], ids=str)
def test_the_three_products_of_a_dense_layer(onednn, order, extents):
    inputs, outputs = extents
    for rows in (1, 33, 96, 97, 150):
        x, weight, dy = normal(rows, inputs), order(normal(inputs, outputs)), normal(rows, outputs, seed=4)
        assert_is_product(product(onednn, x, weight, **PLAIN), x, weight)
        assert_is_product(product(onednn, dy, weight, **RIGHT), dy, weight.T)
        assert_is_product(product(onednn, x, dy, **LEFT), x.T, dy)


def test_pieces_of_larger_matrices_and_extents_of_one(onednn):
    a, b = normal(90, 80)[7:60, 3:50], normal(70, 99)[11:58, 4:61]
    pairs = [(a, b)]
    pairs += [(normal(n, k), normal(k, m, seed=4)) for n, k, m in ((1, 7, 1), (5, 1, 3), (1, 1, 1), (300, 1, 1))]
    for left, right in pairs:
        for transpose_a in (False, True):
            for transpose_b in (False, True):
                given = left.T.copy() if transpose_a else left, right.T.copy() if transpose_b else right
                assert_is_product(product(onednn, *given, transpose_a, transpose_b), left, right)
        assert_is_product(product(onednn, by_columns(left), right, **PLAIN), left, right)


@pytest.mark.parametrize("rows", [64, 1023, 1024, 1300, 1537])
def test_rows_of_a_page_are_multiplied_by_pieces(onednn, rows):
    """1,024 columns, from two pieces of 512 rows on, and a tile of the gradient."""
    x, dy = normal(rows, 21), normal(rows, 1024, seed=4)
    assert_is_product(product(onednn, x, dy, **LEFT), x.T, dy)
    assert_is_product(product(onednn, x[:, 5:9], dy, **LEFT), x[:, 5:9].T, dy)


@pytest.mark.parametrize("order", [np.ascontiguousarray, lambda a: a.swapaxes(1, 2).copy().swapaxes(1, 2)])
def test_leading_axes(onednn, order):
    a, b = order(normal(3, 11, 13)), order(normal(3, 13, 17, seed=4))
    assert_is_product(product(onednn, a, b, **PLAIN), a, b)
    assert_is_product(product(onednn, a, b[1], **PLAIN), a, b[1])
    assert_is_product(product(onednn, a[1], b, **PLAIN), a[1], b)
    assert_is_product(product(onednn, a.swapaxes(1, 2), b, **LEFT), a, b)


def test_linear(onednn):
    for rows in (33, 150):
        for order in (np.ascontiguousarray, by_columns):
            for step in (1, 2):  # a bias with gaps
                x, weight, bias = normal(rows, 65), order(normal(65, 70, seed=4)), normal(70 * step, seed=5)[::step]
                y = garbage((rows, 70), np.float32)
                assert onednn.kernels["linear"].supports(specs_of((x, weight, bias, y)), {})
                run(onednn, "linear", (x, weight, bias, y), {})
                ones = np.ones((rows, 1), np.float32)
                assert_is_product(y, np.hstack([x, ones]), np.vstack([weight, bias]))


@pytest.fixture
def without_avx512(onednn, monkeypatch):
    """The set, where the library is said to have no code for AVX-512."""
    from singa_lite.kernels.onednn_kernels.library.library import load

    monkeypatch.setitem(load().__dict__, "has_avx512", False)
    for name in ("linear", "matmul"):
        onednn.kernels[name].forget()
    yield onednn
    for name in ("linear", "matmul"):
        onednn.kernels[name].forget()


@pytest.fixture
def blas_calls(monkeypatch):
    """Shapes of the results that NumPy's matmul was asked for."""
    multiply, shapes = np.matmul, []

    def counted(left, right, out):
        shapes.append(out.shape)
        multiply(left, right, out=out)

    monkeypatch.setattr(np, "matmul", counted)
    return shapes


#: Rows, inner extent, columns: wide and tall results, the work of one thread and that of several.
MEETING = [(33, 61, 512), (130, 301, 1000), (257, 403, 96), (64, 1024, 40)]


@pytest.mark.parametrize("rows, inner, columns", MEETING)
def test_rows_that_meet_in_the_caches_are_multiplied_by_blas(without_avx512, blas_calls, rows, inner, columns):
    pitched, right = normal(inner, 1024)[:, :rows], normal(inner, 1024, seed=4)[:, 7 : 7 + columns]
    for a, b in ((pitched.T, right), (pitched.T.copy(), right), (pitched.T, right.copy())):
        y = garbage((rows, columns), np.float32)
        given, settings = (a, PLAIN) if a.flags.c_contiguous else (a.T, LEFT)
        run(without_avx512, "matmul", (given, b, y), settings)
        assert_is_product(y, a, b)
        assert sum(shape[0] * shape[1] for shape in blas_calls) == rows * columns
        blas_calls.clear()


@pytest.mark.parametrize("step", [1, 2], ids=["bias", "bias_with_gaps"])
def test_linear_and_relu_behind_blas(without_avx512, blas_calls, step):
    x, weight, bias = normal(150, 65), normal(65, 512, seed=4), normal(512 * step, seed=5)[::step]
    x[3, 2] = np.nan
    wanted = x.astype(np.float64) @ weight
    for given in (bias, None):
        offset = 0 if given is None else given
        y = garbage((150, 512), np.float32)
        run(without_avx512, "linear", (x, weight, given, y), {})
        np.testing.assert_allclose(y, wanted + offset, rtol=0, atol=1e-4)
        run(without_avx512, "linear", (x, weight, given, y), {"activation": "relu"})
        np.testing.assert_allclose(y, np.maximum(wanted + offset, 0), rtol=0, atol=1e-4)
        assert not np.signbit(y[~np.isnan(y)]).any()
    assert len(blas_calls) >= 4


# Biases
