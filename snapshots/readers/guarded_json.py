"""Parses JSON of a file that nobody vouches for, in bounded memory. It refuses a key twice, NaN and infinity."""

from __future__ import annotations

import json
from typing import Any

from singa_lite.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import ByteArray, RawFile

#: Bytes that Python takes at most for each "[", "{", "," and ":", measured on one object of many different keys.
_VALUE = 104

#: Copies of the text that exist at a time; and bytes of a character in a text that is not ASCII, at most.
_COPIES, _WIDEST = 3, 4


def cost(data: bytes) -> int:
    """An upper bound of the bytes that the values of a text take, found without parsing it."""
    values = sum(data.count(mark) for mark in (b"[", b"{", b",", b":"))
    width = 1 if data.isascii() and b"\\u" not in data else _WIDEST
    return _VALUE * values + _COPIES * width * len(data)


def check(file: RawFile, what: str, data: bytes) -> None:
    """SnapshotError if its values would take more memory than the file deserves."""
    file.allow(what, cost(data))


def check_text(where: str, what: str, data: bytes, size: int) -> None:
    """As `check`, for a file of that many bytes."""
    raw.allow(where, what, cost(data), size)


def loads(file: RawFile, what: str, data: bytes | ByteArray) -> dict[str, Any]:
    """The object that the text is. SnapshotError for all else."""
    text = bytes(data)
    check(file, what, text)
    return parsed(file.path, what, text)


def parsed(where: str, what: str, text: bytes) -> dict[str, Any]:
    """The object that a text is whose cost was checked. SnapshotError for all else."""
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise SnapshotError(f"{where}: {what}: wanted JSON, received {error}") from error
    if not isinstance(found, dict):
        raise SnapshotError(f"{where}: {what}: wanted a JSON object, received {type(found).__name__}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} twice")
        found[name] = value
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text}, which is no JSON")
