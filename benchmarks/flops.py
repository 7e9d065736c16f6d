"""Floating-point operations of a recorded step: two a multiply-add, of products and convolutions alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from singa_lite.compiler.ir.time_model import multiply_adds
from singa_lite.kernels.interface import SIGNATURES

#: A kernel whose name begins so multiplies matrices: one that the interface does not say so of would go uncounted.
COUNTED = ("attention", "conv", "linear", "matmul")


def step_flops(instructions: Iterable[Any]) -> int:
    """The sum over recorded instructions (each with kernel, operands or tensors, settings).

    KeyError for a product that the interface does not name as one.
    """
    return sum(2 * _multiply_adds(instruction) for instruction in instructions)


def _multiply_adds(instruction: Any) -> int:
    kernel = instruction.kernel
    multiplies = kernel in SIGNATURES and SIGNATURES[kernel].facts.multiplies
    if kernel.startswith(COUNTED) and not multiplies:
        raise KeyError(f"kernel {kernel!r}: wanted one that the interface names as a product (`Facts.multiplies`)")
    return multiply_adds(kernel, instruction.operands, instruction.settings)
