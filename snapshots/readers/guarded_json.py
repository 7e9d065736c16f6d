"""Parses JSON of a file that may be hostile, in bounded memory. It refuses keys that come twice, NaN and infinity."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeAlias

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.raw import ByteArray, RawFile

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

#: JSON whose parts are taken as if they were of the right kinds: what Python raises where they are not is caught there.
Unchecked: TypeAlias = Any

#: Bytes that Python takes at most for each "[", "{", "," and ":", measured on one object of many different keys.
_VALUE = 104

#: Copies of the text that exist at a time; and bytes of a character in a text that is not ASCII, at most.
_COPIES, _WIDEST = 3, 4


def cost(data: bytes) -> int:
    """An upper bound of the bytes that the values of a text take, counted without parsing it."""
    values = sum(data.count(mark) for mark in (b"[", b"{", b",", b":"))
    width = 1 if data.isascii() and b"\\u" not in data else _WIDEST
    return _VALUE * values + _COPIES * width * len(data)


def loads(file: RawFile, what: str, data: bytes | ByteArray) -> dict[str, Json]:
    """The JSON object in a text. SnapshotError for anything else."""
    text = bytes(data)
    file.allow(what, cost(text))
    return parsed(file.path, what, text)


def parsed(where: str, what: str, text: bytes) -> dict[str, Json]:
    """The JSON object in a text whose cost was checked before. SnapshotError for anything else."""
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise SnapshotError(f"{where}: {what}: wanted JSON, received {error}") from error
    if not isinstance(found, dict):
        raise SnapshotError(f"{where}: {what}: wanted a JSON object, received {type(found).__name__}")
    return found


def _without_doubles(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} twice")
        found[name] = value
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text}, which is no JSON")
