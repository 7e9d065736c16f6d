"""Operation (a kernel call being made) and Instruction (one that is recorded)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import NamedTuple, TypeVar

from singa_lite.common.array_types import DType
from singa_lite.common.strides import span
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Settings
from singa_lite.tensor import Shape, Tensor

Argument = TypeVar("Argument")

_READING = frozenset({"Read", "Update"})
_WRITING = frozenset({"Write", "Update"})


class Phase(StrEnum):
    """The part of a training step that an operation belongs to (nntrainer's execution order)."""

    FORWARD = "forward"
    DERIVATIVE = "derivative"
    GRADIENT = "gradient"
    UPDATE = "update"


class Transfer(StrEnum):
    """The two ends of a copy between the arena and host memory, which may go on while other instructions run.

    Until its end the bytes that it reads may not be overwritten, and those that it writes may not be read.
    """

    BEGIN = "begin"
    END = "end"


class Role(StrEnum):
    """The role of a block in a recorded step. Only intermediates are placed in the arena.

    FROZEN and MAPPED are weights that do not train, those of MAPPED in a file that is mapped.
    """

    INPUT = "input"
    FROZEN = "frozen"
    MAPPED = "frozen, mapped"
    PARAMETER = "parameter"
    STATE = "state"
    INTERMEDIATE = "intermediate"
    OUTPUT = "output"

    @property
    def is_frozen(self) -> bool:
        """Whether nobody writes the bytes."""
        return self in (Role.FROZEN, Role.MAPPED)


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel call.

    kernel: a name of the kernel interface; tensors: its arguments in the interface's order, None where optional;
    settings: its plain values; phase, layer: where in the step it stands ("" outside any layer);
    scratch_bytes: what it needs beside its tensors while it runs.
    """

    kernel: str
    tensors: tuple[Tensor | None, ...]
    settings: Settings
    phase: Phase
    layer: str
    scratch_bytes: int

    @property
    def reads(self) -> list[Tensor]:
        """Tensors whose values it needs, those that it updates included."""
        return _of_roles(self.kernel, self.tensors, _READING)

    @property
    def writes(self) -> list[Tensor]:
        """Tensors whose values it sets, those that it updates included."""
        return _of_roles(self.kernel, self.tensors, _WRITING)


class Operand(NamedTuple):
    """A tensor of a recorded call: a view over the block with this number. strides, offset: bytes."""

    block: int
    shape: Shape
    dtype: DType
    strides: Shape
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def stop(self) -> int:
        """Behind the last byte, counted in the block as the offset is."""
        return self.offset + span(self.shape, self.strides, self.dtype.itemsize).stop


@dataclass(slots=True)
class Instruction:
    """A recorded kernel call, as `Operation`; it holds no tensor, so it keeps no block alive.

    number: its index in the record, kept through every reordering. repeats: the number of the instruction whose results
    it makes again, bit for bit; None where it is no repeat. transfer: of a "copy" between the arena and host memory,
    whether it begins it or waits for its end; both have the same operands. None of all others. joins: of joined calls
    (`joined_name`) the number that each of them had, in the order of the operands; () of all others.
    """

    number: int
    kernel: str
    operands: tuple[Operand | None, ...]
    settings: Settings
    phase: Phase
    layer: str
    scratch_bytes: int
    repeats: int | None = None
    transfer: Transfer | None = None
    joins: tuple[int, ...] = ()

    @property
    def reads(self) -> list[Operand]:
        """Operands whose values it needs, those that it updates included."""
        return _of_roles(self.kernel, self.operands, _READING)

    @property
    def writes(self) -> list[Operand]:
        """Operands whose values it sets, those that it updates included."""
        return _of_roles(self.kernel, self.operands, _WRITING)

    def with_operands(self, operands: tuple[Operand | None, ...]) -> Instruction:
        """The same call over other operands. (dataclasses.replace takes five times as long.)"""
        return Instruction(
            self.number,
            self.kernel,
            operands,
            self.settings,
            self.phase,
            self.layer,
            self.scratch_bytes,
            self.repeats,
            self.transfer,
            self.joins,
        )

    @property
    def by_name(self) -> dict[str, Operand | None]:
        """Its operands by the names that the interface gives them."""
        return dict(zip(SIGNATURES[self.kernel].tensors, self.operands, strict=True))

    @property
    def by_samples(self) -> tuple[str, ...]:
        """`Facts.by_samples`; none where it has the tensor that joins samples."""
        facts = SIGNATURES[self.kernel].facts
        return () if facts.joins_samples and self.by_name[facts.joins_samples] else facts.by_samples


def repeat_of(instruction: Instruction) -> Instruction:
    """The call that makes results of a recorded one again: the same, or the one that `Facts.again` names.

    Its operands lie over the blocks of the recorded call; those that it reads may be some that the recorded call wrote.
    """
    kernel = SIGNATURES[instruction.kernel].facts.again
    if not kernel:
        return replace(instruction, repeats=instruction.number)
    by_name = instruction.by_name
    operands = tuple(by_name[name] for name in SIGNATURES[kernel].tensors)
    settings = SIGNATURES[kernel].settings_of(instruction.settings)
    return replace(instruction, kernel=kernel, operands=operands, settings=settings, repeats=instruction.number)


def called(instruction: Instruction) -> str:
    """An instruction as errors name it."""
    return f"instruction {instruction.number} ({instruction.kernel}, layer {instruction.layer!r})"


def blocks_of(instruction: Instruction) -> list[int]:
    """The blocks that an instruction uses."""
    return [operand.block for operand in instruction.operands if operand is not None]


def over_blocks(instruction: Instruction, moved: Mapping[int, int]) -> Instruction:
    """The same call over other blocks, where they stand for some of its own; else the instruction itself."""
    operands = instruction.operands
    if moved.keys().isdisjoint(blocks_of(instruction)):
        return instruction
    return instruction.with_operands(
        tuple(o if o is None or o.block not in moved else o._replace(block=moved[o.block]) for o in operands)
    )


def _of_roles(kernel: str, arguments: Sequence[Argument | None], roles: frozenset[str]) -> list[Argument]:
    pairs = zip(arguments, SIGNATURES[kernel].roles, strict=True)
    return [argument for argument, role in pairs if argument is not None and role in roles]
