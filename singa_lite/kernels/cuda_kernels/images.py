"""Structs of `images.cuh`: images of any strides, windows over them, and the order of threads over positions."""

from __future__ import annotations

from typing import cast

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.walk import VECTOR_BYTES, Struct, steps
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec

#: Positions of a tensor are counted with 31 bits.
MOST_POSITIONS = 1 << 31


def _aligned(*fields: object) -> DType:
    return np.dtype(list(fields), align=True)


DIVISOR = _aligned(("magic", "u4"), ("shift", "u4"), ("by", "u4"))
IMAGES = _aligned(("extents", "i4", 4), ("steps", "i8", 4))
WINDOW = _aligned(("kernel", "i4", 2), ("stride", "i4", 2), ("pad", "i4", 2), ("dilation", "i4", 2))
POSITIONS = _aligned(
    ("count", "u4"),
    ("channels_inside", "u4"),
    ("pack", "u4"),
    ("inner", DIVISOR),
    ("middle", DIVISOR),
    ("outer", DIVISOR),
)


def struct(**fields: Struct | int) -> Struct:
    """A struct of these fields in their order, laid out as C does; a number is an `int` there."""
    values = [(name, np.asarray(field, getattr(field, "dtype", np.int32))) for name, field in fields.items()]
    whole = np.zeros((), _aligned(*((name, value.dtype) for name, value in values)))
    for name, value in values:
        whole[name] = value
    return whole


def images(spec: TensorSpec) -> Struct:
    """Extents and strides of (n, c, h, w)."""
    return np.array((spec.shape, _steps(spec)), IMAGES)


def _steps(spec: TensorSpec) -> tuple[int, ...]:
    """Strides in elements; of an axis of one element, which never counts, 0."""
    return tuple(0 if extent == 1 else step for extent, step in zip(spec.shape, steps(spec), strict=True))


def window_of(call: Call) -> Window:
    """Returns the window that a call slides over its images."""
    return cast(Window, call.settings["window"])


def groups_of(call: Call) -> int:
    """Returns into how many groups a call cuts its channels."""
    return int(call.number("groups"))


def windows(window: Window) -> Struct:
    """Of the padding only what is before: extents of y say the rest."""
    return np.array((window.kernel, window.stride, window.pad_before, window.dilation), WINDOW)


def divisor(by: int) -> Struct:
    """The constants for division by a number in [1, 2**31)."""
    shift = (by - 1).bit_length()
    return np.array((((1 << 32) * ((1 << shift) - by)) // by + 1, shift, by), DIVISOR)


def vector(spec: TensorSpec) -> int:
    """Elements of a pack: VECTOR in map.cuh."""
    return VECTOR_BYTES // int(spec.dtype.itemsize)


def in_packs(pack: int, *specs: TensorSpec) -> bool:
    """Whether whole packs of channels lie in a row everywhere."""
    return all(_in_packs(pack, spec) for spec in specs)


def _in_packs(pack: int, spec: TensorSpec) -> bool:
    n, c, h, w = _steps(spec)
    return spec.shape[1] % pack == 0 and c == 1 and n % pack == h % pack == w % pack == 0


def channels_inside(spec: TensorSpec) -> bool:
    """Whether channels lie closer to each other than the columns."""
    _, c, _, w = _steps(spec)
    return spec.shape[1] > 1 and (c < w or w == 0)


def positions(spec: TensorSpec, pack: int = 1, inside: bool | None = None) -> Struct:
    """The order in which threads take the positions of a tensor, `pack` channels at a time.

    inside: whether neighbours take neighbouring channels; by default, if these lie closer than the columns.
    """
    _, c, h, w = spec.shape
    if inside is None:
        inside = pack > 1 or channels_inside(spec)
    extents = (c // pack, w, h) if inside else (w, h, c)
    return np.array((spec.size // pack, inside, pack, *map(divisor, extents)), POSITIONS)
