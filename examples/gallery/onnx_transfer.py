"""Transfer learning from an ONNX file: magika's net, which knows 214 kinds of files, learns three others.

    pip install ".[examples,onednn,onnx]" && pip install --no-deps magika && python examples/gallery/onnx_transfer.py

The package magika ships its net as model.onnx. `from_onnx` reads it, `submodel` cuts its head off, and a new head
tells NumPy's stubs (.pyi), tests and other modules apart, all of which are Python to magika. The body stays as it is. 4
epochs give 95 % of the held-out files, where the most frequent kind is 39 % of them. The new net goes out as an ONNX
file, on which ONNX Runtime gives the same scores but for rounding: to 5e-5 of the largest, as the body's variances are
differences of squares.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from bundled import planned_kib, show

from singa_lite import FeedForwardNet, layers, models, optimizer

#: Bytes that magika reads of a file's beginning and of its end, and what it puts where there are none.
SPAN, NONE = 1024, 256
#: The end of the name of the last layer before the scores. Layers are called as the file's nodes.
END = "LayerNorm_1.AddV2_1"


def package(name: str) -> Path:
    """The folder of a package, which is not imported."""
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"wants {name}, pip install --no-deps {name}")
    return Path(found.submodule_search_locations[0])


def ids(path: Path) -> np.ndarray:
    """What magika's net reads of a file, (2 * SPAN,): bytes of its beginning and its end, without blanks around."""
    found, row = path.read_bytes().strip(), np.full(2 * SPAN, NONE)
    first, last = found[:SPAN], found[-SPAN:]
    row[: len(first)] = list(first)
    row[len(row) - len(last) :] = list(last)
    return row


def files() -> tuple[np.ndarray, np.ndarray]:
    """(ids (n, 2048), labels (n,)): 0 for NumPy's stubs, 1 for its tests, 2 for its other modules."""
    found = [path for path in sorted(package("numpy").rglob("*.py*")) if path.suffix in (".py", ".pyi")]
    found = [path for path in found if path.stat().st_size > 500]
    labels = [0 if path.suffix == ".pyi" else 1 if path.name.startswith("test_") else 2 for path in found]
    return np.array([ids(path) for path in found]), np.array(labels)


def with_new_head(path: Path, classes: int) -> FeedForwardNet:
    """The net of the file up to what its scores are made of, (n, 512), and a Dense of its own behind it."""
    net = models.from_onnx(path)
    (end,) = (name for name in net.layers if name.endswith(END))
    body = net.submodel(end)
    body.add(layers.Dense("kind", classes))
    return body


def in_onnx_runtime(net: FeedForwardNet, x: np.ndarray) -> np.ndarray:
    """What the net's file gives in ONNX Runtime."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        net.export(Path(folder) / "kinds.onnx")
        session = onnxruntime.InferenceSession(str(Path(folder) / "kinds.onnx"))
    (name,) = net.input_shapes()
    return session.run(None, {name: x})[0]


def main(epochs: int = 4, count: int = 1000) -> dict[str, float]:
    """Train the head, and evaluate on a fifth that was held out. count: of files, at most."""
    x, y = files()
    order = np.random.default_rng(0).permutation(len(x))[:count]
    x, y, held = x[order], y[order], len(order) // 5
    (path,) = package("magika").glob("models/standard_v3_3/model.onnx")
    net = with_new_head(path, classes=3)
    net.compile(optimizer.Adam(lr=1e-2), "softmax_cross_entropy", "accuracy", freeze="kind")
    net.fit(x[held:], y[held:], batch_size=32, epochs=epochs, verbose=False)
    scores = net.predict(x[:held])
    return {
        "accuracy": net.evaluate(x[:held], y[:held])[1],
        "most frequent": np.bincount(y[:held]).max() / held,
        "difference to ONNX Runtime": np.abs(in_onnx_runtime(net, x[:held]) - scores).max() / np.abs(scores).max(),
        "planned KiB": planned_kib(net),
    }


if __name__ == "__main__":
    show(main())
