"""`models.from_onnx`: nets come back from their files, predict the same and train; damaged files are refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_lite
from onnx_messages import array, model, node, refused
from onnx_runs import run
from singa_lite import FeedForwardNet, layers, models, optimizer
from singa_lite.errors import SnapshotError
from skips import library

onnx = library("onnx")
RNG = np.random.default_rng(5)
IDS = RNG.integers(0, 20, (3, 6))


def chain(*made: Any) -> FeedForwardNet:
    """A net of layers one behind the other."""
    net = FeedForwardNet(seed=1)
    for layer in made:
        net.add(layer)
    return net


def digits() -> FeedForwardNet:
    """Convolution, pooling, dense."""
    return chain(
        layers.Conv2D("conv", 4, 3, input_sample_shape=(1, 8, 6)),
        *(layers.Activation("relu"), layers.MaxPooling2D("pool", 2, 2, "valid"), layers.Flatten("flat")),
        *(layers.Dense("hidden", 7), layers.Activation("tanh", "tanh"), layers.Dense("scores", 3)),
    )


def residual() -> FeedForwardNet:
    """A block of convolutions with normalization, and a way past it."""
    net = chain(layers.Conv2D("conv", 4, 3, input_sample_shape=(3, 8, 6)))
    x = net.layers["conv"]
    for layer in (layers.BatchNormalization("norm"), layers.Activation("relu"), layers.Conv2D("second", 4, 3)):
        net.add(layer)
    net.add(layers.Merge("sum"), [x, net.layers["second"]])
    net.add(layers.GlobalAvgPooling2D("mean"))
    net.add(layers.Dense("scores", 3))
    return net


def recurrent() -> FeedForwardNet:
    """All recurrent layers, one in both directions."""
    return chain(
        layers.Embedding("words", 20, 8, input_sample_shape=(6,)),
        layers.LSTM("lstm", 5, return_sequences=True, bidirectional=True, recurrent_activation="hard_sigmoid"),
        layers.GRU("gru", 4, return_sequences=True),
        layers.GRU("reset", 4, return_sequences=True, reset_after=False),
        *(layers.SimpleRNN("rnn", 6, activation="relu"), layers.Dense("scores", 3)),
    )


def transformer() -> FeedForwardNet:
    """Attention of both forms, Gelu by erf and by tanh, LayerNormalization."""
    return chain(
        layers.Embedding("words", 20, 8, input_sample_shape=(6,)),
        layers.TransformerBlock("block", 2, causal=True),
        layers.TransformerBlock("grouped", 4, kv_heads=2, rotary=True, norm="rms", activation="gelu_tanh"),
        layers.Dense("scores", 3),
    )


CASES: dict[str, tuple[Callable[[], FeedForwardNet], np.ndarray]] = {
    "digits": (digits, RNG.normal(size=(4, 1, 8, 6)).astype("f4")),
    "residual": (residual, RNG.normal(size=(4, 3, 8, 6)).astype("f4")),
    "recurrent": (recurrent, IDS),
    "transformer": (transformer, IDS),
}


def back(name: str, tmp_path: Path) -> tuple[FeedForwardNet, np.ndarray, np.ndarray]:
    """A net that went out and came back, a batch, and what ONNX Runtime makes of it."""
    make, batch = CASES[name]
    net, path = make(), tmp_path / "net.onnx"
    net.export(path)
    (given,) = net.input_shapes()
    (right,) = run(path, {given: batch})
    return models.from_onnx(path, shapes={given: batch.shape[1:]}), batch, right


@pytest.mark.parametrize("name", CASES)
def test_what_went_out_comes_back_and_trains(name: str, tmp_path: Path) -> None:
    net, batch, right = back(name, tmp_path)
    np.testing.assert_allclose(net.predict(batch), right, rtol=0, atol=1e-5 * np.abs(right).max())
    np.testing.assert_allclose(net.predict(batch[:1]), right[:1], rtol=0, atol=1e-5 * np.abs(right).max())
    net.compile(optimizer.SGD(lr=0.05), loss="squared_error")
    before = {key: np.array(value) for key, value in net.parameters().items()}
    losses = [float(net.train_one_batch(batch, np.ones_like(right))[0]) for _ in range(5)]
    assert losses[-1] < losses[0]
    still = [key for key, value in net.parameters().items() if np.array_equal(before[key], value)]
    assert not [key for key in still if not key.endswith("key.Add/bias")]  # of keys, which a softmax does not see
    net.save(tmp_path / "net.h5")
    again = singa_lite.load(tmp_path / "net.h5")
    np.testing.assert_array_equal(again.predict(batch), net.predict(batch))
    net.export(tmp_path / "again.onnx")
    (given,) = net.input_shapes()
    (made,) = run(tmp_path / "again.onnx", {given: batch})
    np.testing.assert_allclose(made, net.predict(batch), rtol=0, atol=1e-5 * np.abs(made).max())


def test_gradients_are_those_of_the_net_that_went_out(tmp_path: Path) -> None:
    """Of weights in ONNX's layout; running statistics move as well."""
    make, batch = CASES["residual"]
    first = make()
    first.export(tmp_path / "net.onnx")
    second = models.from_onnx(tmp_path / "net.onnx")
    target = RNG.normal(size=(4, 3)).astype("f4")
    for net in (first, second):
        net.compile(optimizer.SGD(lr=0.1), loss="squared_error")
        net.train_one_batch(batch, target)
    for name, other in (("conv/weight", "conv.Conv/weight"), ("norm/gamma", "norm.BatchNormalization/gamma")):
        np.testing.assert_allclose(first.parameters()[name], second.parameters()[other], atol=1e-6)
    for name in ("running_mean", "running_var"):
        found = second.states()[f"norm.BatchNormalization/{name}"]
        np.testing.assert_allclose(first.states()[f"norm/{name}"], found, atol=1e-6)


def test_a_head_is_cut_off(tmp_path: Path) -> None:
    net, batch, _ = back("digits", tmp_path)
    hidden = next(name for name in net.layers if name.startswith("tanh"))
    body = net.submodel(hidden)
    assert body.predict(batch).shape == (4, 7)


def test_unknown_operators_are_listed_with_their_counts(tmp_path: Path) -> None:
    nodes = [node("NonZero", "x", to="a"), node("Det", "x", to="b"), node("Det", "x")]
    refused(model(nodes), tmp_path, r"Det \(2\), NonZero \(1\)")


def test_damaged_files(tmp_path: Path) -> None:
    digits().export(tmp_path / "net.onnx")
    whole = (tmp_path / "net.onnx").read_bytes()
    for bad in (b"", b"no file", whole[:-50], whole[:200]):
        refused(bad, tmp_path, "bad.onnx")
    with pytest.raises(SnapshotError, match="nowhere"):
        models.from_onnx(tmp_path / "nowhere.onnx")
    refused(model([node("Relu", "z", to="a"), node("Relu", "a", to="z"), node("Relu", "z")]), tmp_path, "valid graph")
    refused(model([node("Relu", "x")], shape=("n", "t")), tmp_path, "sample shape of the input 'x'")
    refused(model([node("Reshape", "x", "s")], [array("s", np.array([1, -1]))]), tmp_path, "first axis is the batch")
    refused(model([node("MatMul", "x", "w")], [array("w", np.ones((3, 2), "f4"))]), tmp_path, "node 'matmul'")


def test_bytes_that_were_changed_give_no_other_error(tmp_path: Path) -> None:
    """Any byte of the graph's fields, and any length; a file that still is valid may come in."""
    recurrent().export(tmp_path / "net.onnx")
    whole, random = (tmp_path / "net.onnx").read_bytes(), np.random.default_rng(3)
    for at in range(150):
        bad = bytearray(whole)
        for place in random.integers(0, min(len(bad), 4000), 2):
            bad[place] = random.integers(256)
        (tmp_path / "bad.onnx").write_bytes(bad if at % 5 else bad[: random.integers(len(bad))])
        with suppress(SnapshotError):
            models.from_onnx(tmp_path / "bad.onnx", shapes={"words": (6,)})


def test_names_that_are_no_text(tmp_path: Path) -> None:
    named = model([node("Relu", "x")]).SerializeToString().replace(b"relu", b"r\xe9lu")
    refused(named, tmp_path, "valid graph")
    wrong = model([node("Unsqueeze", "x", "a")], [array("a", np.array([1, 1]))])
    refused(wrong, tmp_path, "node 'unsqueeze'")


def test_claimed_shapes_need_their_bytes(tmp_path: Path) -> None:
    """Nothing of their size is allocated."""
    for shape in ((4, 1 << 40), (4, -2)):
        huge = onnx.TensorProto(name="w", data_type=1, dims=shape, raw_data=b"0123")
        refused(model([node("MatMul", "x", "w")], [huge]), tmp_path, "'w'")
    made = [node("ConstantOfShape", "s", to="w"), node("Add", "x", "w")]
    refused(model(made, [array("s", np.array([1 << 20, 1 << 20]))]), tmp_path, "at most")
    made = [node("Transpose", "a", to="b", perm=[1, 0]), node("Add", "a", "b", to="w"), node("Add", "x", "w")]
    refused(model(made, [array("a", np.zeros((1 << 16, 1), "f4"))]), tmp_path, "at most")
    typed = onnx.TensorProto(name="w", data_type=8, dims=[4])
    refused(model([node("Add", "x", "w")], [typed]), tmp_path, "numbers or booleans as 'w'")


@pytest.mark.parametrize(
    ("location", "offset", "length"),
    [
        *(("../outside", 0, 16), ("/outside", 0, 16), ("link", 0, 16), ("missing", 0, 16), ("", 0, 16)),
        *(("data", 8, 16), ("data", -1, 16), ("data", 0, 12), ("data", "x", 16)),
    ],
)
def test_external_data_stays_in_the_folder(location: str, offset: Any, length: int, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    np.arange(4, dtype="f4").tofile(folder / "data")
    np.arange(4, dtype="f4").tofile(tmp_path / "outside")
    (folder / "link").symlink_to(tmp_path / "outside")
    refused(external(location, offset, length), folder, "'w'")


def external(location: str, offset: Any, length: int) -> Any:
    """x + w with w in a file beside."""
    weight = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        weight.external_data.add(key=key, value=str(value))
    return model([node("Add", "x", "w")], [weight])


def test_external_data_is_read(tmp_path: Path) -> None:
    np.arange(6, dtype="f4").tofile(tmp_path / "data")
    (tmp_path / "good.onnx").write_bytes(external("data", 8, 16).SerializeToString())
    net = models.from_onnx(tmp_path / "good.onnx")
    np.testing.assert_array_equal(net.predict(np.zeros((2, 4), "f4")), [[2, 3, 4, 5]] * 2)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-6)])
@pytest.mark.parametrize("name", ["digits", "residual", "transformer"])
def test_other_floats_come_in_as_float32(name: str, dtype: str, tolerance: float, tmp_path: Path) -> None:
    """Weights, inputs and what is cast; to a few roundings of the file's dtype (2**-11, 2**-8) of the largest value.

    ONNX Runtime lacks most operators in bfloat16, and some in float64: there it runs the net's file in float32.
    """
    make, batch = CASES[name]
    net, path = make(), tmp_path / "net.onnx"
    net.export(path, dtype=dtype, opset=22)  # the first with convolutions in bfloat16
    (given,) = net.input_shapes()
    again = models.from_onnx(path, shapes={given: batch.shape[1:]})
    assert {value.dtype for value in again.parameters().values()} == {np.dtype("float32")}
    if dtype != "float16":
        net.export(path)
    elif batch.dtype.kind == "f":
        batch = batch.astype(dtype)
    (right,) = run(path, {given: batch})
    np.testing.assert_allclose(again.predict(batch), right, rtol=0, atol=tolerance * np.abs(right).max())
