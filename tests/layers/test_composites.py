"""Layers made of layers: values beside those of their parts, and nets within nets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nets import all_bits, assert_close, bits, differences, state_of
from run_layer import run
from singa_lite import FeedForwardNet, GraphError, ShapeError, device, layers, loss, optimizer, tensor

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((4, 5)).astype("f"), RNG.integers(0, 3, 4)


def test_time_distributed_is_the_layer_on_each_step():
    x = RNG.standard_normal((2, 3, 5))
    whole = layers.TimeDistributed("t", layers.Dense("d", 4))
    y = run(whole, x)
    weight, bias = (tensor.to_numpy(whole.parameters[f"d/{name}"]) for name in ("weight", "bias"))
    np.testing.assert_allclose(y, np.stack([x[:, t] @ weight + bias for t in range(3)], 1), rtol=1e-12)


def test_a_residual_adds_what_went_in():
    x = RNG.standard_normal((3, 5))
    layer = layers.Residual("r", [layers.Dense("d", 2), layers.Activation("a", "relu"), layers.Dense("e", 5)])
    y, p = run(layer, x), {name: tensor.to_numpy(value) for name, value in layer.parameters.items()}
    f = np.maximum(x @ p["d/weight"] + p["d/bias"], 0) @ p["e/weight"] + p["e/bias"]
    np.testing.assert_allclose(y, x + f, rtol=1e-12)


def test_a_softmax_at_the_end_of_a_sequential_is_seen():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu())
    net.add(layers.Sequential("s", [layers.Dense("d", 3, input_sample_shape=(5,)), layers.Softmax("p")]))
    with pytest.warns(UserWarning, match="'s'"):
        net.compile(optimizer.SGD(0.1))


# ---- a net within a net


def encoder(on: device.Device, dtype: str = "f") -> FeedForwardNet:
    net = FeedForwardNet(device=on, dtype=dtype, seed=3)
    first = net.add(layers.Dense("first", 4, input_sample_shape=(5,)))
    norm = net.add(layers.BatchNormalization("norm"))
    net.add(layers.Merge("sum"), [first, norm])
    return net


def around(inner: FeedForwardNet, **options: object) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=inner.device, dtype=inner.dtype, seed=3)
    net.add(layers.Net("encoder", inner))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(0.1, momentum=0.9), **options)
    return net


@pytest.mark.parametrize("graph", [False, True])
def test_a_net_within_a_net_trains_as_the_flat_net_and_with_it(graph):
    inner, other = encoder(device.new_cpu()), encoder(device.new_cpu())
    net = around(inner, graph=graph)
    other.add(layers.Dense("scores", 3))
    other.parameters()["scores/weight"].copy_from_numpy(tensor.to_numpy(net.parameters()["scores/weight"]))
    other.compile(optimizer.SGD(0.1, momentum=0.9), loss.SoftmaxCrossEntropy(), graph=graph)
    for _ in range(2):
        assert bits(net.train_one_batch(X, Y)[0]) == bits(other.train_one_batch(X, Y)[0])
    assert list(net.parameters())[:2] == ["encoder/first/weight", "encoder/first/bias"]
    wanted = all_bits({**other.parameters(), **other.states()})
    found = {name.removeprefix("encoder/"): b for name, b in all_bits({**net.parameters(), **net.states()}).items()}
    assert found == wanted
    own = all_bits({**inner.parameters(), **inner.states()})  # the same bytes, under their own names
    assert own == {name: wanted[name] for name in own}
    assert net.device.pool.used < 2 * sum(t.nbytes for t in net.parameters().values()) + 4096 + sum(
        t.nbytes for slots in net.optimizer.state.values() for t in slots.values()
    ) + (net.memory_plan.total_bytes if graph else 0)


def test_a_net_within_a_net_is_copied_with_values_of_its_own():
    import copy

    inner = encoder(device.new_cpu())
    net = around(inner)
    other = copy.deepcopy(net)
    before = all_bits(inner.parameters())
    other.train_one_batch(X, Y)
    assert all_bits(inner.parameters()) == before
    assert other.layers["encoder"].net is inner


def test_a_net_of_several_inputs_and_outputs():
    inner = FeedForwardNet(device=device.new_cpu(), dtype="float64", seed=3)
    one = inner.add(layers.Dense("one", 2, input_sample_shape=(5,)), [])
    two = inner.add(layers.Dense("two", 2, input_sample_shape=(3,)), [])
    inner.add(layers.Merge("sum"), [one, two])
    inner.add(layers.Multiply("product"), [one, two])
    net = FeedForwardNet(device=inner.device, dtype="float64", seed=3)
    a, b = net.add(layers.Dummy("a", (5,)), []), net.add(layers.Dummy("b", (3,)), [])
    net.add(layers.Net("inner", inner), [a, b])
    net.add(layers.Dummy("s"), ("inner", 0))
    net.add(layers.Dummy("p"), ("inner", 1))
    x = {"a": RNG.standard_normal((2, 5)), "b": RNG.standard_normal((2, 3))}
    found = net.forward(False, x)
    wanted = inner.forward(False, {"one": x["a"], "two": x["b"]})
    assert (bits(found["s"]), bits(found["p"])) == (bits(wanted["sum"]), bits(wanted["product"]))


def test_nets_that_do_not_fit_are_refused():
    cpu = device.new_cpu()
    inner = encoder(cpu)
    for outer, shape, error, words in (
        (FeedForwardNet(device=cpu), (4,), ShapeError, r"\(5,\).*\(4,\)"),
        (FeedForwardNet(device=cpu, dtype="float64"), (5,), GraphError, "float64.*float32"),
        (FeedForwardNet(device=device.new_cpu()), (5,), GraphError, "on device"),
    ):
        outer.add(layers.Dummy("x", shape))
        with pytest.raises(error, match=words):
            outer.add(layers.Net("n", inner, input_sample_shape=shape))
        assert list(outer.layers) == ["x"]
    layer = layers.Net("n", inner)
    inner.add(layers.Dense("more", 2))
    with pytest.raises(GraphError, match="'n'"):
        FeedForwardNet(device=cpu).add(layer)


def test_a_net_whose_layers_use_parameters_of_another_net_is_refused():
    cpu = device.new_cpu()
    owner = encoder(cpu)
    inner = FeedForwardNet(device=cpu, seed=3)
    inner.add(layers.Dense("d", 4, input_sample_shape=(5,)).share_parameters(owner.layers["first"]))
    with pytest.raises(GraphError, match=r"'d'.*'first'"):
        FeedForwardNet(device=cpu).add(layers.Net("n", inner))


def test_the_net_of_a_layer_stays_as_it_was_when_adding_fails():
    cpu = device.new_cpu()
    inner = encoder(cpu)
    before = state_of(inner)
    outer = FeedForwardNet(device=cpu)
    outer.add(layers.Dense("last", 3), src="n")
    with pytest.raises(ShapeError):
        outer.add(layers.Net("n", inner, input_sample_shape=(4,)), [])
    assert state_of(inner) == before
    outer.add(layers.Net("n", inner), [])
    assert outer.param_names()[0] == "n/first/weight"
    assert inner.param_names()[0] == "first/weight"


# ---- sequences


def test_a_block_as_llama_has_it():
    """RMS norms without biases, and a gated hidden layer."""
    net = FeedForwardNet(device=device.new_cpu(), dtype="float64", seed=3)
    options: dict[str, Any] = {"activation": "swiglu", "norm": "rms", "use_bias": False, "hidden_dropout": 0.2}
    block = layers.TransformerBlock("b", 2, True, hidden_size=5, input_sample_shape=(3, 4), **options)
    net.add(block)
    assert list(block.layers) == ["attention_norm", "attention", "hidden_norm", "hidden", "hidden_dropout", "output"]
    x = np.random.default_rng(1).standard_normal((2, 3, 4))
    trained = net.forward(True, x, output=["b/hidden", "b/hidden_dropout"])
    kept, dropped = (tensor.to_numpy(trained[name]) for name in ("b/hidden", "b/hidden_dropout"))
    assert 0 < (dropped == 0).mean() < 0.6
    np.testing.assert_allclose(dropped[dropped != 0], kept[dropped != 0] / 0.8, rtol=1e-12)
    del trained
    found = net.forward(False, x, output=["b/hidden_norm"])
    normed, y = (tensor.to_numpy(found[name]) for name in ("b/hidden_norm", "b"))
    gate, value, output = (
        tensor.to_numpy(block.parameters[f"{name}/weight"]) for name in ("hidden/gate", "hidden/value", "output")
    )
    opened = normed @ gate
    mapped = (opened / (1 + np.exp(-opened)) * (normed @ value)) @ output
    before = y - mapped
    rms = np.sqrt((before**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(normed, before / rms, rtol=1e-12)


def test_a_net_that_is_used_twice_trains_as_one():
    cpu = device.new_cpu()
    inner = FeedForwardNet(device=cpu, dtype="float64", seed=3)
    inner.add(layers.Dense("d", 4, input_sample_shape=(5,)))
    inner.add(layers.Residual("r", [layers.Dense("e", 4), layers.Activation("act", "tanh")]))
    net = FeedForwardNet(loss.SquaredError(), device=cpu, dtype="float64", seed=3)
    x, y = net.add(layers.Dummy("x", (5,)), []), net.add(layers.Dummy("y", (5,)), [])
    first = net.add(layers.Net("first", inner), [x])
    with pytest.raises(GraphError, match=r"'second'.*'second/d/weight', which is 'first/d/weight'; share_parameters"):
        net.add(layers.Net("second", inner), [y])
    second = net.add(layers.Net("second", inner).share_parameters(first), [y])
    net.add(layers.Merge("sum"), [first, second])
    assert net.param_names() == ["first/d/weight", "first/d/bias", "first/r/e/weight", "first/r/e/bias"]
    given = {"x": RNG.standard_normal((3, 5)), "y": RNG.standard_normal((3, 5))}
    target = RNG.standard_normal((3, 4))
    net.compile(optimizer.SGD(0.1))
    found = {name: tensor.to_numpy(value) for name, value in net.gradients(given, target).items()}
    for name in ("first/d/weight", "first/r/e/bias"):
        value = net.parameters()[name]
        assert_close(found[name], differences(lambda: net.evaluate_one_batch(given, target)[0].item(), value))
    net.to_device(device.new_cpu())
    assert net.layers["second"].layers["d"].parameters["bias"] is net.parameters()["first/d/bias"]
