"""Misuses of a net: how it is built and compiled, its batches, the order of calls. Each changes nothing: the next good
step is as without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import pytest

from misuse import Row, assert_all_refused, assert_options_are_checked, row
from nets import forward_and_loss, images, state_of
from singa_lite import (
    FeedForwardNet,
    GraphError,
    Layer,
    OutOfMemoryError,
    ShapeError,
    SnapshotError,
    autograd,
    device,
    layers,
    loss,
    metric,
    optimizer,
    regularizer,
    schedule,
)
from singa_lite.graph.budget_error import OverLimitError
from singa_lite.loss import Loss
from singa_lite.metric import Metric

RNG = np.random.default_rng(6)
X = RNG.standard_normal((6, 2, 5, 4)).astype("f")
Y = RNG.integers(0, 4, 6)
MANY = 6000  # samples whose activations are larger than any memory the pool holds in reserve


def compiled() -> FeedForwardNet:
    net = images()
    net.compile(optimizer.Adam(0.01))
    return net


def trained() -> FeedForwardNet:
    net = compiled()
    net.train_one_batch(X, Y)
    return net


def two_outputs() -> FeedForwardNet:
    """Trained with a loss for each."""
    net = FeedForwardNet(device=device.new_cpu(), seed=0)
    net.add(layers.Dense("a", 4, input_sample_shape=(3,)))
    net.add(layers.Dense("left", 2), "a")
    net.add(layers.Dense("right", 2), "a")
    net.compile(optimizer.SGD(0.1), {"left": loss.SoftmaxCrossEntropy(), "right": loss.SoftmaxCrossEntropy()})
    two_targets(net)
    return net


def two_targets(net: FeedForwardNet) -> None:
    net.train_one_batch(X[:, 0, 0, :3], {"left": Y % 2, "right": Y % 2})


def good(net: FeedForwardNet) -> None:
    """What a user does next."""
    net.train_one_batch(X, Y)


def of_net(call: Any, error: type[BaseException], *words: str, net: Any = trained, then: Any = good) -> Row:
    return row(call, error, *words, net=net, then=then)


# --- building -----------------------------------------------------------------------------------------------


def adding(error: type[Exception], *words: str, make: Callable[[], Any], src: Any = None) -> Row:
    return of_net(lambda net: net.add(make(), src=src), error, *words)


def waiting(*more: Callable[[], Layer]) -> FeedForwardNet:
    """A net with a source that is not there yet."""
    net = trained()
    net.add(layers.Merge("sum"), src=["dense", "nowhere"])
    for make in more:
        net.add(make())
    return net


def known_at_last(net: FeedForwardNet) -> None:
    net.add(layers.Dense("nowhere", 4), src="flat")
    good(net)


def split() -> FeedForwardNet:
    net = trained()
    net.add(layers.Split("twice", 2))
    net.add(layers.Merge("both"), src=["twice", "twice"])
    return net


def limited() -> FeedForwardNet:
    net = trained()
    net.device.pool.set_limit(net.device.pool.used)
    return net


def unlimited(net: FeedForwardNet) -> None:
    net.device.pool.set_limit(None)
    good(net)


BUILDING = [
    of_net(good, GraphError, "'sum'", "'nowhere'", "'conv'", net=waiting, then=known_at_last),
    of_net(
        lambda net: net.add(layers.Dense("nowhere", 4), src="between"),
        GraphError,
        *("cycle", "nowhere", "sum", "between"),
        net=lambda: waiting(lambda: layers.Activation("between")),
        then=known_at_last,
    ),
    of_net(
        lambda net: net.add(layers.Merge("third"), src=["both", "twice"]), GraphError, "'third'", "'twice'", net=split
    ),
    of_net(lambda net: net.add(layers.Dense("big", 500_000)), OutOfMemoryError, "limit", net=limited, then=unlimited),
    of_net(lambda net: net.add(net.layers["dense"]), GraphError, "'dense'"),
    of_net(lambda net: net.add(trained().layers["dense"]), GraphError, "'dense'"),
    adding(GraphError, "'loop'", make=lambda: layers.Dense("loop", 4), src="loop"),
    adding(GraphError, "'norm'", make=lambda: layers.Dense("norm", 4)),
    adding(TypeError, "Layer", "str", make=lambda: "dense"),
    adding(TypeError, "src", "5", make=lambda: layers.Dense("d", 4), src=5),
    adding(ShapeError, "'late'", "input_sample_shape", make=lambda: layers.Dense("late", 4), src=[]),
    adding(ShapeError, "src=[]", make=lambda: layers.Dense("two", 4, input_sample_shape=(5,))),
    adding(ShapeError, "'late'", "(3, 5, 4)", make=lambda: layers.LearnedPositions("late"), src="norm"),
    adding(ShapeError, "'late'", "(4,)", "(60,)", make=lambda: layers.Merge("late"), src=["dense", "flat"]),
    adding(ShapeError, "'late'", "(60,)", make=lambda: layers.Concat("late", 1), src=["norm", "flat"]),
    adding(ShapeError, "'late'", "(5,)", make=lambda: layers.Activation("late", input_sample_shape=(5,))),
    adding(ShapeError, "'late'", "5 x 4", make=lambda: layers.Conv2D("late", 2, 7, pad=0), src="norm"),
    adding(ValueError, "'c'", "num_output", "-3", make=lambda: layers.Dense("c", -3)),
    adding(ShapeError, "'d'", "(2, -5)", make=lambda: layers.Dense("d", 3, input_sample_shape=(2, -5)), src=[]),
    of_net(lambda net: net.layers.__setitem__("b", layers.Dense("b", 2)), GraphError, "layers"),
    of_net(lambda net: net.layers.__delitem__("dense"), GraphError, "layers"),
    of_net(lambda net: net.layers.clear(), GraphError, "layers"),
    of_net(lambda net: setattr(net, "layers", {}), GraphError, "layers"),
    of_net(lambda net: net.layers["b"], KeyError, "'conv'", "'b'"),
    of_net(lambda net: setattr(net, "trainable", False), AttributeError, "trainable", "freeze"),
]

# --- compile ------------------------------------------------------------------------------------------------


def told(option: str, error: type[Exception], *words: str, **options: Any) -> Row:
    """A compile with an option that cannot be; the option is named."""
    return of_net(lambda net: net.compile(optimizer.SGD(), **options), error, option, *words)


def of_two(*words: str, **options: Any) -> Row:
    return of_net(
        lambda net: net.compile(optimizer.Adam(), **options), GraphError, *words, net=two_outputs, then=two_targets
    )


def narrow(word: str, make: Callable[[], optimizer.Optimizer], dtype: str = "float16") -> Row:
    """A number of an optimizer that is 0, or 1, in the dtype of the net."""
    return row(lambda net: net.compile(make()), ValueError, word, dtype, net=lambda: images(dtype=dtype))


def registered() -> optimizer.Optimizer:
    opt = optimizer.SGD(0.5, weight_decay=1e-3)
    opt.register("*/bias", lr_mult=1e-9)
    return opt


SHARED = loss.SoftmaxCrossEntropy()
AHEAD: dict[str, Any] = {"order": "dependencies"}

COMPILE = [
    of_net(lambda net: net.compile(optimizer.SGD), TypeError, "SGD()"),
    of_net(lambda net: net.compile("adan"), ValueError, "perhaps 'adam'", "'adan'"),
    told("clip_global_norm", ValueError, "0", clip_global_norm=0),
    told("accumulate", ValueError, "0", accumulate=0),
    told("loss_scale", ValueError, "0", loss_scale=0),
    told("loss_scale", ValueError, "'static'", loss_scale="static"),
    told("budget_profile", TypeError, "memory_budget", memory_budget=2**30, budget_profile=True),
    told("offload", TypeError, "3", memory_budget=2**30, offload=3),
    told("offload", ValueError, "memory_budget", offload="host"),
    told("offload", ValueError, "memory_budget alone", memory_budget=2**30, offload="/tmp"),
    told("order", ValueError, "'fast'", order="fast"),
    told("order", ValueError, "graph=True", graph=False, **AHEAD),
    told("order", ValueError, "memory_budget", memory_budget="1 GiB", **AHEAD),
    told("workers", ValueError, "0", workers=0, **AHEAD),
    told("workers", ValueError, "order", workers=2),
    told("workers", ValueError, "4096", workers=4096, **AHEAD),
    told("keep", TypeError, "conv", keep="conv"),
    told("keep", TypeError, "3", keep=[3]),
    told("keep", GraphError, "cnov", keep=["cnov"]),
    told("keep", ValueError, "loss_scale", keep=["conv"], loss_scale=8.0),
    told("micro_batches", GraphError, "'norm'", micro_batches=2),
    told("step", ValueError, "loss", step=lambda net, call: None),
    told("limits", TypeError, "str", limits="1 GiB"),
    told("limits", ValueError, "'parameters'", "weights", limits={"weights": 5}),
    told("limits", ValueError, "'gradients'", "-1", limits={"gradients": -1}),
    told("limits", ValueError, "'gradients'", "much", limits={"gradients": "much"}),
    told("limits", ValueError, "graph=True", limits={"gradients": 5}, graph=False),
    *(told("warn", ValueError, repr(given), on_nan=given) for given in ("stop", 1, ["raise"])),
    told("Loss", TypeError, "Accuracy", loss=metric.Accuracy()),
    told("['dense']", GraphError, "['unknown']", loss={"unknown": SHARED}),
    told("['dense']", GraphError, "['3']", loss={3: SHARED}),
    told("['dense']", GraphError, "['unknown']", loss=SHARED, metric={"unknown": metric.Accuracy()}),
    told("'dense'", TypeError, "None", loss={"dense": None}),
    told("'dense'", TypeError, "None", loss=SHARED, metric={"dense": None}),
    told("freeze", GraphError, "'b'", freeze="b"),
    told("freeze", GraphError, "'nose'", freeze=["nose"]),
    told("freeze", GraphError, "'dense'", freeze=["conv", "norm", "dense"]),
    of_two("'left'", loss=SHARED),
    of_two("'left'", "'right'", loss={"left": SHARED, "right": SHARED}),
    of_two("freeze='right'", "'left'", freeze="right"),
    of_two("['a']", metric={"a": metric.Accuracy()}),
    # words of other frameworks
    told("metric", TypeError, "metrics", metric="accuracy", metrics=["accuracy"]),
    told("loss", TypeError, "loss_fn", loss_fn="mse"),
    told("graph", TypeError, "run_eagerly", run_eagerly=True),
    # numbers that vanish
    narrow("Adam epsilon", optimizer.Adam),
    narrow("SGD momentum", lambda: optimizer.SGD(momentum=0.9999)),
    narrow("Adam beta_2", lambda: optimizer.Adam(beta_2=0.9999, epsilon=1e-3)),
    narrow("SGD lr", lambda: optimizer.SGD(1e-8)),
    narrow("SGD weight_decay", lambda: optimizer.SGD(weight_decay=1e-8)),
    narrow("AdamW weight_decay", lambda: optimizer.AdamW(epsilon=1e-3)),
    narrow("AdamW weight_decay", lambda: optimizer.AdamW(1e-5, weight_decay=1e-4), "float32"),
    narrow("SGD regularizer", lambda: optimizer.SGD(regularizer=regularizer.L2Regularizer(1e-9))),
    narrow("SGD constraint", lambda: optimizer.SGD(constraint=regularizer.NormConstraint(1e-9))),
    narrow("register '*/bias' lr", registered),
]

# --- batches and targets ------------------------------------------------------------------------------------


def step(error: type[BaseException], *words: str, x: Any = X, y: Any = Y, net: Any = trained) -> Row:
    return of_net(lambda net: net.train_one_batch(x, y), error, *words, net=net)


def fitting(error: type[Exception], *words: str, x: Any = X, y: Any = Y, **options: Any) -> Row:
    return of_net(lambda net: net.fit(x, y, **{"verbose": False, **options}), error, *words)


def changed(array: np.ndarray, at: Any, value: float) -> np.ndarray:
    array = array.copy()
    array[at] = value
    return array


def with_top_5() -> FeedForwardNet:
    net = trained()
    net.compile(net.optimizer, metric=metric.TopKAccuracy(5))
    return net


def with_accuracy(net: FeedForwardNet) -> None:
    net.compile(net.optimizer, metric=metric.Accuracy())
    good(net)


ROWS_OF_WEIGHTS = np.eye(4, dtype="f")[Y]
HALVES = changed(Y.astype("f"), 5, 1.5)
BATCHES = [
    step(ShapeError, "'conv'", "(6, 2, 4, 5)", x=X.transpose(0, 1, 3, 2)),
    step(ShapeError, "'conv'", "(2, 5, 4)", x=X[0]),
    step(ShapeError, "'conv'", "()", x=np.float32(3)),
    step(ShapeError, "'conv'", "(0, 2, 5, 4)", x=X[:0], y=Y[:0]),
    *(step(TypeError, "'conv'", "float32", dtype, x=X.astype(dtype)) for dtype in ("float64", "uint8", "object")),
    step(GraphError, "'conv'", "'dense'", x={"dense": X}),
    step(GraphError, "'dense'", "'conv'", y={"conv": Y}),
    step(RuntimeWarning, "'conv'", "NaN", x=changed(X, (3, 1, 0, 2), np.nan), net=compiled),
    of_net(
        lambda net: net.train_one_batch(np.zeros((MANY, 2, 5, 4), "f"), np.zeros(MANY, int)),
        OverLimitError,
        "limit",
        net=limited,
        then=unlimited,
    ),
    step(ValueError, "4", "[5]", y=changed(Y, 5, 4)),
    step(ValueError, "-1", "[4]", y=changed(Y, 4, -1)),
    step(ValueError, "[5]", y=HALVES),
    step(TypeError, "object", y=Y.astype(object)),
    step(ShapeError, "(5,)", y=Y[:5]),
    step(ShapeError, "(6, 1, 1)", y=Y[:, None, None]),
    *(step(ValueError, "[2", y=changed(ROWS_OF_WEIGHTS, 2, value)) for value in (0, -1, np.nan)),
    of_net(good, ValueError, "TopKAccuracy", "4", "5", net=with_top_5, then=with_accuracy),
    # of fit, before its first step
    fitting(ValueError, "1.5", "[5]", y=HALVES),
    fitting(ValueError, "1.5", "[5]", validation_data=(X, HALVES)),
    fitting(ValueError, "nan", "[5]", y=changed(Y.astype("f"), 5, np.nan)),
    *(fitting(TypeError, dtype, x=X.astype(dtype)) for dtype in ("object", "complex", "<U", "datetime64[s]")),
    fitting(TypeError, "object", validation_data=(X.astype(object), Y)),
    fitting(ValueError, "sample_weight", "inf", sample_weight=np.full(6, 1e300)),
    fitting(ValueError, "initial_epoch", "3", epochs=3, initial_epoch=4),
    fitting(ValueError, "validation_steps", "validation_data", validation_steps=2),
    fitting(TypeError, "epochs", "num_epochs", num_epochs=2),
    fitting(TypeError, "class_weight", "class_weights", class_weights={0: 1}),
    fitting(TypeError, "validation_freq", validation_freq=2),
    fitting(TypeError, "data.Processes", "use_multiprocessing", use_multiprocessing=True),
    fitting(ValueError, "verbose", "3", verbose=3),
    of_net(lambda net: net.evaluate(X, Y, verbose="yes"), ValueError, "evaluate", "verbose"),
    of_net(lambda net: net.predict(X, verbose=1), TypeError, "predict", "verbose"),
]

# --- calls and their order ----------------------------------------------------------------------------------


def walked() -> FeedForwardNet:
    net = trained()
    list(net.backward(forward_and_loss(net, X, Y)))
    return net


def evaluated() -> FeedForwardNet:
    net = trained()
    net.forward(False, X)
    return net


def half_done() -> FeedForwardNet:
    """Stopped when its last layer was updated."""
    net = trained()
    walk = net.backward(forward_and_loss(net, X, Y))
    names, values, gradients, _ = next(walk)
    for name, value, gradient in zip(names, values, gradients, strict=True):
        net.optimizer.update(name, value, gradient)
    walk.close()
    return net


def keeping() -> FeedForwardNet:
    net = images()
    net.compile(optimizer.Adam(), keep=["dense"])
    good(net)
    return net


def discarded(net: FeedForwardNet) -> None:
    net.discard_step()
    good(net)


def without_loss() -> FeedForwardNet:
    net = compiled()
    net.loss = None
    return net


def with_loss(net: FeedForwardNet) -> None:
    net.compile(optimizer.Adam(0.01), loss.SoftmaxCrossEntropy())
    good(net)


DY = np.zeros((6, 4), "f")
#: Options that have a number and take texts too.
TEXTS = ("loss_scale",)
CALLS = [
    of_net(good, GraphError, "optimizer", net=images, then=with_loss),
    of_net(good, GraphError, "loss", net=without_loss, then=with_loss),
    of_net(lambda net: net.backward(DY), GraphError, "forward"),
    of_net(lambda net: net.backward(DY), GraphError, "forward", net=evaluated),
    of_net(lambda net: net.backward(DY), GraphError, "forward", net=walked),
    of_net(good, GraphError, "'dense'", "discard_step", net=half_done, then=discarded),
    of_net(lambda net: net.save("half.h5"), SnapshotError, "'dense'", net=half_done, then=discarded),
    of_net(lambda net: net.gradient_norm, GraphError, "clip_global_norm"),
    of_net(lambda net: net.kept, GraphError, "keep"),
    of_net(lambda net: net.kept["conv"], KeyError, "'dense'", "'conv'", net=keeping),
    of_net(lambda net: net.norms, GraphError, "verbose"),
    *(of_net(lambda net, given=given: setattr(net, "verbose", given), ValueError, "verbose") for given in (2, -1)),
    of_net(lambda net: setattr(net, "verbose", "yes"), TypeError, "verbose"),
    of_net(lambda net: net.evaluate(X, Y, batch_size=True), TypeError, "batch_size"),
    of_net(lambda net: net.predict(X, batch_size=True), TypeError, "batch_size"),
    of_net(lambda net: net.plan_batch(True), ValueError, "True"),
    of_net(lambda net: net.plan_batch("2"), ValueError, "'2'"),
    of_net(lambda net: net.plan_batch(2, training="no"), TypeError, "training"),
    of_net(lambda net: net.forward(1, X), TypeError, "training"),
    of_net(lambda net: net.forward(False, X, output="dense"), TypeError, "output"),
    of_net(lambda net: net.predict(X, output=["flut"]), GraphError, "'flut'"),
    of_net(lambda net: net.loss.forward(Y, X, True), TypeError, "training"),
    of_net(lambda net: net.loss.forward(True, X, Y), TypeError, "Tensor"),
    of_net(lambda net: net.metric.forward(X, Y), TypeError, "Tensor"),
    of_net(lambda net: net.optimizer.update("dense/weight", X, X), TypeError, "ndarray"),
    of_net(lambda net: net.to_device("gpu"), RuntimeError, "'gpu'"),
    of_net(lambda net: setattr(net, "seed", "x"), TypeError, "net.seed", "'x'"),
]
TABLES = {"building": BUILDING, "compile": COMPILE, "batches": BATCHES, "calls": CALLS}


@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES)
def test_misuse(rows):
    assert_all_refused(rows)


@pytest.mark.filterwarnings("ignore")  # of a loss scale in float32, say
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("compile", {"optimizer": optimizer.SGD()}),
        ("evaluate", {"x": X, "y": Y}),
        ("predict", {"x": X}),
        ("forward", {"training": False, "x": X}),
    ],
)
def test_every_option_takes_or_refuses_whatever_is_given(name, given):
    net = images()
    net.compile(optimizer.SGD(0.001), on_nan=None)

    @wraps(getattr(net, name))
    def call(**options: Any) -> None:
        getattr(net, name)(**options)
        net.compile(optimizer.SGD(0.001), on_nan=None)

    assert_options_are_checked(call, given, TEXTS)


# --- what stands close to a misuse and works, or warns ------------------------------------------------------


def net_of(*added: Layer, dtype: str = "float32") -> FeedForwardNet:
    """Layers one behind the other, the first over samples (3,)."""
    net = FeedForwardNet(device=device.new_cpu(), dtype=dtype, seed=0)
    net.add(layers.Dummy("x", (3,)))
    for layer in added:
        net.add(layer)
    return net


VECTORS, LABELS = np.random.default_rng(3).standard_normal((8, 3)).astype("f"), np.arange(8) % 2


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
    losses = [float(net.train_one_batch(VECTORS.astype("e"), LABELS)[0]) for _ in range(40)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


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
    compute = Scaled.compute


@dataclass
class Hits(Metric):
    k: int = 1

    def compute(self, x, target):
        return metric.TopKAccuracy(self.k).forward(x, target)


@pytest.mark.parametrize("kind", [Scaled, Frozen])
@pytest.mark.parametrize("graph", [True, False])
def test_losses_and_metrics_that_are_dataclasses(kind, graph):
    nets = [net_of(layers.Dense("a", 2)) for _ in range(2)]
    nets[0].compile(optimizer.SGD(0.1), kind(1.0), Hits(1), graph=graph)
    nets[1].compile(optimizer.SGD(0.1), loss.SoftmaxCrossEntropy(), metric.Accuracy(), graph=graph)
    values = [[tuple(map(float, net.train_one_batch(VECTORS, LABELS))) for _ in range(3)] for net in nets]
    assert values[0] == values[1]
    if graph:  # an equal loss is another one all the same
        nets[0].loss = kind(1.0)
        nets[0].train_one_batch(VECTORS, LABELS)
        assert len(nets[0].recorded_forms) == 2


def sigmoid(name: str) -> Layer:
    return layers.Activation(name, "sigmoid")


SOFT, SIGMOID = loss.SoftmaxCrossEntropy, loss.SigmoidCrossEntropy


@pytest.mark.parametrize(
    ("last", "taken", "warns"),
    [
        ([layers.Softmax], SOFT, True),
        ([layers.Softmax, layers.Dummy, layers.Flatten], SIGMOID, True),
        ([sigmoid], SIGMOID, True),
        ([sigmoid], SOFT, True),
        ([layers.Softmax], loss.SquaredError, False),
        ([layers.Softmax, lambda name: layers.Dense(name, 2)], SOFT, False),
        ([lambda name: layers.Activation(name, "tanh")], SIGMOID, False),
    ],
)
def test_a_softmax_or_sigmoid_before_a_loss_that_takes_one_warns(last, taken, warns):
    net = net_of(layers.Dense("a", 2), *(make(f"end{place}") for place, make in enumerate(last)))
    if warns:
        with pytest.warns(UserWarning, match=f"{taken.__name__} of output 'end{len(last) - 1}'.*layer 'end0'"):
            net.compile(optimizer.SGD(0.1), taken())
    else:
        net.compile(optimizer.SGD(0.1), taken())  # warnings are errors here


# --- memory that ends inside a step -------------------------------------------------------------------------


def with_a_large_first_layer(graph: bool) -> FeedForwardNet:
    """Its last gradients are the largest thing in a step, so that memory may end when others are already applied."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=9)
    net.add(layers.Dense("first", 500, input_sample_shape=(600,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dropout("drop"))
    net.add(layers.Dense("last", 40))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), graph=graph)
    net.train_one_batch(WIDE, CLASSES)
    return net


WIDE, CLASSES = RNG.standard_normal((7, 600)).astype("f"), RNG.integers(0, 40, 7)


# Eager with fewer samples: activations are small then beside the last gradient, before which memory ends midway.
@pytest.mark.parametrize(("graph", "repeats"), [(True, 40), (False, 10)])
def test_memory_that_ends_anywhere_in_a_step_leaves_no_half_step_without_a_word(graph, repeats):
    """At limits from far too small to large enough. A recorded step changes nothing at all. One that is done at once
    may have updated some layers, which the net says then."""
    reference = with_a_large_first_layer(graph)
    before, used = state_of(reference), reference.device.pool.used
    reference.device.pool.reset_high_water()
    x, y = np.tile(WIDE, (repeats, 1)), np.tile(CLASSES, repeats)
    reference.train_one_batch(x, y)
    done, needed = state_of(reference), reference.device.pool.high_water - used
    outcomes = []
    for part in np.linspace(0.05, 2, 10):
        net = with_a_large_first_layer(graph)
        net.device.pool.set_limit(used + int(part * needed))
        outcomes.append(outcome(net, x, y))
        if outcomes[-1] == "half":
            with pytest.raises(GraphError, match=net.unfinished_at):
                net.train_one_batch(x, y)
            continue
        assert state_of(net) == (done if outcomes[-1] == "done" else before)
    assert outcomes[0] == ("whole" if graph else "half") and outcomes[-1] == "done"
    assert ("half" in outcomes) is not graph


def outcome(net: FeedForwardNet, x: np.ndarray, y: np.ndarray) -> str:
    """What becomes of one step: done, refused with a whole net, or stopped with one that says it is not."""
    try:
        net.train_one_batch(x, y)
    except OutOfMemoryError:
        return "half" if net.unfinished_at else "whole"
    return "done"
