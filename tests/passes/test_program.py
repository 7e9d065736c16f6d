"""Lifespans, requests and live bytes of programs, counted by hand."""

from __future__ import annotations

from hypothesis import given

from programs import add, call, copy, double, fill, part, program, random_programs, relu, thorough, turned, whole
from singa_lite.memory.problem import floor as floor_of_requests
from singa_lite.passes.lower import lower
from singa_lite.passes.program import Lifespan, Program, floor, lifespans, live_bytes, requests
from singa_lite.passes.target import Target

INPUT, RESULT = whole(0, 3, 4), whole(1, 3, 4)
A, B = whole(10, 3, 4), whole(11, 3, 4)  # 48 bytes, 64 in the arena
WIDE = whole(12, 5, 8)  # 160 bytes, 192 in the arena


def asked(made: Program) -> list[tuple[str, int, int, int]]:
    assert all(request.alignment == 64 for request in requests(made))
    return [(r.id, r.start, r.stop, r.size) for r in requests(made)]


def test_sizes_are_whole_lines():
    assert [Program((), {}).rounded(n) for n in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]
    assert [Program((), {}, Target(alignment=512)).rounded(n) for n in (0, 1, 512, 513)] == [0, 512, 512, 1024]


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


def test_numbers_of_calls_that_were_left_out_are_not_given_again():
    made = lower(program(relu(INPUT, RESULT), relu(INPUT, A), held=[0, 1]))
    assert [i.number for i in made.planned.instructions] == [0]
    assert made.planned.next_number == made.rewritten.next_number == 2


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
