"""Signs of zeros: an activation gives equal bits whether it is fused or by itself, whatever it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import every_convolving_set, every_multiplying_set, every_set
from kernel_case import garbage, run
from nets import bits
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet

Array = np.ndarray

#: Zeros of both signs, numbers so small that a product with any other is none, the largest ones, NaN and infinity.
VALUES = [-1, -0.0, 0.0, 1, -1e-30, 1e-30, -2e-38, 2e-38, -1e-42, 1e-42, -3e38, 3e38, np.inf, np.nan]
POINTWISE: dict[str, Any] = {"window": Window((1, 1)), "groups": 1}


def may_flush(kernels: KernelSet) -> bool:
    """Whether the set runs where denormals may be taken for 0: kernels that CuPy compiles for a GPU do so."""
    return kernels.name.startswith(("cuda", "gpu"))


def without_denormals(values: Array) -> Array:
    """0, with no sign, in their place."""
    return np.where((values != 0) & (abs(values) < np.finfo(np.float32).tiny), np.float32(0), values)


def applied(kernels: KernelSet, name: str, x: Array, **settings: Any) -> Array:
    y = garbage(x.shape, x.dtype)
    run(kernels, name, [x, y], settings)
    return y


def numbers(size: int) -> Array:
    return np.resize(np.array(VALUES, np.float32), size)


@every_set
@pytest.mark.parametrize("name", ["relu", "relu6"])
@pytest.mark.parametrize("size", [5, 83, 1003])
def test_what_is_not_positive_becomes_a_zero_without_sign(kernels, name, size):
    x = numbers(size)
    y = applied(kernels, name, x)
    wanted = np.where(x > 0, x if name == "relu" else np.minimum(x, 6), np.where(np.isnan(x), x, 0))
    wanted = wanted.astype(np.float32)
    assert bits(y) == bits(wanted) or (may_flush(kernels) and bits(y) == bits(without_denormals(wanted)))
    over = x.copy()
    run(kernels, name, [over, over], {})
    assert bits(over) == bits(y)


def fused_and_not(kernels: KernelSet, name: str, inputs: list[Array], shape: tuple[int, ...], **settings: Any) -> Any:
    plain, fused = garbage(shape, np.float32), garbage(shape, np.float32)
    run(kernels, name, [*inputs, None, plain], settings)
    run(kernels, name, [*inputs, None, fused], {**settings, "activation": "relu"})
    return bits(applied(kernels, "relu", plain)), bits(fused)


@every_convolving_set
def test_relu_within_a_convolution(kernels):
    x, weight = numbers(16 * 42).reshape(2, 8, 6, 7), np.zeros((16, 8, 1, 1), np.float32)
    weight[range(16), [channel % 8 for channel in range(16)]] = 1
    x[np.isnan(x) | np.isinf(x)] = -0.0  # times 0 each would spoil the other channels
    plain, fused = fused_and_not(kernels, "conv2d", [x, weight], (2, 16, 6, 7), **POINTWISE)
    assert plain == fused


@every_convolving_set
@pytest.mark.parametrize("groups", [1, 8])
def test_relu_within_a_convolution_of_noise(kernels, groups):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 8, 9, 7), dtype=np.float32)
    weight = rng.standard_normal((16, 8 // groups, 3, 3), dtype=np.float32)
    settings = {"window": Window((3, 3), pad=(1, 1, 1, 1)), "groups": groups}
    plain, fused = fused_and_not(kernels, "conv2d", [x, weight], (2, 16, 9, 7), **settings)
    assert plain == fused


@every_multiplying_set
@pytest.mark.parametrize("rows", [3, 200])
def test_relu_within_a_product(kernels, rows):
    """On a GPU denormals may come through the library's product and not through a kernel of ours, or the reverse."""
    x = numbers(rows).reshape(rows, 1)
    x = without_denormals(x) if may_flush(kernels) else x
    plain, fused = fused_and_not(kernels, "linear", [x, np.ones((1, 24), np.float32)], (rows, 24))
    assert plain == fused
