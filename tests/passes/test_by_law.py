"""Places of laws: what is found, when the right side may stand there, and what it is there."""

from __future__ import annotations

import pytest

from programs import Call, add, assert_same, call, clip, copy, fill, program, relu, whole
from singa_lite.kernels.interface.window import Window
from singa_lite.passes.by_law import Replacing
from singa_lite.passes.law_moves import At
from singa_lite.passes.law_places import places
from singa_lite.passes.laws import ACTIVATED
from singa_lite.passes.pool_first import pool_first
from singa_lite.passes.program import Program

A, B, OUT = (whole(block, 5, 3) for block in (0, 1, 2))
Z, Y, W = (whole(block, 5, 3) for block in (10, 11, 12))
HELD = [0, 1, 2, 20, 21, 22]
SUM = next(one for one in ACTIVATED if one.left[0].kernel == "add")
FIRST, LAST = [At(0, 0)], [At(1, 0)]


def put(given: Program, at: list[At]) -> list[str]:
    """The kernels behind it, once all places have the right side that may have it."""
    replacing = Replacing(given)
    for place in places(given, replacing.uses, SUM):
        if replacing.may_put(place, at):
            replacing.put(place, at)
    made = replacing.result()
    assert_same(given, made)
    return [instruction.kernel for instruction in made.instructions]


@pytest.mark.parametrize(
    ("calls", "first", "last"),
    [
        ([add(A, B, Z), copy(Z, W), relu(Z, Y), copy(W, OUT)], False, False),  # somebody else reads z
        ([add(A, B, Z), relu(Z, Y), copy(Z, OUT)], False, False),  # later, too
        ([add(A, B, Z), clip(Z), relu(Z, Y)], False, False),  # z has changed
        ([relu(Z, Y), add(A, B, Z)], False, False),  # the activation is of what was there before
        ([add(A, B, Z), clip(A), relu(Z, Y)], True, False),  # an input changes in between
        ([add(A, B, Z), fill(Y), copy(Y, OUT), relu(Z, Y)], False, True),  # the result's block is in use in between
        ([add(A, B, Z), relu(Z, A)], False, False),  # over an input
        ([add(A, B, OUT), relu(OUT, Y)], False, False),  # what is held stays
    ],
    ids=["read", "read later", "z", "before", "input", "result", "over", "held"],
)
def test_nothing_comes_too_late_or_too_early(calls: list[Call], first: bool, last: bool):
    given = program(*calls, copy(Y, whole(20, 5, 3)), held=HELD)
    assert ("add_activation" in put(given, FIRST), "add_activation" in put(given, LAST)) == (first, last)


@pytest.mark.parametrize("offset", [0, 96])
@pytest.mark.parametrize("shape", [(2, 3, 1, 4), (2, 3, 4), (6, 4)])
def test_what_the_activation_saw_in_another_shape_is_pooled_as_an_image(shape, offset):
    """Of a part of a block that is only where nothing changes for it."""
    window = {"window": Window((1, 2), (1, 2))}
    images, pooled = (2, 3, 1, 4), (2, 3, 1, 2)
    x, y = whole(0, *shape)._replace(offset=offset), whole(10, *shape)
    p, out = whole(11, *pooled), whole(2, *pooled)
    given = program(relu(x, y), call("max_pool2d", whole(10, *images), p, None, **window), copy(p, out), held=[0, 2])
    after = pool_first(given)
    first, second, _copy = after.instructions
    if offset and shape != images:
        assert first.kernel == "relu"
    else:
        assert (first.kernel, first.operands[0]) == ("max_pool2d", whole(0, *images)._replace(offset=offset))
        assert (second.kernel, second.operands) == ("relu", (first.operands[1], p))
        assert y.block not in after.sizes
    assert_same(given, after)
