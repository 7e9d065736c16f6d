"""Calls in pieces of their batch, where a kernel does each sample by itself (`Facts.by_samples`).

summed: where it sums over samples instead (`Facts.sums_over`), so that the results of all pieces have to be added.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import TypeAlias, TypeVar

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import TensorSpec, TensorSpecs

Arrays: TypeAlias = tuple[Array | None, ...]
Operand = TypeVar("Operand")


def required(operand: Operand | None) -> Operand:
    """An operand that a call of this kernel has. ValueError where it is left out."""
    if operand is None:
        raise ValueError("wanted an operand that the kernel cannot do without, received None")
    return operand


def pieces(name: str, specs: TensorSpecs, nbytes: int, summed: bool = False) -> list[slice]:
    """The samples of each piece, as even as can be, so that four bytes for each of its elements are at most `nbytes`.

    A piece has at least one sample. [] where the call is to be done as a whole.
    """
    tensors, joins = SIGNATURES[name].tensors, SIGNATURES[name].facts.joins_samples
    if joins and specs[tensors.index(joins)] is not None:
        return []
    axes = zip(specs, _batched(name, summed), strict=True)
    batched = [spec for spec, is_batched in axes if spec is not None and is_batched]
    if not batched or not _lie_along(name, batched):
        return []
    samples = batched[0].shape[0]
    each = 4 * sum(prod(spec.shape[1:]) for spec in batched)
    number = -(-samples // max(1, nbytes // max(1, each)))
    ends = [samples * at // number for at in range(number + 1)] if number > 1 else []
    return [slice(start, stop) for start, stop in pairwise(ends)]


def cut_specs(name: str, specs: TensorSpecs, piece: slice, summed: bool = False) -> TensorSpecs:
    """Of the call for these samples."""
    length = piece.stop - piece.start
    return tuple(
        TensorSpec((length, *spec.shape[1:]), spec.dtype, spec.strides) if spec is not None and is_batched else spec
        for spec, is_batched in zip(specs, _batched(name, summed), strict=True)
    )


def cut_arrays(name: str, arrays: Arrays, piece: slice, summed: bool = False) -> Arrays:
    """Views of these samples, of those arrays that have any."""
    return tuple(
        array[piece] if array is not None and is_batched else array
        for array, is_batched in zip(arrays, _batched(name, summed), strict=True)
    )


def _batched(name: str, summed: bool) -> list[bool]:
    """Of each tensor of the kernel, whether its axis 0 are samples."""
    signature = SIGNATURES[name]
    batched = signature.facts.sums_over if summed else signature.facts.by_samples
    return [tensor in batched for tensor in signature.tensors]


def _lie_along(name: str, batched: list[TensorSpec]) -> bool:
    """Whether all have the samples along axis 0, and none is broadcast, as element-wise kernels allow."""
    if any(not spec.shape for spec in batched) or len({spec.shape[0] for spec in batched}) > 1:
        return False
    return SIGNATURES[name].family != "elementwise" or len({spec.shape for spec in batched}) == 1
