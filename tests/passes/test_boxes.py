"""Boxes stand for the bytes that they describe: what two of them share and what not, against plain sets of numbers."""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from programs import thorough
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
