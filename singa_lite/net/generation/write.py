"""Writing texts, and the memory plan of it: the prompt in pieces, then id by id.

Prompts are read in few forms, to record few, and in few steps, as each goes over all weights. A net that keeps keys and
values alone may read positions twice: then the last piece begins where it ends with the prompt, so that all are of one
size. One with states reads each once, in pieces that become smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.checks import integer
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.graph import Graph
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.past import Past
from singa_lite.net.generation import checked
from singa_lite.net.generation.checked import Ids, TextNet
from singa_lite.net.generation.draws import Draws
from singa_lite.net.generation.text_step import ReadStep, ScoreStep, TextStep
from singa_lite.runtime.pool_numbers import overhead
from singa_lite.tensor import to_numpy
from singa_lite.training.step_cache import OWN, StepCache
from singa_lite.training.steps.fed_tensors import Forms
from singa_lite.training.steps.recorded_steps import Feeds

#: Sizes, the largest first, of a net that may read positions again, and of one that may not.
AGAIN, ONCE = (64, 32, 16, 8, 4, 2, 1), (64, 16, 4, 1)


def sizes(count: int, again: bool) -> list[int]:
    """Those that prompts of up to so many positions are read in."""
    return [size for size in (AGAIN if again else ONCE) if size <= count]


def pieces(count: int, again: bool) -> Iterator[slice]:
    """So many positions, from the first one on."""
    if again and count:
        size = sizes(count, again)[0]
        starts = [*range(0, count - size, size), count - size]
        yield from (slice(start, start + size) for start in starts)
        return
    at = 0
    for size in sizes(count, again):
        while count - at >= size:
            yield slice(at, at + size)
            at += size


#: In the place of an id behind a text's end, and before its first new one.
NONE = -1
#: Of one call.
MOST_STEPS = 2**31 - 1


class Options(NamedTuple):
    """How texts go on: the arguments of `net.generate` behind the prompt."""

    steps: object
    temperature: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: object = ()
    lengths: object = None
    stream: Callable[[Ids], object] | None = None


def generate(layers: LayerGraph, steps: StepCache, prompt: object, options: Options) -> Ids:
    """See `net.generate`. steps: the net's.

    Texts of unequal lengths go on together from the end of the shortest: at each position, those whose prompt is longer
    take its next id, and the others one that is drawn.
    """
    net = checked.text_net("generate", layers)
    given, lengths, several = checked.prompt(net, prompt, options.lengths)
    count = integer("generate steps", options.steps, 1, MOST_STEPS)  # type: ignore[arg-type]  # it checks the type
    drawing = checked.drawing(net, options.temperature, options.top_k, options.seed)
    stop = checked.stop_ids(net, options.stop)
    checked.check_stream("generate stream", options.stream)
    n, time = given.shape
    length = checked.positions("generate", layers, time + count)
    past = steps.past(checked.cache_of(layers, n, length), n, length)
    ids, ends = np.concatenate([given, np.zeros((n, count), np.int64)], axis=1), lengths + count
    writer, draws, first = _Writer(layers, steps, net, past), Draws(drawing, n, count), int(lengths.min())
    writer.read(ids[:, : first - 1])
    scores, at = writer.scorer(ids, first - 1), first
    while at < ends.max():
        going = (lengths <= at) & (at < ends)
        drawn = draws.ids(scores(at - 1), np.clip(at - lengths, 0, count - 1))
        ids[going, at] = drawn[going]
        ends[going & np.isin(drawn, stop)] = at + 1
        if options.stream is not None:
            steps.lent(options.stream, np.where(going, ids[:, at], NONE))
        at += 1
    texts = np.where(np.arange(at) < ends[:, None], ids[:, :at], NONE)
    return texts if several else texts[0]


class _Writer:
    """Takes ids in, and gives scores."""

    def __init__(self, layers: LayerGraph, steps: StepCache, net: TextNet, past: Past) -> None:
        self._steps, self._net, self._again = steps, net, net.reads_again
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
        starts = {name: np.zeros_like(ids[:, piece]) for name in self._net.starts}
        return {"input": {self._net.entry: ids[:, piece], **starts}, "past": {"position": np.array([piece.start])}}


_INT64: DType = np.dtype(np.int64)


def generation_plan(layers: LayerGraph, steps: StepCache, batch: int, length: int) -> MemoryPlan:
    """See `net.plan_generation`. steps: the net's."""
    where = "plan_generation"
    net = checked.text_net(where, layers)
    most = checked.positions(where, layers, length)
    past = Past(layers.device, layers.dtype, checked.cache_of(layers, batch, most), batch, most, planned=True)
    plan = steps.dry_run(ScoreStep(layers, past, net.gives), _forms(net, batch, 1), _plan, OWN)
    beside = {"the prompt": 0}
    for size in sizes(length - 1, net.reads_again):
        reading: TextStep[None] = ReadStep(layers, past)
        found = steps.dry_run(reading, _forms(net, batch, size), _plan, OWN)
        longer = batch * (size - 1) * _INT64.itemsize  # of the ids, whose place is as large as the longest piece
        beside["the prompt"] = max(beside["the prompt"], found.arena_bytes + longer)
    held, arena = plan.held_blocks, max(plan.arena_bytes, *beside.values())
    return plan.within_fit(beside, overhead(held, arena, layers.device.runtime.alignment))


def _plan(graph: Graph) -> MemoryPlan:
    return graph.memory_plan


def _forms(net: TextNet, batch: int, size: int) -> Forms:
    ids = dict.fromkeys((net.entry, *net.starts), ((batch, size), _INT64))
    return {"input": ids, "past": {"position": ((1,), _INT64)}}
