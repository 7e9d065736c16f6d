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
    fill,
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
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.lower import lower
from singa_lite.compiler.share.concat import assembled_in_place
from singa_lite.compiler.share.in_place import without_dead
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY

INPUT, RESULT, SECOND, THIRD = whole(0, 3, 4), whole(1, 3, 8), whole(2, 3, 4), whole(3, 3, 8)
HELD = [0, 1, 2, 3]
A, B, WHOLE = whole(10, 3, 4), whole(11, 3, 4), whole(12, 3, 8)
LEFT, RIGHT = part(WHOLE, 1, 0, 4), part(WHOLE, 1, 4, 8)
#: Two parts, made and put together; the copies are numbers 2 and 3.
TOGETHER = (double(INPUT, A), tanh(A, B), copy(A, LEFT), copy(B, RIGHT))
READ = copy(WHOLE, RESULT)


def assembled(*calls: Call, held: list[int] = HELD) -> Program:
    """The calls after the pass, which left all results as they were."""
    made = program(*calls, held=held)
    result = assembled_in_place(made)
    assert_same(made, result)
    return result


def copies_left(given: Program) -> list[int]:
    """Numbers of the copies into intermediates."""
    return [i.number for i in given.instructions if i.kernel == "copy" and i.writes[0].block in given.sizes]


def chain() -> list[Call]:
    """A densely connected net: each layer sees all before it."""
    calls, seen = [double(INPUT, A)], A
    for number in range(4):
        width = seen.shape[1]
        new, joined = whole(20 + 2 * number, 3, 2), whole(21 + 2 * number, 3, width + 2)
        calls.append(tanh(part(seen, 1, 0, 2), new))
        calls += [copy(seen, part(joined, 1, 0, width)), copy(new, part(joined, 1, width, width + 2))]
        seen = joined
    return [*calls, copy(seen, whole(1, 3, 12))]


def derivatives() -> list[Call]:
    """What the backward of a split does: three derivatives side by side."""
    calls, start, joined, total = list[Call](), 0, whole(20, 3, 7), whole(21, 3, 7)
    for number, width in enumerate((1, 2, 4)):
        share = whole(10 + number, 3, width)
        calls += [fill(share, 1.0 + start), copy(share, part(joined, 1, start, start + width))]
        start += width
    return [*calls, add(joined, joined, total), relu(total, whole(1, 3, 7))]


CHANNELS_LAST, KERNELS_LAST = (0, 2, 3, 1), (2, 3, 1, 0)
IMAGES, LAST = whole(10, 2, 3, 4, 5), permuted(11, (2, 3, 4, 5), CHANNELS_LAST)
BOTH = permuted(12, (2, 6, 4, 5), CHANNELS_LAST)
SQUARE, OTHER, WIDE = whole(10, 3, 3), whole(11, 3, 3), whole(12, 3, 6)
#: Rows of three: the first piece has columns 2 and 3, which is column 0 of the next row, as the second has it.
ROWS = whole(12, 4, 3)
ACROSS, COLUMN = (part(ROWS, 0, 0, 2)._replace(shape=shape, offset=at) for shape, at in (((2, 2), 8), ((2, 1), 0)))
TALL, UPPER = whole(13, 5, 8), whole(14, 2, 8)
SEVEN, BLOCK = whole(12, 3, 7), whole(10, 3, 8)
H, G, PAIR = whole(10, 3, 1), whole(11, 3, 1), whole(12, 3, 2)
ROW_OF = reshaped(A, 2, 6)
CONVOLVED, BESIDE, JOINED = whole(10, 2, 6, 5, 4), whole(11, 2, 6, 5, 3), whole(12, 2, 6, 5, 7)

#: (calls, copies that are left).
PLACES: dict[str, tuple[Sequence[Call], list[int]]] = {
    "parts are written where they will be read": ([*TOGETHER, READ], []),
    "a chain": (chain(), []),
    "derivatives of pieces": (derivatives(), []),
    "along unequal axes": (
        [*TOGETHER, fill(UPPER), copy(WHOLE, part(TALL, 0, 2, 5)), copy(UPPER, part(TALL, 0, 0, 2)),
         copy(TALL, whole(1, 5, 8))],
        [],
    ),
    "a part used after the copy": ([*TOGETHER, READ, copy(A, SECOND)], []),
    "a piece of a part": (
        [*TOGETHER, READ, copy(part(part(A, 0, 1, 3), 1, 2, 3), part(part(SECOND, 0, 0, 2), 1, 0, 1))], [],
    ),
    "a whole of the same shape": (
        [double(INPUT, A), copy(A, whole(12, 3, 4)), copy(whole(12, 3, 4), SECOND), copy(A, part(RESULT, 1, 0, 4))],
        [],
    ),
    "parts without elements": (
        [copy(whole(4, 3, 0), whole(13, 3, 0)), *TOGETHER, copy(whole(13, 3, 0), part(WHOLE, 1, 8, 8)), READ], [0, 5],
    ),
    "a part in another order": (
        [fill(IMAGES), fill(LAST), copy(IMAGES, part(BOTH, 1, 0, 3)), copy(LAST, part(BOTH, 1, 3, 6)),
         copy(BOTH, whole(1, 2, 6, 4, 5))],
        [2],
    ),
    "a part that is read across": (
        [double(part(INPUT, 1, 0, 3), SQUARE), double(turned(SQUARE), OTHER), copy(SQUARE, part(WIDE, 1, 0, 3)),
         copy(OTHER, part(WIDE, 1, 3, 6)), copy(WIDE, part(RESULT, 1, 0, 6))],
        [2],
    ),
    "pieces that reach into the next row": (
        [double(part(part(INPUT, 0, 0, 2), 1, 0, 2), whole(10, 2, 2)), fill(whole(11, 2, 1)),
         copy(whole(11, 2, 1), COLUMN), copy(whole(10, 2, 2), ACROSS),
         copy(part(ROWS, 0, 0, 2), part(part(RESULT, 0, 0, 2), 1, 0, 3))],
        [2, 3],
    ),
    "pieces that overlap": (
        [tanh(INPUT, B), double(INPUT, A), copy(A, part(SEVEN, 1, 0, 4)), copy(B, part(SEVEN, 1, 3, 7)),
         copy(SEVEN, whole(1, 3, 7)), copy(A, SECOND)],
        [2, 3],
    ),
    "a piece written again after it was read": (
        [double(INPUT, A), tanh(INPUT, B), copy(A, LEFT), copy(LEFT, SECOND), copy(B, LEFT), copy(B, RIGHT), READ],
        [2, 4],
    ),
    "a column whose transpose is read": (
        [double(whole(0, 3, 1), H), tanh(whole(0, 3, 1), G), double(turned(H), whole(13, 1, 3)),
         copy(H, part(PAIR, 1, 0, 1)), copy(G, part(PAIR, 1, 1, 2)),
         copy(PAIR, whole(1, 3, 2)), copy(whole(13, 1, 3), whole(2, 1, 3))],
        [3],
    ),
    "other dtypes and shapes": (
        [copy(INPUT, whole(10, 3, 4, dtype="i4")), copy(part(reshaped(INPUT, 12), 0, 0, 4), whole(11, 4)),
         copy(whole(10, 3, 4, dtype="i4"), LEFT), copy(whole(11, 4), RIGHT), READ],
        [0, 1, 2, 3],
    ),
    "read in another shape later": ([*TOGETHER, copy(ROW_OF, reshaped(SECOND, 2, 6)), READ], [2]),
    "read in another shape before": (
        [*TOGETHER[:2], copy(ROW_OF, reshaped(SECOND, 2, 6)), *TOGETHER[2:], READ], [3],
    ),
    "read from the side": ([*TOGETHER, copy(turned(A), reshaped(SECOND, 4, 3)), READ], [2]),
    "written after the copy": ([*TOGETHER, clip(A), copy(A, SECOND), READ], [2]),
    "a piece written after the copy": ([*TOGETHER, fill(part(A, 0, 0, 1)), copy(A, SECOND), READ], [2]),
    "made in another shape": (
        [call("scale", reshaped(INPUT, 2, 6), ROW_OF, alpha=2.0, beta=0.5), *TOGETHER[1:], READ], [2],
    ),
    "the whole filled before": ([fill(WHOLE), *TOGETHER, READ, copy(A, SECOND)], [3, 4]),
    "a piece of it filled before": ([fill(part(WHOLE, 0, 0, 1)), *TOGETHER, READ, copy(A, SECOND)], [3, 4]),
    "the whole changed after": ([*TOGETHER, clip(WHOLE), READ, copy(A, SECOND)], [2, 3]),
    "a piece of it changed after": ([*TOGETHER, update(INPUT, RIGHT), READ, copy(A, SECOND)], [2, 3]),
    "changed between the copies": ([*TOGETHER[:3], clip(LEFT), TOGETHER[3], READ, copy(A, SECOND)], [2, 4]),
    "a tensor of the user's own": ([tanh(INPUT, B), copy(INPUT, LEFT), copy(B, RIGHT), READ], [1]),
    "one part twice": ([double(INPUT, A), copy(A, LEFT), copy(A, RIGHT), READ], [2]),
    "pieces of a block": (
        [tanh(RESULT, BLOCK), copy(part(BLOCK, 1, 2, 6), LEFT),
         copy(part(BLOCK, 1, 0, 4), RIGHT), copy(WHOLE, THIRD)],
        [1, 2],
    ),
    "inner strides of a convolution": (
        [call("conv2d", whole(0, 2, 3, 5, 4), whole(1, 6, 3, 1, 1), None, CONVOLVED, window=Window((1, 1)), groups=1),
         fill(BESIDE), copy(CONVOLVED, part(JOINED, 3, 0, 4)), copy(BESIDE, part(JOINED, 3, 4, 7)),
         copy(JOINED, whole(2, 2, 6, 5, 7))],
        [2],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("calls", "left"), PLACES.values(), ids=PLACES)
def test_copies_that_are_left(calls, left):
    assert copies_left(assembled(*calls, held=[*HELD, 4])) == left


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


def test_a_row_that_is_copied_repeatedly_is_copied():
    row = whole(10, 1, 4)
    rows = row._replace(shape=(3, 4), strides=(0, 4))
    given_ = program(double(part(INPUT, 0, 0, 1), row), tanh(INPUT, B), copy(B, RIGHT), copy(rows, LEFT),
                     copy(WHOLE, RESULT), held=HELD)  # fmt: skip
    made = assembled_in_place(replace(given_, sizes=given_.sizes | {10: 48}))
    assert copies_left(made) == [3]


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
