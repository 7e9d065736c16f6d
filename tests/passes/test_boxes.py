"""Boxes stand for the bytes that they describe: what two of them share and what not, against plain sets of numbers."""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from programs import part, permuted, reshaped, thorough, turned, whole
from singa_lite.compiler.ir.boxes import Box, cut
from singa_lite.compiler.ir.footprint import Contents, Piece, boxes, name_same_bytes
from singa_lite.compiler.ir.operation import Operand


def numbers(box: Box) -> list[tuple[int, ...]]:
    """The numbers of each byte in all spaces, in the box's order."""
    found = []
    for indices in product(*(range(axis[0]) for axis in box.axes)):
        steps = [[index * step for step in axis[1:]] for index, axis in zip(indices, box.axes, strict=True)]
        found.append(tuple(map(sum, zip(box.at, *steps, strict=True))))
    return found


def random_box(source: random.Random) -> Box:
    """Up to four axes, often of round steps, so that two boxes have steps in common."""
    box, reach = Box((source.randrange(40), source.randrange(100)), ()), 1
    for _ in range(source.randrange(5)):
        count, step = source.randint(1, 5), reach + source.choice((0, 0, 1, source.randrange(9)))
        step = -(-step // 4) * 4 if source.random() < 0.5 else step
        box = box.repeated(count, (step, source.choice((step, source.randint(-30, 30)))))
        reach += (count - 1) * step
        if reach > 200:
            break
    return box


pairs = st.randoms(use_true_random=False).map(lambda source: (random_box(source), random_box(source)))


@thorough
@given(pairs)
def test_what_two_boxes_share_and_what_not(pair):
    a, b = pair
    shared, rest = cut(a, b)
    others = dict(numbers(b))
    assert sorted(n for box in shared for n in numbers(box)) == sorted(
        (address, value, others[address]) for address, value in numbers(a) if address in others
    )
    assert sorted(n for box in rest for n in numbers(box)) == sorted(n for n in numbers(a) if n[0] not in others)
    for box in [*shared, *rest]:
        addresses = [number[0] for number in numbers(box)]
        assert addresses == sorted(addresses)
        assert (box.size, box.end) == (len(addresses), addresses[-1] + 1)
        assert box == box.seen(*range(len(box.at))), "written in one way only"


# --- what bytes hold

#: The same bytes as images in both orders, and as a matrix.
FRAMES = (whole(0, 2, 3, 4, 5), permuted(0, (2, 3, 4, 5), (0, 2, 3, 1)), reshaped(whole(0, 120), 8, 15))


def view(source: random.Random) -> Operand:
    found = source.choice(FRAMES)
    for _ in range(source.randrange(3)):
        axis = source.randrange(len(found.shape))
        start = source.randrange(found.shape[axis])
        found = part(found, axis, start, source.randint(start + 1, found.shape[axis]))
    return turned(found) if source.random() < 0.2 else found


def by_byte(pieces: list[Piece]) -> dict[int, tuple[int, int]]:
    """{number of a byte: (its writer, its index in what that wrote)}."""
    found = {at: (writer, inner) for writer, box in pieces for at, inner in numbers(box)}
    assert len(found) == sum(box.size for _, box in pieces), "no byte twice"
    return found


@thorough
@given(st.randoms(use_true_random=False))
def test_reads_find_the_last_writes(source: random.Random):
    contents, table = Contents(), {}
    for writer in range(source.randint(1, 8)):
        (box,) = boxes(view(source))
        if source.random() < 0.2:
            contents.overwrite(box, ())
            for address, _ in numbers(box):
                table.pop(address, None)
        else:
            contents.overwrite(box, [(writer, box)])
            table |= {address: (writer, index) for address, index in numbers(box)}
    assert by_byte(contents.pieces()) == table
    (box,) = boxes(view(source))
    found, rest = contents.get(box)
    assert by_byte(found) == {index: table[address] for address, index in numbers(box) if address in table}
    assert sorted(n for part in rest for n in numbers(part)) == [n for n in numbers(box) if n[0] not in table]


def test_pieces_are_compared_by_their_bytes():
    whole_run, other = Box((0, 0), ((40, 1, 1),)), Box((40, 40), ((8, 1, 1),))
    halves = [Box((0, 0), ((20, 1, 1),)), Box((20, 20), ((20, 1, 1),))]
    by_twos = [Box((0, 0), ((10, 4, 4), (2, 1, 1))), Box((2, 2), ((10, 4, 4), (2, 1, 1)))]
    assert name_same_bytes([(5, whole_run)], [(5, half) for half in halves])
    assert name_same_bytes([(5, half) for half in halves], [(5, box) for box in by_twos[::-1]])
    assert name_same_bytes([], [])
    assert not name_same_bytes([(5, whole_run)], [(5, halves[0]), (6, halves[1])])
    assert not name_same_bytes([(5, whole_run)], [(5, halves[0])])
    assert not name_same_bytes([(5, halves[0])], [(5, whole_run)])
    assert not name_same_bytes([(5, whole_run)], [(5, whole_run), (5, other)])
    shifted = Box((20, 16), ((20, 1, 1),))
    assert not name_same_bytes([(5, whole_run)], [(5, halves[0]), (5, shifted)])
    spread = Box((0, 0), ((20, 2, 4), (2, 1, 1)))
    assert not name_same_bytes([(5, whole_run)], [(5, spread)])
