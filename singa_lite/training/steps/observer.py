"""Observer: what somebody looks at of a step: outputs and derivatives of some layers, and norms of all of them.

All of it is part of the step: what is kept is held as the loss is, so that no plan uses its bytes again, and a norm is
one more operation that reads what is there anyway. So a replay that is observed is still one pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import sqrt
from typing import NamedTuple, TypeAlias

import numpy as np

from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.tensor import Tensor, to_numpy

_FLOAT64 = np.dtype(np.float64)

#: One tensor, or several, or none.
Tensors: TypeAlias = Tensor | list[Tensor] | None


class KeptTensors(NamedTuple):
    """What `compile(keep=)` keeps of a layer, until the next step overwrites it.

    output: as the layer gave it; a list where it has several outputs, or ran several times. derivative: of the loss's
    mean by that output, of the same shape, a list likewise; None of a step that does not train, and where none is made:
    of a frozen layer, and of whole numbers.
    """

    output: Tensors
    derivative: Tensors


class Norms(NamedTuple):
    """Euclidean norms of a training step: of outputs by layer, of parameters before the update, and their gradients."""

    outputs: dict[str, float]
    parameters: dict[str, float]
    gradients: dict[str, float]

    def __str__(self) -> str:
        """A line for each layer."""
        lines = [self._line(path) for path in self._layers()]
        width = max((len(path) for path in self._layers()), default=0)
        return "\n".join(f"{path:{width}}  {line}" for path, line in zip(self._layers(), lines, strict=True))

    def _layers(self) -> list[str]:
        return list(dict.fromkeys([*self.outputs, *(name.rpartition("/")[0] for name in self.parameters)]))

    def _line(self, path: str) -> str:
        parts = [f"output {self.outputs[path]:.4e}"] if path in self.outputs else []
        for name, norm in self.parameters.items():
            layer, _, short = name.rpartition("/")
            if layer == path:
                parts.append(f"{short} {norm:.4e}, gradient {self.gradients[name]:.4e}")
        return "; ".join(parts)


class ObservedTensors(NamedTuple):
    """The observed tensors of a step that is recorded or done; each replay fills them.

    outputs, parameters, gradients: sums of squares, float64 (); scale: what the step's loss was multiplied by.
    """

    kept: dict[str, KeptTensors]
    outputs: dict[str, Tensor]
    parameters: dict[str, Tensor]
    gradients: dict[str, Tensor]
    scale: Tensor | None

    def tensors(self) -> list[Tensor]:
        """All of them."""
        sums = (*self.outputs.values(), *self.parameters.values(), *self.gradients.values(), self.scale)
        kept = (one for each in self.kept.values() for given in each for one in _listed(given))
        return [*kept, *(tensor for tensor in sums if tensor is not None)]

    def norms(self) -> Norms:
        """Their roots, which waits for the step; gradients are those of the loss itself."""
        scale = 1.0 if self.scale is None else float(to_numpy(self.scale))
        outputs, parameters, gradients = map(_roots, (self.outputs, self.parameters, self.gradients))
        return Norms(outputs, parameters, {name: norm / scale for name, norm in gradients.items()})


class Observer:
    """Looks at one step while its operations are done or recorded.

    names: paths of layers whose outputs and derivatives are kept; norms: whether norms are taken. copied: keep copies,
    where holding a value itself would change how it is stored, as in 16 bits.
    """

    def __init__(self, names: Collection[str], norms: bool, copied: bool) -> None:
        self.names = tuple(names)
        self.norms = norms
        self._copied = copied
        self._outputs: dict[str, list[Tensor]] = {}
        self._derivatives: dict[str, list[Tensor]] = {}
        self._squares: tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]] = ({}, {}, {})
        self._scale: Tensor | None = None

    def without_norms(self) -> Observer:
        """What an evaluation is looked at by."""
        return Observer(self.names, False, self._copied)

    def output(self, path: str, tensors: Collection[Tensor]) -> None:
        """A layer has given these."""
        if path in self.names:
            self._outputs.setdefault(path, []).extend(self._held(tensor) for tensor in tensors)
        for tensor in tensors if self.norms else ():
            if tensor.dtype.kind == "f":
                _add_squares(self._squares[0], path, tensor)

    def derivative(self, path: str, tensors: Collection[Tensor]) -> None:
        """The walk back has come to these derivatives by a kept layer's outputs."""
        for tensor in tensors:
            with device_of(tensor).scope(Phase.DERIVATIVE, path):
                self._derivatives.setdefault(path, []).append(self._held(tensor))

    def gradient(self, name: str, value: Tensor, gradient: Tensor) -> None:
        """A parameter is about to be updated."""
        if self.norms:
            with device_of(value).scope(Phase.UPDATE, name.rpartition("/")[0]):
                _add_squares(self._squares[1], name, value)
                _add_squares(self._squares[2], name, gradient)

    def squares_of(self, names: Iterable[str], device: Device) -> list[Tensor]:
        """The squares of these parameters, then those of their gradients, zeros of what was not seen: parts of what
        several processes have together.
        """
        if not self.norms:
            return []
        names = list(names)
        return [_sum_in(sums, name, device) for sums in self._squares[1:] for name in names]

    def scaled_by(self, scale: Tensor, device: Device) -> None:
        """The step's loss is multiplied by this, which the step may change at its end."""
        if self.norms:
            self._scale = device.empty((), _FLOAT64)
            device.run("copy", scale, self._scale)

    def seen(self) -> ObservedTensors:
        """All of it; the observer holds nothing any more."""
        kept = {
            path: KeptTensors(_one(self._outputs.get(path)), _one(self._derivatives.get(path))) for path in self.names
        }
        made = ObservedTensors(kept, *self._squares, self._scale)
        self._outputs, self._derivatives, self._squares, self._scale = {}, {}, ({}, {}, {}), None
        return made

    def _held(self, tensor: Tensor) -> Tensor:
        """The tensor without its tape, or a copy."""
        if not self._copied or tensor.dtype.kind != "f":
            return tensor.detach()
        made: Tensor = tensor.device.empty(tensor.shape, tensor.dtype, tensor.memory_order())
        tensor.device.run("copy", tensor, made)
        return made


def _add_squares(sums: dict[str, Tensor], name: str, tensor: Tensor) -> None:
    """Enter a tensor, beside those that were entered under this name before."""
    tensor.device.run("add_squares", tensor.detach(), _sum_in(sums, name, device_of(tensor)))


def _sum_in(sums: dict[str, Tensor], name: str, device: Device) -> Tensor:
    """The sum under this name, 0 at first."""
    if name not in sums:
        sums[name] = device.empty((), _FLOAT64)
        device.run("fill", sums[name], value=0.0)
    return sums[name]


def _roots(squares: Mapping[str, Tensor]) -> dict[str, float]:
    return {name: sqrt(total) if (total := float(to_numpy(each))) >= 0 else total for name, each in squares.items()}


def _listed(tensors: Tensors) -> list[Tensor]:
    return tensors if isinstance(tensors, list) else [] if tensors is None else [tensors]


def _one(tensors: list[Tensor] | None) -> Tensors:
    if not tensors:
        return None
    return tensors if len(tensors) > 1 else tensors[0]
