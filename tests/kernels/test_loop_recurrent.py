"""Recurrent layers by the loops: equal bits for any number of threads, and no byte beyond the scratch is written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from kernel_case import Case, Tensors, run, run_twice
from kernel_cases_recurrent import BACKWARDS, GATES, NOTHING, recurrent
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import specs_of
from singa_lite.kernels.loop_kernels import loops
from singa_lite.kernels.loop_kernels.library import load
from singa_lite.kernels.numpy_kernels import NUMPY

pytestmark = pytest.mark.skipif(load() is None, reason="this system has no compiled loops")

#: More products than are done by one thread in any case; samples and units are no multiples of anything.
SIZES = ((3, 29, 161),) * 2
CASES: dict[str, Case] = {
    **{name: recurrent(name, sizes=SIZES) for kernel in GATES for name in (kernel, f"{kernel}_derivative")},
    **{f"{name}:plain, backwards": recurrent(name, NOTHING, SIZES, **BACKWARDS) for name in GATES},
    "lstm_derivative:the last": recurrent("lstm_derivative", sizes=SIZES, last=True),
    "gru:reset before": recurrent("gru", sizes=SIZES, reset_after=False),
    "gru_derivative:reset before": recurrent("gru_derivative", ("dproducts",), SIZES, reset_after=False),
}


def results(key: str, dtype: type = np.float32) -> list[np.ndarray]:
    """Results of a case."""
    name = key.split(":")[0]
    tensors, settings = CASES[key].build(np.random.default_rng(7), np.dtype(np.float32), False)
    arrays: Tensors = [None if a is None else a.astype(dtype) for a in tensors]
    return outputs(name, arrays, settings)


def outputs(name: str, tensors: Tensors, settings: dict[str, Any]) -> list[np.ndarray]:
    """The results of a call over these tensors."""
    arrays = tuple(tensors)
    kernels = loops(NUMPY)
    assert kernels.kernels[name].supports(specs_of(arrays), settings)
    run_twice(kernels, name, arrays, settings)
    roles = SIGNATURES[name].roles
    return [array for array, role in zip(arrays, roles, strict=True) if array is not None and role == "Write"]


@pytest.mark.parametrize("key", CASES)
def test_bits_are_equal_however_many_threads_there_are(key):
    found = []
    for count in (1, 2, 3):
        with threadpool_limits(count, "openmp"):
            found.append(results(key))
    for several in found[1:]:
        for one, other in zip(found[0], several, strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("key", CASES)
def test_operands_in_16_bits_are_rounded_and_no_more(key):
    for one, wanted in zip(results(key, ml_dtypes.bfloat16), results(key), strict=True):
        assert one.dtype == ml_dtypes.bfloat16
        np.testing.assert_allclose(one.astype("f"), wanted, rtol=0, atol=0.03 * np.abs(wanted).max())


@pytest.mark.parametrize("key", CASES)
def test_nan_and_infinity_reach_what_they_reach_by_numpy(key):
    name, rng = key.split(":")[0], np.random.default_rng(7)
    tensors, settings = CASES[key].build(rng, np.dtype(np.float32), False)
    given = tensors[0]
    assert given is not None
    given[..., 3, 5], given[..., 7, 2], given[..., 11, -1] = np.nan, np.inf, -np.inf
    wanted = [None if a is None else a.copy() for a in tensors]
    run(NUMPY, name, wanted, settings)
    by_numpy = [a for a, role in zip(wanted, SIGNATURES[name].roles, strict=True) if a is not None and role == "Write"]
    for one, right in zip(outputs(name, tensors, settings), by_numpy, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["bool", "int8", "int64", "float16", "float64", "bfloat16"])
def test_a_mask_may_have_any_type(kind):
    tensors, settings = CASES["lstm"].build(np.random.default_rng(7), np.dtype(np.float32), False)
    at, found = SIGNATURES["lstm"].tensors.index("mask"), []
    mask = tensors[at]
    assert mask is not None
    mask[mask == 0] = -0.0
    for given in (mask, mask.astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)):
        arrays = [given if index == at else tensor for index, tensor in enumerate(tensors)]
        found.append([array.copy() for array in outputs("lstm", arrays, settings)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
