"""EarlyStopping: ends the training where it gets no better."""

from __future__ import annotations

import numpy as np

from singa_lite.callbacks.plateau import Watching
from singa_lite.common.array_types import Array
from singa_lite.common.checks import flag, integer
from singa_lite.common.notice import warn
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.snapshots import Checkpoint
from singa_lite.snapshots.checkpoints.folder import BEST
from singa_lite.tensor import Tensor, to_numpy
from singa_lite.training.fit import StopTraining, Training


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
        if kept and self._is_over:
            raise StopTraining

    def state(self) -> dict[str, object]:
        """See `Callback.state`."""
        return super().state() | {"best_epoch": self.best_epoch}

    @property
    def _is_over(self) -> bool:
        return self.waited >= max(self.patience, 1)

    def on_epoch(self, training: Training) -> None:
        """StopTraining if it is time."""
        if training.progress.epoch <= self.start_from_epoch:
            return
        if self.is_better(training):
            self.best_epoch = training.progress.epoch - 1
            self._remember(training)
        elif self._is_over:
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
