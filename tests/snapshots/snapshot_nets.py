"""What the tests of snapshots share: a net with all kinds of state, batches, and a table of optimizers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, device, layers, loss, optimizer, schedule, tensor
from singa_lite.snapshots.tree import LazyArray

Batch = tuple[np.ndarray, np.ndarray]

#: By name: each class with the options that change its state, and rates that depend on the step.
OPTIMIZERS: dict[str, Callable[[], optimizer.Optimizer]] = {
    "SGD": lambda: optimizer.SGD(schedule.Exponential(0.05, 2, 0.7)),
    "SGD with momentum": lambda: optimizer.SGD(schedule.Exponential(0.05, 2, 0.7), 0.9, 0.2, 0.01),
    "Nesterov": lambda: optimizer.Nesterov(schedule.Step(0.05, 4, 0.5)),
    "RMSProp": lambda: optimizer.RMSProp(schedule.Step(0.02, 4, 0.5)),
    "AdaGrad": lambda: optimizer.AdaGrad(schedule.Step(0.02, 4, 0.5)),
    "Adam": lambda: optimizer.Adam(schedule.CosineWithWarmup(0.01, 9, 2)),
    "AdamW": lambda: optimizer.AdamW(schedule.CosineWithWarmup(0.01, 9, 2)),
    "Adafactor": lambda: optimizer.Adafactor(schedule.Step(0.02, 4, 0.5), weight_decay=0.1),
    "Lion": lambda: optimizer.Lion(schedule.Step(0.002, 4, 0.5), weight_decay=0.1),
    "Muon": lambda: optimizer.Muon(0.02, others=optimizer.AdamW(schedule.Step(0.002, 4, 0.5)), others_for=["*/bias"]),
    "Adam with amsgrad": lambda: optimizer.Adam(schedule.CosineWithWarmup(0.01, 9, 2), amsgrad=True),
}


def make_net(compiled: str | None = None, *, seed: int = 3, dtype: str = "float32", on: Any = None) -> FeedForwardNet:
    """Convolution, batch normalization, dropout and two dense layers that share; (n, 2, 5, 4) -> (n, 6)."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on or device.cpu(), dtype=dtype, seed=seed)
    net.add(layers.Conv2D("conv", 3, 3, input_sample_shape=(2, 5, 4)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("relu"))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 6))
    first = net.add(layers.Dense("first", 6))
    net.add(layers.Dense("second", 6).share_parameters(first))
    if compiled is not None:
        net.compile(OPTIMIZERS[compiled]())
    return net


def dense_net(*called: str, features: int = 3, outputs: int = 2, **options: Any) -> FeedForwardNet:
    """Dense layers of these names, or one, (n, features) -> (n, outputs) -> (n, outputs) ..."""
    net = FeedForwardNet(**{"seed": 3, **options})
    for name in called or ("dense",):
        net.add(layers.Dense(name, outputs, input_sample_shape=None if net.layers else (features,)))
    return net


def lazy(array: np.ndarray) -> LazyArray:
    """An entry of a tree."""
    return LazyArray(array.shape, array.dtype, lambda: array)


def peak_of(call: Callable[[], object]) -> int:
    """Bytes of memory that Python takes for a call at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def batches(count: int, start: int = 0, dtype: str = "float32") -> list[Batch]:
    """Batches number `start` and so on of an endless sequence."""
    numbered = [np.random.default_rng(number) for number in range(start, start + count)]
    return [(rng.normal(size=(7, 2, 5, 4)).astype(dtype), rng.integers(0, 6, 7)) for rng in numbered]


def train(net: FeedForwardNet, given: Iterable[Batch]) -> list[float]:
    """One step a batch; the losses."""
    return [float(net.train_one_batch(x, y)[0]) for x, y in given]


def trained(compiled: str = "Adam", steps: int = 3, **options: Any) -> FeedForwardNet:
    """A net after some steps."""
    net = make_net(compiled, **options)
    train(net, batches(steps, dtype=str(net.dtype)))
    return net


def every_tensor(net: FeedForwardNet) -> list[Any]:
    """Parameters, state and optimizer state."""
    kept = [] if net.optimizer is None else [t for slots in net.optimizer.state.values() for t in slots.values()]
    return [*net.parameters().values(), *net.states().values(), *kept]


def set_all(net: FeedForwardNet, number: int) -> None:
    """Put one number into every element of the net and its optimizer, and into the step."""
    for entry in every_tensor(net):
        entry.copy_from_numpy(np.full(entry.shape, number, entry.dtype))
    net.optimizer.restore_step(number)


def number_in(net: FeedForwardNet) -> int:
    """The number that `set_all` put everywhere; fails if there are several."""
    numbers = {float(number) for entry in every_tensor(net) for number in np.unique(tensor.to_numpy(entry))}
    (number,) = numbers | {float(net.optimizer.step)}
    return int(number)
