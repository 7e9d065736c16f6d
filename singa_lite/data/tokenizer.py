"""What data and nets need of a tokenizer, and one of bytes for nets that are trained from the beginning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

#: Pieces of a text, and whether the loss of each one's ids counts.
Parts = Sequence[tuple[str, bool]]
Messages = Sequence[Mapping[str, str]]


class Tokenizer(Protocol):
    """What `data.chat` and `net.chat` need of a tokenizer, such as `net.tokenizer`.

    stop_ids: ids that end an answer; end_id: that ends a text, if there is one; vocabulary: how many ids there are.
    encode: begin asks for the id that begins texts, if there is one. render: a conversation as text, with the beginning
    of an answer behind it for generation; render_parts: the same in pieces, each with whether its loss counts.

    >>> tokenizer: data.Tokenizer = data.ByteTokenizer()
    """

    @property
    def stop_ids(self) -> Sequence[int]: ...

    @property
    def end_id(self) -> int | None: ...

    @property
    def vocabulary(self) -> int: ...

    def encode(self, text: str, /, begin: bool = False) -> list[int]: ...

    def decode(self, ids: Sequence[int], /) -> str: ...

    def render(self, messages: Messages, generation: bool = False) -> str: ...

    def render_parts(self, messages: Messages, /) -> Parts: ...


class ByteTokenizer:
    """A tokenizer whose ids are the bytes of UTF-8, for small nets that are trained from the beginning.

    A message is its role, the byte 2, its content, and the byte 4, which ends texts (start of text and end of
    transmission in ASCII).

    >>> tokenizer = data.ByteTokenizer()
    >>> tokenizer.encode("hé"), tokenizer.decode([104, 195, 169])
    ([104, 195, 169], 'hé')
    """

    end_id: int | None = 4
    stop_ids: Sequence[int] = (4,)
    vocabulary = 256

    def encode(self, text: str, begin: bool = False) -> list[int]:
        """The bytes of a text. begin: changes nothing, as no byte begins texts."""
        return [*text.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some bytes, with U+FFFD for those of no letter."""
        return bytes(ids).decode(errors="replace")

    def render(self, messages: Messages, generation: bool = False) -> str:
        """A conversation as text. generation: with the beginning of an answer behind it."""
        text = "".join(piece for piece, _ in self.render_parts(messages))
        return f"{text}assistant\x02" if generation else text

    def render_parts(self, messages: Messages) -> Parts:
        """A conversation in pieces, of which the answers and their ends count in the loss."""
        return [
            piece
            for message in messages
            for piece in (
                (f"{message['role']}\x02", False),
                (f"{message['content']}\x04", message["role"] == "assistant"),
            )
        ]
