"""CUDA normalizations on the host: sums of many slabs, turned tensors, halves, bits; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import host_loader
from host_kernels import cuda_on_host
from host_loader import Build, missing_to_run
from kernel_case import run
from kernel_sets import cuda_sets
from layouts import c_order, channels_last, check, image, piece_of_channels_last
from singa_lite.kernels.cuda_kernels.plane import plane
from singa_lite.kernels.kernel_set import KernelSet, TensorSpec
from singa_lite.kernels.numpy_kernels import NUMPY
from test_normalization_values import FORWARD, empty, normal, positive, vectors

Array = np.ndarray

needs_fma = pytest.mark.skipif(not host_loader.rounds_once(), reason="this processor has no product and sum in one")
every_float = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture(scope="module")
def cuda() -> KernelSet:
    """The set on the host."""
    sets = cuda_sets()
    if not sets:
        pytest.skip(f"the CUDA kernels on the host want {missing_to_run()}")
    return sets[0]


#: Several slabs of several rows a thread, the last of each shorter, in one tile of channels and in two.
LONG = [(3, 4, 61, 97), (2, 136, 29, 151), (31, 3, 23, 29)]


@pytest.mark.parametrize("shape", LONG, ids=str)
@pytest.mark.parametrize("layout", [channels_last, c_order])
@every_float
def test_batch_norm_of_many_slabs(cuda, shape, layout, dtype):
    x, dy, c = layout(1 + 2 * normal(*shape, dtype=dtype)), layout(normal(*shape, seed=2, dtype=dtype)), shape[1]
    blank = [empty(c, dtype=dtype) for _ in range(2)]
    out = layout(empty(*shape, dtype=dtype))
    assert plane((1,), [TensorSpec(x.shape, x.dtype, x.strides)]).slabs > 1
    check(cuda, "batch_norm", [x, *vectors(c, 4, dtype), out, *blank], FORWARD)
    check(cuda, "batch_norm_derivative", [dy, x, *vectors(c, 3, dtype), out, *blank], {}, roundings=128)


def test_batch_norm_of_float16_with_statistics_of_float32(cuda):
    shape, c = (3, 16, 5, 7), 16
    x, dy = (channels_last(normal(*shape, seed=seed, dtype=np.float16)) for seed in (1, 2))
    y, dx = (channels_last(empty(*shape, dtype=np.float16)) for _ in range(2))
    statistics, gradients = [empty(c), empty(c)], [empty(c), empty(c)]
    gamma, *others = vectors(c, 4)
    forwards = [x, gamma, *others, y, *statistics]
    backwards = [dy, x, gamma, *statistics, dx, *gradients]
    exact = [np.array(t, np.float64) for t in (*forwards, dy, dx, *gradients)]
    run(NUMPY, "batch_norm", exact[:8], FORWARD)
    run(NUMPY, "batch_norm_derivative", [exact[8], exact[0], exact[1], *exact[6:8], *exact[9:]], {})
    run(cuda, "batch_norm", forwards, FORWARD)
    run(cuda, "batch_norm_derivative", backwards, {})
    for got, wanted in zip([*statistics, *gradients], [*exact[6:8], *exact[10:]], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    for got, wanted in ((y, exact[5]), (dx, exact[9])):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(6, 9, 8), (2, 9, 600)], ids=str)
@pytest.mark.parametrize("axes", [(0, 2, 1), (2, 1, 0), (1, 2, 0)], ids=str)
def test_layer_norm_of_turned_tensors(cuda, shape, axes):
    def layout(a: Array) -> Array:
        return np.ascontiguousarray(a.transpose(axes)).transpose(np.argsort(axes))

    x, dy, out = layout(4 + normal(*shape)), layout(normal(*shape, seed=2)), layout(empty(*shape))
    gamma, beta = normal(*shape[1:], seed=3), normal(*shape[1:])
    blank = empty(*shape[1:]), empty(*shape[1:])
    mean, inv_std = 4 + normal(shape[0]), positive(shape[0])
    check(cuda, "layer_norm", [x, gamma, beta, empty(*shape), mean.copy(), inv_std.copy()], {"epsilon": 1e-3})
    check(cuda, "layer_norm_derivative", [dy, x, gamma, mean, inv_std, out], {}, roundings=64)
    check(cuda, "layer_norm_gradient", [dy, x, mean, inv_std, *blank], {}, roundings=64)


@pytest.mark.parametrize("layout", [channels_last, piece_of_channels_last, c_order])
def test_strides_do_not_change_the_order_of_sums(cuda, layout):
    """An image as a piece of a larger one, where nothing is aligned, gives the bits of the image by itself."""
    dense = c_order if layout is c_order else channels_last
    x, dy, c = normal(4, 12, 17, 19), normal(4, 12, 17, 19, seed=2), 12

    def results(layout: Any) -> list[bytes]:
        out, statistics = layout(empty(*x.shape)), [empty(c) for _ in range(2)]
        run(cuda, "batch_norm", [layout(x), *vectors(c, 4), out, *statistics], FORWARD)
        dx, gradients = layout(empty(*x.shape)), [empty(c) for _ in range(2)]
        run(cuda, "batch_norm_derivative", [layout(dy), layout(x), *vectors(c, 3), dx, *gradients], {})
        return [np.ascontiguousarray(a).tobytes() for a in (out, *statistics, dx, *gradients)]

    assert results(layout) == results(dense)


RESNET = [(16, 64, 112, 112), (16, 256, 56, 56), (16, 512, 28, 28), (16, 1024, 14, 14), (16, 2048, 7, 7)]


@pytest.mark.parametrize("shape", RESNET, ids=str)
def test_a_whole_gpu_is_kept_busy_by_images_of_nets(shape):
    found = plane((1,), [image(*shape)])
    assert found.blocks >= 256
    assert found.struct["packs"]
    assert int(found.struct["summed"]["axes"]) == 1
    assert found.kept * found.slabs * 8 <= 4 << 20, "scratch"


@pytest.mark.skipif(bool(missing_to_run()), reason=f"the CUDA kernels on the host want {missing_to_run()}")
@pytest.mark.parametrize("as_gpu", [False, pytest.param(True, marks=needs_fma)], ids=["rounded", "fused"])
def test_a_row_of_one_has_no_derivative_however_products_are_rounded(as_gpu):
    """A GPU rounds a product and a sum once, as the host does if it may."""
    kernels = cuda_on_host(Build(as_gpu=as_gpu))
    x, dy, gamma = normal(500, 1), normal(500, 1, seed=2), normal(1, seed=3)
    dx, mean, inv_std = empty(500, 1), x[:, 0].copy(), positive(500)
    run(kernels, "layer_norm_derivative", [dy, x, gamma, mean, inv_std, dx], {})
    np.testing.assert_array_equal(dx, 0)
