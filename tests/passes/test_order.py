"""Orders: each candidate keeps every dependency, the recorded one competes, and the chosen one is never worse."""

from __future__ import annotations

from hypothesis import given

from programs import (
    Call,
    add,
    assert_same,
    copy,
    double,
    fill,
    matmul,
    numbers,
    part,
    program,
    random_programs,
    relu,
    thorough,
    whole,
)
from singa_lite.passes.dead import without_dead
from singa_lite.passes.dependencies import predecessors
from singa_lite.passes.improve import improved
from singa_lite.passes.in_place import in_place
from singa_lite.passes.lower import lower
from singa_lite.passes.order import orders
from singa_lite.passes.program import Program, floor
from singa_lite.passes.read_from import check_reads

NAMES = ["recorded", "updates first", "least peak first", "longest path first", "depth first", "breadth first"]


def assert_valid(made: Program, candidate: Program) -> None:
    """The same instructions, each after all that it depends on."""
    assert sorted(numbers(candidate)) == sorted(numbers(made))
    step = {number: at for at, number in enumerate(numbers(candidate))}
    for at, earlier in enumerate(predecessors(made.instructions)):
        for other in earlier:
            assert step[made.instructions[other].number] < step[made.instructions[at].number]


def placed_floor(made: Program) -> int:
    """What the record needs in its own order with outputs written over inputs."""
    return floor(in_place(without_dead(made)))


def branches(count: int, large: int) -> list[Call]:
    """A large value a branch, reduced to a small one; all are made first, as a careless net would."""
    square, vector = whole(0, large, large), whole(1, large, 1)
    wide = [whole(10 + i, large, large) for i in range(count)]
    small = [whole(30 + i, large, 1) for i in range(count)]
    calls = [double(square, one) for one in wide]
    calls += [matmul(one, vector, product) for one, product in zip(wide, small, strict=True)]
    total = small[0]
    for i, one in enumerate(small[1:]):
        following = whole(50 + i, large, 1)
        calls.append(add(total, one, following))
        total = following
    return [*calls, copy(total, whole(2, large, 1))]


def test_the_candidates_by_name_and_the_recorded_one_first():
    """One branch after the other needs one large value at a time, as recorded all of them live at once."""
    made = program(*branches(5, 20), held=[0, 1, 2])
    assert [name for name, _ in orders(made)] == NAMES
    assert next(orders(made))[1] is made
    placed = lower(made)
    assert placed.recorded_floor > 5 * 1600
    assert placed.plan.floor < 2 * 1600
    assert placed.order != "recorded"
    assert_same(made, placed.planned, placed.offsets)
    assert [candidate.instructions for _, candidate in orders(Program((), {}))] == [()] * len(NAMES)
    assert lower(Program((), {})).arena_bytes == 0


def test_the_recorded_order_wins_a_tie():
    made = program(
        double(whole(0, 3, 4), whole(10, 3, 4)), relu(whole(10, 3, 4), whole(11, 3, 4)),
        copy(whole(11, 3, 4), whole(1, 3, 4)), held=[0, 1],
    )  # fmt: skip
    assert lower(made).order == "recorded"


def test_a_whole_made_in_place_may_cost_more_than_copies():
    """The first part is small and made early; its whole is large, and between lies the peak."""
    first, last = whole(10, 3, 1), whole(11, 3, 99)
    peak = whole(12, 60, 8)
    joined = whole(13, 3, 100)
    made = program(
        double(whole(0, 3, 1), first),
        double(whole(1, 60, 8), peak),
        matmul(part(first, 0, 0, 1), part(part(peak, 0, 0, 1), 1, 0, 8), whole(14, 1, 8)),
        copy(peak, whole(1, 60, 8)),
        copy(whole(14, 1, 8), whole(2, 1, 8)),
        fill(last),
        copy(first, part(joined, 1, 0, 1)),
        copy(last, part(joined, 1, 1, 100)),
        copy(joined, whole(3, 3, 100)),
        held=[0, 1, 2, 3],
    )
    assert lower(made).plan.floor <= placed_floor(made)


@thorough
@given(random_programs)
def test_every_candidate_of_a_random_program_is_valid_and_gives_its_results(made: Program):
    for _, candidate in orders(made):
        assert_valid(made, candidate)
        check_reads(made, candidate, {})
        assert_same(made, candidate)
    better = improved(made)
    assert_valid(made, better)
    assert floor(in_place(better)) <= floor(in_place(made))
    placed = lower(made)
    assert_same(made, placed.planned, placed.offsets)
    assert placed.plan.floor == floor(placed.planned) <= placed_floor(made) <= placed.recorded_floor
    assert placed.arena_bytes >= placed.plan.floor
    assert sum(placed.gains.values()) == placed.recorded_floor - placed.plan.floor
