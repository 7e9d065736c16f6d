"""The operations of a prediction, noted at several batch sizes and lengths, and how their numbers depend on these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from singa_lite.autograd.ops.op import Op, applying
from singa_lite.common.array_types import DType
from singa_lite.compiler.ir.operation import Operation
from singa_lite.tensor import Shape, Tensor
from singa_lite.training.steps.fed_tensors import make_feeds
from singa_lite.training.steps.step_functions import PredictStep
from singa_lite.training.trained_net import TrainedNet

#: What a batch is traced with, and with what else, to see what depends on its size.
BATCH, OTHER_BATCH = 2, 3

#: Settings of operations of several numbers that no batch may change.
_OWN = ("margins", "factor", "axes")

#: A view of a block: block, offset, shape, strides, dtype.
Place = tuple[int, int, Shape, Shape, DType]


class Call(NamedTuple):
    """One operation, or a kernel that was called by itself, whose name `of` is then."""

    of: Op | str
    settings: Mapping[str, object]
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    layer: str


@dataclass
class Trace:
    """One prediction. inputs, outputs: {layer: tensor}; sizes: {symbol: its extent in this prediction}."""

    sizes: dict[str, int]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


def place_of(tensor: Tensor) -> Place:
    """Where a tensor lies, by which it is known again under another handle."""
    return id(tensor.block), tensor.offset, tensor.shape, tuple(tensor.strides), tensor.dtype


def traces(net: TrainedNet) -> list[Trace]:
    """Predictions of a net: one, then for each symbol one in which its extent alone is another. Nothing runs."""
    inputs = net.input_shapes()
    symbols = {"batch": (BATCH, OTHER_BATCH)}
    for name, shape in inputs.items():
        if shape and shape[0] > 2 and net.refusing(name) is None:  # as many steps as it was set up for may be a case
            symbols[length_of(name, inputs)] = shape[0] - 1, shape[0] - 2
    first = {symbol: extents[0] for symbol, extents in symbols.items()}
    chosen = [first, *({**first, symbol: extents[1]} for symbol, extents in symbols.items())]
    return [_trace(net, sizes) for sizes in chosen]


def length_of(name: str, inputs: Mapping[str, Shape]) -> str:
    """The symbol of an input's time steps: one for all inputs where they have equally many."""
    return "length" if len({shape[:1] for shape in inputs.values()}) == 1 else f"{name}_length"


def symbols_of(name: str, inputs: Mapping[str, Shape], sizes: Mapping[str, int]) -> list[int | str]:
    """The extents of an input, those that may change by their symbols."""
    length, shape = length_of(name, inputs), inputs[name]
    return ["batch", *([length, *shape[1:]] if length in sizes else shape)]


def _trace(net: TrainedNet, sizes: dict[str, int]) -> Trace:
    shapes = net.input_shapes()
    ids = net.input_ids()
    forms = {
        name: (
            tuple(sizes[n] if isinstance(n, str) else n for n in symbols_of(name, shapes, sizes)),
            np.dtype(np.int64) if name in ids else net.dtype,
        )
        for name in shapes
    }
    device = net.device
    with device.first_values(), device.recording() as graph:
        fed = make_feeds(net, device.empty, {"input": forms})
        trace = Trace(sizes, dict(fed["input"]))
        with _noting(net, trace):
            result = PredictStep(net).operations(fed)
        results = result if isinstance(result, Mapping) else {net.output_names()[0]: result}
        for name, made in results.items():
            several = isinstance(made, Sequence)
            trace.outputs |= {f"{name}/{i}": t for i, t in enumerate(made)} if several else {name: made}
    graph.let_go()
    return trace


@contextmanager
def _noting(net: TrainedNet, trace: Trace) -> Iterator[None]:
    """Note each operation inside, and each kernel that none of them called."""
    depth = 0

    def apply(op: Op, inputs: tuple[Tensor | None, ...]) -> Tensor | tuple[Tensor, ...]:
        nonlocal depth
        depth += 1
        try:
            result = op.forward(*inputs)
        finally:
            depth -= 1
        if not depth:
            results = (*(result if isinstance(result, tuple) else (result,)), *getattr(op, "final", ()))
            trace.calls.append(Call(op, _settings_of(op), inputs, results, net.device.layer))
        return result

    def note(operation: Operation) -> None:
        if not depth:
            writes = tuple(operation.writes)
            reads = tuple(t for t in operation.tensors if not any(t is written for written in writes))
            trace.calls.append(Call(operation.kernel, operation.settings, reads, writes, operation.layer))

    token = applying.set(apply)
    try:
        with net.device.watch(note):
            yield
    finally:
        applying.reset(token)


def _settings_of(op: Op) -> dict[str, object]:
    """The settings of its kernel, and its own that are numbers."""
    own = {name: value for name, value in vars(op).items() if isinstance(value, int | float) or name in _OWN}
    return {**own, **getattr(op, "settings", {})}


class Extent(NamedTuple):
    """constant + factor * the product of the symbols."""

    constant: int
    factor: int = 0
    symbols: tuple[str, ...] = ()


def extent(values: Sequence[int], sizes: Sequence[Mapping[str, int]]) -> Extent | None:
    """How a number depends on the symbols, by what it is in each trace. None: in no way that is known."""
    value, *others = values
    symbols = list(sizes[0])
    changed = [symbol for symbol, other in zip(symbols, others, strict=True) if other != value]
    if not changed:
        return Extent(value)
    product = int(np.prod([sizes[0][symbol] for symbol in changed]))
    if len(changed) == 1:
        place = symbols.index(changed[0])
        factor = (others[place] - value) // (sizes[place + 1][changed[0]] - sizes[0][changed[0]])
    else:
        factor = value // product
    found = Extent(value - factor * product, factor, tuple(changed))
    return found if all(number(found, s) == v for v, s in zip(values, sizes, strict=True)) else None


def number(found: Extent, sizes: Mapping[str, int]) -> int:
    """The number that an extent is for these sizes."""
    return found.constant + found.factor * int(np.prod([sizes[symbol] for symbol in found.symbols]))
