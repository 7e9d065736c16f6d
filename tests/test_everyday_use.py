"""Unnamed layers, data of any real dtype, tensors that are read as arrays, layers that do not train, public modules."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import singa_lite
from singa_lite import FeedForwardNet, autograd, callbacks, layers, loss, metric, optimizer, tensor
from singa_lite.errors import GraphError


def small() -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), seed=5)
    net.add(layers.Conv2D(4, 3, input_sample_shape=(2, 6, 5)))
    net.add(layers.Activation(mode="tanh"))
    net.add(layers.MaxPooling2D(2))
    net.add(layers.Flatten())
    net.add(layers.Dropout(0.5))
    net.add(layers.Dense(7))
    net.add(layers.Dense(num_output=3))
    return net


def test_layers_are_named_by_their_class_where_they_are_added():
    net = small()
    assert list(net.layers) == ["conv2d", "activation", "max_pooling2d", "flatten", "dropout", "dense", "dense_1"]
    assert net.layers["activation"].mode == "tanh" and net.layers["dropout"].p == 0.5
    assert net.param_names() == small().param_names()
    made = FeedForwardNet.from_config(net.config())
    for other in (small(), made):
        for name, value in other.parameters().items():
            np.testing.assert_array_equal(value, net.parameters()[name])


class OwnScale(layers.Dense):
    """A layer of the user's own."""


def test_unnamed_layers_take_the_next_free_name_also_within_layers():
    net = FeedForwardNet()
    net.add(layers.Bidirectional(layers.LSTM(4), input_sample_shape=(3, 2)))
    net.add(layers.Sequential([layers.Dense(5), layers.Dense(2)]))
    net.add(layers.Dense("dense", 4))
    net.add(layers.Dense(5, name="dense_1"))
    net.add(layers.Dense(6))
    net.add(OwnScale(4))
    assert list(net.layers) == ["bidirectional", "sequential", "dense", "dense_1", "dense_2", "own_scale"]
    assert net.layers["dense_1"].num_output == 5
    inner = [name for name in net.param_names() if name.startswith("sequential/") and name.endswith("weight")]
    assert inner == ["sequential/dense/weight", "sequential/dense_1/weight"]


def test_a_net_says_of_what_it_is_made_and_compiled():
    net = small()
    count = 4 * 2 * 9 + 4 + 7 * 24 + 7 + 7 * 3 + 3
    assert all(word in repr(net) for word in (*net.layers, str(count), "not compiled"))
    net.compile(optimizer.SGD(lr=0.1), metric=["accuracy", metric.TopKAccuracy(2)])
    assert "not compiled" not in repr(net)
    assert all(word in repr(net) for word in ("SGD", "SoftmaxCrossEntropy", "Accuracy", "TopKAccuracy"))


RANDOM = np.random.default_rng(3)
IMAGES = RANDOM.integers(0, 256, (11, 2, 6, 5))
IDS = np.arange(11) % 3


WANTED = IMAGES.astype("f"), IDS


def test_what_predict_gives_is_read_as_an_array():
    net = small()
    given = net.predict(WANTED[0])
    wanted = np.asarray(given)
    assert len(given) == 11 and given.shape == (11, 3)
    for index in (0, -1, slice(2, 5), (slice(None), 1), (3, 2), [1, 4], wanted[:, 0] > 0, (..., None)):
        np.testing.assert_array_equal(given[index], wanted[index])
    np.testing.assert_array_equal(given.argmax(1), wanted.argmax(1))
    np.testing.assert_array_equal(np.stack(list(given)), wanted)
    np.testing.assert_array_equal(given.round(2), wanted.round(2))
    assert given.tolist() == wanted.tolist() and given.argmin() == wanted.argmin()
    for name in ("mean", "sum", "min", "max"):
        np.testing.assert_array_equal(getattr(given, name)(0), getattr(wanted, name)(0))
        assert getattr(given, name)() == getattr(wanted, name)()


def test_a_tensor_is_compared_with_numbers_and_arrays_by_elements():
    t, a = tensor.from_numpy(np.array([1.0, 2.0, 3.0], "f")), np.array([3.0, 2.0, 1.0], "f")
    other = tensor.from_numpy(a)
    for found, wanted in [
        (t == 2, [0, 1, 0]),
        (2 == t, [0, 1, 0]),  # noqa: SIM300, the number stands before it
        (t != a, [1, 0, 1]),
        (a == t, [0, 1, 0]),
        (t == [1, 2, 4], [1, 1, 0]),
        (t < 2, [1, 0, 0]),
        (a <= t, [0, 1, 1]),
        (t > other, [0, 0, 1]),
        (t >= other, [0, 1, 1]),
    ]:
        assert isinstance(found, np.ndarray) and found.dtype == bool and found.tolist() == list(map(bool, wanted))
    assert t == t and t != other and t in [other, t] and {t: 1, other: 2}[other] == 2
    assert t != "text" and t is not None and len({t, other}) == 2


def test_what_stands_on_a_tape_is_an_operation_and_what_can_be_none_is_refused():
    weight = small().parameters()["dense/weight"]
    for read in (lambda t: t[0], lambda t: t.mean(), lambda t: next(iter(t)), lambda t: t.max(0)):
        found = read(autograd.relu(weight))
        assert found.requires_grad and found.creator is not None
        np.testing.assert_allclose(found, read(np.maximum(weight, 0)), rtol=1e-6)
        np.testing.assert_array_equal(read(weight.detach()), read(np.asarray(weight)))
    for at in ([0, 1], np.asarray(weight) > 0, tensor.from_numpy(np.arange(2))):
        with pytest.raises(GraphError, match="detach"):
            autograd.relu(weight)[at]
        np.testing.assert_array_equal(weight.detach()[at], np.asarray(weight)[np.asarray(at)])
    with pytest.raises(GraphError, match="detach"):
        autograd.relu(weight).round()


def test_a_part_that_is_read_stays_as_it_was():
    weight = tensor.ones((3, 2))
    part, wanted = weight[1:], np.ones((2, 2))
    weight.copy_from_numpy(np.zeros((3, 2)))
    np.testing.assert_array_equal(part, wanted)


def held() -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=5)
    net.add(layers.Flatten(input_sample_shape=(2, 6, 5)))
    net.add(layers.Sequential([layers.Dense(5), layers.Activation(mode="tanh"), layers.Dense(4)]))
    net.add(layers.Dense(3))
    return net


def moved(net: FeedForwardNet) -> set[str]:
    before = {name: np.asarray(value) for name, value in net.parameters().items()}
    net.train_one_batch(WANTED[0] / 255, WANTED[1])
    return {name for name, value in net.parameters().items() if (np.asarray(value) != before[name]).any()}


@pytest.mark.filterwarnings("ignore:a step was recorded")
@pytest.mark.parametrize("graph", [True, False])
def test_a_layer_that_is_not_trainable_stays_as_it_is_from_now_on(graph, capsys):
    net = held()
    net.compile(optimizer.SGD(lr=0.1), graph=graph)
    names = set(net.param_names())
    inner = {name for name in names if name.startswith("sequential/")}
    assert moved(net) == names
    net.layers["sequential"].trainable = False
    assert moved(net) == names - inner
    assert "sequential (Sequential), not trained" in net.summary()
    net.layers["sequential"].layers["dense_1"].trainable = True
    assert moved(net) == names - {"sequential/dense/weight", "sequential/dense/bias"}
    net.layers["sequential"].trainable = True
    assert moved(net) == names and "not trained" not in net.summary()


class Untrained(layers.Sequential):
    """Its layers do not train, whenever they are added."""

    def __init__(self, name):
        super().__init__(name, [layers.Dense("first", 3)])
        self.trainable = False
        self.add_layer(layers.Dense("second", 2))


def test_a_layer_that_is_added_to_one_that_is_not_trainable_does_not_train_either():
    net = FeedForwardNet()
    net.add(layers.Input((4,)))
    net.add(Untrained("body"))
    inner = singa_lite.Sequential([layers.Dense("in", 3, input_sample_shape=(2,))])
    whole = layers.Net("whole", inner)
    whole.trainable = False
    net.add(whole)
    assert not any(value.stores_grad for value in net.parameters().values())


def test_a_layer_may_be_made_untrainable_before_it_is_added_and_a_configuration_keeps_it():
    net, block = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=5), layers.TransformerBlock(heads=2)
    block.trainable = False
    net.add(layers.Dense(4, input_sample_shape=(3, 2)))
    net.add(block)
    assert not any(p.stores_grad for p in block.param_values()) and len(block.param_values()) > 4
    assert all(p.stores_grad for p in net.layers["dense"].param_values())
    made = FeedForwardNet.from_config(net.config())
    assert not any(p.stores_grad for p in made.layers["transformer_block"].param_values())
    with pytest.raises(TypeError, match="trainable"):
        block.trainable = "no"


def orders(times: int, epochs: int) -> list[list[int]]:
    """Of each epoch, the samples in the order in which a dataset was asked for them."""
    net, seen = held(), []
    net.compile(optimizer.SGD(lr=0.01))

    class Noting(callbacks.Callback):
        def on_batch(self, training):
            if training.progress.batch == 1:
                seen.append(training.progress.order.tolist())

    for _ in range(times):
        net.fit(*WANTED, batch_size=4, epochs=epochs, verbose=False, callbacks=Noting())
    return seen


def test_fit_in_a_loop_shuffles_anew_and_the_same_in_each_run_of_the_script():
    looped, straight = orders(3, 1), orders(1, 3)
    assert len({tuple(order) for order in looped}) == 3 and all(sorted(order) == list(range(11)) for order in looped)
    assert orders(3, 1) == looped and looped[0] == straight[0]


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("on_epoch_end", r"on_epoch\("),
        ("on_train_begin", r"on_start\("),
        ("on_train_end", r"on_end\("),
        ("on_train_batch_end", r"on_batch\("),
        ("on_epoch_begin", "on_epoch of"),
    ],
)
@pytest.mark.parametrize("base", [callbacks.Callback, object])
def test_a_callback_with_a_method_of_keras_is_told_the_one_here(method, wanted, base):
    kind = type("Theirs", (base,), {method: lambda self, *args: None})
    net = held()
    net.compile(optimizer.SGD(lr=0.01))
    with pytest.raises(TypeError, match=wanted):
        net.fit(*WANTED, batch_size=4, verbose=False, callbacks=[kind()])
    assert net.optimizer.step == 0


READ = np.arange(6, dtype="f").reshape(2, 3) - 2


@pytest.mark.parametrize("name", ["sum", "mean", "min", "max", "amax", "std", "argmax", "median", "round"])
def test_numpys_functions_take_tensors(name):
    for options in ({},) if name == "round" else ({}, {"axis": 1}, {"axis": 0, "keepdims": True}):
        found = getattr(np, name)(tensor.from_numpy(READ), **options)
        np.testing.assert_array_equal(found, getattr(np, name)(READ, **options))


def test_a_sum_by_numpy_within_an_expression_is_an_operation():
    weight = tensor.from_numpy(READ)
    weight.stores_grad = True
    for found, gradient in autograd.backward(np.sum(weight * 3.0)):
        assert found is weight
        np.testing.assert_array_equal(gradient, np.full((2, 3), 3, "f"))
    with pytest.raises(TypeError, match="dtype"):
        np.mean(weight, dtype="float64")


def test_a_history_is_read_as_a_dict():
    net = small()
    net.compile(optimizer.SGD(lr=0.001))
    history = net.fit(IMAGES, IDS, epochs=2, verbose=False)
    assert "loss" in history and "val_loss" not in history and len(history) == 5
    assert list(history) == ["loss", "accuracy", "samples_per_second", "high_water", "lr"]
    assert dict(history) == history.history
    assert [len(values) for values in history.values()] == [2] * 5


MODULES = ["callbacks", "layers", "models", "parallel", "snapshots", "testing"]


@pytest.mark.parametrize("start", ["import singa_lite as s", "from singa_lite import *"])
def test_each_public_module_is_there_when_it_is_asked_for(start):
    names = [f"s.{name}" if start.endswith("as s") else name for name in MODULES]
    code = f"{start}; print(*[module.__name__ for module in ({', '.join(names)})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"singa_lite.{name}" for name in MODULES]


def test_the_errors_of_the_manual_are_at_hand():
    for name, kind in [("PlanError", ValueError), ("OutOfMemoryError", MemoryError), ("ShapeError", ValueError)]:
        assert issubclass(getattr(singa_lite, name), kind)
    with pytest.raises(AttributeError, match="no attribute 'layer_s'"):
        _ = singa_lite.layer_s
    net = small()
    net.compile(optimizer.SGD(lr=0.001))
    with pytest.raises(singa_lite.PlanError, match="1,000"):
        net.plan_batch(4, memory_budget=1000)
