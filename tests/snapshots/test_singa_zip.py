"""SINGA's snapshots since 3.1, a zip of a .npz and of attributes: as SINGA writes them, hostile and damaged ones."""

from __future__ import annotations

import io
import json
from functools import partial

import numpy as np
import pytest

import singa_reads
from nets import all_bits, bits
from singa_files import states_zip, zipped
from singa_lite.errors import SnapshotError
from singa_lite.snapshots.formats.singa import zips as singa_zip
from singa_lite.snapshots.readers import zip_member
from singa_reads import contents, peak, refused, same

RNG = np.random.default_rng(0)
#: (SINGA's name, ours, array).
ENTRIES = [
    ("conv1.W", "parameters/conv1/weight", RNG.normal(size=(2, 3, 4, 5)).astype("f")),
    ("conv1.b", "parameters/conv1/bias", RNG.normal(size=2).astype("f")),
    ("block.bn1.scale", "parameters/block.bn1/gamma", RNG.normal(size=3).astype("f")),
    ("block.bn1.bias", "parameters/block.bn1/beta", RNG.normal(size=3).astype("f")),
    ("block.bn1.running_mean", "state/block.bn1/running_mean", RNG.normal(size=3).astype("f")),
    ("block.bn1.running_var", "state/block.bn1/running_var", RNG.normal(size=3).astype("f")),
    ("linear1.W", "parameters/linear1/weight", np.asfortranarray(RNG.normal(size=(3, 4)).astype("f"))),
    ("linear1.b", "parameters/linear1/bias", RNG.normal(size=4).astype(np.float16)),
]
ARRAYS = {name: array for name, _, array in ENTRIES}
PATHS = {path: array for _, path, array in ENTRIES}
OWN = {"epoch": np.array([7], np.int32), "SGD.momentum": np.float32([0.9])}


written = partial(singa_reads.written, name="net.zip")


def npz(compressed: bool = False, **arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def archive(data: bytes, attributes: object) -> bytes:
    text = attributes if isinstance(attributes, bytes) else json.dumps(attributes).encode()
    return zipped({"tensor_dict.npz": data, "states_attr.json": text})


def test_what_singa_writes(tmp_path):
    same(contents(written(tmp_path, states_zip(ARRAYS))), PATHS)


def test_an_array_of_the_other_byte_order_stays_as_it_is(tmp_path):
    wanted = ARRAYS["conv1.W"]
    for order in ("C", "F"):
        path = written(tmp_path, states_zip({"conv1.W": np.array(wanted, ">f4", order=order)}))
        with singa_zip.opened(path, None) as source:
            for _ in range(2):
                np.testing.assert_array_equal(source.read("parameters/conv1/weight"), wanted)


def test_what_is_not_the_models_is_left_out_and_said(tmp_path):
    with singa_zip.opened(written(tmp_path, states_zip(ARRAYS, OWN)), None) as source:
        assert source.specs.keys() == PATHS.keys()
        assert json.loads(source.attributes.get("left_out")) == list(OWN)


GOOD = {"state_type": 0, "shape": [2], "dtype": 0}
TWO = npz(a=np.ones(2, "f4"))
INNER = bytearray(npz(a=np.ones(2, "f4"), b=np.full(2, 5, "f4")))
INNER[INNER.index(np.float32(5).tobytes())] ^= 1

#: {words of the error: files}.
WRONG = {
    "states_attr.json": [
        zipped({"tensor_dict.npz": npz()}),
        zipped({"tensor_dict.npz": npz(), "states_attr.json": b"{}", "more": b""}),
        b"PK\x05\x06" + bytes(18),
    ],
    "plain names": [zipped({"tensor_dict.npz": npz(), "../states_attr.json": b"{}"})],
    "names that differ": [archive(TWO, {}), archive(npz(), {"a": GOOD})],
    "the attributes": [
        archive(npz(a=np.ones(3, "f4")), {"a": GOOD}),
        archive(npz(a=np.ones(2, "f8")), {"a": GOOD}),
        *(archive(TWO, {"a": {**GOOD, "state_type": wrong}}) for wrong in (2, False)),
        *(archive(TWO, {"a": {**GOOD, "dtype": wrong}}) for wrong in (9, [0])),
        archive(TWO, {"a": {**GOOD, "shape": 2}}),
        archive(TWO, {"a": []}),
    ],
    "JSON": [archive(TWO, b"[]"), archive(TWO, b"[" * 100_000)],
    "twice": [archive(TWO, b'{"a": {}, "a": {}}')],
    "plain numbers": [
        archive(npz(a=np.array([{}])), {"a": GOOD}),
        archive(npz(a=np.zeros(2, [("x", "f4")])), {"a": GOOD}),
        archive(npz(a=np.zeros(2, "S4")), {"a": GOOD}),
    ],
    "a stored array": [
        archive(npz(compressed=True, a=np.ones(2, "f4")), {"a": GOOD}),
        archive(zipped({"a": b""}), {"a": GOOD}),
    ],
    "8 bytes": [archive(TWO.replace(b"(2,)", b"(3,)"), {"a": GOOD})],
    "an array of numbers": [archive(TWO.replace(b"<f4", b"<b2"), {"a": GOOD})],
    "tensor_dict.npz": [archive(b"not a zip", {"a": GOOD})],
    "'b.npy' is damaged": [archive(bytes(INNER), {"a": GOOD, "b": GOOD})],
    "net.zip": [b""],
}


def test_a_wrong_file_is_named(tmp_path):
    for words, files in WRONG.items():
        for data in files:
            refused(written(tmp_path, data), words)


@pytest.mark.parametrize("name", ["a bomb", "an array"])
def test_memory_stays_within_twice_the_file(tmp_path, monkeypatch, name):
    monkeypatch.setattr(zip_member, "_PIECE", 1 << 16)  # a few of these come on top
    array = RNG.normal(size=(300, 1000)).astype(np.float32)
    arrays = {"a.W": array, "a.b": array[0]} if name == "an array" else {"a.W": np.zeros((1 << 12, 1 << 12), "f4")}
    path = written(tmp_path, states_zip(arrays))
    call = (lambda: contents(path)) if name == "an array" else (lambda: refused(path, "would take about"))
    assert peak(call) < (1 << 21 if name == "a bomb" else 2 * path.stat().st_size + (1 << 19))


def test_no_changed_byte_gives_other_numbers(tmp_path):
    data = states_zip(ARRAYS)
    wanted = contents(written(tmp_path, data))
    places = range(0, len(data), 11)
    refused_ones = 0
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << int(RNG.integers(8))
        try:
            found = contents(written(tmp_path, bytes(changed)))
        except SnapshotError:
            refused_ones += 1
        else:  # a time of day
            assert {path: bits(array) for path, array in found.items()} == all_bits(wanted)
    assert refused_ones > 0.8 * len(places)
