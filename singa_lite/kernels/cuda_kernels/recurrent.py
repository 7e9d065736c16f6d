"""Recurrent layers: for each step the products of a set, and a kernel of ours for all else, its cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.built import Builder
from singa_lite.kernels.call import Call
from singa_lite.kernels.composed import Calls, ComposedKernel, InnerCall, Temporaries, product
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, Loader, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES, are_floats, computed
from singa_lite.kernels.cuda_kernels.walk import steps
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Kernel, KernelSet, Settings, TensorSpec, TensorSpecs

#: Kernels of recurrent.cu and their operands, matrices with a row for each sample, in their order.
_CELLS = {
    "lstm_cell": "gates_in sums mask hidden cell gates next_hidden next_cell",
    "lstm_derivative_cell": "dy sums carried next_mask mask gates cell next_cell carried_cell dgates",
    "gru_cell": "gates_in sums bias mask hidden gates products next_hidden",
    "gru_reset_cell": "gates_in sums bias mask hidden gates products",
    "gru_state_cell": "gates_in sums bias mask hidden gates next_hidden",
    "gru_derivative_cell": "dy sums carried next_mask mask gates hidden products dproducts dgates",
    "gru_reset_derivative_cell": "sums carried mask gates hidden dgates",
    "simple_rnn_cell": "gates_in sums mask hidden next_hidden",
    "simple_rnn_derivative_cell": "dy sums carried next_mask mask next_hidden dgates",
}


def kernels(products: KernelSet, loader: Loader) -> dict[str, Kernel]:
    """The recurrent layers. products: the set that does these."""
    cells = {name: CudaKernel(_builder(name), loader) for name in _CELLS}
    return {name: ComposedKernel(_calls(name, cells), products, _supports(name)) for name in _LAYERS}


class Recurrence:
    """One call of a recurrent layer: its tensors by name, buffers and steps. cells: the kernels of recurrent.cu."""

    def __init__(
        self, cells: dict[str, CudaKernel], temporaries: Temporaries, tensors: dict[str, Any], settings: Settings
    ) -> None:
        self.cells, self.temporaries, self.tensors, self.settings = cells, temporaries, tensors, settings
        gates = tensors["gates_in"] if "gates_in" in tensors else tensors["dgates"]
        self.dtype, (count, self.samples, _) = gates.dtype, gates.shape
        self.units, self.reverse = len(tensors["weight"]), bool(settings["reverse"])
        #: The indices of all steps, from the first one on.
        self.order = [*range(count)][:: -1 if self.reverse else 1]

    def __getitem__(self, name: str) -> Any:
        """A tensor; None where it is left out."""
        return self.tensors[name]

    def buffer(self, gates: int = 1) -> Any:
        """A matrix of what cells compute in, for so many gates."""
        return self.temporaries.array((self.samples, gates * self.units), computed(self.dtype))

    def start(self, states: str) -> InnerCall:
        """The first state: what was given, or 0."""
        first, target = self[f"{states}0"], self.previous_state(states, self.order[0])
        return InnerCall("fill", (target,), {"value": 0.0}) if first is None else InnerCall("copy", (first, target))

    def previous_state(self, states: str, step: int) -> Any:
        """The state before a step."""
        return self[states][step + self.reverse]

    def cell(self, name: str, step: int, **others: Any) -> InnerCall:
        """The cell of a step. others: its operands that are no tensors of the call."""
        operands = [others[one] if one in others else self._part(one, step) for one in _CELLS[name].split()]
        kind = self.settings["activation" if "activation" in self.settings else "recurrent_activation"]
        return InnerCall(self.cells[name], tuple(operands), {"is_piecewise": kind in ("hard_sigmoid", "relu")})

    def derivative_cell(self, name: str, step: int, sums: Any, **others: Any) -> InnerCall:
        """The same of a derivative. sums: the product of the derivative of the next step."""
        behind, dy = self.next_step(step), self["dy"]
        if not self.settings["last"]:
            dy = dy[step]
        elif behind is not None:
            dy = None
        mask = None if behind is None else self._part("mask", behind)
        return self.cell(name, step, dy=dy, sums=None if behind is None else sums, next_mask=mask, **others)

    def next_step(self, step: int) -> int | None:
        """The step behind one; None behind the last one."""
        return None if step == self.order[-1] else step - 1 if self.reverse else step + 1

    def _part(self, operand: str, step: int) -> Any:
        """What a cell is given of a tensor; "next_hidden" is the state behind the step."""
        name = operand.removeprefix("next_")
        tensor = self[name]
        if tensor is None:
            return None
        if name == "mask":
            return tensor[:, step : step + 1]
        if name == "bias":
            return tensor[None]
        if name in ("hidden", "cell"):
            return self.previous_state(name, step) if operand == name else tensor[step + 1 - self.reverse]
        return tensor[step]


def _forward(layer: Recurrence, cell: str, gates: int) -> Iterator[InnerCall]:
    """One product a step."""
    sums = layer.buffer(gates)
    yield from (layer.start(states) for states in ("hidden", "cell") if states in layer.tensors)
    for step in layer.order:
        yield product(layer.previous_state("hidden", step), layer["weight"], sums)
        yield layer.cell(cell, step, sums=sums)


def _derivative(layer: Recurrence, cell: str, *carried: str) -> Iterator[InnerCall]:
    """One product between two steps. carried: operands that a step leaves to the one before."""
    sums, buffers = layer.buffer(), {name: layer.buffer() for name in carried}
    for step in reversed(layer.order):
        behind = layer.next_step(step)
        if behind is not None:
            yield product(layer["dgates"][behind], layer["weight"], sums, transpose_b=True)
        yield layer.derivative_cell(cell, step, sums, **buffers)


def _gru(layer: Recurrence) -> Iterator[InnerCall]:
    """Where the reset gate is before the product, that of n is a second one."""
    if layer.settings["reset_after"]:
        yield from _forward(layer, "gru_cell", 3)
        return
    sums, of_n, weight, columns = layer.buffer(2), layer.buffer(), layer["weight"], 2 * layer.units
    yield layer.start("hidden")
    for step in layer.order:
        yield product(layer.previous_state("hidden", step), weight[:, :columns], sums)
        yield layer.cell("gru_reset_cell", step, sums=sums)
        yield product(layer["products"][step], weight[:, columns:], of_n)
        yield layer.cell("gru_state_cell", step, sums=of_n)


def _gru_derivative(layer: Recurrence) -> Iterator[InnerCall]:
    """Where the reset gate is before the product, the derivative by it is made behind a product of the same step."""
    sums, carried, of_n, columns = layer.buffer(), layer.buffer(), layer.buffer(), 2 * layer.units
    dgates, dproducts, weight = layer["dgates"], layer["dproducts"], layer["weight"]
    for step in reversed(layer.order):
        behind = layer.next_step(step)
        if behind is not None:
            yield product(dgates[behind, :, :columns], weight[:, :columns], sums, transpose_b=True)
        if behind is not None and dproducts is not None:
            yield product(dproducts[behind], weight[:, columns:], sums, "matmul_add", transpose_b=True)
        yield layer.derivative_cell("gru_derivative_cell", step, sums, carried=carried)
        if dproducts is None:
            yield product(dgates[step, :, columns:], weight[:, columns:], of_n, transpose_b=True)
            yield layer.cell("gru_reset_derivative_cell", step, sums=of_n, carried=carried)


_LAYERS: dict[str, Callable[[Recurrence], Iterator[InnerCall]]] = {
    "lstm": lambda layer: _forward(layer, "lstm_cell", 4),
    "lstm_derivative": lambda layer: _derivative(layer, "lstm_derivative_cell", "carried", "carried_cell"),
    "gru": _gru,
    "gru_derivative": _gru_derivative,
    "simple_rnn": lambda layer: _forward(layer, "simple_rnn_cell", 1),
    "simple_rnn_derivative": lambda layer: _derivative(layer, "simple_rnn_derivative_cell", "carried"),
}


def _calls(name: str, cells: dict[str, CudaKernel]) -> Calls:
    def calls(temporaries: Temporaries, *operands: Any, **settings: object) -> Iterator[InnerCall]:
        tensors = dict(zip(SIGNATURES[name].tensors, operands, strict=True))
        return _LAYERS[name](Recurrence(cells, temporaries, tensors, settings))

    return calls


def _supports(name: str) -> Callable[[TensorSpecs, Settings], bool]:
    """Floats of one type; dy may be of another one, and a mask of any."""

    def is_supported(specs: TensorSpecs, settings: Settings) -> bool:
        given = dict(Call.from_specs(name, specs, settings).operands)
        if any(spec.size == 0 for spec in given.values()):
            return False
        mask, dy = given.pop("mask", None), given.pop("dy", None)
        return (
            are_floats(*given.values())
            and (mask is None or mask.dtype.name in TYPES)
            and (dy is None or dy.dtype.name in FLOATS)
        )

    return is_supported


def _builder(name: str) -> Builder[Routine]:
    """Of a kernel of recurrent.cu."""
    names = _CELLS[name].split()

    def build(*specs: TensorSpec | None, is_piecewise: bool) -> Routine:
        given = {operand: spec for operand, spec in zip(names, specs, strict=True) if spec is not None}
        states = next(given[operand] for operand in ("hidden", "next_hidden", "cell") if operand in given)
        types = {"T": states.dtype, "M": np.dtype(np.uint8), "D": states.dtype}
        types |= {letter: given[operand].dtype for letter, operand in (("M", "mask"), ("D", "dy")) if operand in given}
        cells = _struct(states, specs, is_piecewise)
        return Routine().launch("recurrent.cu", name, cells, *specs, types=types, grid=blocks(states.size))

    build.__name__ = name
    return build


def _struct(states: TensorSpec, specs: TensorSpecs, is_piecewise: bool) -> Array:
    """`Cells` of recurrent.cu."""
    numbers = [(name, "i8") for name in ("count", "units", "is_piecewise")]
    struct = np.zeros((), np.dtype([*numbers, ("strides", "i8", (len(specs), 2))]))
    struct["count"], struct["units"], struct["is_piecewise"] = states.size, states.shape[1], is_piecewise
    for strides, spec in zip(struct["strides"], specs, strict=True):
        if spec is not None:
            strides[:] = [0 if extent == 1 else by for extent, by in zip(spec.shape, steps(spec), strict=True)]
    return struct
