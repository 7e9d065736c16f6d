"""Random expressions and random nets, made from a seed: the same one on every device, eager or recorded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from singa_lite import FeedForwardNet, Tensor, autograd, device, layers, loss, metric, optimizer, regularizer, tensor
from singa_lite.device import Device
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY

UNARY = (autograd.relu, autograd.tanh, autograd.sigmoid, autograd.gelu, autograd.silu, autograd.softplus, autograd.elu,
         autograd.relu6, autograd.identity, autograd.leaky_relu, autograd.abs)  # fmt: skip
BINARY = (autograd.add, autograd.add, autograd.subtract, autograd.multiply, autograd.maximum, autograd.minimum)

OPTIMIZERS: tuple[Callable[[], optimizer.Optimizer], ...] = (
    lambda: optimizer.SGD(lr=0.05),
    lambda: optimizer.SGD(lr=0.05, momentum=0.9, weight_decay=0.01),
    lambda: optimizer.Adam(lr=0.01),
    lambda: optimizer.SGD(lr=0.05, momentum=0.5, constraint=regularizer.ElementConstraint(0.1)),
    lambda: optimizer.AdaGrad(lr=0.05, regularizer=regularizer.L2Regularizer(0.1)),
)


#: The reference kernels over images and filters as fast kernels like them, so that these pieces may move.
CHANNELS_LAST = KernelSet("numpy, channels last", {}, NUMPY, {"image": (0, 2, 3, 1), "filters": (2, 3, 1, 0)})


def channels_last() -> Device:
    """A new device with those kernels."""
    made = device.new_cpu(kernels="numpy")
    made.kernels = CHANNELS_LAST
    return made


def empty(on: Device, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """A new tensor without gaps. order: of its axes in memory, outermost first."""
    made = on.empty([shape[axis] for axis in order])
    return made.view(shape, [made.strides[order.index(axis)] for axis in range(len(shape))])


class Expression:
    """Operations over a few inputs and parameters, one or several losses, and their updates.

    The same seed and length make the same tensors and choose the same operations at each call of `step`. There are
    fan-out, ladders, chains that could all lie in one place, views of views, concatenations of views, tensors whose
    axes lie in another order, random numbers, running statistics, results that nobody uses, and values that the
    user keeps.
    """

    def __init__(self, seed: int, length: int, on: Device) -> None:
        self.seed, self.length, self.on = seed, length, on
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.inputs = [self._tensor(shape) for shape in ((4, 6), (4, 6), (6, 3), (2, 3, 4), (2, 3, 2, 4))]
        self.parameters = [self._parameter(shape) for shape in ((6, 6), (6, 3), (3, 6), (6,), (4, 6))]
        self.gamma, self.beta = self._parameter((6,)), self._parameter((6,))
        self.running = [tensor.zeros((6,), device=on), tensor.ones((6,), device=on)]
        self.random_state = tensor.from_numpy(np.array([seed % 1000, 7, 0], np.uint64), on)
        self.optimizer = random.Random(seed).choice(OPTIMIZERS)()

    def _tensor(self, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
        order = self.rng.permutation(len(shape)) if self.rng.random() < 0.3 else np.arange(len(shape))
        made = empty(self.on, shape, order.tolist())
        made.copy_from_numpy((self.rng.standard_normal(shape) * scale).astype("f"))
        return made

    def _parameter(self, shape: tuple[int, ...]) -> Tensor:
        made = self._tensor(shape, 0.5)
        made.stores_grad = True
        return made

    def step(self) -> list[Tensor]:
        """One step; the losses, and what the user keeps of the values before."""
        self.choose = random.Random(self.seed)
        kept = []
        for _ in range(self.choose.choice((1, 1, 1, 2))):
            kept += self._pass()
        return kept

    def _pass(self) -> list[Tensor]:
        """Forward, a loss, backward and updates."""
        values = [*self.inputs, *self.choose.sample(self.parameters, 3)]
        kinds = (self._unary, self._binary, self._product, self._view, self._concat, self._other, self._chain,
                 self._change, self._overwrite, self._turned)  # fmt: skip
        for kind in self.choose.choices(kinds, (5, 5, 4, 4, 4, 3, 1, 1, 1, 2), k=self.length):
            values += kind(values)
        kept = [value.detach() for value in values[len(self.inputs) + 3 :] if self.choose.random() < 0.1]
        chosen = [value for value in values[-3:] if value.creator is not None]
        weight = self.choose.choice(self.parameters)
        total = autograd.reduce_mean(autograd.tanh(weight))
        for value in chosen:
            total = total + autograd.reduce_mean(autograd.multiply(value, value))
        del values, chosen
        for parameter, gradient in autograd.backward(total):
            if self.choose.random() < 0.1:
                kept.append(gradient.detach())
            self.optimizer.update(None, parameter, gradient)
        return [total.detach(), *kept]

    def _recent(self, values: list[Tensor]) -> Tensor:
        return self.choose.choice(values[-4:] if self.choose.random() < 0.6 else values)

    def _like(self, values: list[Tensor], x: Tensor) -> Tensor:
        return self._recent([other for other in values if other.shape == x.shape])

    def _unary(self, values: list[Tensor]) -> list[Tensor]:
        x = self._recent(values)
        kind = self.choose.randrange(len(UNARY) + 2)
        if kind >= len(UNARY):
            return [x * 0.5 if kind == len(UNARY) else x + 0.25]
        return [UNARY[kind](x)]

    def _chain(self, values: list[Tensor]) -> list[Tensor]:
        x = self._recent(values)
        for _ in range(self.choose.randint(2, 5)):
            x = self.choose.choice(UNARY)(x)
        return [x]

    def _change(self, values: list[Tensor]) -> list[Tensor]:
        """In place, behind the tape's back: whoever reads it later must see it, here and in eager work."""
        x = self._recent(values).detach()
        others = [other.detach() for other in values if other.shape == x.shape and other.block is not x.block]
        if others and self.choose.random() < 0.5:
            self.on.run("add_scaled", self.choose.choice(others), x, alpha=0.125)
        else:
            self.on.run("clip_elements", x, threshold=0.75)
        return []

    def _overwrite(self, values: list[Tensor]) -> list[Tensor]:
        """A piece of a value with another value of the piece's shape."""
        y = self._recent(values).detach()
        axis = self.choose.randrange(y.ndim)
        start = self.choose.randrange(y.shape[axis])
        piece = autograd.split(y, axis, (start,))[1] if start else y
        others = [other.detach() for other in values if other.shape == piece.shape and other.block is not y.block]
        if others:
            self.on.run("copy", self.choose.choice(others), piece)
        return []

    def _turned(self, values: list[Tensor]) -> list[Tensor]:
        """A copy whose axes lie in another order, and more values that lie like it."""
        x = self._recent(values)
        made = empty(self.on, x.shape, self.choose.sample(range(x.ndim), x.ndim))
        self.on.run("copy", x.detach(), made)
        made.requires_grad = True
        return [made, *(self.choose.choice(UNARY)(made) for _ in range(self.choose.randint(0, 2)))]

    def _binary(self, values: list[Tensor]) -> list[Tensor]:
        x = self._recent(values)
        return [autograd.tanh(self.choose.choice(BINARY)(x, self._like(values, x)))]

    def _product(self, values: list[Tensor]) -> list[Tensor]:
        x = self._recent(values)
        if x.shape[-1] in (3, 6) and x.ndim == 2:
            weight = self.choose.choice([p for p in self.parameters if p.ndim == 2 and p.shape[0] == x.shape[1]])
            return [autograd.tanh(autograd.matmul(x, weight))]
        flat = autograd.reshape(x, (1, x.size()))
        return [autograd.tanh(autograd.matmul(autograd.transpose(flat), flat))] if x.size() < 7 else []

    def _view(self, values: list[Tensor]) -> list[Tensor]:
        x = self._recent(values)
        kind = self.choose.randrange(5)
        if kind == 4:  # the elements of a slice, every other one perhaps
            starts = [self.choose.randrange(extent) for extent in x.shape]
            return [autograd.index(x, tuple(slice(start, None, self.choose.choice((1, 1, 2))) for start in starts))]
        if kind == 0:
            axes = list(range(x.ndim))
            self.choose.shuffle(axes)
            return [autograd.transpose(x, axes)]
        if kind == 1:
            rows = self.choose.choice([n for n in range(1, x.size() + 1) if x.size() % n == 0])
            return [autograd.reshape(x, (rows, -1))]
        axis = self.choose.randrange(x.ndim)
        if x.shape[axis] == 1:
            return []
        pieces = autograd.split(x, axis, (self.choose.randrange(1, x.shape[axis]),))
        return list(pieces) if kind == 2 else [self.choose.choice(pieces)]

    def _concat(self, values: list[Tensor]) -> list[Tensor]:
        first = self._recent(values)
        axis = self.choose.randrange(first.ndim)
        alike = [x for x in values if x.ndim == first.ndim and _but(x, axis) == _but(first, axis)]
        parts = [first, *(self._recent(alike) for _ in range(self.choose.randint(0, 2)))]
        if sum(x.size() for x in parts) > 200:
            return []
        if self.choose.random() < 0.5:  # made for this, so that they can be written in place
            parts = [autograd.tanh(x) for x in parts]
        joined = autograd.concat(parts, axis)
        return [*parts[:1], joined] if self.choose.random() < 0.3 else [joined]

    def _other(self, values: list[Tensor]) -> list[Tensor]:
        x = self._recent(values)
        kind = self.choose.randrange(7)
        if kind == 0:
            return [autograd.dropout(x, self.random_state, 0.3)]
        if kind == 1:
            return [autograd.softmax(x, self.choose.randrange(x.ndim))]
        if kind == 2 and x.ndim > 1:
            return [autograd.l2_norm(x, 0.1)]
        if kind == 3:
            return [autograd.tanh(autograd.reduce_sum(x, self.choose.randrange(x.ndim), keepdims=True))]
        if x.shape[-1] != 6 or x.ndim != 2:
            return [autograd.shift(x, 0.5)]
        if kind == 4:
            return [autograd.layer_norm(x, self.gamma, self.beta)]
        if kind == 5 and x.shape[0] > 1:
            return [autograd.batch_norm(x, self.gamma, self.beta, *self.running, 0.3, 0.1)]
        return [autograd.add_bias(x, self.parameters[3])]

    def lasting(self) -> list[Tensor]:
        """All that a step may change, in a fixed order."""
        everything = [*self.parameters, self.gamma, self.beta]
        slots = [s for p in everything for s in self.optimizer.state.get(p, {}).values()]
        return [*self.inputs, *everything, *self.running, self.random_state, *slots]


def _but(x: Tensor, axis: int) -> tuple[int, ...]:
    """The shape without one axis."""
    return x.shape[:axis] + x.shape[axis + 1 :]


def random_net(seed: int, length: int, on: Device | None = None) -> FeedForwardNet:
    """A net over small images: convolutions, normalisation, dropout, branches, shared layers, several outputs.

    on: where; by default half of the nets have the device's own kernels and half the reference kernels over images
    that lie channels last.
    """
    choose = random.Random(seed)
    net = FeedForwardNet(device=on or (channels_last() if seed % 2 else device.new_cpu()), seed=seed)
    ends = [net.add(layers.Conv2D("stem", 4, 3, input_sample_shape=(3, 5, 6)), [])]
    owners: dict[tuple[int, ...], layers.Conv2D] = {}
    for place in range(length):
        end = choose.choice(ends[-3:])
        name = f"{choose.choice('abcxyz')}{place}"
        ends.append(_random_layer(net, choose, name, end, ends, owners))
    taken = set(net.output_names())
    for place, name in enumerate(sorted(taken)):
        net.add(layers.Flatten(f"flat{place}"), name)
        net.add(layers.Dense(f"scores{place}", 3))
    return net


def _random_layer(net, choose, name, end, ends, owners):  # type: ignore[no-untyped-def]
    """One more layer on `end`; the layer."""
    shape = end.get_output_sample_shape()
    alike = [other for other in ends if other.get_output_sample_shape() == shape]
    high = [other for other in ends if other.get_output_sample_shape()[1:] == shape[1:]]
    kind = choose.choice(("conv", "conv", "act", "act", "norm", "norm", "drop", "merge", "concat", "concat", "share",
                          "pool", "pool", "slice"))  # fmt: skip
    if kind == "act":
        return net.add(layers.Activation(name, choose.choice(("relu", "tanh", "silu", "relu6"))), end)
    if kind == "norm":
        return net.add(layers.BatchNormalization(name, epsilon=0.1), end)
    if kind == "drop":
        return net.add(layers.Dropout(name, 0.3), end)
    if kind == "merge" and len(alike) > 1:
        return net.add(layers.Merge(name), [end, *choose.sample(alike, 2)])
    if kind == "concat" and shape[0] < 9:
        axis = 1 if choose.random() < 0.7 else 3
        others = high if axis == 1 else alike
        if axis == 3 and 2 * shape[2] > 12:
            axis, others = 1, high
        return net.add(layers.Concat(name, axis), [end, choose.choice(others)])
    if kind == "pool" and shape[1] >= 2:
        layer = choose.choice((layers.MaxPooling2D, layers.AvgPooling2D))
        return net.add(layer(name, 3, choose.choice((1, 2)), pad=1), end)
    if kind == "share" and shape in owners:
        return net.add(layers.Conv2D(name, shape[0], 3).share_parameters(owners[shape]), end)
    if kind == "slice" and shape[0] > 1:
        cut = net.add(layers.Slice(name, 1, [choose.randrange(1, shape[0])]), end)
        first = net.add(layers.Activation(f"{name} left", "tanh"), (cut, 0))
        second = net.add(layers.Conv2D(f"{name} right", first.get_output_sample_shape()[0], 1), (cut, 1))
        return net.add(layers.Concat(f"{name} both", 1), [second, first])
    made = net.add(layers.Conv2D(name, shape[0] if kind == "share" else choose.randint(2, 5), 3), end)
    if kind == "share":
        owners.setdefault(shape, made)
    return made


def compiled(net: FeedForwardNet, seed: int, graph: bool, memory_budget: int | None = None) -> FeedForwardNet:
    """With an optimizer, losses, a metric, and perhaps frozen layers, by the seed."""
    choose = random.Random(seed + 1)
    outputs = net.output_names()
    losses = {name: choose.choice((loss.SoftmaxCrossEntropy, loss.SigmoidCrossEntropy))() for name in outputs}
    order = [node.layer.name for node in net.ordered()]
    may_freeze = order[: 1 + min(map(order.index, outputs))]  # an output before it would have nothing to train
    freeze = choose.choice([None, choose.choice(may_freeze)])
    metrics = {outputs[0]: metric.Accuracy()}
    made = choose.choice(OPTIMIZERS)()
    net.compile(made, losses, metrics, graph=graph, freeze=freeze, memory_budget=memory_budget)
    return net


def random_batch(net: FeedForwardNet, number: int, count: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A batch and one-hot targets, which suit both losses."""
    rng = np.random.default_rng([number, count])
    x = {name: rng.standard_normal((count, *shape)).astype("f") for name, shape in net.input_shapes().items()}
    rows = {name: (count, prod(net.output_shapes(name)[0])) for name in net.output_names()}
    return x, {name: np.eye(width, dtype="f")[rng.integers(0, width, n)] for name, (n, width) in rows.items()}
