"""What a GGUF file says of a tokenizer that came from a tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Iterator

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language.tokenizer import Tokenizer
from singa_lite.snapshots.language.vocabulary import CONTROL, PATTERNS, USER, pre_tokenizer
from singa_lite.snapshots.readers.gguf import TEXT

_U32, _I32, _BOOL = 4, 5, 7
_NORMAL, _UNUSED = 1, 5

#: A text that the known patterns split in different ways.
_PROBE = "In 2024, 12345 people's  x\n\n\n\ty'S don't 3.14 ---- (é日本)  \n z"


def metadata(tokenizer: Tokenizer) -> Iterator[tuple[str, int, object]]:
    """Yields key, type and value of all pairs. SnapshotError unless it is a byte-level BPE of `PATTERNS`."""
    inner = json.loads(tokenizer.inner.to_str())
    model = inner["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise SnapshotError(f"save: wanted a tokenizer of byte-level pairs, received {model.get('type')}")
    tokens = [f"[PAD{number}]" for number in range(tokenizer.vocabulary)]
    kinds = [_UNUSED] * len(tokens)
    for token, number in tokenizer.inner.get_vocab(with_added_tokens=True).items():
        if number >= len(tokens):
            raise SnapshotError(f"save: wanted tokens of ids below {len(tokens)}, received {number} of {token!r:.100}")
        tokens[number], kinds[number] = token, _NORMAL
    for added in inner["added_tokens"]:
        kinds[added["id"]] = CONTROL if added["special"] else USER
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    yield "tokenizer.ggml.model", TEXT, "gpt2"
    yield "tokenizer.ggml.pre", TEXT, _pre(tokenizer)
    yield "tokenizer.ggml.tokens", TEXT, tokens
    yield "tokenizer.ggml.token_type", _I32, kinds
    yield "tokenizer.ggml.merges", TEXT, merges
    begin, end = tokenizer.begin_id, tokenizer.end_id
    for name, found in (("bos", begin), ("eos", end)):
        if found is not None:
            yield f"tokenizer.ggml.{name}_token_id", _U32, found
    yield "tokenizer.ggml.add_bos_token", _BOOL, tokenizer.special.adds_begin
    if tokenizer.template is not None:
        yield "tokenizer.chat_template", TEXT, tokenizer.template


def _pre(tokenizer: Tokenizer) -> str:
    """The name of the pattern that splits texts as this tokenizer does."""
    given = tokenizer.inner.pre_tokenizer
    found = None if given is None else [piece for piece, _ in given.pre_tokenize_str(_PROBE)]
    for name in PATTERNS:
        if [piece for piece, _ in pre_tokenizer(name).pre_tokenize_str(_PROBE)] == found:
            return name
    raise SnapshotError(f"save: wanted a pre-tokenizer of {', '.join(PATTERNS)}, received another: {str(given)[:100]}")
