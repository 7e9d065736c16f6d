"""What ONNX Runtime gives for a file and a batch, beside what the net gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from singa_lite import FeedForwardNet, tensor
from skips import library

onnxruntime = library("onnxruntime")


def run(path: Path, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs of a file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options).run(None, dict(batch))


def predicted(net: FeedForwardNet, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What the net gives; a last layer may have several outputs."""
    made = net.forward(False, {name: tensor.from_numpy(array, net.device) for name, array in batch.items()})
    outputs = made.values() if isinstance(made, Mapping) else [made]
    return [tensor.to_numpy(t) for one in outputs for t in (one if isinstance(one, Sequence) else [one])]


def check(net: FeedForwardNet, path: Path, batch: Mapping[str, np.ndarray]) -> None:
    """What the file gives is what the net gives, to 1e-5 of the largest value; ids and masks are equal."""
    for made, right in zip(run(path, batch), predicted(net, batch), strict=True):
        assert made.shape == right.shape and made.dtype == right.dtype
        if made.dtype.kind != "f":
            np.testing.assert_array_equal(made, right)
            continue
        largest = np.abs(right, where=np.isfinite(right), out=np.zeros_like(right)).max(initial=0)
        np.testing.assert_allclose(made, right, rtol=0, atol=1e-5 * max(float(largest), 1e-3))
