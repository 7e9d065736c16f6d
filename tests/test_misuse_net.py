"""Misuses of a net: all that can be told at `compile` is told there, and changes nothing; what works, works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from misuse import assert_clear, assert_refused, row
from nets import state_of
from singa_lite import (
    FeedForwardNet,
    GraphError,
    Layer,
    autograd,
    device,
    layers,
    loss,
    metric,
    optimizer,
    regularizer,
    schedule,
    tensor,
)
from singa_lite.loss import Loss
from singa_lite.metric import Metric

X, Y = np.random.default_rng(3).standard_normal((8, 3)).astype("f"), np.arange(8) % 2


def net_of(*added: Layer, dtype: str = "float32") -> FeedForwardNet:
    """Layers one behind the other, the first over samples (3,)."""
    net = FeedForwardNet(device=device.new_cpu(), dtype=dtype, seed=0)
    net.add(layers.Dummy("x", (3,)))
    for layer in added:
        net.add(layer)
    return net


def two_outputs() -> FeedForwardNet:
    """x -> a -> left, and a -> right."""
    net = net_of(layers.Dense("a", 4))
    net.add(layers.Dense("left", 2), "a")
    net.add(layers.Dense("right", 2), "a")
    return net


def compiled(*given: Any, make: Any = lambda: net_of(layers.Dense("a", 2)), **options: Any) -> Any:
    return lambda: make().compile(*(given or (optimizer.SGD(),)), **options)


def half(opt: optimizer.Optimizer, dtype: str = "float16") -> Any:
    return compiled(opt, make=lambda: net_of(layers.Dense("a", 2), dtype=dtype))


def registered(**options: Any) -> optimizer.Optimizer:
    opt = optimizer.SGD(0.5, weight_decay=1e-3)
    opt.register("*/bias", **options)
    return opt


TENSOR = tensor.from_numpy(np.ones(3, "f"), device.new_cpu())
SHARED = loss.SoftmaxCrossEntropy()
BOTH = {"left": loss.SoftmaxCrossEntropy(), "right": loss.SoftmaxCrossEntropy()}

ROWS = {
    "an optimizer that is a class": row(compiled(optimizer.SGD), TypeError, "perhaps SGD()"),
    "graph='no'": row(compiled(optimizer.SGD(), graph="no"), TypeError, "compile graph", "'no'"),
    "fuse=1": row(compiled(optimizer.SGD(), fuse=1), TypeError, "compile fuse", "received 1"),
    "clip_global_norm=0": row(compiled(clip_global_norm=0), ValueError, "compile clip_global_norm", "above 0", "0"),
    "clip_global_norm=NaN": row(compiled(clip_global_norm=np.nan), ValueError, "compile clip_global_norm", "nan"),
    "clip_global_norm='1'": row(compiled(clip_global_norm="1"), TypeError, "compile clip_global_norm", "'1'"),
    "clip_global_norm=True": row(compiled(clip_global_norm=True), TypeError, "compile clip_global_norm", "True"),
    "accumulate=0": row(compiled(accumulate=0), ValueError, "compile accumulate", "at least 1", "received 0"),
    "accumulate=1.5": row(compiled(accumulate=1.5), ValueError, "compile accumulate", "1.5"),
    "accumulate=True": row(compiled(accumulate=True), TypeError, "compile accumulate", "True"),
    "accumulate=None": row(compiled(accumulate=None), TypeError, "compile accumulate", "None"),
    "loss_scale=0": row(compiled(loss_scale=0), ValueError, "compile loss_scale", "from 2**-126 to 2**126", "0"),
    "loss_scale=NaN": row(compiled(loss_scale=np.nan), ValueError, "compile loss_scale", "nan"),
    "loss_scale='static'": row(compiled(loss_scale="static"), ValueError, "compile loss_scale", "dynamic", "'static'"),
    "loss_scale=True": row(compiled(loss_scale=True), TypeError, "compile loss_scale", "True"),
    "loss_scale=[1]": row(compiled(loss_scale=[1]), TypeError, "compile loss_scale", "[1]"),
    "clip nothing": row(lambda: optimizer.clip_global_norm([], 1), ValueError, "wanted gradients", "none"),
    "clip a number": row(lambda: optimizer.clip_global_norm([3.0], 1), TypeError, "tensors of floats", "float"),
    "clip one tensor": row(lambda: optimizer.clip_global_norm(TENSOR, 1), TypeError, "iterable", "Tensor"),
    "clip one twice": row(lambda: optimizer.clip_global_norm([TENSOR, TENSOR], 1), ValueError, "once", "twice"),
    "clip by 0": row(lambda: optimizer.clip_global_norm([TENSOR], 0), ValueError, "clip_global_norm limit", "above 0"),
    "the norm of a net that is not clipped": row(
        lambda: net_of(layers.Dense("a", 2)).gradient_norm, GraphError, "clip_global_norm", "without"
    ),
    "offload=3": row(compiled(memory_budget=2**30, offload=3), TypeError, "compile offload", "received 3"),
    "offload without a budget": row(compiled(offload="/tmp"), ValueError, "compile offload", "memory_budget", "/tmp"),
    "order='fast'": row(compiled(order="fast"), ValueError, "compile order", "dependencies", "'fast'"),
    "order=2": row(compiled(order=2), ValueError, "compile order", "2"),
    "order=None": row(compiled(order=None), ValueError, "compile order", "None"),
    "order without graph": row(compiled(order="dependencies", graph=False), ValueError, "compile order", "graph=True"),
    "order within a budget": row(
        compiled(order="dependencies", memory_budget="1 GiB"), ValueError, "compile order", "no memory_budget", "1024.0"
    ),
    "workers=0": row(compiled(order="dependencies", workers=0), ValueError, "compile workers", "at least 1", "0"),
    "workers=1.5": row(compiled(order="dependencies", workers=1.5), ValueError, "compile workers", "1.5"),
    "workers=True": row(compiled(order="dependencies", workers=True), TypeError, "compile workers", "True"),
    "workers='2'": row(compiled(order="dependencies", workers="2"), TypeError, "compile workers", "'2'"),
    "workers in the recorded order": row(compiled(workers=2), ValueError, "compile workers", "order='dependencies'"),
    "more workers than threads": row(
        compiled(order="dependencies", workers=4096), ValueError, "compile workers", "at most", "4096"
    ),
    "a loss that is a metric": row(compiled(loss=metric.Accuracy()), TypeError, "Loss", "Accuracy"),
    "a loss by an unknown name": row(compiled(loss={"unknown": SHARED}), GraphError, "['a']", "['unknown']"),
    "a loss by no name": row(compiled(loss={3: SHARED}), GraphError, "['a']", "['3']"),
    "a metric by an unknown name": row(
        compiled(loss=SHARED, metric={"unknown": metric.Accuracy()}), GraphError, "['a']", "['unknown']"
    ),
    "a loss by name that is none": row(compiled(loss={"a": None}), TypeError, "'a'", "None"),
    "a metric by name that is none": row(compiled(loss=SHARED, metric={"a": None}), TypeError, "'a'", "None"),
    "one loss for a net of two outputs": row(compiled(loss=SHARED, make=two_outputs), GraphError, "'left'", "one"),
    "a loss object for two outputs": row(
        compiled(loss={"left": SHARED, "right": SHARED}, make=two_outputs), GraphError, "'left'", "'right'", "own"
    ),
    "freeze before an output": row(
        compiled(loss=BOTH, freeze="right", make=two_outputs), GraphError, "freeze='right'", "output 'left'"
    ),
    "freeze all": row(
        compiled(freeze="act", make=lambda: net_of(layers.Dense("a", 2), layers.Activation("act"))),
        GraphError,
        "freeze='act'",
        "['act']",
    ),
    "freeze an unknown layer": row(compiled(freeze="b"), GraphError, "layer of the net", "'b'"),
    "freeze a list": row(compiled(freeze=["nose"]), GraphError, "layer of the net", "'nose'"),
    # numbers that vanish
    "Adam in float16": row(half(optimizer.Adam()), ValueError, "Adam epsilon", "6.1e-05", "1e-08", "float16"),
    "AdamW in float16": row(half(optimizer.AdamW()), ValueError, "AdamW epsilon"),
    "RMSProp in float16": row(half(optimizer.RMSProp()), ValueError, "RMSProp epsilon"),
    "AdaGrad in float16": row(half(optimizer.AdaGrad()), ValueError, "AdaGrad epsilon", "1e-10"),
    "momentum that is 1 in float16": row(half(optimizer.SGD(momentum=0.9999)), ValueError, "SGD momentum", "0.9999"),
    "beta_2 that is 1 in float16": row(
        half(optimizer.Adam(beta_2=0.9999, epsilon=1e-3)), ValueError, "Adam beta_2", "0.9999"
    ),
    "lr that is 0 in float16": row(half(optimizer.SGD(1e-8)), ValueError, "SGD lr", "1e-08"),
    "weight decay that is 0 in float16": row(half(optimizer.SGD(weight_decay=1e-8)), ValueError, "SGD weight_decay"),
    "decoupled decay that is 0 in float16": row(
        half(optimizer.AdamW(epsilon=1e-3)), ValueError, "AdamW weight_decay", "1e-05"
    ),
    "decoupled decay that is 0 in float32": row(
        half(optimizer.AdamW(1e-5, weight_decay=1e-4), "float32"), ValueError, "AdamW weight_decay", "float32"
    ),
    "regularizer that is 0 in float16": row(
        half(optimizer.SGD(regularizer=regularizer.L2Regularizer(1e-9))), ValueError, "SGD regularizer", "1e-09"
    ),
    "constraint that is 0 in float16": row(
        half(optimizer.SGD(constraint=regularizer.NormConstraint(1e-9))), ValueError, "SGD constraint"
    ),
    "registered multiple that is 0 in float16": row(
        half(registered(lr_mult=1e-9)), ValueError, "register '*/bias' lr", "5e-10"
    ),
}


@pytest.mark.parametrize("one", ROWS.values(), ids=ROWS)
def test_misuse(one):
    assert_refused(one)


def test_a_compile_that_is_refused_changes_nothing():
    net = two_outputs()
    net.compile(optimizer.SGD(0.1), BOTH)
    before, kept = state_of(net), (net.optimizer, net.loss, net.metric, net.freeze)
    for options in ({"loss": SHARED}, {"freeze": "right"}, {"metric": {"a": metric.Accuracy()}}):
        with pytest.raises(GraphError) as caught:
            net.compile(optimizer.Adam(), **options)
        assert_clear(caught.value)
    assert kept == (net.optimizer, net.loss, net.metric, net.freeze) and state_of(net) == before
    net.train_one_batch(X, {"left": Y, "right": Y})


@pytest.mark.parametrize(
    "opt",
    [
        optimizer.SGD(0.1, momentum=0.999, weight_decay=1e-4),
        optimizer.Adam(0.01, epsilon=1e-4),
        optimizer.AdamW(schedule.CosineWithWarmup(0.01, 99), epsilon=1e-3),
        optimizer.RMSProp(0.01, epsilon=1e-3),
        optimizer.AdaGrad(0.05, epsilon=1e-3),
    ],
    ids=lambda opt: type(opt).__name__,
)
def test_what_float16_holds_trains_in_it(opt):
    net = net_of(layers.Dense("a", 2), dtype="float16")
    net.compile(opt, loss.SoftmaxCrossEntropy())
    losses = [float(net.train_one_batch(X.astype("e"), Y)[0]) for _ in range(40)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


@pytest.mark.parametrize(("freeze", "trained"), [("x", {"a", "b"}), ("a", {"a", "b"}), ("b", {"b"})])
def test_freeze_from_the_first_layer_to_the_last(freeze, trained):
    net = net_of(layers.Dense("a", 4), layers.Dense("b", 2))
    net.compile(optimizer.SGD(0.1), loss.SoftmaxCrossEntropy(), freeze=freeze)
    before = state_of(net)
    net.train_one_batch(X, Y)
    moved = {name.partition(":")[0] for name, value in state_of(net).items() if before.get(name) != value}
    assert moved & {"a", "b"} == trained


@dataclass
class Scaled(Loss):
    """A dataclass has no hash, and is equal to others of its values."""

    factor: float = 1.0

    def compute(self, x, target):
        return autograd.scale(autograd.softmax_cross_entropy_values(x, target), self.factor)


@dataclass(frozen=True)
class Frozen(Loss):
    """A frozen one lets nobody set an attribute."""

    factor: float = 1.0

    def compute(self, x, target):
        return autograd.scale(autograd.softmax_cross_entropy_values(x, target), self.factor)


@dataclass
class Hits(Metric):
    """As `Scaled`, a metric."""

    k: int = 1

    def compute(self, x, target):
        return metric.TopKAccuracy(self.k).forward(x, target)


@pytest.mark.parametrize("kind", [Scaled, Frozen])
@pytest.mark.parametrize("graph", [True, False])
def test_losses_and_metrics_that_are_dataclasses(kind, graph):
    nets = [net_of(layers.Dense("a", 2)) for _ in range(2)]
    nets[0].compile(optimizer.SGD(0.1), kind(1.0), Hits(1), graph=graph)
    nets[1].compile(optimizer.SGD(0.1), loss.SoftmaxCrossEntropy(), metric.Accuracy(), graph=graph)
    values = [[tuple(map(float, net.train_one_batch(X, Y))) for _ in range(3)] for net in nets]
    assert values[0] == values[1]
    if graph:  # an equal loss is another one all the same
        nets[0].loss = kind(1.0)
        nets[0].train_one_batch(X, Y)
        assert len(nets[0].recorded_forms) == 2


# --- a softmax that is taken twice --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "taken", "said"),
    [
        ([layers.Softmax], loss.SoftmaxCrossEntropy, "softmax of layer 'end0'"),
        ([layers.Softmax, layers.Flatten], loss.SoftmaxCrossEntropy, "softmax of layer 'end0'"),
        ([layers.Softmax, layers.Dummy, layers.Flatten], loss.SigmoidCrossEntropy, "softmax of layer 'end0'"),
        ([lambda name: layers.Activation(name, "sigmoid")], loss.SigmoidCrossEntropy, "sigmoid of layer 'end0'"),
        ([lambda name: layers.Activation(name, "sigmoid")], loss.SoftmaxCrossEntropy, "sigmoid of layer 'end0'"),
    ],
)
def test_a_softmax_or_sigmoid_before_a_loss_that_takes_one_warns(last, taken, said):
    net = net_of(layers.Dense("a", 2), *(make(f"end{place}") for place, make in enumerate(last)))
    with pytest.warns(UserWarning, match=f"{taken.__name__} of output 'end{len(last) - 1}': wanted raw .*{said}"):
        net.compile(optimizer.SGD(0.1), taken())


@pytest.mark.parametrize(
    ("last", "taken"),
    [
        ([layers.Softmax], loss.SquaredError),
        ([layers.Softmax, lambda name: layers.Dense(name, 2)], loss.SoftmaxCrossEntropy),
        ([lambda name: layers.Activation(name, "tanh")], loss.SigmoidCrossEntropy),
    ],
)
def test_others_do_not(last, taken):
    net = net_of(layers.Dense("a", 2), *(make(f"end{place}") for place, make in enumerate(last)))
    net.compile(optimizer.SGD(0.1), taken())  # warnings are errors here


def test_the_layers_of_a_net_are_changed_by_no_hand():
    net = net_of(layers.Dense("a", 2))
    for change in (
        lambda: net.layers.__setitem__("b", layers.Dense("b", 2)),
        lambda: net.layers.__delitem__("a"),
        lambda: net.layers.clear(),
        lambda: setattr(net, "layers", {}),
    ):
        with pytest.raises(GraphError, match=r"layers of the net: wanted add\(layer\).*received (a change|dict)"):
            change()
    assert list(net.layers) == ["x", "a"]
    with pytest.raises(KeyError, match=r"wanted one of \['x', 'a'\], received 'b'"):
        net.layers["b"]


@pytest.mark.parametrize(
    "call",
    [
        lambda net: net.evaluate(X, Y, batch_size=True),
        lambda net: net.predict(X, batch_size=True),
        lambda net: net.plan_batch(True),
        lambda net: net.plan_batch("2"),
        lambda net: net.plan_batch(2, training="no"),
        lambda net: net.forward(X, True),
        lambda net: net.forward(False, X, output="a"),
        lambda net: net.loss.forward(Y, X, True),
        lambda net: net.loss.forward(True, X, Y),
        lambda net: net.metric.forward(X, Y),
        lambda net: net.optimizer.update("a/weight", X, X),
        lambda net: net.to_device("gpu"),
    ],
)
def test_calls_of_a_net(call):
    net = net_of(layers.Dense("a", 2))
    net.compile(optimizer.SGD(0.1), loss.SoftmaxCrossEntropy(), metric.Accuracy())
    before = state_of(net)
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        call(net)
    assert_clear(caught.value)
    assert state_of(net) == before
    net.train_one_batch(X, Y)
