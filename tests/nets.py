"""What the tests of nets share: values to compare bit for bit, whole training steps, and central differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, Tensor, device, layers, loss, metric, tensor

# Central differences in float64 err by about STEP**2 and 1e-16 / STEP; a wrong term shows at TOLERANCE.
STEP = 1e-5
TOLERANCE = 1e-6

Bytes = tuple[str, tuple[int, ...], bytes]


def bits(value: Tensor | np.ndarray) -> Bytes:
    """dtype, shape and bytes, so that NaN equals NaN and 0.0 differs from -0.0."""
    array = tensor.to_numpy(value)
    return str(array.dtype), array.shape, array.tobytes()


def all_bits(named: Mapping[str, Tensor]) -> dict[str, Bytes]:
    """`bits` of each."""
    return {name: bits(value) for name, value in named.items()}


def state_of(net: FeedForwardNet) -> dict[str, Any]:
    """All that a step may change: layers, parameters, state, optimizer state and step. Net may be half built."""
    state: dict[str, Any] = {"layers": list(net.layers)}
    for layer in net.layers.values():
        for table in (layer.parameters, layer.states):
            state |= {f"{layer.name}: {name}": bits(value) for name, value in table.items()}
    if net.optimizer is not None:
        state["step"] = net.optimizer.step
        for parameter, slots in net.optimizer.state.items():
            state |= {f"{parameter}: {slot}": bits(value) for slot, value in slots.items()}
    return state


def forward_and_loss(net: FeedForwardNet, x: Any, y: Any) -> Any:
    """A training forward of a net with one output; returns the derivative to start backward from."""
    net.loss.forward(True, net.forward(True, x), y)
    return net.loss.backward()


def explicit_step(net: FeedForwardNet, x: Any, y: Any) -> None:
    """One training step as users write it, by the generator."""
    for names, values, gradients, _ in net.backward(forward_and_loss(net, x, y)):
        for name, value, gradient in zip(names, values, gradients, strict=True):
            net.optimizer.update(name, value, gradient)


def gradients_of(walk: Iterator[Any]) -> dict[str, np.ndarray]:
    """Copies of all gradients that a net's backward yields, in its order; a name that comes twice is an error."""
    found: dict[str, np.ndarray] = {}
    for names, values, gradients, _ in walk:
        assert [value.name for value in values] == names
        for name, gradient in zip(names, gradients, strict=True):
            assert name not in found, f"{name} was yielded twice"
            found[name] = tensor.to_numpy(gradient)
    return found


def difference(function: Any, moved: Tensor, place: tuple[int, ...], step: float = STEP) -> float:
    """The slope of function() by one element of a float64 tensor, which is left as it was."""
    start = tensor.to_numpy(moved)
    sides = []
    for change in (step, -step):
        array = start.copy()
        array[place] += change
        moved.copy_from_numpy(array)
        sides.append(float(function()))
    moved.copy_from_numpy(start)
    return (sides[0] - sides[1]) / (2 * step)


def differences(function: Any, moved: Tensor) -> np.ndarray:
    """The slopes by all elements."""
    slopes = [difference(function, moved, place) for place in np.ndindex(moved.shape)]
    return np.array(slopes).reshape(moved.shape)


def assert_close(found: Any, wanted: np.ndarray) -> None:
    """Fail unless the largest error is below TOLERANCE of the largest wanted value, which is no zero."""
    found = tensor.to_numpy(found) if isinstance(found, Tensor) else np.asarray(found)
    assert found.shape == wanted.shape
    assert np.abs(wanted).max() > 1e-4, "zeros would be no evidence"
    assert np.abs(found - wanted).max() < TOLERANCE * np.abs(wanted).max()


def images(on: Any = None, **options: Any) -> FeedForwardNet:
    """A float32 net with all that has state, for images (2, 5, 4) in 4 classes."""
    options = {"seed": 9, "device": on or device.new_cpu(), **options}
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), **options)
    net.add(layers.Conv2D("conv", 3, 3, input_sample_shape=(2, 5, 4)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act"))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4))
    return net
