"""Kernels for parameters in bfloat16: stochastic rounding, and a split into a value and an 8-bit error and back."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.routine import THREADS, Argument, Routine, blocks, integer
from singa_lite.kernels.cuda_kernels.walk import step, walk
from singa_lite.kernels.kernel_set import TensorSpec

_WIDE = np.dtype(np.float32)


def _round_by_chance(call: Call) -> Routine | None:
    """Element by element, each with its place in the memory of the value."""
    x, count, value = call.all("x", "count", "value")
    places = value.without_gaps()
    return _launched("round_by_chance", (places, value, x), x, x, count, step(count), value, integer(call, "start"))


def _split_error(call: Call) -> Routine | None:
    x, value, error = call.all("x", "value", "error")
    return _launched("split_error", (value, error, x), x, x, value, error)


def _joined(call: Call) -> Routine | None:
    """y from the value and its error, or y with them added."""
    value, error, y = call.all("value", "error", "y")
    numbers = [np.float64(call.number("alpha"))] if "alpha" in call.settings else []
    return _launched(call.kernel, (y, value, error), y, value, error, y, *numbers)


def _launched(kernel: str, walked: tuple[TensorSpec, ...], wide: TensorSpec, *arguments: Argument) -> Routine | None:
    """Returns the launch over the elements of `walked`; None where `wide`, the float32 operand, has another dtype."""
    found = walk(wide.shape, walked, vector=4)
    if found is None or wide.dtype != _WIDE:
        return None
    grid = blocks(wide.size, THREADS * 4)
    return Routine().launch("stored_value.cu", kernel, found, *arguments, types={"T": _WIDE}, grid=grid)


KERNELS: dict[str, CallBuilder[Routine]] = {
    "round_by_chance": _round_by_chance,
    "split_error": _split_error,
    "add_error": _joined,
    "add_stored": _joined,
}
