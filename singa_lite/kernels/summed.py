"""Sums over a batch by pieces of it: a gradient of filters whose operands, converted as a whole, would be the peak.

dweight = gradient(x[0:2], dy[0:2]);  part = gradient(x[2:4], dy[2:4]);  dweight = dweight + part;  ...
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.carving import aligned
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import (
    Kernel,
    KernelSet,
    Launch,
    Naming,
    Settings,
    TensorSpec,
    TensorSpecs,
    specs_of,
)
from singa_lite.kernels.pieces import Arrays, cut_arrays, cut_specs, pieces
from singa_lite.kernels.routine import in_order
from singa_lite.kernels.specs import spec_of

#: What four bytes for each element of a piece take together, where its sums take less: it is done on several cores.
SUMMED_BYTES = 16 << 20
#: A piece has as many times the bytes of its sums, which are added to those of the pieces before.
_TIMES_SUMS = 8


def summed_pieces(name: str, specs: TensorSpecs) -> list[slice]:
    """The samples of each piece; [] where the call is better done as a whole, or is no sum over samples."""
    sums = sum(_nbytes(specs[at]) for at in _results(name))
    return pieces(name, specs, max(SUMMED_BYTES, _TIMES_SUMS * sums), summed=True)


class SummedKernel:
    """A kernel of which all results are sums over samples (`Facts.sums_over`). part: does a piece; kernels: add."""

    def __init__(self, name: str, part: Kernel, kernels: KernelSet) -> None:
        self.name, self.part, self.kernels = name, part, kernels

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """It can do what the kernel for pieces can."""
        return self.part.supports(specs, settings)

    def variant(self, specs: TensorSpecs, settings: Settings) -> str:
        """As the kernel for pieces says it."""
        return self.part.variant(specs, settings) if isinstance(self.part, Naming) else ""

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """The sums of a piece, and behind them what a piece or an addition wants."""
        wanted = [self._adding_bytes(specs[at]) for at in _results(self.name)]
        for piece in {piece.stop - piece.start: piece for piece in summed_pieces(self.name, specs)}.values():
            wanted.append(self.part.scratch_bytes(cut_specs(self.name, specs, piece, summed=True), settings))
        return sum(_nbytes(specs[at]) for at in _results(self.name)) + max(wanted)

    def _adding_bytes(self, spec: TensorSpec | None) -> int:
        return 0 if spec is None else self.kernels.scratch_bytes("add", (spec, spec.without_gaps(), spec), {})

    def prepare(self, arrays: Arrays, scratch: Array | None, settings: Settings) -> Launch:
        """The first piece into the results, all others into the scratch, from where they are added."""
        return in_order(list(self._launches(arrays, scratch, settings)))

    def _launches(self, arrays: Arrays, scratch: Array | None, settings: Settings) -> Iterator[Launch]:
        sums, start = list(arrays), 0
        for at in _results(self.name):
            array = arrays[at]
            if array is not None:
                sums[at] = _buffer(scratch, start, array)
                start += _nbytes(spec_of(array))
        rest = None if scratch is None else scratch[start:]
        for number, piece in enumerate(summed_pieces(self.name, specs_of(arrays))):
            part = cut_arrays(self.name, tuple(sums) if number else arrays, piece, summed=True)
            yield self.part.prepare(part, rest, settings)
            for at in _results(self.name) if number else ():
                yield self.kernels.prepare("add", (arrays[at], sums[at], arrays[at]), rest, {})


def _results(name: str) -> list[int]:
    return [at for at, role in enumerate(SIGNATURES[name].roles) if role == "Write"]


def _nbytes(spec: TensorSpec | None) -> int:
    return 0 if spec is None else aligned(spec.size * spec.dtype.itemsize)


def _buffer(scratch: Array | None, start: int, sums: Array) -> Array:
    made = spec_of(sums).without_gaps()
    return np.ndarray(made.shape, made.dtype, scratch, start, made.strides)
