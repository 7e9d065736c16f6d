"""Frozen tensors: bytes of quantised weights that nobody writes, in memory or in a mapped file."""

from __future__ import annotations

import mmap

import numpy as np

from singa_lite.common import pages
from singa_lite.common.array_types import Array
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.tensor.devices import found_device
from singa_lite.tensor.tensor import DeviceSpec, Tensor, TensorDevice

#: What blocks of such bytes are called, in memory and in a mapped file (`Block.frozen`).
FROZEN, MAPPED = "frozen", "frozen, mapped"


def release_pages(array: Array) -> None:
    """Lets the process drop the pages that were read of the mapped file under an array, which come back when read.

    >>> tensor.release_pages(np.zeros(3, "uint8"))  # in memory: nothing is dropped
    """
    mapping = mapping_of(array)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def set_pages_apart(array: Array) -> None:
    """Keeps pages of the mapped file under an array out of memory while only what lies beside them is read.

    >>> tensor.set_pages_apart(np.zeros(3, "uint8"))  # in memory: nothing changes
    """
    if mapping_of(array) is not None:
        pages.set_apart(array.ctypes.data, array.nbytes)


def mapping_of(array: Array) -> mmap.mmap | None:
    """The mapped file that an array, or one that it is a view of, lies in; None for one in memory."""
    base: object = array
    while base is not None and not isinstance(base, mmap.mmap):  # a copy of a numpy.memmap is one too, over no file
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return base


def frozen(array: Array, device: DeviceSpec = None) -> Tensor:
    """Returns a tensor over bytes that nobody writes, such as those of a mapped file. On a CPU nothing is copied.

    array: uint8 (rows, bytes of a row), without gaps. Products with it are `autograd.quantized_linear` and
    `quantized_embedding`. Plans list it as "frozen", or as "frozen, mapped". TypeError and ShapeError for other arrays.

    >>> tensor.frozen(np.zeros((3, 40), "uint8"))
    <Tensor (3, 40) uint8 on cpu>
    """
    holder: TensorDevice = found_device(device)
    made = holder.frozen(np.shape(array))
    freeze("frozen", made, array)
    return made


def freeze(where: str, tensor: Tensor, array: Array) -> None:
    """Lets a frozen tensor lie over these bytes. Graphs that were run before have those that it had then.

    TypeError, ShapeError or GraphError, which begins with `where`, unless they are uint8 of its shape without gaps.
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{where}: wanted an array of bytes, uint8, received {kind}")
    if array.shape != tensor.shape:
        raise ShapeError(f"{where}: wanted bytes of shape {tensor.shape}, received {array.shape}")
    if not array.flags.c_contiguous:
        raise ShapeError(f"{where}: wanted bytes in C order without gaps, received strides {array.strides}")
    if not tensor.block.frozen:
        raise GraphError(f"{where}: wanted a frozen tensor, received {tensor!r}")
    tensor.device.freeze(tensor, array)
