"""Layers that hold layers: names, the walk layer by layer, and the same bits and plans as the same net written flat."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import singa_lite
from misuse import assert_refused, row
from mode_scripts import Twice
from nets import all_bits, assert_close, bits, differences, forward_and_loss, gradients_of, state_of
from singa_lite import FeedForwardNet, GraphError, Layer, ShapeError, Tensor, device, layers, loss, optimizer
from singa_lite import tensor as tensors

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((6, 5)).astype("f"), RNG.integers(0, 3, 6)

#: {name in the flat net: path in the nested one}.
PATHS = {
    "a": "block/a",
    "b": "block/inner/b",
    "norm": "block/inner/norm",
    "drop": "block/inner/drop",
    "c": "block/c",
    "scores": "scores",
}


def finished(net: FeedForwardNet, **options: Any) -> FeedForwardNet:
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(0.1, momentum=0.9), **options)
    return net


def flat(dtype: str = "f", **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), dtype=dtype, seed=2)
    first = net.add(layers.Dense("a", 7, input_sample_shape=(5,)))
    net.add(layers.Dense("b", 7))
    net.add(layers.LayerNormalization("norm"))
    net.add(layers.Activation("act", "gelu_tanh"))
    dropped = net.add(layers.Dropout("drop", 0.25))
    net.add(layers.Merge("sum"), [first, dropped])
    net.add(layers.Dense("c", 4))
    return finished(net, **options)


def nested(dtype: str = "f", **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), dtype=dtype, seed=2)
    inner = [
        layers.Dense("b", 7),
        layers.LayerNormalization("norm"),
        layers.Activation("act", "gelu_tanh"),
        layers.Dropout("drop", 0.25),
    ]
    parts = [layers.Dense("a", 7, input_sample_shape=(5,)), layers.Residual("inner", inner), layers.Dense("c", 4)]
    net.add(layers.Sequential("block", parts))
    return finished(net, **options)


def equal_pair(**options: Any) -> tuple[FeedForwardNet, FeedForwardNet]:
    """The flat net, and the nested one with its values."""
    one, other = flat(**options), nested(**options)
    theirs = {**other.parameters(), **other.states()}
    for name, value in {**one.parameters(), **one.states()}.items():
        layer, _, last = name.rpartition("/")
        theirs[f"{PATHS[layer]}/{last}"].copy_from_numpy(tensors.to_numpy(value))
    return one, other


def renamed(values: dict[str, Tensor]) -> dict[str, Any]:
    """`bits` by the names of the nested net."""
    return {f"{PATHS[name.rpartition('/')[0]]}/{name.rpartition('/')[2]}": bits(t) for name, t in values.items()}


def test_names_are_paths_at_any_depth():
    net = nested()
    assert list(net.all_layers()) == [
        *("block", "block/a", "block/inner", "block/inner/b", "block/inner/norm", "block/inner/act"),
        *("block/inner/drop", "block/c", "scores"),
    ]
    assert net.param_names()[:4] == ["block/a/weight", "block/a/bias", "block/inner/b/weight", "block/inner/b/bias"]
    assert list(net.states()) == ["block/inner/drop/random"]
    block = net.layers["block"]
    inner = block.layers["inner"].layers["b"]
    assert (inner.name, inner.path, repr(inner)) == ("b", "block/inner/b", "<Dense 'block/inner/b' -> (7,)>")
    assert block.parameters["inner/b/weight"] is inner.parameters["weight"]
    assert list(block.own_parameters) == []
    assert block.param_names() == net.param_names()[:-2]


def test_training_is_that_of_the_flat_net_bit_for_bit():
    one, other = equal_pair()
    for _ in range(3):
        ours, theirs = other.train_one_batch(X, Y), one.train_one_batch(X, Y)
        assert bits(ours[0]) == bits(theirs[0])
    assert renamed({**one.parameters(), **one.states()}) == all_bits({**other.parameters(), **other.states()})
    assert bits(other.predict_one_batch(X)) == bits(one.predict_one_batch(X))
    assert other.memory_plan.floor_bytes == one.memory_plan.floor_bytes
    assert other.memory_plan.arena_bytes == one.memory_plan.arena_bytes


def test_the_walk_yields_layer_by_layer_and_never_a_block_at_once():
    net = nested()
    seen, before = [], None
    for names, _, gradients, _ in net.backward(forward_and_loss(net, X, Y)):
        if before:
            with pytest.raises(GraphError, match="was given back"):
                tensors.to_numpy(before[0])
        seen.append(names)
        before = list(gradients)
    assert [names for names in seen if names] == [
        ["scores/weight", "scores/bias"],
        ["block/c/weight", "block/c/bias"],
        ["block/inner/norm/gamma", "block/inner/norm/beta"],
        ["block/inner/b/weight", "block/inner/b/bias"],
        ["block/a/weight", "block/a/bias"],
    ]
    assert len(seen) == len(net.all_layers())


@pytest.mark.parametrize("training", [False, True])
def test_outputs_of_layers_within(training):
    one, other = equal_pair()
    wanted = one.forward(training, X, ["a", "sum"])
    found = other.forward(training, X, ["block/a", "block/inner"])
    pairs = {"block/a": "a", "block/inner": "sum", "scores": "scores"}
    assert {name: bits(value) for name, value in found.items()} == {n: bits(wanted[pairs[n]]) for n in found}
    if training:  # and back from them
        ours = gradients_of(other.backward({"block/inner": np.ones((6, 7), "f")}))
        theirs = gradients_of(one.backward({"sum": np.ones((6, 7), "f")}))
        assert {name: bits(g) for name, g in ours.items()} == renamed(theirs)


# ---- options of nets that name layers


def test_rules_of_the_optimizer_see_parameters_within():
    net = nested()
    rules = optimizer.SGD(0.1)
    rules.register("block/inner/*", lr_mult=0)
    net.compile(rules)
    before = all_bits(net.parameters())
    net.train_one_batch(X, Y)
    kept = {name for name, value in all_bits(net.parameters()).items() if value == before[name]}
    assert kept == {f"block/inner/{name}" for name in ("b/weight", "b/bias", "norm/gamma", "norm/beta")}


class Swapped(Layer):
    """Runs its layers in another order than it has added them."""

    def __init__(self) -> None:
        super().__init__("swapped", input_sample_shape=(5,))
        self.second = self.add_layer(layers.Dense("second", 5))
        self.first = self.add_layer(layers.Dense("first", 5))

    def setup(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.set_up(self.second, self.set_up(self.first, shape))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        return self.run(self.second, training, self.run(self.first, training, x))


def test_a_frozen_layer_behind_one_that_trains_is_refused():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=1)
    net.add(Swapped())
    finished(net, freeze="swapped/first")
    before = all_bits(net.parameters())
    with pytest.raises(GraphError, match="swapped/second"):
        net.train_one_batch(X, Y)
    net.discard_step()
    assert all_bits(net.parameters()) == before


@pytest.mark.filterwarnings("ignore::singa_lite.errors.PrecisionWarning")
def test_layers_within_that_are_kept_in_float32():
    options = {"precision": "bfloat16", "graph": True}
    one, other = equal_pair(**options)
    inner = [*[*PATHS][:-1], "act", "sum"]
    one.compile(optimizer.SGD(0.1), float32_layers=inner, **options)
    other.compile(optimizer.SGD(0.1), float32_layers=["block"], **options)
    narrow = equal_pair(**options)[1]
    losses = [[bits(net.train_one_batch(X, Y)[0]) for _ in range(3)] for net in (one, other, narrow)]
    assert losses[0] == losses[1] != losses[2]
    with pytest.raises(ValueError, match="block/x"):
        nested(precision="bfloat16", float32_layers=["block/x"])


def test_shared_blocks_that_run_a_layer_twice_train_as_one():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), dtype="float64", seed=1)
    net.add(layers.Dense("start", 6, input_sample_shape=(5,)))
    first = net.add(Twice("first"))
    net.add(layers.Activation("act", "tanh"))
    net.add(Twice("second").share_parameters(first))
    finished(net)
    assert [name for name in net.param_names() if name.startswith("second")] == []
    x = X.astype("float64")
    found = gradients_of(net.backward(forward_and_loss(net, x, Y)))
    for name in ("first/inner/weight", "first/inner/bias", "first/scale"):
        assert_close(found[name], differences(lambda: net.evaluate_one_batch(x, Y)[0].item(), net.parameters()[name]))
    assert net.parameters()["first/inner/weight"] is net.layers["second"].layers["inner"].parameters["weight"]


def test_an_option_of_a_layer_within_that_is_changed_is_seen():
    nets = nested(), nested(graph=False)
    for net in nets:
        net.train_one_batch(X, Y)
        net.layers["block"].layers["inner"].layers["drop"].p = 0.6
        net.train_one_batch(X, Y)
    assert state_of(nets[0]) == state_of(nets[1])


# ---- what is refused


class Free(Layer):
    """Does in each part what it is told to."""

    def __init__(self, init: Any = None, setup: Any = None, forward: Any = None) -> None:
        super().__init__("free", input_sample_shape=(3,))
        self.d = layers.Dense("d", 2)
        self._setup, self._forward = setup, forward
        if init:
            init(self)

    def setup(self, shape: tuple[int, ...]) -> Any:
        return self._setup(self, shape) if self._setup else self.set_up(self.d, shape)

    def forward(self, training: bool, x: Tensor) -> Any:
        return self._forward(self, x) if self._forward else self.run(self.d, training, x)


def held(own: Any) -> None:
    own.add_layer(own.d)


def adding(*parts: Any) -> Any:
    def call() -> object:
        net = FeedForwardNet(device=device.new_cpu(), seed=0)
        net.add(Free(*parts))
        return net.forward(True, np.ones((2, 3), "f"))

    return call


def refused_in_init(*actions: Any) -> Any:
    return lambda: Free(lambda own: [action(own) for action in actions])


def reused() -> None:
    dense = layers.Dense("d", 2, input_sample_shape=(3,))
    layers.Sequential("s", [dense])
    FeedForwardNet().add(dense)


def within_itself() -> None:
    one, other = Free(), Free()
    one.add_layer(other)
    other.add_layer(one)


def late(net_layer: Layer) -> Any:
    FeedForwardNet(device=device.new_cpu()).add(net_layer)
    return net_layer.add_layer(layers.Dense("late", 2))


ROWS = {
    "no layer": row(refused_in_init(lambda own: own.add_layer("d")), TypeError, "'free'", "received str"),
    "a name twice": row(
        refused_in_init(held, lambda own: own.add_layer(layers.Flatten("d"))), GraphError, "'d'", "of a layer that is"
    ),
    "one within itself": row(within_itself, GraphError, "another layer", "'free'"),
    "a layer that is held, in a net": row(reused, GraphError, "no other holds", "'s/d'"),
    "after setup": row(lambda: late(Free(held)), GraphError, "'free'", "afterwards"),
    "never set up": row(adding(held, lambda own, shape: shape), GraphError, "'free'", "set_up()", "['d']"),
    "set up twice": row(
        adding(held, lambda own, shape: [own.set_up(own.d, shape), own.set_up(own.d, shape)]),
        GraphError,
        "'free/d'",
        "once",
    ),
    "set up without being held": row(adding(), GraphError, "'free'", "set_up", "add_layer", "'d'"),
    "other shapes than it wants": row(
        adding(
            lambda own: setattr(own, "d", own.add_layer(layers.Dense("d", 2, input_sample_shape=(4,)))),
        ),
        ShapeError,
        "'free/d'",
        "[(4,)]",
        "[(3,)]",
        "'free'",
    ),
    "several outputs": row(
        adding(
            lambda own: setattr(own, "d", own.add_layer(layers.Split("split", 2))),
            lambda own, shape: own.set_up(own.d, shape),
        ),
        ShapeError,
        "'free/split'",
        "one output",
        "received 2",
        "set_up_several()",
    ),
    "freeze of no layer": row(lambda: nested(freeze="block/x"), GraphError, "'block/x'"),
    "output of no layer within": row(lambda: nested().forward(False, X, ["block/x"]), GraphError, "'block/x'"),
}


@pytest.mark.parametrize("one", ROWS.values(), ids=ROWS)
def test_misuse(one):
    assert_refused(one)


def test_a_setup_that_fails_takes_back_what_it_has_added():
    class Growing(Layer):
        fails = True

        def setup(self, shape: tuple[int, ...]) -> tuple[int, ...]:
            made = self.set_up(self.add_layer(layers.Dense("d", 2)), shape)
            if self.fails:
                raise ShapeError("wanted more, received less")
            return made

        def forward(self, training: bool, x: Tensor) -> Tensor:
            return self.run(self.layers["d"], training, x)

    net, layer = FeedForwardNet(device=device.new_cpu(), seed=0), Growing("grows", input_sample_shape=(3,))
    with pytest.raises(ShapeError):
        net.add(layer)
    assert (list(layer.layers), list(net.layers), net.device.pool.used) == ([], [], 0)
    layer.fails = False
    net.add(layer)
    assert net.param_names() == ["grows/d/weight", "grows/d/bias"]


def test_a_hundred_layers_within_each_other(tmp_path):
    layer = layers.Dense("inner", 3)
    for _ in range(100):
        layer = layers.Sequential("s", [layer])
    net = FeedForwardNet(loss.SquaredError(), seed=1)
    net.add(layers.Dummy("x", input_sample_shape=(3,)))
    net.add(layer)
    net.compile(optimizer.SGD(0.001))
    x = np.ones((4, 3), "f")
    net.train_one_batch(x, x)
    net.save(tmp_path / "net.h5")
    for made in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), singa_lite.load(tmp_path / "net.h5")):
        assert bits(made.predict(x)) == bits(net.predict(x))
    assert len(net.param_names()) == 2 and net.summary()
