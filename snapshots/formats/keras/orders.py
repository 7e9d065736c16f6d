"""The order of a sample's features in Keras, which has channels last, behind each layer of a net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod

from singa_lite.snapshots.formats.keras.net import LayerInfo
from singa_lite.tensor import Shape

#: Pieces of a sample's features, in our order; a piece (c, h, w) is (h, w, c) in Keras. None: the order is unknown.
Order = tuple[Shape, ...] | None

#: The most pieces of an order, and of all orders joined in a net: in a net that concatenates its own outputs again and
#: again they grow without bound.
_PIECES, _ALL_PIECES = 1024, 1 << 16

#: Layers that keep the order of features.
_KEEPING = {"Activation", "BatchNormalization", "Dropout", "Dummy", "Flatten", "L2Norm", "LayerNormalization"}
_KEEPING |= {"Reshape", "Softmax", "Split"}

#: Layers that take a sample of two axes as (channels, length).
_SEQUENCES = {"AvgPooling1D", "BatchNormalization", "Conv1D", "MaxPooling1D"}


def input_orders(net: Mapping[str, LayerInfo]) -> dict[str, Order]:
    """The order of the features that reach each layer by its first input.

    Keras has channels last, we have them first: samples of three and more axes are images, those of two are sequences
    (channels, length) if the net has a layer over sequences, else matrices that both have alike.
    """
    axes = 2 if any(info.kind in _SEQUENCES and len(info.inputs[0]) == 2 for info in net.values()) else 3
    reaching: dict[str, Order] = {}
    leaving: dict[str, list[Order]] = {}
    pieces = _ALL_PIECES
    for name, info in net.items():
        given = [leaving[source][number] for source, number in info.sources] or [_entering(info.inputs[0], axes)]
        reaching[name] = given[0]
        passed = _passed(info, given, min(pieces, _PIECES))
        if info.kind == "Concat" and len(given) > 1:
            pieces -= len(passed or ())
        leaving[name] = [
            (shape,) if len(shape) >= axes else _shaped(info, given[0], passed, shape) for shape in info.outputs
        ]
    return reaching


def is_plain(order: Order) -> bool:
    """Whether the features have the same order in Keras."""
    return order is not None and all(map(_is_flat, order))


def _is_flat(piece: Shape) -> bool:
    """Whether channels first and channels last are the same: of one axis, one channel or one pixel."""
    return len(piece) == 1 or piece[0] == 1 or prod(piece[1:]) == 1


def _entering(shape: Shape, axes: int) -> Order:
    return (shape,) if len(shape) >= axes else ((prod(shape),),)


def _passed(info: LayerInfo, given: Sequence[Order], most: int) -> Order:
    """The order of what leaves a layer in one axis; () if it is plain. most: pieces that a new one may have."""
    if info.kind in ("Dense", "GlobalAvgPooling2D") or all(map(is_plain, given)):
        return ()
    known = [order for order in given if order is not None]
    if len(known) < len(given):
        return None
    if info.kind in _KEEPING:
        return known[0]
    if info.kind in ("Merge", "Multiply"):
        return known[0] if all(order == known[0] for order in known) else None
    if info.kind == "Concat" and [len(shape) for shape in info.outputs] == [1]:
        return _joined(known, most)
    return None


def _shaped(info: LayerInfo, given: Order, passed: Order, shape: Shape) -> Order:
    """The order of an output of one axis, or of a matrix that may have come from an image."""
    if passed == ():
        return ((prod(shape),),)
    if info.kind in ("Flatten", "Reshape") and len(shape) == 2:
        kept = given == info.inputs[:1] and info.inputs[0][:1] == shape[:1]  # the channels, still first
        return (shape,) if kept else None
    return passed


def _joined(known: Sequence[tuple[Shape, ...]], most: int) -> Order:
    """The pieces of all orders; flat ones beside each other are joined to one."""
    if len(known) == 1:
        return known[0]
    if sum(map(len, known)) > most:
        return None
    pieces: list[Shape] = []
    for piece in chain.from_iterable(known):
        is_more = pieces and _is_flat(pieces[-1]) and _is_flat(piece)
        pieces.append((prod(pieces.pop()) + prod(piece),) if is_more else piece)
    return tuple(pieces)
