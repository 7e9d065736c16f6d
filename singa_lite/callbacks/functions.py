"""Callbacks that call functions, or end a training whose loss is no number any more or whose time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import isfinite

from singa_lite.common.checks import above_zero
from singa_lite.common.keywords import accepts_arguments
from singa_lite.common.notice import warn
from singa_lite.training.fit import Callback, StopTraining, Training

#: What is called with the training.
Function = Callable[[Training], object]


class LambdaCallback(Callback):
    """Calls functions on the way of `fit`: each with the `Training`, `on_end` with (training, error).

    What they return is not looked at; StopTraining that one raises ends the training. TypeError for what cannot be
    called so.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> shown = callbacks.LambdaCallback(on_start=lambda training: print(training.epochs))
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), epochs=2, callbacks=shown, verbose=False)
    2
    """

    def __init__(
        self,
        on_start: Function | None = None,
        on_batch: Function | None = None,
        on_validation_batch: Function | None = None,
        on_epoch: Function | None = None,
        on_end: Callable[[Training, BaseException | None], object] | None = None,
    ) -> None:
        given = {"on_start": on_start, "on_batch": on_batch, "on_validation_batch": on_validation_batch}
        for name, function in (given | {"on_epoch": on_epoch, "on_end": on_end}).items():
            arguments = ("training", "error") if name == "on_end" else ("training",)
            if function is None:
                continue
            if not accepts_arguments(function, len(arguments)):
                raise TypeError(
                    f"LambdaCallback {name}: wanted a function of ({', '.join(arguments)}) or None, received "
                    f"{function!r:.100}"
                )
            setattr(self, name, function)
        self.enters = on_start is not None or on_epoch is not None


class TerminateOnNaN(Callback):
    """Ends the training, with a warning, after the first batch whose loss is NaN or infinite, and keeps what there is.

    Without it `fit` raises an error there that names the layer, see `compile(on_nan=)`.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> ending = callbacks.TerminateOnNaN()
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), epochs=2, callbacks=ending, verbose=False)
    >>> len(history["loss"])  # no loss was NaN
    2
    """

    takes_nan = True

    def on_batch(self, training: Training) -> None:
        """StopTraining if the loss is not finite."""
        loss = 0.0 if training.loss is None else float(training.loss)
        if not isfinite(loss):
            progress = training.progress
            if training.is_first:
                warn(f"fit was ended: loss {loss} at batch {progress.batch - 1} of epoch {progress.epoch}, from 0")
            raise StopTraining


class TimeLimit(Callback):
    """Ends the training after the batch at which so many seconds have passed since this call of `fit` began.

    seconds: above 0. The validation is not interrupted. With a `Checkpoint` behind it, `fit(resume="auto")` goes on.
    Where several processes train together, the first whose time is over ends it.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> limit = callbacks.TimeLimit(seconds=1e-6)  # over after the first batch
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), batch_size=2, callbacks=limit, verbose=False)
    >>> net.optimizer.step
    1
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = above_zero("TimeLimit seconds", seconds)
        self._begun = 0.0

    def on_start(self, training: Training) -> None:
        """Time begins."""
        self._begun = time.monotonic()

    def on_batch(self, training: Training) -> None:
        """StopTraining if it is over."""
        if training.any(time.monotonic() - self._begun >= self.seconds):
            raise StopTraining
