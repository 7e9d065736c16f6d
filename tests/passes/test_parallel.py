"""Plans whose instructions may run at the same time: waves of lanes, and the proof that no lane disturbs another."""

from __future__ import annotations

import random
from dataclasses import replace

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
    run,
    start_of,
    tanh,
    thorough,
    whole,
)
from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.lower import lower
from singa_lite.compiler.order.parallel import in_waves, near_dependencies
from singa_lite.compiler.placed import Placed, prove
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.races import check_races

INPUT, RESULT, SECOND = whole(0, 3, 4), whole(1, 3, 4), whole(2, 3, 4)
A, B, C, D, E, F = (whole(number, 3, 4) for number in range(10, 16))
HELD = [0, 1, 2]
#: Two branches that do not know of each other, and then a sum.
BRANCHES = (double(INPUT, A), tanh(INPUT, B), tanh(A, C), double(B, D), tanh(C, E), tanh(D, F), add(E, F, RESULT))


def slow(made: Program, lanes: int = 2, seconds: float = 1.0) -> Program:
    """Calls that take so long that waves are worth it."""
    return replace(made, target=replace(made.target, lanes=lanes, cost=lambda instruction: seconds))


def planned(made: Program, lanes: int = 2) -> Placed:
    placed = lower(slow(made, lanes), parallel=True)
    prove(placed)
    return placed


def lanes_of(made: Program) -> list[list[list[int]]]:
    """Numbers of the instructions, by wave and lane."""
    left = iter(numbers(made))
    return [[[next(left) for _ in range(count)] for count in wave] for wave in made.waves]


def interleaved(made: Program, source: random.Random) -> Program:
    """An order that an executor may take: the waves in turn, the lanes of each in any way among each other."""
    by_number = {i.number: i for i in made.instructions}
    order = []
    for wave in lanes_of(made):
        left = [lane[::-1] for lane in wave]
        while any(left):
            order.append(by_number[source.choice([lane for lane in left if lane]).pop()])
    return made.with_instructions(order)


def correct_in_any_order(placed: Placed, made: Program, seeds: range) -> bool:
    start = start_of(made)
    wanted = bits(run(made, start))
    orders = (interleaved(placed.planned, random.Random(seed)) for seed in seeds)
    return all(bits(run(order, start, placed.offsets)) == wanted for order in orders)


def test_two_branches_are_two_lanes():
    made = in_waves(slow(program(*BRANCHES, held=HELD)))
    assert lanes_of(made) == [[[0, 2, 4], [1, 3, 5]], [[6]]]
    assert made.order == "dependencies"


def test_waves_never_raise_a_floor_that_counts():
    """Two large values, of which only one need be there at a time, are not made at the same time."""
    square, column = whole(0, 700, 700), whole(1, 700, 1)
    wide, narrow = (whole(10, 700, 700), whole(11, 700, 700)), (whole(12, 700, 1), whole(13, 700, 1))
    made = program(
        double(square, wide[0]), matmul(wide[0], column, narrow[0]),
        tanh(square, wide[1]), matmul(wide[1], column, narrow[1]),
        add(*narrow, whole(2, 700, 1)), held=HELD,
    )  # fmt: skip
    serial, parallel = lower(slow(made)), planned(made)
    assert parallel.plan.floor == serial.plan.floor == floor(serial.planned)
    assert parallel.arena_bytes == serial.arena_bytes


def test_pieces_of_one_block_are_apart():
    """Two producers write the halves of one block."""
    both = whole(10, 4, 4)
    upper, lower_half = both._replace(shape=(2, 4)), both._replace(shape=(2, 4), offset=32)
    one, other = whole(0, 2, 4), whole(3, 2, 4)
    made = program(double(one, upper), tanh(other, lower_half), copy(both, whole(1, 4, 4)), held=[0, 1, 3])
    assert near_dependencies(made.instructions) == [[], [], [0, 1]]
    assert lanes_of(in_waves(slow(made))) == [[[0], [1]], [[2]]]


def two_softmaxes() -> Placed:
    """Of two lanes, each with scratch."""
    tall, other, *results = (whole(number, 70, 40) for number in range(3, 7))
    made = program(
        call("softmax", tall, results[0], axis=1), call("softmax", other, results[1], axis=1), held=[3, 4, 5, 6]
    )
    placed = planned(made)
    assert placed.planned.waves == ((1, 1),)
    return placed


def test_scratch_of_two_lanes_is_apart():
    placed = two_softmaxes()
    first, second = sorted(placed.scratch.values())
    assert second - first >= min(i.scratch_bytes for i in placed.planned.instructions) > 0
    with pytest.raises(PlanError, match="two lanes"):
        check_races(placed.planned, placed.offsets, dict.fromkeys(placed.scratch, 0))


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
    placed = planned(made)
    assert any(len(wave) > 1 for wave in placed.planned.waves)
    assert correct_in_any_order(placed, made, range(30))


# --- the proof ----------------------------------------------------------------------------------------------


def test_a_planted_fault_in_a_placement_or_in_the_lanes_is_found():
    """A value of one lane over one of the other, which no order of the program as it stands would show."""
    placed = planned(program(*BRANCHES, held=HELD))
    calls = placed.planned.instructions
    here, there = (
        {o.block for i in lane for o in i.writes if o.block in placed.offsets} for lane in (calls[:3], calls[3:6])
    )
    offsets = {**placed.offsets, **dict.fromkeys(there, placed.offsets[min(here)])}
    with pytest.raises(PlanError, match="two lanes"):
        check_races(placed.planned, offsets, placed.scratch)
    torn = replace(placed.planned, waves=((2, 4), (1,)))  # what reads a value in another lane than its maker
    with pytest.raises(PlanError, match="two lanes"):
        check_races(torn, placed.offsets, placed.scratch)
    for waves in (((3, 3),), ((3, 3), (2,)), ((3, 0, 3), (1,))):
        with pytest.raises(PlanError, match="7 instructions"):
            check_races(replace(placed.planned, waves=waves), placed.offsets, placed.scratch)
    torn = replace(program(fill(RESULT), fill(RESULT), held=HELD), waves=((1, 1),))
    with pytest.raises(PlanError, match="held block 1"):
        check_races(torn, {}, {})


@thorough
@given(random_programs, st.randoms(use_true_random=False), st.integers(2, 4))
def test_random_programs_in_any_order_give_the_recorded_results(made: Program, source, lanes):
    placed = planned(made, lanes)
    start = start_of(made)
    wanted = bits(run(made, start))
    for _ in range(3):
        assert bits(run(interleaved(placed.planned, source), start, placed.offsets)) == wanted
