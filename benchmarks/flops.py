"""Floating-point operations of a recorded step: two a multiply-add, of products and convolutions alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any


def conv2d(x: Any, weight: Any, bias: Any, y: Any, **settings: Any) -> int:
    """Each element of y takes channels / groups * kh * kw multiply-adds, those with padding counted as well."""
    return 2 * prod(y.shape) * prod(weight.shape[1:])


def conv2d_derivative(dy: Any, weight: Any, dx: Any, **settings: Any) -> int:
    """As many as forward."""
    return 2 * prod(dy.shape) * prod(weight.shape[1:])


def conv2d_gradient(x: Any, dy: Any, dweight: Any, **settings: Any) -> int:
    """As many as forward."""
    return 2 * prod(dy.shape) * prod(dweight.shape[1:])


def linear(x: Any, weight: Any, bias: Any, y: Any) -> int:
    """x (n, in), y (n, out): n * in * out multiply-adds."""
    return 2 * prod(y.shape) * x.shape[-1]


def matmul(a: Any, b: Any, y: Any, *, transpose_a: bool, transpose_b: bool) -> int:
    """y (..., rows, columns): each element takes as many multiply-adds as a's inner extent."""
    return 2 * prod(y.shape) * a.shape[-2 if transpose_a else -1]


RULES: dict[str, Callable[..., int]] = {
    rule.__name__: rule for rule in (conv2d, conv2d_derivative, conv2d_gradient, linear, matmul)
}
#: A kernel whose name begins so multiplies matrices: without a rule it would go uncounted.
COUNTED = ("conv", "linear", "matmul")


def step_flops(instructions: Iterable[Any]) -> int:
    """The sum over recorded instructions (each with kernel, operands, settings). KeyError for one without a rule."""
    total = 0
    for instruction in instructions:
        if instruction.kernel in RULES:
            total += RULES[instruction.kernel](*instruction.operands, **instruction.settings)
        elif instruction.kernel.startswith(COUNTED):
            raise KeyError(f"kernel {instruction.kernel!r}: wanted a rule for it, there are those of {sorted(RULES)}")
    return total
