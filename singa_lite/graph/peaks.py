"""Peaks of a device, by a short calibration: what its own product of matrices and its own copy reach alone."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from singa_lite.common import threads
from singa_lite.common.strides import laid_out
from singa_lite.compiler.ir.operation import Instruction, Operand, Phase
from singa_lite.compiler.report.profile import Peaks
from singa_lite.graph.arena import Arena
from singa_lite.graph.call_times import key_of, seconds_of
from singa_lite.graph.replay.step_device import StepDevice
from singa_lite.kernels.kernel_set import Settings

#: Rows and columns of the products, and bytes of one side of a copy: the last one is more than caches hold.
ORDERS = (512, 1024, 2048)
COPIES = (2**22, 2**24, 2**26)

_AS_THEY_ARE = {"transpose_a": False, "transpose_b": False}
_FLOAT32 = np.dtype(np.float32)
#: {device: {number of threads: its peaks}}.
_known: WeakKeyDictionary[StepDevice, dict[int, Peaks]] = WeakKeyDictionary()


def peaks_of(arena: Arena) -> Peaks | None:
    """Of the arena's device, in float32, with the threads that there are now; measured once, in a second or less.

    Flops: the best of some products. Bytes: the largest copy. They run in the arena, or in as many bytes as the limit
    of the device leaves in its place; None where that does not do for the smallest ones.
    """
    known = _known.setdefault(arena.device, {})
    number = threads.threads()
    if number not in known:
        found = _measured(arena)
        if found is None:
            return None
        known[number] = found
    return known[number]


def _measured(arena: Arena) -> Peaks | None:
    products = {order: _call(arena, "matmul", ((order, order),) * 3, _AS_THEY_ARE) for order in ORDERS}
    copies = {nbytes: _call(arena, "copy", ((nbytes // _FLOAT32.itemsize,),) * 2, {}) for nbytes in COPIES}
    calls = (*products.values(), *copies.values())
    seconds = seconds_of(arena, calls)
    arena.device.kernels.forget()
    rates = [2 * n**3 / seconds[key_of(call)] for n, call in products.items() if key_of(call) in seconds]
    speeds = [2 * nbytes / seconds[key_of(call)] for nbytes, call in copies.items() if key_of(call) in seconds]
    return Peaks(max(rates), speeds[-1]) if rates and speeds else None


def _call(arena: Arena, kernel: str, shapes: Sequence[tuple[int, ...]], settings: Settings) -> Instruction:
    """A call over float32 tensors in C order, each a block of its own."""
    operands = tuple(
        Operand(block, shape, _FLOAT32, laid_out(shape, range(len(shape)), _FLOAT32.itemsize), 0)
        for block, shape in enumerate(shapes)
    )
    scratch = arena.device.kernels.scratch_bytes(kernel, operands, settings)
    return Instruction(0, kernel, operands, settings, Phase.FORWARD, "", scratch)
