"""Weights in the layout of Keras 3: against files made by hand with h5py, and against Keras itself."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import skips
import snapshot_nets
from keras_files import remade
from keras_nets import (
    ALIKE,
    NETS,
    STEPS,
    branches,
    deep,
    depthwise_by_groups,
    halves,
    images,
    inputs_of,
    net_of,
    predicted,
    randomized,
)
from singa_lite import FeedForwardNet, Layer, SnapshotError, layers, snapshots
from singa_lite.snapshots import formats, net_tree, tree, weights_tree
from singa_lite.snapshots.formats.keras import groups as keras_groups
from singa_lite.snapshots.formats.keras import net as keras_net
from singa_lite.snapshots.formats.keras import orders as keras_orders
from singa_lite.tensor import to_numpy


def graph(seed: int) -> FeedForwardNet:
    """Any graph of Dense layers, some of them shared, and sums, with several inputs and outputs."""
    rng = np.random.default_rng(seed)
    net = FeedForwardNet(seed=3)
    for number in range(2):
        net.add(layers.Dummy(f"in {number}", (3,)), [])
    for number in range(int(rng.integers(4, 14))):
        names = [name for name in net.layers if not isinstance(net.layers[name], layers.Split)]
        first, second = (str(name) for name in rng.choice(names, 2, replace=False))
        owners = [one for one in net.layers.values() if isinstance(one, layers.Dense) and one.shared_with is None]
        kind = rng.choice(["dense", "sum", "shared", "split"])
        if kind == "sum":
            net.add(layers.Merge(f"{number}"), [first, second])
        elif kind == "split":
            net.add(layers.Split(f"{number}", 2), first)
            net.add(layers.Merge(f"{number} sum"), [(f"{number}", 0), (f"{number}", 1)])
        elif kind == "shared" and owners:
            net.add(layers.Dense(f"{number}", 3).share_parameters(owners[int(rng.integers(len(owners)))]), first)
        else:
            net.add(layers.Dense(f"{number}", 3), first)
    return net


GRAPHS = range(40)


# ---- with Keras


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which Keras, in a process of its own, has loaded and saved all models."""
    if find_spec("keras") is None or find_spec("torch") is None:
        pytest.skip("wants Keras and its backend PyTorch, pip install keras torch")
    folder = tmp_path_factory.mktemp("keras")
    for make in NETS:
        net, name = randomized(make()), make.__name__
        last = {
            key: array if name in ALIKE or array.ndim == 2 else np.moveaxis(array, 1 + (name in STEPS), -1)
            for key, array in inputs_of(net).items()
        }
        np.savez(folder / f"{name}.npz", **{f"{number}": array for number, array in enumerate(last.values())})
        if make is not deep:
            snapshots.save(net, folder / f"{name}.ours.weights.h5")
    (folder / "graphs.json").write_text(json.dumps([net_tree.of_net(graph(seed)).attributes for seed in GRAPHS]))
    script = Path(__file__).with_name("keras_models.py")
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.peer
@pytest.mark.parametrize("make", [make for make in NETS if make is not deep])
def test_keras_loads_ours(make, peer):
    tolerance = 2e-2 if make is halves else 1e-5
    found = np.load(peer / f"{make.__name__}.loaded.npy")
    np.testing.assert_allclose(found, predicted(randomized(make())), tolerance, tolerance)


@pytest.mark.peer
@pytest.mark.parametrize("make", NETS)
def test_keras_is_loaded_here(make, peer):
    net = make()
    snapshots.load(net, peer / f"{make.__name__}.theirs.weights.h5")
    tolerance = 2e-2 if make is halves else 1e-5
    np.testing.assert_allclose(np.load(peer / f"{make.__name__}.theirs.npy"), predicted(net), tolerance, tolerance)


@pytest.mark.peer
def test_a_depthwise_class_is_read_into_groups(peer):
    net = depthwise_by_groups()
    snapshots.load(net, peer / "depthwise.theirs.weights.h5")
    np.testing.assert_allclose(np.load(peer / "depthwise.theirs.npy"), predicted(net), 1e-5, 1e-5)


def test_a_file_of_the_version_before_has_a_depthwise_class(tmp_path, monkeypatch):
    net, other, path = depthwise_by_groups(), depthwise_by_groups(), tmp_path / "x.weights.h5"
    with monkeypatch.context() as patch:
        patch.setattr(keras_groups.groups_of_net, "__defaults__", (True,))
        snapshots.save(randomized(net), path)
    with h5py.File(path) as file:
        assert "conv2d" not in file["layers"] and "depthwise_conv2d" in file["layers"]
    snapshots.load(other, path)
    np.testing.assert_array_equal(predicted(other), predicted(net))


def listing(path: Path) -> dict[str, Any]:
    """All groups and datasets but our own: shapes and dtypes, and which attributes there are."""
    found: dict[str, Any] = {}

    def note(name: str, member: Any) -> None:
        form = (member.shape, member.dtype, member.chunks) if isinstance(member, h5py.Dataset) else None
        found[name] = form, sorted(member.attrs)

    with h5py.File(path) as file:
        found["/"] = sorted(file.attrs)
        file.visititems(note)
    return {name: form for name, form in found.items() if not name.startswith(("singa_lite", "optimizer"))}


@pytest.mark.peer
@pytest.mark.parametrize("make", [make for make in NETS if make not in (deep, halves)])
def test_the_same_groups_as_keras_writes(make, peer):
    ours, theirs = (listing(peer / f"{make.__name__}.{who}.weights.h5") for who in ("ours", "theirs"))
    assert ours == theirs


@pytest.mark.peer
def test_the_order_of_any_graph_is_that_of_keras(peer):
    wanted = json.loads((peer / "orders.json").read_text())
    for seed, names in zip(GRAPHS, wanted, strict=True):
        assert keras_net.keras_order(described(graph(seed))) == names, seed


# ---- files made by hand


def write(path: Path, groups: dict[str, tuple[str | None, list[np.ndarray]]]) -> Path:
    """A file with these groups: {path: (name, arrays)}."""
    with h5py.File(path, "w") as file:
        for place, (name, arrays) in groups.items():
            made = file.create_group(f"{place}/vars")
            if name is not None:
                made.attrs["name"] = name
            for number, array in enumerate(arrays):
                made[str(number)] = array
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.weights.h5"


def uniform(*shape: int, seed: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def two() -> FeedForwardNet:
    return net_of(layers.Dense("a", 5, input_sample_shape=(3,)), layers.Dense("b", 4))


TWO = {"layers/dense": ("x", [uniform(3, 5), uniform(5)]), "layers/dense_1": ("y", [uniform(5, 4), uniform(4)])}


def values(net: FeedForwardNet) -> dict[str, np.ndarray]:
    return {name: to_numpy(tensor) for name, tensor in (net.parameters() | net.states()).items()}


def test_kernels_and_rows_are_laid_out_anew(path):
    kernel, rows = uniform(2, 3, 4, 5), uniform(3 * 2 * 5, 6)
    arrays = {"layers/conv2d": (None, [kernel, uniform(5)]), "layers/dense": (None, [rows, uniform(6)])}
    net = net_of(
        layers.Conv2D("conv", 5, (2, 3), 1, "valid", input_sample_shape=(4, 4, 4)),
        layers.Flatten("flat"),
        layers.Dense("dense", 6),
    )
    snapshots.load(net, write(path, arrays))
    found = values(net)
    np.testing.assert_array_equal(found["conv/weight"], np.einsum("hwck->kchw", kernel))
    np.testing.assert_array_equal(
        found["dense/weight"], np.einsum("hwcn->chwn", rows.reshape(3, 2, 5, 6)).reshape(30, 6)
    )
    snapshots.save(net, path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["layers/conv2d/vars/0"], kernel)
        np.testing.assert_array_equal(file["layers/dense/vars/0"], rows)
        assert file["layers/flatten/vars"].attrs["name"] == "flat"
        assert file["vars"].attrs["name"] == "sequential"


def test_names_where_the_file_has_them_all_else_numbers(path):
    (_, first), (_, second) = TWO.values()
    net = net_of(layers.Dense("a", 5, input_sample_shape=(5,)), layers.Dense("b", 5))
    a, b = [uniform(5, 5), uniform(5)], [uniform(5, 5, seed=5), uniform(5, seed=6)]
    snapshots.load(net, write(path, {"layers/dense": ("b", b), "layers/dense_1": ("a", a)}))
    np.testing.assert_array_equal(values(net)["a/weight"], a[0])
    snapshots.load(net, write(path, {"layers/dense": ("b", b), "layers/dense_1": ("c", a)}))
    np.testing.assert_array_equal(values(net)["a/weight"], b[0])
    nested = {"layers/sequential/layers/dense": ("a", first), "head": ("b", second)}
    net = two()
    snapshots.load(net, write(path, nested))
    np.testing.assert_array_equal(values(net)["b/bias"], second[1])


def test_the_optimizer_and_what_is_private_are_left_out(path):
    net = two()
    snapshots.load(net, write(path, TWO | {"optimizer": ("adam", [np.int32(3)]), "_tracker": (None, [uniform(2)])}))
    np.testing.assert_array_equal(values(net)["a/weight"], TWO["layers/dense"][1][0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", ">f4"])
def test_narrower_and_swapped_floats(dtype, path):
    if dtype == "bfloat16":
        bits = uniform(3, 5).view("u4") >> 16
        stored, wanted = bits.astype("u2").view("V2"), (bits << 16).view("f4")
    else:
        stored = uniform(3, 5).astype(dtype)
        wanted = stored.astype("f4")
    with h5py.File(write(path, TWO), "r+") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = stored
        if dtype == "bfloat16":
            file["layers/dense/vars/0"].attrs["dtype"] = dtype
    net = two()
    snapshots.load(net, path)
    np.testing.assert_array_equal(values(net)["a/weight"], wanted)
    with formats.opened(path) as source:
        assert source.read("parameters/x/weight").dtype == ("f2" if dtype == "float16" else "f4")


def test_a_net_of_another_dtype(path):
    double = net_of(layers.Dense("a", 5, input_sample_shape=(3,)), layers.Dense("b", 4), dtype="float64")
    snapshots.load(double, write(path, TWO))
    np.testing.assert_array_equal(values(double)["a/weight"], TWO["layers/dense"][1][0].astype("f8"))
    snapshots.save(double, path)
    with pytest.raises(SnapshotError, match="'parameters/a/weight': wanted float32, received float64"):
        snapshots.load(two(), path)


def replaced(**arrays: Any) -> dict[str, Any]:
    return TWO | {f"layers/{name}": value for name, value in arrays.items()}


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ({"layers/dense": TWO["layers/dense"]}, r"wanted a group 'layers/dense_1' for layer 'b'.*'layers/dense'"),
        (replaced(dense_2=("z", [uniform(2)])), r"group 'layers/dense_2' of layer 'z', for which there is no place"),
        (replaced(dense=("x", [uniform(3, 4)])), r"shapes \(\(3, 5\), \(5,\)\) for layer 'a', received \(\(3, 4\),\)"),
        (replaced(dense=("x", [uniform(3, 5)])), r"shapes \(\(3, 5\), \(5,\)\) for layer 'a', received \(\(3, 5\),\)"),
        ({"layers/dense/vars/0": ("x", [])}, "wanted a group 'layers/dense'"),
        (
            {"dense/dense": ("x", []), **TWO, "layers/dense/vars": ("x", [uniform(1)])},
            "a group 'layers/dense/vars' of layer 'x', for which",
        ),
    ],
)
def test_a_file_of_another_net(groups, wanted, path):
    with pytest.raises(SnapshotError, match=wanted):
        snapshots.load(two(), write(path, groups))


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("layers/dense/vars/3", r"group 'layers/dense': wanted arrays numbered from 0, received \[0, 1, 3\]"),
        ("layers/dense/vars/01", "entry 'layers/dense/vars/01': wanted layers as Keras 3 has them"),
        ("layers/dense/kernel", "entry 'layers/dense/kernel': wanted layers as Keras 3 has them"),
        ("vars/0", "entry 'vars/0': wanted layers as Keras 3 has them"),
        ("singa_lite/other", "wanted an entry 'singa_lite/manifest', received none"),
        ("singa_lite/manifest", r"wanted a manifest of bytes, received \(2,\) float32"),
    ],
)
def test_a_dataset_in_another_place(place, wanted, path):
    with h5py.File(write(path, TWO), "r+") as file:
        file[place] = uniform(2)
    with pytest.raises(SnapshotError, match=wanted):
        snapshots.load(two(), path)


def test_bytes_without_a_meaning(path):
    with h5py.File(write(path, TWO), "r+") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = np.zeros((3, 5), "V2")
    with pytest.raises(SnapshotError, match="'layers/dense/vars/0': wanted numbers"):
        snapshots.load(two(), path)


def test_other_files(path):
    with pytest.raises(FileNotFoundError):
        snapshots.load(two(), path)
    path.write_bytes(b"PK")
    with pytest.raises(SnapshotError, match="HDF5"):
        snapshots.load(two(), path)


# ---- parts of a file of Keras's


@pytest.mark.parametrize("names", [("a", "b"), ("x", "y"), ("x", "other")])
@pytest.mark.parametrize("options", [{"strict": False}, {"layers": [0]}])
def test_what_fits_of_a_file_of_another_head(names, options, path):
    net = net_of(layers.Dense(names[0], 5, input_sample_shape=(3,)), layers.Dense(names[1], 2))
    before = values(net)
    if "layers" in options:
        options = {"layers": [names[0]]}
    left = net.load(write(path, TWO | {"optimizer": ("adam", [uniform(3)])}), **options)
    assert left.unused == ("layers/dense_1/vars/0", "layers/dense_1/vars/1") and left.differing == ()
    assert left.missing == (() if "layers" in options else (f"{names[1]}/weight", f"{names[1]}/bias"))
    np.testing.assert_array_equal(values(net)[f"{names[0]}/weight"], TWO["layers/dense"][1][0])
    np.testing.assert_array_equal(values(net)[f"{names[1]}/weight"], before[f"{names[1]}/weight"])
    with pytest.raises(SnapshotError, match=names[1]):
        net.load(path, layers=[names[1]])


def test_a_new_layer_takes_no_others_place(path):
    """Named layers are found by their names alone."""
    net = net_of(layers.Dense("new", 5, input_sample_shape=(3,)), layers.Dense("y", 4))
    left = net.load(write(path, TWO), strict=False)
    assert left.missing == ("new/weight", "new/bias")
    assert left.unused == ("layers/dense/vars/0", "layers/dense/vars/1")
    np.testing.assert_array_equal(values(net)["y/bias"], TWO["layers/dense_1"][1][1])


# ---- layers of another kind, with the same arrays


OF_ANOTHER_KIND: dict[str, tuple[Callable[[], Layer], tuple[int, ...], str]] = {
    "stride": (lambda: layers.Conv2D("x", 3, 3, 2), (2, 8, 8), "padding='same'"),
    "stride, odd extents": (lambda: layers.Conv2D("x", 3, 3, 2), (2, 9, 7), ""),
    "Keras's padding": (lambda: layers.Conv2D("x", 3, 3, 2, padding="same"), (2, 8, 8), ""),
    "own pads": (lambda: layers.Conv2D("x", 3, 3, 2, pad=1), (2, 8, 8), ""),
    "no pads": (lambda: layers.Conv2D("x", 3, 3, 2, "valid"), (2, 8, 8), ""),
    "sequences": (lambda: layers.Conv1D("x", 3, 5, 3), (2, 9), "padding='same'"),
    "separable": (lambda: layers.SeparableConv2D("x", 3, 3, 2), (2, 8, 8), "x/depthwise"),
    "transposed": (lambda: layers.Conv2DTranspose("x", 3, 3, 2), (2, 8, 8), "padding='same'"),
    "transposed, stride beyond the kernel": (lambda: layers.Conv1DTranspose("x", 3, 2, 3, "valid"), (2, 8), "'valid'"),
    "transposed, stride of one": (lambda: layers.Conv2DTranspose("x", 3), (2, 8, 8), ""),
    "pooling": (lambda: layers.MaxPooling2D("x"), (2, 8, 8), "padding='same'"),
    "pooling, no pads": (lambda: layers.MaxPooling2D("x", 2), (2, 8, 8), ""),
    "average": (lambda: layers.AvgPooling2D("x"), (2, 9, 9), "count_pad=False"),
    "softmax of steps": (lambda: layers.Softmax("x"), (5, 3), "axis=-1"),
    "softmax of features": (lambda: layers.Softmax("x", -1), (5, 3), ""),
    "softmax of channels": (lambda: layers.Softmax("x"), (5, 3, 3), ""),
    "softmax of classes": (lambda: layers.Softmax("x"), (5,), ""),
    "normalised rows": (lambda: layers.LayerNormalization("x"), (4, 5, 4), "channels"),
    "normalised features": (lambda: layers.LayerNormalization("x"), (4, 4), ""),
    "mean square of rows": (lambda: layers.RMSNormalization("x"), (4, 5, 4), "channels"),
    "groups of steps": (lambda: layers.GroupNormalization("x", 2), (4, 4), "last"),
    "groups of channels": (lambda: layers.GroupNormalization("x", 2), (4, 4, 4), ""),
    "features as an image": (
        lambda: layers.Reshape("x", (2, 4, 3)),
        (24,),
        "Reshape((4, 3, 2)) and Permute((3, 1, 2))",
    ),
    "an image of one channel": (lambda: layers.Reshape("x", (1, 4, 3)), (12,), ""),
    "an image as a longer one": (lambda: layers.Reshape("x", (2, 1, 12)), (2, 4, 3), ""),
    "other channels": (lambda: layers.Reshape("x", (4, 2, 3)), (2, 4, 3), "Reshape((2, 3, 4))"),
    "length of a sample": (lambda: layers.L2Norm("x"), (4, 5, 4), "UnitNormalization"),
}


@pytest.mark.parametrize("case", OF_ANOTHER_KIND)
def test_keras_values_in_a_layer_of_another_kind_warn(case, path):
    make, shape, wanted = OF_ANOTHER_KIND[case]
    slopes = layers.PReLU("first", tuple(range(1, len(shape) + 1)), input_sample_shape=shape)
    net = net_of(slopes, make())
    snapshots.save(net, path)
    snapshots.load(net, path)  # a file of ours says nothing
    with h5py.File(path, "r+") as file:
        del file["singa_lite"]
    if not wanted:
        snapshots.load(net, path)
        return
    for options in ({}, {"strict": False}):
        with pytest.warns(UserWarning, match="'x") as caught:
            snapshots.load(net, path, **options)
        assert len(caught) == 1 and wanted in str(caught[0].message)


def test_features_before_sequences_of_channels_do_not_warn(path):
    words = layers.Embedding("words", 9, 4, input_sample_shape=(6,))
    net = net_of(words, layers.LayerNormalization("norm"), layers.Permute("turn", (2, 1)), layers.Conv1D("conv", 3))
    snapshots.save(net, path)
    with h5py.File(path, "r+") as file:
        del file["singa_lite"]
    snapshots.load(net, path)


def test_sequences_of_channels_that_are_normalised_along_their_length_warn(path):
    net = net_of(layers.Conv1D("conv", 6, input_sample_shape=(2, 6)), layers.LayerNormalization("norm"))
    snapshots.save(net, path)
    with h5py.File(path, "r+") as file:
        del file["singa_lite"]
    with pytest.warns(UserWarning, match="'norm'.*channels"):
        snapshots.load(net, path)


# ---- layers that Keras lacks, and features whose place is not known


class Scale(Layer):
    """x times a number, which is a parameter or state."""

    kept = "parameter"

    def setup(self, *shapes: Any) -> Any:
        if self.kept == "parameter":
            self.add_parameter("scale", (1,), 1.0)
        elif self.kept == "state":
            self.add_state("scale", (1,), 1.0)
        return shapes[0]


class Counting(Scale):
    kept = "state"


class Bare(Scale):
    kept = ""


@pytest.mark.parametrize("kind", [Scale, Counting])
def test_a_layer_with_arrays_that_keras_lacks(kind, path):
    net = net_of(layers.Dense("a", 5, input_sample_shape=(3,)), kind("own"))
    path.write_bytes(b"old")
    with pytest.raises(
        SnapshotError, match=rf"layer 'own' \({kind.__name__}\) has no form in Keras: arrays .*own/scale"
    ):
        snapshots.save(net, path)
    assert path.read_bytes() == b"old"
    with pytest.raises(SnapshotError, match="layer 'own'"):
        snapshots.load(net, write(path, TWO))


def test_a_layer_without_arrays_that_keras_lacks_takes_a_name_of_its_own(path):
    net = net_of(
        layers.Conv2D("conv", 2, input_sample_shape=(3, 5, 4)),
        layers.LRN("lrn"),
        Bare("one"),
        Bare("two"),
        layers.Slice("slice", 1, [1]),
    )
    net.add(layers.Concat("joined", 1), [("slice", 1), ("slice", 0)])
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 2))
    snapshots.save(randomized(net), path)
    with h5py.File(path) as file:
        assert file["layers/singa_lite.Bare_1/vars"].attrs["name"] == "two"
        assert {"singa_lite.LRN", "singa_lite.Slice", "singa_lite.Bare"} < set(file["layers"])
        kernel = file["layers/dense/vars/0"][()]
    rows = values(net)["dense/weight"].reshape(2, 5, 4, 2)
    np.testing.assert_array_equal(kernel, np.moveaxis(rows, 0, 2).reshape(40, 2))


@pytest.mark.parametrize("last", ["dense", "norm"])
@pytest.mark.parametrize("between", ["slice", "own", "matrix"])
def test_features_whose_place_is_not_known(between, last, path):
    net = net_of(layers.Flatten("flat", input_sample_shape=(3, 5, 4)))
    if between == "slice":
        net.add(layers.Slice("slice", 1, [10]))
    elif between == "own":
        net.add(Bare("own"))
    else:
        net.add(layers.Reshape("matrix", (10, 6)))
        net.add(layers.Flatten("again"))
    source = ("slice", 1) if between == "slice" else None
    net.add(layers.Dense("dense", 2) if last == "dense" else layers.BatchNormalization("norm"), source)
    with pytest.raises(SnapshotError, match=rf"layer '{last}' .*the order of the features .* is not known"):
        snapshots.save(net, path)


def test_plain_features_may_be_cut(path):
    net = net_of(layers.Dense("a", 5, input_sample_shape=(3,)), layers.Slice("slice", 1, [2]))
    net.add(layers.Dense("b", 2), ("slice", 0))
    net.add(layers.Dense("c", 2), ("slice", 1))
    snapshots.save(net, path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["layers/dense_2/vars/0"], values(net)["c/weight"])


def test_a_name_that_hdf5_cannot_store(path):
    contents = net_tree.of_net(net_of(layers.Dense("ab", 5, input_sample_shape=(3,))))
    contents.arrays = {entry.replace("ab", "a\0b"): lazy for entry, lazy in contents.arrays.items()}
    contents.attributes["layers"] = json.dumps([["a\0b", "Dense"]])  # no layer can have it; a tree can
    with pytest.raises(SnapshotError, match="its name cannot be written"):
        formats.write(contents, path)
    assert not path.exists()


@pytest.mark.parametrize("missing", ["layers", "wiring"])
def test_a_tree_that_tells_nothing_of_its_layers(missing, path):
    contents = net_tree.of_net(two())
    del contents.attributes[missing]
    with pytest.raises(SnapshotError, match=f"attributes 'layers' and 'wiring'.*{missing}"):
        formats.write(contents, path)


def test_parameters_of_a_layer_outside(path):
    outside = two()
    net = net_of(layers.Dense("c", 5, input_sample_shape=(3,)).share_parameters(outside.layers["a"]))
    with pytest.raises(SnapshotError, match="a layer that is not in the net"):
        snapshots.save(net, path)


# ---- our own files


def test_random_state_stays_and_all_else_comes_back(path):
    net = snapshot_nets.trained("Adam")
    snapshots.save(net, path)
    other = snapshot_nets.make_net(seed=9)
    random = to_numpy(other.states()["drop/random"])
    snapshots.load(other, path)
    np.testing.assert_array_equal(values(other)["drop/random"], random)
    for name, array in values(net).items():
        if name != "drop/random":
            np.testing.assert_array_equal(values(other)[name], array, err_msg=name)


def test_our_own_file_needs_no_net(path, tmp_path):
    """Rows behind a Flatten too; over the native format and back it is the same file."""
    snapshots.save(randomized(branches()), path)
    with formats.opened(path) as source:
        formats.write(source, tmp_path / "native.h5")
    with formats.opened(tmp_path / "native.h5") as source:
        formats.write(source, tmp_path / "again.weights.h5")
    assert (tmp_path / "again.weights.h5").read_bytes() == path.read_bytes()
    net = branches()
    snapshots.load(net, tmp_path / "native.h5")
    for name, array in values(randomized(branches())).items():
        np.testing.assert_array_equal(values(net)[name], array, err_msg=name)


def test_a_wrong_bit_names_the_array(path):
    snapshots.save(randomized(two()), path)
    whole = path.read_bytes()
    data = values(randomized(two()))["b/weight"].tobytes()
    for place in (0, len(data) - 1):
        broken = bytearray(whole)
        broken[whole.index(data) + place] ^= 16
        path.write_bytes(broken)
        with pytest.raises(SnapshotError, match="'parameters/b/weight' is damaged"):
            snapshots.load(two(), path)


def test_any_wrong_bit_and_any_length(path):
    snapshots.save(randomized(two()), path)
    whole = path.read_bytes()
    wanted = values(randomized(two()))
    rng = np.random.default_rng(2)
    broken = [whole[:length] for length in range(0, len(whole), 97)]
    for place, bit in zip(rng.integers(0, len(whole), 250), rng.integers(0, 8, 250), strict=True):
        broken.append(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
    refused = 0
    for data in broken:
        path.write_bytes(data)
        net = two()
        try:
            snapshots.load(net, path)
        except SnapshotError:
            refused += 1
            continue
        for name, array in values(net).items():
            np.testing.assert_array_equal(array, wanted[name])
    assert refused > len(broken) // 3


WIRING = [
    None, 3, [], [[]] * 2, [{}] * 2, [{"inputs": [[3]], "outputs": [[5]], "sources": []}],
]  # fmt: skip
ENTRY = {"inputs": [[5]], "outputs": [[4]], "sources": [["a", 0]]}
BAD_ENTRIES = [
    {"inputs": []}, {"inputs": [[-3]]}, {"inputs": [[1e400]]}, {"inputs": [5]}, {"outputs": [[True]]},
    {"sources": [["b", 0]]}, {"sources": [["a", -1]]}, {"sources": [["a", 1]]}, {"sources": [["a"]]}, {"shares": "z"},
    {"outputs": "ab"},
]  # fmt: skip


@pytest.mark.parametrize(
    "bad", [*WIRING, *([ENTRY | {"sources": [], "inputs": [[3]]}, ENTRY | x] for x in BAD_ENTRIES)]
)
def test_a_manifest_that_claims_other_layers(bad, path):
    snapshots.save(two(), path)
    remade(path, lambda contents: contents["attributes"].update(wiring=json.dumps(bad)))
    with pytest.raises(SnapshotError, match="attributes 'layers' and 'wiring'"), formats.opened(path):
        pass


def test_a_manifest_with_other_arrays(path):
    snapshots.save(two(), path)
    remade(path, lambda contents: contents["entries"].update({"other/c": contents["entries"]["parameters/a/bias"]}))
    with pytest.raises(SnapshotError, match="received an entry 'other/c'"):
        snapshots.load(two(), path)
    snapshots.save(two(), path)
    remade(
        path, lambda contents: contents["entries"].update({"parameters/c/w": contents["entries"]["parameters/a/bias"]})
    )
    with pytest.raises(SnapshotError, match="received some of 'c'"):
        snapshots.load(two(), path)
    snapshots.save(two(), path)
    with h5py.File(path, "r+") as file:
        file["singa_lite"].attrs["sha256"] = "0"
    with pytest.raises(SnapshotError, match="the manifest is damaged"):
        snapshots.load(two(), path)


@pytest.mark.parametrize("failing", ["create_dataset", "__setitem__"])
def test_an_error_while_writing_changes_nothing(failing, path, monkeypatch):
    def no_space(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path.write_bytes(b"old")
    monkeypatch.setattr(h5py.Group if failing == "create_dataset" else h5py.Dataset, failing, no_space)
    with pytest.raises(SnapshotError, match=r"net\.weights\.h5: cannot be written.*No space left on device"):
        snapshots.save(two(), path)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_full_disk_changes_nothing(path):
    resource = pytest.importorskip("resource", reason="this system sets no limits of a file's size")
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for length in (0, 1000, 4000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (length, limits[1]))
        try:
            with pytest.raises(SnapshotError, match=r"cannot be written.*File too large"):
                snapshots.save(images(), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == b"old"


def test_bfloat16_is_written_as_keras_does(path):
    bfloat16 = skips.library("ml_dtypes").bfloat16
    contents = net_tree.of_net(two())
    array = uniform(3, 5).astype(bfloat16)
    contents.arrays["parameters/a/weight"] = tree.LazyArray((3, 5), array.dtype, lambda: array)
    formats.write(contents, path)
    with h5py.File(path) as file:
        stored = file["layers/dense/vars/0"]
        assert stored.attrs["dtype"] == "bfloat16"
        np.testing.assert_array_equal(np.array(stored[()]).view(bfloat16), array)
    with formats.opened(path) as source:
        np.testing.assert_array_equal(source.read("parameters/a/weight"), array.astype("f4"))


def test_at_most_one_array_beside_the_net(path):
    """Rows laid out anew are written a piece at a time."""
    net = net_of(layers.Flatten("flat", input_sample_shape=(4, 32, 32)), layers.Dense("dense", 2048))
    nbytes = net.parameters()["dense/weight"].nbytes
    snapshots.save(net, path)
    tracemalloc.start()
    snapshots.save(net, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < nbytes + (10 << 20)
    assert path.stat().st_size < 1.01 * nbytes + 10_000


# ---- files of Keras's of which no net is known


def test_a_file_alone(path):
    kernel, depth = uniform(2, 3, 4, 6), uniform(2, 3, 6, 2)
    line, deep = uniform(3, 4, 6), uniform(3, 6, 2)
    norm = [uniform(6, seed=seed) for seed in range(4)]
    groups = {
        "layers/conv2d": ("c", [kernel, uniform(6)]),
        "layers/depthwise_conv2d_1": ("d", [depth]),
        "layers/conv1d": ("e", [line]),
        "layers/depthwise_conv1d": ("f", [deep]),
        "layers/batch_normalization": ("g", norm),
        "layers/layer_normalization": ("h", norm[:2]),
        "layers/dense": (None, [uniform(3, 2)]),
    }
    wanted = {
        "parameters/c/weight": np.einsum("hwck->kchw", kernel),
        "parameters/c/bias": uniform(6),
        "parameters/d/weight": np.einsum("hwcm->cmhw", depth).reshape(12, 1, 2, 3),
        "parameters/e/weight": np.einsum("wck->kcw", line)[:, :, None],
        "parameters/f/weight": np.einsum("wcm->cmw", deep).reshape(12, 1, 1, 3),
        "parameters/g/gamma": norm[0],
        "parameters/g/beta": norm[1],
        "state/g/running_mean": norm[2],
        "state/g/running_var": norm[3],
        "parameters/h/gamma": norm[0],
        "parameters/h/beta": norm[1],
        "parameters/dense/weight": uniform(3, 2),
    }
    with formats.opened(write(path, groups)) as source:
        assert source.specs.keys() == wanted.keys()
        assert source.attributes == weights_tree.attributes(len(wanted), None)
        for name, array in wanted.items():
            assert source.specs[name] == (array.shape, array.dtype)
            np.testing.assert_array_equal(source.read(name), array)


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        (
            TWO | {"layers/flatten": ("f", [])},
            "its rows may lie otherwise in Keras, for 'layers/flatten'; load it into",
        ),
        (TWO | {"layers/lstm/cell": ("f", [uniform(2)])}, "group 'layers/lstm/cell' of layer 'f': wanted a layer of"),
        (replaced(dense=("y", TWO["layers/dense"][1])), "layer 'y': wanted a name that no other layer has"),
        (replaced(dense=("y/z", TWO["layers/dense"][1])), "layer 'y/z': wanted a name"),
        (replaced(dense=("", TWO["layers/dense"][1])), "layer '': wanted a name"),
        ({"layers/dense": ("a", [uniform(1)] * 3)}, "wanted 2 arrays, received 3"),
        ({"layers/batch_normalization": ("a", [uniform(1)] * 3)}, "wanted 4 arrays, received 3"),
        ({"layers/layer_normalization": ("a", [uniform(1, 2)] * 2)}, "order of its axes is not known; load it into"),
        ({"layers/conv2d": ("a", [uniform(1, 2, 3)])}, r"the shape \(1, 2, 3\) of 'weight'"),
    ],
)
def test_a_file_alone_that_does_not_tell(groups, wanted, path):
    with pytest.raises(SnapshotError, match=wanted), formats.opened(write(path, groups)):
        pass


# ---- Keras's order, and where features lie


def described(net: FeedForwardNet) -> dict[str, keras_net.LayerInfo]:
    return keras_net.layers_of("here", net_tree.of_net(net).attributes)


def test_the_order_of_a_functional():
    """By depth from the outputs, then as met from them; that of Keras's own model, as the round trip shows."""
    order = keras_net.keras_order(described(branches()))
    assert [name for name in order if name in ("short", "long", "longer")] == ["long", "short", "longer"]
    assert [name for name in order if name in ("wide", "first", "narrow", "end")] == ["narrow", "wide", "first", "end"]
    assert not {"split", "again"} & set(order)


def test_a_split_at_the_end():
    net = net_of(layers.Dummy("in", (3,)), layers.Dense("a", 2), layers.Split("out", 2))
    assert keras_net.keras_order(described(net)) == ["in", "a"]


@pytest.mark.parametrize(
    ("added", "wanted"),
    [
        ([layers.Flatten("f", input_sample_shape=(3, 2, 5))], ((3, 2, 5),)),
        ([layers.Flatten("f", input_sample_shape=(3, 2, 5)), layers.Dense("g", 4)], ((4,),)),
        ([layers.Flatten("f", input_sample_shape=(3, 5))], ((15,),)),
        ([layers.Flatten("g", 2, input_sample_shape=(3, 2, 5)), layers.Flatten("f")], ((3, 10),)),
        ([layers.Reshape("g", (5, 6), input_sample_shape=(3, 2, 5)), layers.Flatten("f")], None),
        ([layers.Conv1D("g", 4, input_sample_shape=(3, 5)), layers.Flatten("f")], ((4, 5),)),
        ([layers.Reshape("g", (3, 2, 5), input_sample_shape=(30,)), layers.Flatten("f")], ((3, 2, 5),)),
    ],
)
def test_where_features_lie(added, wanted):
    net = net_of(*(type(one)(**constructor(one)) for one in added), layers.Dense("dense", 2))
    assert keras_orders.input_orders(described(net))["dense"] == wanted


def constructor(layer: Layer) -> dict[str, Any]:
    """What makes the layer again: one that is in a net cannot be added to another."""
    options = {"name": layer.name, "input_sample_shape": (layer.input_sample_shapes or [None])[0]}
    for name in ("axis", "shape", "nb_kernels", "num_output"):
        if hasattr(layer, name):
            options[name] = getattr(layer, name)
    return options


@pytest.mark.parametrize("kind", [layers.Merge, layers.Multiply])
def test_where_features_lie_that_meet(kind):
    """Known where they lie alike."""
    net = net_of(layers.Flatten("a", input_sample_shape=(3, 2, 5)), layers.Dense("b", 30))
    net.add(layers.Dropout("c"), "a")
    net.add(kind("alike"), ["a", "c"])
    net.add(kind("unlike"), ["a", "b"])
    net.add(layers.Dense("first", 2), "alike")
    net.add(layers.Dense("second", 2), "unlike")
    orders = keras_orders.input_orders(described(net))
    assert (orders["first"], orders["second"]) == (((3, 2, 5),), None)


@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 1, 1), (3, 4, 5)])
def test_layer_normalization_over_images(shape, path):
    """Channels last, one channel or one pixel too."""
    net = randomized(net_of(layers.LayerNormalization("norm", 1, input_sample_shape=shape)))
    snapshots.save(net, path)
    with h5py.File(path) as file:
        gamma = file["layers/layer_normalization/vars/0"][()]
    np.testing.assert_array_equal(gamma, np.moveaxis(values(net)["norm/gamma"], 0, -1))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("conv/weight", (3, 3)), ("conv/bias", ()), ("dense/weight", (31, 2)), ("conv/weight", (4, 1, 1, 1))],
)
def test_a_tree_whose_arrays_are_no_such_layer_s(name, shape, path):
    conv = layers.Conv2D("conv", 3, (2, 3), 1, "valid", groups=3, input_sample_shape=(3, 3, 7))
    contents = net_tree.of_net(net_of(conv, layers.Flatten("flat"), layers.Dense("dense", 2)))
    contents.arrays[f"parameters/{name}"] = tree.LazyArray(shape, np.dtype("f4"), lambda: np.zeros(shape, "f4"))
    with pytest.raises(SnapshotError, match=f"the shape {re.escape(str(shape))} of"):
        formats.write(contents, path)


def test_orders_do_not_grow_without_end():
    """A net that joins its own output again and again."""
    net = net_of(layers.Flatten("flat", input_sample_shape=(2, 2, 2)))
    for number in range(14):
        last = list(net.layers)[-1]
        net.add(layers.Concat(f"joined {number}", 1), [last, last])
    assert keras_orders.input_orders(described(net))["joined 5"] is not None
    assert keras_orders.input_orders(described(net))["joined 13"] is None
