"""Data of language models: conversations, prompts with their completions, and texts, from files of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from singa_lite.common import checks
from singa_lite.common.errors import DataError, DataFileError
from singa_lite.common.keywords import explains_keywords
from singa_lite.data.reading import TextFile, reading
from singa_lite.data.text_rows import LONGER, Encoded, Texts, text_rows
from singa_lite.data.tokenizer import Parts, Tokenizer

FilePath = str | os.PathLike[str]


@explains_keywords(path=checks.path)
def chat(
    path: FilePath,
    tokenizer: Tokenizer,
    length: int,
    *,
    answers_only: bool = True,
    longer: str = "cut",
    packed: bool = False,
) -> Texts:
    """Returns the conversations of a file of JSON lines, for `net.fit(data.chat("chats.jsonl", net.tokenizer, 256))`.

    A line is {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}, ...]}; other
    keys are not read. The tokenizer's template makes one text of it. answers_only: the loss counts in what the template
    says is the model's answer, its end included, else everywhere. Pieces that count and those that do not are encoded
    each by itself, as a prompt is for an answer.

    length: positions of a row; x has a text's ids but for the last, y those but for the first. longer: "cut" leaves out
    what is behind a row's end, and a warning says of how many texts; "split" goes on in further rows; "error" refuses
    such texts. packed: several texts share a row, for nets with an input "starts" (see `Texts`).

    The whole file is read first: DataFileError, with the path and the line's number, for the first line that is broken;
    DataError where the template refuses a conversation, and where nothing counts.

    >>> from pathlib import Path
    >>> line = '{"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]}'
    >>> _ = Path("chats.jsonl").write_text(line)
    >>> chats = data.chat("chats.jsonl", data.ByteTokenizer(), length=24)
    >>> chats
    <Texts: 1 texts in 1 rows of 24 ids, 17% padding; 2 targets count; 0 texts cut, 0 dropped>
    >>> chats.y[0, 18:].tolist()
    [52, 4, -100, -100, -100, -100]
    """

    def parts(line: JsonLine) -> Parts:
        found = tokenizer.render_parts(checked_messages(line.place, line.values.get("messages", line.values)))
        return found if answers else [("".join(text for text, _ in found), True)]

    answers = checks.flag("chat answers_only", answers_only)
    return _texts("chat", os.fspath(path), tokenizer, parts, length, longer, packed)


@explains_keywords(path=checks.path)
def prompts(
    path: FilePath,
    tokenizer: Tokenizer,
    length: int,
    *,
    answers_only: bool = True,
    longer: str = "cut",
    packed: bool = False,
) -> Texts:
    """Returns the prompts and completions of a file of JSON lines {"prompt": "...", "completion": "..."}.

    A text is the tokenizer's id that begins texts, if it has one, the prompt, the completion, and its `end_id`.
    answers_only: the loss counts in
    the completion and the end alone. All else is as for `data.chat`.

    >>> from pathlib import Path
    >>> _ = Path("sums.jsonl").write_text('{"prompt": "2+2=", "completion": "4"}')
    >>> print(data.prompts("sums.jsonl", data.ByteTokenizer(), length=6).y)
    [[-100 -100 -100   52    4 -100]]
    """

    def parts(line: JsonLine) -> Parts:
        return [(line.text("prompt"), not answers), (line.text("completion"), True)]

    answers = checks.flag("prompts answers_only", answers_only)
    return _texts("prompts", os.fspath(path), tokenizer, parts, length, longer, packed, marked=True)


@explains_keywords(path=checks.path)
def texts(path: FilePath, tokenizer: Tokenizer, length: int, *, longer: str = "cut", packed: bool = False) -> Texts:
    """Returns the texts of a file of JSON lines {"text": "..."}. The loss counts everywhere.

    A text begins and ends with ids as for `data.prompts`. All else is as for `data.chat`.

    >>> from pathlib import Path
    >>> _ = Path("words.jsonl").write_text('{"text": "abcd"}')
    >>> words = data.texts("words.jsonl", data.ByteTokenizer(), length=3, longer="split")
    >>> print(words.x.tolist(), words.y.tolist())
    [[97, 98, 99], [100, 0, 0]] [[98, 99, 100], [4, -100, -100]]
    """

    def parts(line: JsonLine) -> Parts:
        return [(line.text("text"), True)]

    return _texts("texts", os.fspath(path), tokenizer, parts, length, longer, packed, marked=True)


def _texts(
    where: str,
    path: str,
    tokenizer: Tokenizer,
    parts: Callable[[JsonLine], Parts],
    length: int,
    longer: str,
    packed: bool,
    marked: bool = False,
) -> Texts:
    """The rows of a file. parts: of a line; marked: whether ids of a text's begin and end stand around them."""
    if not hasattr(tokenizer, "render_parts"):
        raise TypeError(f"{where} tokenizer: wanted a tokenizer, such as net.tokenizer, received {tokenizer!r:.100}")
    positions = checks.integer(f"{where} length", length, 1)
    choice = checks.check_choice(f"{where} longer", longer, LONGER)
    several = checks.flag(f"{where} packed", packed)
    return text_rows(
        path, (_encoded(line, tokenizer, parts, marked) for line in json_lines(path)), positions, choice, several
    )


def _encoded(line: JsonLine, tokenizer: Tokenizer, parts: Callable[[JsonLine], Parts], marked: bool) -> Encoded:
    ids, counts = list[int](), list[bool]()
    try:
        for counted, group in groupby(parts(line), lambda part: part[1]):
            ids += tokenizer.encode("".join(text for text, _ in group), begin=marked and not ids)
            counts += [counted] * (len(ids) - len(counts))
    except DataError:
        raise
    except Exception as error:  # templates and tokenizers come with files of strangers, and raise what they like
        received = f"{type(error).__name__}: {error}"
        raise DataFileError(f"{line.place}: wanted a text that the tokenizer takes, received {received}") from error
    end = [] if not marked or tokenizer.end_id is None else [tokenizer.end_id]
    return Encoded(line.place, ids + end, counts + [True] * len(end))


# ---- JSON lines


class JsonLine(NamedTuple):
    """One line of a file. place: the path and the line's number from 1, for messages; values: its object."""

    place: str
    values: dict[str, object]

    def text(self, key: str) -> str:
        """The text under a key. DataFileError where there is none."""
        found = self.values.get(key)
        if not isinstance(found, str):
            raise DataFileError(f"{self.place}: wanted text under {key!r}, received {self.values!r:.100}")
        return found


def json_lines(path: str) -> Iterator[JsonLine]:
    """Yields each line of a file that is not blank. Text in UTF-8, or what a byte order mark says; perhaps packed.

    DataFileError, with the line's number, for a line that is no JSON object; and for a file without lines.
    """
    with reading(path, "lines of JSON"):
        file, is_blank = TextFile(path, None), True
        with open(file.path, "rb") as lines:
            lines.seek(file.start)
            for number, line in enumerate(lines, 1):
                if line.strip():
                    place, is_blank = f"{path}, line {number}", False
                    yield JsonLine(place, _object(place, line))
        if is_blank:
            raise DataFileError(f"{path}: wanted lines of JSON, received blank lines alone")


def _object(place: str, line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line.decode("utf-8"))
    except json.JSONDecodeError as error:
        what = f"{error.msg}, column {error.colno}"
        raise DataFileError(f"{place}: wanted an object of JSON, received {line[:60]!r}: {what}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, numbers of too many digits, lists in lists
        raise DataFileError(f"{place}: wanted an object of JSON, received {line[:60]!r}: {error}") from None
    if not isinstance(found, dict):
        raise DataFileError(f"{place}: wanted an object of JSON, {{...}}, received {line[:60]!r}")
    return found


def checked_messages(place: str, given: object) -> list[Mapping[str, str]]:
    """The messages of a conversation. DataFileError unless it is a list of objects with texts "role" and "content"."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not given:
        raise DataFileError(f"{place}: wanted a list of messages, received {given!r:.100}")
    for number, message in enumerate(given):
        here = f"{place}, message {number}"
        if not isinstance(message, Mapping):
            raise DataFileError(f'{here}: wanted an object {{"role", "content"}}, received {message!r:.100}')
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise DataFileError(f"{here}: wanted text under {key!r}, received {message.get(key)!r:.100}")
    return list(given)
