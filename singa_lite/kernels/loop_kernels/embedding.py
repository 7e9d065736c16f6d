"""Gradients of the rows of a table by their ids."""

from __future__ import annotations

from singa_lite.kernels.loop_kernels.operands import are_stored, as_rows, id_type
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine


def _gradient(call: Call, routine: Routine) -> bool:
    ids, dy, dweight = call["ids"], call["dy"], call["dweight"]
    rows, features = dweight.shape
    given, result, flat = as_rows(dy), as_rows(dweight), as_rows(ids)
    # NumPy adds up a single column otherwise than several.
    if given is None or result is None or flat is None or not are_stored(dy, dweight) or features < 2:
        return False
    if ids.dtype.kind not in "iu" or ids.size >= 1 << 31 or flat.pitch != ids.shape[-1]:
        return False
    scratch = routine.temporary((rows + 1 + ids.size,), "int32")
    numbers = call.number("first"), call.number("padding"), call.kernel == "embedding_gradient_add"
    sizes = id_type(ids), ids.size, rows, features
    routine.run("embedding_gradient", ids, given, result, scratch, *sizes, *map(int, numbers))
    return True


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {"embedding_gradient": _gradient, "embedding_gradient_add": _gradient}
