"""Gradients of the rows of a table by their ids."""

from __future__ import annotations

from singa_lite.kernels.loop_kernels.operands import as_rows, check_stored, id_type
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine, want


def _gradient(call: Call, routine: Routine) -> None:
    ids, dy, dweight = call["ids"], call["dy"], call["dweight"]
    rows, features = dweight.shape
    given, result, flat = as_rows(dy), as_rows(dweight), as_rows(ids)
    want(flat.pitch == ids.shape[-1], "ids without gaps")
    # NumPy adds up a single column otherwise than several.
    check_stored(dy, dweight)
    want(features > 1, "several features")
    want(ids.dtype.kind in "iu" and ids.size < 1 << 31, "ids of 31 bits")
    scratch = routine.temporary((rows + 1 + ids.size,), "int32")
    numbers = call.number("first"), call.number("padding"), call.kernel == "embedding_gradient_add"
    sizes = id_type(ids), ids.size, rows, features
    routine.run("embedding_gradient", ids, given, result, scratch, *sizes, *map(int, numbers))


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {"embedding_gradient": _gradient, "embedding_gradient_add": _gradient}
