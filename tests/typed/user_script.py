"""A user's script as mypy sees it: what is right passes, and what is marked as wrong is found to be so.

mypy's strict mode tells marks that are not needed, so that each mark is a test too. Nothing here is run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from singa_lite import FeedForwardNet, autograd, initializer, layers, loss, metric, optimizer
from singa_lite.layer import Layer
from singa_lite.tensor import Shape, Tensor


def names_left_out() -> list[Layer]:
    """Each form that a constructor takes."""
    head: layers.Dense = layers.Dense(10)
    return [
        head,
        layers.Dense("d", 10, False, weight_init="he_normal"),
        layers.Dense(10, name="d", bias_init=initializer.Constant(0.5)),
        layers.Dense(num_output=10, input_sample_shape=(4,)),
        layers.Conv2D(32, 3, pad=1),
        layers.Conv2D("conv", 32, (3, 5), stride=2),
        layers.MaxPooling2D(2),
        layers.MaxPooling2D(),
        layers.Activation(mode="tanh"),
        layers.Activation("act", "tanh"),
        layers.Dropout(0.5),
        layers.Flatten(),
        layers.Flatten("flat"),
        layers.BatchNormalization(),
        layers.LSTM(16, return_sequences=True),
        layers.Embedding(100, 8),
        layers.Sequential([layers.Dense(3), layers.Softmax()]),
        layers.Residual("block", [layers.Dense("inner", 3)]),
        layers.Lambda(lambda x: autograd.relu(x)),
        layers.Merge(),
        layers.Input((3, 8, 8)),
        layers.Dense(units=10, activation="relu"),
        layers.Conv2D(8, kernel_size=(3, 3), strides=2, activation=autograd.relu),
        layers.Conv2D("conv", filters=8, kernel_size=3, padding="same"),
        layers.MaxPooling2D(pool_size=2),
        layers.AveragePooling2D(2),
    ]


def wrong_calls() -> None:
    """What is no call of these."""
    layers.Dense()  # type: ignore[call-overload]
    layers.Dense([10])  # type: ignore[call-overload]
    layers.Dense("d", "ten")  # type: ignore[call-overload]
    layers.Dense(10, units=3)  # type: ignore[call-overload]
    layers.Conv2D("conv")  # type: ignore[call-overload]
    layers.Activation(3)  # type: ignore[arg-type]
    layers.Activation(mode=3)  # type: ignore[arg-type]
    layers.Flatten(axis="first")  # type: ignore[call-overload]
    layers.Residual(layers.Dense(3))  # type: ignore[call-overload]


class Scaled(Layer):
    """A layer of one's own is typed as it is written: with its name."""

    def __init__(self, name: str, factor: float) -> None:
        super().__init__(name)
        self.factor = factor

    def setup(self, shape: Shape) -> Shape:
        """Any shape."""
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x * factor, none of it below the first one."""
        return (x * self.factor).maximum(x[:, 0:1].clip(-1.0)) + abs(x) * 0.0


def trained(x: NDArray[np.float32], y: NDArray[np.int64]) -> FeedForwardNet:
    """The calls of a first day."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy())
    first: Layer = net.add(layers.Dense(5, input_sample_shape=(4,)))
    net.add(Scaled("scaled", 2.0), src=first)
    net.compile(optimizer.Adam(0.01))
    history = net.fit(x, y, batch_size=8, epochs=2, verbose=False)
    print(history, net.evaluate(x, y)[0], net.predict(x).argmax(1))
    net.submodel("scaled").add(layers.Dense(2))
    net.submodel(3)  # type: ignore[arg-type]
    Scaled(2.0)  # type: ignore[call-arg, arg-type]
    return net
