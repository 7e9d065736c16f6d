"""Nets written down and made again: configurations, whole files, pickles."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from typing import Any

import joblib
import numpy as np
import pytest

import singa_lite
import skips
from every_row import over_rows
from layer_cases import CASES
from singa_lite import (
    FeedForwardNet,
    Layer,
    autograd,
    initializer,
    layers,
    loss,
    metric,
    optimizer,
    regularizer,
    schedule,
)
from singa_lite.errors import ConfigError, SnapshotError

x = np.random.default_rng(0).uniform(-1, 1, (6, 3, 8, 7)).astype(np.float32)
y = np.array([0, 3, 1, 2, 3, 0])


def a_net(dtype="float32") -> FeedForwardNet:
    """Layers with options, shared parameters, layers within layers, two ways that meet again."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), dtype=dtype, seed=7)
    start = net.add(layers.Conv2D("conv", 4, (3, 2), 2, pad=(1, 0), input_sample_shape=(3, 8, 7)))
    norm = net.add(layers.BatchNormalization("norm", momentum=0.2))
    other = net.add(layers.Dropout("drop", 0.3), start)
    net.add(layers.Concat("both", 1), [norm, other])
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("wide", 6, weight_init=initializer.Uniform(-0.5, 0.25)))
    net.add(layers.Residual("around", [layers.Dense("in", 6, bias_init=0.1), layers.Activation("gelu", "gelu")]))
    net.add(layers.Dense("again", 6))
    net.add(layers.Dense("scores", 4, weight_init="he_normal"))
    return net


def an_optimizer() -> optimizer.Optimizer:
    """With a schedule, and rules by name."""
    made = optimizer.SGD(schedule.Step(0.1, [3, 5], 0.5), momentum=0.9, regularizer=regularizer.L2Regularizer(0.01))
    made.register("*/bias", lr_mult=2.0, decay_mult=0.0)
    made.register("scores/*", constraint=regularizer.NormConstraint(3.0))
    return made


def again(net: FeedForwardNet, **options) -> FeedForwardNet:
    """Through JSON's text."""
    return FeedForwardNet.from_config(json.loads(json.dumps(net.config())), **options)


def values(net: FeedForwardNet) -> dict[str, np.ndarray]:
    held = {**net.parameters(), **net.states()}
    return {name: np.asarray(held[name]) for name in held}


def same(one, other) -> None:
    ours, theirs = values(one), values(other)
    assert list(ours) == list(theirs)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def layer_is_made_again(key: str) -> None:
    case = CASES[key]
    net = FeedForwardNet(dtype="float64" if key == "Net" else "float32", seed=3)
    layer = case.make()
    ids = layer.input_ids is not None or "PaddingMask" in key
    if len(case.shapes) == 1:
        layer.input_sample_shapes = [case.shapes[0]]
        net.add(layer)
    else:
        fed = [net.add(layers.Dummy(f"in{n}", shape), []) for n, shape in enumerate(case.shapes)]
        net.add(layer, fed)
    for made in (again(net), pickle.loads(pickle.dumps(net))):
        same(net, made)
        given = {n: _batch(shape, ids).astype(int if ids else net.dtype) for n, shape in net.input_shapes().items()}
        for one, two in zip(_outputs(net, given), _outputs(made, given), strict=True):
            np.testing.assert_array_equal(one, two)
        assert made.config() == net.config()


def test_every_layer_is_made_again():
    over_rows(layer_is_made_again, ((key, (key,)) for key in CASES if not key.startswith(("TiedDense", "Lambda"))))


def test_a_tied_head_is_tied_again(tmp_path):
    net = FeedForwardNet("softmax_cross_entropy", seed=2)
    table = net.add(layers.Embedding(7, 4, input_sample_shape=(3,)))
    net.add(layers.TiedDense(table))
    net.save(tmp_path / "net.h5")
    ids = np.array([[0, 6, 2], [1, 1, 5]])
    for made in (again(net), pickle.loads(pickle.dumps(net)), singa_lite.load(tmp_path / "net.h5")):
        assert made.param_names() == net.param_names()
        np.testing.assert_array_equal(made.predict(ids), net.predict(ids))


def test_a_function_with_a_name_is_pickled_and_one_without_says_so(tmp_path):
    net = FeedForwardNet()
    net.add(layers.Lambda(autograd.tanh, input_sample_shape=(3,)))
    given = np.float32([[1, -2, 0.5]])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict(given), net.predict(given))
    net.add(layers.Lambda(lambda x: x * x))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(net)
    with pytest.raises(ConfigError, match="layer 'lambda'"):
        net.config()


def test_numbers_that_were_taken_from_data_and_names_left_out_are_kept(tmp_path):
    net = FeedForwardNet()
    net.add(layers.Normalization(input_sample_shape=(3,))).adapt(np.random.default_rng(2).normal(2, 3, (9, 3)))
    net.add(layers.Dense(4))
    net.add(layers.Dense(2))
    net.save(tmp_path / "net.h5")
    given = np.float32([[1, -2, 0.5], [0, 4, 9]])
    for made in (again_with_values(net), pickle.loads(pickle.dumps(net)), singa_lite.load(tmp_path / "net.h5")):
        assert list(made.layers) == ["normalization", "dense", "dense_1"]
        np.testing.assert_array_equal(made.predict(given), net.predict(given))
        made.add(layers.Dense(2))
        assert "dense_2" in made.layers


def again_with_values(net: FeedForwardNet) -> FeedForwardNet:
    made = again(net)
    for name, value in (net.parameters() | net.states()).items():
        (made.parameters() | made.states())[name].copy_from_numpy(np.asarray(value))
    return made


def kinds(module, base) -> list[type]:
    """The classes of a module that can be made."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)]
    return [kind for kind in dict.fromkeys(found) if not inspect.isabstract(kind) and kind not in BASES]


BASES = (loss.Loss, metric.Metric, metric.EpochMetric, optimizer.Optimizer)
#: Arguments without defaults.
NEEDED = {metric.Precision: (2,), metric.Recall: (2,)}


def optimizer_is_made_again(kind: Any) -> None:
    net = FeedForwardNet("softmax_cross_entropy", seed=2)
    net.add(layers.Dense(4, input_sample_shape=(3,)))
    net.compile(kind(0.05), graph=False)
    samples = np.random.default_rng(1).normal(size=(6, 3)).astype("f")
    net.train_one_batch(samples, y)
    made = pickle.loads(pickle.dumps(net))
    for one in (net, made):
        one.train_one_batch(samples, y)
    same(net, made)
    assert type(made.optimizer) is kind and made.config() == net.config()


def loss_or_metric_is_made_again(kind: Any) -> None:
    of = "loss" if issubclass(kind, loss.Loss) else "metric"
    given = kind(*NEEDED.get(kind, ()))
    net = FeedForwardNet(**{of: given})
    net.add(layers.Dense(2, input_sample_shape=(3,)))
    for made in (again(net), pickle.loads(pickle.dumps(net))):
        assert type(getattr(made, of)) is kind
        assert getattr(made, of).given_arguments == given.given_arguments
        assert made.config() == net.config()


def test_every_optimizer_loss_and_metric_is_made_again():
    over_rows(optimizer_is_made_again, ((kind.__name__, (kind,)) for kind in kinds(optimizer, optimizer.Optimizer)))
    measures = kinds(loss, loss.Loss) + kinds(metric, metric.Metric)
    over_rows(loss_or_metric_is_made_again, ((kind.__name__, (kind,)) for kind in measures))


@pytest.mark.parametrize("given", [["accuracy", metric.TopKAccuracy(2)], {"dense": [metric.F1(), "accuracy"]}])
def test_metrics_in_lists_and_by_output_are_made_again(given, tmp_path):
    net = FeedForwardNet("softmax_cross_entropy", given, seed=2)
    net.add(layers.Dense(4, input_sample_shape=(3,)))
    net.compile(optimizer.SGD(0.1), loss_weights={"dense": 2.0})
    samples = np.random.default_rng(1).normal(size=(6, 3)).astype("f")
    net.save(tmp_path / "net.h5")
    for made in (pickle.loads(pickle.dumps(net)), singa_lite.load(tmp_path / "net.h5")):
        assert made.config() == net.config()
        assert made.evaluate(samples, y) == net.evaluate(samples, y)


def _batch(shape, ids):
    numbers = np.random.default_rng(1)
    return numbers.integers(0, 4, (2, *shape)) if ids else numbers.uniform(-1, 1, (2, *shape)).astype(np.float32)


def _outputs(net, given):
    found = net.forward(False, given)
    found = list(found.values()) if isinstance(found, dict) else [found]
    return [np.asarray(t) for entry in found for t in (entry if isinstance(entry, list) else [entry])]


def test_a_net_that_was_made_again_trains_to_equal_bits():
    net = a_net()
    net.compile(an_optimizer(), memory_budget="64 MiB", clip_global_norm=2.0, accumulate=2)
    made = again(net)
    same(net, made)
    for _ in range(8):
        assert float(net.train_one_batch(x, y)[0]) == float(made.train_one_batch(x, y)[0])
    same(net, made)
    assert (made.clip_global_norm, made.accumulate, made.optimizer.lr) == (2.0, 2, net.optimizer.lr)


def test_what_was_changed_after_construction_is_kept():
    net = a_net()
    net.layers["drop"].p = 0.1
    net.layers["scores"].parameters["bias"].stores_grad = False
    net.compile(optimizer.SGD(0.1, momentum=0.9))
    net.optimizer.settings["momentum"] = 0.5
    net.optimizer.lr = 0.02
    net.freeze, net.on_nan, net.loss_weights = {"conv"}, "warn", {"scores": 3.0}
    made = again(net)
    assert made.layers["drop"].p == 0.1
    assert not made.layers["scores"].parameters["bias"].stores_grad
    assert (made.optimizer.settings, made.optimizer.lr) == (net.optimizer.settings, 0.02)
    assert (set(made.freeze), made.on_nan, made.loss_weights) == ({"conv"}, "warn", {"scores": 3.0})
    for each in (net, made):
        each.train_one_batch(x, y)
    same(net, made)
    assert copy.deepcopy(net).config() == net.config()


def test_parameters_that_are_shared_are_shared_again():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Embedding("ids", 9, 4, input_sample_shape=(5,)))
    first = net.add(layers.Dense("first", 4))
    net.add(layers.Dense("second", 4).share_parameters(first))
    net.add(layers.TiedDense("head", net.layers["ids"]))
    made = again(net)
    assert made.param_names() == net.param_names() == ["ids/weight", "first/weight", "first/bias"]
    same(net, made)


def test_a_source_that_is_named_before_it_is_added_stays_so():
    net = FeedForwardNet(seed=1)
    net.add(layers.Activation("late"), "early")
    net.add(layers.Dense("early", 3, input_sample_shape=(2,)), [])
    made = again(net)
    assert list(made.layers) == ["late", "early"]
    same(net, made)


def test_a_file_opens_without_the_script(tmp_path):
    net = a_net()
    net.compile(an_optimizer())
    net.train_one_batch(x, y)
    for suffix in (".h5", ".npz", ".safetensors"):
        net.save(tmp_path / f"net{suffix}")
        made = singa_lite.load(tmp_path / f"net{suffix}")
        same(net, made)
        assert made.optimizer.step == 1
    assert float(net.train_one_batch(x, y)[0]) == float(made.train_one_batch(x, y)[0])
    same(net, made)


class Twice(Layer):
    """x times a number that the user gives."""

    def __init__(self, name, factor=2.0, function=None, *, input_sample_shape=None):
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.factor = factor
        self.function = function

    def setup(self, shape):
        return shape

    def forward(self, training, x):
        return x * self.factor if self.function is None else self.function(x)


def of_own_layer(**options) -> FeedForwardNet:
    net = FeedForwardNet(seed=2)
    net.add(Twice("twice", 3.0, input_sample_shape=(2,), **options))
    net.add(layers.Dense("d", 3))
    return net


def test_own_classes_are_named_by_whoever_opens_the_file(tmp_path):
    net = of_own_layer()
    net.save(tmp_path / "net.h5")
    made = singa_lite.load(tmp_path / "net.h5", custom={"Twice": Twice})
    assert made.layers["twice"].factor == 3.0
    same(net, made)
    for open_it in (lambda: singa_lite.load(tmp_path / "net.h5"), lambda: again(net)):
        with pytest.raises(ConfigError, match="'Twice'"):
            open_it()


def test_what_cannot_be_written_down_is_named_and_pickled(tmp_path):
    net = of_own_layer(function=autograd.relu)
    with pytest.raises(ConfigError, match=r"layer 'twice'.*function"):
        net.config()
    net.save(tmp_path / "net.h5")  # values can be kept all the same
    net.load(tmp_path / "net.h5")
    with pytest.raises(SnapshotError, match="layer 'twice'"):
        singa_lite.load(tmp_path / "net.h5", custom={"Twice": Twice})
    made = pickle.loads(pickle.dumps(net))
    assert made.layers["twice"].function is autograd.relu
    same(net, made)
    net.save(tmp_path / "w.safetensors", weights_only=True)
    with pytest.raises(SnapshotError, match="configuration"):
        singa_lite.load(tmp_path / "w.safetensors")


def test_a_pickled_net_goes_on_to_equal_bits(tmp_path):
    net = a_net()
    net.compile(an_optimizer())
    net.train_one_batch(x, y)
    joblib.dump(net, tmp_path / "net.joblib")
    for made in (pickle.loads(pickle.dumps(net)), joblib.load(tmp_path / "net.joblib")):
        net_again = copy.deepcopy(net)
        same(net, made)
        assert float(net_again.train_one_batch(x, y)[0]) == float(made.train_one_batch(x, y)[0])
        same(net_again, made)


def test_outputs_of_inner_layers_over_all_samples():
    net = a_net()
    whole = net.predict(x, batch_size=4, output=["flat", "around/in"])
    assert set(whole) == {"flat", "around/in", "scores"}
    inner = net.forward(False, x, output=["flat", "around/in"])
    for name in whole:
        np.testing.assert_allclose(np.asarray(whole[name]), np.asarray(inner[name]), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(net.predict(x, 4)), np.asarray(whole["scores"]))


def test_some_layers_of_a_file(tmp_path):
    net, other = a_net(), a_net()
    for parameter in net.param_values():
        parameter.copy_from_numpy(np.full(parameter.shape, 0.5, np.float32))
    net.save(tmp_path / "net.h5")
    before = values(other)
    left = other.load(tmp_path / "net.h5", layers=["conv", "around/in"])
    assert (left.missing, left.differing) == ((), ())
    assert "scores/weight" in left.unused
    for name, value in values(other).items():
        taken = name.startswith(("conv/", "around/in/"))
        np.testing.assert_array_equal(value, 0.5 if taken else before[name], err_msg=name)
    with pytest.raises(singa_lite.GraphError, match="nowhere"):
        other.load(tmp_path / "net.h5", layers=["nowhere"])


def test_what_a_partial_load_of_another_programs_file_did_not_use(tmp_path):
    library = skips.library("safetensors.numpy")
    net = FeedForwardNet(seed=1)
    net.add(layers.Dense("body", 4, input_sample_shape=(3,)))
    net.add(layers.BatchNormalization("norm"))
    ones = {"body.weight": np.ones((4, 3), "f4"), "body.bias": np.ones(4, "f4"), "head.weight": np.ones((9, 4), "f4")}
    others = {"norm.num_batches_tracked": np.ones((), "i8"), "cls": np.ones(2, "f4")}
    library.save_file(ones | others, tmp_path / "a.safetensors")
    left = net.load(tmp_path / "a.safetensors", strict=False)
    assert sorted(left.unused) == ["cls", "head.weight", "norm.num_batches_tracked"]
    assert "norm/gamma" in left.missing
    assert sorted(net.load(tmp_path / "a.safetensors", layers=["body"]).unused) == sorted(left.unused)
    arrays = {"parameters/body/bias": ones["body.bias"], "other/x": np.ones(2), "optimizer": np.ones(1)}
    np.savez(tmp_path / "a.npz", **arrays)
    assert sorted(net.load(tmp_path / "a.npz", strict=False).unused) == ["optimizer", "other/x"]


def test_a_partial_load_of_nothing_warns(tmp_path):
    net, other = FeedForwardNet(seed=0), FeedForwardNet(seed=1)
    net.add(layers.Dense("one", 5, input_sample_shape=(3,)))
    other.add(layers.Dense("two", 5, input_sample_shape=(3,)))
    other.add(layers.Dropout("drop"))
    net.save(tmp_path / "net.h5")
    before = values(other)
    with pytest.warns(UserWarning, match=r"net\.h5.*one/weight"):
        left = other.load(tmp_path / "net.h5", strict=False)
    assert left.unused == ("one/bias", "one/weight") and left.missing == ("two/weight", "two/bias", "drop/random")
    for name, value in values(other).items():
        np.testing.assert_array_equal(value, before[name])


def test_what_fits_of_a_file(tmp_path):
    net = FeedForwardNet(seed=0)
    net.add(layers.Dense("body", 5, input_sample_shape=(3,)))
    net.add(layers.Dense("old", 2))
    net.save(tmp_path / "net.npz")
    other = FeedForwardNet(seed=1)
    other.add(layers.Dense("body", 5, input_sample_shape=(3,)))
    other.add(layers.BatchNormalization("norm"))
    other.add(layers.Dense("old", 4))
    with pytest.raises(SnapshotError):
        other.load(tmp_path / "net.npz")
    left = other.load(tmp_path / "net.npz", strict=False)
    assert "norm/gamma" in left.missing
    assert left.differing == ("old/weight", "old/bias")
    assert left.unused == ()
    np.testing.assert_array_equal(values(other)["body/weight"], values(net)["body/weight"])
    with pytest.raises(ValueError, match="optimizer"):
        other.load(tmp_path / "net.npz", True, strict=False)
    with pytest.raises(SnapshotError, match="norm/gamma"):
        other.load(tmp_path / "net.npz", layers=["norm"])
