"""Sample shapes, which have no batch axis: what a layer is given as its input's, and what its setup() returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.common.checks import is_int
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Shape

#: Of one output, or of several.
SampleShape = Shape | list[Shape]
#: What `input_sample_shape` takes: a sample shape, or a list of them for several inputs.
InputShape = Sequence[int] | Sequence[Sequence[int]]


def checked_output(name: str, given: object) -> SampleShape:
    """What setup() returned, with extents of Python's. TypeError or ShapeError if it is no sample shape.

    name: of the layer.
    """
    if isinstance(given, list):
        return [_checked(name, shape, given) for shape in given]
    return _checked(name, given, given)


def _checked(name: str, shape: object, given: object) -> Shape:
    """One of the shapes that setup() returned, or the only one. given: all that it returned, for the message."""
    if not isinstance(shape, tuple) or not all(is_int(extent) for extent in shape):
        raise TypeError(
            f"layer {name!r}: wanted setup() to return a sample shape, a tuple such as (5,), or a list of them, "
            f"received {given!r}"
        )
    if any(extent < 1 for extent in shape):
        raise ShapeError(f"layer {name!r}: wanted setup() to return extents of at least 1, received {given!r}")
    return tuple(int(extent) for extent in shape)


def checked_inputs(name: str, given: object) -> list[Shape] | None:
    """`input_sample_shape` as a list of sample shapes. ShapeError if it is none; name: of the layer."""
    if given is None:
        return None
    entries = _entries(given)
    if entries is not None:
        several = len(entries) > 0 and all(_entries(entry) is not None for entry in entries)
        shapes = [_entries(entry) or () for entry in entries] if several else [entries]
        checked = [tuple(int(extent) for extent in shape if is_int(extent) and 1 <= extent < 2**63) for shape in shapes]
        if all(len(made) == len(shape) for made, shape in zip(checked, shapes, strict=True)):
            return checked
    hint = f"; perhaps ({given},)" if is_int(given) else ""
    raise ShapeError(
        f"layer {name!r}: wanted an input_sample_shape of extents of at least 1, such as (5,) or (3, 32, 32), received "
        f"{given!r}{hint}"
    )


def _entries(given: object) -> tuple[object, ...] | None:
    """What a sequence that may be a shape holds; None for what is none."""
    if isinstance(given, np.ndarray):
        return tuple(given.tolist()) if given.ndim == 1 else None
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else None


def is_shorter(shape: Shape, whole: Shape) -> bool:
    """Whether a sample shape is another one's but for fewer steps, at least one."""
    return len(shape) == len(whole) > 0 and shape[1:] == whole[1:] and 0 < shape[0] < whole[0]
