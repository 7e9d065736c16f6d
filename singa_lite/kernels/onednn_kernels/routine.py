"""Routine: what one kernel call does, primitives and small host functions in a row over its tensors and scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from singa_lite.kernels.built import BuiltKernel, builders, row
from singa_lite.kernels.kernel_set import Form, Forms, Settings
from singa_lite.kernels.onednn_kernels.library import OneDNNError
from singa_lite.kernels.onednn_kernels.primitive import Launch, Primitive

ALIGNMENT = 64
#: The library holds extents and some products of them in 32 bits: beyond, it is silently wrong, or divides by zero.
MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Temporary:
    """Bytes of the call's scratch, from `offset` on, as an array of this shape and dtype."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


#: A tensor of the call, named by the form that its builder was given, or a part of the scratch.
Operand = Form | Temporary


@dataclass
class _Step:
    """A primitive with {argument: operand}, a loop with those of each round, or a function with its operands in order.

    condition: one bool; where it is False when the step's turn comes, it is left out. again: it and its neighbours are
    done until it is False.
    """

    action: Any
    operands: Any
    condition: Temporary | None
    again: bool


@dataclass
class _Loop:
    """Primitives that are run in a row, round after round, over other operands each time."""

    primitives: list[Primitive]

    @property
    def scratch_bytes(self) -> int:
        return max(primitive.scratch_bytes for primitive in self.primitives)

    def bind(self, rounds: list[list[dict[int, Any]]], scratch: Any) -> Launch:
        """rounds: the arrays of each primitive, by argument."""
        places = zip(*rounds, strict=True)
        bound = [primitive.bind_each(own, scratch) for primitive, own in zip(self.primitives, places, strict=True)]
        count = len(rounds)

        def run() -> None:
            for place in range(count):
                for launch in bound:
                    launch(place)

        return run


@dataclass
class Routine:
    """Steps done one after the other. Builders of kernels make one for the forms that they are given."""

    steps: list[_Step] = field(default_factory=list)
    temporary_bytes: int = 0
    _condition: Temporary | None = None
    _again: bool = False

    def temporary(self, shape: tuple[int, ...] | int, dtype: str = "uint8") -> Temporary:
        """A part of the scratch: an array of this shape and dtype, or that many bytes."""
        shape = (shape,) if isinstance(shape, int) else shape
        made = Temporary(self.temporary_bytes, shape, dtype)
        self.temporary_bytes += _aligned(prod(shape) * np.dtype(dtype).itemsize)
        return made

    def run(self, primitive: Primitive, operands: Mapping[int, Operand | None]) -> None:
        """A step: the primitive over these operands, {argument: operand}; None for one that is left out."""
        given = {argument: operand for argument, operand in operands.items() if operand is not None}
        self.steps.append(_Step(primitive, given, self._condition, self._again))

    def repeat(self, pieces: Iterable[Any], add: Callable[[Any], None]) -> None:
        """Steps that are done with one piece after the other: `add` adds those of a piece, primitives only.

        Where these are the same ones for several pieces in a row, they are bound once.
        """
        before, rounds = self.steps, []
        for piece in pieces:
            self.steps = []
            add(piece)
            rounds.append(self.steps)
        self.steps = before
        for primitives, alike in groupby(rounds, lambda steps: [step.action for step in steps]):
            operands = [[step.operands for step in steps] for steps in alike]
            self.steps.append(_Step(_Loop(primitives), operands, self._condition, self._again))

    def call(self, function: Callable[..., Any], *operands: Operand | None) -> None:
        """A step on the host: the function over the operands' arrays, for small ones (a vector of channels)."""
        self.steps.append(_Step(function, operands, self._condition, self._again))

    @contextmanager
    def only_if(self, condition: Temporary, again: bool = False) -> Iterator[None]:
        """Steps added inside are done where a step before them has made this one bool True."""
        self._condition, self._again = condition, again
        try:
            yield
        finally:
            self._condition, self._again = None, False

    def repeat_while(self, condition: Temporary) -> AbstractContextManager[None]:
        """Steps added inside are done again and again, as long as this one bool is True before the first of them."""
        return self.only_if(condition, again=True)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the temporaries, and behind them those of the primitive that needs most."""
        actions = [step.action for step in self.steps if isinstance(step.action, Primitive | _Loop)]
        return self.temporary_bytes + max((action.scratch_bytes for action in actions), default=0)

    def bind(self, forms: Forms, arrays: tuple[Any, ...], scratch: Any) -> Launch:
        """The steps over these arrays. forms: those that the routine was built with."""
        place = {id(form): array for form, array in zip(forms, arrays, strict=True) if form is not None}

        def array(operand: Operand | None) -> Any:
            if isinstance(operand, Temporary):
                return _part(scratch, operand)
            return None if operand is None else place[id(operand)]

        def arrays_of(operands: Mapping[int, Operand]) -> dict[int, Any]:
            return {argument: array(operand) for argument, operand in operands.items()}

        def launch(step: _Step) -> Launch:
            if not isinstance(step.action, Primitive | _Loop):
                return _host(step.action, tuple(map(array, step.operands)))
            own = scratch[self.temporary_bytes :] if step.action.scratch_bytes else None
            if isinstance(step.action, _Loop):
                return step.action.bind([[arrays_of(operands) for operands in row] for row in step.operands], own)
            return step.action.bind(arrays_of(step.operands), own)

        launches: list[Launch] = []
        for (condition, again), steps in groupby(self.steps, lambda step: (step.condition, step.again)):
            some = list(map(launch, steps))
            made = _repeated if again else _conditional
            launches += some if condition is None else [made(array(condition), row(some))]
        return row(launches)


class RoutineKernel(BuiltKernel):
    """A kernel of this set."""

    def attempt(self, forms: Forms, settings: Settings) -> Any:
        """The routine; None for what the library has no code for, or cannot count."""
        if any(form is not None and form.size > MOST_ELEMENTS for form in forms):
            return None
        try:
            return super().attempt(forms, settings)
        except OneDNNError as error:
            if error.status != OneDNNError.UNIMPLEMENTED:
                raise
            return None


def collect(*modules: ModuleType) -> dict[str, RoutineKernel]:
    """The kernels that the modules define: builders named in the interface."""
    return {name: RoutineKernel(builder) for name, builder in builders(*modules).items()}


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _part(scratch: Any, part: Temporary) -> Any:
    nbytes = prod(part.shape) * np.dtype(part.dtype).itemsize
    return scratch[part.offset : part.offset + nbytes].view(part.dtype).reshape(part.shape)


def _conditional(condition: Any, launch: Launch) -> Launch:
    def run() -> None:
        if condition[0]:
            launch()

    return run


def _repeated(condition: Any, launch: Launch) -> Launch:
    def run() -> None:
        while condition[0]:
            launch()

    return run


def _host(function: Callable[..., Any], arrays: tuple[Any, ...]) -> Launch:
    return lambda: function(*arrays)
