"""Routine: what one kernel call does, primitives and small host functions in a row over its tensors and scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from singa_lite.kernels.built import BuiltKernel, builders, row
from singa_lite.kernels.kernel_set import Form, Forms, Settings
from singa_lite.kernels.onednn_kernels.library import OneDNNError
from singa_lite.kernels.onednn_kernels.primitive import Launch, Primitive

ALIGNMENT = 64
#: The library holds extents and some products of them in 32 bits: beyond, it is wrong without a word, or divides by zero.
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
    """A primitive with {argument: operand}, or a function with its operands in order."""

    action: Any
    operands: Any


@dataclass
class Routine:
    """Steps done one after the other. Builders of kernels make one for the forms that they are given."""

    steps: list[_Step] = field(default_factory=list)
    temporary_bytes: int = 0

    def temporary(self, shape: tuple[int, ...] | int, dtype: str = "uint8") -> Temporary:
        """A part of the scratch: an array of this shape and dtype, or that many bytes."""
        shape = (shape,) if isinstance(shape, int) else shape
        made = Temporary(self.temporary_bytes, shape, dtype)
        self.temporary_bytes += _aligned(prod(shape) * np.dtype(dtype).itemsize)
        return made

    def run(self, primitive: Primitive, operands: Mapping[int, Operand | None]) -> None:
        """A step: the primitive over these operands, {argument: operand}; None for one that is left out."""
        given = {argument: operand for argument, operand in operands.items() if operand is not None}
        self.steps.append(_Step(primitive, given))

    def call(self, function: Callable[..., Any], *operands: Operand | None) -> None:
        """A step on the host: the function over the operands' arrays, for small ones (a vector of channels)."""
        self.steps.append(_Step(function, operands))

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the temporaries, and behind them those of the primitive that needs most."""
        primitives = [step.action.scratch_bytes for step in self.steps if isinstance(step.action, Primitive)]
        return self.temporary_bytes + max(primitives, default=0)

    def bind(self, forms: Forms, arrays: tuple[Any, ...], scratch: Any) -> Launch:
        """The steps over these arrays. forms: those that the routine was built with."""
        place = {id(form): array for form, array in zip(forms, arrays, strict=True) if form is not None}

        def array(operand: Operand | None) -> Any:
            if isinstance(operand, Temporary):
                return _part(scratch, operand)
            return None if operand is None else place[id(operand)]

        launches = []
        for step in self.steps:
            if isinstance(step.action, Primitive):
                own = scratch[self.temporary_bytes :] if step.action.scratch_bytes else None
                launches.append(step.action.bind({a: array(o) for a, o in step.operands.items()}, own))
            else:
                launches.append(_host(step.action, tuple(map(array, step.operands))))
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


def _host(function: Callable[..., Any], arrays: tuple[Any, ...]) -> Launch:
    return lambda: function(*arrays)
