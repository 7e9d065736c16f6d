"""Estimated seconds: by multiply-adds, which are counted by hand here, and by bytes, each class at its own rate."""

from __future__ import annotations

import pytest

from programs import Call, call, instructions, relu, whole
from singa_lite.kernels.interface.window import Window
from singa_lite.passes.time_model import flops, seconds

X, Y = whole(0, 5, 6000), whole(1, 5, 6000)


def attention(causal: bool) -> Call:
    """2 samples of 3 rows and 5 keys, 4 heads of 7, in groups of two."""
    q, k, v, y = whole(0, 2, 3, 4, 7), whole(1, 2, 5, 2, 7), whole(2, 2, 5, 2, 7), whole(3, 2, 3, 4, 7)
    return call("attention", q, k, v, None, y, whole(4, 2, 4, 3), causal=causal, scale=1.0)


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
