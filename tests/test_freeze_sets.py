"""`compile(freeze=)` with a list or set: these very layers do not train, wherever they stand."""

from __future__ import annotations

import numpy as np
import pytest

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


SETS = (["norm"], {"conv"}, ["conv", "norm"], ["block/a"], ["block"], ["scores"], ["block/b", "norm"])


@pytest.mark.parametrize("chosen", SETS, ids=str)
def test_exactly_these_do_not_train_in_any_mode(chosen):
    net = made(freeze=chosen)
    modes = [{}, {"graph": False}, {"memory_budget": net.plan_batch(7).total_bytes}, {"clip_global_norm": 9.0}]
    if "norm" in chosen:
        modes.append({"micro_batches": 2})
    names, found = set(values(net)), []
    for options in modes:
        net = made(freeze=chosen, **options)
        frozen = {name for name in names if any(name.startswith(f"{path}/") for path in chosen)}
        assert moved(net) == names - frozen
        found.append(values(net))
    for name in names:
        for other in found[1:3]:
            np.testing.assert_array_equal(other[name], found[0][name])


def test_derivatives_through_them_are_those_of_the_formula():
    net = made("float64", freeze=["norm", "block"])
    net.states()["norm/running_mean"].copy_from_numpy(np.linspace(-1, 1, 4))
    net.states()["norm/running_var"].copy_from_numpy(np.linspace(0.5, 2, 4))
    gradients = {name: np.array(value) for name, value in net.gradients(X, Y).items()}
    assert set(gradients) == {"conv/weight", "conv/bias", "scores/weight", "scores/bias"}
    for name in gradients:  # dropout and statistics are frozen: evaluation is the same function
        value, h = net.parameters()[name], 1e-6
        given = np.array(value)
        index = tuple(n - 1 for n in given.shape)
        ends = []
        for step in (h, -h):
            changed = given.copy()
            changed[index] += step
            value.copy_from_numpy(changed)
            ends.append(float(net.evaluate_one_batch(X, Y)[0]))
        value.copy_from_numpy(given)
        np.testing.assert_allclose(gradients[name][index], (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-10)


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
    ("given", "error", "words"),
    [
        (["nose"], GraphError, "received 'nose'"),
        ("nose", GraphError, "received 'nose'"),
        ([3], TypeError, "wanted layers or their names, received 3"),
        (3, TypeError, "the name of the first layer that trains, or a list"),
        ({"conv": True}, TypeError, "or a list of layers"),
        ([layers.Dense("conv", 3)], GraphError, "'conv', which is not in it"),
        (["conv", "norm", "bend", "flat", "block", "scores"], GraphError, "leave a layer before output 'scores'"),
        (["conv", "norm", "block", "scores"], GraphError, "leave a layer with parameters to train"),
    ],
)
def test_what_cannot_be_frozen_is_refused(given, error, words):
    net = made()
    before = net.optimizer
    with pytest.raises(error, match=words):
        net.compile(optimizer.SGD(0.1), freeze=given)
    assert net.optimizer is before
