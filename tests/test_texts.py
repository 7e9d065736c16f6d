"""Data of language models from JSON lines: which ids a row has, where the loss counts, and broken files."""

from __future__ import annotations

import gzip
import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, GraphError, data, device, layers, loss, metric, models, optimizer
from singa_lite.data.text_rows import packed_rows
from singa_lite.errors import DataError, DataFileError

TOKENS = data.ByteTokenizer()
OUT, END = -100, 4
QUESTION = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "é"}]
TWO_TURNS = [*QUESTION, {"role": "user", "content": "c"}, {"role": "assistant", "content": "dé"}]
SOME = {"prompt": "ab", "completion": "cd"}


def written(path: Path, *lines: object) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


class Template(data.ByteTokenizer):
    """Refuses conversations as templates do."""

    def render_parts(self, messages: Any) -> Any:
        if messages[0]["role"] == "assistant":
            raise RuntimeError("a conversation begins with the user")
        return super().render_parts(messages)


# --- rows ---------------------------------------------------------------------------------------------------


def test_the_loss_counts_in_answers_and_in_their_ends(tmp_path):
    chats = data.chat(written(tmp_path / "chats.jsonl", {"messages": TWO_TURNS}), TOKENS, length=60)
    whole = [*"user\2ab\4assistant\2é\4user\2c\4assistant\2dé\4".encode()]
    n = len(whole) - 1
    assert chats.x[0, :n].tolist() == whole[:-1] and not chats.x[0, n:].any()
    first, second = [*"é".encode(), END], [*"dé".encode(), END]
    counted = np.flatnonzero(chats.y[0] != OUT)
    assert chats.y[0, counted].tolist() == [*first, *second]
    assert counted.tolist() == [17, 18, 19, 37, 38, 39, 40]  # by hand: from the byte 2 behind "assistant" on
    assert (chats.lengths.tolist(), chats.count, chats.counted, chats.truncated) == ([n], 1, 7, 0)


def test_all_counts_where_it_is_wanted_but_padding(tmp_path):
    path = written(tmp_path / "chats.jsonl", {"messages": QUESTION})
    chats = data.chat(path, TOKENS, length=40, answers_only=False)
    n = int(chats.lengths[0])
    assert chats.y[0, :n].tolist() == [*"user\2ab\4assistant\2é\4".encode()][1:]
    assert (chats.y[0, n:] == OUT).all()


def test_an_end_counts_where_its_id_is_that_of_padding(tmp_path):
    class Zero(data.ByteTokenizer):
        end_id = 0

    path = written(tmp_path / "some.jsonl", SOME)
    read = data.prompts(path, Zero(), 6)
    assert read.x.tolist() == [[*b"abcd", 0, 0]] and read.y.tolist() == [[OUT, *b"cd", 0, OUT, OUT]]


def test_prompts_and_texts_end_with_the_id_of_an_end(tmp_path):
    path = written(tmp_path / "some.jsonl", SOME)
    assert data.prompts(path, TOKENS, 6).x.tolist() == [[*b"abcd", 0, 0]]
    assert data.prompts(path, TOKENS, 6).y.tolist() == [[OUT, *b"cd", END, OUT, OUT]]
    assert data.prompts(path, TOKENS, 6, answers_only=False).y.tolist() == [[*b"bcd", END, OUT, OUT]]
    path = written(tmp_path / "texts.jsonl", {"text": "abcd", "source": 7}, {"text": "e"})
    assert data.texts(path, TOKENS, 5).x.tolist() == [[*b"abcd", 0], [*b"e", 0, 0, 0, 0]]
    assert data.texts(path, TOKENS, 5).y.tolist() == [[*b"bcd", END, OUT], [END, OUT, OUT, OUT, OUT]]


def test_what_is_longer_than_a_row_is_stated(tmp_path):
    path = written(tmp_path / "texts.jsonl", {"text": "abcdefg"}, {"text": "xy"})
    with pytest.warns(UserWarning, match=r"texts\.jsonl: 1 of 2 texts are longer than 3"):
        cut = data.texts(path, TOKENS, 3)
    assert cut.y.tolist() == [[*b"bcd"], [*b"y", END, OUT]] and (cut.truncated, cut.dropped) == (1, 0)
    split = data.texts(path, TOKENS, 3, longer="split")
    assert split.x.tolist() == [[*b"abc"], [*b"def"], [*b"g", 0, 0], [*b"xy", 0]]
    assert split.y.tolist() == [[*b"bcd"], [*b"efg"], [END, OUT, OUT], [*b"y", END, OUT]]
    with pytest.raises(DataError, match=r"texts\.jsonl, line 1: .*4 ids, received 8"):
        data.texts(path, TOKENS, 3, longer="error")
    path = written(tmp_path / "some.jsonl", {"prompt": "abcd", "completion": "e"}, SOME)
    with pytest.warns(UserWarning, match="1 have nothing"):
        assert data.prompts(path, TOKENS, 3).y.tolist() == [[OUT, *b"cd"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(data.prompts(path, TOKENS, 5)) == 2
    with pytest.raises(DataError, match=r"some\.jsonl: wanted a text .* within 1 positions, received none; 2 of 2"):
        data.prompts(path, TOKENS, 1)


def test_files_may_be_packed_and_have_marks_and_blank_lines(tmp_path):
    lines = f"\n{json.dumps(SOME)}\r\n\r\n  \n{json.dumps(SOME)}".encode()
    for name, content in (("a", lines), ("b", gzip.compress(lines)), ("c", b"\xef\xbb\xbf" + lines)):
        (tmp_path / name).write_bytes(content)
        assert data.prompts(tmp_path / name, TOKENS, 6).x.tolist() == [[*b"abcd", 0, 0]] * 2


# --- several texts in a row ---------------------------------------------------------------------------------


def test_rows_of_several_texts_hold_each_once(tmp_path):
    texts = ["abcdef", "g", "hijk", "lm", "nop", "qrstu", "v", "w"]
    packed = data.texts(written(tmp_path / "t", *({"text": text} for text in texts)), TOKENS, 8, packed=True)
    assert isinstance(packed.x, dict)
    found = []
    for ids, starts, targets in zip(packed.x["tokens"], packed.x["starts"], packed.y, strict=True):
        for start, group in itertools.groupby(range(8), lambda at: int(starts[at])):  # noqa: B023
            places = list(group)
            assert places[0] == start
            text = bytes(ids[places].tolist()).decode()
            if targets[start] == OUT:  # padding
                assert not ids[places].any() and (targets[places] == OUT).all()
                continue
            assert targets[places].tolist() == [*text.encode()[1:], END]
            found.append(text)
    assert sorted(found) == sorted(texts)
    assert len(packed) == 3 and packed.count == 8  # 23 ids in rows of 8


def test_packing_needs_few_rows():
    for seed in range(5):
        random = np.random.default_rng(seed)
        lengths = random.integers(1, 30, 60).tolist()
        rows = packed_rows(lengths, 31)
        assert sorted(number for row in rows for number in row) == list(range(60))
        assert max(sum(lengths[number] for number in row) for row in rows) <= 31
        assert len(rows) <= 11 / 9 * -(-sum(lengths) // 31) + 1
    assert packed_rows([4, 3, 2, 1, 2], 6) == [[0, 2], [1, 3, 4]]


# --- training -----------------------------------------------------------------------------------------------


def chats(path: Path, count: int = 9) -> str:
    lines = ([*QUESTION[:1], {"role": "assistant", "content": "xyz"[: 1 + number % 3]}] for number in range(count))
    return written(path, *({"messages": line} for line in lines))


def net_of(length: int, **compiling: Any) -> FeedForwardNet:
    net = FeedForwardNet(
        loss.SoftmaxCrossEntropy(-1, ignore_index=OUT), metric.Accuracy(-1, ignore_index=OUT), device.new_cpu(), seed=3
    )
    table = net.add(layers.Embedding("tokens", 256, 8, input_sample_shape=(length,)))
    net.add(layers.TransformerBlock("block", 2, True, rotary=True))
    net.add(layers.TiedDense("head", table))
    net.compile(optimizer.Adam(0.01), **compiling)
    return net


def test_padding_and_prompts_change_no_loss_and_no_gradient(tmp_path):
    """The mean is of the targets that count: as of the same rows without their padding, worked out in float64."""
    read = data.chat(chats(tmp_path / "c", 3), TOKENS, length=31)
    net = net_of(31)
    scores = net.predict(read.x).tolist()
    terms = []
    for row, targets in zip(np.array(scores, np.float64), read.y, strict=True):
        for given, target in zip(row, targets, strict=True):
            if target != OUT:
                terms.append(np.log(np.exp(given - given.max()).sum()) + given.max() - given[target])
    assert len(terms) == 2 + 3 + 4
    assert net.evaluate(read, batch_size=3)[0] == pytest.approx(np.mean(terms), rel=1e-5)
    before = {name: value.tolist() for name, value in net.gradients(read.x, read.y).items()}
    other = read.x.copy()
    for row, length in zip(other, read.lengths, strict=True):
        row[length:] = 77
    after = net.gradients(other, read.y)
    for name, value in before.items():
        np.testing.assert_allclose(after[name].tolist(), value, rtol=1e-5, atol=1e-7, err_msg=name)


def test_fit_takes_it_and_ends_with_equal_bits_within_any_budget(tmp_path):
    read = data.chat(chats(tmp_path / "c"), TOKENS, length=32)
    states = []
    for options in ({}, {"graph": False}, {"memory_budget": "250 kB"}):
        net = net_of(32, fuse=False, **options)
        history = net.fit(read, batch_size=2, epochs=2, verbose=False)
        assert history["loss"][1] < history["loss"][0]
        states.append(state_of(net))
    assert states[0] == states[1] == states[2]


def test_rows_in_buckets_have_less_padding(tmp_path):
    read = data.chat(chats(tmp_path / "c"), TOKENS, length=40)
    buckets = read.bucketed(3, boundaries=2, seed=1)
    assert buckets.boundaries[-1] < 40
    found = sorted((row[:n].tolist(), y[:n].tolist()) for rows in buckets for row, y, n in _unpadded(*rows))
    wanted = sorted((x[:n].tolist(), y[:n].tolist()) for x, y, n in zip(read.x, read.y, read.lengths, strict=True))
    assert found == wanted
    net_of(40).fit(buckets, verbose=False)
    with pytest.raises(ValueError, match="packed"):
        data.chat(chats(tmp_path / "c"), TOKENS, 40, packed=True).bucketed(2)


def _unpadded(x: Any, y: Any) -> Any:
    """Of each row its ids, targets and length: the last target that counts is the end."""
    return ((row, targets, int(np.flatnonzero(targets != OUT)[-1]) + 1) for row, targets in zip(x, y, strict=True))


def test_a_loss_that_would_count_prompts_is_refused(tmp_path):
    read = data.chat(chats(tmp_path / "c"), TOKENS, length=32)
    net = models.gpt2(256, 32, 8, 2, 1)
    net.compile("adam", loss.SoftmaxCrossEntropy(axis=-1))
    with pytest.raises(ValueError, match="fit: wanted SoftmaxCrossEntropy with ignore_index=-100"):
        net.fit(read, verbose=False)


def test_progress_says_tokens_a_second(tmp_path, capsys):
    read = data.chat(chats(tmp_path / "c"), TOKENS, length=32)
    net_of(32).fit(read, batch_size=4)
    assert "tokens/s" in capsys.readouterr().err
    net = FeedForwardNet("mse", device=device.new_cpu())
    net.add(layers.Dense("dense", 3, input_sample_shape=(5,)))
    net.compile("sgd")
    net.fit(np.ones((4, 5), int), np.ones((4, 3)))
    assert "tokens" not in capsys.readouterr().err


# --- broken files -------------------------------------------------------------------------------------------

GOOD = json.dumps({"messages": QUESTION, "prompt": "a", "completion": "b", "text": "c"}).encode()
LONE = (
    b'{"text": "\\ud800", "prompt": "\\ud800", "completion": "a", "messages": [{"role": "user", "content": "\\ud800"}]}'
)
BROKEN: dict[str, tuple[bytes, str]] = {
    "half an object": (b'{"text": "a', "JSON"),
    "two objects": (GOOD + GOOD, "JSON"),
    "a list": (b"[1, 2]", "JSON"),
    "a number": (b"7", "JSON"),
    "no UTF-8": (b'{"text": "\xff\xfe"}', "utf-8"),
    "lists in lists": (b'{"text": ' + b"[" * 10**5, "JSON"),
    "a huge number": (b'{"text": ' + b"9" * 10**4 + b"}", "JSON"),
    "another key": (b'{"words": "a"}', "words"),
    "a number for text": (b'{"text": 5, "prompt": 5, "completion": "a", "messages": 5}', "5"),
    "half a letter": (LONE, "UnicodeEncodeError"),
}
MESSAGES: dict[str, tuple[object, str]] = {
    "none": ([], "messages"),
    "text": ("hello", "messages"),
    "no object": ([*QUESTION, "hello"], "message 2"),
    "no role": ([{"content": "a"}], "'role'"),
    "no content": ([QUESTION[0], {"role": "assistant", "content": None}], "message 1"),
    "what the template refuses": ([{"role": "assistant", "content": "a"}], "begins with the user"),
}


@pytest.mark.parametrize("reader", [data.chat, data.prompts, data.texts])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_one_error_with_its_number(reader, name, tmp_path):
    line, word = BROKEN[name]
    (tmp_path / "d.jsonl").write_bytes(GOOD + b"\n\n" + line + b"\n" + GOOD)
    with pytest.raises(DataFileError, match=rf"d\.jsonl, line 3[:,] .*{word}"):
        reader(tmp_path / "d.jsonl", TOKENS, 64)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_broken_conversation_is_one_error_with_its_number(name, tmp_path):
    messages, word = MESSAGES[name]
    path = written(tmp_path / "d.jsonl", {"messages": QUESTION}, {"messages": messages})
    with pytest.raises(DataFileError, match=rf"d\.jsonl, line 2[:,] .*{word}"):
        data.chat(path, Template(), 64)


def test_files_that_are_no_files(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "blank").write_bytes(b"\n \n")
    for name in ("", "empty", "blank"):
        with pytest.raises(DataError, match=str(tmp_path / name)):
            data.texts(tmp_path / name, TOKENS, 4)
    with pytest.raises(FileNotFoundError):
        data.texts(tmp_path / "missing", TOKENS, 4)


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"length": 0}, ValueError, "length"),
    ({"length": "8"}, TypeError, "length"),
    ({"longer": "wrap"}, ValueError, "'wrap'"),
    ({"packed": 1}, TypeError, "packed"),
    ({"answers_only": "yes"}, TypeError, "answers_only"),
    ({"tokenizer": None}, TypeError, "tokenizer"),
    ({"path": 3}, TypeError, "path"),
    ({"batch_size": 3}, TypeError, "batch_size"),
]


@pytest.mark.parametrize(("options", "error", "word"), OPTIONS)
def test_options_that_make_no_sense(options, error, word, tmp_path):
    given = {"path": chats(tmp_path / "c"), "tokenizer": TOKENS, "length": 8} | options
    with pytest.raises(error, match=f"chat.*{word}"):
        data.chat(**given)


# --- nets over rows of several texts ------------------------------------------------------------------------


def llama(packed: bool, **compiling: Any) -> FeedForwardNet:
    """Grouped queries, rotary positions, which begin anew for each text by themselves, and a tied head."""
    net = FeedForwardNet(
        loss.SoftmaxCrossEntropy(-1, ignore_index=OUT), dtype="float64", device=device.new_cpu(), seed=3
    )
    table = net.add(layers.Embedding("tokens", 256, 8, input_sample_shape=(16,)))
    starts = [net.add(layers.TextStarts("starts", input_sample_shape=(16,)), [])] if packed else []
    block = layers.TransformerBlock("block", 2, True, rotary=True, kv_heads=1, norm="rms", packed=packed)
    net.add(layers.TiedDense("head", table), net.add(block, [table, *starts]))
    net.compile(optimizer.SGD(0.1), **compiling)
    return net


def test_texts_in_one_row_train_as_each_in_its_own(tmp_path):
    """Loss, gradients, and what the updates make of the net, worked out in float64 for rows of one text."""
    texts = ["abcdef", "gh", "ijkl", "mn", "opqr", "st"]
    path = written(tmp_path / "t", *({"text": text} for text in texts))
    rows, packed = data.texts(path, TOKENS, 16), data.texts(path, TOKENS, 16, packed=True)
    assert (len(rows), len(packed)) == (6, 2)
    nets = [llama(True), llama(True, graph=False), llama(True, memory_budget="300 kB")]
    alone = llama(False)
    for name, wanted in alone.gradients(rows.x, rows.y).items():
        found = nets[0].gradients(packed.x, packed.y)[name]
        np.testing.assert_allclose(found.tolist(), wanted.tolist(), rtol=1e-9, atol=1e-12, err_msg=name)
    loss_alone = alone.fit(rows, batch_size=6, epochs=2, shuffle=False, verbose=False)["loss"]
    for net in nets:
        losses = net.fit(packed, batch_size=2, epochs=2, shuffle=False, verbose=False)["loss"]
        np.testing.assert_allclose(losses, loss_alone, rtol=1e-10)
        assert net.evaluate(packed)[0] == pytest.approx(alone.evaluate(rows)[0], rel=1e-10)
    prompt = [*b"abc"]
    assert nets[0].generate(prompt, 6, 0).tolist() == alone.generate(prompt, 6, 0).tolist()


def test_a_net_without_starts_refuses_rows_of_several_texts(tmp_path):
    packed = data.chat(chats(tmp_path / "c"), TOKENS, length=32, packed=True)
    with pytest.raises(GraphError, match="starts"):
        net_of(32).fit(packed, verbose=False)
