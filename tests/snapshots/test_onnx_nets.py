"""Whole nets that are exported and run by ONNX Runtime: those of the benchmarks, a GPT, a tagger, GPT-2 and Llama."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmark_modules import FOLDER, benchmark_modules
from onnx_runs import check
from singa_lite import FeedForwardNet, layers, models
from skips import library

onnx = library("onnx")
RNG = np.random.default_rng(6)
#: {net of the benchmarks: options, by which images are small}
IMAGE_NETS: dict[str, dict[str, object]] = {
    **{"digits_cnn": {}, "lenet": {}, "mlp": {}, "resnet18_32": {}, "chain": {"depth": 30}},
    **{name: {"shape": (3, 32, 32)} for name in ("resnet50", "mobilenet_v2", "densenet121")},
    "unet": {"shape": (3, 32, 48)},
}


def tagger() -> FeedForwardNet:
    """A label for each word by an LSTM of two directions; texts end in zeros."""
    net = FeedForwardNet(seed=1)
    net.add(layers.Embedding("words", 40, 8, mask_zero=True, input_sample_shape=(9,)))
    net.add(layers.LSTM("lstm", 6, bidirectional=True, return_sequences=True))
    net.add(layers.Dense("labels", 5))
    return net


def llama() -> FeedForwardNet:
    """A small Llama, two heads of queries to one of keys."""
    sizes = {"width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 24, "vocabulary": 40}
    return models.language_model(models.LanguageConfig(architecture="llama", **sizes), length=9, seed=1)


TEXT_NETS: dict[str, Callable[[], FeedForwardNet]] = {
    "GPT": lambda: models.gpt2(40, 9, 16, 2, 4, tied=False, seed=1),
    "GPT-2, a tied head": lambda: models.gpt2(40, 9, 16, 2, 4, seed=1),
    "Llama, grouped queries": llama,
    "LSTM tagger": tagger,
}


def test_opset_23_has_operators_for_attention(tmp_path: Path) -> None:
    net, path, fused = llama(), tmp_path / "net.onnx", {}
    for opset, dtype in ((22, None), (23, None), (23, "float64")):
        net.export(path, opset=opset, dtype=dtype)
        kinds = [node.op_type for node in onnx.load(path).graph.node]
        fused[opset, dtype] = [kinds.count(kind) for kind in ("RMSNormalization", "RotaryEmbedding", "Attention")]
    assert fused == {(22, None): [0, 0, 0], (23, None): [5, 4, 2], (23, "float64"): [0, 0, 0]}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")
@pytest.mark.parametrize("name", IMAGE_NETS)
def test_nets_of_the_benchmarks(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with benchmark_modules() as module:
        net = module("nets").NETS[name].build(seed=1, **IMAGE_NETS[name])
    net.export(path)
    ((source, shape),) = net.input_shapes().items()
    for count in (1, 3):
        check(net, path, {source: RNG.normal(size=(count, *shape)).astype("f4")})


@pytest.mark.parametrize("opset", [21, 23])
@pytest.mark.parametrize("name", TEXT_NETS)
def test_nets_of_texts(name: str, opset: int, tmp_path: Path) -> None:
    net, path = TEXT_NETS[name](), tmp_path / "net.onnx"
    net.export(path, opset=opset)
    (source,) = net.input_shapes()
    for count, length in ((1, 9), (3, 4)):
        ids = RNG.integers(1, 40, (count, length))
        ids[-1, 3:] = 0
        check(net, path, {source: ids})
