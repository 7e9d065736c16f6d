"""SINGA's .bin, .model and .desc: every version's flavour, from bytes made by hand and by the protobuf library."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import singa_files
import skips
from singa_files import FLAVOURS, described, native, record, tensor_proto
from singa_lite.errors import SnapshotError
from singa_lite.snapshots.formats.singa import records as singa_records

MATRIX = np.arange(1, 7, dtype=np.float32).reshape(2, 3)

#: From the reference: one record, key ip/weight, 2x3 float32, of 1.2 and later.
EXAMPLE = bytes.fromhex(
    "73 67 01 00 09 00 00 00 00 00 00 00 69 70 2f 77 65 69 67 68 74 24 00 00 00 00 00 00 00"
    "08 02 08 03 10 00 18 03 18 01 22 18 00 00 80 3f 00 00 00 40 00 00 40 40 00 00 80 40 00 00 a0 40 00 00 c0 40"
)


def written(folder: Path, data: bytes, name: str = "net.bin") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def contents(path: Path) -> dict[str, np.ndarray]:
    with singa_records.opened(path, None) as source:
        arrays = {entry: source.read(entry) for entry in source.specs}
        assert {entry: (array.shape, array.dtype) for entry, array in arrays.items()} == dict(source.specs)
        assert source.attributes.get("entries") == len(arrays)
    return arrays


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(found) == list(wanted)
    for path, array in wanted.items():
        assert found[path].dtype == array.dtype
        np.testing.assert_array_equal(found[path], array)


def test_the_example_of_the_reference(tmp_path):
    assert record("ip/weight", tensor_proto(MATRIX, "1.2.0")) == EXAMPLE
    same(contents(written(tmp_path, EXAMPLE)), {"parameters/ip/weight": MATRIX})


@pytest.mark.parametrize(
    "flavour, length, beginning",
    [("1.1.1", 0x22, "08 02 08 03 10 00 18 00 22 18"), ("1.0.0", 0x26, "08 02 08 03 10 00 18 00 25 00 00 80 3f 25")],
)
def test_the_other_flavours_of_the_reference(tmp_path, flavour, length, beginning):
    value = tensor_proto(MATRIX, flavour)
    assert len(value) == length and value.startswith(bytes.fromhex(beginning))
    same(contents(written(tmp_path, record("ip/weight", value))), {"parameters/ip/weight": MATRIX})


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_every_flavour_and_type(tmp_path, flavour, dtype):
    rng = np.random.default_rng(0)
    arrays = {
        f"layer{n}/weight": (1e3 * rng.normal(size=shape)).astype(dtype)
        for n, shape in enumerate([(3,), (1,), (4, 5), (2, 3, 4, 5), (1, 1), ()])
    }
    data = native(arrays, flavour, 1200 if flavour == "1.2.0" else None)
    same(contents(written(tmp_path, data)), {f"parameters/{key}": array for key, array in arrays.items()})


def test_the_stamp_of_the_reference(tmp_path):
    body = bytes.fromhex("08 01 10 02 18 01 32 02 b0 09")
    assert tensor_proto(np.array([1200], np.int32), "1.2.0") == body
    assert contents(written(tmp_path, record("SINGA_VERSION", body) + EXAMPLE)).keys() == {"parameters/ip/weight"}


def test_a_transposed_matrix_of_1_1(tmp_path):
    stored = tensor_proto(MATRIX.reshape(3, 2), "1.1.1", [1])
    same(contents(written(tmp_path, record("a/weight", stored))), {"parameters/a/weight": MATRIX.reshape(2, 3).T})


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_strides_of_1_2(tmp_path, order):
    block = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    seen = block.transpose(order)
    strides = [stride // 4 for stride in seen.strides]
    value = tensor_proto(block.reshape(seen.shape), "1.2.0", strides)
    same(contents(written(tmp_path, record("a/weight", value))), {"parameters/a/weight": np.ascontiguousarray(seen)})


@pytest.mark.parametrize("layout", [[], [1], [0], [5]])
def test_of_a_vector_field_3_means_nothing(tmp_path, layout):
    vector = np.arange(5, dtype=np.float32)
    value = tensor_proto(vector, "1.2.0", layout)
    same(contents(written(tmp_path, record("a/bias", value))), {"parameters/a/bias": vector})


@pytest.mark.peer
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_the_protobuf_library_writes(tmp_path, flavour):
    message = protobuf_class(flavour)
    rng = np.random.default_rng(0)
    for kind, field, dtype in ((0, "float_data", "f4"), (4, "double_data", "f8"), (2, "int_data", "i4")):
        array = (1e3 * rng.normal(size=(3, 4))).astype(dtype)
        proto = message(shape=[3, 4], data_type=kind)
        getattr(proto, field).extend(array.reshape(-1).tolist())
        if flavour == "1.2.0":
            proto.layout.extend([4, 1])
        else:
            proto.layout = False
        data = proto.SerializeToString()
        assert data == tensor_proto(array, flavour)
        same(contents(written(tmp_path, record("a/weight", data))), {"parameters/a/weight": array})


def protobuf_class(flavour):
    """singa.TensorProto as a version has it."""
    descriptor_pb2 = skips.library("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    one, many = 1, 3
    file = descriptor_pb2.FileDescriptorProto(name=f"{flavour}.proto", package=f"v{flavour.replace('.', '_')}")
    message = file.message_type.add(name="TensorProto")
    layout = (3, "layout", 5, many) if flavour == "1.2.0" else (3, "layout", 8, one)
    fields = [(1, "shape", 13, many), (2, "data_type", 5, one), layout]
    fields += [(4, "float_data", 2, many), (5, "double_data", 1, many), (6, "int_data", 5, many)]
    for number, name, kind, label in fields:
        field = message.field.add(name=name, number=number, type=kind, label=label)
        if number > 3 and flavour != "1.0.0":
            field.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.TensorProto"))


ARRAYS = {"conv/weight": MATRIX, "conv/bias": np.float32([7, 8]), "norm/mean": np.float32([0.5, 1.5, 2.5])}
PATHS = {"parameters/conv/weight": MATRIX, "parameters/conv/bias": ARRAYS["conv/bias"]} | {
    "state/norm/running_mean": ARRAYS["norm/mean"]
}


@pytest.mark.parametrize("first", [None, "1101", "SINGA VERSION: 1200"])
@pytest.mark.parametrize("suffix", [".bin", ".model"])
def test_a_desc_opens_the_file_beside_it(tmp_path, first, suffix):
    written(tmp_path, native(ARRAYS, "1.1.1"), f"a.net{suffix}")
    same(contents(written(tmp_path, described(ARRAYS, first).encode(), "a.net.desc")), PATHS)


@pytest.mark.parametrize(
    "text, message",
    [
        (described({"conv/weight": MATRIX}, "1101"), "of which the .desc does not tell"),
        (described(ARRAYS | {"more/bias": MATRIX}, "1101"), "wanted the entry 'more/bias' of the .desc"),
        (described(ARRAYS | {"conv/weight": MATRIX.T}, "1101"), "as in the .desc"),
        (described(ARRAYS, "1101") + described(ARRAYS, None), "wanted a new array's"),
        (described(ARRAYS, "1101").replace("dim: 2", "dim: 3"), "wanted a new array's"),
        (described(ARRAYS, "1101")[:-1], "a cut line"),
        (described(ARRAYS, "nonsense"), "line 1: wanted an array's"),
        ("\udcff\n", "UTF-8"),
        (described(ARRAYS, "1101") + described({"SINGA_VERSION": np.int32([1200])}, None) + "x\n", "line 6"),
    ],
)
def test_a_desc_that_tells_of_other_arrays(tmp_path, text, message):
    written(tmp_path, native(ARRAYS, "1.1.1"))
    path = written(tmp_path, text.encode("utf-8", "surrogateescape"), "net.desc")
    with pytest.raises(SnapshotError, match=message):
        contents(path)


def test_a_desc_that_tells_of_the_version_too(tmp_path):
    stamp = {"SINGA_VERSION": np.int32([1200])}
    written(tmp_path, native(ARRAYS, "1.2.0", 1200))
    text = described({**stamp, **ARRAYS}, "SINGA VERSION: 1200")
    same(contents(written(tmp_path, text.encode(), "net.desc")), PATHS)


def test_a_desc_alone(tmp_path):
    with pytest.raises(SnapshotError, match="beside it, which has the arrays; received neither"):
        contents(written(tmp_path, described(ARRAYS, "1101").encode(), "net.desc"))


def test_a_desc_beside_a_link(tmp_path):
    elsewhere = written(tmp_path, native(ARRAYS, "1.1.1"), "elsewhere")
    (tmp_path / "net.bin").symlink_to(elsewhere)
    with pytest.raises(SnapshotError, match="received a link"):
        contents(written(tmp_path, described(ARRAYS, "1101").encode(), "net.desc"))


def test_no_file(tmp_path):
    for name in ("net.bin", "net.model", "net.desc"):
        with pytest.raises(FileNotFoundError):
            contents(tmp_path / name)


def test_a_folder(tmp_path):
    (tmp_path / "net.bin").mkdir()
    with pytest.raises(SnapshotError):
        contents(tmp_path / "net.bin")


def test_no_file_has_no_arrays(tmp_path):
    assert contents(written(tmp_path, b"")) == {}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_cut_at_every_length(tmp_path, flavour):
    whole = native(ARRAYS, flavour, 1200)
    ends, arrays = {0: {}}, {}
    ends[len(native({}, flavour, 1200))] = {}
    for key, path in zip(ARRAYS, PATHS, strict=True):
        arrays[key] = ARRAYS[key]
        ends[len(native(arrays, flavour, 1200))] = dict(list(PATHS.items())[: len(arrays)])
        assert path
    written(tmp_path, described(ARRAYS, "SINGA VERSION: 1200").encode(), "net.desc")
    for length in range(len(whole)):
        path = written(tmp_path, whole[:length])
        if length in ends:  # where nothing but the .desc knows
            same(contents(path), ends[length])
        else:
            with pytest.raises(SnapshotError, match=r"net\.bin"):
                contents(path)
        with pytest.raises(SnapshotError):
            contents(path.with_suffix(".desc"))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_any_byte_changed(tmp_path, flavour):
    whole = native(ARRAYS, flavour, 1200)
    rng = np.random.default_rng(0)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        try:
            found = contents(written(tmp_path, bytes(changed)))
        except SnapshotError as error:
            assert "net.bin" in str(error)
        else:
            assert sum(array.nbytes for array in found.values()) <= 2 * len(whole)


GOOD = tensor_proto(MATRIX, "1.2.0")


@pytest.mark.parametrize(
    "data, message",
    [
        (b"sg\x00\x00" + EXAMPLE[4:], "record at byte 0: wanted"),
        (b"\x80\x02}q\x01.", "read as .pickle"),
        (EXAMPLE + EXAMPLE, "wanted one record 'ip/weight', received two"),
        (record("", GOOD), "wanted a key of 1 to"),
        (record("a" * 2000, GOOD), "wanted a key of 1 to"),
        (record(b"\xff", GOOD), "UTF-8"),
        (record("a", b""), "wanted 1 numbers"),
        (record("a", GOOD + b"\x00"), "a length of"),
        (record("a", GOOD.replace(b"\x10\x00", b"\x10\x01")), "data_type"),
        (record("a", GOOD.replace(b"\x08\x03", b"\x08\x04")), "numbers"),
        (record("a", GOOD.replace(b"\x18\x03\x18\x01", b"\x18\x04\x18\x01")), "strides"),
        (record("a", tensor_proto(MATRIX, "1.2.0", [-1, 1])), "32 bits"),
        (record("a", tensor_proto(MATRIX, "1.2.0", [3, 1, 1])), "strides"),
        (record("a", tensor_proto(MATRIX.reshape(1, 2, 3), "1.1.1", [1])), "strides"),
        (record("a", tensor_proto(MATRIX, "1.1.1", [2])), "strides"),
        (record("a", b"\x08\x01" * 40 + b"\x10\x00"), "at most 32 fields"),
        (record("a", b"\x08" + b"\xff" * 9 + b"\x01"), "32 bits"),
        (record("a", b"\x08\x80"), "the end"),
        (record("a", b"\x08\xff\xff\xff\xff\x0f" * 4 + b"\x10\x00"), "numbers"),
        (record("a", b"\x08\x06\x10\x00\x3a" + GOOD[-25:]), "tag 58"),
        (record("a", b"\x08\x06\x10\x04" + GOOD[-26:]), "tag 34"),
        (record("a", tensor_proto(MATRIX, "1.0.0")[:-5] + b"\x29" + bytes(4)), "tag 37 before each number"),
        (record("a", b"\x08\x01\x10\x02\x32\x06\x80\x80\x80\x80\x10\x00"), "int32"),
        (record("a", b"\x08\x02\x10\x02\x32\x03\x01\x02\x03"), "more bytes"),
        (record("a", b"\x08\xff\xff\xff\xff\x1f"), "32 bits"),
        (record("a", b"\x08\x01\x10\x02\x32\x0a" + b"\x80" * 10), "varint"),
        (record("a", b"\x08\x02\x10\x02\x30\x01\x31\x01"), "tag 48 before each number"),
        (record("a", b"\x08\x00" + b"\x08\xff\xff\xff\xff\x0f" * 5 + b"\x10\x00\x22\x00"), r"less than 2\*\*63 bytes"),
    ],
)
def test_a_wrong_file(tmp_path, data, message):
    with pytest.raises(SnapshotError, match=message) as caught:
        contents(written(tmp_path, data))
    assert "net.bin" in str(caught.value)


def peak(path: Path) -> int:
    """Bytes of memory that reading one array after another takes at most."""
    tracemalloc.start()
    try:
        with singa_records.opened(path, None) as source:
            for entry in source.specs:
                source.read(entry)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("flavour, layout", [("1.0.0", None), ("1.1.1", None), ("1.1.1", [1]), ("1.2.0", None)])
def test_memory_stays_within_twice_the_file(tmp_path, flavour, layout):
    array = np.zeros((100, 500), np.float32) if flavour == "1.0.0" else np.zeros((1000, 1000), np.float32)
    path = written(tmp_path, record("a/weight", tensor_proto_of_zeros(array, flavour, layout)))
    assert peak(path) < 2 * path.stat().st_size + (1 << 16)


def tensor_proto_of_zeros(array, flavour, layout):
    if flavour == "1.0.0":
        return tensor_proto(array, flavour, layout)
    head = tensor_proto(array[:0], flavour, layout or ([1000, 1] if flavour == "1.2.0" else None))
    shape = b"".join(b"\x08" + singa_files.varint(extent) for extent in array.shape)
    rest = head[head.index(b"\x10") : head.rindex(b"\x22") + 1]
    return shape + rest + singa_files.varint(array.nbytes) + array.tobytes()


def test_many_records_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("singa_lite.snapshots.readers.raw.ROOM", 1 << 16)
    empty = b"\x08\x00\x10\x00"
    path = written(tmp_path, b"".join(record(f"{n}", empty) for n in range(200)))
    with pytest.raises(SnapshotError, match="the list of records"):
        contents(path)


def test_many_small_integers_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("singa_lite.snapshots.readers.raw.ARRAY_ROOM", 1 << 10)
    path = written(tmp_path, record("a", tensor_proto(np.zeros(5000, np.int32), "1.2.0")))
    with pytest.raises(SnapshotError, match="would take about"):
        contents(path)
