"""Table: what is in a net or a layer, by name, for reading alone; changes are made by methods that check them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn, TypeVar

from singa_lite.common.errors import GraphError, UnknownNameError

T = TypeVar("T")


class Table(Mapping[str, T]):
    """A view of a dict that cannot be changed through it.

    what: what it holds, for errors; how: the way to change it; without: the message for any name while the table is
    empty. GraphError for a change, UnknownNameError, which is a KeyError, for a name that it lacks.
    """

    __slots__ = ("_items", "_how", "_what", "_without")

    def __init__(self, items: dict[str, T], what: str, how: str, without: str = "") -> None:
        self._items, self._what, self._how, self._without = items, what, how, without

    def __getitem__(self, name: str) -> T:
        if name in self._items:
            return self._items[name]
        if not self._items and self._without:
            raise UnknownNameError(f"{self._what}: {self._without}, received a question for {name!r}")
        raise UnknownNameError(f"{self._what}: wanted one of {list(self._items)}, received {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def _refuse(self, *given: object, **named: object) -> NoReturn:
        """GraphError: nothing is changed here."""
        raise GraphError(f"{self._what}: wanted {self._how}, received a change by hand")

    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse
