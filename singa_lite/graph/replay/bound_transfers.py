"""BoundTransfers: the launches of copies between the arena and host memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from singa_lite.common.errors import GraphError
from singa_lite.compiler.ir.operation import Instruction, Operand, Transfer
from singa_lite.kernels.kernel_set import DeviceArray, Launch
from singa_lite.runtime.pinned import Copying, PinnedMemory


class BoundTransfers:
    """One program's. offsets: {block: offset in host memory}; array: makes that of an operand in the arena."""

    def __init__(
        self, offsets: Mapping[int, int], memory: PinnedMemory | None, array: Callable[[Operand], DeviceArray]
    ) -> None:
        self._offsets = offsets
        self._memory = memory
        self._array = array
        self._begun: dict[int, Copying] = {}

    def launch(self, instruction: Instruction) -> Launch:
        """What begins a copy, or what waits for its end; that which begins it comes first."""
        source, target = instruction.reads[0], instruction.writes[0]
        if instruction.transfer is Transfer.END:
            return self._begun.pop(target.block).end
        copying = self._begun[target.block] = self._bound(source, target)
        return copying.begin

    def _bound(self, source: Operand, target: Operand) -> Copying:
        if self._memory is None:
            raise GraphError("binding a step: wanted host memory for the values that it offloads, received none")
        if target.block in self._offsets:
            return self._memory.out(self._array(source), self._offsets[target.block])
        return self._memory.back(self._array(target), self._offsets[source.block])
