"""BERT's names, as Hugging Face's transformers has them (models/bert/modeling_bert.py)."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.layer.layer import Layer
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.snapshots.maps import parts
from singa_lite.snapshots.torch_layout import NameMap

_FORM = "Embedding Embedding LearnedPositions LayerNormalization (TransformerBlock )+(Dense ){0,2}"
_WANTED = (
    "Embedding of words, Embedding of types, LearnedPositions, LayerNormalization, TransformerBlock, ..., perhaps a "
    "Dense pooler, perhaps a Dense classifier"
)

#: A buffer of old files: the numbers of the positions.
_BUFFERS = (r"(bert\.)?embeddings\.position_ids",)


def bert(net: LayerGraph, *, leave_out: Sequence[str] = ()) -> NameMap:
    """The names of a BERT net, for `net.load` and `net.save` of .safetensors files.

    The net has the layers of `models.bert`: Embedding of words, Embedding of types, LearnedPositions,
    LayerNormalization, TransformerBlocks with norms last and biases, perhaps a Dense pooler, perhaps a Dense classifier
    behind it. Without a classifier it is BertModel, else BertForSequenceClassification.

    Read are files with "bert." before the names and without, with `LayerNorm.gamma` and `beta`, as old files have, or
    `weight` and `bias`. Written are names of that class. With weights_only=True the file holds nothing else.

    leave_out: modules of a file that the net has no place for, such as "cls", the heads of the pretraining, or
    "bert.pooler"; all others are a SnapshotError when the file is read. SnapshotError for a net of another form.
    """
    words, types, positions, norm, *rest = parts.checked("bert", net, _FORM, _WANTED)
    blocks = [layer for layer in rest if parts.kind(layer) == "TransformerBlock"]
    heads = rest[len(blocks) :]
    places = {
        **parts.table(words, "embeddings.word_embeddings"),
        **parts.table(types, "embeddings.token_type_embeddings"),
        **parts.table(positions, "embeddings.position_embeddings"),
        **parts.norm(norm, "embeddings.LayerNorm", old=True),
    }
    for number, block in enumerate(blocks):
        parts.check_block("bert", block, first=False)
        places |= _block(block, f"encoder.layer.{number}")
    places |= parts.linear(heads[0], "pooler.dense") if heads else {}
    places = parts.prefixed(places, "bert.", written=len(heads) > 1)
    places |= parts.linear(heads[1], "classifier") if len(heads) > 1 else {}
    return NameMap(places, {}, parts.ignored_pattern("bert", leave_out, _BUFFERS))


def _block(block: Layer, name: str) -> parts.Places:
    layers, attention = block.layers, block.layers["attention"].layers
    places = {
        **parts.linear(attention["output"], f"{name}.attention.output.dense"),
        **parts.norm(layers["attention_norm"], f"{name}.attention.output.LayerNorm", old=True),
        **parts.linear(layers["hidden"], f"{name}.intermediate.dense"),
        **parts.linear(layers["output"], f"{name}.output.dense"),
        **parts.norm(layers["hidden_norm"], f"{name}.output.LayerNorm", old=True),
    }
    for one in ("query", "key", "value"):
        places |= parts.linear(attention[one], f"{name}.attention.self.{one}")
    return places
