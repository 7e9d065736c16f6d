"""Keras's layouts of embeddings, attention, recurrent layers and layers within layers, by what Keras once recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import keras_recorded
from keras_files import remade
from keras_nets import attention, nested, net_of, randomized, recurrent
from nets import state_of
from singa_lite import FeedForwardNet, Layer, SnapshotError, layers, snapshots
from singa_lite.tensor import to_numpy

MAKERS = (recurrent, attention, nested)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.weights.h5"


def predicted(make: Any, net: FeedForwardNet) -> np.ndarray:
    """Keras's inputs, whose images have channels last."""
    given = {}
    for number, (name, shape) in enumerate(net.input_shapes().items()):
        theirs = shape if len(shape) < 4 else (shape[0], *shape[2:], shape[1])
        array = keras_recorded.inputs(make.__name__, number, theirs)
        given[name] = array if len(shape) < 4 else np.moveaxis(array, -1, 2)
    return to_numpy(net.predict(given if len(given) > 1 else next(iter(given.values()))))


def listing(path: Path) -> tuple[dict[str, bool], dict[str, list[int]]]:
    """Whether each group has a name, and the shape of each array, of a file but for our own group."""
    names, arrays = {}, {}

    def note(place: str, member: Any) -> None:
        if isinstance(member, h5py.Dataset):
            arrays[place] = list(member.shape)
        elif "name" in member.attrs:
            names[place] = True

    with h5py.File(path) as file:
        for place in file:
            if place != "singa_lite":
                note(place, file[place])
                file[place].visititems(lambda inner, member, place=place: note(f"{place}/{inner}", member))
    return names, arrays


@pytest.mark.parametrize("make", MAKERS)
def test_what_keras_wrote_gives_what_keras_predicted(make, path):
    wanted, net = keras_recorded.write(make.__name__, path), make()
    net.load(path)
    np.testing.assert_allclose(predicted(make, net), wanted, 1e-5, 1e-5)
    assert wanted.std() > 0.1


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_written_lies_as_keras_has_it(make, path):
    """Groups and shapes; and the values of what Keras wrote, read and written, are where they were."""
    keras_recorded.write(make.__name__, path)
    net, model = make(), keras_recorded.models()[make.__name__]
    net.load(path)
    net.save(path)
    names, arrays = listing(path)
    assert names.keys() == model["names"].keys()
    assert arrays == model["arrays"]
    with h5py.File(path) as file:
        for place, shape in arrays.items():
            np.testing.assert_array_equal(file[place][...], keras_recorded.values(place, tuple(shape)), place)


@pytest.mark.parametrize("make", MAKERS)
def test_our_own_file_comes_back(make, path):
    """All but the two biases of an LSTM, of which Keras has the sum."""
    net, other = randomized(make()), make()
    net.save(path)
    other.load(path)
    np.testing.assert_allclose(predicted(make, other), predicted(make, net), 1e-5, 1e-5)
    other.save(path)
    again = make()
    again.load(path)
    assert state_of(again) == state_of(other)


def test_biases_of_which_keras_has_the_sum(path):
    net = randomized(net_of(layers.LSTM("a", 2, input_sample_shape=(4, 3))))
    one, other = (to_numpy(net.parameters()[f"a/bias_{kind}_l0"]) for kind in ("ih", "hh"))
    net.save(path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["layers/lstm/cell/vars/2"][...], one + other)
    net.load(path)
    np.testing.assert_array_equal(to_numpy(net.parameters()["a/bias_ih_l0"]), one + other)
    np.testing.assert_array_equal(to_numpy(net.parameters()["a/bias_hh_l0"]), np.zeros(8))


def test_gates_of_a_gru_by_hand(path):
    """Keras: update, reset, candidate; ours, as PyTorch: reset, update, candidate."""
    net = net_of(layers.GRU("a", 2, input_sample_shape=(4, 3)))
    for name, tensor in net.parameters().items():
        gates = np.repeat([10.0, 20.0, 30.0], 2) + ("hh" in name)
        tensor.copy_from_numpy(np.broadcast_to(gates, tensor.shape).astype("f4"))
    net.save(path)
    with h5py.File(path) as file:
        found = [file[f"layers/gru/cell/vars/{number}"][...] for number in range(3)]
    np.testing.assert_array_equal(found[0], np.tile([20, 20, 10, 10, 30, 30], (3, 1)))
    np.testing.assert_array_equal(found[1], np.tile([21, 21, 11, 11, 31, 31], (2, 1)))
    np.testing.assert_array_equal(found[2], [[20, 20, 10, 10, 30, 30], [21, 21, 11, 11, 31, 31]])


def test_a_wrong_bit_within_a_layer_names_the_array(path):
    net = randomized(attention())
    net.save(path)
    with h5py.File(path, "r+") as file:
        array = file["layers/multi_head_attention/query_dense/vars/0"]
        array[1, 0, 1] = array[1, 0, 1] * 1.5
    with pytest.raises(SnapshotError, match=r"'parameters/self/query/weight' is damaged"):
        net.load(path)


def test_layers_are_found_by_their_names(path):
    """Of the outermost layers, whatever their numbers; what is within is found by its place."""

    def two(first: str, second: str) -> FeedForwardNet:
        net = FeedForwardNet(seed=len(first))
        net.add(layers.Dummy("x", (4, 3)), [])
        a, b = (net.add(layers.LSTM(name, 2), "x") for name in (first, second))
        net.add(layers.Merge("sum"), [a, b])
        return net

    net, turned = two("one", "two"), two("two", "one")
    net.save(path)
    with h5py.File(path, "r+") as file:
        del file["singa_lite"]
    turned.load(path)
    for name in ("one", "two"):
        weight = f"{name}/weight_ih_l0"
        np.testing.assert_array_equal(to_numpy(turned.parameters()[weight]), to_numpy(net.parameters()[weight]))


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        ([layers.LSTM("a", 2, num_stacks=2)], r"layer 'a' \(LSTM\) has no form in Keras: it has several stacks"),
        ([layers.GRU("a", 2, stateful=True, batch_size=3)], r"it holds 'state/a/hidden_l0'"),
        ([layers.MultiHeadAttention("a", 2, 4, rotary=True)], r"it holds 'state/a/table'"),
        ([layers.Residual("a", [layers.Dense("d", 3)])], r"layer 'a' \(Residual\) has no form .*: it holds 'a/d'"),
        ([layers.Sequential("a", [layers.Residual("r", [layers.Dense("d", 3)])])], r"it holds 'a/r/d'"),
        ([layers.Conv1D("c", 4, 1), layers.LSTM("a", 2)], r"layer 'a' \(LSTM\) .*order of the features"),
        ([layers.Conv1D("c", 4, 1), layers.MultiHeadAttention("a", 3)], r"order of the features"),
        ([layers.Conv1D("c", 4, 1), layers.TimeDistributed("a", layers.Dense("d", 2))], r"order of the features"),
        ([layers.Sequential("a", [layers.Conv1D("c", 4, 1), layers.GRU("g", 2)])], r"order of the features"),
        ([layers.Conv1DTranspose("a", 6, groups=2)], r"layer 'a' \(Conv1DTranspose\) .*the shape \(4, 3, 1, 3\)"),
        ([layers.Conv1D("c", 4, 1), layers.Flatten("f"), layers.GroupNormalization("a", 4)], r"order of the features"),
        ([layers.Normalization("a", 1, 2)], r"layer 'a' \(Normalization\) .*state/a/mean"),
    ],
)
def test_layers_without_a_form_in_keras(made: list[Layer], wanted, path):
    net = FeedForwardNet(seed=1)
    net.add(layers.Dummy("x", (4, 3)), [])
    for layer in made:
        net.add(layer)
    with pytest.raises(SnapshotError, match=wanted):
        net.save(path)
    assert not path.exists()


def test_a_layer_within_that_shares(path):
    net = net_of(layers.Dense("d", 3, input_sample_shape=(3,)))
    net.add(layers.Sequential("s", [layers.Dense("e", 3).share_parameters(net.layers["d"])]))
    with pytest.raises(SnapshotError, match=r"layer 's' \(Sequential\) .*'s/e' in it shares the parameters of 'd'"):
        net.save(path)


def test_features_in_the_order_of_channels(path):
    """Rows of a Dense behind a Flatten, both within a Sequential, as those of a Dense behind it."""
    inner = [layers.Conv2D("conv", 3, 2, 1, "valid"), layers.Flatten("flat"), layers.Dense("dense", 5)]
    net = net_of(layers.Sequential("s", inner, input_sample_shape=(2, 4, 5)))
    net.save(path)
    with h5py.File(path) as file:
        found = file["layers/sequential/layers/dense/vars/0"][...]
    ours = to_numpy(net.parameters()["s/dense/weight"]).reshape(3, 3, 4, 5)
    np.testing.assert_array_equal(found, np.moveaxis(ours, 0, 2).reshape(36, 5))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda wiring: wiring[0].pop("options"), r"has no form in Keras: its option 'num_stacks' is not noted"),
        (lambda wiring: wiring[0].update(options=3), r"wants the attributes 'layers' and 'wiring'"),
        (lambda wiring: wiring[0].update(options={"num_stacks": []}), r"wants the attributes 'layers' and 'wiring'"),
    ],
)
def test_options_that_are_not_noted(change, wanted, path):
    def changed(contents: dict[str, Any]) -> None:
        wiring = json.loads(contents["attributes"]["wiring"])
        change(wiring)
        contents["attributes"]["wiring"] = json.dumps(wiring)

    net_of(layers.LSTM("a", 2, input_sample_shape=(4, 3))).save(path)
    remade(path, changed)
    with pytest.raises(SnapshotError, match=wanted), snapshots.formats.opened(path):
        pass
