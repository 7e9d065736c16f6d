"""Gradients by the tape against central differences, in float64, of a function, a Function or a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from singa_lite import autograd, device, tensor
from singa_lite.common.array_types import Array, DType
from singa_lite.common.arrays import numbers
from singa_lite.common.checks import flag
from singa_lite.layer.layer import Context, Layer
from singa_lite.tensor import Tensor

Values: TypeAlias = NDArray[np.float64]
#: Gives a tensor, or several in a list or a tuple.
Computes = Callable[[], object]

# Central differences err by STEP**2 / 6 times the third derivative, and by rounding, 1e-16 / STEP times the value:
# about 1e-11 each. So 1e-6 leaves room for values of other sizes, and still finds a wrong term anywhere.
STEP = 1e-5
TOLERANCE = 1e-6
LEAST = 1e-3  # a gradient smaller than this all over would be no evidence


class CheckError(AssertionError):
    """A derivative, or another promise of an operation, does not hold. The message says where.

    >>> class Wrong(autograd.Op):
    ...     def forward(self, x):
    ...         return self.computed("scale", x, alpha=3.0, beta=0.0)
    ...     def backward(self, index, *dys):
    ...         return self.computed("scale", dys[0], alpha=2.0, beta=0.0)
    >>> testing.check_gradients(lambda x: Wrong()(x), [0.5, 1.5])
    Traceback (most recent call last):
        ...
    singa_lite.testing.gradients.CheckError: wanted gradients within 1e-06 of central differences, ...
    """


@dataclass(frozen=True)
class Compared:
    """The comparison of one tensor's gradient with central differences. name: what it is called; error: the largest
    difference, as a part of the largest element; found, wanted: the two gradients.

    >>> (row,) = testing.check_gradients(autograd.tanh, np.array([0.5, -1.5]))
    >>> row.name, row.error < 1e-6
    ('input 0', True)
    """

    name: str
    error: float
    found: Values
    wanted: Values

    def __str__(self) -> str:
        place = np.unravel_index(int(np.abs(self.found - self.wanted).argmax()), self.wanted.shape)
        at = ", ".join(str(int(index)) for index in place)
        return (
            f"{self.name} of shape {self.wanted.shape}: {self.error:.2g} of its largest element off, most at [{at}]: "
            f"{self.found[place]:.10g} by the tape, {self.wanted[place]:.10g} by central differences"
        )


def spread(rng: np.random.Generator, shape: Sequence[int], low: float = -2.0, high: float = 2.0) -> Values:
    """Different numbers, evenly spaced, in shuffled order: no ties, and for low = -high no zero."""
    count = int(np.prod(shape))
    values = low + (high - low) * (np.arange(count) + 0.3) / count
    return rng.permutation(values).reshape(shape)


def outputs_of(result: object) -> list[Tensor]:
    """What a layer or an operation returned, as a list."""
    return list(result) if isinstance(result, list | tuple) else [result]  # type: ignore[list-item]


def projections(outputs: Sequence[Tensor], seed: int = 7) -> list[Values]:
    """Random weights for each output, fixed by the seed; the sum of products makes one number of them all.

    They lie between 1/2 and 3/2, of both signs: a weight near 0 would hide its element.
    """
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.uniform(0.5, 1.5, y.shape) * rng.choice((-1, 1), y.shape)) for y in outputs]


def by_tape(function: Computes, tensors: Sequence[Tensor], weights: Sequence[Values] | None = None) -> list[Values]:
    """The gradients of the weighted sum of the outputs, for tensors that store theirs."""
    outputs = outputs_of(function())
    weights = projections(outputs) if weights is None else weights
    total = None
    for output, weight in zip(outputs, weights, strict=True):
        factor = tensor.from_numpy(weight.astype(output.dtype), output.device)
        term = autograd.reduce_sum(autograd.multiply(output, factor))
        total = term if total is None else autograd.add(total, term)
    if total is None:
        raise CheckError("wanted an output at least, received none")
    found = {id(parameter): tensor.to_numpy(gradient) for parameter, gradient in autograd.backward(total)}
    if set(found) != {id(t) for t in tensors}:
        raise CheckError(f"wanted one gradient for each of {len(tensors)} tensors, and no other, received {len(found)}")
    return [found[id(t)] for t in tensors]


def by_differences(function: Computes, tensors: Sequence[Tensor], step: float = STEP) -> list[Values]:
    """The same gradients by central differences, element by element. The tensors are left as they were."""
    with autograd.no_grad():
        weights = projections(outputs_of(function()))

    def value() -> float:
        with autograd.no_grad():
            outputs = [tensor.to_numpy(output) for output in outputs_of(function())]
        return sum(float(np.vdot(output, weight)) for output, weight in zip(outputs, weights, strict=True))

    return [_differences(value, t, step) for t in tensors]


def _differences(value: Callable[[], float], moved: Tensor, step: float) -> Values:
    start = tensor.to_numpy(moved)
    derivative = np.empty_like(start)
    try:
        for place in np.ndindex(start.shape):
            sides = []
            for by in (step, -step):
                array = start.copy()
                array[place] += by
                moved.copy_from_numpy(array)
                sides.append(value())
            derivative[place] = (sides[0] - sides[1]) / (2 * step)
    finally:
        moved.copy_from_numpy(start)
    return derivative


def relative_error(found: Values, wanted: Values) -> float:
    """The largest difference, as a part of the largest wanted value."""
    if found.shape != wanted.shape:
        raise CheckError(f"wanted shape {wanted.shape}, received {found.shape}")
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def compare(
    function: Computes,
    tensors: Sequence[Tensor],
    names: Sequence[str] | None = None,
    step: float = STEP,
    tolerance: float = TOLERANCE,
) -> list[Compared]:
    """CheckError unless the tape gives what central differences give, for each of the tensors, all float64.

    function: computes the outputs anew from the tensors' values at each call, the same from the same. names: of the
    tensors, for messages.
    """
    names = [f"tensor {place}" for place in range(len(tensors))] if names is None else names
    wanted = by_differences(function, tensors, step)
    found = by_tape(function, tensors)
    compared = [_compared(*each) for each in zip(names, found, wanted, strict=True)]
    wrong = [str(one) for one in compared if not one.error < tolerance]
    if wrong:
        raise CheckError(f"wanted gradients within {tolerance:g} of central differences, received " + "; ".join(wrong))
    return compared


def _compared(name: str, found: Values, wanted: Values) -> Compared:
    if found.dtype != np.float64:
        raise CheckError(f"{name}: wanted a gradient in float64, received {found.dtype}")
    if not np.abs(wanted).max(initial=0) > LEAST:
        raise CheckError(f"{name}: wanted outputs that depend on it, received some that hardly depend on it")
    return Compared(name, relative_error(found, wanted), found, wanted)


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
