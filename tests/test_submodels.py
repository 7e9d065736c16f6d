"""Submodels: nets over layers of another net, whose parameters and statistics are the very same."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import singa_lite
from nets import all_bits, bits, explicit_step, state_of
from singa_lite import FeedForwardNet, GraphError, device, layers, optimizer, tensor
from singa_lite.errors import ConfigError
from singa_lite.graph.executable import Pause

RNG = np.random.default_rng(8)
X, LABELS, OTHER = RNG.normal(size=(7, 4)).astype("f"), RNG.integers(0, 3, 7), RNG.integers(0, 2, 7)


def whole(graph: bool = True) -> FeedForwardNet:
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", device=device.new_cpu(), seed=3)
    net.add(layers.Dense("a", 5, input_sample_shape=(4,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act", "tanh"))
    net.add(layers.Dense("b", 6))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Dense("c", 3))
    net.compile(optimizer.Adam(0.01), graph=graph)
    return net


def headed(net: FeedForwardNet, graph: bool = True, **options) -> FeedForwardNet:
    """A new head behind the layer b."""
    made = net.submodel("b")
    made.add(layers.Dense("head", 2))
    made.compile(optimizer.SGD(0.1, momentum=0.9), "softmax_cross_entropy", graph=graph, **options)
    return made


def values(net: FeedForwardNet) -> dict:
    return all_bits(net.parameters()) | all_bits(net.states())


def shared(net: FeedForwardNet) -> dict:
    """Of the layers that both have."""
    return {name: value for name, value in values(net).items() if name.split("/")[0] in ("a", "norm", "b")}


def by_turns(graph: bool, make) -> list:
    """States of two nets that are trained by turns, and what they evaluate to."""
    net, part = make(graph)
    found = []
    for _ in range(2):
        net.train_one_batch(X, LABELS)
        part.train_one_batch(X[:5], OTHER[:5])
        found.append((state_of(net), state_of(part), net.evaluate(X, LABELS), part.evaluate(X, OTHER)[0]))
    return found


def pair(graph: bool) -> tuple[FeedForwardNet, FeedForwardNet]:
    net = whole(graph)
    return net, headed(net, graph)


def test_a_copy_of_both_shares_again_and_a_copy_of_one_does_not():
    net, part = pair(True)
    twins = copy.deepcopy([net, part])
    assert twins[0].layers["a"] is twins[1].layers["a"] is not net.layers["a"]
    assert by_turns(True, lambda _: tuple(twins)) == by_turns(True, pair)
    alone = copy.deepcopy(part)
    before = values(alone)
    net.train_one_batch(X, LABELS)
    assert values(alone) == before != values(part)


@pytest.mark.parametrize("graph", [True, False])
def test_they_train_as_nets_that_are_made_by_hand(graph):
    """Against one net each, between which the shared values are carried by hand."""
    net, part = pair(graph)
    assert list(part.layers) == ["a", "norm", "act", "b", "head"]
    one, other = whole(graph), headed(whole(graph), graph)
    for _ in range(2):
        net.train_one_batch(X, LABELS)
        one.train_one_batch(X, LABELS)
        carry(one, other)
        part.train_one_batch(X, OTHER)
        other.train_one_batch(X, OTHER)
        carry(other, one)
    assert state_of(part) == state_of(other)
    assert shared(net) == shared(one)


def carry(one: FeedForwardNet, other: FeedForwardNet) -> None:
    """Values of the layers that both have."""
    given = one.parameters() | one.states()
    for name, value in (other.parameters() | other.states()).items():
        if name in given and name in shared(one):
            value.copy_from_numpy(tensor.to_numpy(given[name]))


def test_a_head_is_tuned_behind_layers_that_are_not_trained():
    net = whole()
    part = headed(net)
    part.train_one_batch(X, OTHER)
    for name in ("a", "norm", "b"):
        net.layers[name].trainable = False  # followed by the net that has recorded a step
    parameters = all_bits({n: p for n, p in net.parameters().items() if n in shared(net)})
    head = bits(part.parameters()["head/weight"])
    part.train_one_batch(X, OTHER)
    assert all_bits({n: p for n, p in net.parameters().items() if n in shared(net)}) == parameters
    assert bits(part.parameters()["head/weight"]) != head


def test_a_part_is_fed_in_the_middle():
    net = whole()
    given = tensor.to_numpy(net.predict(X, output=["act"])["act"])
    part = net.submodel("c", inputs="b")
    assert part.input_shapes() == {"b": (5,)} and list(part.layers) == ["b", "drop", "c"]
    assert bits(part.predict(given)) == bits(net.predict(X))
    again = FeedForwardNet.from_config(part.config())
    assert again.input_shapes() == part.input_shapes()
    net.train_one_batch(X, LABELS)


def test_branches_several_outputs_and_numbered_sources():
    net = FeedForwardNet(device=device.new_cpu(), seed=1)
    net.add(layers.Dummy("x", input_sample_shape=(4,)))
    net.add(layers.Slice("cut", 1, [1]))
    net.add(layers.Dense("left", 3), "cut")
    net.add(layers.Dense("right", 5), "cut")
    net.add(layers.Concat("both", 1), ["left", "right"])
    net.add(layers.Dense("other", 2), "x")
    part = net.submodel("right")
    assert list(part.layers) == ["x", "cut", "right"]
    assert bits(part.predict(X)) == bits(net.predict(X, output=["right"])["right"])
    several = net.submodel(["other", "both"]).predict(X)
    assert {name: bits(y) for name, y in several.items()} == {name: bits(y) for name, y in net.predict(X).items()}


def test_either_can_be_saved_pickled_and_made_a_layer(tmp_path):
    net, part = pair(True)
    part.train_one_batch(X, OTHER)
    part.save(tmp_path / "part.h5")
    for made in (singa_lite.load(tmp_path / "part.h5"), pickle.loads(pickle.dumps(part))):
        assert bits(made.predict(X)) == bits(part.predict(X))
        assert made.layers["a"] is not net.layers["a"]
    net.save(tmp_path / "net.h5")
    before = shared(net)
    part.train_one_batch(X, OTHER)
    net.load(tmp_path / "net.h5")
    assert shared(part) == before
    outer = FeedForwardNet(device=net.device, seed=2)
    outer.add(layers.Net("part", part))
    assert bits(outer.predict(X)) == bits(part.predict(X))


def test_all_move_to_a_device_together():
    net, part = pair(True)
    features = net.submodel("act")
    before, there = bits(part.predict(X)), device.new_cpu()
    features.to_device(there)
    assert net.device is part.device is features.device is there
    assert all(p.device is there for p in [*net.param_values(), *part.param_values()])
    assert bits(part.predict(X)) == before
    part.train_one_batch(X, OTHER)
    net.train_one_batch(X, LABELS)
    assert shared(net) == shared(part)


def test_one_that_cannot_move_keeps_all_where_they_are():
    net = whole()
    part = headed(net, memory_budget="1 MiB")
    small, before = device.new_cpu(limit=2**16), net.device
    with pytest.raises(ValueError, match="to_device"):
        net.to_device(small)
    assert net.device is part.device is before
    part.train_one_batch(X, OTHER)
    net.train_one_batch(X, LABELS)


def test_a_step_that_was_left_stops_all():
    net, part = pair(True)
    walk = net.backward(derivative_of_sum(net))
    next(walk)
    walk.close()
    for call in (lambda: part.train_one_batch(X, OTHER), lambda: part.to_device(device.new_cpu())):
        with pytest.raises(GraphError, match=r"each net that has layers of this one.*its discard_step"):
            call()
    net.discard_step()
    part.train_one_batch(X, OTHER)
    explicit_step(net, X, LABELS)


def derivative_of_sum(net: FeedForwardNet):
    """The derivative of the sum of a training forward's outputs."""
    y = net.forward(True, X)
    return tensor.from_numpy(np.ones(y.shape, "f"), net.device)


def test_a_checkpoint_in_the_background_is_waited_for_by_the_other(tmp_path):
    net, part = pair(True)
    net.train_one_batch(X, LABELS)
    part.train_one_batch(X, OTHER)
    read, blocks = [], [value.block for value in [*net.param_values(), *net.states().values()]]
    net.beside_next_step(lambda: Pause(blocks, lambda: read.append(shared(net))))
    before = shared(net)
    part.train_one_batch(X, OTHER)
    assert read[0] == before != shared(net)


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ({"outputs": "nobody"}, "'nobody'"),
        ({"outputs": []}, "outputs"),
        ({"outputs": ["b", "b"]}, "outputs"),
        ({"outputs": ["b", "c"]}, "'drop'"),
        ({"outputs": "a", "inputs": "b"}, "inputs.*'b'"),
        ({"outputs": "c", "inputs": "d"}, "inputs.*'d'"),
        ({"outputs": "sum", "inputs": "b"}, "'a'"),
        ({"outputs": "sum", "inputs": "sum"}, "'sum'"),
    ],
)
def test_what_is_no_part_is_refused(arguments, culprit):
    net = whole()
    net.add(layers.Activation("act2"), "b")
    net.add(layers.Dense("d5", 5), "act2")
    net.add(layers.Merge("sum"), ["act", "d5"])
    with pytest.raises(GraphError, match=culprit):
        net.submodel(**arguments)


@pytest.mark.parametrize("given", [None, 3, object()])
def test_what_are_no_names_is_refused(given):
    with pytest.raises(TypeError, match="outputs"):
        whole().submodel(given)


def test_a_layer_whose_owner_stays_outside_has_no_configuration():
    net = FeedForwardNet(device=device.new_cpu(), seed=1)
    first = net.add(layers.Dense("first", 4, input_sample_shape=(4,)))
    net.add(layers.Dense("second", 4).share_parameters(first))
    part = net.submodel("second", inputs="second")
    assert bits(part.predict(X)) == bits(tensor.to_numpy(net.submodel("first").predict(X)))
    with pytest.raises(ConfigError, match=r"'second'.*'first'"):
        part.config()
