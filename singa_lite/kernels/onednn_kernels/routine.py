"""Routine of this set: primitives and small host functions in a row, some of them on condition or over many pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from types import ModuleType
from typing import Any, cast

import numpy as np

from singa_lite.kernels import routine as base
from singa_lite.kernels.built import BuiltKernel, builders
from singa_lite.kernels.kernel_set import Forms, Launch, Settings
from singa_lite.kernels.onednn_kernels.library import OneDNNError
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.routine import Binding, Row, Step, Temporary

#: The library holds extents and some products of them in 32 bits: beyond, it is silently wrong, or divides by zero.
MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True)
class Part:
    """`count` elements of a tensor without gaps, from element `start` on in the order of memory."""

    tensor: Operand
    start: int
    count: int


#: What a step works on: a tensor of the call, a part of one, or a temporary.
Operand = base.Operand | Part


class Arrays(Binding):
    """The NumPy arrays of a call."""

    def __getitem__(self, operand: Operand | None) -> Any:
        """The operand's array; None for a tensor that is left out."""
        if isinstance(operand, Temporary):
            own = self.scratch[operand.offset : operand.offset + operand.nbytes]
            return own.view(operand.dtype).reshape(operand.shape)
        if isinstance(operand, Part):
            return flat(self[operand.tensor])[operand.start : operand.start + operand.count]
        return None if operand is None else self.arrays[id(operand)]


@dataclass
class _HostCall(Step[Arrays]):
    """A function of the operands' arrays."""

    function: Callable[..., Any]
    operands: tuple[Operand | None, ...]

    def bind(self, binding: Arrays) -> Launch:
        function, arrays = self.function, tuple(binding[operand] for operand in self.operands)
        return lambda: function(*arrays)


@dataclass
class _Execution(Step[Arrays]):
    """A primitive over its operands, by argument."""

    primitive: Primitive
    operands: Mapping[int, Operand]

    @property
    def scratch_bytes(self) -> int:
        return self.primitive.scratch_bytes

    def arrays(self, binding: Arrays) -> dict[int, Any]:
        return {argument: binding[operand] for argument, operand in self.operands.items()}

    def bind(self, binding: Arrays) -> Launch:
        return self.primitive.bind(self.arrays(binding), binding.workspace)


@dataclass
class _Loop(Step[Arrays]):
    """The same primitives in a row, round after round, over other operands each time. They are bound once."""

    rounds: list[list[_Execution]]

    @property
    def scratch_bytes(self) -> int:
        return max(execution.scratch_bytes for execution in self.rounds[0])

    def bind(self, binding: Arrays) -> Launch:
        bound = [
            each[0].primitive.bind_each([execution.arrays(binding) for execution in each], binding.workspace)
            for each in zip(*self.rounds, strict=True)
        ]
        count = len(self.rounds)

        def run() -> None:
            for place in range(count):
                for launch in bound:
                    launch(place)

        return run


@dataclass
class _Conditional(Row[Arrays]):
    """Steps done where one bool is True when their turn comes. again: and again, as long as it is."""

    condition: Temporary
    again: bool

    def bind(self, binding: Arrays) -> Launch:
        launch, condition = super().bind(binding), binding[self.condition]

        def once() -> None:
            if condition[0]:
                launch()

        def repeatedly() -> None:
            while condition[0]:
                launch()

        return repeatedly if self.again else once


class Routine(base.Routine[Step[Arrays]]):
    """Steps done one after the other. Builders of kernels make one for the forms that they are given."""

    ALIGNMENT = 64

    def run(self, primitive: Primitive, operands: Mapping[int, Operand | None]) -> None:
        """A step: the primitive over these operands, {argument: operand}; None for one that is left out."""
        given = {argument: operand for argument, operand in operands.items() if operand is not None}
        self.steps.append(_Execution(primitive, given))

    def call(self, function: Callable[..., Any], *operands: Operand | None) -> None:
        """A step on the host: the function over the operands' arrays, for small ones (a vector of channels)."""
        self.steps.append(_HostCall(function, operands))

    def repeat(self, pieces: Iterable[Any], add: Callable[[Any], None]) -> None:
        """Steps that are done with one piece after the other: `add` adds those of a piece, primitives only.

        Where these are the same ones for several pieces in a row, they are bound once.
        """
        rounds = []
        for piece in pieces:
            with self._apart() as steps:
                add(piece)
            rounds.append(cast(list[_Execution], steps))
        for _, alike in groupby(rounds, lambda steps: [step.primitive for step in steps]):
            self.steps.append(_Loop(list(alike)))

    @contextmanager
    def only_if(self, condition: Temporary, again: bool = False) -> Iterator[None]:
        """Steps added inside are done where a step before them has made this one bool True."""
        with self._apart() as steps:
            yield
        self.steps.append(_Conditional(steps, condition, again))

    def repeat_while(self, condition: Temporary) -> AbstractContextManager[None]:
        """Steps added inside are done again and again, as long as this one bool is True before the first of them."""
        return self.only_if(condition, again=True)

    @contextmanager
    def _apart(self) -> Iterator[list[Step[Arrays]]]:
        """Steps added inside go to a list of their own, which is given."""
        before, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = before

    def _binding(self, arrays: Mapping[int, Any], scratch: Any, rest: Temporary) -> Arrays:
        return Arrays(arrays, scratch, rest)


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


def flat(array: Any) -> Any:
    """The elements of an array without gaps in the order of memory."""
    return np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,))
