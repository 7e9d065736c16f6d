"""Micro-batches: a batch in pieces, whose gradients are added up and applied once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from singa_lite.autograd import add, concat, divide, maximum, no_grad, reduce_sum, scale
from singa_lite.autograd.ops.arithmetic import product
from singa_lite.common.checks import integer
from singa_lite.common.errors import GraphError
from singa_lite.device import device_of
from singa_lite.graph.graph import Phase
from singa_lite.layer.criterion import Criterion
from singa_lite.layer.freezing import Freeze, freezing
from singa_lite.layer.layer import Node
from singa_lite.tensor import Tensor
from singa_lite.training.loop.measures import SCORES

#: {"input": {input layer: batch}, "target": {output layer: targets}}, on the layers' device.
Fed = Mapping[str, dict[str, Tensor]]


def checked_count(nodes: Sequence[Node], given: int, freeze: Freeze, criteria: Sequence[Criterion] = ()) -> int:
    """In how many pieces a batch is trained on. ValueError unless it is a whole number of at least 1.

    GraphError for more than one where a layer that trains works on a batch's statistics, which a piece has not, or a
    loss or metric does (criteria: all of them).
    """
    count = integer("compile micro_batches", given, 1)
    if count == 1:
        return 1
    whole_batch = next((each for each in criteria if each.of_whole_batch and not each.is_counted), None)
    if whole_batch is not None:
        raise GraphError(
            f"compile micro_batches: wanted losses and metrics that take each sample by itself, received "
            f"{type(whole_batch).__name__}, whose values go by the whole batch; "
            "memory_budget= saves memory at equal results"
        )
    trained = freezing((node.layer for node in nodes), freeze).trained
    found = next((layer for layer in trained if layer.batch_statistics), None)
    if found is not None:
        raise GraphError(
            f"compile micro_batches: wanted layers that treat each sample by itself, received layer {found.path!r}, "
            f"{type(found).__name__}, which works on the statistics of the whole batch; memory_budget= saves memory "
            "at equal results"
        )
    return count


class Share(NamedTuple):
    """The weight of a piece in the means of its batch. samples: its share of the samples; counted: {loss or metric:
    float64 (), its share of the positions that count}, of those that go by these. batches: of a group by whose mean is
    derived.
    """

    samples: float = 1.0
    counted: Mapping[str, Tensor] = MappingProxyType({})
    batches: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether the piece is the batch."""
        return self.samples == 1 and not self.counted

    def of(self, key: str, mean: Tensor) -> Tensor:
        """A piece's mean by what it counts as."""
        if key in self.counted:
            return product(mean, self.counted[key])
        with no_grad():
            return mean if self.samples == 1 else scale(mean, self.samples)

    def factors(self, key: str, scaled: Tensor | None) -> tuple[float, Tensor | None]:
        """What a derivative is multiplied by, a number and a float64 (). scaled: what else it is multiplied by."""
        own = self.counted.get(key)
        if own is None:
            return self.samples / self.batches, scaled
        return 1 / self.batches, own if scaled is None else product(scaled, own)


#: Of a piece that is the batch.
ALL = Share()


class Piece(NamedTuple):
    """Some samples of a batch."""

    fed: Fed
    share: Share


def positions(ids: Tensor, ignored: int) -> Tensor:
    """How many ids count, float64 ()."""
    device = device_of(ids)
    flags: Tensor = device.empty(ids.shape, np.dtype(np.float64))
    device.run("differs", ids, flags, value=ignored)
    return reduce_sum(flags)


def _counted(pieces: Sequence[Fed], counting: Mapping[str, tuple[str, int]]) -> list[dict[str, Tensor]]:
    """{loss or metric: the share of the positions that count} of each piece; 0 where none does."""
    shares: dict[tuple[str, int], list[Tensor]] = {}
    with no_grad():
        for output, ignored in counting.values():
            found = [positions(fed["target"][output], ignored) for fed in pieces]
            total = maximum(reduce(add, found), 1.0)
            shares[output, ignored] = [divide(count, total) for count in found]
    return [{key: shares[at][number] for key, at in counting.items()} for number in range(len(pieces))]


def cut(fed: Fed, count: int, counting: Mapping[str, tuple[str, int]] = MappingProxyType({})) -> list[Piece]:
    """The batch in so many pieces, as equal as can be and the larger ones first; in fewer if it has fewer samples.

    The pieces are views of the batch; one piece is the batch itself. counting: see `Objective.counting`.
    """
    samples = next(iter(fed["input"].values())).shape[0]
    count = min(count, samples)
    if count == 1:
        return [Piece(fed, ALL)]
    borders = [0]
    for number in range(count):
        borders.append(borders[-1] + samples // count + (number < samples % count))
    pieces = [
        {kind: {n: _rows(t, start, stop) for n, t in named.items()} for kind, named in fed.items()}
        for start, stop in pairwise(borders)
    ]
    shares = [(stop - start) / samples for start, stop in pairwise(borders)]
    return [Piece(*of) for of in zip(pieces, map(Share, shares, _counted(pieces, counting)), strict=True)]


def _rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    rows = tensor.view((stop - start, *tensor.shape[1:]), tensor.strides, start * tensor.strides[0])
    rows.layout = tensor.layout
    return rows


class GradientSums:
    """Gradients of a batch's pieces, added up by the parameter's name until the last piece's are there."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def add(self, name: str, gradient: Tensor) -> Tensor:
        """Add a piece's gradient; returns the sum. The first one is kept as it is, unless others may lie over its
        bytes too."""
        device = device_of(gradient)
        with device.scope(Phase.GRADIENT):
            if name in self._sums:
                device.run("add_scaled", gradient, self._sums[name], alpha=1.0)
            elif self._is_alone(gradient):
                self._sums[name] = gradient.detach()
            else:
                self._sums[name] = device.empty(gradient.shape, gradient.dtype, gradient.memory_order())
                device.run("copy", gradient, self._sums[name])
        return self._sums[name]

    def pop(self, name: str) -> Tensor:
        """The sum, and no longer kept here."""
        return self._sums.pop(name)

    def total(self, name: str, gradient: Tensor) -> Tensor:
        """The sum with the last piece's gradient, and no longer kept here."""
        if name not in self._sums:
            return gradient
        self.add(name, gradient)
        return self.pop(name)

    def _is_alone(self, gradient: Tensor) -> bool:
        block = gradient.block
        return block.nbytes == gradient.nbytes and all(block is not kept.block for kept in self._sums.values())


def added(whole: dict[str, Tensor], part: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values so far and a piece's, each by its share of the batch already; scores are put behind each other."""
    with no_grad():
        for name, value in part.items():
            whole[name] = concat([whole[name], value], 0) if name.startswith(SCORES) else add(whole[name], value)
    return whole
