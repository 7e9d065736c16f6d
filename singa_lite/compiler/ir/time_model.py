"""Estimated seconds of a kernel call, by a rule for its class: what a repeat costs is weighed against what it frees.

A call takes as long as its multiply-adds and the bytes that it reads and writes, these as often as its family goes over
them, one after the other. The rates stand for one core of a CPU with AVX2, as read call by call from ResNet-50,
MobileNetV2, U-Net and DenseNet-121 with oneDNN's kernels; only their ratios decide which repeats are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

from singa_lite.compiler.ir.footprint import axis_order
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.remembered import remembered
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.kernels.kernel_set import Settings
from singa_lite.tensor import Shape

#: Bytes of a copy that take as long as a number of a quantised block.
NUMBER = 2.0
#: Floating-point operations and bytes a second, and seconds of a call that does next to nothing.
FLOPS = 80e9
BYTES = 14e9
CALL = 3e-6
#: Channels of a group that a convolution does at once: by fewer it is slower by as much.
LANES = 4
#: Of the rate, what a gradient by filters reaches, which sums over all images: of filters of one element, and larger.
OF_GRADIENT, OF_LARGER_GRADIENT = 0.7, 0.4
#: What a call takes for its bytes, in times of one that copies as many, by family. Random numbers are made one by one.
PASSES = {"normalization": 4.0, "pooling": 4.0, "reduction": 4.0, "random": 60.0}
#: The same of a normalisation's derivative, and of what makes its result again, by statistics that are there.
BY_STATISTICS, AGAIN = 2.0, 1.2
#: Of an operand whose rows have gaps between them, as pieces of concatenations have, what going through a scratch takes
#: besides, in times of a copy of its bytes.
GAPPED = 3.0
#: The same of a normalisation with the sum behind it, whose other tensor is read once; and of its
#: derivative, which is added to another one.
SUMMED, SUMMED_BACK = 3.0, 1.8
#: The same of an activation by exponentials, and of one that is bounded above and below.
EXPONENTIAL, BOUNDED = 20.0, 2.0
#: The same of those that the library makes of polynomials, or in one call with what is beside the exponential.
OF_ACTIVATIONS = {"gelu": 2.5, "gelu_tanh": 2.5}


#: Of a call, the seconds.
Cost = Callable[[Instruction], float]


class Shaped(Protocol):
    """Whatever has a shape."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def seconds(instruction: Instruction) -> float:
    """Of one call. What is read is computed with soon after, so the two hardly overlap on one core."""
    given = (operand for operand in instruction.operands if operand is not None)
    gapped = sum(o.nbytes for o in given if _has_gaps(o.shape, o.strides, o.dtype.itemsize))
    return seconds_without_gaps(instruction) + GAPPED * gapped / BYTES


def seconds_without_gaps(instruction: Instruction) -> float:
    """Of the same call over tensors whose rows have no gaps between them."""
    moved = NUMBER * _quantized_numbers(instruction)
    moved += sum(operand.nbytes for operand in instruction.operands if operand is not None)
    return CALL + _passes(instruction) * moved / BYTES + flops(instruction) / _rate(instruction)


def flops(instruction: Instruction) -> int:
    """Two for each multiply-add of convolutions, products, attention and recurrent layers, 0 of any other kernel."""
    return 2 * multiply_adds(instruction.kernel, instruction.operands, instruction.settings)


def multiply_adds(kernel: str, operands: Sequence[Shaped | None], settings: Settings) -> int:
    """Of one call of a kernel of the interface: those with padding count as well."""
    signature = SIGNATURES[kernel]
    if not signature.facts.multiplies:
        return 0
    named: dict[str, Any] = dict(zip(signature.tensors, operands, strict=True))
    if signature.facts.multiplies == "scores":
        return _of_scores(named, bool(settings.get("causal")))
    if signature.facts.multiplies == "steps":
        steps = named["gates_in"] if "gates_in" in named else named["dgates"]
        return int(prod(steps.shape[:2]) * prod(named["weight"].shape))
    if signature.facts.multiplies == "blocks":
        x, y = (named.get(one) or named[other] for one, other in (("x", "dy"), ("y", "dx")))
        return int(prod(y.shape) * x.shape[-1])
    if signature.family == "low_rank":
        given, y = named["x"], named.get("dy") or named["y"]
        return int((prod(given.shape) + prod(y.shape)) * named["h"].shape[1] * (2 if "dy" in named else 1))
    if kernel in ("matmul", "matmul_add"):
        a, y = named["a"], named["y"]
        return int(prod(y.shape) * a.shape[-2 if settings["transpose_a"] else -1])
    weight, y = named.get("weight") or named.get("dweight"), named.get("dy") or named.get("y")
    if weight is None or y is None:
        return 0
    each = prod(weight.shape[1:]) if signature.facts.multiplies == "patches" else weight.shape[0]
    return int(prod(y.shape) * each)


def _quantized_numbers(instruction: Instruction) -> int:
    """Numbers of quantised blocks that a call makes."""
    if SIGNATURES[instruction.kernel].family != "quantized":
        return 0
    named, table = instruction.by_name, instruction.by_name["blocks"]
    y = named.get("dx") or named.get("y")
    if y is None or table is None:
        return 0
    columns = FORMATS[str(instruction.settings["format"])].columns(table.shape[1])
    rows = prod(y.shape[:-1]) if instruction.kernel == "quantized_embedding" else table.shape[0]
    return rows * columns


@remembered(4096)
def _has_gaps(shape: Shape, strides: Shape, itemsize: int) -> bool:
    """True if a tensor has gaps between rows, and not only between the parts along its outermost axis. A matrix has
    none that count: products take them as they are.
    """
    if len(shape) <= 2:
        return False
    run, order = itemsize, axis_order(shape, strides)
    for axis in reversed(order):
        if strides[axis] > run:
            return axis != order[0]
        run *= shape[axis]
    return False


def _of_scores(named: dict[str, Any], causal: bool) -> int:
    """Products of each row with each key that it may see: two forward, backward five, one of them made again."""
    (samples, rows, heads, size), keys = named["q"].shape, (named.get("k") or named["keys"]).shape[1]
    early = min(rows, keys)
    seen = early * (early + 1) // 2 + (rows - early) * keys if causal else rows * keys
    return int(samples * heads * size * seen * (5 if "dy" in named else 2))


def _passes(instruction: Instruction) -> float:
    kernel, signature = instruction.kernel, SIGNATURES[instruction.kernel]
    family, tensors = signature.family, signature.tensors
    if signature.facts.multiplies:
        return 1.0
    if family == "activation" and "x" in tensors and "dy" not in tensors:
        if not signature.facts.commutes_with_max:
            return OF_ACTIVATIONS.get(kernel, EXPONENTIAL)
        return BOUNDED if kernel == "relu6" else 1.0
    if kernel in _makes_again():  # whatever activation is behind is done on the way
        return AGAIN
    is_summed = instruction.by_name.get("other") is not None
    if {"dy", "mean", "inv_std"} <= {*tensors}:  # the derivative of a normalisation
        if is_summed:
            return SUMMED_BACK
        return PASSES[family] if instruction.settings.get("activation") else BY_STATISTICS
    return SUMMED if is_summed else PASSES.get(family, 1.0)


@remembered(1)
def _makes_again() -> frozenset[str]:
    """Kernels that give another one's result again, from what it kept."""
    return frozenset(signature.facts.again for signature in SIGNATURES.values()) - {""}


def _rate(instruction: Instruction) -> float:
    """Floating-point operations a second."""
    named = instruction.by_name
    weight, dweight = named.get("weight"), named.get("dweight")
    filters = weight or dweight
    is_grouped = filters is not None and instruction.settings.get("groups", 1) != 1
    rate = FLOPS * min(1.0, filters.shape[1] / LANES) if is_grouped and filters is not None else FLOPS
    if dweight is None or len(dweight.shape) <= 2:
        return rate
    return rate * (OF_GRADIENT if prod(dweight.shape[2:]) == 1 else OF_LARGER_GRADIENT)
