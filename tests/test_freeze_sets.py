"""`compile(freeze=)` with a list or set: these very layers do not train, wherever they stand."""

from __future__ import annotations

import numpy as np
import pytest

from nets import difference
from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.errors import GraphError

X = np.random.default_rng(2).normal(size=(7, 2, 6, 5))
Y = np.arange(7) % 3


def made(dtype: str = "float32", **options: object) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3, dtype=dtype)
    net.add(layers.Conv2D("conv", 4, 3, input_sample_shape=(2, 6, 5)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("bend", "tanh"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Sequential([layers.Dense("a", 6), layers.Dropout("drop", 0.5), layers.Dense("b", 5)], name="block"))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.Adam(0.01), **options)
    return net


def values(net: FeedForwardNet) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in (net.parameters() | net.states()).items()}


def moved(net: FeedForwardNet, steps: int = 2) -> set[str]:
    before = values(net)
    for _ in range(steps):
        net.train_one_batch(X.astype("f"), Y)
    return {name for name, value in values(net).items() if (value != before[name]).any()}


SETS = (["norm"], {"conv"}, ["block/a"], ["block"], ["scores"], ["block/b", "norm"])


@pytest.mark.parametrize("chosen", SETS, ids=str)
@pytest.mark.parametrize("options", [{}, {"graph": False}, {"clip_global_norm": 9.0}], ids=str)
def test_exactly_these_do_not_train(chosen, options):
    net = made(freeze=chosen, **options)
    frozen = {name for name in values(net) if any(name.startswith(f"{path}/") for path in chosen)}
    assert moved(net) == set(values(net)) - frozen


def test_derivatives_through_them_are_those_of_the_formula():
    net = made("float64", freeze=["norm", "block"])
    net.states()["norm/running_mean"].copy_from_numpy(np.linspace(-1, 1, 4))
    net.states()["norm/running_var"].copy_from_numpy(np.linspace(0.5, 2, 4))
    gradients = {name: np.array(value) for name, value in net.gradients(X, Y).items()}
    assert set(gradients) == {"conv/weight", "conv/bias", "scores/weight", "scores/bias"}
    for name, gradient in gradients.items():  # dropout and statistics are frozen: evaluation is the same function
        last = tuple(n - 1 for n in gradient.shape)
        slope = difference(lambda: float(net.evaluate_one_batch(X, Y)[0]), net.parameters()[name], last)
        np.testing.assert_allclose(gradient[last], slope, rtol=1e-6, atol=1e-9)


def test_all_before_a_layer_by_name_or_one_by_one_is_the_same():
    by_name, by_list = made(freeze="block"), made(freeze=["conv", "norm", "bend", "flat"])
    assert moved(by_name) == moved(by_list)
    for name, value in values(by_name).items():
        np.testing.assert_array_equal(values(by_list)[name], value)
    assert by_name.plan_batch(7).total_bytes == by_list.plan_batch(7).total_bytes


def test_layers_themselves_and_what_is_compiled_later():
    net = made()
    net.compile(optimizer.SGD(0.1), freeze={net.layers["conv"], net.layers["block"].layers["b"]})
    assert net.freeze == ("conv", "block/b") and all(t.stores_grad for t in net.param_values())
    assert {name for name in values(net) if "conv" in name or "block/b" in name}.isdisjoint(moved(net))
    made_again = FeedForwardNet.from_config(net.config())
    assert made_again.freeze == ("conv", "block/b")
    net.compile(optimizer.SGD(0.1))
    assert moved(net) == set(values(net))
    net.compile(optimizer.SGD(0.1), freeze=[])
    assert net.freeze is None


@pytest.mark.parametrize(
    ("given", "error", "culprit"),
    [
        (["nose"], GraphError, "'nose'"),
        ("nose", GraphError, "'nose'"),
        ([3], TypeError, "3"),
        (3, TypeError, "freeze"),
        ({"conv": True}, TypeError, "freeze"),
        ([layers.Dense("conv", 3)], GraphError, "'conv'"),
        (["conv", "norm", "bend", "flat", "block", "scores"], GraphError, "'scores'"),
        (["conv", "norm", "block", "scores"], GraphError, "parameters to train"),
    ],
)
def test_what_cannot_be_frozen_is_refused(given, error, culprit):
    net = made()
    before = net.optimizer
    with pytest.raises(error, match=culprit):
        net.compile(optimizer.SGD(0.1), freeze=given)
    assert net.optimizer is before
