"""Forms of operators and files that `models.from_onnx` takes, and those that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_messages import array, model, node, refused


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
