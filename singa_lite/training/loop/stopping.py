"""A callback ends the training; the other callbacks are called all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
#: What ends a callback's work; it is given the error that ends the training, or None.
End = Callable[[BaseException | None], object]


class StopTraining(Exception):
    """Raised by a callback: `fit` ends here, without an error, and returns the history of the whole epochs.

    The other callbacks still see the batch or the epoch at whose end it was raised.
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
