"""Rules: each place of a program that has a rule's pattern gets its replacement.

    recorded:   h = relu(x);  y = h * h                    rule:  relu(x) * relu(x)  ->  Squared()(x)
    here:       y = Squared(x)

The program is the user's own record. What was put where is noted, and `check_rewrites` holds it against the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from singa_lite.compiler.ir.matching import Application, CallPattern, RecordRule, Side, Sides
from singa_lite.compiler.ir.operation import Instruction, Operand, blocks_of
from singa_lite.compiler.ir.program import Program, Rewriter
from singa_lite.compiler.ir.uses import Uses


def ruled(program: Program) -> Program:
    """Apply the target's rules, one after the other, each once along the program."""
    for rule in program.target.rules:
        for variant in range(len(rule.examples)):
            program = _apply_variant(program, rule, variant)
    return program


def _apply_variant(program: Program, rule: RecordRule, variant: int) -> Program:
    """One variant of a rule wherever it may be applied, the earlier place first where two overlap."""
    places = _Places(program, rule, variant)
    pattern = [
        CallPattern({i.kernel: ""}, "", tuple(None if o is None else o.block for o in i.operands), open=False)
        for i in rule.examples[variant].pattern.instructions
    ]
    for steps in places.uses.places(pattern):
        places.take(steps)
    return places.result()


class _Places:
    """The places of a program that one variant of a rule has replaced so far."""

    def __init__(self, program: Program, rule: RecordRule, variant: int) -> None:
        self.program, self.rule, self.variant = program, rule, variant
        self.uses = Uses(program.instructions)
        self.make = Rewriter(program)
        self.gone: set[int] = set()
        self.placed: dict[int, list[Instruction]] = defaultdict(list)  # behind the instructions of these steps
        self.applied: list[Application] = []

    def result(self) -> Program:
        """The program with all that was taken."""
        if not self.applied:
            return self.program
        kept = ([*([] if s in self.gone else [i]), *self.placed[s]] for s, i in enumerate(self.program.instructions))
        made = self.make.program(i for some in kept for i in some)
        return replace(made, applied=(*self.program.applied, *self.applied))

    def take(self, steps: tuple[int, ...]) -> None:
        """Replace what stands at these steps, if the rule holds for its forms and nothing else needs what goes."""
        if self.gone.intersection(steps):
            return
        found = [self.program.instructions[step] for step in steps]
        sides = self._sides(found)
        where = None if sides is None else _bases(sides.pattern, found)
        if sides is None or where is None or not self._alone(sides.pattern, steps, where):
            return
        at = _places(sides, steps)
        if at is None or not self._there(sides, steps, where, at):
            return
        made = self._made(sides, where, at)
        self.gone.update(steps)
        numbers = tuple(instruction.number for instruction in made)
        matched = tuple(instruction.number for instruction in found)
        self.applied.append(Application(self.rule.name, sides, matched, numbers))

    def _sides(self, found: Sequence[Instruction]) -> Sides | None:
        """Both sides for the forms of the inputs at hand; None where an input is not taken as in the pattern."""
        example = self.rule.examples[self.variant].pattern
        taken: dict[Operand, Operand] = {}
        for mine, theirs in zip(example.instructions, found, strict=True):
            for one, other in zip(mine.operands, theirs.operands, strict=True):
                if one is not None and other is not None:
                    taken.setdefault(one, other)
        if not taken.keys() >= {*example.inputs}:
            return None
        return self.rule.sides(self.variant, [taken[operand] for operand in example.inputs])

    def _alone(self, pattern: Side, steps: Sequence[int], where: dict[int, tuple[int, int]]) -> bool:
        """Whether nobody else uses the pattern's own blocks, and each block is used in the pattern's order."""
        outputs = {operand.block for operand in pattern.outputs}
        uses = _uses_by_block(pattern.instructions, steps)
        for block, (there, _) in where.items():
            writes = [use.step for use in uses[block] if use.writes]
            if writes and sum(other == there for other, _ in where.values()) > 1:
                return False
            if block not in pattern.held_blocks and (
                there not in self.program.sizes or not set(self.uses.steps[there]) <= set(steps)
            ):
                return False
            if not _in_order(uses[block]):
                return False
            if block in outputs and self.uses.is_used(there, min(writes), max(writes), steps):
                return False
        return True

    def _there(self, sides: Sides, steps: Sequence[int], where: dict[int, tuple[int, int]], at: Sequence[int]) -> bool:
        """Whether each input holds, where the replacement reads it, what the pattern reads; and no output is taken."""
        uses, made = (_uses_by_block(s.instructions, places) for s, places in zip(sides, (steps, at), strict=True))
        for mine, theirs in zip(sides.replacement.inputs, sides.pattern.inputs, strict=True):
            moments = [use.step for use in (*uses[theirs.block], *made[mine.block])]
            if self.uses.is_changed(where[theirs.block][0], min(moments), max(moments)):
                return False
        for mine, theirs in zip(sides.replacement.outputs, sides.pattern.outputs, strict=True):
            first = min(use.step for use in made[mine.block])
            last = max(use.step for use in uses[theirs.block] if use.writes)
            if self.uses.is_used(where[theirs.block][0], first, last, steps):
                return False
        return True

    def _made(self, sides: Sides, where: dict[int, tuple[int, int]], at: Sequence[int]) -> list[Instruction]:
        """The replacement's calls, put in their places."""
        pairs = zip(
            (*sides.replacement.inputs, *sides.replacement.outputs),
            (*sides.pattern.inputs, *sides.pattern.outputs),
            strict=True,
        )
        blocks = {mine.block: where[theirs.block] for mine, theirs in pairs}
        sizes = _sizes(sides.replacement)
        made = []
        for step, call in zip(at, sides.replacement.instructions, strict=True):
            for block in blocks_of(call):
                if block not in blocks:
                    blocks[block] = self.make.new_block(sizes[block]), 0
            operands = []
            for operand in call.operands:
                block, start = (0, 0) if operand is None else blocks[operand.block]
                operands.append(operand and operand._replace(block=block, offset=start + operand.offset))
            new = self.make.call(self.program.instructions[step], tuple(operands), call.kernel, call.settings)
            self.placed[step].append(new)
            made.append(new)
        return made


class _BlockUse(NamedTuple):
    """A use of a block by a call, which stands at a step of a program and at a place of its side."""

    step: int
    place: int
    writes: bool


def _uses_by_block(instructions: Sequence[Instruction], steps: Sequence[int]) -> dict[int, list[_BlockUse]]:
    """The uses of each block of a side, by rising index. steps: where its calls stand."""
    found: dict[int, list[_BlockUse]] = defaultdict(list)
    for index, (step, instruction) in enumerate(zip(steps, instructions, strict=True)):
        written = {operand.block for operand in instruction.writes}
        for block in dict.fromkeys(blocks_of(instruction)):
            found[block].append(_BlockUse(step, index, block in written))
    return found


def _in_order(uses: Sequence[_BlockUse]) -> bool:
    """Whether all reads of a block stand between the same writes as in a side of a rule."""
    pairs = ((one, other) for at, one in enumerate(uses) for other in uses[at + 1 :])
    return all(one[:2] < other[:2] for one, other in pairs if one.writes or other.writes)


def _places(sides: Sides, steps: Sequence[int]) -> list[int] | None:
    """Behind which step each of the replacement's calls goes: where the first output that needs it was last written.

    None where the replacement makes an output otherwise than in a block of its own.
    """
    uses = _uses_by_block(sides.pattern.instructions, steps)
    pairs = zip(sides.pattern.outputs, sides.replacement.outputs, strict=True)
    due = {made.block: max(use.step for use in uses[output.block] if use.writes) for output, made in pairs}
    at = [-1] * len(sides.replacement.instructions)
    for index in reversed(range(len(at))):
        call = sides.replacement.instructions[index]
        wanted = [due[operand.block] for operand in call.writes if operand.block in due]
        if not wanted:
            return None
        at[index] = min(wanted)
        for operand in (*call.reads, *call.writes):
            due[operand.block] = min(due.get(operand.block, at[index]), at[index])
    return at if all(map(_in_order, _uses_by_block(sides.replacement.instructions, at).values())) else None


def _sizes(side: Side) -> dict[int, int]:
    """{block: bytes up to the end of the last operand over it}."""
    sizes: dict[int, int] = defaultdict(int)
    for instruction in side.instructions:
        for operand in instruction.operands:
            if operand is not None:
                sizes[operand.block] = max(sizes[operand.block], operand.stop)
    return sizes


def _bases(pattern: Side, found: Sequence[Instruction]) -> dict[int, tuple[int, int]] | None:
    """Returns {block of the pattern: (block, where the pattern's block begins in it)}, or None if the instructions do
    not match. They match if kernel, settings, shapes, dtypes and strides are equal.
    """
    places: dict[int, tuple[int, int]] = {}
    for mine, theirs in zip(pattern.instructions, found, strict=True):
        if mine.kernel != theirs.kernel or mine.settings != theirs.settings:
            return None
        for one, other in zip(mine.operands, theirs.operands, strict=True):
            if one is None or other is None:
                if one is not other:
                    return None
                continue
            place = other.block, other.offset - one.offset
            if one[1:4] != other[1:4] or places.setdefault(one.block, place) != place:
                return None
    return places
