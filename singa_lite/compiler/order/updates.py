"""Updates of small parameters by one call: each waits for those behind it, where the floor leaves room for that.

    sgd gamma   ...   sgd beta   ...   sgd bias      ->      ...   ...   sgd*3 gamma beta bias

On a GPU a small update takes as long as its launch. What is waited for is the gradients, which live until then, so this
comes last: the order and the floor are known, and neither changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, lifespans, live_bytes
from singa_lite.compiler.proof.calls import frozen
from singa_lite.kernels.interface import SIGNATURES, joined_name


def updated_together(program: Program) -> Program:
    """Put one call in the place of several updates that the target does faster so (`KernelSet.most_joined`).

    They are of one kernel with equal settings, and share what all of them read alone, the rate. All but the last one
    move back to where that one stands: past no instruction that uses what they write, or writes what they use, and only
    as far as no step holds more bytes than the floor. Greedily, group by group.
    """
    walk = _Walk(program)
    for step in range(len(program.instructions)):
        walk.pass_by(step)
    found = {group.steps[-1]: group for group in walk.groups if len(group.steps) > 1}
    if not found:
        return program
    gone = {step for group in found.values() for step in group.steps}
    kept = (
        walk.joined(found[step]) if step in found else instruction
        for step, instruction in enumerate(program.instructions)
        if step in found or step not in gone
    )
    return program.with_instructions(tuple(kept))


@dataclass
class _Group:
    """Updates that may be done at the last one's step. most: how many there may be; reads, writes: their blocks.

    scratch: of the one call, bytes.
    """

    most: int
    scratch: int
    steps: list[int] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    def is_apart(self, instruction: Instruction) -> bool:
        """Whether the instruction may stand before all of them as well as behind."""
        uses = self.reads | self.writes
        written = {operand.block for operand in instruction.writes}
        return written.isdisjoint(uses) and self.writes.isdisjoint(operand.block for operand in instruction.reads)


class _Walk:
    """Goes over a program's steps with the groups that may still grow, by what their updates have in common."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.groups: list[_Group] = []
        self._open: dict[Hashable, _Group] = {}
        self._live = live_bytes(program)
        self._floor = max(self._live, default=0)
        #: {block of the arena: behind its last use, as far as groups have grown}.
        self._stops = {block: span.stop for block, span in lifespans(program).items()}

    def pass_by(self, step: int) -> None:
        """The next step: groups that may not wait any longer end, and an update begins one or joins one."""
        instruction = self.program.instructions[step]
        for key in [key for key, group in self._open.items() if not group.is_apart(instruction)]:
            del self._open[key]
        target = self.program.target
        most = target.most_joined(instruction.kernel, instruction.operands, instruction.settings)
        if most < 2 or instruction.transfer is not None or instruction.repeats is not None:
            return
        left_out = tuple(operand is None for operand in instruction.operands)
        key = instruction.kernel, frozen(instruction.settings), left_out, tuple(_shared(instruction))
        group = self._open.get(key)
        if group is None or not self._joins(group, step, most):
            group = self._open[key] = _Group(most, self.program.rounded(instruction.scratch_bytes))
            self.groups.append(group)
        self._add(group, step)

    def joined(self, group: _Group) -> Instruction:
        """The one call of a group, in the place of its last update."""
        calls = [self.program.instructions[step] for step in group.steps]
        kernel, operands = joined_name(calls[0].kernel, len(calls)), _operands(calls)
        layers = list(dict.fromkeys(call.layer for call in calls))
        layer = layers[0] if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"
        model = replace(calls[-1], layer=layer)
        made = self.program.target.call(model, kernel, operands, model.settings)
        return replace(made, joins=tuple(call.number for call in calls))

    def _joins(self, group: _Group, step: int, most: int) -> bool:
        """Let the group wait for the update at this step, if no step then holds more bytes than the floor."""
        if len(group.steps) >= min(group.most, most):
            return False
        instructions, last = self.program.instructions, group.steps[-1]
        calls = [instructions[one] for one in (*group.steps, step)]
        kernel, scratch_of = joined_name(calls[0].kernel, len(calls)), self.program.target.scratch_of
        scratch = self.program.rounded(scratch_of(kernel, _operands(calls), calls[0].settings))
        live = self._live[last + 1 : step + 1]
        waiting = [block for block in group.reads | group.writes if self._stops.get(block, step + 1) <= step]
        for block in waiting:
            for one in range(self._stops[block], step + 1):
                live[one - last - 1] += self.program.rounded(self.program.sizes[block])
        live[-1] += scratch - self.program.rounded(instructions[step].scratch_bytes)
        if max(live) > self._floor:
            return False
        self._live[last] -= group.scratch
        self._live[last + 1 : step + 1] = live
        self._stops |= dict.fromkeys(waiting, step + 1)
        group.most, group.scratch = min(group.most, most), scratch
        return True

    def _add(self, group: _Group, step: int) -> None:
        instruction = self.program.instructions[step]
        group.steps.append(step)
        group.reads |= {operand.block for operand in instruction.reads}
        group.writes |= {operand.block for operand in instruction.writes}


def _operands(calls: Iterable[Instruction]) -> tuple[Operand | None, ...]:
    return tuple(operand for call in calls for operand in call.operands)


def _shared(instruction: Instruction) -> Iterator[Operand | None]:
    """What an update reads alone that is one number."""
    for operand, role in zip(instruction.operands, SIGNATURES[instruction.kernel].roles, strict=True):
        if role == "Read" and operand is not None and not operand.shape:
            yield operand
