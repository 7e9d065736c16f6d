"""Gradients by the tape against central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_lite import autograd, tensor
from singa_lite.tensor import Tensor

Function = Callable[[], Any]

# Central differences err by STEP**2 / 6 times the third derivative, and by rounding, 1e-16 / STEP times the value:
# about 1e-11 each. So 1e-6 leaves room for values of other sizes, and still finds a wrong term anywhere.
STEP = 1e-5
TOLERANCE = 1e-6
LEAST = 1e-3  # a gradient smaller than this all over would be no evidence


def spread(rng: np.random.Generator, shape: Sequence[int], low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Different numbers, evenly spaced, in shuffled order: no ties, and for low = -high no zero."""
    count = int(np.prod(shape))
    values = low + (high - low) * (np.arange(count) + 0.3) / count
    return rng.permutation(values).reshape(shape)


def outputs_of(result: Any) -> list[Tensor]:
    """What a layer or an operation returned, as a list."""
    return list(result) if isinstance(result, list | tuple) else [result]


def projections(outputs: Sequence[Tensor], seed: int = 7) -> list[np.ndarray]:
    """Random weights for each output, fixed by the seed; the sum of products makes one number of them all.

    They lie between 1/2 and 3/2, of both signs: a weight near 0 would hide its element.
    """
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.uniform(0.5, 1.5, y.shape) * rng.choice((-1, 1), y.shape)) for y in outputs]


def by_tape(
    function: Function, tensors: Sequence[Tensor], weights: Sequence[np.ndarray] | None = None
) -> list[np.ndarray]:
    """The gradients of the weighted sum of the outputs, for tensors that store theirs."""
    outputs = outputs_of(function())
    weights = projections(outputs) if weights is None else weights
    total = None
    for output, weight in zip(outputs, weights, strict=True):
        factor = tensor.from_numpy(weight.astype(output.dtype), output.device)
        term = autograd.reduce_sum(autograd.multiply(output, factor))
        total = term if total is None else autograd.add(total, term)
    found = {id(parameter): tensor.to_numpy(gradient) for parameter, gradient in autograd.backward(total)}
    assert set(found) == {id(t) for t in tensors}, "wanted one gradient for each tensor, and no other"
    return [found[id(t)] for t in tensors]


def by_differences(function: Function, tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """The same gradients by central differences, element by element. The tensors are left as they were."""
    with autograd.no_grad():
        weights = projections(outputs_of(function()))

    def value() -> float:
        with autograd.no_grad():
            outputs = [tensor.to_numpy(output) for output in outputs_of(function())]
        return sum(float(np.vdot(output, weight)) for output, weight in zip(outputs, weights, strict=True))

    return [_differences(value, t) for t in tensors]


def _differences(value: Callable[[], float], moved: Tensor) -> np.ndarray:
    start = tensor.to_numpy(moved)
    derivative = np.empty_like(start)
    for place in np.ndindex(start.shape):
        sides = []
        for step in (STEP, -STEP):
            array = start.copy()
            array[place] += step
            moved.copy_from_numpy(array)
            sides.append(value())
        derivative[place] = (sides[0] - sides[1]) / (2 * STEP)
    moved.copy_from_numpy(start)
    return derivative


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, as a part of the largest wanted value."""
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def check_gradients(function: Function, tensors: Sequence[Tensor]) -> None:
    """Fail unless the tape gives what central differences give, for each of the tensors, all float64.

    function: computes the outputs anew from the tensors' values at each call, the same from the same.
    """
    wanted = by_differences(function, tensors)
    found = by_tape(function, tensors)
    for place, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert mine.dtype == np.float64
        assert np.abs(theirs).max() > LEAST, f"tensor {place}: the outputs hardly depend on it"
        assert relative_error(mine, theirs) < TOLERANCE, f"tensor {place} of shape {theirs.shape}"
