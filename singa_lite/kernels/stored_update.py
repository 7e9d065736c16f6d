"""Updates of values that are stored in bfloat16: a piece is widened, updated by any update kernel, and rounded.

    for some rows of the value:  wide = value (+ error);  sgd(gradient, rate, wide, ...);  value, error = wide

The float32 piece stays in a cache between the three, so that memory is gone over once, and every update kernel of a set
does it, whatever state it has and however this is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any, cast

import numpy as np

from singa_lite.common.strides import memory_order
from singa_lite.kernels.composed import ComposedKernel, InnerCall, Temporaries
from singa_lite.kernels.interface import SIGNATURES, update_of
from singa_lite.kernels.interface.state_format import BLOCKED, Blocks
from singa_lite.kernels.kernel_set import DeviceArray, KernelSet, Settings
from singa_lite.kernels.pieces import Arrays, required

#: Elements of a piece: with its gradient and state it stays in the caches. Smaller ones cost memory: each piece holds
#: launches of some 5 KiB, and a large model has thousands of pieces.
PIECE = 1 << 19
_WIDE = np.dtype(np.float32)


def stored_kernel(name: str, kernels: KernelSet) -> ComposedKernel:
    """An update of a value in bfloat16 by the kernels of a set. name: of `stored_update`."""
    return ComposedKernel(partial(_calls, update_of(name)), kernels)


def _calls(update: str, temporaries: Temporaries, *arrays: Any, **settings: Any) -> Iterator[InnerCall]:
    """Every piece counts on a copy, so that each sees the count before the step."""
    pieces = _Pieces(update, arrays, temporaries)
    for cut in pieces.cuts:
        yield InnerCall("copy", (pieces.count, pieces.own_count))
        yield from pieces.calls(cut, settings)
    yield InnerCall("copy", (pieces.own_count, pieces.count))


class _Pieces:
    """Divides one update into pieces. cuts: slices of the outermost axis in memory."""

    def __init__(self, update: str, arrays: Arrays, temporaries: Temporaries) -> None:
        signature = SIGNATURES[update]
        self.update, self.arrays, self.error = update, arrays[:-1], arrays[-1]
        named = dict(zip(signature.tensors, arrays, strict=False))
        value, count = required(named["value"]), required(named["count"])
        self.value, self.count = value, count
        self.order = memory_order(value.shape, value.strides)
        self.axis = self.order[0] if self.order else 0
        self.cuts = self._cuts(signature.facts.by_elements) if value.ndim else [slice(0, 1)]
        self.own_count = temporaries.array(count.shape, count.dtype)
        self.wide = temporaries.array((prod(self._of_value(value, self.cuts[0]).shape),), _WIDE)

    def _cuts(self, by_elements: bool) -> list[slice]:
        extent, rows = self.value.shape[self.axis], PIECE * self.value.shape[self.axis] // max(self.value.size, 1)
        if any(array is not None and array.dtype == BLOCKED for array in self.arrays):
            together = Blocks.of(self.value.shape).rows
            rows = extent if self.axis else max(rows // together, 1) * together
        rows = max(rows, 1) if by_elements else max(extent, 1)
        return [slice(start, min(start + rows, extent)) for start in range(0, extent, rows)]

    def calls(self, cut: slice, settings: Settings) -> Iterator[InnerCall]:
        """Of one piece."""
        value = self._of_value(self.value, cut)
        given = {name: setting for name, setting in settings.items() if name != "first"}
        wide = self._widened(value)
        error = None if self.error is None else self._of_value(self.error, cut)
        yield InnerCall("copy", (value, wide)) if error is None else InnerCall("add_error", (value, error, wide))
        yield InnerCall(self.update, tuple(self._of_update(array, cut, wide) for array in self.arrays), given)
        if error is None:
            rows = cast(int, settings["first"]) + cut.start
            start = rows * (self.value.size // max(self.value.shape[self.axis], 1)) if value.ndim else 0
            yield InnerCall("round_by_chance", (wide, self.own_count, value), {"start": start})
        else:
            yield InnerCall("split_error", (wide, value, error))

    def _widened(self, value: DeviceArray) -> DeviceArray:
        """The temporary of a piece, its axes in memory in the order of the value's."""
        ordered = self.wide[: prod(value.shape)].reshape([value.shape[axis] for axis in self.order])
        return ordered.transpose(sorted(range(len(self.order)), key=self.order.__getitem__))

    def _of_update(self, array: DeviceArray | None, cut: slice, wide: DeviceArray) -> DeviceArray | None:
        """What of an operand of the update goes with a piece."""
        if array is self.value:
            return wide
        if array is self.count:
            return self.own_count.reshape(-1)[:1].reshape(())
        if array is None or array.dtype != BLOCKED:
            return array if array is None or not self._shares_extent(array) else self._of_value(array, cut)
        blocks = Blocks.of(self.value.shape)
        return array if self.axis else array[cut.start // blocks.rows : blocks.groups(cut.stop)]

    def _shares_extent(self, array: DeviceArray) -> bool:
        """Whether it has as many elements as the value along the axis that is cut, as a mean of rows has."""
        return array.ndim == self.value.ndim > 0 and bool(array.shape[self.axis] == self.value.shape[self.axis])

    def _of_value(self, array: DeviceArray, cut: slice) -> DeviceArray:
        return array[(slice(None),) * self.axis + (cut,)] if array.ndim else array
