"""Updates of values that are stored in bfloat16: a piece is widened, updated by any update kernel, and rounded.

    for some rows of the value:  wide = value (+ error);  sgd(gradient, rate, wide, ...);  value, error = wide

The float32 piece stays in a cache between the three, so that memory is gone over once, and every update kernel of a set
does it, whatever state it has and however this is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import memory_order
from singa_lite.kernels.carving import aligned, carved, unread
from singa_lite.kernels.interface import SIGNATURES, update_of
from singa_lite.kernels.interface.state_format import BLOCKED, Blocks
from singa_lite.kernels.kernel_set import KernelSet, Launch, Settings, TensorSpecs
from singa_lite.kernels.pieces import Arrays, required
from singa_lite.kernels.routine import in_order
from singa_lite.kernels.specs import spec_of

#: Elements of a piece: with its gradient and state it stays in the caches. Smaller ones cost memory: each piece holds
#: launches of some 5 KiB, and a large model has thousands of pieces.
PIECE = 1 << 19
_WIDE = np.dtype(np.float32)
#: A call of another kernel of the set.
_Call = tuple[str, Arrays, Settings]


class StoredUpdate:
    """An update of a value in bfloat16 by the kernels of a set. name: of `stored_update`."""

    def __init__(self, name: str, kernels: KernelSet) -> None:
        self.update, self.kernels = update_of(name), kernels

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """It can do every call that its set can do in float32."""
        return True

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Of the largest piece, and of the call that needs most."""
        pieces = _Pieces(self.update, tuple(None if spec is None else unread(spec) for spec in specs), None)
        forms = {piece.stop - piece.start: piece for piece in pieces.cuts}
        calls = [call for cut in forms.values() for call in pieces.calls(cut, settings)]
        return pieces.nbytes + max(self.kernels.scratch_bytes(*call) for call in calls)

    def prepare(self, arrays: Arrays, scratch: Array | None, settings: Settings) -> Launch:
        """Every piece counts on a copy, so that each sees the count before the step."""
        pieces = _Pieces(self.update, arrays, scratch)
        rest = None if scratch is None else scratch[pieces.nbytes :]
        return in_order([*self._launches(pieces, rest, settings)])

    def _launches(self, pieces: _Pieces, rest: Array | None, settings: Settings) -> Iterator[Launch]:
        for cut in pieces.cuts:
            yield partial(np.copyto, pieces.own_count, pieces.count)
            for name, arrays, also in pieces.calls(cut, settings):
                yield self.kernels.prepare(name, arrays, rest, also)
        yield partial(np.copyto, pieces.count, pieces.own_count)


class _Pieces:
    """Divides one update into pieces. nbytes: scratch that all share; cuts: slices of the outermost axis in memory."""

    def __init__(self, update: str, arrays: Arrays, scratch: Array | None) -> None:
        signature = SIGNATURES[update]
        self.update, self.arrays, self.error = update, arrays[:-1], arrays[-1]
        named = dict(zip(signature.tensors, arrays, strict=False))
        value, count = required(named["value"]), required(named["count"])
        self.value, self.count = value, count
        self.order = memory_order(value.shape, value.strides)
        self.axis = self.order[0] if self.order else 0
        self.cuts = self._cuts(signature.facts.by_elements) if value.ndim else [slice(0, 1)]
        widest = self._of_value(value, self.cuts[0])
        self.own_count = carved(scratch, 0, spec_of(count).without_gaps())
        self.wide_at = aligned(self.own_count.nbytes)
        self.scratch = scratch
        self.nbytes = self.wide_at + aligned(widest.size * _WIDE.itemsize)

    def _cuts(self, by_elements: bool) -> list[slice]:
        extent, rows = self.value.shape[self.axis], PIECE * self.value.shape[self.axis] // max(self.value.size, 1)
        if any(array is not None and array.dtype == BLOCKED for array in self.arrays):
            together = Blocks.of(self.value.shape).rows
            rows = extent if self.axis else max(rows // together, 1) * together
        rows = max(rows, 1) if by_elements else max(extent, 1)
        return [slice(start, min(start + rows, extent)) for start in range(0, extent, rows)]

    def calls(self, cut: slice, settings: Settings) -> Iterator[_Call]:
        """Of one piece."""
        value = self._of_value(self.value, cut)
        given = {name: setting for name, setting in settings.items() if name != "first"}
        wide = carved(self.scratch, self.wide_at, spec_of(value).without_gaps(_WIDE))
        error = None if self.error is None else self._of_value(self.error, cut)
        yield ("copy", (value, wide), {}) if error is None else ("add_error", (value, error, wide), {})
        yield self.update, tuple(self._of_update(array, cut, wide) for array in self.arrays), given
        if error is None:
            rows = cast(int, settings["first"]) + cut.start
            start = rows * (self.value.size // max(self.value.shape[self.axis], 1)) if value.ndim else 0
            yield "round_by_chance", (wide, self.own_count, value), {"start": start}
        else:
            yield "split_error", (wide, value, error), {}

    def _of_update(self, array: Array | None, cut: slice, wide: Array) -> Array | None:
        """What of an operand of the update goes with a piece."""
        if array is self.value:
            return wide
        if array is self.count:
            return self.own_count.reshape(-1)[:1].reshape(())
        if array is None or array.dtype != BLOCKED:
            return array if array is None or not self._shares_extent(array) else self._of_value(array, cut)
        blocks = Blocks.of(self.value.shape)
        return array if self.axis else array[cut.start // blocks.rows : blocks.groups(cut.stop)]

    def _shares_extent(self, array: Array) -> bool:
        """Whether it has as many elements as the value along the axis that is cut, as a mean of rows has."""
        return array.ndim == self.value.ndim > 0 and array.shape[self.axis] == self.value.shape[self.axis]

    def _of_value(self, array: Array, cut: slice) -> Array:
        return array[(slice(None),) * self.axis + (cut,)] if array.ndim else array
