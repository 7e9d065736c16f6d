"""Which kernels of the CUDA set do a call, by shapes and strides alone, and which calls are left to the next set."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kernel_case import run
from launches import KERNELS
from layouts import image, serves
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.cuda_kernels import depthwise, plane
from singa_lite.kernels.cuda_kernels.libraries import filter_sums
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec, specs_of
from test_activation_values import normal
from test_update_values import SGD

#: Of an H100. There sums of a ResNet-50 took longest by 1,056 blocks, and least by 264.
MULTIPROCESSORS = 132


def plain(*shape: int, dtype: Any = np.float32) -> TensorSpec:
    size = np.dtype(dtype).itemsize
    return TensorSpec(shape, np.dtype(dtype), ordered_strides(shape, range(len(shape)), size))


def made(kernel: str, *specs: TensorSpec | None, **settings: Any) -> Any:
    return KERNELS[kernel].build(*specs, **settings)


def summed(x: TensorSpec, axes: tuple[int, ...]) -> Any:
    y = plain(*(extent for axis, extent in enumerate(x.shape) if axis not in axes))
    return made("reduce_sum", x, y, axes=axes, alpha=1.0)


def convolved(c: int, k: int, groups: int) -> Any:
    x, weight, y = image(2, c, 9, 9), image(k, c // groups, 3, 3), image(2, k, 7, 7)
    return made("conv2d", x, weight, None, y, window=Window((3, 3)), groups=groups)


def softmax(x: TensorSpec, axis: int) -> Any:
    return made("softmax", x, TensorSpec(x.shape, x.dtype, x.strides), axis=axis)


CHANNELS_LAST, SHORT = image(8, 21, 64, 64), "softmax_short_rows"
#: What is made, and its kernels; of convolutions their files.
MADE = {
    "channels innermost": (softmax(CHANNELS_LAST, 1), [SHORT]),
    "channels outside": (softmax(plain(8, 21, 64, 64), 1), ["softmax_columns"]),
    "rows": (softmax(plain(8, 12, 512, 1024), -1), [SHORT]),
    "long rows": (softmax(plain(64, 50257), 1), ["softmax_long_rows"]),
    "one sum": (summed(plain(1 << 24), (0,)), ["sum_rows", "sum_rows"]),
    "few sums": (summed(plain(200_000, 64), (0,)), ["sum_columns", "sum_rows"]),
    "many short rows": (summed(plain(64, 2000), (1,)), ["sum_rows"]),
    "many short columns": (summed(plain(64, 2000), (0,)), ["sum_columns"]),
    "depthwise": (convolved(32, 32, 32), ["copy.cu", depthwise.FILE]),
    "depthwise, more filters": (convolved(32, 64, 32), ["copy.cu", depthwise.FILE]),
}


@pytest.mark.parametrize("label", MADE)
def test_kernels_of_a_call(label):
    routine, wanted = MADE[label]
    assert [one.file if ".cu" in wanted[0] else one.kernel for one in routine.launches] == wanted
    if label in ("one sum", "few sums"):
        assert np.prod(routine.launches[0].grid) >= 256, "few sums of many terms keep many blocks busy"


@pytest.mark.parametrize(
    "shape", [(16, 64, 112, 112), (16, 256, 56, 56), (16, 512, 28, 28), (16, 1024, 14, 14), (16, 2048, 7, 7)], ids=str
)
def test_sums_over_images_of_nets_keep_a_whole_gpu_busy(shape):
    found = plane.plane((1,), [image(*shape)])
    assert found.blocks >= MULTIPROCESSORS
    assert found.struct["packs"]
    assert found.kept * found.slabs * 8 <= 4 << 20, "scratch"


def test_gradients_of_filters_are_cut_into_a_bounded_number_of_sums():
    for positions, tiles, k in product((1, 127, 128, 4099, 3 << 20), (1, 7, 5000), (1, 64, 2048)):
        weight = image(k, 512, 3, 3)
        splits = filter_sums.splits_for(positions, tiles, weight)
        assert (splits.number - 1) * splits.each < positions <= splits.number * splits.each
        assert splits.number == 1 or splits.number * weight.size * 4 <= filter_sums.MOST_BYTES


X, WEIGHT, Y = (2, 3, 5, 7), (6, 1, 3, 2), (2, 6, 3, 6)
WINDOW, HALVING = {"window": Window((3, 2)), "groups": 3}, {"window": Window((2, 2), (2, 2))}
CONVOLVED, POOLED, LINEAR = [X, WEIGHT, None, Y], [(2, 4, 4, 6), (2, 4, 2, 3), None], [(2, 3), (3, 4), None, (2, 4)]
LOSS, SCORES = [(3, 5), (3,), (3,), (3, 5)], [(3, 5), (3, 5), (3,)]
#: {what: (kernel, shapes, settings, dtypes that it serves, dtypes that it does not)}.
LEFT: dict[str, tuple[str, list[Any], dict[str, Any], str, str]] = {
    "integers": ("relu", [(5,), (5,)], {}, "f4 f4", "i4 i4"),
    "two dtypes": ("relu", [(5,), (5,)], {}, "f4 f4", "f4 f8"),
    "a mask of floats": ("where", [(5,)] * 4, {}, "? f4 f4 f4", "f4 f4 f4 f4"),
    "a mask for numbers": ("maximum", [(5,)] * 3, {}, "f4 f4 f4", "? f4 f4"),
    "convolution: two dtypes": ("conv2d", CONVOLVED, WINDOW, "f4 f4 f4 f4", "f4 f8 f4 f4"),
    "convolution: integers": ("conv2d", CONVOLVED, WINDOW, "f4 f4 f4 f4", "i4 i4 i4 i4"),
    "linear: integers": ("linear", LINEAR, {}, "f4 f4 f4 f4", "i4 i4 i4 i4"),
    "linear: two dtypes": ("linear", LINEAR, {}, "f4 f4 f4 f4", "f4 f8 f4 f4"),
    "ids of floats": ("softmax_cross_entropy", LOSS, {}, "f4 i4 f4 f4", "f4 f4 f4 f4"),
    "scores of integers": ("softmax_cross_entropy", LOSS, {}, "f4 i4 f4 f4", "i4 i4 f4 i4"),
    "loss: two dtypes": ("huber", SCORES, {"delta": 1.0}, "f4 f4 f4", "f4 f4 f8"),
    "hits: ids of floats": ("in_top_k", [(3, 5), (3,), (3,)], {"k": 1}, "f4 i4 f4", "f4 f4 f4"),
    "pooling: integers": ("max_pool2d", POOLED, HALVING, "f4 f4 f4", "i4 i4 i4"),
    "pooling: two dtypes": ("max_pool2d", POOLED, HALVING, "f4 f4 f4", "f4 f8 f4"),
    "sum of integers": ("reduce_sum", [(2, 3), (3,)], {"axes": (0,), "alpha": 1.0}, "f4 f4", "i4 i4"),
    "update: two dtypes": ("sgd", [(3,), (), (3,), None, ()], {"hyper": SGD}, "f4 f8 f4 f4 i8", "f8 f8 f4 f4 i8"),
}


def tensors(shapes: list[Any], dtypes: str) -> list[Any]:
    return [None if s is None else np.zeros(s, dtype) for s, dtype in zip(shapes, dtypes.split(), strict=True)]


@pytest.mark.parametrize("label", LEFT)
def test_what_is_left_to_the_next_set(cuda, label):
    name, shapes, settings, served, left = LEFT[label]
    assert serves(cuda, name, tensors(shapes, served), settings)
    assert not serves(cuda, name, tensors(shapes, left), settings)


def test_numbers_of_two_dtypes_are_compared_as_float32(cuda):
    a, b, y = np.array([1, 2, 3], np.float32), np.array([2, 2, 2], np.float16), np.full(3, 7, np.float16)
    run(cuda, "compare", (a, b, y), {"relation": "less"})
    assert y.tolist() == [1, 0, 0]


def test_more_ids_or_rows_than_32_bits_count_are_left(cuda):
    ids, small, settings = np.zeros(1, np.int64), np.zeros((1, 1), np.float32), {"first": 0, "padding": -1}
    many_ids, many_rows = np.broadcast_to(ids, (2**32,)), np.broadcast_to(small, (2**32, 1))
    assert serves(cuda, "embedding_gradient", [ids, small, small], settings)
    assert not serves(cuda, "embedding_gradient", [many_ids, many_rows, small], settings)
    assert not serves(cuda, "embedding_gradient", [ids, small, many_rows], settings)


def test_ids_an_activation_without_a_fused_kernel_and_too_many_axes_are_left(cuda):
    assert not serves(cuda, "precision_at_k", tensors([(3, 5), (3,), (3,)], "f4 i4 f4"), {"k": 1})
    given = tensors(CONVOLVED, "f4 f4 f4 f4")
    assert not serves(cuda, "conv2d", given, {**WINDOW, "activation": "gelu"})
    parts = np.ones((3,) * 14, np.uint8)[(slice(2),) * 14].view()
    wide = TensorSpec(parts.shape, np.dtype("f4"), tuple(4 * stride for stride in parts.strides))
    rest = specs_of([normal(*(2,) * 7)])[0]
    assert not cuda.kernels["reduce_sum"].supports([wide, rest], {"axes": tuple(range(0, 14, 2)), "alpha": 1.0})


def test_convolutions_with_several_channels_or_many_filters_a_group_are_the_libraries():
    for c, k, groups in ((1, 6, 1), (32, 64, 8), (4, 64, 4)):
        assert convolved(c, k, groups) is None
