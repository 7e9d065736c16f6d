"""The order of a sample's features in Keras, which has channels last, behind each layer of a net."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import prod

from singa_lite.snapshots.formats.keras.net import LayerInfo, chained
from singa_lite.tensor import Shape

#: Pieces of a sample's features, in our order; a piece (c, h, w) is (h, w, c) in Keras. None: the order is unknown.
Order = tuple[Shape, ...] | None

#: The most pieces of an order, and of all orders joined in a net: in a net that concatenates its own outputs again and
#: again they grow without bound.
_PIECES, _ALL_PIECES = 1024, 1 << 16

#: Layers that keep the order of features.
_KEEPING = {"Activation", "BatchNormalization", "Dropout", "Dummy", "Flatten", "L2Norm", "LayerNormalization"}
_KEEPING |= {"RMSNormalization", "Reshape", "Softmax", "Split", "GaussianNoise", "GroupNormalization", "Normalization"}
_KEEPING |= {"PReLU", "Rescaling", "SpatialDropout1D", "SpatialDropout2D"}

#: Layers whose output has an order of its own, whatever reaches them.
_RENEWING = {"Dense", *(f"Global{kind}Pooling{axes}D" for kind in ("Avg", "Max") for axes in (1, 2))}

#: Layers over samples (time, features), which both have alike.
_FEATURES_LAST = {"Bidirectional", "GRU", "LSTM", "MultiHeadAttention", "SimpleRNN", "TimeDistributed"}

#: Layers that take a sample of two axes as (channels, length).
_SEQUENCES = {"AvgPooling1D", "BatchNormalization", "Conv1D", "Conv1DTranspose", "GlobalAvgPooling1D"}
_SEQUENCES |= {"GlobalMaxPooling1D", "MaxPooling1D", "SpatialDropout1D"}


def input_orders(net: Mapping[str, LayerInfo]) -> dict[str, Order]:
    """The order of the features that reach each layer by its first input.

    Keras has channels last, we have them first: samples of three and more axes are images, those of two are sequences
    (channels, length) if the net has a layer over sequences, else matrices that both have alike.
    """
    return _walked(net, (), channel_axes(net))[0]


def channel_axes(net: Mapping[str, LayerInfo]) -> int:
    """From how many axes on a sample has channels."""
    return 2 if _has_sequences(net.values()) else 3


def orders_within(info: LayerInfo, given: Order, axes: int) -> dict[str, Order]:
    """As `input_orders`, of the layers of a Sequential. given: the order that reaches it; axes: `channel_axes`."""
    return _walked(chained(info, info.inputs), [given], axes)[0]


def steps_of(info: LayerInfo) -> dict[str, LayerInfo]:
    """What a TimeDistributed holds, as a net whose samples are its steps."""
    return chained(info, (info.inputs[0][1:],))


def _has_sequences(layers: Iterable[LayerInfo]) -> bool:
    """Whether one of them, or one within a Sequential among them, is over sequences."""
    for info in layers:
        if info.kind in _SEQUENCES and len(info.inputs[0]) == 2:
            return True
        if info.kind == "Sequential" and _has_sequences(chained(info, info.inputs).values()):
            return True
    return False


def _walked(
    net: Mapping[str, LayerInfo], first: Sequence[Order], axes: int
) -> tuple[dict[str, Order], dict[str, list[Order]]]:
    """The orders that reach each layer, and that leave it by each of its outputs. first: those that reach the first
    layer of a Sequential, () for a net; axes: `channel_axes`.
    """
    reaching: dict[str, Order] = {}
    leaving: dict[str, list[Order]] = {}
    pieces = _ALL_PIECES
    for name, info in net.items():
        given = [leaving[source][number] for source, number in info.sources]
        given = given or list(first) or [_entering(info.inputs[0], axes)]
        if info.kind in _FEATURES_LAST and len(info.inputs[0]) < 3 and not _same_order(info, given, axes):
            given = [None for _ in given]
        reaching[name] = given[0]
        passed = _passed(info, given, min(pieces, _PIECES))
        if info.kind == "Concat" and len(given) > 1:
            pieces -= len(passed or ())
        leaving[name] = _leaving(info, given, passed, axes)
    return reaching, leaving


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
    if info.kind in _RENEWING or all(map(is_plain, given)):
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


def _same_order(info: LayerInfo, given: Sequence[Order], axes: int) -> bool:
    """Whether samples (time, features) lie alike in Keras."""
    return len(info.inputs[0]) < axes and all(map(is_plain, given))


def _leaving(info: LayerInfo, given: Sequence[Order], passed: Order, axes: int) -> list[Order]:
    """The order of each output."""
    if info.kind == "Sequential" and info.held:
        return list(_walked(chained(info, info.inputs), given[:1], axes)[1].values())[-1]
    if info.kind == "TimeDistributed" and info.held:
        steps = steps_of(info)
        plain = all(map(is_plain, list(_walked(steps, (), channel_axes(steps))[1].values())[-1]))
    elif info.kind not in (*_FEATURES_LAST, "Embedding"):
        return [(shape,) if len(shape) >= axes else _shaped(info, given[0], passed, shape) for shape in info.outputs]
    else:
        plain = True
    return [((prod(shape),),) if plain and len(shape) < axes else None for shape in info.outputs]


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
