"""The tree of a net: what it holds, and strict restoring from any tree; here from a dict."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from nets import explicit_step, forward_and_loss, state_of
from singa_lite import FeedForwardNet, OutOfMemoryError, SnapshotError, device, layers, loss, optimizer, snapshots
from singa_lite import tensor as tensors
from singa_lite.snapshots import net_tree
from snapshot_nets import OPTIMIZERS, batches, make_net, train, trained


class Memory:
    """A snapshot in memory, as `net_tree.restore` takes one. A read fails once `reads` have been done."""

    def __init__(self, net: FeedForwardNet) -> None:
        contents = net_tree.of_net(net)
        self.path = "memory.x"
        self.arrays: dict[str, Any] = {path: entry.fetch() for path, entry in contents.arrays.items()}
        self.attributes: dict[str, Any] = dict(contents.attributes)
        self.reads: int | None = None

    def read(self, path: str) -> np.ndarray:
        if self.reads is not None:
            if self.reads == 0:
                raise SnapshotError(f"{self.path}: entry {path!r} cannot be read")
            self.reads -= 1
        return self.arrays[path]


@cache
def once_trained() -> FeedForwardNet:
    """`trained()` for many tests, which only read it."""
    return trained()


# ---- what the tree holds

LAYERS = [
    *(["conv", "Conv2D"], ["norm", "BatchNormalization"], ["relu", "Activation"], ["drop", "Dropout"]),
    *(["flat", "Flatten"], ["dense", "Dense"], ["first", "Dense"], ["second", "Dense"]),
]


@pytest.mark.parametrize("compiled", [None, "SGD with momentum"])
def test_paths_and_attributes(compiled):
    net = trained(compiled, steps=2) if compiled else make_net()
    contents, slots = net_tree.of_net(net), ("velocity", "count") if compiled else ()
    assert set(contents.arrays) == {
        *(f"parameters/{name}" for name in ("conv/weight", "conv/bias", "norm/gamma", "norm/beta")),
        *(f"parameters/{name}" for name in ("dense/weight", "dense/bias", "first/weight", "first/bias")),
        *(f"state/{name}" for name in ("norm/running_mean", "norm/running_var", "drop/random")),
        *(f"optimizer/{name}/{slot}" for name in net.param_names() for slot in slots),
    }
    attributes = dict(contents.attributes)
    assert json.loads(attributes.pop("layers")) == LAYERS
    assert (
        len(json.loads(attributes.pop("wiring"))) == len(json.loads(attributes.pop("config"))["layers"]) == len(LAYERS)
    )
    more = {"optimizer": "SGD", "step": 2} if compiled else {}
    assert attributes == {"format": "singa_lite", "version": 2, "entries": 11 + 8 * len(slots), **more}


@pytest.mark.parametrize("key", ["nobody/weight", None])
def test_optimizer_state_that_belongs_to_no_name_of_the_net_is_refused(key):
    net = trained("Adam", steps=1)
    stranger = tensors.ones((2, 3))
    stranger.name = "nobody/weight"
    net.optimizer.update(key, stranger, tensors.ones((2, 3)))
    with pytest.raises(SnapshotError, match="nobody/weight"):
        net_tree.of_net(net)


# ---- half a step


def half_a_step(net: FeedForwardNet, count: int) -> Any:
    """Update the last `count` layers with parameters; the generator."""
    x, y = batches(1)[0]
    walk = net.backward(forward_and_loss(net, x, y))
    for names, values, gradients, _ in walk:
        for name, value, gradient in zip(names, values, gradients, strict=True):
            net.optimizer.update(name, value, gradient)
        count -= bool(names)
        if not count:
            return walk
    raise AssertionError("the net has fewer layers with parameters")


@pytest.mark.parametrize(("count", "layer"), [(1, "first"), (2, "dense"), (4, "conv")])
@pytest.mark.parametrize("close", [True, False], ids=["closed", "open"])
def test_half_a_step_is_refused(count, layer, close):
    net = trained()
    walk = half_a_step(net, count)
    if close:
        walk.close()
    with pytest.raises(SnapshotError, match=f"'{layer}'"):
        net_tree.of_net(net)


def test_restoring_clears_half_a_step():
    net = trained()
    before, source = state_of(net), Memory(net)
    half_a_step(net, 2).close()
    assert state_of(net) != before
    net_tree.restore(net, source, None)
    assert state_of(net) == before
    net_tree.of_net(net)
    whole = trained()
    assert train(net, batches(2)) == train(whole, batches(2))
    assert state_of(net) == state_of(whole)


# ---- restoring


@pytest.mark.parametrize("compiled", OPTIMIZERS)
def test_a_source_from_before_the_first_step_starts_the_optimizer_anew(compiled):
    """State of parameters that were not updated yet is not in the file; the net's own must not stay."""
    source = Memory(make_net(compiled, seed=8))
    assert not [path for path in source.arrays if path.startswith("optimizer/")]
    net, wanted = trained(compiled), make_net(compiled, seed=8)
    net_tree.restore(net, source, None)
    assert net.optimizer.step == 0
    assert train(net, batches(2)) == train(wanted, batches(2))
    assert state_of(net) == state_of(wanted)


def test_a_frozen_layer_has_no_optimizer_state_and_gets_none():
    def frozen(seed: int) -> FeedForwardNet:
        net = make_net(seed=seed)
        net.compile(optimizer.Adam(), freeze="dense")
        return net

    net, other = frozen(3), frozen(8)
    train(net, batches(2))
    net_tree.restore(other, Memory(net), None)
    assert state_of(other) == state_of(net)
    assert set(other.optimizer.state) == {"dense/weight", "dense/bias", "first/weight", "first/bias"}


def test_the_optimizer_may_be_left_out():
    source, net = make_net("SGD", seed=5), trained("Adam", seed=8, steps=1)
    wanted = state_of(net) | state_of(source) | {"step": 1}
    net_tree.restore(net, Memory(source), False)
    assert state_of(net) == wanted


def test_a_net_that_is_not_compiled_takes_parameters_and_state():
    source, net = Memory(trained("Adam")), make_net(seed=8)
    net_tree.restore(net, source, None)
    wanted = make_net()
    net_tree.restore(wanted, Memory(trained("Adam")), False)
    assert state_of(net) == state_of(wanted)
    with pytest.raises(SnapshotError, match=r"memory\.x"):
        net_tree.restore(net, source, True)


# ---- strictness: each error names source and entry, and changes nothing


def without(*paths: str) -> Callable[[Memory], object]:
    return lambda source: [source.arrays.pop(path) for path in paths]


def having(path: str, array: Any) -> Callable[[Memory], object]:
    return lambda source: source.arrays.update({path: np.asarray(array)})


def told(**attributes: Any) -> Callable[[Memory], object]:
    """With these attributes; None: without."""
    return lambda source: source.attributes.update(attributes)


MOMENT = "optimizer/dense/weight/first_moment"
SLOTS = [f"optimizer/dense/weight/{slot}" for slot in ("first_moment", "second_moment", "count")]

#: What is wrong with the source; the error names the first word, or what stands behind the colon.
REFUSED: dict[str, Callable[[Memory], object]] = {
    **{f"{name}: missing": without(name) for name in ("parameters/conv/bias", "state/norm/running_var", MOMENT)},
    "state/drop/random: missing": without("state/drop/random"),
    "35 entries: missing slots of a parameter": without(*SLOTS),
    **{
        f"{name}: one more": having(name, [1])
        for name in (
            *("parameters/conv/scale", "parameters/last/bias", "state/conv/random", "notes", "optimizer"),
            *("optimizer/dense/weight/velocity", "optimizer/last/bias/count"),
        )
    },
    "parameters/second/bias: shared, twice": having("parameters/second/bias", np.ones(6)),
    "parameters/dense/weight: shape": having("parameters/dense/weight", np.ones((60, 7), "f4")),
    "parameters/dense/weight: transposed": having("parameters/dense/weight", np.ones((6, 60), "f4")),
    "state/norm/running_var: shape": having("state/norm/running_var", np.ones((1, 3), "f4")),
    "optimizer/conv/bias/count: shape": having("optimizer/conv/bias/count", [1]),
    "parameters/norm/beta: dtype": having("parameters/norm/beta", np.ones(3)),
    "parameters/norm/beta: byte order": having("parameters/norm/beta", np.ones(3, ">f4")),
    "state/drop/random: dtype": having("state/drop/random", np.ones(3, "i8")),
    "optimizer/conv/bias/count: dtype": having("optimizer/conv/bias/count", 1.0),
    **{f"format: {given}": told(format=given) for given in (None, "keras", np.array(["singa_lite"]))},
    **{f"version: {given}": told(version=given) for given in (3, 0, None, "1")},
    **{f"step: {given}": told(step=given) for given in (None, -1, 2.5)},
    "entries: none": told(entries=None),
    **{f"optimizer Adam: {given}": told(optimizer=given) for given in ("AdamW", None, np.array(["Adam"]))},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_and_changes_nothing(name):
    source, net = Memory(once_trained()), trained(seed=8, steps=2)
    REFUSED[name](source)
    before = state_of(net)
    with pytest.raises(SnapshotError, match=rf"^memory\.x: .*{name.split(':')[0]}"):
        net_tree.restore(net, source, None)
    assert state_of(net) == before


@pytest.mark.parametrize(
    ("written", "reading", "culprit"),
    [
        ("SGD", "SGD with momentum", "optimizer/conv/weight/velocity"),
        ("SGD with momentum", "SGD", "optimizer/conv/weight/velocity"),
        ("SGD with momentum", "Nesterov", "Nesterov, received SGD"),
        ("Adam", "AdamW", "AdamW, received Adam"),
    ],
)
def test_optimizers_that_differ(written, reading, culprit):
    source, net = Memory(trained(written, steps=1)), trained(reading, seed=8, steps=1)
    before = state_of(net)
    with pytest.raises(SnapshotError, match=culprit):
        net_tree.restore(net, source, None)
    assert state_of(net) == before


def test_an_entry_that_cannot_be_read_changes_nothing():
    source, net = Memory(trained()), make_net("Adam", seed=8)
    before = state_of(net)
    for reads in range(len(source.arrays)):
        source.reads = reads
        with pytest.raises(SnapshotError, match="entry"):
            net_tree.restore(net, source, None)
        assert state_of(net) == before, f"after {reads} reads"


def test_a_file_that_changes_between_looking_and_taking_is_told():
    """Only one array at a time is in memory, so a part of it is in the net then."""
    source = Memory(trained())
    source.reads = len(source.arrays) + 2
    with pytest.raises(SnapshotError, match="changed while it was read"):
        net_tree.restore(make_net("Adam", seed=8), source, None)


def test_too_little_memory_for_the_optimizer_s_state_changes_nothing():
    def large(seed: int) -> FeedForwardNet:
        net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=seed)
        net.add(layers.Dense("small", 300, input_sample_shape=(2,)))
        net.add(layers.Dense("large", 1100))
        net.compile(optimizer.Adam())
        return net

    net, other = large(3), large(8)
    x, y = np.ones((1, 2), "f4"), np.ones((1, 1100), "f4")
    explicit_step(net, x, y)
    source, before, pool = Memory(net), state_of(other), other.device.pool
    pool.release_free()
    pool.set_limit(pool.total + 2 * 1100 * 300 * 4 - 64)
    with pytest.raises(OutOfMemoryError):
        net_tree.restore(other, source, None)
    assert state_of(other) == before
    assert not other.optimizer.state
    pool.set_limit(None)
    net_tree.restore(other, source, None)
    assert state_of(other) == state_of(net)


# ---- nets of other kinds


def test_checkpoints_and_maps_are_known_before_they_are_imported():
    assert {"Checkpoint", "checkpoint", "latest", "load", "maps", "save"} <= set(dir(snapshots))
    with pytest.raises(AttributeError, match="no attribute 'newest'"):
        snapshots.newest  # noqa: B018
