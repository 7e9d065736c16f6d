"""Evaluation and prediction over many samples, totals of one process or several, and the protocols that know a net."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from itertools import islice
from os import PathLike
from typing import Protocol

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.data.loading.data_set import DataSet, count_of
from singa_lite.device import Device
from singa_lite.layer.layer import OneOrMore
from singa_lite.metric import EpochMetric
from singa_lite.optimizer import Optimizer
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.tensor import Tensor, from_numpy, to_numpy
from singa_lite.training.loop.means import Mean, MetricShard, part_of
from singa_lite.training.loop.measures import Measures, Observed
from singa_lite.training.loop.rank_batches import check_same_call, gather_values


class Evaluable(Protocol):
    """What the loops need of a net."""

    device: Device

    @property
    def measures(self) -> Measures: ...

    @property
    def observed(self) -> Observed | None: ...

    def evaluate_one_batch(
        self, x: object, y: object, sample_weight: object = None, class_weight: object = None
    ) -> tuple[Tensor, OneOrMore]: ...

    def predict_one_batch(self, x: object, output: Collection[str] = ()) -> OneOrMore: ...


class Trainable(Evaluable, Protocol):
    """The protocol by which the training loop, and callbacks, know a net."""

    seed: int
    optimizer: Optimizer | None

    @property
    def knows_measures(self) -> bool: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def parallel(self) -> DataParallel | None: ...

    @property
    def loss_weight(self) -> float: ...

    def train_one_batch(
        self, x: object, y: object, sample_weight: object = None, class_weight: object = None
    ) -> tuple[Tensor, OneOrMore]: ...

    def save(self, path: str | PathLike[str], *, weights_only: bool = False, **options: object) -> None: ...

    def print_norms(self) -> None: ...


def evaluate(
    net: Evaluable,
    data: DataSet,
    after_batch: Callable[[], None] = lambda: None,
    prefetch: int = 0,
    class_weight: object = None,
    ranks: DataParallel | None = None,
) -> Mean:
    """The means of `FeedForwardNet.evaluate`. after_batch: called after each batch; prefetch: as for `fit`.

    ranks: None, or the processes of which each evaluates some batches, whole: so the means are those of one process, to
    the last bit, where the batches are.
    """
    seen = EvaluationTotals(net.measures)
    options = {} if class_weight is None else {"class_weight": class_weight}
    with closing(data.iterate(prefetch=prefetch)) as all_batches:
        for number, batch in enumerate(islice(all_batches, data.steps)):
            if batch is None:
                continue
            loss, metric = net.evaluate_one_batch(*batch, **options)
            size = count_of(batch[0])
            del batch  # before the next one is taken
            seen.add(number, part_of(size, size, loss, metric, net.observed))
            after_batch()
    return seen.mean(ranks, data.facts())


def predict(net: Evaluable, data: DataSet, output: Collection[str] = ()) -> Tensor | dict[str, Tensor]:
    """See `FeedForwardNet.predict`. Each batch's output is copied into its rows of the whole."""
    whole: dict[str, Tensor] = {}
    parts: dict[str, list[Array]] = {}
    single, first = False, 0
    with closing(data.iterate()) as all_batches:
        for batch in all_batches:
            if batch is None:
                continue
            out = net.predict_one_batch(batch[0], output)
            single, size = isinstance(out, Tensor), count_of(batch[0])
            for name, part in _members(out):
                if not data.count:  # how many samples there are shows at the end
                    parts.setdefault(name, []).append(to_numpy(part).copy())
                    continue
                if name not in whole:
                    whole[name] = net.device.empty((data.count, *part.shape[1:]), part.dtype)
                stride = whole[name].strides[0]
                net.device.run("copy", part, whole[name].view(part.shape, offset=first * stride))
            first += size
    whole |= {name: from_numpy(np.concatenate(arrays), net.device) for name, arrays in parts.items()}
    return whole[""] if single else whole


def _members(out: Tensor | dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    return [("", out)] if isinstance(out, Tensor) else list(out.items())


class EvaluationTotals:
    """Some batches of an evaluation. measures: the net's metrics.

    Statistics that are joined are joined at once, so that they are held, and sent to others, once and not by batch.
    """

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._joining = {each.key: each.metric for each in measures if isinstance(each.metric, EpochMetric)}
        self._joining = {key: metric for key, metric in self._joining.items() if not metric.gathers}
        self._joined: dict[str, Array] = {}
        self._parts: list[tuple[int, MetricShard]] = []

    def add(self, number: int, part: MetricShard) -> None:
        """Enter a batch."""
        if part.observed is not None:
            statistics = dict(part.observed.statistics)
            for key in self._joining.keys() & statistics.keys():
                self._join(key, statistics.pop(key))
            metrics = {key: value for key, value in part.metrics.items() if key not in self._joining}
            part = part._replace(metrics=metrics, observed=part.observed._replace(statistics=statistics))
        self._parts.append((number, part))

    def _join(self, key: str, more: Array) -> None:
        before = self._joined.get(key)
        self._joined[key] = more if before is None else self._joining[key].joined(before, more)

    def mean(self, ranks: DataParallel | None, data: Mapping[str, object]) -> Mean:
        """Of all batches, in their order, whoever has seen them. data: {fact: value} of what they are batches of.

        ParallelError where ranks have gone through other data.
        """
        exchanged = gather_values(ranks, (data, self._parts, self._joined), "evaluate: its end")
        check_same_call("evaluate", [facts for facts, _, _ in exchanged])
        every = sorted(
            ((number, rank, part) for rank, (_, parts, _) in enumerate(exchanged) for number, part in parts),
            key=lambda entry: entry[:2],  # of one number, of loaders of the ranks' own, by rank
        )
        mean = Mean()
        for _, _, part in every:
            mean.add_parts([part], self._measures)
        self._joined = {}
        for _, _, joined in exchanged:
            for key, statistics in joined.items():
                self._join(key, statistics)
        mean.statistics |= {key: [statistics] for key, statistics in self._joined.items()}
        return mean
