"""Objects that are not copied: memory that is given back once, and objects of libraries that are destroyed once."""

from __future__ import annotations

from typing import ClassVar


class Unique:
    """Base of classes whose objects are neither copied nor pickled: a copy would give back or destroy the same again.

    instead: what to do in its place, for the message of the TypeError.
    """

    __slots__ = ()

    instead: ClassVar[str] = ""

    def __copy__(self) -> object:
        raise self._refused("copied")

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        raise self._refused("copied")

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        raise self._refused("pickled")

    def _refused(self, what: str) -> TypeError:
        advice = f"; {self.instead}" if self.instead else ""
        return TypeError(f"{type(self).__name__}: wanted an object that can be {what}, received one of a kind{advice}")
