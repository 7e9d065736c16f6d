"""Numbers of quantised blocks, all of them and by ids; products of few rows with them."""

from __future__ import annotations

from functools import partial

from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.kernels.loop_kernels.operands import are_stored, are_vectors, as_rows, id_type
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine

#: As in quantized.h.
FEW_ROWS = 8
_NUMBERS = {format: number for number, format in enumerate(FORMATS)}


def _dequantize(call: Call, routine: Routine) -> bool:
    blocks, y = call["blocks"], as_rows(call["y"])
    if y is None or blocks.strides[1] != 1 or not are_stored(call["y"]):
        return False
    format = _NUMBERS[call.text("format")]
    routine.run("dequantize", blocks, blocks.strides[0], format, y, *call["y"].shape)
    return True


def _embedding(call: Call, routine: Routine) -> bool:
    ids, blocks, y = call["ids"], call["blocks"], as_rows(call["y"])
    flat = as_rows(ids)
    if y is None or flat is None or blocks.strides[1] != 1 or not are_stored(call["y"]) or ids.dtype.kind not in "iu":
        return False
    if flat.pitch != ids.shape[-1]:
        return False
    routine.check(partial(_check, blocks.shape[0]), ids)
    table = blocks, blocks.strides[0], _NUMBERS[call.text("format")]
    step = ids.dtype.itemsize
    routine.run("quantized_embedding", ids, id_type(ids), step, *table, y, ids.size, call["y"].shape[-1])
    return True


def _linear(call: Call, routine: Routine) -> bool:
    x, blocks, y, bias = call["x"], call["blocks"], call["y"], call.optional("bias")
    given, result = as_rows(x), as_rows(y)
    if x.shape[0] > FEW_ROWS or given is None or result is None or not are_stored(x, y) or blocks.strides[1] != 1:
        return False
    if bias is not None and not are_vectors(bias):
        return False
    table = blocks, blocks.strides[0], _NUMBERS[call.text("format")]
    routine.run("quantized_linear", given, *table, bias, result, *y.shape, x.shape[1])
    return True


def _check(rows: int, ids: object) -> None:
    check_ids("ids", ids, rows)  # type: ignore[arg-type]  # an array of the host


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "dequantize": _dequantize,
    "quantized_embedding": _embedding,
    "quantized_linear": _linear,
}
