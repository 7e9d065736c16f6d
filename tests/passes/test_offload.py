"""Values that go to host memory and back: equal bits whatever is copied, by a proof that finds each planted fault."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from programs import (
    Call,
    Maker,
    add,
    assert_same,
    bits,
    changed,
    copy,
    double,
    moved,
    program,
    run,
    start_of,
    tanh,
    thorough,
    update,
    whole,
)
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Transfer
from singa_lite.passes import offload, repeats
from singa_lite.passes.budget import within_limit
from singa_lite.passes.in_place import in_place
from singa_lite.passes.lower import lower
from singa_lite.passes.offload import offloaded
from singa_lite.passes.placed import prove
from singa_lite.passes.program import Program, floor, host_requests, live_bytes, requests
from singa_lite.passes.read_from import check_reads
from singa_lite.passes.transfer_times import copy_seconds, estimated_slowdown, waiting
from singa_lite.passes.transfers import Offload, Timetable, rewritten
from singa_lite.runtime.host_memory import Link

INPUT, WEIGHT = whole(0, 3, 4), whole(1, 3, 4)
FIRST, SECOND, THIRD = whole(4, 3, 4), whole(5, 3, 4), whole(6, 3, 4)
HELD = [0, 1, 4, 5, 6]
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


def test_a_value_leaves_after_its_last_use_and_is_back_before_the_next():
    step = program(*STEP, held=HELD)
    made = rewritten(step, [Timetable(step, WAITED).waited(A.block)])
    assert ends(made) == [
        "scale", "tanh", "begin", "end", "tanh", "tanh", "copy", "add_scaled", "add_scaled", "begin", "end", "copy",
    ]  # fmt: skip
    assert made.instructions[-1].reads[0].block != A.block
    assert_same(step, made)
    check_reads(step, made, *placed(made))


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


def test_where_the_step_waits_each_copy_counts():
    step = limited(program(*STEP, held=HELD), 2 * 64, WAITED)
    made = rewritten(step, [Timetable(step, WAITED).waited(block) for block in (A.block, B.block)])
    assert waiting(made) == pytest.approx(4 * copy_seconds(48, WAITED))


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


@settings(thorough, max_examples=80)
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


def refused(made: Program, match: str) -> None:
    step = program(*STEP, held=HELD)
    with pytest.raises(PlanError, match=match):
        check_reads(step, made, {})


def differs(made: Program) -> bool:
    """Whether the fault shows in the results."""
    step = program(*STEP, held=HELD)
    start = start_of(step)
    return bits(run(made, start)) != bits(run(step, start))


def test_without_a_fault_nothing_is_refused():
    made = both_copied()
    check_reads(program(*STEP, held=HELD), made, {})
    assert not differs(made)


def test_a_copy_back_from_the_wrong_host_block():
    made = both_copied()
    right, wrong = (made.instructions[at].operands[0] for at in copies(made, Transfer.BEGIN)[2:])
    for at in range(len(made.instructions)):
        if made.instructions[at].operands[0] == right:
            made = changed(made, at, lambda i: i.with_operands((wrong, i.operands[1])))
    assert differs(made)
    refused(made, "add_scaled.*wanted (what|the bytes)")


def test_a_host_block_that_is_reused_too_early():
    """The second copy out overwrites what the first one left."""
    made = both_copied()
    first, second = made.host_sizes
    arena, host = placed(made)
    assert host[first] != host[second]
    with pytest.raises(PlanError, match=r"copy .* until it is waited for|wanted (what|the bytes)"):
        check_reads(program(*STEP, held=HELD), made, arena, {first: 0, second: 0})


def test_a_host_block_that_is_reused_while_it_is_copied_back():
    """In time for every read, but not for the copy that still reads it."""
    step = program(*STEP, held=HELD)
    made = rewritten(step, [Offload(A.block, 2, 2, 4, 7), Offload(B.block, 5, 5, 6, 6)])
    first, second = made.host_sizes
    with pytest.raises(PlanError, match="until it is waited for"):
        check_reads(step, made, {}, {first: 0, second: 0})
    made = rewritten(step, [Offload(A.block, 2, 2, 7, 7), Offload(B.block, 3, 3, 6, 6)])
    with pytest.raises(PlanError, match=r"wanted (what|the bytes)"):
        check_reads(step, made, {}, dict.fromkeys(made.host_sizes, 0))


def test_a_read_before_the_copy_is_back():
    made = both_copied()
    end = copies(made, Transfer.END)[2]
    refused(moved(made, end, end + 3), "until it is waited for")


def test_a_block_that_is_overwritten_before_its_copy_is_done():
    step = program(*STEP, held=HELD)
    made = both_copied()
    late = moved(made, copies(made, Transfer.END)[0], 9)  # behind the tanh that writes D
    arena, host = placed(made)
    with pytest.raises(PlanError, match="until it is waited for"):
        check_reads(step, late, arena | {D.block: arena[A.block]}, host)


def test_a_copy_that_writes_what_is_still_read():
    step = program(*STEP, held=HELD)
    made = both_copied()
    arena, host = placed(made)
    back = made.instructions[copies(made, Transfer.BEGIN)[2]].writes[0].block
    with pytest.raises(PlanError, match=r"wanted (what|the bytes)"):
        check_reads(step, made, arena | {back: arena[C.block]}, host)


def test_ends_without_beginnings_and_beginnings_without_ends():
    made = both_copied()
    begin, end = copies(made, Transfer.BEGIN)[0], copies(made, Transfer.END)[0]

    def without(at: int) -> Program:
        return made.with_instructions([i for step, i in enumerate(made.instructions) if step != at])

    refused(without(begin), "one that was begun")
    refused(without(end), "wait|begun")
    refused(without(copies(made, Transfer.END)[-1]), "wait")
    refused(changed(made, end, lambda i: i.with_operands(made.instructions[begin + 2].operands)), "begun|wait")


def test_what_is_no_copy_to_host_memory():
    made = both_copied()
    begin = copies(made, Transfer.BEGIN)[0]
    host = made.instructions[begin].operands[1]
    plain = "wanted a copy between arena and host memory"
    refused(changed(made, begin, lambda i: replace(i, kernel="tanh")), plain)
    refused(changed(made, begin, lambda i: i.with_operands((host, host))), plain)
    refused(changed(made, begin, lambda i: i.with_operands((i.operands[0], FIRST))), plain)
    refused(changed(made, begin, lambda i: replace(i, transfer=None)), "wanted no operand in host memory")
    refused(changed(made, 1, lambda i: i.with_operands((host, i.operands[1]))), "wanted no operand in host memory")
    refused(changed(made, begin, lambda i: replace(i, number=0)), "only once")
    wide = whole(A.block, 64, dtype="u1"), host._replace(shape=(64,))
    refused(changed(made, begin, lambda i: i.with_operands(wide)), "within its block")
