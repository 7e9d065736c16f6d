"""SINGA's .bin, .model and .desc: every version's flavour, from bytes made by hand and by the protobuf library."""

from __future__ import annotations

import numpy as np
import pytest

import skips
from singa_files import FLAVOURS, described, native, record, tensor_proto
from singa_lite.errors import SnapshotError
from singa_reads import contents, peak, refused, same, written

MATRIX = np.arange(1, 7, dtype=np.float32).reshape(2, 3)

#: From the reference: one record, key ip/weight, 2x3 float32, of 1.2 and later.
EXAMPLE = bytes.fromhex(
    "73 67 01 00 09 00 00 00 00 00 00 00 69 70 2f 77 65 69 67 68 74 24 00 00 00 00 00 00 00"
    "08 02 08 03 10 00 18 03 18 01 22 18 00 00 80 3f 00 00 00 40 00 00 40 40 00 00 80 40 00 00 a0 40 00 00 c0 40"
)


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


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (1, 2, 0), None])
def test_transposed_arrays(tmp_path, order):
    """By strides in 1.2, by a mark in 1.1."""
    if order is None:
        seen, value = MATRIX.T, tensor_proto(MATRIX.reshape(3, 2), "1.1.1", [1])
    else:
        block = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        seen = block.transpose(order)
        value = tensor_proto(block.reshape(seen.shape), "1.2.0", [stride // 4 for stride in seen.strides])
    same(contents(written(tmp_path, record("a/weight", value))), {"parameters/a/weight": np.ascontiguousarray(seen)})


@pytest.mark.parametrize("layout", [[], [1], [0], [5]])
def test_of_a_vector_field_3_means_nothing(tmp_path, layout):
    vector = np.arange(5, dtype=np.float32)
    value = tensor_proto(vector, "1.2.0", layout)
    same(contents(written(tmp_path, record("a/bias", value))), {"parameters/a/bias": vector})


ARRAYS = {"conv/weight": MATRIX, "conv/bias": np.float32([7, 8]), "norm/mean": np.float32([0.5, 1.5, 2.5])}
PATHS = {"parameters/conv/weight": MATRIX, "parameters/conv/bias": ARRAYS["conv/bias"]} | {
    "state/norm/running_mean": ARRAYS["norm/mean"]
}


@pytest.mark.parametrize(
    ("suffix", "first", "stamp"),
    [(".bin", None, None), (".model", "1101", None), (".bin", "SINGA VERSION: 1200", 1200)],
)
def test_a_desc_opens_the_file_beside_it(tmp_path, suffix, first, stamp):
    told = ({} if stamp is None else {"SINGA_VERSION": np.int32([stamp])}) | ARRAYS
    written(tmp_path, native(ARRAYS, "1.2.0" if stamp else "1.1.1", stamp), f"a.net{suffix}")
    same(contents(written(tmp_path, described(told, first).encode(), "a.net.desc")), PATHS)


#: {words of the error: the text of a .desc that does not fit its .bin}.
DESCRIBED = {
    "'conv/bias'": described({"conv/weight": MATRIX}, "1101"),
    "'more/bias'": described(ARRAYS | {"more/bias": MATRIX}, "1101"),
    "'conv/weight'": described(ARRAYS | {"conv/weight": MATRIX.T}, "1101"),
    "a new array's": described(ARRAYS, "1101") + described(ARRAYS, None),
    "line 2": described(ARRAYS, "1101").replace("dim: 2", "dim: 3"),
    "a cut line": described(ARRAYS, "1101")[:-1],
    "line 1": described(ARRAYS, "nonsense"),
    "UTF-8": "\udcff\n",
    "line 6": described(ARRAYS, "1101") + described({"SINGA_VERSION": np.int32([1200])}, None) + "x\n",
}


@pytest.mark.parametrize("words", DESCRIBED)
def test_a_desc_that_tells_of_other_arrays(tmp_path, words):
    written(tmp_path, native(ARRAYS, "1.1.1"))
    path = written(tmp_path, DESCRIBED[words].encode("utf-8", "surrogateescape"), "net.desc")
    with pytest.raises(SnapshotError, match=words):
        contents(path)


def test_a_desc_wants_a_file_beside_it_that_is_no_link(tmp_path):
    path = written(tmp_path, described(ARRAYS, "1101").encode(), "net.desc")
    with pytest.raises(SnapshotError, match="received neither"):
        contents(path)
    (tmp_path / "net.bin").symlink_to(written(tmp_path, native(ARRAYS, "1.1.1"), "elsewhere"))
    with pytest.raises(SnapshotError, match="a link"):
        contents(path)


GOOD = tensor_proto(MATRIX, "1.2.0")


#: {words of the error: files}.
WRONG = {
    "record at byte 0": [b"sg\x00\x00" + EXAMPLE[4:]],
    ".pickle": [b"\x80\x02}q\x01."],
    "'ip/weight', received two": [EXAMPLE + EXAMPLE],
    "a key": [record("", GOOD), record("a" * 2000, GOOD)],
    "UTF-8": [record(b"\xff", GOOD)],
    "numbers": [
        record("a", b""),
        record("a", GOOD.replace(b"\x08\x03", b"\x08\x04")),
        record("a", b"\x08\xff\xff\xff\xff\x0f" * 4 + b"\x10\x00"),
    ],
    "a length of": [record("a", GOOD + b"\x00")],
    "data_type": [record("a", GOOD.replace(b"\x10\x00", b"\x10\x01"))],
    "strides": [
        record("a", GOOD.replace(b"\x18\x03\x18\x01", b"\x18\x04\x18\x01")),
        record("a", tensor_proto(MATRIX, "1.2.0", [3, 1, 1])),
        record("a", tensor_proto(MATRIX.reshape(1, 2, 3), "1.1.1", [1])),
        record("a", tensor_proto(MATRIX, "1.1.1", [2])),
    ],
    "32": [
        record("a", tensor_proto(MATRIX, "1.2.0", [-1, 1])),
        record("a", b"\x08" + b"\xff" * 9 + b"\x01"),
        record("a", b"\x08\xff\xff\xff\xff\x1f"),
        record("a", b"\x08\x01\x10\x02\x32\x06\x80\x80\x80\x80\x10\x00"),
        record("a", b"\x08\x01" * 40 + b"\x10\x00"),
    ],
    "tag 48": [record("a", b"\x08\x02\x10\x02\x30\x01\x31\x01")],
    "more bytes": [record("a", b"\x08\x02\x10\x02\x32\x03\x01\x02\x03")],
    "varint": [record("a", b"\x08\x01\x10\x02\x32\x0a" + b"\x80" * 10)],
    "2**63": [record("a", b"\x08\x00" + b"\x08\xff\xff\xff\xff\x0f" * 5 + b"\x10\x00\x22\x00")],
    "would take about": [record("a", tensor_proto(np.zeros(5000, np.int32), "1.2.0"))],
    "the list of records": [b"".join(record(f"{n}", b"\x08\x00\x10\x00") for n in range(200))],
}


def test_a_wrong_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("singa_lite.snapshots.readers.raw.ROOM", 1 << 16)
    monkeypatch.setattr("singa_lite.snapshots.readers.raw.ARRAY_ROOM", 1 << 10)

    for words, files in WRONG.items():
        for data in files:
            refused(written(tmp_path, data), words)


@pytest.mark.parametrize("flavour, layout", [("1.0.0", None), ("1.1.1", None), ("1.1.1", [1]), ("1.2.0", None)])
def test_memory_stays_within_twice_the_file(tmp_path, flavour, layout):
    path = written(tmp_path, record("a/weight", tensor_proto(np.zeros((200, 200), np.float32), flavour, layout)))
    assert peak(lambda: contents(path)) < 2 * path.stat().st_size + (1 << 16)


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
