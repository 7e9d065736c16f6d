"""Estimators in a pipeline that skl2onnx converts: labels and probabilities are those of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, autograd, layers
from singa_lite.errors import SnapshotError
from skips import library

skl2onnx = library("skl2onnx")
onnxruntime = library("onnxruntime")
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from singa_lite.sklearn import NetClassifier, NetRegressor, register_onnx_converters  # noqa: E402

RNG = np.random.default_rng(4)
X = RNG.normal(size=(30, 5))
LABELS = {
    "int": (X[:, 0] > X[:, 1]) * 7 - 3,
    "str": np.array(["oak", "elm", "fir"])[RNG.integers(0, 3, 30)],
    "bool": X[:, 0] > 0,
}
CHECKED = {"rtol": 0, "atol": 1e-6}


def run(model: Any, samples: np.ndarray) -> list[np.ndarray]:
    """All outputs of a model for the input "X"."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"X": samples})


@pytest.fixture(autouse=True)
def _converters() -> None:
    register_onnx_converters()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", LABELS)
def test_a_classifier_in_a_pipeline(kind: str, dtype: str) -> None:
    samples = X.astype(dtype)
    made = make_pipeline(StandardScaler(), NetClassifier(hidden=(8, 6), epochs=5, random_state=0))
    made.fit(samples, LABELS[kind])
    model = skl2onnx.to_onnx(made, samples[:1], options={"zipmap": False})
    for count in (1, 30):
        labels, shares = run(model, samples[:count])
        assert labels.tolist() == made.predict(samples[:count]).tolist()
        assert shares.dtype == dtype
        np.testing.assert_allclose(shares, made.predict_proba(samples[:count]), **CHECKED)


def masked(net: FeedForwardNet, shape: tuple[int, ...], outputs: int) -> None:
    """A recurrent layer with a mask, which becomes a graph in the graph; names of skl2onnx's own."""
    x = net.add(layers.Dummy("X", input_sample_shape=shape))
    mask = net.add(layers.Lambda("mask", lambda x: autograd.abs(x[:, :, 0])), x)
    net.add(layers.GRU("variable", 4), [x, mask])
    net.add(layers.Dense("label", outputs))


def stateful(net: FeedForwardNet, shape: tuple[int, ...], outputs: int) -> None:
    """A net whose file wants a state beside the samples."""
    net.add(layers.GRU("gru", outputs, stateful=True, batch_size=30, input_sample_shape=shape))


def test_a_classifier_of_another_net_and_dictionaries_of_probabilities() -> None:
    texts = np.where(RNG.random((30, 4, 1)) < 0.3, 0, RNG.normal(size=(30, 4, 3))).astype("f4")
    made = NetClassifier(masked, epochs=2, random_state=0).fit(texts, LABELS["str"])
    labels, shares = run(skl2onnx.to_onnx(made, texts[:1]), texts)
    assert labels.tolist() == made.predict(texts).tolist()
    found = [[share[name] for name in made.classes_] for share in shares]
    np.testing.assert_allclose(found, made.predict_proba(texts), **CHECKED)
    made = NetClassifier(stateful, epochs=1).fit(texts, LABELS["int"])
    with pytest.raises(SnapshotError, match=r"one input.*hidden"):
        skl2onnx.to_onnx(made, texts[:1])


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regressor_in_a_pipeline(outputs: int) -> None:
    made = make_pipeline(StandardScaler(), NetRegressor(hidden=(8,), epochs=5, random_state=0))
    made.fit(X, X[:, :outputs] ** 2)
    model = skl2onnx.to_onnx(made, X[:1])
    (found,) = run(model, X)
    np.testing.assert_allclose(found, made.predict(X), **CHECKED)
