"""Watch: whether what a recorded step was made by, options of layers, losses and optimizers, is still as it was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TypeAlias

import numpy as np

from singa_lite.array_types import Array
from singa_lite.device import Device
from singa_lite.layer_graph import LayerGraph
from singa_lite.tensor import Tensor

#: Larger containers and arrays than this are known by their identity alone.
LARGEST = 4096

#: Objects that are known by their identity: what they hold is data, or no option.
_OPAQUE = (Tensor, Device, LayerGraph, type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)
_MISSING = object()

#: What may change in place: attributes of an object are the dict that holds them.
Container: TypeAlias = dict[object, object] | list[object] | set[object] | Array

_flags = attrgetter("_stores_grad", "requires_grad", "name")


def _nothing() -> None:
    """Where nothing is read from outside."""


class Watch:
    """Notes the attributes of some objects, and of what these hold, before a step is recorded by them.

    roots: the objects; ignoring: {root's index: its attributes that are no options}; outside: what tells further
    values, those that functions read. Seen are attributes, lists, sets, dicts and small arrays, however deep; not seen
    is what slots or native code hide.
    What the recording itself changes (a counter of a layer's own) is no option, and is left out by `settle`.
    """

    def __init__(
        self,
        roots: Iterable[object],
        ignoring: Mapping[int, Collection[str]] | None = None,
        outside: Callable[[], Hashable] | None = None,
    ) -> None:
        self._roots = list(roots)
        self._outside = outside or _nothing
        self._ignored: dict[int, set[object]] = {
            id(vars(self._roots[index])): set(names) for index, names in (ignoring or {}).items()
        }
        self._changing: set[int] = set()
        self._before = {id(thing): (thing, _copy(thing)) for thing in self._containers(self._roots)}

    def settle(self, further: Iterable[object], tensors: Iterable[Tensor]) -> None:
        """Call it after the recording: what is there now is what must stay.

        further: containers that only now are as they must stay; tensors: whose marks (a parameter or not) matter.
        """
        for thing, copy in self._before.values():
            if not _same(thing, copy):
                self._leave_out(thing, copy)
        del self._before
        self._read = self._outside()
        plain: list[Container] = []
        partial: list[tuple[dict[object, object], set[object]]] = []
        arrays: list[Array] = []
        for thing in self._containers([*self._roots, *further]):
            if isinstance(thing, np.ndarray):
                arrays.append(thing)
            elif isinstance(thing, dict) and id(thing) in self._ignored:
                partial.append((thing, self._ignored[id(thing)]))
            elif id(thing) not in self._changing:
                plain.append(thing)
        self._plain, self._plain_copies = plain, [_copy(thing) for thing in plain]
        self._partial = [(thing, ignored, _without(thing, ignored)) for thing, ignored in partial]
        self._arrays = [(array, array.tobytes()) for array in arrays if id(array) not in self._changing]
        self._tensors = list(tensors)
        self._marks = [_flags(tensor) for tensor in self._tensors]

    def holds(self) -> bool:
        """Whether all is as it was. Made to be asked at each batch."""
        try:
            return (
                self._plain == self._plain_copies
                and list(map(_flags, self._tensors)) == self._marks
                and all(_without(thing, ignored) == copy for thing, ignored, copy in self._partial)
                and all(array.tobytes() == copy for array, copy in self._arrays)
                and self._outside() == self._read
            )
        except Exception:  # of an object's own comparison, such as that of two arrays
            return False

    def _leave_out(self, thing: Container, copy: object) -> None:
        """What recording itself changed is no option."""
        if not isinstance(thing, dict) or not isinstance(copy, dict):
            self._changing.add(id(thing))
            return
        keys = [key for key in (*thing, *copy) if not _same(thing.get(key, _MISSING), copy.get(key, _MISSING))]
        self._ignored.setdefault(id(thing), set()).update(keys)

    def _containers(self, roots: Iterable[object]) -> Iterator[Container]:
        """All that may change in place and is reached from the roots, each once."""
        seen: set[int] = set()
        left = list(roots)
        while left:
            thing = left.pop()
            if id(thing) in seen or isinstance(thing, _OPAQUE):
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
            elif hasattr(thing, "__dict__"):
                left += list(vars(thing).values()) if _is_frozen(thing) else [vars(thing)]

    def _members(self, thing: dict[object, object] | Iterable[object]) -> Iterable[object]:
        """What a container holds; of a dict the values that are not ignored."""
        if not isinstance(thing, dict):
            return thing
        return _without(thing, self._ignored.get(id(thing), ())).values()


def _is_frozen(thing: object) -> bool:
    """Whether it is of a dataclass whose attributes cannot be set."""
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


def _copy(thing: Container) -> Container | bytes:
    if isinstance(thing, np.ndarray):
        return thing.tobytes()
    if isinstance(thing, dict):
        return dict(thing)
    return list(thing) if isinstance(thing, list) else set(thing)


def _without(thing: Mapping[object, object], ignored: Collection[object]) -> dict[object, object]:
    return {key: value for key, value in thing.items() if key not in ignored}


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    try:
        return bool((one.tobytes() if isinstance(one, np.ndarray) and isinstance(other, bytes) else one) == other)
    except Exception:  # of an object's own comparison, such as that of two arrays
        return False
