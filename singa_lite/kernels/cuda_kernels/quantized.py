"""Numbers of quantised blocks, all of them and rows by ids."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.copies import without_gaps
from singa_lite.kernels.cuda_kernels.routine import Routine, blocks
from singa_lite.kernels.cuda_kernels.rows import types_of_rows
from singa_lite.kernels.cuda_kernels.walk import VECTOR_BYTES
from singa_lite.kernels.interface.quantized import FORMATS


def _numbers(call: Call) -> Routine | None:
    """A thread for as many numbers of a row as 16 bytes of y hold."""
    table, y, ids = call["blocks"], call["y"], call.all("ids")
    types = types_of_rows([y], ids)
    if types is None or table.strides[1] != 1:
        return None
    columns, format = y.shape[-1], call.text("format")
    extents = *(one.size for one in ids), table.shape[0], columns, table.strides[0]
    numbers = map(np.int64, (*extents, [*FORMATS].index(format), *FORMATS[format]))
    grid = blocks(y.size // columns * -(-columns * y.dtype.itemsize // VECTOR_BYTES))
    types = {**types, "H": np.float16}
    return Routine().launch("quantized.cu", call.kernel, *ids, table, y, *numbers, types=types, grid=grid)


_BUILT = without_gaps(_numbers, but="blocks")
KERNELS: dict[str, CallBuilder[Routine]] = {"dequantize": _BUILT, "quantized_embedding": _BUILT}
