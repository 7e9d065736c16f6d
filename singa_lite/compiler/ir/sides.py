"""Sides of a rule: what it looks for in a record and what it puts there, as instructions over numbered blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from singa_lite.compiler.ir.operation import Instruction, Operand


class Side(NamedTuple):
    """A function as it was recorded. inputs, outputs: its tensors; all other blocks that it uses are its own."""

    instructions: tuple[Instruction, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @property
    def held(self) -> frozenset[int]:
        """Blocks of inputs and outputs."""
        return frozenset(operand.block for operand in (*self.inputs, *self.outputs))


class Sides(NamedTuple):
    """Both sides for one form of the inputs. They name inputs and outputs in the same order."""

    pattern: Side
    replacement: Side


class RecordRule(Protocol):
    """A rule as it is proved for a device."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def examples(self) -> Sequence[Sides]:
        """The rule's variants, each for some form: a place in a record is looked for by their kernels."""

    def sides(self, variant: int, inputs: Sequence[Operand]) -> Sides | None:
        """Both sides of a variant for inputs of these forms; None for forms that the rule is not stated for."""


class Application(NamedTuple):
    """One application of a rule: numbers of the instructions that its pattern matched and of those that replaced them,
    in the order of both sides.
    """

    name: str
    sides: Sides
    matched: tuple[int, ...]
    made: tuple[int, ...]
