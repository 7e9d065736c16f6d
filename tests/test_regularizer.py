"""Regularizers and constraints by themselves, worked by hand; with an update they are in test_optimizer.py."""

from __future__ import annotations

import numpy as np
import pytest

from singa_lite import regularizer, tensor
from singa_lite.tensor import Tensor


def to_tensor(values: list[float]) -> Tensor:
    return tensor.from_numpy(np.array(values))


def test_l2_regularizer():
    value, gradient = to_tensor([2.0, -4.0]), to_tensor([1.0, 1.0])
    regularizer.L2Regularizer(0.25).apply(value, gradient)
    assert tensor.to_numpy(gradient).tolist() == [1.5, 0.0]
    regularizer.L2Regularizer(0.25).apply(value, gradient, decay_mult=2.0)
    assert tensor.to_numpy(gradient).tolist() == [2.5, -2.0]
    regularizer.L2Regularizer(0.25).apply(value, gradient, decay_mult=0.0)
    assert tensor.to_numpy(gradient).tolist() == [2.5, -2.0]
    assert tensor.to_numpy(value).tolist() == [2.0, -4.0]


@pytest.mark.parametrize(
    ("constraint", "wanted"),
    [
        (regularizer.ElementConstraint(3.5), [3.0, -3.5]),
        (regularizer.ElementConstraint(9.0), [3.0, -4.0]),
        (regularizer.NormConstraint(2.5), [1.5, -2.0]),
        (regularizer.NormConstraint(5.0), [3.0, -4.0]),
        (regularizer.NormConstraint(50.0), [3.0, -4.0]),
        (regularizer.NormConstraint(float("inf")), [3.0, -4.0]),
    ],
)
def test_constraints(constraint, wanted):
    gradient = to_tensor([3.0, -4.0])
    constraint.apply(gradient)
    assert tensor.to_numpy(gradient).tolist() == wanted


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: regularizer.L2Regularizer(-0.1), "L2Regularizer coefficient"),
        (lambda: regularizer.ElementConstraint(0.0), "ElementConstraint threshold"),
        (lambda: regularizer.NormConstraint(float("nan")), "NormConstraint threshold"),
    ],
)
def test_numbers_out_of_range_are_refused(make, wanted):
    with pytest.raises(ValueError, match=wanted):
        make()
