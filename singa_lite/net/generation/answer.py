"""Answers to conversations in words: `net.chat`, and the pieces of text that it hands on while they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from singa_lite.common.errors import GraphError
from singa_lite.data import Tokenizer
from singa_lite.data.language import checked_messages
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.net.generation import checked
from singa_lite.net.generation.checked import Ids
from singa_lite.net.generation.write import Options, generate
from singa_lite.training.step_cache import StepCache

#: Ids of an answer where nobody says how many.
USUAL = 256
#: What tokenizers give in the place of a letter whose bytes are not all there.
_UNFINISHED = "\ufffd"


def answer(
    layers: LayerGraph,
    steps: StepCache,
    tokenizer: Tokenizer,
    messages: object,
    options: Options,
    stream: Callable[[str], object] | None,
) -> str:
    """See `net.chat`. steps: the net's."""
    if not hasattr(tokenizer, "render"):
        raise GraphError(f"chat: wanted a net with a tokenizer, in net.tokenizer, received {tokenizer!r:.100}")
    checked.check_stream("chat stream", stream)
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    rendered = tokenizer.render(checked_messages("chat messages", given), generation=True)
    prompt, stops = tokenizer.encode(rendered), list(tokenizer.stop_ids)
    count = checked.most_steps(layers, len(prompt), USUAL) if options.steps is None else options.steps
    pieces = None if stream is None else Pieces(tokenizer, stops, stream)
    on_ids = None if pieces is None else pieces.add
    text = generate(layers, steps, np.array(prompt), options._replace(steps=count, stop=stops, stream=on_ids))
    if pieces is not None:
        pieces.close()
    return tokenizer.decode([number for number in text[len(prompt) :].tolist() if number not in stops])


class Pieces:
    """Hands on the text of ids that come one by one, in pieces that are whole letters.

    A tokenizer may give an id another text behind others than alone, as with the space before a word. So each piece is
    the difference of two texts that begin with the ids of the piece before.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[int], stream: Callable[[str], object]) -> None:
        self._tokenizer, self._stops, self._stream = tokenizer, stops, stream
        self._ids: list[int] = []
        self._begin = self._end = 0  # of the piece before

    def add(self, ids: Ids) -> None:
        """Take the next id of the only text, (1,)."""
        if int(ids[0]) not in self._stops:
            self._ids.append(int(ids[0]))
            self._hand_on(_UNFINISHED)

    def close(self) -> None:
        """Hand on what is left, whole letters or not."""
        self._hand_on("")

    def _hand_on(self, unfinished: str) -> None:
        before = self._tokenizer.decode(self._ids[self._begin : self._end])
        text = self._tokenizer.decode(self._ids[self._begin :])
        if len(text) > len(before) and not (unfinished and text.endswith(unfinished)):
            self._begin, self._end = self._end, len(self._ids)
            self._stream(text[len(before) :])
