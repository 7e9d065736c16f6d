"""Products of the CUDA set, done by NumPy from what cuBLASLt would be told; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import host_loader
from host_libraries import HostMultiplier
from kernel_case import garbage, run
from layouts import serves
from singa_lite.kernels.built import of_specs
from singa_lite.kernels.cuda_kernels.libraries.matrix import matrix
from singa_lite.kernels.cuda_kernels.libraries.product import Product
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.cuda_kernels.routine import CudaKernel
from singa_lite.kernels.kernel_set import KernelSet, TensorSpec, specs_of

PLAIN = {"transpose_a": False, "transpose_b": False}
TRANSPOSITIONS = [{"transpose_a": left, "transpose_b": right} for left in (False, True) for right in (False, True)]
every_transposition = pytest.mark.parametrize("settings", TRANSPOSITIONS, ids=["none", "right", "left", "both"])
RELU = {"activation": "relu"}


@pytest.fixture(scope="module")
def multiplier() -> HostMultiplier:
    """Skipped where CUDA's sources cannot be compiled for the host, for the copies of odd tensors."""
    if host_loader.missing_to_run():
        pytest.skip(f"wants {host_loader.missing_to_run()}")
    return HostMultiplier()


@pytest.fixture(scope="module")
def kernels(multiplier) -> KernelSet:
    from host_kernels import OverNumPy

    builders = Products(multiplier).builders
    loader = host_loader.HostLoader()
    return OverNumPy("products", {name: CudaKernel(of_specs(name, build), loader) for name, build in builders.items()})


def normal(*shape: int, seed: int = 3, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def by_columns(a: np.ndarray) -> np.ndarray:
    """The same matrices, the columns of each one behind the other in memory."""
    return a.swapaxes(-1, -2).copy().swapaxes(-1, -2)


def with_gaps(a: np.ndarray) -> np.ndarray:
    """The same values, neither rows nor columns without gaps."""
    return np.repeat(np.repeat(a, 2, axis=-1), 3, axis=-2)[..., ::3, ::2]


def backwards(a: np.ndarray) -> np.ndarray:
    """The same values, the last row first in memory."""
    return a[..., ::-1, :].copy()[..., ::-1, :]


def piece(a: np.ndarray) -> np.ndarray:
    """The same values in the middle of a larger tensor."""
    return np.pad(a, [(0, 0)] * (a.ndim - 2) + [(1, 2), (3, 2)])[..., 1:-2, 3:-2]


def last_first(a: np.ndarray) -> np.ndarray:
    """The same values, the last matrix first in memory."""
    return a[::-1].copy()[::-1]


def heads(a: np.ndarray) -> np.ndarray:
    """The same values, two leading axes that lie in the other order with the rows between: no even batch."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, 2)), 2, 1) if a.ndim == 4 else a


LAYOUTS = [np.ascontiguousarray, by_columns, piece, with_gaps, backwards]


def turned(a: np.ndarray, transpose: bool) -> np.ndarray:
    return a.swapaxes(-1, -2) if transpose else a


def product(kernels: KernelSet, a: np.ndarray, b: np.ndarray, settings: dict[str, bool]) -> np.ndarray:
    """op(a) @ op(b) by the kernel."""
    shape = (turned(a, settings["transpose_a"])[..., :1] @ turned(b, settings["transpose_b"])[..., :1, :]).shape
    y = garbage(shape, a.dtype)
    assert serves(kernels, "matmul", (a, b, y), settings)
    run(kernels, "matmul", (a, b, y), settings)
    return y


def assert_close(got: np.ndarray, wanted: np.ndarray, roundings: int = 16) -> None:
    """To so many roundings of the largest element."""
    atol = roundings * np.finfo(got.dtype).eps * np.abs(wanted).max()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


def assert_is_product(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    assert_close(got, a.astype(np.float64) @ b.astype(np.float64))


def assert_right(kernels: KernelSet, a: np.ndarray, b: np.ndarray, left: Any, right: Any, settings: Any) -> None:
    """Of factors in these layouts."""
    first, second = left(turned(a, settings["transpose_a"])), right(turned(b, settings["transpose_b"]))
    assert_is_product(product(kernels, first, second, settings), a, b)


@every_transposition
def test_matrices_of_all_layouts_and_extents_of_one(kernels, settings):
    for left in LAYOUTS:
        for right in LAYOUTS:
            assert_right(kernels, normal(7, 37), normal(37, 5, seed=4), left, right, settings)
        for m, k, n in ((1, 7, 1), (5, 1, 3), (1, 1, 1), (33, 1, 1), (1, 17, 129)):
            assert_right(kernels, normal(m, k), normal(k, n, seed=4), left, left, settings)


@every_transposition
@pytest.mark.parametrize("lead", [(3,), (2, 3)], ids=str)
def test_batches(kernels, lead, settings):
    for layout in (*LAYOUTS, heads, last_first):
        for a_lead, b_lead in ((lead, lead), ((), lead), (lead, ())):
            a, b = normal(*a_lead, 7, 19), normal(*b_lead, 19, 5, seed=4)
            one, other = (layout if given else np.ascontiguousarray for given in (a_lead, b_lead))
            assert_right(kernels, a, b, one, other, settings)


def test_a_row_has_any_stride(kernels):
    """Of an axis of extent 1 the stride says nothing: no copy, and a result by rows, to which a bias can be added."""
    x, weight, bias = normal(1, 19), normal(19, 5), normal(5)
    memory = garbage((5,), np.float32)
    x, y = (np.lib.stride_tricks.as_strided(a, (1, a.size), (8, 4)) for a in (x, memory))
    assert serves(kernels, "linear", (x, weight, bias, y), {})
    assert kernels.scratch_bytes("linear", (x, weight, bias, y), {}) == y.nbytes  # the workspace alone
    run(kernels, "linear", (x, weight, bias, y), {})
    assert_close(memory, x[0].astype(np.float64) @ weight + bias)


@pytest.mark.parametrize("name, settings", [("linear", {}), ("linear", RELU)])
@pytest.mark.parametrize("right_layout", LAYOUTS, ids=lambda f: f.__name__)
def test_bias_and_activation_are_within_the_product(kernels, multiplier, name, settings, right_layout):
    for rows, inputs, outputs in ((33, 65, 70), (1, 5, 1), (9, 64, 1), (1, 3, 8)):
        x, weight, given = normal(rows, inputs), right_layout(normal(inputs, outputs, seed=4)), normal(outputs, seed=5)
        for bias in (None, given, np.repeat(given, 3)[::3], given.astype(np.float64)):
            y, done = garbage((rows, outputs + 3), np.float32)[:, 2:-1], len(multiplier.done)
            assert serves(kernels, name, (x, weight, bias, y), settings)
            run(kernels, name, (x, weight, bias, y), settings)
            wanted = x.astype(np.float64) @ weight + (0 if bias is None else bias)
            assert_close(y, np.maximum(wanted, 0) if settings else wanted)
            assert len(multiplier.done) == done + 1


def test_what_is_not_served(kernels):
    a, b, y = normal(4, 5), normal(5, 6), normal(4, 6)
    assert serves(kernels, "matmul", (a, b, y), PLAIN)
    for tensors in (
        (a.astype(np.int32), b.astype(np.int32), y.astype(np.int32)),
        (a.astype(np.float64), b, y),
        (a, b, y.astype(np.float64)),
        (a, b, with_gaps(y)),
        (a, b, backwards(y)),
    ):
        assert not serves(kernels, "matmul", tensors, PLAIN)
    for activation in ("gelu", "tanh"):
        assert not serves(kernels, "linear", (a, b, None, y), {"activation": activation})
    assert not serves(kernels, "linear", (a, b, normal(6), by_columns(y)), {})


def test_extents_beyond_32_bits():
    """The library counts rows, columns and matrices in 32 bits."""
    float32, most = np.dtype(np.float32), 1 << 31
    assert matrix(TensorSpec((most, 2), float32, (8, 4))) is None
    assert matrix(TensorSpec((2, most), float32, (4 * most, 4))) is None
    assert matrix(TensorSpec((most, 2, 2), float32, (16, 8, 4))) is None
    assert matrix(TensorSpec((3, 4), float32, (18, 4))) is None, "no whole elements"
    many = [TensorSpec((2, most // 2, extent), float32, (2 * most * extent, 4 * extent, 4)) for extent in (3, 5)]
    matmul = of_specs("matmul", Products(HostMultiplier()).matmul)
    routine = matmul(many[0], *specs_of((normal(3, 5),)), many[1], **PLAIN)
    assert routine.steps[0].call.product.batch == 2


# The gradients of a layer, by epilogues


class WithoutSums(HostMultiplier):
    """A library that has no sums beside its products."""

    def workspace_bytes(self, product: Product) -> int | None:
        return None if product.epilogue.sums else super().workspace_bytes(product)


def gradients(by: HostMultiplier, x: np.ndarray, dy: np.ndarray, dweight: np.ndarray, dbias: np.ndarray) -> None:
    """dweight and dbias by the kernel."""
    from host_kernels import on_host

    tensors = x, dy, dweight, dbias
    kernel = CudaKernel(of_specs("linear_gradient", Products(by).linear_gradient), host_loader.HostLoader())
    scratch = garbage((kernel.scratch_bytes(specs_of(tensors), {}),), np.uint8)
    kernel.prepare(tuple(map(on_host, tensors)), on_host(scratch), {})()


@pytest.mark.parametrize("kind", [HostMultiplier, WithoutSums])
def test_gradients_of_weight_and_bias(multiplier, kind):
    """In one call, where the library has that; else its product all the same, and then the sums."""
    for layout in LAYOUTS[:-1]:
        for rows, inputs, outputs in ((33, 19, 70), (1, 5, 3), (9, 1, 4), (40, 6, 1)):
            by = kind()
            x, dy = layout(normal(rows, inputs)), layout(normal(rows, outputs, seed=4))
            dweight, dbias = garbage((inputs, outputs), np.float32), garbage((outputs,), np.float32)
            gradients(by, x, dy, dweight, dbias)
            assert_is_product(dweight, x.T, dy)
            assert_close(dbias, dy.astype(np.float64).sum(axis=0))
            assert len(by.done) == 1


def test_a_bias_gradient_with_gaps_is_summed_behind_the_product(multiplier):
    by = HostMultiplier()
    x, dy, dweight, dbias = normal(4, 5), normal(4, 6), by_columns(garbage((5, 6), np.float32)), np.zeros(12, "f4")
    gradients(by, x, dy, dweight, dbias[::2])
    assert_is_product(dweight, x.T, dy)
    assert_close(dbias[::2], dy.astype(np.float64).sum(axis=0))
    assert not dbias[1::2].any()
