"""SINGA's pickles: of Python 2 and 3, every protocol; hostile ones, damaged ones, and what they may cost."""

from __future__ import annotations

import builtins
import os
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import singa_reads
from every_row import over_rows
from nets import all_bits
from singa_files import python2_pickle
from singa_lite.snapshots.readers.pickle import opcodes as singa_opcodes
from singa_reads import contents, peak, same

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


written = partial(singa_reads.written, name="net.pickle")


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
    assert all_bits(truth) == all_bits(ARRAYS)
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


class Reduced:
    """Pickles as a call of anything."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple:
        return self.call


def refused(folder: Path, data: bytes, words: str = "") -> None:
    """It is refused in our words, and nothing was imported or called for it."""
    singa_reads.refused(written(folder, data), words)
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
SHARED = np.ones(1000, np.float32)
#: A tuple of two tuples of two and so on, 60 deep.
DOUBLED = b"(I1\nt" + b"q\x00h\x00\x86" * 60

#: {words of the error: files}.
HOSTILE = {
    "received os.system": [
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
    "as NumPy writes it": [
        b"cnumpy\nndarray\n((I99999999999\nttR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I99999999999\ntS'b'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.",
        b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x06\x00\x00\x00rot_13tR.",
        b"c__builtin__\nbytes\n(I99999999999\ntR.",
        b"\x80\x02cnumpy\ndtype\n" + DOUBLED + b"R.",
        pickle.dumps({"a": np.array([{}, None])}, 2),
        pickle.dumps({"a": np.zeros(2, "S3")}, 2),
        pickle.dumps({"a": np.zeros(2, [("x", "f4")])}, 2),
    ],
    "a dtype of numbers": [
        b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'<'\nNN(dI-1\nI-1\nI0\ntb.",
        b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'?'\nNNNI-1\nI-1\nI0\ntb.",
    ],
    "multiarray.scalar": [pickle.dumps({"a": np.float32(1)}, 2)],
    "protocol": [b"\x80\x05}.", b"}\x80\x02.", pickle.dumps({"a": np.ones(3)}, 5)],
    "more bytes": [
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff}.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"T\xff\xff\xff\xffabc.",
        b"}.more",
    ],
    "at most": [b"\x8a\xff" + bytes(255) + b".", b"I" + b"9" * 5000 + b"\n."],
    "stack": [b"}R.", b"(.", b"(" * 5000, b"N" * 5000, b"(dp0\n" + b"g0\n" * 5000],
    "received": [
        b"g7\n.",
        b"}NR.",
        b"}Nb.",
        b"t.",
        b"(S'a'\nd.",
        b"NNNs.",
        b"(I1\nI2\nt.",
        b"\x80\x02" + DOUBLED + b".",
    ],
    "dictionary": [b"N}.", b"(d(d.", b"}}."],
    "a name": [
        b"(dV\\ud800\nI2\ns.",
        b"(dI1\nI2\ns.",
        b"(dV\\uzz\nI2\ns.",
        b"(dX\x01\x00\x00\x00\xffI2\ns.",
        b"\x80\x02}" + DOUBLED + b"I1\ns.",
    ],
    "'a', received two": [b"(dS'a'\nI2\nsS'a'\nI3\ns."],
    "an array": [
        b"(dS'a'\nI2\ns.",
        b"(dS'SINGA_VERSION'\nI01\ns.",
        b"(dS'a'\ncnumpy\nndarray\ns.",
        b"(dS'a'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntRs.",
    ],
    "bytes": [PLAIN.replace(b"K\x02\x85", b"K\x03\x85"), PLAIN.replace(b"K\x02\x85", b"K\x01\x85")],
    "a shape": [
        PLAIN.replace(b"K\x02\x85", b"J\xff\xff\xff\xff\x85"),
        PLAIN.replace(b"K\x02\x85", b"\x88\x85"),
        pickle.dumps({"a": np.zeros((0, 2, 3), "f4")}, 0).replace(b"I2\n", b"I9" + b"9" * 18 + b"\n"),
    ],
    "numbers of its own": [pickle.dumps({"a": SHARED, "b": SHARED}, 2)],
    "file's end": [b""],
}


def test_hostile_ones_are_refused(tmp_path):
    rows = [(repr(data[:60]), (tmp_path, data, words)) for words, files in HOSTILE.items() for data in files]
    over_rows(refused, rows)


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_without_numbers(tmp_path, protocol):
    """Python 3 has no bytes that it could write for Python 2, but for none: there it writes a call of `bytes`."""
    arrays = {"a_weight": np.zeros((0, 3), np.float32), "b_weight": np.zeros((2, 0), np.float32), **ARRAYS}
    wanted = {"parameters/a/weight": arrays["a_weight"], "parameters/b/weight": arrays["b_weight"], **PATHS}
    same(contents(written(tmp_path, pickle.dumps(arrays, protocol))), wanted)
    assert contents(written(tmp_path, pickle.dumps({}, protocol))) == {}


def test_a_pickle_of_nothing_but_opcodes(tmp_path, monkeypatch):
    assert singa_opcodes._MOST_OPCODES > 5000 * 50, "nets of 5000 parameters have as many opcodes"
    monkeypatch.setattr(singa_opcodes, "_MOST_OPCODES", 1 << 15)
    for data in (b")" + b"\x85" * (1 << 17), b"}" + b"\x94" * (1 << 17)):
        assert peak(lambda data=data: refused(tmp_path, data, "32768 opcodes")) < 8 << 20


@pytest.mark.parametrize("protocol", ["python 2", 0, 1, 2, 3, 4])
def test_memory_stays_within_twice_the_file(tmp_path, protocol):
    for byte in (0x41, 0x00, 0xFF, 0x5C):
        array = np.full(100_000, byte, np.uint8).view(np.float32)
        data = python2_pickle({"a": array}) if protocol == "python 2" else pickle.dumps({"a": array}, protocol)
        path = written(tmp_path, data)
        contents(path)  # what is made once
        assert peak(lambda path=path: contents(path)) < 2 * len(data) + (1 << 18), byte
