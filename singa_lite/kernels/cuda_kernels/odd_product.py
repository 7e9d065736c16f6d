"""Products in 16 bits over an odd number of classes: seven classes at most are a product of their own.

    y = x @ w           y[:, :c] = x @ w[:, :c];  y[:, c:] = x @ w[:, c:]          c: classes, down to a multiple of 8
    dx = dy @ w^T       dx = dy[:, c:] @ w[:, c:]^T;  dx += dy[:, :c] @ w[:, :c]^T

cuBLASLt's kernels for tensor cores want extents of a multiple of 16 bytes along which elements lie one behind the
other, in the result and in factors that are summed along it. Without that a product takes five times as long: scores of
50,257 classes 1,032 us on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from singa_lite.kernels.composed import ComposedKernel, InnerCall, Temporaries, product
from singa_lite.kernels.cuda_kernels.source import HALVES
from singa_lite.kernels.kernel_set import DeviceArray, Kernel, KernelSet, Settings, TensorSpec, TensorSpecs

#: Classes in a vector of 16 bytes; of fewer than so many classes, and fewer multiplications, a product is fast anyway.
VECTOR, LEAST, LEAST_TERMS = 8, 1 << 10, 1 << 30


def products(kernels: KernelSet) -> dict[str, Kernel]:
    """`matmul` and `matmul_add` of such calls, by those of a set."""
    return {
        name: ComposedKernel(partial(_calls, name), kernels, partial(_supports, name))
        for name in ("matmul", "matmul_add")
    }


def _supports(name: str, specs: TensorSpecs, settings: Settings) -> bool:
    a, b, y = specs
    if a is None or b is None or y is None or {a.ndim, b.ndim, y.ndim} != {2}:
        return False
    summed = _summed(a, settings)
    is_half = any(spec.dtype.name in HALVES for spec in (a, b, y))
    return is_half and y.size * summed >= LEAST_TERMS and (_is_odd(y.shape[1], y) or _sums_odd(a, b, settings))


def _calls(
    name: str, _: Temporaries, a: DeviceArray, b: DeviceArray, y: DeviceArray, **settings: Any
) -> Iterator[InnerCall]:
    if _is_odd(y.shape[1], y):
        whole = y.shape[1] // VECTOR * VECTOR
        for part in (slice(None, whole), slice(whole, None)):
            yield product(a, b[part] if settings["transpose_b"] else b[:, part], y[:, part], name, **settings)
        return
    summed = _summed(a, settings)
    whole = summed // VECTOR * VECTOR
    for kernel, part in ((name, slice(whole, None)), ("matmul_add", slice(None, whole))):
        left = a[part] if settings["transpose_a"] else a[:, part]
        right = b[:, part] if settings["transpose_b"] else b[part]
        yield product(left, right, y, kernel, **settings)


def _summed(a: TensorSpec | DeviceArray, settings: Settings) -> int:
    return int(a.shape[0 if settings["transpose_a"] else 1])


def _sums_odd(a: TensorSpec, b: TensorSpec, settings: Settings) -> bool:
    """Whether a factor lies along what is summed, and that is odd."""
    along_a, along_b = not settings["transpose_a"], bool(settings["transpose_b"])
    summed = _summed(a, settings)
    return (along_a and _is_odd(summed, a)) or (along_b and _is_odd(summed, b))


def _is_odd(extent: int, spec: TensorSpec | DeviceArray) -> bool:
    """Whether an extent is that of the last axis, whose elements lie one behind the other, and no multiple of 8."""
    return extent >= LEAST and extent % VECTOR > 0 and spec.strides[1] == spec.dtype.itemsize
