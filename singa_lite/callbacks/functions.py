"""LambdaCallback: functions as a callback."""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.common.keywords import accepts_arguments
from singa_lite.training.fit import Callback, Training

#: What is called with the training.
Function = Callable[[Training], object]


class LambdaCallback(Callback):
    """Calls functions on the way of `fit`: each with the `Training`, `on_end` with (training, error).

    What they return is not looked at; StopTraining that one raises ends the training. TypeError for what cannot be
    called so.
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
            if function is not None and not accepts_arguments(function, len(arguments)):
                raise TypeError(
                    f"LambdaCallback {name}: wanted a function of ({', '.join(arguments)}) or None, received "
                    f"{function!r:.100}"
                )
        self._start, self._batch, self._validation = on_start, on_batch, on_validation_batch
        self._epoch, self._end = on_epoch, on_end
        self.enters = on_start is not None or on_epoch is not None

    def on_start(self, training: Training) -> None:
        """See `Callback`."""
        _call(self._start, training)

    def on_batch(self, training: Training) -> None:
        """See `Callback`."""
        _call(self._batch, training)

    def on_validation_batch(self, training: Training) -> None:
        """See `Callback`."""
        _call(self._validation, training)

    def on_epoch(self, training: Training) -> None:
        """See `Callback`."""
        _call(self._epoch, training)

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """See `Callback`."""
        if self._end is not None:
            self._end(training, error)


def _call(function: Function | None, training: Training) -> None:
    if function is not None:
        function(training)
