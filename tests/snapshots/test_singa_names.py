"""SINGA's files loaded into nets of ours: both spellings of every name, shapes and layouts, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import singa_files
from nets import state_of
from singa_files import described, native, python2_pickle, states_zip
from singa_lite import FeedForwardNet, layers, loss, snapshots
from singa_lite.errors import SnapshotError
from singa_lite.snapshots.formats.singa import names as singa_names
from singa_lite.snapshots.tree import LazyArray, Tree
from singa_lite.tensor import to_numpy
from snapshot_nets import make_net, trained

#: Our paths and SINGA's names of old, of 1.1.1 to 3.0, and of 3.1 and later, in the net of `snapshot_nets`.
NAMES = {
    "parameters/conv/weight": ("conv_weight", "conv/weight", "conv.W"),
    "parameters/conv/bias": ("conv_bias", "conv/bias", "conv.b"),
    "parameters/norm/gamma": ("norm_gamma", "norm/gamma", "norm.scale"),
    "parameters/norm/beta": ("norm_beta", "norm/beta", "norm.bias"),
    "state/norm/running_mean": ("norm_mean", "norm/mean", "norm.running_mean"),
    "state/norm/running_var": ("norm_var", "norm/var", "norm.running_var"),
    "parameters/dense/weight": ("dense_weight", "dense/weight", "dense.W"),
    "parameters/dense/bias": ("dense_bias", "dense/bias", "dense.b"),
    "parameters/first/weight": ("first_weight", "first/weight", "first.W"),
    "parameters/first/bias": ("first_bias", "first/bias", "first.b"),
}


def tensors(net: FeedForwardNet) -> dict[str, np.ndarray]:
    found = {f"parameters/{name}": to_numpy(tensor) for name, tensor in net.parameters().items()}
    return found | {f"state/{name}": to_numpy(tensor) for name, tensor in net.states().items()}


def by_name(net: FeedForwardNet, spelling: int) -> dict[str, np.ndarray]:
    """The net's arrays as SINGA has them."""
    found = singa_files.of_tree(tensors(net), "_/."[spelling])
    assert list(found) == [NAMES[path][spelling] for path in tensors(net) if path in NAMES]
    return found


def check(net: FeedForwardNet, path: Path) -> None:
    """Loading gives another net the same numbers; its random state stays."""
    other = make_net(seed=11)
    before = tensors(other)
    snapshots.load(other, path)
    wanted, found = tensors(net), tensors(other)
    for entry in NAMES:
        np.testing.assert_array_equal(found[entry], wanted[entry])
    np.testing.assert_array_equal(found["state/drop/random"], before["state/drop/random"])
    assert found.keys() == {*NAMES, "state/drop/random"}


#: {what wrote it: (suffix, number of the spelling, the file of such arrays)}.
WRITERS: dict[str, tuple[str, int, Callable[[dict[str, np.ndarray]], bytes]]] = {
    **{
        f"{flavour}, {spelling}, {version}": (".bin", spelling, partial(native, flavour=flavour, version=version))
        for number, flavour in enumerate(singa_files.FLAVOURS)
        for spelling in (0, 1)
        for version in ((None, 1101, 1200)[number], 1200)
    },
    "Python 2": (".pickle", 0, python2_pickle),
    "Python 2, a version": (".pickle", 1, lambda arrays: python2_pickle(arrays, 1101)),
    "Python 3": (".pickle", 1, lambda arrays: pickle.dumps({**arrays, "SINGA_VERSION": 3000}, 4)),
    "3.1": (".zip", 2, lambda arrays: states_zip(arrays, {"epoch": np.array([3], np.int32)})),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_every_version_load_and_the_optimizer_stays(tmp_path, writer):
    suffix, spelling, encode = WRITERS[writer]
    net, path = trained(), tmp_path / f"net{suffix}"
    arrays = by_name(net, spelling)
    path.write_bytes(encode(arrays))
    check(net, path)
    if suffix == ".bin":
        (tmp_path / "net.desc").write_text(described(arrays, "1101"))
        check(net, tmp_path / "net.desc")
    step = net.optimizer.step
    snapshots.load(net, path)
    assert net.optimizer.step == step
    with pytest.raises(SnapshotError, match="optimizer Adam"):
        snapshots.load(net, path, optimizer=True)


GOOD = by_name(trained(), 1)
#: {words of the error: arrays that do not fit}.
REFUSED = {
    "'norm/mean', 'norm_mean'": {name: array for name, array in GOOD.items() if name != "norm/mean"},
    "'parameters/more/weight'": GOOD | {"more/weight": GOOD["norm/mean"]},
    "'conv/bias', 'conv_bias'": GOOD | {"conv_bias": GOOD["conv/bias"]},
    "received (7,)": GOOD | {"conv/bias": np.zeros(7, np.float32)},
    "wanted shape": GOOD | {"conv/weight": GOOD["conv/weight"].T},
    "received float64": GOOD | {"conv/bias": GOOD["conv/bias"].astype(np.float64)},
    "received int32": GOOD | {"conv/bias": GOOD["conv/bias"].astype(np.int32)},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path, words):
    (tmp_path / "net.bin").write_bytes(native(REFUSED[words], "1.2.0"))
    net = make_net(seed=11)
    before = state_of(net)
    with pytest.raises(SnapshotError, match=r"net\.bin") as caught:
        snapshots.load(net, tmp_path / "net.bin")
    assert words in str(caught.value)
    assert state_of(net) == before


def test_float32_widens_into_a_net_of_float64(tmp_path):
    path = tmp_path / "net.bin"
    path.write_bytes(native(by_name(trained(), 1), "1.1.1"))
    net = make_net(dtype="float64")
    snapshots.load(net, path)
    np.testing.assert_array_equal(tensors(net)["parameters/norm/gamma"], tensors(trained())["parameters/norm/gamma"])


def dense_net(features: int, outputs: int) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy())
    net.add(layers.Dense("dense", outputs, input_sample_shape=(features,)))
    return net


@pytest.mark.parametrize("shape, transposed", [((3, 4), False), ((4, 3), True), ((3, 3), False)])
def test_dense_weights_that_were_transposed(tmp_path, shape, transposed):
    weight = np.arange(12, dtype=np.float32)[: shape[0] * shape[1]].reshape(shape)
    path = tmp_path / "net.bin"
    features, outputs = shape[::-1] if transposed else shape
    net = dense_net(features, outputs)
    path.write_bytes(native({"dense/weight": weight, "dense/bias": np.zeros(outputs, "f4")}, "1.2.0"))
    snapshots.load(net, path)
    np.testing.assert_array_equal(tensors(net)["parameters/dense/weight"], weight.T if transposed else weight)


@pytest.mark.parametrize(
    "name, path",
    [(name, path) for path, names in NAMES.items() for name in names]
    + [
        ("inception_3a/1x1_weight", "parameters/inception_3a.1x1/weight"),
        ("res/branch/weight", "parameters/res.branch/weight"),
        ("block.sub.W", "parameters/block.sub/weight"),
        ("rnn-weight", "parameters/rnn-weight"),
        ("rnn.Wx", "parameters/rnn.Wx"),
        ("weight", "parameters/weight"),
        ("/weight", "parameters/.weight"),
    ],
)
def test_paths_from_names_alone(name, path):
    assert singa_names.plain_path(name) == path


def lazies(*names: str) -> dict[str, LazyArray]:
    return {name: LazyArray((1,), np.dtype("f4"), lambda: np.zeros(1, "f4")) for name in names}


def test_two_names_of_one_path_are_refused():
    with pytest.raises(SnapshotError, match="parameters/a/weight"):
        singa_names.named("net.bin", lazies("a/weight", "a_weight"), None)


def test_a_slash_in_a_layer_of_singas_is_a_dot_in_ours(tmp_path):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy())
    net.add(layers.Dense("in.1x1", 2, input_sample_shape=(3,)))
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    for name in ("in/1x1_weight", "in/1x1/weight", "in.1x1_weight"):
        path = tmp_path / "net.bin"
        path.write_bytes(native({name: weight, "in/1x1_bias": weight[:1].reshape(2)}, "1.0.0"))
        snapshots.load(net, path)
        np.testing.assert_array_equal(tensors(net)["parameters/in.1x1/weight"], weight)


def test_one_array_for_two_entries_is_refused():
    like = Tree({f"parameters/own/{name}": lazies("x")["x"] for name in ("weight", "W")})
    with pytest.raises(SnapshotError, match=r"own\.W"):
        singa_names.named("net.zip", lazies("own.W"), like)


def test_what_fits_of_a_file(tmp_path):
    arrays = {"dense/weight": np.ones((3, 4), "f4"), "old/weight": np.ones((2, 2), "f4")}
    (tmp_path / "a.pickle").write_bytes(python2_pickle(arrays))
    net = FeedForwardNet(seed=1)
    net.add(layers.Dense("dense", 4, input_sample_shape=(3,)))
    with pytest.raises(SnapshotError, match="dense/bias"):
        net.load(tmp_path / "a.pickle")
    left = net.load(tmp_path / "a.pickle", strict=False)
    assert (left.missing, left.differing, left.unused) == (("dense/bias",), (), ("old/weight",))
    np.testing.assert_array_equal(to_numpy(net.parameters()["dense/weight"]), np.ones((3, 4), "f4"))
