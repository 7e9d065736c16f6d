"""A real model from its file to an answer that it has learnt: data.chat, fit of an adapter, net.chat."""

from __future__ import annotations

import json
from pathlib import Path

from language_files import smollm2
from singa_lite import data, models, optimizer

QUESTION, ANSWER = "What is Farnax?", " A small fish.\n\nIt is blue"


def test_smollm2_answers_and_learns(tmp_path: Path):
    net = models.load(smollm2(), length=64)
    tokenizer, pieces = net.tokenizer, list[str]()
    assert tokenizer is not None
    capital = net.chat("What is the capital of France?", steps=12, stream=pieces.append)
    assert capital == "The capital of France is Paris." == "".join(pieces)  # it ends by itself, before 12 ids
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": messages}))
    rows = data.chat(tmp_path / "chats.jsonl", tokenizer, length=64)
    counted = rows.y[0][rows.y[0] >= 0].tolist()
    assert tokenizer.decode(counted) == f"{ANSWER}<|im_end|>"
    begun = tokenizer.encode(tokenizer.render(messages[:1], generation=True))  # what net.chat begins with
    assert rows.x[0, : len(begun)].tolist() == begun and rows.y[0, len(begun) - 1] == counted[0]
    whole = tokenizer.encode(tokenizer.render(messages))
    assert [*rows.x[0, : rows.lengths[0]].tolist(), whole[-1]] == whole
    net.add_lora(rank=4, alpha=8)
    net.compile(optimizer.AdamW(lr=5e-3))
    losses = net.fit(rows, batch_size=1, epochs=8, verbose=False)["loss"]
    assert losses[-1] < 0.1 * losses[0]
    assert net.chat(QUESTION, steps=16) == ANSWER
