"""Repeats that fusion has paid for: in a plan without a limit too, values are dropped that one cheap call makes again.

An activation within the call of the normalisation before it saves a pass over memory, and so does a bias within a
product; attention by tiles saves four over all its scores. To normalise by the statistics that were kept, activation
included, takes about one such pass; a normalisation by rows and GELU take a few. So as many of these values are
dropped, and made again where backward reads them, as fusion has saved time for: the step needs less memory, and takes
no longer than with the calls apart. By the rule of `time_model.py`, whatever costs are measured: so the plan is the
same on every machine. Gaps between rows are not charged here: docs/measured_budget.md says what that costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from singa_lite.compiler.ir.laws import applies_activation
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.ir.time_model import OF_ACTIVATIONS
from singa_lite.compiler.ir.time_model import seconds_without_gaps as seconds
from singa_lite.compiler.recompute.budget import Searches
from singa_lite.compiler.recompute.local_search import SECOND, LocalSearch
from singa_lite.compiler.recompute.repeats import Repeater
from singa_lite.compiler.rewrite.fusions import NORM
from singa_lite.compiler.share.in_place import in_place
from singa_lite.kernels.interface import SIGNATURES

#: By how much the floor is lowered at a time, and the trials of a turn.
STEP_DOWN = 0.99
#: Bytes of a product's result from which on a bias within its call saves a pass over memory, and not over a cache.
LARGE = 1 << 20
ATTENTION = "attention"
#: Calls besides that go over their tensors a few times: norms by rows, and activations that take little longer.
CHEAP = frozenset({"layer_norm", "rms_norm", *OF_ACTIVATIONS})
WIDTHS = (1, 1, 1)


def free_recompute(program: Program, searches: Searches) -> Program:
    """The program with these repeats, where that lowers its floor and it keeps the target's limit with them.

    Where it does not, it is left to other repeats, from the beginning, and what it would be is noted as `Program.free`.
    searches: remember what was found for another limit of the same program.
    """
    free = searches.free = searches.free or _bought(program)
    if free.instructions is program.instructions:
        return program
    limit = program.target.limit
    if limit is None or floor(in_place(free)) <= limit:
        return replace(free, target=program.target)
    return replace(program, free=free.instructions)


def _bought(program: Program) -> Program:
    """The program with the repeats that its own fused calls pay for; the same one where there are none."""
    if not any(_is_cheap(instruction) for instruction in program.instructions):
        return program
    means = round(SECOND * sum(_saved(program)))
    if means <= 0:
        return program
    local = LocalSearch(Repeater(program, _is_cheap), seconds)
    best = free = local.choice()
    while local.lower(int(best.floor * STEP_DOWN), WIDTHS, bound=means):
        best = local.choice()
    if best.floor >= free.floor:
        return program
    local.begin(best.levels)
    local.take_back(best.floor)
    made = replace(local.model.schedule.program(), rivals=())
    return replace(made, free=made.instructions)


def _is_cheap(instruction: Instruction) -> bool:
    """Whether a call goes over its tensors about once to give its result again: by statistics that were kept, a sum, or
    one of `CHEAP`.
    """
    if instruction.kernel in CHEAP:
        return True
    facts = SIGNATURES[instruction.kernel].facts
    return bool(facts.again) or (_is_activated(instruction) and not facts.multiplies)


def _is_activated(instruction: Instruction) -> bool:
    """Whether it applies an activation to what it makes, within its call."""
    return bool(instruction.settings.get("activation")) and applies_activation(instruction.kernel)


def _saved(program: Program) -> Iterator[float]:
    """Seconds that each fused call takes less than the calls apart, where the kernels spare a pass over memory.

    One pass each: what a sum or the second bound of ReLU6 within a call save is not spent, the step is faster by it. A
    bias within a product is one, too, where its result is large; within attention scores are neither written for their
    softmax nor read by it, and neither written by it nor read again.
    """
    for i in map(_sum_alone, program.instructions):
        if i.repeats is not None:
            continue
        if _is_activated(i):
            if program.target.in_one_pass(i.kernel, i.operands, i.settings):
                settings = {name: value for name, value in i.settings.items() if name != "activation"}
                y = i.by_name["y"]
                activation = replace(i, kernel="relu", operands=(y, y), settings={})
                yield seconds(replace(i, settings=settings)) + seconds(activation) - seconds(i)
        elif i.kernel in ("linear", ATTENTION):
            y = _scores(i) if i.kernel == ATTENTION else i.by_name["y"] if i.by_name["bias"] else None
            if y and y.nbytes >= LARGE and program.target.in_one_pass(i.kernel, i.operands, i.settings):
                yield seconds(replace(i, kernel="copy", operands=(y, y), settings={})) * (1 + (i.kernel == ATTENTION))


def _scores(attention: Instruction) -> Operand | None:
    """What would hold all scores of all heads, which exist in no call of attention."""
    q, k = attention.by_name["q"], attention.by_name["k"]
    return q and k and q._replace(shape=(q.shape[0], q.shape[2], q.shape[1], k.shape[1]), strides=(0, 0, 0, 0))


def _sum_alone(instruction: Instruction) -> Instruction:
    """The sum and activation of a normalisation that has them within; any other call as it is."""
    other, activation = instruction.by_name.get("other"), instruction.settings.get("activation")
    if instruction.kernel != NORM or other is None or not activation:
        return instruction
    y = instruction.by_name["y"]
    return replace(instruction, kernel="add", operands=(other, y, y), settings={"activation": activation})
