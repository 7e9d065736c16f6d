"""ByteLimit: bytes that a step may take in all, and what the process takes for its calls, which a budget counts.

Of the process count code, launches and the record. Measured (`docs/budget.md`, "What the process takes beside the
budget"): at most so much for each call, and for each different one, whose code no other has, what the kernel set says
(`KernelSet.code_of`).

`fit` records a training step four times: for whole batches and for the shorter one at the end, and an evaluation of
both. So a program that trains counts once more as the shorter batch's, whose shapes are all others; evaluations share
nearly all of their code with the forward part, and count its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from singa_lite.compiler.ir.operation import Instruction, Phase
from singa_lite.runtime.pool_numbers import arena_within, least_total, overhead

#: Of each call: its launch, its part of the record, and what planning takes for it at its peak; and the same of a
#: further form, which is planned while no arena is in memory.
A_CALL, A_CALL_MORE = 12 << 10, 6 << 10
#: What is promised beside every budget, with AVX-512, and for each further form of record: so much does not count.
BESIDE, A_FORM = 25 << 20, 16 << 20
#: Forms of record that `fit` adds to the training step of whole batches.
FURTHER = 3
#: Bytes of code of a different call, by its kernel.
CodeBytes = Callable[[str], int]


@dataclass(frozen=True)
class ByteLimit:
    """A budget, or a device's limit. nbytes: in all; taken: of these, held beside the step; device: whose limit it is,
    "" for a budget that was asked for; process: what the process takes beside the pool, which a budget counts.
    """

    nbytes: int
    taken: int = 0
    device: str = ""
    process: int = 0

    @property
    def left(self) -> int:
        """Bytes for the step."""
        return self.nbytes - self.taken

    def beside(self, nbytes: int) -> ByteLimit:
        """The same of a budget, where the process takes so much; of a device's limit, which counts its pool alone, it
        itself.
        """
        return self if self.device or not nbytes else replace(self, process=nbytes)

    def arena(self, held: Sequence[int], alignment: int) -> int:
        """The most bytes that the step's arena may have. held: of each block outside it; alignment: of the pool's."""
        return arena_within(self.nbytes - self.process, self._region_sizes(held), alignment)

    def total(self, held: Sequence[int], arena: int, alignment: int) -> int:
        """All that is held with an arena of so many bytes: the step, what the pool adds, and what others hold."""
        everything = self._region_sizes(held)
        return sum(everything) + arena + overhead(everything, arena, alignment) + self.process

    def leaves(self, held: Sequence[int], arena: int, alignment: int) -> bool:
        """Whether a step has room beside an arena of so many bytes, which others may have made larger than it needs."""
        return least_total(self._region_sizes(held), arena, alignment) <= self.nbytes - self.process

    def may_hold(self, held: Sequence[int], arena: int, alignment: int) -> bool:
        """Whether a pool with this limit holds the step where regions lie in its segments without a gap."""
        regions = (nbytes + -nbytes % alignment for nbytes in (*held, arena))
        return bool(self.device) and sum(regions) + self.taken <= self.nbytes

    def _region_sizes(self, held: Sequence[int]) -> list[int]:
        return [*held, self.taken] if self.taken else list(held)


def launch_bytes(instructions: Sequence[Instruction], code: CodeBytes) -> int:
    """Bytes that a process takes for these calls beyond what is promised, which a budget counts; 0 for all but large
    nets. Of a training step also those of what else `fit` records.

    code: of each different call, by its kernel.
    """
    one = _form_bytes(instructions, code)
    if not trains(instructions):
        return max(0, one - BESIDE)
    forward = sum(instruction.phase is Phase.FORWARD and instruction.repeats is None for instruction in instructions)
    return max(0, one - BESIDE, 2 * (one + forward * A_CALL) - BESIDE - FURTHER * A_FORM)


def further_bytes(instructions: Sequence[Instruction], code: CodeBytes) -> int:
    """Bytes that a process takes for the calls of one more form of a training step, beyond what is promised for it.

    0 of what does not train.
    """
    if not trains(instructions):
        return 0
    return max(0, _form_bytes(instructions, code, A_CALL_MORE) - A_FORM)


def trains(instructions: Iterable[Instruction]) -> bool:
    """Whether these go back."""
    return any(instruction.phase is not Phase.FORWARD for instruction in instructions)


def _form_bytes(instructions: Sequence[Instruction], code: CodeBytes, a_call: int = A_CALL) -> int:
    """Bytes that a process takes for the calls of one recorded step."""
    different = {_form(instruction): instruction.kernel for instruction in instructions if code(instruction.kernel)}
    return len(instructions) * a_call + sum(map(code, different.values()))


def _form(instruction: Instruction) -> tuple[object, ...]:
    """Equal for calls that share their code."""
    operands = (None if o is None else (o.shape, str(o.dtype), o.strides) for o in instruction.operands)
    return instruction.kernel, repr(instruction.settings), *operands
