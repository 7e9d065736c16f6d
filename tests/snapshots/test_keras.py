"""Weights in the layout of Keras 3: against what Keras once recorded, against files made by hand, and Keras itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import keras_nets
from keras_nets import (
    NETS,
    depthwise_by_groups,
    net_of,
    predicted,
    randomized,
)
from nets import all_bits
from singa_lite import FeedForwardNet, Layer, SnapshotError, layers, snapshots
from singa_lite.snapshots import command, formats, net_tree, tree
from singa_lite.snapshots.formats.keras import net as keras_net
from singa_lite.snapshots.formats.keras import orders as keras_orders
from singa_lite.snapshots.formats.keras.net import LayerInfo
from singa_lite.tensor import Shape, to_numpy
from snapshot_nets import lazy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.weights.h5"


def without_ours(path: Path) -> Path:
    """The file without our manifest, as one of Keras's."""
    with h5py.File(path, "r+") as file:
        del file["singa_lite"]
    return path


# ---- what Keras recorded


@pytest.mark.parametrize(("name", "make"), [*NETS.items(), ("depthwise", depthwise_by_groups)])
def test_what_keras_wrote_gives_what_keras_predicted(name, make, path):
    net = make()
    wanted = keras_nets.write_recorded(name, path)
    net.load(path)
    np.testing.assert_allclose(predicted(name, net), wanted, 1e-4, 1e-5)
    assert wanted.std() > 0.1


@pytest.mark.parametrize("name", sorted(NETS.keys() - {"deep"}))
def test_what_is_written_lies_as_keras_has_it(name, path):
    """Groups and shapes; and the values of what Keras wrote, read and written, are where they were."""
    keras_nets.write_recorded(name, path)
    net, model = NETS[name](), keras_nets.recorded_models()[name]
    net.load(path)
    net.save(path)
    names, arrays = set(), {}

    def note(place: str, member: Any) -> None:
        if isinstance(member, h5py.Dataset):
            arrays[place] = member[...]
        elif "name" in member.attrs:
            names.add(place)

    with h5py.File(without_ours(path)) as file:
        file.visititems(note)
    assert names == model["names"].keys()
    assert {place: list(array.shape) for place, array in arrays.items()} == model["arrays"]
    for place, array in arrays.items():
        np.testing.assert_array_equal(array, keras_nets.recorded_values(place, array.shape), place)


@pytest.mark.parametrize(("name", "make"), NETS.items())
def test_our_own_file_comes_back(name, make, path, tmp_path):
    """All but the two biases of an LSTM, of which Keras has the sum; over the native format and back to the bit."""
    net, other = randomized(make()), make()
    net.save(path)
    other.load(path)
    np.testing.assert_allclose(predicted(name, other), predicted(name, net), 1e-5, 1e-5)
    for before, after in ((path, tmp_path / "native.h5"), (tmp_path / "native.h5", tmp_path / "again.weights.h5")):
        command.convert(str(before), str(after))
        again = make()
        again.load(after)
        assert all_bits(again.parameters()) == all_bits(other.parameters())


@pytest.mark.nightly
@pytest.mark.peer
def test_keras_writes_and_predicts_what_is_recorded(tmp_path):
    """In a process of its own, which takes PyTorch for its backend."""
    if find_spec("keras") is None or find_spec("torch") is None:
        pytest.skip("wants Keras and its backend PyTorch, pip install keras torch")
    script = Path(__file__).with_name("keras_models.py")
    done = subprocess.run([sys.executable, script, tmp_path / "now.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    now = json.loads((tmp_path / "now.json").read_text())
    for name, model in keras_nets.recorded_models().items():
        assert {part: now[name][part] for part in ("names", "arrays")} == {
            part: model[part] for part in ("names", "arrays")
        }
        np.testing.assert_allclose(now[name]["output"], model["output"], 1e-4, 1e-5, err_msg=name)


# ---- files made by hand


def write(path: Path, groups: dict[str, tuple[str | None, list[np.ndarray]]]) -> Path:
    """A file with these groups: {path: (name, arrays)}."""
    with h5py.File(path, "w") as file:
        for place, given in groups.items():
            if isinstance(given, np.ndarray):
                file[place] = given
                continue
            name, arrays = given
            made = file.create_group(f"{place}/vars")
            if name is not None:
                made.attrs["name"] = name
            for number, array in enumerate(arrays):
                made[str(number)] = array
    return path


def uniform(*shape: int, seed: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def two() -> FeedForwardNet:
    return net_of(layers.Dense("a", 5, input_sample_shape=(3,)), layers.Dense("b", 4))


TWO = {"layers/dense": ("x", [uniform(3, 5), uniform(5)]), "layers/dense_1": ("y", [uniform(5, 4), uniform(4)])}


def values(net: FeedForwardNet) -> dict[str, np.ndarray]:
    return {name: to_numpy(tensor) for name, tensor in (net.parameters() | net.states()).items()}


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
    with pytest.raises(SnapshotError, match="'parameters/a/weight'"):
        snapshots.load(two(), path)


def replaced(**arrays: Any) -> dict[str, Any]:
    return TWO | {f"layers/{name}": value for name, value in arrays.items()}


#: Where each stands: groups as `write` takes them, and what the error names.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a layer less": ({"layers/dense": TWO["layers/dense"]}, "'layers/dense_1'"),
    "a layer more": (replaced(dense_2=("z", [uniform(2)])), "'layers/dense_2'"),
    "another shape": (replaced(dense=("x", [uniform(3, 4), uniform(5)])), "'a'"),
    "no bias": (replaced(dense=("x", [uniform(3, 5)])), "'a'"),
    "an array for a group": ({"layers/dense/vars/0": ("x", [])}, "'layers/dense'"),
    "a group within": (
        {"dense/dense": ("x", []), **TWO, "layers/dense/vars": ("x", [uniform(1)])},
        "'layers/dense/vars'",
    ),
    **{
        f"an array at {place}": (TWO | {place: uniform(2)}, culprit)
        for place, culprit in {
            "layers/dense/vars/3": "[0, 1, 3]",
            "layers/dense/vars/01": "'layers/dense/vars/01'",
            "layers/dense/kernel": "'layers/dense/kernel'",
            "vars/0": "'vars/0'",
            "singa_lite/other": "'singa_lite/manifest'",
            "singa_lite/manifest": "(2,) float32",
        }.items()
    },
    "bytes without a meaning": (replaced(dense=("x", [np.zeros((3, 5), "V2"), uniform(5)])), "'layers/dense/vars/0'"),
}

#: Of files that are opened without a net.
ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "rows behind a flatten": (TWO | {"layers/flatten": ("f", [])}, "'layers/flatten'"),
    "a layer of another kind": (TWO | {"layers/lstm/cell": ("f", [uniform(2)])}, "'layers/lstm/cell'"),
    "one name twice": (replaced(dense=("y", TWO["layers/dense"][1])), "'y'"),
    "a name with a slash": (replaced(dense=("y/z", TWO["layers/dense"][1])), "'y/z'"),
    "an empty name": (replaced(dense=("", TWO["layers/dense"][1])), "''"),
    "three arrays": ({"layers/dense": ("a", [uniform(1)] * 3)}, "received 3"),
    "three of four": ({"layers/batch_normalization": ("a", [uniform(1)] * 3)}, "received 3"),
    "axes of a normalization": ({"layers/layer_normalization": ("a", [uniform(1, 2)] * 2)}, "axes"),
    **{
        f"{group} {shape}": ({f"layers/{group}": ("a", [uniform(*each) for each in shapes])}, f"{shape} of")
        for group, shapes, shape in [
            ("conv2d", [(1, 2, 3)], (1, 2, 3)),
            ("dense", [(3, 5), ()], ()),
            ("dense", [(3,), (5,)], (3,)),
            ("batch_normalization", [(3,), (3,), (3, 1), (3,)], (3, 1)),
            ("conv1d", [(3, 2, 4), (4, 1)], (4, 1)),
            ("layer_normalization", [(), ()], ()),
        ]
    },
}


@pytest.mark.parametrize("name", [*REFUSED, *ALONE])
def test_a_file_of_another_net_is_refused(name, path):
    groups, culprit = (REFUSED | ALONE)[name]
    write(path, groups)
    with pytest.raises(SnapshotError, match=re.escape(culprit)) as caught:
        if name in REFUSED:
            snapshots.load(two(), path)
        with formats.opened(path):
            pass
    assert str(caught.value).startswith(f"{path}: ")


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
        assert source.attributes == tree.weights_tree("", dict(source.arrays), None).attributes
        for name, array in wanted.items():
            assert source.specs[name] == (array.shape, array.dtype)
            np.testing.assert_array_equal(source.read(name), array)


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


OF_ANOTHER_KIND: dict[str, tuple[Callable[[], Layer | list[Layer]], tuple[int, ...], str]] = {
    "stride": (lambda: layers.Conv2D("x", 3, 3, 2), (2, 8, 8), "padding='same'"),
    "stride, odd extents": (lambda: layers.Conv2D("x", 3, 3, 2), (2, 9, 7), ""),
    "Keras's padding": (lambda: layers.Conv2D("x", 3, 3, 2, padding="same"), (2, 8, 8), ""),
    "own pads": (lambda: layers.Conv2D("x", 3, 3, 2, pad=1), (2, 8, 8), ""),
    "sequences": (lambda: layers.Conv1D("x", 3, 5, 3), (2, 9), "padding='same'"),
    "separable": (lambda: layers.SeparableConv2D("x", 3, 3, 2), (2, 8, 8), "x/depthwise"),
    "transposed": (lambda: layers.Conv2DTranspose("x", 3, 3, 2), (2, 8, 8), "padding='same'"),
    "transposed, stride beyond the kernel": (lambda: layers.Conv1DTranspose("x", 3, 2, 3, "valid"), (2, 8), "'valid'"),
    "pooling": (lambda: layers.MaxPooling2D("x"), (2, 8, 8), "padding='same'"),
    "average": (lambda: layers.AvgPooling2D("x"), (2, 9, 9), "count_pad=False"),
    "softmax of steps": (lambda: layers.Softmax("x"), (5, 3), "axis=-1"),
    "softmax of features": (lambda: layers.Softmax("x", -1), (5, 3), ""),
    "softmax of channels": (lambda: layers.Softmax("x"), (5, 3, 3), ""),
    "normalised rows": (lambda: layers.LayerNormalization("x"), (4, 5, 4), "channels"),
    "normalised features": (lambda: layers.LayerNormalization("x"), (4, 4), ""),
    "mean square of rows": (lambda: layers.RMSNormalization("x"), (4, 5, 4), "channels"),
    "groups of steps": (lambda: layers.GroupNormalization("x", 2), (4, 4), "last"),
    "features as an image": (lambda: layers.Reshape("x", (2, 4, 3)), (24,), "Permute((3, 1, 2))"),
    "an image of one channel": (lambda: layers.Reshape("x", (1, 4, 3)), (12,), ""),
    "an image as a longer one": (lambda: layers.Reshape("x", (2, 1, 12)), (2, 4, 3), ""),
    "other channels": (lambda: layers.Reshape("x", (4, 2, 3)), (2, 4, 3), "Reshape((2, 3, 4))"),
    "rows of a convolution": (lambda: [layers.Conv1D("conv", 6), layers.LayerNormalization("x")], (2, 6), "channels"),
    "length of a sample": (lambda: layers.L2Norm("x"), (4, 5, 4), "UnitNormalization"),
}


@pytest.mark.parametrize("case", OF_ANOTHER_KIND)
def test_keras_values_in_a_layer_of_another_kind_warn(case, path):
    make, shape, wanted = OF_ANOTHER_KIND[case]
    slopes = layers.PReLU("first", tuple(range(1, len(shape) + 1)), input_sample_shape=shape)
    made = make()
    net = net_of(slopes, *(made if isinstance(made, list) else [made]))
    snapshots.save(net, path)
    snapshots.load(net, path)  # a file of ours says nothing
    without_ours(path)
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
    net.save(path)
    net.load(without_ours(path))


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

    def forward(self, training: bool, *xs: Any) -> Any:
        return xs[0]


class Counting(Scale):
    kept = "state"


class Bare(Scale):
    kept = ""


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


IMAGE = (3, 5, 4)


def from_slice(last: Layer) -> FeedForwardNet:
    net = net_of(layers.Flatten("flat", input_sample_shape=IMAGE), layers.Slice("slice", 1, [10]))
    net.add(last, ("slice", 1))
    return net


def from_images(*between: Layer) -> Callable[[], FeedForwardNet]:
    return lambda: net_of(layers.Flatten("flat", input_sample_shape=IMAGE), *between)


def steps(*made: Layer) -> Callable[[], FeedForwardNet]:
    return lambda: net_of(layers.Dummy("x", (4, 3)), *made)


def sharing() -> FeedForwardNet:
    net = net_of(layers.Dense("d", 3, input_sample_shape=(3,)))
    net.add(layers.Sequential("a", [layers.Dense("e", 3).share_parameters(net.layers["d"])]))
    return net


def met_unlike() -> FeedForwardNet:
    net = net_of(layers.Flatten("f", input_sample_shape=(3, 2, 5)), layers.Dense("b", 30))
    net.add(layers.Merge("unlike"), ["f", "b"])
    net.add(layers.Dense("a", 2))
    return net


CONV = layers.Conv1D

#: A net with a layer "a" that has no form in Keras, and what the error says of it.
WITHOUT_FORM: dict[str, tuple[Callable[[], FeedForwardNet], str]] = {
    "an own parameter": (steps(Scale("a")), "a/scale"),
    "own state": (steps(Counting("a")), "a/scale"),
    "stacks": (steps(layers.LSTM("a", 2, num_stacks=2)), "several stacks"),
    "kept state": (steps(layers.GRU("a", 2, stateful=True, batch_size=3)), "state/a/hidden_l0"),
    "rotary positions": (steps(layers.MultiHeadAttention("a", 2, 4, rotary=True)), "positions"),
    "norms of heads": (steps(layers.MultiHeadAttention("a", 2, 4, query_key_norm=True)), "'a/key_norm'"),
    "a residual": (steps(layers.Residual("a", [layers.Dense("d", 3)])), "'a/d'"),
    "a residual within": (steps(layers.Sequential("a", [layers.Residual("r", [layers.Dense("d", 3)])])), "'a/r/d'"),
    "transposed groups": (steps(layers.Conv1DTranspose("a", 6, groups=2)), "(4, 3, 1, 3)"),
    "statistics of data": (steps(layers.Normalization("a", 1, 2)), "state/a/mean"),
    "a layer within that shares": (sharing, "'a/e'"),
    **{
        f"channels before {kind}": (steps(CONV("c", 4, 1), *last), "order of the features")
        for kind, last in {
            "LSTM": [layers.LSTM("a", 2)],
            "attention": [layers.MultiHeadAttention("a", 3)],
            "each step": [layers.TimeDistributed("a", layers.Dense("d", 2))],
            "groups": [layers.Flatten("f"), layers.GroupNormalization("a", 4)],
        }.items()
    },
    "channels within": (steps(layers.Sequential("a", [CONV("c", 4, 1), layers.GRU("g", 2)])), "order of the features"),
    "features of a slice": (lambda: from_slice(layers.Dense("a", 2)), "order of the features"),
    "a normalization of a slice": (lambda: from_slice(layers.BatchNormalization("a")), "order of the features"),
    "features of an own layer": (from_images(Bare("own"), layers.Dense("a", 2)), "order of the features"),
    "features of a matrix": (
        from_images(layers.Reshape("m", (10, 6)), layers.Flatten("f"), layers.BatchNormalization("a")),
        "order of the features",
    ),
    "features that meet unlike": (met_unlike, "order of the features"),
}


@pytest.mark.parametrize("name", WITHOUT_FORM)
def test_a_layer_without_a_form_in_keras_is_named(name, path):
    make, culprit = WITHOUT_FORM[name]
    path.write_bytes(b"old")
    with pytest.raises(SnapshotError, match=rf"'a'.*{re.escape(culprit)}"):
        snapshots.save(make(), path)
    assert path.read_bytes() == b"old"


def test_parameters_of_another_net_have_no_form(path):
    net = net_of(layers.Dense("a", 4, input_sample_shape=(5,)).share_parameters(two().layers["b"]))
    with pytest.raises(SnapshotError, match="not in the net"):
        snapshots.save(net, path)


def meeting() -> FeedForwardNet:
    net = net_of(layers.Flatten("f", input_sample_shape=(3, 2, 5)), layers.Dropout("c"))
    for name, kind in (("a", layers.Merge), ("b", layers.Multiply)):
        net.add(kind(kind.__name__), ["f", "c"])
        net.add(layers.Dense(name, 2))
    return net


def cut() -> FeedForwardNet:
    net = net_of(layers.Dense("a", 5, input_sample_shape=(3,)), layers.Slice("slice", 1, [2]))
    net.add(layers.Dense("b", 2), ("slice", 0))
    net.add(layers.Dense("c", 2), ("slice", 1))
    return net


def normalized(*shape: int) -> Callable[[], FeedForwardNet]:
    return lambda: net_of(layers.LayerNormalization("a", 1, input_sample_shape=shape))


#: A net, an array of Keras's file, our parameter, and the image in its rows, whose channels Keras has last.
PLACED: list[tuple[Callable[[], FeedForwardNet], str, str, Shape]] = [
    (meeting, "dense", "a/weight", (3, 2, 5)),
    (meeting, "dense_1", "b/weight", (3, 2, 5)),
    (cut, "dense_2", "c/weight", ()),
    *((normalized(*shape), "layer_normalization", "a/gamma", shape) for shape in ((1, 4, 5), (3, 1, 1), (3, 4, 5))),
]


@pytest.mark.parametrize(("make", "group", "name", "image"), PLACED)
def test_rows_of_images_lie_as_keras_has_them(make, group, name, image, path):
    net = randomized(make())
    snapshots.save(net, path)
    with h5py.File(path) as file:
        found = file[f"layers/{group}/vars/0"][()]
    wanted = values(net)[name]
    if image:
        wanted = np.moveaxis(wanted.reshape(*image, -1), 0, 2).reshape(found.shape)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("missing", ["layers", "wiring"])
def test_a_tree_that_tells_nothing_of_its_layers(missing, path):
    contents = net_tree.of_net(two())
    del contents.attributes[missing]
    with pytest.raises(SnapshotError, match=f"attributes 'layers' and 'wiring'.*{missing}"):
        formats.write(contents, path)


# ---- layers within layers, and what a manifest may claim


#: A layer, one of its arrays, and a shape that no such array has.
MISFITS = [
    (layers.Conv1D("a", 6, input_sample_shape=(4, 9)), "parameters/a/weight", (6, 4, 2, 3)),
    (layers.Conv1D("a", 6, groups=3, input_sample_shape=(3, 9)), "parameters/a/weight", (6, 1, 3, 1)),
    (layers.Conv2D("a", 6, input_sample_shape=(4, 9, 9)), "parameters/a/weight", ()),
    (layers.Dense("a", 5, input_sample_shape=(3,)), "parameters/a/bias", (5, 1)),
    (layers.BatchNormalization("a", input_sample_shape=(3,)), "state/a/running_var", ()),
]


def test_a_shape_that_no_such_layer_has_is_not_written(path):
    """As a file of another format may have it."""
    for layer, entry, shape in MISFITS:
        contents = net_tree.of_net(net_of(layer))
        contents.arrays[entry] = lazy(np.zeros(shape, "f4"))
        with pytest.raises(SnapshotError, match=entry):
            formats.write(contents, path)


def test_rows_without_columns_may_be_any_number(path):
    """They take no bytes in a file; their order in Keras would take eight each."""
    rows = 2 * 10**6 * 10**6
    told = {"layers": [["f", "Flatten"], ["d", "Dense"]], "wiring": []}
    told["wiring"] = [{"inputs": [[2, 10**6, 10**6]], "outputs": [[rows]], "sources": []}]
    told["wiring"] += [{"inputs": [[rows]], "outputs": [[1]], "sources": [["f", 0]]}]
    array = np.zeros((rows, 0), "f4")
    contents = tree.Tree({"parameters/d/weight": lazy(array)})
    contents.attributes = {"format": "singa_lite", "version": 2, "entries": 1}
    contents.attributes |= {name: json.dumps(value) for name, value in told.items()}
    formats.write(contents, path)
    with formats.opened(path) as source:
        assert source.read("parameters/d/weight").shape == (rows, 0)


# ---- the order of layers and features takes bounded time and memory


def note(name: str, kind: str, *sources: str, inputs: Shape = (8,), outputs: Shape = (8,)) -> LayerInfo:
    return LayerInfo(name, kind, (inputs,), (outputs,), tuple((source, 0) for source in sources), "")


def test_layers_stand_by_their_longest_way_to_an_output():
    """As Keras 3 lists the layers of `keras.Model(x, [short, d])`."""
    sources = {"x": (), "a": ("x",), "short": ("a",), "b": ("a",), "c": ("b",), "d": ("c",)}
    net = {name: note(name, "Dense" if given else "Dummy", *given) for name, given in sources.items()}
    assert keras_net.keras_order(net) == ["x", "a", "b", "c", "short", "d"]


def doubling(times: int) -> dict[str, LayerInfo]:
    """A net that joins its own output again and again."""
    net = {"0": note("0", "Flatten", inputs=(2, 2, 2))}
    for number in range(1, times + 1):
        before = str(number - 1)
        shape = (8 * 2**number,)
        net[str(number)] = note(str(number), "Concat", before, before, inputs=shape, outputs=shape)
    return net


def test_all_joins_of_a_net_have_a_bound():
    """Beyond it the order is not known, which is an error where it matters."""
    net = doubling(9)
    for number in range(1000):
        net[f"join {number}"] = note(f"join {number}", "Concat", "9", "9", outputs=(8192,))
        net[f"end {number}"] = note(f"end {number}", "Dense", f"join {number}")
    orders = keras_orders.input_orders(net)
    joined = [orders[f"end {number}"] for number in range(1000)]
    assert joined[0] is not None
    assert joined[-1] is None
    assert sum(len(order) for order in joined if order is not None) <= 2**16
