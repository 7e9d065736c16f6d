"""Repeats without a limit: as many as fused calls pay for, of what one cheap call makes again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs import TARGET, Call, add, assert_same, call, copy, double, program, whole
from singa_lite.passes.lower import lower
from singa_lite.passes.placed import Placed
from singa_lite.passes.program import Program
from singa_lite.passes.read_from import check_reads
from singa_lite.passes.time_model import seconds
from singa_lite.passes.transfer_times import estimated_slowdown

SHAPE = 5, 3, 4000
PAYING = replace(TARGET, in_one_pass=lambda *call: True)


def normalised(number: int, source: int, activation: str | None = "relu") -> list[Call]:
    """Blocks from 10 times the number on: x, y, mean, inv_std; the vectors 1 to 4 are held."""
    x, y, mean, inv_std = (whole(10 * number, *SHAPE), whole(10 * number + 1, *SHAPE), *_vectors(10 * number + 2, 2))
    settings = {"momentum": 0.1, "epsilon": 1e-5} | ({} if activation is None else {"activation": activation})
    kernel = "batch_norm" if activation is None else "batch_norm_activation"
    return [
        double(whole(source, *SHAPE), x),
        call(kernel, x, *_vectors(1, 4), y, mean, inv_std, **settings),
    ]


def _vectors(first: int, count: int) -> list:
    return [whole(first + index, SHAPE[1]) for index in range(count)]


def net(depth: int, activation: str | None = "relu", target: object = PAYING) -> Program:
    """Doubled, normalised and activated so many times; going back, both are read again."""
    calls, source = list[Call](), 0
    for number in range(1, depth + 1):
        calls += normalised(number, source, activation)
        source = 10 * number + 1
    derivative = source
    for number in range(depth, 0, -1):
        with_y, with_x = 10 * number + 5, 10 * number + 6
        calls.append(add(whole(derivative, *SHAPE), whole(10 * number + 1, *SHAPE), whole(with_y, *SHAPE)))
        calls.append(add(whole(with_y, *SHAPE), whole(10 * number, *SHAPE), whole(with_x, *SHAPE)))
        derivative = with_x
    made = program(*calls, copy(whole(derivative, *SHAPE), whole(5, *SHAPE)), held=[0, 1, 2, 3, 4, 5])
    return replace(made, target=target)


def again(placed: Placed) -> list[str]:
    return [i.kernel for i in placed.planned.instructions if i.repeats is not None]


def bits_are_equal(given: Program, placed: Placed) -> None:
    check_reads(placed.rewritten, placed.planned, placed.offsets)
    assert_same(given, placed.planned, placed.offsets)


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_fused_calls_pay_for_as_many_repeats_as_they_saved_time(activation):
    given = net(9, activation)
    placed = lower(given)
    made = [i for i in placed.planned.instructions if i.repeats is not None]
    assert {i.kernel for i in made} == {"batch_normalize_activation"}  # and never what goes into it, kept as long
    x = whole(10, *SHAPE)
    saved = 9 * seconds(replace(given.instructions[0], kernel="relu", operands=(x, x), settings={}))
    assert 0.5 * saved < sum(map(seconds, made)) <= saved
    assert placed.gains["paid_for"] > 0
    assert placed.plan.floor < lower(replace(given, target=TARGET)).plan.floor
    assert estimated_slowdown(placed.planned) == 0.0
    bits_are_equal(given, placed)


def test_nothing_is_repeated_where_nothing_was_saved(monkeypatch):
    assert not again(lower(net(9, target=TARGET)))
    assert not again(lower(net(9, activation=None)))
    monkeypatch.setenv("SINGA_LITE_PASSES", "-paid_for")
    assert not again(lower(net(9)))
