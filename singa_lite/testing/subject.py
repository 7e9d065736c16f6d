"""Subjects of checks: a function, a Function or a layer, with inputs in float64 that store their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from singa_lite import device, tensor
from singa_lite.common.array_types import Array, DType
from singa_lite.common.arrays import numbers
from singa_lite.common.checks import flag
from singa_lite.layer.layer import Context, Layer
from singa_lite.tensor import Tensor

_WIDE = np.dtype(np.float64)


class Subject:
    """`call()` computes the outputs anew, from the inputs' values, each time from the same state.

    given: a layer that is in no net yet, or what takes tensors and gives one or several; inputs: arrays or tensors,
    axis 0 of a layer's are samples; parameters: further tensors, by name, that a function goes by; dtype: of floats.
    """

    def __init__(
        self,
        where: str,
        given: Callable[..., object] | Layer,
        inputs: Sequence[object],
        parameters: dict[str, Tensor] | None = None,
        training: bool = True,
        dtype: DType = _WIDE,
        on: device.Device | None = None,
    ) -> None:
        if not callable(given) and not isinstance(given, Layer):
            raise TypeError(f"{where}: wanted a layer or a function of tensors, received {given!r:.80}")
        self.given = given
        self.training = flag(f"{where} training", training)
        self.device = device.cpu() if on is None else on
        arrays = [_array(f"{where} input {place}", one, dtype) for place, one in enumerate(inputs)]
        self.inputs = [tensor.from_numpy(array, self.device) for array in arrays]
        self.trained = {f"input {place}": t for place, t in enumerate(self.inputs) if t.dtype == dtype}
        for one in self.trained.values():
            one.stores_grad = True
        self._states: dict[str, Array] = {}
        if isinstance(given, Layer):
            self._prepare(where, given, dtype)
        self.trained |= _checked_parameters(where, parameters)

    def _prepare(self, where: str, layer: Layer, dtype: DType) -> None:
        if layer.context is not None:
            raise TypeError(f"{where}: wanted a layer that is in no net yet, received {layer!r}")
        flat = [t.shape for t in self.inputs if not t.shape]
        if flat or not self.inputs:
            raise TypeError(f"{where}: wanted inputs whose axis 0 are samples, received {flat or 'none'}")
        layer.prepare([t.shape[1:] for t in self.inputs], Context(self.device, dtype, 5))
        self._states = {name: tensor.to_numpy(state) for name, state in layer.states.items()}
        self.trained |= {name: t for name, t in layer.parameters.items() if t.stores_grad}

    def call(self) -> object:
        """The outputs, of floats alone where there are several."""
        if not isinstance(self.given, Layer):
            made = self.given(*self.inputs)
            return [y for y in made if y.dtype.kind not in "iub"] if isinstance(made, tuple) else made
        for name, state in self.given.states.items():
            state.copy_from_numpy(self._states[name])
        return self.given.forward(self.training, *self.inputs)


def _array(where: str, given: object, dtype: DType) -> Array:
    """The values of an input; floats in the dtype."""
    array = tensor.to_numpy(given) if isinstance(given, Tensor) else numbers(where, np.asarray(given))
    return array.astype(dtype) if array.dtype.kind not in "iub" else array


def _checked_parameters(where: str, given: object) -> dict[str, Tensor]:
    if given is None:
        return {}
    is_named = isinstance(given, dict) and all(isinstance(name, str) for name in given)
    if not isinstance(given, dict) or not is_named:
        raise TypeError(f"{where} parameters: wanted a dict of tensors by name, received {given!r:.80}")
    for name, one in given.items():
        if not isinstance(one, Tensor) or not one.stores_grad or one.dtype != _WIDE:
            raise TypeError(
                f"{where} parameters: wanted a float64 Tensor that stores its gradient as {name!r}, "
                f"received {one!r:.80}"
            )
    return dict(given)
