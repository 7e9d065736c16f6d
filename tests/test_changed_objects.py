"""Options of losses, metrics and optimizers, attributes of tensors and nets, and what a bare record was made by: set
after three recorded steps, each is followed, bit for bit, or refused. No option of a public class may be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isabstract, signature
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from nets import bits, state_of
from singa_lite import FeedForwardNet, autograd, device, layers, loss, metric, optimizer, regularizer, schedule, tensor
from singa_lite.errors import GraphError
from singa_lite.regularizer import ElementConstraint, L2Regularizer, NormConstraint

CLASSES = 5
CPU = device.new_cpu()
IDS, ROWS, SEQUENCES = "ids", "rows", "sequences"

#: {class: {option: (another value, what else it is made with, targets)}}.
LOSSES: dict[str, dict[str, tuple[Any, dict[str, Any], str]]] = {
    "Huber": {"delta": (0.2, {"delta": 0.7}, ROWS)},
    "SigmoidCrossEntropy": {"pos_weight": (0.2, {"pos_weight": 0.7}, ROWS)},
    "SoftmaxCrossEntropy": {
        "axis": (-1, {"axis": 1}, IDS),
        "ignore_index": (0, {}, IDS),
        "label_smoothing": (0.3, {}, IDS),
    },
}
METRICS: dict[str, dict[str, tuple[Any, dict[str, Any], str]]] = {
    "Accuracy": {"axis": (-1, {"axis": 1}, IDS), "ignore_index": (0, {}, IDS)},
    "BinaryAccuracy": {"threshold": (0.6, {}, ROWS)},
    "BinaryPrecision": {"threshold": (0.6, {}, ROWS)},
    "BinaryRecall": {"threshold": (0.6, {}, ROWS)},
    "ConfusionMatrix": {"axis": (-1, {"axis": 1}, IDS), "ignore_index": (0, {}, IDS)},
    "F1": {
        "average": ("micro", {}, IDS),
        "threshold": (0.6, {"threshold": 0.1}, ROWS),
        "axis": (-1, {"axis": 1}, IDS),
        "ignore_index": (0, {}, IDS),
    },
    "Perplexity": {"axis": (-1, {"axis": 1}, IDS), "ignore_index": (0, {}, IDS)},
    "Precision": {"top_k": (1, {"top_k": 3}, ROWS)},
    "Recall": {"top_k": (1, {"top_k": 3}, ROWS)},
    "TopKAccuracy": {
        "k": (1, {"k": 3}, IDS),
        "axis": (-1, {"k": 3, "axis": 1}, IDS),
        "ignore_index": (0, {"k": 3}, IDS),
    },
}
#: {class: {option: another value}}; all are made with what stands in `MADE_WITH`.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.5, "dampening": 0.3, "nesterov": True},
    "Nesterov": {"momentum": 0.5},
    "RMSProp": {"rho": 0.5, "epsilon": 0.1},
    "AdaGrad": {"epsilon": 0.1},
    "Adam": {"beta_1": 0.5, "beta_2": 0.7, "epsilon": 0.1},
    "AdamW": {"beta_1": 0.5, "beta_2": 0.7, "epsilon": 0.1},
}
OF_EACH = {
    **{"lr": 0.3, "weight_decay": 0.2},
    **{"regularizer": L2Regularizer(0.5), "constraint": NormConstraint(0.01)},
}
#: By which other state is kept, so that a change is refused once there is some: `test_optimizer` has them.
BY_STATE = {"amsgrad"}
MADE_WITH = {"SGD": {"momentum": 0.9}}


def public(module: Any, base: type) -> dict[str, type]:
    kinds = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, base)}
    return {name: kind for name, kind in kinds.items() if not isabstract(kind) and kind is not base}


def options(kind: type) -> list[str]:
    return list(signature(kind).parameters)


def net_of(graph: bool, sgd: Any, criterion: Any, measure: Any = None) -> FeedForwardNet:
    net = FeedForwardNet(criterion, measure, CPU, seed=4)
    net.add(layers.Dense("first", 6, input_sample_shape=(3,)))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Dense("scores", CLASSES))
    net.compile(sgd, graph=graph, fuse=False)
    return net


def batch(number: int, targets: str = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    x = rng.standard_normal((7, 3)).astype("f")
    return x, rng.integers(0, CLASSES, 7) if targets == IDS else rng.integers(0, 2, (7, CLASSES)).astype("f")


def step(net: FeedForwardNet, number: int, targets: str = ROWS) -> list[Any]:
    found = net.train_one_batch(*batch(number, targets)), net.evaluate_one_batch(*batch(number, targets))
    return [[None if value is None else bits(value) for value in pair] for pair in found] + [state_of(net)]


def as_made_with(make: Callable[..., tuple[FeedForwardNet, Any]], option: str, value: Any, targets: str) -> None:
    """The next step of a recorded net is that of one done at once, which was made with the new value."""
    net, owner = make(True)
    twin, _ = make(False, **{option: value})
    unchanged, _ = make(False)
    for number in range(3):
        assert step(net, number, targets) == step(unchanged, number, targets)
    held = {**twin.parameters(), **twin.states()}
    for name, each in {**net.parameters(), **net.states()}.items():
        held[name].copy_from_numpy(np.asarray(each))
    twin.optimizer.restore_step(net.optimizer.step)
    for name, slots in net.optimizer.state.items():
        for slot, each in twin.optimizer.state_for(name, held[name]).items():
            each.copy_from_numpy(np.asarray(slots[slot]))
    setattr(owner, option, value)
    found = step(net, 3, targets)
    assert found == step(twin, 3, targets)
    assert found != step(unchanged, 3, targets) or (option, targets) in SAME


#: Where the new value says what was so.
SAME = {("axis", IDS)}


def of_a_loss(name: str, option: str) -> None:
    value, given, targets = LOSSES[name][option]

    def make(graph: bool, **changed: Any) -> tuple[FeedForwardNet, Any]:
        criterion = getattr(loss, name)(**{**given, **changed})
        return net_of(graph, optimizer.SGD(0.1), criterion), criterion

    as_made_with(make, option, value, targets)


def of_a_metric(name: str, option: str) -> None:
    value, given, targets = METRICS[name][option]

    def make(graph: bool, **changed: Any) -> tuple[FeedForwardNet, Any]:
        measure = getattr(metric, name)(**{**given, **changed})
        criterion = loss.SoftmaxCrossEntropy() if targets == IDS else loss.SigmoidCrossEntropy()
        return net_of(graph, optimizer.SGD(0.1), criterion, measure), measure

    net, owner = make(True)
    unchanged, _ = make(False)
    twin, _ = make(False, **{option: value})
    for number in range(3):
        assert step(net, number, targets) == step(unchanged, number, targets)
        step(twin, number, targets)
    setattr(owner, option, value)
    assert step(net, 3, targets) == step(twin, 3, targets)
    x, y = batch(4, targets)
    for found, wanted in zip(net.evaluate(x, y), twin.evaluate(x, y), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert net.config()["metric"] == twin.config()["metric"]


def of_an_optimizer(name: str, option: str) -> None:
    value = {**OF_EACH, **OPTIMIZERS[name]}[option]

    def make(graph: bool, **changed: Any) -> tuple[FeedForwardNet, Any]:
        made = getattr(optimizer, name)(**{"lr": 0.05, **MADE_WITH.get(name, {}), **changed})
        made.register("*/bias", lr_mult=2.0)
        return net_of(graph, made, loss.SquaredError()), made

    as_made_with(make, option, value, ROWS)


def test_no_option_is_left_out():
    tables = {loss: (loss.Loss, LOSSES), metric: (metric.Metric, METRICS), optimizer: (optimizer.Optimizer, OPTIMIZERS)}
    for module, (base, table) in tables.items():
        for name, kind in public(module, base).items():
            known = set(table.get(name, {})) | ({*OF_EACH, *BY_STATE} if base is optimizer.Optimizer else set())
            assert not set(options(kind)) - known, name


def test_losses():
    over_rows(of_a_loss, ((f"{name} {option}", (name, option)) for name in LOSSES for option in LOSSES[name]))


def test_metrics():
    over_rows(of_a_metric, ((f"{name} {option}", (name, option)) for name in METRICS for option in METRICS[name]))


def test_optimizers():
    rows = ((name, option) for name in OPTIMIZERS for option in {**OF_EACH, **OPTIMIZERS[name]})
    over_rows(of_an_optimizer, ((f"{name} {option}", (name, option)) for name, option in rows))


WRONG: list[tuple[Callable[[], Any], str, Any, type[Exception], str]] = [
    (lambda: optimizer.SGD(0.1), "momentum", 1.5, ValueError, "from 0 to below 1"),
    (lambda: optimizer.SGD(0.1), "learning_rate", 0.1, AttributeError, "perhaps lr"),
    (lambda: optimizer.SGD(0.1), "nesterov", True, ValueError, "a momentum above 0"),
    (lambda: optimizer.Adam(), "betas", (0.5, 0.5), AttributeError, "perhaps beta_1 and beta_2"),
    (lambda: optimizer.Adam(), "weight_decay", -1, ValueError, "at least 0"),
    (lambda: optimizer.Adam(), "regularizer", 0.1, TypeError, "wanted a Regularizer"),
    (lambda: L2Regularizer(0.1), "coefficient", -1, ValueError, "at least 0"),
    (lambda: ElementConstraint(1), "threshold", 0, ValueError, "above 0"),
    (lambda: loss.Huber(), "delta", "wide", (TypeError, ValueError), "Huber delta"),
    (lambda: loss.SoftmaxCrossEntropy(), "reduction", "sum", AttributeError, "perhaps nothing, as forward gives"),
    (lambda: metric.TopKAccuracy(2), "k", 0, (TypeError, ValueError), "TopKAccuracy k"),
    (lambda: schedule.Constant(0.1), "value", -1, ValueError, "Constant value"),
    (lambda: layers.Dropout("drop"), "p", 1.5, ValueError, "p"),
    (lambda: layers.Dropout("drop"), "rate", 0.5, AttributeError, "perhaps p"),
    (lambda: layers.Dense("dense", 3), "src", "before", AttributeError, "wanted an option of num_output"),
]


@pytest.mark.parametrize(("make", "option", "value", "error", "message"), WRONG)
def test_values_that_are_refused_change_nothing(make, option, value, error, message):
    made = make()
    before, given = dict(vars(made)), dict(made.given_arguments)
    with pytest.raises(error, match=message):
        setattr(made, option, value)
    assert vars(made) == before
    assert made.given_arguments == given


def test_another_state_is_refused_once_there_is_some():
    sgd = optimizer.SGD(0.1)
    sgd.momentum = 0.9
    assert sgd.slots == ("velocity", "count")
    net = net_of(True, sgd, loss.SquaredError())
    step(net, 0)
    with pytest.raises(GraphError, match="SGD momentum: wanted a value by which it keeps the state that it has"):
        sgd.momentum = 0.0
    assert sgd.momentum == 0.9


def test_within_a_group_of_batches_the_place_of_its_sums_stays():
    net = FeedForwardNet(loss.SquaredError(), device=CPU, seed=1)
    net.add(layers.Dense("scores", CLASSES, input_sample_shape=(3,)))
    net.compile(optimizer.SGD(0.1, momentum=0.9), accumulate=2)
    net.train_one_batch(*batch(0))
    with pytest.raises(GraphError, match="SGD nesterov: wanted the 2 batches of a group to be trained on first"):
        net.optimizer.nesterov = True
    net.train_one_batch(*batch(1))
    net.optimizer.nesterov = True


# --- a net ---------------------------------------------------------------------------------------------------


def simple(graph: bool = True, **given: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.Huber(0.7), metric.MeanSquaredError(), CPU, seed=1)
    net.add(layers.Dense("dense", 4, input_sample_shape=(3,)))
    net.add(layers.Dense("scores", CLASSES))
    net.compile(optimizer.SGD(0.1, momentum=0.9), graph=graph, fuse=False, **given)
    return net


NET: dict[str, Any] = {
    "optimizer": lambda net: setattr(net, "optimizer", optimizer.Adam()),
    "loss": lambda net: setattr(net, "loss", "squared_error"),
    "metric": lambda net: setattr(net, "metric", None),
    "loss_weights": lambda net: setattr(net, "loss_weights", {"scores": 2.0}),
    "freeze": lambda net: setattr(net, "freeze", "scores"),
    "micro_batches": lambda net: setattr(net, "micro_batches", 2),
    "on_nan": lambda net: setattr(net, "on_nan", "raise"),
    "stores_grad": lambda net: setattr(net.parameters()["dense/weight"], "stores_grad", False),
    "trainable": lambda net: setattr(net.layers["dense"], "trainable", False),
}


@pytest.mark.parametrize("change", NET.values(), ids=NET)
def test_what_a_net_follows(change):
    net, twin = simple(), simple(graph=False)
    for number in range(3):
        assert step(net, number) == step(twin, number)
    for one in (net, twin):
        change(one)
    assert step(net, 3) == step(twin, 3)


def test_only_compile_sets_the_others():
    net = simple()
    for number in range(3):
        step(net, number)
    before, graph = state_of(net), net.training_graph
    for name in set(signature(FeedForwardNet.compile).parameters) - {"self", *NET}:
        with pytest.raises(GraphError, match=rf"net\.{name}: wanted compile\({name}=\.\.\.\) anew"):
            setattr(net, name, 1)
    for name, instead in {"device": "to_device", "dtype": r"FeedForwardNet\(dtype="}.items():
        with pytest.raises(GraphError, match=instead):
            setattr(net, name, getattr(net, name))
    for name, instead in {"learning_rate": "net.optimizer.lr", "metrics": "metric", "verbos": "verbose"}.items():
        with pytest.raises(AttributeError, match=f"perhaps {instead}"):
            setattr(net, name, 1)
    for name, wrong in {"optimizer": "adam", "loss": 3, "metric": 3, "on_nan": "stop"}.items():
        with pytest.raises((TypeError, ValueError), match="wanted"):
            setattr(net, name, wrong)
    assert state_of(net) == before
    net.verbose = 0
    step(net, 3)
    assert net.training_graph is graph


def test_another_optimizer_does_what_compile_was_told():
    net = simple(accumulate=2, state_dtype="bfloat16")
    net.optimizer = optimizer.Adam()
    assert net.accumulate == 2
    assert net.optimizer.state_dtype == "bfloat16"
    with pytest.raises(ValueError, match="state"):
        net.optimizer = optimizer.SGD(0.1)
    one, other = simple(), simple()
    step(other, 0)
    with pytest.raises(GraphError, match="one net alone"):
        one.optimizer = other.optimizer


def test_a_class_of_ones_own_has_attributes_of_its_own():
    class Net(FeedForwardNet):
        pass

    class Own(layers.Dropout):
        pass

    class Constructed(layers.Conv2D):
        def __init__(self, name: str, kernels: int) -> None:
            super().__init__(name, kernels, 3)
            self.kernels = kernels

    net, layer, other = Net(), Own("drop"), Constructed("conv", 4)
    net.remark = layer.remark = other.remark = "kept"
    assert (net.remark, layer.remark) == ("kept", "kept")
    layer.p = 0.8
    with pytest.raises(ValueError, match="p"):
        layer.p = 1.5
    other.kernels = 5
    with pytest.raises(AttributeError, match="Constructed: wanted kernel where Conv2D is constructed"):
        other.kernel = 5
    assert not hasattr(other, "kernel")


# --- bare records --------------------------------------------------------------------------------------------


class Problem:
    """A step over parameters without a net."""

    def __init__(self, **given: Any) -> None:
        rng = np.random.default_rng(3)
        self.cpu = device.new_cpu()
        self.x, self.y = (tensor.from_numpy(rng.standard_normal(s).astype("f"), self.cpu) for s in ((6, 3), (6, 4)))
        self.w = tensor.from_numpy(rng.standard_normal((3, 4)).astype("f"), self.cpu)
        self.w.stores_grad = True
        self.sgd = optimizer.SGD(**{"lr": 0.1, "momentum": 0.9, "regularizer": L2Regularizer(0.1), **given})
        self.criterion = loss.Huber(0.7)

    def step(self) -> None:
        fault = autograd.reduce_mean(autograd.tanh(autograd.matmul(self.x, self.w)) * self.y)
        for value, gradient in autograd.backward(fault):
            self.sgd.update(None, value, gradient)


def test_a_rate_that_changes_between_runs_is_followed():
    problem, twin = Problem(), Problem()
    with problem.cpu.recording() as graph:
        problem.step()
    for rate in (0.1, 0.5, schedule.Constant(0.01), 0.2):
        problem.sgd.lr = twin.sgd.lr = rate
        graph.run()
        twin.step()
        assert bits(problem.w) == bits(twin.w)


BARE: dict[str, tuple[Callable[[Problem], object], str]] = {
    "momentum": (lambda p: setattr(p.sgd, "momentum", 0.5), "another momentum"),
    "weight decay": (lambda p: setattr(p.sgd, "weight_decay", 0.5), "another weight_decay"),
    "regularizer": (lambda p: setattr(p.sgd, "regularizer", None), "another rule"),
    "its coefficient": (lambda p: setattr(p.sgd.regularizer, "coefficient", 0.5), "another rule"),
    "a further rule": (lambda p: p.sgd.register("*", lr_mult=0.5), "another rule"),
    "settings": (lambda p: p.sgd.settings.update(momentum=0.5), "another momentum"),
    "stores_grad": (lambda p: setattr(p.w, "stores_grad", False), "stores_grad=True"),
}


@pytest.mark.parametrize(("change", "message"), BARE.values(), ids=BARE)
def test_what_a_bare_record_cannot_follow_is_refused(change, message):
    problem = Problem()
    with problem.cpu.recording() as graph:
        problem.step()
    for _ in range(3):
        graph.run()
    before = bits(problem.w)
    change(problem)
    with pytest.raises(GraphError, match=f"run: wanted .*{message}"):
        graph.run()
    assert bits(problem.w) == before


def test_layers_and_losses_of_a_bare_record():
    net = simple()
    x, y = (tensor.from_numpy(each, CPU) for each in batch(0))
    dropped = layers.Dropout("drop", 0.3)
    net.add(dropped)
    with CPU.recording() as graph:
        found = net.loss.forward(False, net.forward(False, x), y)
    graph.run()
    wanted = bits(found)
    dropped.p = 0.3  # as it was
    graph.run()
    assert bits(found) == wanted
    dropped.p = 0.5
    with pytest.raises(GraphError, match=r"'drop'.* with the options that it had when the expression was recorded"):
        graph.run()
    with CPU.recording() as again:
        net.loss.forward(False, net.forward(False, x), y)
    net.loss.delta = 0.1
    with pytest.raises(GraphError, match=r"Huber.* record it again"):
        again.run()


def test_regularizers_have_cases():
    """Each option of theirs is set above, in a net or in a bare record."""
    kinds = {
        name
        for name, kind in vars(regularizer).items()
        if isinstance(kind, type) and kind.__module__ == regularizer.__name__
    }
    assert kinds == {"Regularizer", "Constraint", "L2Regularizer", "_Clip", "ElementConstraint", "NormConstraint"}
