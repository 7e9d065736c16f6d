"""Values that go to host memory and back: equal bits whatever is copied, by a proof that finds each planted fault."""

from __future__ import annotations

import random
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
    copy,
    double,
    moved,
    program,
    tanh,
    thorough,
    update,
    whole,
)
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Operand, Transfer
from singa_lite.passes import offload, repeats
from singa_lite.passes.budget import within_limit
from singa_lite.passes.in_place import in_place
from singa_lite.passes.lower import lower
from singa_lite.passes.offload import offloaded
from singa_lite.passes.placed import prove
from singa_lite.passes.program import Program, floor, host_requests, live_bytes, requests
from singa_lite.passes.read_from import check_reads
from singa_lite.passes.transfer_times import estimated_slowdown, waiting
from singa_lite.passes.transfers import Offload, Timetable, rewritten
from singa_lite.runtime.host_memory import Link

INPUT, WEIGHT = whole(0, 3, 4), whole(1, 3, 4)
FIRST, SECOND = whole(4, 3, 4), whole(5, 3, 4)
HELD = [0, 1, 4, 5]
A, B, C, D, E = (whole(number, 3, 4) for number in range(10, 15))

#: Values that are read again at the end, in the other order.
STEP: tuple[Call, ...] = (
    double(INPUT, A),
    tanh(A, B),
    tanh(B, C),
    tanh(C, D),
    copy(D, FIRST),
    update(C, WEIGHT),
    update(B, WEIGHT),
    copy(A, SECOND),
)
WAITED = Link(1.0, False)
BESIDE = Link(1e6, True)


@pytest.fixture(autouse=True)
def _small_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "LEAST_BYTES", 1)
    monkeypatch.setattr(repeats, "LEAST_GAP", 1)


def limited(given: Program, limit: int, link: Link) -> Program:
    return replace(given, target=replace(given.target, limit=limit, link=link))


def placed(given: Program) -> tuple[dict[int, int], dict[int, int]]:
    """Offsets in the arena, and in host memory."""
    both = [plan(wanted, seconds=1, nodes=50).offsets for wanted in (requests(given), host_requests(given))]
    arena, host = ({int(key[1:]): at for key, at in found.items() if key[0] in "bh"} for found in both)
    return arena, host


def ends(given: Program) -> list[str]:
    return [i.kernel if i.transfer is None else str(i.transfer) for i in given.instructions]


def both_copied() -> Program:
    """A and B are copied, each between other instructions."""
    step = program(*STEP, held=HELD)
    return rewritten(step, [Offload(A.block, 2, 4, 6, 7), Offload(B.block, 3, 4, 5, 6)])


def test_a_copy_takes_bytes_until_its_end_and_from_its_beginning_on():
    made = both_copied()
    assert ends(made) == [
        "scale", "tanh", "begin", "tanh", "begin", "tanh", "end", "end", "copy",
        "begin", "add_scaled", "begin", "end", "add_scaled", "end", "copy",
    ]  # fmt: skip
    values = [nbytes // 64 for nbytes in live_bytes(made)]
    assert values == [1, 2, 2, 3, 3, 4, 4, 3, 2, 2, 3, 2, 2, 3, 1, 1]
    check_reads(program(*STEP, held=HELD), made, *placed(made))


def test_copies_are_hidden_where_the_link_is_fast_enough():
    step = limited(program(*STEP, held=HELD), 3 * 64, BESIDE)
    made = offloaded(step)
    assert floor(in_place(made)) <= 3 * 64 < floor(in_place(step))
    assert waiting(made) == 0 == estimated_slowdown(made)
    check_reads(step, made, *placed(made))
    assert_same(step, made, placed(made)[0])


def test_what_is_cheaper_to_make_again_is_not_copied():
    slow = Link(1e-3, False)
    step = limited(program(*STEP, held=HELD), 2 * 64, slow)
    assert offloaded(step) is step
    assert any(i.repeats is not None for i in within_limit(step).instructions)


def test_what_cannot_be_made_again_is_copied_however_slow_the_link():
    calls = [add(INPUT, WEIGHT, A), update(A, WEIGHT), tanh(A, B), tanh(B, C), add(B, C, D), add(D, A, E)]
    step = limited(program(*calls, copy(E, SECOND), held=HELD), 2 * 64, Link(1e-3, False))
    placed = lower(step)
    prove(placed)
    assert placed.planned.host_sizes
    assert placed.arena_bytes == 2 * 64
    assert placed.host_bytes == 64


def test_without_a_limit_or_a_link_or_a_need_nothing_is_copied():
    step = program(*STEP, held=HELD)
    for one in (step, limited(step, 10**6, WAITED), replace(step, target=replace(step.target, limit=1))):
        assert offloaded(one) is one


@thorough
@given(st.randoms(use_true_random=False))
def test_random_programs_keep_their_results_whatever_is_copied(source: random.Random):
    step = Maker(source).made()
    table = Timetable(step, BESIDE)
    chosen = []
    for block, (before, behind) in table.gaps.items():
        times = sorted(source.randint(before + 1, behind) for _ in range(2))
        if source.random() < 0.6 and times[0] < times[1]:
            chosen.append(
                Offload(block, source.randint(before + 1, times[0]), *times, source.randint(times[1], behind))
            )
    made = in_place(rewritten(step, chosen))
    arena, host = placed(made)
    check_reads(step, made, arena, host)
    assert_same(step, made, arena)


@settings(thorough, max_examples=COUNT // 2)
@given(st.randoms(use_true_random=False), st.sampled_from([WAITED, BESIDE, Link(0.1, True), Link(1e-3, True)]))
def test_random_programs_within_limits_are_proved_and_keep_their_results(source: random.Random, link: Link):
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
OTHERWISE = r"wanted (what|the bytes)"


def from_the_wrong_host_block() -> Program:
    made = MADE
    right, wrong = (made.instructions[at].operands[0] for at in BEGINS[2:])
    for at, call in enumerate(made.instructions):
        if call.operands[0] == right:
            made = with_operands(made, at, wrong, call.operands[1])
    return made


#: (the program with a fault, what the error names).
FAULTS: dict[str, tuple[Program, str]] = {
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


@pytest.mark.parametrize(("faulty", "match"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found(faulty, match):
    step = program(*STEP, held=HELD)
    check_reads(step, MADE, {})
    with pytest.raises(PlanError, match=match):
        check_reads(step, faulty, {})


def test_bytes_that_are_reused_too_early_are_found():
    """In host memory: by the second copy out, while it is copied back, or after; in the arena: before the copy out is
    done, or while what is copied back is still to be written over."""
    step, made = program(*STEP, held=HELD), MADE
    arena, host = placed(made)
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
