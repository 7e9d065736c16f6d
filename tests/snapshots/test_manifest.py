"""The manifest as it is read from a file of others: forms, numbers, and what parsing it costs."""

from __future__ import annotations

import json
import tracemalloc
from hashlib import sha256
from typing import Any

import pytest

from singa_lite import SnapshotError
from singa_lite.errors import SnapshotVersionError
from singa_lite.snapshots import manifest

ENTRY = [[2, 3], "float32", "0" * 64]


def read(text: bytes | str, where: str = "here", size: int = 0) -> manifest.Manifest:
    data = text if isinstance(text, bytes) else text.encode()
    return manifest.read(where, data, sha256(data).hexdigest(), size)


def told(attributes: Any = None, entries: Any = None) -> str:
    return json.dumps({"manifest": 1, "attributes": attributes or {}, "entries": entries or {}})


def test_what_was_written():
    attributes = {"format": "singa_lite", "step": 3, "rate": 0.5, "is_new": True, "nothing": None}
    made = manifest.Manifest(attributes, {"a/b": manifest.ManifestEntry((2, 3), "float32", "0" * 64)})
    assert read(made.to_bytes()) == made


@pytest.mark.parametrize("extent", ["1e999", "2.0", "-1", "true", '"2"', "null", "[2]"])
def test_an_extent_that_is_no_whole_number_from_0(extent):
    with pytest.raises(SnapshotError, match="here: entry 'a': wanted a shape, received "):
        read(f'{{"manifest":1,"attributes":{{}},"entries":{{"a":[[3,{extent}],"float32","0"]}}}}')


@pytest.mark.parametrize("shape", ["", "12", {"1": 2}, 3, None])
def test_a_shape_that_is_no_list(shape):
    with pytest.raises(SnapshotError, match="here: entry 'a': wanted a shape, received "):
        read(told(entries={"a": [shape, "float32", "0"]}))


@pytest.mark.parametrize("entry", [[[2], 4, "0"], [[2], "float32", None], [[2], ["float32"], "0"]])
def test_a_dtype_or_a_digest_that_is_no_text(entry):
    with pytest.raises(SnapshotError, match="here: entry 'a': wanted a dtype and a digest, received "):
        read(told(entries={"a": entry}))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "[1]", "{}", '["a"]'])
@pytest.mark.parametrize("name", ["version", "step", "own"])
def test_an_attribute_that_is_no_finite_number_and_no_text(name, number):
    with pytest.raises(SnapshotError, match=f"here: attribute '{name}': wanted a text or a finite number, received "):
        read(f'{{"manifest":1,"attributes":{{"{name}":{number}}},"entries":{{}}}}')


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[]", "the manifest: wanted a JSON object, received list"),
        ("{", "the manifest: wanted JSON"),
        ("[" * 90_000, "the manifest: wanted JSON"),
        ('{"manifest":NaN}', "NaN, which is no JSON"),
        ('{"manifest":1,"manifest":1}', "the key 'manifest' twice"),
        (told(entries={"a": ENTRY}).replace('{"a"', '{"a":[[1],"int8","1"],"a"'), "the key 'a' twice"),
        (b'{"\xff":1}', "the manifest: wanted JSON"),
        ("{}", "wanted a manifest of version 1, received KeyError"),
        ('{"manifest":0}', "wanted a manifest of version 1, received ValueError.*version 0"),
        ('{"manifest":true,"attributes":{},"entries":{}}', "wanted a manifest of version 1, .*True"),
        (told(attributes=["a"]), "wanted a manifest of version 1"),
        (told(entries=["a"]), "wanted a manifest of version 1"),
        (told(entries={"a": [[1], "float32"]}), "wanted a manifest of version 1"),
    ],
)
def test_what_is_no_manifest(text, wanted):
    with pytest.raises(SnapshotError, match=f"^here: .*{wanted}"):
        read(text)


def test_another_digest():
    with pytest.raises(SnapshotError, match="here: the manifest is damaged: wanted SHA-256 None, received "):
        manifest.read("here", told().encode(), None, 0)


def test_a_text_that_would_take_much_memory_is_not_parsed():
    text = b'{"manifest":1,"x":[' + b'{"":0},' * 700_000 + b"0]}"
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotError, match=r"here: the manifest: would take about \d+ bytes, allowed are "):
            read(text, size=len(text))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 5_000_000


def test_a_large_file_may_have_a_large_one():
    entries = ",".join(f'"{number}":[[],"",""]' for number in range(60_000))
    text = f'{{"manifest":1,"attributes":{{}},"entries":{{{entries}}}}}'
    assert len(read(text, size=30_000_000).entries) == 60_000
    with pytest.raises(SnapshotError, match="the manifest: would take about"):
        read(text, size=1000)


def test_one_of_a_later_form_is_not_damaged():
    with pytest.raises(SnapshotVersionError, match="here: wanted a manifest of version 1, received 2"):
        read('{"manifest":2}')
