"""GPT-2's names, as Hugging Face's transformers has them (models/gpt2/modeling_gpt2.py)."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.layer.layer import Layer
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.snapshots.maps import parts
from singa_lite.snapshots.torch_layout import AxisSlice, NameMap, TorchLayout

_FORM = "Embedding LearnedPositions (TransformerBlock )+LayerNormalization (Dense )?"
_WANTED = "Embedding, LearnedPositions, TransformerBlock, ..., LayerNormalization, perhaps a Dense head"

#: Buffers of old files: causal masks.
_BUFFERS = (r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",)


def gpt2(net: LayerGraph, *, leave_out: Sequence[str] = ()) -> NameMap:
    """The names of a GPT-2 net, for `net.load` and `net.save` of .safetensors files.

    The net has the layers of `models.gpt2`: Embedding, LearnedPositions, TransformerBlocks with norms first and
    biases, LayerNormalization, and a head, which is a TiedDense of the embedding, or a Dense without bias, or lacks.
    Products lie as Conv1D there, (in, out); `c_attn` is query, key and value side by side.

    Read are files with "transformer." before the names and without, with the causal masks of old files and without;
    a tied head's lm_head.weight may be there, and must be equal to wte.weight; where it is not there, a Dense head
    gets the embedding's rows. Written are names as GPT2LMHeadModel has them if the net has a head, else as GPT2Model,
    a tied head once, as `save_pretrained` does. With weights_only=True the file holds nothing else.

    leave_out: modules of a file that the net has no place for, such as "lm_head" where it has no head; all others are
    a SnapshotError when the file is read. SnapshotError for a net of another form.
    """
    found = parts.checked("gpt2", net, _FORM, _WANTED)
    tokens, positions, *rest = found
    head = rest.pop() if parts.kind(rest[-1]) == "Dense" else None
    *blocks, last = rest
    places = parts.table(tokens, "wte") | parts.table(positions, "wpe") | parts.norm(last, "ln_f")
    for number, block in enumerate(blocks):
        parts.check_block("gpt2", block, first=True)
        places |= _block(block, f"h.{number}")
    tied = any(node.layer.shared_with is tokens for node in net.ordered())
    places = parts.prefixed(places, "transformer.", written=tied or head is not None)
    copies = {f"parameters/{tokens.path}/weight": ("lm_head.weight",)} if tied else {}
    if head is not None:
        table = places[f"parameters/{tokens.path}/weight"]
        theirs = TorchLayout("lm_head.weight", parts.LINEAR)
        places |= parts.linear(head, "lm_head")
        places[f"parameters/{head.path}/weight"] = (theirs, *(theirs._replace(name=one.name) for one in table))
    return NameMap(places, copies, parts.ignored_pattern("gpt2", leave_out, _BUFFERS))


def _block(block: Layer, name: str) -> parts.Places:
    layers, attention = block.layers, block.layers["attention"].layers
    return {
        **parts.norm(layers["attention_norm"], f"{name}.ln_1"),
        **_joined([attention[one] for one in ("query", "key", "value")], f"{name}.attn.c_attn"),
        **parts.linear(attention["output"], f"{name}.attn.c_proj", None),
        **parts.norm(layers["hidden_norm"], f"{name}.ln_2"),
        **parts.linear(layers["hidden"], f"{name}.mlp.c_fc", None),
        **parts.linear(layers["output"], f"{name}.mlp.c_proj", None),
    }


def _joined(products: Sequence[Layer], name: str) -> parts.Places:
    """Products of one size side by side in one array, (in, out) each."""
    places: parts.Places = {}
    for number, layer in enumerate(products):
        for ours, tensor in layer.own_parameters.items():
            size = tensor.shape[-1]
            part = AxisSlice(tensor.ndim - 1, number * size, (number + 1) * size, len(products) * size)
            places[f"parameters/{layer.path}/{ours}"] = (TorchLayout(f"{name}.{ours}", None, part),)
    return places
