"""Calls that have some operands in 16 bits and others in float32, by builders that want one dtype.

    y16 = linear(x16, weight32, bias32)   ->   scratch16 = weight32;  y16 = linear(x16, scratch16, ...)

What has to change is copied in scratch, on the GPU. Products are done in 16 bits, for which GPUs have their fastest
units: all of them add up in float32. All others are done in float32, so that statistics lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import wraps

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.strides import laid_out, memory_order
from singa_lite.kernels.built import Builder
from singa_lite.kernels.cuda_kernels.elementwise import copy
from singa_lite.kernels.cuda_kernels.routine import BufferView, Routine
from singa_lite.kernels.cuda_kernels.source import HALVES
from singa_lite.kernels.interface import SIGNATURES, Signature
from singa_lite.kernels.kernel_set import Settings, TensorSpec, TensorSpecs

_WIDE = np.dtype(np.float32)
#: What each operand is to be, None where it stays.
_DTypes = Sequence[DType | None]


def mixed(name: str, build: Builder[Routine], in_float32: bool) -> Builder[Routine]:
    """The builder of that kernel, which also serves calls that mix float32 with a dtype of 16 bits.

    in_float32: whether all may be done in float32 at last; of a library, the set below may do better.
    """

    signature = SIGNATURES[name]

    @wraps(build)
    def built(*specs: TensorSpec | None, **settings: object) -> Routine | None:
        found = build(*specs, **settings)
        if found is not None:
            return found
        forms = (_in_dtypes(specs, dtypes) for dtypes in _conversions(signature, specs, in_float32))
        tried = (over_copies(signature, build, specs, settings, form) for form in forms)
        return next((routine for routine in tried if routine is not None), None)

    return built


def _conversions(signature: Signature, specs: TensorSpecs, in_float32: bool) -> Iterator[_DTypes]:
    """What the operands may be converted to, the best first; none where they do not mix."""
    given = {spec.dtype for spec in specs if spec is not None}
    halves = [dtype for dtype in given if dtype.name in HALVES]
    if len(halves) != 1 or _WIDE not in given:
        return
    if signature.facts.multiplies:
        yield _narrowed(signature, specs, halves[0], results=False)
        yield _narrowed(signature, specs, halves[0], results=True)
    if in_float32:
        yield [_WIDE if spec is not None and spec.dtype == halves[0] else None for spec in specs]


def _narrowed(signature: Signature, specs: TensorSpecs, half: DType, results: bool) -> _DTypes:
    """float32 operands in 16 bits; of results as they are, if they may not be. A bias is as what it is added to."""

    def wanted(tensor: str, role: str, spec: TensorSpec | None) -> DType | None:
        if spec is None or spec.dtype != _WIDE or (role == "Write" and not results):
            return None
        kept = tensor == "bias" and not results and _WIDE in written
        return None if kept else half

    operands = list(zip(signature.tensors, signature.roles, specs, strict=True))
    written = {spec.dtype for _, role, spec in operands if spec is not None and role == "Write"}
    return [wanted(*operand) for operand in operands]


def over_copies(
    signature: Signature, build: Builder[Routine], specs: TensorSpecs, settings: Settings, forms: TensorSpecs
) -> Routine | None:
    """The routine over copies of operands in the scratch; None where the builder has none.

    forms: of each operand that is copied the spec of its copy, which has no gaps; None for one that stays.
    """
    routine, given, copies = Routine(), list(specs), dict[TensorSpec, BufferView]()
    before, behind = list[Routine | None](), list[Routine | None]()
    for index, (spec, made, role) in enumerate(zip(specs, forms, signature.roles, strict=True)):
        if spec is None or made is None:
            continue
        given[index] = made
        copies[made] = routine.temporary((spec.size,), made.dtype)
        if role != "Write":
            before.append(copy(spec, made))
        if role != "Read":
            behind.append(copy(made, spec))
    inner = build(*given, **settings)
    if inner is None:
        return None
    parts = [*before, inner.behind(routine.temporary_bytes), *behind]
    for part in parts:
        if part is None:
            return None
        routine.then(part.over(copies))
    return routine


def _in_dtypes(specs: TensorSpecs, dtypes: _DTypes) -> TensorSpecs:
    """The operands in the dtypes that they are to have."""
    pairs = zip(specs, dtypes, strict=True)
    return tuple(None if spec is None or dtype is None else _dense_like(spec, dtype) for spec, dtype in pairs)


def _dense_like(spec: TensorSpec, dtype: DType) -> TensorSpec:
    """Without gaps, its axes in memory in the same order."""
    axes = memory_order(spec.shape, spec.strides)
    return TensorSpec(spec.shape, dtype, laid_out(spec.shape, axes, dtype.itemsize))
