"""Layers, losses and functions of the user's that do not do the same at each call: a record would freeze them."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

import numpy as np
import pytest

from nets import all_bits
from singa_lite import FeedForwardNet, Layer, autograd, device, layers, loss, optimizer, tensor
from singa_lite.errors import GraphError

X = np.random.default_rng(5).normal(size=(5, 3)).astype("f")
RANDOM = np.random.default_rng(6)


class Keeping(Layer):
    def setup(self, shape: Any) -> Any:
        return shape


class Counting(Keeping):
    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.calls = 0

    def forward(self, training: bool, x: Any) -> Any:
        self.calls += 1
        return x * float(self.calls)


class Noise(Keeping):
    def forward(self, training: bool, x: Any) -> Any:
        return x + tensor.from_numpy(RANDOM.normal(size=3).astype("f"), x.device) if training else x


class Branching(Keeping):
    calls = count()

    def forward(self, training: bool, x: Any) -> Any:
        return x if next(self.calls) % 2 else autograd.tanh(x)


class Weighing(loss.Loss):
    def compute(self, x: Any, y: Any) -> Any:
        return autograd.reduce_mean((x - y) * float(RANDOM.random()), 1)


class Late(Keeping):
    """What it does after many calls, two of them do not show."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.calls = 0

    def shown(self) -> str:
        return f"{self.calls} calls"

    def forward(self, training: bool, x: Any) -> Any:
        self.calls += 1
        return x * 2.0 if self.calls > 30 else x


class Remembering(Keeping):
    """It adds what it gave last, a tensor that is another one at each call."""

    last: Any = None

    def forward(self, training: bool, x: Any) -> Any:
        y = x if self.last is None else x + self.last
        self.last = (y * 0.5).detach()
        return y


class Rarely(Keeping):
    def forward(self, training: bool, x: Any) -> Any:
        return x * 2.0 if RANDOM.random() < 1e-12 else x


def late(name: str | None = None, **options: Any) -> Layer:
    calls = [0]

    def function(x: Any) -> Any:
        calls[0] += 1
        return x * 2.0 if calls[0] > 30 else x

    return layers.Lambda("late", function, **options)


def scaled(name: str | None = None, **options: Any) -> Layer:
    return layers.Lambda("scaled", lambda x: x * float(RANDOM.random()), **options)


def within(**options: Any) -> Layer:
    return layers.Sequential("held", [layers.Dense(3), Noise()], **options)


def net(made: Any, graph: bool = True, criterion: Any = "mse", **options: Any) -> FeedForwardNet:
    found = FeedForwardNet(criterion, device=device.new_cpu(kernels="numpy"))
    found.add(made(input_sample_shape=(3,)))
    found.add(layers.Dense("dense", 3))
    found.compile(optimizer.SGD(0.1), graph=graph, **options)
    return found


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (Counting, "'counting'"),
        (Noise, "'noise'"),
        (Branching, "operations"),
        (scaled, "'scaled'"),
        (within, "'held/noise'"),
        (Remembering, "'remembering'"),
        (Late, "'late'"),
        (Rarely, "numpy.random"),
        (late, "calls that late.<locals>.function reads"),
        (Weighing, "'scale'"),
    ],
)
def test_what_differs_between_calls_is_refused_and_nothing_has_changed(made, told):
    def fresh(graph: bool = True) -> FeedForwardNet:
        return net(layers.Flatten, graph, made()) if made is Weighing else net(made, graph)

    found = fresh()
    before = all_bits(found.parameters())
    with pytest.raises(GraphError, match=told):
        found.train_one_batch(X, X)
    assert all_bits(found.parameters()) == before
    assert found.optimizer.step == 0
    fresh(graph=False).train_one_batch(X, X)


def test_so_is_it_in_evaluation_and_prediction():
    for call in (lambda: net(Counting).evaluate(X, X), lambda: net(Counting).predict(X)):
        with pytest.raises(GraphError, match="'counting'"):
            call()
    assert net(Noise).predict(X).shape == (5, 3)  # it draws in training alone


class Shifting(Keeping):
    """A constant that is made anew at each call, and random numbers by a counter in memory."""

    def setup(self, shape: Any) -> Any:
        self.add_state("key", (3,), 7, "uint64")
        return shape

    def forward(self, training: bool, x: Any) -> Any:
        shifted = x + tensor.from_numpy(np.ones(3, "f"), x.device)
        return shifted + autograd.normal(x.shape, self.states["key"])


class Doubling(autograd.Function):
    def makes(self, x: Any) -> Any:
        return {"y": autograd.Output(x.shape)}

    def forward(self, x: Any, y: Any) -> None:
        np.multiply(x, 2, out=y)

    def derivative_x(self, dy: Any, dx: Any) -> None:
        np.multiply(dy, 2, out=dx)


class OfFunction(Keeping):
    def forward(self, training: bool, x: Any) -> Any:
        return Doubling()(x)


@pytest.mark.parametrize("options", [{}, {"micro_batches": 2}, {"freeze": "dense"}, {"memory_budget": "1 GiB"}])
@pytest.mark.parametrize("made", [Shifting, OfFunction])
def test_what_does_the_same_each_time_trains_as_ever(made, options):
    recorded, eager = net(made, **options), net(made, graph=False, **{**options, "memory_budget": None})
    for _ in range(3):
        assert float(recorded.train_one_batch(X, X)[0]) == float(eager.train_one_batch(X, X)[0])
    assert all_bits(recorded.parameters()) == all_bits(eager.parameters())


SCALE = 1.0


class Global(Keeping):
    def forward(self, training: bool, x: Any) -> Any:
        return x * self.factor()

    def factor(self) -> float:
        return max(scale for scale in (SCALE, 0.25))


class OfClass(Keeping):
    scale = 1.0

    def forward(self, training: bool, x: Any) -> Any:
        return x * float(self.scale)


class Multiplying(autograd.Function):
    def __init__(self, factor: float) -> None:
        self.factor, self.calls = factor, 0

    def makes(self, x: Any) -> Any:
        return {"y": autograd.Output(x.shape)}

    def forward(self, x: Any, y: Any) -> None:
        np.multiply(x, self.factor, out=y)

    def derivative_x(self, dy: Any, dx: Any) -> None:
        np.multiply(dy, self.factor, out=dx)


class CountingCalls(Multiplying):
    """Each call of the object begins with its settings, so that what one has counted is there for its derivative."""

    def forward(self, x: Any, y: Any) -> None:
        self.calls += 1
        np.multiply(x, self.factor / self.calls, out=y)

    def derivative_x(self, dy: Any, dx: Any) -> None:
        np.multiply(dy, self.factor / self.calls, out=dx)


def test_what_an_operation_counts_is_for_its_own_call_alone():
    operation = CountingCalls(0.5)
    nets = [net(lambda **o: layers.Lambda("scaled", lambda x: operation(x), **o), graph=g) for g in (True, False)]
    losses = [[float(each.train_one_batch(X, X)[0]) for _ in range(4)] for each in nets]
    assert losses[0] == losses[1]
    assert len(set(losses[0])) == 4


class GlobalLoss(loss.Loss):
    def compute(self, x: Any, y: Any) -> Any:
        return autograd.reduce_mean((x - y) * (x - y) * float(SCALE), 1)


@pytest.mark.parametrize("kind", ["global", "within", "closure", "list", "array", "class", "operation", "loss"])
def test_numbers_that_such_functions_read_from_outside_count_from_the_next_batch_on(kind, monkeypatch):
    value = np.float32(3) if kind == "global" else 3.0
    factor, several, array, operation = 1.0, [1.0], np.ones(1), Multiplying(1.0)
    made = {
        "global": (Global, "mse"),
        "within": (lambda **o: layers.Residual("held", [Global()], **o), "mse"),
        "closure": (lambda **o: layers.Lambda("scaled", lambda x: x * float(factor), **o), "mse"),
        "list": (lambda **o: layers.Lambda("scaled", lambda x: x * float(several[0]), **o), "mse"),
        "array": (lambda **o: layers.Lambda("scaled", lambda x: x * float(array[0]), **o), "mse"),
        "class": (OfClass, "mse"),
        "operation": (lambda **o: layers.Lambda("scaled", lambda x: operation(x), **o), "mse"),
        "loss": (layers.Flatten, GlobalLoss()),
    }[kind]
    losses = []
    for graph in (True, False):
        factor = several[0] = array[0] = operation.factor = 1.0
        monkeypatch.setattr(OfClass, "scale", 1.0)
        monkeypatch.setattr(sys.modules[__name__], "SCALE", 1.0)
        found = net(made[0], graph=graph, criterion=made[1])
        losses.append([float(found.train_one_batch(X, X)[0])])
        factor = several[0] = array[0] = operation.factor = value
        monkeypatch.setattr(OfClass, "scale", value)
        monkeypatch.setattr(sys.modules[__name__], "SCALE", value)
        losses[-1] += [float(found.train_one_batch(X, X)[0]), found.evaluate(X, X)[0]]
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]


def test_code_of_no_module_is_the_users():
    text = """
class Halving(Layer):
    def __init__(self, name, **options):
        super().__init__(name, **options)
    def setup(self, shape):
        return shape
    def forward(self, training, x):
        return x * 0.5
"""
    made: dict[str, Any] = {"Layer": Layer}
    exec(text, made)
    assert made["Halving"].__module__ is None or made["Halving"].__module__ == "builtins"
    found = net(made["Halving"])
    assert float(found.train_one_batch(X, X)[0]) > 0
    assert found.layers["halving"].runs_users_code


CALLS = 0


class Told(Keeping):
    """It counts its calls, and no operation goes by that."""

    def forward(self, training: bool, x: Any) -> Any:
        global CALLS
        CALLS += 1
        return x * SCALE


@pytest.mark.parametrize("made", [Global, Told])
def test_a_step_that_reads_what_it_did_is_not_recorded_anew(made):
    found = net(made)
    found.train_one_batch(X, X)
    graph = found.training_graph
    found.train_one_batch(X, X)
    assert found.training_graph is graph
