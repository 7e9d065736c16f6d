"""Options of losses, metrics and optimizers: set after recorded steps, each is followed, bit for bit, or refused.

No option of a public class may be missing. Options of layers are in `test_changed_settings.py`, those of nets in
`test_changed_options.py`, what a bare record was made by in `test_changed_bare_records.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isabstract, signature
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from nets import bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, schedule
from singa_lite.errors import GraphError
from singa_lite.regularizer import ElementConstraint, L2Regularizer, NormConstraint

CLASSES = 5
CPU = device.new_cpu()
IDS, ROWS, SEQUENCES = "ids", "rows", "sequences"

#: {class: {option: (another value, what else it is made with, targets)}}.
LOSSES: dict[str, dict[str, tuple[Any, dict[str, Any], str]]] = {
    "Huber": {"delta": (0.2, {"delta": 0.7}, ROWS)},
    "SigmoidCrossEntropy": {"pos_weight": (0.2, {"pos_weight": 0.7}, ROWS), "from_logits": (False, {}, ROWS)},
    "SoftmaxCrossEntropy": {
        "axis": (-1, {"axis": 1}, IDS),
        "ignore_index": (0, {}, IDS),
        "label_smoothing": (0.3, {}, IDS),
        "from_logits": (False, {}, IDS),
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
    "Lion": {"beta_1": 0.5, "beta_2": 0.7},
    "Muon": {
        **{"momentum": 0.5, "nesterov": False, "ns_steps": 3, "ns_coefficients": (3.0, -4.0, 2.0)},
        **{"epsilon": 9.0, "adjust_lr": "match_rms_adamw"},
    },
    "Adafactor": {"beta_2_decay": -0.5, "epsilon_1": 0.1, "epsilon_2": 0.1, "d": 2.0},
    "AdamW": {"beta_1": 0.5, "beta_2": 0.7, "epsilon": 0.1},
}
OF_EACH = {
    **{"lr": 0.3, "weight_decay": 0.2},
    **{"regularizer": L2Regularizer(0.5), "constraint": NormConstraint(0.01)},
}
#: By which other state is kept, so that a change is refused once there is some: `test_optimizer` has them.
BY_STATE = {"amsgrad", "others", "others_for"}
MADE_WITH = {"SGD": {"momentum": 0.9}, "Lion": {"lr": 1.0, "beta_1": 0.99}}


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
    for number in range(2):
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
    twin, _ = make(False, **{option: value})
    for number in range(2):
        for each in (net, twin):
            step(each, number, targets)
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


@pytest.mark.filterwarnings("ignore:.*wanted probabilities")
def test_losses():
    over_rows(of_a_loss, ((f"{name} {option}", (name, option)) for name in LOSSES for option in LOSSES[name]))


def test_metrics():
    over_rows(of_a_metric, ((f"{name} {option}", (name, option)) for name in METRICS for option in METRICS[name]))


def test_optimizers():
    rows = ((name, option) for name in OPTIMIZERS for option in {**OF_EACH, **OPTIMIZERS[name]})
    over_rows(of_an_optimizer, ((f"{name} {option}", (name, option)) for name, option in rows))


#: (object, option, value that it refuses, error, word that the error names).
WRONG: list[tuple[Callable[[], Any], str, Any, type[Exception], str]] = [
    (lambda: optimizer.SGD(0.1), "momentum", 1.5, ValueError, "momentum"),
    (lambda: optimizer.SGD(0.1), "nesterov", True, ValueError, "momentum"),
    (lambda: optimizer.SGD(0.1), "learning_rates", 0.1, AttributeError, "learning_rate$"),
    (lambda: optimizer.Adam(), "regularizer", 0.1, TypeError, "Regularizer"),
    (lambda: L2Regularizer(0.1), "coefficient", -1, ValueError, "coefficient"),
    (lambda: ElementConstraint(1), "threshold", 0, ValueError, "threshold"),
    (lambda: loss.Huber(), "delta", "wide", TypeError, "Huber delta"),
    (lambda: metric.TopKAccuracy(2), "k", 0, ValueError, "TopKAccuracy k"),
    (lambda: schedule.Constant(0.1), "value", -1, ValueError, "Constant value"),
    (lambda: layers.Dropout("drop"), "p", 1.5, ValueError, "p"),
    (lambda: layers.Dense("dense", 3), "num_outputs", 4, AttributeError, "num_output"),
]


@pytest.mark.parametrize(("make", "option", "value", "error", "word"), WRONG)
def test_values_that_are_refused_change_nothing(make, option, value, error, word):
    made = make()
    before, given = dict(vars(made)), dict(made.given_arguments)
    with pytest.raises(error, match=word):
        setattr(made, option, value)
    assert vars(made) == before
    assert made.given_arguments == given


def test_another_state_is_refused_once_there_is_some():
    sgd = optimizer.SGD(0.1)
    sgd.momentum = 0.9
    assert sgd.slots == ("velocity", "count")
    net = net_of(True, sgd, loss.SquaredError())
    step(net, 0)
    with pytest.raises(GraphError, match="SGD momentum"):
        sgd.momentum = 0.0
    assert sgd.momentum == 0.9


def test_within_a_group_of_batches_the_place_of_its_sums_stays():
    net = FeedForwardNet(loss.SquaredError(), device=CPU, seed=1)
    net.add(layers.Dense("scores", CLASSES, input_sample_shape=(3,)))
    net.compile(optimizer.SGD(0.1, momentum=0.9), accumulate=2)
    net.train_one_batch(*batch(0))
    with pytest.raises(GraphError, match="SGD nesterov"):
        net.optimizer.nesterov = True
    net.train_one_batch(*batch(1))
    net.optimizer.nesterov = True


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
    with pytest.raises(AttributeError, match="Constructed"):
        other.kernel = 5
    assert not hasattr(other, "kernel")
