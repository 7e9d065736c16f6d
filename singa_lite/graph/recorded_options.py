"""RecordedOptions: the objects by whose options a step was recorded, and the tensors that were parameters then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol
from weakref import ReferenceType, ref

from singa_lite.common.errors import GraphError
from singa_lite.common.option_version import VERSION, Versioned
from singa_lite.tensor import Tensor


class Optioned(Protocol):
    """An object whose options have a version, see `option_version`."""

    option_change: tuple[int, str]


class Renewing(Optioned, Protocol):
    """An optimizer, whose rate is written before each run of a record that it was recorded in by hand."""

    def renew_rate(self) -> None: ...


class RecordedOptions:
    """What a record was made by: layers, losses, metrics, optimizers, and tensors that train or do not.

    A record by hand is refused where one of them was changed since; a net records its step again.
    """

    def __init__(self) -> None:
        self._noted: dict[int, tuple[Optioned, int]] = {}
        self._tensors: dict[int, tuple[ReferenceType[Tensor], bool]] = {}
        self._optimizers: list[ReferenceType[Renewing]] = []
        self._objects: list[tuple[ReferenceType[Optioned], int]] = []
        self._number = VERSION.number
        self._goes_back = False

    def note(self, *things: Optioned) -> None:
        """The operations that are recorded depend on the options of these, and of objects among their attributes.

        An option that is set later within the recording counts as one that is set after it.
        """
        for thing in things:
            if id(thing) not in self._noted:
                self._noted[id(thing)] = thing, thing.option_change[0]
                self.note(*_attributes(thing))

    def note_optimizer(self, optimizer: Renewing) -> None:
        """A parameter is updated by it."""
        if id(optimizer) not in self._noted:
            self._optimizers.append(ref(optimizer))
        self.note(optimizer)

    def note_tensors(self, tensors: Iterable[Tensor | None]) -> None:
        """These come from outside the record, and go on its tape or are updated."""
        for tensor in tensors:
            if tensor is not None and tensor.creator is None:
                known = self._tensors.get(id(tensor))
                if known is None or known[0]() is not tensor:
                    self._tensors[id(tensor)] = ref(tensor), tensor.stores_grad

    def note_walk(self) -> None:
        """A walk back begins, which reaches the tensors that train."""
        self._goes_back = True

    def settle(self) -> None:
        """The recording is over: options are what must stay."""
        self._objects = [(ref(thing), number) for thing, number in self._noted.values()]
        self._noted.clear()
        kept = self._tensors if self._goes_back else {}
        self._tensors = {key: one for key, one in kept.items() if one[0]() is not None}

    def hold(self) -> bool:
        """Whether all options are as they were: one comparison, unless some option of the process was set since."""
        if self._number == VERSION.number:
            return True
        number = VERSION.number
        if self.changed():
            return False
        self._number = number
        return True

    def changed(self) -> str:
        """The object and the option that was set, in words; "" where nothing was."""
        for kept, number in self._objects:
            thing = kept()
            if thing is not None and thing.option_change[0] != number:
                name = getattr(thing, "path", "")
                return f"{thing.option_change[1]} of {type(thing).__name__}{name and f' {name!r}'}"
        for tensor, trained in self._tensors.values():
            value = tensor()
            if value is not None and value.stores_grad != trained:
                return f"stores_grad of {value.name or 'a tensor'!r}"
        return ""

    def check(self) -> None:
        """Before a run by hand: GraphError where an option was set; an optimizer's rate may change, and is written."""
        if not self.hold():
            raise GraphError(
                f"run: wanted all options as when the expression was recorded, received another {self.changed()}; "
                "record it again"
            )
        for kept in self._optimizers:
            optimizer = kept()
            if optimizer is not None:
                optimizer.renew_rate()


def reached(things: Iterable[Optioned]) -> Iterable[Optioned]:
    """Returns objects with options, and those among their attributes, at any depth, each once."""
    found: dict[int, Optioned] = {}
    rest = list(things)
    while rest:
        thing = rest.pop()
        if id(thing) not in found:
            found[id(thing)] = thing
            rest += _attributes(thing)
    return found.values()


def _attributes(thing: Optioned) -> Iterator[Versioned]:
    """The objects with options among an object's attributes, and in lists, tuples and dicts that are attributes.

    Not what is read at each step, such as a schedule.
    """
    live = getattr(thing, "live_options", ())
    for value in (each for name, each in vars(thing).items() if name.lstrip("_") not in live):
        within = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        yield from (each for each in within if isinstance(each, Versioned))
