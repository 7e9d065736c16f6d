"""Upsampling2D: values by hand, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

from run_layer import prepared, run
from singa_lite import autograd, layers, tensor
from singa_lite.errors import ShapeError


def test_each_pixel_becomes_a_block():
    y = run(layers.Upsampling2D("u", (3, 2)), [[[[1, 2]], [[3, 4]]]])
    np.testing.assert_array_equal(y, [[[[1, 1, 2, 2]] * 3, [[3, 3, 4, 4]] * 3]])


def test_one_factor_holds_for_both_axes():
    y = run(layers.Upsampling2D("u"), [[[[1, 2, 3], [4, 5, 6]]]])
    np.testing.assert_array_equal(y, [[[[1, 1, 2, 2, 3, 3]] * 2 + [[4, 4, 5, 5, 6, 6]] * 2]])


def test_factor_1_changes_nothing():
    x = np.arange(24.0).reshape(2, 1, 3, 4)
    np.testing.assert_array_equal(run(layers.Upsampling2D("u", 1), x), x)


def test_shapes():
    assert prepared(layers.Upsampling2D("u"), (3, 5, 4)).get_output_sample_shape() == (3, 10, 8)
    assert prepared(layers.Upsampling2D("u", (1, 4)), (3, 5, 6)).get_output_sample_shape() == (3, 5, 24)


def test_the_derivative_of_a_pixel_is_the_sum_over_its_block():
    x = tensor.from_numpy(np.zeros((1, 1, 1, 2)))
    x.stores_grad = True
    dy = tensor.from_numpy(np.array([[[[1.0, 2, 3, 40, 50, 60], [100, 200, 300, 4000, 5000, 6000]]]]))
    _, dx = next(autograd.backward(autograd.upsample_nearest(x, (2, 3)), dy))
    np.testing.assert_array_equal(tensor.to_numpy(dx), [[[[606, 15150]]]])


@pytest.mark.parametrize("factor", [0, -2, 1.5, "2", True, (2, 0), (2,), (2, 2, 2), None])
def test_a_factor_that_makes_no_sense_is_refused(factor):
    wanted = f"layer 'here': wanted factor to be an integer or a pair .*received {re.escape(repr(factor))}"
    with pytest.raises(ValueError, match=wanted):
        layers.Upsampling2D("here", factor)


def test_other_inputs_than_images_are_refused():
    with pytest.raises(ShapeError, match=r"layer 'here': .*\(channels, height, width\), received \(3, 4\)"):
        prepared(layers.Upsampling2D("here"), (3, 4))
    with pytest.raises(ShapeError, match=r"wanted x \(n, c, h, w\), received \(2, 3, 4\)"):
        autograd.upsample_nearest(tensor.from_numpy(np.zeros((2, 3, 4))), (2, 2))
    with pytest.raises(ValueError, match=r"factor to be .*at least 1, received \(2, 0\)"):
        autograd.upsample_nearest(tensor.from_numpy(np.zeros((2, 3, 4, 5))), (2, 0))
