"""Sums of the CUDA set: sizes that are shared out in each way, layouts, exactness, NaN; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_values import normal

from kernel_case import garbage, run
from layouts import PAIRS, c_order, channels_last, check, serves
from singa_lite.kernels.cuda_kernels import reduction
from singa_lite.kernels.kernel_set import TensorSpec, specs_of

Array = np.ndarray

#: A thread a sum; parts of a warp; a warp; a block; several blocks: the last pack whole and not.
ROWS = [(7, 1), (67, 3), (9, 8), (5, 49), (3, 512), (3, 513), (2, 4100), (1, 20011), (3, 20000)]
#: Fewer columns than a pack; a warp's width and one more; short columns; columns cut into chunks.
COLUMNS = [(1, 5), (3, 2000), (64, 3), (65, 10), (8, 128), (9, 129), (20011, 1), (3001, 20), (700, 133)]
AXES = [(0,), (1,), (3,), (2, 3), (0, 2), (1, 3), (0, 2, 3), (-1, -2, -3), (0, 1, 2, 3), ()]


def blank(x: Array, axes: tuple[int, ...], kept: bool, like: Any = c_order) -> Array:
    """The garbage of a sum of x, the axes kept as 1 or left out."""
    places = {axis % x.ndim for axis in axes}
    extents = [1 if axis in places else extent for axis, extent in enumerate(x.shape) if kept or axis not in places]
    return like(garbage(tuple(extents), x.dtype))


def stages(x: TensorSpec, y: TensorSpec, axes: tuple[int, ...]) -> list[str]:
    """The kernels of a sum."""
    routine = reduction.reduce_sum(x, y, axes=axes, alpha=1.0)
    assert routine is not None
    return [launch.kernel for launch in routine.launches]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis, shape", [(1, s) for s in ROWS] + [(0, s) for s in COLUMNS], ids=str)
def test_matrices(cuda, axis, shape, dtype):
    x = normal(*shape, dtype=dtype)
    check(cuda, "reduce_sum", [x, blank(x, (axis,), True)], {"axes": (axis,), "alpha": -0.75})


@pytest.mark.parametrize("axis, shape", [(1, s) for s in ROWS] + [(0, s) for s in COLUMNS], ids=str)
def test_strides_change_no_bit(cuda, axis, shape):
    """Loads in packs and one by one add in the same order."""
    x = normal(*shape)
    apart = np.zeros((shape[0], shape[1] + 3), np.float32)[:, 1:-2]
    apart[...] = x
    tight, loose = (blank(x, (axis,), False) for _ in range(2))
    run(cuda, "reduce_sum", [x, tight], {"axes": (axis,), "alpha": 1.0})
    run(cuda, "reduce_sum", [apart, loose], {"axes": (axis,), "alpha": 1.0})
    assert np.array_equal(tight, loose)


@pytest.mark.parametrize("lay", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_images(cuda, axes, lay):
    for shape in ((3, 5, 7, 2), (2, 8, 3, 12)):
        x = normal(*shape)
        check(cuda, "reduce_sum", [lay[0](x), blank(x, axes, True, lay[1])], {"axes": axes, "alpha": 0.5})
        check(cuda, "reduce_sum", [lay[0](x), blank(x, axes, False)], {"axes": axes, "alpha": 0.5})


@pytest.mark.parametrize("lay", [channels_last, c_order])
@pytest.mark.parametrize("shape", [(4, 3, 60, 60), (2, 64, 20, 31), (2, 130, 5, 7), (33, 10, 1, 1)], ids=str)
def test_bias_gradient_of_images(cuda, lay, shape):
    dy = normal(*shape)
    check(cuda, "bias_gradient", [lay(dy), garbage((shape[1],), np.float32)], {"axis": 1})


def test_few_sums_of_many_terms_keep_many_blocks_busy():
    def matrix(*shape: int) -> TensorSpec:
        return reduction.contiguous(shape, np.dtype(np.float32))

    assert stages(matrix(1 << 24), matrix(), (0,)) == ["sum_rows", "sum_rows"]
    assert stages(matrix(200_000, 64), matrix(64), (0,)) == ["sum_columns", "sum_rows"]
    assert stages(matrix(64, 2000), matrix(64), (1,)) == ["sum_rows"]
    assert stages(matrix(64, 2000), matrix(2000), (0,)) == ["sum_columns"]
    for x, axes in ((matrix(1 << 24), (0,)), (matrix(200_000, 64), (0,))):
        y = matrix(*(e for i, e in enumerate(x.shape) if i not in axes))
        first = reduction.reduce_sum(x, y, axes=axes, alpha=1.0).launches[0]
        assert first.grid[0] * first.grid[1] >= 256


@pytest.mark.parametrize("shape", [(5, 7), (3, 4104), (20011, 1)], ids=str)
def test_half_is_added_in_single_precision(cuda, shape):
    for axis in range(2):
        x = normal(*shape, dtype=np.float16)
        y = blank(x, (axis,), False)
        run(cuda, "reduce_sum", [x, y], {"axes": (axis,), "alpha": 0.25})
        wanted = 0.25 * x.sum(axis, dtype=np.float64)
        np.testing.assert_allclose(y, wanted, rtol=2**-11, atol=1e-5 * np.abs(wanted).max())


def test_what_is_left_to_others(cuda):
    x, y = np.ones((2, 3), np.int32), np.ones(3, np.int32)
    assert not serves(cuda, "reduce_sum", [x, y], {"axes": (0,), "alpha": 1.0})
    parts = np.ones((3,) * 14)[(slice(2),) * 14]
    assert not cuda.kernels["reduce_sum"].serves(
        specs_of([parts, parts[(0, slice(None)) * 7]]), {"axes": tuple(range(0, 14, 2)), "alpha": 1.0}
    )
