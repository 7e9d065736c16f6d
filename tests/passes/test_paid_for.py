"""Repeats without a limit: as many as fused calls pay for, of what one cheap call makes again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs import (
    TARGET,
    Call,
    add,
    assert_same,
    call,
    copy,
    double,
    instructions,
    program,
    relu,
    whole,
    with_options,
)
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.time_model import flops, seconds
from singa_lite.compiler.lower import lower
from singa_lite.compiler.placed import Placed
from singa_lite.compiler.proof.read_from import check_reads
from singa_lite.compiler.recompute.budget import estimated_slowdown
from singa_lite.kernels.interface.window import Window

SHAPE = 5, 3, 4000
PAYING = replace(TARGET, in_one_pass=lambda *call: True)


def normalised(number: int, source: int, activation: str | None = "relu") -> list[Call]:
    """Blocks from 10 times the number on: x, y, mean, inv_std; the vectors 1 to 4 are held."""
    x, y, mean, inv_std = (whole(10 * number, *SHAPE), whole(10 * number + 1, *SHAPE), *_vectors(10 * number + 2, 2))
    settings = {"momentum": 0.1, "epsilon": 1e-5} | ({} if activation is None else {"activation": activation})
    return [
        double(whole(source, *SHAPE), x),
        call("batch_norm", x, *_vectors(1, 4), None, y, mean, inv_std, **settings),
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
    assert {with_options(i) for i in made} == {
        f"batch_normalize+{activation}"
    }  # and never what goes into it, kept as long
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


# --- estimated seconds

X, Y = whole(0, 5, 6000), whole(1, 5, 6000)


def attention(causal: bool) -> Call:
    """2 samples of 3 rows and 5 keys, 4 heads of 7, in groups of two."""
    q, k, v, y = whole(0, 2, 3, 4, 7), whole(1, 2, 5, 2, 7), whole(2, 2, 5, 2, 7), whole(3, 2, 3, 4, 7)
    return call("attention", q, k, v, None, None, None, y, whole(4, 2, 4, 3), causal=causal, scale=1.0)


def conv2d(channels: int, kernels: int, groups: int) -> Call:
    """2 images of 9 x 7, filters of 3 x 3, no bias: 2 * kernels * 9 * 7 results."""
    x, y = whole(0, 2, channels, 9, 7), whole(1, 2, kernels, 9, 7)
    weight = whole(2, kernels, channels // groups, 3, 3)
    return call("conv2d", x, weight, None, y, window=Window((3, 3), pad=(1, 1, 1, 1)), groups=groups)


def lstm() -> Call:
    """5 steps of 3 samples, 2 units: at each step of each sample, 2 numbers by 8 columns."""
    gates, given = whole(5, 5, 3, 8), [whole(0, 5, 3, 8), whole(1, 2, 8), None, None, None]
    states = whole(6, 6, 3, 2), whole(7, 6, 3, 2)
    return call("lstm", *given, gates, *states, reverse=False, recurrent_activation="sigmoid")


def of(made: Call) -> float:
    return seconds(instructions(made)[0])


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (conv2d(32, 64, 1), 2 * (2 * 64 * 9 * 7) * (32 * 9)),
        (conv2d(64, 64, 64), 2 * (2 * 64 * 9 * 7) * 9),
        (
            call("matmul", whole(0, 5, 3), whole(1, 7, 5), whole(2, 3, 7), transpose_a=True, transpose_b=True),
            2 * 3 * 5 * 7,
        ),
        (attention(False), 2 * 2 * (2 * 4 * 3 * 5) * 7),
        (attention(True), 2 * 2 * (2 * 4 * (1 + 2 + 3)) * 7),
        (relu(X, Y), 0),
        (lstm(), 2 * (5 * 3) * (2 * 8)),
    ],
    ids=["dense", "depthwise", "matmul", "attention", "causal attention", "relu", "recurrent"],
)
def test_two_operations_a_multiply_add(made, wanted):
    assert flops(instructions(made)[0]) == wanted
