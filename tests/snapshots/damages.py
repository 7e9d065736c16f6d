"""Damages to files, drawn by hypothesis: bytes patched, cut, swapped and put in; values of JSON within a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from io import BytesIO
from typing import Any

import h5py
import numpy as np
from hypothesis import strategies as st

#: What fields are set to, as numbers of 1, 2, 4 and 8 bytes.
NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, 1 << 63, -1)
TEXTS = b'0 9 -1 1e9 null [] {} " , ] } 99999999999999999999 ../ \0 <f8 /'.split(b" ")

#: Where parts of files begin: members, heads, trees of groups, records, JSON.
MARKS = re.compile(rb"PK[\x01-\x06]|NUMPY|TREE|HEAP|SNOD|GCOL|HDF|\x01\0\0\0|\x03\x01|sg\x01|[{\[(,:]")

Damage = tuple[Any, ...]


def damages(data: bytes) -> st.SearchStrategy[list[Damage]]:
    """One to three damages: (kind, place, what it needs)."""
    marks = [found.start() for found in MARKS.finditer(data)] or [0]
    near = st.builds(lambda mark, by: min(mark + by, len(data) - 1), st.sampled_from(marks), st.integers(0, 60))
    at = near | st.integers(0, len(data) - 1)
    count, width, order = st.sampled_from((1, 2, 4, 8, 24, 64, 512)), st.sampled_from((1, 2, 4, 8)), ("little", "big")
    number = st.sampled_from(NUMBERS) | st.integers(0, len(data) + 1)
    text = st.sampled_from(TEXTS) | st.binary(max_size=9)
    kinds = [
        *[("bit", at, st.integers(0, 7))] * 2,
        *[("number", at, number, width, st.sampled_from(order))] * 2,
        ("changed number", at, st.sampled_from((-1, 1, 8)), width, st.sampled_from(order)),
        ("text", at, text),
        *[("cut", at), ("insert", at, text), ("drop", at, count), ("zero", at, count)],
        *[("repeat", at, count), ("copy", at, at, count), ("swap", at, at, count)],
    ]
    one = st.one_of([st.tuples(st.just(kind), *given) for kind, *given in kinds])
    return st.lists(one, min_size=1, max_size=3)


def damaged(data: bytes, given: list[Damage]) -> bytes:
    """The file with these damages, one after the other; a place beyond the end is the end."""
    for kind, at, *more in given:
        data = _damaged(data, kind, min(at, len(data)), *more)
    return data


def _damaged(data: bytes, kind: str, at: int, *more: Any) -> bytes:
    head, tail = data[:at], data[at:]

    def over(new: bytes) -> bytes:
        return head + new[: len(tail)] + tail[len(new) :]

    if kind == "bit":
        return over(bytes([tail[0] ^ 1 << more[0]])) if tail else data
    if kind in ("number", "changed number"):
        number, width, order = more
        number += int.from_bytes(tail[:width], order) if kind == "changed number" else 0
        return over((number % (1 << 8 * width)).to_bytes(width, order))
    if kind == "text":
        return over(more[0])
    if kind == "copy":
        return over(data[more[0] : more[0] + more[1]])
    if kind == "swap":
        first, second = sorted((at, min(more[0], len(data))))
        count = min(more[1], second - first, len(data) - second)
        ends = first + count, second + count
        return data[:first] + data[second : ends[1]] + data[ends[0] : second] + data[first : ends[0]] + data[ends[1] :]
    pieces = {"cut": b"", "insert": b"".join(more[:1] if kind == "insert" else []) + tail}
    if kind in pieces:
        return head + pieces[kind]
    count = more[0]
    return head + {"drop": tail[count:], "zero": bytes(len(tail[:count])) + tail[count:]}.get(kind, tail[:count] + tail)


# ---- JSON within files, with the digests and lengths that belong to it

GONE, TEXT = "<gone>", "<text>"

VALUES: list[Any] = [
    GONE,
    None,
    True,
    "",
    "x",
    "../a",
    "float64",
    "9" * 64,
    float("inf"),
    [],
    [[]],
    ["a"],
    {},
    {"a": 1},
]
VALUES += [-1, 0, 1, 2, 3, 2.5, 1e308, 2**31, 2**62, 2**63, 10**400, [0], [-1], [1] * 70, [["a", 0]], [["b", 0]]]
VALUES += [[2**62, 2**62], [0, 2**62, 2**62]]


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value; one that is a text of JSON is gone into."""
    yield way
    if isinstance(value, str) and value[:1] in ("[", "{"):
        yield from places(json.loads(value), (*way, TEXT))
    elif isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*way, step))


def at(value: Any, way: tuple[Any, ...]) -> Any:
    """The value there."""
    for step in way:
        value = json.loads(value) if step == TEXT else value[step]
    return value


def put(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value there."""
    if not way:
        return {} if new == GONE else new
    step, *rest = way
    if step == TEXT:
        return json.dumps(put(json.loads(value), tuple(rest), new))
    copy = value.copy()
    if not rest and new == GONE:
        del copy[step]
    else:
        copy[step] = put(value[step], tuple(rest), new) if rest else new
    return copy


@st.composite
def other_json(draw: Callable[..., Any], contents: Any) -> Any:
    """The contents with another value in one to three places: a strange one, or one of another place."""
    for _ in range(draw(st.integers(1, 3))):
        ways = list(places(contents))
        way = draw(st.sampled_from(ways))
        new = draw(st.sampled_from(VALUES) | st.sampled_from(ways).map(lambda w: (w,)))
        contents = put(contents, way, at(contents, *new) if isinstance(new, tuple) else new)
        if not isinstance(contents, dict | list):
            break
    return contents


def _in_hdf5(data: bytes, entry: str, owner: str, digest: str) -> tuple[Any, Callable[[bytes], bytes]]:
    def sealed(text: bytes) -> bytes:
        out = BytesIO(data)
        with h5py.File(out, "r+") as file:
            del file[entry]
            file[entry] = np.frombuffer(text, np.uint8)
            file[owner].attrs[digest] = sha256(text).hexdigest()
        return out.getvalue()

    with h5py.File(BytesIO(data)) as file:
        return json.loads(file[entry][()].tobytes()), sealed


def _in_npz(data: bytes) -> tuple[Any, Callable[[bytes], bytes]]:
    with np.load(BytesIO(data)) as file:
        arrays = dict(file)

    def sealed(text: bytes) -> bytes:
        out = BytesIO()
        digest = np.frombuffer(sha256(text).digest(), np.uint8)
        np.savez(out, **arrays | {"manifest": np.frombuffer(text, np.uint8), "manifest_sha256": digest})
        return out.getvalue()

    return json.loads(arrays["manifest"].tobytes()), sealed


def _in_safetensors(data: bytes) -> tuple[Any, Callable[[bytes], bytes]]:
    end = 8 + int.from_bytes(data[:8], "little")

    def sealed(text: bytes) -> bytes:
        try:
            header = json.loads(text)
            told = header["__metadata__"]
            told["singa_lite.sha256"] = sha256(told["singa_lite.manifest"].encode()).hexdigest()
            text = json.dumps(header).encode()
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # a header that has no such texts any more
        return len(text).to_bytes(8, "little") + text + data[end:]

    return json.loads(data[8:end]), sealed


def inside(suffix: str, data: bytes) -> tuple[Any, Callable[[bytes], bytes]]:
    """The JSON in a file of that format, and what makes the file of another text, under the right digest."""
    if suffix.endswith(".h5"):
        keras = suffix == ".weights.h5"
        names = ("singa_lite/manifest", "singa_lite", "sha256") if keras else ("manifest", "/", "manifest_sha256")
        return _in_hdf5(data, *names)
    return (_in_npz if suffix == ".npz" else _in_safetensors)(data)
