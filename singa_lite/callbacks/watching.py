"""Watching: a callback that follows one entry of the history, and says when it was better than before."""

from __future__ import annotations

from math import inf

from singa_lite.common.checks import at_least_zero, one_of
from singa_lite.fit import Callback, Training

#: Ends of entries of which more is better, where mode is "auto".
_MORE_IS_BETTER = ("accuracy", "auc", "f1", "r2", "precision", "recall")


class Watching(Callback):
    """Base of the callbacks that wait for an entry of the history to become better.

    monitor: such as "val_loss"; mode: "min", "max", or "auto", which is "max" for accuracies, auc, f1, r2, precision
    and recall; min_delta: by how much a value must be better than the best so far to count. A NaN is never better.
    best: the best value; waited: epochs since. What it knows is kept in checkpoints.
    """

    def __init__(self, monitor: str, min_delta: float, mode: str) -> None:
        if not isinstance(monitor, str) or not monitor:
            raise TypeError(f"{self._name} monitor: wanted the name of an entry of the history, received {monitor!r}")
        self.monitor = monitor
        self.min_delta = at_least_zero(f"{self._name} min_delta", min_delta)
        chosen = one_of(f"{self._name} mode", mode, ("auto", "min", "max"))
        self.mode = chosen if chosen != "auto" else "max" if monitor.endswith(_MORE_IS_BETTER) else "min"
        self.best = self._worst
        self.waited = 0
        self._kept: dict[str, object] | None = None

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _worst(self) -> float:
        return inf if self.mode == "min" else -inf

    def on_start(self, training: Training) -> None:
        """Begin, or go on from a checkpoint. ValueError for an entry that will not be there."""
        training.check_entry(f"{self._name} monitor", self.monitor)
        kept, self._kept = self._kept or {}, None
        self.best, self.waited = self._worst, 0
        self.go_on(training, kept)

    def go_on(self, training: Training, kept: dict[str, object]) -> None:
        """Take over what `state` gave; empty at the beginning."""
        best, waited = kept.get("best"), kept.get("waited")
        self.best = best if isinstance(best, float) else self._worst
        self.waited = waited if isinstance(waited, int) else 0

    def state(self) -> dict[str, object]:
        """See `Callback.state`."""
        return {"best": self.best, "waited": self.waited}

    def restore(self, state: dict[str, object]) -> None:
        """See `Callback.restore`."""
        self._kept = state

    def is_better(self, training: Training) -> bool:
        """Whether this epoch is the best so far; counts those that are not."""
        value = training.progress.history[self.monitor][-1]
        sign = 1 if self.mode == "min" else -1
        better = sign * float(value) < sign * self.best - (self.min_delta if self.best != self._worst else 0.0)
        if better:
            self.best, self.waited = float(value), 0
        else:
            self.waited += 1
        return better
