"""Where each parameter of a language model lies in a GGUF file and in a folder of Hugging Face's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.tensor import Shape


class Place(NamedTuple):
    """Where a parameter lies. shape: of a product's weight (outputs, inputs).

    begin, whole: its first row, and how many the file's array has, of which it is a part; whole 0: it is all of it.
    heads: how many heads its rows have, where GGUF files of Llamas have them in another order; else 0. is_turned:
    whether Hugging Face has it (inputs, outputs).
    """

    gguf: str
    hugging_face: str
    shape: Shape
    begin: int = 0
    whole: int = 0
    heads: int = 0
    is_turned: bool = False


def places(config: LanguageConfig) -> Iterator[tuple[str, Place]]:
    """Yields the name and the place of each parameter that `models.language_model` gives a net."""
    is_gpt2 = config.architecture == "gpt2"
    top = "" if is_gpt2 else "model."
    table = config.vocabulary, config.width
    yield "tokens/weight", Place("token_embd.weight", "wte.weight" if is_gpt2 else "model.embed_tokens.weight", table)
    if is_gpt2:
        yield "positions/weight", Place("position_embd.weight", "wpe.weight", (config.context, config.width))
    for number in range(config.layers):
        block = _gpt2_block(config) if is_gpt2 else _block(config)
        for name, place in block:
            theirs = f"h.{number}" if is_gpt2 else f"model.layers.{number}"
            yield (
                f"block{number}/{name}",
                place._replace(gguf=f"blk.{number}.{place.gguf}", hugging_face=f"{theirs}.{place.hugging_face}"),
            )
    for ours, theirs in (("gamma", "weight"), ("beta", "bias"))[: 2 if is_gpt2 else 1]:
        name = f"{'ln_f' if is_gpt2 else top + 'norm'}.{theirs}"
        yield f"norm/{ours}", Place(f"output_norm.{theirs}", name, (config.width,))
    if not config.tied:
        yield "head/weight", Place("output.weight", "lm_head.weight", table)


def _block(config: LanguageConfig) -> Iterator[tuple[str, Place]]:
    """Of all architectures but GPT-2."""
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    width, hidden = config.width, config.hidden_size
    yield "attention_norm/gamma", Place("attn_norm.weight", "input_layernorm.weight", (width,))
    for name, rows in (("query", queries), ("key", keys), ("value", keys)):
        heads = {"query": config.heads, "key": config.kv_heads}.get(name, 0)
        short = name[0]
        place = Place(f"attn_{short}.weight", f"self_attn.{short}_proj.weight", (rows, width), heads=heads)
        yield f"attention/{name}/weight", place
        if config.biases:
            place = Place(f"attn_{short}.bias", f"self_attn.{short}_proj.bias", (rows,), heads=heads)
            yield f"attention/{name}/bias", place
    for name in ("query", "key") if config.query_key_norm else ():
        place = Place(f"attn_{name[0]}_norm.weight", f"self_attn.{name[0]}_norm.weight", (config.head_size,))
        yield f"attention/{name}_norm/gamma", place
    yield "attention/output/weight", Place("attn_output.weight", "self_attn.o_proj.weight", (width, queries))
    yield "hidden_norm/gamma", Place("ffn_norm.weight", "post_attention_layernorm.weight", (width,))
    yield "hidden/gate/weight", Place("ffn_gate.weight", "mlp.gate_proj.weight", (hidden, width))
    yield "hidden/value/weight", Place("ffn_up.weight", "mlp.up_proj.weight", (hidden, width))
    yield "output/weight", Place("ffn_down.weight", "mlp.down_proj.weight", (width, hidden))


def _gpt2_block(config: LanguageConfig) -> Iterator[tuple[str, Place]]:
    """Queries, keys and values are rows of one array there."""
    width, hidden = config.width, config.hidden_size
    for name, gguf, theirs in (("attention_norm", "attn_norm", "ln_1"), ("hidden_norm", "ffn_norm", "ln_2")):
        yield f"{name}/gamma", Place(f"{gguf}.weight", f"{theirs}.weight", (width,))
        yield f"{name}/beta", Place(f"{gguf}.bias", f"{theirs}.bias", (width,))
    for number, name in enumerate(("query", "key", "value")):
        place = Place("attn_qkv.bias", "attn.c_attn.bias", (width,), number * width, 3 * width)
        yield f"attention/{name}/bias", place
        weight = place._replace(gguf="attn_qkv.weight", hugging_face="attn.c_attn.weight", shape=(width, width))
        yield f"attention/{name}/weight", weight._replace(is_turned=True)
    for name, gguf, theirs, shape in (
        ("attention/output", "attn_output", "attn.c_proj", (width, width)),
        ("hidden", "ffn_up", "mlp.c_fc", (hidden, width)),
        ("output", "ffn_down", "mlp.c_proj", (width, hidden)),
    ):
        yield f"{name}/weight", Place(f"{gguf}.weight", f"{theirs}.weight", shape, is_turned=True)
        yield f"{name}/bias", Place(f"{gguf}.bias", f"{theirs}.bias", shape[:1])
