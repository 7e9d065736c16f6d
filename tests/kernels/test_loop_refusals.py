"""Operands that the loops cannot go over: they leave the call to the next set, whichever kernel it is of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_case import garbage, run
from singa_lite.kernels.kernel_set import TensorSpec, specs_of
from singa_lite.kernels.loop_kernels import loops
from singa_lite.kernels.loop_kernels.library import load
from singa_lite.kernels.numpy_kernels import NUMPY

pytestmark = pytest.mark.skipif(load() is None, reason="this system has no compiled loops, or SINGA_LITE_LOOPS is off")

RNG = np.random.default_rng(5)
#: More axes than a box has, even without one that is summed over or kept.
AXES = 8
SHAPE = (2,) * AXES


def strided() -> np.ndarray:
    """Numbers of `AXES` axes with gaps along each, so that no two are one."""
    made: np.ndarray = RNG.normal(size=(3,) * AXES).astype("f")[(slice(2),) * AXES]
    return made


def dense(*shape: int) -> np.ndarray:
    """Numbers without gaps."""
    made: np.ndarray = RNG.random(shape).astype("f") + 1
    return made


def result(*shape: int) -> np.ndarray:
    """What is written."""
    made: np.ndarray = garbage(shape, np.float32)
    return made


KEY = np.array([3, 0, 7], np.uint64)
#: {kernel, case: tensors, settings}.
CASES: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
    "add": ([strided(), strided(), result(*SHAPE)], {}),
    "copy": ([strided(), result(*SHAPE)], {}),
    "add_bias": ([strided(), dense(2), result(*SHAPE)], {"axis": 1}),
    "dropout": ([strided(), KEY, result(*SHAPE)], {"p": 0.4}),
    "rotary": ([strided(), dense(2, 2, 1), result(*SHAPE)], {"axis": 1, "inverse": False}),
    "softmax": ([strided(), result(*SHAPE)], {"axis": 1}),
    "reduce_sum": ([strided(), result(2)], {"axes": tuple(range(1, AXES)), "alpha": 1.0}),
    "reduce_max": ([strided(), result()], {"axes": tuple(range(AXES))}),
    "bias_gradient": ([strided(), result(2)], {"axis": 1}),
    "sigmoid_cross_entropy": ([strided(), strided(), result(2)], {}),
    "sigmoid_cross_entropy_derivative": ([dense(2), strided(), strided(), result(*SHAPE)], {}),
    "l2_norm": ([strided(), result(*SHAPE), result(2)], {"epsilon": 1e-6}),
    "rms_norm": ([strided(), dense(2, 2), result(*SHAPE), result(*SHAPE[2:])], {"epsilon": 1e-3}),
    "batch_norm_inference": (
        [strided(), *(dense(2) for _ in range(4)), result(*SHAPE)],
        {"epsilon": 1e-3},
    ),
    "scale_by": ([np.array(0.3), strided()], {}),
    "add_squares": ([strided(), np.array(0.5)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_more_axes_than_a_loop_has_are_left_to_the_next_set(name: str) -> None:
    tensors, settings = CASES[name]
    found, wanted = tensors, [tensor.copy() for tensor in tensors]
    kernels = loops(NUMPY)
    kernels.kernels[name].supports(specs_of(found), settings)
    run(kernels, name, found, settings)
    run(NUMPY, name, wanted, settings)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "specs",
    [
        [TensorSpec((3, 5), np.dtype("f"), (22, 4))],
        [TensorSpec((3, 5), np.dtype("f"), (30, 6))],
        [TensorSpec((3, 5), np.dtype(">f4"), (20, 4))],
    ],
    ids=["rows at odd places", "elements at odd places", "bytes in the other order"],
)
def test_numbers_that_lie_as_no_loop_reads_them_are_refused(specs: list[TensorSpec]) -> None:
    plain = TensorSpec((3, 5), np.dtype("f"), (20, 4))
    kernels = loops(NUMPY).kernels
    for name, settings in (("exp", {}), ("softmax", {"axis": 1}), ("relu", {})):
        assert kernels[name].supports((plain, plain), settings)
        assert not kernels[name].supports((*specs, plain), settings)


@pytest.mark.parametrize("dtype", [np.float64, np.longdouble], ids=["8 bytes", "more"])
def test_masks_of_numbers_beyond_8_bytes_are_refused(dtype: Any) -> None:
    q, k, v = (dense(2, 5, 3, 4) for _ in range(3))
    mask = np.ones((2, 5), dtype)
    call = q, k, v, mask, None, None, result(2, 5, 3, 4), result(2, 3, 5)
    fits = mask.itemsize <= 8
    assert loops(NUMPY)["attention"].supports(specs_of(call), {"causal": False, "scale": 1.0}) == fits
    gates, hidden = result(3, 2, 16), result(4, 2, 4)
    step = dense(3, 2, 16), dense(4, 16), None, None, np.ones((2, 3), dtype), gates, hidden, result(4, 2, 4)
    settings = {"reverse": False, "recurrent_activation": "sigmoid"}
    assert loops(NUMPY)["lstm"].supports(specs_of(step), settings) == fits


@pytest.mark.parametrize(
    ("dtype", "fits"), [(np.int32, True), (np.int64, True), (np.int16, False), (np.float32, False)]
)
def test_first_keys_and_positions_of_other_types_are_refused(dtype: Any, fits: bool) -> None:
    q, k, v = (dense(2, 5, 3, 4) for _ in range(3))
    first, y = np.zeros((2, 5), dtype), result(2, 5, 3, 4)
    kernels = loops(NUMPY)
    call = q, k, v, None, first, None, y, result(2, 3, 5)
    assert kernels["attention"].supports(specs_of(call), {"causal": True, "scale": 1.0}) == (
        dtype in (np.int32, np.int64)
    )
    of_cache = q, k, v, None, None, np.zeros(1, dtype), y
    assert kernels["cached_attention"].supports(specs_of(of_cache), {"scale": 1.0}) == (dtype is np.int64)


@pytest.mark.parametrize(("rows", "columns", "fits"), [(7, 64, True), (6, 64, False), (7, 32, False), (7, 96, False)])
def test_blocks_of_other_rows_than_those_of_the_results_are_refused(rows: int, columns: int, fits: bool) -> None:
    kernels, settings, blocks = loops(NUMPY), {"format": "q8_0"}, np.zeros((7, 2 * 34), np.uint8)
    of_numbers = blocks, result(rows, columns)
    assert kernels["dequantize"].supports(specs_of(of_numbers), settings) == fits
    of_product = dense(3, columns), blocks, None, result(3, rows)
    assert kernels["quantized_linear"].supports(specs_of(of_product), settings) == fits
    ids = np.zeros((2, 3), np.int64)
    of_ids = ids, blocks, result(2, 3, columns)
    assert kernels["quantized_embedding"].supports(specs_of(of_ids), settings) == (columns == 64)
