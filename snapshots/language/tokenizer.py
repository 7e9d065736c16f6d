"""Tokenizer: ids of texts, texts of ids, and chats as the model's template writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from singa_lite.common.checks import goes_through, is_int
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.gguf import GGUFFile

if TYPE_CHECKING:
    import tokenizers

Message = Mapping[str, object]

#: Tokens that end a text or a turn, whatever a file says of them.
_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>", "<end_of_turn>"),
    "</s>",
)


class Special(NamedTuple):
    """Tokens with a meaning, by ids or names. begin: the first one, None where there is none.

    ends: those that end a text, the usual one first; adds_begin: whether a text, which is no chat, begins with `begin`.
    """

    begin: int | str | None = None
    ends: tuple[int | str, ...] = ()
    adds_begin: bool = False


class Tokenizer:
    """A language model's tokenizer; it is built when it is first used. vocabulary: how many ids there are.

    template: of chats, in Jinja, None where the model has none. special: tokens with a meaning. source:
    the GGUF file that it comes from, if it does.
    """

    def __init__(
        self,
        where: str,
        build: Callable[[], tokenizers.Tokenizer],
        vocabulary: int,
        template: str | None = None,
        special: Special | None = None,
        source: GGUFFile | None = None,
    ) -> None:
        self._where, self._build = where, build
        self.vocabulary, self.template, self.special, self.source = vocabulary, template, special or Special(), source

    def __deepcopy__(self, memo: object) -> Tokenizer:
        return self  # nothing in it changes

    @cached_property
    def inner(self) -> tokenizers.Tokenizer:
        """The tokenizer of the tokenizers package. SnapshotError for a damaged vocabulary."""
        return self._build()

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a text or a turn: those that the file names, and known ones that it has."""
        known = (self._id(token) for token in (*self.special.ends, *_ENDS))
        return tuple(sorted({number for number in known if number is not None}))

    @property
    def begin_id(self) -> int | None:
        """The id of the first token; None where there is none."""
        return self._id(self.special.begin)

    @property
    def end_id(self) -> int | None:
        """The id of the token that usually ends a text; None where there is none."""
        return self._id(*self.special.ends[:1])

    def _id(self, token: int | str | None = None) -> int | None:
        return self.inner.token_to_id(token) if isinstance(token, str) else token

    def name_of(self, number: int | None) -> str | None:
        """Returns the text of an id's token; None for None and for an id without one."""
        return None if number is None else self.inner.id_to_token(number)

    def encode(self, text: str, begin: bool = False) -> list[int]:
        """Returns the ids of a text; names of special tokens in it become these.

        begin: whether the first token comes before it, if the model wants one before texts. A chat's template writes
        that token itself.

        >>> net.tokenizer.encode("Hello, world!")  # doctest: +SKIP
        [19556, 28, 905, 17]
        """
        inner, first = self.inner, self.begin_id if begin and self.special.adds_begin else None
        try:
            ids: list[int] = inner.encode(text, add_special_tokens=False).ids
        except TypeError as error:
            raise TypeError(f"encode: wanted a text, without lone surrogates, received {text!r:.100}") from error
        return ids if first is None else [first, *ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids, names of special tokens in it. ValueError for ids that the model does not have."""
        numbers: list[int] = list(ids) if goes_through(ids) else [ids]  # type: ignore[list-item]  # and it is checked
        for number in numbers:
            if not is_int(number) or not 0 <= number < self.vocabulary:
                raise ValueError(f"decode: wanted ids from 0 to {self.vocabulary - 1}, received {number!r:.100}")
        text: str = self.inner.decode(numbers, skip_special_tokens=False)
        return text

    @cached_property
    def _sandbox(self) -> Callable[[Mapping[str, object]], str]:
        if self.template is None:
            raise SnapshotError(f"{self._where}: wanted a chat template in the model's files, received none")
        from singa_lite.snapshots.language.sandbox import Sandbox

        return Sandbox(self.template, f"{self._where}: chat template").rendered

    def render(self, messages: Sequence[Message], generation: bool = False) -> str:
        """Returns a chat as the model's template writes it. generation: whether it ends where an answer begins.

        messages: [{"role": "user", "content": "..."}, ...]. ValueError for a chat that the template refuses;
        SnapshotError for a template that makes too much, or does what it may not.

        >>> net.tokenizer.render([{"role": "user", "content": "Hi"}])  # doctest: +SKIP
        '<|im_start|>system\\nYou are ...<|im_end|>\\n<|im_start|>user\\nHi<|im_end|>\\n'
        """
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            raise TypeError(f"render: wanted a list of messages, received {messages!r:.100}")
        tokens = {"bos_token": self.name_of(self.begin_id) or "", "eos_token": self.name_of(self.end_id) or ""}
        given = {"messages": [dict(message) for message in messages], "add_generation_prompt": generation}
        return self._sandbox({**tokens, **given, "tools": None})

    def render_parts(self, messages: Sequence[Message]) -> list[tuple[str, bool]]:
        """Returns the chat in parts, [(text, whether its ids count in the loss)]: answers of the assistant count.

        An answer ends behind the token that ends its turn, which counts. The line break behind it does not. The texts
        together are `render(messages)`. ValueError where an answer cannot be found in it.
        """
        whole, parts, at = self.render(messages), list[tuple[str, bool]](), 0
        for number, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            before, behind = self.render(messages[:number], generation=True), self.render(messages[: number + 1])
            if not (whole.startswith(before) and whole.startswith(behind) and at <= len(before) < len(behind)):
                raise ValueError(
                    f"chat template: wanted one that writes message {number} where it writes it for the chat up to it "
                    "alone, received another"
                )
            end = self._turn_end(whole, len(before), len(behind))
            parts += [(whole[at : len(before)], False), (whole[len(before) : end], True)]
            at = end
        return [part for part in [*parts, (whole[at:], False)] if part[0]]

    def _turn_end(self, text: str, begin: int, end: int) -> int:
        """Where an answer ends in text[begin:end]: behind its last token that ends a turn, if there is one."""
        places = []
        for number in self.stop_ids:
            token = self.name_of(number) or ""
            at = text.rfind(token, begin, end)
            places += [at + len(token)] if at >= 0 else []
        return max(places, default=end)
