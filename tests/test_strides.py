"""Strides: orders of axes in memory, and which reshapes are views, held to NumPy's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from every_row import over_rows
from singa_lite.common.strides import laid_out, memory_order, ordered_strides, reshaped_strides


def test_ordered_strides_are_those_of_a_transposed_array():
    shape = (2, 3, 5)
    for axes in itertools.permutations(range(3)):
        array = np.empty([shape[axis] for axis in axes], np.float64).transpose(np.argsort(axes))
        assert array.shape == shape
        assert ordered_strides(shape, axes, 8) == array.strides
        assert memory_order(shape, array.strides) == axes


def test_axes_of_extent_one_do_not_change_the_order_and_broadcast_ones_keep_their_place():
    assert memory_order((4, 7, 1, 1), ordered_strides((4, 7, 1, 1), (0, 2, 3, 1))) == (0, 1, 2, 3)
    assert laid_out((4, 7, 1, 1), (0, 2, 3, 1), 4) == (28, 4, 4, 4)
    assert laid_out((4, 1, 3, 5), (0, 2, 3, 1)) == (15, 15, 5, 1)
    assert memory_order((4, 3, 2), (0, 2, 1)) == (0, 1, 2)
    assert memory_order((4, 3, 2), (1, 0, 4)) == (2, 1, 0)


@pytest.mark.parametrize(
    "wanted", [(2, 15, 7), (30, 7), (2, 3, 35), (210,), (6, 5, 7), (2, 3, 1, 5, 7, 1), (1, 2, 3, 5, 7), (5, 6, 7)]
)
def test_a_reshape_is_a_view_exactly_where_numpy_makes_one(wanted):
    over_rows(view_as_numpys, ((str(order), (order, wanted)) for order in itertools.permutations(range(4))))


def view_as_numpys(order: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    shape = (2, 3, 5, 7)
    array = np.arange(210, dtype=np.int32).reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
    strides = reshaped_strides(array.shape, array.strides, wanted)
    reshaped = array.reshape(wanted)
    if strides is None:
        assert not np.shares_memory(reshaped, array)
    else:
        np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(array, wanted, strides), reshaped)
        assert np.shares_memory(reshaped, array)


def test_no_strides_for_shapes_that_do_not_fit_nor_over_gaps():
    for shape, wanted in [((2, 3), (4, 2)), ((0, 3), (3, 0)), ((6,), (4,))]:
        assert reshaped_strides(shape, ordered_strides(shape, range(len(shape))), wanted) is None
    array = np.zeros((4, 6))[:, :5]
    assert reshaped_strides(array.shape, array.strides, (20,)) is None
    assert reshaped_strides(array.shape, array.strides, (2, 2, 5)) == (96, 48, 8)
