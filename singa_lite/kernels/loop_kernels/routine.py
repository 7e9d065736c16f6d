"""Routines of the loops: calls of C functions one after the other, over the operands of a call and its scratch."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels import routine as base
from singa_lite.kernels.built import AddressKernel
from singa_lite.kernels.call import Call as Call
from singa_lite.kernels.kernel_set import DeviceArray, Launch, TensorSpec
from singa_lite.kernels.loop_kernels.library import Box, Extents, Library, Rows, load
from singa_lite.kernels.routine import Binding, BufferView, Step


class UnservedError(ValueError):
    """Says why a loop cannot go over operands. The kernel then leaves the call to the next set."""


def want(condition: bool, what: str) -> None:
    """Returns where the condition holds, else UnservedError with what was wanted."""
    if not condition:
        raise UnservedError(f"a loop: wanted {what}")


@dataclass(frozen=True)
class RowsView:
    """A buffer as rows of a matrix, see `Rows`."""

    view: BufferView
    pitch: int
    is_narrow: bool = False


@dataclass(frozen=True)
class BoxView:
    """A buffer as a tensor of any strides, see `Box`. steps: in elements, of all axes of a box."""

    view: BufferView
    steps: tuple[int, ...]
    type: int = 0


#: What a loop is given: a buffer, its form, a number, extents, a table that is never changed or dropped; None for an
#: operand that is left out.
Argument = BufferView | RowsView | BoxView | float | tuple[int, ...] | Array | None


class Addresses(Binding[int]):
    """Where the buffers of a call begin; 0 for one that is left out."""

    def __getitem__(self, view: BufferView | None) -> int:
        """The address of its first byte."""
        if view is None:
            return 0
        if isinstance(view, base.Temporary):
            return int(self.scratch.ctypes.data) + view.offset
        return int(self.arrays[id(view)].ctypes.data)


@dataclass
class LoopStep(Step[Addresses]):
    """One call of a C function."""

    library: Library
    function: str
    arguments: tuple[Argument, ...]

    def bind(self, binding: Addresses) -> Launch:
        """The function with all its arguments, in the types that its header states. TypeError where they do not fit."""
        types, given = self.library.types[self.function], self.arguments
        if len(given) != len(types):
            raise TypeError(f"loop {self.function}: wanted {len(types)} arguments, received {len(given)}")
        try:
            bound = [_bound(one, kind, binding) for one, kind in zip(given, types, strict=True)]
        except TypeError as error:
            raise TypeError(f"loop {self.function}: {error}") from None
        return partial(self.library.function(self.function), *bound)


@dataclass
class CheckStep(Step[Addresses]):
    """A look at an operand's values, which may raise an error. check: is given the operand."""

    check: Callable[[DeviceArray], None]
    operand: TensorSpec

    def bind(self, binding: Addresses) -> Launch:
        """The check of the operand's array."""
        return partial(self.check, binding.arrays[id(self.operand)])


#: Types that an operand has, which may be left out. The others are numbers.
_OPERANDS = (c.c_void_p, Rows, Box)


def _bound(given: Argument, kind: type, binding: Addresses) -> object:
    """An argument in the type that the header states. TypeError for another one."""
    match given:
        case None if kind in _OPERANDS:
            return _constant(kind)
        case int() if kind not in (*_OPERANDS, Extents):
            return _constant(kind, given)
        case float() if kind not in (*_OPERANDS, Extents):
            return kind(given)
        case RowsView() if kind is Rows:
            return Rows(binding[given.view], given.pitch, given.is_narrow)
        case BoxView() if kind is Box:
            return Box(binding[given.view], given.steps, given.type)
        case tuple() if kind is Extents:
            return _constant(kind, given)
        case TensorSpec() | base.Temporary() if kind is c.c_void_p:
            return c.c_void_p(binding[given])
        case np.ndarray() if kind is c.c_void_p:
            return c.c_void_p(given.ctypes.data)
    raise TypeError(f"wanted {kind.__name__}, received {given!r}")


@lru_cache(maxsize=1024)
def _constant(kind: Callable[..., object], *given: object) -> object:
    """One object for all calls that are given the same: they are passed by value, and a step has thousands."""
    return kind(*given)


@dataclass
class Routine(base.Routine[Step[Addresses]]):
    """Loops done one after the other. Builders of kernels make one for a call."""

    ALIGNMENT = 64

    library: Library = field(kw_only=True)
    call: Call = field(kw_only=True)
    #: Done behind all steps: results that were made elsewhere are put where they belong.
    last: list[LoopStep] = field(default_factory=list)

    def run(self, function: str, *arguments: Argument) -> None:
        """A step: the C function over these arguments, in the order in which its header has them."""
        self.steps.append(LoopStep(self.library, function, arguments))

    def check(self, check: Callable[[DeviceArray], None], operand: TensorSpec) -> None:
        """A step: the check of an operand's values."""
        self.steps.append(CheckStep(check, operand))

    def run_last(self, function: str, *arguments: Argument) -> None:
        """A step behind all others."""
        self.last.append(LoopStep(self.library, function, arguments))

    def _binding(
        self, arrays: Mapping[int, DeviceArray], scratch: DeviceArray | None, rest: base.Temporary
    ) -> Addresses:
        return Addresses(arrays, scratch, rest)


#: Adds the steps of a call to a routine; UnservedError where the loops cannot do it.
Builder = Callable[[Call, Routine], None]


class LoopKernel(AddressKernel[Routine]):
    """A kernel of this set. name: in the interface; build: adds its steps."""

    def __init__(self, name: str, build: Builder) -> None:
        super().__init__(partial(_routine, name, build))


def _routine(name: str, build: Builder, *specs: TensorSpec | None, **settings: object) -> Routine | None:
    library = load()
    if library is None:
        return None
    call = Call.from_specs(name, specs, settings)
    routine = Routine(library=library, call=call)
    try:
        want(all(spec.dtype.isnative for spec in call.operands.values()), "bytes in this machine's order")
        build(call, routine)
    except UnservedError:
        return None
    routine.steps += routine.last
    return routine
