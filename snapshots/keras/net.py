"""A net as Keras sees it: its layers as the tree tells them, their order, and where a sample's features lie."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from singa_lite.errors import SnapshotError
from singa_lite.tensor import Shape

#: Pieces of a sample's features in the order of ours; a piece (c, h, w) lies as (h, w, c) in Keras. None: unknown.
Order = tuple[Shape, ...] | None

#: Pieces that an order may have: a net that concatenates its own outputs again and again would have endless ones.
_PIECES = 1024

#: Layers that work on each feature by itself, or on all of them alike.
_KEEPING = {"Activation", "BatchNormalization", "Dropout", "Dummy", "Flatten", "L2Norm", "LayerNormalization"}
_KEEPING |= {"Reshape", "Softmax", "Split"}

#: Layers that take a sample of two axes as (channels, length).
_SEQUENCES = {"AvgPooling1D", "BatchNormalization", "Conv1D", "MaxPooling1D"}


class Note(NamedTuple):
    """What the tree's attributes `layers` and `wiring` tell of a layer.

    inputs, outputs: sample shapes; sources: (layer, number of its output); shares: the layer whose parameters it uses,
    or "".
    """

    name: str
    kind: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    sources: tuple[tuple[str, int], ...]
    shares: str


def notes(where: str, attributes: Mapping[str, Any]) -> dict[str, Note]:
    """The layers by name, each after its sources. SnapshotError where an attribute is missing or is something else."""
    found: dict[str, Note] = {}
    try:
        layers, wiring = json.loads(attributes["layers"]), json.loads(attributes["wiring"])
        for (name, kind), more in zip(layers, wiring, strict=True):
            note = _note(name, kind, more)
            if not note.inputs or any(not 0 <= number < len(found[x].outputs) for x, number in note.sources):
                raise ValueError(f"inputs of {name!r}: {more}")
            found[name] = note
        if any(note.shares not in found for note in found.values() if note.shares):
            raise ValueError("parameters shared with a layer that is not in the net")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise SnapshotError(
            f"{where}: Keras's layout wants the attributes 'layers' and 'wiring' of a net saved here: {error!r}"
        ) from error
    return found


def _note(name: Any, kind: Any, more: Mapping[str, Any]) -> Note:
    inputs, outputs = (tuple(map(_shape, more[key])) for key in ("inputs", "outputs"))
    sources = tuple((str(source), int(number)) for source, number in more["sources"])
    return Note(str(name), str(kind), inputs, outputs, sources, str(more.get("shares", "")))


def _shape(given: Any) -> Shape:
    if not isinstance(given, list) or not all(type(extent) is int and extent > 0 for extent in given):
        raise ValueError(f"a shape {given!r}")
    return tuple(given)


def is_chain(net: Mapping[str, Note]) -> bool:
    """Whether it is a Sequential in Keras: one layer behind the other, none used twice, no input named for itself."""
    before: tuple[tuple[str, int], ...] = ()
    if next(iter(net.values())).kind == "Dummy":
        return False
    for note in net.values():
        if note.sources != before or note.shares:
            return False
        before = ((note.name, 0),)
    return True


def keras_order(net: Mapping[str, Note]) -> list[str]:
    """The layers in the order of `Functional.layers`: by depth, then as first met from the outputs.

    A layer that shares its parameters is, in Keras, the other one called again, and comes once, under that name. Split
    does not count: Keras has none, it would name the same tensor again.
    """
    sources = {name: [_behind_splits(net, source) for source, _ in note.sources] for name, note in net.items()}
    met, finished = _walked(net, sources)
    depth: dict[str, int] = defaultdict(int)
    owners: dict[str, int] = {}
    for name in reversed(finished):
        owner = net[name].shares or name
        depth[name] = owners[owner] = max(depth[name], owners.get(owner, 0))
        for source in sources[name]:
            depth[source] = max(depth[source], depth[name] + 1)
    return sorted(owners, key=lambda owner: (-owners[owner], met[owner]))


def _behind_splits(net: Mapping[str, Note], name: str) -> str:
    while net[name].kind == "Split" and net[name].sources:
        name = net[name].sources[0][0]
    return name


def _walked(net: Mapping[str, Note], sources: Mapping[str, Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    """({layer: when it was met}, layers as they were left), depth first from the outputs; sharing ones met as one."""
    used = {source for note in net.values() for source, _ in note.sources}
    outputs = [_behind_splits(net, name) for name in net if name not in used]
    met: dict[str, int] = {}
    finished: dict[str, None] = {}
    for output in outputs:
        met.setdefault(net[output].shares or output, len(met))
        stack = [] if output in finished else [(output, iter(sources[output]))]
        while stack:  # no recursion: nets may be thousands deep
            following = next((source for source in stack[-1][1] if source not in finished), None)
            if following is None:
                finished[stack.pop()[0]] = None
            else:
                met.setdefault(net[following].shares or following, len(met))
                stack.append((following, iter(sources[following])))
    return met, list(finished)


def input_orders(net: Mapping[str, Note]) -> dict[str, Order]:
    """How the features that reach each layer lie, by its first input.

    Keras has channels last, we have them first: samples of three and more axes are images, those of two are sequences
    (channels, length) if the net has a layer over sequences, else matrices that both have alike.
    """
    axes = 2 if any(note.kind in _SEQUENCES and len(note.inputs[0]) == 2 for note in net.values()) else 3
    reaching: dict[str, Order] = {}
    leaving: dict[tuple[str, int], Order] = {}
    for note in net.values():
        given = [leaving[source] for source in note.sources]
        given = given or [(note.inputs[0],) if len(note.inputs[0]) >= axes else _plain(note.inputs[0])]
        reaching[note.name] = given[0]
        for number, shape in enumerate(note.outputs):
            leaving[note.name, number] = (shape,) if len(shape) >= axes else _passed(note, given, shape)
    return reaching


def is_plain(order: Order) -> bool:
    """Whether the features lie in Keras as in ours."""
    return order is not None and all(map(_is_flat, order))


def _is_flat(piece: Shape) -> bool:
    """Of one axis, one channel or one pixel."""
    return len(piece) == 1 or piece[0] == 1 or prod(piece[1:]) == 1


def _plain(shape: Shape) -> Order:
    return ((prod(shape),),)


def _passed(note: Note, given: list[Order], shape: Shape) -> Order:
    """The order of an output of one axis, or of a matrix that may have come from an image."""
    if note.kind in ("Dense", "GlobalAvgPooling2D") or all(map(is_plain, given)):
        return _plain(shape)
    known = [order for order in given if order is not None]
    if len(known) < len(given):
        return None
    if note.kind in ("Flatten", "Reshape") and len(shape) == 2:
        kept = known[0] == note.inputs[:1] and note.inputs[0][:1] == shape[:1]  # the channels, still first
        return (shape,) if kept else None
    if note.kind in _KEEPING:
        return known[0]
    if note.kind in ("Merge", "Multiply"):
        return known[0] if all(order == known[0] for order in known) else None
    if note.kind == "Concat" and len(shape) == 1 and sum(map(len, known)) <= _PIECES:
        return tuple(chain.from_iterable(known))
    return None
