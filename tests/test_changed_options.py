"""Attributes of a net and of what it holds, changed after a step was recorded: followed as where each operation is done
at once, bit for bit, or refused. Options of layers, losses, metrics and optimizers have tables of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import numpy as np
import pytest

from nets import bits, state_of
from singa_lite import FeedForwardNet, Layer, Tensor, autograd, device, layers, loss, metric, optimizer
from singa_lite.errors import GraphError
from singa_lite.regularizer import L2Regularizer, NormConstraint

CLASSES = 5


class Scaled(Layer):
    """x times an option of the user's class, which counts its calls."""

    def __init__(self, name: str, factor: float = 1.0) -> None:
        super().__init__(name)
        self.factor = factor
        self.calls = 0

    def setup(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        self.calls += 1
        return autograd.multiply(x, self.factor)


def net_of(graph: bool, make: Callable[[], optimizer.Optimizer]) -> FeedForwardNet:
    net = FeedForwardNet(loss.Huber(0.7), metric.TopKAccuracy(2), device.new_cpu(), seed=4)
    net.add(layers.Conv2D("conv", 4, 3, input_sample_shape=(3, 6, 7)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("leaky", "leaky_relu", slope=0.1))
    net.add(layers.Dropout("drop", 0.3))
    net.add(Scaled("scaled"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", CLASSES))
    net.compile(make(), graph=graph, fuse=False)
    return net


def momentum() -> optimizer.Optimizer:
    return optimizer.SGD(
        0.1, momentum=0.9, weight_decay=0.01, regularizer=L2Regularizer(0.1), constraint=NormConstraint(0.5)
    )


def batch(number: int, count: int = 9) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([number, count])
    return rng.standard_normal((count, 3, 6, 7)).astype("f"), rng.standard_normal((count, CLASSES)).astype("f")


def bits_or_none(value: Tensor | None) -> Any:
    return None if value is None else bits(value)


def steps(net: FeedForwardNet, first: int) -> list[Any]:
    """Two training steps, an evaluation and a prediction; all that they give and leave."""
    seen: list[Any] = []
    for number in (first, first + 1):
        seen += map(bits_or_none, net.train_one_batch(*batch(number)))
    seen += map(bits_or_none, net.evaluate_one_batch(*batch(first + 2)))
    seen.append(bits(net.predict_one_batch(batch(first + 3)[0])))
    return [*seen, state_of(net)]


def one_parameter(net: FeedForwardNet, name: str, trains: bool) -> None:
    net.parameters()[name].stores_grad = trains


def set_to(path: str, value: Any) -> Callable[[FeedForwardNet], None]:
    """net.<path> = value, where a step of the path may be an attribute or a key."""

    def change(net: FeedForwardNet) -> None:
        *steps, last = path.split(".")
        thing: Any = net
        for step in steps:
            thing = thing[step] if isinstance(thing, Mapping) else getattr(thing, step)
        if isinstance(thing, dict):
            thing[last] = value
        else:
            setattr(thing, last, value)

    return change


CHANGES: dict[str, Callable[[FeedForwardNet], None]] = {
    "a parameter no longer trains": lambda net: one_parameter(net, "conv/weight", False),
    "freeze": set_to("freeze", "dense"),
    "the optimizer's state is cleared": lambda net: net.optimizer.state.clear(),
    "one parameter's state goes": lambda net: net.optimizer.state.pop("dense/weight"),
    "momentum": set_to("optimizer.momentum", 0.5),
    "an option of a class of the user's": set_to("layers.scaled.factor", 2.0),
    "the regularizer's coefficient": lambda net: setattr(net.optimizer.rules[0].regularizer, "coefficient", 0.9),
    "the constraint's threshold": lambda net: setattr(net.optimizer.rules[0].constraint, "threshold", 0.01),
    "a further rule": lambda net: net.optimizer.register("dense/*", lr_mult=0.1),
    "another optimizer": lambda net: setattr(net, "optimizer", optimizer.Adam()),
    "dropout's p": set_to("layers.drop.p", 0.8),
    "the mode": lambda net: (set_to("layers.leaky.options", {})(net), set_to("layers.leaky.mode", "tanh")(net)),
    "another loss": set_to("loss", loss.SquaredError()),
    "no metric": set_to("metric", None),
    "weights of losses": set_to("loss_weights", {"dense": 2.0}),
    "what a loss that is not finite does": set_to("on_nan", "raise"),
    "a layer no longer trains": lambda net: setattr(net.layers["conv"], "trainable", False),
    "a further layer": lambda net: net.add(layers.Dense("extra", CLASSES)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_followed_by_steps_and_plans(name):
    change = CHANGES[name]
    net, twin = net_of(True, momentum), net_of(False, momentum)
    assert steps(net, 0) == steps(twin, 0)
    before = state_of(net)
    for one in (net, twin):
        change(one)
    predicted = net.plan_batch(9)
    found, wanted = steps(net, 4), steps(twin, 4)
    assert found == wanted
    untouched = net_of(False, momentum)
    steps(untouched, 0)
    assert steps(untouched, 4) != found or name == "what a loss that is not finite does"
    assert before != found[-1]
    recorded = net.memory_plan
    assert (predicted.arena_bytes, predicted.by_role) == (recorded.arena_bytes, recorded.by_role)


@pytest.mark.filterwarnings("ignore:a step was recorded")
def test_a_change_that_is_taken_back():
    net, twin = net_of(True, momentum), net_of(False, momentum)
    for number, p in enumerate((0.3, 0.6, 0.3, 0.6)):
        for one in (net, twin):
            one.layers["drop"].p = p
        assert steps(net, 4 * number) == steps(twin, 4 * number)


def test_nothing_is_recorded_again_where_nothing_changed():
    """A layer's own counter, learning rates, snapshots' values and steps by hand are no options."""
    net = net_of(True, momentum)
    steps(net, 0)
    graph, calls = net.training_graph, net.layers["scaled"].calls
    net.optimizer.schedule = lambda step: 0.01
    weight = net.parameters()["dense/weight"]
    weight.copy_from_numpy(np.zeros(weight.shape))
    for number in range(3):
        steps(net, number)
    assert net.training_graph is graph
    assert net.layers["scaled"].calls == calls
    net.loss.forward(True, net.forward(True, batch(0)[0]), batch(0)[1])
    net.discard_step()
    steps(net, 0)
    assert net.training_graph is graph


def test_losses_may_change_places():
    def make(graph: bool) -> FeedForwardNet:
        net = FeedForwardNet(device=device.new_cpu(), seed=8)
        both = net.add(layers.Dense("both", 4, input_sample_shape=(3,)))
        net.add(layers.Dense("a", 3), both)
        net.add(layers.Dense("b", 3), both)
        net.compile(optimizer.SGD(0.1), {"a": first, "b": second}, {"a": metric.Accuracy()}, graph=graph)
        return net

    first, second = loss.SquaredError(), loss.SigmoidCrossEntropy()
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, 3)).astype("f")
    y = {name: rng.uniform(0, 1, (6, 3)).astype("f") for name in "ab"}
    net, twin = make(True), make(False)
    for losses in ({"a": first, "b": second}, {"b": first, "a": second}, {"b": second, "a": first}):
        for one in (net, twin):
            one.loss = losses
        assert bits(net.train_one_batch(x, y)[0]) == bits(twin.train_one_batch(x, y)[0])
        assert state_of(net) == state_of(twin)


#: What a step reads anew; `compile` sets all others.
FOLLOWED = ("optimizer", "loss", "metric", "loss_weights", "freeze", "micro_batches", "on_nan")


def test_only_compile_sets_the_others():
    net = net_of(True, momentum)
    steps(net, 0)
    before, graph = state_of(net), net.training_graph
    refused: dict[str, Any] = dict.fromkeys(set(signature(FeedForwardNet.compile).parameters) - {"self", *FOLLOWED}, 1)
    refused |= {"device": net.device, "dtype": net.dtype, "learning_rate": 1, "metrics": 1, "verbos": 1}
    refused |= {"optimizer": "adam", "loss": 3, "metric": 3, "on_nan": "stop"}
    for name, value in refused.items():
        with pytest.raises((GraphError, AttributeError, TypeError, ValueError)):
            setattr(net, name, value)
    assert state_of(net) == before
    net.verbose = 0
    steps(net, 3)
    assert net.training_graph is graph


def test_another_optimizer_does_what_compile_was_told():
    net, other = net_of(True, momentum), net_of(True, momentum)
    net.compile(optimizer.SGD(0.1, 0.9), accumulate=2, state_dtype="bfloat16")
    net.optimizer = optimizer.Adam()
    assert net.accumulate == 2
    assert net.optimizer.state_dtype == "bfloat16"
    with pytest.raises(ValueError, match="state"):
        net.optimizer = optimizer.SGD(0.1)
    steps(other, 0)
    with pytest.raises(GraphError, match="one net"):
        net_of(True, momentum).optimizer = other.optimizer
