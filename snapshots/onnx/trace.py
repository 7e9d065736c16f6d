"""The operations of a prediction, noted at several batch sizes and lengths, and how their numbers depend on these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from singa_lite.autograd.ops.op import Op, applying
from singa_lite.common.array_types import DType
from singa_lite.common.errors import SnapshotError
from singa_lite.compiler.ir.operation import Operation
from singa_lite.tensor import Shape, Tensor
from singa_lite.training.steps.fed_tensors import make_feeds
from singa_lite.training.steps.step_functions import PredictStep
from singa_lite.training.trained_net import TrainedNet

#: What a batch is traced with, then another size, and one far from both, at which a quotient or a limit shows.
BATCHES = 2, 3, 101
#: Fewest steps whose number may change in the file: that many extents show how a number depends on it.
LEAST_STEPS = 3

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
    """A record of one prediction, with one extent for each symbol.

    sizes: {symbol: its extent}; lengths: {input: the symbol of its time steps}; inputs, outputs: {layer: tensor}.
    """

    sizes: dict[str, int]
    lengths: Mapping[str, str]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


def place_of(tensor: Tensor) -> Place:
    """Where a tensor lies, by which it is known again under another handle."""
    return id(tensor.block), tensor.offset, tensor.shape, tuple(tensor.strides), tensor.dtype


def traces(net: TrainedNet) -> list[Trace]:
    """Predictions of a net: one, then for each symbol some in which its extent alone is another. Nothing runs.

    SnapshotError where they are not of the same operations. With as many steps as the net was set up for, they may be
    of others: these are traced only where 3 are, and left out then.
    """
    lengths = _lengths(net)
    whole = {symbol: net.input_shapes()[name][0] for name, symbol in lengths.items()}
    symbols = {"batch": BATCHES}
    for symbol, steps in whole.items():
        symbols[symbol] = steps - 1, steps - 2, min(2, steps - 3) or steps
    first = {symbol: extents[0] for symbol, extents in symbols.items()}
    chosen = [first, *({**first, symbol: other} for symbol, extents in symbols.items() for other in extents[1:])]
    found = [_trace(net, sizes, lengths) for sizes in chosen]
    return [trace for trace in found if _has_same_operations(trace, found[0], whole)]


def _has_same_operations(trace: Trace, first: Trace, whole: Mapping[str, int]) -> bool:
    """Returns whether a trace applies the same operations as the first one.

    SnapshotError where it does not, except at the number of steps that the net was set up for (whole, by symbol).
    """
    kinds, wanted = ([c.of if isinstance(c.of, str) else type(c.of) for c in one.calls] for one in (trace, first))
    if kinds == wanted or trace.sizes.items() & whole.items():
        return kinds == wanted
    symbol, extent = next(iter(trace.sizes.items() - first.sizes.items()))
    raise SnapshotError(
        f"export: wanted the same operations at any batch size and length, received others where {symbol} is {extent} "
        f"than where it is {first.sizes[symbol]}"
    )


def _lengths(net: TrainedNet) -> dict[str, str]:
    """{input that may have fewer steps: the symbol of its time}: one symbol where all of these have equally many."""
    steps = {name: shape[0] for name, shape in net.input_shapes().items() if shape and net.refusing(name) is None}
    steps = {name: count for name, count in steps.items() if count >= LEAST_STEPS}
    return {name: "length" if len({*steps.values()}) == 1 else f"{name}_length" for name in steps}


def _trace(net: TrainedNet, sizes: dict[str, int], lengths: Mapping[str, str]) -> Trace:
    ids = net.input_ids()
    forms = {
        name: (
            (sizes["batch"], *((sizes[lengths[name]], *shape[1:]) if name in lengths else shape)),
            np.dtype(np.int64) if name in ids else net.dtype,
        )
        for name, shape in net.input_shapes().items()
    }
    device = net.device
    with device.first_values(), device.recording() as graph:
        fed = make_feeds(net, device.empty, {"input": forms})
        trace = Trace(sizes, lengths, dict(fed["input"]))
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
    value, first = values[0], sizes[0]
    changed: dict[str, int] = {}  # {symbol: by how much the number grows with it}
    for other, extents in zip(values[1:], sizes[1:], strict=True):
        (symbol,) = (name for name in first if extents[name] != first[name])
        if other != value:
            changed.setdefault(symbol, (other - value) // (extents[symbol] - first[symbol]))
    if not changed:
        return Extent(value)
    product = int(np.prod([first[symbol] for symbol in changed]))
    factor = next(iter(changed.values())) if len(changed) == 1 else value // product
    found = Extent(value - factor * product, factor, tuple(changed))
    return found if all(number(found, s) == v for v, s in zip(values, sizes, strict=True)) else None


def number(found: Extent, sizes: Mapping[str, int]) -> int:
    """The number that an extent is for these sizes."""
    return found.constant + found.factor * int(np.prod([sizes[symbol] for symbol in found.symbols]))
