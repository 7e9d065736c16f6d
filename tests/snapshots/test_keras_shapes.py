"""Files in Keras's layout that claim nets that cannot be: names, shapes, numbers of axes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from keras_files import assert_refused, remade
from singa_lite import FeedForwardNet, Layer, SnapshotError, layers, snapshots
from singa_lite.snapshots import formats, net_tree, tree
from singa_lite.snapshots.formats import native


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.weights.h5"


def saved(path: Path, *added: Layer) -> None:
    net = FeedForwardNet(seed=3)
    for layer in added:
        net.add(layer)
    snapshots.save(net, path)


def attribute(name: str, change: Callable[[list[Any]], Any]) -> Callable[[dict[str, Any]], None]:
    """Change what `layers` or `wiring` of a manifest say."""

    def do(contents: dict[str, Any]) -> None:
        told = json.loads(contents["attributes"][name])
        change(told)
        contents["attributes"][name] = json.dumps(told)

    return do


@pytest.mark.parametrize("second", ["a", 3, ["a"], None])
def test_two_layers_of_one_name_or_of_none(path, second):
    saved(path, layers.Dense("a", 5, input_sample_shape=(3,)), layers.Activation("b"))
    remade(path, attribute("layers", lambda told: told[1].__setitem__(0, second)))
    assert_refused(path, "two layers 'a'" if second == "a" else "a layer .* of class 'Activation'")


def test_no_layers(path):
    contents = tree.Tree({}, {"format": "singa_lite", "version": 2, "entries": 0, "layers": "[]", "wiring": "[]"})
    formats.write(contents, path)
    with formats.opened(path) as source:
        assert not source.specs


@pytest.mark.parametrize("shape", [[2**63], [1] * 65, [10**400], [2**62, 0]])
def test_a_sample_that_numpy_cannot_have(path, shape):
    saved(path, layers.Flatten("a", input_sample_shape=(3, 2)))
    remade(path, attribute("wiring", lambda told: told[0].update(outputs=[shape])))
    assert_refused(path, "attributes 'layers' and 'wiring'.*a shape")


CONV1D = layers.Conv1D, {"nb_kernels": 6, "input_sample_shape": (4, 9)}
DEPTHWISE = layers.Conv1D, {"nb_kernels": 6, "groups": 3, "input_sample_shape": (3, 9)}
CONV2D = layers.Conv2D, {"nb_kernels": 6, "input_sample_shape": (4, 9, 9)}
DENSE = layers.Dense, {"num_output": 5, "input_sample_shape": (3,)}
NORM = layers.BatchNormalization, {"input_sample_shape": (3,)}
LAYER_NORM = layers.LayerNormalization, {"input_sample_shape": (3,)}

#: A layer, one of its arrays, and a shape that no such array has.
MISFITS = [
    (CONV1D, "parameters/a/weight", (6, 4, 2, 3)),
    (CONV1D, "parameters/a/weight", (6, 4, 3)),
    (CONV1D, "parameters/a/bias", (6, 1)),
    (DEPTHWISE, "parameters/a/weight", (5, 1, 1, 3)),
    (DEPTHWISE, "parameters/a/weight", (6, 1, 3, 1)),
    (CONV2D, "parameters/a/weight", (6, 4, 9)),
    (CONV2D, "parameters/a/weight", ()),
    (DENSE, "parameters/a/weight", (15,)),
    (DENSE, "parameters/a/weight", (3, 5, 1)),
    (DENSE, "parameters/a/bias", (5, 1)),
    (DENSE, "parameters/a/bias", ()),
    (NORM, "parameters/a/gamma", (3, 1)),
    (NORM, "state/a/running_var", ()),
    (LAYER_NORM, "parameters/a/beta", ()),
]


@pytest.mark.parametrize(("made", "entry", "shape"), MISFITS)
def test_a_shape_that_no_such_layer_has_names_the_entry(made, entry, shape, path):
    """When it is read, and when a native file is converted."""
    kind, options = made
    saved(path, kind("a", **options))
    remade(path, lambda contents: contents["entries"][entry].__setitem__(0, list(shape)))
    wanted = rf"layer 'a' \({kind.__name__}\) has no form in Keras: the shape .* of '{entry}'"
    assert_refused(path, wanted)
    contents = net_tree.of_net(net_of_one(kind("a", **options)))
    contents.arrays[entry] = tree.LazyArray(shape, np.dtype("f4"), lambda: np.zeros(shape, "f4"))
    native.save(contents, path.with_name("net.h5"))
    with formats.opened(path.with_name("net.h5")) as source, pytest.raises(SnapshotError, match=wanted):
        formats.write(source, path)


def net_of_one(layer: Layer) -> FeedForwardNet:
    net = FeedForwardNet(seed=3)
    net.add(layer)
    return net


@pytest.mark.parametrize(
    ("group", "shapes", "wrong"),
    [
        ("dense", [(3, 5), ()], r"\(\)"),
        ("dense", [(3,), (5,)], r"\(3,\)"),
        ("batch_normalization", [(3,), (3,), (3, 1), (3,)], r"\(3, 1\)"),
        ("conv1d", [(3, 2, 4), (4, 1)], r"\(4, 1\)"),
        ("layer_normalization", [(), ()], r"\(\)"),
    ],
)
def test_a_file_of_keras_s_with_a_shape_that_no_such_layer_has(path, group, shapes, wrong):
    with h5py.File(path, "w") as file:
        for number, shape in enumerate(shapes):
            file[f"layers/{group}/vars/{number}"] = np.zeros(shape, "f4")
    assert_refused(path, rf"group 'layers/{group}' of layer '{group}': the shape {wrong} of ")


def test_rows_without_columns_may_be_any_number(path):
    """They take no bytes in a file; their order in Keras would take eight each."""
    rows = 2 * 10**6 * 10**6
    told = {"layers": [["f", "Flatten"], ["d", "Dense"]], "wiring": []}
    told["wiring"] = [{"inputs": [[2, 10**6, 10**6]], "outputs": [[rows]], "sources": []}]
    told["wiring"] += [{"inputs": [[rows]], "outputs": [[1]], "sources": [["f", 0]]}]
    array = np.zeros((rows, 0), "f4")
    contents = tree.Tree({"parameters/d/weight": tree.LazyArray(array.shape, array.dtype, lambda: array)})
    contents.attributes = {"format": "singa_lite", "version": 2, "entries": 1}
    contents.attributes |= {name: json.dumps(value) for name, value in told.items()}
    formats.write(contents, path)
    with formats.opened(path) as source:
        assert source.read("parameters/d/weight").shape == (rows, 0)
