"""What a GGUF file says of its tokenizer: builds one from it, and writes it of one that came from a tokenizer.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from singa_lite.common.errors import SnapshotError
from singa_lite.common.pages import may_drop_code
from singa_lite.snapshots.language.tokenizer import Tokenizer
from singa_lite.snapshots.readers.gguf import TEXT, GGUFFile
from singa_lite.tensor import release_pages

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Inner
    from tokenizers.pre_tokenizers import PreTokenizer

#: Numbers of kinds of tokens, and of types of values.
_NORMAL, _CONTROL, _USER, _UNUSED = 1, 3, 4, 5
_U32, _I32, _BOOL = 4, 5, 7
#: A text that the known patterns split in different ways.
_PROBE = "In 2024, 12345 people's  x\n\n\n\ty'S don't 3.14 ---- (é日本)  \n z"

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
#: {tokenizer.ggml.pre: how texts are split, as llama.cpp does}: "digits" apart before GPT-2's pattern, "" by it alone.
PATTERNS = {
    "default": "",
    "gpt-2": "",
    "gpt2": "",
    "smollm": "digits",
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
}
#: tokenizer.ggml.model of what is built here.
MODELS = ("gpt2", "llama")

_KEYS = "tokenizer.ggml."


def missing_parts(file: GGUFFile) -> list[str]:
    """Returns what the file's tokenizer wants and is not here; nothing for a file without one."""
    model, pre = (file.metadata.get(f"{_KEYS}{name}") for name in ("model", "pre"))
    if model is None:
        return []
    if model not in MODELS:
        return [f"tokenizer {str(model)[:50]!r} (here: {', '.join(MODELS)})"]
    if model == "gpt2" and (pre or "default") not in PATTERNS:
        return [f"pre-tokenizer {str(pre)[:50]!r} (here: {', '.join(PATTERNS)})"]
    return []


def built(file: GGUFFile) -> Inner:
    """Returns the tokenizer of the tokenizers package. SnapshotError for a vocabulary that does not hang together."""
    tokens = _texts(file, "tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise SnapshotError(f"{file.path}: {_KEYS}tokens: wanted each token once, received {len(vocabulary)} different")
    kinds = file.elements(f"{_KEYS}token_type") if f"{_KEYS}token_type" in file.metadata else [1] * len(tokens)
    if len(kinds) != len(tokens):
        raise SnapshotError(f"{file.path}: {_KEYS}token_type: wanted {len(tokens)} kinds, received {len(kinds)}")
    made = _of_pieces if file.metadata[f"{_KEYS}model"] == "llama" else _of_bytes
    try:
        found = made(file, vocabulary)
        _add_tokens(found, tokens, [int(kind) for kind in kinds])
    except SnapshotError:
        raise
    except Exception as error:  # the package has no classes of its own for its errors
        raise SnapshotError(f"{file.path}: wanted a tokenizer, received {str(error)[:200]}") from error
    release_pages(file.data)
    may_drop_code(sys.modules["tokenizers.tokenizers"].__file__)
    return found


def _texts(file: GGUFFile, name: str) -> list[str]:
    key = f"{_KEYS}{name}"
    if key not in file.metadata:
        raise SnapshotError(f"{file.path}: wanted {key!r} in its metadata, received none of that name")
    return [str(text) for text in file.elements(key)]


def _add_tokens(tokenizer: Inner, tokens: Sequence[str], kinds: Sequence[int]) -> None:
    """Tokens that are found in texts before these are split."""
    from tokenizers import AddedToken

    for kind, special in ((_CONTROL, True), (_USER, False)):
        found = [token for token, each in zip(tokens, kinds, strict=True) if each == kind and token]
        added = [AddedToken(token, special=special, normalized=False) for token in found]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)


def _of_bytes(file: GGUFFile, vocabulary: dict[str, int]) -> Inner:
    """Byte-level pairs (GPT-2)."""
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, normalizers

    pre = str(file.metadata.get(f"{_KEYS}pre", "default"))
    merges = [_pair(file, merge, vocabulary) for merge in _texts(file, "merges")]
    found = Inner(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre.startswith("llama")))
    found.pre_tokenizer = pre_tokenizer(pre)
    found.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        found.normalizer = normalizers.NFC()
    return found


def pre_tokenizer(name: str) -> PreTokenizer:
    """Returns what splits texts before pairs are joined. name: one of `PATTERNS`."""
    from tokenizers import Regex, pre_tokenizers

    pattern = PATTERNS[name]
    first: list[PreTokenizer] = []
    if pattern == "digits":
        first = [pre_tokenizers.Digits(individual_digits=True)]
    elif pattern:
        first = [pre_tokenizers.Split(Regex(pattern), "isolated")]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern in ("", "digits"))
    return pre_tokenizers.Sequence([*first, last])


def _pair(file: GGUFFile, merge: str, vocabulary: dict[str, int]) -> tuple[str, str]:
    left, between, right = merge.partition(" ")
    if not between or not {left, right, left + right} <= vocabulary.keys():
        raise SnapshotError(f"{file.path}: {_KEYS}merges: wanted two tokens that make one, received {merge[:100]!r}")
    return left, right


def _of_pieces(file: GGUFFile, vocabulary: dict[str, int]) -> Inner:
    """Pieces with scores (SentencePiece's pairs): two make one where there is one, that of the best score first."""
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, normalizers

    scores = [float(score) for score in file.elements(f"{_KEYS}scores")]
    if len(scores) != len(vocabulary):
        raise SnapshotError(f"{file.path}: {_KEYS}scores: wanted {len(vocabulary)} scores, received {len(scores)}")
    pairs: list[tuple[float, int, int, tuple[str, str]]] = []
    for piece, number in vocabulary.items():
        for cut in range(1, min(len(piece), 64)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                pairs.append((-scores[number], vocabulary[left], vocabulary[right], (left, right)))
    unknown = file.metadata.get(f"{_KEYS}unknown_token_id", 0)
    token = next((token for token, number in vocabulary.items() if number == unknown), None)
    merges = [pair for *_, pair in sorted(pairs)]
    found = Inner(models.BPE(vocab=vocabulary, merges=merges, unk_token=token, fuse_unk=True, byte_fallback=True))
    begins = file.metadata.get(f"{_KEYS}add_space_prefix", True)
    found.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend("▁")] if begins else []), normalizers.Replace(" ", "▁")]
    )
    strip = [decoders.Strip(" ", 1, 0)] if begins else []
    found.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return found


# ---- writing


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
        kinds[added["id"]] = _CONTROL if added["special"] else _USER
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
