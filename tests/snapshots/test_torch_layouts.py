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


# ---- every layer that PyTorch has too


def image(layer: Any, **options: Any) -> FeedForwardNet:
    return one(layer, (4, 6, 5), **options)


def one(layer: Any, shape: tuple[int, ...], *given: Any, seed: int = 1, **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(seed=seed)
    net.add(layer("a", *given, input_sample_shape=shape, **options))
    return net


def twice(seed: int = 1) -> FeedForwardNet:
    net = FeedForwardNet(seed=seed)
    net.add(layers.Bidirectional("a", layers.GRU(3, return_sequences=True), input_sample_shape=(6, 4)))
    return net


def crossed(seed: int = 1) -> FeedForwardNet:
    """Attention to a memory of other features."""
    net = FeedForwardNet(seed=seed)
    queries, memory = layers.Dummy("q", (6, 4)), layers.Dummy("m", (5, 3))
    net.add(queries, [])
    net.add(memory, [])
    net.add(layers.MultiHeadAttention("a", 2), [queries, memory])
    return net


SLOPES = {"shared_axes": (1, 2, 3)}
TORCH = {
    "Linear": (lambda: one(layers.Dense, (4,), 3), lambda nn: nn.Linear(4, 3)),
    "Conv2d": (lambda: image(layers.Conv2D, nb_kernels=6, groups=2), lambda nn: nn.Conv2d(4, 6, 3, 1, 1, groups=2)),
    "depthwise": (lambda: image(layers.DepthwiseConv2D), lambda nn: nn.Conv2d(4, 4, 3, 1, 1, groups=4)),
    "ConvTranspose1d": (
        lambda: one(layers.Conv1DTranspose, (4, 6), 6, 3, 2, pad=1, groups=2),
        lambda nn: nn.ConvTranspose1d(4, 6, 3, 2, 1, groups=2),
    ),
    "ConvTranspose2d": (
        lambda: image(layers.Conv2DTranspose, nb_kernels=3, stride=2, pad=1),
        lambda nn: nn.ConvTranspose2d(4, 3, 3, 2, 1),
    ),
    "BatchNorm1d": (lambda: one(layers.BatchNormalization, (4,)), lambda nn: nn.BatchNorm1d(4)),
    "LayerNorm": (lambda: image(layers.LayerNormalization, axis=1), lambda nn: nn.LayerNorm((4, 6, 5))),
    "GroupNorm": (lambda: image(layers.GroupNormalization, groups=2), lambda nn: nn.GroupNorm(2, 4)),
    "InstanceNorm2d": (
        lambda: image(layers.GroupNormalization, groups=None),
        lambda nn: nn.InstanceNorm2d(4, affine=True),
    ),
    "InstanceNorm1d": (
        lambda: one(layers.GroupNormalization, (4, 7), None),
        lambda nn: nn.InstanceNorm1d(4, affine=True),
    ),
    "RMSNorm": (lambda: one(layers.RMSNormalization, (3, 4)), lambda nn: nn.RMSNorm(4, eps=1e-6)),
    "PReLU": (lambda: image(layers.PReLU), lambda nn: nn.PReLU(4)),
    "PReLU of features": (lambda: one(layers.PReLU, (4,)), lambda nn: nn.PReLU(4)),
    "PReLU of sequences": (lambda: one(layers.PReLU, (4, 7)), lambda nn: nn.PReLU(4)),
    "PReLU of one slope": (lambda: image(layers.PReLU, **SLOPES), lambda nn: nn.PReLU()),
    "LSTM": (
        lambda: one(layers.LSTM, (6, 4), 3, bidirectional=True, return_sequences=True),
        lambda nn: nn.LSTM(4, 3, batch_first=True, bidirectional=True),
    ),
    "GRU": (
        lambda: one(layers.GRU, (6, 4), 3, num_stacks=2, return_sequences=True),
        lambda nn: nn.GRU(4, 3, 2, batch_first=True),
    ),
    "RNN": (lambda: one(layers.SimpleRNN, (6, 4), 3, return_sequences=True), lambda nn: nn.RNN(4, 3, batch_first=True)),
    "two directions": (twice, lambda nn: nn.GRU(4, 3, batch_first=True, bidirectional=True)),
    "MultiheadAttention": (
        lambda: one(layers.MultiHeadAttention, (6, 4), 2),
        lambda nn: nn.MultiheadAttention(4, 2, batch_first=True),
    ),
    "MultiheadAttention to a memory": (
        crossed,
        lambda nn: nn.MultiheadAttention(4, 2, kdim=3, vdim=3, bias=True, batch_first=True),
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("case", TORCH)
def test_from_a_state_dict_and_back(tmp_path, case):
    torch = skips.library("torch")
    from safetensors.torch import load_file, save_file

    net, module, path = TORCH[case][0](), TORCH[case][1](torch.nn).eval(), tmp_path / "x.safetensors"
    with torch.no_grad():
        for array in module.state_dict().values():
            array.copy_(torch.rand(array.shape) + 0.3 if array.is_floating_point() else array)
    shapes = [net.layers[name].input_sample_shapes[0] for name in net.layers if name != "a"]
    shapes = shapes or net.layers["a"].input_sample_shapes
    inputs = [np.random.default_rng(0).normal(size=(3, *shape)).astype("f4") for shape in shapes]

    def theirs() -> np.ndarray:
        given = [torch.from_numpy(x) for x in inputs]
        is_attention = isinstance(module, torch.nn.MultiheadAttention)
        found = module(given[0], given[-1], given[-1]) if is_attention else module(*given)
        return (found[0] if isinstance(found, tuple) else found).detach().numpy()

    def ours() -> np.ndarray:
        return tensor.to_numpy(
            net.forward(False, inputs[0] if len(inputs) == 1 else dict(zip("qm", inputs, strict=True)))
        )

    wanted = theirs()
    save_file({f"block.{name}": array for name, array in module.state_dict().items()}, path)
    net.load(path, names={"a": "block"})
    np.testing.assert_allclose(ours(), wanted, 1e-5, 1e-5)

    net.save(path, names={"a": "block"}, weights_only=True)
    with torch.no_grad():
        for array in module.state_dict().values():
            array.zero_()
    module.load_state_dict({name.removeprefix("block."): array for name, array in load_file(path).items()})
    np.testing.assert_allclose(theirs(), wanted, 1e-5, 1e-5)

    value = bits(net.param_values()[0])
    net.param_values()[0].copy_from_numpy(np.zeros(net.param_values()[0].shape, "f4"))
    net.load(path)  # a file of ours knows its names
    assert bits(net.param_values()[0]) == value


def test_attention_is_written_side_by_side_unless_its_layers_have_names(tmp_path):
    net, other = (one(layers.MultiHeadAttention, (6, 4), 2, seed=seed) for seed in (1, 2))
    net.save(tmp_path / "a.safetensors")
    found = library.load_file(tmp_path / "a.safetensors")
    weights = [tensor.to_numpy(net.parameters()[f"a/{name}/weight"]).T for name in ("query", "key", "value")]
    np.testing.assert_array_equal(found["a.in_proj_weight"], np.concatenate(weights))
    library.save_file(found, tmp_path / "plain.safetensors")
    formats.load(other, tmp_path / "plain.safetensors")
    assert state_of(other) == state_of(net)

    net.save(tmp_path / "b.safetensors", names={"a": "h", "a/query": "h.q_proj"})
    library.save_file(library.load_file(tmp_path / "b.safetensors"), tmp_path / "plain.safetensors")
    with pytest.raises(SnapshotError, match="query"):
        formats.load(other, tmp_path / "plain.safetensors", names={"a": "h"})
    other = one(layers.MultiHeadAttention, (6, 4), 2, seed=4)
    formats.load(other, tmp_path / "plain.safetensors", names={"a": "h", "a/query": "h.q_proj"})
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda seed: image(layers.PReLU, seed=seed), ("alpha",)),
        (lambda seed: image(layers.GroupNormalization, groups=2, seed=seed), ("gamma", "beta")),
        (lambda seed: image(layers.LayerNormalization, axis=1, seed=seed), ("gamma", "beta")),
    ],
)
def test_our_own_names_in_a_file_of_others(tmp_path, make, names):
    net = make(1)
    arrays = {f"a.{name}": np.full(net.parameters()[f"a/{name}"].shape, 0.5, "f4") for name in names}
    library.save_file(arrays, tmp_path / "a.safetensors")
    net.load(tmp_path / "a.safetensors")
    for name in names:
        np.testing.assert_array_equal(tensor.to_numpy(net.parameters()[f"a/{name}"]), arrays[f"a.{name}"])


def test_attention_by_the_names_of_the_version_before(tmp_path):
    """Four modules; grouped queries still have them."""
    net, other = (one(layers.MultiHeadAttention, (6, 8), 4, kv_heads=2, seed=seed) for seed in (1, 2))
    plain, again = (one(layers.MultiHeadAttention, (6, 8), 4, seed=seed) for seed in (1, 2))
    net.save(tmp_path / "a.safetensors")
    assert library.load_file(tmp_path / "a.safetensors")["a.key.weight"].shape == (4, 8)
    arrays = {}
    for name in plain.param_names():
        array = tensor.to_numpy(plain.parameters()[name])
        arrays[name.replace("/", ".")] = np.ascontiguousarray(array.T)
    library.save_file(arrays, tmp_path / "b.safetensors")
    for target, file, source in ((other, "a", net), (again, "b", plain)):
        formats.load(target, tmp_path / f"{file}.safetensors")
        assert state_of(target) == state_of(source)


@pytest.mark.parametrize("second", [".npz", ".h5"])
def test_slopes_and_attention_through_other_formats(tmp_path, second):
    for make in (lambda seed: image(layers.PReLU, seed=seed), lambda seed: twice(seed)):
        net, other = make(1), make(2)
        formats.save(net, tmp_path / "a.safetensors")
        command.convert(str(tmp_path / "a.safetensors"), str(tmp_path / f"b{second}"))
        command.convert(str(tmp_path / f"b{second}"), str(tmp_path / "c.safetensors"))
        found, wanted = (library.load_file(tmp_path / name) for name in ("c.safetensors", "a.safetensors"))
        assert {name: bits(a) for name, a in found.items()} == {name: bits(a) for name, a in wanted.items()}
        formats.load(other, tmp_path / "c.safetensors")
        assert state_of(other) == state_of(net)


@pytest.mark.parametrize("noted", [["x", [0], []], ["x", [0], [], [1, 2]]])
def test_a_layout_of_another_form(noted):
    with pytest.raises(SnapshotError, match="x"):
        TorchLayout.of("x", noted)


@pytest.mark.parametrize("trailing", [-1, 63, 1 << 40])
def test_trailing_axes_that_no_array_has(trailing):
    assert not TorchLayout.of("x", ["x", [0], [], [trailing]]).fits(1)


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
