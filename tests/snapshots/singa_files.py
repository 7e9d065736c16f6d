"""What SINGA's versions would write, built from the layout of their files alone; nothing of the package is used."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

#: {version: how it writes a TensorProto}.
FLAVOURS = ("1.0.0", "1.1.1", "1.2.0")

KINDS = {"float32": (0, 4, "<f4"), "int32": (2, 6, "<i4"), "float64": (4, 5, "<f8")}


#: What SINGA calls entries of a layer: until 3.0, and since 3.1; the others are as ours.
SUFFIXES = {"running_mean": "mean", "running_var": "var"}
DOTTED = {"weight": "W", "bias": "b", "gamma": "scale", "beta": "bias"}


def of_tree(arrays: Mapping[str, np.ndarray], mark: str) -> dict[str, np.ndarray]:
    """Parameters and running statistics by SINGA's names. mark: "_" of old, "/" of 1.1.1 to 3.0, "." since 3.1."""
    found = {}
    for path, array in arrays.items():
        branch, layer, name = path.split("/", 2)
        if branch in ("parameters", "state") and array.dtype.kind == "f":
            suffix = (DOTTED if mark == "." else SUFFIXES).get(name, name)
            flat = array.ndim > 2 and mark != "."
            found[f"{layer}{mark}{suffix}"] = array.reshape(len(array), -1) if flat else array
    return found


def varint(number: int) -> bytes:
    """Seven bits a byte; negative ones as 64 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def tensor_proto(array: np.ndarray, flavour: str, layout: list[int] | None = None) -> bytes:
    """The message of an array. layout: values of field 3, if not those of an array in C order."""
    kind, field, code = KINDS[array.dtype.name]
    if layout is None:
        strides = [int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim)]
        layout = strides if flavour == "1.2.0" else [0]
    head = b"".join(b"\x08" + varint(extent) for extent in array.shape)
    head += b"\x10" + varint(kind) + b"".join(b"\x18" + varint(one) for one in layout)
    if kind == 2:
        numbers = [varint(int(number)) for number in array.reshape(-1)]
    else:
        numbers = [number.astype(code).tobytes() for number in array.reshape(-1)]
    if flavour == "1.0.0":
        wire = {4: 5, 5: 1, 6: 0}[field]
        return head + b"".join(bytes([field << 3 | wire]) + number for number in numbers)
    data = b"".join(numbers)
    return head + bytes([field << 3 | 2]) + varint(len(data)) + data


def record(key: str | bytes, value: bytes) -> bytes:
    """One of a .bin."""
    name = key.encode() if isinstance(key, str) else key
    return b"sg\x01\x00" + struct.pack("<Q", len(name)) + name + struct.pack("<Q", len(value)) + value


def native(arrays: Mapping[str, np.ndarray], flavour: str, version: int | None = None) -> bytes:
    """A .bin. version: of the record that 2.0.0 and later write first."""
    stamp = b"" if version is None else record("SINGA_VERSION", tensor_proto(np.array([version], np.int32), flavour))
    return stamp + b"".join(record(key, tensor_proto(array, flavour)) for key, array in arrays.items())


def described(arrays: Mapping[str, np.ndarray], first: str | None) -> str:
    """A .desc. first: its first line, as "1101" or "SINGA VERSION: 1200"; None in 1.0.0."""
    lines = [] if first is None else [first]
    for key, array in arrays.items():
        shape = "".join(f" {extent}" for extent in array.shape)
        kind = KINDS[array.dtype.name][0]
        lines.append(f"parameter name: {key}\tdata type: {kind}\tdim: {array.ndim}\tshape:{shape}")
    return "".join(f"{line}\n" for line in lines)


def python2_string(data: bytes) -> bytes:
    """Python 2's repr of a str."""
    escapes = {0x5C: "\\\\", 0x27: "\\'", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
    inside = "".join(escapes.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in data)
    return b"'" + inside.encode() + b"'"


def python2_pickle(arrays: Mapping[str, np.ndarray], version: int | None = None, unicode_keys: bool = False) -> bytes:
    """What cPickle of Python 2 writes in protocol 0, with the memo's numbers in order."""
    memo = iter(range(1, 1 << 20))

    def put() -> bytes:
        return b"p%d\n" % next(memo)

    def string(data: bytes) -> bytes:
        return b"S" + python2_string(data) + b"\n" + put()

    out = b"(d" + put()
    if version is not None:
        out += string(b"SINGA_VERSION") + b"I%d\ns" % version
    for key, array in arrays.items():
        out += b"V" + key.encode("raw-unicode-escape") + b"\n" + put() if unicode_keys else string(key.encode())
        code, shape = array.dtype.str.encode(), b"".join(b"I%d\n" % extent for extent in array.shape)
        out += b"cnumpy.core.multiarray\n_reconstruct\n" + put()
        out += b"(cnumpy\nndarray\n" + put() + b"(I0\nt" + put() + string(b"b") + b"t" + put() + b"R" + put()
        out += b"(I1\n(" + shape + b"t" + put()
        out += b"cnumpy\ndtype\n" + put() + b"(" + string(code[1:]) + b"I0\nI1\nt" + put() + b"R" + put()
        out += b"(I3\n" + string(code[:1]) + b"NNNI-1\nI-1\nI0\nt" + put() + b"bI00\n"
        out += string(array.tobytes()) + b"t" + put() + b"bs"
    return out + b"."


def states_zip(
    arrays: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray] | None = None, **changed: Mapping[str, Any]
) -> bytes:
    """What `Model.save_states` of 3.1 and later writes. own: its `aux_states`; changed: attributes by name."""
    kinds = {"float32": 0, "float16": 1, "int32": 2}
    attributes = {
        name: {"state_type": state, "shape": array.shape, "dtype": kinds[array.dtype.name]}
        for state, some in ((0, arrays), (1, own or {}))
        for name, array in some.items()
    }
    npz = io.BytesIO()
    np.savez(npz, **{**arrays, **(own or {})})
    return zipped(
        {"tensor_dict.npz": npz.getvalue(), "states_attr.json": json.dumps({**attributes, **changed}).encode()}
    )


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive, deflated or stored."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()
