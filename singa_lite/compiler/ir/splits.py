"""Splits: how a call may be done for some rows at a time, and what its pieces make of pieces of its operands."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.state_format import BLOCKED

#: Kernels whose splits are said of matrices alone.
_OF_MATRICES = ("matmul", "linear", "linear_gradient", "bias_gradient")


class Split(NamedTuple):
    """The axes along which a call is cut. axes: {tensor: the axis along which it is cut}; all others are whole. sums:
    whether results that are whole are sums over what is cut, so that those of pieces are added up.
    """

    axes: dict[str, int]
    sums: bool = False


def splits(instruction: Instruction) -> Iterator[Split]:
    """All ways to split a call, by what its kernel says of itself."""
    kernel, settings = instruction.kernel, instruction.settings
    facts = SIGNATURES[kernel].facts
    if kernel in _OF_MATRICES and any(o is not None and len(o.shape) > 2 for o in instruction.operands):
        return  # of many matrices at a time
    if kernel == "matmul":
        turned_a, turned_b = bool(settings["transpose_a"]), bool(settings["transpose_b"])
        yield Split({"a": int(turned_a), "y": 0})
        yield Split({"b": int(not turned_b), "y": 1})
        yield Split({"a": int(not turned_a), "b": int(turned_b)}, sums=True)
    elif kernel == "linear":
        yield Split({"x": 0, "y": 0})
        yield Split({"weight": 1, "bias": 0, "y": 1})
    elif kernel == "linear_gradient":
        yield Split({"x": 1, "dweight": 0})
        yield Split({"dy": 1, "dweight": 1, "dbias": 0})
        yield Split({"x": 0, "dy": 0}, sums=True)
    elif kernel in ("embedding_gradient", "embedding_gradient_add"):
        yield Split({"dweight": 0})
    elif kernel == "bias_gradient" and settings["axis"] in (1, -1) and len(instruction.reads[0].shape) == 2:
        yield Split({"dy": 0}, sums=True)
    elif kernel == "softmax_classes_derivative":
        yield Split({"x": 1, "dx": 1})
    elif facts.by_elements:
        yield from _by_elements(instruction)
    else:
        yield from _by_samples(instruction)


def _by_elements(instruction: Instruction) -> Iterator[Split]:
    """An update: whatever has the gradient's elements along an axis is cut with it, state in blocks of 8 bits too."""
    named = {name: operand for name, operand in instruction.by_name.items() if operand is not None}
    gradient = max((o for o in named.values() if o.dtype != BLOCKED), key=lambda operand: prod(operand.shape))
    beside = {name: o for name, o in named.items() if len(o.shape) == len(gradient.shape) or o.dtype == BLOCKED}
    for axis, extent in enumerate(gradient.shape):
        cut = [name for name, o in beside.items() if o.dtype == BLOCKED or o.shape[axis] == extent]
        yield Split(dict.fromkeys(cut, axis), sums=instruction.kernel == "add_squares")


def _by_samples(instruction: Instruction) -> Iterator[Split]:
    """Axis 0 of what the kernel says. What is broadcast is not cut."""
    signature, named = SIGNATURES[instruction.kernel], instruction.by_name
    cut = {name: o for name in instruction.by_samples if (o := named[name]) is not None}
    if not cut or not all(operand.shape for operand in cut.values()):
        return  # one sample alone
    if signature.family != "elementwise" or len({o.shape for o in cut.values()}) == 1:
        yield Split(dict.fromkeys(cut, 0))
