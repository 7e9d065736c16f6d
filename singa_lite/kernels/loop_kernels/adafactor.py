"""Adafactor: what goes by the whole gradient, and the steps of its elements."""

from __future__ import annotations

from math import prod
from typing import cast

import numpy as np

from singa_lite.kernels.interface.update import AdafactorHyper
from singa_lite.kernels.loop_kernels.gradients import PARTIAL_SUMS
from singa_lite.kernels.loop_kernels.operands import (
    FLOAT,
    MAX_PIECES,
    as_vector,
    check_key,
    check_number,
    check_stored,
    in_order,
    piece_count,
)
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine, want
from singa_lite.kernels.routine import BufferView

#: Of float32.
EPSILON = float(np.finfo(np.float32).eps)


def _adafactor(call: Call, routine: Routine) -> None:
    hyper, value, count, factor = _hyper(call), call["value"], call["count"], call["factor"]
    matrices, rows, columns = _sizes(call)
    check_stored(value)
    check_key(count if count.ndim else None)
    check_number(factor)
    parts = piece_count(rows, columns) if matrices == 1 else min(matrices, MAX_PIECES)
    sums, squares = routine.temporary((parts, columns), "float64"), routine.temporary((PARTIAL_SUMS,), "float64")
    state = _vectors(call, routine, "row_var", "col_var", "variance")
    operands = in_order(routine, call["gradient"]), call["rate"], in_order(routine, value), *state
    numbers = hyper.beta_2_decay, _least(hyper), hyper.epsilon_2, hyper.d, hyper.lr_mult
    made = *_vectors(call, routine, "scale"), factor, sums, squares
    routine.run("adafactor", *operands, count, *made, matrices, rows, columns, parts, *numbers)


def _adafactor_step(call: Call, routine: Routine) -> None:
    hyper, value = _hyper(call), call["value"]
    sizes = _sizes(call)
    want(value.dtype == FLOAT, "float32")
    check_number(call["factor"])
    means = _vectors(call, routine, "scale", "col_var", "variance")
    operands = in_order(routine, call["gradient"]), call["rate"], in_order(routine, value), *means
    numbers = _least(hyper), hyper.weight_decay, hyper.lr_mult
    routine.run("adafactor_step", *operands, call["factor"], call["count"], *sizes, *numbers)


def _vectors(call: Call, routine: Routine, *names: str) -> list[BufferView | None]:
    """Returns where the elements of operands lie without gaps; None for one that is left out."""
    specs = [call.optional(name) for name in names]
    return [None if spec is None else as_vector(routine, spec) for spec in specs]


def _hyper(call: Call) -> AdafactorHyper:
    return cast(AdafactorHyper, call.settings["hyper"])


def _least(hyper: AdafactorHyper) -> float:
    return EPSILON if hyper.epsilon_1 is None else hyper.epsilon_1


def _sizes(call: Call) -> tuple[int, int, int]:
    """Matrices, rows and columns of the gradient; UnservedError for operands that loops do not go over."""
    gradient = call["gradient"]
    want(gradient.size > 0 < gradient.ndim and gradient.dtype == FLOAT, "a gradient of float32 with elements and axes")
    check_number(call["rate"])
    want(call["count"].dtype == np.int64, "a count of 64 bits")
    rows = gradient.shape[-2] if gradient.ndim > 1 else 1
    return prod(gradient.shape[:-2]), rows, gradient.shape[-1]


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {"adafactor": _adafactor, "adafactor_step": _adafactor_step}
