"""Nets written down and made again: configurations, whole files, pickles."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import singa_lite
import skips
from every_row import over_rows
from layer_cases import CASES
from nets import all_bits, bits
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


def held(net: FeedForwardNet) -> dict[str, Any]:
    return net.parameters() | net.states()


def same(one: FeedForwardNet, other: FeedForwardNet) -> None:
    assert list(held(one)) == list(held(other))
    assert all_bits(held(one)) == all_bits(held(other))


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
        for each in (net, made):  # no form of a net holds the bytes of quantised weights
            for name, frozen in each.frozen().items():
                of, _, own = name.partition("/")
                each.layers[of].set_frozen(own, np.full(frozen.shape, 0x2C, np.uint8))
        given = {n: _batch(shape, ids).astype(int if ids else net.dtype) for n, shape in net.input_shapes().items()}
        for one, two in zip(_outputs(net, given), _outputs(made, given), strict=True):
            np.testing.assert_array_equal(one, two)
        assert made.config() == net.config()


def test_every_layer_is_made_again():
    over_rows(layer_is_made_again, ((key, (key,)) for key in CASES if not key.startswith(("TiedDense", "Lambda"))))


# --- whole nets, by every way ------------------------------------------------------------------------------


def trained() -> FeedForwardNet:
    net = a_net()
    net.compile(an_optimizer(), memory_budget="64 MiB", clip_global_norm=2.0, accumulate=2)
    for _ in range(4):
        net.train_one_batch(x, y)
    return net


def tied_and_shared() -> FeedForwardNet:
    """A head that is a table, a parameter that two layers have, a source that is named before it is added."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), seed=1)
    table = net.add(layers.Embedding("ids", 4, 4, input_sample_shape=(5,)))
    net.add(layers.TiedDense("head", table), "late")
    net.add(layers.Activation("late"), "second")
    first = net.add(layers.Dense("first", 4), "ids")
    net.add(layers.Dense("second", 4).share_parameters(first), "first")
    return net


def of_data_and_unnamed() -> FeedForwardNet:
    net = FeedForwardNet("softmax_cross_entropy", {"dense_1": [metric.F1(), "accuracy"]})
    net.add(layers.Normalization(input_sample_shape=(3,))).adapt(np.random.default_rng(2).normal(2, 3, (9, 3)))
    net.add(layers.Dense(4))
    net.add(layers.Dense(4))
    net.compile(optimizer.Adam(0.1), loss_weights={"dense_1": 2.0})
    return net


IDS = np.random.default_rng(1).integers(0, 4, (6, 5))
NETS: dict[str, tuple[Any, Any, Any]] = {
    "trained": (trained, x, y),
    "tied and shared": (tied_and_shared, IDS, IDS),
    "of data and unnamed": (of_data_and_unnamed, np.random.default_rng(1).normal(size=(6, 3)).astype("f"), y),
}


def joblibbed(net: FeedForwardNet, folder: Path) -> FeedForwardNet:
    joblib.dump(net, folder / "net.joblib")
    return joblib.load(folder / "net.joblib")


def by_file(suffix: str) -> Callable[[FeedForwardNet, Path], FeedForwardNet]:
    def made(net: FeedForwardNet, folder: Path) -> FeedForwardNet:
        net.save(folder / f"net{suffix}")
        return singa_lite.load(folder / f"net{suffix}")

    return made


def by_text(net: FeedForwardNet, folder: Path) -> FeedForwardNet:
    """Of the configuration and the values; an optimizer begins anew."""
    made = again(net)
    for name, value in held(net).items():
        held(made)[name].copy_from_numpy(np.asarray(value))
    return made


WAYS: dict[str, Callable[[FeedForwardNet, Path], FeedForwardNet]] = {
    "text": by_text,
    "pickle": lambda net, folder: pickle.loads(pickle.dumps(net)),
    "joblib": joblibbed,
    **{suffix: by_file(suffix) for suffix in (".h5", ".npz", ".safetensors")},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETS)
def test_a_net_is_made_again_and_goes_on_to_equal_bits(name, way, tmp_path):
    make, given, targets = NETS[name]
    net = make()
    made = WAYS[way](net, tmp_path)
    same(net, made)
    assert made.config() == net.config()
    assert list(made.layers) == list(net.layers) and made.param_names() == net.param_names()
    assert made.evaluate(given, targets) == net.evaluate(given, targets)
    if net.optimizer and way != "text":
        assert made.optimizer.step == net.optimizer.step
        for _ in range(2):
            assert float(net.train_one_batch(given, targets)[0]) == float(made.train_one_batch(given, targets)[0])
        same(net, made)


# --- every optimizer, loss and metric ------------------------------------------------------------------------


def kinds(module, base) -> list[type]:
    """The classes of a module that can be made."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)]
    return [kind for kind in dict.fromkeys(found) if not inspect.isabstract(kind) and kind not in BASES]


BASES = (loss.Loss, metric.Metric, metric.EpochMetric, optimizer.Optimizer)
#: Arguments without defaults.
NEEDED = {metric.Precision: (2,), metric.Recall: (2,)}


def is_made_again(kind: Any) -> None:
    of = "loss" if issubclass(kind, loss.Loss) else "metric" if issubclass(kind, metric.Metric) else "optimizer"
    given = kind(*NEEDED.get(kind, (0.05,) if of == "optimizer" else ()))
    net = FeedForwardNet(**({} if of == "optimizer" else {of: given}))
    net.add(layers.Dense(2, input_sample_shape=(3,)))
    if of == "optimizer":
        net.compile(given, "mse")
        net.train_one_batch(np.ones((6, 3), "f"), np.zeros((6, 2), "f"))
    for made in (again(net), pickle.loads(pickle.dumps(net))):
        assert type(getattr(made, of)) is kind
        arguments = dict(getattr(made, of).given_arguments)
        arguments.pop("others", None)  # Muon's other optimizer: a configuration names the usual one too
        assert arguments == given.given_arguments
        assert made.config() == net.config()
    assert of != "optimizer" or all_bits_of(made.optimizer) == all_bits_of(given)


def all_bits_of(opt: optimizer.Optimizer) -> dict[str, Any]:
    return {name: all_bits(slots) for name, slots in opt.state.items()}


def test_every_optimizer_loss_and_metric_is_made_again():
    every = kinds(loss, loss.Loss) + kinds(metric, metric.Metric) + kinds(optimizer, optimizer.Optimizer)
    over_rows(is_made_again, ((kind.__name__, (kind,)) for kind in every))


def test_a_function_with_a_name_is_pickled_and_one_without_says_so():
    net = FeedForwardNet()
    net.add(layers.Lambda(autograd.tanh, input_sample_shape=(3,)))
    given = np.float32([[1, -2, 0.5]])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict(given), net.predict(given))
    net.add(layers.Lambda(lambda x: x * x))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(net)


def _batch(shape, ids):
    numbers = np.random.default_rng(1)
    return numbers.integers(0, 4, (2, *shape)) if ids else numbers.uniform(-1, 1, (2, *shape)).astype(np.float32)


def _outputs(net, given):
    found = net.forward(False, given)
    found = list(found.values()) if isinstance(found, dict) else [found]
    return [np.asarray(t) for entry in found for t in (entry if isinstance(entry, list) else [entry])]


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


def test_outputs_of_inner_layers_over_all_samples():
    net = a_net()
    whole = net.predict(x, batch_size=4, output=["flat", "around/in"])
    assert set(whole) == {"flat", "around/in", "scores"}
    inner = net.forward(False, x, output=["flat", "around/in"])
    for name in whole:
        np.testing.assert_allclose(np.asarray(whole[name]), np.asarray(inner[name]), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(net.predict(x, 4)), np.asarray(whole["scores"]))


def test_some_layers_of_a_file_and_what_fits_of_it(tmp_path):
    net, other = a_net(), a_net()
    for parameter in net.param_values():
        parameter.copy_from_numpy(np.full(parameter.shape, 0.5, np.float32))
    net.save(tmp_path / "net.h5")
    before = all_bits(held(other))
    left = other.load(tmp_path / "net.h5", layers=["conv", "around/in"])
    assert (left.missing, left.differing) == ((), ()) and "scores/weight" in left.unused
    for name, value in held(other).items():
        taken = name.startswith(("conv/", "around/in/"))
        assert (np.asarray(value) == 0.5).all() if taken else bits(value) == before[name], name
    with pytest.raises(singa_lite.GraphError, match="nowhere"):
        other.load(tmp_path / "net.h5", layers=["nowhere"])
    fitting = FeedForwardNet(seed=1)
    fitting.add(layers.Conv2D("conv", 4, (3, 2), 2, pad=(1, 0), input_sample_shape=(3, 8, 7)))
    fitting.add(layers.PReLU("new"))
    fitting.add(layers.Flatten("flat"))
    fitting.add(layers.Dense("wide", 9))
    with pytest.raises(SnapshotError):
        fitting.load(tmp_path / "net.h5")
    left = fitting.load(tmp_path / "net.h5", strict=False)
    assert "new/alpha" in left.missing and set(left.differing) == {"wide/weight", "wide/bias"}
    assert (np.asarray(held(fitting)["conv/weight"]) == 0.5).all() and np.any(held(fitting)["wide/weight"] != 0.5)
    with pytest.raises(ValueError, match="optimizer"):
        fitting.load(tmp_path / "net.h5", True, strict=False)
    with pytest.raises(SnapshotError, match="new/alpha"):
        fitting.load(tmp_path / "net.h5", layers=["new"])
    strange = FeedForwardNet(seed=1)
    strange.add(layers.Dense("two", 5, input_sample_shape=(3,)))
    with pytest.warns(UserWarning, match="conv/weight"):
        left = strange.load(tmp_path / "net.h5", strict=False)
    assert left.missing == ("two/weight", "two/bias")


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


class Nameless(Twice):
    """x times a number, by a constructor that takes no name."""

    def __init__(self, factor):
        super().__init__(None, factor)


def test_layers_whose_constructor_takes_no_name_are_made_again(tmp_path):
    net = FeedForwardNet(seed=2)
    net.add(layers.Dense("d", 3, input_sample_shape=(2,)))
    for factor in (3.0, 5.0):
        net.add(Nameless(factor))
    net.save(tmp_path / "net.h5")
    made = singa_lite.load(tmp_path / "net.h5", custom={"Nameless": Nameless})
    assert list(made.layers) == list(net.layers) == ["d", "nameless", "nameless_1"]
    assert [made.layers[name].factor for name in ("nameless", "nameless_1")] == [3.0, 5.0]
    same(net, made)
    assert made.config() == net.config()


def test_what_was_changed_of_layers_within_others_is_kept():
    net = FeedForwardNet(seed=2)
    net.add(layers.TransformerBlock("block", 2, dropout=0.5, input_sample_shape=(4, 6)))
    cell = layers.GRU(3, 0.5, 2, return_sequences=True)
    cell.weight_init = 0.25
    net.add(layers.Bidirectional("both", cell))
    net.add(layers.Sequential("last", [layers.Dropout("drop", 0.5), layers.Dense("dense", 2)]))
    net.layers["block"].layers["attention_dropout"].p = 0.25
    net.layers["block"].layers["hidden"].trainable = False
    net.layers["both"].layers["backward"].dropout = 0.125
    net.layers["last"].layers["drop"].p = 0.75
    net.layers["last"].trainable = False
    net.layers["last"].layers["dense"].trainable = True
    made = again(net)
    assert made.layers["block"].layers["attention_dropout"].p == 0.25
    assert not made.layers["block"].layers["hidden"].parameters["weight"].stores_grad
    assert made.layers["block"].layers["output"].parameters["weight"].stores_grad
    assert [made.layers["both"].layers[name].dropout for name in ("forward", "backward")] == [0.5, 0.125]
    assert (np.asarray(made.layers["both"].parameters["forward/weight_ih_l0"]) == 0.25).all()
    assert made.layers["last"].layers["drop"].p == 0.75
    assert made.layers["last"].layers["dense"].trainable and not made.layers["last"].layers["drop"].trainable
    assert made.config() == net.config()


def test_what_was_changed_within_a_layer_whose_input_is_added_after_it_is_kept():
    net = FeedForwardNet(seed=2)
    net.add(layers.SwiGLU("glu", 3), src="block")
    net.add(layers.TransformerBlock("block", 2), src="x")
    net.add(layers.Input((4, 6), name="x"), src=[])
    net.layers["block"].layers["hidden"].trainable = False
    made = again(net)
    assert not made.layers["block"].layers["hidden"].trainable
    assert not made.layers["block"].layers["hidden"].parameters["weight"].stores_grad
    assert made.config() == net.config()


def test_a_configuration_is_written_without_making_a_layer(monkeypatch):
    net = a_net()
    net.layers["drop"].p = 0.1
    with monkeypatch.context() as patched:
        patched.setattr(Layer, "__init__", lambda *_, **__: pytest.fail("a layer was made"))
        config = net.config()
    assert FeedForwardNet.from_config(config).config() == config


def test_a_constructor_that_takes_no_keywords_has_no_configuration(tmp_path):
    class Positional(Twice):
        def __init__(self, *numbers):
            super().__init__("positional", sum(numbers))

    net = FeedForwardNet()
    net.add(layers.Dense("d", 3, input_sample_shape=(2,)))
    net.add(Positional(1.0, 2.0))
    with pytest.raises(ConfigError, match="layer 'positional': wanted a constructor that takes keywords"):
        net.config()
    net.save(tmp_path / "net.h5", weights_only=True)


def test_a_constructor_that_was_given_unnamed_arguments_has_no_configuration():
    class HandedOn(layers.Dense):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)

    net = FeedForwardNet()
    net.add(HandedOn(num_output=3, input_sample_shape=(2,)))
    assert net.config()
    net.add(HandedOn(4))
    with pytest.raises(ConfigError, match=r"layer 'handed_on_1': wanted a constructor .*, received one of \*arguments"):
        net.config()


def test_what_was_changed_of_layers_of_a_net_within_is_kept():
    part = FeedForwardNet(seed=2)
    dense = layers.Dense("dense", 3, input_sample_shape=(2,))
    dense.weight_init = 0.5
    part.add(dense)
    part.add(layers.Dropout("drop", 0.5))
    net = FeedForwardNet(seed=2)
    net.add(layers.Net("part", part))
    net.layers["part"].layers["drop"].p = 0.25
    made = again(net)
    assert (made.layers["part"].layers["drop"].p, made.layers["part"].net.layers["drop"].p) == (0.25, 0.5)
    assert (np.asarray(made.layers["part"].parameters["dense/weight"]) == 0.5).all()
    assert made.config() == net.config()
