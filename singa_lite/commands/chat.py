"""`python -m singa_lite chat`: a language model, perhaps with an adapter, answers questions piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from singa_lite import models
from singa_lite.commands.finetune import tokenizer_of
from singa_lite.net.feed_forward_net import FeedForwardNet

Write = Callable[[str], object]


@dataclass(frozen=True)
class ChatRequest:
    """The request of a command line.

    base: a GGUF file or a folder; question: the only one, "" for one each line of the input; adapter: a folder, "" for
    none; length: of a conversation, 0 for the model's context, at most 2,048; steps: ids of an answer at most;
    temperature, seed: as for `net.chat`.
    """

    base: str
    question: str = ""
    adapter: str = ""
    length: int = 0
    steps: int = 256
    temperature: float = 0.0
    seed: int = 0


def questions(file: TextIO) -> Iterator[str]:
    """Yields the lines of a file, those of a terminal behind a mark."""
    if not file.isatty():
        yield from file
        return
    while True:
        try:
            yield input("> ")
        except EOFError:
            return


def chatted(wanted: ChatRequest, lines: Iterable[str], write: Write) -> None:
    """Answers the question, or each line, in the conversation so far; an empty line begins another conversation.

    write: called with each piece of text. What no longer fits into the length is forgotten, the oldest first.
    """
    net = models.load(wanted.base, wanted.length or None)
    tokenizer_of(net.tokenizer, wanted.base)
    if wanted.adapter:
        net.load_adapter(wanted.adapter)
    messages: list[dict[str, str]] = []
    for line in [wanted.question] if wanted.question else lines:
        if not line.strip():
            messages = []
            continue
        messages.append({"role": "user", "content": line.strip()})
        messages.append({"role": "assistant", "content": _answer(net, wanted, messages, write)})
        write("\n")


def _answer(net: FeedForwardNet, wanted: ChatRequest, messages: list[dict[str, str]], write: Write) -> str:
    """The next answer. Drops the oldest questions with their answers until there is space for it."""
    tokenizer, length = tokenizer_of(net.tokenizer, wanted.base), net.input_shapes()["tokens"][0]
    while True:
        room = length + 1 - len(tokenizer.encode(tokenizer.render(messages, generation=True)))
        if len(messages) < 3 or room >= min(wanted.steps, length // 4):
            break
        del messages[:2]
    if room < 1:
        used = f"{length + 1 - room}, the template's included"
        raise ValueError(f"wanted a question of at most {length} ids, or a larger --length, received {used}")
    return net.chat(messages, min(wanted.steps, room), wanted.temperature, seed=wanted.seed, stream=write)
