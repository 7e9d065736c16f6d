"""Windows that slide over images: the arguments of convolution and pooling, checked."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.common.checks import is_int
from singa_lite.kernels.interface.window import Pad, Pair, Window
from singa_lite.tensor import Shape

#: One number for all axes, or one for each.
Extents = int | Sequence[int]


def window(
    where: str, kernel: Extents, stride: Extents = 1, pad: Extents = 0, dilation: Extents = 1, axes: int = 2
) -> Window:
    """The window of these arguments, each as `pair` or `pads` has it. ValueError for anything else."""
    extents, steps = pair(where, "kernel", kernel, axes), pair(where, "stride", stride, axes)
    return Window(extents, steps, pads(where, pad, axes), pair(where, "dilation", dilation, axes))


def pair(where: str, what: str, value: Extents, axes: int = 2, least: int = 1) -> Pair:
    """(height, width) of an int or one int an axis, all at least `least`; axes 1: of a sequence, an image of height 1.

    ValueError for anything else.
    """
    given = _entries(value)
    if len(given) == 1 and is_int(value):
        given *= axes
    if len(given) != axes or not all(is_int(extent) and least <= extent < 2**31 for extent in given):
        wanted = "an integer" if axes == 1 else "an integer or a pair (height, width)"
        raise ValueError(f"{where}: wanted {what} to be {wanted}, at least {least}, received {value!r}")
    height, width = as_image([int(extent) for extent in given])
    return height, width


def pads(where: str, value: Extents, axes: int = 2, what: str = "pad") -> Pad:
    """(top, bottom, left, right) of an int, (height, width) or all four; axes 1: of an int or (left, right).

    ValueError for anything else.
    """
    given = _entries(value)
    if len(given) == 1 and is_int(value):
        given *= 2 * axes
    elif len(given) == 2 and axes == 2:
        given = (given[0], given[0], given[1], given[1])
    if len(given) != 2 * axes or not all(is_int(extent) and 0 <= extent < 2**31 for extent in given):
        wanted = "(left, right)" if axes == 1 else "(height, width) or (top, bottom, left, right)"
        raise ValueError(f"{where}: wanted {what} to be an integer or {wanted}, at least 0, received {value!r}")
    top, bottom, left, right = (0,) * (4 - 2 * axes) + tuple(int(extent) for extent in given)
    return top, bottom, left, right


def as_image(extents: Sequence[int]) -> Shape:
    """Extents (height, width) as they are, (length,) with a height of 1."""
    return (1,) * (2 - len(extents)) + tuple(extents)


def _entries(value: Extents) -> tuple[int, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(value)
    return (value,)  # type: ignore[return-value]  # bytes are integers to a type checker; the caller refuses them
