"""Tokenizers and chat templates of language models: texts and ids, answers that count, templates of strangers."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from language_files import SIZES, TEMPLATE, small_tokens, small_weights, write_gguf
from singa_lite import SnapshotError, models
from singa_lite.snapshots import language
from singa_lite.snapshots.language import vocabulary
from singa_lite.snapshots.language.tokenizer import Special, Tokenizer
from singa_lite.snapshots.readers.gguf import ArrayValue, GGUFFile
from skips import library
from snapshot_nets import peak_of

library("tokenizers")
library("jinja2")

CHAT = [
    {"role": "system", "content": "an"},
    {"role": "user", "content": "the"},
    {"role": "assistant", "content": "in the"},
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "the end"},
]


@pytest.fixture(autouse=True)
def maps_are_dropped() -> Iterator[None]:
    """A tokenizer has its file mapped as long as it lives."""
    yield
    gc.collect()


def templated(template: str | None, folder: Path) -> Tokenizer:
    """The small tokenizer with another template."""
    write_gguf(folder / "x.gguf", small_weights({}), **({} if template is None else {"template": template}))
    found = language.opened(folder / "x.gguf").tokenizer
    assert found is not None
    return found


def test_texts_and_ids_worked_out_by_hand(tmp_path: Path):
    """Digits are apart before pairs are joined; two blanks are one token."""
    tokenizer, (tokens, *_) = templated(None, tmp_path), small_tokens()
    for text, pieces in {
        "the an": ["the", "Ġ", "an"],
        " the  the": ["Ġthe", "Ġ", "Ġthe"],
        "12 in": ["1", "2", "Ġ", "in"],
        "<|im_start|>a\n": ["<|im_start|>", "a", "Ċ"],
    }.items():
        assert [tokens[number] for number in tokenizer.encode(text)] == pieces
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.vocabulary, tokenizer.stop_ids, tokenizer.begin_id, tokenizer.end_id) == (40, (0, 2), 1, 2)
    for number in (-1, 40, 1.5, "a", [3]):
        with pytest.raises(ValueError, match=f"from 0 to 39, received {number!r}".replace("[", r"\[")):
            tokenizer.decode([3, number])
    for messages in ("the", None, {"role": "user", "content": "the"}):
        with pytest.raises(TypeError, match="render: wanted a list of messages, received"):
            tokenizer.render(messages)  # type: ignore[arg-type]
    for text in (7, None, ["a"], "a\ud800"):
        with pytest.raises(TypeError, match=r"encode: wanted a text, .* received"):
            tokenizer.encode(text)  # type: ignore[arg-type]


def test_answers_count_with_the_token_that_ends_them(tmp_path: Path):
    tokenizer = templated(None, tmp_path)
    parts = tokenizer.render_parts(CHAT)
    assert "".join(text for text, _ in parts) == tokenizer.render(CHAT)
    assert [text for text, counts in parts if counts] == ["in the<|im_end|>", "the end<|im_end|>"]
    assert parts[2][0] == "\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n" and not parts[-1][1]
    assert tokenizer.render(CHAT[:2], generation=True).endswith("the<|im_end|>\n<|im_start|>assistant\n")
    changing = "{% for m in messages %}{{ loop.length ~ m.role ~ m.content }}{% endfor %}"
    with pytest.raises(ValueError, match="message 2"):
        templated(changing, tmp_path).render_parts(CHAT)
    with pytest.raises(SnapshotError, match="chat template"):
        Tokenizer("x", lambda: None, 3, None).render(CHAT)  # type: ignore[arg-type, return-value]


@pytest.mark.peer
def test_templates_give_what_transformers_gives(tmp_path: Path):
    transformers = library("transformers")
    templates = {
        "filters": "{{ messages | map(attribute='role') | join(', ') | upper }}{{ messages[1:] | length }}"
        "{{ messages[0] | tojson }}{{ messages[0]['content'].strip().split('a')[-1] }}{{ [1, 2] | tojson(indent=2) }}"
        "{{ [1, 2] | tojson(separators=(',', ':')) }}",
        "names": "{% set ns = namespace(n=0) %}{% for m in messages if m.role == 'user' %}{% set ns.n = ns.n + 1 %}"
        "{{ ns.n ~ ':' ~ m.content | trim }}{% if not loop.last %}, {% endif %}{% endfor %}"
        "{{ bos_token }}{{ eos_token }}{{ '%d' | string ~ 7 // 2 ~ 7 % 4 }}{{ loop is defined }}",
        "macros": "{% macro say(m) %}<{{ m.role }}>{{ m.content | replace('the', 'a') }}{% endmacro %}"
        "{% for m in messages %}\n    {{- say(m) }}\n{% endfor %}{% if tools %}x{% endif %}{{ 'a\nb' | indent(2) }}",
        "usual": TEMPLATE,
    }
    for template in templates.values():
        tokenizer = templated(template, tmp_path)
        file = str(tmp_path / "tokenizer.json")
        tokenizer.inner.save(file)
        theirs = transformers.PreTrainedTokenizerFast(
            tokenizer_file=file, bos_token="<|im_start|>", eos_token="<|im_end|>", chat_template=template
        )
        for generation in (False, True):
            wanted = theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=generation)
            assert tokenizer.render(CHAT, generation) == wanted


#: {attack: template}: each is one error, in bounded memory and time.
ATTACKS = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}"
    "{% endfor %}{% endfor %}",
    "texts that double": "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "sums that double": "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "lists that double": "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "lists of lists": "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}"
    "{{ n.s | tojson }}",
    "a long text": "{{ 'a' * 10000000000 }}",
    "a wide format": "{{ '%09999999999d' % 1 }}",
    "a wide format of Python": "{{ '{:>9999999999}'.format(1) }}",
    "a wide column": "{{ 'a'.ljust(9999999999) }}",
    "a wide filter": "{{ 'a' | center(9999999999) }}",
    "a wide indent": "{{ 'a\nb' | indent(9999999999) }}",
    "negative widths": "{{ 'a' | indent(-1000000000000) }}{% set n = namespace(s='ab') %}{% for i in range(60) %}"
    "{% set n.s = n.s ~ n.s %}{% endfor %}",
    "a power": "{{ 10 ** 10 ** 10 }}",
    "products": "{% set n = namespace(s=7) %}{% for i in range(60) %}{% set n.s = n.s * n.s %}{% endfor %}",
    "replacing": "{% set n = namespace(s='aa') %}{% for i in range(60) %}{% set n.s = n.s.replace('a', 'aaa') %}"
    "{% endfor %}",
    "joining": "{% set n = namespace(s='aa') %}{% for i in range(60) %}{% set n.s = [n.s, n.s, n.s] | join(n.s) %}"
    "{% endfor %}",
    "much in a macro": "{% macro f() %}{% for i in range(99999) %}"
    + "x" * 9999
    + "{% endfor %}{% endmacro %}{{ f() }}",
    "macros that call": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "endless macros": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "searching for long": "{% set n = namespace(s='ab') %}{% for i in range(21) %}{% set n.s = n.s ~ n.s %}{% endfor %}"
    "{% for i in range(30000) %}{% if 'bac' in n.s %}{% endif %}{% endfor %}",
    "more in a number": "{{ [1] | tojson(cls=5) }}",
    "bytes of a number": "{{ (5).to_bytes(9999999999) }}",
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ messages.append.__globals__ }}",
    "a function's code": "{{ raise_exception.__globals__['os'].system('true') }}",
    "changed messages": "{{ messages.append(1) }}",
    "another file": "{% include '/etc/passwd' %}",
    "lorem ipsum": "{{ lipsum(n=99999999) }}",
    "a wide date": "{{ strftime_now('%099999999d') }}",
    "no template": "{% for %}",
    "deep": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "an exception": "{{ raise_exception('roles must alternate') }}",
    "a list to print": "{{ messages }}",
}


def test_attacks_by_templates(tmp_path: Path):
    tokenizer = templated(None, tmp_path)
    tokenizer.render(CHAT)  # imports what it needs
    over_rows(refused, ((name, (tokenizer, template)) for name, template in ATTACKS.items()))
    over_rows(refused, [("long", (tokenizer, "a" * 300_000))])


def refused(tokenizer: Tokenizer, template: str) -> None:
    """One error of ours that names the file, in bounded memory and time."""
    given = Tokenizer("strange.gguf", lambda: tokenizer.inner, 40, template, Special(1, (2,)))
    began = time.process_time()

    def attempt() -> None:
        with pytest.raises((SnapshotError, ValueError), match=r"strange\.gguf: chat template"):
            given.render(CHAT)

    assert peak_of(attempt) < 300 << 20
    assert time.process_time() - began < 20


# ---- tokenizers of other forms


def corpus() -> list[str]:
    random = np.random.default_rng(5)
    letters = [*"abcdefgh 12'\n.é日"]
    return ["".join(random.choice(letters, 60)) for _ in range(60)] + ["it's 12345 the\n\n  end"] * 5


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
def test_a_folders_tokenizer_goes_through_gguf(tmp_path: Path, pre: str):
    """tokenizer.json -> net -> GGUF -> net: the same ids; a pattern that no file can name is an error."""
    tokenizers = library("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=pre == "llama-bpe"))
    made.pre_tokenizer, made.decoder = vocabulary.pre_tokenizer(pre), tokenizers.decoders.ByteLevel()
    if pre == "qwen2":
        made.normalizer = tokenizers.normalizers.NFC()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["<|end|>"], initial_alphabet=alphabet)
    made.train_from_iterator(corpus(), trainer)
    sizes: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2, "hidden_size": 12, "vocabulary": 410}
    net = models.language_model(models.LanguageConfig(architecture="qwen2", **sizes, biases=True), length=8)
    net.tokenizer = Tokenizer("made", lambda: made, 410, TEMPLATE, Special(None, ("<|end|>",)))
    net.save(f"{tmp_path / 'folder'}/")
    net = models.load(tmp_path / "folder")
    net.save(tmp_path / "x.gguf")
    again = models.load(tmp_path / "x.gguf").tokenizer
    for text in [*corpus(), "<|end|> don't  stop 3.14"]:
        assert again.encode(text) == made.encode(text).ids
    assert again.stop_ids == (made.token_to_id("<|end|>"),) and again.template == TEMPLATE
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    net.tokenizer = Tokenizer("made", lambda: made, 410)
    with pytest.raises(SnapshotError, match="pre-tokenizer"):
        net.save(tmp_path / "y.gguf")


def test_pieces_with_scores_are_joined_as_by_the_tokenizers_package():
    """What SentencePiece makes: the merges are not in the file, and follow from the scores."""
    tokenizers = library("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{number:02X}>" for number in range(256))]
    texts = [text.replace("é", "e").replace("日", "d") for text in corpus()]
    made.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(vocab_size=420, special_tokens=special))
    tokens = [made.id_to_token(number) for number in range(made.get_vocab_size())]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    arrays = {"tokens": tokens, "token_type": kinds, "scores": [-float(number) for number in range(len(tokens))]}
    file = ArrayFile("made", np.zeros(0, np.uint8), {"tokenizer.ggml.model": "llama"}, {}, {})
    for name, values in arrays.items():
        file.metadata[f"tokenizer.ggml.{name}"] = ArrayValue(0, len(values), 0)
        file.values[f"tokenizer.ggml.{name}"] = values
    found = vocabulary.built(file)
    plain = made.encode
    for text in [*texts, "the 12 é 日"]:
        assert found.encode(text).ids == plain(text).ids
        assert found.decode(found.encode(text).ids) == text


class ArrayFile(GGUFFile):
    """A file whose arrays are given."""

    values: dict[str, Any] = {}  # noqa: RUF012

    def elements(self, key: str) -> Any:
        return self.values[key]


BROKEN = {
    "twice": ({"tokens": ["a", "a"]}, "each token once"),
    "kinds": ({"token_type": [1]}, "kinds"),
    "a merge of nothing": ({"merges": ["ab"]}, "'ab'"),
    "a merge of strangers": ({"merges": ["a z"]}, "'a z'"),
}


def test_broken_vocabularies():
    def refuse(changes: dict[str, Any], culprit: str) -> None:
        arrays = {"tokens": ["a", "b", "ab"], "token_type": [1, 1, 1], "merges": ["a b"], **changes}
        file = ArrayFile("broken", np.zeros(0, np.uint8), {"tokenizer.ggml.model": "gpt2"}, {}, {})
        for name, values in arrays.items():
            file.metadata[f"tokenizer.ggml.{name}"] = ArrayValue(0, len(values), 0)
        file.values.clear()
        file.values.update({f"tokenizer.ggml.{name}": values for name, values in arrays.items()})
        with pytest.raises(SnapshotError, match=rf"broken.*{culprit}"):
            vocabulary.built(file)

    over_rows(refuse, BROKEN.items())
    assert SIZES["vocabulary"] == len(small_tokens()[0])
