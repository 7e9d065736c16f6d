"""SINGA's pickles: of Python 2 and 3, every protocol; hostile ones, damaged ones, and what they may cost."""

from __future__ import annotations

import builtins
import copyreg
import io
import os
import pickle
import pickletools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from singa_files import python2_pickle
from singa_lite.errors import SnapshotError
from singa_lite.snapshots.formats.singa import pickles as singa_pickle
from singa_lite.snapshots.readers.pickle import opcodes as singa_opcodes

RNG = np.random.default_rng(0)
ARRAYS = {
    "conv_weight": RNG.normal(size=(2, 12)).astype(np.float32),
    "conv_bias": np.frombuffer(b"\\'\n\r\t\x00\xff\x80\"x\x7f ", np.float32),
    "norm_mean": np.float32([0.5, 1.5, 2.5]),
}
PATHS = dict(
    zip(("parameters/conv/weight", "parameters/conv/bias", "state/norm/running_mean"), ARRAYS.values(), strict=True)
)

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


def written(folder: Path, data: bytes) -> Path:
    path = folder / "net.pickle"
    path.write_bytes(data)
    return path


def contents(path: Path) -> dict[str, np.ndarray]:
    with singa_pickle.opened(path, None) as source:
        arrays = {entry: source.read(entry) for entry in source.specs}
        assert {entry: (array.shape, array.dtype) for entry, array in arrays.items()} == dict(source.specs)
    return arrays


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        assert found[path].dtype == array.dtype
        assert found[path].tobytes() == array.tobytes()


def test_of_python_2(tmp_path):
    same(contents(written(tmp_path, PYTHON_2)), {"parameters/ip/weight": np.float32([[1, -2]])})
    more = {"parameters/ip/bias": ARRAYS["conv_bias"], "parameters/f/weight": np.arange(6, dtype="f4").reshape(2, 3)}
    same(contents(written(tmp_path, PYTHON_2_MORE)), more)


@pytest.mark.parametrize("unicode_keys", [False, True])
@pytest.mark.parametrize("version", [None, 1101])
def test_of_python_2_with_any_bytes(tmp_path, version, unicode_keys):
    data = python2_pickle(ARRAYS, version, unicode_keys)
    truth = pickle.loads(data, encoding="iso-8859-1")
    assert truth.pop("SINGA_VERSION", None) == version
    same(truth, ARRAYS)
    same(contents(written(tmp_path, data)), PATHS)


@pytest.mark.parametrize("old_name", [False, True])
@pytest.mark.parametrize("protocol", range(5))
def test_of_python_3(tmp_path, protocol, old_name):
    fortran = {"f/weight": np.asfortranarray(ARRAYS["conv_weight"])}
    data = pickle.dumps({**ARRAYS, **fortran, "SINGA_VERSION": 3000}, protocol)
    if old_name:  # NumPy's before 2, a byte less
        data = data.replace(b"numpy._core", b"numpy.core").replace(b"\x8c\x16numpy", b"\x8c\x15numpy")
        data = data.replace(data[:11], data[:3] + (len(data) - 11).to_bytes(8, "little")) if protocol == 4 else data
    same(contents(written(tmp_path, data)), PATHS | {"parameters/f/weight": fortran["f/weight"]})


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<f2", "<i4", "|u1", "|b1"])
def test_every_dtype(tmp_path, dtype):
    array = RNG.integers(0, 2, (3, 5)).astype(dtype)
    native = array.astype(array.dtype.newbyteorder("="))
    same(contents(written(tmp_path, pickle.dumps({"a_bias": array}, 2))), {"parameters/a/bias": native})


@pytest.mark.parametrize("data", [pickle.dumps({}, protocol) for protocol in range(5)])
def test_none(tmp_path, data):
    assert contents(written(tmp_path, data)) == {}


class Reduced:
    """Pickles as a call of anything."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple:
        return self.call


def refused(folder: Path, data: bytes, message: str | None = None) -> None:
    """It is refused in our words, and nothing was imported or called for it."""
    with pytest.raises(SnapshotError, match=message) as caught:
        contents(written(folder, data))
    assert "net.pickle" in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not (folder / "called").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_calls_are_refused(tmp_path, protocol):
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
            refused(tmp_path, pickle.dumps(value, protocol))


PLAIN = pickle.dumps({"a_bias": np.float32([1, 2])}, 2)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"cos\nsystem\n(S'touch called'\ntR.", "received os.system"),
        (b"(S'touch called'\nios\nsystem\n.", "opcode"),
        (b"(cos\nsystem\nS'touch called'\no.", "received os.system"),
        (b"cnumpy\nndarray\n)\x81.", "opcode"),
        (b"cnumpy\nndarray\n)}\x92.", "opcode"),
        (b"cnumpy\nndarray\n((I99999999999\nttR.", "as NumPy writes it"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I99999999999\ntS'b'\ntR.", "as NumPy writes it"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.", "as NumPy writes it"),
        (b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.", "as NumPy writes it"),
        (b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR.", "as NumPy writes it"),
        (b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'<'\nNN(dI-1\nI-1\nI0\ntb.", "wanted a dtype of numbers"),
        (b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'?'\nNNNI-1\nI-1\nI0\ntb.", "wanted a dtype of numbers"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x06\x00\x00\x00rot_13tR.", "as NumPy writes it"),
        (b"c_codecs\ndecode\n.", "received _codecs.decode"),
        (b"c__builtin__\nbytes\n(I99999999999\ntR.", "as NumPy writes it"),
        (b"(dV\\ud800\nI2\ns.", "wanted a name"),
        (b"cnumpy\nndarray\n(dS'__setstate__'\ncos\nsystem\nsb.", "received os.system"),
        (b"Pid\n.", "opcode"),
        (b"Nq\x00Q.", "opcode"),
        (b"\x82\x01.", "opcode"),
        (b"\x83\x01\x00.", "opcode"),
        (b"\x84\x01\x00\x00\x00.", "opcode"),
        (b"(l.", "opcode"),
        (b"].", "opcode"),
        (b"F1.0\n.", "opcode"),
        (b"\x97.", "opcode"),
        (b"\x80\x05}.", "protocol"),
        (b"}\x80\x02.", "protocol"),
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff}.", "more bytes"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "more bytes"),
        (b"T\xff\xff\xff\xffabc.", "more bytes"),
        (b"\x8a\xff" + bytes(255) + b".", "at most 8 bytes"),
        (b"I" + b"9" * 5000 + b"\n.", "at most 64 bytes"),
        (b"I12x\n.", "an integer"),
        (b"I\xb2\n.", "an integer"),
        (b"g7\n.", "noted before"),
        (b"}R.", "a value on the stack"),
        (b"}NR.", "received one of dict"),
        (b"}Nb.", "received that of dict"),
        (b"t.", "a mark"),
        (b"(.", "a value on the stack"),
        (b"N}.", "a dictionary and no more, received dict"),
        (b"(d(d.", "one dictionary"),
        (b"}}.", "one dictionary"),
        (b"(I1\nI2\nt.", "a dictionary and no more, received tuple"),
        (b"}.more", "4 more bytes"),
        (b"(S'a'\nd.", "pairs"),
        (b"NNNs.", "received NoneType"),
        (b"(dI1\nI2\ns.", "wanted a name"),
        (b"(dS'a\nI2\ns.", "without its quotes"),
        (b"(dS'\\q'\nI2\ns.", "an escape"),
        (b"(dV\\uzz\nI2\ns.", "wanted a name"),
        (b"(dX\x01\x00\x00\x00\xffI2\ns.", "wanted a name"),
        (b"(dS'a'\nI2\nsS'a'\nI3\ns.", "one entry 'a', received two"),
        (b"(dS'a'\nI2\ns.", "wanted an array, received int"),
        (b"(dS'SINGA_VERSION'\nI01\ns.", "wanted an array, received bool"),
        (b"(dS'a'\nS'b'\ns.", "wanted an array, received Span"),
        (b"(dS'a'\ncnumpy\nndarray\ns.", "wanted an array, received Global"),
        (b"(dS'a'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntRs.", "wanted an array"),
        (PLAIN.replace(b"K\x02\x85", b"K\x03\x85"), "wanted 12 bytes for shape"),
        (PLAIN.replace(b"K\x02\x85", b"K\x01\x85"), "received 8 bytes"),
        (PLAIN.replace(b"K\x02\x85", b"J\xff\xff\xff\xff\x85"), "wanted a shape"),
        (PLAIN.replace(b"K\x02\x85", b"\x88\x85"), "wanted a shape"),
        (
            pickle.dumps({"a": np.zeros((0, 2, 3), "f4")}, 0).replace(b"I2\n", b"I9" + b"9" * 18 + b"\n"),
            "wanted a shape",
        ),
        (PLAIN.replace(b"\x00\xc2\x80", b"\xe2\x82\xac"), "a character that is no byte"),
        (python2_pickle(ARRAYS).replace(b"I00\nS'", b"I00\nV'"), "it is a text"),
        (pickle.dumps({"a": np.array([{}, None])}, 2), "as NumPy writes it"),
        (pickle.dumps({"a": np.zeros(2, "S3")}, 2), "as NumPy writes it"),
        (pickle.dumps({"a": np.zeros(2, [("x", "f4")])}, 2), "as NumPy writes it"),
        (pickle.dumps({"a": np.float32(1)}, 2), "multiarray.scalar"),
        (pickle.dumps({"a": [1.0]}, 2), "opcode"),
        (pickle.dumps({"a": np.ones(3)}, 5), "protocol"),
        (pickle.dumps([np.ones(3)], 2), "opcode"),
        (b"", "file's end"),
        (b"sg\x01\x00", "opcode|noted|stack"),
        (b"(" * 5000, "on the stack"),
        (b"N" * 5000, "on the stack"),
        (b"(dp0\n" + b"g0\n" * 5000, "on the stack"),
    ],
)
def test_hostile_ones_are_refused(tmp_path, data, message):
    refused(tmp_path, data, message)


def test_extension_codes_are_refused(tmp_path):
    copyreg.add_extension("numpy", "ndarray", 240)
    try:
        refused(tmp_path, pickle.dumps({"a": np.ndarray}, 2), "opcode")
    finally:
        copyreg.remove_extension("numpy", "ndarray", 240)


def test_persistent_ids_are_refused(tmp_path):
    class Persistent(pickle.Pickler):
        def persistent_id(self, given):
            return "id" if isinstance(given, np.ndarray) else None

    for protocol in range(5):
        out = io.BytesIO()
        Persistent(out, protocol).dump({"a": np.ones(2)})
        refused(tmp_path, out.getvalue(), "opcode")


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_without_numbers(tmp_path, protocol):
    """Python 3 has no bytes that it could write for Python 2, but for none: there it writes a call of `bytes`."""
    arrays = {"a_weight": np.zeros((0, 3), np.float32), "b_weight": np.zeros((2, 0), np.float32), **ARRAYS}
    wanted = {"parameters/a/weight": arrays["a_weight"], "parameters/b/weight": arrays["b_weight"], **PATHS}
    same(contents(written(tmp_path, pickle.dumps(arrays, protocol))), wanted)


def test_one_array_twice_is_refused(tmp_path):
    array = np.ones(1000, np.float32)
    refused(tmp_path, pickle.dumps({"a": array, "b": array}, 2), "numbers of its own")


def test_tuples_of_tuples_cost_nothing(tmp_path):
    doubled = b"(I1\nt" + b"q\x00h\x00\x86" * 60
    refused(tmp_path, b"\x80\x02" + doubled + b".", "received tuple")
    refused(tmp_path, b"\x80\x02}" + doubled + b"I1\ns.", "wanted a name")
    refused(tmp_path, b"\x80\x02cnumpy\ndtype\n" + doubled + b"R.", "as NumPy writes it")


def test_a_pickle_of_nothing_but_opcodes(tmp_path, monkeypatch):
    for data in (b")" + b"\x85" * (1 << 19), b"}" + b"\x94" * (1 << 19)):
        path = written(tmp_path, data)
        tracemalloc.start()
        try:
            monkeypatch.setattr(singa_opcodes, "_MOST_OPCODES", 1 << 15)
            refused(tmp_path, path.read_bytes(), "at most 32768 opcodes")
            assert tracemalloc.get_traced_memory()[1] < 8 << 20  # a megabyte is the test's own
        finally:
            tracemalloc.stop()


def test_the_real_limit_holds_the_largest_nets():
    arrays = {f"layer{n}/weight": np.ones(1, np.float32) for n in range(5000)}
    counts = [sum(1 for _ in pickletools.genops(pickle.dumps(arrays, protocol))) for protocol in range(5)]
    assert max(counts) < singa_opcodes._MOST_OPCODES


@pytest.mark.parametrize("data", [python2_pickle(ARRAYS, 1101), *(pickle.dumps(ARRAYS, n) for n in range(5))])
def test_cut_at_every_length(tmp_path, data):
    for length in range(len(data)):
        refused(tmp_path, data[:length])


@pytest.mark.parametrize("data", [python2_pickle(ARRAYS, 1101), *(pickle.dumps(ARRAYS, n) for n in range(5))])
def test_any_byte_changed(tmp_path, data):
    rng = np.random.default_rng(0)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        try:
            found = contents(written(tmp_path, bytes(changed)))
        except SnapshotError as error:
            assert "net.pickle" in str(error)
        else:
            assert sum(array.nbytes for array in found.values()) <= len(data)


@pytest.mark.parametrize("protocol", ["python 2", 0, 1, 2, 3, 4])
@pytest.mark.parametrize("byte", [0x41, 0x00, 0xFF, 0x5C])
def test_memory_stays_within_twice_the_file(tmp_path, protocol, byte):
    array = np.full(100_000, byte, np.uint8).view(np.float32)
    data = python2_pickle({"a": array}) if protocol == "python 2" else pickle.dumps({"a": array}, protocol)
    path = written(tmp_path, data)
    contents(path)  # what is made once
    tracemalloc.start()
    try:
        contents(path)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data) + (1 << 18)
    finally:
        tracemalloc.stop()


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        contents(tmp_path / "net.pkl")
