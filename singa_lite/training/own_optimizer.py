"""An optimizer of the user's own: what of its code is called at each batch, and what while a step is recorded alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from types import FunctionType

from singa_lite.autograd.watching.outside import names_read_by
from singa_lite.autograd.watching.reached import reached
from singa_lite.autograd.watching.read_names import stored_names
from singa_lite.common.described import is_ours, options_of
from singa_lite.common.errors import GraphError
from singa_lite.optimizer import Optimizer
from singa_lite.optimizer.schedule import Constant

_COUNTS = frozenset({"step", "_step", "_begun", "_updated"})
_RATES = frozenset({"lr", "schedule", "_schedule", "_rate"})


def owners(optimizer: Optimizer) -> Iterator[object]:
    """It, and what its rules hold, where these are of the user's classes."""
    yield from (each for each in (optimizer, *optimizer.parts) if not is_ours(type(each)))


def begins_by_itself(optimizer: Optimizer) -> bool:
    """Whether it has its own way to begin a step, so that `count_step` alone would leave something out."""
    return type(optimizer).begin_step is not Optimizer.begin_step


def rate_read_by(optimizer: Optimizer) -> Callable[[], Hashable] | None:
    """The rate that its updates read as a number, where they do so."""
    return (lambda: float(optimizer.lr)) if _RATES & _read(optimizer) else None


def check(optimizer: Optimizer, where: str) -> None:
    """GraphError for one of the user's whose updates go by another number at each step, or set what no replay reads."""
    name, read, kind = type(optimizer).__name__, _read(optimizer), type(optimizer)
    instead = "keep it in a tensor of its state, or compile(graph=False)"
    found = ""
    if read & _COUNTS:
        found = f"one that reads {_first(read & _COUNTS)}, which is another one at each step"
    elif read & _RATES and not isinstance(optimizer.schedule, Constant):
        found = f"one that reads {_first(read & _RATES)} beside a schedule: rate(device) is a tensor of it"
    elif stored := _RATES & _stored(reached(kind)):
        found = f"one that sets {_first(stored)} in them; begin_step() may, and a schedule is a function of the step"
    elif frozen := _stored(reached(kind, kind.at_each_batch)) & (read | _options(optimizer)):
        found = f"one whose begin_step() sets {_first(frozen)}, which updates read"
    if found:
        raise GraphError(
            f"{where}: wanted updates of {name} that do the same operations at each step, as they are recorded and "
            f"replayed, received {found}; {instead}"
        )


def _read(optimizer: Optimizer) -> set[str]:
    return {name for each in reached(type(optimizer)) for name in names_read_by(each)}


def _stored(functions: Iterator[FunctionType]) -> set[str]:
    return {name for each in functions for name in stored_names(each.__code__)}


def _options(optimizer: Optimizer) -> set[str]:
    """What updates of this package's classes go by, but for the rate."""
    known = {name for kind in type(optimizer).__mro__ for name in options_of(kind)}
    return {"weight_decay", "settings", "regularizer", "constraint", *known} - _RATES


def _first(names: Collection[str]) -> str:
    return min(names)
