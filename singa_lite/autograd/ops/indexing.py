"""Parts of a tensor by numbers, slices and margins, views but for reversed axes; and zeros around a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from singa_lite.autograd.ops.op import LinearOp, Op, checked_tensor
from singa_lite.autograd.ops.shape import numbers, piece, reshape
from singa_lite.common.checks import is_int
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.tensor import Shape, Tensor

#: (before, behind) along each axis.
Margins = tuple[tuple[int, int], ...]


class Span(NamedTuple):
    """What an index takes along one axis: `extent` elements from `start` on, each `step` behind the one before."""

    start: int
    extent: int
    step: int


class Slice(Op):
    """Elements of x at even steps along each axis, as a view; the derivative is dy at these places and 0 elsewhere."""

    def __init__(self, spans: tuple[Span, ...]) -> None:
        self.spans = spans

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return _sliced_view(x, self.spans)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dy = dys[0]
        if 0 not in dy.shape and all(span.step == 1 for span in self.spans):
            pairs = zip(self.spans, self.shape, strict=True)
            return within_zeros(self, dy, tuple((s.start, extent - s.start - s.extent) for s, extent in pairs))
        dx: Tensor = self.device.empty(self.shape, dy.dtype, dy.memory_order())
        self.device.run("fill", dx, value=0.0)
        self.device.run("copy", dy, _sliced_view(dx, self.spans))
        return dx


class Pad(Op):
    """y = x with zeros around it; the derivative is a view of dy."""

    def __init__(self, margins: Margins) -> None:
        self.margins = margins

    def forward(self, x: Tensor) -> Tensor:
        self.spans = tuple(Span(before, n, 1) for (before, _), n in zip(self.margins, x.shape, strict=True))
        return within_zeros(self, x, self.margins)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return _sliced_view(dys[0], self.spans)


def within_zeros(op: Op, x: Tensor, margins: Margins) -> Tensor:
    """A new tensor with x inside and zeros around it, its axes in memory as those of x. Each byte is written once."""
    shape = tuple(n + before + behind for n, (before, behind) in zip(x.shape, margins, strict=True))
    y: Tensor = op.device.empty(shape, x.dtype, x.memory_order())
    left = y
    for axis, (before, behind) in enumerate(margins):
        extent = left.shape[axis]
        for start, stop in ((0, before), (extent - behind, extent)):
            if start < stop:
                op.device.run("fill", piece(left, axis, start, stop), value=0.0)
        left = piece(left, axis, before, extent - behind)
    op.device.run("copy", x, left)
    return y


def index(x: Tensor, at: Any) -> Tensor:
    """Returns x[at], as NumPy: whole numbers, slices of any step, None for a new axis and `...`, or a tuple of these.

    A view of x, but where a step is below 0. x: any shape and dtype.
    IndexError for a number that names no element, or for more numbers and slices than x has axes; TypeError for
    anything else: `gather` takes elements by a tensor of ids, `where` chooses by a mask.

    >>> x = tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> print(autograd.index(x, (0, slice(1, None))))  # x[0, 1:]
    [2. 3.]
    """
    entries = at if isinstance(at, tuple) else (at,)
    spans, shape = _parsed(checked_tensor("index", x).shape, entries)
    flipped = tuple(axis for axis, span in enumerate(spans) if span.step < 0)
    y = Slice(tuple(map(_ascending, spans)))(x)
    y = LinearOp("flip", axes=flipped)(y) if flipped else y
    return y if y.shape == shape else reshape(y, shape)


def reads_values(at: object) -> bool:
    """Whether NumPy takes this as an index by arrays: lists, arrays, tensors, True and False, alone or in a tuple."""
    entries = at if isinstance(at, tuple) else (at,)
    return any(isinstance(one, list | np.ndarray | Tensor | bool | np.bool_) for one in entries)


def check_basic(x: Tensor, at: object) -> None:
    """GraphError for an index that only reads values, where an operation is wanted: on a tape and while recording."""
    entries = at if isinstance(at, tuple) else (at,)
    if not all(_is_number(one) or one is None or one is ... or isinstance(one, slice) for one in entries):
        raise GraphError(
            f"tensor[...] of {x!r}, on a tape or while recording: wanted whole numbers, slices, None and ..., received "
            f"{_described(at)}; autograd.gather takes elements by ids, autograd.where chooses by a mask; detach() "
            "the tensor to read it by arrays"
        )


def _parsed(shape: Shape, entries: tuple[object, ...]) -> tuple[tuple[Span, ...], Shape]:
    """What is taken along each axis of a tensor of this shape, and the shape of the result."""
    taking = [entry for entry in entries if entry is not None and entry is not ...]
    if len(taking) > len(shape) or sum(entry is ... for entry in entries) > 1:
        raise IndexError(
            f"index: wanted at most {len(shape)} numbers and slices for shape {shape}, and one ..., "
            f"received {entries!r:.100}"
        )
    rest = [slice(None)] * (len(shape) - len(taking))
    at = next((place for place, entry in enumerate(entries) if entry is ...), len(entries))
    spans: list[Span] = []
    result: list[int] = []
    for entry in (*entries[:at], *rest, *entries[at + 1 :]):
        if entry is None:
            result.append(1)
            continue
        spans.append(_span(shape, len(spans), entry))
        if isinstance(entry, slice):
            result.append(spans[-1].extent)
    return tuple(spans), tuple(result)


def _span(shape: Shape, axis: int, entry: object) -> Span:
    extent = shape[axis]
    if _is_number(entry):
        if not -extent <= entry < extent:
            raise IndexError(
                f"index: wanted a number from {-extent} to {extent - 1} for axis {axis} of shape {shape}, "
                f"received {entry}"
            )
        return Span(int(entry) % extent, 1, 1)
    if isinstance(entry, slice):
        parts = entry.start, entry.stop, entry.step
        if all(part is None or _is_number(part) for part in parts) and entry.step != 0:
            taken = range(*entry.indices(extent))
            return Span(taken.start, len(taken), taken.step)
    raise TypeError(
        f"index: wanted whole numbers, slices with a step other than 0, None and ..., received {_described(entry)}"
    )


def _is_number(given: object) -> TypeGuard[int]:
    return is_int(given) and not isinstance(given, np.ndarray)


def _ascending(span: Span) -> Span:
    """The same elements, the first of them in memory first; none at all begin at 0."""
    if span.extent == 0:
        return Span(0, 0, 1)
    if span.step > 0:
        return span
    return Span(span.start + (span.extent - 1) * span.step, span.extent, -span.step)


def _sliced_view(x: Tensor, spans: tuple[Span, ...]) -> Tensor:
    """The view of these elements."""
    start = sum(span.start * stride for span, stride in zip(spans, x.strides, strict=True))
    strides = tuple(span.step * stride for span, stride in zip(spans, x.strides, strict=True))
    shape = tuple(span.extent for span in spans)
    return x.view(shape, strides, 0 if 0 in shape else start)


def _described(given: object) -> str:
    if isinstance(given, np.ndarray | Tensor):
        return f"{type(given).__name__} of shape {given.shape} and dtype {given.dtype}"
    return f"{type(given).__name__} {given!r:.100}"


def pad(x: Tensor, margins: Sequence[Sequence[int]]) -> Tensor:
    """Returns x with zeros around it. margins: (before, behind) for each of x's last axes, as in `numpy.pad` for all.

    >>> print(autograd.pad(tensor.as_tensor([[1.0, 2.0]]), [(0, 1), (2, 0)]))
    [[0. 0. 1. 2.]
     [0. 0. 0. 0.]]
    """
    return Pad(_margins("pad", x, margins))(x)


def crop(x: Tensor, margins: Sequence[Sequence[int]]) -> Tensor:
    """Returns x without its margins, as a view: the reverse of `pad`.

    >>> print(autograd.crop(tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), [(1, 0), (0, 1)]))
    [[4. 5.]]
    """
    checked = _margins("crop", x, margins)
    spans = tuple(Span(before, n - before - behind, 1) for n, (before, behind) in zip(x.shape, checked, strict=True))
    if min((span.extent for span in spans), default=1) < 1:
        raise ShapeError(f"crop: wanted margins that leave something of x {x.shape}, received {checked}")
    return Slice(spans)(x)


def _margins(where: str, x: Tensor, given: object) -> Margins:
    axes = checked_tensor(where, x).ndim
    if not isinstance(given, Sequence | np.ndarray) or np.ndim(given) == 0 or isinstance(given, str):
        raise TypeError(f"{where}: wanted margins, a pair (before, behind) an axis, received {given!r}")
    pairs = [numbers(where, "margins, a pair (before, behind) an axis", each) for each in given]
    if len(pairs) > axes or any(len(each) != 2 or min(each) < 0 for each in pairs):
        raise ValueError(
            f"{where}: wanted margins (before, behind) of at least 0 for the last of {axes} axes, received {given!r}"
        )
    return ((0, 0),) * (axes - len(pairs)) + tuple((before, behind) for before, behind in pairs)
