"""The derivative of an activation, by its result, within the normalisation's: which are joined, and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs import Call, assert_same, call, clip, copy, fill, permuted, program, whole
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.operation import Operand
from singa_lite.passes.norm_mask import masked_by_result
from singa_lite.passes.program import Program

SHAPE, C = (5, 3, 4, 2), 3
DY, X, Y, OTHER, DX, SPARE = (whole(block, *SHAPE) for block in range(6))
GAMMA, MEAN, INV_STD, DGAMMA, DBETA = (whole(block, C) for block in range(6, 11))
DZ = whole(20, *SHAPE)
HELD = range(11)


def masked(kernel: str = "relu", dy: Operand = DY) -> Call:
    return call(f"{kernel}_derivative", dy, Y, DZ)


def back(dx: Operand = DX) -> Call:
    return call("batch_norm_derivative", DZ, X, GAMMA, MEAN, INV_STD, dx, DGAMMA, DBETA)


def added() -> Call:
    tensors = DZ, X, None, GAMMA, MEAN, INV_STD, OTHER, DX, DGAMMA, DBETA
    return call("batch_norm_derivative_add", *tensors, activation="")


def after(*calls: Call) -> Program:
    return masked_by_result(program(*calls, held=list(HELD)))


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_the_mask_goes_into_the_normalisations_derivative(activation):
    calls = masked(activation), fill(SPARE), back()
    first, one = after(*calls).instructions
    assert (first.kernel, one.kernel) == ("fill", "batch_norm_activation_derivative")
    assert one.operands == (DY, X, Y, GAMMA, None, MEAN, INV_STD, DX, DGAMMA, DBETA)
    assert one.settings == {"activation": activation}
    assert one.scratch_bytes == NUMPY.scratch_bytes(one.kernel, one.operands, one.settings)
    assert_same(program(*calls, held=list(HELD)), after(*calls))


def test_it_goes_into_one_with_a_sum_too():
    calls = masked(), added()
    (one,) = after(*calls).instructions
    assert one.operands == (DY, X, Y, GAMMA, MEAN, INV_STD, OTHER, DX, DGAMMA, DBETA)
    assert (one.kernel, one.settings) == ("batch_norm_derivative_add", {"activation": "relu"})
    assert_same(program(*calls, held=list(HELD)), after(*calls))


@pytest.mark.parametrize(
    "calls",
    [
        [masked(), copy(DZ, SPARE), back()],  # somebody else reads what is masked
        [masked(), clip(DY), back()],  # what was masked has changed
        [masked(), clip(Y), back()],
        [masked("tanh"), back()],
        [masked(), back(permuted(4, SHAPE, (0, 2, 3, 1)))],  # it lies otherwise
    ],
    ids=["read", "dy", "y", "tanh", "strides"],
)
def test_what_stays_apart(calls):
    given = program(*calls, held=list(HELD))
    assert masked_by_result(given) is given


def test_without_the_sets_kernels_or_where_the_floor_would_rise_nothing_changes():
    given = program(masked(), back(), held=list(HELD))
    for target in (
        replace(given.target, fusions=frozenset({("batch_norm_derivative", "relu6")})),
        replace(given.target, scratch_bytes=lambda *call: 1 << 20),
    ):
        other = replace(given, target=target)
        assert masked_by_result(other) is other
