"""Kernels that are built once for each combination of tensor specs and settings, then bound to arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from hashlib import blake2b
from pickle import dumps, loads
from typing import Any, Generic, TypeVar

from singa_lite.common import threads
from singa_lite.common.unique import Unique
from singa_lite.kernels.call import Call
from singa_lite.kernels.kernel_set import (
    CallArrays,
    DeviceArray,
    Launch,
    Settings,
    SpecKey,
    TensorSpec,
    TensorSpecs,
    specs_of,
)
from singa_lite.kernels.routine import Routine
from singa_lite.kernels.variants import Variants, stamp

#: Makes the routine for the tensors' specs (positional, None where left out) and settings; None: this set cannot.
AnyRoutine = TypeVar("AnyRoutine", bound=Routine[Any])
Builder = Callable[..., AnyRoutine | None]
#: The same for a call, whose operands have the names of the interface.
CallBuilder = Callable[[Call], AnyRoutine | None]

#: How many routines a kernel keeps for calls to come. Those of a recorded step stay with its launches in any case.
MOST_ROUTINES = 128
#: Of how many calls a kernel knows what scratch they take, some 300 bytes each.
MOST_ANSWERS = 1024


#: Of a routine: its tensors, None where one is left out, its settings, by which table variants are chosen, and of how
#: many threads it is made, where these are a share of all.
_Key = tuple[tuple[SpecKey | None, ...], tuple[tuple[str, object], ...], int, int]
#: Scratch bytes, variant and levels of a call; None where there is no routine for it.
_Answer = tuple[int, str, tuple[int, ...]] | None
_NONE = 0, "", ()
Entry = TypeVar("Entry", bound=Hashable)


class BuiltKernel(Unique, Generic[AnyRoutine]):
    """A kernel whose routines are built once for each combination of tensor specs and settings.

    The oldest go beyond MOST_ROUTINES, and are built again where they are wanted again. variants: the ways in which it
    can be done, `build` being the first; None: that one alone.
    """

    def __init__(self, build: Builder[AnyRoutine], variants: Variants[AnyRoutine] | None = None) -> None:
        self.build = build
        self.variants = variants
        self._built: dict[_Key, tuple[TensorSpecs, AnyRoutine] | None] = {}
        #: What planning asks again and again, kept where routines are forgotten; None between plans, as an empty one
        #: would be made while memory is full, and keep a page of it in use.
        self._answers: dict[_Key, _Answer] | None = None
        #: The same of calls that were asked about before the last `pack`, by digests of their keys, as one object; and
        #: unpacked, while it is asked for.
        self._packed = b""
        self._unpacked: dict[bytes, _Answer] | None = None

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether there is a routine for a call of these tensors."""
        return self._answer(specs, settings) is not None

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Of the routine."""
        return (self._answer(specs, settings) or _NONE)[0]

    def variant(self, specs: TensorSpecs, settings: Settings) -> str:
        """Of the routine; "" where there is but one way."""
        return (self._answer(specs, settings) or _NONE)[1]

    def levels(self, specs: TensorSpecs, settings: Settings) -> tuple[int, ...]:
        """Of the routine; () where it does with no other number of bytes."""
        return (self._answer(specs, settings) or _NONE)[2]

    def _answer(self, specs: TensorSpecs, settings: Settings) -> _Answer:
        key, answers = call_key(specs, settings), self._answers
        if answers is None:  # by this name, as another thread's plan may be over meanwhile: see `pack`
            answers = self._answers = {}
        try:
            return answers[key]
        except KeyError:
            pass
        found = self._found(key, specs, settings)
        drop_oldest(answers, MOST_ANSWERS)
        answers[key] = found
        return found

    def _found(self, key: _Key, specs: TensorSpecs, settings: Settings) -> _Answer:
        """Of a call that was not asked about since the last `pack`."""
        unpacked = self._unpacked
        if self._packed and unpacked is None:
            unpacked = self._unpacked = loads(self._packed)
        digest = _digest(key) if unpacked else b""
        if unpacked and digest in unpacked:
            return unpacked[digest]
        built = self._routine(specs, settings)
        return None if built is None else (built[1].scratch_bytes, built[1].variant, built[1].levels)

    def pack(self) -> None:
        """Keep the answers as one object between plans. They are thousands of small ones, made while planning fills the
        memory, each of which would keep a page of it in use.

        Nets of other threads ask the same kernels at the same time: tables are left to them as they are and replaced by
        new ones, never gone through or emptied. What they learn meanwhile may be lost, and is asked for again.
        """
        answers, self._answers, self._unpacked = self._answers, None, None
        if not answers:
            return
        known = loads(self._packed) if self._packed else {}
        known.update((_digest(key), answer) for key, answer in answers.copy().items())
        drop_oldest(known, MOST_ANSWERS)
        self._packed = dumps(known)

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None, settings: Settings) -> Launch:
        """Bind the routine."""
        specs = specs_of(arrays)
        built = self._routine(specs, settings)
        if built is None:
            raise LookupError(f"{self.build.__name__}: wanted tensors that this kernel serves, received {specs}")
        given, wanted = 0 if scratch is None else scratch.nbytes, min([built[1].scratch_bytes, *built[1].levels])
        if given < wanted:  # the library writes to where it is told, whatever lies there
            raise ValueError(f"{self.build.__name__}: wanted {wanted} bytes of scratch, received {given}")
        return built[1].bind(built[0], arrays, scratch)

    def _routine(self, specs: TensorSpecs, settings: Settings) -> tuple[TensorSpecs, AnyRoutine] | None:
        key = call_key(specs, settings)
        try:
            return self._built[key]
        except KeyError:  # built below, so that an error of the builder does not seem to come of this one
            pass
        found = self._built[key] = self._new(specs, settings)
        drop_oldest(self._built, MOST_ROUTINES)
        return found

    def _new(self, specs: TensorSpecs, settings: Settings) -> tuple[TensorSpecs, AnyRoutine] | None:
        if any(spec is not None and spec.size == 0 for spec in specs):
            return None
        routine = self.attempt(specs, settings)
        return None if routine is None else (specs, routine)

    def attempt(self, specs: TensorSpecs, settings: Settings) -> AnyRoutine | None:
        """The routine or None; sets whose library refuses a call by an exception make None of it here."""
        return self.build(*specs, **settings) if self.variants is None else self.variants.routine(specs, settings)


class AddressKernel(BuiltKernel[AnyRoutine]):
    """A kernel whose steps hold memory addresses; each launch keeps the memory under its operands alive."""

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None, settings: Settings) -> Launch:
        """Bind the routine."""
        launch = super().prepare(arrays, scratch, settings)
        held = {id(memory): memory for memory in map(_memory_of, (*arrays, scratch))}
        launch.memory = tuple(held.values())  # type: ignore[attr-defined]
        return launch


def _memory_of(array: DeviceArray | None) -> object:
    """What holds the bytes of an array, which itself need not live as long as they are used."""
    base = getattr(array, "base", None)
    return array if base is None else base


def call_key(specs: TensorSpecs, settings: Settings) -> _Key:
    """Returns a key that is equal for calls that are done alike."""
    return (
        tuple(None if spec is None else spec.key for spec in specs),
        tuple(settings.items()),
        stamp(),
        threads.share(),
    )


def _digest(key: _Key) -> bytes:
    """Of specs and settings, which are plain values. It is the same for equal ones."""
    return blake2b(repr(key).encode(), digest_size=16).digest()


def drop_oldest(table: dict[Entry, Any], most: int) -> None:
    """Remove entries, the oldest first, until at most so many are left."""
    with suppress(StopIteration, RuntimeError):  # another thread does the same at the same time
        while len(table) > most:
            table.pop(next(iter(table)), None)


def of_specs(name: str, build: CallBuilder[AnyRoutine]) -> Builder[AnyRoutine]:
    """The builder of a kernel by its tensors' specs and settings, of one that takes the call."""

    def built(*specs: TensorSpec | None, **settings: object) -> AnyRoutine | None:
        return build(Call.from_specs(name, specs, settings))

    built.__name__ = name
    return built
