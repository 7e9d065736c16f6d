"""SINGA's files: .bin, .model and .desc, pickles and zips of every version, their names, and wrong and hostile ones."""

from __future__ import annotations

import builtins
import io
import json
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import singa_files
from every_row import over_rows
from nets import all_bits, bits, state_of
from singa_files import described, native, python2_pickle, record, states_zip, tensor_proto, zipped
from singa_lite import FeedForwardNet, snapshots
from singa_lite.errors import SnapshotError
from singa_lite.snapshots import formats
from singa_lite.snapshots.formats.singa import arrays as singa_arrays
from singa_lite.snapshots.readers import numpy_pickle, zip_archive
from singa_lite.tensor import to_numpy
from snapshot_nets import dense_net, make_net, peak_of, trained

RNG = np.random.default_rng(0)
MATRIX = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def written(folder: Path, data: bytes, name: str = "net.bin") -> Path:
    """The path of a new file."""
    path = folder / name
    path.write_bytes(data)
    return path


def contents(path: Path) -> dict[str, np.ndarray]:
    """All arrays by our paths; they are as announced."""
    with formats.opened(path) as source:
        arrays = {entry: source.read(entry) for entry in source.specs}
        assert {entry: (array.shape, array.dtype) for entry, array in arrays.items()} == dict(source.specs)
        assert source.attributes.get("entries") == len(arrays)
    return arrays


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Fail unless they are equal, in order, and lie as C has them."""
    assert list(found) == list(wanted)
    for path, array in wanted.items():
        assert found[path].dtype == array.dtype and found[path].flags.c_contiguous
        assert found[path].tobytes() == array.tobytes(), path


def refused(folder: Path, name: str, data: bytes, words: str) -> None:
    """Fail unless such a file is refused by an error that names it and has these words, and nothing was called."""
    with pytest.raises(SnapshotError) as caught:
        contents(written(folder, data, name))
    assert name in str(caught.value) and words in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not (folder / "called").exists()


# ---- records: .bin, .model and .desc

#: From the reference: one record, key ip/weight, 2x3 float32, of 1.2 and later.
EXAMPLE = bytes.fromhex(
    "73 67 01 00 09 00 00 00 00 00 00 00 69 70 2f 77 65 69 67 68 74 24 00 00 00 00 00 00 00"
    "08 02 08 03 10 00 18 03 18 01 22 18 00 00 80 3f 00 00 00 40 00 00 40 40 00 00 80 40 00 00 a0 40 00 00 c0 40"
)

#: What the protobuf library wrote of [[1, -2, 300]], by version and dtype.
PROTOBUF = {
    ("1.0.0", "f4"): "0801080310001800250000803f25000000c02500009643",
    ("1.0.0", "f8"): "080108031004180029000000000000f03f2900000000000000c0290000000000c07240",
    ("1.0.0", "i4"): "0801080310021800300130feffffffffffffffff0130ac02",
    ("1.1.1", "f4"): "0801080310001800220c0000803f000000c000009643",
    ("1.1.1", "f8"): "08010803100418002a18000000000000f03f00000000000000c00000000000c07240",
    ("1.1.1", "i4"): "0801080310021800320d01feffffffffffffffff01ac02",
    ("1.2.0", "f4"): "08010803100018031801220c0000803f000000c000009643",
    ("1.2.0", "f8"): "080108031004180318012a18000000000000f03f00000000000000c00000000000c07240",
    ("1.2.0", "i4"): "08010803100218031801320d01feffffffffffffffff01ac02",
}


def test_the_example_of_the_reference(tmp_path):
    assert record("ip/weight", tensor_proto(MATRIX, "1.2.0")) == EXAMPLE
    same(contents(written(tmp_path, EXAMPLE)), {"parameters/ip/weight": MATRIX})


def test_what_the_protobuf_library_wrote_of_every_version_and_dtype(tmp_path):
    for (flavour, dtype), text in PROTOBUF.items():
        array, data = np.array([[1, -2, 300]], dtype), bytes.fromhex(text)
        assert tensor_proto(array, flavour) == data
        same(contents(written(tmp_path, record("a/weight", data))), {"parameters/a/weight": array})


BLOCK = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
VECTOR = np.arange(5, dtype=np.float32)


def of_strides(seen: np.ndarray) -> bytes:
    return tensor_proto(BLOCK.reshape(seen.shape), "1.2.0", [stride // 4 for stride in seen.strides])


#: Arrays that lie otherwise: by strides in 1.2, by a mark in 1.1. Of a vector, field 3 means nothing.
LAYOUTS = [
    *((seen, of_strides(seen)) for seen in (BLOCK.transpose(axes) for axes in ((1, 0, 2), (2, 1, 0), (1, 2, 0)))),
    (MATRIX.T, tensor_proto(MATRIX.reshape(3, 2), "1.1.1", [1])),
    *((VECTOR, tensor_proto(VECTOR, "1.2.0", layout)) for layout in ([], [1], [0], [5])),
    (np.float64(2.5), tensor_proto(np.array(2.5), "1.2.0")),
]


def test_layouts_of_arrays(tmp_path):
    for wanted, value in LAYOUTS:
        found = contents(written(tmp_path, record("a/weight", value)))
        same(found, {"parameters/a/weight": np.array(wanted, order="C")})


ARRAYS = {"conv/weight": MATRIX, "conv/bias": np.float32([7, 8]), "norm/mean": np.float32([0.5, 1.5, 2.5])}
PATHS = dict(
    zip(("parameters/conv/weight", "parameters/conv/bias", "state/norm/running_mean"), ARRAYS.values(), strict=True)
)


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


def test_a_desc_that_tells_of_other_arrays_or_has_none_beside_it(tmp_path):
    refused(tmp_path, "net.desc", described(ARRAYS, "1101").encode(), "received neither")
    (tmp_path / "net.bin").symlink_to(written(tmp_path, native(ARRAYS, "1.1.1"), "elsewhere"))
    refused(tmp_path, "net.desc", described(ARRAYS, "1101").encode(), "a link")
    (tmp_path / "net.bin").unlink()
    written(tmp_path, native(ARRAYS, "1.1.1"))
    for words, text in DESCRIBED.items():
        with pytest.raises(SnapshotError, match=words):
            contents(written(tmp_path, text.encode("utf-8", "surrogateescape"), "net.desc"))


# ---- pickles

PICKLED = {
    "conv_weight": RNG.normal(size=(2, 12)).astype(np.float32),
    "conv_bias": np.frombuffer(b"\\'\n\r\t\x00\xff\x80\"x\x7f ", np.float32),
    "norm_mean": np.float32([0.5, 1.5, 2.5]),
}
OF_PICKLED = dict(zip(PATHS, PICKLED.values(), strict=True))

#: What cPickle of Python 2.7.18 with NumPy 1.16.6 wrote, protocol 0, of an array and a version.
PYTHON_2 = (
    b"(dp1\nS'SINGA_VERSION'\np2\nI1101\nsS'ip_weight'\np3\ncnumpy.core.multiarray\n_reconstruct\np4\n(cnumpy\nndarray\n"
    b"p5\n(I0\ntS'b'\ntRp6\n(I1\n(I1\nI2\ntcnumpy\ndtype\np7\n(S'f4'\nI0\nI1\ntRp8\n(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
    b"S'\\x00\\x00\\x80?\\x00\\x00\\x00\\xc0'\ntbs."
)

#: The same of bytes that need escapes, named in unicode, and of a matrix in Fortran's order, which shares its dtype.
PYTHON_2_MORE = (
    b"(dp1\nVip/bias\np2\ncnumpy.core.multiarray\n_reconstruct\np3\n(cnumpy\nndarray\np4\n(I0\ntS'b'\ntRp5\n(I1\n(I3\n"
    b"tcnumpy\ndtype\np6\n(S'f4'\nI0\nI1\ntRp7\n(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
    b"S'\\\\\\'\\n\\r\\t\\x00\\xff\\x80\"x\\x7f '\ntbsS'f_weight'\ng3\n(g4\n(I0\ntS'b'\ntRp8\n(I1\n(I2\nI3\ntg7\nI01\n"
    b"S'\\x00\\x00\\x00\\x00\\x00\\x00@@\\x00\\x00\\x80?\\x00\\x00\\x80@\\x00\\x00\\x00@\\x00\\x00\\xa0@'\ntbs."
)


def test_pickles_of_python_2(tmp_path):
    same(contents(written(tmp_path, PYTHON_2, "a.pickle")), {"parameters/ip/weight": np.float32([[1, -2]])})
    more = {"parameters/ip/bias": PICKLED["conv_bias"], "parameters/f/weight": np.arange(6, dtype="f4").reshape(2, 3)}
    same(contents(written(tmp_path, PYTHON_2_MORE, "a.pickle")), more)
    for version, unicode_keys in ((None, False), (1101, True)):
        data = python2_pickle(PICKLED, version, unicode_keys)
        truth = pickle.loads(data, encoding="iso-8859-1")
        assert truth.pop("SINGA_VERSION", None) == version
        assert all_bits(truth) == all_bits(PICKLED)
        same(contents(written(tmp_path, data, "a.pickle")), OF_PICKLED)


@pytest.mark.parametrize("old_name", [False, True])
@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_python_3(tmp_path, protocol, old_name):
    """Fortran's order too, and arrays without numbers, for whose bytes Python 3 writes a call in protocols 0 to 2."""
    more = {"f/weight": np.asfortranarray(PICKLED["conv_weight"]), "g/weight": np.zeros((0, 3), np.float32)}
    data = pickle.dumps({**PICKLED, **more, "SINGA_VERSION": 3000}, protocol)
    if old_name:  # NumPy's before 2, a byte less
        data = data.replace(b"numpy._core", b"numpy.core").replace(b"\x8c\x16numpy", b"\x8c\x15numpy")
        data = data.replace(data[:11], data[:3] + (len(data) - 11).to_bytes(8, "little")) if protocol == 4 else data
    wanted = OF_PICKLED | {f"parameters/{name}": array for name, array in more.items()}
    same(contents(written(tmp_path, data, "a.pickle")), wanted)
    assert contents(written(tmp_path, pickle.dumps({}, protocol), "a.pickle")) == {}


def test_pickles_of_every_dtype(tmp_path):
    for dtype in ("<f4", ">f4", "<f8", ">f8", "<f2", "<i4", "|u1", "|b1"):
        array = RNG.integers(0, 2, (3, 5)).astype(dtype)
        wanted = {"parameters/a/bias": array.astype(array.dtype.newbyteorder("="))}
        same(contents(written(tmp_path, pickle.dumps({"a_bias": array}, 2), "a.pickle")), wanted)


class Reduced:
    """Pickles as a call of anything."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_calls_in_pickles_are_refused(tmp_path, protocol):
    target = str(tmp_path / "called")
    for call in [
        (os.system, (f"touch {target}",)),
        (os.mkdir, (target,)),
        (eval, (f"open({target!r}, 'w')",)),
        (builtins.__import__, ("os",)),
        (getattr, (int, "from_bytes")),
        (np.load, (target,)),
        (np.ndarray, ((1 << 40,),)),
        (np.frombuffer, (b"1234",)),
        (np.zeros, ((1 << 40,),)),
        (bytearray, (1 << 40,)),
    ]:
        for value in (Reduced(*call), {"a": Reduced(*call)}):
            refused(tmp_path, "net.pickle", pickle.dumps(value, protocol), "")


def test_a_pickle_of_nothing_but_opcodes(tmp_path, monkeypatch):
    assert numpy_pickle._MOST_OPCODES > 5000 * 70, (
        "nets of 5000 parameters have as many opcodes and arguments of a byte"
    )
    monkeypatch.setattr(numpy_pickle, "_MOST_OPCODES", 1 << 15)
    for data in (b")" + b"\x85" * (1 << 17), b"}" + b"\x94" * (1 << 17)):
        assert peak_of(lambda data=data: refused(tmp_path, "net.pickle", data, "32768 opcodes")) < 8 << 20


# ---- zips of 3.1 and later

#: {SINGA's name: (ours, array)}.
ENTRIES = {
    "conv1.W": ("parameters/conv1/weight", RNG.normal(size=(2, 3, 4, 5)).astype("f")),
    "conv1.b": ("parameters/conv1/bias", RNG.normal(size=2).astype("f")),
    "block.bn1.scale": ("parameters/block.bn1/gamma", RNG.normal(size=3).astype("f")),
    "block.bn1.bias": ("parameters/block.bn1/beta", RNG.normal(size=3).astype("f")),
    "block.bn1.running_mean": ("state/block.bn1/running_mean", RNG.normal(size=3).astype("f")),
    "block.bn1.running_var": ("state/block.bn1/running_var", RNG.normal(size=3).astype("f")),
    "linear1.W": ("parameters/linear1/weight", np.asfortranarray(RNG.normal(size=(3, 4)).astype("f"))),
    "linear1.b": ("parameters/linear1/bias", RNG.normal(size=4).astype(np.float16)),
}
ZIPPED = {name: array for name, (_, array) in ENTRIES.items()}
OWN = {"epoch": np.array([7], np.int32), "SGD.momentum": np.float32([0.9])}


def test_zips_as_singa_writes_them(tmp_path):
    """What is not the model's is left out, which the tree tells; another byte order stays as it is, read twice too."""
    path = written(tmp_path, states_zip(ZIPPED, OWN), "net.zip")
    same(contents(path), dict(ENTRIES.values()))
    with singa_arrays.opened(path, None) as source:
        assert source.left_out == list(OWN)
    for order in ("C", "F"):
        swapped = np.array(ZIPPED["conv1.W"], ">f4", order=order)
        with singa_arrays.opened(written(tmp_path, states_zip({"conv1.W": swapped}), "net.zip"), None) as source:
            for _ in range(2):
                np.testing.assert_array_equal(source.read("parameters/conv1/weight"), ZIPPED["conv1.W"])


def test_no_changed_byte_of_a_zip_gives_other_numbers(tmp_path):
    data = states_zip(ZIPPED)
    wanted, places, refused_ones = contents(written(tmp_path, data, "net.zip")), range(0, len(data), 11), 0
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << int(RNG.integers(8))
        try:
            found = contents(written(tmp_path, bytes(changed), "net.zip"))
        except SnapshotError:
            refused_ones += 1
        else:  # a time of day
            assert {path: bits(array) for path, array in found.items()} == all_bits(wanted)
    assert refused_ones > 0.8 * len(places)


# ---- wrong files

GOOD = tensor_proto(MATRIX, "1.2.0")

#: {words of the error: .bin files}.
RECORDS = {
    "record at byte 0": [b"sg\x00\x00" + EXAMPLE[4:]],
    ".pickle": [b"\x80\x02}q\x01."],
    "'ip/weight', received two": [EXAMPLE + EXAMPLE],
    "parameters/a/weight": [native({"a/weight": MATRIX, "a_weight": MATRIX}, "1.2.0")],
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

PLAIN = pickle.dumps({"a_bias": np.float32([1, 2])}, 2)
SHARED = np.ones(1000, np.float32)
#: A tuple of two tuples of two and so on, 60 deep.
DOUBLED = b"(I1\nt" + b"q\x00h\x00\x86" * 60

#: {words of the error: pickles}.
PICKLES = {
    "the name os.system": [
        b"cos\nsystem\n(S'touch called'\ntR.",
        b"(cos\nsystem\nS'touch called'\no.",
        b"cnumpy\nndarray\n(dS'__setstate__'\ncos\nsystem\nsb.",
    ],
    "opcode": [
        b"(S'touch called'\nios\nsystem\n.",
        b"cnumpy\nndarray\n)\x81.",
        b"cnumpy\nndarray\n)}\x92.",
        *(b"Pid\n.", b"Nq\x00Q.", b"\x82\x01.", b"\x83\x01\x00.", b"\x84\x01\x00\x00\x00."),
        *(b"(l.", b"].", b"F1.0\n.", b"\x97."),
        pickle.dumps({"a": [1.0]}, 2),
    ],
    "that NumPy does not write": [
        b"cnumpy\nndarray\n((I99999999999\nttR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I99999999999\ntS'b'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.",
        b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x06\x00\x00\x00rot_13tR.",
        b"c__builtin__\nbytes\n(I99999999999\ntR.",
        b"\x80\x02cnumpy\ndtype\n" + DOUBLED + b"R.",
        *(pickle.dumps({"a": np.zeros(2, dtype)}, 2) for dtype in ("O", "S3", [("x", "f4")])),
    ],
    "dtype": [
        b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'<'\nNN(dI-1\nI-1\nI0\ntb.",
        b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'?'\nNNNI-1\nI-1\nI0\ntb.",
    ],
    "multiarray.scalar": [pickle.dumps({"a": np.float32(1)}, 2)],
    "protocol: 6": [b"\x80\x06}."],
    "numeric._frombuffer": [pickle.dumps({"a": np.ones(3)}, 5)],
    "byte": [
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff}.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
        *(b"T\xff\xff\xff\xffabc.", b"}.more"),
    ],
    "digits": [b"I" + b"9" * 5000 + b"\n."],
    "int and 0 more bytes": [b"\x8a\xff" + bytes(255) + b"."],
    "received": [
        *(b"}R.", b"(.", b"(" * 5000, b"N" * 5000, b"(dp0\n" + b"g0\n" * 5000, b"N}.", b"(d(d.", b"}}.", b"(}."),
        *(b"g7\n.", b"}NR.", b"}Nb.", b"t.", b"(S'a'\nd.", b"NNNs.", b"(I1\nI2\nt."),
        b"\x80\x02" + DOUBLED + b".",
    ],
    "received ": [
        *(b"(dV\\ud800\nI2\ns.", b"(dI1\nI2\ns.", b"(dV\\uzz\nI2\ns.", b"(dX\x01\x00\x00\x00\xffI2\ns."),
        b"\x80\x02}" + DOUBLED + b"I1\ns.",
    ],
    "'a' twice": [b"(dS'a'\nI2\nsS'a'\nI3\ns."],
    "an array": [
        *(b"(dS'a'\nI2\ns.", b"(dS'SINGA_VERSION'\nI01\ns.", b"(dS'a'\ncnumpy\nndarray\ns."),
        b"(dS'a'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntRs.",
    ],
    "bytes for an array": [PLAIN.replace(b"K\x02\x85", b"K\x03\x85"), PLAIN.replace(b"K\x02\x85", b"K\x01\x85")],
    "shape": [
        PLAIN.replace(b"K\x02\x85", b"J\xff\xff\xff\xff\x85"),
        PLAIN.replace(b"K\x02\x85", b"\x88\x85"),
        pickle.dumps({"a": np.zeros((0, 2, 3), "f4")}, 0).replace(b"I2\n", b"I9" + b"9" * 18 + b"\n"),
    ],
    "numbers of its own": [pickle.dumps({"a": SHARED, "b": SHARED}, 2)],
    "characters that are no bytes": [b"(V" + b"a" * 5000 + text + b"\n." for text in (b"\\u2603", b"\\U0001F600")]
    + [b"\x80\x02X" + (5003).to_bytes(4, "little") + b"a" * 5000 + "☃".encode() + b"."],
    "more calls of encode": [
        b"\x80\x02X"
        + (5000).to_bytes(4, "little")
        + b"a" * 5000
        + b"q\x00c_codecs\nencode\nq\x01"
        + b"h\x01h\x00X\x06\x00\x00\x00latin1\x86R" * 2
        + b"."
    ],
    "file's end": [b""],
}


def npz(compressed: bool = False, **arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def archive(data: bytes, attributes: object) -> bytes:
    text = attributes if isinstance(attributes, bytes) else json.dumps(attributes).encode()
    return zipped({"tensor_dict.npz": data, "states_attr.json": text})


TOLD = {"state_type": 0, "shape": [2], "dtype": 0}
TWO = npz(a=np.ones(2, "f4"))
INNER = bytearray(npz(a=np.ones(2, "f4"), b=np.full(2, 5, "f4")))
INNER[INNER.index(np.float32(5).tobytes())] ^= 1

#: {words of the error: .zip files}.
ZIPS = {
    "states_attr.json": [
        zipped({"tensor_dict.npz": npz()}),
        zipped({"tensor_dict.npz": npz(), "states_attr.json": b"{}", "more": b""}),
        b"PK\x05\x06" + bytes(18),
    ],
    "plain names": [zipped({"tensor_dict.npz": npz(), "../states_attr.json": b"{}"})],
    "names that differ": [archive(TWO, {}), archive(npz(), {"a": TOLD})],
    "the attributes": [
        *(archive(npz(a=wrong), {"a": TOLD}) for wrong in (np.ones(3, "f4"), np.ones(2, "f8"))),
        *(archive(TWO, {"a": {**TOLD, "state_type": wrong}}) for wrong in (2, False)),
        *(archive(TWO, {"a": {**TOLD, "dtype": wrong}}) for wrong in (9, [0])),
        *(archive(TWO, {"a": wrong}) for wrong in ({**TOLD, "shape": 2}, [])),
    ],
    "JSON": [archive(TWO, b"[]"), archive(TWO, b"[" * 100_000)],
    "twice": [archive(TWO, b'{"a": {}, "a": {}}')],
    "plain numbers": [archive(npz(a=np.zeros(2, dtype)), {"a": TOLD}) for dtype in ("O", [("x", "f4")], "S4")]
    + [archive(TWO.replace(b"<f4", b"<b2"), {"a": TOLD})],
    "a stored array": [
        archive(npz(compressed=True, a=np.ones(2, "f4")), {"a": TOLD}),
        archive(zipped({"a": b""}), {"a": TOLD}),
    ],
    "8 bytes": [archive(TWO.replace(b"(2,)", b"(3,)"), {"a": TOLD})],
    "tensor_dict.npz": [archive(b"not a zip", {"a": TOLD})],
    "'b.npy' is damaged": [archive(bytes(INNER), {"a": TOLD, "b": TOLD})],
    "net.zip": [b""],
}


@pytest.mark.parametrize(("name", "table"), [("net.bin", RECORDS), ("net.pickle", PICKLES), ("net.zip", ZIPS)])
def test_a_wrong_file_is_refused_and_named(tmp_path, monkeypatch, name, table):
    if name == "net.bin":
        monkeypatch.setattr("singa_lite.snapshots.readers.raw.ROOM", 1 << 16)
        monkeypatch.setattr("singa_lite.snapshots.readers.raw.ARRAY_ROOM", 1 << 10)
    rows = [
        (f"{words}: {data[:60]!r}", (tmp_path, name, data, words)) for words, files in table.items() for data in files
    ]
    over_rows(refused, rows)


# ---- what reading costs

RECORD = partial(tensor_proto, np.zeros((200, 200), np.float32))
BYTES = [np.full(100_000, byte, np.uint8).view(np.float32) for byte in (0x41, 0x00, 0xFF, 0x5C)]
NORMAL = RNG.normal(size=(300, 1000)).astype(np.float32)
COSTLY = {
    **{f"record {flavour}": ("a.bin", [record("a", RECORD(flavour))]) for flavour in singa_files.FLAVOURS},
    "a record that is turned": ("a.bin", [record("a", RECORD("1.1.1", [1]))]),
    "pickle of Python 2": ("a.pickle", [python2_pickle({"a": array}) for array in BYTES]),
    **{f"pickle {n}": ("a.pickle", [pickle.dumps({"a": array}, n) for array in BYTES]) for n in range(5)},
    "zip": ("a.zip", [states_zip({"a.W": NORMAL, "a.b": NORMAL[0]})]),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_memory_stays_within_twice_the_file(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(zip_archive, "_PIECE", 1 << 16)  # a few of these come on top
    name, files = COSTLY[kind]
    for data in files:
        path = written(tmp_path, data, name)
        contents(path)  # what is made once
        assert peak_of(lambda path=path: contents(path)) < 2 * len(data) + (1 << 19)


def test_a_bomb_in_a_zip_takes_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(zip_archive, "_PIECE", 1 << 16)
    data = states_zip({"a.W": np.zeros((1 << 12, 1 << 12), "f4")})
    assert peak_of(lambda: refused(tmp_path, "net.zip", data, "would take about")) < 1 << 21


# ---- names, and loading into a net

#: Our paths and SINGA's names of old, of 1.1.1 to 3.0, and of 3.1 and later, in the net of `snapshot_nets`.
NAMES = {
    "parameters/conv/weight": ("conv_weight", "conv/weight", "conv.W"),
    "parameters/conv/bias": ("conv_bias", "conv/bias", "conv.b"),
    "parameters/norm/gamma": ("norm_gamma", "norm/gamma", "norm.scale"),
    "parameters/norm/beta": ("norm_beta", "norm/beta", "norm.bias"),
    "state/norm/running_mean": ("norm_mean", "norm/mean", "norm.running_mean"),
    "state/norm/running_var": ("norm_var", "norm/var", "norm.running_var"),
    "parameters/dense/weight": ("dense_weight", "dense/weight", "dense.W"),
    "parameters/dense/bias": ("dense_bias", "dense/bias", "dense.b"),
    "parameters/first/weight": ("first_weight", "first/weight", "first.W"),
    "parameters/first/bias": ("first_bias", "first/bias", "first.b"),
}

#: The same of files that are opened without a net.
MORE_NAMES = {
    "parameters/inception_3a.1x1/weight": ("inception_3a/1x1_weight",),
    "parameters/res.branch/weight": ("res/branch/weight",),
    "parameters/block.sub/weight": ("block.sub.W",),
    "parameters/rnn-weight": ("rnn-weight",),
    "parameters/rnn.Wx": ("rnn.Wx",),
    "parameters/weight": ("weight",),
    "parameters/.weight": ("/weight",),
}


def tensors(net: FeedForwardNet) -> dict[str, np.ndarray]:
    found = {f"parameters/{name}": to_numpy(tensor) for name, tensor in net.parameters().items()}
    return found | {f"state/{name}": to_numpy(tensor) for name, tensor in net.states().items()}


def by_name(net: FeedForwardNet, spelling: int) -> dict[str, np.ndarray]:
    """The net's arrays as SINGA has them."""
    found = singa_files.of_tree(tensors(net), "_/."[spelling])
    assert list(found) == [NAMES[path][spelling] for path in tensors(net) if path in NAMES]
    return found


def check(net: FeedForwardNet, path: Path) -> None:
    """Loading gives another net the same numbers; its random state stays."""
    other = make_net(seed=11)
    before = tensors(other)
    snapshots.load(other, path)
    wanted, found = tensors(net), tensors(other)
    for entry in NAMES:
        np.testing.assert_array_equal(found[entry], wanted[entry])
    np.testing.assert_array_equal(found["state/drop/random"], before["state/drop/random"])
    assert found.keys() == {*NAMES, "state/drop/random"}


#: {what wrote it: (suffix, number of the spelling, the file of such arrays)}.
WRITERS: dict[str, tuple[str, int, Callable[[dict[str, np.ndarray]], bytes]]] = {
    **{
        f"{flavour}, {spelling}, {version}": (".bin", spelling, partial(native, flavour=flavour, version=version))
        for number, flavour in enumerate(singa_files.FLAVOURS)
        for spelling, version in ((0, (None, 1101, 1200)[number]), (1, 1200))
    },
    "Python 2": (".pickle", 0, python2_pickle),
    "Python 2, a version": (".pickle", 1, lambda arrays: python2_pickle(arrays, 1101)),
    "Python 3": (".pickle", 1, lambda arrays: pickle.dumps({**arrays, "SINGA_VERSION": 3000}, 4)),
    "3.1": (".zip", 2, lambda arrays: states_zip(arrays, {"epoch": np.array([3], np.int32)})),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_every_version_load_and_the_optimizer_stays(tmp_path, writer):
    suffix, spelling, encode = WRITERS[writer]
    net, path = trained(), tmp_path / f"net{suffix}"
    arrays = by_name(net, spelling)
    path.write_bytes(encode(arrays))
    check(net, path)
    if suffix == ".bin":
        (tmp_path / "net.desc").write_text(described(arrays, "1101"))
        check(net, tmp_path / "net.desc")
    step = net.optimizer.step
    snapshots.load(net, path)
    assert net.optimizer.step == step
    with pytest.raises(SnapshotError, match="optimizer Adam"):
        snapshots.load(net, path, optimizer=True)


FITTING = by_name(trained(), 1)
#: {words of the error: arrays that do not fit}.
MISFITS = {
    "'norm/mean', 'norm_mean'": {name: array for name, array in FITTING.items() if name != "norm/mean"},
    "'parameters/more/weight'": FITTING | {"more/weight": FITTING["norm/mean"]},
    "'conv/bias', 'conv_bias'": FITTING | {"conv_bias": FITTING["conv/bias"]},
    "received (7,)": FITTING | {"conv/bias": np.zeros(7, np.float32)},
    "wanted shape": FITTING | {"conv/weight": FITTING["conv/weight"].T},
    "received float64": FITTING | {"conv/bias": FITTING["conv/bias"].astype(np.float64)},
    "received int32": FITTING | {"conv/bias": FITTING["conv/bias"].astype(np.int32)},
}


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path):
    net = make_net(seed=11)
    before = state_of(net)
    for words, arrays in MISFITS.items():
        with pytest.raises(SnapshotError, match=r"net\.bin") as caught:
            snapshots.load(net, written(tmp_path, native(arrays, "1.2.0")))
        assert words in str(caught.value)
        assert state_of(net) == before


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape, transposed", [((3, 4), False), ((4, 3), True), ((3, 3), False)])
def test_dense_weights_that_were_transposed_and_are_widened(tmp_path, shape, transposed, dtype):
    weight = np.arange(12, dtype=np.float32)[: shape[0] * shape[1]].reshape(shape)
    features, outputs = shape[::-1] if transposed else shape
    net = dense_net(features=features, outputs=outputs, dtype=dtype)
    data = native({"dense/weight": weight, "dense/bias": np.zeros(outputs, "f4")}, "1.2.0")
    snapshots.load(net, written(tmp_path, data))
    np.testing.assert_array_equal(tensors(net)["parameters/dense/weight"], weight.T if transposed else weight)


def test_paths_from_names_alone(tmp_path):
    for path, names in (NAMES | MORE_NAMES).items():
        for name in names:
            found = contents(written(tmp_path, record(name, tensor_proto(MATRIX, "1.2.0"))))
            same(found, {path: MATRIX})


def test_a_slash_in_a_layer_of_singas_is_a_dot_in_ours(tmp_path):
    net = dense_net("in.1x1")
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    for name in ("in/1x1_weight", "in/1x1/weight", "in.1x1_weight"):
        data = native({name: weight, "in/1x1_bias": weight[:1].reshape(2)}, "1.0.0")
        snapshots.load(net, written(tmp_path, data))
        np.testing.assert_array_equal(tensors(net)["parameters/in.1x1/weight"], weight)


def test_what_fits_of_a_file(tmp_path):
    arrays = {"dense/weight": np.ones((3, 4), "f4"), "old/weight": np.ones((2, 2), "f4")}
    path, net = written(tmp_path, python2_pickle(arrays), "a.pickle"), dense_net(outputs=4)
    with pytest.raises(SnapshotError, match="dense/bias"):
        net.load(path)
    left = net.load(path, strict=False)
    assert (left.missing, left.differing, left.unused) == (("dense/bias",), (), ("old/weight",))
    np.testing.assert_array_equal(to_numpy(net.parameters()["dense/weight"]), np.ones((3, 4), "f4"))
