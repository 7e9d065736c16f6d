"""copy, deepcopy and pickle of what the framework has, and child processes: each gives what it should, or says no."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from in_process import output
from nets import all_bits, bits, state_of
from singa_lite import FeedForwardNet, GraphError, autograd, device, layers, loss, metric, optimizer, tensor

RNG = np.random.default_rng(5)
X, LABELS = RNG.normal(size=(6, 5)).astype("f"), RNG.integers(0, 4, 6)
KINDS: dict[str, Callable[[], optimizer.Optimizer]] = {
    "SGD": lambda: optimizer.SGD(lr=lambda step: 0.1 / (1 + step), momentum=0.9),
    "Adam": optimizer.Adam,
}


def make(kind: str = "SGD", graph: bool = True) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=device.new_cpu(), seed=6)
    first = net.add(layers.Dense("first", 5, input_sample_shape=(5,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dropout("drop", 0.4))
    net.add(layers.Dense("again", 5).share_parameters(first))
    net.add(layers.Dense("scores", 4))
    net.compile(KINDS[kind](), graph=graph)
    return net


def train(net: FeedForwardNet, count: int) -> list[dict[str, Any]]:
    """The state after each step."""
    states = []
    for _ in range(count):
        net.train_one_batch(X, LABELS)
        states.append(state_of(net))
    return states


@pytest.mark.parametrize(("kind", "graph", "steps"), [("SGD", True, 2), ("Adam", False, 2), ("Adam", True, 0)])
def test_a_deep_copy_of_a_net_trains_on_to_equal_bits_by_itself(kind, graph, steps):
    net = make(kind, graph)
    train(net, steps)
    before = state_of(net)
    twin = copy.deepcopy(net)
    assert state_of(twin) == before
    assert twin.device is net.device
    assert not twin.recorded_forms
    found = train(twin, 3)
    assert state_of(net) == before, "the two share no bytes"
    assert train(net, 3) == found


def test_shared_parameters_are_shared_in_the_copy_and_on_another_device():
    twin = copy.deepcopy(make())
    twin.to_device(device.new_cpu())
    first, again = twin.layers["first"], twin.layers["again"]
    assert again.shared_with is first
    assert again.parameters["weight"] is first.parameters["weight"]
    assert twin.param_names() == make().param_names()


def test_a_copy_of_an_unfinished_net_is_refused():
    net = make()
    net.loss.forward(True, net.forward(True, X), LABELS)
    walk = net.backward(net.loss.backward())
    next(walk), next(walk)
    with pytest.raises(GraphError, match=r"deepcopy: wanted a whole step"):
        copy.deepcopy(net)
    net.discard_step()
    assert state_of(copy.deepcopy(net)) == state_of(net)


def test_a_forward_that_waits_is_not_copied():
    net = make()
    net.loss.forward(True, net.forward(True, X), LABELS)
    twin = copy.deepcopy(net)
    with pytest.raises(GraphError, match="forward"):
        twin.backward(X)
    with pytest.raises(GraphError, match="forward"):
        twin.loss.backward()


def test_tensors():
    on = device.new_cpu()
    whole = tensor.from_numpy(np.arange(24, dtype="f").reshape(2, 3, 4), on)
    turned = autograd.transpose(whole, (2, 0, 1)).detach()
    turned.name, turned.stores_grad = "w", True
    made = copy.deepcopy(turned)
    assert bits(made) == bits(turned)
    assert (made.name, made.stores_grad, made.requires_grad, made.device) == ("w", True, True, on)
    made.copy_from_numpy(np.zeros(made.shape, "f"))
    assert tensor.to_numpy(turned).any()
    again = copy.copy(turned)
    assert again.block is turned.block
    taped = autograd.multiply(turned, turned)
    with pytest.raises(GraphError, match=r"deepcopy: .*detach\(\) it first"):
        copy.deepcopy(taped)
    with pytest.raises(TypeError, match=r"Tensor: .* pickled.*to_numpy"):
        pickle.dumps(turned)


def test_layers_optimizers_and_losses():
    net = make()
    train(net, 1)
    one = copy.deepcopy(net.layers["scores"])
    assert all_bits(one.parameters) == all_bits(net.layers["scores"].parameters)
    assert one.parameters["weight"].block is not net.layers["scores"].parameters["weight"].block
    other = copy.deepcopy(net.optimizer)
    assert other.step == 1
    assert {name: all_bits(slots) for name, slots in other.state.items()} == {
        name: all_bits(slots) for name, slots in net.optimizer.state.items()
    }
    assert isinstance(pickle.loads(pickle.dumps(net.loss)), loss.SoftmaxCrossEntropy)


def one_of_a_kind() -> dict[str, Any]:
    net = make()
    train(net, 1)
    weight = net.param_values()[0]
    graph = net.training_graph
    found = {"net": net, "block": weight.block, "pool": net.device.pool, "graph": graph, "arena": graph.arena}
    found |= {"device": net.device, "taped": autograd.relu(weight).creator}
    return found


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_what_there_is_one_of_is_refused(how, recwarn):
    for name, one in one_of_a_kind().items():
        if name in {copy.deepcopy: ("net", "device"), pickle.dumps: ("net",)}.get(how, ()):
            continue
        with pytest.raises(TypeError, match=f"^{type(one).__name__}: wanted an object that can be (copied|pickled)"):
            how(one)
    assert not recwarn.list, "nothing is left half made"


FORK = """
import os, signal
x, labels = np.tile(X, (200, 60)), np.tile(LABELS, 200)
net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels={kernels!r}), seed=6)
net.add(layers.Dense("first", 300, input_sample_shape=(300,)))
net.add(layers.BatchNormalization("norm"))
net.add(layers.Dense("scores", 4))
net.compile(optimizer.SGD())
net.train_one_batch(x, labels)
for count in (1200, 700):
    child = os.fork()
    if not child:
        signal.alarm(60)
        print(float(net.train_one_batch(x[:count], labels[:count])[0]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child hangs, or ended by a signal"
    print(float(copy.deepcopy(net).train_one_batch(x[:count], labels[:count])[0]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("kernels", ["auto", "numpy"])
def test_a_child_process_trains_with_what_its_parent_has(kernels):
    """Forked off while OpenMP has threads, none of which the child has."""
    begin = f"import sys\nsys.path[:0] = {[p for p in sys.path if p]!r}\nfrom test_copies import *\n"
    lines = [float(line) for line in output(begin + FORK.format(kernels=kernels), SINGA_LITE_THREADS=2).split()]
    assert lines[0] == pytest.approx(lines[1], rel=1e-5)
    assert lines[2] == pytest.approx(lines[3], rel=1e-5)
