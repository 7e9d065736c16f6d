"""What an expression that updates parameters was recorded by: it is run with the same, or there is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import ReferenceType, ref

from singa_lite.autograd.watching.unchanged import Unchanged
from singa_lite.common.described import Described, is_ours
from singa_lite.common.errors import GraphError
from singa_lite.graph.graph import Graph
from singa_lite.optimizer.rules import Rule
from singa_lite.tensor import Tensor


class Updating(Protocol):
    """What is asked here of an optimizer."""

    weight_decay: float
    settings: dict[str, float]

    @property
    def rules(self) -> Sequence[Rule]: ...

    @property
    def parts(self) -> Sequence[object]: ...

    def renew_rate(self) -> None: ...


class _AsRecorded:
    """Called before each run of the record: writes the rate, and refuses what a record cannot follow."""

    def __init__(self, optimizer: Updating) -> None:
        self._optimizer = optimizer
        self._options = _options(optimizer)
        self._marks: list[tuple[ReferenceType[Tensor], bool]] = []
        others = (part for part in (optimizer, *optimizer.parts) if not is_ours(type(part)))
        self._others = [Unchanged(part) for part in others]

    def add(self, value: Tensor) -> None:
        """A parameter that is updated."""
        self._marks.append((ref(value), value.stores_grad))

    def settle(self) -> None:
        """The recording is over."""
        for other in self._others:
            other.settle()

    def __call__(self) -> None:
        name = type(self._optimizer).__name__
        now = _options(self._optimizer)
        if now != self._options:
            changed = [what for what, value in now.items() if value != self._options.get(what)]
            raise GraphError(
                f"run: wanted {name} as it was when the expression was recorded, received another "
                f"{', '.join(changed or self._options)}; record it again (a rate may change at any time)"
            )
        for kept, trained in self._marks:
            value = kept()
            if value is not None and value.stores_grad != trained:
                raise GraphError(
                    f"run: wanted stores_grad={trained} of {value.name or 'a tensor'!r}, which the expression updates, "
                    f"as when it was recorded, received {value.stores_grad}; record it again"
                )
        for other in self._others:
            other()
        self._optimizer.renew_rate()


def note_update(graph: Graph, optimizer: Updating, value: Tensor) -> None:
    """A parameter is updated within a recording."""
    noted = graph.made_by(optimizer, _AsRecorded)
    if isinstance(noted, _AsRecorded):
        noted.add(value)


def _options(optimizer: Updating) -> dict[str, object]:
    """All that an update is recorded with, by name."""
    found: dict[str, object] = {**optimizer.settings, "weight_decay": optimizer.weight_decay}
    for rule in optimizer.rules:
        parts = [each._given if isinstance(each, Described) else None for each in (rule.regularizer, rule.constraint)]
        found[f"rule {rule.pattern!r}"] = (rule, *map(id, parts))
    return found
