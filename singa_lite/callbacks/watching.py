"""Callbacks on an entry of the history: where it gets no better, one ends the training, one lowers the rate."""

from __future__ import annotations

from math import inf

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.checks import at_least_zero, flag, fraction, integer, real
from singa_lite.common.notice import warn
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.optimizer import Optimizer
from singa_lite.optimizer.schedule import Constant
from singa_lite.snapshots import Checkpoint
from singa_lite.snapshots.checkpoints.folder import BEST
from singa_lite.tensor import Tensor, to_numpy
from singa_lite.training.fit import Callback, StopTraining, Training
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


class EarlyStopping(Watching):
    """Ends the training once `monitor` has not become better for `patience` epochs in a row.

    patience 0 and 1 both stop at the first epoch that is no better. start_from_epoch: so many epochs at the beginning
    are passed over, and none of them is the best. restore_best: at the end, whatever ended it without an error, and
    within an epoch too, the net gets the parameters and running statistics of the best epoch, and so do the other nets
    of `compile(nets=)`; the optimizer stays as it is. They are read from best.h5 where a `Checkpoint` behind this
    callback has the same monitor and mode and min_delta is 0; otherwise they are copied to the host at each best epoch,
    each copy into the bytes of the one before: as many as the net has. best_epoch: counted from 0, None before one.

    ```python
    callbacks.EarlyStopping("val_loss", patience=5, restore_best=True, start_from_epoch=10)
    ```

    See `Watching` for the others.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile(optimizer.SGD(lr=0.0), "mse")  # a rate at which nothing becomes better
    >>> stopping = callbacks.EarlyStopping("loss", patience=2)
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), epochs=10, callbacks=stopping, verbose=False)
    >>> len(history["loss"])
    3
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 0,
        min_delta: float = 0.0,
        mode: str = "auto",
        restore_best: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, min_delta, mode)
        self.patience = integer("EarlyStopping patience", patience, 0)
        self.restore_best = flag("EarlyStopping restore_best", restore_best)
        self.start_from_epoch = integer("EarlyStopping start_from_epoch", start_from_epoch, 0)
        self.best_epoch: int | None = None
        self._copies: dict[str, Array] = {}

    def go_on(self, training: Training, kept: dict[str, object]) -> None:
        """As of `Watching`. StopTraining where the checkpoint is of a training that this ended."""
        super().go_on(training, kept)
        epoch = kept.get("best_epoch")
        self.best_epoch, self._copies = epoch if isinstance(epoch, int) else None, {}
        if self._stands_at_best(training):
            self._remember(training)
        if kept and self._is_patience_spent:
            raise StopTraining

    def state(self) -> dict[str, object]:
        """See `Callback.state`."""
        return super().state() | {"best_epoch": self.best_epoch}

    @property
    def _is_patience_spent(self) -> bool:
        return self.waited >= max(self.patience, 1)

    def on_epoch(self, training: Training) -> None:
        """StopTraining if it is time."""
        if training.progress.epoch <= self.start_from_epoch:
            return
        if self.is_better(training):
            self.best_epoch = training.progress.epoch - 1
            self._remember(training)
        elif self._is_patience_spent:
            raise StopTraining

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """Bring back the best, unless an error ended the training."""
        copies, self._copies = self._copies, {}
        if error is not None or not self.restore_best or self.best_epoch is None or self._stands_at_best(training):
            return
        checkpoint = self._checkpoint(training)
        if copies:
            for name, value in _values(training).items():
                value.copy_from_numpy(copies[name])
        elif checkpoint is not None:
            _net(training).load(checkpoint.folder.path / BEST, optimizer=False)
        else:
            warn(
                f"EarlyStopping restore_best: the best epoch, {self.best_epoch}, was before the checkpoint that this "
                f"run went on from; Checkpoint(..., monitor={self.monitor!r}, mode={self.mode!r}) behind it keeps it"
            )

    def _stands_at_best(self, training: Training) -> bool:
        """Whether the net is as the best epoch left it: no batch was trained since."""
        return training.progress.epoch - 1 == self.best_epoch and training.progress.batch == 0

    def _remember(self, training: Training) -> None:
        """Copy the net as it stands into the memory of the copy before, unless a checkpoint will hold it."""
        if not self.restore_best:
            return
        checkpoint = self._checkpoint(training)
        if checkpoint is not None and checkpoint.monitor.is_best(training.progress.history):
            self._copies = {}
            return
        for name, value in _values(training).items():
            array = value.device.array(value)
            found = array if isinstance(array, np.ndarray) else to_numpy(value)  # else of a GPU
            if name not in self._copies:
                self._copies[name] = np.empty_like(found)
            np.copyto(self._copies[name], found)

    def _checkpoint(self, training: Training) -> Checkpoint | None:
        """The callback that keeps the best epoch, and ends before this one. It knows no min_delta, and one net."""
        if self.min_delta or _net(training).trainer.nets:
            return None
        for each in training.callbacks[training.callbacks.index(self) + 1 :]:
            if not isinstance(each, Checkpoint) or each.monitor.entry != self.monitor:
                continue
            if training.direction("Checkpoint", self.monitor, each.monitor.given_mode) == self.mode:
                return each
        return None


def _net(training: Training) -> FeedForwardNet:
    if not isinstance(training.net, FeedForwardNet):
        raise TypeError(f"EarlyStopping restore_best: wanted a FeedForwardNet, received {type(training.net).__name__}")
    return training.net


def _values(training: Training) -> dict[str, Tensor]:
    """Parameters and running statistics of all nets that are trained, by name."""
    nets = {"": _net(training), **_net(training).trainer.nets}
    return {
        f"{which} {name}": value
        for which, net in nets.items()
        for name, value in (*net.parameters().items(), *net.states().items())
    }
