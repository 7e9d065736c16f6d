"""Which kernels of ours the calls of the contract launch, over which layouts, for which types, and those of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any

import numpy as np

from call_steps import own_set, parts
from host_libraries import served
from joined_cases import JOINED
from kernel_case import Tensors
from kernel_cases import CASES
from singa_lite.kernels.composed import InnerCall
from singa_lite.kernels.cuda_kernels import cuda, ranks
from singa_lite.kernels.cuda_kernels.libraries.assumed import AssumedProducts
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.cuda_kernels.routine import KernelLaunch, Routine
from singa_lite.kernels.kernel_set import TensorSpec

#: Axes from the outermost to the innermost: images as users see them, and channels innermost.
ORDERS = ((0, 1, 2, 3), (0, 2, 3, 1))
#: CUDA kernels as builders alone, over products that a library is taken to do: they compile nothing and bind nothing.
_SET = cuda(None, None, *served(Products(AssumedProducts(0)), None))  # type: ignore[arg-type]  # no loader is asked for
KERNELS: dict[str, Any] = {
    **_SET.kernels,
    **own_set(_SET).kernels,
    **{case.split(":")[0]: _SET[case.split(":")[0]] for case in JOINED},
}


def spec(tensor: np.ndarray | None, order: tuple[int, ...]) -> TensorSpec | None:
    """A tensor's spec; with four axes, in that order of memory."""
    if tensor is None:
        return None
    if tensor.ndim != len(order):
        return TensorSpec(tensor.shape, tensor.dtype, tensor.strides)
    strides, step = [0] * len(order), tensor.itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= tensor.shape[axis]
    return TensorSpec(tensor.shape, tensor.dtype, tuple(strides))


def routine(key: str, tensors: Tensors, settings: dict[str, Any], order: tuple[int, ...] = ORDERS[0]) -> Routine | None:
    """What the call of a case does; None if this set does not do it, or not by itself."""
    kernel = KERNELS.get(key.split(":")[0])
    if kernel is None:
        return None
    whole, specs = Routine(), tuple(spec(tensor, order) for tensor in tensors)
    for part in parts(_SET, InnerCall(kernel, specs, settings)):
        if not isinstance(part, Routine):
            return None
        whole.then(part)
    return whole


def cases(dtype: str, big: bool = False) -> Iterator[tuple[str, Tensors, dict[str, Any]]]:
    """(key, tensors, settings) of each case whose kernel this set has."""
    for key, case in (CASES | JOINED).items():
        if key.split(":")[0] in KERNELS:
            yield key, *case.build(np.random.default_rng(7), np.dtype(dtype), big)


@cache
def launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """All launches of all cases, small and big ones, in both layouts of images."""
    found: list[KernelLaunch] = []
    for big in (False, True):
        for key, tensors, settings in cases(dtype, big):
            made = [routine(key, tensors, settings, order) for order in ORDERS]
            found += [launch for one in made if one is not None for launch in one.launches]
    return (*found, *_of_ranks(dtype))


def _of_ranks(dtype: str) -> Iterator[KernelLaunch]:
    """Of kernels that are of no set: of values that several processes add up."""
    values, share, words = np.zeros((7, 5), dtype), np.zeros(()), np.zeros(3, np.uint64)
    calls = (
        ranks.clear_idle(*_specs(values, share)),
        ranks.draw_key(*_specs(words, words), by=1 << 40),
    )
    yield from (launch for call in calls if call is not None for launch in call.launches)


def _specs(*tensors: np.ndarray) -> list[TensorSpec]:
    return [TensorSpec(tensor.shape, tensor.dtype, tensor.strides) for tensor in tensors]


def types_of(file: str, dtype: str = "float32") -> list[dict[str, str]]:
    """The different types that a source is compiled for, the commonest first."""
    counted: dict[tuple[tuple[str, str], ...], int] = {}
    for launch in launches(dtype):
        if launch.file == file:
            counted[launch.types] = counted.get(launch.types, 0) + 1
    return [dict(types) for types in sorted(counted, key=lambda types: -counted[types])]


def threads_of(file: str) -> dict[str, int]:
    """{kernel: most threads of a block it is launched with}."""
    most: dict[str, int] = {}
    for launch in launches("float32"):
        if launch.file == file:
            most[launch.kernel] = max(most.get(launch.kernel, 0), prod(launch.block))
    return most
