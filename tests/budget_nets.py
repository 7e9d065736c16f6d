"""Nets that are trained within budgets, and all that may be done with one: steps of several forms, fit, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from nets import bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.graph.budget_error import BudgetError


def on_cpu(kernels: str, limit: int | None = None) -> device.Device:
    """Skips the test where the library of these kernels is missing."""
    try:
        return device.new_cpu(limit, kernels)
    except device.DeviceError as error:  # says what brings the library
        pytest.skip(str(error))


@dataclass(frozen=True)
class Subject:
    """make: the net, with options of `compile`. classes: None where three numbers are the target."""

    make: Callable[..., FeedForwardNet]
    shape: tuple[int, ...]
    count: int
    classes: int | None = None

    def data(self, count: int | None = None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        rng, count = np.random.default_rng(seed), self.count if count is None else count
        x = rng.standard_normal((count, *self.shape), dtype=np.float32)
        return x, rng.integers(0, self.classes, count) if self.classes else rng.standard_normal((count, 3), np.float32)

    def step(self, net: FeedForwardNet, seed: int = 0) -> Any:
        return bits(net.train_one_batch(*self.data(seed=seed))[0])

    def trained(self, net: FeedForwardNet, most: int | None = None) -> list[Any]:
        """What steps of several forms give, one after the other; the pool never had more than `most` in use."""
        count, seen = self.count, list[Any]()
        (x, y), validation = self.data(3 * count - count // 4), self.data(count + 3, 1)
        for _ in range(2):
            seen.append(bits(net.evaluate_one_batch(x[:count], y[:count])[0]))
            seen.append(bits(net.predict(x[: count + 2], count)))
            history = net.fit(x, y, batch_size=count, epochs=1, validation_data=validation, verbose=False)
            seen += [history.history["loss"], history.history["val_loss"], net.evaluate(x, y, count)]
            seen.append(bits(net.train_one_batch(x[: count // 2], y[: count // 2])[0]))
            assert most is None or net.device.pool.high_water <= most
        return [*seen, state_of(net)]

    def least(self, **compiling: Any) -> int:
        """Bytes of the smallest budget that is found for a step."""
        with pytest.raises(BudgetError) as caught:
            self.make(**compiling).plan_batch(self.count, memory_budget=1)
        return caught.value.total_bytes

    def free(self, **compiling: Any) -> int:
        return self.make(**compiling).plan_batch(self.count).total_bytes


def branches(kernels: str = "numpy", **compiling: Any) -> FeedForwardNet:
    """Five convolutions with normalisation, ReLU and dropout, a sum over two branches, and a dense layer."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on_cpu(kernels), seed=4)
    end = net.add(layers.Conv2D("conv0", 8, 3, input_sample_shape=(3, 20, 24)))
    for number in range(1, 6):
        end = net.add(layers.BatchNormalization(f"norm{number}"), end)
        relu = net.add(layers.Activation(f"act{number}"), end)
        end = net.add(layers.Conv2D(f"conv{number}", 8, 3), relu)
        if number == 2:
            end = net.add(layers.Merge("sum"), [end, net.add(layers.Dropout("drop", 0.3), relu)])
    net.add(layers.Flatten("flat"), end)
    net.add(layers.Dense("scores", 5))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **compiling)
    return net


def chain(limit: int | None = None, opt: optimizer.Optimizer | None = None, **compiling: Any) -> FeedForwardNet:
    """Five small convolutions with normalisation, tanh and dropout between them."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=device.new_cpu(limit), seed=4)
    net.add(layers.Conv2D("conv0", 6, 3, input_sample_shape=(2, 7, 9)))
    for number in range(1, 5):
        net.add(layers.BatchNormalization(f"norm{number}"))
        net.add(layers.Activation(f"act{number}", "tanh"))
        if number in (2, 4):
            net.add(layers.Dropout(f"drop{number}", 0.3))
        net.add(layers.Conv2D(f"conv{number}", 6, 1))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 5))
    net.compile(opt or optimizer.Adam(lr=0.01), **compiling)
    return net


def heavy_state(opt: Callable[[], optimizer.Optimizer] = optimizer.Adam, **compiling: Any) -> FeedForwardNet:
    """Two convolutions, dropout, and a dense layer whose state is a large part of all."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on_cpu("numpy"), seed=3)
    net.add(layers.Conv2D("first", 8, 3, input_sample_shape=(3, 12, 12)))
    net.add(layers.Activation("act"))
    net.add(layers.Conv2D("second", 8, 1))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 5))
    net.compile(opt(), **compiling)
    return net


def built(*made: Any, **compiling: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=3)
    for layer in (*made, layers.Flatten("flat"), layers.Dense("scores", 3)):
        net.add(layer)
    net.compile(optimizer.SGD(lr=0.002, momentum=0.9), **compiling)
    return net


def attention(**compiling: Any) -> FeedForwardNet:
    return built(
        layers.MultiHeadAttention("one", 4, causal=True, kv_heads=2, dropout=0.2, input_sample_shape=(17, 8)),
        layers.LayerNormalization("norm"),
        layers.MultiHeadAttention("two", 2, None, True, 0.1, rotary=True, window=7, query_key_norm=True),
        layers.Activation("gelu", "gelu"),
        layers.MultiHeadAttention("three", 2),
        **compiling,
    )


def recurrent(**compiling: Any) -> FeedForwardNet:
    return built(
        layers.LSTM("lstm", 11, return_sequences=True, input_sample_shape=(17, 8)),
        layers.Dropout("drop", 0.3),
        layers.GRU("gru", 9, return_sequences=True),
        layers.Activation("tanh", "tanh"),
        layers.LSTM("last", 7, return_sequences=True),
        **compiling,
    )


def grouped(**compiling: Any) -> FeedForwardNet:
    blocks = [layers.Conv2D("conv0", 6, 3, input_sample_shape=(2, 9, 11))]
    for number in range(1, 4):
        blocks += [layers.GroupNormalization(f"norm{number}", 3), layers.Activation(f"act{number}")]
        blocks += [layers.Conv2D(f"conv{number}", 6, 3)]
    return built(*blocks, **compiling)


def half(**compiling: Any) -> FeedForwardNet:
    """Activations, derivatives and repeats of them in float16, whose losses are scaled."""
    blocks = [layers.Dense("dense0", 24, input_sample_shape=(17, 8))]
    for number in range(1, 3):
        blocks += [layers.LayerNormalization(f"norm{number}"), layers.Activation(f"act{number}", "tanh")]
        blocks += [layers.Dropout(f"drop{number}", 0.2), layers.Dense(f"dense{number}", 24)]
    return built(*blocks, precision="float16", **compiling)


BRANCHES, CHAIN = Subject(branches, (3, 20, 24), 29, 5), Subject(chain, (2, 7, 9), 13, 5)
HEAVY_STATE = Subject(heavy_state, (3, 12, 12), 16, 5)
LAYERS = {
    "attention": Subject(attention, (17, 8), 5),
    "recurrent": Subject(recurrent, (17, 8), 5),
    "grouped": Subject(grouped, (2, 9, 11), 5),
    "half": Subject(half, (17, 8), 5),
}


@cache
def curve_of(kernels: str) -> list[tuple[int, float]]:
    """Of BRANCHES."""
    return branches(kernels).budget_curve(BRANCHES.count)
