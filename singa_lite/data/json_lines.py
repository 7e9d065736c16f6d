"""JSON lines: files with one JSON object a line, read with the number of each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from singa_lite.common.errors import DataFileError
from singa_lite.data.reading import TextFile, reading


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

    DataFileError, with the line's number, for a line that is no JSON object, and for a file that is empty.
    """
    with reading(path, "lines of JSON"):
        file = TextFile(path, None)
        with open(file.path, "rb") as lines:
            lines.seek(file.start)
            for number, line in enumerate(lines, 1):
                if line.strip():
                    place = f"{path}, line {number}"
                    yield JsonLine(place, _object(place, line))


def _object(place: str, line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line.decode("utf-8"))
    except json.JSONDecodeError as error:
        what = f"{error.msg} at column {error.colno}"
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
