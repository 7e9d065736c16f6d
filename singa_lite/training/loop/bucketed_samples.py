"""Sequences in buckets, as `fit` and `evaluate` go through them."""

from __future__ import annotations

from itertools import islice

from singa_lite.common.array_types import Array
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.data import Bucketed
from singa_lite.data.bucketed import Group
from singa_lite.data.loading.batch import check_ids, check_input
from singa_lite.data.loading.data_set import Batch, Batches, DataSet, Share, emptied
from singa_lite.data.loading.workers import prefetched
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.tensor import Shape
from singa_lite.training.objective import Objective


class BucketedSamples(DataSet):
    """A `DataSet` of sequences in buckets. batch_size: of the shortest sequences."""

    def __init__(self, data: Bucketed) -> None:
        self.count = data.count
        self.batch_size = data.sizes[0]
        self.buckets = tuple(zip(data.boundaries, data.sizes, strict=True))
        self.forms = len(data.forms)
        self._data = data

    def iterate(
        self, order: Array | None = None, start: int = 0, prefetch: int = 0, epoch: int = 0, key: int = 0
    ) -> Batches:
        """See `DataSet`."""
        groups = islice(self._data.groups(order), start, None)
        return prefetched((self._rank_batch(number, group) for number, group in enumerate(groups, start)), prefetch)

    def _rank_batch(self, number: int, group: Group) -> Batch | None:
        numbers = group.numbers[self.share.slice_of(number, len(group.numbers))]
        return self._data.batch(Group(group.length, numbers)) if len(numbers) else None

    def divide(self, share: Share) -> None:
        """See `DataSet`."""
        super().divide(share)
        self.forms = len({(share.samples(share.rank, size), length) for size, length in self._data.forms})

    def without_samples(self) -> Batch:
        """See `DataSet`."""
        return emptied(self._data.batch(next(self._data.groups(None))))


def checked(where: str, layers: LayerGraph, objective: Objective, data: Bucketed) -> BucketedSamples:
    """The data of `fit` or `evaluate`, all sequences and targets looked at.

    GraphError for a net of several inputs or outputs, or of one that takes no ids; ShapeError where it takes no batches
    of these lengths; TypeError and ValueError as for arrays.
    """
    name = _only_input(where, layers)
    here, ids = f"{where}: input of layer {name!r}", layers.input_ids()[name]
    _check_lengths(here, layers, name, data)
    for number, sequence in enumerate(data.x):
        check_ids(here, sequence[None], ids, number)
    for length, size in zip(data.boundaries, data.sizes, strict=True):
        check_input(here, _Form((size, length), data.dtype), layers.fitting(name, (size, length)), layers.dtype, ids)
    _check_targets(where, layers, objective, data, name)
    return BucketedSamples(data)


class _Form:
    """A batch that is not there."""

    def __init__(self, shape: Shape, dtype: object) -> None:
        self.shape, self.dtype = shape, dtype


def _only_input(where: str, layers: LayerGraph) -> str:
    """The input layer's name."""
    inputs, outputs, ids = list(layers.input_shapes()), layers.output_names(), layers.input_ids()
    if len(inputs) != 1 or len(outputs) != 1 or inputs[0] not in ids or len(layers.input_shapes()[inputs[0]]) != 1:
        raise GraphError(
            f"{where}: wanted a net with one output and one input of ids (time,) for data in buckets, received inputs "
            f"{layers.input_shapes()}, of ids {sorted(ids)}, and outputs {outputs}"
        )
    return inputs[0]


def _check_lengths(where: str, layers: LayerGraph, name: str, data: Bucketed) -> None:
    """ShapeError unless the net takes sequences of all these lengths."""
    (time,), lengths = layers.input_shapes()[name], data.boundaries
    if lengths[-1] > time:
        raise ShapeError(
            f"{where}: wanted boundaries of at most {time} steps, its input_sample_shape, received {lengths}"
        )
    refusing = layers.refusing(name)
    if lengths[0] < time and refusing is not None:
        raise ShapeError(
            f"{where}: wanted boundaries ({time},) alone, as layer {refusing!r} takes that many steps and no fewer, "
            f"received {lengths}"
        )


def _check_targets(where: str, layers: LayerGraph, objective: Objective, data: Bucketed, name: str) -> None:
    """Raise unless the loss and the metric take all targets; the message names the sequence."""
    output = layers.output_names()[0]
    for number in range(data.count) if data.tokens else [0]:
        x, y = data.x[number][None], data.y[number][None] if data.tokens else data.y
        shape = len(y), *layers.output_shape(output, {name: x.shape})
        try:
            objective.targets(y, {output: shape}, layers.dtype)
        except (TypeError, ValueError) as error:
            place = f"target {number}: " if data.tokens else ""
            raise type(error)(f"{where}: {place}{error}") from None
    _check_padding(where, objective, data)


def _check_padding(where: str, objective: Objective, data: Bucketed) -> None:
    """ValueError where losses and metrics would count the targets of padding."""
    if data.tokens and not (len(data.boundaries) == 1 and data.lengths.min() == data.boundaries[0]):
        check_ignored(where, objective, data.ignore_index, "the targets of padding are")


def check_ignored(where: str, objective: Objective, ignored: int, reason: str) -> None:
    """ValueError where losses and metrics would count a target that is to be ignored."""
    for criterion in objective.criteria:
        found = getattr(criterion, "ignore_index", None)
        if found != ignored:
            raise ValueError(
                f"{where}: wanted {type(criterion).__name__} with ignore_index={ignored}, as {reason}, received {found}"
            )
