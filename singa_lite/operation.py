"""What happens in a step: Operation (a kernel call being made) and Instruction (one that is recorded)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any, NamedTuple

import numpy as np

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.tensor import Shape, Tensor

_READING = frozenset({"Read", "Update"})
_WRITING = frozenset({"Write", "Update"})


class Phase(StrEnum):
    """The part of a training step that an operation belongs to (nntrainer's execution order)."""

    FORWARD = "forward"
    DERIVATIVE = "derivative"
    GRADIENT = "gradient"
    UPDATE = "update"


class Role(StrEnum):
    """What a block is to a recorded step. Only intermediates are placed in the arena."""

    INPUT = "input"
    PARAMETER = "parameter"
    STATE = "state"
    INTERMEDIATE = "intermediate"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel call.

    kernel: a name of the kernel interface; tensors: its arguments in the interface's order, None where optional;
    settings: its plain values; phase, layer: where in the step it stands ("" outside any layer);
    scratch_bytes: what it needs beside its tensors while it runs.
    """

    kernel: str
    tensors: tuple[Tensor | None, ...]
    settings: Mapping[str, Any]
    phase: Phase
    layer: str
    scratch_bytes: int

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """Tensors whose values it needs, those that it updates included."""
        return tuple(t for t, role in self._pairs() if t is not None and role in _READING)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        """Tensors whose values it sets, those that it updates included."""
        return tuple(t for t, role in self._pairs() if t is not None and role in _WRITING)

    def _pairs(self) -> zip[tuple[Tensor | None, str]]:
        return zip(self.tensors, SIGNATURES[self.kernel].roles, strict=True)


class Operand(NamedTuple):
    """A tensor of a recorded call: a view over the block with this number. strides, offset: bytes."""

    block: int
    shape: Shape
    dtype: np.dtype[Any]
    strides: Shape
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(slots=True)
class Instruction:
    """A recorded kernel call, as `Operation`; it holds no tensor, so it keeps no block alive.

    number: its place in the record, kept through every reordering.
    """

    number: int
    kernel: str
    operands: tuple[Operand | None, ...]
    settings: Mapping[str, Any]
    phase: Phase
    layer: str
    scratch_bytes: int

    @property
    def reads(self) -> list[Operand]:
        """Operands whose values it needs, those that it updates included."""
        return [o for o, role in zip(self.operands, self.roles, strict=True) if o is not None and role in _READING]

    @property
    def writes(self) -> list[Operand]:
        """Operands whose values it sets, those that it updates included."""
        return [o for o, role in zip(self.operands, self.roles, strict=True) if o is not None and role in _WRITING]

    @property
    def roles(self) -> tuple[str, ...]:
        """"Read", "Update" or "Write" for each operand."""
        return SIGNATURES[self.kernel].roles
