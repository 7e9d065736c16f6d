"""Progress of `fit`: epochs and batches done, the shuffled order, running means; the history so far, as curves too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.layer.layer import OneOrMore
from singa_lite.tensor import Tensor
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


@dataclass(eq=False, repr=False)
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

    samples: int
    batch_size: int
    shuffle: bool
    seed: InitVar[int]
    buckets: tuple[tuple[int, int], ...] = ()
    batches: int | None = None
    steps: int | None = None
    begun: InitVar[int] = 0
    epoch: int = field(default=0, init=False)
    batch: int = field(default=0, init=False)
    order: Array | None = field(default=None, init=False)
    key: int = field(default=0, init=False)
    place: object = field(default=None, init=False)
    random: np.random.Generator = field(init=False)
    mean: Mean = field(default_factory=Mean, init=False)
    seconds: float = field(default=0.0, init=False)
    history: History = field(default_factory=History, init=False)

    def __post_init__(self, seed: int, begun: int) -> None:
        self.random = np.random.default_rng([seed, self.samples, begun] if begun else [seed, self.samples])

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

    def state(self, measures: Measures, tokens: float, high_water: int) -> str:
        """What stands behind the bar. tokens: ids that went through the net each second, padding included."""
        texts = [f"loss {self.mean.loss():.4f}", *self.mean.texts(measures)]
        texts += [f"{tokens:.0f} tokens/s"] if tokens else []
        return ", ".join([*texts, f"high water {high_water / 2**20:.1f} MiB"])

    def end_epoch(self, measures: Measures, rate: float | None, **values: OneOrMore) -> None:
        """Enter the epoch into the history, with `values` beside its means. rate: the learning rate."""
        entered: dict[str, OneOrMore] = {LOSS: self.mean.loss()} | self.mean.entries(measures) | values
        entered.setdefault(RATE, rate)
        self.history.append(**entered)
        self.epoch, self.batch, self.order = self.epoch + 1, 0, None


#: What is of the machine and not of the training; and what is drawn only where it is named, as it is no result.
_NOT_DRAWN, _RATE = ("samples_per_second", "high_water"), "lr"


def plot_history(history: Mapping[str, Sequence[object]], names: Sequence[str] = ()) -> Figure:
    """A figure with an axis for each entry, of training and validation in one, by epoch from 1.

    names: the entries, without "val_"; default all that are numbers. ValueError for one that is not there, ImportError
    without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("history.plot: wants matplotlib, pip install matplotlib") from error
    there = [name for name, values in history.items() if _are_numbers(values) and name not in _NOT_DRAWN]
    kinds = list(dict.fromkeys(name.removeprefix("val_") for name in there))
    for name in names:
        if name not in kinds:
            raise ValueError(f"history.plot: wanted names of {kinds}, received {name!r}")
    chosen = list(names) or [name for name in kinds if name != _RATE]
    if not chosen:
        raise ValueError("history.plot: wanted a history of at least one epoch, received one of none")
    figure = Figure(figsize=(4.8 * len(chosen), 3.4), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(chosen), squeeze=False)[0], chosen, strict=True):
        for entry, label in ((name, "training"), (f"val_{name}", "validation")):
            if entry in there:
                values = history[entry]
                axis.plot(range(1, len(values) + 1), values, marker=".", label=label)
        axis.set(title=name, xlabel="epoch")
        axis.legend()
    return figure


def _are_numbers(values: Sequence[object]) -> bool:
    return bool(values) and all(isinstance(value, int | float) for value in values)
