"""Numbers of quantised blocks, all of them and by ids; products of few rows with them."""

from __future__ import annotations

from functools import partial

from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import as_rows, check_stored, check_vectors, id_type, in_order
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine, want

#: As in quantized.h.
FEW_ROWS = 8
_NUMBERS = {format: number for number, format in enumerate(FORMATS)}


def _dequantize(call: Call, routine: Routine) -> None:
    y = call["y"]
    check_stored(y)
    routine.run("dequantize", *_blocks(call, *y.shape), as_rows(y), *y.shape)


def _embedding(call: Call, routine: Routine) -> None:
    ids, y = call["ids"], call["y"]
    check_stored(y)
    want(ids.dtype.kind in "iu" and as_rows(ids).pitch == ids.shape[-1], "ids without gaps")
    rows, step = call["blocks"].shape[0], ids.dtype.itemsize
    routine.check(partial(_check, rows), ids)
    table = _blocks(call, rows, y.shape[-1])
    routine.run("quantized_embedding", ids, id_type(ids), step, *table, as_rows(y), ids.size, y.shape[-1])


def _linear(call: Call, routine: Routine) -> None:
    x, y, bias = call["x"], call["y"], call.optional("bias")
    want(x.shape[0] <= FEW_ROWS, "few rows")
    check_stored(x, y)
    check_vectors(*call.all("bias"))
    table = _blocks(call, y.shape[1], x.shape[1])
    routine.run("quantized_linear", in_order(routine, x), *table, bias, in_order(routine, y), *y.shape, x.shape[1])


def _blocks(call: Call, rows: int, columns: int) -> tuple[TensorSpec, int, int]:
    """Returns the blocks, bytes from a row to the next, and the format's number; UnservedError for other blocks."""
    blocks, format = call["blocks"], call.text("format")
    want(blocks.strides[1] == 1, "rows of blocks without gaps")
    want(blocks.shape == (rows, FORMATS[format].row_bytes(columns)), f"blocks of {rows} rows of {columns} numbers")
    return blocks, blocks.strides[0], _NUMBERS[format]


def _check(rows: int, ids: object) -> None:
    check_ids("ids", ids, rows)  # type: ignore[arg-type]  # an array of the host


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "dequantize": _dequantize,
    "quantized_embedding": _embedding,
    "quantized_linear": _linear,
}
