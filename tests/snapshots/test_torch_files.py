"""Safetensors files: names and layouts of PyTorch's modules, the library's own files, and names of one's own."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import singa_files
import skips
from every_row import over_rows
from format_cases import WHOLE, WRITTEN, write_safetensors
from nets import all_bits, bits, state_of
from singa_lite import FeedForwardNet, SnapshotError, layers, loss, optimizer, tensor
from singa_lite.snapshots import command, formats, net_tree, output
from singa_lite.snapshots.tree import Tree
from snapshot_nets import dense_net, lazy, make_net, trained

library = skips.library("safetensors.numpy")


def value(net: FeedForwardNet, name: str) -> np.ndarray:
    return tensor.to_numpy(net.parameters()[name])


def of_library(path: Any) -> dict[str, Any]:
    return {name: bits(array) for name, array in library.load_file(path).items()}


# ---- what is in a file


def test_arrays_begin_at_multiples_of_their_elements(tmp_path):
    mixed = {"b": np.zeros(3, np.uint8), "h": np.zeros(5, np.float16), "d": np.zeros(1), "f": np.zeros(3, np.float32)}
    made = {f"parameters/x/{n}": lazy(a) for n, a in mixed.items()}
    formats.write(Tree(made, {"format": "x"}), tmp_path / "x.safetensors")
    data = (tmp_path / "x.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    for name, array in mixed.items():
        assert (start + header[f"x.{name}"]["data_offsets"][0]) % array.itemsize == 0
    with skips.library("safetensors").safe_open(tmp_path / "x.safetensors", framework="np") as file:
        assert file.metadata()["format"] == "pt"


def test_an_array_that_is_turned_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_PIECE", 100)
    net, other = dense_net(), dense_net(seed=8)
    for each in (net, other):
        each.add(layers.Dense("wide", 77))
        each.add(layers.Dense("high", 5))
    formats.save(net, tmp_path / "x.safetensors")
    formats.load(other, tmp_path / "x.safetensors")
    assert state_of(other) == state_of(net)
    assert np.array_equal(library.load_file(tmp_path / "x.safetensors")["high.weight"], value(net, "high/weight").T)


@pytest.mark.parametrize("shape", [(3, 70), (70, 3), (1, 9000), (9000, 1), (130, 129), (2, 3, 400), (0, 5), (600, 700)])
def test_copies_of_arrays_that_lie_otherwise(shape):
    array = np.arange(np.prod(shape), dtype="f4").reshape(shape).T
    assert bits(output.copied(array, array.dtype)) == bits(np.ascontiguousarray(array))


def test_a_sequences_weight_has_no_height_in_the_file_and_had_one_before(tmp_path):
    net, path = one(layers.Conv1D, (4, 9), 6, 3), tmp_path / "x.safetensors"
    formats.save(net, path, names={"a": "features"})
    found = library.load_file(path)
    assert found["features.weight"].shape == (6, 4, 3)
    for weight in (found["features.weight"], value(net, "a/weight")):
        library.save_file(found | {"features.weight": weight}, path)
        other = one(layers.Conv1D, (4, 9), 6, 3, seed=8)
        formats.load(other, path, names={"a": "features"})
        assert state_of(other) == state_of(net)


# ---- files of the library


def test_floats_are_widened_and_not_narrowed(tmp_path, monkeypatch):
    monkeypatch.setattr("singa_lite.snapshots.formats.safetensors.file_tree._AT_ONCE", 4)
    weight, path = np.array([[1, -2.5, 3], [np.inf, 0.15625, -0.0]], np.float32), tmp_path / "x.safetensors"
    narrow = {"F16": lambda array: array.astype("f2"), "BF16": lambda array: (array.view("u4") >> 16).astype("u2")}
    for dtype, narrowed in narrow.items():
        arrays = {"dense.weight": weight, "dense.bias": np.ones(2, np.float32)}
        write_safetensors(path, {name: (dtype, narrowed(array)) for name, array in arrays.items()})
        net = dense_net()
        formats.load(net, path)
        assert bits(value(net, "dense/weight")) == bits(np.ascontiguousarray(weight.T))
        assert bits(value(net, "dense/bias")) == bits(np.ones(2, np.float32))
    library.save_file({"dense.weight": np.ones((2, 3)), "dense.bias": np.ones(2)}, path)
    with pytest.raises(SnapshotError, match=r"'parameters/dense/weight'.*float64"):
        formats.load(dense_net(), path)


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        ({"dense.bias": None}, "parameters/dense/bias"),
        ({"other": np.ones(1)}, "'other'"),
        ({"dense.weight": np.ones((3, 2), "f4")}, "parameters/dense/weight"),
        ({"dense.weight": np.ones(6, "f4")}, "parameters/dense/weight"),
        ({"parameters/dense/bias": np.ones(2, "f4")}, "parameters/dense/bias"),
    ],
)
def test_files_of_others_that_do_not_fit(tmp_path, changes, culprit):
    theirs = {"dense.weight": np.ones((2, 3), "f4"), "dense.bias": np.ones(2, "f4")} | changes
    library.save_file({name: array for name, array in theirs.items() if array is not None}, tmp_path / "x.safetensors")
    with pytest.raises(SnapshotError, match=culprit):
        formats.load(dense_net(), tmp_path / "x.safetensors")


def test_odd_headers_that_the_format_allows(tmp_path):
    header = b'{"x.y":{"shape":[],"data_offsets":[0,8],"dtype":"F64"},'
    header += b'"z":{"dtype":"I8","shape":[0,5],"data_offsets":[8,8]}}   '
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + np.float64(2.5).tobytes())
    assert set(library.load_file(path)) == {"x.y", "z"}
    with formats.opened(path) as source:
        assert source.read("parameters/x/y") == 2.5
        assert source.read("z").shape == (0, 5)


# ---- names of one's own


def test_names_of_ones_own(tmp_path):
    net, other, path = trained(), make_net("Adam", seed=8), tmp_path / "x.safetensors"
    names = {"conv": "features.0", "parameters/first/weight": "tied", "state/norm/running_var": "v/r", "dense": ""}
    formats.save(net, path, names=names)
    found = library.load_file(path)
    assert {"features.0.weight", "features.0.bias", "tied", "first.bias", "v/r", "weight", "bias"} <= set(found)
    assert np.array_equal(found["tied"], value(net, "first/weight").T)
    for options in ({}, {"names": names}):  # a file of ours knows them
        formats.load(other, path, **options)
        assert state_of(other) == state_of(net)
        other = make_net("Adam", seed=9)


def test_a_file_of_ours_into_a_net_of_other_names(tmp_path):
    net, other = dense_net("here"), dense_net("there", seed=8)
    formats.save(net, tmp_path / "x.safetensors")
    with pytest.raises(SnapshotError, match="parameters/there/weight"):
        formats.load(other, tmp_path / "x.safetensors")
    formats.load(other, tmp_path / "x.safetensors", names={"there": "here"})
    assert bits(value(other, "there/weight")) == bits(value(net, "here/weight"))


@pytest.mark.parametrize(
    ("names", "error", "culprit"),
    [
        ({"conv": "norm"}, SnapshotError, "norm.(weight|bias)"),
        ({"unknown": "x"}, SnapshotError, "unknown"),
        ({"parameters/conv/weight": "__metadata__"}, SnapshotError, "__metadata__"),
        ({"conv": "\ud800"}, SnapshotError, "Unicode"),
        *((names, TypeError, "names") for names in ({"conv": 3}, {3: "conv"}, ["ab"], 7)),
    ],
)
def test_names_that_cannot_be(tmp_path, names, error, culprit):
    with pytest.raises(error, match=culprit):
        formats.save(make_net(), tmp_path / "x.safetensors", names=names)
    assert not list(tmp_path.iterdir())


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
    "Conv1d": (lambda: one(layers.Conv1D, (4, 9), 6, 3, pad=1), lambda nn: nn.Conv1d(4, 6, 3, 1, 1)),
    "Conv1d of groups": (
        lambda: one(layers.Conv1D, (4, 9), 6, 3, border_mode="valid", groups=2),
        lambda nn: nn.Conv1d(4, 6, 3, groups=2),
    ),
    "BatchNorm2d": (lambda: image(layers.BatchNormalization), lambda nn: nn.BatchNorm2d(4)),
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


def test_attention_by_the_names_of_the_version_before(tmp_path):
    """Four modules, which the file of any program may have."""
    net, other = (one(layers.MultiHeadAttention, (6, 8), 4, seed=seed) for seed in (1, 2))
    arrays = {name.replace("/", "."): np.ascontiguousarray(value(net, name).T) for name in net.param_names()}
    library.save_file(arrays, tmp_path / "b.safetensors")
    formats.load(other, tmp_path / "b.safetensors")
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize("second", [".npz", ".h5"])
def test_layouts_go_through_other_formats(tmp_path, second):
    a, b, c = tmp_path / "a.safetensors", tmp_path / f"b{second}", tmp_path / "c.safetensors"

    def check(make: Any) -> None:
        net = make(1)
        formats.save(net, a)
        command.convert(str(a), str(b))
        command.convert(str(b), str(c))
        assert of_library(c) == of_library(a)
        for path in (b, c):
            other = make(2)
            formats.load(other, path)
            assert state_of(other) == state_of(net)

    makers = {
        "PReLU": lambda seed: image(layers.PReLU, seed=seed),
        "two directions": twice,
        "Conv1D": lambda seed: one(layers.Conv1D, (4, 9), 6, 3, seed=seed),
    }
    over_rows(check, [(name, (make,)) for name, make in makers.items()])


# ---- files of other programs


MATRICES = ("weight", "linear.weight", "image.weight", "image.bias", "sub.x/y.weight", ".weight")
VECTORS = ("norm.weight", "norm.bias", "norm.running_mean", "scaled.gamma", "scaled.weight", "linear.bias", "/", "")
THEIRS = {
    **{name: np.arange(6, dtype="f4").reshape(2, 3) for name in MATRICES},
    **{name: np.ones(3, "f4") for name in VECTORS},
    **{"cls_token": np.ones((1, 1, 4), "f4"), "conv.weight": np.ones((2, 3, 5), "f4")},
    **{"manifest": np.ones(2, np.uint8), "half.weight": np.ones((2, 2), "f2"), "mask": np.array([True, False])},
}


@pytest.mark.parametrize("second", [".npz", ".safetensors"])
def test_names_and_layouts_come_back(tmp_path, second):
    library.save_file(THEIRS, tmp_path / "a.safetensors")
    command.convert(str(tmp_path / "a.safetensors"), str(tmp_path / f"b{second}"))
    assert list(command.differences(str(tmp_path / "a.safetensors"), str(tmp_path / f"b{second}"))) == []
    command.convert(str(tmp_path / f"b{second}"), str(tmp_path / "c.safetensors"))
    assert of_library(tmp_path / "c.safetensors") == {name: bits(array) for name, array in THEIRS.items()}


def test_paths_of_a_file_without_a_net(tmp_path):
    library.save_file(THEIRS, tmp_path / "a.safetensors")
    with formats.opened(tmp_path / "a.safetensors") as source:
        shapes = {path: shape for path, (shape, _) in source.specs.items()}
    assert shapes["cls_token"] == (1, 1, 4)
    assert shapes["parameters/linear/weight"] == (3, 2)
    assert shapes["parameters/image/gamma"] == shapes["parameters/image/beta"] == (2, 3)
    assert shapes["weight"] == shapes[".weight"] == shapes["sub.x/y.weight"] == (2, 3)
    assert {"scaled.gamma", "parameters/scaled/gamma", "state/norm/running_mean"} <= shapes.keys()
    library.save_file({"a.b": np.ones(2), "parameters/a/b": np.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(SnapshotError, match="'parameters/a/b'"), formats.opened(tmp_path / "x.safetensors"):
        pass


def test_a_file_of_the_same_format_keeps_what_the_tree_has_not(tmp_path):
    """bfloat16, the batches that a BatchNorm has seen, metadata, the order: it is copied."""
    arrays = {
        "b.num_batches_tracked": ("I64", np.array(3)),
        "a.weight": ("BF16", np.arange(6, dtype="u2").reshape(2, 3)),
    }
    write_safetensors(tmp_path / "a.safetensors", arrays, __metadata__={"of": "another"})
    content = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "b.safetensors").write_bytes(b"old")
    told = command.convert(str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"))
    assert (tmp_path / "b.safetensors").read_bytes() == content
    assert str(told) == "2 arrays"
    told = command.convert(str(tmp_path / "a.safetensors"), str(tmp_path / "c.npz"))
    assert str(told) == "1 arrays; left out: b.num_batches_tracked"
    with formats.opened(tmp_path / "c.npz") as source:
        assert not source.left_out


# ---- random state, of which other programs' files have none


@pytest.mark.parametrize("second", [".h5", ".npz", ".safetensors"])
def test_random_state_stays_where_the_origin_had_none(tmp_path, second):
    """Also after a conversion to a format that has it."""
    net, other = dense_net(seed=1), dense_net(seed=2)
    for each in (net, other):
        each.add(layers.Dropout("drop", 0.5))
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


# ---- layers within layers: modules within modules

X, Y = np.arange(15, dtype=np.float32).reshape(3, 5), np.array([0, 1, 1])


def block_net(seed: int = 3, steps: int = 0) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=seed)
    inner = [layers.Dense("d", 4), layers.BatchNormalization("norm"), layers.Dropout("drop", 0.5), layers.Dense("e", 5)]
    net.add(layers.Residual("block", inner, input_sample_shape=(5,)))
    net.add(layers.Dense("out", 2))
    net.compile(optimizer.SGD(0.1, 0.9))
    for _ in range(steps):
        net.train_one_batch(X, Y)
    return net


@pytest.mark.parametrize("suffix", WRITTEN)
def test_all_of_layers_within_layers_comes_back_or_the_format_names_the_layer(tmp_path, suffix):
    net, other, path = block_net(steps=1), block_net(8), tmp_path / f"x{suffix}"
    if suffix in WHOLE:
        formats.save(net, path)
        formats.load(other, path)
        assert state_of(other) == state_of(net)
        return
    with pytest.raises(SnapshotError, match="block/d"):
        formats.save(net, path)
    assert not path.exists()


@pytest.mark.parametrize("names", [{}, {"block": "h.0", "block/e": "e"}], ids=["as they are", "renamed"])
def test_names_are_those_of_modules_within_modules(tmp_path, names):
    net, other, path = block_net(steps=1), block_net(8), tmp_path / "x.safetensors"
    formats.save(net, path, weights_only=True, names=names)
    found, block = library.load_file(path), names.get("block", "block")
    np.testing.assert_array_equal(found[f"{block}.d.weight"], value(net, "block/d/weight").T)
    np.testing.assert_array_equal(found[f"{block}.norm.weight"], value(net, "block/norm/gamma"))
    assert {f"{block}.norm.running_mean", names.get("block/e", "block.e") + ".weight", "out.weight"} < set(found)
    formats.load(other, path, names=names, optimizer=False)
    assert all_bits(other.parameters()) == all_bits(net.parameters())


def test_a_layer_whose_name_has_a_dot_beside_one_within_another_is_refused(tmp_path):
    net = FeedForwardNet(seed=3)
    net.add(layers.Sequential("a", [layers.Dense("b", 4, input_sample_shape=(5,))]))
    net.add(layers.Dense("a.b", 2))
    with pytest.raises(SnapshotError, match=r"a\.b\.weight"):
        formats.save(net, tmp_path / "x.safetensors")


@pytest.mark.peer
def test_pytorch_loads_a_module_within_a_module(tmp_path):
    torch = skips.library("torch")
    from safetensors.torch import load_file

    net, path = block_net(steps=1), tmp_path / "x.safetensors"
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


@pytest.mark.parametrize(("suffix", "mark"), [(".zip", "."), (".pkl", "/")])
def test_files_of_singa_of_layers_within_layers(tmp_path, suffix, mark):
    net, other, path = block_net(steps=1), block_net(8), tmp_path / f"x{suffix}"
    arrays = {}
    for entry, one in net_tree.of_net(net).arrays.items():
        branch, _, rest = entry.partition("/")
        layer, _, name = rest.rpartition("/")
        flat = singa_files.of_tree({f"{branch}/{layer.replace('/', '.')}/{name}": one.fetch()}, mark)
        arrays |= {key if mark == "." else key.replace(".", "/"): array for key, array in flat.items()}
    path.write_bytes(singa_files.states_zip(arrays) if suffix == ".zip" else pickle.dumps(arrays, 4))
    formats.load(other, path, optimizer=False)
    assert all_bits(other.parameters()) == all_bits(net.parameters())
