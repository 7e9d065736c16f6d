"""Values that are made again, or go to host memory: equal bits whatever is chosen, by a proof that finds each fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from programs import (
    COUNT,
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
from singa_lite.compiler.ir.operation import Operand, Transfer
from singa_lite.compiler.ir.program import Program, floor, host_requests, live_bytes, requests
from singa_lite.compiler.lower import lower
from singa_lite.compiler.placed import prove
from singa_lite.compiler.placement.planner import plan
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.read_from import check_reads
from singa_lite.compiler.recompute import offload, repeats
from singa_lite.compiler.recompute.budget import estimated_slowdown, waiting, within_limit
from singa_lite.compiler.recompute.live_bytes_model import LiveBytesBounds, LiveBytesModel
from singa_lite.compiler.recompute.offload import Offload, Timetable, offloaded, rewritten
from singa_lite.compiler.recompute.repeats import KEPT, ONCE, PER_CHAIN, PER_READER, SEGMENT, Repeater
from singa_lite.compiler.recompute.schedule import Schedule
from singa_lite.compiler.share.in_place import in_place

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
def _small_values_and_short_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "LEAST_GAP", 1)
    monkeypatch.setattr(offload, "LEAST_BYTES", 1)


def repeated(given: Program, levels: dict[int, int]) -> Program:
    schedule = Schedule(Repeater(given))
    assert schedule.changed(levels) is not None
    return schedule.program()


def placed(given: Program) -> dict[int, int]:
    offsets = plan(requests(given), seconds=1, nodes=50).offsets
    return {int(key[1:]): offset for key, offset in offsets.items() if key[0] == "b"}


def kernels(given: Program) -> list[str]:
    return [f"{i.kernel} again" if i.repeats is not None else i.kernel for i in given.instructions]


THIRD, FOURTH = whole(6, 3, 4), whole(7, 3, 4)
CHAIN = (double(INPUT, A), tanh(A, B), tanh(B, C), copy(C, FIRST), copy(B, SECOND), copy(A, THIRD))
#: On the way to C, B is kept where it is a cut of a segment, so that A before it is not.
SEGMENTS = (*CHAIN[:4], copy(C, SECOND), copy(B, THIRD), copy(A, FOURTH))
ON_THE_WAY = ["scale again", "tanh again", "tanh again", "copy", "copy", "copy"]
#: (calls, levels, kernels from a place on).
LEVELS: dict[str, tuple[Sequence[Call], dict[int, int], int, list[str]]] = {
    "right before it is read": (
        [double(INPUT, A), tanh(A, B), copy(B, FIRST), copy(A, SECOND)], {A.block: ONCE}, 2,
        ["copy", "scale again", "copy"],
    ),
    "what is on the way too": (CHAIN, {A.block: ONCE, B.block: ONCE}, 4, ["scale again", "tanh again", "copy", "copy"]),
    "per chain": (
        CHAIN, {A.block: PER_CHAIN, B.block: ONCE}, 4, ["scale again", "tanh again", "copy", "scale again", "copy"],
    ),
    "kept": (CHAIN, {A.block: KEPT, B.block: ONCE}, 4, ["tanh again", "copy", "copy"]),
    "a segment behind a cut": (
        SEGMENTS, {A.block: SEGMENT, B.block: ONCE, C.block: SEGMENT}, 3, [*ON_THE_WAY, "scale again", "copy"],
    ),
    "a segment": (SEGMENTS, {A.block: SEGMENT, B.block: SEGMENT, C.block: SEGMENT}, 3, [*ON_THE_WAY, "copy"]),
    "each reader": (
        [double(INPUT, A), tanh(A, B), copy(B, FIRST), copy(A, SECOND), copy(A, THIRD)], {A.block: PER_READER}, 3,
        ["scale again", "copy", "scale again", "copy"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("calls", "levels", "start", "wanted"), LEVELS.values(), ids=LEVELS)
def test_what_is_dropped_is_made_again_as_its_level_says(calls, levels, start, wanted):
    step = program(*calls, held=[*HELD, 6, 7])
    made = repeated(step, levels)
    assert kernels(made)[start:] == wanted
    assert_same(step, made)


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


@thorough
@given(st.randoms(use_true_random=False))
def test_random_programs_keep_their_results_whatever_is_dropped(source: random.Random):
    step = Maker(source).made()
    sketch = LiveBytesModel(Repeater(step), dict.fromkeys(range(len(step.instructions)), 1))
    if not sketch.change({block: source.choice((0, 1, 1, 2, 3, 4)) for block in sketch.repeater.candidates}):
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
    sketch = LiveBytesModel(repeater, costs)
    for _ in range(6):
        before, mark = facts(sketch), sketch.mark()
        chosen = source.sample(sorted(repeater.candidates), source.randint(0, len(repeater.candidates)))
        possible = sketch.change({block: source.randrange(5) for block in chosen})
        if not possible or source.random() < 0.3:
            sketch.back_to(mark)
            assert facts(sketch) == before
        made = sketch.schedule.program()
        assert live_bytes_of(sketch) == live_bytes(in_place(made))
        assert sketch.floor == max(live_bytes_of(sketch))
        assert sketch.cost == sum(costs[i.repeats] for i in made.instructions if i.repeats is not None)
        anew = LiveBytesModel(repeater, costs)
        assert anew.change(sketch.levels)
        assert facts(anew) == facts(sketch)


def live_bytes_of(sketch: LiveBytesModel) -> list[int]:
    """Bytes live at each call of the program that the schedule gives."""
    live = []
    for step, nbytes in enumerate(sketch.at_step):
        if step in sketch.schedule.inserts:
            live += [int(sketch.across[step]) + inside for inside in sketch._inside(step)]
        live.append(int(nbytes))
    return live


def facts(sketch: LiveBytesModel) -> tuple[object, ...]:
    return dict(sketch.levels), live_bytes_of(sketch), sketch.floor, sketch.cost, sketch.excess(40)


@thorough
@given(st.randoms(use_true_random=False))
def test_a_trial_ends_early_exactly_where_it_is_not_cheaper_within_the_limit(source: random.Random):
    step = Maker(source).made()
    repeater = Repeater(step)
    sketch, whole = (LiveBytesModel(repeater, dict.fromkeys(repeater.repeats, 7)) for _ in range(2))
    for _ in range(6):
        chosen = {block: source.randrange(5) for block in repeater.candidates if source.random() < 0.5}
        limit = None if source.random() < 0.3 else source.randint(sketch.floor // 3, sketch.floor)
        below, before, marks = source.randint(0, sketch.cost + 30), facts(sketch), (sketch.mark(), whole.mark())
        possible = whole.change(chosen) and whole.cost < below and (limit is None or whole.floor <= limit)
        assert sketch.change(chosen, below, limit) == possible
        if possible:
            assert facts(sketch) == facts(whole)
        else:
            sketch.back_to(marks[0])
            whole.back_to(marks[1])
            assert facts(sketch) == facts(whole) == before


@thorough
@given(st.randoms(use_true_random=False))
def test_no_choice_goes_below_the_bounds(source: random.Random):
    repeater = Repeater(Maker(source).made())
    sketch = LiveBytesModel(repeater, {at: 1 + at for at in repeater.repeats})
    bounds = LiveBytesBounds(sketch)
    for _ in range(6):
        if not sketch.change({block: source.randrange(5) for block in repeater.candidates}):
            return
        must = bounds.levels(sketch.floor)
        assert bounds.floor <= sketch.floor
        assert must.keys() <= sketch.levels.keys()
        assert all(sketch.levels[block] == PER_READER for block, level in must.items() if level == PER_READER)


# --- planted faults -----------------------------------------------------------------------------------------


def first_again(given: Program) -> int:
    return next(at for at, i in enumerate(given.instructions) if i.repeats is not None)


def inserted(given: Program, at: int, of: int) -> Program:
    """With an instruction once more."""
    some = list(given.instructions)
    some.insert(at, replace(given.instructions[of], number=99, repeats=of))
    return given.with_instructions(some)


SIMPLE = program(double(INPUT, A), double(A, B), tanh(B, C), copy(C, FIRST), copy(A, SECOND), held=HELD)
DRAWN = program(*STEP, held=HELD)
WRITTEN = program(add(INPUT, WEIGHT, A), tanh(A, B), copy(B, FIRST), copy(A, SECOND), update(INPUT, WEIGHT), held=HELD)
MOVING = program(double(INPUT, A), update(A, WEIGHT), clip(WEIGHT), copy(WEIGHT, FIRST), held=HELD)
OTHERWISE = r"wanted (what|the bytes)"
#: (the program, which block is made again, a change at the repeat, what the error names).
FAULTS: dict[str, tuple[Program, int | None, Callable[[Program, int], Program], str]] = {
    "behind a write of what it reads": (WRITTEN, A.block, lambda p, at: moved(p, len(p.instructions) - 1, at),
                                        f"add, layer.*{OTHERWISE}"),
    "a key drawn again": (DRAWN, B.block, lambda p, at: inserted(p, at, 0), "draw_key"),
    "state moved twice": (MOVING, None, lambda p, at: inserted(p, len(p.instructions), 2), OTHERWISE),
    "another setting": (
        SIMPLE, A.block,
        lambda p, at: changed(p, at, lambda i: replace(i, settings={**i.settings, "factor": 3.0})), "wanted the call",
    ),
    **{
        f"the wrong original: {fields}": (
            SIMPLE, A.block, lambda p, at, fields=fields: changed(p, at, lambda i: replace(i, **fields)), match,
        )
        for fields, match in (
            ({"repeats": 1}, OTHERWISE),
            ({"repeats": 2}, "wanted the call"),
            ({"repeats": 77}, "rewritten program"),
            ({"number": 0}, "rewritten program"),
            ({"number": 4}, "number of its own|only once"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(("step", "block", "fault", "match"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found(step, block, fault, match):
    made, at = step, 0
    if block is not None:
        made = repeated(step, {block: ONCE})
        check_reads(step, made, {})
        at = first_again(made)
    with pytest.raises(PlanError, match=match):
        check_reads(step, fault(made, at), {})


def test_a_repeat_into_bytes_that_are_in_use():
    step = program(
        double(INPUT, A), relu(A, B), copy(B, FIRST), copy(A, SECOND), copy(B, whole(6, 3, 4)), held=[*HELD, 6]
    )
    made = repeated(step, {A.block: ONCE})
    again = made.instructions[first_again(made)].writes[0].block
    offsets = {A.block: 0, B.block: 64, again: 64}
    with pytest.raises(PlanError, match=OTHERWISE):
        check_reads(step, made, offsets)
    assert run(made, start_of(step), offsets)[6].tobytes() != run(step, start_of(step))[6].tobytes()


# --- values that go to host memory and back

#: Values that are read again at the end, in the other order.
COPY_STEP: tuple[Call, ...] = (
    double(INPUT, A),
    tanh(A, B),
    tanh(B, C),
    tanh(C, D),
    copy(D, FIRST),
    update(C, WEIGHT),
    update(B, WEIGHT),
    copy(A, SECOND),
)
#: Rates of copies: hidden ones, and such that the step waits for.
QUICK, SLOW = 1e6, 1e-3


def limited(given: Program, limit: int, link: float) -> Program:
    return replace(given, target=replace(given.target, limit=limit, link=link))


def placed_in_both(given: Program) -> tuple[dict[int, int], dict[int, int]]:
    """Offsets in the arena, and in host memory."""
    both = [plan(wanted, seconds=1, nodes=50).offsets for wanted in (requests(given), host_requests(given))]
    arena, host = ({int(key[1:]): at for key, at in found.items() if key[0] in "bh"} for found in both)
    return arena, host


def ends(given: Program) -> list[str]:
    return [i.kernel if i.transfer is None else str(i.transfer) for i in given.instructions]


def both_copied() -> Program:
    """A and B are copied, each between other instructions."""
    step = program(*COPY_STEP, held=HELD)
    return rewritten(step, [Offload(A.block, 2, 4, 6, 7), Offload(B.block, 3, 4, 5, 6)])


def test_copies_are_hidden_where_the_link_is_fast_enough():
    step = limited(program(*COPY_STEP, held=HELD), 3 * 64, QUICK)
    made = offloaded(step)
    assert floor(in_place(made)) <= 3 * 64 < floor(in_place(step))
    assert waiting(made) == 0 == estimated_slowdown(made)
    check_reads(step, made, *placed_in_both(made))
    assert_same(step, made, placed_in_both(made)[0])


def test_what_is_cheaper_to_make_again_is_not_copied():
    step = limited(program(*COPY_STEP, held=HELD), 2 * 64, SLOW)
    assert offloaded(step) is step
    assert any(i.repeats is not None for i in within_limit(step).instructions)


def test_what_cannot_be_made_again_is_copied_however_slow_the_link():
    calls = [add(INPUT, WEIGHT, A), update(A, WEIGHT), tanh(A, B), tanh(B, C), add(B, C, D), add(D, A, E)]
    step = limited(program(*calls, copy(E, SECOND), held=HELD), 2 * 64, SLOW)
    placed_in_both = lower(step)
    prove(placed_in_both)
    assert placed_in_both.planned.host_sizes
    assert placed_in_both.arena_bytes == 2 * 64
    assert placed_in_both.host_bytes == 64


def test_without_a_limit_or_a_link_or_a_need_nothing_is_copied():
    step = program(*COPY_STEP, held=HELD)
    for one in (step, limited(step, 10**6, QUICK), replace(step, target=replace(step.target, limit=1))):
        assert offloaded(one) is one


@thorough
@given(st.randoms(use_true_random=False))
def test_random_programs_keep_their_results_whatever_is_copied(source: random.Random):
    step = Maker(source).made()
    table = Timetable(step, QUICK)
    chosen = []
    for block, (before, behind) in table.gaps.items():
        times = sorted(source.randint(before + 1, behind) for _ in range(2))
        if source.random() < 0.6 and times[0] < times[1]:
            chosen.append(
                Offload(block, source.randint(before + 1, times[0]), *times, source.randint(times[1], behind))
            )
    made = in_place(rewritten(step, chosen))
    arena, host = placed_in_both(made)
    check_reads(step, made, arena, host)
    assert_same(step, made, arena)


@settings(thorough, max_examples=COUNT // 2)
@given(st.randoms(use_true_random=False), st.sampled_from([QUICK, 1.0, 0.1, SLOW]))
def test_random_programs_within_limits_are_proved_and_keep_their_results(source: random.Random, link: float):
    step = Maker(source).made()
    free = floor(in_place(step))
    made = lower(limited(step, free, link))
    for share in (0.8, 0.6, 0.4):
        try:
            made = lower(limited(step, int(free * share), link))
        except PlanError:
            break
        prove(made)
        assert made.arena_bytes <= int(free * share)
        assert_same(step, made.planned, made.offsets)


# --- planted faults -----------------------------------------------------------------------------------------


def copies(given: Program, transfer: Transfer) -> list[int]:
    return [at for at, i in enumerate(given.instructions) if i.transfer is transfer]


def without(made: Program, at: int) -> Program:
    return made.with_instructions([i for step, i in enumerate(made.instructions) if step != at])


def with_operands(made: Program, at: int, *operands: Operand) -> Program:
    return changed(made, at, lambda i: i.with_operands(operands))


MADE = both_copied()
BEGINS, ENDS = copies(MADE, Transfer.BEGIN), copies(MADE, Transfer.END)
BEGIN, END = BEGINS[0], ENDS[0]
ON_CHIP, HOST = MADE.instructions[BEGIN].operands
PLAIN, WAITING = "wanted a copy between arena and host memory", "until it is waited for"


def from_the_wrong_host_block() -> Program:
    made = MADE
    right, wrong = (made.instructions[at].operands[0] for at in BEGINS[2:])
    for at, call in enumerate(made.instructions):
        if call.operands[0] == right:
            made = with_operands(made, at, wrong, call.operands[1])
    return made


#: (the program with a fault, what the error names).
COPY_FAULTS: dict[str, tuple[Program, str]] = {
    "back from the wrong host block": (from_the_wrong_host_block(), f"add_scaled.*{OTHERWISE}"),
    "a read before the copy is back": (moved(MADE, ENDS[2], ENDS[2] + 3), WAITING),
    "no beginning": (without(MADE, BEGIN), "one that was begun"),
    "no end": (without(MADE, END), "wait|begun"),
    "no last end": (without(MADE, ENDS[-1]), "wait"),
    "an end of another": (with_operands(MADE, END, *MADE.instructions[BEGIN + 2].operands), "begun|wait"),
    "another kernel": (changed(MADE, BEGIN, lambda i: replace(i, kernel="tanh")), PLAIN),
    "within host memory": (with_operands(MADE, BEGIN, HOST, HOST), PLAIN),
    "to a held block": (with_operands(MADE, BEGIN, ON_CHIP, FIRST), PLAIN),
    "no transfer": (changed(MADE, BEGIN, lambda i: replace(i, transfer=None)), "host memory"),
    "another call in host memory": (with_operands(MADE, 1, HOST, MADE.instructions[1].operands[1]), "host memory"),
    "a number that is there": (changed(MADE, BEGIN, lambda i: replace(i, number=0)), "only once"),
    "beyond its block": (
        with_operands(MADE, BEGIN, whole(A.block, 64, dtype="u1"), HOST._replace(shape=(64,))),
        "within its block",
    ),
}


@pytest.mark.parametrize(("faulty", "match"), COPY_FAULTS.values(), ids=COPY_FAULTS)
def test_a_planted_fault_of_a_copy_is_found(faulty, match):
    step = program(*COPY_STEP, held=HELD)
    check_reads(step, MADE, {})
    with pytest.raises(PlanError, match=match):
        check_reads(step, faulty, {})


def test_bytes_that_are_reused_too_early_are_found():
    """In host memory: by the second copy out, while it is copied back, or after; in the arena: before the copy out is
    done, or while what is copied back is still to be written over."""
    step, made = program(*COPY_STEP, held=HELD), MADE
    arena, host = placed_in_both(made)
    assert len(set(host.values())) == 2
    again = rewritten(step, [Offload(A.block, 2, 2, 4, 7), Offload(B.block, 5, 5, 6, 6)])
    late = rewritten(step, [Offload(A.block, 2, 2, 7, 7), Offload(B.block, 3, 3, 6, 6)])
    behind_the_tanh = moved(made, END, 9)  # that writes D
    back = made.instructions[BEGINS[2]].writes[0].block
    for faulty, in_arena, in_host, match in (
        (made, arena, dict.fromkeys(host, 0), f"{WAITING}|{OTHERWISE}"),
        (again, {}, dict.fromkeys(again.host_sizes, 0), WAITING),
        (late, {}, dict.fromkeys(late.host_sizes, 0), OTHERWISE),
        (behind_the_tanh, arena | {D.block: arena[A.block]}, host, WAITING),
        (made, arena | {back: arena[C.block]}, host, OTHERWISE),
    ):
        with pytest.raises(PlanError, match=match):
            check_reads(step, faulty, in_arena, in_host)
