"""Measured seconds of kernel calls, each run by itself between two steps.

A call is measured over bytes that nobody else has, filled with ones, or with zeros where its numbers are no floats: an
index, a class, a mask or a key of 0 is a valid one. So parameters, state, running statistics and random numbers stay as
they are. Equal calls, by kernel, settings and what their tensors look like, are measured once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from singa_lite.common import threads
from singa_lite.common.strides import span
from singa_lite.common.unique import Unique
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.report.profile import timed, waited
from singa_lite.graph.arena import Arena
from singa_lite.kernels.kernel_set import Launch, SpecKey
from singa_lite.runtime.out_of_memory import OutOfMemoryError
from singa_lite.tensor import Block

#: Runs of a call: at least, and at most where they take less than so many seconds together.
LEAST_RUNS, MOST_RUNS, SHORT = 2, 10, 0.02

#: What tells calls apart: kernel, specs of the operands, settings.
CallKey = tuple[str, tuple[SpecKey | None, ...], str]


class CallTimes(Unique):
    """Measured seconds of calls, for all of a net's steps. arena: theirs, whose bytes are free between two runs."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._seconds: dict[CallKey, float] = {}

    def seconds_of(self, calls: Iterable[Instruction]) -> dict[CallKey, float]:
        """Returns the seconds of each call, but of those whose operands take more bytes than the device has left."""
        wanted = {key_of(call): call for call in calls}
        new = {key: call for key, call in wanted.items() if key not in self._seconds}
        if new:
            self._arena.turn.run(self._measure, new)
        return {key: self._seconds[key] for key in wanted if key in self._seconds}

    def _measure(self, calls: Mapping[CallKey, Instruction]) -> None:
        threads.settle()
        device = self._arena.device
        sizes = {key: _Layout(call, device.runtime.alignment).nbytes for key, call in calls.items()}
        left = sorted(sizes, key=sizes.__getitem__)
        while left:
            try:
                block = self._arena.between_runs(sizes[left[-1]])
            except OutOfMemoryError:
                left.pop()
                continue
            with device.runtime.here():
                for key in left:
                    self._seconds[key] = self._least(calls[key], block)
            del block
            device.pool.release_free()  # or the arena would be taken beside it
            return

    def _least(self, call: Instruction, block: Block) -> float:
        """The least time of a few runs. block: bytes for the operands and the scratch."""
        launch = waited(self._bound(call, block), self._arena.device.synchronize)
        times = [timed(launch) for _ in range(LEAST_RUNS)]
        while len(times) < MOST_RUNS and sum(times) < SHORT:
            times.append(timed(launch))
        return min(times)

    def _bound(self, call: Instruction, block: Block) -> Launch:
        device = self._arena.device
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
