"""SINGA's snapshots since 3.1, a zip of a .npz and of attributes: as SINGA writes them, hostile and damaged ones."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from singa_files import states_zip, zipped
from singa_lite.errors import SnapshotError
from singa_lite.snapshots.formats.singa import zips as singa_zip
from singa_lite.snapshots.readers import zip_member

RNG = np.random.default_rng(0)
ARRAYS = {
    "conv1.W": RNG.normal(size=(2, 3, 4, 5)).astype(np.float32),
    "conv1.b": RNG.normal(size=2).astype(np.float32),
    "block.bn1.scale": RNG.normal(size=3).astype(np.float32),
    "block.bn1.bias": RNG.normal(size=3).astype(np.float32),
    "block.bn1.running_mean": RNG.normal(size=3).astype(np.float32),
    "block.bn1.running_var": RNG.normal(size=3).astype(np.float32),
    "linear1.W": np.asfortranarray(RNG.normal(size=(3, 4)).astype(np.float32)),
    "linear1.b": RNG.normal(size=4).astype(np.float16),
}
PATHS = dict(
    zip(
        [
            "parameters/conv1/weight",
            "parameters/conv1/bias",
            "parameters/block.bn1/gamma",
            "parameters/block.bn1/beta",
            "state/block.bn1/running_mean",
            "state/block.bn1/running_var",
            "parameters/linear1/weight",
            "parameters/linear1/bias",
        ],
        ARRAYS.values(),
        strict=True,
    )
)
OWN = {"epoch": np.array([7], np.int32), "SGD.momentum": np.float32([0.9])}


def written(folder: Path, data: bytes) -> Path:
    path = folder / "net.zip"
    path.write_bytes(data)
    return path


def contents(path: Path) -> dict[str, np.ndarray]:
    with singa_zip.opened(path, None) as source:
        arrays = {entry: source.read(entry) for entry in source.specs}
        assert {entry: (array.shape, array.dtype) for entry, array in arrays.items()} == dict(source.specs)
        assert source.attributes.get("entries") == len(arrays)
    return arrays


def refused(folder: Path, data: bytes, message: str | None = None) -> None:
    with pytest.raises(SnapshotError, match=message) as caught:
        contents(written(folder, data))
    assert "net.zip" in str(caught.value)


def npz(compressed: bool = False, **arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def archive(data: bytes, attributes: object) -> bytes:
    text = attributes if isinstance(attributes, bytes) else json.dumps(attributes).encode()
    return zipped({"tensor_dict.npz": data, "states_attr.json": text})


def test_what_singa_writes(tmp_path):
    found = contents(written(tmp_path, states_zip(ARRAYS)))
    assert found.keys() == PATHS.keys()
    for path, array in PATHS.items():
        assert found[path].dtype == array.dtype
        assert found[path].flags.c_contiguous
        np.testing.assert_array_equal(found[path], array)


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


@pytest.mark.parametrize(
    "data, message",
    [
        (zipped({"tensor_dict.npz": npz()}), "wanted tensor_dict.npz and states_attr.json"),
        (zipped({"tensor_dict.npz": npz(), "states_attr.json": b"{}", "more": b""}), "wanted tensor_dict.npz and"),
        (zipped({"tensor_dict.npz": npz(), "../states_attr.json": b"{}"}), "plain names"),
        (archive(npz(a=np.ones(2, "f4")), {}), "names that differ"),
        (archive(npz(), {"a": GOOD}), "names that differ"),
        (archive(npz(a=np.ones(3, "f4")), {"a": GOOD}), "wanted the attributes"),
        (archive(npz(a=np.ones(2, "f8")), {"a": GOOD}), "wanted the attributes"),
        (archive(npz(a=np.ones(2, "f4")), {"a": {**GOOD, "state_type": 2}}), "wanted the attributes"),
        (archive(npz(a=np.ones(2, "f4")), {"a": {**GOOD, "state_type": False}}), "wanted the attributes"),
        (archive(npz(a=np.ones(2, "f4")), {"a": {**GOOD, "dtype": 9}}), "wanted the attributes"),
        (archive(npz(a=np.ones(2, "f4")), {"a": {**GOOD, "dtype": [0]}}), "wanted the attributes"),
        (archive(npz(a=np.ones(2, "f4")), {"a": {**GOOD, "shape": 2}}), "wanted the attributes"),
        (archive(npz(a=np.ones(2, "f4")), {"a": []}), "wanted the attributes"),
        (archive(npz(a=np.ones(2, "f4")), b"[]"), "JSON object"),
        (archive(npz(a=np.ones(2, "f4")), b'{"a": {}, "a": {}}'), "twice"),
        (archive(npz(a=np.ones(2, "f4")), b"[" * 100_000), "JSON"),
        (archive(npz(a=np.array([{}])), {"a": GOOD}), "plain numbers"),
        (archive(npz(a=np.zeros(2, [("x", "f4")])), {"a": GOOD}), "plain numbers"),
        (archive(npz(a=np.zeros(2, "S4")), {"a": GOOD}), "plain numbers"),
        (archive(npz(compressed=True, a=np.ones(2, "f4")), {"a": GOOD}), "wanted a stored array"),
        (archive(zipped({"a": b""}), {"a": GOOD}), "wanted a stored array"),
        (archive(npz(a=np.ones(2, "f4")).replace(b"(2,)", b"(3,)"), {"a": GOOD}), "received 8 bytes"),
        (archive(npz(a=np.ones(2, "f4")).replace(b"<f4", b"<b2"), {"a": GOOD}), "an array of numbers"),
        (archive(b"not a zip", {"a": GOOD}), "tensor_dict.npz"),
        (b"", "net.zip"),
        (b"PK\x05\x06" + bytes(18), "wanted tensor_dict.npz"),
    ],
)
def test_a_wrong_file(tmp_path, data, message):
    refused(tmp_path, data, message)


def test_a_wrong_crc_in_the_inner_archive_names_the_array(tmp_path):
    inner = bytearray(npz(a=np.ones(2, "f4"), b=np.full(2, 5, "f4")))
    inner[inner.index(np.float32(5).tobytes())] ^= 1
    refused(tmp_path, archive(bytes(inner), {"a": GOOD, "b": GOOD}), r"'b\.npy' is damaged")


def test_a_bomb(tmp_path):
    data = states_zip({"a.W": np.zeros((1 << 12, 1 << 12), np.float32)})
    assert len(data) < 1 << 17
    path = written(tmp_path, data)
    del data
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotError, match="would take about"):
            contents(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_memory_stays_within_twice_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(zip_member, "_PIECE", 1 << 16)  # a few of these come on top
    array = RNG.normal(size=(500, 1000)).astype(np.float32)
    path = written(tmp_path, states_zip({"a.W": array, "a.b": array[0]}))
    tracemalloc.start()
    try:
        contents(path)
        assert tracemalloc.get_traced_memory()[1] < 2 * path.stat().st_size + (1 << 19)
    finally:
        tracemalloc.stop()


def test_cut_at_every_length(tmp_path):
    data = states_zip(ARRAYS, OWN)
    for length in range(len(data)):
        refused(tmp_path, data[:length])


def test_any_byte_changed(tmp_path):
    data = states_zip(ARRAYS)
    wanted = contents(written(tmp_path, data))
    refused_ones = 0
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << int(RNG.integers(8))
        try:
            found = contents(written(tmp_path, bytes(changed)))
        except SnapshotError:
            refused_ones += 1
        else:  # a time of day
            assert {path: array.tobytes() for path, array in found.items()} == {
                path: array.tobytes() for path, array in wanted.items()
            }
    assert refused_ones > 0.9 * len(data)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        contents(tmp_path / "net.zip")
