"""A training's history as curves, with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What is of the machine and not of the training; and what is drawn only where it is named, as it is no result.
_NOT_DRAWN, _RATE = ("samples_per_second", "high_water"), "lr"


def plot_history(history: Mapping[str, Sequence[object]], names: Sequence[str] = ()) -> Figure:
    """A figure with an axis for each entry, of training and validation in one, by epoch from 1.

    names: the entries, without "val_"; default all that are numbers. ValueError for one that is not there, ImportError
    without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("history.plot: wants matplotlib, pip install matplotlib") from error
    there = [name for name, values in history.items() if _are_numbers(values) and name not in _NOT_DRAWN]
    kinds = list(dict.fromkeys(name.removeprefix("val_") for name in there))
    for name in names:
        if name not in kinds:
            raise ValueError(f"history.plot: wanted names of {kinds}, received {name!r}")
    chosen = list(names) or [name for name in kinds if name != _RATE]
    if not chosen:
        raise ValueError("history.plot: wanted a history of at least one epoch, received one of none")
    figure = Figure(figsize=(4.8 * len(chosen), 3.4), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(chosen), squeeze=False)[0], chosen, strict=True):
        for entry, label in ((name, "training"), (f"val_{name}", "validation")):
            if entry in there:
                values = history[entry]
                axis.plot(range(1, len(values) + 1), values, marker=".", label=label)
        axis.set(title=name, xlabel="epoch")
        axis.legend()
    return figure


def _are_numbers(values: Sequence[object]) -> bool:
    return bool(values) and all(isinstance(value, int | float) for value in values)
