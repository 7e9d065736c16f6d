"""Measured seconds of kernel calls, each run by itself between two steps; and the peaks of a device by some of them.

A call is measured over bytes that nobody else has, filled with ones, or with zeros where its numbers are no floats: an
index, a class, a mask or a key of 0 is a valid one. So parameters, state, running statistics and random numbers stay as
they are. Equal calls, by kernel, settings and what their tensors look like, are measured once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from singa_lite.common import threads
from singa_lite.common.strides import laid_out, span
from singa_lite.compiler.ir.operation import Instruction, Operand, Phase
from singa_lite.compiler.report.profile import Peaks, timed, waited
from singa_lite.graph.arena import Arena, StepDevice
from singa_lite.kernels.kernel_set import Launch, Settings, SpecKey
from singa_lite.runtime.pool_numbers import OutOfMemoryError
from singa_lite.tensor import Block

#: Runs of a call: at least, and at most where they take less than so many seconds together.
LEAST_RUNS, MOST_RUNS, SHORT = 2, 10, 0.02

#: What tells calls apart: kernel, specs of the operands, settings.
CallKey = tuple[str, tuple[SpecKey | None, ...], str]


def seconds_of(arena: Arena, calls: Iterable[Instruction]) -> dict[CallKey, float]:
    """Returns the measured seconds of calls, but of those whose operands take more bytes than the device has left.

    arena: whose bytes are free between two runs.
    """
    found: dict[CallKey, float] = {}
    arena.turn.run(_measure, arena, {key_of(call): call for call in calls}, found)
    return found


def _measure(arena: Arena, calls: Mapping[CallKey, Instruction], found: dict[CallKey, float]) -> None:
    threads.settle()
    device = arena.device
    sizes = {key: _Layout(call, device.runtime.alignment).nbytes for key, call in calls.items()}
    left = sorted(sizes, key=sizes.__getitem__)
    while left:
        try:
            block = arena.between_runs(sizes[left[-1]])
        except OutOfMemoryError:
            left.pop()
            continue
        with device.runtime.here():
            for key in left:
                found[key] = _least(device, calls[key], block)
        del block
        device.pool.release_free()  # or the arena would be taken beside it
        return


def _least(device: StepDevice, call: Instruction, block: Block) -> float:
    """The least time of a few runs. block: bytes for the operands and the scratch."""
    launch = waited(_bound(device, call, block), device.synchronize)
    times = [timed(launch) for _ in range(LEAST_RUNS)]
    while len(times) < MOST_RUNS and sum(times) < SHORT:
        times.append(timed(launch))
    return min(times)


def _bound(device: StepDevice, call: Instruction, block: Block) -> Launch:
    layout = _Layout(call, device.runtime.alignment)

    def array(operand: Operand | None, start: int) -> object:
        if operand is None:
            return None
        made = device.view(block, operand.shape, operand.dtype, operand.strides, start)
        one = np.asarray(1 if operand.dtype.kind == "f" else 0, operand.dtype)
        device.runtime.write(made, np.broadcast_to(one, operand.shape))
        return made

    arrays = tuple(map(array, call.operands, layout.starts))
    scratch = None
    if call.scratch_bytes:
        scratch = device.view(block, (call.scratch_bytes,), "uint8", (1,), layout.scratch)
    return device.kernels.prepare(call.kernel, arrays, scratch, call.settings)


def key_of(call: Instruction) -> CallKey:
    """What tells this call from others that may take another time."""
    specs = tuple(None if o is None else (o.shape, o.dtype, o.strides) for o in call.operands)
    return call.kernel, specs, repr(sorted(call.settings.items()))


class _Layout:
    """Where a call's operands lie, one behind the other, and its scratch. starts: of their first elements, in bytes."""

    def __init__(self, call: Instruction, alignment: int) -> None:
        self.starts, end = list[int](), 0
        for operand in call.operands:
            extent = range(0) if operand is None else span(operand.shape, operand.strides, operand.dtype.itemsize)
            self.starts.append(end - extent.start)
            end += -(-len(extent) // alignment) * alignment
        self.scratch = end
        self.nbytes = end + -(-call.scratch_bytes // alignment) * alignment


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
        found = _calibrated(arena)
        if found is None:
            return None
        known[number] = found
    return known[number]


def _calibrated(arena: Arena) -> Peaks | None:
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
