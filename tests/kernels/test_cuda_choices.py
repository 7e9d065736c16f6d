"""Which kernels of the CUDA set do a call, by shapes and strides alone, and which calls are left to the next set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from layouts import image, serves
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.cuda_kernels import (
    convolution,
    depthwise,
    filter_sums,
    linear,
    plane,
    pooling,
    reduction,
    softmax,
)
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec, specs_of
from test_activation_values import normal
from test_update_values import SGD


def plain(*shape: int, dtype: Any = np.float32) -> TensorSpec:
    size = np.dtype(dtype).itemsize
    return TensorSpec(shape, np.dtype(dtype), ordered_strides(shape, range(len(shape)), size))


def summed(x: TensorSpec, axes: tuple[int, ...]) -> Any:
    y = plain(*(extent for axis, extent in enumerate(x.shape) if axis not in axes))
    return reduction.reduce_sum(x, y, axes=axes, alpha=1.0)


def convolved(c: int, k: int, groups: int) -> Any:
    x, weight, y = image(2, c, 9, 9), image(k, c // groups, 3, 3), image(2, k, 7, 7)
    return convolution.conv2d(x, weight, None, y, window=Window((3, 3)), groups=groups)


CHANNELS_LAST, SHORT, DENSE = image(8, 21, 64, 64), "softmax_short_rows", [convolution.FILE]
#: What is made, and its kernels; of convolutions their files.
MADE = {
    "channels innermost": (softmax.softmax(CHANNELS_LAST, CHANNELS_LAST, axis=1), [SHORT]),
    "channels outside": (softmax.softmax(plain(8, 21, 64, 64), plain(8, 21, 64, 64), axis=1), ["softmax_columns"]),
    "rows": (softmax.softmax(plain(8, 12, 512, 1024), plain(8, 12, 512, 1024), axis=-1), [SHORT]),
    "long rows": (softmax.softmax(plain(64, 50257), plain(64, 50257), axis=1), ["softmax_long_rows"]),
    "one sum": (summed(plain(1 << 24), (0,)), ["sum_rows", "sum_rows"]),
    "few sums": (summed(plain(200_000, 64), (0,)), ["sum_columns", "sum_rows"]),
    "many short rows": (summed(plain(64, 2000), (1,)), ["sum_rows"]),
    "many short columns": (summed(plain(64, 2000), (0,)), ["sum_columns"]),
    "depthwise": (convolved(32, 32, 32), ["copy.cu", depthwise.FILE]),
    "depthwise, more filters": (convolved(32, 64, 32), ["copy.cu", depthwise.FILE]),
    "one channel": (convolved(1, 6, 1), DENSE),
    "grouped": (convolved(32, 64, 8), DENSE),
    "few channels": (convolved(4, 64, 4), DENSE),
}


@pytest.mark.parametrize("label", MADE)
def test_kernels_of_a_call(label):
    made, wanted = MADE[label]
    assert [one.file if ".cu" in wanted[0] else one.kernel for one in made.launches] == wanted
    if label in ("one sum", "few sums"):
        assert np.prod(made.launches[0].grid) >= 256, "few sums of many terms keep many blocks busy"


@pytest.mark.parametrize("images, lanes", [(1, 64), (32, 64), (2048, 2), (8192, 0)])
def test_wide_windows_are_shared_by_threads_while_there_are_few(images, lanes):
    given = image(images, 256, 56, 56), image(images, 256, 1, 1)
    made = pooling.avg_pool2d(*given, window=Window((56, 56)), count_pad=False)
    assert (int(made.launches[0].arguments[1]) if made else 0) == lanes, "8192: more places than are counted"


@pytest.mark.parametrize(
    "shape", [(16, 64, 112, 112), (16, 256, 56, 56), (16, 512, 28, 28), (16, 1024, 14, 14), (16, 2048, 7, 7)], ids=str
)
def test_sums_over_images_of_nets_keep_a_whole_gpu_busy(shape):
    found = plane.plane((1,), [image(*shape)])
    assert found.blocks >= 256
    assert found.struct["packs"]
    assert found.kept * found.slabs * 8 <= 4 << 20, "scratch"


@pytest.mark.parametrize("positions", [1, 127, 128, 4099, 3 << 20])
@pytest.mark.parametrize("k", [1, 64, 2048])
def test_gradients_of_filters_are_cut_into_a_bounded_number_of_sums(positions, k):
    for tiles in (1, 7, 5000):
        weight = image(k, 512, 3, 3)
        splits = filter_sums.splits_for(positions, tiles, weight)
        assert (splits.number - 1) * splits.each < positions <= splits.number * splits.each
        assert splits.number == 1 or splits.number * weight.size * 4 <= filter_sums.MOST_BYTES
    assert 8 < filter_sums.splits_for(3 * 29 * 35, 1, image(5, 4, 3, 3)).number <= filter_sums.MOST_SPLITS


def test_rows_of_a_batch_are_rows_of_one_product():
    made = linear.matmul(plain(9, 5, 8), plain(8, 3), plain(9, 5, 3), transpose_a=False, transpose_b=False)
    assert made.launches[0].grid == (1, 1, 1)


def f4(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def i4(*shape: int) -> np.ndarray:
    return f4(*shape, dtype=np.int32)


def f8(*shape: int) -> np.ndarray:
    return f4(*shape, dtype=np.float64)


X, WEIGHT, Y = (2, 3, 5, 7), (4, 3, 3, 2), (2, 4, 3, 6)
WINDOW, HALVING = {"window": Window((3, 2)), "groups": 1}, {"window": Window((2, 2), (2, 2))}
RATE, COUNT, UPDATE = np.array(0.1), np.array(0), {"hyper": SGD}
IDS, ROWS, SCALE = {"first": 0, "padding": -1}, {"axes": (0,), "alpha": 1.0}, np.zeros((), np.float32)
#: {what: (kernel, tensors that it serves, settings, tensors that it does not)}.
LEFT = {
    "integers": ("relu", [f4(5), f4(5)], {}, [i4(5), i4(5)]),
    "two dtypes": ("relu", [f4(5), f4(5)], {}, [f4(5), f8(5)]),
    "convolution: two dtypes": (
        "conv2d",
        [f4(*X), f4(*WEIGHT), None, f4(*Y)],
        WINDOW,
        [f4(*X), f8(*WEIGHT), None, f4(*Y)],
    ),
    "convolution: integers": (
        "conv2d",
        [f4(*X), f4(*WEIGHT), None, f4(*Y)],
        WINDOW,
        [i4(*X), i4(*WEIGHT), None, i4(*Y)],
    ),
    "linear: integers": ("linear", [f4(2, 3), f4(3, 4), None, f4(2, 4)], {}, [i4(2, 3), i4(3, 4), None, i4(2, 4)]),
    "linear: two dtypes": ("linear", [f4(2, 3), f4(3, 4), None, f4(2, 4)], {}, [f4(2, 3), f8(3, 4), None, f4(2, 4)]),
    "ids of floats": (
        "softmax_cross_entropy",
        [f4(3, 5), i4(3), f4(3), f4(3, 5)],
        {},
        [f4(3, 5), f4(3), f4(3), f4(3, 5)],
    ),
    "scores of integers": (
        "softmax_cross_entropy",
        [f4(3, 5), i4(3), f4(3), f4(3, 5)],
        {},
        [i4(3, 5), i4(3), f4(3), i4(3, 5)],
    ),
    "loss: two dtypes": ("huber", [f4(3, 5), f4(3, 5), f4(3)], {"delta": 1.0}, [f4(3, 5), f4(3, 5), f8(3)]),
    "hits: ids of floats": ("in_top_k", [f4(3, 5), i4(3), f4(3)], {"k": 1}, [f4(3, 5), f4(3), f4(3)]),
    "precision of ids": ("precision_at_k", [f4(3, 5), f4(3, 5), f4(3)], {"k": 1}, [f4(3, 5), i4(3), f4(3)]),
    "pooling: integers": (
        "max_pool2d",
        [f4(2, 4, 4, 6), f4(2, 4, 2, 3), None],
        HALVING,
        [i4(2, 4, 4, 6), i4(2, 4, 2, 3), None],
    ),
    "pooling: two dtypes": (
        "max_pool2d",
        [f4(2, 4, 4, 6), f4(2, 4, 2, 3), None],
        HALVING,
        [f4(2, 4, 4, 6), f8(2, 4, 2, 3), None],
    ),
    "sum of integers": ("reduce_sum", [f4(2, 3), f4(3)], ROWS, [i4(2, 3), i4(3)]),
    "update: two dtypes": ("sgd", [f4(3), RATE, f4(3), None, COUNT], UPDATE, [f8(3), RATE, f4(3), None, COUNT]),
    "more ids than 32 bits count": (
        "embedding_gradient",
        [np.zeros(1, np.int64), f4(1, 1), f4(1, 1)],
        IDS,
        [np.broadcast_to(np.zeros((), np.int64), (2**32,)), np.broadcast_to(SCALE, (2**32, 1)), f4(1, 1)],
    ),
    "more rows than 32 bits count": (
        "embedding_gradient",
        [np.zeros(1, np.int64), f4(1, 1), f4(1, 1)],
        IDS,
        [np.zeros(1, np.int64), f4(1, 1), np.broadcast_to(SCALE, (2**32, 1))],
    ),
}


@pytest.mark.parametrize("label", LEFT)
def test_what_is_left_to_the_next_set(cuda, label):
    name, served, settings, left = LEFT[label]
    assert serves(cuda, name, served, settings)
    assert not serves(cuda, name, left, settings)


def test_an_activation_without_a_fused_kernel_and_too_many_axes_are_left(cuda):
    given = [f4(*X), f4(*WEIGHT), None, f4(*Y)]
    assert not serves(cuda, "conv2d_activation", given, {**WINDOW, "activation": "gelu"})
    parts = np.ones((3,) * 14, np.uint8)[(slice(2),) * 14].view()
    wide = TensorSpec(parts.shape, np.dtype("f4"), tuple(4 * stride for stride in parts.strides))
    rest = specs_of([normal(*(2,) * 7)])[0]
    assert not cuda.kernels["reduce_sum"].serves([wide, rest], {"axes": tuple(range(0, 14, 2)), "alpha": 1.0})
