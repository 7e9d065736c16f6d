"""Micro-batches: a batch in pieces, whose gradients are added up and applied once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from singa_lite.autograd import add, concat, no_grad, scale
from singa_lite.common.checks import whole
from singa_lite.criterion import Criterion
from singa_lite.device import device_of
from singa_lite.errors import GraphError
from singa_lite.graph import Phase
from singa_lite.layer import Node
from singa_lite.tensor import Tensor
from singa_lite.training.measures import SCORES
from singa_lite.traversal.freezing import Freeze, freezing

#: {"input": {input layer: batch}, "target": {output layer: targets}}, on the layers' device.
Fed = Mapping[str, dict[str, Tensor]]


def checked_count(nodes: Sequence[Node], given: int, freeze: Freeze, criteria: Sequence[Criterion] = ()) -> int:
    """In how many pieces a batch is trained on. ValueError unless it is a whole number of at least 1.

    GraphError for more than one where a layer that trains works on a batch's statistics, which a piece has not, or a
    loss or metric does (criteria: all of them).
    """
    count = whole("compile micro_batches", given, 1)
    if count == 1:
        return 1
    whole_batch = next((criterion for criterion in criteria if criterion.of_whole_batch), None)
    if whole_batch is not None:
        raise GraphError(
            f"compile micro_batches: wanted losses and metrics that take each sample by itself, received "
            f"{type(whole_batch).__name__}, whose values go by the whole batch, as with ignore_index; "
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


class Piece(NamedTuple):
    """Some samples of a batch. share: how many they are, as a share of the batch."""

    fed: Fed
    share: float


def cut(fed: Fed, count: int) -> list[Piece]:
    """The batch in so many pieces, as equal as can be and the larger ones first; in fewer if it has fewer samples.

    The pieces are views of the batch; one piece is the batch itself.
    """
    samples = next(iter(fed["input"].values())).shape[0]
    count = min(count, samples)
    if count == 1:
        return [Piece(fed, 1.0)]
    borders = [0]
    for number in range(count):
        borders.append(borders[-1] + samples // count + (number < samples % count))
    return [
        Piece({kind: {n: _rows(t, start, stop) for n, t in named.items()} for kind, named in fed.items()}, share)
        for start, stop in pairwise(borders)
        for share in ((stop - start) / samples,)
    ]


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


def added(whole: Tensor | None, part: Tensor, share: float) -> Tensor:
    """The whole so far, and a piece's mean by its share of the batch."""
    with no_grad():
        weighted = scale(part, share)
        return weighted if whole is None else add(whole, weighted)


def added_metrics(whole: Mapping[str, Tensor], part: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """As `added`, for each metric there is; scores are put behind each other."""
    return {
        name: _behind(whole.get(name), value) if name.startswith(SCORES) else added(whole.get(name), value, share)
        for name, value in part.items()
    }


def _behind(whole: Tensor | None, part: Tensor) -> Tensor:
    with no_grad():
        return part if whole is None else concat([whole, part], 0)
