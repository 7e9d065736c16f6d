"""Checks of plain numbers: what passes, and one error with what was wanted, what was received, and where."""

from __future__ import annotations

import numpy as np
import pytest

from singa_lite.common import checks

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("check", "passing", "failing"),
    [
        (checks.finite, [-1, 0.5, np.float32(2), np.int8(3), np.array(1.5)], [INF, -INF, NAN]),
        (checks.at_least_zero, [0, 7.5], [-1e-9, INF, NAN]),
        (checks.above_zero, [1e-300, INF], [0, -1, NAN]),
        (checks.fraction, [0, 0.999], [1, -0.1, NAN]),
        (lambda where, number: checks.whole(where, number, 2), [2, 3.0, np.int64(4), 2**70], [1, 2.5, INF, NAN, -3]),
    ],
)
def test_numbers(check, passing, failing):
    for number in passing:
        assert check("Adam lr", number) == number
        assert type(check("Adam lr", number)) in (int, float)
    for number in failing:
        with pytest.raises(ValueError, match=f"^Adam lr: wanted a .*number.*, received {number}$"):
            check("Adam lr", number)
    for stranger in ("two", None, [3], 1j, np.ones(3), True, False, np.True_, np.array(True), np.array("1")):
        with pytest.raises(TypeError, match=r"^Adam lr: wanted a .*number.*, received "):
            check("Adam lr", stranger)


def test_yes_or_no():
    for yes in (True, np.True_):
        assert checks.flag("fit shuffle", yes) is True
    for no in (False, np.False_):
        assert checks.flag("fit shuffle", no) is False
    for stranger in ("yes", "", None, 0, 1, 2, 1.0, [], np.array([True]), np.array(True)):
        with pytest.raises(TypeError, match=r"^fit shuffle: wanted True or False, received "):
            checks.flag("fit shuffle", stranger)


def test_names():
    assert checks.names("forward output", ("a", "b")) == checks.names("forward output", {"a": 1, "b": 2}) == ["a", "b"]
    for stranger in ("ab", None, 5):
        with pytest.raises(TypeError, match=r"^forward output: wanted a list of names, received "):
            checks.names("forward output", stranger)
