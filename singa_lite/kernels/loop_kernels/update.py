"""Updates of optimizers in one pass over gradient, value and state, which may be kept in 16 or 8 bits."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import cast

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import memory_order
from singa_lite.kernels.interface.state_format import BFLOAT16, BLOCKED, blocked_shape, dynamic_tree
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, LionHyper, RmsPropHyper, SgdHyper
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import FLOAT, check_number, lie_alike
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine, want

#: {type of the state: its bits}.
BITS = {FLOAT: 32, BFLOAT16: 16, BLOCKED: 8}
#: Upper halves of the smallest and the largest magnitude that codes are told apart by, see state_format.h.
LEAST_HALF, ONE_HALF = 0x3380, 0x3F80


def _sgd(call: Call, routine: Routine) -> None:
    hyper = cast(SgdHyper, call.settings["hyper"])
    sizes = _sizes(call, *call.all("velocity"))
    numbers = hyper.momentum, hyper.dampening, hyper.nesterov, hyper.weight_decay, hyper.lr_mult
    routine.run("sgd", *_begin(call), call.optional("velocity"), call["count"], codes(squares=False), *sizes, *numbers)


def _rms_prop(call: Call, routine: Routine) -> None:
    hyper = cast(RmsPropHyper, call.settings["hyper"])
    _scaled_by_squares(call, routine, call["square_average"], hyper, hyper.rho, 1 - hyper.rho)


def _ada_grad(call: Call, routine: Routine) -> None:
    _scaled_by_squares(call, routine, call["square_sum"], cast(AdaGradHyper, call.settings["hyper"]), 1.0, 1.0)


def _scaled_by_squares(
    call: Call, routine: Routine, squares: TensorSpec, hyper: RmsPropHyper | AdaGradHyper, kept: float, share: float
) -> None:
    sizes = _sizes(call, squares)
    numbers = kept, share, hyper.epsilon, hyper.weight_decay, hyper.lr_mult
    operands = *_begin(call), squares, call["count"], codes(squares=True)
    routine.run("scaled_by_squares", *operands, *sizes, *numbers)


def _adam(call: Call, routine: Routine) -> None:
    hyper = cast(AdamHyper, call.settings["hyper"])
    first, second, largest = call["first_moment"], call["second_moment"], call.optional("max_second_moment")
    sizes = _sizes(call, first, second, *call.all("max_second_moment"))
    decay = hyper.weight_decay if hyper.decoupled else 0.0
    numbers = hyper.beta_1, hyper.beta_2, hyper.epsilon, hyper.coupled_decay, decay, hyper.lr_mult
    operands = *_begin(call), first, second, largest, call["count"], codes(squares=False), codes(squares=True)
    routine.run("adam", *operands, *sizes, *numbers)


def _lion(call: Call, routine: Routine) -> None:
    hyper = cast(LionHyper, call.settings["hyper"])
    sizes = _sizes(call, call["momentum"])
    numbers = hyper.beta_1, hyper.beta_2, hyper.weight_decay, hyper.lr_mult
    routine.run("lion", *_begin(call), call["momentum"], call["count"], codes(squares=False), *sizes, *numbers)


def _begin(call: Call) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    return call["gradient"], call["rate"], call["value"]


def _sizes(call: Call, *states: TensorSpec) -> tuple[int, int, int]:
    """Rows and columns of the value, bits of the state; UnservedError for operands that do not lie alike."""
    gradient, value, kinds = call["gradient"], call["value"], {state.dtype for state in states} or {FLOAT}
    bits = BITS.get(kinds.pop(), 0)
    floats = gradient, value, *(states if bits == 32 else ())
    check_number(call["rate"])
    want(call["count"].dtype == np.int64, "a count of 64 bits")
    want(not kinds and bits > 0 and all(spec.dtype == FLOAT for spec in floats), "float32, and one type of state")
    want(lie_alike(gradient, value, *(states if bits != 8 else ())), "operands that lie alike")
    want(bits != 8 or _in_blocks(value, *states), "blocks of a value in C order")
    return prod(value.shape[:1]), prod(value.shape[1:]), bits


def _in_blocks(value: TensorSpec, *states: TensorSpec) -> bool:
    """Whether the value lies in C order, as blocks go over it, and the groups of states without gaps."""
    in_order = memory_order(value.shape, value.strides) == tuple(range(value.ndim))
    return in_order and all(lie_alike(state) and state.shape == blocked_shape(value.shape) for state in states)


@cache
def codes(squares: bool) -> Array:
    """The table of codes of 8 bits as the loops read it, see `Codes` of state_format.h.

    A square above 0 never becomes 0: a step that is divided by its root would be without bound.
    """
    numbers = dynamic_tree(signed=not squares)
    borders = (numbers[1:] + numbers[:-1]) / 2
    if squares:
        borders[0] = 0
    table = np.empty((2, ONE_HALF - LEAST_HALF + 2), np.uint32)
    least = np.arange(LEAST_HALF - 1, ONE_HALF + 1, dtype=np.uint32) << 16
    least[0] = 0
    largest = least | np.uint32(0xFFFF)
    largest[0] = 0
    for sign, row in zip((1, -1), table, strict=True):
        ends = np.searchsorted(borders, sign * np.stack([least.view(np.float32), largest.view(np.float32)]))
        first, last = ends.clip(0, 255).astype(np.uint32)
        between = borders[np.minimum(first, last).clip(0, 254)].view(np.uint32) & 0xFFFF
        row[:] = first << 16 | np.where(first == last, 0xFFFF, between - (sign < 0))
    return np.concatenate([numbers.view(np.uint32), table.reshape(-1)])


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "ada_grad": _ada_grad,
    "adam": _adam,
    "lion": _lion,
    "rms_prop": _rms_prop,
    "sgd": _sgd,
}
