"""A sum of derivatives within the normalisation's that is one of them: which are joined, and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs import Call, add, assert_same, call, clip, copy, fill, part, permuted, program, update, whole
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.operation import Operand
from singa_lite.passes.derivative_sum import added_within
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor

SHAPE, C = (5, 3, 4, 2), 3
DY, X, OTHER, OUT, SPARE = (whole(block, *SHAPE) for block in (0, 1, 2, 3, 4))
GAMMA, MEAN, INV_STD, DGAMMA, DBETA = (whole(block, C) for block in range(5, 10))
DX, TOTAL = whole(20, *SHAPE), whole(21, *SHAPE)
HELD = [*range(10), 30]
END = copy(TOTAL, OUT)
#: Some channels of a larger derivative.
PIECE = part(whole(30, 5, 8, 4, 2), 1, 2, 5)


def back(dx: Operand = DX) -> Call:
    return call("batch_norm_derivative", DY, X, GAMMA, MEAN, INV_STD, dx, DGAMMA, DBETA)


def after(*calls: Call) -> Program:
    return added_within(program(*calls, held=HELD))


@pytest.mark.parametrize("other", [OTHER, PIECE], ids=["whole", "piece"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_sum_goes_into_the_derivative_at_its_step(turned, other):
    calls = back(), update(DGAMMA, GAMMA), add(*((other, DX) if turned else (DX, other)), TOTAL), END
    one, *others = after(*calls).instructions
    assert one.kernel == "batch_norm_derivative_add"
    assert one.operands == (DY, X, GAMMA, MEAN, INV_STD, other, TOTAL, DGAMMA, DBETA)
    assert one.scratch_bytes == NUMPY.scratch_bytes(one.kernel, one.operands, one.settings)
    assert [i.kernel for i in others] == ["add_scaled", "copy"]
    assert_same(program(*calls, held=HELD), after(*calls))


@pytest.mark.parametrize(
    "calls",
    [
        [back(), copy(DX, SPARE), add(OTHER, DX, TOTAL), END],  # somebody else reads the derivative
        [back(), add(DX, DX, TOTAL), END],
        [back(), clip(OTHER), add(OTHER, DX, TOTAL), END],  # the other one is not ready yet
        [back(), fill(OTHER), add(DX, OTHER, TOTAL), END],
        [back(), add(OTHER, DX, permuted(21, SHAPE, (0, 2, 3, 1))), copy(permuted(21, SHAPE, (0, 2, 3, 1)), OUT)],
        [back(), add(whole(2, 3, 1, 1), DX, TOTAL), END],  # it broadcasts
        [fill(TOTAL), copy(TOTAL, SPARE), back(), add(OTHER, DX, TOTAL), END],  # its block is used before
        [back(), add(OTHER, DX, OUT)],  # the result is held
    ],
    ids=["read", "twice", "changed", "later", "strides", "broadcast", "used", "held"],
)
def test_what_stays_apart(calls):
    given = program(*calls, held=HELD)
    assert added_within(given) is given


def test_without_the_sets_kernels_nothing_changes():
    given = program(back(), add(OTHER, DX, TOTAL), END, held=HELD)
    given = replace(given, target=replace(given.target, fusions=frozenset()))
    assert added_within(given) is given


def test_where_the_floor_would_rise_they_stay_apart():
    given = program(back(), add(OTHER, DX, TOTAL), END, held=HELD)
    assert floor(in_place(added_within(given))) <= floor(in_place(given))
    costly = replace(given, target=replace(given.target, scratch_bytes=lambda *call: 1 << 20))
    assert added_within(costly) is costly
