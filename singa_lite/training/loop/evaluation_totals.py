"""EvaluationTotals: counts, losses and metrics of an evaluation so far, of one process or of several."""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.common.array_types import Array
from singa_lite.metric import EpochMetric
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.training.loop.means import Mean, MetricShard
from singa_lite.training.loop.measures import Measures
from singa_lite.training.loop.rank_batches import check_same_call, gather_values


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
        told = gather_values(ranks, (data, self._parts, self._joined), "evaluate: its end")
        check_same_call("evaluate", [facts for facts, _, _ in told])
        every = sorted(
            ((number, rank, part) for rank, (_, parts, _) in enumerate(told) for number, part in parts), key=_batch_key
        )
        mean = Mean()
        for _, _, part in every:
            mean.add_parts([part], self._measures)
        self._joined = {}
        for _, _, joined in told:
            for key, statistics in joined.items():
                self._join(key, statistics)
        mean.statistics |= {key: [statistics] for key, statistics in self._joined.items()}
        return mean


def _batch_key(entry: tuple[int, int, MetricShard]) -> tuple[int, int]:
    """Where a batch stands: those of the same number, of loaders of the ranks' own, by rank."""
    return entry[:2]
