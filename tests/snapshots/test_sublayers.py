"""Snapshots of nets whose layers hold layers: every format, and PyTorch's names of modules within modules."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_files
import skips
from format_cases import WHOLE, WRITTEN
from nets import state_of
from singa_lite import FeedForwardNet, SnapshotError, layers, loss, optimizer, tensor
from singa_lite.snapshots import formats, net_tree

X, Y = np.arange(15, dtype=np.float32).reshape(3, 5), np.array([0, 1, 1])


def block_net(seed: int = 3) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=seed)
    inner = [layers.Dense("d", 4), layers.BatchNormalization("norm"), layers.Dropout("drop", 0.5), layers.Dense("e", 5)]
    net.add(layers.Residual("block", inner, input_sample_shape=(5,)))
    net.add(layers.Dense("out", 2))
    net.compile(optimizer.SGD(0.1, 0.9))
    return net


def trained_net() -> FeedForwardNet:
    net = block_net()
    net.train_one_batch(X, Y)
    return net


@pytest.mark.parametrize("suffix", WRITTEN)
def test_all_comes_back_or_the_format_names_the_layer(tmp_path: Path, suffix: str):
    net, other, path = trained_net(), block_net(8), tmp_path / f"x{suffix}"
    if suffix in WHOLE:
        formats.save(net, path)
        formats.load(other, path)
        assert state_of(other) == state_of(net)
        return
    with pytest.raises(SnapshotError, match="block/d"):
        formats.save(net, path)
    assert not path.exists()


def test_the_tree_says_what_stands_within_what():
    attributes = net_tree.of_net(block_net()).attributes
    found = json.loads(str(attributes["layers"]))
    assert found[:3] == [["block", "Residual"], ["block/d", "Dense"], ["block/norm", "BatchNormalization"]]
    wired = json.loads(str(attributes["wiring"]))
    assert len(wired) == len(found)
    assert wired[1] == {"inputs": [], "outputs": [[4]], "sources": []}


@pytest.mark.parametrize("names", [{}, {"block": "h.0", "block/e": "e"}], ids=["as they are", "renamed"])
def test_names_in_safetensors_are_those_of_modules_within_modules(tmp_path: Path, names: dict[str, str]):
    library = skips.library("safetensors.numpy")
    net, other, path = trained_net(), block_net(8), tmp_path / "x.safetensors"
    formats.save(net, path, weights_only=True, names=names)
    found, block = library.load_file(path), names.get("block", "block")
    wanted = net.parameters()
    np.testing.assert_array_equal(found[f"{block}.d.weight"], tensor.to_numpy(wanted["block/d/weight"]).T)
    np.testing.assert_array_equal(found[f"{block}.norm.weight"], tensor.to_numpy(wanted["block/norm/gamma"]))
    assert {f"{block}.norm.running_mean", names.get("block/e", "block.e") + ".weight", "out.weight"} < set(found)
    formats.load(other, path, names=names, optimizer=False)
    for name, value in wanted.items():
        np.testing.assert_array_equal(tensor.to_numpy(other.parameters()[name]), tensor.to_numpy(value), err_msg=name)


def test_a_layer_whose_name_has_a_dot_beside_one_within_another_is_refused(tmp_path: Path):
    net = FeedForwardNet(seed=3)
    net.add(layers.Sequential("a", [layers.Dense("b", 4, input_sample_shape=(5,))]))
    net.add(layers.Dense("a.b", 2))
    with pytest.raises(SnapshotError, match=r"a\.b\.weight"):
        formats.save(net, tmp_path / "x.safetensors")


@pytest.mark.peer
def test_pytorch_loads_a_module_within_a_module(tmp_path: Path):
    torch = skips.library("torch")
    from safetensors.torch import load_file

    net, path = trained_net(), tmp_path / "x.safetensors"
    formats.save(net, path, weights_only=True)
    nn = torch.nn
    parts = {"d": nn.Linear(5, 4), "norm": nn.BatchNorm1d(4), "drop": nn.Dropout(0.5), "e": nn.Linear(4, 5)}
    module = nn.ModuleDict({"block": nn.ModuleDict(parts), "out": nn.Linear(5, 2)})
    module.load_state_dict(load_file(path), strict=False)
    y = torch.from_numpy(X)
    for part in module.eval()["block"].values():
        y = part(y)
    wanted = module["out"](y + torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(tensor.to_numpy(net.forward(False, X)), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "suffix, mark, encode",
    [(".zip", ".", singa_files.states_zip), (".pkl", "/", lambda arrays: pickle.dumps(arrays, 4))],
    ids=["3.1", "pickle"],
)
def test_files_of_singa_of_layers_within_layers(tmp_path: Path, suffix: str, mark: str, encode: Any):
    net, other, path = trained_net(), block_net(8), tmp_path / f"x{suffix}"
    arrays = {}
    for entry, lazy in net_tree.of_net(net).arrays.items():
        branch, _, rest = entry.partition("/")
        layer, _, name = rest.rpartition("/")
        flat = singa_files.of_tree({f"{branch}/{layer.replace('/', '.')}/{name}": lazy.fetch()}, mark)
        arrays |= {key if mark == "." else key.replace(".", "/"): array for key, array in flat.items()}
    path.write_bytes(encode(arrays))
    formats.load(other, path, optimizer=False)
    for name, value in net.parameters().items():
        np.testing.assert_array_equal(tensor.to_numpy(other.parameters()[name]), tensor.to_numpy(value), err_msg=name)
