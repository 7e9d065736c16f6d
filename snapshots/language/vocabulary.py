"""Builds the tokenizer that a GGUF file describes: byte-level pairs, each with the pattern that splits texts first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.gguf import GGUFFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

#: Numbers of kinds of tokens.
UNKNOWN, CONTROL, USER, BYTE = 2, 3, 4, 6

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


def built(file: GGUFFile) -> Tokenizer:
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
    return found


def _texts(file: GGUFFile, name: str) -> list[str]:
    key = f"{_KEYS}{name}"
    if key not in file.metadata:
        raise SnapshotError(f"{file.path}: wanted {key!r} in its metadata, received none of that name")
    return [str(text) for text in file.elements(key)]


def _add_tokens(tokenizer: Tokenizer, tokens: Sequence[str], kinds: Sequence[int]) -> None:
    """Tokens that are found in texts before these are split."""
    from tokenizers import AddedToken

    for kind, special in ((CONTROL, True), (USER, False)):
        found = [token for token, each in zip(tokens, kinds, strict=True) if each == kind and token]
        added = [AddedToken(token, special=special, normalized=False) for token in found]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)


def _of_bytes(file: GGUFFile, vocabulary: dict[str, int]) -> Tokenizer:
    """Byte-level pairs (GPT-2)."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    pre = str(file.metadata.get(f"{_KEYS}pre", "default"))
    merges = [_pair(file, merge, vocabulary) for merge in _texts(file, "merges")]
    found = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre.startswith("llama")))
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


def _of_pieces(file: GGUFFile, vocabulary: dict[str, int]) -> Tokenizer:
    """Pieces with scores (SentencePiece's pairs): two make one where there is one, that of the best score first."""
    from tokenizers import Tokenizer, decoders, models, normalizers

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
    found = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=token, fuse_unk=True, byte_fallback=True))
    begins = file.metadata.get(f"{_KEYS}add_space_prefix", True)
    found.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend("▁")] if begins else []), normalizers.Replace(" ", "▁")]
    )
    strip = [decoders.Strip(" ", 1, 0)] if begins else []
    found.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return found
