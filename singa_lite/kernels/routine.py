"""Routine: what one kernel call does, steps in a row over the tensors of the call and its scratch.

The kernel sets whose kernels are built beforehand (`built.py`) make their routines from this one. A set adds its kinds
of step, and says what they are given for a buffer: an array, or an address. The scratch of a call lies so:

    | temporary | temporary | ... | workspace: one step after the other uses it, as much of it as it needs |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.array_types import DType
from singa_lite.kernels.kernel_set import CallArrays, DeviceArray, Launch, TensorSpec, TensorSpecs


@dataclass(frozen=True, eq=False)
class Temporary:
    """An array of this shape and dtype in the scratch, without gaps, from the byte `offset` on."""

    offset: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * self.dtype.itemsize

    def part(self, start: int, count: int, dtype: DTypeLike) -> Temporary:
        """`count` elements from element `start` on, the bytes taken as a vector of this dtype."""
        dtype = np.dtype(dtype)
        return Temporary(self.offset + start * dtype.itemsize, (count,), dtype)


#: What a step works on: a tensor of the call, named by the spec that the builder was given for it, or a temporary.
BufferView = TensorSpec | Temporary


#: What a set gives to its steps for a buffer: an array, or an address.
Access = TypeVar("Access")


@dataclass(frozen=True)
class Binding(ABC, Generic[Access]):
    """What the steps of a routine are given for their buffers in one call.

    arrays: of the call, by `id` of the specs that stand for them in the steps; scratch: bytes, None if none are needed;
    rest: of the scratch, behind the temporaries.
    """

    arrays: Mapping[int, DeviceArray]
    scratch: DeviceArray
    rest: Temporary

    @abstractmethod
    def __getitem__(self, view: BufferView | None) -> Access:
        """What stands for the buffer; None is for a tensor that is left out."""

    @property
    def workspace(self) -> Access:
        """What stands for the workspace; where no step needs any, what does for a tensor that is left out."""
        return self[self.rest if self.rest.nbytes else None]


AnyBinding = TypeVar("AnyBinding", bound=Binding[Any])


class Step(ABC, Generic[AnyBinding]):
    """One step, with the buffers that it works on."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of workspace that it needs."""
        return 0

    @abstractmethod
    def bind(self, binding: AnyBinding) -> Launch:
        """The step over what its buffers are in a call."""


@dataclass
class Row(Step[AnyBinding]):
    """Steps done one after the other."""

    steps: Sequence[Step[AnyBinding]]

    @property
    def scratch_bytes(self) -> int:
        """Of the step that needs most."""
        return max((step.scratch_bytes for step in self.steps), default=0)

    def bind(self, binding: AnyBinding) -> Launch:
        """One launch for all."""
        return in_order([step.bind(binding) for step in self.steps])


AnyStep = TypeVar("AnyStep", bound=Step[Any])


@dataclass
class Routine(ABC, Generic[AnyStep]):
    """Steps done one after the other. Builders of kernels make one for the tensor specs that they are given.

    variant: the way in which the call is done, where the kernel has several (`variants.py`).
    """

    #: Temporaries start at multiples of it within the scratch, bytes.
    ALIGNMENT: ClassVar[int]
    variant = ""

    steps: list[AnyStep] = field(default_factory=list)
    temporary_bytes: int = 0

    def temporary(self, shape: Sequence[int] | int, dtype: DTypeLike = "uint8") -> Temporary:
        """A part of the scratch: an array of this shape and dtype, or that many bytes."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        made = Temporary(self.temporary_bytes, shape, np.dtype(dtype))
        self.temporary_bytes += -(-made.nbytes // self.ALIGNMENT) * self.ALIGNMENT
        return made

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the temporaries, and behind them of the workspace."""
        return self.temporary_bytes + self.workspace_bytes

    @property
    def levels(self) -> tuple[int, ...]:
        """Bytes of scratch with which it is done in another way, from the least on; (): there is but one way."""
        return ()

    @cached_property
    def workspace_bytes(self) -> int:
        """Bytes of the step that needs most; all steps must be there. A call done at once asks for it several times."""
        return Row(self.steps).scratch_bytes

    def bind(self, specs: TensorSpecs, arrays: CallArrays, scratch: DeviceArray | None) -> Launch:
        """The steps over these arrays. specs: those that the routine was built with. scratch: of `scratch_bytes`, or
        more or fewer by its `levels`.
        """
        by_spec = {id(spec): array for spec, array in zip(specs, arrays, strict=True) if spec is not None}
        there = 0 if scratch is None else scratch.nbytes - self.temporary_bytes
        rest = Temporary(self.temporary_bytes, (there if self.levels else self.workspace_bytes,), np.dtype(np.uint8))
        return Row(self.steps).bind(self._binding(by_spec, scratch, rest))

    @abstractmethod
    def _binding(self, arrays: Mapping[int, DeviceArray], scratch: DeviceArray | None, rest: Temporary) -> Binding[Any]:
        """The `Binding` of that call that the steps of this set take."""


def in_order(launches: Sequence[Launch]) -> Launch:
    """The launches one after the other."""
    if len(launches) == 1:
        return launches[0]
    several = tuple(launches)

    def run() -> None:
        for launch in several:
            launch()

    return run
