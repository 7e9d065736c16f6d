"""Tensors in several layouts, and a kernel of a set against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from kernel_case import run
from singa_lite.device.host_fallback import HostFallback
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import FunctionKernel, KernelSet, TensorSpec, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY

Tensors = Sequence[np.ndarray | None]
Layout = Callable[[np.ndarray], np.ndarray]


def channels_last(a: np.ndarray) -> np.ndarray:
    """The same values, channels innermost."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1)


def c_order(a: np.ndarray) -> np.ndarray:
    """The same values in C order."""
    return np.array(a, order="C")


def piece_of_channels_last(a: np.ndarray) -> np.ndarray:
    """The same values as some channels of a larger tensor, channels innermost."""
    return channels_last(np.pad(a, [(0, 0), (2, 3), *[(0, 0)] * (a.ndim - 2)]))[:, 2:-3]


def piece_in_c_order(a: np.ndarray) -> np.ndarray:
    """The same values as some channels of a larger tensor in C order."""
    return np.pad(a, [(0, 0), (2, 3), *[(0, 0)] * (a.ndim - 2)])[:, 2:-3]


def turned(a: np.ndarray) -> np.ndarray:
    """The same values, columns outermost: a layout that no kernel is made for."""
    return np.asfortranarray(a)


#: One layout for x and all like it, another one for y and all like it.
PAIRS: dict[str, tuple[Layout, Layout]] = {
    "channels last": (channels_last, channels_last),
    "c order": (c_order, c_order),
    "mixed": (channels_last, c_order),
    "from a piece": (piece_of_channels_last, channels_last),
    "into a piece": (channels_last, piece_of_channels_last),
    "pieces in c order": (piece_in_c_order, piece_in_c_order),
    "turned": (turned, c_order),
}


def double(a: np.ndarray) -> np.ndarray:
    """A copy in C order, in float64 if it is of floats."""
    return np.array(a, np.float64 if a.dtype.kind == "f" else a.dtype, order="C")


def at_an_odd_place(a: np.ndarray) -> np.ndarray:
    """The same values as some channels of a larger tensor: strides of whole packs, but not the first address."""
    if a.ndim < 2:
        return a
    whole = channels_last(np.zeros((a.shape[0], a.shape[1] + 8 - a.shape[1] % 4, *a.shape[2:]), a.dtype))
    whole[:, 2 : 2 + a.shape[1]] = a
    return whole[:, 2 : 2 + a.shape[1]]


#: The same, and places that no pack begins at.
LAYOUTS = {**PAIRS, "at odd places": (at_an_odd_place, at_an_odd_place)}


def serves(kernels: KernelSet, name: str, tensors: Tensors, settings: Mapping[str, Any]) -> bool:
    """Whether the set has fast code for the call, a library's or a loop."""
    specs = specs_of(tensors)
    try:
        kernel = kernels.choose(name, specs, settings)
    except KeyError:
        return False
    return not isinstance(kernel, FunctionKernel | HostFallback) and kernel.supports(specs, settings)


def image(*shape: int, dtype: Any = np.float32) -> TensorSpec:
    """The spec of images (n, c, h, w), channels innermost."""
    (_, c, _, w), size = shape, np.dtype(dtype).itemsize
    return TensorSpec(shape, np.dtype(dtype), (size * prod(shape[1:]), size, size * w * c, size * c))


def check(
    kernels: KernelSet,
    name: str,
    tensors: Tensors,
    settings: Mapping[str, Any],
    roundings: int = 32,
    always: bool = True,
) -> None:
    """The results are the reference's to so many roundings of the largest element.

    always: the set itself serves the call on every CPU.
    """
    assert not always or kernels is NUMPY or serves(kernels, name, tensors, settings)
    exact = [None if t is None else double(t) for t in tensors]
    with np.errstate(invalid="ignore"):  # NumPy warns of the sum of two infinities
        run(NUMPY, name, exact, settings)
        run(kernels, name, tensors, settings)
    for label, got, wanted in zip(SIGNATURES[name].tensors, tensors, exact, strict=True):
        if got is not None and wanted is not None:
            largest = np.max(np.abs(wanted), where=np.isfinite(wanted), initial=0)
            atol = roundings * np.finfo(np.float32).eps * largest if got.dtype.kind == "f" else 0
            np.testing.assert_allclose(got, wanted, rtol=0, atol=atol, err_msg=label)
