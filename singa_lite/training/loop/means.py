"""Mean: losses and metrics over the batches of an epoch, or of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.layer.layer import OneOrMore
from singa_lite.metric import EpochMetric
from singa_lite.tensor import Tensor
from singa_lite.training.loop.measures import Measure, Measures, Observed

#: Before a metric's key, and before an output's name, in `Mean.sums`.
MEAN, LOSS = "metric ", "loss "

#: What a metric gives over an epoch.
Value = float | Array


class MetricShard(NamedTuple):
    """One process's part of a batch's metrics.

    size: its samples; weight: what its loss counts as in the batch's; metrics: by key; observed: what else they keep.
    """

    size: int
    weight: float
    loss: float
    metrics: dict[str, float]
    observed: Observed | None


def part_of(size: int, weight: float, loss: Tensor | None, metric: OneOrMore, observed: Observed | None) -> MetricShard:
    """Of a batch's loss and metrics as the net gives them."""
    named = metric if isinstance(metric, Mapping) else {} if metric is None else {"": metric}
    metrics = {key: float(value) if value.ndim == 0 else nan for key, value in named.items()}
    return MetricShard(size, weight, 0.0 if loss is None else float(loss), metrics, observed)


class Mean:
    """Mean of losses and metrics over batches of different sizes.

    count: samples so far. sums: {"loss": ..., "metric <key>": ...}, each batch's mean times what it counts as, added up
    in their order, on which the last bit depends, and "loss <output>" where losses count otherwise than by samples;
    counts: what they, and those of metrics, count as, where it is not the samples.
    statistics: {key: what an EpochMetric keeps}, one array, or one a batch where they are gathered.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sums: dict[str, float] = {}
        self.counts: dict[str, float] = {}
        self.statistics: dict[str, list[Array]] = {}

    def add(
        self,
        count: int,
        loss: Tensor | float,
        metric: Tensor | Mapping[str, Tensor | float] | None,
        observed: Observed | None = None,
        measures: Measures = (),
    ) -> None:
        """Enter a batch's means, over `count` samples. observed: what else metrics keep of it; measures: of the net."""
        self.count += count
        self._add("loss", count, float(loss))
        for output, (positions, mean) in ({} if observed is None else observed.losses).items():
            self._add(LOSS + output, positions, mean)
            self.counts[LOSS + output] = self.counts.get(LOSS + output, 0.0) + positions
        named = metric if isinstance(metric, Mapping) else {} if metric is None else {"": metric}
        metrics = {measure.key: measure.metric for measure in measures}
        for key, value in named.items():
            known = metrics.get(key)
            if observed is not None and key in observed.statistics and isinstance(known, EpochMetric):
                self._gather(key, known, observed.statistics[key])
                continue
            weight: float = count
            if observed is not None and key in observed.counts:
                weight = observed.counts[key]
                self.counts[key] = self.counts.get(key, 0.0) + weight
            self._add(MEAN + key, weight, float(value) if known is None else known.before_mean(float(value)))

    def add_parts(self, parts: Sequence[MetricShard], measures: Measures) -> None:
        """Enter a batch that several processes had parts of, in the order of its samples."""
        weight = sum(part.weight for part in parts)
        loss = sum(part.weight * part.loss for part in parts if part.weight) / weight if weight else 0.0
        loss = parts[0].loss if len(parts) == 1 else loss
        for part in parts:
            self.add(part.size, loss, part.metrics, part.observed, measures)

    def _add(self, name: str, weight: float, value: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + (weight * value if weight else 0.0)

    def _gather(self, key: str, metric: EpochMetric, more: Array) -> None:
        kept = self.statistics.setdefault(key, [])
        if kept and not metric.gathers:
            kept[0] = metric.joined(kept[0], more)
        else:
            kept.append(more)

    def loss(self) -> float:
        """Mean loss: of all samples, or, output by output, of all positions that count."""
        apart = [name for name in self.sums if name.startswith(LOSS)]
        if apart:
            return sum(self.sums[name] / max(self.counts[name], 1.0) for name in apart)
        return self.sums["loss"] / self.count

    def metric(self, measures: Measures) -> OneOrMore:
        """The metrics' values as the net gives them: of an only one its value, {key: value}, or None."""
        values = self.values(measures)
        return values.get("", values or None)

    def values(self, measures: Measures) -> dict[str, Value]:
        """{key: value} of all metrics."""
        return {measure.key: self._value(measure) for measure in measures}

    def entries(self, measures: Measures, before: str = "") -> dict[str, Value]:
        """{name in the history: value} of all metrics. before: "val_" of a validation's."""
        return {before + measure.entry: self._value(measure) for measure in measures}

    def _value(self, measure: Measure) -> Value:
        key, _, _, metric = measure
        if isinstance(metric, EpochMetric):
            return metric.result(np.concatenate(self.statistics[key]) if metric.gathers else self.statistics[key][0])
        count = self.counts.get(key, self.count)
        if not count:
            return 0.0  # as of a batch without a position that counts
        return metric.after_mean(self.sums.get(MEAN + key, nan) / count)

    def texts(self, measures: Measures) -> list[str]:
        """ "accuracy 0.9123" of each metric that is one number and needs no pass over an epoch's scores."""
        shown = [each for each in measures if not (isinstance(each.metric, EpochMetric) and each.metric.gathers)]
        return texts(self.entries(tuple(shown)))


def texts(values: Mapping[str, Value]) -> list[str]:
    """ "accuracy 0.9123" of each value that is one number."""
    return [f"{name} {value:.4f}" for name, value in values.items() if np.ndim(value) == 0]
