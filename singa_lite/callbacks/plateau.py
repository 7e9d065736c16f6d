"""Watching: a callback that follows an entry of the history; ReduceLROnPlateau: lowers the rate at a plateau."""

from __future__ import annotations

from math import inf

from singa_lite.common.checks import at_least_zero, fraction, integer, real
from singa_lite.optimizer import Optimizer
from singa_lite.optimizer.schedule import Constant
from singa_lite.training.fit import Callback, Training
from singa_lite.training.loop.measures import checked_mode


class Watching(Callback):
    """Base of the callbacks that wait for an entry of the history to become better.

    monitor: such as "val_loss"; min_delta: by how much a value must be better than the best so far to count. A NaN is
    never better. mode: "min", "max", or "auto": by `higher_is_better` of the entry's metric, or by its name if that
    ends with loss, error, accuracy, auc, f1, r2, precision, recall or perplexity; ValueError at the start for others.
    From there on mode is "min" or "max". best: the best value; waited: epochs since. Checkpoints keep both.
    """

    def __init__(self, monitor: str, min_delta: float, mode: str) -> None:
        if not isinstance(monitor, str) or not monitor:
            raise TypeError(f"{self._name} monitor: wanted the name of an entry of the history, received {monitor!r}")
        self.monitor = monitor
        self.min_delta = at_least_zero(f"{self._name} min_delta", min_delta)
        self.mode = self._given_mode = checked_mode(self._name, mode)
        self.best = self._worst
        self.waited = 0
        self._kept: dict[str, object] | None = None

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _worst(self) -> float:
        return -inf if self.mode == "max" else inf

    def on_start(self, training: Training) -> None:
        """Starts with no best value, or with the checkpoint's. ValueError for an entry that will not be in the history,
        or of no known mode.
        """
        training.check_entry(f"{self._name} monitor", self.monitor)
        self.mode = training.direction(self._name, self.monitor, self._given_mode)
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
        """Whether this epoch is the best so far; counts those that are not. ValueError where the entry is no number."""
        training.check_entry(f"{self._name} monitor", self.monitor)  # a step of the user's own has said its entries now
        found = (training.progress.history.history.get(self.monitor) or [None])[-1]
        value = real(found)
        if value is None:
            raise ValueError(
                f"{self._name} monitor: wanted a number of each epoch in the history's {self.monitor!r}, received "
                f"{found!r:.100}"
            )
        sign = 1 if self.mode == "min" else -1
        better = sign * value < sign * self.best - (self.min_delta if self.best != self._worst else 0.0)
        if better:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return better


class ReduceLROnPlateau(Watching):
    """Multiplies the learning rate by `factor` once `monitor` has not become better for `patience` epochs in a row.

    cooldown: epochs after that which do not count; min_lr: the least rate. The optimizer's rate must be a number, not a
    schedule: ValueError at the start otherwise. The rate stays as it is at the end; a checkpoint keeps it. See
    `Watching` for the others.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile(optimizer.SGD(lr=1e-9), "mse")
    >>> lowering = callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=2)
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), epochs=3, callbacks=lowering, verbose=False)
    >>> net.optimizer.lr
    5e-10
    """

    sets_rate = True

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        mode: str = "auto",
    ) -> None:
        super().__init__(monitor, min_delta, mode)
        self.factor = fraction("ReduceLROnPlateau factor", factor)
        self.patience = integer("ReduceLROnPlateau patience", patience, 0)
        self.cooldown = integer("ReduceLROnPlateau cooldown", cooldown, 0)
        self.min_lr = at_least_zero("ReduceLROnPlateau min_lr", min_lr)
        self._cooling = 0
        self._rate: float | None = None

    def go_on(self, training: Training, kept: dict[str, object]) -> None:
        """As of `Watching`; the rate is that of the checkpoint."""
        optimizer = _optimizer(training)
        if not isinstance(optimizer.schedule, Constant):
            raise ValueError(
                f"ReduceLROnPlateau: wanted an optimizer with a number as lr, received the schedule "
                f"{optimizer.schedule!r}, which would set it anew at each step"
            )
        super().go_on(training, kept)
        cooling, rate = kept.get("cooling"), kept.get("lr")
        self._cooling = cooling if isinstance(cooling, int) else 0
        if isinstance(rate, float):
            optimizer.lr = rate
        self._rate = optimizer.lr

    def state(self) -> dict[str, object]:
        """See `Callback.state`."""
        return super().state() | {"cooling": self._cooling, "lr": self._rate}

    def on_epoch(self, training: Training) -> None:
        """Lower the rate if it is time."""
        better = self.is_better(training)
        if self._cooling:
            self._cooling -= 1
            self.waited = 0
        optimizer = _optimizer(training)
        if not better and self.waited >= max(self.patience, 1) and optimizer.lr > self.min_lr:
            optimizer.lr = max(optimizer.lr * self.factor, self.min_lr)
            self.waited, self._cooling = 0, self.cooldown
        self._rate = optimizer.lr


def _optimizer(training: Training) -> Optimizer:
    if training.net.optimizer is None:
        raise ValueError("ReduceLROnPlateau: wanted a compiled net, received one without an optimizer")
    return training.net.optimizer
