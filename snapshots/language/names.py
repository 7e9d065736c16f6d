"""Where each parameter of a language model lies in a GGUF file and in a folder of Hugging Face's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.tensor import Shape


class Place(NamedTuple):
    """Where a parameter lies. shape: of a product's weight (outputs, inputs).

    heads: how many heads its rows have, where GGUF files of Llamas have them in another order; else 0.
    """

    gguf: str
    hugging_face: str
    shape: Shape
    heads: int = 0


def places(config: LanguageConfig) -> Iterator[tuple[str, Place]]:
    """Yields the name and the place of each parameter that `models.language_model` gives a net."""
    table = config.vocabulary, config.width
    yield "tokens/weight", Place("token_embd.weight", "model.embed_tokens.weight", table)
    for number in range(config.layers):
        for name, place in _block(config):
            gguf, theirs = f"blk.{number}.{place.gguf}", f"model.layers.{number}.{place.hugging_face}"
            yield f"block{number}/{name}", place._replace(gguf=gguf, hugging_face=theirs)
    yield "norm/gamma", Place("output_norm.weight", "model.norm.weight", (config.width,))
    if not config.tied:
        yield "head/weight", Place("output.weight", "lm_head.weight", table)


def _block(config: LanguageConfig) -> Iterator[tuple[str, Place]]:
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    width, hidden = config.width, config.hidden_size
    yield "attention_norm/gamma", Place("attn_norm.weight", "input_layernorm.weight", (width,))
    for name, rows, heads in (("query", queries, config.heads), ("key", keys, config.kv_heads), ("value", keys, 0)):
        for kind, shape in (("weight", (rows, width)), ("bias", (rows,)))[: 1 + config.biases]:
            theirs = f"self_attn.{name[0]}_proj.{kind}"
            yield f"attention/{name}/{kind}", Place(f"attn_{name[0]}.{kind}", theirs, shape, heads)
    for name in ("query", "key") if config.query_key_norm else ():
        theirs = f"self_attn.{name[0]}_norm.weight"
        yield f"attention/{name}_norm/gamma", Place(f"attn_{name[0]}_norm.weight", theirs, (config.head_size,))
    yield "attention/output/weight", Place("attn_output.weight", "self_attn.o_proj.weight", (width, queries))
    yield "hidden_norm/gamma", Place("ffn_norm.weight", "post_attention_layernorm.weight", (width,))
    yield "hidden/gate/weight", Place("ffn_gate.weight", "mlp.gate_proj.weight", (hidden, width))
    yield "hidden/value/weight", Place("ffn_up.weight", "mlp.up_proj.weight", (hidden, width))
    yield "output/weight", Place("ffn_down.weight", "mlp.down_proj.weight", (width, hidden))
