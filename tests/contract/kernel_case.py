"""The form of one row of the kernel tables, with what tests run a kernel by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.testing.kernel_call import Tensors
from singa_lite.testing.kernel_call import garbage as garbage
from singa_lite.testing.kernel_call import run as run

Build = Callable[[np.random.Generator, np.dtype, bool], tuple[Tensors, dict[str, Any]]]


@dataclass(frozen=True)
class Case:
    """One way of calling one kernel.

    `CASES` maps "max_pool2d" or, where a kernel has several cases, "max_pool2d:overlapping" to a Case: the kernel's
    name is the key, up to a colon if there is one. Each kernel of the interface has at least one.

    build(rng, dtype, big) -> (tensors, settings). tensors: in the interface's order, C-contiguous, each in memory of
    its own, None for an optional one that is left out; outputs (`Write`) hold `garbage`; inputs that are floats
    have the given dtype (float32 or float64), ids and keys their own. settings: all of the kernel's settings.
    Equal states of rng give equal tensors.

    big=False: a few hundred elements at most, all extents different and odd where the formula allows.
    big=True: the largest tensor has at least 2 MB, and the call takes well under a second.
    """

    build: Build


def run_twice(kernels: KernelSet, name: str, arrays: tuple[Any, ...], settings: dict[str, Any]) -> None:
    """Runs a call twice, whose scratch is full of NaN before it and has 64 bytes more, which must stay so."""
    size = kernels.scratch_bytes(name, arrays, settings)
    scratch = np.full(size + 128, 255, np.uint8)
    start = -scratch.__array_interface__["data"][0] % 64
    launch = kernels.prepare(name, arrays, scratch[start : start + size], settings)
    launch()
    launch()
    assert (scratch[start + size :] == 255).all()
