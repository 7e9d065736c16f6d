"""ONNX files that packages ship: the net predicts what ONNX Runtime does, trains, and goes out again."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from onnx_runs import run
from singa_lite import models
from skips import library

onnx = library("onnx")
OCR = "rapidocr-onnxruntime"
#: package, end of the file's name, input, sample shape
FILES = [
    ("magika", "standard_v3_3/model.onnx", "bytes", (2048,)),
    (OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", "x", (3, 48, 192)),
    (OCR, "ch_PP-OCRv4_rec_infer.onnx", "x", (3, 48, 96)),
    (OCR, "ch_PP-OCRv4_det_infer.onnx", "x", (3, 64, 96)),
]


def path_of(package: str, ending: str) -> Path:
    """Of a file in a package, which is not imported."""
    try:
        found = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"wants the package {package}, which has the file, pip install {package}")
    return next(Path(str(file.locate())) for file in found if str(file).endswith(ending))


def before_sigmoid(path: Path, to: Path) -> Path:
    """A copy without a last sigmoid: the runtime's is off by 1e-7, all that there is where it gives little."""
    model = onnx.load(path)
    if model.graph.node[-1].op_type == "Sigmoid":
        model.graph.output[0].name = model.graph.node.pop().input[0]
    onnx.save(model, to)
    return to


@pytest.mark.peer
@pytest.mark.parametrize(("package", "ending", "name", "shape"), FILES)
def test_a_file_of_a_package(package: str, ending: str, name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    path, rng = path_of(package, ending), np.random.default_rng(0)
    path = before_sigmoid(path, tmp_path / "scores.onnx")
    net = models.from_onnx(path, shapes={name: shape})
    is_ids = bool(net.input_ids())
    batch = rng.integers(0, 256, (2, *shape)) if is_ids else rng.normal(size=(2, *shape)).astype("f4")
    (right,) = run(path, {name: batch.astype("i4") if is_ids else batch})
    atol = 1e-5 * np.abs(right).max()
    np.testing.assert_allclose(net.predict(batch), right, rtol=0, atol=atol)
    net.export(tmp_path / "net.onnx")
    np.testing.assert_allclose(run(tmp_path / "net.onnx", {name: batch})[0], right, rtol=0, atol=atol)
    net.compile("sgd", loss="squared_error")
    assert np.isfinite(float(net.train_one_batch(batch, right)[0]))
