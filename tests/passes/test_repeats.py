"""Values that are dropped and made again: equal bits whatever is chosen, by a proof that finds each planted fault."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programs import (
    Call,
    Maker,
    add,
    assert_same,
    changed,
    clip,
    copy,
    double,
    draw,
    dropout,
    moved,
    part,
    program,
    relu,
    run,
    start_of,
    tanh,
    thorough,
    update,
    whole,
)
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import PlanError
from singa_lite.passes import repeats
from singa_lite.passes.forced import Forced
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor, live_bytes, requests
from singa_lite.passes.read_from import check_reads
from singa_lite.passes.repeats import KEPT, ONCE, PER_CHAIN, PER_READER, SEGMENT, Repeater
from singa_lite.passes.schedule import Schedule
from singa_lite.passes.sketch import Sketch

INPUT, WEIGHT, STATE, KEY = whole(0, 3, 4), whole(1, 3, 4), whole(2, 3, dtype="u8"), whole(3, 3, dtype="u8")
FIRST, SECOND = whole(4, 3, 4), whole(5, 3, 4)
HELD = [0, 1, 2, 4, 5]
A, B, C, D, E = (whole(number, 3, 4) for number in range(10, 15))

#: A chain whose first values are read again at its end: by a dropout that draws a key, and an update of a weight.
STEP: tuple[Call, ...] = (
    draw(STATE, KEY),
    double(INPUT, A),
    dropout(A, KEY, B),
    add(B, WEIGHT, C),
    tanh(C, D),
    copy(D, FIRST),
    add(B, D, E),
    update(E, WEIGHT),
    copy(A, SECOND),
)


@pytest.fixture(autouse=True)
def _short_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "LEAST_GAP", 1)


def repeated(given: Program, levels: dict[int, int]) -> Program:
    schedule = Schedule(Repeater(given))
    assert schedule.changed(levels) is not None
    return schedule.program()


def placed(given: Program) -> dict[int, int]:
    offsets = plan(requests(given), seconds=1, nodes=50).offsets
    return {int(key[1:]): offset for key, offset in offsets.items() if key[0] == "b"}


def kernels(given: Program) -> list[str]:
    return [f"{i.kernel} again" if i.repeats is not None else i.kernel for i in given.instructions]


def test_what_is_dropped_is_made_again_right_before_it_is_read():
    step = program(double(INPUT, A), tanh(A, B), copy(B, FIRST), copy(A, SECOND), held=HELD)
    made = repeated(step, {A.block: ONCE})
    assert kernels(made) == ["scale", "tanh", "copy", "scale again", "copy"]
    assert made.instructions[3].repeats == 0
    assert_same(step, made)


def test_what_is_on_the_way_is_made_again_too_and_kept_as_its_level_says():
    calls = double(INPUT, A), tanh(A, B), tanh(B, C), copy(C, FIRST), copy(B, SECOND), copy(A, whole(6, 3, 4))
    step = program(*calls, held=[*HELD, 6])
    twice = ["scale again", "tanh again", "copy", "scale again", "copy"]
    assert kernels(repeated(step, {A.block: ONCE, B.block: ONCE}))[4:] == ["scale again", "tanh again", "copy", "copy"]
    assert kernels(repeated(step, {A.block: PER_CHAIN, B.block: ONCE}))[4:] == twice
    assert kernels(repeated(step, {A.block: KEPT, B.block: ONCE}))[4:] == ["tanh again", "copy", "copy"]


def test_of_a_segment_what_lies_behind_its_cut_is_kept():
    """On the way to C, B is kept, so that A before it is not; where B is not a cut, A is kept too."""
    calls = double(INPUT, A), tanh(A, B), tanh(B, C), copy(C, FIRST), copy(C, SECOND), copy(B, whole(6, 3, 4))
    step = program(*calls, copy(A, whole(7, 3, 4)), held=[*HELD, 6, 7])
    some = kernels(repeated(step, {A.block: SEGMENT, B.block: ONCE, C.block: SEGMENT}))
    made = ["scale again", "tanh again", "tanh again", "copy", "copy", "copy"]
    assert some[3:] == [*made, "scale again", "copy"]
    alone = kernels(repeated(step, {A.block: SEGMENT, B.block: SEGMENT, C.block: SEGMENT}))
    assert alone[3:] == [*made, "copy"]


def test_per_reader_each_reader_has_it_made_again():
    calls = double(INPUT, A), tanh(A, B), copy(B, FIRST), copy(A, SECOND), copy(A, whole(6, 3, 4))
    step = program(*calls, held=[*HELD, 6])
    assert kernels(repeated(step, {A.block: PER_READER}))[3:] == ["scale again", "copy", "scale again", "copy"]


def test_a_key_is_drawn_once_and_its_mask_repeated():
    step = program(*STEP, held=HELD)
    assert not any(KEY.block == block for block in Repeater(step).candidates)
    made = repeated(step, {B.block: ONCE})
    assert kernels(made).count("draw_key") == 1
    assert "dropout again" in kernels(made)
    assert "draw_key again" not in kernels(made)
    assert_same(step, made)


def test_what_was_overwritten_since_is_not_read_again():
    step = program(add(INPUT, WEIGHT, A), tanh(A, B), update(B, WEIGHT), copy(A, SECOND), held=HELD)
    assert Schedule(Repeater(step)).changed({A.block: ONCE}) is None


def test_a_piece_is_read_again_though_another_piece_was_written_since():
    joined, other = whole(15, 3, 8), part(whole(15, 3, 8), 1, 4, 8)
    piece = part(joined, 1, 0, 4)
    calls = (
        double(INPUT, piece),
        tanh(piece, A),
        relu(A, B),
        copy(B, other),
        copy(A, FIRST),
        copy(joined, whole(5, 3, 8)),
    )
    given = program(*calls, held=HELD)
    made = repeated(given, {A.block: ONCE})
    assert kernels(made)[4:6] == ["tanh again", "copy"]
    assert_same(given, made, placed(made))
    check_reads(given, made, placed(made))
    overwritten = program(*calls[:3], copy(B, part(joined, 1, 3, 7)), *calls[4:], held=HELD)
    assert Schedule(Repeater(overwritten)).changed({A.block: ONCE}) is None


def test_what_lasts_is_not_repeated():
    step = program(add(INPUT, WEIGHT, FIRST), tanh(FIRST, B), tanh(B, C), copy(C, SECOND), held=HELD)
    assert FIRST.block not in Repeater(step).candidates


def test_dropping_lowers_the_floor():
    calls = [double(INPUT, A), tanh(A, B), tanh(B, C), tanh(C, D), copy(D, FIRST), update(C, WEIGHT), update(B, WEIGHT)]
    step = program(*calls, copy(A, SECOND), held=HELD)
    made = repeated(step, {A.block: PER_CHAIN, B.block: PER_CHAIN, C.block: PER_CHAIN})
    assert floor(in_place(made)) < floor(in_place(step))
    assert_same(step, made)


@thorough
@given(st.randoms(use_true_random=False))
def test_random_programs_keep_their_results_whatever_is_dropped(source: random.Random):
    step = Maker(source).made()
    sketch = Sketch(Repeater(step), dict.fromkeys(range(len(step.instructions)), 1))
    if not sketch.change({block: source.choice((0, 1, 1, 2, 3, 4)) for block in sketch.of.candidates}):
        return
    made = in_place(sketch.schedule.program())
    offsets = placed(made)
    check_reads(step, made, offsets)
    assert_same(step, made, offsets)


@thorough
@given(st.randoms(use_true_random=False))
def test_after_any_changes_a_sketch_says_what_its_program_takes_and_costs(source: random.Random):
    step = Maker(source).made()
    repeater = Repeater(step)
    costs = {at: 1 + at for at in repeater.repeats}
    sketch = Sketch(repeater, costs)
    for _ in range(6):
        before, mark = facts(sketch), sketch.mark()
        chosen = source.sample(sorted(repeater.candidates), source.randint(0, len(repeater.candidates)))
        possible = sketch.change({block: source.randrange(5) for block in chosen})
        if not possible or source.random() < 0.3:
            sketch.back_to(mark)
            assert facts(sketch) == before
        made = sketch.schedule.program()
        assert sketch.live_bytes() == live_bytes(in_place(made))
        assert sketch.floor == max(sketch.live_bytes())
        assert sketch.cost == sum(costs[i.repeats] for i in made.instructions if i.repeats is not None)
        anew = Sketch(repeater, costs)
        assert anew.change(sketch.levels)
        assert facts(anew) == facts(sketch)


def facts(sketch: Sketch) -> tuple[object, ...]:
    return dict(sketch.levels), sketch.live_bytes(), sketch.floor, sketch.cost, sketch.excess(40)


@thorough
@given(st.randoms(use_true_random=False))
def test_a_trial_ends_early_exactly_where_it_is_not_cheaper_within_the_limit(source: random.Random):
    step = Maker(source).made()
    repeater = Repeater(step)
    sketch, whole = (Sketch(repeater, dict.fromkeys(repeater.repeats, 7)) for _ in range(2))
    for _ in range(6):
        chosen = {block: source.randrange(5) for block in repeater.candidates if source.random() < 0.5}
        limit = None if source.random() < 0.3 else source.randint(sketch.floor // 3, sketch.floor)
        below, before, marks = source.randint(0, sketch.cost + 30), facts(sketch), (sketch.mark(), whole.mark())
        possible = whole.change(chosen) and whole.cost < below and (limit is None or whole.floor <= limit)
        assert sketch.change_below(chosen, below, limit) == possible
        if possible:
            assert facts(sketch) == facts(whole)
        else:
            sketch.back_to(marks[0])
            whole.back_to(marks[1])
            assert facts(sketch) == facts(whole) == before


@thorough
@given(st.randoms(use_true_random=False))
def test_no_choice_goes_below_what_is_forced(source: random.Random):
    repeater = Repeater(Maker(source).made())
    sketch = Sketch(repeater, {at: 1 + at for at in repeater.repeats})
    forced = Forced(sketch)
    for _ in range(6):
        if not sketch.change({block: source.randrange(5) for block in repeater.candidates}):
            return
        must = forced.levels(sketch.floor)
        assert forced.floor <= sketch.floor and forced.cost(sketch.floor) <= sketch.cost
        assert must.keys() <= sketch.levels.keys()
        assert all(sketch.levels[block] == PER_READER for block, level in must.items() if level == PER_READER)


# --- planted faults -----------------------------------------------------------------------------------------


def position(given: Program, name: str) -> int:
    return kernels(given).index(name)


def assert_refused(given: Program, made: Program, match: str) -> None:
    """And the fault is one: it shows in the results, or in a call that the record does not have."""
    with pytest.raises(PlanError, match=match):
        check_reads(given, made, {})


def test_a_repeat_that_reads_an_overwritten_block():
    calls = add(INPUT, WEIGHT, A), tanh(A, B), copy(B, FIRST), copy(A, SECOND), update(INPUT, WEIGHT)
    step = program(*calls, held=HELD)
    made = repeated(step, {A.block: ONCE})
    check_reads(step, made, {})
    late = moved(made, position(made, "add_scaled"), position(made, "add again"))
    assert kernels(late)[3:5] == ["add_scaled", "add again"]
    assert_refused(step, late, "add, layer.*wanted (what|the bytes)")


def test_a_repeat_that_draws_a_key_again():
    step = program(*STEP, held=HELD)
    made = repeated(step, {B.block: ONCE})
    again = replace(step.instructions[0], number=99, repeats=0)
    at = position(made, "dropout again")
    assert_refused(step, made.with_instructions([*made.instructions[:at], again, *made.instructions[at:]]), "draw_key")


def test_a_repeat_that_moves_state_twice():
    step = program(double(INPUT, A), update(A, WEIGHT), clip(WEIGHT), copy(WEIGHT, FIRST), held=HELD)
    again = replace(step.instructions[2], number=99, repeats=2)
    assert_refused(step, step.with_instructions([*step.instructions, again]), "wanted (what|the bytes)")


def test_a_repeat_of_the_wrong_original():
    step = program(double(INPUT, A), double(A, B), tanh(B, C), copy(C, FIRST), copy(A, SECOND), held=HELD)
    made = repeated(step, {A.block: ONCE})
    at = position(made, "scale again")
    assert_refused(step, changed(made, at, lambda i: replace(i, repeats=1)), "wanted (what|the bytes)")
    assert_refused(step, changed(made, at, lambda i: replace(i, repeats=2)), "wanted the call")
    assert_refused(step, changed(made, at, lambda i: replace(i, repeats=77)), "wanted one of the rewritten program")
    assert_refused(step, changed(made, at, lambda i: replace(i, number=0)), "wanted one of the rewritten program")
    assert_refused(step, changed(made, at, lambda i: replace(i, number=4)), "number of its own|only once")


def test_a_repeat_with_another_setting():
    step = program(double(INPUT, A), tanh(A, B), copy(B, FIRST), copy(A, SECOND), held=HELD)
    made = repeated(step, {A.block: ONCE})
    other = changed(made, position(made, "scale again"), lambda i: replace(i, settings={**i.settings, "factor": 3.0}))
    assert_refused(step, other, "wanted the call")


def test_a_repeat_into_bytes_that_are_in_use():
    step = program(
        double(INPUT, A), relu(A, B), copy(B, FIRST), copy(A, SECOND), copy(B, whole(6, 3, 4)), held=[*HELD, 6]
    )
    made = repeated(step, {A.block: ONCE})
    at = position(made, "scale again")
    again = made.instructions[at].writes[0].block
    offsets = {A.block: 0, B.block: 64, again: 64}
    with pytest.raises(PlanError, match=r"wanted (what|the bytes)"):
        check_reads(step, made, offsets)
    assert run(made, start_of(step), offsets)[6].tobytes() != run(step, start_of(step))[6].tobytes()
