"""Watch: whether what a recorded step was made by, options of layers, losses and optimizers, is still as it was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TypeAlias

import numpy as np

from singa_lite.autograd.watching.closed_over import LARGEST, objects_of, outside_values
from singa_lite.common.array_types import Array
from singa_lite.common.described import is_ours
from singa_lite.device import Device
from singa_lite.tensor import Tensor

#: Objects that are known by their identity: what they hold is data, or no option. So are those of classes with a true
#: `known_by_identity`, as nets are.
_OPAQUE = (Tensor, Device, type, ModuleType, MethodType, BuiltinFunctionType)
_MISSING = object()

#: What may change in place: attributes of an object are the dict that holds them, and a function may read others.
Container: TypeAlias = dict[object, object] | list[object] | set[object] | Array | FunctionType

_flags = attrgetter("_stores_grad", "requires_grad", "name")


class Watch:
    """Notes the attributes of some objects, and of what these hold, before a step is recorded by them.

    roots: the objects; ignoring: {root's index: its attributes that are no options}; apart: kinds of further objects
    that are known by their identity, where a root holds some; outside: what tells further values, those that methods
    read. Seen are attributes, lists, sets, dicts and small arrays, however deep, and the numbers, texts and flags that
    functions among them read from outside; not seen is what slots or native code hide.
    What the recording itself changes (a counter of a layer's own) is no option, and is left out by `settle`.
    """

    def __init__(
        self,
        roots: Iterable[object],
        ignoring: Mapping[int, Collection[str]] | None = None,
        *,
        apart: tuple[type, ...] = (),
        outside: Callable[[], Hashable] | None = None,
    ) -> None:
        self._roots = list(roots)
        self._apart = apart
        self._outside = outside
        self._ignored: dict[int, set[object]] = {
            id(vars(self._roots[index])): set(names) for index, names in (ignoring or {}).items()
        }
        self._changing: set[int] = set()
        #: {id of the dict of its attributes: an object}
        self._objects: dict[int, object] = {}
        self._before = {id(thing): (thing, _copy(thing)) for thing in self._containers(self._roots)}

    def settle(self, further: Iterable[object], tensors: Iterable[Tensor]) -> None:
        """Call it after the recording: what is there now is what must stay.

        further: containers that only now are as they must stay; tensors: whose marks (a parameter or not) matter.
        """
        for thing, copy in self._before.values():
            if not _is_unchanged(thing, copy):
                self._leave_out(thing, copy)
        del self._before
        self._read = None if self._outside is None else self._outside()
        plain: list[Container] = []
        in_part: list[tuple[dict[object, object], set[object]]] = []
        told: list[Array | FunctionType] = []
        for thing in self._containers([*self._roots, *further]):
            if isinstance(thing, np.ndarray | FunctionType):
                told.append(thing)
            elif isinstance(thing, dict) and id(thing) in self._ignored:
                in_part.append((thing, self._ignored[id(thing)]))
            elif id(thing) not in self._changing:
                plain.append(thing)
        self._plain, self._plain_copies = plain, [_copy(thing) for thing in plain]
        self._in_part = [_Part(thing, ignored) for thing, ignored in in_part]
        self._told = [(thing, _copy(thing)) for thing in told if id(thing) not in self._changing]
        self._tensors = list(tensors)
        self._marks = [_flags(tensor) for tensor in self._tensors]

    def changed(self) -> Iterator[tuple[object, object, object, object]]:
        """Before `settle`: (an object, or what else changed in place; a name, key or place in it; value then; now)."""
        for thing, copy in self._before.values():
            if not _is_unchanged(thing, copy):
                then, now = _by_name(copy), _by_name(thing if isinstance(thing, dict | list | set) else _copy(thing))
                for name in then.keys() & now.keys() - self._ignored.get(id(thing), set()):
                    if not _is_unchanged(then[name], now[name]):
                        yield self._objects.get(id(thing), thing), name, then[name], now[name]

    @property
    def objects(self) -> list[object]:
        """Those whose attributes are seen."""
        return list(self._objects.values())

    @property
    def functions(self) -> list[FunctionType]:
        """Before `settle`: the user's functions among what is seen."""
        return [thing for thing, _ in self._before.values() if isinstance(thing, FunctionType)]

    def names_of(self, thing: object) -> set[str]:
        """Names of attributes that hold it, of objects that are reached."""
        found = (name for each in self.objects for name, value in vars(each).items() if value is thing)
        return set(found)

    def holds(self) -> bool:
        """Whether all is as it was. Made to be asked at each batch."""
        try:
            for part in self._in_part:
                if not part.holds():
                    return False
            return (
                self._plain == self._plain_copies
                and list(map(_flags, self._tensors)) == self._marks
                and (not self._told or all(_copy(thing) == copy for thing, copy in self._told))
                and (self._outside is None or self._outside() == self._read)
            )
        except Exception:  # of an object's own comparison, such as that of two arrays
            return False

    def _leave_out(self, thing: Container, copy: object) -> None:
        """What recording itself changed is no option."""
        if not isinstance(thing, dict) or not isinstance(copy, dict):
            self._changing.add(id(thing))
            return
        keys = [key for key in (*thing, *copy) if not _is_unchanged(thing.get(key, _MISSING), copy.get(key, _MISSING))]
        self._ignored.setdefault(id(thing), set()).update(keys)

    def _containers(self, roots: Iterable[object]) -> Iterator[Container]:
        """All that may change in place and is reached from the roots, each once."""
        seen: set[int] = set()
        left = list(roots)
        while left:
            thing = left.pop()
            if id(thing) in seen or self._is_opaque(thing):
                continue
            seen.add(id(thing))
            if isinstance(thing, dict | list | set | tuple):
                if len(thing) > LARGEST:
                    continue
                left += self._members(thing)
                if not isinstance(thing, tuple):
                    yield thing
            elif isinstance(thing, np.ndarray):
                if thing.nbytes <= LARGEST:
                    yield thing
            elif isinstance(thing, FunctionType):
                if not is_ours(thing):
                    left += objects_of(thing)
                    yield thing
            elif isinstance(thing, partial):
                left += [thing.func, thing.args, thing.keywords]
            elif hasattr(thing, "__dict__"):
                self._objects[id(vars(thing))] = thing
                left += list(vars(thing).values()) if _is_frozen(thing) else [vars(thing)]

    def _is_opaque(self, thing: object) -> bool:
        """Whether it is known by its identity alone."""
        if isinstance(thing, _OPAQUE) or getattr(type(thing), "known_by_identity", False):
            return True
        return isinstance(thing, self._apart) and not any(thing is root for root in self._roots)

    def _members(self, thing: dict[object, object] | Iterable[object]) -> Iterable[object]:
        """What a container holds; of a dict the values that are not ignored."""
        if not isinstance(thing, dict):
            return thing
        return _without_keys(thing, self._ignored.get(id(thing), ())).values()


class _Part:
    """Some of an object's attributes: all that it has but for the ignored ones."""

    def __init__(self, thing: dict[object, object], ignored: Collection[object]) -> None:
        kept = _without_keys(thing, ignored)
        self._thing, self._known = thing, {*kept, *ignored}
        self._values = itemgetter(*kept) if kept else _no_values
        self._copy = self._values(thing)

    def holds(self) -> bool:
        """Whether they are as they were. KeyError where one is gone."""
        return bool(self._values(self._thing) == self._copy and self._thing.keys() <= self._known)


def _no_values(thing: object) -> None:
    """In the place of values where there are none."""


def _is_frozen(thing: object) -> bool:
    """Whether it is of a dataclass whose attributes cannot be set."""
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


def _by_name(values: object) -> dict[object, object]:
    """Values of a container, as they were copied: a function's are pairs of name and value."""
    if isinstance(values, dict):
        return values
    if isinstance(values, bytes):
        return {"values": values}
    if isinstance(values, tuple):
        return dict(values)
    if isinstance(values, list | set):
        return {"length": len(values), **(dict(enumerate(values)) if isinstance(values, list) else {})}
    return {}


def _copy(thing: Container) -> object:
    if isinstance(thing, np.ndarray):
        return thing.tobytes()
    if isinstance(thing, FunctionType):
        return outside_values(thing)
    if isinstance(thing, dict):
        return dict(thing)
    return list(thing) if isinstance(thing, list) else set(thing)


def _without_keys(thing: Mapping[object, object], ignored: Collection[object]) -> dict[object, object]:
    return {key: value for key, value in thing.items() if key not in ignored}


def _is_unchanged(one: object, other: object) -> bool:
    if one is other:
        return True
    is_told = isinstance(one, FunctionType) or (isinstance(one, np.ndarray) and isinstance(other, bytes))
    try:
        return bool((_copy(one) if is_told else one) == other)  # type: ignore[arg-type]
    except Exception:  # of an object's own comparison, such as that of two arrays
        return False
