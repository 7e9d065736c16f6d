"""models.load and net.save of language models beside transformers and the gguf package."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from language_files import SIZES, llama_of, logits_of, permuted, small_weights, smollm2, write_gguf
from singa_lite import FeedForwardNet, SnapshotError, device, layers, models
from singa_lite.snapshots import language
from singa_lite.snapshots.adapter_base import base_digest
from singa_lite.snapshots.language import gguf_model, stored
from singa_lite.snapshots.language.names import places
from singa_lite.snapshots.language.stored import frozen_formats
from singa_lite.tensor import to_numpy
from skips import library
from snapshot_nets import peak_of

VALUES = json.loads(Path(__file__).with_name("smollm2_values.json").read_text())
IDS = np.random.default_rng(1).integers(0, SIZES["vocabulary"], (2, 11))

#: {what: formats of the weights}; k-quants want rows of 256 and are tested with the kernels.
FORMATS = {
    "f32": {},
    "q4_0": {"attn_q": "q4_0", "attn_k": "q4_0", "token_embd": "q8_0"},
    "q4_1": dict.fromkeys(["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"], "q4_1"),
    "q8_0, head of its own": {"attn_q": "q8_0", "ffn_down": "q8_0", "token_embd": "q4_0", "output": "q8_0"},
    "f16": {"attn_q": "f16", "ffn_gate": "f16", "token_embd": "f16", "output": "f16"},
    "bf16": {"attn_k": "bf16", "ffn_gate": "bf16", "token_embd": "bf16"},
}


@pytest.fixture(autouse=True)
def maps_are_dropped() -> Iterator[None]:
    """A net has its file mapped as long as it lives."""
    yield
    gc.collect()


def scores(net: FeedForwardNet, ids: np.ndarray = IDS) -> np.ndarray:
    return np.asarray(net.predict(ids))


@pytest.mark.peer
@pytest.mark.parametrize("weights", ["stored", "float32"])
@pytest.mark.parametrize("formats", FORMATS.values(), ids=FORMATS)
def test_gguf_gives_what_transformers_gives(tmp_path: Path, formats: dict[str, str], weights: str):
    small = small_weights(formats)
    write_gguf(tmp_path / "x.gguf", small)
    net = models.load(tmp_path / "x.gguf", weights=weights)
    np.testing.assert_allclose(scores(net), logits_of(llama_of(small), IDS), atol=1e-4)
    frozen = {f"{name.split('.')[-2]}" for name, (form, _, _) in small.items() if form != "f32"}
    assert bool(net.frozen()) == bool(frozen and weights == "stored")


def write_out(writer: Any) -> None:
    """All of a file, by the gguf package."""
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()


def k_quants(path: Path) -> None:
    """A file in Q4_K and Q6_K by the gguf package: drawn bits of blocks, scales of 2^-9."""
    gguf, random = library("gguf"), np.random.default_rng(6)
    sizes: dict[str, Any] = {"width": 256, "layers": 1, "heads": 2, "hidden_size": 512, "vocabulary": 40}
    config = models.LanguageConfig(architecture="qwen3", **sizes, query_key_norm=True, epsilon=2.0**-17)
    models.language_model(config, length=16, seed=2).save(path)
    writer, came = gguf.GGUFWriter(path.with_name("k.gguf"), "qwen3"), gguf.GGUFReader(path)
    for name, field in came.fields.items():
        if not name.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(name, field.contents(), field.types[0])
    for number, each in enumerate(came.tensors):
        form = ("q4_k", "q6_k")[number % 2]
        if each.data.ndim == 1:
            writer.add_tensor(each.name, np.array(each.data))
            continue
        kind = gguf.GGMLQuantizationType[form.upper()]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (each.data.size // elements, size), dtype=np.uint8)
        scales = (0, 1, 2, 3) if form == "q4_k" else (208, 209)
        blocks[:, scales] = [0, 0x18] * (len(scales) // 2)  # 2^-9 in float16
        writer.add_tensor(each.name, blocks.reshape(each.data.shape[0], -1), raw_dtype=kind)
    write_out(writer)


def test_k_quants_compute_what_their_numbers_do(tmp_path: Path):
    k_quants(tmp_path / "x.gguf")
    net = models.load(tmp_path / "k.gguf", length=16)
    assert set(frozen_formats(net).values()) == {"q4_k", "q6_k"} and len(net.frozen()) == 9
    wanted = scores(models.load(tmp_path / "k.gguf", length=16, weights="float32"))
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(scores(net), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    net.save(tmp_path / "again.gguf")
    read = language.opened
    for name, weight in read(tmp_path / "k.gguf").weights.items():
        np.testing.assert_array_equal(read(tmp_path / "again.gguf").weights[name].blocks, weight.blocks, err_msg=name)


def split(path: Path) -> None:
    """The same model in three files by the gguf package."""
    gguf = library("gguf")
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=8)
    for name, field in gguf.GGUFReader(path).fields.items():
        if not name.startswith(("GGUF.", "general.architecture")):
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub)
    for each in gguf.GGUFReader(path).tensors:
        writer.add_tensor(each.name, np.array(each.data), raw_dtype=each.tensor_type)
    write_out(writer)


def test_a_model_in_several_files(tmp_path: Path):
    write_gguf(tmp_path / "x.gguf", small_weights({"attn_q": "q8_0", "token_embd": "q4_0"}))
    split(tmp_path / "x.gguf")
    parts = sorted(tmp_path.glob("x-*.gguf"))
    assert [part.name for part in parts] == [f"x-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    net = models.load(parts[0])
    np.testing.assert_array_equal(scores(net), scores(models.load(tmp_path / "x.gguf")))
    net.save(tmp_path / "whole.gguf")
    np.testing.assert_array_equal(scores(models.load(tmp_path / "whole.gguf")), scores(net))
    for culprit in (parts[1], parts[0].rename(tmp_path / "y.gguf")):
        with pytest.raises(SnapshotError, match=rf"{culprit.name}: wanted a whole model, or the first of its files"):
            models.load(culprit)
    (tmp_path / "y.gguf").rename(parts[0])
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(SnapshotError, match=r"00003-of-00003\.gguf: wanted each tensor in one file"):
        models.load(parts[0])
    parts[1].unlink()
    with pytest.raises(FileNotFoundError, match="x-00002-of-00003"):
        models.load(parts[0])


@pytest.mark.parametrize("formats", FORMATS.values(), ids=FORMATS)
def test_gguf_goes_back_out_as_it_came(tmp_path: Path, formats: dict[str, str]):
    gguf = library("gguf")
    small = small_weights(formats)
    write_gguf(tmp_path / "x.gguf", small, general__name="a small one")
    models.load(tmp_path / "x.gguf").save(tmp_path / "y.gguf")
    came, went = (gguf.GGUFReader(tmp_path / name) for name in ("x.gguf", "y.gguf"))
    tensors = [
        {t.name: (t.tensor_type, t.data.tobytes(), tuple(t.shape)) for t in file.tensors} for file in (came, went)
    ]
    assert tensors[0] == tensors[1]
    fields = [{name: field.contents() for name, field in file.fields.items()} for file in (came, went)]
    assert {name: fields[1].get(name) for name in fields[0] if name[0] != "G"} == {
        name: value for name, value in fields[0].items() if name[0] != "G"
    }


@pytest.mark.parametrize(("form", "error"), [("q8_0", 0.02), ("q4_1", 0.3), ("f16", 1e-3), ("bf16", 0.01), (None, 0)])
def test_parameters_are_quantised_by_name(tmp_path: Path, form: str | None, error: float):
    gguf = library("gguf")
    small = small_weights({})
    write_gguf(tmp_path / "x.gguf", small)
    models.load(tmp_path / "x.gguf").save(tmp_path / "y.gguf", quantization=form)
    kind = gguf.GGMLQuantizationType[(form or "f32").upper()]
    for tensor in gguf.GGUFReader(tmp_path / "y.gguf").tensors:
        _, blocks, _ = small[tensor.name]
        heads = {"attn_q": 4, "attn_k": 2}.get(tensor.name.split(".")[-2], 0)
        wanted = permuted(blocks, heads) if heads else blocks
        found = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(wanted.shape)
        assert tensor.tensor_type == (kind if wanted.ndim > 1 else gguf.GGMLQuantizationType.F32)
        assert np.abs(found - wanted).max() <= error


def configurations() -> dict[str, Callable[[Any], Any]]:
    """transformers' configurations, of sizes that are all unequal."""
    sizes = {
        "vocab_size": 40, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    llama3 = {
        "rope_type": "llama3", "rope_theta": 3000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }  # fmt: skip
    linear = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.5}
    return {
        "llama": lambda t: t.LlamaConfig(**sizes, tie_word_embeddings=False),
        "llama3": lambda t: t.LlamaConfig(**sizes, tie_word_embeddings=True, rope_parameters=llama3),
        "linear": lambda t: t.LlamaConfig(**sizes, rope_parameters=linear, head_dim=8),
        "qwen2": lambda t: t.Qwen2Config(**sizes, tie_word_embeddings=True),
        "qwen3": lambda t: t.Qwen3Config(**sizes, head_dim=8),
        "mistral": lambda t: t.MistralConfig(**sizes, sliding_window=5),
    }


@pytest.mark.peer
@pytest.mark.parametrize("kind", configurations())
def test_folders_and_files_of_each_architecture(tmp_path: Path, kind: str):
    """transformers -> folder -> net -> folder -> transformers, and net -> GGUF -> net: the same scores."""
    torch, transformers = library("torch"), library("transformers")
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(configurations()[kind](transformers)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    wanted = logits_of(model, IDS)
    model.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    net = models.load(tmp_path / "theirs", length=16)
    np.testing.assert_allclose(scores(net), wanted, atol=2e-5)
    with pytest.raises(SnapshotError, match=r"index\.json"):
        net.save(tmp_path / "theirs")  # what is there would be read, and not what was written
    net.save(f"{tmp_path / 'ours'}/")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    np.testing.assert_allclose(logits_of(again, IDS), wanted, atol=1e-6)
    net.save(tmp_path / "x.gguf")
    reread = models.load(tmp_path / "x.gguf", length=16)
    np.testing.assert_allclose(scores(reread), wanted, atol=2e-5)


def test_the_digest_of_a_base_copies_nothing_of_a_mapped_file(tmp_path: Path):
    sizes: dict[str, Any] = {"width": 64, "layers": 1, "heads": 2, "hidden_size": 96, "vocabulary": 20000, "tied": True}
    made = models.language_model(models.LanguageConfig(architecture="llama", **sizes), length=4)
    made.save(tmp_path / "x.gguf", quantization="q8_0")
    net = models.load(tmp_path / "x.gguf", length=4)
    net.add_lora(2)
    found = base_digest(net)
    assert peak_of(lambda: base_digest(net)) < net.frozen()["tokens/weight"].nbytes / 4
    arrays = {f"frozen/{name}": to_numpy(value) for name, value in net.frozen().items()}
    trains = {name for name, value in net.parameters().items() if value.stores_grad}
    plain = {name: value for name, value in net.parameters().items() if name not in trains}
    arrays |= {f"parameters/{name}": to_numpy(value) for name, value in plain.items()}
    lines = [
        f"{name} {array.shape} {array.dtype} {sha256(array.tobytes()).hexdigest()}\n" for name, array in arrays.items()
    ]
    assert found == sha256("".join(sorted(lines)).encode()).hexdigest()


def test_factors_of_llama_3_go_back_into_config_json(tmp_path: Path):
    """A GGUF file has a factor for each frequency. Llama-3.2's become its own words; others are refused."""
    sizes: dict[str, Any] = {"width": 64, "layers": 1, "heads": 1, "hidden_size": 32, "vocabulary": 20}
    scaling = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    for length in (8192, 4096):
        given = {**scaling, "original_max_position_embeddings": length}
        config = models.LanguageConfig(architecture="llama", **sizes, rotary_base=5e5, rotary_scaling=given)
        models.language_model(config, length=4).save(tmp_path / "x.gguf")
        net = models.load(tmp_path / "x.gguf", length=4)
        if length == 4096:
            with pytest.raises(SnapshotError, match="factors"):
                net.save(f"{tmp_path}/folder/")
        else:
            net.save(f"{tmp_path}/folder/")
            assert language.described(tmp_path / "folder")[0].rotary_scaling == given
            assert language.described(tmp_path / "x.gguf")[0] == net.language


def test_a_net_without_bytes_is_planned(tmp_path: Path):
    write_gguf(tmp_path / "x.gguf", small_weights({"attn_q": "q8_0", "token_embd": "q4_0"}))
    net = models.load(tmp_path / "x.gguf", device=device.abstract())
    assert net.frozen()["tokens/weight"].shape == (SIZES["vocabulary"], 36) and net.device.is_abstract


@pytest.mark.parametrize(("kind", "theirs"), [("llama", "LLAMA"), ("qwen2", "QWEN2"), ("qwen3", "QWEN3")])
def test_names_are_those_of_the_gguf_package(kind: str, theirs: str):
    gguf = library("gguf")
    sizes: dict[str, Any] = {"width": 8, "layers": 2, "heads": 2, "hidden_size": 12, "vocabulary": 20}
    options = {"biases": kind == "qwen2", "query_key_norm": kind == "qwen3"}
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[theirs], 2)
    for _, place in places(models.LanguageConfig(architecture=kind, **sizes, **options)):
        assert known.get_name(place.hugging_face, try_suffixes=(".weight", ".bias")) == place.gguf


def test_a_mistral_is_a_llama_with_a_window_in_gguf(tmp_path: Path):
    gguf = library("gguf")
    sizes: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2, "hidden_size": 12, "vocabulary": 20}
    config = models.LanguageConfig(architecture="mistral", **sizes, window=3, epsilon=2.0**-17)  # a float32
    models.language_model(config, length=8).save(tmp_path / "x.gguf")
    fields = gguf.GGUFReader(tmp_path / "x.gguf").fields
    assert fields["general.architecture"].contents() == "llama"
    assert fields["llama.attention.sliding_window"].contents() == 3
    assert language.described(tmp_path / "x.gguf")[0] == config
    with pytest.raises(SnapshotError, match="window"):
        models.language_model(replace(config, architecture="llama"), length=8).save(f"{tmp_path}/folder/")


@pytest.mark.peer
def test_float16_and_bfloat16_of_a_folder_stay_and_go_out_so(tmp_path: Path):
    torch, transformers = library("torch"), library("transformers")
    llama_of(small_weights({})).to(torch.bfloat16).save_pretrained(tmp_path / "theirs")
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "theirs", dtype=torch.float32).eval()
    net = models.load(tmp_path / "theirs")
    np.testing.assert_allclose(scores(net), logits_of(model, IDS), atol=1e-4)
    assert len(net.frozen()) == 7 * SIZES["layers"] + 1 and "block0/attention_norm/gamma" in net.parameters()
    net.save(f"{tmp_path / 'ours'}/")
    safetensors = library("safetensors.torch")
    came, went = (safetensors.load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert all(torch.equal(came[name].float(), array.float()) for name, array in went.items())
    assert {array.dtype for name, array in went.items() if "norm" not in name} == {torch.bfloat16}


@pytest.mark.parametrize("nested", [False, True], ids=["", "nested"])
def test_nf4_becomes_q8_0(tmp_path: Path, nested: bool):
    """By the layout of bitsandbytes: the first number in the high nibble, blocks of 64, a table of 16 numbers."""
    sizes: dict[str, Any] = {"width": 64, "layers": 1, "heads": 2, "hidden_size": 96, "vocabulary": 20, "tied": True}
    made = models.language_model(models.LanguageConfig(architecture="qwen3", **sizes, query_key_norm=True), length=8)
    made.save(f"{tmp_path}/")
    safetensors, random = library("safetensors.numpy"), np.random.default_rng(2)
    arrays = dict(safetensors.load_file(tmp_path / "model.safetensors"))
    plain = dict(arrays)
    table = np.sort(random.uniform(-1, 1, 16)).astype(np.float32)
    for name, array in plain.items():
        if "_proj" not in name:
            continue
        codes = random.integers(0, 16, array.size)
        blocks = array.size // 64
        more: dict[str, Any] = {"shape": array.shape, "blocksize": 64, "quant_type": "nf4"}
        if nested:
            bytes_, scales, steps = (
                random.integers(0, 256, blocks),
                random.uniform(1, 2, -(-blocks // 48)),
                random.random(256),
            )
            more |= {"nested_blocksize": 48, "nested_offset": 0.25}
            largest = steps[bytes_] * scales[np.arange(blocks) // 48] + 0.25
            arrays[f"{name}.absmax"] = bytes_.astype(np.uint8)
            arrays[f"{name}.nested_absmax"] = scales.astype(np.float32)
            arrays[f"{name}.nested_quant_map"] = steps.astype(np.float32)
        else:
            largest = random.uniform(1, 2, blocks)
            arrays[f"{name}.absmax"] = largest.astype(np.float32)
        plain[name] = (table[codes].reshape(-1, 64) * largest[:, None]).astype(np.float32).reshape(array.shape)
        arrays[name] = (codes[::2] * 16 + codes[1::2]).astype(np.uint8)[:, None]
        arrays[f"{name}.quant_map"] = table
        arrays[f"{name}.quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(more).encode(), np.uint8)
    safetensors.save_file(arrays, tmp_path / "model.safetensors")
    net = models.load(tmp_path)
    assert {kind for name, kind in frozen_formats(net).items() if name[0] == "b"} == {"q8_0"}
    opened = language.opened(tmp_path).weights
    for name, place in places(net.language):
        wanted = plain[place.hugging_face]
        most = np.abs(wanted).max() * (1 / 254 + 2**-11)  # half a step of q8_0, and its scale in float16
        np.testing.assert_allclose(opened[name].numbers(), wanted, atol=most)
    del arrays[f"{name_of_a_projection(arrays)}.quant_map"]
    safetensors.save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(SnapshotError, match="quant_map"):
        models.load(tmp_path)


def name_of_a_projection(arrays: dict[str, Any]) -> str:
    return next(name for name in arrays if name.endswith("_proj.weight"))


# ---- mistakes that lose nothing but meaning


@pytest.mark.peer
@pytest.mark.parametrize("mistake", ["rows", "base", "epsilon", "tie"])
def test_each_planted_mistake_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str):
    small = small_weights({"output": "f16", "attn_q": "q8_0"})
    write_gguf(tmp_path / "x.gguf", small)
    read = gguf_model.configuration
    changes: dict[str, dict[str, Any]] = {
        "base": {"rotary_base": 1e4},
        "epsilon": {"epsilon": 1e-5},
        "tie": {"tied": True},
    }
    if mistake == "rows":
        monkeypatch.setattr(stored, "halves", lambda blocks, heads: np.ascontiguousarray(blocks))
    else:
        monkeypatch.setattr(gguf_model, "configuration", lambda file: replace(read(file), **changes[mistake]))
    if mistake == "tie":
        with pytest.raises(SnapshotError, match=r"output\.weight"):
            models.load(tmp_path / "x.gguf")
    else:
        difference = np.abs(scores(models.load(tmp_path / "x.gguf")) - logits_of(llama_of(small), IDS)).max()
        assert difference > 1e-3


# ---- the real one


def test_smollm2_predicts_what_transformers_predicts():
    prompt = VALUES["prompt"]
    found = scores(models.load(smollm2(), length=16), np.array([prompt["ids"]]))[0]
    np.testing.assert_allclose(found[-1, :8], prompt["first_8_logits_of_last_position"], atol=1e-3)
    np.testing.assert_allclose(found[0, :8], prompt["first_8_logits_of_first_position"], atol=1e-3)
    assert found.argmax(-1).tolist() == prompt["argmax_by_position"]
    np.testing.assert_allclose(np.abs(found[-1]).sum(), prompt["sum_of_abs_last"], rtol=1e-4)


def test_smollm2_reads_and_writes_texts_as_transformers_does():
    tokenizer = language.opened(smollm2()).tokenizer
    assert tokenizer is not None and tokenizer.vocabulary == 49152 and set(tokenizer.stop_ids) == {0, 2}
    for text, ids in VALUES["tokenizer"].items():
        assert tokenizer.encode(text) == ids and tokenizer.decode(ids) == text
    for text, ids in VALUES["tokenizer_without_digits_apart"].items():
        assert tokenizer.encode(text) != ids


# ---- errors


def test_other_nets_and_formats_are_refused(tmp_path: Path):
    net = FeedForwardNet()
    net.add(layers.Dense("a", 3, input_sample_shape=(4,)))
    with pytest.raises(SnapshotError, match="language_model"):
        net.save(tmp_path / "x.gguf")
    small = models.LanguageConfig(architecture="llama", width=8, layers=1, heads=2, hidden_size=12, vocabulary=20)
    built = models.language_model(small, length=4)
    with pytest.raises(SnapshotError, match="qwen2"):
        models.language_model(replace(small, architecture="qwen2"), length=4).save(f"{tmp_path}/folder/")
    gpt2 = models.language_model(replace(small, architecture="gpt2"), length=4)
    with pytest.raises(SnapshotError, match="gpt2"):
        gpt2.save(tmp_path / "x.gguf")
    for path, form, culprit in (
        ("x.gguf", "q3_k", "'q3_k'"),
        ("x.gguf", "q8_0", "q8_0"),
        ("folder/", "q8_0", "'q8_0'"),
    ):
        with pytest.raises(SnapshotError, match=culprit):
            built.save(f"{tmp_path}/{path}", quantization=form)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="'float'"):
        models.load(tmp_path / "x.gguf", weights="float")
    with pytest.raises(FileNotFoundError):
        models.load(tmp_path / "x.gguf")
