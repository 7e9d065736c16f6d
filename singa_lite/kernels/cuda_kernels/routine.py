"""Routine of this set: launches of kernels and calls of libraries in a row, on a GPU."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, cast

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.array_types import Array
from singa_lite.kernels import routine as base
from singa_lite.kernels.built import Builder, BuiltKernel
from singa_lite.kernels.call import Call
from singa_lite.kernels.kernel_set import DeviceArray, Launch, Settings, TensorSpec, TensorSpecs
from singa_lite.kernels.routine import Binding, Step, Temporary

#: Threads of a block, where a kernel has no reason for another number.
THREADS = 256
#: Most blocks of a kernel whose threads go on to further elements: enough for any GPU.
MOST_BLOCKS = 4096

#: A tensor of the call, named by the spec that its builder was given, a part of the scratch, or None (no tensor).
BufferView = base.BufferView | None
#: What kernels take besides: NumPy scalars and structs (0-d arrays), by value.
Value = np.generic | Array


@dataclass(frozen=True, eq=False)
class Table:
    """A struct that a kernel takes by value, with addresses of buffers in it, one behind the other in its first field.

    struct: an array without axes; its addresses are filled in when the call is bound.
    """

    ADDRESSES: ClassVar[str] = "addresses"

    struct: Array
    views: tuple[BufferView, ...]

    def changed(self, change: Callable[[Any], Any]) -> Table:
        """The same table of what `change` makes of its buffers."""
        return replace(self, views=tuple(map(change, self.views)))

    def filled(self, binding: Addresses) -> Array:
        """The struct with the addresses that the buffers have in a call."""
        made = self.struct.copy()
        made[self.ADDRESSES].reshape(-1)[: len(self.views)] = [binding[view] for view in self.views]
        return made


#: What a step is given: buffers, tables of them and values, in the order of the kernel or the call.
Argument = BufferView | Table | Value

#: Types of a kernel: {name in the source: dtype}, {"T": x.dtype} as a rule.
Types = Mapping[str, DTypeLike]


class Function(Protocol):
    """A compiled kernel."""

    def bind(self, grid: Sequence[int], block: Sequence[int], shared_bytes: int, arguments: Arguments) -> Launch:
        """A launch with these arguments."""


class Loader(Protocol):
    """Compiles the sources of this folder."""

    def function(self, file: str, kernel: str, types: tuple[tuple[str, str], ...]) -> Function:
        """A kernel of a source, for these types: (name in the source, name of a dtype)."""


class LibraryCall(ABC):
    """A call of a library, ready but for its addresses. scratch_bytes: of workspace that it wants."""

    scratch_bytes: int

    @property
    def levels(self) -> tuple[int, ...]:
        """Bytes of workspace with which it is done in another way, from the least on; (): there is but one way."""
        return ()

    @abstractmethod
    def bind(self, addresses: Sequence[int], scratch: int, nbytes: int) -> Launch:
        """The call over tensors at these addresses, 0 for one that is left out, in the best way that so many bytes of
        workspace allow.
        """


class Arguments:
    """Values of a kernel's arguments and the array of pointers to them that CUDA's launch wants; kept alive here."""

    def __init__(self, values: Sequence[int | Value]) -> None:
        self.values = [np.array(v, np.uint64) if isinstance(v, int) else np.array(v) for v in values]
        self.pointers = (ctypes.c_void_p * len(self.values))(*(value.ctypes.data for value in self.values))


@dataclass(frozen=True)
class Addresses(Binding[int]):
    """The addresses of a call's tensors. loader: of the kernels, None if the routine has calls of libraries alone."""

    loader: Loader | None

    def __getitem__(self, view: BufferView) -> int:
        """The buffer's address, 0 for a tensor that is left out."""
        if isinstance(view, Temporary):
            return address(self.scratch) + view.offset
        return 0 if view is None else address(self.arrays[id(view)])


@dataclass(frozen=True)
class CudaStep(Step[Addresses]):
    """A step of this set. arguments: buffers, and values if it launches a kernel of ours, in its order."""

    arguments: tuple[Argument, ...]

    def changed(self, change: Callable[[Argument], Argument]) -> Self:
        """The same step, each of its arguments what `change` makes of it."""
        made = (a.changed(change) if isinstance(a, Table) else change(a) for a in self.arguments)
        return replace(self, arguments=tuple(made))


@dataclass(frozen=True)
class KernelLaunch(CudaStep):
    """A launch of a kernel of ours."""

    file: str
    kernel: str
    types: tuple[tuple[str, str], ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int

    def bind(self, binding: Addresses) -> Launch:
        """The compiled kernel over addresses and values."""
        if binding.loader is None:
            raise RuntimeError(f"wanted calls of libraries alone, received kernel {self.kernel} of {self.file}")
        function = binding.loader.function(self.file, self.kernel, self.types)
        values = [_value(a, binding) for a in self.arguments]
        return function.bind(self.grid, self.block, self.shared_bytes, Arguments(values))


def _value(argument: Argument, binding: Addresses) -> int | Value:
    """What a kernel is launched with for an argument."""
    if isinstance(argument, Table):
        return argument.filled(binding)
    return argument if isinstance(argument, np.generic | np.ndarray) else binding[argument]


@dataclass(frozen=True)
class LibraryStep(CudaStep):
    """A call of a library."""

    arguments: tuple[BufferView, ...]
    call: LibraryCall

    @property
    def scratch_bytes(self) -> int:
        """Of the call."""
        return self.call.scratch_bytes

    def bind(self, binding: Addresses) -> Launch:
        """The call over addresses."""
        addresses = [binding[view] for view in self.arguments]
        return self.call.bind(addresses, binding.workspace, binding.rest.nbytes)


@dataclass
class Routine(base.Routine[CudaStep]):
    """Steps done one after the other. Builders of kernels make one for the tensor specs that they are given.

    loader: of the kernels, None for calls of libraries alone.
    """

    ALIGNMENT = 256

    loader: Loader | None = None

    def launch(
        self,
        file: str,
        kernel: str,
        *arguments: Argument,
        types: Types,
        grid: int | Sequence[int],
        block: int | Sequence[int] = THREADS,
        shared_bytes: int = 0,
    ) -> Routine:
        """A step: a kernel of `file` for these types. Returns itself."""
        named = tuple((name, np.dtype(dtype).name) for name, dtype in types.items())
        self.steps.append(KernelLaunch(arguments, file, kernel, named, _three(grid), _three(block), shared_bytes))
        return self

    def call(self, call: LibraryCall, *views: BufferView) -> Routine:
        """A step: a call of a library over these buffers. Returns itself."""
        self.steps.append(LibraryStep(views, call))
        return self

    def then(self, other: Routine) -> Routine:
        """The steps of another routine behind these, over the same scratch, which is free by then. Returns itself."""
        self.steps += other.steps
        self.temporary_bytes = max(self.temporary_bytes, other.temporary_bytes)
        return self

    def over(self, tensors: Mapping[TensorSpec, BufferView]) -> Routine:
        """The same steps over other buffers. tensors: {spec that stands for one in the steps: the other}."""
        return self._changed(lambda a: tensors.get(a, a) if isinstance(a, TensorSpec) else a)

    def behind(self, nbytes: int) -> Routine:
        """The same steps, their temporaries so many bytes further back in the scratch: a multiple of ALIGNMENT."""
        moved = self._changed(lambda a: replace(a, offset=a.offset + nbytes) if isinstance(a, Temporary) else a)
        return replace(moved, temporary_bytes=self.temporary_bytes + nbytes)

    def _changed(self, change: Callable[[Argument], Argument]) -> Routine:
        return replace(self, steps=[step.changed(change) for step in self.steps])

    @property
    def levels(self) -> tuple[int, ...]:
        """Of its calls of libraries: each wants the whole workspace, one after the other."""
        calls = [step.call for step in self.steps if isinstance(step, LibraryStep)]
        known = {level for call in calls for level in call.levels}
        least = max((call.levels[0] if call.levels else call.scratch_bytes for call in calls), default=0)
        return tuple(self.temporary_bytes + level for level in sorted(known) if level >= least)

    @property
    def launches(self) -> list[KernelLaunch]:
        """The steps that are kernels of ours."""
        return [step for step in self.steps if isinstance(step, KernelLaunch)]

    def _binding(self, arrays: Mapping[int, DeviceArray], scratch: DeviceArray | None, rest: Temporary) -> Addresses:
        return Addresses(arrays, scratch, rest, self.loader)


class CudaKernel(BuiltKernel[Routine]):
    """A kernel of this set. loader: compiles the sources.

    binds_addresses: its launches hold addresses and no arrays.
    """

    binds_addresses: ClassVar[bool] = True

    def __init__(self, build: Builder[Routine], loader: Loader) -> None:
        super().__init__(build)
        self._loader = loader

    def attempt(self, specs: TensorSpecs, settings: Settings) -> Routine | None:
        """The routine, which knows the loader."""
        routine = self.build(*specs, **settings)
        return None if routine is None else replace(routine, loader=self._loader)


def address(array: DeviceArray) -> int:
    """Where a CuPy array's first element is."""
    return int(array.data.ptr)


def blocks(elements: int, each: int = THREADS) -> int:
    """Blocks for so many elements, `each` a block; at most MOST_BLOCKS, whose threads go on to further elements."""
    return max(1, min(-(-elements // each), MOST_BLOCKS))


def warps(count: int) -> int:
    """Blocks for so many warps, at most MOST_BLOCKS, as of `blocks`."""
    return blocks(count, THREADS // 32)


def integer(call: Call, setting: str) -> np.int64:
    """Returns a setting as kernels take whole numbers."""
    return np.int64(cast(int, call.settings[setting]))


def _three(extents: int | Sequence[int]) -> tuple[int, int, int]:
    given = (extents,) if isinstance(extents, int) else tuple(extents)
    x, y, z = (*given, 1, 1, 1)[:3]
    return x, y, z
