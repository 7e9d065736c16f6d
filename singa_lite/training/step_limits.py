"""Byte limits of a net's step: its budget or its device's limit, less what is held beside the step.

Beside a step lie what other steps of the net hold (a longer batch's place, outputs), what lasts from step to step and
this one does not use (the optimizer's state beside an evaluation, a dropout's random state, state of what is frozen
now), and, under a device's limit, whatever else lives in its pool.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from singa_lite.common.sizes import tensor_bytes
from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.device import Device
from singa_lite.graph.graph import Graph
from singa_lite.optimizer import Optimizer
from singa_lite.tensor import Block, Tensor
from singa_lite.training.steps.feed_buffer import FeedBuffer

#: Of the learning rate as a tensor.
RATE_BYTES = 8


def tightest(bounds: Iterable[ByteLimit]) -> ByteLimit | None:
    """The one that leaves least; None where there is none."""
    return min(bounds, key=lambda bound: bound.left, default=None)


def within_budget(
    budget: int,
    graph: Graph,
    fed: Collection[Block],
    feeds: FeedBuffer,
    others: Collection[Graph],
    lasting: Iterable[Tensor],
    coming: int,
) -> ByteLimit:
    """Returns the byte limit of a step by the net's own budget. fed: the step's batch; others: the net's other steps;
    lasting: what the net holds from step to step; coming: `state_to_come`, bytes.
    """
    beside = beside_bytes(graph, fed, feeds, others, lasting)
    return ByteLimit(budget, beside + longer_by(fed, feeds) + coming + _processes(graph, others))


def beside_bytes(
    graph: Graph, fed: Collection[Block], feeds: FeedBuffer, others: Collection[Graph], lasting: Iterable[Tensor]
) -> int:
    """Bytes of what a step does not use: of what others hold but for what they are fed, and of what lasts."""
    own = {id(block) for block in (*graph.blocks_with_bytes(), *fed)}
    held = [block for other in others for block in other.blocks_with_bytes() if not feeds.has(block)]
    held += [tensor.block for tensor in lasting if tensor.block.memory is not None]
    beside = {id(block): block.nbytes for block in held}
    return sum(feeds.rounded(nbytes) for key, nbytes in beside.items() if key not in own)


def _processes(graph: Graph, others: Collection[Graph]) -> int:
    """What the process takes for other steps beyond what is promised, and beyond what the plan of this step counts.

    The plan of a training step counts one shorter batch's beside its own, as `fit` has; 0 for all but large nets.
    """
    further = sorted((other.further_bytes for other in others), reverse=True)
    if not any(further) or graph.trains:
        return sum(further[1:])
    return max(other.process_bytes for other in others) + sum(further[2:])


def within_limit(
    limit: int, graphs: Collection[Graph], fed: Collection[Block], feeds: FeedBuffer, device: Device, coming: int
) -> ByteLimit:
    """Of a device's limit; fed, coming as in `within_budget`. graphs: the step's, and those that make room for it."""
    own = {id(b): b.nbytes for graph in graphs for b in graph.blocks_with_bytes() if not feeds.has(b)}
    regions = [feeds.arena.nbytes, feeds.nbytes, *own.values()]
    others = max(0, device.pool.used - sum(map(feeds.rounded, regions)))
    return ByteLimit(limit, others + longer_by(fed, feeds) + coming, device.name)


def held_bytes(graphs: Iterable[Graph], feeds: FeedBuffer) -> int:
    """Bytes of a net's steps: the arena, the place of the batch, and all else that they hold."""
    blocks = {id(b): b.nbytes for graph in graphs for b in graph.blocks_with_bytes() if not feeds.has(b)}
    return feeds.arena.nbytes + feeds.nbytes + sum(map(feeds.rounded, blocks.values()))


def longer_by(fed: Collection[Block], feeds: FeedBuffer) -> int:
    """What the place of a longer batch has beyond this one."""
    return max(0, feeds.nbytes - sum(feeds.rounded(block.nbytes) for block in fed))


def state_bytes(optimizer: Optimizer, parameters: Iterable[Tensor], rounded: Callable[[int], int] = int) -> int:
    """Bytes of all the state that an optimizer keeps for these parameters, and of sums of gradients. rounded: bytes of
    a tensor up to those of its region; by default as they are.
    """
    values = list(parameters)
    forms = (form for value in values for form in optimizer.state_forms(value).values())
    return sum(rounded(tensor_bytes(shape, dtype)) for shape, dtype in forms) + _sum_bytes(optimizer, values, rounded)


def _sum_bytes(optimizer: Optimizer, parameters: Iterable[Tensor], rounded: Callable[[int], int]) -> int:
    """Bytes of the sums of gradients of several batches, where these want tensors of their own."""
    return sum(rounded(v.nbytes) for v in parameters) if optimizer.gathering.has_sums(optimizer) else 0


def state_to_come(optimizer: Optimizer | None, trained: Collection[Tensor], rounded: Callable[[int], int]) -> int:
    """Bytes of the state that training these parameters will make and that is not there yet.

    rounded: as for `state_bytes`.
    """
    if optimizer is None:
        return 0
    waiting = [value for value in trained if value.name not in optimizer.state]
    summed = [value for value in trained if value.name not in optimizer.gathering.sums]
    rate = sum(rounded(RATE_BYTES) for member in optimizer.members if not member.has_rate)
    of_waiting = state_bytes(optimizer, waiting, rounded) - _sum_bytes(optimizer, waiting, rounded)
    return of_waiting + _sum_bytes(optimizer, summed, rounded) + rate
