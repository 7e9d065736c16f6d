"""FeedForwardNet: the contract that scripts rely on, by results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nets import (
    all_bits,
    assert_close,
    bits,
    difference,
    differences,
    forward_and_loss,
    gradients_of,
    images,
    state_of,
)
from singa_lite import (
    FeedForwardNet,
    GraphError,
    Layer,
    LayerGradients,
    ShapeError,
    Tensor,
    autograd,
    device,
    layers,
    loss,
    metric,
    optimizer,
    tensor,
)
from singa_lite.layer.topology import Source, Topology

RNG = np.random.default_rng(4)


def uniform(*shape: int, dtype: str = "float64") -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(dtype)


def net64(*pairs: tuple[Layer, Any], on: Any = None, **options: Any) -> FeedForwardNet:
    """A float64 net of (layer, source) pairs."""
    net = FeedForwardNet(device=on or device.new_cpu(), dtype="float64", seed=3, **options)
    for layer, source in pairs:
        net.add(layer, src=source)
    return net


def values(net: FeedForwardNet) -> dict[str, np.ndarray]:
    return {name: tensor.to_numpy(value) for name, value in net.parameters().items()}


def dense(given: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return x @ given[f"{name}/weight"] + given[f"{name}/bias"]


def projected(net: FeedForwardNet, x: Any, weights: dict[str, np.ndarray]) -> Callable[[], float]:
    """The sum of all outputs times fixed weights, in training mode, as a function to differentiate."""

    def value() -> float:
        out = net.forward(True, x)
        named = out if isinstance(out, dict) else dict.fromkeys(weights, out)
        return sum(float(np.vdot(tensor.to_numpy(named[name]), weight)) for name, weight in weights.items())

    return value


LAST, NORM, FIRST = ["dense/weight", "dense/bias"], ["norm/gamma", "norm/beta"], ["conv/weight", "conv/bias"]
X, Y = uniform(6, 2, 5, 4, dtype="float32"), RNG.integers(0, 4, 6)


# --- building -----------------------------------------------------------------------------------------------


def test_layers_may_be_added_in_any_order_that_names_their_sources():
    net = net64(
        (layers.Dense("out", 2), ["sum"]),
        (layers.Merge("sum"), ["left", "right"]),
        (layers.Dense("right", 5), "x"),
        (layers.Dense("left", 5), "x"),
    )
    with pytest.raises(GraphError, match="whose input shapes are known"):
        net.layers["left"].get_output_sample_shape()
    with pytest.raises(GraphError, match=r"'x'"):
        net.param_names()
    net.add(layers.Dense("x", 4, input_sample_shape=(3,)), src=[])
    assert net.param_names() == [f"{n}/{p}" for n in ("x", "left", "right", "out") for p in ("weight", "bias")]
    x, v = uniform(6, 3), values(net)
    hidden = dense(v, "x", x)
    wanted = dense(v, "out", dense(v, "left", hidden) + dense(v, "right", hidden))
    np.testing.assert_allclose(tensor.to_numpy(net.forward(False, x)), wanted, rtol=1e-12)


def topology(sources: dict[str, list[str]]) -> Topology:
    """The layers' order alone, of layers that are added in a drawn order."""
    made, items = Topology(), list(sources.items())
    random.Random(0).shuffle(items)
    for name, names in items:
        made.add(name, tuple(Source(source) for source in names))
    return made


def test_a_branch_is_finished_before_the_next_begins():
    """Depth first: fewer outputs wait at once than if both branches were walked side by side."""
    sources = {"x": [], "a1": ["x"], "b1": ["x"], "a2": ["a1"], "b2": ["b1"], "sum": ["a2", "b2"]}
    assert topology(sources).order() == ["x", "a1", "a2", "b1", "b2", "sum"]


def test_thousands_in_a_row_and_side_by_side():
    count = 5000
    chain = {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(count)}
    assert topology(chain).order() == list(chain)
    star = {"x": [], **{f"n{i}": ["x"] for i in range(count)}, "sum": [f"n{i}" for i in range(count)]}
    order = topology(star).order()
    assert (order[0], order[-1], len(order)) == ("x", "sum", count + 2)


@pytest.mark.parametrize(
    "sources",
    [{"a": ["b"], "b": ["a"]}, {"x": [], "a": ["x", "c"], "b": ["a"], "c": ["b"], "d": ["c"]}],
)
def test_a_cycle_is_an_error_that_names_it(sources):
    with pytest.raises(GraphError, match="cycle") as caught:
        topology(sources).order()
    loop = str(caught.value).split("received ")[1].split(" <- ")
    assert loop[0] == loop[-1] and set(loop) == set(sources) - {"x", "d"}


@pytest.mark.parametrize(
    ("name", "source", "culprit"), [("x", None, "'x'"), ("b", "b", "'b'"), ("b", ("cut", 3), "'cut'")]
)
def test_a_second_layer_of_one_name_and_sources_that_cannot_be_are_refused(name, source, culprit):
    net = net64(
        (layers.Dense("x", 5, input_sample_shape=(3,)), None),
        (layers.Slice("cut", 1, [2, 3]), None),
    )
    with pytest.raises(GraphError, match=culprit):
        net.add(layers.Dense(name, 4), src=source)


def test_a_source_that_does_not_fit_those_who_wait_for_it_leaves_them_waiting():
    """`good` could be set up when x comes, `bad` could not: the net is as before, and takes another x."""
    net = net64(
        (layers.Dense("good", 4), "x"),
        (layers.Dense("bad", 2, input_sample_shape=(5,)), "x"),
        (layers.Concat("both", 1), ["good", "bad"]),
    )
    level = net.device.pool.used
    with pytest.raises(ShapeError, match=r"'bad'.*\(5,\).*\(3,\).*'x'"):
        net.add(layers.Dense("x", 3, input_sample_shape=(6,)), src=[])
    assert list(net.layers) == ["good", "bad", "both"]
    assert net.device.pool.used == level
    net.add(layers.Dense("x", 5, input_sample_shape=(6,)), src=[])
    assert [value.shape for value in net.param_values()] == [(6, 5), (5,), (5, 4), (4,), (5, 2), (2,)]
    assert net.forward(False, uniform(3, 6)).shape == (3, 6)


def test_equal_seeds_give_equal_nets_and_different_ones_do_not():
    on = device.new_cpu()
    nets = [images(seed=5), images(seed=5, on=on), images(seed=6), images(seed=None), images(seed=None)]
    for net in nets:
        net.compile(optimizer.SGD(lr=0.1))
        for _ in range(2):
            net.train_one_batch(X, Y)
    first, again, other, default, same_default = map(state_of, nets)
    assert first == again
    assert default == same_default  # each the first net of a new device
    for name in ("conv: weight", "dense: weight"):
        assert len({first[name], other[name], default[name]}) == 3


def test_nets_of_one_device_differ_and_a_script_repeats_itself():
    on = device.new_cpu()
    first, second = images(seed=None, on=on), images(seed=None, on=on)
    assert state_of(first) != state_of(second)
    on.set_random_seed(0)
    assert state_of(images(seed=None, on=on)) == state_of(first)


def test_a_layers_first_values_do_not_depend_on_the_other_layers():
    alone = net64((layers.Dense("d", 4, input_sample_shape=(3,)), None))
    among = net64(
        (layers.Dense("before", 3, input_sample_shape=(2,)), None),
        (layers.Dense("d", 4), None),
        (layers.Dense("after", 4), None),
    )
    np.testing.assert_array_equal(values(alone)["d/weight"], values(among)["d/weight"])
    assert not np.array_equal(values(among)["d/weight"][:, 0], values(among)["after/weight"][:3, 0])


# --- several inputs and outputs -----------------------------------------------------------------------------


def two_inputs_two_outputs() -> FeedForwardNet:
    return net64(
        (layers.Dense("a", 4, input_sample_shape=(3,)), []),
        (layers.Dense("b", 5, input_sample_shape=(2,)), []),
        (layers.Concat("both", 1), ["a", "b"]),
        (layers.Dense("scores", 3), "both"),
        (layers.Dense("number", 1), ["both"]),
    )


def test_inputs_and_outputs_by_name():
    net = two_inputs_two_outputs()
    x = {"a": uniform(7, 3), "b": uniform(7, 2)}
    v = values(net)
    both = np.concatenate([dense(v, "a", x["a"]), dense(v, "b", x["b"])], axis=1)
    for training in (False, True):
        out = net.forward(training, x)
        assert set(out) == {"scores", "number"}
        for name in out:
            np.testing.assert_allclose(tensor.to_numpy(out[name]), dense(v, name, both), rtol=1e-12)
    assert list(net.input_shapes().items()) == [("a", (3,)), ("b", (2,))]


def test_one_of_two_outputs_trains_only_what_leads_to_it():
    net = two_inputs_two_outputs()
    net.forward(True, {"a": uniform(7, 3), "b": uniform(7, 2)})
    found = gradients_of(net.backward({"number": uniform(7, 1)}))
    assert set(found) == {f"{n}/{p}" for n in ("number", "a", "b") for p in ("weight", "bias")}


@pytest.mark.parametrize(
    "x",
    [uniform(4, 3), {"a": uniform(4, 3)}, {"a": uniform(4, 3), "b": uniform(4, 2), "c": uniform(4, 2)}],
    ids=["no dict", "one missing", "one too many"],
)
def test_inputs_must_be_named_exactly_and_have_equally_many_samples(x):
    with pytest.raises(GraphError, match=r"\['a', 'b'\]"):
        two_inputs_two_outputs().forward(False, x)
    with pytest.raises(ShapeError, match=r"'a': 4.*'b': 5"):
        two_inputs_two_outputs().forward(False, {"a": uniform(4, 3), "b": uniform(5, 2)})


def test_a_net_of_several_losses():
    """The loss is the sum of the losses, and metrics come by name."""
    x = {"a": uniform(7, 3), "b": uniform(7, 2)}
    y = {"scores": RNG.integers(0, 3, 7), "number": uniform(7, 1)}
    net = two_inputs_two_outputs()
    losses = {"number": loss.SquaredError(), "scores": loss.SoftmaxCrossEntropy()}
    net.compile(optimizer.SGD(lr=0.3), losses, {"scores": metric.Accuracy()})
    out = {name: tensor.to_numpy(value) for name, value in net.forward(False, x).items()}
    z = out["scores"] - out["scores"].max(axis=1, keepdims=True)
    cross = np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(7), y["scores"]])
    wanted = cross + np.mean((out["number"] - y["number"]) ** 2 / 2)
    loss_value, metric_value = net.train_one_batch(x, y)
    assert float(loss_value) == pytest.approx(wanted, rel=1e-12)
    assert float(metric_value["scores"]) == np.mean(out["scores"].argmax(axis=1) == y["scores"])
    assert list(metric_value) == ["scores"]


# --- one output to many, and layers with many outputs -------------------------------------------------------


def sliced(*consumers: tuple[str, Any]) -> FeedForwardNet:
    """A Slice of (5,) into 2, 1 and 2 numbers, each consumer a Dense, joined where there are several."""
    net = net64((layers.Slice("cut", 1, [2, 3], input_sample_shape=(5,)), None))
    for name, source in consumers:
        net.add(layers.Dense(name, 3), src=source)
    if len(consumers) > 1:
        net.add(layers.Concat("joined", 1), src=[name for name, _ in consumers])
    return net


PIECES = [slice(0, 2), slice(2, 3), slice(3, 5)]


@pytest.mark.parametrize(
    ("consumers", "taken"),
    [
        ([("a", "cut"), ("b", "cut"), ("c", "cut")], [0, 1, 2]),
        ([("a", ("cut", 2)), ("b", ("cut", 0)), ("c", ("cut", 1))], [2, 0, 1]),
        ([("a", ("cut", 2)), ("b", ("cut", 2)), ("c", "cut"), ("d", "cut")], [2, 2, 0, 1]),
        ([("a", [("cut", 1)]), ("b", "cut")], [1, 0]),
        ([("a", ("cut", 1))], [1]),
    ],
    ids=["in order", "by number", "both", "one left over", "two left over"],
)
def test_pieces_go_to_their_consumers_by_order_or_number(consumers, taken):
    net = sliced(*consumers)
    x = uniform(4, 5)
    names = [name for name, _ in consumers]
    v = values(net)
    parts = [dense(v, name, x[:, PIECES[piece]]) for name, piece in zip(names, taken, strict=True)]
    out = net.forward(True, x, output=["cut"])
    assert [p.shape for p in out["cut"]] == [(4, 2), (4, 1), (4, 2)]
    (end,) = net.output_names()
    np.testing.assert_allclose(tensor.to_numpy(out[end]), np.concatenate(parts, axis=1), rtol=1e-12)
    del out  # of two forwards whose outputs are held, none is walked back from

    weight = uniform(4, 3 * len(names))
    assert isinstance(net.forward(True, x), Tensor)
    found = gradients_of(net.backward(weight, output=["cut"]))
    assert set(found) == set(net.param_names())
    assert_close(found["a/weight"], x[:, PIECES[taken[0]]].T @ weight[:, :3])


def test_a_layer_with_several_outputs_may_be_the_last():
    net = net64(
        (layers.Dense("x", 5, input_sample_shape=(3,)), None),
        (layers.Slice("cut", 1, [2]), None),
    )
    x = uniform(4, 3)
    whole = dense(values(net), "x", x)
    left, right = net.forward(True, x)
    np.testing.assert_allclose(tensor.to_numpy(left), whole[:, :2], rtol=1e-12)
    np.testing.assert_allclose(tensor.to_numpy(right), whole[:, 2:], rtol=1e-12)
    dys = [uniform(4, 2), uniform(4, 3)]
    found = gradients_of(net.backward({"cut": dys}))
    np.testing.assert_allclose(found["x/weight"], x.T @ np.concatenate(dys, axis=1), rtol=1e-12)
    with pytest.raises(GraphError, match=r"'cut'"):
        net.predict(x)
    net.compile(optimizer.SGD(lr=0.1), loss.SquaredError())
    before = state_of(net)
    with pytest.raises(GraphError, match=r"'cut'.*2 outputs"):
        net.train_one_batch(x, uniform(4, 2))
    assert state_of(net) == before


# --- more out of forward and backward -----------------------------------------------------------------------


def test_activations_of_named_layers_come_along():
    net = images()
    plain = tensor.to_numpy(net.forward(False, X))
    out = net.forward(False, X, output=["norm", "conv", "dense"])
    assert list(out) == ["conv", "norm", "dense"]
    v = values(net)
    np.testing.assert_array_equal(tensor.to_numpy(out["dense"]), plain)
    with autograd.no_grad():
        conv = autograd.conv2d(tensor.from_numpy(X, net.device), *net.param_values()[:2], pad=(1, 1, 1, 1))
    np.testing.assert_allclose(tensor.to_numpy(out["conv"]), tensor.to_numpy(conv), rtol=1e-6)
    scale = np.sqrt(1 + 1e-5)
    np.testing.assert_allclose(tensor.to_numpy(out["norm"]), tensor.to_numpy(conv) / scale, rtol=1e-5)
    assert v["norm/gamma"].tolist() == [1, 1, 1]


def chain() -> FeedForwardNet:
    return net64(
        (layers.Dense("x", 4, input_sample_shape=(3,)), None),
        (layers.Activation("act", "tanh"), None),
        (layers.Dense("mid", 5), None),
        (layers.Merge("sum"), ["mid", "mid"]),
        (layers.Dense("out", 2), None),
    )


def test_derivatives_by_the_inputs_of_named_layers():
    """Also of the first layer, and a list where a layer has several inputs. Gradients are the same without."""
    net, x, dy = chain(), uniform(6, 3), uniform(6, 2)
    net.forward(True, x)
    plain = gradients_of(net.backward(dy))
    net.forward(True, x)
    found: dict[str, Any] = {}
    gradients: dict[str, np.ndarray] = {}
    dicts = set()
    for names, _, grads, layer_grads in net.backward(dy, output=["x", "act", "sum", "out"]):
        gradients |= {name: tensor.to_numpy(grad) for name, grad in zip(names, grads, strict=True)}
        dicts.add(id(layer_grads))
        found = layer_grads
    assert len(dicts) == 1
    assert list(found) == ["out", "sum", "act", "x"]
    assert all_bits(gradients) == all_bits(plain)
    w = values(net)
    act = np.tanh(dense(w, "x", x))
    by_out = dy @ w["out/weight"].T
    np.testing.assert_allclose(tensor.to_numpy(found["out"]), by_out, rtol=1e-12)
    for each in found["sum"]:
        np.testing.assert_allclose(tensor.to_numpy(each), by_out, rtol=1e-12)
    by_act = 2 * by_out @ w["mid/weight"].T
    np.testing.assert_allclose(tensor.to_numpy(found["act"]), by_act * (1 - act**2), rtol=1e-12)
    held = tensor.from_numpy(x, net.device)
    assert_close(found["x"], differences(projected(net, held, {"out": dy}), held))


def test_a_derivative_by_a_named_activation_may_be_added():
    net, x = chain(), uniform(6, 3)
    weights = {"out": uniform(6, 2), "act": uniform(6, 4)}
    net.forward(True, x, output=["act"])
    found = gradients_of(net.backward(weights))

    def value() -> float:
        out = net.forward(False, x, output=["act"])
        return sum(float(np.vdot(tensor.to_numpy(out[name]), weight)) for name, weight in weights.items())

    for name in ("x/weight", "mid/bias"):
        assert_close(found[name], differences(value, net.parameters()[name]))


# --- the generator ------------------------------------------------------------------------------------------


def test_one_item_a_layer_last_layer_first_parameterless_ones_too():
    net = images()
    items, parameters = [], net.parameters()
    for item in net.backward(forward_and_loss(net, X, Y)):
        assert isinstance(item, LayerGradients) and isinstance(item, tuple) and len(item) == 4
        names, values_, grads, layer_grads = item
        assert all(parameters[name] is value for name, value in zip(names, values_, strict=True))
        assert [g.shape for g in grads] == [v.shape for v in values_]
        assert [g.name for g in grads] == names
        assert layer_grads == {}
        items.append(names)
    assert items == [LAST, [], [], [], NORM, FIRST]


def test_a_layers_gradients_die_when_the_next_layer_is_asked_for():
    net = images()
    before: list[Tensor] = []
    for _, _, grads, _ in net.backward(forward_and_loss(net, X, Y)):
        for old in before:
            with pytest.raises(GraphError, match=r"given back.*copy it"):
                tensor.to_numpy(old)
        before += [g for g in grads if tensor.to_numpy(g) is not None]
    assert len(before) == 6
    assert all("given back" in repr(old) for old in before)


def test_nothing_is_computed_for_a_layer_before_its_turn():
    net = images()
    dy = forward_and_loss(net, X, Y)
    ran: list[str] = []
    with net.device.watch(lambda operation: ran.append(operation.layer)):
        walk = net.backward(dy)
        assert ran == []
        turns = []
        for _ in walk:
            turns.append(set(ran))
            ran.clear()
    assert turns[0] == {"dense"}
    assert turns[-1] == {"conv"}


def test_backward_needs_a_forward_each_time_and_goes_by_the_last():
    net, x, dy = chain(), uniform(6, 3), uniform(6, 2)
    with pytest.raises(GraphError, match=r"forward\(True, x\)"):
        net.backward(dy)
    net.forward(False, x)
    with pytest.raises(GraphError, match=r"forward\(True, x\)"):
        net.backward(dy)
    net.forward(True, x)
    wanted = gradients_of(net.backward(dy))
    with pytest.raises(GraphError, match=r"forward\(True, x\)"):
        net.backward(dy)
    net.forward(True, uniform(5, 3))
    net.forward(True, x)
    assert all_bits(gradients_of(net.backward(dy))) == all_bits(wanted)


@pytest.mark.parametrize(
    ("dy", "options", "error", "culprit"),
    [
        (uniform(6, 3), {}, ShapeError, r"'out'.*\(6, 3\)"),
        (uniform(5, 2), {}, ShapeError, r"\(5, 2\)"),
        (uniform(6, 2, dtype="float32"), {}, TypeError, "float32"),
        (None, {}, TypeError, "None"),
        ({"mid": uniform(6, 5)}, {}, GraphError, "'mid'"),
        ({"nobody": uniform(6, 5)}, {}, GraphError, "'nobody'"),
        ({}, {}, GraphError, "'out'"),
        ({"out": [uniform(6, 2)] * 2}, {}, GraphError, "'out'"),
        (uniform(6, 2), {"output": ["nobody"]}, GraphError, "'nobody'"),
        (uniform(6, 2), {"output": "mid"}, TypeError, "'mid'"),
        (uniform(6, 2), {"freeze": "nobody"}, GraphError, "'nobody'"),
    ],
)
def test_derivatives_that_do_not_fit_are_refused_and_the_forward_stays_good(dy, options, error, culprit):
    net, x, good = chain(), uniform(6, 3), uniform(6, 2)
    net.forward(True, x)
    with pytest.raises(error, match=culprit):
        net.backward(dy, **options)
    assert len(gradients_of(net.backward(good))) == 6


def test_an_unfinished_walk_stops_the_net_until_it_is_discarded():
    net = images()
    net.compile(optimizer.SGD(lr=0.1))
    walk = net.backward(forward_and_loss(net, X, Y))
    next(walk)
    for use in (
        lambda: net.train_one_batch(X, Y),
        lambda: net.forward(True, X),
        lambda: net.gradients(X, Y),
        lambda: net.backward(uniform(6, 4, dtype="float32")),
        lambda: net.to_device(device.new_cpu()),
    ):
        with pytest.raises(GraphError, match=r"'dense'.*discard_step"):
            use()
    assert net.unfinished_at == "dense"
    assert net.forward(False, X).shape == (6, 4)
    walk.close()
    with pytest.raises(GraphError, match="'dense'"):
        net.train_one_batch(X, Y)
    net.discard_step()
    assert net.unfinished_at == ""
    net.train_one_batch(X, Y)


def test_a_walk_that_never_began_is_no_unfinished_step():
    net = images()
    net.compile(optimizer.SGD(lr=0.1))
    net.backward(forward_and_loss(net, X, Y))
    net.train_one_batch(X, Y)


# --- training -----------------------------------------------------------------------------------------------


def test_loss_and_metric_are_numbers_from_before_the_update():
    net = net64((layers.Dense("d", 4, input_sample_shape=(3,)), None))
    net.compile(optimizer.SGD(lr=0.5), loss.SoftmaxCrossEntropy(), metric.Accuracy())
    x, y = uniform(7, 3), RNG.integers(0, 4, 7)
    wanted = net.evaluate(x, y)
    loss_value, metric_value = net.train_one_batch(x, y)
    assert loss_value.shape == metric_value.shape == ()
    assert float(loss_value) == pytest.approx(wanted[0], rel=1e-12)
    assert float(metric_value) == wanted[1]
    assert net.evaluate(x, y)[0] < wanted[0]


# --- freezing -----------------------------------------------------------------------------------------------


def test_backward_may_stop_at_a_layer():
    nets = [images() for _ in range(2)]
    found = gradients_of(nets[0].backward(forward_and_loss(nets[0], X, Y), freeze="norm"))
    wanted = gradients_of(nets[1].backward(forward_and_loss(nets[1], X, Y)))
    assert list(found) == LAST + NORM
    assert all_bits(found) == {name: bits(wanted[name]) for name in found}
    assert nets[0].unfinished_at == ""
    assert len(list(nets[0].backward(forward_and_loss(nets[0], X, Y)))) == 6


def test_derivatives_by_frozen_inputs_are_refused_before_anything_is_handed_out():
    net = images()
    net.loss.forward(True, net.forward(True, X, freeze="flat"), Y)
    dy = net.loss.backward()
    with pytest.raises(GraphError, match=r"'conv'.*frozen"):
        net.backward(dy, output=["conv"])
    with pytest.raises(GraphError, match=r"'flat'.*frozen"):
        net.backward(dy, output=["flat"], freeze="dense")
    assert len(list(net.backward(dy, output=["dense", "flat"]))) == 6


def test_derivatives_that_the_given_ones_do_not_reach_are_refused_at_once():
    net = two_inputs_two_outputs()
    net.forward(True, {"a": uniform(7, 3), "b": uniform(7, 2)})
    with pytest.raises(GraphError, match="'scores'"):
        net.backward({"number": uniform(7, 1)}, output=["scores"])
    assert len(list(net.backward({"number": uniform(7, 1)}, output=["number", "a"]))) == 5


PICTURES, LABELS = uniform(7, 2, 6, 5), np.arange(7) % 3


def freezing(dtype: str = "float32", **options: object) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3, dtype=dtype)
    net.add(layers.Conv2D("conv", 4, 3, input_sample_shape=(2, 6, 5)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("bend", "tanh"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Sequential([layers.Dense("a", 6), layers.Dropout("drop", 0.5), layers.Dense("b", 5)], name="block"))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.Adam(0.01), **options)
    return net


def all_values(net: FeedForwardNet) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in (net.parameters() | net.states()).items()}


def moved(net: FeedForwardNet, steps: int = 2) -> set[str]:
    before = all_values(net)
    for _ in range(steps):
        net.train_one_batch(PICTURES.astype("f"), LABELS)
    return {name for name, value in all_values(net).items() if (value != before[name]).any()}


SETS = (["norm"], {"conv"}, ["block/a"], ["block"], ["scores"], ["block/b", "norm"])


@pytest.mark.parametrize("chosen", SETS, ids=str)
@pytest.mark.parametrize("options", [{}, {"graph": False}, {"clip_global_norm": 9.0}], ids=str)
def test_exactly_these_do_not_train(chosen, options):
    net = freezing(freeze=chosen, **options)
    frozen = {name for name in all_values(net) if any(name.startswith(f"{path}/") for path in chosen)}
    assert moved(net) == set(all_values(net)) - frozen


@pytest.mark.parametrize("frozen", [["table"], "dense"], ids=str)
def test_a_parameter_that_layers_share_trains_by_those_that_train(frozen):
    """Its own layer's `trainable` keeps it."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), seed=0)
    table = net.add(layers.Embedding("table", 9, 4, input_sample_shape=(3,)))
    net.add(layers.Dense("dense", 4))
    net.add(layers.TiedDense("scores", table))
    net.compile(optimizer.SGD(0.1), freeze=frozen)
    ids = np.arange(20).reshape(4, 5) % 9
    for trains in (True, False):
        table.trainable = trains
        before = all_values(net)
        net.train_one_batch(ids[:, :3], ids[:, 1:4])
        changed = {name.split("/")[0] for name, value in all_values(net).items() if (value != before[name]).any()}
        assert changed == ({"dense", "table"} if trains else {"dense"})


def test_derivatives_through_them_are_those_of_the_formula():
    net = freezing("float64", freeze=["norm", "block"])
    net.states()["norm/running_mean"].copy_from_numpy(np.linspace(-1, 1, 4))
    net.states()["norm/running_var"].copy_from_numpy(np.linspace(0.5, 2, 4))
    gradients = {name: np.array(value) for name, value in net.gradients(PICTURES, LABELS).items()}
    assert set(gradients) == {"conv/weight", "conv/bias", "scores/weight", "scores/bias"}
    for name, gradient in gradients.items():  # dropout and statistics are frozen: evaluation is the same function
        last = tuple(n - 1 for n in gradient.shape)
        slope = difference(lambda: float(net.evaluate_one_batch(PICTURES, LABELS)[0]), net.parameters()[name], last)
        np.testing.assert_allclose(gradient[last], slope, rtol=1e-6, atol=1e-9)


def test_all_before_a_layer_by_name_or_one_by_one_is_the_same():
    by_name, by_list = freezing(freeze="block"), freezing(freeze=["conv", "norm", "bend", "flat"])
    assert moved(by_name) == moved(by_list)
    for name, value in all_values(by_name).items():
        np.testing.assert_array_equal(all_values(by_list)[name], value)
    assert by_name.plan_batch(7).total_bytes == by_list.plan_batch(7).total_bytes


def test_layers_themselves_and_what_is_compiled_later():
    net = freezing()
    net.compile(optimizer.SGD(0.1), freeze={net.layers["conv"], net.layers["block"].layers["b"]})
    assert net.freeze == ("conv", "block/b") and all(t.stores_grad for t in net.param_values())
    assert {name for name in all_values(net) if "conv" in name or "block/b" in name}.isdisjoint(moved(net))
    again = FeedForwardNet.from_config(net.config())
    assert again.freeze == ("conv", "block/b")
    net.compile(optimizer.SGD(0.1))
    assert moved(net) == set(all_values(net))
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
    net = freezing()
    before = net.optimizer
    with pytest.raises(error, match=culprit):
        net.compile(optimizer.SGD(0.1), freeze=given)
    assert net.optimizer is before


# --- shared parameters --------------------------------------------------------------------------------------


def test_parameters_of_other_shapes_or_of_a_layer_outside_cannot_be_shared():
    net = FeedForwardNet(dtype="float64")
    owner = net.add(layers.Dense("owner", 4, input_sample_shape=(4,)))
    with pytest.raises(ShapeError, match=r"'user'.*\(4, 5\).*\(4, 4\)"):
        net.add(layers.Dense("user", 5).share_parameters(owner))
    with pytest.raises(ShapeError, match="'user'"):
        net.add(layers.Dense("user", 4, use_bias=False).share_parameters(owner))
    with pytest.raises(GraphError, match=r"'user'.*'outside'"):
        net.add(layers.Dense("user", 4).share_parameters(layers.Dense("outside", 4)))
    with pytest.raises(GraphError, match="before the layer is in a net"):
        owner.share_parameters(owner)
    assert list(net.layers) == ["owner"]


# --- devices ------------------------------------------------------------------------------------------------


def test_a_net_moves_with_all_it_has_and_trains_on_as_before():
    first, second = device.new_cpu(), device.new_cpu()
    moved, stayed = images(on=first), images()
    for net in (moved, stayed):
        net.compile(optimizer.Adam())
        net.train_one_batch(X, Y)
    net = moved
    net.to_device(second)
    assert net.device is second
    tensors = [*net.param_values(), *net.states().values()]
    tensors += [t for slots in net.optimizer.state.values() for t in slots.values()]
    assert all(t.device is second for t in tensors)
    assert all(value.stores_grad for value in net.param_values())
    for each in (moved, stayed):
        each.train_one_batch(X, Y)
    assert state_of(moved) == state_of(stayed)
    net.optimizer = None
    assert first.pool.used <= 64  # the optimizer's learning rate there
    net.to_device(second)
    assert state_of(moved)["conv: weight"] == state_of(stayed)["conv: weight"]
