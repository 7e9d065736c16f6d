"""JSON that nobody vouches for: what it may cost is known before it is parsed, and never less than it does."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from singa_lite import SnapshotError
from singa_lite.snapshots.readers import guarded_json, raw

COUNT = 20_000

#: Texts whose values take much more memory than they do.
TEXTS = {
    "lists": b"[]," * COUNT,
    "nested lists": b"[[0]]," * COUNT,
    "objects": b"{}," * COUNT,
    "objects of one": b'{"":0},' * COUNT,
    "objects of lists": b'{"a":[0]},' * COUNT,
    "numbers": b"9999999999," * COUNT,
    "texts": '"é€",'.encode() * COUNT,
    "a wide text": b'"' + b"a" * COUNT * 10 + "😀".encode() + b'",',
    "an escaped wide text": b'"' + b"a" * COUNT * 10 + b'\\ud83d\\ude00",',
    "keys": b"{" + b",".join(b'"%d":0' % number for number in range(COUNT)) + b"},",
}


@pytest.fixture
def stored(tmp_path: Path) -> raw.RawFile:
    """A small file."""
    (tmp_path / "x").write_bytes(b"1234")
    with raw.reading(tmp_path / "x") as file:
        yield file


@pytest.mark.parametrize("kind", TEXTS)
def test_it_costs_no_more_than_is_said(stored, kind):
    text = b'{"x":[' + TEXTS[kind] + b"0]}"
    guarded_json.loads(stored, "text", b'{"x":0}')  # what is made once
    tracemalloc.start()
    try:
        guarded_json.loads(stored, "text", text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < guarded_json.cost(text) < 10 * peak


def test_what_would_cost_too_much_is_not_parsed(stored, monkeypatch):
    monkeypatch.setattr(raw, "ROOM", 1000)
    with pytest.raises(SnapshotError, match=r"x: text: would take about \d+ bytes, allowed are 1008 for a file of 4"):
        guarded_json.loads(stored, "text", b'{"x":[' + b"]" * 1000)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"", "wanted JSON"),
        (b"[]", "wanted a JSON object, received list"),
        (b'"x"', "wanted a JSON object, received str"),
        (b'{"x":NaN}', "NaN, which is no JSON"),
        (b'{"x":-Infinity}', "-Infinity, which is no JSON"),
        (b'{"x":1,"y":2,"x":1}', "the key 'x' twice"),
        (b'{"a":{"x":1,"\\u0078":2}}', "the key 'x' twice"),
        (b'{"x":' + b"9" * 5000 + b"}", "wanted JSON"),
        (b'{"x":' + b"[" * 90_000, "wanted JSON"),
        (b'{"\xff":1}', "wanted JSON"),
        (b"\xff\xfe{\0}\0", "wanted JSON"),
    ],
)
def test_what_is_no_json(stored, text, wanted):
    with pytest.raises(SnapshotError, match=wanted):
        guarded_json.loads(stored, "text", text)


def test_json(stored):
    assert guarded_json.loads(stored, "text", b' {"x": [1, -2.5, null, true, "\\u00e9"]} ') == {
        "x": [1, -2.5, None, True, "é"]
    }
