"""Updates of the CUDA set: layouts, first updates, halves, norms of many elements; the contract shows the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_values import INF, NAN, normal
from test_onednn_update import SGD, arguments, c_order, changed, every_update, kernels_last, rows, steps

from kernel_case import run
from singa_lite.kernels.cuda_kernels import routine, update
from singa_lite.kernels.kernel_set import specs_of
from singa_lite.kernels.numpy_kernels import NUMPY

Array = np.ndarray


def gaps(a: Array) -> Array:
    """Every other row of a taller tensor."""
    return np.repeat(a, 2, axis=0)[::2]


def turned(a: Array) -> Array:
    """Columns outermost."""
    return np.asfortranarray(a)


LAYOUTS = {
    "filters": ((6, 5, 3, 3), kernels_last),
    "packs": ((8, 4, 3, 3), kernels_last),
    "rows": ((7, 41), rows),
    "gaps": ((6, 8), gaps),
    "turned": ((13, 31), turned),
    "bias": ((1,), c_order),
    "over a block": ((1031,), c_order),
    "larger": ((67, 1000), c_order),
}


def check(kernels: Any, name: str, settings: dict[str, Any], call: list[Any], atol: float = 1e-6) -> None:
    """Three updates by one launch are those of the reference in float64."""
    exact = [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a.copy() for a in call]
    steps(kernels, name, call, settings)
    steps(NUMPY, name, exact, settings)
    assert call[-1] == exact[-1]
    for got, wanted in zip(changed(call), changed(exact), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol * np.abs(wanted).max())


@every_update
@pytest.mark.parametrize("shape, lay", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(cuda, name, states, settings, shape, lay):
    check(cuda, name, settings, arguments(states, shape, lay))


@every_update
def test_value_state_and_gradient_may_lie_otherwise(cuda, name, states, settings):
    lays = [turned, gaps, c_order, turned]
    call = [a if a is None or a.ndim == 0 else lays.pop()(a) for a in arguments(states, (12, 17))]
    check(cuda, name, settings, call)


@every_update
def test_from_the_first_update_on(cuda, name, states, settings):
    call = arguments(states, (37,))
    call[-1][...] = 0
    for tensor in changed(call)[1:]:
        tensor.fill(0)
    check(cuda, name, settings, call)


@every_update
def test_double_and_half(cuda, name, states, settings):
    for dtype, atol in ((np.float64, 1e-14), (np.float16, 4e-3)):
        call = [a.astype(dtype) if a is not None and a.ndim else a for a in arguments(states, (5, 13))]
        check(cuda, name, settings, call, atol)


@every_update
def test_nan_stays_where_it_is(cuda, name, states, settings):
    call = arguments(states, (5, 29))
    call[0][2, 3] = NAN
    steps(cuda, name, call, settings)
    for tensor in changed(call):
        np.testing.assert_array_equal(np.argwhere(np.isnan(tensor)), [[2, 3]])


@every_update
def test_more_elements_than_threads(cuda, monkeypatch, name, states, settings):
    monkeypatch.setattr(routine, "MOST_BLOCKS", 2)
    check(cuda, name, settings, arguments(states, (5003,)))


@pytest.mark.parametrize("hyper", [SGD, replace(SGD, dampening=0.5)], ids=["plain", "dampening"])
def test_the_first_velocity_is_the_gradient_whatever_it_held(cuda, hyper):
    gradient, value, velocity = normal(3, 5), np.zeros((3, 5), np.float32), np.full((3, 5), NAN, np.float32)
    run(cuda, "sgd", [gradient, np.array(2.0), value, velocity, np.array(0)], {"hyper": hyper})
    np.testing.assert_array_equal(velocity, gradient)
    np.testing.assert_array_equal(value, -gradient)


def test_without_decay_an_infinite_value_stays(cuda):
    value = np.full(5, INF, np.float32)
    run(cuda, "sgd", [normal(5), np.array(2.0), value, None, np.array(0)], {"hyper": replace(SGD, momentum=0.0)})
    np.testing.assert_array_equal(value, INF)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_clip_elements_keeps_nan(cuda, dtype):
    y = np.resize(np.array([NAN, 2, -2, INF, -INF, 0.25, -0.25], dtype), 83)
    run(cuda, "clip_elements", [y], {"threshold": 0.5})
    np.testing.assert_array_equal(y, np.resize([NAN, 0.5, -0.5, 0.5, -0.5, 0.25, -0.25], 83))


def test_add_scaled_over_other_strides(cuda):
    x, y = turned(normal(6, 15)), gaps(normal(6, 15, seed=4))
    wanted = y.astype(np.float64) - 0.75 * x
    run(cuda, "add_scaled", [x, y], {"alpha": -0.75})
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype, rtol", [(np.float16, 1e-3), (np.float32, 1e-6), (np.float64, 1e-12)])
@pytest.mark.parametrize("lay", [c_order, gaps, turned])
@pytest.mark.parametrize("shape", [(1, 1), (1, 1025), (51, 1021)])
def test_clip_norm(cuda, shape, lay, dtype, rtol):
    y = lay(normal(*shape, dtype=dtype))
    norm = np.linalg.norm(y.astype(np.float64))
    for threshold in (0.7 * norm, 1.1 * norm):  # the second one changes nothing
        wanted = y.astype(np.float64) * min(1, threshold / np.linalg.norm(y.astype(np.float64)))
        run(cuda, "clip_norm", [y], {"threshold": float(threshold)})
        np.testing.assert_allclose(y, wanted, rtol=rtol, atol=np.finfo(dtype).smallest_subnormal)


def test_clip_norm_by_more_sums_than_a_block_has_threads(cuda, monkeypatch):
    y = normal(300_007)
    assert y.size > 256 * 1024
    for most, threshold in ((2, 20.0), (512, 5.0)):
        monkeypatch.setattr(update, "MOST_SUMS", most)
        wanted = y / np.linalg.norm(y.astype(np.float64)) * threshold
        run(cuda, "clip_norm", [y], {"threshold": threshold})
        np.testing.assert_allclose(y, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "y, wanted",
    [
        ([3e30, -4e30], [3, -4]),
        ([3e-30, 4e-30], [3e-30, 4e-30]),
        ([3, NAN], [3, NAN]),
        ([3, INF], [0, NAN]),
        ([3, 4], [3, 4]),
    ],
)
def test_clip_norm_of_extremes(cuda, y, wanted):
    held = np.array(y, np.float32)
    run(cuda, "clip_norm", [held], {"threshold": 5.0})
    np.testing.assert_allclose(held, wanted, rtol=1e-6)


def test_other_forms_are_left_to_the_next_set():
    gradient, *others = arguments(0, (6, 5))
    assert update.sgd(*specs_of([gradient, *others]), hyper=SGD) is not None
    assert update.sgd(*specs_of([gradient.astype(np.float64), *others]), hyper=SGD) is None
