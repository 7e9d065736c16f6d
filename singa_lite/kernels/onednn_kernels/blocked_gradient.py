"""The gradient by the filters over images in the library's own layout, to which a few samples at a time are converted.

    some samples of x and dy -> converted -> their gradient, in blocks -> added to that of the samples before
    ...
    the sum, in blocks -> dweight

So the scratch holds a cacheful of images, however large the batch is, and converting them costs little.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod
from typing import cast

from singa_lite.kernels.call import Call
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.convolution import DIRECT, chosen_filters, geometry, lying_filters, window_of
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.conversion import read_as
from singa_lite.kernels.onednn_kernels.library.primitive import MemoryDesc, Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, FlatSlice, Routine
from singa_lite.kernels.routine import Temporary

#: Of x and dy of the samples that are done at a time, unless one sample has more, or the filters have.
PIECE_BYTES = 1 << 21

_C_ORDER = (0, 1, 2, 3)
#: dnnl_binary_add.
_ADD = 0x1FFF0


def blocked_gradient(call: Call) -> Routine | None:
    """None where the library has no such code, or likes images best channels last."""
    x, dy, dweight, (window, groups) = call["x"], call["dy"], call["dweight"], window_of(call)
    if not layouts.are_floats(x, dy, dweight):
        return None
    pieces = list(pairwise(_ends(x, dy, dweight)))
    made = _primitives({stop - start for start, stop in pieces}, x, dy, chosen_filters(dweight, groups), window)
    if made is None:
        return None
    routine, (filters, primitives) = Routine(), made
    images, slopes = _Samples(routine, x, f.SRC, primitives), _Samples(routine, dy, f.DIFF_DST, primitives)
    flat = memory_descs.dense((filters.nbytes // layouts.FLOAT.itemsize,))
    total = routine.temporary(filters.nbytes)
    further: BufferView = total
    if len(pieces) > 1:  # dweight has room for it until the end, unless blocks are padded
        fits = layouts.is_dense(dweight) and dweight.size * layouts.FLOAT.itemsize >= filters.nbytes
        further = dweight if fits else routine.temporary(filters.nbytes)
    plus = Primitive("binary", _ADD, flat, flat, flat)

    def add(piece: tuple[int, int]) -> None:
        start, stop = piece
        operands = {f.SRC: images.read(start, stop), f.DIFF_DST: slopes.read(start, stop)}
        routine.run(primitives[stop - start], {**operands, f.DIFF_WEIGHTS: further if start else total})
        if start:
            routine.run(plus, {f.SRC: total, f.SRC_1: further, f.DST: total})

    routine.repeat(pieces, add)
    routine.run(p.Reorder(filters, lying_filters(dweight, groups)), {f.SRC: total, f.DST: dweight})
    return routine


def _ends(x: TensorSpec, dy: TensorSpec, dweight: TensorSpec) -> list[int]:
    """The samples at which pieces begin and end, of two lengths at most."""
    samples, nbytes = x.shape[0], (x.size + dy.size) * layouts.FLOAT.itemsize
    each = max(PIECE_BYTES, dweight.size * layouts.FLOAT.itemsize)
    number = min(samples, -(-nbytes // each))
    return [samples * at // number for at in range(number + 1)]


def _primitives(
    lengths: Iterable[int], x: TensorSpec, dy: TensorSpec, filters: MemoryDesc, window: Window
) -> tuple[MemoryDesc, dict[int, Primitive]] | None:
    """(The layout of the gradient, {number of samples: what makes their gradient}); None where that is no gain."""
    found = dict[int, Primitive]()
    for length in sorted(lengths, reverse=True):
        image, slope = (memory_descs.any_layout((length, *tensor.shape[1:])) for tensor in (x, dy))
        operands = image, filters, None, slope, *geometry(window)
        forward = Primitive("convolution_forward", f.FORWARD_TRAINING, DIRECT, *operands)
        made = Primitive("convolution_backward_weights", DIRECT, *operands, forward=forward)
        if "gemm" in made.implementation or "ref" in made.implementation:
            return None
        found[length], filters = made, made.memory_desc(f.DIFF_WEIGHTS)
        if _is_channels_last(made, f.SRC, x, length) and _is_channels_last(made, f.DIFF_DST, dy, length):
            return None
    return filters, found


def _is_channels_last(primitive: Primitive, argument: int, tensor: TensorSpec, length: int) -> bool:
    wanted = memory_descs.dense((length, *tensor.shape[1:]), axes=layouts.CHANNELS_LAST)
    return primitive.memory_desc(argument) == wanted


class _Samples:
    """Adds steps that convert some samples of a tensor to what primitives read. primitives: {number of samples: one}.

    What lies neither channels last nor in C order, or has gaps, is copied as a whole first.
    """

    def __init__(self, routine: Routine, tensor: TensorSpec, argument: int, primitives: dict[int, Primitive]) -> None:
        self._routine, self._shape = routine, tensor.shape[1:]
        self._axes = _C_ORDER if layouts.is_dense(tensor, _C_ORDER) else layouts.CHANNELS_LAST
        lying = memory_descs.dense(tensor.shape, axes=self._axes)
        self._dense = (
            tensor
            if layouts.is_dense(tensor, self._axes)
            else read_as(routine, tensor, memory_descs.desc_of(tensor), lying)
        )
        self._wanted = {length: primitive.memory_desc(argument) for length, primitive in primitives.items()}
        self._copy = routine.temporary(max(desc.nbytes for desc in self._wanted.values()))

    def read(self, start: int, stop: int) -> BufferView:
        """What to give to the primitive that reads these samples."""
        size, length = prod(self._shape), stop - start
        lying, wanted = memory_descs.dense((length, *self._shape), axes=self._axes), self._wanted[length]
        part: BufferView
        if isinstance(self._dense, Temporary):
            part = self._dense.part(start * size, length * size, layouts.FLOAT)
        else:
            part = FlatSlice(cast(TensorSpec, self._dense), start * size, length * size)
        if lying == wanted:
            return part
        self._routine.run(p.Reorder(lying, wanted), {f.SRC: part, f.DST: self._copy})
        return self._copy
