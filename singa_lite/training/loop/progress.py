"""Progress of `fit`: epochs and batches done, the shuffled order, running means, and the history so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.layer.layer import OneOrMore
from singa_lite.tensor import Tensor
from singa_lite.training.loop.history_plot import plot_history
from singa_lite.training.loop.means import Mean as Mean
from singa_lite.training.loop.means import MetricShard
from singa_lite.training.loop.measures import LOSS, RATE, Measures, Observed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class History(Mapping[str, list[OneOrMore]]):
    """What `fit` saw, for reading: {"loss": [a number an epoch], "accuracy": ..., "val_loss": ..., ...}.

    history: the same as a dict, under the name that Keras has for it.

    A metric stands under its name, "<output>_<name>" where metrics were given by output.

    Further entries: "lr", the learning rate of the epoch's last step, unless a metric has that name;
    "samples_per_second"; and "high_water", the most bytes the device's pool had given out.
    """

    def __init__(self) -> None:
        self.history: dict[str, list[OneOrMore]] = {}

    def append(self, **values: OneOrMore) -> None:
        """Enter one epoch's values; None is left out."""
        for name, value in values.items():
            if value is not None:
                self.history.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> list[OneOrMore]:
        if name not in self.history:
            raise KeyError(f"history: wanted one of {list(self.history)}, received {name!r}")
        return self.history[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.history)

    def __len__(self) -> int:
        return len(self.history)

    def plot(self, *names: str) -> Figure:
        """A matplotlib figure: an axis for each entry, training and validation in one, by epoch; `savefig(path)` writes
        it, and a notebook shows it. names: entries without "val_", default all that are numbers.
        """
        return plot_history(self.history, names)

    def __repr__(self) -> str:
        last = {name: values[-1] for name, values in self.history.items()}
        return f"<History of {max(map(len, self.history.values()), default=0)} epochs, last {last}>"


class Progress:
    """How far a run of `fit` has come; another run that goes on from it comes to equal bits.

    samples, batch_size, shuffle: of the data, as `fit` was given them; buckets: of sequences, (length, samples of a
    batch) of each, else none; batches: of an epoch, where they come ready-made, 0 where nobody knows, else None;
    steps: batches of an epoch where `fit` was told so; begun: updates before this run, by which its orders differ.
    epoch: whole epochs done; batch: batches done of the next one, its validation aside; order: of its samples, or
    of ready-made batches, int (ordered,), None before it is drawn and without shuffling; key: of the random numbers
    of this epoch's samples; place: where ready-made batches are, by their own word; random: what the next order is
    drawn from; mean: over the batches done; seconds: that they took.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        shuffle: bool,
        seed: int,
        buckets: tuple[tuple[int, int], ...] = (),
        batches: int | None = None,
        steps: int | None = None,
        begun: int = 0,
    ) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.buckets = buckets
        self.batches = batches
        self.steps = steps
        self.epoch = 0
        self.batch = 0
        self.order: Array | None = None
        self.key = 0
        self.place: object = None
        self.random = np.random.default_rng([seed, samples, begun] if begun else [seed, samples])
        self.mean = Mean()
        self.seconds = 0.0
        self.history = History()

    @property
    def ordered(self) -> int:
        """How many samples, or ready-made batches, an order is of; 0: none."""
        return self.samples if self.batches is None else self.batches

    @property
    def total(self) -> int | None:
        """Samples of an epoch; None where nobody knows."""
        if self.batches is not None:
            return None
        return self.samples if self.steps is None or self.buckets else min(self.samples, self.steps * self.batch_size)

    def check_place(self) -> None:
        """ValueError unless so many batches of an epoch have so many samples."""
        if self.batches is not None:
            if self.mean.count < self.batch or (self.batches and self.batch > self.batches):
                raise ValueError(f"batch {self.batch} of {self.batches}, {self.mean.count} samples")
            return
        batches = self.samples if self.buckets else -(-self.samples // self.batch_size)
        begun = self.mean.count if self.buckets else min(self.batch * self.batch_size, self.samples)
        if self.batch > batches or (self.batch and not self.batch <= self.mean.count == begun <= self.samples):
            raise ValueError(f"batch {self.batch} of {batches}, {self.mean.count} of {self.samples} samples")

    def begin_epoch(self, draw: Callable[[np.random.Generator], Array | None], is_random: bool = False) -> None:
        """Draw the order of the samples, and begin the means. is_random: whether samples need random numbers."""
        self.order = draw(self.random) if self.shuffle else None
        self.key = int(self.random.integers(2**63)) if is_random else 0
        self.mean, self.seconds = Mean(), 0.0

    def end_batch(
        self,
        size: int,
        loss: Tensor,
        metric: Tensor | Mapping[str, Tensor] | None,
        seconds: float,
        observed: Observed | None = None,
        measures: Measures = (),
    ) -> None:
        """Enter the means of a batch of so many samples, and the epoch's seconds so far. observed, measures: see
        `Mean.add`.
        """
        self.mean.add(size, loss, metric, observed, measures)
        self.batch += 1
        self.seconds = seconds

    def end_parts(self, parts: Sequence[MetricShard], seconds: float, measures: Measures) -> None:
        """As `end_batch`, of a batch that several processes had parts of."""
        self.mean.add_parts(parts, measures)
        self.batch += 1
        self.seconds = seconds

    def end_epoch(self, measures: Measures, rate: float | None, **values: OneOrMore) -> None:
        """Enter the epoch into the history, with `values` beside its means. rate: the learning rate."""
        entered: dict[str, OneOrMore] = {LOSS: self.mean.loss()} | self.mean.entries(measures) | values
        entered.setdefault(RATE, rate)
        self.history.append(**entered)
        self.epoch, self.batch, self.order = self.epoch + 1, 0, None
