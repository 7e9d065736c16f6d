"""Producers write into their piece of a concatenation where that changes nothing, and copies stay elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given

from every_row import over_rows
from kernel_case import run as run_kernel
from kernel_cases import CASES
from programs import (
    Call,
    add,
    assert_same,
    call,
    clip,
    copy,
    double,
    extents,
    fill,
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
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.operation import Operand
from singa_lite.passes.concat import assembled_in_place
from singa_lite.passes.dead import without_dead
from singa_lite.passes.lower import lower
from singa_lite.passes.program import Program

INPUT, RESULT, SECOND = whole(0, 3, 4), whole(1, 3, 8), whole(2, 3, 4)
HELD = [0, 1, 2]
A, B, WHOLE = whole(10, 3, 4), whole(11, 3, 4), whole(12, 3, 8)
LEFT, RIGHT = part(WHOLE, 1, 0, 4), part(WHOLE, 1, 4, 8)
#: Two parts, made and put together; the copies are numbers 2 and 3.
TOGETHER = (double(INPUT, A), tanh(A, B), copy(A, LEFT), copy(B, RIGHT))


def assembled(*calls: Call, held: list[int] = HELD) -> Program:
    """The calls after the pass, which left all results as they were."""
    made = program(*calls, held=held)
    result = assembled_in_place(made)
    assert_same(made, result)
    return result


def copies_left(given: Program) -> list[int]:
    """Numbers of the copies into intermediates."""
    return [i.number for i in given.instructions if i.kernel == "copy" and i.writes[0].block in given.sizes]


def test_parts_are_written_where_they_will_be_read():
    made = assembled(*TOGETHER, copy(WHOLE, RESULT))
    assert numbers(made) == [0, 1, 4]
    assert extents(made.instructions).keys() == {0, 1, 12}


CHANNELS_LAST, KERNELS_LAST = (0, 2, 3, 1), (2, 3, 1, 0)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), CHANNELS_LAST, KERNELS_LAST])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_along_any_axis_in_any_order(axis, order):
    """The second part is narrower; afterwards all that is left is a piece of the whole, in the order of the parts."""
    wide = (2, 3, 4, 5)
    narrow, both = ((*wide[:axis], extent, *wide[axis + 1 :]) for extent in (wide[axis] - 1, 2 * wide[axis] - 1))
    start, a, b = permuted(0, wide, order), permuted(10, wide, order), permuted(11, narrow, order)
    joined, result = permuted(12, both, order), whole(1, *both)
    made = assembled(
        double(start, a), tanh(part(start, axis, 1, wide[axis]), b),
        copy(b, part(joined, axis, 0, narrow[axis])), copy(a, part(joined, axis, narrow[axis], both[axis])),
        copy(joined, result), held=[0, 1],
    )  # fmt: skip
    assert copies_left(made) == []
    assert made.instructions[0].writes == [part(joined, axis, narrow[axis], both[axis])]


@pytest.mark.parametrize("shape", [(3, 4, 1, 5), (3, 4, 1, 1), (1, 4, 2, 5), (1, 1, 2, 5), (3, 1, 2, 1), (3, 1, 1, 4)])
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_axes_of_one_element_are_in_no_order(shape, order):
    """Their strides may be any, in the whole too."""
    a, b = (permuted(block, shape, order) for block in (10, 11))
    b = b._replace(strides=tuple(999 if e == 1 else s for e, s in zip(b.shape, b.strides, strict=True)))
    joined = permuted(12, (shape[0], 2 * shape[1], *shape[2:]), order)
    left, right = part(joined, 1, 0, shape[1]), part(joined, 1, shape[1], 2 * shape[1])
    made = assembled(double(whole(0, *shape), a), fill(b), copy(a, left), copy(b, right),
                     copy(joined, whole(1, *joined.shape)))  # fmt: skip
    assert copies_left(made) == []


def test_parts_in_another_order_than_the_whole_are_copied():
    images = whole(10, 2, 3, 4, 5)
    last = permuted(11, (2, 3, 4, 5), CHANNELS_LAST)
    joined = permuted(12, (2, 6, 4, 5), CHANNELS_LAST)
    made = assembled(
        fill(images), fill(last), copy(images, part(joined, 1, 0, 3)), copy(last, part(joined, 1, 3, 6)),
        copy(joined, whole(1, 2, 6, 4, 5)),
    )  # fmt: skip
    assert copies_left(made) == [2]


def test_a_row_that_is_copied_repeatedly_is_copied():
    row = whole(10, 1, 4)
    rows = row._replace(shape=(3, 4), strides=(0, 4))
    given_ = program(double(part(INPUT, 0, 0, 1), row), tanh(INPUT, B), copy(B, RIGHT), copy(rows, LEFT),
                     copy(WHOLE, RESULT), held=HELD)  # fmt: skip
    made = assembled_in_place(replace(given_, sizes=given_.sizes | {10: 48}))
    assert copies_left(made) == [3]


def test_a_part_that_is_read_across_is_copied():
    square, other, joined = whole(10, 3, 3), whole(11, 3, 3), whole(12, 3, 6)
    made = assembled(
        double(part(INPUT, 1, 0, 3), square), double(turned(square), other),
        copy(square, part(joined, 1, 0, 3)), copy(other, part(joined, 1, 3, 6)), copy(joined, part(RESULT, 1, 0, 6)),
    )  # fmt: skip
    assert copies_left(made) == [2]


def test_pieces_that_reach_into_the_next_row_keep_their_order():
    """Rows of three: the first piece has columns 2 and 3, which is column 0 of the next row, as the second has it."""
    wide, narrow = whole(10, 2, 2), whole(11, 2, 1)
    rows = whole(12, 4, 3)
    pieces = (part(rows, 0, 0, 2)._replace(shape=shape, offset=at) for shape, at in (((2, 2), 8), ((2, 1), 0)))
    wide_piece, narrow_piece = pieces
    made = assembled(
        double(part(part(INPUT, 0, 0, 2), 1, 0, 2), wide), fill(narrow), copy(narrow, narrow_piece),
        copy(wide, wide_piece), copy(part(rows, 0, 0, 2), part(part(RESULT, 0, 0, 2), 1, 0, 3)),
    )  # fmt: skip
    assert len(copies_left(made)) >= 1


@pytest.mark.parametrize(
    ("axis", "outer", "inner", "left"),
    [
        (2, (), (), []),
        (2, ("tanh",), ("tanh",), [3]),
        (2, (), ("scale",), [2]),
        (1, (), ("scale", "tanh"), []),
        (1, ("scale", "tanh"), ("scale", "tanh"), [2, 3]),
        (0, ("scale",), ("scale", "tanh"), [2]),
    ],
)
def test_kernels_named_as_particular_keep_their_operands(axis, outer, inner, left):
    """Along axis 1, only the stride of axis 0 changes."""
    shape = (2, 3, 4)
    start, a, b = (whole(block, *shape) for block in (0, 10, 11))
    both = tuple(extent * (1 + (index == axis)) for index, extent in enumerate(shape))
    joined = whole(12, *both)
    given_ = program(
        double(start, a), tanh(start, b), copy(a, part(joined, axis, 0, shape[axis])),
        copy(b, part(joined, axis, shape[axis], both[axis])), copy(joined, whole(1, *both)), held=[0, 1],
    )  # fmt: skip
    given_ = replace(given_, target=replace(given_.target, strides_matter=outer, inner_strides_matter=inner))
    made = assembled_in_place(given_)
    assert_same(given_, made)
    assert copies_left(made) == left
    placed = lower(given_)
    assert_same(given_, placed.planned, placed.offsets)
    assert set(copies_left(placed.planned)) >= set(left)


def test_a_part_used_after_the_copy_is_read_from_the_whole():
    made = assembled(*TOGETHER, copy(WHOLE, RESULT), copy(A, SECOND))
    assert copies_left(made) == []
    assert made.instructions[-1].reads[0] == LEFT


def test_a_piece_of_a_part_is_read_from_the_whole():
    corner = part(part(A, 0, 1, 3), 1, 2, 3)
    made = assembled(*TOGETHER, copy(WHOLE, RESULT), copy(corner, part(part(SECOND, 0, 0, 2), 1, 0, 1)))
    assert copies_left(made) == []
    assert made.instructions[-1].reads[0] == part(part(LEFT, 0, 1, 3), 1, 2, 3)


ROW_OF = reshaped(A, 2, 6)
STAYS: dict[str, tuple[Call, ...]] = {
    "part read under another shape later": (*TOGETHER, copy(ROW_OF, reshaped(SECOND, 2, 6))),
    "part read under another shape before": (
        *TOGETHER[:2], copy(ROW_OF, reshaped(SECOND, 2, 6)), *TOGETHER[2:],
    ),
    "part read from the side": (*TOGETHER, copy(turned(A), reshaped(SECOND, 4, 3))),
    "part written after the copy": (*TOGETHER, clip(A), copy(A, SECOND)),
    "piece of the part written after the copy": (*TOGETHER, fill(part(A, 0, 0, 1)), copy(A, SECOND)),
    "part made under another shape": (call("scale", reshaped(INPUT, 2, 6), ROW_OF, alpha=2.0, beta=0.5), *TOGETHER[1:]),
}  # fmt: skip


@pytest.mark.parametrize("calls", STAYS.values(), ids=STAYS.keys())
def test_the_copy_of_such_a_part_stays(calls):
    made = assembled(*calls, copy(WHOLE, RESULT))
    assert len(copies_left(made)) == 1
    assert A.block in extents(made.instructions)
    assert B.block not in extents(made.instructions)


WRITTEN: dict[str, tuple[Call, ...]] = {
    "filled before": (fill(WHOLE), *TOGETHER),
    "a piece filled before": (fill(part(WHOLE, 0, 0, 1)), *TOGETHER),
    "changed in place after": (*TOGETHER, clip(WHOLE)),
    "a piece of it changed in place after": (*TOGETHER, update(INPUT, RIGHT)),
    "changed in place between the copies": (*TOGETHER[:3], clip(LEFT), TOGETHER[3]),
}


@pytest.mark.parametrize("calls", WRITTEN.values(), ids=WRITTEN.keys())
def test_copies_stay_where_somebody_else_writes_the_whole(calls):
    made = assembled(*calls, copy(WHOLE, RESULT), copy(A, SECOND))
    assert len(copies_left(made)) == 2


def test_a_part_that_the_user_holds_is_copied():
    made = assembled(*TOGETHER, copy(WHOLE, RESULT), held=[0, 1, 10])
    assert copies_left(made) == [2]
    assert made.instructions[0].writes[0] == A


def test_nothing_moves_into_a_whole_that_the_user_holds():
    held = whole(1, 3, 8)
    given = program(double(INPUT, A), tanh(A, B), copy(A, part(held, 1, 0, 4)), copy(B, part(held, 1, 4, 8)), held=HELD)
    assert assembled_in_place(given) is given


def test_a_tensor_of_the_user_s_own_as_a_part_is_copied():
    made = assembled(tanh(INPUT, B), copy(INPUT, LEFT), copy(B, RIGHT), copy(WHOLE, RESULT))
    assert copies_left(made) == [1]
    assert B.block not in extents(made.instructions)


def test_one_part_twice_is_copied_once():
    made = assembled(double(INPUT, A), copy(A, LEFT), copy(A, RIGHT), copy(WHOLE, RESULT))
    assert len(copies_left(made)) == 1


def test_a_piece_of_a_block_as_a_part_is_copied():
    wide = whole(10, 3, 8)
    made = assembled(tanh(RESULT, wide), copy(part(wide, 1, 2, 6), LEFT), copy(part(wide, 1, 0, 4), RIGHT),
                     copy(WHOLE, whole(3, 3, 8)), held=[1, 3])  # fmt: skip
    assert len(copies_left(made)) == 2


def test_chains_of_concatenations_are_one_block():
    """A densely connected net: each layer sees all before it."""
    calls, seen = [double(INPUT, A)], A
    for number in range(4):
        new = whole(20 + 2 * number, 3, 2)
        joined = whole(21 + 2 * number, 3, seen.shape[1] + 2)
        calls += [
            tanh(part(seen, 1, 0, 2), new),
            copy(seen, part(joined, 1, 0, seen.shape[1])),
            copy(new, part(joined, 1, seen.shape[1], joined.shape[1])),
        ]
        seen = joined
    result = whole(1, *seen.shape)
    made = assembled(*calls, copy(seen, result), held=[0, 1])
    assert copies_left(made) == []
    assert extents(made.instructions).keys() == {0, 1, seen.block}
    assert made.sizes[seen.block] == 4 * 3 * 12


def test_forms_between_leave_the_largest_wholes_to_copies():
    """The copies into the larger of two wholes are numbers 2 and 3, those into the other one 7 and 8."""
    c, d, narrow = whole(20, 3, 2), whole(21, 3, 3), whole(22, 3, 5)
    made = program(
        *TOGETHER, copy(WHOLE, whole(1, 3, 8)), double(part(INPUT, 1, 0, 2), c), tanh(part(INPUT, 1, 0, 3), d),
        copy(c, part(narrow, 1, 0, 2)), copy(d, part(narrow, 1, 2, 5)), copy(narrow, whole(3, 3, 5)), held=[0, 1, 3],
    )  # fmt: skip
    result = assembled_in_place(made)
    some, all_of_them = result.rivals
    assert [copies_left(one) for one in (result, some, all_of_them)] == [[], [2, 3], [2, 3, 7, 8]]
    assert_same(made, some)


def test_chains_along_unequal_axes():
    above = whole(13, 5, 8)
    rows = whole(14, 2, 8)
    made = assembled(
        *TOGETHER, fill(rows), copy(WHOLE, part(above, 0, 2, 5)), copy(rows, part(above, 0, 0, 2)),
        copy(above, whole(1, 5, 8)), held=[0, 1],
    )  # fmt: skip
    assert extents(made.instructions).keys() == {0, 1, 13}


def test_pieces_that_overlap_keep_their_order():
    """The second copy overwrites a column of the first, whose producer runs later."""
    joined = whole(12, 3, 7)
    calls = (tanh(INPUT, B), double(INPUT, A), copy(A, part(joined, 1, 0, 4)), copy(B, part(joined, 1, 3, 7)))
    made = assembled(*calls, copy(joined, whole(1, 3, 7)), copy(A, SECOND))
    assert len(copies_left(made)) >= 1


def test_a_piece_written_again_after_it_was_read():
    calls = (double(INPUT, A), tanh(INPUT, B), copy(A, LEFT), copy(LEFT, SECOND), copy(B, LEFT), copy(B, RIGHT))
    assembled(*calls, copy(WHOLE, RESULT))


def test_the_transpose_of_a_column_has_its_strides_and_is_not_taken_for_it():
    h, g, joined, across = whole(10, 3, 1), whole(11, 3, 1), whole(12, 3, 2), whole(13, 1, 3)
    given = whole(0, 3, 1)
    made = assembled(
        double(given, h), tanh(given, g), double(turned(h), across),
        copy(h, part(joined, 1, 0, 1)), copy(g, part(joined, 1, 1, 2)),
        copy(joined, whole(1, 3, 2)), copy(across, whole(2, 1, 3)),
    )  # fmt: skip
    assert copies_left(made) == [3]


def test_other_dtypes_and_shapes_are_copied():
    numbers_ = whole(10, 3, 4, dtype="i4")
    row = whole(11, 4)
    made = assembled(
        copy(INPUT, numbers_), copy(part(reshaped(INPUT, 12), 0, 0, 4), row), copy(numbers_, LEFT), copy(row, RIGHT),
        copy(WHOLE, RESULT),
    )  # fmt: skip
    assert copies_left(made) == [0, 1, 2, 3]


def test_parts_without_elements_are_no_trouble():
    nothing = whole(13, 3, 0)
    made = assembled(copy(whole(3, 3, 0), nothing), *TOGETHER, copy(nothing, part(WHOLE, 1, 8, 8)),
                     copy(WHOLE, RESULT), held=[0, 1, 2, 3])  # fmt: skip
    assert len(copies_left(made)) == 2


def test_a_whole_copy_into_a_block_of_the_same_shape_is_left_out_too():
    same = whole(12, 3, 4)
    made = assembled(double(INPUT, A), copy(A, same), copy(same, SECOND), copy(A, part(RESULT, 1, 0, 4)))
    assert numbers(made) == [0, 2, 3]


def test_derivatives_of_pieces_flow_into_one_block():
    """What the backward of a split does: three derivatives side by side."""
    shares = [whole(10 + i, 3, width) for i, width in enumerate((1, 2, 4))]
    joined = whole(20, 3, 7)
    calls, start = [], 0
    for share in shares:
        calls += [fill(share, 1.0 + start), copy(share, part(joined, 1, start, start + share.shape[1]))]
        start += share.shape[1]
    total = whole(21, 3, 7)
    made = assembled(*calls, add(joined, joined, total), relu(total, whole(1, 3, 7)), held=[1])
    assert copies_left(made) == []


def laid(array: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """The same values, the axes in this order in memory."""
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def along(array: np.ndarray, axis: int, order: Sequence[int]) -> np.ndarray:
    """The same values as a piece of a larger array along an axis."""
    shape = [extent + 5 * (index == axis) for index, extent in enumerate(array.shape)]
    piece = laid(np.full(shape, 7).astype(array.dtype), order).swapaxes(0, axis)[2:-3].swapaxes(0, axis)
    piece[...] = array
    return piece


@pytest.mark.parametrize("order", [(0, 1, 2, 3), CHANNELS_LAST, KERNELS_LAST])
def test_a_piece_gives_equal_bits(order):
    keys = [key for key in CASES if key.split(":")[0] not in NUMPY.strides_matter]
    over_rows(piece_gives_equal_bits, ((key, (key, order)) for key in keys))


def piece_gives_equal_bits(key: str, order: Sequence[int]) -> None:
    """What the pass relies on, for all kernels but those named and the reference set; of others only axis 0."""
    name = key.split(":")[0]
    built, settings = CASES[key].build(np.random.default_rng(7), np.dtype("f4"), False)
    axes = [order if t is not None and t.ndim == 4 else tuple(range(0 if t is None else t.ndim)) for t in built]
    tensors = [None if t is None else laid(t, o) if t.ndim else t for t, o in zip(built, axes, strict=True)]

    def after(changed: dict[int, np.ndarray]) -> list[np.ndarray | None]:
        arrays = [None if t is None else changed.get(index, t.copy("K")) for index, t in enumerate(tensors)]
        run_kernel(NUMPY, name, arrays, settings)
        return arrays

    wanted = after({})
    for index, array in enumerate(tensors):
        for axis in range(0 if array is None else array.ndim):
            if axis and name in NUMPY.inner_strides_matter:
                continue
            for found, expected in zip(after({index: along(array, axis, axes[index])}), wanted, strict=True):
                assert found is None or np.array_equal(found, expected, equal_nan=True), (index, axis)


def test_convolutions_keep_their_copies_where_inner_strides_would_change():
    x, weight = whole(0, 2, 3, 5, 4), whole(1, 6, 3, 1, 1)
    y, other = whole(10, 2, 6, 5, 4), whole(11, 2, 6, 5, 3)
    settings = {"window": Window((1, 1)), "groups": 1}
    joined = whole(12, 2, 6, 5, 7)
    made = assembled(
        call("conv2d", x, weight, None, y, **settings), fill(other),
        copy(y, part(joined, 3, 0, 4)), copy(other, part(joined, 3, 4, 7)),
        copy(joined, whole(2, 2, 6, 5, 7)),
    )  # fmt: skip
    assert copies_left(made) == [2]


def pieces_of(given: Program) -> list[Operand]:
    return [i.writes[0] for i in given.instructions if i.kernel == "copy"]


def test_random_programs_keep_their_results():
    moved_columns = []

    @thorough
    @given(random_programs)
    def try_one(made: Program) -> None:
        lean = without_dead(made)
        result = assembled_in_place(lean)
        assert_same(lean, result)
        assert len(pieces_of(result)) <= len(pieces_of(lean))
        moved = {o for i in result.instructions for o in i.writes} - {o for i in lean.instructions for o in i.writes}
        moved_columns.extend(o for o in moved if len(o.shape) == 2 and 1 not in o.shape and o.strides[0] < o.strides[1])

    try_one()
    assert moved_columns, "of blocks of columns, some were put together in place"
