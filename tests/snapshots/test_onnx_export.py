"""`net.export`: versions of operators, dtypes, names, files beside, users' own operations, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_runs import check, run
from singa_lite import FeedForwardNet, autograd, layers, models, snapshots
from singa_lite.errors import SnapshotError
from skips import library

onnx = library("onnx")
RNG = np.random.default_rng(3)


def tagger() -> FeedForwardNet:
    """Texts of 6 ids with padding, through masks, recurrent layers and attention, to a label for each id."""
    net = FeedForwardNet(seed=1)
    ids = net.add(layers.Dummy("ids", input_sample_shape=(6,)))
    mask = net.add(layers.PaddingMask("mask"), ids)
    x = net.add(layers.Embedding("table", 9, 8), ids)
    x = net.add(layers.GRU("gru", 4, bidirectional=True, return_sequences=True), [x, mask])
    x = net.add(layers.TransformerBlock("block", 4, kv_heads=2, rotary=True, causal=True, activation="gelu"), [x, mask])
    net.add(layers.Dense("labels", 3), x)
    return net


def image_net() -> FeedForwardNet:
    """A little of each layer of images."""
    net = FeedForwardNet(seed=2)
    for layer in (
        layers.Conv2D("conv", 4, 3, stride=2, input_sample_shape=(3, 9, 8)),
        *(layers.BatchNormalization("norm"), layers.Activation("relu"), layers.AvgPooling2D("pool", 2, 1)),
        *(layers.Upsampling2D("up", 2), layers.GlobalAvgPooling2D("mean"), layers.Dense("scores", 5)),
    ):
        net.add(layer)
    return net


IDS = np.array([[3, 1, 4, 1, 5, 0], [2, 7, 1, 8, 0, 0], [6, 5, 3, 5, 8, 4]])
IMAGES = RNG.normal(size=(3, 3, 9, 8)).astype(np.float32)


@pytest.mark.parametrize("opset", range(17, 24))
def test_each_version_of_operators(opset: int, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    for net, name, batch in ((tagger(), "ids", IDS), (image_net(), "conv", IMAGES)):
        net.export(path, opset=opset)
        assert onnx.load(path).opset_import[0].version == opset
        check(net, path, {name: batch})


def test_what_may_change_is_symbolic_and_names_are_the_nets(tmp_path: Path) -> None:
    net, path = tagger(), tmp_path / "net.onnx"
    net.export(path)
    graph = onnx.load(path).graph
    assert [(one.name, extents(one)) for one in graph.input] == [("ids", ["batch", "length"])]
    assert [(one.name, extents(one)) for one in graph.output] == [("labels", ["batch", "length", 3])]
    assert set(net.param_names()) <= {one.name for one in graph.initializer}
    check(net, path, {"ids": IDS[:1, :4]})


def extents(value: Any) -> list[int | str]:
    """Of an input or output: numbers and symbols."""
    return [one.dim_param or one.dim_value for one in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_dtype_of_all_floats(dtype: str, tmp_path: Path) -> None:
    net, path = image_net(), tmp_path / "net.onnx"
    net.export(path, dtype=dtype)
    (made,) = run(path, {"conv": IMAGES.astype(dtype)})
    assert made.dtype == dtype
    np.testing.assert_allclose(made, net.predict(IMAGES), atol=4 * np.finfo(dtype).eps)


def test_bfloat16_is_written(tmp_path: Path) -> None:
    """ONNX Runtime has no kernels for it on a processor; the checker infers all shapes."""
    bfloat16 = library("ml_dtypes").bfloat16
    path = tmp_path / "net.onnx"
    net = tagger()
    net.export(path, dtype=bfloat16)
    graph = onnx.load(path).graph
    held = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    for name, value in net.parameters().items():
        np.testing.assert_array_equal(
            held[name].astype(np.float32), np.asarray(value).astype(bfloat16).astype(np.float32)
        )


def test_many_bytes_go_to_a_file_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots.onnx.file, "MOST_WITHIN", 100)
    net, path = tagger(), tmp_path / "net.onnx"
    net.export(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    onnx.checker.check_model(str(path), full_check=True)
    check(net, path, {"ids": IDS})

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(snapshots.onnx.file, "_write_model", full)  # which comes behind the weights
    net.parameters()["labels/bias"].copy_from_numpy(np.ones(3, np.float32))
    with pytest.raises(SnapshotError, match="no space left"):
        net.export(path)
    net.parameters()["labels/bias"].copy_from_numpy(np.zeros(3, np.float32))
    check(net, path, {"ids": IDS})  # both files are the old ones


class Halved(autograd.Function):
    """x / 2 and x / 4."""

    def makes(self, x: autograd.Output) -> dict[str, autograd.Output]:
        return {"half": autograd.Output(x.shape), "quarter": autograd.Output(x.shape)}

    def forward(self, x: np.ndarray, half: np.ndarray, quarter: np.ndarray) -> None:
        np.multiply(x, 0.5, out=half)
        np.multiply(x, 0.25, out=quarter)


class HalvedInOnnx(Halved):
    """The same, which says how ONNX does it."""

    def onnx(self, node: Any, x: str) -> tuple[str, str]:
        two = node("Constant", value_float=2.0)
        half = node("Div", x, two)
        return half, node("Div", half, two)


def own_net(function: type[autograd.Function]) -> FeedForwardNet:
    """A net of one own operation."""
    net = FeedForwardNet()
    net.add(layers.Lambda("own", lambda x: autograd.add(*function()(x)), input_sample_shape=(4,)))
    return net


def test_own_operations(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    net = own_net(HalvedInOnnx)
    net.export(path)
    check(net, path, {"own": RNG.normal(size=(2, 4)).astype(np.float32)})
    with pytest.raises(SnapshotError, match=r"Halved.*'own'"):
        own_net(Halved).export(path)
    check(net, path, {"own": RNG.normal(size=(3, 4)).astype(np.float32)})  # the file before is whole


def test_two_inputs_of_two_lengths(tmp_path: Path) -> None:
    net, path = FeedForwardNet(), tmp_path / "net.onnx"
    first = net.add(layers.Dense("first", 4, input_sample_shape=(5, 3)))
    second = net.add(layers.Dense("second", 4, input_sample_shape=(7, 3)), [])
    net.add(layers.MultiHeadAttention("both", 2), [first, second])
    net.export(path)
    given = onnx.load(path).graph.input
    assert [extents(one)[1] for one in given] == ["first_length", "second_length"]
    for steps in ((5, 7), (2, 3)):
        batch = {
            n: RNG.normal(size=(2, t, 3)).astype(np.float32) for n, t in zip(("first", "second"), steps, strict=True)
        }
        check(net, path, batch)


def continuing(kind: type[layers.LSTM], stateful: bool) -> FeedForwardNet:
    """Two stacks, and a layer with a mask that goes on within another one."""
    options = {"return_sequences": True, "stateful": stateful, "batch_size": 2 if stateful else None}
    net = FeedForwardNet(seed=5)
    x = net.add(layers.Dummy("x", input_sample_shape=(7, 3)))
    mask = net.add(layers.Dummy("mask", input_sample_shape=(7,)), [])
    x = net.add(kind("r", 4, num_stacks=2, **options), x)
    net.add(layers.Sequential("within", [kind("q", 5, **options)]), [x, mask])
    return net


@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_states_of_stateful_layers_go_in_and_out(kind: type[layers.LSTM], tmp_path: Path) -> None:
    """A text in pieces of unequal lengths, the states handed on, gives what it gives whole in a net without states."""
    net, path = continuing(kind, True), tmp_path / "net.onnx"
    net.export(path)
    graph, names = onnx.load(path).graph, list(net.states())
    assert [one.name for one in graph.input] == ["x", "mask", *names]
    assert [one.name for one in graph.output] == ["within", *(f"{name}/output" for name in names)]
    assert [extents(one) for one in (*graph.input[2:], *graph.output[1:])] == [
        ["batch", state.shape[1]] for state in net.states().values()
    ] * 2
    whole = continuing(kind, False)
    for count in (1, 3):
        batch = {"x": RNG.normal(size=(count, 7, 3)).astype("f4"), "mask": RNG.integers(0, 2, (count, 7)).astype("f4")}
        states = {name: np.zeros((count, state.shape[1]), "f4") for name, state in net.states().items()}
        made = []
        for start, stop in ((0, 3), (3, 4), (4, 7)):
            y, *after = run(path, {n: array[:, start:stop] for n, array in batch.items()} | states)
            made.append(y)
            states = dict(zip(states, after, strict=True))
        np.testing.assert_allclose(np.concatenate(made, 1), whole.predict(batch), rtol=0, atol=1e-5)


def test_language_models(tmp_path: Path) -> None:
    sizes = {"width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 24, "vocabulary": 40}
    for options in ({"architecture": "llama", "tied": True}, {"architecture": "qwen2"}):
        net = models.language_model(models.LanguageConfig(**sizes, **options), length=8, seed=1)
        net.export(tmp_path / "net.onnx")
        (name,) = net.input_shapes()
        check(net, tmp_path / "net.onnx", {name: RNG.integers(0, 40, (2, 5))})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"opset": 16}, ValueError),
        ({"opset": "21"}, ValueError),
        ({"opset": True}, ValueError),
        ({"dtype": int}, TypeError),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error, match="export"):
        image_net().export(tmp_path / "net.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="nowhere"):
        image_net().export(tmp_path / "nowhere" / "net.onnx")


@pytest.mark.parametrize(
    ("function", "culprit"),
    [
        (lambda x: x + float(x.shape[0]), "beta"),
        (lambda x: autograd.reduce_sum(x, 1) * (1 / x.shape[0]), "alpha"),
        (lambda x: x + np.arange(x.shape[0], dtype="f4").reshape(-1, 1), "constants"),
    ],
)
def test_numbers_of_one_batch_size_are_refused(function: Any, culprit: str, tmp_path: Path) -> None:
    """They would be those of the size that was traced, without a word."""
    net = FeedForwardNet()
    net.add(layers.Lambda("own", function, input_sample_shape=(3,)))
    with pytest.raises(SnapshotError, match=f"{culprit}.*'own'"):
        net.export(tmp_path / "net.onnx")


def test_parts_and_constants_of_own_layers(tmp_path: Path) -> None:
    net, path = FeedForwardNet(), tmp_path / "net.onnx"
    own = layers.Lambda("own", lambda x: x[:, -1] * np.arange(4, dtype="f4") + x[:, 0], input_sample_shape=(5, 4))
    net.add(own)
    net.export(path)
    check(net, path, {"own": RNG.normal(size=(3, 5, 4)).astype(np.float32)})


def test_nets_in_bfloat16_and_with_adapters(tmp_path: Path) -> None:
    library("ml_dtypes")
    net, path = tagger(), tmp_path / "net.onnx"
    net.loss = "softmax_cross_entropy"
    net.compile("sgd", parameter_dtype="bfloat16")
    net.add_lora(rank=2)
    net.export(path)
    check(net, path, {"ids": IDS})
