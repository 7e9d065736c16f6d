"""Texts that end by themselves, of unequal prompts, handed on while they are written; and answers in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from misuse import STRANGERS, assert_clear
from singa_lite import FeedForwardNet, GraphError, ShapeError, data, device, layers, loss, optimizer
from singa_lite.errors import DataError

IDS, TIME = 13, 20
PROMPT = np.random.default_rng(5).integers(1, IDS, (3, 6))


def net_of(ids: int = IDS, time: int = TIME, **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), dtype="float64", seed=4, device=device.new_cpu())
    net.add(layers.Embedding("tokens", ids, 8, weight_init="normal", input_sample_shape=(time,)))
    net.add(layers.LearnedPositions("positions", weight_init="normal"))
    net.add(layers.TransformerBlock("block", 2, True))
    net.add(layers.Dense("head", ids))
    net.compile(optimizer.SGD(), **options)
    return net


def recurrent() -> FeedForwardNet:
    """Its states go on from position to position, so that none may be read twice."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), dtype="float64", seed=4, device=device.new_cpu())
    net.add(layers.Embedding("tokens", IDS, 8, weight_init="normal", input_sample_shape=(TIME,)))
    net.add(layers.GRU("state", 5, return_sequences=True))
    net.add(layers.Dense("head", IDS))
    return net


def test_a_text_ends_at_the_first_id_that_ends_it():
    net = net_of()
    free = net.generate(PROMPT, 9, seed=3)
    stop = [int(free[1, 8]), int(free[0, 10])]
    ends = []
    for row in free:
        found = np.flatnonzero(np.isin(row[6:], stop))
        ends.append(6 + int(found[0]) + 1 if len(found) else 15)
    assert len(set(ends)) > 1  # or the test is none
    texts = net.generate(PROMPT, 9, seed=3, stop=stop)
    assert texts.shape == (3, max(ends))
    for text, row, end in zip(texts, free, ends, strict=True):
        assert text[:end].tolist() == row[:end].tolist()
        assert (text[end:] == -1).all()
    alone = net.generate(PROMPT[0], 9, seed=3, stop=stop)
    assert alone.tolist() == free[0, : ends[0]].tolist()
    assert net.generate(PROMPT[0], 9, seed=3, stop=int(alone[-1])).tolist() == alone.tolist()


@pytest.mark.parametrize("make", [net_of, recurrent])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_of_unequal_prompts_are_those_alone(make, temperature):
    """The first by its random numbers too; what stands behind a prompt's end is not read, not even an id."""
    net, lengths = make(), [4, 6, 1]
    padded = np.where(np.arange(6) < np.array(lengths)[:, None], PROMPT, -7)
    texts = net.generate(padded, 8, temperature, seed=2, lengths=lengths)
    assert texts.shape == (3, 14)
    for number, length in enumerate(lengths):
        if number and temperature:
            break  # a text's numbers go by its place in the batch
        alone = net.generate(PROMPT[number, :length], 8, temperature, seed=2)
        assert texts[number, : length + 8].tolist() == alone.tolist()
    for text, prompt, length in zip(texts, PROMPT, lengths, strict=True):
        assert text[:length].tolist() == prompt[:length].tolist()
        assert (text[: length + 8] >= 0).all() and (text[length + 8 :] == -1).all()
    only = net.generate(PROMPT[:1], 3, 0, lengths=[2])
    assert only.shape == (1, 5)


def test_ids_come_as_soon_as_they_are_drawn():
    net, came = net_of(), list[np.ndarray]()
    texts = net.generate(PROMPT, 7, seed=3, lengths=[5, 2, 3], stream=lambda ids: came.append(ids.copy()))
    assert {ids.dtype.name for ids in came} == {"int64"}
    together = np.stack(came, axis=1)  # (n, positions behind the shortest prompt)
    assert together.shape == (3, texts.shape[1] - 2)
    for row, text, length in zip(together, texts, [5, 2, 3], strict=True):
        assert row[row >= 0].tolist() == text[length : length + 7].tolist()
        assert (row[: length - 2] == -1).all()


def test_an_error_of_the_stream_leaves_the_net_as_it_was():
    net = net_of()
    wanted = net.generate(PROMPT, 5, 0)

    def broken(ids: np.ndarray) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        net.generate(PROMPT, 5, 0, stream=broken)
    for call in (lambda _: net.predict(PROMPT), lambda _: net.generate(PROMPT[:1], 2)):
        with pytest.raises(GraphError, match="generates"):  # it would overwrite what the text goes on from
            net.generate(PROMPT, 5, 0, stream=call)
    assert net.generate(PROMPT, 5, 0).tolist() == wanted.tolist()


def test_each_mode_writes_the_same_text():
    options: Any = {"seed": 2, "lengths": [4, 2, 6], "stop": [3, 5]}
    text = net_of().generate(PROMPT, 9, **options)
    for compiling in ({"graph": False}, {"memory_budget": "4 MiB"}):
        np.testing.assert_array_equal(net_of(**compiling).generate(PROMPT, 9, **options), text)


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"stop": IDS}, ValueError, "stop"),
    ({"stop": [1, -1]}, ValueError, "stop"),
    ({"stop": [1.5]}, ValueError, "stop"),
    ({"stop": "a"}, TypeError, "stop"),
    ({"lengths": [1, 2]}, ShapeError, r"lengths.*\(3,\)"),
    ({"lengths": [1, 2, 0]}, ValueError, "lengths"),
    ({"lengths": [1, 2, 7]}, ValueError, "lengths"),
    ({"lengths": [1.0, 2.0, 3.0]}, TypeError, "lengths"),
    (
        {"prompt": np.where(np.arange(6) < 5, PROMPT, 99), "lengths": [5, 5, 6]},
        ValueError,
        "99 in sample 2, position 5",
    ),
]


@pytest.mark.parametrize(("options", "error", "culprit"), WRONG)
def test_what_is_wrong_is_said_before_anything_is_recorded(options, error, culprit):
    net = net_of()
    with pytest.raises(error, match=culprit):
        net.generate(**{"prompt": PROMPT, "steps": 2, **options})
    assert not net.recorded_forms


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda net: net.generate([1], 2, temprature=1), "generate: wanted an option of .*; perhaps temperature"),
        (lambda net: net.generate([1]), "generate: missing .*'steps'"),
        (lambda net: net.chat("a", stop=[3]), "chat: wanted an option of .*received stop="),
        (lambda net: net.chat(), "chat: missing .*'messages'"),
        (lambda net: net.plan_batch(batch=1), "plan_batch: wanted .*batch_size"),
        (lambda net: net.plan_generation(1, size=5), "plan_generation: wanted an option of batch_size, length"),
        (lambda net: net.largest_batch("1 GiB", samples_=3), "largest_batch: wanted an option of .*perhaps samples"),
    ],
)
def test_options_that_are_not_there(call, words):
    with pytest.raises(TypeError, match=words):
        call(net_of())


@pytest.mark.parametrize("option", ["stop", "lengths"])
def test_whatever_is_given_is_taken_or_refused(option):
    net = net_of()
    for stranger in STRANGERS.values():
        try:
            net.generate(**{"prompt": PROMPT[:, :2], "steps": 1, option: stranger})
        except Exception as error:
            assert_clear(error)


# --- in words -----------------------------------------------------------------------------------------------


class Dictated(data.ByteTokenizer):
    """A tokenizer whose every id stands for another byte, so that a net that repeats ids writes what a test wants.

    written: bytes; id i is the byte behind the (i - 1)th one. Its last id ends an answer.
    """

    def __init__(self, written: bytes) -> None:
        self.written, self.stop_ids = written, (len(written),)
        self.asked: list[Any] = []

    def encode(self, text: str) -> list[int]:
        self.asked.append(text)
        return [len(self.written) + 1]

    def decode(self, ids: Any) -> str:
        return bytes(self.written[each] for each in ids).decode(errors="replace")


def counting(ids: int) -> FeedForwardNet:
    """A net that always writes the id behind the one before: from the last one, 0."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), device=device.new_cpu())
    net.add(layers.Embedding("tokens", ids, ids, input_sample_shape=(40,)))
    net.parameters()["tokens/weight"].copy_from_numpy(np.roll(np.eye(ids, dtype="float32"), 1, axis=1))
    return net


def test_an_answer_is_text_and_comes_in_whole_letters():
    written = "a é€😀\nb".encode()
    net = counting(len(written) + 2)
    net.tokenizer = tokens = Dictated(written)
    pieces: list[str] = []
    assert net.chat("Why?", steps=30, stream=pieces.append) == "a é€😀\nb"
    assert pieces == ["a", " ", "é", "€", "😀", "\n", "b"]
    assert tokens.asked == ["user\2Why?\4assistant\2"]
    pieces.clear()
    assert net.chat("Why?", steps=3, stream=pieces.append) == "a \ufffd"
    assert pieces == ["a", " ", "\ufffd"]
    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}]
    assert net.chat(turns, 30, 1e-6, 1, 5) == "a é€😀\nb"
    assert tokens.asked[-1].endswith("user\0023\4assistant\2")


def test_a_net_answers_by_the_text_that_its_tokenizer_makes():
    """As generate does from the ids of the prompt; whatever comes is decoded."""
    net = net_of(256, 80)
    net.tokenizer = tokens = data.ByteTokenizer()
    prompt = tokens.encode("user\2abc\4assistant\2")
    ids = net.generate(prompt, 12, 0.7, 9, 4, stop=tokens.stop_ids)[len(prompt) :]
    assert net.chat("abc", 12, 0.7, 9, 4) == tokens.decode(ids.tolist())
    longest = net.generate(prompt, 81 - len(prompt), 0, stop=tokens.stop_ids)[len(prompt) :]
    assert net.chat("abc") == tokens.decode(longest[longest != 4].tolist())  # of the 80 positions that there are
    with pytest.raises(ShapeError, match="positions"):
        net.chat("abc" * 30)


def test_chat_wants_a_tokenizer_and_messages():
    net = net_of(256, 80)
    with pytest.raises(GraphError, match="tokenizer"):
        net.chat("Why?")
    net.tokenizer = "bytes"  # type: ignore[assignment]
    with pytest.raises(GraphError, match=r"net\.tokenizer, received 'bytes'"):
        net.chat("Why?")
    net.tokenizer = data.ByteTokenizer()
    with pytest.raises(TypeError, match="chat stream: wanted a function"):
        net.chat("Why?", stream=3)  # type: ignore[arg-type]
    for messages in ([], [{"role": "user"}], ["Why?"], 5, None, {"role": "user", "content": "a"}):
        with pytest.raises(DataError, match="chat messages"):
            net.chat(messages)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="positions"):
        net.chat("Why?", 100)
