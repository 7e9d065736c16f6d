"""Schedules, worked by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest

from singa_lite import schedule


def rates(made, steps) -> list[float]:
    return [made(step) for step in steps]


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (schedule.Constant(0.25), {0: 0.25, 1: 0.25, 1000: 0.25}),
        (schedule.Step(0.8, 3, 0.5), {0: 0.8, 2: 0.8, 3: 0.4, 5: 0.4, 6: 0.2, 9: 0.1}),
        (schedule.Step(0.8, [2, 7], 0.5), {0: 0.8, 1: 0.8, 2: 0.4, 6: 0.4, 7: 0.2, 100: 0.2}),
        (schedule.Exponential(2.0, 4, 0.25), {0: 2.0, 2: 1.0, 4: 0.5, 6: 0.25}),
        (schedule.Exponential(2.0, 4, 0.25, staircase=True), {0: 2.0, 3: 2.0, 4: 0.5, 7: 0.5, 8: 0.125}),
    ],
    ids=range(5),
)
def test_rates(made, wanted):
    assert {step: made(step) for step in wanted} == wanted


def test_cosine_with_warmup():
    made = schedule.CosineWithWarmup(1.0, total_steps=10, warmup_steps=4, final=0.2)
    assert rates(made, range(5)) == [0.25, 0.5, 0.75, 1.0, 1.0]
    # 6 steps from 1.0 to 0.2: cos(60 degrees) = 1/2 after two, cos(90 degrees) = 0 after three
    np.testing.assert_allclose(rates(made, [6, 7, 8]), [0.2 + 0.8 * 0.75, 0.6, 0.2 + 0.8 * 0.25], rtol=1e-15)
    assert rates(made, [10, 11, 10**9]) == [0.2, 0.2, 0.2]


def test_cosine_without_warmup():
    made = schedule.CosineWithWarmup(0.4, 2)
    np.testing.assert_allclose(rates(made, [0, 1, 2, 3]), [0.4, 0.2, 0.0, 0.0], rtol=1e-15)


def test_get():
    assert schedule.get(0.1)(5) == schedule.get(np.float64(0.1))(0) == 0.1
    assert schedule.get(1)(0) == 1.0
    made = schedule.Step(1.0, 2)
    assert schedule.get(made) is made
    assert schedule.get(lambda step: 1 / (step + 1))(3) == 0.25


@pytest.mark.parametrize("lr", [None, "0.1", True])
def test_get_refuses_what_is_no_rate(lr):
    with pytest.raises(TypeError, match=re.escape(repr(lr))):
        schedule.get(lr)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: schedule.get(-0.1), "learning rate.*-0.1"),
        (lambda: schedule.Constant(float("nan")), "Constant value"),
        (lambda: schedule.Step(float("inf"), 2), "Step base"),
        (lambda: schedule.Step(0.1, 2, -1.0), "Step factor"),
        (lambda: schedule.Step(0.1, 0), "Step step_size.*0"),
        (lambda: schedule.Step(0.1, []), "boundary"),
        (lambda: schedule.Step(0.1, [5, 5]), r"\[5, 5\]"),
        (lambda: schedule.Step(0.1, [1.5]), "Step boundary"),
        (lambda: schedule.Exponential(-1.0, 2, 0.5), "Exponential base"),
        (lambda: schedule.Exponential(1.0, 0, 0.5), "Exponential decay_steps"),
        (lambda: schedule.Exponential(1.0, float("inf"), 0.5), "Exponential decay_steps"),
        (lambda: schedule.Exponential(1.0, 2, -0.5), "Exponential decay_rate"),
        (lambda: schedule.CosineWithWarmup(-1.0, 5), "CosineWithWarmup base"),
        (lambda: schedule.CosineWithWarmup(1.0, 5, final=-0.1), "CosineWithWarmup final"),
        (lambda: schedule.CosineWithWarmup(1.0, 0), "CosineWithWarmup total_steps"),
        (lambda: schedule.CosineWithWarmup(1.0, 5, -1), "CosineWithWarmup warmup_steps"),
        (lambda: schedule.CosineWithWarmup(1.0, 5, 5), "warmup_steps.*5"),
    ],
)
def test_numbers_out_of_range_are_refused(make, wanted):
    with pytest.raises(ValueError, match=wanted):
        make()
