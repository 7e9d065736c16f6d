"""What kernels make of NaN, infinities, zeros of both signs and kinks, element by element: one table for all sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import e, exp, expm1, log, log1p, tanh
from typing import Any

NAN, INF = float("nan"), float("inf")

#: What activations are given below.
BEYOND = [NAN, INF, -INF, 0, -0.0, -10, 1e4, -1e4]
#: Pairs of which the first is NaN, the second, both, and others.
LEFT, RIGHT = [NAN, 1, NAN, 1, -INF, 2, INF, 3], [1, NAN, NAN, INF, 2, 2, -INF, -4]
WITHIN = {"low": -0.5, "high": 0.75}
SLOPE, ALPHA, HUBER = {"slope": 0.1}, {"alpha": 0.7}, {"delta": 0.7}


@dataclass(frozen=True)
class Edge:
    """A row for each tensor that is read or updated, all as long, and one for the result, which is the last tensor.

    rtol, atol: how far a result may be off. of_samples: the rows are samples of one element, as losses take them.
    """

    inputs: tuple[list[float], ...]
    wanted: list[float]
    settings: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-6
    atol: float = 1e-20
    of_samples: bool = False


def slopes(known: list[float], wanted: list[float], **settings: Any) -> Edge:
    """The derivative of an activation at each input or result `known`, where dy is 2."""
    return Edge(([2.0] * len(known), known), [2 * slope for slope in wanted], settings)


def passed(dy: list[float], known: float, wanted: list[float], **settings: Any) -> Edge:
    """What an activation's derivative makes of dy where its input or result is `known`."""
    return Edge((dy, [known] * len(dy)), wanted, settings)


def loss(wanted: list[float], **settings: Any) -> Edge:
    """Losses of these scores at targets of 1/2."""
    return Edge(([NAN, INF, -INF, 200, -200, 0], [0.5] * 6), wanted, settings, of_samples=True)


def loss_slope(wanted: list[float], **settings: Any) -> Edge:
    """Derivatives of these losses where dlosses is 1."""
    return Edge(([1.0] * 6, [NAN, INF, -INF, 200, -200, 0], [0.5] * 6), wanted, settings, of_samples=True)


#: "kernel" or "kernel:what".
EDGES: dict[str, Edge] = {
    "relu": Edge((BEYOND,), [NAN, INF, 0, 0, 0, 0, 1e4, 0]),
    "relu6": Edge((BEYOND,), [NAN, 6, 0, 0, 0, 0, 6, 0]),
    "leaky_relu": Edge((BEYOND,), [NAN, INF, -INF, 0, 0, -1, 1e4, -1e3], SLOPE),
    "elu": Edge((BEYOND,), [NAN, INF, -0.7, 0, 0, 0.7 * expm1(-10), 1e4, -0.7], ALPHA),
    "sigmoid": Edge((BEYOND,), [NAN, 1, 0, 0.5, 0.5, 1 / (1 + exp(10)), 1, 0]),
    "tanh": Edge((BEYOND,), [NAN, 1, -1, 0, 0, tanh(-10), 1, -1]),
    "gelu": Edge((BEYOND,), [NAN, INF, 0, 0, 0, 0, 1e4, 0]),
    "gelu_tanh": Edge((BEYOND,), [NAN, INF, 0, 0, 0, 0, 1e4, 0]),
    "silu": Edge((BEYOND,), [NAN, INF, NAN, 0, 0, -10 / (1 + exp(10)), 1e4, 0]),
    "softplus": Edge((BEYOND,), [NAN, INF, 0, log(2), log(2), log1p(exp(-10)), 1e4, 0]),
    # At kinks, far out, and where the input or result is NaN.
    "relu_derivative": slopes([0, -0.0, 1e-30, 3, 7], [0, 0, 1, 1, 1]),
    "relu6_derivative": slopes([0, 6, 1e-30, 3, 5.9999995], [0, 0, 1, 1, 1]),
    "leaky_relu_derivative": slopes([0, -0.0, 1e-30, 3, -2, INF], [0.1, 0.1, 1, 1, 0.1, 1], **SLOPE),
    "elu_derivative": slopes([0, -0.0, 1e-30, 3, -0.5, NAN], [0.7, 0.7, 1, 1, 0.2, NAN], **ALPHA),
    "gelu_derivative": slopes([0, -0.0, INF, -INF, 50, -50, NAN], [0.5, 0.5, 1, 0, 1, 0, NAN]),
    "gelu_tanh_derivative": slopes([0, -0.0, INF, -INF, 50, -50, NAN], [0.5, 0.5, 1, 0, 1, 0, NAN]),
    "silu_derivative": slopes([0, 1000, -80, 90, -0.0, NAN], [0.5, 1, 0, 1, 0.5, NAN]),
    "softplus_derivative": slopes([0, INF, log(2), 90, 1e-30, NAN], [0, 1, 0.5, 1, 1e-30, NAN]),
    "relu_derivative:of NaN": slopes([NAN, 3], [0, 1]),
    "relu6_derivative:of NaN": slopes([NAN, 3], [0, 1]),
    # A closed unit stops all.
    "relu_derivative:closed": passed([INF, -INF, NAN, 1], -0.0, [0, 0, 0, 0]),
    "relu6_derivative:closed": passed([INF, -INF, NAN, 1], 0.0, [0, 0, 0, 0]),
    "relu6_derivative:closed above": passed([INF, -INF, NAN, 1], 6.0, [0, 0, 0, 0]),
    # An open one passes NaN and infinities on.
    "relu_derivative:open": passed([1, NAN, 3, -INF], 0.5, [1, NAN, 3, -INF]),
    "relu6_derivative:open": passed([1, NAN, 3, -INF], 0.5, [1, NAN, 3, -INF]),
    "leaky_relu_derivative:open": passed([1, NAN, 3], 0.5, [1, NAN, 3], **SLOPE),
    "elu_derivative:open": passed([1, NAN, 3], 0.5, [1, NAN, 3], **ALPHA),
    "sigmoid_derivative": passed([1, NAN, 3], 0.5, [0.25, NAN, 0.75]),
    "tanh_derivative": passed([1, NAN, 3], 0.5, [0.75, NAN, 2.25]),
    "gelu_derivative:open": passed([1, NAN, 3], 0.0, [0.5, NAN, 1.5]),
    "gelu_tanh_derivative:open": passed([1, NAN, 3], 0.0, [0.5, NAN, 1.5]),
    "silu_derivative:open": passed([1, NAN, 3], 0.0, [0.5, NAN, 1.5]),
    "softplus_derivative:open": passed([1, NAN, 3], log(2), [0.5, NAN, 1.5]),
    "exp": Edge(([NAN, INF, -INF, 1000, -1000, 0],), [NAN, INF, 0, INF, 0, 1]),
    "log": Edge(([NAN, INF, 0, -0.0, -1, 1, e],), [NAN, INF, -INF, -INF, NAN, 0, 1]),
    "divide": Edge(([1, -1, 0, NAN, INF], [0.0] * 5), [INF, -INF, NAN, NAN, INF]),
    "power:root": Edge(
        ([0, 1e-30, 0.25, 4, 1e15, INF, NAN, -1],),
        [0, 1e-15, 0.5, 2, 1e15**0.5, INF, NAN, NAN],
        {"exponent": 0.5},
        2e-7,
    ),
    "power:square": Edge(
        ([0, 1e-10, -0.5, 2, 1e15, -INF, NAN],), [0, 1e-20, 0.25, 4, 1e30, INF, NAN], {"exponent": 2.0}, 2e-7
    ),
    "power:inverse": Edge(([0, 1e-30, -4, INF, NAN],), [INF, 1e30, -0.25, 0, NAN], {"exponent": -1.0}, 2e-7),
    "power:inverse root": Edge(([0.0, -1.0, 4.0],), [INF, NAN, 0.5], {"exponent": -0.5}, 2e-7),
    "absolute": Edge(([NAN, INF, -INF, 0, -0.0, -10, 1e-30],), [NAN, INF, INF, 0, 0, 10, 1e-30]),
    "absolute_derivative": slopes([3, -2, 0, -0.0, INF, -INF, NAN], [1, -1, 0, 0, 1, -1, 0]),
    "absolute_derivative:of NaN and infinity": passed([NAN, INF, -INF], -3.0, [NAN, -INF, INF]),
    "clip": Edge(([NAN, 2, -2, INF, -INF, 0.25, -0.5],), [NAN, 0.75, -0.5, 0.75, -0.5, 0.25, -0.5], WITHIN),
    "clip:one bound": Edge(([NAN, 2, -2, INF, -INF],), [NAN, 0.75, -2, 0.75, -INF], {"low": -INF, "high": 0.75}),
    "clip:no bound": Edge(([NAN, 2, INF, -INF],), [NAN, 2, INF, -INF], {"low": -INF, "high": INF}),
    "clip_derivative": slopes([0, -0.5, 0.75, 0.7500001, -0.6, INF, -INF, NAN], [1, 1, 1, 0, 0, 0, 0, 0], **WITHIN),
    "clip_derivative:closed": passed([INF, -INF, NAN, 1], 0.8, [0, 0, 0, 0], **WITHIN),
    "clip_derivative:open": passed([INF, -INF, NAN, 1], 0.7, [INF, -INF, NAN, 1], **WITHIN),
    "maximum": Edge((LEFT, RIGHT), [NAN, NAN, NAN, INF, 2, 2, INF, 3]),
    "minimum": Edge((LEFT, RIGHT), [NAN, NAN, NAN, 1, -INF, 2, -INF, -4]),
    "maximum_derivative": Edge(([2.0] * 8, LEFT, RIGHT), [2, 2, 2, 0, 0, 1, 2, 2]),
    "maximum_derivative:of infinity": Edge(([INF, NAN, INF], [1, 1, 2], [2, 2, 2]), [0, 0, INF]),
    "compare": Edge((LEFT, RIGHT), [0, 0, 0, 1, 1, 0, 0, 0], {"relation": "less"}),
    "compare:or equal": Edge((LEFT, RIGHT), [0, 0, 0, 1, 1, 1, 0, 0], {"relation": "less_equal"}),
    "compare:equal": Edge((LEFT, RIGHT), [0, 0, 0, 0, 0, 1, 0, 0], {"relation": "equal"}),
    "compare:not equal": Edge((LEFT, RIGHT), [1, 1, 1, 1, 1, 0, 1, 1], {"relation": "not_equal"}),
    "clip_elements": Edge(
        ([NAN, 2, -2, INF, -INF, 0.25, -0.25],), [NAN, 0.5, -0.5, 0.5, -0.5, 0.25, -0.25], {"threshold": 0.5}
    ),
    "sigmoid_cross_entropy": loss([NAN, NAN, INF, 100, 100, log(2)]),
    "sigmoid_cross_entropy_derivative": loss_slope([NAN, 0.5, -0.5, 0.5, -0.5, 0]),
    "huber": loss([NAN, INF, INF, 0.7 * 199.15, 0.7 * 200.15, 0.125], **HUBER),
    "huber_derivative": loss_slope([NAN, 0.7, -0.7, 0.7, -0.7, -0.5], **HUBER),
    "squared_error": Edge(([NAN, INF, -INF, 200, 0], [0.5] * 5), [NAN, INF, INF, 199.5**2 / 2, 0.125]),
    "squared_error_derivative": Edge(([1.0] * 4, [NAN, INF, -INF, 0], [0.5] * 4), [NAN, INF, -INF, -0.5]),
}


#: Kernels in which NumPy warns of infinity by infinity; all others do their work in silence.
NUMPY_WARNS = {"silu", "sigmoid_cross_entropy"}
