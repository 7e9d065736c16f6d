"""Callbacks that end a training: when its loss is no number any more, and when its time is over."""

from __future__ import annotations

import time
from math import isfinite

from singa_lite.common.checks import above_zero
from singa_lite.common.notice import warn
from singa_lite.training.fit import Callback, StopTraining, Training


class TerminateOnNaN(Callback):
    """Ends the training, with a warning, after the first batch whose loss is NaN or infinite, and keeps what there is.

    Without it `fit` raises an error there that names the layer, see `compile(on_nan=)`.
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
