"""Activations of the CUDA set: halves, tails, few threads; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_values import NAN

from layouts import PAIRS, check
from singa_lite.kernels.cuda_kernels import activation, routine
from singa_lite.kernels.kernel_set import KernelSet, TensorSpec
from singa_lite.kernels.numpy_kernels import NUMPY
from test_activation_values import FORWARD, applied, known_to_derivative, normal

Array = np.ndarray
Settings = dict[str, Any]

every_activation = pytest.mark.parametrize("name", FORWARD)


def check_both(kernels: KernelSet, name: str, x: Array, lay: Any = PAIRS["c order"], roundings: int = 8) -> None:
    """The activation of x and its derivative."""
    one, other = lay
    dy = normal(*x.shape, seed=4, dtype=x.dtype)
    known = known_to_derivative(name, x)
    check(kernels, name, [one(x), other(np.full_like(x, NAN))], FORWARD[name], roundings)
    call = [one(dy), other(known), one(np.full_like(x, NAN))]
    check(kernels, f"{name}_derivative", call, FORWARD[name], roundings)


@every_activation
@pytest.mark.parametrize("lay", [PAIRS["channels last"], PAIRS["mixed"]], ids=["packs", "elements"])
def test_half(cuda, name, lay):
    check_both(cuda, name, normal(2, 16, 3, 5, dtype=np.float16), lay, roundings=2**13)


@pytest.mark.parametrize("name", ["gelu", "gelu_derivative"])
def test_the_tail_of_gelu_keeps_its_digits(cuda, name):
    """1 + erf(x) would have none left at -9."""
    for dtype, low, digits in (np.float64, -35, 1e-12), (np.float32, -11, 2e-5):
        x = np.linspace(low, -2, 501, dtype=dtype)
        inputs = [x] if name == "gelu" else [np.ones_like(x), x]
        exact = applied(NUMPY, name, *(a.astype(np.float64) for a in inputs))
        np.testing.assert_allclose(applied(cuda, name, *inputs), exact, rtol=digits)


def test_more_elements_than_threads(cuda, monkeypatch):
    monkeypatch.setattr(routine, "MOST_BLOCKS", 2)
    for lay in PAIRS.values():
        check_both(cuda, "silu", normal(3, 7, 19, 31), lay)


def test_only_floats_of_one_dtype_are_served():
    specs = {
        dtype: TensorSpec((5,), np.dtype(dtype), (np.dtype(dtype).itemsize,)) for dtype in ("f2", "f4", "f8", "i4")
    }
    for dtype, spec in specs.items():
        assert (activation.relu(spec, spec) is not None) == (dtype != "i4")
    assert activation.relu(specs["f4"], specs["f8"]) is None
