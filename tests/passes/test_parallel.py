"""Plans that hold whatever runs at the same time: blocks share bytes only if dependencies order all their uses."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programs import (
    Call,
    add,
    bits,
    call,
    copy,
    double,
    fill,
    matmul,
    numbers,
    program,
    random_programs,
    relu,
    run,
    start_of,
    tanh,
    thorough,
    whole,
)
from singa_lite.memory.problem import PlanError
from singa_lite.passes.dependencies import predecessors
from singa_lite.passes.lower import lower
from singa_lite.passes.parallel import conflicts, ready_order
from singa_lite.passes.placed import Placed
from singa_lite.passes.program import Program, requests

INPUT, RESULT, SECOND = whole(0, 3, 4), whole(1, 3, 4), whole(2, 3, 4)
A, B, C, D, E, F = (whole(number, 3, 4) for number in range(10, 16))
HELD = [0, 1, 2]
#: Two branches that do not know of each other, and then a sum.
BRANCHES = (double(INPUT, A), tanh(INPUT, B), tanh(A, C), double(B, D), tanh(C, E), tanh(D, F), add(E, F, RESULT))
#: The same, first all of one branch and then all of the other.
IN_TURN = (*BRANCHES[0:6:2], *BRANCHES[1:6:2], BRANCHES[6])


def apart(made: Program) -> set[frozenset[str]]:
    """Pairs of requests that must not share bytes."""
    wanted = requests(made)
    found = conflicts(made, wanted)
    return {frozenset((wanted[i].id, wanted[j].id)) for i, others in enumerate(found) for j in others}


def shuffled(made: Program, source: random.Random) -> Program:
    """An order that keeps the dependencies and nothing else."""
    before = [set(earlier) for earlier in predecessors(made.instructions)]
    left, order = set(range(len(before))), []
    while left:
        chosen = source.choice(sorted(step for step in left if not before[step] & left))
        left.discard(chosen)
        order.append(made.instructions[chosen])
    return made.with_instructions(order)


def pair(one: int, other: int) -> frozenset[str]:
    return frozenset((f"b{one}", f"b{other}"))


def test_waves():
    """All that is ready, then all that has become ready."""
    made = program(*BRANCHES, held=HELD)
    first = program(*IN_TURN, held=HELD)
    assert numbers(made.with_instructions(ready_order(made.instructions))) == [0, 1, 2, 3, 4, 5, 6]
    assert numbers(first.with_instructions(ready_order(first.instructions))) == [0, 3, 1, 4, 2, 5, 6]


def test_a_chain_may_share():
    made = program(double(INPUT, A), relu(A, B), double(B, C), relu(C, RESULT), held=HELD)
    assert apart(made) == {pair(10, 11), pair(11, 12)}


def test_branches_that_do_not_know_of_each_other_never_share():
    made = program(*BRANCHES, held=HELD)
    left, right = (10, 12, 14), (11, 13, 15)
    between = {pair(one, other) for one in left for other in right}
    assert between <= apart(made)
    assert pair(10, 14) not in apart(made)


def test_what_follows_both_branches_may_share_with_either():
    made = program(*BRANCHES[:-1], add(E, F, whole(16, 3, 4)), double(whole(16, 3, 4), RESULT), held=HELD)
    assert not {pair(16, 10), pair(16, 11), pair(16, 12), pair(16, 13)} & apart(made)
    assert {pair(16, 14), pair(16, 15)} <= apart(made)


def test_a_reader_on_another_branch_keeps_a_block_apart():
    """Of A both branches read; B is written by the one that may be done while the other still reads."""
    made = program(double(INPUT, A), tanh(A, B), tanh(B, C), copy(C, RESULT), copy(A, SECOND), held=HELD)
    assert pair(10, 12) in apart(made)


def test_scratch_of_two_at_the_same_time_is_apart():
    tall, other = whole(3, 70, 40), whole(4, 70, 40)
    results = whole(5, 70, 40), whole(6, 70, 40)
    made = program(
        call("softmax", tall, results[0], axis=1), call("softmax", other, results[1], axis=1),
        call("softmax", results[0], whole(7, 70, 40), axis=1), held=[3, 4, 5, 6, 7],
    )  # fmt: skip
    assert apart(made) == {frozenset(("s0", "s1")), frozenset(("s1", "s2"))}


def test_operands_of_one_operation_are_apart():
    made = program(fill(A), fill(B), add(A, B, C), copy(C, RESULT), held=HELD)
    assert {pair(10, 11), pair(10, 12), pair(11, 12)} <= apart(made)


def correct_in_any_order(placed: Placed, made: Program, seeds: range) -> bool:
    start = start_of(made)
    wanted = bits(run(made, start))
    orders = (shuffled(placed.planned, random.Random(seed)) for seed in seeds)
    return all(bits(run(order, start, placed.offsets)) == wanted for order in orders)


def test_a_plan_for_one_order_breaks_in_another_and_a_parallel_one_does_not():
    """Two branches with a large value each; only one of these need be there at a time. So what follows can fail."""
    square, column = whole(0, 20, 20), whole(1, 20, 1)
    wide, narrow = (whole(10, 20, 20), whole(11, 20, 20)), (whole(12, 20, 1), whole(13, 20, 1))
    made = program(
        double(square, wide[0]), matmul(wide[0], column, narrow[0]),
        tanh(square, wide[1]), matmul(wide[1], column, narrow[1]),
        add(*narrow, whole(2, 20, 1)), held=HELD,
    )  # fmt: skip
    serial, parallel = (lower(made, parallel=parallel) for parallel in (False, True))
    assert serial.arena_bytes < parallel.arena_bytes
    assert not correct_in_any_order(serial, made, range(20))
    assert correct_in_any_order(parallel, made, range(20))


def ladder(rungs: int) -> list[Call]:
    """Two rails; each rung adds the one to the other (memonger visited such nets badly)."""
    calls = [double(INPUT, A), tanh(INPUT, B)]
    left, right = A, B
    for rung in range(rungs):
        new_left, new_right = whole(20 + 2 * rung, 3, 4), whole(21 + 2 * rung, 3, 4)
        calls += [add(left, right, new_left), tanh(right, new_right)]
        left, right = new_left, new_right
    return [*calls, copy(left, RESULT), copy(right, SECOND)]


@pytest.mark.parametrize("rungs", [1, 2, 7])
def test_ladders(rungs):
    made = program(*ladder(rungs), held=HELD)
    assert correct_in_any_order(lower(made, parallel=True), made, range(30))


def test_the_dependency_order_is_kept_by_name():
    made = program(*BRANCHES, held=HELD)
    assert lower(made, parallel=True).order == "dependencies"


def test_a_planted_fault_in_a_parallel_plan_is_found(monkeypatch):
    """A placement that goes by lifespans where it should go by dependencies."""
    from singa_lite.passes import lower as module

    honest = module.plan
    monkeypatch.setattr(module, "plan", lambda wanted, *, conflicts=None, **limits: honest(wanted, **limits))
    made = program(*BRANCHES[:2], tanh(A, C), copy(C, SECOND), tanh(B, D), copy(D, RESULT), held=HELD)
    with pytest.raises(PlanError, match="overlap"):
        lower(made, parallel=True)


@thorough
@given(random_programs, st.randoms(use_true_random=False))
def test_random_programs_in_any_order_give_the_recorded_results(made: Program, source):
    placed = lower(made, parallel=True)
    start = start_of(made)
    wanted = bits(run(made, start))
    for _ in range(3):
        assert bits(run(shuffled(placed.planned, source), start, placed.offsets)) == wanted
