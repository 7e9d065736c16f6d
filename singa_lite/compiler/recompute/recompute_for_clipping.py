"""Forms of a step that clips gradients by their norm, in which gradients need not live until the norm is known.

    kept:     make dB, square it -- make dA, square it -- factor -- update B -- update A
                   |_______________________________________________|             |
                                        |________________________________________|
    twice:    make dB, square it -- make dA, square it -- factor -- make dB, update B -- make dA, update A

What makes a gradient is recorded once; here it stands twice, over blocks of its own, so what the passes do with a
product and what uses it, they do with both: a large gradient is made, squared and dropped by tiles, and made, applied
and dropped by tiles. The second time takes the derivatives that were kept, or makes these again too, which is a second
walk back: derivatives are dropped on the way as ever. Values of the forward part wait for both walks then, or are made
again with the rest: a second step in all but the head, which takes about as little memory as without clipping.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain

from singa_lite.compiler.ir.collectives import has_any
from singa_lite.compiler.ir.operation import Instruction, Phase, blocks_of, over_blocks
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.rewrite.scores import LOSS, scores_of
from singa_lite.kernels.interface import SIGNATURES

_BACKWARD = (Phase.DERIVATIVE, Phase.GRADIENT)
#: What makes the factor of all gradients, when the last one is there.
_FACTORS = frozenset({"clip_factor", "unscale_factor"})


#: The form that hardly ever takes less time than another that keeps a limit, and that takes longest to search.
STEP_TWICE = "the step is done twice, for the norm of all gradients and for the updates"
#: {in words: phases of what is made the second time}, those first that take less time.
FORMS = {
    "each gradient is made twice, for the norm of all and for its update": (Phase.GRADIENT,),
    "the way back is walked twice, for the norm of all gradients and for the updates": _BACKWARD,
    STEP_TWICE: (Phase.FORWARD, *_BACKWARD),
}


def clipping_forms(recorded: Program) -> dict[str, Program]:
    """The other forms of a record, in words. None where it does not clip, or not in one walk back, or where gradients
    are summed over processes, which is done once.
    """
    if has_any(recorded):
        return {}
    found = {name: _ClippingVariant(recorded, phases).result() for name, phases in FORMS.items()}
    return {name: program for name, program in found.items() if program is not None}


class _ClippingVariant:
    """phases: of what is made the second time."""

    def __init__(self, program: Program, phases: Collection[Phase]) -> None:
        self.program = program
        self.instructions = program.instructions
        self.phases = phases
        self.uses = Uses(program.instructions)
        found = [scores_of(program, self.uses, s) for s, i in enumerate(self.instructions) if i.kernel == LOSS]
        steps = (s for one in found if one for s in one.steps)
        #: What a head in tiles makes as soon as it has the derivatives by scores: all but the weight's gradient.
        self.of_scores = {s for s in steps if not self.instructions[s].settings.get("transpose_a")}
        self.factor = next((s for s, i in enumerate(self.instructions) if i.kernel in _FACTORS), 0)
        self.squared = {
            i.operands[0].block
            for i in self.instructions[: self.factor]
            if i.kernel == "add_squares"
            and i.operands[0] is not None
            and i.operands[0].block in program.sizes
            and i.operands[1] == self.instructions[self.factor].operands[0]  # other norms are told, and clip nothing
        }

    def result(self) -> Program | None:
        if not self.factor or not self.squared or not self._walks_once():
            return None
        steps = self._steps()
        return self._program(sorted(steps)) if steps and self._is_sound(steps) else None

    def _walks_once(self) -> bool:
        """Whether the walk back is all behind the forward part: not of micro-batches."""
        phases = [i.phase for i in self.instructions[: self.factor]]
        first = next((s for s, phase in enumerate(phases) if phase in _BACKWARD), len(phases))
        return Phase.FORWARD not in phases[first:]

    def _steps(self) -> set[int]:
        """What makes the gradients, from what is kept: values of other phases, and those that cannot be made again."""
        steps, left, seen = set[int](), list(self.squared), set(self.squared)
        while left:
            for step in self.uses.writers[left.pop()]:
                made = self.instructions[step]
                if step >= self.factor or step in steps or not self._can_be_copied(step):
                    continue
                steps.add(step)
                for operand in made.reads:
                    if operand.block in self.program.sizes and operand.block not in seen:
                        seen.add(operand.block)
                        left.append(operand.block)
        return steps

    def _can_be_copied(self, step: int) -> bool:
        """Whether the instruction may be done twice: it changes no lasting state and overwrites no kept value."""
        made = self.instructions[step]
        facts = SIGNATURES[made.kernel].facts
        if step in self.of_scores or made.phase not in self.phases or facts.again or facts.once:
            return False
        blocks = {operand.block for operand in made.writes}
        writers = {s for block in blocks for s in self.uses.writers[block] if s < self.factor}
        return blocks <= self.program.sizes.keys() and all(self.instructions[s].phase in self.phases for s in writers)

    def _is_sound(self, steps: Collection[int]) -> bool:
        """Whether copies make whole all that they write, and find all else as it was when it was read first."""
        made = {operand.block for step in steps for operand in self.instructions[step].writes}
        whole = all(writer in steps for block in made for writer in self.uses.writers[block] if writer < self.factor)
        return whole and not any(
            self.uses.is_changed(operand.block, step + 1, self.factor)
            for step in steps
            for operand in self.instructions[step].reads
            if operand.block not in made
        )

    def _program(self, steps: Sequence[int]) -> Program:
        sizes, number = dict(self.program.sizes), 1 + max(i.number for i in self.instructions)
        written = sorted({operand.block for step in steps for operand in self.instructions[step].writes})
        over = {block: self.program.next_block + index for index, block in enumerate(written)}
        sizes |= {new: sizes[block] for block, new in over.items()}
        copies = {
            step: replace(over_blocks(self.instructions[step], over), number=number + index)
            for index, step in enumerate(steps)
        }
        groups, rest = self._groups()
        placed: dict[int, list[Instruction]] = {}
        for block, group in groups.items():
            placed.setdefault(self._place(block, group, steps), []).extend(over_blocks(i, over) for i in group)
        behind = chain.from_iterable([copies[step], *placed.get(step, [])] for step in steps)
        last = placed.get(len(self.instructions), [])
        made = (*self.instructions[: self.factor + 1], *rest, *placed.get(-1, []), *behind, *last)
        # What is made the second time does not depend on the factor: other orders would make it before, to wait for it.
        return replace(self.program, instructions=made, sizes=sizes, keeps_order=True)

    def _groups(self) -> tuple[dict[int, list[Instruction]], list[Instruction]]:
        """{gradient: what is done with it behind the norm, in order}, and what comes before any of it."""
        groups: dict[int, list[Instruction]] = {}
        rest: list[Instruction] = []
        group = rest
        for instruction in self.instructions[self.factor + 1 :]:
            found = self.squared.intersection(blocks_of(instruction))
            if found:
                group = groups.setdefault(found.pop(), [])
            group.append(instruction)
        return groups, rest

    def _place(self, gradient: int, group: Collection[Instruction], steps: Sequence[int]) -> int:
        """The copy behind which a gradient is applied: it is whole, and what the update changes is not read any more.

        -1: there is none. The number of all instructions: behind all copies, as a head in tiles makes the scores again.
        """
        if self.of_scores.intersection(self.uses.writers[gradient]):
            return len(self.instructions)
        changed = {operand.block for instruction in group for operand in instruction.writes} | {gradient}
        return max((step for step in steps if changed.intersection(blocks_of(self.instructions[step]))), default=-1)
