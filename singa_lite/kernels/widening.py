"""Kernels over 16 bits by those over float32: what is read is widened into scratch, what is written is rounded.

A float32 holds every bfloat16, which is its upper half, and every float16, so reading is exact; a result is rounded to
the nearest, to even in between, and NaN and infinity stay what they are. On a CPU without instructions for it this
costs a pass over memory for each operand, and gives every kernel of a set in 16 bits. A set may have kernels that take
bfloat16 as it is: these serve the calls that they can do. Calls of which all floats are in float16 are those of a net
in float16, and are left to the sets themselves, but for those that add up or round in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from math import prod
from typing import Literal

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.carving import aligned
from singa_lite.kernels.interface import SIGNATURES, update_of
from singa_lite.kernels.kernel_set import (
    Described,
    Kernel,
    KernelSet,
    Launch,
    Settings,
    TensorSpec,
    TensorSpecs,
    specs_of,
)
from singa_lite.kernels.pieces import Arrays, cut_arrays, cut_specs, pieces
from singa_lite.kernels.routine import in_order
from singa_lite.kernels.specs import spec_of
from singa_lite.kernels.stored_update import stored_kernel
from singa_lite.kernels.stored_weight import reads_weight, with_stored_weight
from singa_lite.kernels.summed import SummedKernel, summed_pieces

NARROW = "bfloat16"
_WIDE = np.dtype(np.float32)
#: What the float32 buffers of a piece take together, where a call can be done in pieces: what a core's caches hold.
PIECE_BYTES = 1 << 21
#: A piece has as many times the bytes of what all pieces read besides, filters mostly: each piece lays these out anew.
_TIMES_SHARED = 4
#: Kernels that take bfloat16 as it is: one that moves numbers of any type, those that store values or add them up, and
#: those that draw numbers in float32, a block at a time.
_AS_IT_IS = frozenset(
    {"copy", "round_by_chance", "split_error", "add_error", "add_stored"}
    | {"adafactor", "uniform", "normal", "truncated_normal"}
)
#: Those that round to another type, once, without being widened.
_CASTS = frozenset({"cast"})
#: NumPy's own, in which sets have kernels too.
_HALF = "float16"
#: Families of kernels that would round on the way, or add up, in float16 where all floats of a call are in it.
_ROUNDING = frozenset({"activation", "attention", "normalization", "pooling", "position", "reduction"})


class WideningSet(KernelSet):
    """A set of kernels over NumPy's arrays that serves calls with operands in 16 bits by those in float32."""

    def choose(self, name: str, specs: TensorSpecs, settings: Settings) -> Kernel:
        """As `KernelSet.choose`; of a call in 16 bits the kernel that takes it as it is, or the one that widens.

        Values and weights that are stored in bfloat16 have kernels of their own.
        """
        if update_of(name):
            return stored_kernel(name, self)
        if reads_weight(name, specs, settings):
            return with_stored_weight(name, self)
        if not _narrow(name, specs) or self._takes(name, specs, settings):
            return super().choose(name, specs, settings)
        widened = WidenedKernel(name, self)
        return SummedKernel(name, widened, self) if summed_pieces(name, specs) else widened

    def in_one_pass(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> bool:
        """As `KernelSet.in_one_pass`."""
        return super().in_one_pass(name, _widened(name, specs_of(tensors)), settings)

    def free_of_strides(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> Collection[str]:
        """As `KernelSet.free_of_strides`; what is widened is so from wherever it lies."""
        specs = specs_of(tensors)
        if self._takes(name, specs, settings):
            return super().free_of_strides(name, specs, settings)
        wide = super().free_of_strides(name, _widened(name, specs), settings)
        return {*wide, *(SIGNATURES[name].tensors[at] for at in _narrow(name, specs))}

    def takes_narrow(self, name: str, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether a kernel of this set does a call with operands in bfloat16 as they are; here none does."""
        return False

    def converted(self, source: Array, target: Array) -> Launch:
        """A call that fills the target with what the source holds, one of them float32 and the other of 16 bits.

        They have one shape, and their axes lie in one order. ml_dtypes rounds an element in 0.5 ns, in one thread, as
        it holds Python's lock; the same in NumPy's integers, eight passes over a block, takes 1.1 ns.
        """
        if isinstance(self.fallback, WideningSet):
            return self.fallback.converted(source, target)
        return partial(_round if target.dtype.name == _HALF else np.copyto, target, source, casting="unsafe")

    def _takes(self, name: str, specs: TensorSpecs, settings: Settings) -> bool:
        return name in _AS_IT_IS or self.takes_narrow(name, specs, settings)


class WidenedKernel:
    """A kernel over operands of which some are in 16 bits. name: of the kernel; kernels: whose float32 ones do it.

    Where the kernel does each sample by itself, it is given as many of them at a time as fit into `PIECE_BYTES`: these
    stay in the caches from one conversion to the next, and the scratch is small. What every piece would read as a
    whole, such as filters, has a part in how large pieces are, and a matrix is read but once.
    """

    def __init__(self, name: str, kernels: WideningSet) -> None:
        self.name, self.kernels = name, kernels

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """It can do what the kernels can do in float32."""
        return True

    def variant(self, specs: TensorSpecs, settings: Settings) -> str:
        """That it is done over converted copies, and how the kernel in float32 would do the whole call at once."""
        return f"{self.kernels.variant(self.name, _widened(self.name, specs), settings)} widened".strip()

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """A float32 buffer for each narrow operand, and what the kernel asks for over these; of the largest piece."""
        cuts = {piece.stop - piece.start: piece for piece in self._pieces(specs)}
        if not cuts:
            return self._scratch_of(specs, settings)
        return max(self._scratch_of(cut_specs(self.name, specs, piece), settings) for piece in cuts.values())

    def _pieces(self, specs: TensorSpecs) -> list[slice]:
        facts, names = SIGNATURES[self.name].facts, SIGNATURES[self.name].tensors
        if facts.multiplies in ("tensors", "blocks"):
            return []
        shared = sum(
            spec.size * spec.dtype.itemsize
            for name, spec in zip(names, specs, strict=True)
            if spec is not None and name not in facts.by_samples
        )
        return pieces(self.name, specs, max(PIECE_BYTES, _TIMES_SHARED * shared))

    def _scratch_of(self, specs: TensorSpecs, settings: Settings) -> int:
        buffers = sum(_buffer_bytes(spec.shape) for spec in _narrow(self.name, specs).values())
        over = self.kernels.scratch_bytes(self.name, _widened(self.name, specs), settings)
        return buffers + over

    def prepare(self, arrays: Arrays, scratch: Array | None, settings: Settings) -> Launch:
        """Widen what is read, do it, and round what is written, piece by piece."""
        cuts = self._pieces(specs_of(arrays))
        parts = [cut_arrays(self.name, arrays, piece) for piece in cuts] or [arrays]
        launches = [launch for part in parts for launch in self._launches(part, scratch, settings)]
        return in_order(launches)

    def _launches(self, arrays: Arrays, scratch: Array | None, settings: Settings) -> Iterator[Launch]:
        given = {at: array for at, array in enumerate(arrays) if array is not None}
        narrow = {at: given[at] for at in _narrow(self.name, specs_of(arrays))}
        wide, start = dict[int, Array](), 0
        for at, array in narrow.items():
            wide[at] = _buffer(scratch, start, array)
            start += _buffer_bytes(array.shape)
        roles = SIGNATURES[self.name].roles
        convert = self.kernels.converted
        yield from (convert(array, wide[at]) for at, array in narrow.items() if roles[at] != "Write")
        over = tuple(wide.get(at, array) for at, array in enumerate(arrays))
        yield self.kernels.prepare(self.name, over, None if scratch is None else scratch[start:], settings)
        yield from (convert(wide[at], array) for at, array in narrow.items() if roles[at] != "Read")


def _narrow(name: str, specs: TensorSpecs) -> dict[int, TensorSpec]:
    """{place: spec} of the operands of a call that are widened."""
    given = {at: spec for at, spec in enumerate(specs) if spec is not None}
    mixes = any(spec.dtype == _WIDE for spec in given.values()) and name not in _CASTS
    halves = mixes or (name in SIGNATURES and SIGNATURES[name].family in _ROUNDING)
    return {at: s for at, s in given.items() if s.dtype.name == NARROW or (halves and s.dtype.name == _HALF)}


def _widened(name: str, specs: TensorSpecs) -> TensorSpecs:
    """The specs of the buffers in the place of narrow operands: without gaps, axes in memory in the same order."""
    narrow = _narrow(name, specs)
    return tuple(
        spec.without_gaps(_WIDE) if at in narrow and spec is not None else spec for at, spec in enumerate(specs)
    )


def _round(target: Array, source: Array, casting: Literal["unsafe"]) -> None:
    """To float16, without NumPy's warning of what becomes infinite there."""
    with np.errstate(over="ignore"):
        np.copyto(target, source, casting=casting)


def _buffer_bytes(shape: Sequence[int]) -> int:
    """Of a float32 buffer in the scratch; what the kernel asks for lies behind all of them."""
    return aligned(prod(shape) * _WIDE.itemsize)


def _buffer(scratch: Array | None, start: int, narrow: Array) -> Array:
    """In the scratch, from there on, the float32 array that lies as the narrow one."""
    wide = spec_of(narrow).without_gaps(_WIDE)
    return np.ndarray(wide.shape, _WIDE, scratch, 0 if scratch is None else start, wide.strides)
