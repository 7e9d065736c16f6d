"""The proof that a plan changes no value: faults planted into good plans are found, each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programs import (
    Call,
    add,
    bits,
    clip,
    copy,
    double,
    end,
    extents,
    fill,
    matmul,
    normed,
    part,
    permuted,
    program,
    random_programs,
    relu,
    reshaped,
    run,
    start_of,
    subtract,
    tanh,
    thorough,
    turned,
    update,
    whole,
)
from singa_lite.memory.check import check
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Instruction, Operand
from singa_lite.passes import contents
from singa_lite.passes.boxes import Box, cut
from singa_lite.passes.dead import without_dead
from singa_lite.passes.dependencies import ancestors, predecessors
from singa_lite.passes.footprint import axis_order, boxes
from singa_lite.passes.lower import lower
from singa_lite.passes.program import Program, requests
from singa_lite.passes.read_from import check_reads

INPUT, RESULT, WEIGHT = whole(0, 3, 4), whole(1, 3, 8), whole(2, 3, 4)
HELD = [0, 1, 2]
A, B, C, D = (whole(number, 3, 4) for number in range(10, 14))
JOINED = whole(14, 3, 8)

#: Fan-out, an update of a weight, a concatenation whose second part dies there, and a result. Numbers 0 to 9.
STEP: tuple[Call, ...] = (
    double(INPUT, A),
    tanh(A, B),
    subtract(A, B, C),
    add(B, C, D),
    update(D, WEIGHT),
    tanh(WEIGHT, whole(15, 3, 4)),
    copy(C, part(JOINED, 1, 0, 4)),
    copy(whole(15, 3, 4), part(JOINED, 1, 4, 8)),
    copy(JOINED, RESULT),
    clip(WEIGHT),
)


@dataclass
class Planned:
    """A record and a plan of it, to be spoilt."""

    recorded: Program
    program: Program
    offsets: dict[int, int]
    scratch: dict[int, int]

    @classmethod
    def of(cls, made: Program) -> Planned:
        placed = lower(made)
        return cls(placed.rewritten, placed.planned, dict(placed.offsets), placed.scratch)

    def check(self) -> None:
        """Both proofs, as they run on every plan."""
        offsets = {f"b{b}": at for b, at in self.offsets.items()} | {f"s{n}": at for n, at in self.scratch.items()}
        wanted = requests(self.program)
        top = max((offsets[r.id] + r.size for r in wanted), default=0)
        check(wanted, {r.id: offsets[r.id] for r in wanted}, top)
        check_reads(self.recorded, self.program, self.offsets)

    def change(self, number: int, index: int, operand: Operand) -> None:
        """Another operand for one instruction."""
        made = []
        for instruction in self.program.instructions:
            if instruction.number == number:
                operands = list(instruction.operands)
                operands[index] = operand
                instruction = replace(instruction, operands=tuple(operands))
            made.append(instruction)
        self.program = self.program.with_instructions(made)

    def reorder(self, order: list[Instruction]) -> None:
        self.program = self.program.with_instructions(order)


def step() -> Planned:
    return Planned.of(program(*STEP, held=HELD))


def unshared(*calls: Call, held: list[int] = HELD) -> Planned:
    """The record itself as the plan, each block at offsets far apart."""
    made = program(*calls, held=held)
    scratch = {i.number: 4096 * (len(made.sizes) + i.number) for i in made.instructions if i.scratch_bytes}
    return Planned(made, made, {block: 4096 * index for index, block in enumerate(made.sizes)}, scratch)


def assert_found(spoilt: Planned, match: str | None = None) -> None:
    with pytest.raises(PlanError, match=match):
        check_reads(spoilt.recorded, spoilt.program, spoilt.offsets)


def test_good_plans_pass():
    step().check()
    unshared(*STEP).check()


# --- planted faults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropped", range(len(STEP)))
def test_a_dropped_instruction(dropped):
    """Also the last one, which nobody in the step reads after."""
    spoilt = unshared(*STEP)
    spoilt.reorder([i for i in spoilt.program.instructions if i.number != dropped])
    assert_found(spoilt)


def test_a_dropped_copy_is_no_fault_only_if_its_source_is_read_instead():
    made = unshared(double(INPUT, A), copy(A, B), copy(B, WEIGHT))
    made.reorder([i for i in made.program.instructions if i.number != 1])
    assert_found(made)
    made.change(2, 0, A)
    made.check()


def test_a_dropped_copy_of_held_bytes_is_not_taken_for_bytes_that_nobody_wrote():
    spoilt = unshared(copy(WEIGHT, A), tanh(A, INPUT))
    spoilt.reorder([spoilt.program.instructions[1]])
    assert_found(spoilt)


@pytest.mark.parametrize(
    "x", [whole(10, 3, 4, dtype="f8"), whole(10, 3, 4, dtype="i4"), whole(10, 4)], ids=["wider", "integers", "a row"]
)
def test_a_dropped_copy_that_converts_or_repeats(x):
    spoilt = unshared(fill(x), copy(x, B), copy(B, WEIGHT))
    spoilt.reorder([i for i in spoilt.program.instructions if i.number != 1])
    spoilt.change(2, 0, whole(10, 3, 4))
    assert_found(spoilt)


def test_two_dependent_instructions_the_other_way_round():
    made = program(*STEP, held=HELD)
    earlier = ancestors(predecessors(made.instructions))
    found = 0
    for index in range(len(STEP) - 1):
        pieces_of_one_block = index == 6  # they are ordered, but need not be
        if earlier[index + 1] >> index & 1 and not pieces_of_one_block:
            spoilt = unshared(*STEP)
            order = list(spoilt.program.instructions)
            order[index : index + 2] = order[index + 1], order[index]
            spoilt.reorder(order)
            assert_found(spoilt)
            found += 1
    assert found >= 5


def test_two_writes_of_a_held_block_the_other_way_round():
    spoilt = unshared(copy(INPUT, WEIGHT), fill(WEIGHT))
    spoilt.reorder(list(reversed(spoilt.program.instructions)))
    assert_found(spoilt, "held block 2")


def test_an_instruction_twice():
    for index in range(len(STEP)):
        spoilt = unshared(*STEP)
        order = list(spoilt.program.instructions)
        order.insert(index, order[index])
        spoilt.reorder(order)
        assert_found(spoilt, "once")


def test_an_instruction_that_was_not_recorded():
    spoilt = unshared(*STEP)
    spoilt.reorder([*spoilt.program.instructions, replace(spoilt.program.instructions[-1], number=77)])
    assert_found(spoilt, "instruction 77")


def test_swapped_offsets():
    """Of two blocks of unequal size that live at the same time. Either proof finds it."""
    spoilt = unshared(double(INPUT, A), fill(JOINED), tanh(A, B), copy(JOINED, RESULT), add(A, B, C), copy(C, WEIGHT))
    spoilt.offsets = {10: 0, 14: 64, 11: 192, 12: 256}
    spoilt.check()
    spoilt.offsets |= {10: 64, 14: 0}
    assert_found(spoilt, "instruction 2.*read 0")
    with pytest.raises(PlanError, match="overlap"):
        spoilt.check()


def test_a_block_over_one_that_is_still_read():
    """The check of reads alone finds it, without the check of bytes and steps."""
    spoilt = unshared(double(INPUT, A), tanh(INPUT, B), matmul(A, turned(B), whole(12, 3, 3)),
                      copy(whole(12, 3, 3), whole(1, 3, 3)))  # fmt: skip
    spoilt.offsets[11] = spoilt.offsets[10] + 16
    assert_found(spoilt, r"instruction 2 \(matmul.*read 0")


@pytest.mark.parametrize("shift", [-4, 4, 8, 16])
def test_a_part_at_a_wrong_place_of_its_whole(shift):
    good = step()
    written = {i.number: i for i in good.program.instructions}[2]
    index = 2
    operand = written.operands[index]
    assert operand.block == JOINED.block, "written in place"
    good.change(2, index, operand._replace(offset=max(operand.offset + shift, 4)))
    assert_found(good)


def test_parts_in_each_other_s_place():
    good = step()
    by_number = {i.number: i for i in good.program.instructions}
    left, right = by_number[2].operands[2], by_number[5].operands[1]
    assert left.block == right.block == JOINED.block
    good.change(2, 2, right)
    good.change(5, 1, left)
    assert_found(good)


def test_exchanged_operands():
    spoilt = unshared(*STEP)
    spoilt.change(2, 0, B)
    spoilt.change(2, 1, A)
    assert_found(spoilt, "instruction 2.*read 0")


@pytest.mark.parametrize(
    "view", [part(A, 0, 1, 3), reshaped(A, 4, 3), turned(A), A._replace(dtype=whole(0, 1, dtype="i4").dtype)]
)
def test_another_view_of_the_right_block(view):
    spoilt = unshared(double(INPUT, A), tanh(A, B), copy(B, WEIGHT))
    spoilt.change(1, 0, view)
    assert_found(spoilt)


def test_another_setting_or_kernel():
    for spoiling in ({"settings": {"alpha": 3.0, "beta": 1.0}}, {"kernel": "exp"}):
        spoilt = unshared(double(INPUT, A), copy(A, WEIGHT))
        first, second = spoilt.program.instructions
        spoilt.reorder([replace(first, **spoiling), second])
        assert_found(spoilt, "instruction 0")


def test_a_result_into_the_wrong_held_block():
    spoilt = unshared(double(INPUT, A), copy(A, WEIGHT))
    spoilt.change(1, 1, INPUT)
    assert_found(spoilt, "held block")


def test_writing_over_an_input_that_the_kernel_still_reads():
    """The interface does not let a matrix product overwrite anything."""
    square, result = whole(10, 3, 3), whole(11, 3, 3)
    spoilt = unshared(fill(square), matmul(square, square, result), copy(result, whole(2, 3, 3)))
    spoilt.change(1, 2, square)
    spoilt.change(2, 0, square)
    assert_found(spoilt, "apart from 'a'")


def test_writing_over_an_input_shifted():
    """What is allowed in place is allowed for the same elements only."""
    long = whole(10, 6)
    spoilt = unshared(fill(long), double(part(long, 0, 1, 6), whole(11, 5)), copy(whole(11, 5), whole(2, 5)))
    spoilt.change(1, 1, part(long, 0, 0, 5))
    spoilt.change(2, 0, part(long, 0, 0, 5))
    assert_found(spoilt, "apart from 'x'")


def test_the_second_output_over_an_input_that_only_the_first_may_take():
    row, y, norm = whole(10, 5), whole(11, 5), whole(12, 5)
    spoilt = unshared(fill(row), normed(row, y, norm), copy(y, whole(1, 5)), copy(norm, whole(2, 5)))
    spoilt.change(1, 2, row)
    spoilt.change(3, 0, row)
    assert_found(spoilt, "'norm' apart from 'x'")


def test_an_allowed_write_over_an_input_passes():
    made = unshared(double(INPUT, A), relu(A, B), copy(B, WEIGHT))
    made.change(1, 1, A)
    made.change(2, 0, A)
    check_reads(made.recorded, made.program, made.offsets)


# --- images that lie channels last, and other orders of axes -----------------------------------------------------

LAST = (0, 2, 3, 1)


def images(batch: int, *orders: tuple[int, ...]) -> Planned:
    """Images of 3, 2 and 2 channels, made, put together by chains of copies, and used. Orders of the axes, in turn."""
    order = orders or (LAST,) * 6
    start, result = whole(0, batch, 3, 4, 5), whole(1, batch, 7, 4, 5)
    a, b, c = (permuted(10 + i, (batch, n, 4, 5), order[i]) for i, n in enumerate((3, 2, 2)))
    ab, abc = permuted(20, (batch, 5, 4, 5), order[3]), permuted(21, (batch, 7, 4, 5), order[4])
    y = permuted(22, (batch, 7, 4, 5), order[5])
    made = program(
        double(start, a), tanh(part(a, 1, 0, 2), b), relu(part(a, 1, 1, 3), c),
        copy(a, part(ab, 1, 0, 3)), copy(b, part(ab, 1, 3, 5)),
        copy(ab, part(abc, 1, 2, 7)), copy(c, part(abc, 1, 0, 2)),
        tanh(abc, y), copy(part(y, 2, 1, 4), part(result, 2, 0, 3)), copy(part(abc, 3, 0, 2), part(result, 3, 3, 5)),
        held=[0, 1],
    )  # fmt: skip
    return Planned.of(made)


def test_images_put_together_in_place_pass():
    made = images(2)
    made.check()
    assert [i.kernel for i in made.program.instructions].count("copy") == 2
    start = start_of(made.recorded)
    assert bits(run(made.program, start, made.offsets)) == bits(run(made.recorded, start))


@given(st.lists(st.permutations(range(4)).map(tuple), min_size=6, max_size=6))
@thorough
def test_images_in_any_orders_pass(orders):
    made = images(2, *orders)
    made.check()
    start = start_of(made.recorded)
    assert bits(run(made.program, start, made.offsets)) == bits(run(made.recorded, start))


@pytest.mark.parametrize("shift", [-4, 4, 28, 8])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_image_at_a_wrong_place_of_its_whole(number, shift):
    spoilt = images(2)
    by_number = {i.number: i for i in spoilt.program.instructions}
    operand = by_number[number].operands[1]
    assert operand.block == 21, "written in place"
    spoilt.change(number, 1, operand._replace(offset=operand.offset + shift))
    assert_found(spoilt)


def test_the_work_does_not_grow_with_the_batch(monkeypatch):
    done = []

    def counted(a: Box, b: Box) -> tuple[list[Box], list[Box]]:
        done[-1] += 1
        return cut(a, b)

    monkeypatch.setattr(contents, "cut", counted)
    for batch in (3, 300_000):
        made = images(batch)
        done.append(0)
        check_reads(made.recorded, made.program, made.offsets)
    assert done[0] == done[1] < 200


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_another_order_of_the_axes_shows_other_elements(order):
    """The same bytes, written by the same instruction, without gaps both times."""
    square = permuted(10, (3, 3), order)
    spoilt = unshared(double(whole(0, 3, 3), square), tanh(square, whole(1, 3, 3)), held=[0, 1])
    spoilt.check()
    for index in (0, 1):
        spoilt.change(1 - index, index, turned(square))
        assert_found(spoilt, "wanted the call")
        spoilt.change(1 - index, index, square)
    spoilt.check()


def test_another_order_is_another_call_even_where_all_agree_on_it():
    """Both see the right elements, but a kernel may take them in another order than it did."""
    square = whole(10, 3, 3)
    spoilt = unshared(double(whole(0, 3, 3), square), tanh(square, whole(1, 3, 3)), held=[0, 1])
    spoilt.change(0, 1, turned(square))
    spoilt.change(1, 0, turned(square))
    assert_found(spoilt, "wanted the call")


def test_a_dropped_copy_that_turns():
    square, across = whole(10, 3, 3), whole(11, 3, 3)
    for read in (square, turned(square)):
        spoilt = unshared(double(whole(0, 3, 3), square), copy(turned(square), across), copy(across, whole(1, 3, 3)))
        spoilt.reorder([i for i in spoilt.program.instructions if i.number != 1])
        spoilt.change(2, 0, read)
        assert_found(spoilt)


def test_the_stride_of_an_axis_of_one_element_says_nothing():
    row, column = whole(10, 1, 4), whole(11, 4, 1)
    made = unshared(fill(row), fill(column), copy(row, whole(1, 1, 4)), copy(column, whole(2, 4, 1)), held=[1, 2])
    made.change(0, 0, row._replace(strides=(4, 4)))
    made.change(3, 0, column._replace(strides=(4, 999)))
    made.check()


def test_a_row_that_is_read_repeatedly():
    row, other = whole(10, 1, 4), whole(11, 1, 4)
    rows = row._replace(shape=(3, 4), strides=(0, 4))
    made = unshared(fill(row), fill(other, 5.0), add(rows, INPUT, WEIGHT), copy(other, part(WEIGHT, 0, 0, 1)))
    made.check()
    made.change(2, 0, rows._replace(block=11))
    assert_found(made, "read 0")
    made.change(2, 0, rows._replace(strides=(4, 4)))
    assert_found(made, "wanted the call")


def test_elements_written_over_each_other_stay_as_they_were():
    """Which one wins is up to the kernel, and to the strides."""
    start, line, windows = whole(0, 3, 2), whole(10, 8), Operand(10, (3, 2), INPUT.dtype, (4, 4), 0)
    made = unshared(fill(line), double(start, windows), copy(line, whole(1, 8)), held=[0, 1])
    made.change(1, 1, windows._replace())
    made.check()
    made.change(1, 1, windows._replace(strides=(8, 8)))
    assert_found(made, "elements of 'y' apart")


def test_bytes_of_a_block_are_gone_where_another_begins():
    """Even those that the other one has not written yet."""
    first_row, others = (part(WEIGHT, 0, start, stop) for start, stop in ((0, 1), (1, 3)))
    made = unshared(double(INPUT, A), fill(part(B, 0, 0, 1)), copy(part(A, 0, 1, 3), others),
                    copy(part(B, 0, 0, 1), first_row), fill(B))  # fmt: skip
    made.check()
    made.offsets[11] = made.offsets[10]
    assert_found(made, "instruction 2.*read 0")


def test_bytes_that_nobody_wrote_are_as_good_anywhere():
    """What reads them has no result to keep."""
    made = unshared(double(INPUT, A), fill(part(B, 1, 1, 3)), add(A, B, C), copy(C, WEIGHT))
    made.check()
    assert made.offsets[11] > 0


# --- bytes --------------------------------------------------------------------------------------------------


def test_any_dense_operand_is_one_run():
    assert boxes(whole(0, 2, 3)) == boxes(turned(whole(0, 2, 3))) == [Box((0, 0), ((24, 1, 1),))]
    images = permuted(0, (2, 3, 5, 4), (0, 2, 3, 1))
    assert boxes(images) == [Box((0, 0), ((480, 1, 1),))]
    assert boxes(part(images, 0, 1, 2)) == [Box((240, 0), ((240, 1, 1),))]
    assert boxes(whole(0), 8) == [Box((8, 0), ((4, 1, 1),))]


def test_pieces_are_boxes():
    assert boxes(part(whole(0, 2, 3), 1, 1, 3)) == [Box((4, 0), ((2, 12, 8), (8, 1, 1)))]
    images = permuted(0, (2, 3, 5, 4), (0, 2, 3, 1))
    assert boxes(part(images, 1, 1, 3)) == [Box((4, 0), ((40, 12, 8), (8, 1, 1)))]
    assert boxes(part(images, 2, 1, 3)) == [Box((48, 0), ((2, 240, 96), (96, 1, 1)))]
    assert boxes(whole(0, 2, 0)) == []


def test_elements_that_are_repeated_count_once():
    row = whole(0, 1, 4)._replace(shape=(3, 4), strides=(0, 4))
    assert boxes(row) == [Box((0, 0), ((16, 1, 1),))]


def test_elements_between_others_are_boxes_of_their_own():
    windows = Operand(0, (3, 2), whole(0, 1).dtype, (4, 4), 0)
    assert boxes(windows) == [Box((0, 0), ((8, 1, 1),)), Box((4, 8), ((8, 1, 1),)), Box((8, 16), ((8, 1, 1),))]


def test_the_order_of_the_axes_in_memory():
    assert axis_order((2, 3, 5, 4), (240, 4, 48, 12)) == (0, 2, 3, 1)
    assert axis_order((2, 1, 5), (20, 4, 4)) == axis_order((2, 1, 5), (20, 99, 4)) == (0, 2)
    assert axis_order((3, 4), (0, 4)) == (1,)
    assert axis_order((3, 2), (4, 4)) == (0, 1)


def test_a_partial_overwrite_is_seen():
    calls = (fill(A), tanh(INPUT, B), copy(part(B, 1, 1, 2), part(A, 1, 2, 3)), copy(A, WEIGHT))
    unshared(*calls).check()
    spoilt = unshared(*calls)
    spoilt.change(2, 1, part(A, 1, 1, 2))
    assert_found(spoilt, "instruction 3")


def test_an_output_that_nobody_reads_stays_within_its_block():
    column, unused, norm = whole(10, 3, 1), whole(11, 3, 1)._replace(strides=(4, 12)), whole(12, 3)
    made = unshared(fill(column), normed(column, unused, norm), copy(norm, whole(1, 3)), held=[1])
    made.check()
    made.change(1, 1, unused._replace(strides=(12, 4)))
    assert_found(made, "within its block of 12 bytes, received bytes up to 28")


# --- soundness ----------------------------------------------------------------------------------------------


def drop(made: Planned, source: random.Random) -> None:
    order = list(made.program.instructions)
    del order[source.randrange(len(order))]
    made.reorder(order)


def move(made: Planned, source: random.Random) -> None:
    order = list(made.program.instructions)
    order.insert(source.randint(0, len(order) - 1), order.pop(source.randrange(len(order))))
    made.reorder(order)


def exchange(made: Planned, source: random.Random) -> None:
    one, other = source.choice(sorted(made.offsets)), source.choice(sorted(made.offsets))
    made.offsets[one], made.offsets[other] = made.offsets[other], made.offsets[one]


def displace(made: Planned, source: random.Random) -> None:
    made.offsets[source.choice(sorted(made.offsets))] = 64 * source.randrange(5)


def turn(made: Planned, source: random.Random) -> None:
    """Other strides for the same bytes, seldom the same elements."""
    instruction = source.choice(made.program.instructions)
    index = source.randrange(len(instruction.operands))
    operand = instruction.operands[index]
    made.change(instruction.number, index, operand._replace(strides=operand.strides[::-1]))


def redirect(made: Planned, source: random.Random) -> None:
    """Another block, or other bytes of it."""
    instruction = source.choice(made.program.instructions)
    index = source.randrange(len(instruction.operands))
    operand = instruction.operands[index]
    sizes = extents(made.program.instructions)
    if source.random() < 0.5:
        spoilt = operand._replace(block=source.choice(sorted(sizes)))
    else:
        spoilt = operand._replace(offset=operand.offset + source.choice((-16, -4, 4, 12)))
    if spoilt.offset >= 0 and end(spoilt) <= sizes[spoilt.block]:
        made.change(instruction.number, index, spoilt)


SPOILING: list[Callable[[Planned, random.Random], None]] = [drop, move, exchange, displace, turn, redirect]


@pytest.mark.parametrize("spoil", SPOILING, ids=lambda spoil: spoil.__name__)
def test_what_passes_both_proofs_gives_the_recorded_results(spoil):
    outcomes = set()

    @thorough
    @given(random_programs, st.randoms(use_true_random=False))
    def try_one(made: Program, source: random.Random) -> None:
        spoilt = Planned.of(without_dead(made))
        if not spoilt.offsets:
            return
        spoil(spoilt, source)
        try:
            spoilt.check()
        except PlanError:
            outcomes.add("refused")
            return
        outcomes.add("passed")
        start = start_of(spoilt.recorded)
        assert bits(run(spoilt.program, start, spoilt.offsets)) == bits(run(spoilt.recorded, start))

    try_one()
    assert "refused" in outcomes
    assert "passed" in outcomes or spoil is drop
