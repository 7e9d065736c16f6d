"""Placement problems with known answers, a brute force for small ones, and generators for large ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from singa_lite.compiler.placement.problem import Request
from singa_lite.compiler.placement.table import Table


def requests_of(*rows: tuple[int, ...]) -> list[Request]:
    """Requests r0, r1, … from (start, stop, size) or (start, stop, size, alignment)."""
    return [Request(f"r{number}", *row) for number, row in enumerate(rows)]


def offsets_by_id(requests: Sequence[Request], table: Table, offsets: np.ndarray) -> dict[str, int]:
    """What was found for the rows of a table, in bytes; requests of no bytes lie at 0."""
    found = {request.id: 0 for request in requests}
    for row, offset in zip(table.rows.tolist(), offsets.tolist(), strict=True):
        found[requests[row].id] = offset * table.unit
    return found


# Name: requests, smallest arena. Lifespans are those of the planners' own tests, steps counted from their claims.
KNOWN = {
    "MiniMalloc input.12": (requests_of((0, 3, 4), (3, 9, 4), (0, 9, 4), (9, 21, 4), (0, 21, 4)), 12),
    "ONE WIC planner": (
        requests_of(
            (0, 2, 20), (1, 4, 5), (3, 6, 10), (5, 8, 10), (7, 10, 10), (9, 12, 20), (11, 14, 20)
        ),
        40,
    ),
    "MODeL pathological": (
        requests_of(
            (0, 2, 1), (1, 4, 9), (3, 6, 1), (5, 8, 8), (7, 10, 1), (9, 12, 7), (12, 14, 8), (14, 16, 7)
        ),
        10,
    ),
    "TVM ResNet block": (  # its own greedy by size takes 7,920,256
        requests_of(
            (0, 8, 720_000), (1, 3, 720_000), (2, 3, 256), (2, 4, 720_000), (3, 5, 758_912), (4, 5, 256),
            (4, 6, 720_000), (5, 7, 720_000), (6, 7, 256), (6, 9, 5_760_000), (7, 9, 720_000), (8, 9, 256),
        ),
        7_200_256,
    ),
    "above its floor of 5": (
        requests_of((1, 3, 2), (2, 5, 3), (4, 6, 1), (4, 7, 1), (5, 7, 2), (6, 10, 2), (9, 10, 3)),
        6,
    ),
    "above its floor of 8": (
        requests_of(
            (1, 3, 7), (2, 5, 1), (3, 4, 2), (3, 6, 4), (3, 7, 1), (4, 7, 1), (5, 6, 2), (6, 7, 5)
        ),
        9,
    ),
}  # fmt: skip


def smallest_arena(requests: Sequence[Request]) -> int:
    """By brute force: in some order of ascending offsets, each request lies on the highest one below it."""
    wanted = [request for request in requests if request.size]
    best = sum(request.size + request.alignment for request in wanted)

    def stack(placed: list[tuple[Request, int]], rest: list[Request], arena: int) -> None:
        nonlocal best
        if arena >= best:
            return
        if not rest:
            best = arena
        for number, request in enumerate(rest):
            below = [
                offset + other.size
                for other, offset in placed
                if other.start < request.stop and request.start < other.stop
            ]
            offset = max(below, default=0)
            offset += -offset % request.alignment
            others = rest[:number] + rest[number + 1 :]
            stack([*placed, (request, offset)], others, max(arena, offset + request.size))

    stack([], wanted, 0)
    return best


@st.composite
def small_problems(draw: st.DrawFn, most: int = 6) -> list[Request]:
    """Up to `most` requests over few steps, so that many overlap; sometimes aligned, sometimes huge."""
    alignments = draw(st.sampled_from([[1], [8], [1, 4], [6, 4, 1], [64, 16, 3]]))
    factor = draw(st.sampled_from([1, 4, 2**62 + 1]))
    rows = []
    for _ in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, 7))
        size = draw(st.integers(0, 30)) * factor
        rows.append((start, start + draw(st.integers(1, 5)), size, draw(st.sampled_from(alignments))))
    return requests_of(*rows)


def training_step(count: int, seed: int) -> list[Request]:
    """About `count` requests like those of a step: activations held to the backward pass, with noise around them."""
    draw = random.Random(seed)
    layers = count // 5
    end = 3 * layers
    rows = []
    for layer in range(layers):
        backward, size = end - 2 * layer, 64 * draw.randint(1, 4096)
        held = backward if draw.random() < 0.8 else layer + draw.randint(1, 3)
        rows += [
            (layer, max(held, layer + 1), size),
            (layer, layer + 1, 64 * draw.randint(1, 512)),  # scratch
            (backward - 2, backward + 1, size),  # derivative
            (backward - 1, backward, 64 * draw.randint(1, 2048)),  # gradient
            (backward - 1, backward + draw.randint(0, 1), 64 * draw.randint(1, 64)),
        ]
    return requests_of(*rows)


def cut_rectangle(count: int, seed: int, steps: int = 300, size: int = 512) -> list[Request]:
    """`count` requests cut from a rectangle of steps by bytes: the smallest arena is `size`, without a free byte."""
    draw = random.Random(seed)
    pieces = [(0, steps, size)]
    while len(pieces) < count:
        start, stop, height = pieces.pop(draw.randrange(len(pieces)))
        if draw.random() < 0.5 and stop - start > 1:
            middle = draw.randint(start + 1, stop - 1)
            pieces += [(start, middle, height), (middle, stop, height)]
        elif height > 1:
            part = draw.randint(1, height - 1)
            pieces += [(start, stop, part), (start, stop, height - part)]
        else:
            pieces.append((start, stop, height))
    draw.shuffle(pieces)
    return requests_of(*pieces)
