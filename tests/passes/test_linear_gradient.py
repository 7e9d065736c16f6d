"""The gradients of weight and bias in one: which pairs are joined, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs import Call, call, clip, fill, part, program, relu, whole
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.linear_gradient import PAIR, joined

X, DY = whole(0, 7, 5), whole(1, 7, 3)
DWEIGHT, DBIAS = whole(10, 5, 3), whole(11, 3)


def product(x: Operand = X, dy: Operand = DY, y: Operand = DWEIGHT, transpose_b: bool = False) -> Call:
    return call("matmul", x, dy, y, transpose_a=True, transpose_b=transpose_b)


def sums(dy: Operand = DY, y: Operand = DBIAS, axis: int = 1) -> Call:
    return call("bias_gradient", dy, y, axis=axis)


def after(*calls: Call, fusions: tuple[tuple[str, str], ...] = (PAIR,)) -> tuple[Instruction, ...]:
    """The instructions behind the pass, where a kernel set does these in one go."""
    made = program(*calls, held=[0, 1])
    return joined(replace(made, target=replace(made.target, fusions=fusions))).instructions


def kernels(*calls: Call, fusions: tuple[tuple[str, str], ...] = (PAIR,)) -> list[str]:
    return [i.kernel for i in after(*calls, fusions=fusions)]


@pytest.mark.parametrize("calls", [(product(), sums()), (sums(), product()), (product(), sums(axis=-1))])
def test_the_pair_becomes_one_with_the_scratch_of_one(calls):
    (one,) = after(*calls)
    assert (one.kernel, one.operands) == ("linear_gradient", (X, DY, DWEIGHT, DBIAS))
    assert one.scratch_bytes == NUMPY.scratch_bytes("linear_gradient", one.operands, {})
    assert one.operands[2:] == tuple(one.writes)


def test_what_stands_between_and_around_stays():
    calls = relu(X, whole(5, 7, 5)), product(), relu(DWEIGHT, whole(6, 5, 3)), sums(), relu(DBIAS, whole(7, 3))
    assert kernels(*calls) == ["relu", "linear_gradient", "relu", "relu"]


def test_several_layers():
    other = whole(2, 7, 4), whole(3, 7, 6)
    calls = (
        product(),
        product(*other, whole(12, 4, 6)),
        sums(other[1], whole(13, 6)),
        sums(),
    )
    assert kernels(*calls) == ["linear_gradient", "linear_gradient"]


@pytest.mark.parametrize(
    "calls",
    [
        (product(transpose_b=True, y=whole(10, 5, 7)), sums(whole(1, 7, 3))),
        (
            call("matmul", X, whole(1, 5, 3), whole(10, 7, 3), transpose_a=False, transpose_b=False),
            sums(whole(1, 5, 3)),
        ),
        (product(), sums(axis=0, y=whole(11, 7))),
        (product(), sums(whole(2, 7, 3))),
        (product(dy=part(whole(1, 9, 3), 0, 0, 7)), sums(part(whole(1, 9, 3), 0, 2, 9))),
        (product(), clip(DY), sums()),
        (sums(), clip(X), product()),
        (product(), fill(DBIAS), relu(DBIAS, whole(9, 3)), sums()),
    ],
    ids=["dy transposed", "x as it is", "other axis", "other dy", "other rows", "dy changed", "x changed", "db used"],
)
def test_what_is_no_such_pair_stays(calls):
    assert kernels(*calls) == [name for name, _, _ in calls]


def test_a_set_that_has_no_such_kernel_keeps_both():
    assert kernels(product(), sums(), fusions=(("linear", "relu"),)) == ["matmul", "bias_gradient"]


def test_one_product_takes_one_bias():
    assert kernels(product(), sums(), sums(y=whole(12, 3))) == ["linear_gradient", "bias_gradient"]
