"""ReduceLROnPlateau: lowers the learning rate where the training gets no better."""

from __future__ import annotations

from singa_lite.callbacks.watching import Watching
from singa_lite.common.checks import at_least_zero, fraction, integer
from singa_lite.optimizer import Optimizer
from singa_lite.optimizer.schedule import Constant
from singa_lite.training.fit import Training


class ReduceLROnPlateau(Watching):
    """Multiplies the learning rate by `factor` once `monitor` has not become better for `patience` epochs in a row.

    cooldown: epochs after that which do not count; min_lr: the least rate. The optimizer's rate must be a number, not a
    schedule: ValueError at the start otherwise. The rate stays as it is at the end; a checkpoint keeps it. See
    `Watching` for the others.
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
