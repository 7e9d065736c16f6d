"""Conversions between layouts, as steps of a routine: only where a primitive wants another one than the tensor has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine


def read_as(routine: Routine, tensor: TensorSpec, lies: p.MemoryDesc, wanted: p.MemoryDesc) -> BufferView:
    """What to give to a primitive that wants to read the tensor as `wanted`: the tensor, or a converted copy."""
    if lies == wanted:
        return tensor
    copy = routine.temporary(wanted.nbytes)
    routine.run(p.Reorder(lies, wanted), {f.SRC: tensor, f.DST: copy})
    return copy


@contextmanager
def written_as(routine: Routine, tensor: TensorSpec, lies: p.MemoryDesc, wanted: p.MemoryDesc) -> Iterator[BufferView]:
    """Gives what the primitive inside is to write as `wanted`: the tensor, or a copy that is converted afterwards."""
    if lies == wanted:
        yield tensor
        return
    copy = routine.temporary(wanted.nbytes)
    yield copy
    routine.run(p.Reorder(wanted, lies), {f.SRC: copy, f.DST: tensor})
