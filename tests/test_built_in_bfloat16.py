"""Nets with matrices in bfloat16 from the start: FeedForwardNet(parameter_dtype=), models.load(weights="bfloat16")."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_lite
import skips
from language_files import small_weights, write_gguf
from misuse import Row, assert_all_refused, row
from singa_lite import FeedForwardNet, GraphError, data, device, initializer, layers, models, optimizer, tensor

skips.library("ml_dtypes")
STORED = {"parameter_dtype": "bfloat16"}
SIZES = {"width": 24, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 40, "vocabulary": 101}
CONFIG = models.LanguageConfig(architecture="llama", **SIZES, tied=False)
IDS = np.random.default_rng(1).integers(0, 101, (3, 12))


class Twice(initializer.Initializer):
    """Works on values that it has written, as rounded ones would give others."""

    def __call__(self, value, key, fan_in, fan_out):
        initializer.Uniform(0.0, 1.0)(value, key, fan_in, fan_out)
        value.copy_from_numpy(tensor.to_numpy(value) * np.float32(0.3))


INITIALIZERS = {
    **{name: name for name in ("glorot_uniform", "he_normal", "truncated_normal", "orthogonal")},
    **{"uniform": initializer.Uniform(-0.5, 1.0), "constant": 0.3, "own": Twice()},
}


def mixed(init: Any = "he_normal", **options: Any) -> FeedForwardNet:
    """Filters, matrices, vectors and state."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=5, device=device.new_cpu(), **options)
    net.add(layers.Conv2D("one", 8, 3, input_sample_shape=(1, 8, 8), weight_init=init))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 10, weight_init=init))
    return net


def language(**options: Any) -> FeedForwardNet:
    return models.language_model(CONFIG, 12, seed=3, device=device.new_cpu(), **options)


def values(net: FeedForwardNet) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {
        name: (value.dtype.name, value.strides, tensor.to_numpy(value).tobytes())
        for name, value in net.parameters().items()
    }


def dtypes(net: FeedForwardNet) -> set[str]:
    return {value.dtype.name for value in net.param_values()}


@pytest.mark.parametrize("init", INITIALIZERS.values(), ids=INITIALIZERS)
def test_first_values_are_those_of_float32_rounded(init):
    for make in (lambda **options: mixed(init, **options), lambda **options: language(weight_init=init, **options)):
        compiled = make()
        compiled.compile("adam", **STORED)
        assert values(make(**STORED)) == values(compiled)


def test_a_step_is_that_of_a_net_that_compile_rounded():
    x, y = np.random.default_rng(0).normal(size=(16, 1, 8, 8)).astype("f"), np.arange(16) % 10
    built, rounded = mixed(**STORED), mixed()
    built.compile(optimizer.AdamW(0.01))
    rounded.compile(optimizer.AdamW(0.01), **STORED)
    for net in (built, rounded):
        for _ in range(3):
            net.train_one_batch(x, y)
    assert values(built) == values(rounded)


def test_no_second_copy_of_the_values_is_made():
    """The pool holds little beside them: neither drawn numbers nor those of a file exist in float32 all at once."""
    for init in ("normal", initializer.Uniform(-0.1, 0.1), 0.0):
        cpu = device.new_cpu()
        net = FeedForwardNet(device=cpu, **STORED)
        net.add(layers.Dense("wide", 2048, input_sample_shape=(1024,), weight_init=init))
        assert cpu.pool.total < sum(value.nbytes for value in net.param_values()) + (2 << 20)


def test_compile_keeps_them_unless_it_is_told():
    net = mixed(**STORED)
    assert net.parameter_dtype == "bfloat16"
    net.compile("adam", rounding="compensated")
    assert dtypes(net) == {"bfloat16", "float32"} and net.optimizer.rounding.name == "compensated"
    before = {name: tensor.to_numpy(value).astype("f") for name, value in net.parameters().items()}
    net.compile("adam", parameter_dtype="float32")
    assert dtypes(net) == {"float32"}
    assert all(np.array_equal(tensor.to_numpy(value), before[name]) for name, value in net.parameters().items())
    net.compile("adam")
    assert dtypes(net) == {"bfloat16", "float32"}
    assert dtypes(mixed()) == {"float32"} == dtypes(mixed(parameter_dtype="float32"))


def test_copies_files_and_parts_are_stored_so(tmp_path: Path):
    net = mixed(**STORED)
    net.compile(optimizer.SGD(0.1, 0.9))
    net.fit(np.ones((4, 1, 8, 8), "f"), np.arange(4), batch_size=2)
    for suffix in ("h5", "npz"):
        net.save(tmp_path / f"net.{suffix}")
    files = [singa_lite.load(tmp_path / f"net.{suffix}") for suffix in ("h5", "npz")]
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), *files):
        assert values(other) == values(net) and other.parameter_dtype == "bfloat16"
        other.compile("adam")
        assert dtypes(other) == {"bfloat16", "float32"}
    net.save(tmp_path / "net.safetensors", weights_only=True)
    fresh = mixed(0.0, **STORED)
    fresh.load(tmp_path / "net.safetensors")
    assert values(fresh) == values(net)
    part = net.submodel("flat")
    part.compile("adam", "mse")
    assert part.parameters()["one/weight"].dtype.name == "bfloat16"


def test_adapters_are_stored_so():
    net = language(**STORED)
    net.add_lora(rank=2, alpha=4.0)
    net.compile("adam")
    net.train_one_batch(IDS, IDS)
    assert {t.dtype.name for name, t in net.parameters().items() if "lora" in name} == {"bfloat16"}


def test_texts_and_numbers_are_those_of_the_widened_net():
    net, wide = language(**STORED), language()
    for name, value in wide.parameters().items():
        value.copy_from_numpy(tensor.to_numpy(net.parameters()[name]).astype("f"))
    np.testing.assert_allclose(net.predict(IDS), wide.predict(IDS), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(net.generate(IDS[:, :5], 6, seed=1), wide.generate(IDS[:, :5], 6, seed=1))
    for each in (net, wide):
        each.tokenizer = data.ByteTokenizer()
        each.compile("adam", metric="accuracy")
    np.testing.assert_allclose(net.evaluate(IDS, IDS)[0], wide.evaluate(IDS, IDS)[0], rtol=1e-4)


def test_a_plan_without_bytes_is_that_of_a_net_with_them():
    config = models.LanguageConfig(architecture="qwen2", **SIZES, biases=True)
    plans = []
    for on in (device.abstract(), device.new_cpu()):
        net = models.language_model(config, 12, device=on, seed=0, **STORED)
        net.compile("adam", state_dtype="int8")
        plans.append(net.plan_batch(2))
    assert plans[0].by_class == plans[1].by_class
    wide = models.language_model(config, 12, device=device.abstract(), seed=0)
    wide.compile("adam", state_dtype="int8", **STORED)
    assert wide.plan_batch(2).by_class == plans[0].by_class


# ---- files of language models

FORMS = {"f32": {}, "f16": {"attn_q": "f16", "token_embd": "f16"}, "bf16": {"attn_k": "bf16", "token_embd": "bf16"}}
FORMS["q8_0"] = {"attn_q": "q8_0", "ffn_down": "q4_0", "token_embd": "q8_0", "output": "q8_0"}


@pytest.mark.parametrize("formats", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_file_is_loaded_as_compile_would_round_it(tmp_path: Path, formats: dict[str, str], kind: str):
    write_gguf(tmp_path / "x.gguf", small_weights(formats))
    path = f"{tmp_path}/folder/" if kind == "folder" else tmp_path / "x.gguf"
    if kind == "folder":
        models.load(tmp_path / "x.gguf").save(path)
    wide = models.load(path, length=32, weights="float32")
    wide.compile("adam", **STORED)
    net = models.load(path, length=32, weights="bfloat16")
    assert values(net) == values(wide) and not net.frozen()
    assert dtypes(net) == {"bfloat16", "float32"}
    ids = IDS % 40
    np.testing.assert_allclose(net.predict(ids), wide.predict(ids), rtol=1e-4, atol=1e-4)
    assert len(net.generate(ids[0, :4], 3)) == 7
    assert isinstance(net.chat("a", steps=2), str)


@pytest.mark.parametrize("path", ["out.gguf", "out/"])
def test_it_goes_out_in_bfloat16_and_comes_back(tmp_path: Path, path: str):
    skips.library("gguf")
    write_gguf(tmp_path / "x.gguf", small_weights({}))
    net = models.load(tmp_path / "x.gguf", length=16, weights="bfloat16")
    net.compile(optimizer.SGD(0.01))
    net.train_one_batch(IDS[:, :8] % 40, IDS[:, 1:9] % 40)
    net.save(f"{tmp_path}/{path}")
    again = models.load(f"{tmp_path}/{path}", length=16, weights="bfloat16")
    assert values(again) == values(net)
    assert models.load(f"{tmp_path}/{path}", length=16).frozen().keys() >= {"block0/output/weight"}


def refused_net() -> FeedForwardNet:
    return mixed(**STORED)


REFUSED: list[Row] = [
    row(lambda: FeedForwardNet(parameter_dtype="int8"), ValueError, "parameter_dtype", "int8"),
    row(lambda: FeedForwardNet(dtype="float64", **STORED), ValueError, "net in float32", "float64"),
    row(lambda: models.language_model(CONFIG, 4, parameter_dtype="f16"), ValueError, "parameter_dtype", "f16"),
    row(lambda net: setattr(net, "parameter_dtype", "float32"), GraphError, "parameter_dtype", net=refused_net),
]


def test_what_cannot_be_built_so_is_refused():
    assert_all_refused(REFUSED)
