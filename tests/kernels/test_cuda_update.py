"""Updates of the CUDA set: halves, few threads, norms of many elements; the contract shows the rest."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_values import INF, NAN, normal

from kernel_case import run
from layouts import c_order, turned
from singa_lite.kernels.cuda_kernels import routine, update
from singa_lite.kernels.kernel_set import specs_of
from test_update_values import SGD, arguments, check, every_update, gaps

Array = np.ndarray


@every_update
def test_double_and_half(cuda, name, states, settings):
    for dtype, atol in ((np.float64, 1e-14), (np.float16, 4e-3)):
        call = [a.astype(dtype) if a is not None and a.ndim else a for a in arguments(states, (5, 13))]
        check(cuda, name, settings, call, atol)


@every_update
def test_more_elements_than_threads(cuda, monkeypatch, name, states, settings):
    monkeypatch.setattr(routine, "MOST_BLOCKS", 2)
    check(cuda, name, settings, arguments(states, (5003,)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_clip_elements_keeps_nan(cuda, dtype):
    y = np.resize(np.array([NAN, 2, -2, INF, -INF, 0.25, -0.25], dtype), 83)
    run(cuda, "clip_elements", [y], {"threshold": 0.5})
    np.testing.assert_array_equal(y, np.resize([NAN, 0.5, -0.5, 0.5, -0.5, 0.25, -0.25], 83))


@pytest.mark.parametrize("lay", [c_order, gaps, turned])
@pytest.mark.parametrize("shape", [(1, 1), (1, 1025), (51, 1021)])
def test_clip_norm_of_halves(cuda, shape, lay):
    y = lay(normal(*shape, dtype=np.float16))
    norm = np.linalg.norm(y.astype(np.float64))
    for threshold in (0.7 * norm, 1.1 * norm):  # the second one changes nothing
        wanted = y.astype(np.float64) * min(1, threshold / np.linalg.norm(y.astype(np.float64)))
        run(cuda, "clip_norm", [y], {"threshold": float(threshold)})
        np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=np.finfo(np.float16).smallest_subnormal)


def test_clip_norm_by_more_sums_than_a_block_has_threads(cuda, monkeypatch):
    y = normal(300_007)
    assert y.size > 256 * 1024
    for most, threshold in ((2, 20.0), (512, 5.0)):
        monkeypatch.setattr(update, "MOST_SUMS", most)
        wanted = y / np.linalg.norm(y.astype(np.float64)) * threshold
        run(cuda, "clip_norm", [y], {"threshold": threshold})
        np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_other_forms_are_left_to_the_next_set():
    gradient, *others = arguments(0, (6, 5))
    assert update.sgd(*specs_of([gradient, *others]), hyper=SGD) is not None
    assert update.sgd(*specs_of([gradient.astype(np.float64), *others]), hyper=SGD) is None
