"""Routine: what one kernel call does on a GPU, launches of kernels and calls of libraries over tensors and scratch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from singa_lite.kernels.built import Builder, BuiltKernel, row
from singa_lite.kernels.kernel_set import Form, Forms, Launch

#: Where temporaries start within the scratch, bytes.
ALIGNMENT = 256
#: Threads of a block, where a kernel has no reason for another number.
THREADS = 256
#: Most blocks of a kernel whose threads go on to further elements: enough for any GPU.
MOST_BLOCKS = 4096


class Temporary(NamedTuple):
    """Bytes of the call's scratch, from `offset` on."""

    offset: int
    nbytes: int


#: A tensor of the call, named by the form that its builder was given, a part of the scratch, or None (no tensor).
Operand = Form | Temporary | None
#: What kernels take besides: NumPy scalars and structs (0-d arrays), by value.
Value = np.generic | np.ndarray[Any, Any]


class Function(Protocol):
    """A compiled kernel."""

    def bind(self, grid: Sequence[int], block: Sequence[int], shared_bytes: int, arguments: Arguments) -> Launch:
        """A launch with these arguments."""


class Loader(Protocol):
    """Compiles the sources of this folder."""

    def function(self, file: str, kernel: str, types: tuple[tuple[str, str], ...]) -> Function:
        """A kernel of a source, for these types: (name in the source, name of a dtype)."""


class LibraryCall(Protocol):
    """A call of a library, ready but for its addresses."""

    scratch_bytes: int

    def bind(self, addresses: Sequence[int], scratch: int) -> Launch:
        """The call over tensors at these addresses, 0 for one that is left out."""


class Arguments:
    """Values of a kernel's arguments and the array of pointers to them that CUDA's launch wants; kept alive here."""

    def __init__(self, values: Sequence[int | Value]) -> None:
        self.values = [np.array(v, np.uint64) if isinstance(v, int) else np.array(v) for v in values]
        self.pointers = (ctypes.c_void_p * len(self.values))(*(value.ctypes.data for value in self.values))


@dataclass(frozen=True)
class KernelLaunch:
    """A launch of a kernel of ours. arguments: operands and values in its order."""

    file: str
    kernel: str
    types: tuple[tuple[str, str], ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Operand | Value, ...]


class _LibraryStep(NamedTuple):
    call: LibraryCall
    operands: tuple[Operand, ...]


@dataclass
class Routine:
    """Steps done one after the other. Builders of kernels make one for the forms that they are given."""

    steps: list[KernelLaunch | _LibraryStep] = field(default_factory=list)
    temporary_bytes: int = 0

    def temporary(self, shape: Sequence[int] | int, dtype: Any = "uint8") -> Temporary:
        """A part of the scratch for an array of this shape and dtype, or for that many bytes."""
        count = shape if isinstance(shape, int) else prod(shape)
        made = Temporary(self.temporary_bytes, count * np.dtype(dtype).itemsize)
        self.temporary_bytes += -(-made.nbytes // ALIGNMENT) * ALIGNMENT
        return made

    def launch(
        self,
        file: str,
        kernel: str,
        *arguments: Operand | Value,
        types: Mapping[str, Any],
        grid: int | Sequence[int],
        block: int | Sequence[int] = THREADS,
        shared_bytes: int = 0,
    ) -> Routine:
        """A step: a kernel of `file`. types: {name in the source: dtype}, {"T": x.dtype} as a rule. Returns itself."""
        named = tuple((name, np.dtype(dtype).name) for name, dtype in types.items())
        self.steps.append(
            KernelLaunch(file, kernel, named, _three(grid), _three(block), shared_bytes, tuple(arguments))
        )
        return self

    def call(self, call: LibraryCall, *operands: Operand) -> Routine:
        """A step: a call of a library over these operands. Returns itself."""
        self.steps.append(_LibraryStep(call, operands))
        return self

    def then(self, other: Routine) -> Routine:
        """The steps of another routine behind these, over the same scratch, which is free by then. Returns itself."""
        self.steps += other.steps
        self.temporary_bytes = max(self.temporary_bytes, other.temporary_bytes)
        return self

    def over(self, tensors: Mapping[Form, Form]) -> Routine:
        """The same steps over other tensors. tensors: {form that stands for one in the steps: that tensor's form}."""

        def own(operand: Any) -> Any:
            return tensors.get(operand, operand) if isinstance(operand, Form) else operand

        steps = [
            replace(step, arguments=tuple(map(own, step.arguments)))
            if isinstance(step, KernelLaunch)
            else step._replace(operands=tuple(map(own, step.operands)))
            for step in self.steps
        ]
        return Routine(steps, self.temporary_bytes)

    @property
    def launches(self) -> list[KernelLaunch]:
        """The steps that are kernels of ours."""
        return [step for step in self.steps if isinstance(step, KernelLaunch)]

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the temporaries, and behind them those of the library call that needs most."""
        calls = [step.call.scratch_bytes for step in self.steps if isinstance(step, _LibraryStep)]
        return self.temporary_bytes + max(calls, default=0)


@dataclass(frozen=True)
class BoundBy:
    """A routine with the loader of its kernels."""

    routine: Routine
    loader: Loader

    @property
    def scratch_bytes(self) -> int:
        """Of the routine."""
        return self.routine.scratch_bytes

    def bind(self, forms: Forms, arrays: tuple[Any, ...], scratch: Any) -> Launch:
        """The steps over these arrays."""
        place = {id(form): address(array) for form, array in zip(forms, arrays, strict=True) if form is not None}
        base = 0 if scratch is None else address(scratch)

        def resolved(argument: Operand | Value) -> Any:
            if argument is None:
                return 0
            if isinstance(argument, Temporary):
                return base + argument.offset
            return place[id(argument)] if isinstance(argument, Form) else argument

        launches = []
        for step in self.routine.steps:
            if isinstance(step, KernelLaunch):
                function = self.loader.function(step.file, step.kernel, step.types)
                arguments = Arguments([resolved(argument) for argument in step.arguments])
                launches.append(function.bind(step.grid, step.block, step.shared_bytes, arguments))
            else:
                addresses = [resolved(operand) for operand in step.operands]
                launches.append(step.call.bind(addresses, base + self.routine.temporary_bytes))
        return row(launches)


class CudaKernel(BuiltKernel):
    """A kernel of this set. loader: compiles the sources."""

    def __init__(self, build: Builder, loader: Loader) -> None:
        super().__init__(build)
        self._loader = loader

    def attempt(self, forms: Forms, settings: Mapping[str, Any]) -> Any:
        """The routine, which knows the loader."""
        routine = self.build(*forms, **settings)
        return None if routine is None else BoundBy(routine, self._loader)


def address(array: Any) -> int:
    """Where a CuPy array's first element is."""
    return int(array.data.ptr)


def blocks(elements: int, each: int = THREADS) -> int:
    """Blocks for so many elements, `each` a block; at most MOST_BLOCKS, whose threads go on to further elements."""
    return max(1, min(-(-elements // each), MOST_BLOCKS))


def _three(extents: int | Sequence[int]) -> tuple[int, int, int]:
    given = (extents,) if isinstance(extents, int) else tuple(extents)
    x, y, z = (*given, 1, 1, 1)[:3]
    return x, y, z
