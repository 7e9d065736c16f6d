"""Comparison of a recorded step with the same step done eagerly, as checked mode makes of every tenth one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import GraphError
from singa_lite.compiler.ir.operation import Instruction, Operand, Operation
from singa_lite.device import Device
from singa_lite.graph.executable import Executable
from singa_lite.graph.graph import Graph
from singa_lite.tensor import Block, Tensor, to_numpy
from singa_lite.training.steps.step_functions import Values

#: Rewritten records compute the same to rounding, and 16 bits hold less: so much of the loss may differ.
ROUNDING = 5e-2


def compared(
    graph: Graph, device: Device, executable: Executable, eagerly: Callable[[], Values]
) -> Callable[[Values], None]:
    """Do the step eagerly, and put back what it changed; returns what compares, to be called behind the replay.

    device: the graph's; eagerly: does all operations of the step that it recorded. GraphError, which names the layer,
    where they are others than were recorded, or have other settings or constants. Losses are compared to rounding,
    parameters and state of records that were not rewritten.
    """
    before = executable.written()
    done = _Operations(graph)
    try:
        with device.watch(done):
            loss = float(to_numpy(eagerly()[0]))
        done.end()
        is_rewritten = graph.fuse or graph.tf32 or graph.rules or graph.narrow is not None
        wanted = {} if is_rewritten else executable.written()
    finally:
        executable.write_back(before)

    def compare(replayed: Values) -> None:
        _check_loss(loss, float(to_numpy(replayed[0])))
        if wanted:  # whose operations are the very same
            _check_values(graph, wanted, executable.written())

    return compare


class _Operations:
    """Called with each operation that is done: it must be the next one of the record."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._left: Iterator[Instruction] = iter(graph.instructions)
        self._numbers: dict[int, int] = {}
        self._alive: list[Block] = []
        self.problem = ""

    def __call__(self, operation: Operation) -> None:
        if self.problem:
            return
        instruction = next(self._left, None)
        wanted = "the end of the step" if instruction is None else _text(instruction)
        if instruction is None or _form(instruction) != _form(operation):
            self.problem = f"{wanted}, received {_text(operation)}"
            return
        for operand, tensor in zip(instruction.operands, operation.tensors, strict=True):
            if operand is not None and tensor is not None and not self._is_recorded(operand, tensor):
                self.problem = f"{wanted} over the tensors of the record, received another one {tensor.shape}"

    def end(self) -> None:
        """All is done. GraphError for the first difference."""
        left = next(self._left, None)
        problem = self.problem or ("" if left is None else f"{_text(left)}, received the end of the step")
        if problem:
            _refuse(problem)

    def _is_recorded(self, operand: Operand, tensor: Tensor) -> bool:
        """Whether the tensor is the record's: made at the same place, or the same block, or a constant of its bytes."""
        block = tensor.block
        known = self._numbers.get(id(block))
        if known is not None:
            return known == operand.block
        self._numbers[id(block)] = operand.block
        self._alive.append(block)  # so that no other has its id
        held = self._graph.blocks[operand.block].held
        if held is None or held is block:
            return True
        return held.nbytes == block.nbytes and self._bytes(held) == self._bytes(block)

    def _bytes(self, block: Block) -> bytes:
        device = self._graph.device
        return device.runtime.read(device.view(block, (block.nbytes,), "uint8", (1,), 0)).tobytes()


def _form(call: Instruction | Operation) -> tuple[object, ...]:
    """All of a call but which blocks it is over."""
    tensors: Sequence[Any] = call.operands if isinstance(call, Instruction) else call.tensors
    views = tuple(None if each is None else (each.shape, each.dtype, each.strides, each.offset) for each in tensors)
    return call.kernel, dict(call.settings), call.phase, call.layer, views


def _text(call: Instruction | Operation) -> str:
    settings = ", ".join(f"{name}={value!r:.80}" for name, value in dict(call.settings).items())
    place = f"layer {call.layer!r}" if call.layer else "the loss"
    return f"{call.kernel!r} of {place}{settings and f' with {settings}'}"


def _check_loss(eager: float, replayed: float) -> None:
    if not np.allclose(eager, replayed, rtol=ROUNDING, atol=1e-3, equal_nan=True):
        _refuse(f"a loss of {eager:.6g}, received {replayed:.6g}, from the same operations in each layer")


def _check_values(graph: Graph, wanted: Mapping[int, Array], found: Mapping[int, Array]) -> None:
    """GraphError where a parameter or state of floats is otherwise behind the replay than behind the eager step."""
    for instruction in graph.instructions:
        for operand in instruction.writes:
            if operand.block in wanted and graph.blocks[operand.block].held is not None and operand.dtype.kind == "f":
                eager, replayed = (each[operand.block].view(operand.dtype) for each in (wanted, found))
                most = ROUNDING * max(float(np.abs(eager).max(initial=0)), 1e-3)
                if not np.allclose(eager, replayed, rtol=0, atol=most, equal_nan=True):
                    _refuse(
                        f"{graph.blocks[operand.block].name!r} of layer {instruction.layer!r} as the eager step leaves "
                        f"it, received a difference of {float(np.abs(eager - replayed).max()):.3g}"
                    )


def _refuse(problem: str) -> None:
    raise GraphError(
        f"checked step: a recorded step is not what the eager one is: wanted {problem}. A forward, a loss or an update "
        "is recorded once: let its class say recordable = False, or call net.record_again() behind a change"
    )
