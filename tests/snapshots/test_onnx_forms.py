"""Forms of operators and files that `models.from_onnx` takes, and those that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_messages import array, model, node, onnx, refused
from onnx_runs import run
from singa_lite import models
from singa_lite.errors import ShapeError, SnapshotError

RNG = np.random.default_rng(4)


@pytest.mark.parametrize(
    ("kind", "attributes", "received"),
    [
        *((kind, {"activation_alpha": [1 / 6]}, r"'Tanh', 0\.2, 0\.5\]$") for kind in ("LSTM", "GRU")),
        ("LSTM", {"activation_alpha": [1 / 6, 0.3]}, r"'Tanh', 0\.3\d*, 0\.5\]$"),
        ("GRU", {"activation_alpha": [1 / 6, 1 / 6], "activation_beta": [0.5, 0.25]}, r"0\.25\]$"),
        ("LSTM", {}, r"'Tanh', 0\.2, 0\.5\]$"),
        ("RNN", {}, r"\['HardSigmoid', 0\.2, 0\.5\]$"),
    ],
)
def test_each_direction_has_its_own_numbers(
    kind: str, attributes: dict[str, Any], received: str, tmp_path: Path
) -> None:
    """Each HardSigmoid takes the next of the numbers, or the default, which is another function than ours."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    names = ["HardSigmoid", "Tanh", "Tanh"][: max(1, gates - 1)] * 2
    given = {"hidden_size": 3, "direction": "bidirectional", "activations": names, **attributes}
    steps = node(kind, "t", "w", "r", to="s", **given)
    arrays = [array("w", np.ones((2, gates * 3, 4), "f4")), array("r", np.ones((2, gates * 3, 3), "f4"))]
    nodes = [node("Transpose", "x", to="t", perm=[1, 0, 2]), steps, node("Transpose", "s", perm=[2, 0, 1, 3])]
    refused(model(nodes, arrays, ("n", 5, 4)), tmp_path, f"node '{kind.lower()}': wanted {kind} .*{received}")


def normalization(to: list[str], **attributes: Any) -> Any:
    """A file with BatchNormalization alone."""
    arrays = [array(name, np.array([3, 1, 4, 2], "f4") + at) for at, name in enumerate("abcd")]
    first = node("BatchNormalization", "x", *"abcd", to="y", **attributes)
    first.output.extend(to)
    return model([first], arrays)


def test_a_file_of_training_predicts_by_running_statistics(tmp_path: Path) -> None:
    onnx.save(normalization(["mean", "variance"], training_mode=1), tmp_path / "training.onnx")
    onnx.save(normalization([]), tmp_path / "plain.onnx")
    net, x = models.from_onnx(tmp_path / "training.onnx"), RNG.normal(size=(3, 4)).astype("f4")
    (right,) = run(tmp_path / "plain.onnx", {"x": x})
    np.testing.assert_allclose(net.predict(x), right, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(net.states()["batchnormalization/running_mean"], [5, 3, 6, 4])


@pytest.mark.parametrize(
    ("kind", "weights", "further", "shape"),
    [
        ("BatchNormalization", "abcd", ["mean", "variance"], (4,)),
        ("LayerNormalization", "ab", ["mean", "deviation"], (4,)),
        *(("Dropout", "", ["mask"], (4,)), ("MaxPool", "", ["places"], (4, 3))),
    ],
)
def test_a_further_output_that_is_used(
    kind: str, weights: str, further: list[str], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """By a node, or as the graph's own."""
    attributes = {"BatchNormalization": {"training_mode": 1}, "MaxPool": {"kernel_shape": [2]}}.get(kind, {})
    arrays = [array(name, np.ones(4, "f4")) for name in weights]
    first, last = node(kind, "x", *weights, to="first", **attributes), further[-1]
    first.output.extend(further)
    match = rf"node '{kind.lower()}': wanted the first 1 outputs of {kind} .*\['{last}'\]"
    refused(model([first, node("Add", "first", last)], arrays, ("n", *shape)), tmp_path, match)
    message = model([first, node("Relu", "first")], arrays, ("n", *shape))
    message.graph.output.append(onnx.helper.make_tensor_value_info(last, 1, ["n", "m"]))
    refused(message, tmp_path, match)


def test_computed_numbers_that_have_to_be_known(tmp_path: Path) -> None:
    largest = node("ReduceMax", "x", to="m", keepdims=0)
    nodes = [largest, node("Pad", "x", "p", "m")]
    refused(model(nodes, [array("p", np.zeros(4, "i8"))]), tmp_path, "node 'pad': wanted Pad with constant_value")
    nodes = [node("ReduceMax", "x", "a", to="m", keepdims=0), node("Resize", "x", "", "m")]
    refused(model(nodes, [array("a", np.array([0, 2, 3]))], ("n", 1, 2, 2)), tmp_path, "node 'resize': .* scales")


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        *(
            ((5,), TypeError, r"shapes: .*\(5,\)"),
            ([], TypeError, r"shapes: .*\[\]"),
            ("x", TypeError, "shapes: .*'x'"),
        ),
        *(({"x": 5}, TypeError, "input 'x': .*5"), ({"x": (2.5,)}, TypeError, "input 'x': .*2.5")),
        *(({"x": "4"}, TypeError, "input 'x': .*'4'"), ({"x": (-1,)}, ShapeError, r"input 'x': .*\(-1,\)")),
        *(
            ({"zz": (4,)}, ValueError, "an input: wanted one of 'x', received 'zz'"),
            ({3: (4,)}, ValueError, "received 3"),
        ),
        *(({"x": (0,)}, SnapshotError, "input 'x'"), ({"x": (2, 4)}, SnapshotError, "input 'x', of 1 numbers")),
    ],
)
def test_shapes_are_checked(shapes: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    onnx.save(model([node("Relu", "x")], shape=("n", "t")), tmp_path / "net.onnx")
    with pytest.raises(error, match=f"from_onnx.*{message}"):
        models.from_onnx(tmp_path / "net.onnx", shapes=shapes)
    net = models.from_onnx(tmp_path / "net.onnx", shapes={"x": iter([np.int64(3)])})
    assert net.input_shapes() == {"x": (3,)}


def test_operators_of_old_versions(tmp_path: Path) -> None:
    """Opset 6 has arithmetic with an axis, opset 8 means of each element."""
    added = node("Add", "x", "b", broadcast=1, axis=1)
    old = model([added], [array("b", np.arange(4, dtype="f4"))], ("n", 4, 4), opset=6)
    refused(old, tmp_path, "wanted operators of opset 7 or newer, received opset 6")
    ones = [array(name, np.ones((4, 3), "f4")) for name in "abcd"]
    each = model([node("BatchNormalization", "x", *"abcd", spatial=0)], ones, ("n", 4, 3), opset=8)
    refused(each, tmp_path, "node 'batchnormalization': .* received spatial 0")


@pytest.mark.parametrize("attributes", [{"axes": [0, 1, 3, 2]}, {"keep_aspect_ratio_policy": "not_larger"}])
def test_resized_axes_are_all_in_their_order(attributes: dict[str, Any], tmp_path: Path) -> None:
    resized = node("Resize", "x", "", "", "s", **attributes)
    message = model([resized], [array("s", np.array([1, 1, 4, 9]))], ("n", 1, 2, 3))
    refused(message, tmp_path, "node 'resize': wanted Resize with scales or sizes of all axes")
