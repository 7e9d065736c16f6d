"""How far `fit` has come: epochs and batches done, the shuffled order, running means, and the history so far."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from singa_lite.array_types import Array
from singa_lite.layer import OneOrMore
from singa_lite.tensor import Tensor


class History:
    """What `fit` saw. history: {"loss": [a number an epoch], "metric": ..., "val_loss": ..., ...}.

    Further entries: "samples_per_second", and "high_water", the most bytes the device's pool had given out.
    """

    def __init__(self) -> None:
        self.history: dict[str, list[OneOrMore]] = {}

    def append(self, **values: OneOrMore) -> None:
        """Enter one epoch's values; None is left out."""
        for name, value in values.items():
            if value is not None:
                self.history.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> list[OneOrMore]:
        return self.history[name]

    def __repr__(self) -> str:
        last = {name: values[-1] for name, values in self.history.items()}
        return f"<History of {max(map(len, self.history.values()), default=0)} epochs, last {last}>"


class Mean:
    """Mean of losses and metrics over batches of different sizes; metrics may be dicts of numbers.

    count: samples so far. sums: {"loss": ..., "metric <name>": ...}, each batch's mean times its samples, added up in
    their order, on which the last bit depends.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sums: dict[str, float] = {}
        self.by_name = False
        self.has_metric = False

    def add(self, count: int, loss: Tensor, metric: Tensor | Mapping[str, Tensor] | None) -> None:
        """Enter a batch's means, over `count` samples."""
        self.count += count
        self.has_metric = metric is not None
        self.by_name = isinstance(metric, Mapping)
        named = dict(metric) if isinstance(metric, Mapping) else {} if metric is None else {"": metric}
        for name, value in [("loss", loss), *((f"metric {name}", value) for name, value in named.items())]:
            self.sums[name] = self.sums.get(name, 0.0) + count * float(value)

    def loss(self) -> float:
        """Mean loss."""
        return self.sums["loss"] / self.count

    def metric(self) -> float | dict[str, float] | None:
        """Mean metric: a number, {output: number}, or None."""
        means = {n.removeprefix("metric "): s / self.count for n, s in self.sums.items() if n != "loss"}
        if not self.has_metric:
            return None
        return means if self.by_name else means[""]


class Progress:
    """How far a run of `fit` has come; another run that goes on from it comes to equal bits.

    samples, batch_size, shuffle: of the data, as `fit` was given them; buckets: of sequences, (length, samples of a
    batch) of each, else none. epoch: whole epochs done; batch: batches done
    of the next one, its validation aside; order: of its samples, int (samples,), None before it is drawn and
    without shuffling; random: what the next order is drawn from; mean: over the batches done; seconds: that they took.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        shuffle: bool,
        seed: int,
        buckets: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.buckets = buckets
        self.epoch = 0
        self.batch = 0
        self.order: Array | None = None
        self.random = np.random.default_rng([seed, samples])
        self.mean = Mean()
        self.seconds = 0.0
        self.history = History()

    def check_place(self) -> None:
        """ValueError unless so many batches of an epoch have so many samples."""
        batches = self.samples if self.buckets else -(-self.samples // self.batch_size)
        begun = self.mean.count if self.buckets else min(self.batch * self.batch_size, self.samples)
        if self.batch > batches or (self.batch and not self.batch <= self.mean.count == begun <= self.samples):
            raise ValueError(f"batch {self.batch} of {batches}, {self.mean.count} of {self.samples} samples")

    def begin_epoch(self) -> None:
        """Draw the order of the samples, and begin the means."""
        self.order = self.random.permutation(self.samples) if self.shuffle else None
        self.mean, self.seconds = Mean(), 0.0

    def end_batch(self, size: int, loss: Tensor, metric: Tensor | Mapping[str, Tensor] | None, seconds: float) -> None:
        """Enter the means of a batch of so many samples, and the epoch's seconds so far."""
        self.mean.add(size, loss, metric)
        self.batch += 1
        self.seconds = seconds

    def end_epoch(self, **values: OneOrMore) -> None:
        """Enter the epoch into the history, with `values` beside its means."""
        self.history.append(loss=self.mean.loss(), metric=self.mean.metric(), **values)
        self.epoch, self.batch, self.order = self.epoch + 1, 0, None
