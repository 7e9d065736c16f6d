"""The memory plan of texts that a net is to write, before there is any."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.graph import Graph
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.past import Past
from singa_lite.net.generation import checked
from singa_lite.net.generation.pieces import sizes
from singa_lite.net.generation.text_step import ReadStep, ScoreStep, TextStep
from singa_lite.runtime.pool_numbers import overhead
from singa_lite.training.step_cache import OWN, StepCache
from singa_lite.training.steps.fed_tensors import Forms

_INT64: DType = np.dtype(np.int64)


def generation_plan(layers: LayerGraph, steps: StepCache, batch: int, length: int) -> MemoryPlan:
    """See `net.plan_generation`. steps: the net's."""
    where = "plan_generation"
    net = checked.text_net(where, layers)
    most = checked.positions(where, layers, length)
    past = Past(layers.device, layers.dtype, checked.cache_of(layers, batch, most), batch, most, planned=True)
    plan = steps.look(ScoreStep(layers, past, net.gives), _forms(net.entry, batch, 1), _plan, OWN)
    beside = {"the prompt": 0}
    for size in sizes(length - 1, net.reads_again):
        reading: TextStep[None] = ReadStep(layers, past)
        found = steps.look(reading, _forms(net.entry, batch, size), _plan, OWN)
        longer = batch * (size - 1) * _INT64.itemsize  # of the ids, whose place is as large as the longest piece
        beside["the prompt"] = max(beside["the prompt"], found.arena_bytes + longer)
    held, arena = plan.held_blocks, max(plan.arena_bytes, *beside.values())
    return plan.within_fit(beside, overhead(held, arena, layers.device.runtime.alignment))


def _plan(graph: Graph) -> MemoryPlan:
    return graph.memory_plan


def _forms(entry: str, batch: int, size: int) -> Forms:
    return {"input": {entry: ((batch, size), _INT64)}, "past": {"position": ((1,), _INT64)}}
