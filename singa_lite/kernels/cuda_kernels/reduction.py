"""Sums and extremes along axes: the terms innermost or the results, in two stages where these alone would leave the GPU
idle.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple, cast

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.routine import THREADS, BufferView, Routine
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES, computed
from singa_lite.kernels.cuda_kernels.walk import AXES, VECTOR_BYTES, Merged, axis_spec, dense, merged, power_of_two
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "reduction.cu"

#: `Sums` of reduction.cu.
_SUMS = np.dtype(
    [
        *((name, "u4") for name in ("kept", "reduced", "chunk", "packs", "kept_axes", "reduced_axes")),
        *((name, "u4", AXES) for name in ("kept_extents", "reduced_extents")),
        *((name, "i8", AXES) for name in ("kept_in_x", "kept_in_y", "reduced_in_x")),
    ]
)
#: Sums, and terms of one sum, are numbered by 31 bits.
MOST = 1 << 31
#: Blocks that keep a GPU busy: where sums make fewer, their terms are cut into chunks.
BUSY = 512
#: Steps that a thread takes through a chunk at least: fewer would cost less than a second stage does.
LEAST = 16
#: Packs of terms from which a whole block adds one sum, not a warp.
LONG = 128


@dataclass(frozen=True)
class Sums:
    """The layout of sums and their terms. kept: of x and of y; reduced: of x."""

    kept: Merged
    reduced: Merged

    @property
    def count(self) -> int:
        """How many."""
        return prod(self.kept.extents)

    @property
    def terms(self) -> int:
        """Of each."""
        return prod(self.reduced.extents)

    @property
    def in_rows(self) -> bool:
        """Whether the terms of a sum are closer to each other than the sums."""
        return self.count == 1 or self.kept.strides[0][-1] > self.reduced.strides[0][-1]


class BufferAs(NamedTuple):
    """A buffer, and the spec to read it by."""

    buffer: BufferView
    spec: TensorSpec


class Shares(NamedTuple):
    """The division of work among threads and blocks. block: threads of one; blocks: for all sums; chunk: terms of one;
    chunks: of each sum.
    """

    block: tuple[int, int]
    blocks: int
    chunk: int
    chunks: int


def summed(x: TensorSpec, y: TensorSpec, axes: Collection[int], alpha: float = 1.0) -> Routine | None:
    """y = alpha * sums of x along the axes."""
    routine = Routine()
    return routine if add_sum(routine, BufferAs(x, x), BufferAs(y, y), axes, alpha) else None


def column_sums(x: TensorSpec, y: TensorSpec, axis: int = 1) -> Routine | None:
    """The sums along all axes but one."""
    return summed(x, y, [i for i in range(x.ndim) if i != axis % x.ndim])


def _reduce_sum(call: Call) -> Routine | None:
    return summed(call["x"], call["y"], _axes(call), call.number("alpha"))


def _extreme(fold: str, call: Call) -> Routine | None:
    """Of any type."""
    x, y = call.all("x", "y")
    routine = Routine()
    if x.dtype != y.dtype or x.dtype.name not in TYPES:
        return None
    return routine if _add(fold, routine, BufferAs(x, x), BufferAs(y, y), _axes(call), x.dtype) else None


def _axes(call: Call) -> tuple[int, ...]:
    return cast(tuple[int, ...], call.settings["axes"])


def _bias_gradient(call: Call) -> Routine | None:
    return column_sums(call["dy"], call["db"], int(call.number("axis")))


def add_sum(routine: Routine, x: BufferAs, y: BufferAs, axes: Collection[int], alpha: float) -> bool:
    """Add the steps of y = alpha * sums of x along `axes`. False, and no steps, for what the kernels do not serve."""
    (_, seen), (_, made) = x, y
    if not {seen.dtype.name, made.dtype.name} <= {*FLOATS} or computed(seen.dtype) != computed(made.dtype):
        return False
    return _add("sum", routine, x, y, axes, computed(seen.dtype), alpha)


def _add(
    fold: str, routine: Routine, x: BufferAs, y: BufferAs, axes: Collection[int], held: DType, alpha: float = 1.0
) -> bool:
    """Add the steps of a fold: "sum", "max" or "min". held: the dtype of what comes of chunks; the rest is as of
    `add_sum`.
    """
    (_, seen), (_, made) = x, y
    sums = _sums(seen, made, {axis % seen.ndim for axis in axes})
    if max(sums.count, sums.terms) >= MOST or max(len(sums.kept.extents), len(sums.reduced.extents)) > AXES:
        return False
    shares = (row_shares if sums.in_rows else _column_shares)(sums.count, sums.terms, seen.dtype)
    if shares.chunks == 1:
        _launch(routine, fold, sums, shares, x, y, alpha)
        return True
    between = dense((sums.count, shares.chunks), held)
    partial = BufferAs(routine.temporary(between.shape, between.dtype), between)
    # The chunks of a sum lie in a row, so that the second stage adds short rows.
    extents, (in_x, in_y) = sums.kept
    rows = ordered_strides(extents, range(len(extents)), shares.chunks)
    first = Sums(Merged(extents, (in_x, rows)), sums.reduced)
    second = Sums(Merged(extents, (rows, in_y)), Merged((shares.chunks,), ((1,),)))
    _launch(routine, fold, first, shares, x, partial, 1.0)
    _launch(routine, fold, second, row_shares(sums.count, shares.chunks, held, busy=1), partial, y, alpha)
    return True


def row_shares(count: int, terms: int, dtype: DType, busy: int = BUSY) -> Shares:
    """Sums whose terms lie in rows: a short row a part of a warp, a long one a block or several, up to `busy`."""
    vector = VECTOR_BYTES // dtype.itemsize
    packs = -(-terms // vector)
    team = THREADS if packs > LONG else min(32, power_of_two(packs))
    blocks = -(-count * team // THREADS)
    return _cut((team, THREADS // team), blocks, terms, vector * team, busy)


def _column_shares(count: int, terms: int, dtype: DType) -> Shares:
    """A warp's width of columns where there are so many; more where they are short."""
    packs = -(-count // (VECTOR_BYTES // dtype.itemsize))
    lanes = min(power_of_two(packs), max(32, THREADS // power_of_two(terms)))
    rows = THREADS // lanes
    return _cut((lanes, rows), -(-packs // lanes), terms, rows, BUSY)


def _sums(x: TensorSpec, y: TensorSpec, axes: set[int]) -> Sums:
    kept, reduced = ([i for i in range(x.ndim) if (i in axes) is summed] for summed in (False, True))
    results = [stride for i, stride in enumerate(y.strides) if y.ndim < x.ndim or i not in axes]
    seen, terms = axis_spec(kept, x), axis_spec(reduced, x)
    made = TensorSpec(seen.shape, y.dtype, tuple(results))
    return Sums(merged(seen.shape, (seen, made)), merged(terms.shape, (terms,)))


def _cut(block: tuple[int, int], blocks: int, terms: int, per_step: int, busy: int) -> Shares:
    """As many chunks of whole steps as give `busy` blocks something to do."""
    steps = -(-terms // per_step)
    wanted = min(-(-steps // LEAST), -(-busy // blocks))
    chunk = -(-steps // wanted) * per_step
    return Shares(block, blocks, chunk, -(-terms // chunk))


def _launch(routine: Routine, fold: str, sums: Sums, shares: Shares, x: BufferAs, y: BufferAs, alpha: float) -> None:
    struct = np.zeros((), _SUMS)
    struct["kept"], struct["reduced"], struct["chunk"] = sums.count, sums.terms, shares.chunk
    struct["packs"] = _in_packs(sums, VECTOR_BYTES // x.spec.dtype.itemsize)
    for name, found in (("kept", sums.kept), ("reduced", sums.reduced)):
        axes = len(found.extents)
        struct[f"{name}_axes"] = axes
        struct[f"{name}_extents"][:axes] = found.extents
        for tensor, strides in zip(("x", "y"), found.strides, strict=False):
            struct[f"{name}_in_{tensor}"][:axes] = strides
    kernel = f"{fold}_rows" if sums.in_rows else f"{fold}_columns"
    types = {"T": x.spec.dtype, "S": y.spec.dtype}
    arguments = (struct, x.buffer, y.buffer, np.float64(alpha))
    routine.launch(FILE, kernel, *arguments, types=types, grid=(shares.blocks, shares.chunks), block=shares.block)


def _in_packs(sums: Sums, vector: int) -> bool:
    """Whether whole packs lie in a row, along the terms or the sums, and start at multiples of their size."""
    along, across = (sums.reduced, sums.kept) if sums.in_rows else (sums.kept, sums.reduced)
    if along.strides[0][-1] != 1 or (along.extents[-1] % vector and not (sums.in_rows and len(along.extents) == 1)):
        return False
    outer = [
        *zip(along.extents[:-1], along.strides[0], strict=False),
        *zip(across.extents, across.strides[0], strict=True),
    ]
    return all(extent == 1 or step % vector == 0 for extent, step in outer)


KERNELS: dict[str, CallBuilder[Routine]] = {
    "reduce_sum": _reduce_sum,
    "reduce_max": partial(_extreme, "max"),
    "reduce_min": partial(_extreme, "min"),
    "bias_gradient": _bias_gradient,
}
