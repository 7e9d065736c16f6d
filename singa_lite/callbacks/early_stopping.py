"""EarlyStopping: ends the training where it gets no better."""

from __future__ import annotations

import numpy as np

from singa_lite.callbacks.watching import Watching
from singa_lite.common.array_types import Array
from singa_lite.common.checks import flag, whole
from singa_lite.common.notice import warn
from singa_lite.fit import StopTraining, Training
from singa_lite.net import FeedForwardNet
from singa_lite.snapshots import Checkpoint
from singa_lite.snapshots.checkpoints.folder import BEST
from singa_lite.tensor import Tensor, to_numpy


class EarlyStopping(Watching):
    """Ends the training once `monitor` has not become better for `patience` epochs in a row.

    patience 0 and 1 both stop at the first epoch that is no better. restore_best: at the end, whatever ended it without
    an error, the net gets the parameters and running statistics of the best epoch; the optimizer stays as it is. They
    are read from best.h5 where a `Checkpoint` behind this callback has the same monitor and mode; otherwise they are
    copied to the host at each best epoch, as many bytes as the net has. best_epoch: counted from 0, None before one.
    See `Watching` for the others.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 0,
        min_delta: float = 0.0,
        mode: str = "auto",
        restore_best: bool = False,
    ) -> None:
        super().__init__(monitor, min_delta, mode)
        self.patience = whole("EarlyStopping patience", patience, 0)
        self.restore_best = flag("EarlyStopping restore_best", restore_best)
        self.best_epoch: int | None = None
        self._copies: dict[str, Array] = {}

    def go_on(self, training: Training, kept: dict[str, object]) -> None:
        """As of `Watching`. StopTraining where the checkpoint is of a training that this ended."""
        super().go_on(training, kept)
        epoch = kept.get("best_epoch")
        self.best_epoch, self._copies = epoch if isinstance(epoch, int) else None, {}
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
        if self.is_better(training):
            self.best_epoch = training.progress.epoch - 1
            if self.restore_best and self._checkpoint(training) is None:
                self._copies = {name: np.array(to_numpy(value)) for name, value in _values(training).items()}
        elif self._is_over:
            raise StopTraining

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """Bring back the best, unless an error ended the training."""
        copies, self._copies = self._copies, {}
        if error is not None or not self.restore_best or self.best_epoch in (None, training.progress.epoch - 1):
            return
        checkpoint = self._checkpoint(training)
        if checkpoint is not None and isinstance(training.net, FeedForwardNet):
            training.net.load(checkpoint.folder.path / BEST, optimizer=False)
        elif copies:
            for name, value in _values(training).items():
                value.copy_from_numpy(copies[name])
        else:
            warn(
                f"EarlyStopping restore_best: the best epoch, {self.best_epoch}, was before the checkpoint that this "
                f"run went on from; Checkpoint(..., monitor={self.monitor!r}, mode={self.mode!r}) behind it keeps it"
            )

    def _checkpoint(self, training: Training) -> Checkpoint | None:
        """The callback that keeps the best epoch, and ends before this one."""
        behind = training.callbacks[training.callbacks.index(self) + 1 :]
        for each in behind:
            if isinstance(each, Checkpoint) and (each.monitor.entry, each.monitor.mode) == (self.monitor, self.mode):
                return each
        return None


def _values(training: Training) -> dict[str, Tensor]:
    """Parameters and running statistics by name."""
    net = training.net
    if not isinstance(net, FeedForwardNet):
        raise TypeError(f"EarlyStopping restore_best: wanted a FeedForwardNet, received {type(net).__name__}")
    return {**net.parameters(), **net.states()}
