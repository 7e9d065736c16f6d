"""`compile(precision="bfloat16")`: what is stored narrow, what stays, how near results are, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import skips
from kernel_sets import kernel_sets
from singa_lite import FeedForwardNet, Tensor, device, layers, loss, optimizer, tensor
from singa_lite.errors import PrecisionWarning

skips.library("ml_dtypes")
SETS = pytest.mark.parametrize("kernels", [kernels.name for kernels in kernel_sets()])
X = np.random.default_rng(2).normal(size=(13, 3, 14, 10)).astype(np.float32)
Y = np.random.default_rng(3).integers(0, 5, 13)


def ended(net: FeedForwardNet, chosen: optimizer.Optimizer, **options: Any) -> FeedForwardNet:
    """The net with its dense layers, compiled, without the warning that there are no kernels of its own."""
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("hidden", 11))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("scores", 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.compile(chosen, **options)
    return net


def built(kernels: str = "numpy", mode: str = "relu", **options: Any) -> FeedForwardNet:
    """Normalisations, a branch and an average; the activation is the only kink, if it has one."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=5)
    net.add(layers.Conv2D("conv1", 6, 3, use_bias=False, input_sample_shape=(3, 14, 10)))
    net.add(layers.BatchNormalization("norm1"))
    first = net.add(layers.Activation("first", mode))
    net.add(layers.Conv2D("conv2", 6, 3, use_bias=False))
    net.add(layers.Merge("sum"), src=[first, net.add(layers.BatchNormalization("norm2"))])
    net.add(layers.Activation("second", mode))
    net.add(layers.AvgPooling2D("pool", 3, 2))
    return ended(net, optimizer.SGD(lr=1.0), **options)


def values_of(net: FeedForwardNet) -> dict[str, Tensor]:
    return dict(zip(net.param_names(), net.param_values(), strict=True))


def losses(net: FeedForwardNet, steps: int = 4) -> list[float]:
    return [float(net.train_one_batch(X, Y)[0]) for _ in range(steps)]


def dtypes_of(net: FeedForwardNet, kernel: str) -> list[tuple[str, ...]]:
    """The dtypes of the operands of each call of a kernel, as planned."""
    instructions = net.training_graph._executable("recorded").placed.planned.instructions
    return [tuple(o.dtype.name for o in i.operands if o is not None) for i in instructions if i.kernel == kernel]


def gradients_of_a_step(net: FeedForwardNet) -> dict[str, np.ndarray]:
    before = {name: tensor.to_numpy(value).copy() for name, value in values_of(net).items()}
    net.train_one_batch(X, Y)
    return {name: before[name] - tensor.to_numpy(value) for name, value in values_of(net).items()}


def off(narrow: np.ndarray, wide: np.ndarray) -> float:
    """How far a gradient lies off, as a share of the other's norm."""
    return float(np.linalg.norm(narrow - wide) / np.linalg.norm(wide))


@SETS
def test_behind_normalisations_gradients_are_within_two_percent_where_nothing_has_a_kink(kernels):
    """Layer by layer; float16 rounds 8 times as finely."""

    def shares(mode: str, precision: str) -> dict[str, float]:
        wide, narrow = (gradients_of_a_step(built(kernels, mode, **o)) for o in ({}, {"precision": precision}))
        return {name: off(narrow[name], gradient) for name, gradient in wide.items()}

    smooth, finer = shares("silu", "bfloat16"), shares("silu", "float16")
    assert max(smooth.values()) < 0.02, smooth
    assert max(finer.values()) < 0.0025, finer


@SETS
def test_activations_are_narrow_and_the_rest_is_not(kernels):
    net = built(kernels, precision="bfloat16")
    losses(net, 1)
    assert dtypes_of(net, "conv2d_gradient") == [
        ("bfloat16", "bfloat16", "float32"),
        ("float32", "bfloat16", "float32"),
    ], "the first convolution reads the batch as it came"
    assert {call[-2:] for call in dtypes_of(net, "batch_norm_derivative")} <= {("float32", "float32")}
    assert dtypes_of(net, "softmax_cross_entropy")[0][0] == "float32"
    assert {name for call in dtypes_of(net, "sgd") for name in call} <= {"float32", "float64", "int64"}
    assert not any("bfloat16" in call for call in dtypes_of(net, "cast"))
    assert {value.dtype.name for value in net.param_values()} == {"float32"}
    assert net.predict(X).dtype == np.float32


def test_a_layer_may_keep_float32():
    net = built(precision="bfloat16", float32_layers=["conv2"])
    losses(net, 1)
    assert ("float32", "float32", "float32") in dtypes_of(net, "conv2d_gradient")
    assert ("float32", "bfloat16", "float32") in dtypes_of(net, "conv2d_gradient")


def test_stored_narrow_takes_less():
    """Of 41 samples, whose activations outweigh scratch; and of the plan before a step as of the one that runs."""
    x, y = np.concatenate([X] * 4)[:41], np.concatenate([Y] * 4)[:41]
    wide, narrow = built("numpy"), built("numpy", precision="bfloat16")
    told = narrow.plan_batch(41)
    narrow.train_one_batch(x, y)
    assert told.arena_bytes == narrow.memory_plan.arena_bytes < wide.plan_batch(41).arena_bytes
    assert told.gains["narrow"] > 0
    rows = {row.name: row.nbytes for row in told.rows if row.layer == "conv1"}
    assert 41 * 6 * 14 * 10 * 2 in rows.values()
    told.check()
    assert {row.variant for row in told.variants} == {"widened"}
    assert "conv2d: 2 widened" in told.summary()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_kept(value):
    """Where the net computes nothing that makes another of them."""
    given = np.array([[1.0, value, -2.0]], np.float32)
    found = []
    for precision in ("float32", "bfloat16"):
        net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=1)
        net.add(layers.Activation("first", input_sample_shape=(3,)))
        net.add(layers.Activation("second"))
        net.add(layers.Dense("sum", 1, weight_init=1.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net.compile(optimizer.SGD(lr=0.1), precision=precision)
            found.append(tensor.to_numpy(net.predict(given)).tolist())
    np.testing.assert_array_equal(*found)


def test_of_layers_that_share_parameters_one_may_keep_float32():
    def siblings(**options: Any) -> FeedForwardNet:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=6)
        net.add(layers.Conv2D("stem", 4, 3, input_sample_shape=(3, 14, 10)))
        first = net.add(layers.Conv2D("first", 4, 3))
        net.add(layers.Activation("tanh1", "tanh"))
        net.add(layers.Conv2D("second", 4, 3).share_parameters(first))
        return ended(net, optimizer.SGD(lr=0.05), **options)

    net = siblings(precision="bfloat16", float32_layers=["second"])
    assert abs(losses(net, 3)[-1] / losses(siblings(), 3)[-1] - 1) < 0.02
    assert sorted(dtypes_of(net, "conv2d_derivative")) == [
        ("bfloat16", "float32", "bfloat16"),
        ("float32", "float32", "float32"),
    ], "the weight is the same"


@pytest.mark.parametrize(
    ("options", "error", "culprit"),
    [
        ({"precision": None}, ValueError, "precision"),
        ({"precision": "bfloat16", "graph": False}, ValueError, "graph"),
        ({"float32_layers": ["conv1"]}, ValueError, "float32_layers"),
        ({"precision": "bfloat16", "float32_layers": "conv1"}, TypeError, "float32_layers"),
        ({"precision": "bfloat16", "float32_layers": ["conv9"]}, ValueError, "'conv9'"),
    ],
)
def test_what_is_refused(options, error, culprit):
    net = built()
    before = net.optimizer
    with pytest.raises(error, match=culprit):
        net.compile(optimizer.SGD(lr=0.1), **options)
    assert net.optimizer is before
    losses(net, 1)


def test_nets_of_other_dtypes_are_refused():
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), dtype="float64")
    net.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    with pytest.raises(ValueError, match="'dense' in float64"):
        net.compile(optimizer.SGD(lr=0.1), precision="bfloat16")


def test_it_is_said_where_the_processor_has_no_products_in_bfloat16(monkeypatch):
    net = built()
    with pytest.warns(PrecisionWarning, match="those of float32 serve, over converted copies"):
        net.compile(optimizer.SGD(lr=0.1), precision="bfloat16")
    monkeypatch.setattr(net.device.kernels, "has_bfloat16", True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.compile(optimizer.SGD(lr=0.1), precision="bfloat16")
