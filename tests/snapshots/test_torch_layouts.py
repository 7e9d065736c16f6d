"""Names and layouts of PyTorch's files: Conv1D both ways, files of the version before, guesses that are taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skips
from nets import bits, state_of
from singa_lite import FeedForwardNet, SnapshotError, layers, tensor
from singa_lite.snapshots import command, formats, net_tree
from singa_lite.snapshots.formats.safetensors import torch_names
from singa_lite.snapshots.torch_layout import TorchLayout
from singa_lite.snapshots.tree import LazyArray, Tree

library = skips.library("safetensors.numpy")


def sequence_net(seed: int = 3, groups: int = 1) -> FeedForwardNet:
    """Convolution over sequences, normalization, Dense; (n, 4, 9) -> (n, 5)."""
    net = FeedForwardNet(seed=seed)
    net.add(layers.Conv1D("conv", 6, 3, groups=groups, border_mode="valid", input_sample_shape=(4, 9)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    return net


def metadata(path: Path) -> dict[str, str]:
    """The texts in the header."""
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]


# ---- Conv1D


@pytest.mark.peer
@pytest.mark.parametrize("groups", [1, 2])
def test_sequences_to_pytorch_and_back(tmp_path, groups):
    torch = skips.library("torch")
    from safetensors.torch import load_file, save_file

    def module() -> Any:
        nn = torch.nn
        parts = nn.Conv1d(4, 6, 3, groups=groups), nn.BatchNorm1d(6), nn.Flatten(), nn.Linear(42, 5)
        return nn.Sequential(*parts).eval()

    net, path = sequence_net(groups=groups), tmp_path / "x.safetensors"
    names = {"conv": "0", "norm": "1", "dense": "3"}
    x = np.random.default_rng(0).normal(size=(7, 4, 9)).astype("f4")
    formats.save(net, path, names=names)
    theirs = module()
    theirs.load_state_dict({name: array for name, array in load_file(path).items() if "/" not in name})
    assert np.allclose(tensor.to_numpy(net.forward(False, x)), theirs(torch.from_numpy(x)).detach(), atol=1e-5)

    theirs = module()  # of other values
    save_file(theirs.state_dict(), path)
    formats.load(net, path, names=names)
    ours = tensor.to_numpy(net.forward(False, x))
    assert np.allclose(ours, theirs(torch.from_numpy(x)).detach(), atol=1e-5)
    assert ours.std() > 0.01


def test_a_sequences_weight_has_no_height_in_the_file(tmp_path):
    net, other = sequence_net(), sequence_net(seed=8)
    formats.save(net, tmp_path / "x.safetensors")
    weight = tensor.to_numpy(net.parameters()["conv/weight"])
    assert weight.shape == (6, 4, 1, 3)
    assert bits(library.load_file(tmp_path / "x.safetensors")["conv.weight"]) == bits(weight[:, :, 0])
    noted = json.loads(metadata(tmp_path / "x.safetensors")["singa_lite.names"])
    assert noted["parameters/conv/weight"] == ["conv.weight", [0, 1, 3]]
    formats.load(other, tmp_path / "x.safetensors")
    assert state_of(other) == state_of(net)


def test_a_file_of_the_version_before_has_the_height(tmp_path, monkeypatch):
    net, other = sequence_net(), sequence_net(seed=8)
    with monkeypatch.context() as patch:
        patch.delitem(torch_names._AXES, "Conv1D")
        formats.save(net, tmp_path / "x.safetensors", names={"conv": "features"})
    assert library.load_file(tmp_path / "x.safetensors")["features.weight"].shape == (6, 4, 1, 3)
    for names in (None, {"conv": "features"}):
        formats.load(other, tmp_path / "x.safetensors", **({"names": names} if names else {}))
        assert state_of(other) == state_of(net)
    library.save_file(library.load_file(tmp_path / "x.safetensors"), tmp_path / "plain.safetensors")
    other = sequence_net(seed=9)
    formats.load(other, tmp_path / "plain.safetensors", names={"conv": "features"})
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize("second", [".npz", ".h5"])
def test_a_sequences_weight_through_other_formats(tmp_path, second):
    net, other = sequence_net(), sequence_net(seed=8)
    formats.save(net, tmp_path / "a.safetensors")
    command.convert(str(tmp_path / "a.safetensors"), str(tmp_path / f"b{second}"))
    command.convert(str(tmp_path / f"b{second}"), str(tmp_path / "c.safetensors"))
    found, wanted = (library.load_file(tmp_path / name) for name in ("c.safetensors", "a.safetensors"))
    assert {name: bits(a) for name, a in found.items()} == {name: bits(a) for name, a in wanted.items()}
    formats.load(other, tmp_path / f"b{second}")
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize("axes", [(1, 0), (0, 1, 3), (3, 0, 1), (0, 2), (1, 2), (), (0,), (1,)])
def test_axes_there_and_back(axes):
    layout = TorchLayout("x", axes)
    tree_shape = tuple(5 + axis if axis in axes else 1 for axis in range(max(axes, default=-1) + 1))
    array = np.arange(np.prod(tree_shape, dtype=int)).reshape(tree_shape)
    stored = layout.stored(array)
    assert stored.shape == layout.stored_shape(tree_shape) == tuple(5 + axis for axis in axes)
    assert layout.fits(stored.ndim)
    assert layout.restored_shape(stored.shape) == tree_shape
    assert bits(layout.restored(stored)) == bits(array)


@pytest.mark.parametrize(("axes", "count"), [((0, 1, 4), 3), ((0, 0), 2), ((-1, 0), 2), ((0, 1), 3), ((1 << 40,), 1)])
def test_axes_that_no_array_has(axes, count):
    assert not TorchLayout("x", axes).fits(count)


@pytest.mark.parametrize("kind", ["Dense", "Conv1D"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 3, 2, 5), (1, 1, 1, 1, 1)])
def test_a_weight_of_other_axes_than_its_layers_stays_as_it_is(tmp_path, kind, shape):
    """As a file may say that was never a net's."""
    array = np.ones(shape, "f4")
    attributes = {"format": "singa_lite", "version": 2, "entries": 1, "layers": json.dumps([["a", kind]])}
    formats.write(
        Tree({"parameters/a/weight": LazyArray(shape, array.dtype, lambda: array)}, attributes), tmp_path / "a.h5"
    )
    command.convert(str(tmp_path / "a.h5"), str(tmp_path / "a.safetensors"))
    with formats.opened(tmp_path / "a.safetensors") as source:
        assert bits(source.read("parameters/a/weight")) == bits(array)


# ---- files of other programs


THEIRS = {
    "cls_token": np.ones((1, 1, 4), "f4"),
    "weight": np.arange(6, dtype="f4").reshape(2, 3),
    "linear.weight": np.arange(6, dtype="f4").reshape(2, 3),
    "linear.bias": np.ones(2, "f4"),
    "conv.weight": np.ones((2, 3, 5), "f4"),
    "norm.weight": np.ones(3, "f4"),
    "norm.bias": np.ones(3, "f4"),
    "norm.running_mean": np.ones(3, "f4"),
    "image.weight": np.arange(6, dtype="f4").reshape(2, 3),
    "image.bias": np.arange(6, dtype="f4").reshape(2, 3),
    "scaled.gamma": np.ones(3, "f4"),
    "scaled.weight": np.ones(3, "f4"),
    "sub.x/y.weight": np.arange(6, dtype="f4").reshape(2, 3),
    "/": np.ones(2),
    ".weight": np.arange(6, dtype="f4").reshape(2, 3),
    "weight.": np.ones(2),
    "": np.ones(1),
    "manifest": np.ones(2, np.uint8),
    "half.weight": np.ones((2, 2), "f2"),
    "mask": np.array([True, False]),
}


@pytest.mark.parametrize("second", [".npz", ".safetensors"])
def test_names_and_layouts_come_back(tmp_path, second):
    library.save_file(THEIRS, tmp_path / "a.safetensors")
    command.convert(str(tmp_path / "a.safetensors"), str(tmp_path / f"b{second}"))
    assert list(command.differences(str(tmp_path / "a.safetensors"), str(tmp_path / f"b{second}"))) == []
    command.convert(str(tmp_path / f"b{second}"), str(tmp_path / "c.safetensors"))
    found = library.load_file(tmp_path / "c.safetensors")
    assert {name: bits(a) for name, a in found.items()} == {name: bits(a) for name, a in THEIRS.items()}


def test_paths_of_a_file_without_a_net(tmp_path):
    library.save_file(THEIRS, tmp_path / "a.safetensors")
    with formats.opened(tmp_path / "a.safetensors") as source:
        shapes = {path: shape for path, (shape, _) in source.specs.items()}
    assert shapes["cls_token"] == (1, 1, 4)
    assert shapes["parameters/linear/weight"] == (3, 2)
    assert shapes["parameters/image/gamma"] == shapes["parameters/image/beta"] == (2, 3)
    assert shapes["weight"] == shapes[".weight"] == shapes["sub.x/y.weight"] == (2, 3)
    assert {"scaled.gamma", "parameters/scaled/gamma", "state/norm/running_mean"} <= shapes.keys()


def test_a_file_of_the_same_format_keeps_what_the_tree_has_not(tmp_path):
    """bfloat16, the batches that a BatchNorm has seen, metadata, the order: it is copied."""
    header = {
        "__metadata__": {"of": "another"},
        "b.num_batches_tracked": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
        "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [8, 20]},
    }
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(range(20))
    (tmp_path / "a.safetensors").write_bytes(content)
    (tmp_path / "b.safetensors").write_bytes(b"old")
    told = command.convert(str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"))
    assert (tmp_path / "b.safetensors").read_bytes() == content
    assert str(told) == "2 arrays"
    told = command.convert(str(tmp_path / "a.safetensors"), str(tmp_path / "c.npz"))
    assert str(told) == "1 arrays; left out: b.num_batches_tracked"
    with formats.opened(tmp_path / "c.npz") as source:
        assert source.attributes.get("left_out") is None


def test_a_module_at_the_top_by_names(tmp_path):
    library.save_file({"weight": np.ones((2, 3), "f4"), "bias": np.ones(2, "f4")}, tmp_path / "a.safetensors")
    with formats.opened(tmp_path / "a.safetensors", names={"dense": ""}) as source:
        assert {path: shape for path, (shape, _) in source.specs.items()} == {
            "parameters/dense/weight": (3, 2),
            "parameters/dense/bias": (2,),
        }


def test_a_converted_file_is_loaded_by_a_net(tmp_path):
    """Through the guesses: Linear is turned, scale and shift have our names."""
    net, other = (FeedForwardNet(seed=seed) for seed in (1, 2))
    for each in (net, other):
        each.add(layers.Dense("dense", 4, input_sample_shape=(3,)))
        each.add(layers.LayerNormalization("norm"))
    formats.save(net, tmp_path / "a.safetensors")
    library.save_file(library.load_file(tmp_path / "a.safetensors"), tmp_path / "theirs.safetensors")
    command.convert(str(tmp_path / "theirs.safetensors"), str(tmp_path / "b.h5"))
    formats.load(other, tmp_path / "b.h5")
    assert state_of(other) == state_of(net)


# ---- random state, of which other programs' files have none


@pytest.mark.parametrize("second", [".h5", ".npz", ".safetensors"])
def test_random_state_stays_where_the_origin_had_none(tmp_path, second):
    """Also after a conversion to a format that has it."""
    nets = []
    for seed in (1, 2):
        nets.append(FeedForwardNet(seed=seed))
        nets[-1].add(layers.Dense("dense", 4, input_sample_shape=(3,)))
        nets[-1].add(layers.Dropout("drop", 0.5))
    net, other = nets
    key = bits(other.states()["drop/random"])
    assert key != bits(net.states()["drop/random"])
    net.save(tmp_path / "a.weights.h5")
    command.convert(str(tmp_path / "a.weights.h5"), str(tmp_path / f"b{second}"))
    other.load(tmp_path / f"b{second}")
    assert bits(other.states()["drop/random"]) == key
    assert bits(other.parameters()["dense/weight"]) == bits(net.parameters()["dense/weight"])
    with formats.opened(tmp_path / f"b{second}", net_tree.of_net(other)) as source:
        assert source.attributes.get("entries") == len(source.specs) == 3
        assert bits(source.read("state/drop/random")) == key


def test_random_state_that_a_file_of_ours_has_lost_is_missed(tmp_path):
    net = FeedForwardNet(seed=1)
    net.add(layers.Dropout("drop", 0.5, input_sample_shape=(3,)))
    contents = net_tree.of_net(net)
    del contents.arrays["state/drop/random"]
    formats.write(contents, tmp_path / "a.h5")
    with pytest.raises(SnapshotError, match=r"wanted an entry 'state/drop/random', received none"):
        net.load(tmp_path / "a.h5")
