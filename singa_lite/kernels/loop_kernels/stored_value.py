"""Values in bfloat16 behind an update: rounded by chance, or with what rounding to nearest leaves over."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import FLOAT, check_key, is_narrow, lie_alike
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine, want


def _round_by_chance(call: Call, routine: Routine) -> None:
    x, count, value = call["x"], call["count"], call["value"]
    check_key(count)
    routine.run("round_by_chance", x, count, value, _size(x, value), int(call.number("start")))


def _split_error(call: Call, routine: Routine) -> None:
    x, value, error = call["x"], call["value"], call["error"]
    routine.run("split_error", x, value, error, _size(x, value, error))


def _add_error(call: Call, routine: Routine) -> None:
    value, error, y = call["value"], call["error"], call["y"]
    routine.run("add_error", value, error, y, _size(y, value, error))


def _add_stored(call: Call, routine: Routine) -> None:
    value, error, y = call["value"], call["error"], call["y"]
    routine.run("add_stored", value, error, y, _size(y, value, error), call.number("alpha"))


def _size(wide: TensorSpec, value: TensorSpec, *error: TensorSpec) -> int:
    want(wide.dtype == FLOAT and is_narrow(value) and all(one.dtype == np.int8 for one in error), "types of a value")
    want(lie_alike(wide, value, *error), "operands that lie alike")
    return wide.size


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "round_by_chance": _round_by_chance,
    "split_error": _split_error,
    "add_error": _add_error,
    "add_stored": _add_stored,
}
