"""The training loop around `train_one_batch`, and evaluation and prediction over many samples."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from singa_lite.batch import as_array
from singa_lite.errors import ShapeError
from singa_lite.tensor import Tensor


class Trainable(Protocol):
    """What the loops need of a net."""

    device: Any
    seed: int

    def train_one_batch(self, x: Any, y: Any) -> tuple[Tensor, Any]: ...

    def evaluate_one_batch(self, x: Any, y: Any) -> tuple[Tensor, Any]: ...

    def predict_one_batch(self, x: Any) -> Any: ...


class History:
    """What `fit` saw. history: {"loss": [a number an epoch], "metric": ..., "val_loss": ..., ...}.

    Further entries: "samples_per_second", and "high_water", the most bytes the device's pool had given out.
    """

    def __init__(self) -> None:
        self.history: dict[str, list[Any]] = {}

    def append(self, **values: Any) -> None:
        """Enter one epoch's values; None is left out."""
        for name, value in values.items():
            if value is not None:
                self.history.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> list[Any]:
        return self.history[name]

    def __repr__(self) -> str:
        last = {name: values[-1] for name, values in self.history.items()}
        return f"<History of {max(map(len, self.history.values()), default=0)} epochs, last {last}>"


class Mean:
    """Mean of losses and metrics over batches of different sizes; metrics may be dicts of numbers."""

    def __init__(self) -> None:
        self.count = 0
        self._sums: dict[str, float] = {}
        self._by_name = False
        self._has_metric = False

    def add(self, count: int, loss: Any, metric: Any) -> None:
        """Enter a batch's means, over `count` samples."""
        self.count += count
        self._has_metric = metric is not None
        self._by_name = isinstance(metric, Mapping)
        named = dict(metric) if isinstance(metric, Mapping) else {} if metric is None else {"": metric}
        for name, value in [("loss", loss), *((f"metric {name}", value) for name, value in named.items())]:
            self._sums[name] = self._sums.get(name, 0.0) + count * float(value)

    def loss(self) -> float:
        """Mean loss."""
        return self._sums["loss"] / self.count

    def metric(self) -> Any:
        """Mean metric: a number, {output: number}, or None."""
        means = {n.removeprefix("metric "): s / self.count for n, s in self._sums.items() if n != "loss"}
        if not self._has_metric:
            return None
        return means if self._by_name else means[""]


def samples(arrays: Any) -> int:
    """Number of samples in an array, or in each array of a dict. ShapeError where they differ or there is none."""
    members = arrays if isinstance(arrays, Mapping) else {"data": arrays}
    counts = {name: next(iter(as_array(a).shape), 0) for name, a in members.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        raise ShapeError(f"data: wanted equally many samples in each array, at least one, received {counts}")
    return next(iter(counts.values()))


def take(arrays: Any, index: Any) -> Any:
    """The samples at `index` (a slice or an array of places) of an array, or of each array of a dict."""
    if isinstance(arrays, Mapping):
        return {name: take(array, index) for name, array in arrays.items()}
    # DLPack shows a tensor's memory without a copy; only the samples asked for are copied.
    return (np.from_dlpack(arrays) if isinstance(arrays, Tensor) else np.asarray(arrays))[index]


def _check(x: Any, y: Any, batch_size: int) -> int:
    count = samples(x)
    if y is not None and samples(y) != count:
        raise ShapeError(f"data: wanted as many targets as samples, received {samples(y)} for {count}")
    if not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f"batch_size: wanted an integer of at least 1, received {batch_size}")
    return count


def fit(
    net: Trainable,
    x: Any,
    y: Any,
    batch_size: int,
    epochs: int,
    validation_data: tuple[Any, Any] | None,
    shuffle: bool,
    verbose: bool,
) -> History:
    """See `FeedForwardNet.fit`. The data stay where they are; only one batch at a time is copied."""
    count = _check(x, y, batch_size)
    if validation_data is not None:
        _check(*validation_data, batch_size)
    if not isinstance(epochs, int | np.integer) or epochs < 0:
        raise ValueError(f"epochs: wanted an integer of at least 0, received {epochs}")
    history = History()
    random = np.random.default_rng([net.seed, count])
    for epoch in range(epochs):
        order = random.permutation(count) if shuffle else None
        mean, seconds = _epoch(net, x, y, batch_size, order, f"epoch {epoch + 1}/{epochs}" if verbose else None)
        val_loss, val_metric = evaluate(net, *validation_data, batch_size) if validation_data else (None, None)
        history.append(
            loss=mean.loss(),
            metric=mean.metric(),
            val_loss=val_loss,
            val_metric=val_metric,
            samples_per_second=count / seconds,
            high_water=net.device.pool.high_water,
        )
        if verbose and val_loss is not None:
            print(f"validation: loss {val_loss:.4f}" + ("" if val_metric is None else f", metric {_text(val_metric)}"))
    return history


def _epoch(net: Trainable, x: Any, y: Any, batch_size: int, order: Any, title: str | None) -> tuple[Mean, float]:
    """Train on all samples once; returns the means and the seconds it took."""
    from tqdm.auto import tqdm

    mean, start, count = Mean(), time.perf_counter(), samples(x)
    with tqdm(total=count, desc=title, unit=" samples", disable=title is None) as bar:
        for index in batches(count, batch_size, order):
            loss, metric = net.train_one_batch(take(x, index), take(y, index))
            size = min(batch_size, count - mean.count)
            mean.add(size, loss, metric)
            bar.update(size)
            bar.set_postfix_str(_state(mean, net.device.pool.high_water), refresh=False)
    return mean, time.perf_counter() - start


def _state(mean: Mean, high_water: int) -> str:
    metric = "" if mean.metric() is None else f", metric {_text(mean.metric())}"
    return f"loss {mean.loss():.4f}{metric}, high water {high_water / 2**20:.1f} MiB"


def _text(metric: Any) -> str:
    if isinstance(metric, Mapping):
        return " ".join(f"{name} {value:.4f}" for name, value in metric.items())
    return f"{metric:.4f}"


def batches(count: int, batch_size: int, order: Any = None) -> Iterator[Any]:
    """Indices of each batch: slices, or pieces of `order`. The last one may be shorter."""
    for start in range(0, count, batch_size):
        piece = slice(start, min(start + batch_size, count))
        yield piece if order is None else order[piece]


def evaluate(net: Trainable, x: Any, y: Any, batch_size: int) -> tuple[float, Any]:
    """See `FeedForwardNet.evaluate`."""
    count, mean = _check(x, y, batch_size), Mean()
    for index in batches(count, batch_size):
        loss, metric = net.evaluate_one_batch(take(x, index), take(y, index))
        mean.add(index.stop - index.start, loss, metric)
    return mean.loss(), mean.metric()


def predict(net: Trainable, x: Any, batch_size: int) -> Any:
    """See `FeedForwardNet.predict`. Each batch's output is copied into its place of the whole."""
    count = _check(x, None, batch_size)
    whole: dict[str, Tensor] = {}
    single = False
    for index in batches(count, batch_size):
        out = net.predict_one_batch(take(x, index))
        single = isinstance(out, Tensor)
        for name, part in _members(out):
            if name not in whole:
                whole[name] = net.device.empty((count, *part.shape[1:]), part.dtype)
            stride = whole[name].strides[0]
            net.device.run("copy", part, whole[name].view(part.shape, offset=index.start * stride))
    return whole[""] if single else whole


def _members(out: Any) -> list[tuple[str, Tensor]]:
    return [("", out)] if isinstance(out, Tensor) else list(out.items())
