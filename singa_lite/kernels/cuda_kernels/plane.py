"""Plane: how the two stages of a sum along some axes are laid out over blocks and threads, as `plane.cuh` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.array_types import DType
from singa_lite.common.strides import memory_order
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, computed
from singa_lite.kernels.cuda_kernels.walk import VECTOR_BYTES, Struct, axis_spec, power_of_two, walk, walk_dtype
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

#: Threads side by side along kept axes, at most: a warp's loads lie in a row.
WIDEST = 32
#: Elements that a thread sums at least, before there are more blocks; summed indices, before there are more threads.
FEWEST, FEWEST_DOWN = 16, 4
#: Summed indices whose loads a thread has under way at a time, as in plane.cuh; it takes no fewer of them.
AT_ONCE = 4
#: Blocks for a first stage, whose results the second one sums; and for a pass without sums. Twice and four times as
#: many took longer on an H200.
SUM_BLOCKS, PASS_BLOCKS = 264, 1056
#: Indices are 32 bits wide.
MOST_INDICES = 1 << 32


class Plane(NamedTuple):
    """struct: what the kernel takes; blocks: of its grid; the rest: counts that the second stage needs."""

    struct: Struct
    blocks: int
    kept: int
    summed: int
    slab: int
    slabs: int

    @property
    def warps(self) -> int:
        """Blocks of the second stage, which has a warp for each kept index."""
        return -(-self.kept * 32 // THREADS)


def plane(kept: Sequence[int], specs: Sequence[TensorSpec], blocks: int = SUM_BLOCKS) -> Plane | None:
    """For tensors of one shape, summed along all axes but the kept ones. The first one's layout counts most.

    blocks: about as many as wanted. None for tensors with too many axes or elements.
    """
    first, each = specs[0], VECTOR_BYTES // specs[0].dtype.itemsize
    summed = [axis for axis in range(first.ndim) if axis not in kept]
    walks = [_walk(axes, specs, each) for axes in (kept, summed)]
    if any(found is None for found in walks):
        return None
    counts = [prod(first.shape[axis] for axis in axes) for axes in (kept, summed)]
    kept_inner, vector = _innermost(first) in kept, neighbours(kept, first)
    width, height = _threads(counts[0] // vector, counts[1], kept_inner)
    tiles = -(-counts[0] // (width * vector))
    most = -(-counts[1] // (height * max(AT_ONCE, FEWEST // vector)))
    slab = _up(-(-counts[1] // min(most, max(1, blocks // tiles))), height * AT_ONCE)
    slabs = -(-counts[1] // slab)
    struct = np.zeros((), _dtype(len(specs)))
    struct["kept"], struct["summed"] = walks
    struct["slab"], struct["slabs"], struct["tiles"] = slab, slabs, tiles
    struct["width"], struct["height"], struct["kept_inner"] = width, height, kept_inner
    struct["vector"], struct["packs"] = vector, _are_packs(struct, vector)
    return Plane(struct, tiles * slabs, counts[0], counts[1], slab, slabs)


def neighbours(axes: Sequence[int], spec: TensorSpec) -> int:
    """Elements that a thread takes side by side along these axes: those of a vector load, or 1. Told by extents."""
    innermost, each = _innermost(spec), VECTOR_BYTES // spec.dtype.itemsize
    return each if innermost in axes and spec.shape[innermost] % each == 0 else 1


def _innermost(spec: TensorSpec) -> int:
    """The innermost axis of more than one element; -1 if there is none."""
    return next((axis for axis in reversed(memory_order(spec.shape, spec.strides)) if spec.shape[axis] != 1), -1)


def _walk(axes: Sequence[int], specs: Sequence[TensorSpec], vector: int) -> Struct | None:
    lines = [axis_spec(axes, spec) for spec in specs]
    return walk(lines[0].shape, lines, vector) if lines[0].size < MOST_INDICES else None


def _threads(groups: int, summed: int, kept_inner: bool) -> tuple[int, int]:
    """Threads of a block along kept and summed axes, powers of two."""
    if kept_inner:
        width = min(WIDEST, power_of_two(groups))
        return width, THREADS // width
    height = min(THREADS, power_of_two(-(-summed // FEWEST_DOWN)))
    return THREADS // height, height


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _are_packs(struct: Struct, vector: int) -> bool:
    """Whether a thread's kept elements lie as packs in every tensor, but for those that have one for all of them."""
    kept, summed = struct["kept"], struct["summed"]
    last = int(kept["axes"]) - 1
    for own, down in zip(kept["strides"], summed["strides"], strict=True):
        others = [*own[:last], *down[: int(summed["axes"])]]
        if own[last] != 0 and (own[last] != 1 or any(stride % vector for stride in others)):
            return False
    return vector > 1


def _dtype(operands: int) -> DType:
    own = walk_dtype(operands)
    counts = ("slabs", "tiles", "width", "height", "kept_inner", "vector", "packs", "unused")
    return np.dtype([("kept", own), ("summed", own), ("slab", "i8"), *((name, "u4") for name in counts)])


def types_of(tensors: Sequence[TensorSpec], vectors: Sequence[TensorSpec]) -> dict[str, DType] | None:
    """T, the tensors' type, and S, the vectors'; None if they differ within a group or are no floats."""
    given = [{spec.dtype for spec in group} for group in (tensors, vectors)]
    if any(len(dtypes) != 1 for dtypes in given) or not all(d.name in FLOATS for dtypes in given for d in dtypes):
        return None
    return {"T": tensors[0].dtype, "S": vectors[0].dtype}


def partial_results(routine: Routine, found: Plane, dtype: DTypeLike) -> Temporary:
    """Scratch for a number of each slab of each kept index."""
    return routine.temporary((found.kept, found.slabs), dtype)


def add_moments(routine: Routine, x: TensorSpec, found: Plane) -> list[Temporary]:
    """A step that makes each slab's sums and squared deviations, and each line's origin, which they are relative to."""
    made = [partial_results(routine, found, computed(x.dtype)) for _ in range(2)]
    made.append(routine.temporary((found.kept,), computed(x.dtype)))
    routine.launch("moments.cu", "slab_moments", found.struct, x, *made, types={"T": x.dtype}, grid=found.blocks)
    return made


def pass_blocks(y: TensorSpec) -> int:
    """Blocks for a walk over y."""
    return blocks(y.size, THREADS * VECTOR_BYTES // y.dtype.itemsize)
