"""Boxes stand for the bytes that they describe: what two of them share and what not, against plain sets of numbers."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programs import thorough
from singa_lite.passes import boxes
from singa_lite.passes.boxes import Box, cut


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


@pytest.mark.parametrize("step", [384, 1152])
def test_the_work_does_not_grow_with_the_number_of_copies(monkeypatch, step):
    done = []

    def counted(a: Box, b: Box) -> tuple[list[Box], list[Box]]:
        done[-1] += 1
        return cut(a, b)

    monkeypatch.setattr(boxes, "cut", counted)
    for count in (30, 30_000_000):
        done.append(0)
        piece = Box((128, 0), ((count, step, 128), (128, 1, 1)))
        counted(Box((0, 0), ((count * step, 1, 1),)), piece)
        counted(piece, Box((0, 0), ((count * step - 77, 1, 1),)))
        counted(piece, Box((192, 0), ((3 * count, 384, 256), (256, 1, 1))))
    assert done[0] == done[1]


def test_spaces_are_chosen_and_joined():
    apart = Box((8, 0, 40), ((6, 20, 8, 8), (8, 1, 1, 1)))
    assert apart.seen(2, 1) == Box((40, 0), ((48, 1, 1),))
    assert apart.seen(1, 0) == Box((0, 8), ((6, 8, 20), (8, 1, 1)))
    assert apart.moved(-8).seen(0) == Box((0,), ((6, 20), (8, 1)))
    assert Box((3,), ()).repeated(1, (9,)) == Box((3,), ())
