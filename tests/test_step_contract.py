"""What a recorded step follows: options exactly, through their version; all else is frozen when a form is recorded."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nets import all_bits
from singa_lite import FeedForwardNet, Layer, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.common.option_version import VERSION
from singa_lite.compiler.placement import planner
from singa_lite.device import step_context
from singa_lite.errors import GraphError
from singa_lite.regularizer import Regularizer
from singa_lite.training.step_cache import StepCache

X = np.random.default_rng(5).normal(size=(5, 3)).astype("f")
OUTSIDE = SimpleNamespace(scale=1.0, meter=0)
RANDOM = np.random.default_rng(6)


class Scaled(Layer):
    """x times an option, and counts its calls."""

    def __init__(self, name: str, scale: float = 1.0, **options: Any) -> None:
        super().__init__(name, **options)
        self.scale, self.calls, self.meter = scale, 0, OUTSIDE

    def setup(self, shape: Any) -> Any:
        return shape

    def forward(self, training: bool, x: Any) -> Any:
        self.calls += 1
        if self.calls % 100 == 0:
            print(self.calls)
        return x * self.scale


class Outside(Scaled):
    def forward(self, training: bool, x: Any) -> Any:
        return x * OUTSIDE.scale


class Counted(Scaled):
    def forward(self, training: bool, x: Any) -> Any:
        self.calls += 1
        return x * float(self.calls)


class Noisy(Scaled):
    def forward(self, training: bool, x: Any) -> Any:
        return x + tensor.from_numpy(RANDOM.normal(size=3).astype("f"), x.device)


class Random(Scaled):
    """Draws by a counter in memory, which a replay moves on."""

    def setup(self, shape: Any) -> Any:
        self.add_state("key", (3,), 7, "uint64")
        return shape

    def forward(self, training: bool, x: Any) -> Any:
        return x + autograd.normal(x.shape, self.states["key"])


class Eager(Counted):
    recordable = False


class Weighted(loss.Loss):
    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def compute(self, x: Any, y: Any) -> Any:
        return autograd.reduce_mean((x - y) * (x - y) * self.weight, 1)


class OutsideLoss(Weighted):
    def compute(self, x: Any, y: Any) -> Any:
        return super().compute(x, y) * OUTSIDE.scale


class Offset(metric.Metric):
    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def compute(self, x: Any, y: Any) -> Any:
        return autograd.reduce_mean(x, 1) + self.offset


class Pull(Regularizer):
    def __init__(self, strength: float = 0.1) -> None:
        self.strength = strength

    def apply(self, value: Any, gradient: Any, decay_mult: float = 1.0) -> None:
        gradient.device.run("add_scaled", value, gradient, alpha=self.strength)


class Shared(optimizer.SGD):
    def __init__(self, lr: Any = 0.1, share: float = 1.0, **options: Any) -> None:
        super().__init__(lr, **options)
        self.share = share

    def update(self, name: Any, value: Any, gradient: Any, rate: Any = None) -> None:
        super().update(name, value, gradient * self.share, rate)


class EagerLoss(Weighted):
    recordable = False


class Held(loss.Loss):
    """A loss that is computed by another."""

    def __init__(self, inner: Any) -> None:
        self.parts = [inner]

    def compute(self, x: Any, y: Any) -> Any:
        return self.parts[0].compute(x, y)


class EagerOptimizer(Shared):
    recordable = False


class EagerPull(Pull):
    recordable = False


def net_of(made: Any = Scaled, graph: bool = True, given: Any = None, criterion: Any = None, **how: Any) -> Any:
    net = FeedForwardNet(criterion or Weighted(), Offset(), device=device.new_cpu(kernels="numpy"), seed=3)
    net.add(made("own", input_sample_shape=(3,)))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Dense("dense", 3))
    net.compile(given or Shared(regularizer=Pull()), graph=graph, **how)
    return net


def train(net: FeedForwardNet, steps: int = 1) -> list[tuple[float, float]]:
    return [tuple(map(float, net.train_one_batch(X, X))) for _ in range(steps)]


CHANGES: dict[str, Callable[[FeedForwardNet], object]] = {
    "a layer's": lambda net: setattr(net.layers["own"], "scale", 3.0),
    "a built-in layer's": lambda net: setattr(net.layers["drop"], "p", 0.6),
    "a loss's": lambda net: setattr(net.loss, "weight", 2.0),
    "a metric's": lambda net: setattr(net.metric, "offset", 2.0),
    "an optimizer's": lambda net: setattr(net.optimizer, "share", 0.5),
    "a built-in optimizer's": lambda net: setattr(net.optimizer, "weight_decay", 0.5),
    "a regularizer's": lambda net: setattr(net.optimizer.parts[0], "strength", 0.7),
    "a rule": lambda net: net.optimizer.register("*/bias", lr_mult=0.0),
    "what trains": lambda net: setattr(net.layers["dense"], "trainable", False),
    "a parameter": lambda net: setattr(net.parameters()["dense/bias"], "stores_grad", False),
    "state": lambda net: net.optimizer.state.clear(),
}


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"micro_batches": 2}], ids=str)
@pytest.mark.parametrize("name", CHANGES)
def test_an_option_is_followed_exactly(name, options):
    recorded, eager = net_of(**options), net_of(graph=False, **options)
    assert train(recorded, 3) == train(eager, 3)
    for net in (recorded, eager):
        CHANGES[name](net)
    assert train(recorded, 3) == train(eager, 3)
    assert all_bits(recorded.parameters()) == all_bits(eager.parameters())


class Doubling(Scaled):
    """Doubles once the option of its constructor is taken away."""

    scale = 2.0


def test_an_option_that_is_taken_away_is_followed():
    recorded, eager = net_of(Doubling), net_of(Doubling, graph=False)
    assert train(recorded, 3) == train(eager, 3)
    for net in (recorded, eager):
        del net.layers["own"].scale
    assert train(recorded, 3) == train(eager, 3)


class Late(Scaled):
    """Sets its option where it is given alone."""

    def __init__(self, name: str, scale: float | None = None, **options: Any) -> None:
        super().__init__(name, **options)
        del self.scale
        if scale is not None:
            self.scale = scale

    def forward(self, training: bool, x: Any) -> Any:
        return x * getattr(self, "scale", 1.0)


class Halved(Scaled):
    """Sets its option in each forward."""

    def forward(self, training: bool, x: Any) -> Any:
        self.scale *= 0.5
        return x * self.scale


class Bent(Scaled):
    """Runs a layer that is an attribute and nothing else."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.bend = layers.Activation(mode="relu")

    def forward(self, training: bool, x: Any) -> Any:
        return self.bend.forward(training, x)


class Sum(loss.Loss):
    """Two losses, one an attribute and one in a list."""

    def __init__(self) -> None:
        self.first, self.others = Weighted(), [loss.Huber()]

    def compute(self, x: Any, y: Any) -> Any:
        return self.first.compute(x, y) + self.others[0].compute(x, y)


WITHIN: dict[str, tuple[Any, Any, Callable[[FeedForwardNet], object]]] = {
    "set for the first time": (Late, None, lambda net: setattr(net.layers["own"], "scale", 3.0)),
    "set by the forward": (Halved, None, lambda net: None),
    "of a layer that is an attribute": (Bent, None, lambda net: setattr(net.layers["own"].bend, "mode", "tanh")),
    "of a loss that is an attribute": (Scaled, Sum, lambda net: setattr(net.loss.first, "weight", 3.0)),
    "of a loss in a list": (Scaled, Sum, lambda net: setattr(net.loss.others[0], "delta", 0.1)),
}


@pytest.mark.filterwarnings("ignore:a step was recorded 3 times")
@pytest.mark.parametrize("name", WITHIN)
def test_an_option_is_followed_wherever_it_is(name):
    made, criterion, change = WITHIN[name]
    recorded, eager = (net_of(made, graph, criterion=criterion and criterion()) for graph in (True, False))
    assert train(recorded, 4) == train(eager, 4)
    for net in (recorded, eager):
        change(net)
    assert train(recorded, 3) == train(eager, 3)
    assert all_bits(recorded.parameters()) == all_bits(eager.parameters())


@pytest.mark.parametrize("made", [layers.Dense("dense", 3), optimizer.SGD()], ids=["layer", "optimizer"])
@pytest.mark.parametrize("word", ["trainabel", "unitss", "learning_rat", "lrr"])
def test_a_misspelt_word_of_keras_or_property_is_refused(made, word):
    if (word in ("trainabel", "unitss")) == isinstance(made, Layer):
        with pytest.raises(AttributeError, match=r"perhaps (trainable|units|learning_rate|lr)$"):
            setattr(made, word, 1)


def test_a_repeated_step_changes_no_version_and_runs_no_python_of_the_users():
    net = net_of()
    train(net)
    number, graph = VERSION.number, net.training_graph
    for count in range(4):
        net.note = net.layers["own"].note = net.layers["drop"].note = net.optimizer.note = net.loss.note = count
        net.layers["own"].scale = 1.0
        OUTSIDE.meter += 1
        train(net)
    assert (VERSION.number, net.training_graph, net.layers["own"].calls) == (number, graph, 1)


@pytest.mark.parametrize("options", [{}, {"memory_budget": "1 GiB"}, {"clip_global_norm": 1.0}], ids=str)
def test_a_forward_runs_once_for_each_recording_in_order(options):
    net = net_of(**options)
    train(net, 3)
    net.evaluate(X, X)
    net.predict(X)
    assert net.layers["own"].calls == 3
    net.train_one_batch(X[:2], X[:2])
    assert net.layers["own"].calls == 4


def test_what_is_read_elsewhere_is_frozen_until_it_is_recorded_again(monkeypatch):
    net, same, eager = net_of(Outside), net_of(), net_of(Outside, graph=False)
    assert train(net, 2) == train(same, 2) == train(eager, 2)
    monkeypatch.setattr(OUTSIDE, "scale", 4.0)
    assert train(net) == train(same) != train(eager)
    graph = net.training_graph
    net.record_again()
    same.layers["own"].scale = 4.0
    assert train(net) == train(same)
    assert net.training_graph is not graph


@pytest.mark.parametrize(
    ("made", "criterion", "given", "word"),
    [
        (Eager, None, None, "Eager"),
        (lambda name, **o: layers.Sequential(name, [Eager("within")], **o), None, None, "layer 'own/within'.*Eager"),
        (Scaled, EagerLoss(), None, "EagerLoss"),
        (Scaled, Held(EagerLoss()), None, "EagerLoss"),
        (Scaled, None, EagerOptimizer(), "EagerOptimizer"),
        (Scaled, None, optimizer.SGD(0.1, regularizer=EagerPull()), "EagerPull"),
    ],
    ids=["layer", "within", "loss", "within a loss", "optimizer", "regularizer"],
)
def test_a_class_that_is_not_recordable_runs_each_time(made, criterion, given, word):
    net = net_of(made, criterion=criterion, given=given)
    train(net, 3)
    if made is Eager:
        assert net.layers["own"].calls == 3
    assert net.recorded_forms == [] or word in ("EagerLoss", "EagerOptimizer", "EagerPull")
    with pytest.raises(GraphError, match=f"{word}.*recordable = False"):
        net.plan_batch(5)
    with pytest.raises(GraphError, match=f"{word}.*recordable = False"):
        _ = net.memory_plan
    net.compile(net.optimizer, memory_budget="1 GiB")
    before = all_bits(net.parameters())
    with pytest.raises(GraphError, match=f"memory_budget.*{word}.*recordable = False"):
        train(net)
    assert all_bits(net.parameters()) == before


def test_the_third_recording_within_a_hundred_steps_warns_once_and_names_the_option():
    net = net_of()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for scale in range(6):
            net.layers["own"].scale = scale + 2.0
            train(net, 2)
    (one,) = [str(each.message) for each in told]
    assert "scale of Scaled 'own'" in one
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        patient = net_of()
        for scale in range(4):
            patient.layers["own"].scale = scale + 2.0
            train(patient, 60)


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"micro_batches": 2}, {"precision": "bfloat16"}], ids=str)
@pytest.mark.parametrize("made", [Counted, Noisy, Outside, Scaled, Random])
def test_checked_mode_compares_with_an_eager_step_and_names_the_layer(made, options, monkeypatch):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    net = net_of(made, **options)
    train(net, 3)
    monkeypatch.setattr(OUTSIDE, "scale", 2.0)
    if made in (Scaled, Random):
        assert len(train(net, 20)) == 20
        return
    step = net.optimizer.step
    with pytest.raises(GraphError, match=r"layer 'own'.*recordable"):
        train(net, 20)
    assert net.optimizer.step - step <= 10


def test_checked_mode_names_the_loss(monkeypatch):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    net = net_of(criterion=OutsideLoss())
    train(net, 3)
    monkeypatch.setattr(OUTSIDE, "scale", 2.0)
    with pytest.raises(GraphError, match="of the loss with"):
        train(net, 20)


def test_a_checked_step_gives_what_an_unchecked_one_gives(monkeypatch):
    plain = net_of(Random)
    wanted = train(plain, 25)
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    checked = net_of(Random)
    assert train(checked, 25) == wanted
    assert all_bits(checked.parameters()) == all_bits(plain.parameters())


@pytest.mark.parametrize("fuse", [True, False])
def test_a_replay_that_computes_something_else_is_found(fuse, monkeypatch):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    net, run = net_of(fuse=fuse), StepCache._run

    def spoilt(self: StepCache, step: Any, recorded: Any, look: Any, pause: Any) -> None:
        run(self, step, recorded, look, pause)
        spoils = recorded.results[0] if fuse else net.parameters()["dense/bias"]
        spoils.copy_from_numpy(np.asarray(spoils) + 1)

    monkeypatch.setattr(StepCache, "_run", spoilt)
    with pytest.raises(GraphError, match="a loss of" if fuse else "'dense/bias' of layer 'dense'"):
        train(net, 12)


@pytest.mark.parametrize("graph", [True, False])
def test_a_schedule_is_called_once_a_step(graph):
    steps: list[int] = []

    def rate(step: int) -> float:
        steps.append(step)
        return 0.1

    net = net_of(graph=graph)
    net.optimizer.lr = rate
    train(net, 4)
    net.fit(X, X, batch_size=5, epochs=2, verbose=False)
    assert steps == [0, 1, 2, 3, 4, 5]


def test_a_pattern_of_no_parameter_is_refused_after_compile_too():
    net = net_of()
    rules = len(net.optimizer.rules)
    with pytest.raises(ValueError, match="bais"):
        net.optimizer.register("*/bais", lr_mult=0)
    assert len(net.optimizer.rules) == rules


def test_a_submodel_leaves_the_layers_of_its_parent_as_they_were():
    net = FeedForwardNet(seed=1)
    for name in "abc":
        net.add(layers.Dense(name, 4, **({"input_sample_shape": (3,)} if name == "a" else {})))
    before, config = net.layers["b"].input_sample_shapes, net.config()
    part = net.submodel("c", inputs="b")
    assert (net.layers["b"].input_sample_shapes, net.config()) == (before, config)
    assert part.input_shapes() == {"b": (4,)}
    assert part.predict(np.ones((2, 4), "f")).shape == (2, 4)


@pytest.mark.parametrize("which", ["the net", "another", "a part"])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_thread_that_uses_a_net_inside_a_step_does_not_wait_for_ever(which, recorded, monkeypatch):
    monkeypatch.setattr(step_context, "LONGEST_WAIT", 0.05)
    net = net_of()
    other = FeedForwardNet("mse", device=net.device)
    other.add(layers.Dense("dense", 3, input_sample_shape=(3,)))
    used = {"the net": net, "another": other, "a part": net.submodel("own")}[which]
    train(net, 2 if recorded else 0)
    found: list[str] = []

    def use() -> None:
        try:
            used.predict(X)
            found.append("done")
        except GraphError as error:
            found.append(str(error))

    def rate(step: int) -> float:
        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(30)
        return 0.1

    net.optimizer.lr = rate
    train(net)
    (only,) = found
    assert (only != "done") if which == "the net" or not recorded else (only == "done")


def test_a_plan_does_not_depend_on_the_clock(monkeypatch):
    found = []
    for tick in (0.0, 1e9):
        now = [0.0]

        def clock(now: list[float] = now, tick: float = tick) -> float:
            now[0] += tick
            return now[0]

        with monkeypatch.context() as patch:
            patch.setattr(planner.time, "perf_counter", clock)
            found.append(net_of().plan_batch(64).arena_bytes)
    assert found[0] == found[1]
