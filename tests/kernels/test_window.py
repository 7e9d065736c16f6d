"""Window: how many of them fit, counted by hand, and which are refused."""

from __future__ import annotations

import pytest

from singa_lite.errors import ShapeError
from singa_lite.kernels.interface.window import Window

WINDOW = Window((3, 2), stride=(2, 1), pad=(1, 0, 0, 3), dilation=(2, 3))


def test_what_it_spans_and_counts():
    assert WINDOW.taps == 6
    assert WINDOW.span == (5, 4)
    assert WINDOW.pad_before == (1, 0) and WINDOW.pad_behind == (0, 3)
    assert WINDOW.positions("here", (8, 5)) == (3, 5)
    assert WINDOW.positions("here", (4, 1)) == (1, 1)


@pytest.mark.parametrize("extents", [(3, 1), (4, 0)])
def test_an_image_must_hold_one(extents):
    with pytest.raises(ShapeError, match=r"here.*5 x 4"):
        WINDOW.positions("here", extents)


@pytest.mark.parametrize("pad", [(3, 0, 0, 0), (0, 3, 0, 0), (0, 0, 2, 0), (0, 0, 0, 2)])
def test_pads_below_the_extents_are_told_from_others(pad):
    Window((3, 2), pad=(2, 2, 1, 1)).check_pads("here")
    with pytest.raises(ShapeError, match=r"here.*\(3, 2\)"):
        Window((3, 2), pad=pad).check_pads("here")


def test_pixels_are_told_from_other_windows():
    assert Window((1, 1), dilation=(2, 3)).is_pixel
    others = Window((1, 2)), Window((1, 1), stride=(1, 2)), Window((1, 1), pad=(0, 0, 0, 1))
    assert not any(window.is_pixel for window in others)


def test_equal_windows_are_one_key():
    assert len({Window((3, 3)), Window((3, 3), (1, 1)), Window((3, 3), (1, 2))}) == 2
