"""Numbers of quantised blocks, all of them and by ids; products of few rows with them."""

from __future__ import annotations

from functools import partial

from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import as_rows, check_stored, check_vectors, id_type
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine, want

#: As in quantized.h.
FEW_ROWS = 8
_NUMBERS = {format: number for number, format in enumerate(FORMATS)}


def _dequantize(call: Call, routine: Routine) -> None:
    blocks, y = call["blocks"], call["y"]
    _check_blocks(blocks)
    check_stored(y)
    routine.run("dequantize", blocks, blocks.strides[0], _NUMBERS[call.text("format")], as_rows(y), *y.shape)


def _embedding(call: Call, routine: Routine) -> None:
    ids, blocks, y = call["ids"], call["blocks"], call["y"]
    _check_blocks(blocks)
    check_stored(y)
    want(ids.dtype.kind in "iu" and as_rows(ids).pitch == ids.shape[-1], "ids without gaps")
    routine.check(partial(_check, blocks.shape[0]), ids)
    table = blocks, blocks.strides[0], _NUMBERS[call.text("format")]
    step = ids.dtype.itemsize
    routine.run("quantized_embedding", ids, id_type(ids), step, *table, as_rows(y), ids.size, y.shape[-1])


def _linear(call: Call, routine: Routine) -> None:
    x, blocks, y, bias = call["x"], call["blocks"], call["y"], call.optional("bias")
    _check_blocks(blocks)
    want(x.shape[0] <= FEW_ROWS, "few rows")
    check_stored(x, y)
    check_vectors(*call.all("bias"))
    table = blocks, blocks.strides[0], _NUMBERS[call.text("format")]
    routine.run("quantized_linear", as_rows(x), *table, bias, as_rows(y), *y.shape, x.shape[1])


def _check_blocks(blocks: TensorSpec) -> None:
    want(blocks.strides[1] == 1, "rows of blocks without gaps")


def _check(rows: int, ids: object) -> None:
    check_ids("ids", ids, rows)  # type: ignore[arg-type]  # an array of the host


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "dequantize": _dequantize,
    "quantized_embedding": _embedding,
    "quantized_linear": _linear,
}
