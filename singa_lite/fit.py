"""The training loop around `train_one_batch`, and what it calls on its way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from singa_lite.checks import whole
from singa_lite.contexts import in_own_context
from singa_lite.evaluation import Evaluable, batches, checked, evaluate, taken
from singa_lite.progress import History as History
from singa_lite.progress import Mean, Progress
from singa_lite.tensor import Tensor


class Trainable(Evaluable, Protocol):
    """What the loop needs of a net."""

    seed: int

    def train_one_batch(self, x: Any, y: Any) -> tuple[Tensor, Any]: ...


#: Those that the present call is a part of.
_under_way: ContextVar[tuple[Training, ...]] = ContextVar("fits under way", default=())


class StopTraining(Exception):
    """Raised by a callback: `fit` ends here, without an error, and returns the history of the whole epochs."""


class Callback:
    """What `fit` calls on its way, in the order of `callbacks`; `on_end` in the reverse order. All do nothing here.

    An error that one raises ends the training and comes out of `fit`, but for StopTraining.
    """

    def on_start(self, training: Training) -> None:
        """Before the first batch; after the place to go on from has been read, if there is one."""

    def on_batch(self, training: Training) -> None:
        """After each training batch. The net has taken the step, and `training.progress` counts it."""

    def on_validation_batch(self, training: Training) -> None:
        """After each batch of the validation, which is at the end of an epoch."""

    def on_epoch(self, training: Training) -> None:
        """After each epoch and its validation. `training.progress.history` has it."""

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """At the end, whatever ended it, of each callback whose `on_start` was called. error: what is raised."""


class Training:
    """One call of `FeedForwardNet.fit`. The data stay where they are; only one batch at a time is copied.

    progress: where it stands; loss, metric: of the last batch, 0-d tensors, None before the first.
    """

    def __init__(
        self,
        net: Trainable,
        x: Any,
        y: Any,
        batch_size: int,
        epochs: int,
        validation_data: tuple[Any, Any] | None,
        shuffle: bool,
        verbose: bool,
        callbacks: Sequence[Callback] = (),
        prefetch: int = 0,
    ) -> None:
        count = checked(x, y, batch_size)
        if validation_data is not None:
            checked(*validation_data, batch_size)
        if not isinstance(epochs, int | np.integer) or epochs < 0:
            raise ValueError(f"epochs: wanted an integer of at least 0, received {epochs}")
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(f"callbacks: wanted objects of class Callback, received {type(callback).__name__}")
        self.net: Any = net  # callbacks want all of it
        self.epochs = int(epochs)
        self.callbacks = tuple(callbacks)
        self.progress = Progress(count, int(batch_size), bool(shuffle), net.seed)
        self.loss: Tensor | None = None
        self.metric: Any = None
        self._data = x, y
        self._validation_data = validation_data
        self._verbose = verbose
        self._prefetch = whole("fit prefetch", prefetch, 0)

    @property
    def validates(self) -> bool:
        """Whether there is a validation at the end of each epoch."""
        return self._validation_data is not None

    @property
    def is_under_way(self) -> bool:
        """Whether the present call is a part of it. Also after an interrupt that left callbacks without `on_end`."""
        return self in _under_way.get()

    @in_own_context
    def run(self) -> History:
        """Train until `epochs` are done."""
        _under_way.set((*_under_way.get(), self))
        started: list[Callback] = []
        error: BaseException | None = None
        try:
            for callback in self.callbacks:
                started.append(callback)
                callback.on_start(self)
            while self.progress.epoch < self.epochs:
                self._epoch()
        except StopTraining:
            pass
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._end(started, error)
        return self.progress.history

    def _end(self, started: list[Callback], error: BaseException | None) -> None:
        """Call `on_end` of each, also if that of another fails."""
        if started:
            try:
                started.pop().on_end(self, error)
            except BaseException as raised:
                self._end(started, raised)
                raise
            self._end(started, error)

    def _epoch(self) -> None:
        """Train on all samples once, or on those that are left of the epoch; validate."""
        progress = self.progress
        if progress.batch == 0 and progress.order is None:
            progress.begin_epoch()
        self._batches()
        val_loss, val_metric = self._validated()
        progress.end_epoch(
            val_loss=val_loss,
            val_metric=val_metric,
            samples_per_second=progress.samples / progress.seconds,
            high_water=self.net.device.pool.high_water,
        )
        for callback in self.callbacks:
            callback.on_epoch(self)

    def _batches(self) -> None:
        from tqdm.auto import tqdm

        progress, (x, y) = self.progress, self._data
        start = time.perf_counter() - progress.seconds
        title = f"epoch {progress.epoch + 1}/{self.epochs}" if self._verbose else None
        indices = batches(progress.samples, progress.batch_size, progress.order, progress.batch)
        with (
            closing(taken(x, y, indices, self._prefetch)) as all_batches,
            tqdm(
                total=progress.samples, initial=progress.mean.count, desc=title, unit=" samples", disable=title is None
            ) as bar,
        ):
            for batch in all_batches:
                self.loss, self.metric = self.net.train_one_batch(*batch)
                del batch  # before the next one is taken
                bar.update(progress.end_batch(self.loss, self.metric, time.perf_counter() - start))
                bar.set_postfix_str(_state(progress.mean, self.net.device.pool.high_water), refresh=False)
                for callback in self.callbacks:
                    callback.on_batch(self)

    def _validated(self) -> tuple[float | None, Any]:
        if self._validation_data is None:
            return None, None
        size = self.progress.batch_size
        loss, metric = evaluate(self.net, *self._validation_data, size, self._validation_batch, self._prefetch)
        if self._verbose:
            print(f"validation: loss {loss:.4f}" + ("" if metric is None else f", metric {_text(metric)}"))
        return loss, metric

    def _validation_batch(self) -> None:
        for callback in self.callbacks:
            callback.on_validation_batch(self)


def _state(mean: Mean, high_water: int) -> str:
    metric = "" if mean.metric() is None else f", metric {_text(mean.metric())}"
    return f"loss {mean.loss():.4f}{metric}, high water {high_water / 2**20:.1f} MiB"


def _text(metric: Any) -> str:
    if isinstance(metric, Mapping):
        return " ".join(f"{name} {value:.4f}" for name, value in metric.items())
    return f"{metric:.4f}"
