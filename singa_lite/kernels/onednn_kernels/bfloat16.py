"""Whether the library computes in bfloat16 on this processor. It is asked, by descriptors of primitives, not the name.

Every builder makes its own primitives and is refused, or not, call by call; here is what is asked beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from singa_lite.kernels.onednn_kernels.library import memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.library import OneDNNError, load
from singa_lite.kernels.widening import NARROW

#: A bit of dnnl_cpu_isa_t: AVX-512's products of pairs of bfloat16 (those with AMX have it too).
_PRODUCTS = 0x80


@cache
def converts() -> bool:
    """Whether it converts to bfloat16 other than number by number, which takes longer than what is saved."""
    wide, narrow = (memory_descs.dense((16,), dtype) for dtype in ("float32", NARROW))
    return _has_code(lambda: p.Reorder(wide, narrow)) and _has_code(lambda: p.Reorder(narrow, wide))


@cache
def multiplies() -> bool:
    """Whether it multiplies them faster than float32.

    With AVX-512 alone the library makes each product of two in float32, by more instructions than float32 takes.
    """
    emulated = load().has_avx512 and not load().cpu_isa() & _PRODUCTS
    factor, result = memory_descs.dense((64, 64), NARROW), memory_descs.dense((64, 64))
    return converts() and not emulated and _has_code(lambda: p.Primitive("matmul", factor, factor, None, result))


def _has_code(make: Callable[[], p.Primitive]) -> bool:
    """Whether the library has such a primitive, and not as plain loops."""
    try:
        return "jit" in make().implementation or "brg" in make().implementation
    except OneDNNError as error:
        if error.status != OneDNNError.UNIMPLEMENTED:
            raise
        return False
