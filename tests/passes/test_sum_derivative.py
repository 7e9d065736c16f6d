"""A sum of derivatives within the derivative of an activation: which are joined, and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs import Call, add, assert_same, call, clip, copy, double, fill, permuted, program, whole
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.operation import Operand
from singa_lite.passes.program import Program, floor
from singa_lite.passes.sum_derivative import masked_at_once

SHAPE = 5, 3, 4, 2
A, B, Y, OUT, SPARE = (whole(block, *SHAPE) for block in (0, 1, 2, 3, 4))
TOTAL, DX = whole(10, *SHAPE), whole(11, *SHAPE)
HELD = [0, 1, 2, 3, 4]
END = copy(DX, OUT)


def masked(kernel: str = "relu", dy: Operand = TOTAL, y: Operand = Y, dx: Operand = DX) -> Call:
    return call(f"{kernel}_derivative", dy, y, dx)


def after(*calls: Call) -> Program:
    return masked_at_once(program(*calls, held=HELD))


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_a_sum_and_its_mask_become_one_call_at_the_sums_step(activation):
    calls = add(A, B, TOTAL), fill(SPARE), masked(activation), END
    one, *others = after(*calls).instructions
    assert (one.kernel, one.operands, one.settings) == (
        "sum_activation_derivative",
        (A, B, Y, DX),
        {"activation": activation},
    )
    assert one.scratch_bytes == NUMPY.scratch_bytes(one.kernel, one.operands, one.settings)
    assert [i.kernel for i in others] == ["fill", "copy"]
    assert_same(program(*calls, held=HELD), after(*calls))
    assert floor(after(*calls)) < floor(program(*calls, held=HELD))


@pytest.mark.parametrize(
    "calls",
    [
        [add(A, B, TOTAL), copy(TOTAL, SPARE), masked(), END],  # somebody else reads the sum
        [add(A, B, TOTAL), clip(Y), masked(), END],  # the mask is made between
        [add(A, B, TOTAL), masked("tanh"), END],  # not one of those
        [add(A, B, TOTAL), masked(dx=permuted(11, SHAPE, (0, 2, 3, 1))), END],  # it lies otherwise
        [add(A, whole(1, 3, 1, 1), TOTAL), masked(), END],  # it broadcasts
        [fill(DX), copy(DX, SPARE), add(A, B, TOTAL), masked(), END],  # the result's block is used before
        [add(A, B, TOTAL), masked(dx=OUT)],  # the result is held
        [double(A, TOTAL), masked(), END],  # no sum
    ],
    ids=["read", "y", "tanh", "strides", "broadcast", "used", "held", "no sum"],
)
def test_what_stays_apart(calls):
    given = program(*calls, held=HELD)
    assert masked_at_once(given) is given


def test_without_the_sets_kernels_nothing_changes():
    given = program(add(A, B, TOTAL), masked(), END, held=HELD)
    given = replace(given, target=replace(given.target, fusions=frozenset({("sum_activation_derivative", "relu6")})))
    assert masked_at_once(given) is given
