"""Calls by builders that want other operands, over copies of operands in scratch, on the GPU.

    y16 = linear(x16, weight32, bias32)   ->   scratch16 = weight32;  y16 = linear(x16, scratch16, ...)

Builders that want one dtype are given one. Products are done in 16 bits, for which GPUs have their fastest units: all
of them add up in float32. But where a weight alone has 16 bits, activations are not rounded: it is widened. All others
are done in float32, so that statistics lose nothing. Builders that want C order get copies of operands with gaps, or in
another order of axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.strides import memory_order, ordered_strides, span
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import copied
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.source import HALVES
from singa_lite.kernels.cuda_kernels.walk import VECTOR_BYTES, dense
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import TensorSpec

_WIDE = np.dtype(np.float32)
#: The spec of the copy of each operand that is copied.
_Copies = Mapping[str, TensorSpec]


def mixed(build: CallBuilder[Routine]) -> CallBuilder[Routine]:
    """Returns a builder that also serves calls that mix float32 with a dtype of 16 bits, over converted copies."""

    def built(call: Call) -> Routine | None:
        found = build(call)
        if found is not None:
            return found
        tried = (_over_copies(call, build, copies) for copies in _conversions(call))
        return next((routine for routine in tried if routine is not None), None)

    return built


def in_any_strides(build: CallBuilder[Routine]) -> CallBuilder[Routine]:
    """Returns a builder that tries copies of the operands in C order where the given one declines their strides."""
    over_copies = without_gaps(build)
    return lambda call: build(call) or over_copies(call)


def without_gaps(build: CallBuilder[Routine], but: str = "") -> CallBuilder[Routine]:
    """Returns the builder over operands in C order: all others are copied. but: an operand that is not copied."""

    def built(call: Call) -> Routine | None:
        plain = {name: dense(spec.shape, spec.dtype) for name, spec in call.operands.items()}
        copies = {name: spec for name, spec in plain.items() if name != but and not _lie_alike(call[name], spec)}
        return _over_copies(call, build, copies) if copies else build(call)

    return built


def _conversions(call: Call) -> Iterator[_Copies]:
    """Operands that may be converted, the best choice first; none where dtypes do not mix."""
    given = {spec.dtype for spec in call.operands.values()}
    halves = [dtype for dtype in given if dtype.name in HALVES]
    if len(halves) != 1 or _WIDE not in given:
        return
    narrow = [name for name, spec in call.operands.items() if spec.dtype == halves[0]]
    if narrow in (["weight"], ["b"]) and not call.settings.get("transpose_a"):
        yield {narrow[0]: call[narrow[0]].without_gaps(_WIDE)}
        return
    if SIGNATURES[call.kernel].facts.multiplies:
        yield _narrowed(call, halves[0], results=False)
        yield _narrowed(call, halves[0], results=True)
    yield {name: spec.without_gaps(_WIDE) for name, spec in call.operands.items() if spec.dtype == halves[0]}


def _narrowed(call: Call, half: DType, results: bool) -> _Copies:
    """float32 operands in 16 bits; of results as they are, if they may not be. A bias is as what it is added to."""
    stay = set[str]() if results else {name for name, spec in call.operands.items() if call.role(spec) == "Write"}
    if any(call[name].dtype == _WIDE for name in stay):
        stay.add("bias")
    wide = {name: spec for name, spec in call.operands.items() if spec.dtype == _WIDE and name not in stay}
    like = _with_aligned_rows if SIGNATURES[call.kernel].facts.multiplies == "tensors" else TensorSpec.without_gaps
    return {name: like(spec, half) for name, spec in wide.items()}


def _over_copies(call: Call, build: CallBuilder[Routine], copies: _Copies) -> Routine | None:
    """The routine over copies in the scratch; None where the builder has none."""
    routine = Routine()
    buffers = {spec: routine.temporary((_spanned_elements(spec),), spec.dtype) for spec in copies.values()}
    inner = build(replace(call, operands={**call.operands, **copies}))
    if inner is None:
        return None
    roles = dict(zip(SIGNATURES[call.kernel].tensors, SIGNATURES[call.kernel].roles, strict=True))
    before = [copied(call[name], spec) for name, spec in copies.items() if roles[name] != "Write"]
    behind = [copied(spec, call[name]) for name, spec in copies.items() if roles[name] != "Read"]
    for part in [*before, inner.behind(routine.temporary_bytes), *behind]:
        if part is None:
            return None
        routine.then(part.over(buffers))
    return routine


def _with_aligned_rows(spec: TensorSpec, dtype: DType) -> TensorSpec:
    """`spec.without_gaps`, but that rows of matrices begin at multiples of 16 bytes: products are faster so."""
    axes = memory_order(spec.shape, spec.strides)
    padded = [*spec.shape]
    if spec.ndim > 1:
        padded[axes[-1]] += -padded[axes[-1]] % (VECTOR_BYTES // dtype.itemsize)
    return TensorSpec(spec.shape, dtype, ordered_strides(padded, axes, dtype.itemsize))


def _spanned_elements(spec: TensorSpec) -> int:
    """Elements from the first to the last, those in gaps too; of strides that are not negative."""
    return len(span(spec.shape, spec.strides, spec.dtype.itemsize)) // spec.dtype.itemsize


def _lie_alike(spec: TensorSpec, other: TensorSpec) -> bool:
    """Whether the strides of all axes of more than one element are equal."""
    return all(extent == 1 or a == b for extent, a, b in zip(spec.shape, spec.strides, other.strides, strict=True))
