"""Larger workspaces where the arena has room: which calls get them, what a limit brings, and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from programs import TARGET, Call, copy, double, fill, program, subtract, tanh, whole
from singa_lite.compiler.ir.operation import Operand
from singa_lite.compiler.ir.program import Program, live_bytes, requests
from singa_lite.compiler.lower import Lowering
from singa_lite.compiler.order.workspace import has_levels, with_target_scratch, with_workspaces
from singa_lite.compiler.placed import LimitError, Placed, prove
from singa_lite.compiler.placement.planner import plan
from singa_lite.compiler.placement.problem import PlanError

#: Blocks of 1 KiB each; 0, 8 and 9 are held.
SMALL, HELD = 256, [0, 8, 9]
#: By kernel, bytes of scratch: what each call wants as it is, and what it may do with.
WANTED = {"tanh": 1024, "scale": 512}
LEVELS = {"tanh": (0, 1024, 2048, 3072), "scale": (512, 1536)}


def rule(kernel: str, operands: Sequence[Operand | None], settings: Any) -> int:
    return WANTED.get(kernel, 0)


def levels(kernel: str, operands: Sequence[Operand | None], settings: Any) -> tuple[int, ...]:
    return LEVELS.get(kernel, ())


def block(number: int, kib: int = 1) -> Operand:
    return whole(number, SMALL * kib)


def made(*calls: Call) -> Program:
    target = replace(TARGET, scratch_bytes=rule, levels=levels, fusions=frozenset())
    return with_target_scratch(replace(program(*calls, held=HELD), target=target))


def scratch(placed: Placed) -> dict[int, int]:
    """{number: bytes} of the calls that have levels."""
    return {i.number: i.scratch_bytes for i in placed.planned.instructions if i.kernel in LEVELS}


#: The peak, of 4 KiB and more, is at the difference.
PEAKED = (
    tanh(block(0), block(1)),
    fill(block(3, 2)),
    fill(block(4, 2)),
    subtract(block(3, 2), block(4, 2), block(8, 2)),
    double(block(1), block(6)),
    copy(block(6), block(9)),
)


def test_what_is_free_at_a_step_is_given_and_the_arena_stays():
    recorded = made(*PEAKED)
    assert has_levels(recorded)
    plain = Lowering(replace(recorded, target=replace(recorded.target, levels=lambda *_: ()))).unlimited()
    placed = Lowering(recorded).unlimited()
    prove(placed)
    assert placed.arena_bytes == plain.arena_bytes == max(live_bytes(placed.planned))
    assert scratch(plain) == {0: 1024, 4: 512}
    assert scratch(placed) == {0: 3072, 4: 1536}
    assert placed.offsets == plain.offsets


#: The peak, of 4 KiB and more, is at the tanh.
AT_PEAK = (
    fill(block(1, 2)),
    fill(block(2, 2)),
    tanh(block(1, 2), block(2, 2)),
    copy(block(2, 2), whole(8, 2 * SMALL)),
)


@pytest.mark.parametrize(
    ("kib", "given", "arena"), [(None, 1, 5), (4, 0, 4), (5, 1, 5), (6, 2, 6), (7, 3, 7), (9, 3, 7)]
)
def test_a_limit_trades_arena_for_workspace(kib, given, arena):
    """Below what the plan without a limit takes, calls do with less; above, they get more, as far as they want it."""
    lowering = Lowering(made(*AT_PEAK))
    placed = lowering.unlimited() if kib is None else lowering.within(kib * 1024)
    prove(placed)
    assert scratch(placed) == {2: given * 1024}
    assert placed.arena_bytes == arena * 1024


def test_no_plan_is_smaller_than_that_with_the_least_workspaces():
    with pytest.raises(LimitError) as error:
        Lowering(made(*AT_PEAK)).within(3 * 1024)
    assert error.value.least.arena_bytes == 4 * 1024


def test_a_repeat_has_the_workspace_of_its_original():
    """Its engine must give the same bits: the repeat stands at the peak, so both do with what there is."""
    once = made(
        tanh(block(0), block(1)),
        copy(block(1), block(8)),
        fill(block(3, 2)),
        tanh(block(0), block(2)),
        copy(block(2), block(8)),
        copy(block(3, 2), block(9, 2)),
    )
    apart = with_workspaces(as_it_is(once), None)
    assert scratch(apart) == {0: 3072, 3: 1024}
    calls = [replace(i, repeats=0) if i.number == 3 else i for i in once.instructions]
    assert scratch(with_workspaces(as_it_is(once.with_instructions(calls)), None)) == {0: 1024, 3: 1024}


def as_it_is(given: Program) -> Placed:
    """The program, placed as it stands."""
    return Placed(given, given, given, plan(requests(given), nodes=0), {}, {})


def test_less_than_a_call_has_is_refused_by_the_proof():
    placed = Lowering(made(*PEAKED)).unlimited()
    less = [replace(i, scratch_bytes=0) if i.kernel == "scale" else i for i in placed.planned.instructions]
    with pytest.raises(PlanError, match="512 bytes"):
        prove(replace(placed, planned=placed.planned.with_instructions(less)))
