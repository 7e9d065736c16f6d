"""Calls of `fit`'s callbacks: each is called though another one ends the training, and has only known methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from singa_lite.common.keywords import accepts_arguments

T = TypeVar("T")
#: What ends a callback's work; it is given the error that ends the training, or None.
End = Callable[[BaseException | None], object]


class StopTraining(Exception):
    """Ends the training without an error when a callback raises it: `fit` returns the history of the whole epochs.

    The other callbacks still see the batch or the epoch at whose end it was raised.

    >>> class Enough(callbacks.Callback):
    ...     def on_batch(self, training):
    ...         raise callbacks.StopTraining
    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), 2, callbacks=Enough(), verbose=False)
    >>> net.optimizer.step
    1
    """


def is_stop(error: BaseException) -> bool:
    """Whether a callback has raised it between two steps, as it was asked to leave, and on all ranks alike."""
    return getattr(error, "singa_lite_left", False)


def call_each(callbacks: Sequence[T], call: Callable[[T], object]) -> None:
    """Call it with each callback. StopTraining of one is raised after the last: all see each batch and epoch."""
    stopped: StopTraining | None = None
    for callback in callbacks:
        try:
            call(callback)
        except StopTraining as raised:
            stopped = stopped or raised
    if stopped is not None:
        raise stopped


def call_each_end(ends: list[End], error: BaseException | None) -> None:
    """Call each, the last one first, also if another fails. The end cannot be stopped by StopTraining."""
    if ends:
        *others, last = ends
        try:
            with suppress(StopTraining):
                last(error)
        except BaseException as raised:
            call_each_end(others, raised)
            raise
        call_each_end(others, error)


#: {method of Keras's callbacks: the one that is called here}.
_HERE: dict[str, str] = {
    "on_train_begin": "on_start",
    "on_train_batch_end": "on_batch",
    "on_batch_end": "on_batch",
    "on_test_batch_end": "on_validation_batch",
    "on_epoch_end": "on_epoch",
    "on_train_end": "on_end",
}
#: Those that have none: {method: what to use}.
_NONE: dict[str, str] = {
    "on_epoch_begin": "on_epoch of the one before, or on_start",
    "on_train_batch_begin": "on_batch of the one before",
    "on_batch_begin": "on_batch of the one before",
    "on_test_begin": "on_validation_batch",
    "on_test_end": "on_epoch",
}


#: What is called, with which arguments.
_CALLED: dict[str, str] = dict.fromkeys(("on_start", "on_batch", "on_validation_batch", "on_epoch"), "training") | {
    "on_end": "training, error",
    "state": "",
    "restore": "state",
}


def check_calls(callback: object) -> None:
    """TypeError for a method that is called with other arguments than it takes."""
    for name, arguments in _CALLED.items():
        if not accepts_arguments(getattr(callback, name), len(arguments.split())):
            raise TypeError(
                f"fit callbacks: wanted a method {name}({arguments}), received {type(callback).__name__} with one that "
                "cannot be called so"
            )


def check_methods(callback: object) -> None:
    """TypeError for a method of Keras's, which nothing here would ever call: it names those that are called."""
    for name, here in (_HERE | _NONE).items():
        if callable(getattr(callback, name, None)):
            wanted = f"{here}(training, error)" if here == "on_end" else f"{here}(training)" if name in _HERE else here
            raise TypeError(
                f"fit callbacks: wanted {wanted} in the place of {name}, which nothing calls, received "
                f"{type(callback).__name__} with it"
            )
