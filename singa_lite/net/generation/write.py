"""Writing texts: the prompt in pieces, then id by id."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import Array
from singa_lite.common.checks import integer
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.past import Past
from singa_lite.net.generation import checked
from singa_lite.net.generation.checked import Ids, TextNet
from singa_lite.net.generation.draws import Draws
from singa_lite.net.generation.pieces import pieces
from singa_lite.net.generation.text_step import ReadStep, ScoreStep
from singa_lite.tensor import to_numpy
from singa_lite.training.step_cache import StepCache
from singa_lite.training.steps.recorded_steps import Feeds

#: Of one call.
MOST_STEPS = 2**31 - 1


def generate(
    layers: LayerGraph, steps: StepCache, prompt: object, count: int, temperature: float, top_k: int, seed: int
) -> NDArray[np.int64]:
    """See `net.generate`. steps: the net's."""
    net = checked.text_net("generate", layers)
    given, several = checked.prompt(net, prompt)
    n, time = given.shape
    count = integer("generate steps", count, 1, MOST_STEPS)
    drawing = checked.drawing(net, temperature, top_k, seed)
    length = checked.positions("generate", layers, time + count)
    draws = Draws(drawing, n, count)
    past = steps.past(checked.cache_of(layers, n, length), n, length)
    ids = np.concatenate([given, np.zeros((n, count), np.int64)], axis=1)
    writer = _Writer(layers, steps, net, past)
    writer.read(ids[:, : time - 1])
    scores = writer.scorer(ids, time - 1)
    for step in range(count):
        ids[:, time + step] = draws.ids(scores(time + step - 1), step)
    return ids if several else ids[0]


class _Writer:
    """Takes ids in, and gives scores."""

    def __init__(self, layers: LayerGraph, steps: StepCache, net: TextNet, past: Past) -> None:
        self._steps, self._entry, self._again = steps, net.entry, net.reads_again
        self._read, self._score = ReadStep(layers, past), ScoreStep(layers, past, net.gives)

    def read(self, ids: Ids) -> None:
        """What comes before the id whose scores are asked for, from the beginning on."""
        for piece in pieces(ids.shape[1], self._again):
            self._steps.do(self._read, self._feeds(ids, piece))

    def scorer(self, ids: Ids, first: int) -> Callable[[int], Array]:
        """What gives the scores (n, classes) of the id behind a position, from the first one on."""
        again = self._steps.again(self._score, self._feeds(ids, slice(first, first + 1)))
        return lambda at: to_numpy(again(self._feeds(ids, slice(at, at + 1))))

    def _feeds(self, ids: Ids, piece: slice) -> Feeds:
        return {"input": {self._entry: ids[:, piece]}, "past": {"position": np.array([piece.start])}}
