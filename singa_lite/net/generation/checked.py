"""Checks of a net and of arguments for generating texts, before anything is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.arrays import numbers
from singa_lite.common.checks import at_least_zero, goes_through, integer
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.keywords import accepts_arguments
from singa_lite.data.loading import batch
from singa_lite.layer.layer import Layer
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.past import Kept
from singa_lite.tensor import as_tensor, to_numpy

#: int64 (n, time).
Ids = NDArray[np.int64]


class Drawing(NamedTuple):
    """How the next id is chosen by the scores of all: see `net.generate`."""

    temperature: float
    top_k: int
    seed: int


class TextNet(NamedTuple):
    """A net that writes texts. entry: its input layer; ids: how many it takes; classes: how many it gives; gives: what
    its output is of, "softmax" or "" for scores; reads_again: whether positions may be read twice; starts: input layers
    that are fed zeros, as each text is alone in its row.
    """

    entry: str
    ids: int
    classes: int
    gives: str
    reads_again: bool
    starts: tuple[str, ...] = ()


def text_net(where: str, layers: LayerGraph) -> TextNet:
    """Checks that a net generates text, else raises GraphError: one input of ids (time,) and one output of scores. The
    output has as many scores at most, and each layer can go on from position to position.
    """
    outputs, starts = layers.output_names(), tuple(n for n in layers.input_shapes() if layers.layers[n].begins_texts)
    counts = {name: count for name, count in layers.input_ids().items() if name not in starts}
    shapes = {name: shape for name, shape in layers.input_shapes().items() if name not in starts}
    if len(shapes) != 1 or len(counts) != 1 or len(next(iter(shapes.values()))) != 1:
        raise GraphError(f"{where}: wanted a net of one input of ids, samples (time,), received inputs {shapes}")
    ((entry, ids),) = counts.items()
    found = [shape for name in outputs for shape in layers.output_shapes(name)]
    if len(found) != 1 or len(found[0]) not in (1, 2) or found[0][-1] > ids:
        raise GraphError(
            f"{where}: wanted a net of one output, (time, classes) or (classes,), of at most as many classes as the "
            f"input has ids, {ids}, received outputs {dict(zip(outputs, found, strict=False))}"
        )
    refused = ((layer, layer.refuses_past()) for layer in going_on(layers))
    refusals = [f"{layer.path!r} ({type(layer).__name__}): {why}" for layer, why in refused if why]
    gives = layers.layers[outputs[0]].gives
    if gives == "sigmoid":
        refusals.append(f"{outputs[0]!r}: it gives probabilities that are not of one class out of several")
    if refusals:
        raise GraphError(
            f"{where}: wanted layers that make one position after the other, received {'; '.join(refusals)}"
        )
    again = all(layer.reads_again or not layer.kept_of_past(1, 1) for layer in going_on(layers))
    return TextNet(entry, ids, found[0][-1], gives, again, starts)


def going_on(layers: LayerGraph) -> Iterator[Layer]:
    """The layers that go on from position to position, at any depth, and those that refuse to, without those within."""
    left = [node.layer for node in reversed(layers.ordered())]
    while left:
        layer = left.pop()
        yield layer
        if not layer.refuses_past():
            left += reversed([*layer.continued_layers()])


class Prompt(NamedTuple):
    """Texts to go on from. ids: (n, time), 0 behind one's end; lengths: (n,); several: whether ids were (n, time)."""

    ids: Ids
    lengths: Ids
    several: bool


def prompt(net: TextNet, given: object, lengths: object) -> Prompt:
    """The prompt, (time,) or (n, time). lengths: of each text of it, all of its ids where None.

    ShapeError, TypeError or ValueError for what is none.
    """
    where = "generate prompt"
    array = batch.as_array(where, given)
    if len(array.shape) not in (1, 2) or 0 in array.shape:
        raise ShapeError(f"{where}: wanted ids (time,) or (n, time), at least one, received shape {tuple(array.shape)}")
    values = to_numpy(as_tensor(array))
    if values.dtype.kind not in "iu":
        raise TypeError(f"{where}: wanted ids, integers from 0 to {net.ids - 1}, received {values.dtype}")
    ids = values.reshape(-1, values.shape[-1]).astype(np.int64)
    found = _lengths(lengths, *ids.shape)
    ids = np.where(np.arange(ids.shape[1]) < found[:, None], ids, 0)[:, : found.max()]
    batch.check_ids(where, ids, net.ids)
    return Prompt(ids, found, values.ndim == 2)


def _lengths(given: object, n: int, time: int) -> Ids:
    if given is None:
        return np.full(n, time, np.int64)
    where = "generate lengths"
    found = numbers(where, given)
    if found.shape != (n,):
        raise ShapeError(f"{where}: wanted the length of each of {n} texts, ({n},), received shape {found.shape}")
    if found.dtype.kind not in "iu":
        raise TypeError(f"{where}: wanted whole numbers, received {found.dtype}")
    if found.min() < 1 or found.max() > time:
        raise ValueError(f"{where}: wanted numbers from 1 to {time}, received {found.tolist()!r:.100}")
    return found.astype(np.int64)


def stop_ids(net: TextNet, given: object) -> Ids:
    """The ids that end a text, one or several, perhaps none, (m,). TypeError or ValueError for others."""
    every: list[Any] = list(given) if goes_through(given) else [given]
    return np.array([integer("generate stop", each, 0, net.ids - 1) for each in every], np.int64)


def positions(where: str, layers: LayerGraph, length: int) -> int:
    """Of a text of `length` ids, those that are looked at: all but the last. ShapeError for more than layers know."""
    for layer in going_on(layers):
        most = layer.most_positions()
        if most is not None and length - 1 > most:
            raise ShapeError(
                f"{where}: wanted a text of at most {most + 1} ids in all, as layer {layer.path!r} has {most} "
                f"positions, received {length}"
            )
    return length - 1


def most_steps(layers: LayerGraph, time: int, wanted: int) -> int:
    """How many ids may stand behind `time` others, as far as layers have positions; at most `wanted`, at least 1."""
    most = [layer.most_positions() for layer in going_on(layers)]
    return max(1, min([wanted, *(each + 1 - time for each in most if each is not None)]))


def cache_of(layers: LayerGraph, n: int, length: int) -> Kept:
    """What the layers keep of n texts of so many positions."""
    return {layer.path: layer.kept_of_past(n, length) for layer in going_on(layers)}


def drawing(net: TextNet, temperature: float, top_k: int, seed: int) -> Drawing:
    """ValueError for a negative temperature, and for a top_k that is no number of classes, 0 for all of them."""
    return Drawing(
        at_least_zero("generate temperature", temperature),
        integer("generate top_k", top_k, 0, net.classes),
        integer("generate seed", seed, 0, 2**64 - 1),
    )


def check_stream(where: str, given: object) -> None:
    """TypeError for what cannot be called with one argument."""
    if given is not None and not accepts_arguments(given, 1):
        raise TypeError(f"{where}: wanted a function of what is new, received {given!r:.100}")
