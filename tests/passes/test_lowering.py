"""From a record to a plan: dead calls vanish, orders keep what must stay in order, outputs lie over dying inputs."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given

from programs import (
    Call,
    add,
    assert_same,
    call,
    clip,
    copy,
    double,
    draw,
    dropout,
    extents,
    fill,
    instructions,
    matmul,
    normed,
    numbers,
    part,
    permuted,
    program,
    random_programs,
    relu,
    reshaped,
    tanh,
    thorough,
    turned,
    update,
    whole,
)
from singa_lite.compiler.ir.operation import Operand
from singa_lite.compiler.ir.program import Lifespan, Program, floor, lifespans, live_bytes, requests
from singa_lite.compiler.ir.uses import predecessors
from singa_lite.compiler.lower import lower
from singa_lite.compiler.order.improve import done_early, improved
from singa_lite.compiler.order.order import orders
from singa_lite.compiler.placement.problem import floor as floor_of_requests
from singa_lite.compiler.proof.read_from import check_reads
from singa_lite.compiler.share.in_place import in_place, without_dead

INPUT, RESULT, SECOND, THIRD = (whole(number, 3, 4) for number in range(4))
A, B, C, D, E = (whole(number, 3, 4) for number in range(10, 15))
STATE, SQUARE_WEIGHT = whole(5, 3, dtype="u8"), whole(6, 4, 4)
ROW, NORM, KEY, OTHER_KEY = whole(16, 4), whole(17, 3), whole(18, 3, dtype="u8"), whole(19, 3, dtype="u8")
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


# --- dead calls

UPPER, LOWER = (relu(part(INPUT, 0, start, stop), part(A, 0, start, stop)) for start, stop in ((0, 1), (1, 3)))

#: (calls, numbers of those that stay).
DEAD: dict[str, tuple[list[Call], list[int]]] = {
    "a chain that leads nowhere": ([relu(INPUT, RESULT), relu(INPUT, A), double(A, B), add(A, B, C)], [0]),
    "what a held block needs, however far back": (
        [relu(INPUT, A), double(INPUT, C), double(A, B), copy(B, RESULT)],
        [0, 2, 3],
    ),
    "no results": ([relu(INPUT, A), relu(A, B)], []),
    "an update of a held block": ([relu(INPUT, A), update(A, RESULT), clip(RESULT)], [0, 1, 2]),
    "a random state moves on": ([draw(STATE, KEY), dropout(INPUT, KEY, A)], [0]),
    "an update that nobody reads later": ([relu(INPUT, A), clip(A), copy(A, RESULT), clip(A)], [0, 1, 2]),
    "one used output of two": ([relu(INPUT, A), normed(A, B, NORM), copy(NORM, whole(4, 3))], [0, 1, 2]),
    "a write after the last read": ([fill(A), double(A, RESULT), fill(A, 7.0)], [0, 1]),
    "all pieces of a block in use": ([UPPER, LOWER, copy(A, RESULT)], [0, 1, 2]),
    "an operand that is left out": (
        [call("linear", INPUT, SQUARE_WEIGHT, None, RESULT), call("linear", INPUT, SQUARE_WEIGHT, None, A)],
        [0],
    ),
}


@pytest.mark.parametrize(("calls", "stay"), DEAD.values(), ids=DEAD)
def test_what_nobody_uses_vanishes(calls, stay):
    assert numbers(without_dead(program(*calls, held=range(7)))) == stay


# --- dependencies


#: (calls, what each follows).
FOLLOWED: dict[str, tuple[list[Call], list[list[int]]]] = {
    "a read follows the last write": ([fill(A), fill(A), relu(A, RESULT)], [[], [0], [1]]),
    "a write follows the write before it": ([fill(A), double(INPUT, A)], [[], [0]]),
    "a write follows all reads since the last write": (
        [fill(A), relu(A, B), double(A, C), fill(A)],
        [[], [0], [0], [0, 1, 2]],
    ),
    "a write of what was there before follows its readers": (
        [relu(INPUT, A), relu(INPUT, B), fill(INPUT)],
        [[], [], [0, 1]],
    ),
    "readers do not wait for each other": (
        [fill(A), relu(A, B), relu(A, C), add(B, C, RESULT)],
        [[], [0], [0], [1, 2]],
    ),
    "updates of one block keep their order": ([fill(A), clip(A), update(INPUT, A), clip(A)], [[], [0], [1], [2]]),
    "an update follows readers too": ([relu(RESULT, A), update(A, RESULT), relu(RESULT, B)], [[], [0], [1]]),
    "draws from one state keep their order": ([draw(STATE, KEY), draw(STATE, OTHER_KEY)], [[], [0]]),
    "views count as their block": (
        [fill(part(A, 0, 0, 1)), fill(part(A, 0, 1, 3)), copy(reshaped(A, 2, 6), B), fill(part(A, 1, 0, 1))],
        [[], [0], [1], [1, 2]],
    ),
    "an operation does not wait for itself": ([call("add", A, A, A)], [[]]),
}


@pytest.mark.parametrize(("calls", "wanted"), FOLLOWED.values(), ids=FOLLOWED)
def test_what_an_operation_follows(calls, wanted):
    assert predecessors(instructions(*calls)) == wanted


@thorough
@given(random_programs)
def test_two_that_touch_the_same_block_are_ordered_unless_both_read(made: Program):
    followed: list[set[int]] = []
    for direct in predecessors(made.instructions):
        followed.append({*direct}.union(*(followed[step] for step in direct)))
    for (i, one), (j, other) in combinations(enumerate(made.instructions), 2):
        touched = [({o.block for o in x.reads}, {o.block for o in x.writes}) for x in (one, other)]
        (reads, writes), (reads_later, writes_later) = touched
        if writes & (reads_later | writes_later) or reads & writes_later:
            assert i in followed[j], f"{j} does not wait for {i}"


# --- what gives bytes back is done early

HELD = [0, 1, 2, 3]


def step(*between: object) -> Program:
    """Two values, then what stands between, then their sum."""
    return program(double(INPUT, A), tanh(INPUT, B), *between, add(A, B, C), copy(C, RESULT), held=HELD)  # type: ignore[arg-type]


def test_a_sum_goes_behind_the_later_of_its_summands():
    given = step(tanh(THIRD, D), update(D, SECOND))
    made = done_early(given)
    assert numbers(made) == [0, 1, 4, 2, 3, 5]
    assert max(live_bytes(in_place(made))[3:5]) < max(live_bytes(in_place(given))[2:4])
    assert_same(given, made)


def test_what_gives_nothing_back_stays():
    for unmoved in (step(), step(copy(A, THIRD), copy(B, THIRD))):
        assert done_early(unmoved) is unmoved


# --- outputs over inputs

CHAIN = [whole(number, 3, 4) for number in range(10, 20)]
IMAGES = (2, 3, 4, 5)
SQUARE, PRODUCT = whole(10, 3, 3), whole(11, 3, 3)


def in_order(*axes: int) -> list[Call]:
    x, y, other = (permuted(block, IMAGES, axes) for block in (10, 11, 12))
    return [double(whole(0, *IMAGES), x), relu(x, y), double(y, other), copy(other, whole(1, *IMAGES))]


def used_later(later: Call) -> list[Call]:
    return [double(INPUT, A), relu(A, B), copy(B, RESULT), later, copy(A, SECOND)]


def one_dies(alive: Operand) -> list[Call]:
    return [double(INPUT, A), relu(INPUT, B), add(A, B, C), copy(C, RESULT), copy(alive, SECOND)]


#: (calls, the block that each writes into behind the pass).
OVERWRITTEN: dict[str, tuple[list[Call], list[int]]] = {
    "an input dies": ([double(INPUT, A), relu(A, B), double(B, RESULT)], [10, 10, 1]),
    "a chain is one block": (
        [
            double(INPUT, A),
            *(relu(x, y) if x.block % 2 else double(x, y) for x, y in pairwise(CHAIN)),
            copy(CHAIN[-1], RESULT),
        ],
        [10] * 10 + [1],
    ),
    "the same operation twice in place": (
        [fill(A), update(INPUT, A), update(INPUT, A), relu(A, B), relu(B, C), copy(C, RESULT)],
        [10, 10, 10, 10, 10, 1],
    ),
    "channels last": (in_order(0, 2, 3, 1), [10, 10, 10, 1]),
    "filters last": (in_order(2, 3, 1, 0), [10, 10, 10, 1]),
    "used later": (used_later(copy(A, SECOND)), [10, 11, 1, 2, 2]),
    "a piece used later": (used_later(copy(part(A, 1, 1, 3), part(SECOND, 1, 0, 2))), [10, 11, 1, 2, 2]),
    "used later from the side": (used_later(call("copy", turned(A), reshaped(SECOND, 4, 3))), [10, 11, 1, 2, 2]),
    "used later in another shape": (used_later(copy(reshaped(A, 2, 6), reshaped(SECOND, 2, 6))), [10, 11, 1, 2, 2]),
    "changed in place later": (used_later(clip(A)), [10, 11, 1, 10, 2]),
    "of many readers only the last overwrites": (
        [double(INPUT, A), relu(A, B), double(A, C), relu(A, D), add(B, C, E), add(E, D, RESULT)],
        [10, 11, 12, 10, 11, 1],
    ),
    "there twice": ([double(INPUT, A), add(A, A, B), copy(B, RESULT)], [10, 11, 1]),
    "beside another view of its block": ([double(INPUT, A), add(A, part(A, 0, 1, 2), B), copy(B, RESULT)], [10, 11, 1]),
    "of two the first dies": (one_dies(B), [10, 11, 10, 1, 2]),
    "of two the second dies": (one_dies(A), [10, 11, 11, 1, 2]),
    "broadcast": ([fill(ROW), add(ROW, INPUT, A), copy(A, RESULT)], [16, 10, 1]),
    "held": ([relu(INPUT, A), double(A, RESULT), relu(INPUT, SECOND)], [10, 1, 2]),
    "an output that held something before": (
        [double(INPUT, A), fill(B), relu(A, B), fill(part(B, 0, 0, 1)), copy(B, RESULT)],
        [10, 11, 11, 11, 1],
    ),
    "a kernel that does not allow it": (
        [double(part(INPUT, 1, 0, 3), SQUARE), matmul(SQUARE, SQUARE, PRODUCT), copy(PRODUCT, part(RESULT, 1, 0, 3))],
        [10, 11, 1],
    ),
    "one output of two": (
        [double(INPUT, A), normed(A, B, NORM), copy(B, RESULT), copy(NORM, part(reshaped(SECOND, 12), 0, 0, 3))],
        [10, 10, 1, 2],
    ),
    "the first allowed input that dies": (
        [
            double(INPUT, A),
            relu(INPUT, B),
            fill(C),
            call("squared_error_derivative", A, B, C, D),
            copy(D, RESULT),
            copy(A, SECOND),
        ],
        [10, 11, 12, 11, 1, 2],
    ),
    "a merged block lives on until its last reader": (
        [double(INPUT, A), relu(A, B), double(B, C), relu(B, D), copy(C, RESULT), copy(D, SECOND)],
        [10, 10, 12, 10, 1, 2],
    ),
}


def lowered(*calls: Call) -> Program:
    """The calls after the pass, which left all results as they were and no step with more live bytes."""
    made = program(*calls, held=[0, 1, 2])
    result = in_place(made)
    assert_same(made, result)
    assert all(after <= before for after, before in zip(live_bytes(result), live_bytes(made), strict=True))
    return result


@pytest.mark.parametrize(("calls", "wanted"), OVERWRITTEN.values(), ids=OVERWRITTEN)
def test_an_output_takes_the_bytes_of_an_input_that_dies(calls, wanted):
    assert [instruction.writes[0].block for instruction in lowered(*calls).instructions] == wanted


UNLIKE: dict[str, tuple[Operand, Operand]] = {
    "another dtype of the same size": (whole(10, 3, 4), whole(11, 3, 4, dtype="i4")),
    "another dtype and size": (whole(10, 3, 4), whole(11, 3, 4, dtype="f8")),
    "other strides": (turned(whole(10, 4, 3)), whole(11, 3, 4)),
    "another order of the axes": (permuted(10, (3, 4), (1, 0)), whole(11, 3, 4)),
    "only a piece of its block": (part(whole(10, 3, 8), 1, 2, 6), whole(11, 3, 4)),
    "the beginning of its block": (part(whole(10, 5, 4), 0, 0, 3), whole(11, 3, 4)),
    "a piece of a larger output": (whole(10, 3, 4), part(whole(11, 3, 8), 1, 4, 8)),
}


@pytest.mark.parametrize(("x", "y"), UNLIKE.values(), ids=UNLIKE.keys())
def test_operands_that_do_not_lie_alike_stay_apart(x, y):
    sizes = {name: extents(program(fill(o), held=[]).instructions)[o.block] for name, o in (("x", x), ("y", y))}
    spare = {"x": whole(10, max(sizes["x"], 160) // 4), "y": whole(11, max(sizes["y"], 96) // 4)}
    made = lowered(fill(spare["x"]), copy(INPUT, x), copy(x, y), double(y, RESULT))
    assert {10, 11} <= extents(made.instructions).keys()


@pytest.mark.parametrize("one", [without_dead, done_early, in_place])
@thorough
@given(random_programs)
def test_random_programs_keep_their_results_and_never_need_more(one, made: Program):
    after = one(made)
    assert_same(made, after)
    assert one(after) == after or one is done_early
    assert floor(in_place(after)) <= floor(in_place(made))
    if one is in_place:
        assert all(behind <= before for behind, before in zip(live_bytes(after), live_bytes(made), strict=True))
    if one is done_early:
        check_reads(made, after, {})


# --- bytes by hand

WIDE = whole(12, 5, 8)  # 160 bytes, 192 in the arena


def asked(made: Program) -> list[tuple[str, int, int, int]]:
    assert all(request.alignment == 64 for request in requests(made))
    return [(r.id, r.start, r.stop, r.size) for r in requests(made)]


def test_a_lifespan_goes_from_the_first_use_to_behind_the_last():
    """Also through views. What is held, or not used, has none."""
    made = program(relu(INPUT, A), fill(WIDE), double(A, B), copy(B, RESULT), copy(A, part(WIDE, 0, 0, 3)), held=[0, 1])
    assert lifespans(made) == {10: Lifespan(0, 5), 12: Lifespan(1, 5), 11: Lifespan(2, 4)}
    made = program(fill(A), fill(B), copy(turned(A), whole(1, 4, 3)), held=[1])
    assert lifespans(made)[10] == Lifespan(0, 3)
    made = Program(program(relu(INPUT, RESULT), held=[0, 1]).instructions, {10: 48})
    assert (lifespans(made), requests(made), live_bytes(made)) == ({}, [], [0])
    made = Program((), {10: 48})
    assert (floor(made), live_bytes(made), requests(made)) == (0, [], [])


def test_scratch_is_wanted_for_its_one_step():
    """The softmax wants scratch, which keeps the number of its instruction when the order changes."""
    softmax = call("softmax", whole(0, 70, 40), whole(2, 70, 40), axis=1)
    made = program(fill(A), softmax, relu(A, RESULT), held=[0, 1, 2])
    scratch = made.rounded(made.instructions[1].scratch_bytes)
    assert scratch > 0
    assert asked(made) == [("b10", 0, 3, 64), ("s1", 1, 2, scratch)]
    assert live_bytes(made) == [64, 64 + scratch, 64]
    assert floor(made) == 64 + scratch
    first, second, third = made.instructions
    assert [r[:2] for r in asked(made.with_instructions([second, first, third]))] == [("b10", 1), ("s1", 0)]


def test_live_bytes_and_floor_by_hand():
    made = program(
        relu(INPUT, A),  # A: 64
        fill(WIDE),  # A, WIDE: 256
        add(A, part(part(WIDE, 0, 0, 3), 1, 0, 4), B),  # A, WIDE, B: 320
        copy(B, RESULT),  # B: 64
        held=[0, 1],
    )
    assert live_bytes(made) == [64, 256, 320, 64]
    assert floor(made) == 320
    assert asked(made) == [("b10", 0, 3, 64), ("b12", 1, 3, 192), ("b11", 2, 4, 64)]
    made = program(fill(whole(10, 0, 4)), relu(whole(10, 0, 4), whole(1, 0, 4)), held=[1])
    assert (live_bytes(made), asked(made)) == ([0, 0], [("b10", 0, 2, 0)])


@thorough
@given(random_programs)
def test_the_floor_is_the_planner_s(made: Program):
    assert floor(made) == (floor_of_requests(requests(made)) if requests(made) else 0)
