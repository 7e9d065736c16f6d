"""The proof that a plan changes no value: faults planted into good plans are found, each of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
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
from singa_lite.compiler.ir import footprint
from singa_lite.compiler.ir.boxes import Box, cut
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, requests
from singa_lite.compiler.lower import lower
from singa_lite.compiler.placement.check import check
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.read_from import check_reads
from singa_lite.compiler.share.in_place import without_dead

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


def unshared(*calls: Call) -> Planned:
    """The record itself as the plan, each block at offsets far apart."""
    made = program(*calls, held=HELD)
    scratch = {i.number: 4096 * (len(made.sizes) + i.number) for i in made.instructions if i.scratch_bytes}
    return Planned(made, made, {block: 4096 * index for index, block in enumerate(made.sizes)}, scratch)


# --- planted faults -----------------------------------------------------------------------------------------

Edit = Callable[[Planned], None]


def order(*numbers: int) -> Edit:
    """These instructions in this order, and no others."""

    def edit(made: Planned) -> None:
        by_number = {i.number: i for i in made.program.instructions}
        made.reorder([by_number[number] for number in numbers])

    return edit


def put(number: int, index: int, operand: Operand) -> Edit:
    return lambda made: made.change(number, index, operand)


def other(at: int, **fields: object) -> Edit:
    """With other fields of an instruction."""
    return lambda made: made.reorder([replace(i, **fields) if i.number == at else i for i in made.program.instructions])


def lies(**at: int) -> Edit:
    """Blocks at other offsets: b10=64."""
    return lambda made: made.offsets.update({int(name[1:]): offset for name, offset in at.items()})


LONG, SHORT = whole(10, 6), whole(11, 5)
ROW, SECOND_ROW = whole(10, 1, 4), whole(11, 1, 4)
ROWS = ROW._replace(shape=(3, 4), strides=(0, 4))
FIVE, Y5, NORM5 = whole(10, 5), whole(11, 5), whole(12, 5)
SQUARE, ACROSS, PRODUCT = whole(10, 3, 3), whole(11, 3, 3), whole(12, 3, 3)
INTO = part(WEIGHT, 1, 0, 3)
COLUMN, UNUSED, NORM = whole(10, 3, 1), whole(11, 3, 1)._replace(strides=(4, 12)), whole(12, 3)
LINE, WINDOWS = whole(10, 8), Operand(10, (3, 2), INPUT.dtype, (4, 4), 0)
HALF = part(INPUT, 1, 0, 2)
COPIED = (double(INPUT, A), tanh(A, B), copy(B, WEIGHT))
TURNED = (double(part(INPUT, 1, 0, 3), SQUARE), tanh(SQUARE, INTO))
DOUBLE_COPY = (double(INPUT, A), copy(A, B), copy(B, WEIGHT))
ACROSS_COPY = (double(part(INPUT, 1, 0, 3), SQUARE), copy(turned(SQUARE), ACROSS), copy(ACROSS, INTO))
RELU_COPY = (double(INPUT, A), relu(A, B), copy(B, WEIGHT))
FILLS = (fill(ROW), fill(COLUMN_4 := whole(11, 4, 1)), copy(ROW, part(WEIGHT, 0, 0, 1)),
         copy(COLUMN_4, reshaped(part(WEIGHT, 0, 1, 2)._replace(strides=(16, 4)), 4, 1)))  # fmt: skip
REPEATED = (fill(ROW), fill(SECOND_ROW, 5.0), add(ROWS, INPUT, WEIGHT), copy(SECOND_ROW, part(WEIGHT, 0, 0, 1)))
OVER_EACH_OTHER = (fill(LINE), double(HALF, WINDOWS), copy(LINE, part(reshaped(RESULT, 24), 0, 0, 8)))
PARTLY = (fill(A), tanh(INPUT, B), copy(part(B, 1, 1, 2), part(A, 1, 2, 3)), copy(A, WEIGHT))
GONE = (double(INPUT, A), fill(part(B, 0, 0, 1)), copy(part(A, 0, 1, 3), part(WEIGHT, 0, 1, 3)),
        copy(part(B, 0, 0, 1), part(WEIGHT, 0, 0, 1)), fill(B))  # fmt: skip
BLOCKS = (double(INPUT, A), fill(JOINED), tanh(A, B), copy(JOINED, RESULT), add(A, B, C), copy(C, WEIGHT))
UNREAD = (fill(COLUMN), normed(COLUMN, UNUSED, NORM), copy(NORM, part(reshaped(RESULT, 24), 0, 0, 3)))

#: (calls, what makes no fault of their plan).
SOUND: dict[str, tuple[Sequence[Call], list[Edit]]] = {
    "as it is": (STEP, []),
    "a dropped copy whose source is read instead": (DOUBLE_COPY, [order(0, 2), put(2, 0, A)]),
    "an allowed write over an input": (RELU_COPY, [put(1, 1, A), put(2, 0, A)]),
    "strides of axes of one element": (
        FILLS, [put(0, 0, ROW._replace(strides=(4, 4))), put(3, 0, COLUMN_4._replace(strides=(4, 999)))],
    ),
    "a row that is read repeatedly": (REPEATED, []),
    "elements written over each other": (OVER_EACH_OTHER, []),
    "a partial overwrite": (PARTLY, []),
    "bytes before another block begins": (GONE, []),
    "bytes that nobody wrote": ((double(INPUT, A), fill(part(B, 1, 1, 3)), add(A, B, C), copy(C, WEIGHT)), []),
    "other offsets": (BLOCKS, [lies(b10=0, b14=64, b11=192, b12=256)]),
    "an output that nobody reads": (UNREAD, []),
}  # fmt: skip


@pytest.mark.parametrize(("calls", "edits"), SOUND.values(), ids=SOUND)
def test_what_is_no_fault_passes(calls, edits):
    made = unshared(*calls)
    for edit in edits:
        edit(made)
    made.check()


#: (calls, what spoils their plan, what the error names).
FAULTS: dict[str, tuple[Sequence[Call], list[Edit], str]] = {
    **{f"dropped: {n}": (STEP, [order(*(m for m in range(10) if m != n))], "wanted") for n in range(len(STEP))},
    "a dropped copy": (DOUBLE_COPY, [order(0, 2)], "wanted"),
    "a dropped copy of held bytes": ((copy(WEIGHT, A), tanh(A, INPUT)), [order(1)], "wanted"),
    **{
        f"a dropped copy {name}": ((fill(x), copy(x, B), copy(B, WEIGHT)), [order(0, 2), put(2, 0, A)], "wanted")
        for name, x in {
            "that widens": whole(10, 3, 4, dtype="f8"), "of integers": whole(10, 3, 4, dtype="i4"),
            "of a row": whole(10, 4),
        }.items()
    },
    "a dropped copy that turns": (ACROSS_COPY, [order(0, 2), put(2, 0, SQUARE)], "wanted"),
    "a dropped copy that turns, read turned": (ACROSS_COPY, [order(0, 2), put(2, 0, turned(SQUARE))], "wanted"),
    "writes of a held block in another order": ((copy(INPUT, WEIGHT), fill(WEIGHT)), [order(1, 0)], "held block 2"),
    "an instruction twice": (STEP, [order(0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9)], "once"),
    "an instruction that was not recorded": (STEP, [other(9, number=77)], "instruction 77"),
    "swapped offsets": (BLOCKS, [lies(b10=64, b14=0, b11=192, b12=256)], "instruction 2.*read 0"),
    # The check of reads alone finds it, without the check of bytes and steps.
    "a block over one that is still read": (
        (double(INPUT, A), tanh(INPUT, B), matmul(A, turned(B), PRODUCT), copy(PRODUCT, INTO)),
        [lies(b10=0, b11=16)],
        r"instruction 2 \(matmul.*read 0",
    ),
    "exchanged operands": (STEP, [put(2, 0, B), put(2, 1, A)], "instruction 2.*read 0"),
    "a piece": (COPIED, [put(1, 0, part(A, 0, 1, 3))], "wanted"),
    "another shape": (COPIED, [put(1, 0, reshaped(A, 4, 3))], "wanted"),
    "a transpose": (COPIED, [put(1, 0, turned(A))], "wanted"),
    "another dtype": (COPIED, [put(1, 0, whole(10, 3, 4, dtype="i4"))], "wanted"),
    "another setting": (COPIED, [other(0, settings={"alpha": 3.0, "beta": 1.0})], "instruction 0"),
    "another kernel": (COPIED, [other(0, kernel="exp")], "instruction 0"),
    "a result into the wrong held block": (COPIED, [put(2, 1, INPUT)], "held block"),
    "a write over an input that the kernel still reads": (
        (fill(SQUARE), matmul(SQUARE, SQUARE, ACROSS), copy(ACROSS, INTO)),
        [put(1, 2, SQUARE), put(2, 0, SQUARE)],
        "apart from 'a'",
    ),
    # What is allowed in place is allowed for the same elements only.
    "a write over an input, shifted": (
        (fill(LONG), double(part(LONG, 0, 1, 6), SHORT), copy(SHORT, part(reshaped(RESULT, 24), 0, 0, 5))),
        [put(1, 1, part(LONG, 0, 0, 5)), put(2, 0, part(LONG, 0, 0, 5))],
        "apart from 'x'",
    ),
    "the second output over an input that only the first may take": (
        (fill(FIVE), normed(FIVE, Y5, NORM5), copy(Y5, whole(1, 5)), copy(NORM5, whole(2, 5))),
        [put(1, 2, FIVE), put(3, 0, FIVE)],
        "'norm' apart from 'x'",
    ),
    "a read in another order of the axes": (TURNED, [put(1, 0, turned(SQUARE))], "wanted the call"),
    "a write in another order of the axes": (TURNED, [put(0, 1, turned(SQUARE))], "wanted the call"),
    # Both see the right elements, but a kernel may take them in another order than it did.
    "both in another order": (TURNED, [put(0, 1, turned(SQUARE)), put(1, 0, turned(SQUARE))], "wanted the call"),
    "another row, repeatedly": (REPEATED, [put(2, 0, ROWS._replace(block=11))], "read 0"),
    "another stride of a row": (REPEATED, [put(2, 0, ROWS._replace(strides=(4, 4)))], "wanted the call"),
    # Which of the elements over each other wins is up to the kernel, and to the strides.
    "other elements over each other": (
        OVER_EACH_OTHER, [put(1, 1, WINDOWS._replace(strides=(8, 8)))], "elements of 'y' apart",
    ),
    # Even those that the other one has not written yet.
    "bytes of a block where another begins": (GONE, [lies(b10=0, b11=0)], "instruction 2.*read 0"),
    "another part overwritten": (PARTLY, [put(2, 1, part(A, 1, 1, 2))], "instruction 3"),
    "beyond its block": (UNREAD, [put(1, 1, UNUSED._replace(strides=(12, 4)))], "12 bytes.* 28"),
}  # fmt: skip


@pytest.mark.parametrize(("calls", "edits", "match"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found(calls, edits, match):
    spoilt = unshared(*calls)
    for edit in edits:
        edit(spoilt)
    with pytest.raises(PlanError, match=match):
        check_reads(spoilt.recorded, spoilt.program, spoilt.offsets)


def assert_found(spoilt: Planned) -> None:
    with pytest.raises(PlanError):
        check_reads(spoilt.recorded, spoilt.program, spoilt.offsets)


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

    monkeypatch.setattr(footprint, "cut", counted)
    for batch in (3, 300_000):
        made = images(batch)
        done.append(0)
        check_reads(made.recorded, made.program, made.offsets)
    assert done[0] == done[1] < 200


# --- bytes --------------------------------------------------------------------------------------------------


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
