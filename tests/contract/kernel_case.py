"""The form of one row of the kernel tables, and how tests run a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_lite.kernels.kernel_set import KernelSet

Tensors = list[np.ndarray | None]
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


def garbage(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An output before its kernel ran: NaN, or for integers the largest, or True."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return np.full(shape, np.iinfo(dtype).max, dtype)
    return np.full(shape, True if dtype.kind == "b" else np.nan, dtype)


def run(
    kernels: KernelSet,
    name: str,
    tensors: Sequence[np.ndarray | None],
    settings: Mapping[str, Any],
    scratch_byte: int = 0xFF,
) -> None:
    """Run a kernel with scratch that holds `scratch_byte` everywhere (0xFF: NaN) and fail if it writes beyond."""
    nbytes = kernels.scratch_bytes(name, tuple(tensors), settings)
    scratch = np.full(nbytes + 64, scratch_byte, np.uint8)
    kernels.prepare(name, tuple(tensors), scratch[:nbytes], settings)()
    assert np.all(scratch[nbytes:] == scratch_byte), f"{name} writes behind its {nbytes} bytes of scratch"
