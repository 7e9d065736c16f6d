"""`net.export` of numbers that depend on the size of a batch or its length: right at all sizes, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnx_runs import check
from singa_lite import FeedForwardNet, Layer, autograd, layers, models
from singa_lite.errors import SnapshotError
from singa_lite.tensor import Shape, Tensor
from skips import library

onnx = library("onnx")
RNG = np.random.default_rng(4)


def numbers(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def total(x: Tensor) -> Tensor:
    return autograd.reduce_sum(x, (0,), True)


@pytest.mark.parametrize(
    ("function", "is_written"),
    [
        (lambda x: x + total(x[:2]), True),
        (lambda x: x + total(x[-1:]), True),
        (lambda x: x + total(x[1:]), True),
        (lambda x: x + total(x[:3]), False),
        (lambda x: x + total(x[::2]), False),
        (lambda x: autograd.concat([x[x.shape[0] // 2 :], x[: x.shape[0] // 2]], 0), False),
        (lambda x: x * float(x.shape[0] // 2), False),
        (lambda x: x + np.full((x.shape[0], 1), 3, np.float32), True),
        (lambda x: autograd.where(autograd.less(x, 0.0), float("nan"), x), True),
    ],
)
def test_parts_of_a_batch(function: Callable[[Tensor], Tensor], is_written: bool, tmp_path: Path) -> None:
    net, path = FeedForwardNet(), tmp_path / "net.onnx"
    net.add(layers.Lambda("own", function, input_sample_shape=(5,)))
    if not is_written:
        with pytest.raises(SnapshotError, match="'own'"):
            net.export(path)
        return
    net.export(path)
    for count in (1, 2, 4, 7):
        check(net, path, {"own": numbers(count, 5)})


class Middle(Layer):
    """A sequence and its middle step."""

    any_length = True

    def setup(self, shape: Shape) -> Shape:
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        return x + x[:, x.shape[1] // 2 : x.shape[1] // 2 + 1]


@pytest.mark.parametrize("steps", [3, 4, 5, 9])
def test_half_of_a_length_is_refused(steps: int, tmp_path: Path) -> None:
    net = FeedForwardNet()
    net.add(Middle("own", input_sample_shape=(steps, 3)))
    with pytest.raises(SnapshotError, match="'own'"):
        net.export(tmp_path / "net.onnx")


def test_other_operations_at_another_size_are_refused(tmp_path: Path) -> None:
    net = FeedForwardNet()
    net.add(layers.Lambda("own", lambda x: x if x.shape[0] < 50 else autograd.sigmoid(x), input_sample_shape=(5,)))
    with pytest.raises(SnapshotError, match="same operations"):
        net.export(tmp_path / "net.onnx")


def two_inputs(behind: str) -> FeedForwardNet:
    """Two sequences of equal lengths: added and then flattened, or only the second flattened."""
    net = FeedForwardNet()
    first, second = (net.add(layers.Dummy(name, (5, 4)), []) for name in ("first", "second"))
    if behind == "sum":
        net.add(layers.Merge("sum"), [first, second])
        net.add(layers.Flatten("flat"))
    else:
        net.add(layers.Dense("dense", 3), first)
        net.add(layers.Flatten("flat"), second)
    return net


@pytest.mark.parametrize(("behind", "extents"), [("sum", [5, 5]), ("second", ["length", 5])])
def test_inputs_of_equal_lengths_may_have_layers_of_one_length(
    behind: str, extents: list[int | str], tmp_path: Path
) -> None:
    net, path = two_inputs(behind), tmp_path / "net.onnx"
    net.export(path)
    dims = [one.type.tensor_type.shape.dim[1] for one in onnx.load(path).graph.input]
    assert [one.dim_param or one.dim_value for one in dims] == extents
    assert net.refusing("second") == "flat"
    check(net, path, {"first": numbers(3, 5, 4), "second": numbers(3, 5, 4)})


def test_features_without_time_are_no_length() -> None:
    """Also where nothing stands behind the layer that takes them."""
    net = FeedForwardNet()
    net.add(layers.Activation("relu", input_sample_shape=(5,)))
    assert net.refusing("relu") == "relu"


def test_bert(tmp_path: Path) -> None:
    """Its pooled output is of the first word, which takes texts of one length."""
    net, path = models.bert(vocabulary=30, positions=16, features=8, heads=2, blocks=1, time=6), tmp_path / "net.onnx"
    net.export(path)
    check(net, path, {"ids": RNG.integers(1, 30, (3, 6)), "types": RNG.integers(0, 2, (3, 6))})


def test_a_layer_may_be_called_as_constants_are(tmp_path: Path) -> None:
    net, path = FeedForwardNet(), tmp_path / "net.onnx"
    net.add(layers.GroupNormalization("constant_2", 2, input_sample_shape=(4, 5)))
    net.add(layers.GroupNormalization("constant", 2))
    net.export(path)
    check(net, path, {"constant_2": numbers(3, 4, 5)})


class Gates(Layer):
    """An LSTM whose gates are more than a product and a bias."""

    def setup(self, shape: Shape) -> Shape:
        self.add_parameter("into", (shape[1], 12), "glorot_uniform", (shape[1], 12))
        self.add_parameter("state", (3, 12), "glorot_uniform", (3, 12))
        return shape[0], 3

    def forward(self, training: bool, x: Tensor) -> Tensor:
        gates = autograd.linear(autograd.transpose(x, (1, 0, 2)), self.parameters["into"])
        hidden = autograd.lstm(gates + autograd.sigmoid(gates), self.parameters["state"])[0]
        return autograd.transpose(hidden, (1, 0, 2))


def test_gates_of_an_own_layer(tmp_path: Path) -> None:
    net, path = FeedForwardNet(), tmp_path / "net.onnx"
    net.add(Gates("own", input_sample_shape=(5, 4)))
    net.export(path)
    check(net, path, {"own": numbers(3, 5, 4)})
