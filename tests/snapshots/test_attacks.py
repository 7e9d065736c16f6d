"""Attacks with a name: an error names file and culprit, little memory is taken, and no other file is opened.

What nobody thought of is in `test_hostile_files`.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import pytest

from damages import inside, put
from format_cases import CASES
from singa_files import zipped
from singa_lite import SnapshotError
from singa_lite.errors import SnapshotVersionError
from singa_lite.snapshots import formats
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.hdf5 import guarded
from snapshot_nets import peak_of
from test_hostile_files import bounded

Make = Callable[[], bytes]


def everything(path: Path) -> dict[str, Any]:
    with formats.opened(path) as source:
        return {name: source.read(name) for name in source.specs}


def parts(path: Path) -> None:
    """All arrays of an HDF5 file of anybody's."""
    with guarded.opened(path) as file:
        for name in file.datasets:
            file.read(name)


# ---- zip archives


def npy(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


archive = partial(zipped, method=zipfile.ZIP_STORED)


def bomb(count: int, size: int) -> bytes:
    return zipped({f"{number}.npy": npy(np.zeros(size)) for number in range(count)})


ZEROS = npy(np.zeros(100))
ONE, TWO = archive({"a.npy": ZEROS}), archive({"a.npy": ZEROS, "b.npy": ZEROS})


def changed(*changes: tuple[int | str, str, int], data: bytes = ONE) -> bytes:
    """An archive with other numbers: (place, form, value); a place may be in the list or in the end record."""
    content = bytearray(data)
    for at, form, value in changes:
        if isinstance(at, str):
            record, _, more = at.partition("+")
            at = data.index(b"PK\1\2" if record == "list" else b"PK\5\6") + int(more)
        struct.pack_into("<" + form, content, at, value)
    return bytes(content)


def deflated(packed: bytes, size: int = len(ZEROS), crc: int = zlib.crc32(ZEROS)) -> bytes:
    """An archive of one member with these packed bytes."""
    sizes, name = (crc, len(packed), size, 5), b"a.npy"
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 33, *sizes, 0) + name
    listed = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 8, 0, 33, *sizes, 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(listed), len(local) + len(packed), 0)
    return local + packed + listed + end


def packed(data: bytes, how: int = zlib.Z_FINISH) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(how)


def wide(**changes: int) -> bytes:
    """An archive whose sizes are of 64 bits, as `zipfile` writes them of large files. changes: other numbers."""
    size, top = len(ZEROS), 0xFFFFFFFF
    told = {"size": size, "local size": size, "at": 0, "count": 1, "list size": 79, "list at": 55 + size} | changes
    crc = zlib.crc32(ZEROS)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 45, 0, 0, 0, 33, crc, top, top, 5, 20) + b"a.npy"
    local += struct.pack("<2H2Q", 1, 16, told["local size"], size)
    listed = struct.pack("<4s6H3L5H2L", b"PK\1\2", 45, 45, 0, 0, 0, 33, crc, top, top, 5, 28, 0, 0, 0, 0, top)
    listed += b"a.npy" + struct.pack("<2H3Q", 1, 24, told["size"], size, told["at"])
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, told["count"], 1, told["list size"], told["list at"])
    end += struct.pack("<4sLQL", b"PK\6\7", 0, len(local) + size + len(listed), 1)
    return local + ZEROS + listed + end + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, top, top, 0)


def crowded_list(count: int) -> bytes:
    """An archive whose list has so many members, of which the end record says one."""
    local, listed, end = ONE[:-73], ONE[-73:-22], bytearray(ONE[-22:])
    struct.pack_into("<L", end, 12, count * len(listed))
    return local + listed * count + end


ELSEWHERE = ("../a.npy", "a/../b.npy", "/a.npy", "a//b.npy", "./a.npy", "C:/a.npy", "a\\b.npy", "a\nb.npy", "a/", "a")

ZIPS: dict[str, tuple[Make, str]] = {
    **{f"a path {name!r}": (lambda n=name: archive({n: ZEROS}), repr(name)) for name in ELSEWHERE},
    "no name in UTF-8": (lambda: archive({"é.npy": ZEROS}).replace("é".encode(), b"\xff\xfe"), "utf-8"),
    "a zip bomb": (lambda: bomb(1, 8_000_000), "numpy.savez"),
    "a zip bomb of many members": (lambda: bomb(300, 30_000), "numpy.savez"),
    "a member twice": (lambda: TWO.replace(b"b.npy", b"a.npy"), "'a.npy'"),
    "two members of the same bytes": (lambda: changed(("list+93", "I", 0), data=TWO), "received 0"),
    "a size of 4 GiB": (lambda: changed(("list+20", "L", 2**32 - 1)), "'a.npy'"),
    "a stored member of two sizes": (lambda: changed((22, "L", 2**30), ("list+24", "L", 2**30)), "'a.npy'"),
    "a size of the list alone": (lambda: changed(("list+24", "L", 5)), "'a.npy'"),
    "a name of the list alone": (lambda: changed(("list+46", "B", 98)), "of the same name"),
    "bytes of another CRC-32": (lambda: changed((14, "L", 8), ("list+16", "L", 8)), "'a.npy'"),
    "an encrypted member": (lambda: changed((6, "H", 1), ("list+8", "H", 1)), "'a.npy'"),
    "bytes of another packer": (lambda: changed((8, "H", 12), ("list+10", "H", 12)), "'a.npy'"),
    "a comment": (lambda: changed(("end+20", "H", 1)), "comment"),
    "a second disk": (lambda: changed(("end+4", "H", 1)), "one archive"),
    "a member on a second disk": (lambda: changed(("list+34", "H", 1)), "on one disk"),
    "more members than there are": (lambda: changed(("end+8", "L", 0x20002)), "wanted 2 members"),
    "a list longer than its count": (lambda: crowded_list(100_000), "the list of members"),
    "a list beyond the end": (lambda: changed(("end+16", "L", 2**32 - 1)), "'a.npy'"),
    "bytes before it": (lambda: b"x" + ONE, "received 1"),
    "bytes behind it": (lambda: ONE + b"x", "the end record"),
    "64 bits: a member beyond the end": (lambda: wide(size=1 << 62), "'a.npy'"),
    "64 bits: a member of two sizes": (lambda: wide(**{"local size": 1 << 62}), "'a.npy'"),
    "64 bits: a member that begins elsewhere": (lambda: wide(at=1), "received 1"),
    "64 bits: a list beyond the end": (lambda: wide(**{"list at": 1 << 60}), "'a.npy'"),
    "64 bits: another list for old readers": (lambda: changed(("end+16", "L", 5), data=wide()), "no other bytes"),
    "deflated bytes that are too few": (lambda: deflated(packed(ZEROS[:900], zlib.Z_SYNC_FLUSH)), "'a.npy'"),
    "deflated bytes that are none": (lambda: deflated(b"\xff" * 50), "'a.npy'"),
    "deflated bytes of another size": (lambda: deflated(packed(ZEROS), 5000), "928"),
}

#: Archives that say something needless or untrue which no reader goes by.
HARMLESS: tuple[Make, ...] = (
    lambda: changed(("end+8", "L", 0xFFFFFFFF)),
    lambda: wide(count=2),
    lambda: deflated(packed(ZEROS + b"more")),
    lambda: deflated(packed(ZEROS, zlib.Z_SYNC_FLUSH)),
    lambda: deflated(packed(ZEROS) + b"x"),
)

# ---- arrays of NumPy in an archive


def head(descr: str = "'<f8'", order: str = "False", shape: str = "(1,)", version: bytes = b"\1\0") -> bytes:
    """A .npy file of 8 zeros with this in its header."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode() + bytes(8)


NPY: dict[str, Make] = {
    "an array of pickles": lambda: npy(np.array([{"a": 1}, None], object)),
    "code in a header": lambda: head(order="__import__('os').system('false')"),
    "a dtype of objects": lambda: head("'|O'"),
    "a dtype of records": lambda: head("[('a', '<f8')]"),
    "texts": lambda: npy(np.array(["text"])),
    "a header of another version": lambda: npy(np.zeros(2), version=(3, 0)),
    "an unknown version": lambda: head(version=b"\7\0"),
    "a header of brackets": lambda: b"\x93NUMPY\1\0" + struct.pack("<H", 2001) + b"(" * 2000 + b"\n",
    "a shape that is computed": lambda: head(shape="(10**9,)"),
    "a negative extent": lambda: head(shape="(-1,)"),
    "a shape that overflows": lambda: head(shape="(9223372036854775807, 9223372036854775807, 2)"),
    "a shape that wraps around to the bytes": lambda: head(shape="(4611686018427387905, 4)"),
    "an extent of 5000 digits": lambda: head(shape=f"({'9' * 5000},)"),
    "an empty array that overflows": lambda: head(shape="(0, 99999999999999999999999)")[:-8],
    "an empty array of two overflowing extents": lambda: head(shape=f"(0, {2**63 - 1}, {2**63 - 1})")[:-8],
    "seventy axes": lambda: head(shape=f"({'1, ' * 70})"),
    "more bytes than there are": lambda: head(shape="(2,)"),
    "a bool of 2": lambda: npy(np.array([True]))[:-1] + b"\2",
}

# ---- safetensors

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def tensors(header: bytes | dict[str, Any], size: int = 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


def one(size: int = 8, **changes: Any) -> Make:
    return lambda: tensors({"x": F32 | changes}, size)


def two(first: list[int], second: list[int]) -> Make:
    given = {"x": F32 | {"data_offsets": first}, "y": F32 | {"data_offsets": second}}
    return lambda: tensors(given, max(*first, *second))


HUGE = 1 << 62
TENSORS: dict[str, tuple[Make, str]] = {
    "a header's length that overflows": (lambda: b"\xff" * 8 + b"{}", "18446744073709551615"),
    "a header longer than the file": (lambda: b"\3" + bytes(7) + b"{}", "received one of 3"),
    "a header longer than the format allows": (
        lambda: (100_000_001).to_bytes(8, "little") + b"{" * 100_000_001,
        "100000001",
    ),
    "a header of deep nesting": (lambda: tensors(b'{"x":' * 40_000), "the header"),
    "a header of many values": (lambda: tensors(b'{"x":[' + b"[]," * 10**6 + b"[]]}"), "the header"),
    "a header that is no UTF-8": (lambda: tensors(b'{"\xff":{}}'), "the header"),
    "two texts of JSON": (lambda: tensors(b"{} {}"), "the header"),
    "a key twice": (lambda: tensors(b'{"x":%b,"x":%b}' % ((json.dumps(F32).encode(),) * 2)), "'x'"),
    "a name that is no Unicode": (lambda: tensors({"a\ud800.w": F32}), "Unicode"),
    "an unknown dtype": (one(dtype="F31"), "F31"),
    "a negative extent": (one(shape=[-2]), "-2"),
    "an extent that is true": (one(shape=[True, 2]), "True"),
    "a shape that overflows": (one(shape=[HUGE, HUGE]), "2**63"),
    "an empty array that overflows": (one(0, shape=[0, 1 << 40, 1 << 40], data_offsets=[0, 0]), "'x'"),
    "offsets the wrong way round": (one(data_offsets=[8, 0]), "[8, 0]"),
    "offsets far away": (one(data_offsets=[HUGE, HUGE + 8]), "'x'"),
    "arrays that overlap": (two([0, 8], [4, 12]), "overlaps"),
    "two arrays of the same bytes": (two([0, 8], [0, 8]), "overlaps"),
    "a hole": (two([0, 8], [12, 20]), "hole"),
    "bytes behind the arrays": (one(9), "received 9"),
    "metadata that is no text": (lambda: tensors(b'{"__metadata__":{"a":1}}', 0), "__metadata__"),
    "a bool of 2": (lambda: tensors({"x": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}, 0) + b"\2", "bool"),
}

# ---- HDF5


def hdf5(act: Callable[[h5py.File], Any] = lambda file: None, **options: Any) -> bytes:
    """A file as version 1 has them, to which something is done."""
    out = io.BytesIO()
    with h5py.File(out, "w", **options) as file:
        for name in ("array", "other"):
            file[f"group/{name}"] = np.arange(7, dtype="f4")
        file.attrs.update({"format": "singa_lite", "version": 1, "entries": 2, "step": 0})
        act(file)
    return out.getvalue()


def having(entry: Any, name: str = "odd") -> Make:
    """With an entry: an array, a link, a type, or another name of what is in the file."""
    return lambda: hdf5(lambda file: file.__setitem__(name, file[entry] if isinstance(entry, str) else entry))


def dataset(**options: Any) -> Make:
    return lambda: hdf5(lambda file: file.create_dataset("odd", **options))


def compact(file: h5py.File) -> None:
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, b"odd", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3,)), how)


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = h5py.VirtualSource("secret.h5", "array", (3,))
    file.create_virtual_dataset("odd", layout)


def dig(file: h5py.File) -> None:
    group = file
    for _ in range(1100):
        group = group.create_group("g")


def attributes(place: str, count: int) -> Make:
    return lambda: hdf5(lambda file: [file[place].attrs.create(f"a{number}", number) for number in range(count)])


def array_at(address: int, size: int = 28, shape: int = 7) -> bytes:
    """The first array's address, its bytes and its shape are others."""
    whole = bytearray(hdf5())
    at = whole.index(struct.pack("<Q", 28), whole.index(b"\x03\x01")) - 8
    struct.pack_into("<QQ", whole, at, address or struct.unpack_from("<Q", whole, at)[0], size)
    return bytes(whole).replace(struct.pack("<QQ", 7, 7), struct.pack("<QQ", shape, shape), 1)


def over_another(shift: int) -> bytes:
    """The first array lies so many bytes behind the second one's beginning."""
    whole, size = hdf5(), struct.pack("<Q", 28)
    second = whole.index(size, whole.index(size, whole.index(b"\x03\x01")) + 8) - 8
    return array_at(struct.unpack_from("<Q", whole, second)[0] + shift)


def tree_in_itself() -> bytes:
    whole = bytearray(hdf5())
    tree = whole.index(b"TREE")
    whole[tree + 5] = 1
    struct.pack_into("<Q", whole, tree + 32, tree)
    return bytes(whole)


def crowded(count: int, names: bytes | None = None, step: int = 8) -> bytes:
    """A file whose root has so many groups, each of 64 bytes in all: an empty header, a name, a place in a list.

    names: the heap; step: bytes from the beginning of a name to that of the next.
    """
    nowhere = 2**64 - 1
    headers = b"".join(struct.pack("<BxHII4x", 1, 0, 1, 0) for _ in range(count))
    names = b"".join(b"%07d\0" % number for number in range(count)) if names is None else names
    body, lists = bytearray(96) + headers, []
    for first in range(0, count, 60000):
        part = range(first, min(first + 60000, count))
        lists.append(len(body))
        body += b"SNOD\1\0" + struct.pack("<H", len(part))
        body += b"".join(struct.pack("<QQQQQ", step * n, 96 + 16 * n, 0, 0, 0) for n in part)
    heap = len(body)
    body += b"HEAP" + struct.pack("<4xQQQ", len(names), 0, heap + 32) + names
    tree = len(body)
    body += b"TREE" + struct.pack("<BBHQQ", 0, 0, len(lists), nowhere, nowhere)
    body += b"".join(struct.pack("<QQ", 0, at) for at in lists)
    root = len(body)
    body += struct.pack("<BxHII4xHHB3xQQ", 1, 1, 1, 24, 17, 16, 0, tree, heap)
    sizes = (8, 8, 0, 4, 16, 0, 0, nowhere, len(body), nowhere, 0, root)
    struct.pack_into("<8s5xBBBHHIQQQQQQ", body, 0, b"\x89HDF\r\n\x1a\n", *sizes)
    return bytes(body)


def nested() -> bytes:
    """Each array has the long names of fifty groups around it in its path."""
    out = io.BytesIO()
    with h5py.File(out, "w", libver="earliest") as file:
        inner = file.create_group("/".join(["x" * 3000] * 50))
        for number in range(1000):
            inner[f"{number}"] = np.zeros(0, "f4")
    return out.getvalue()


def one_long_name() -> bytes:
    """The names of all layers in one place of Keras's file, where h5py writes a text for each."""
    out, length = io.BytesIO(), 60_000
    with h5py.File(out, "w", libver="earliest") as file:
        for number in range(800):
            group = file.create_group(f"layers/dense_{number}/vars" if number else "layers/dense/vars")
            group.attrs["name"] = "short" if number else "long".ljust(length, "x")
            group["0"] = np.zeros((1, 1), "f4")
    whole = bytearray(out.getvalue())
    text = whole.index(b"longxxx")
    place = struct.pack("<IQI", length, whole.rindex(b"GCOL", 0, text), *struct.unpack_from("<H", whole, text - 16))
    at = whole.find(struct.pack("<I", 5))
    while at >= 0:
        (heap,) = struct.unpack_from("<Q", whole, at + 4)
        if whole[heap : heap + 4] == b"GCOL":
            whole[at : at + 16] = place
        at = whole.find(struct.pack("<I", 5), at + 1)
    return bytes(whole)


HDF5: dict[str, tuple[Make, str]] = {
    "a soft link": (having(h5py.SoftLink("/group/array")), "'odd'"),
    "a soft link to itself": (having(h5py.SoftLink("odd")), "'odd'"),
    "a soft link to the root": (having(h5py.SoftLink("/"), "group/odd"), "'group/odd'"),
    "an external link": (having(h5py.ExternalLink("secret.h5", "/array")), "link"),
    "an external link in a group": (having(h5py.ExternalLink("secret.h5", "/"), "group/odd"), "'group'"),
    "two names of an array": (having("group/array"), "two parts"),
    "two names of a group": (having("group"), "two parts"),
    "a group in itself": (having("group", "group/odd"), "'group/odd'"),
    "data in another file": (dataset(shape=(3,), dtype="f4", external=[("secret.bin", 0, 12)]), "'odd'"),
    "data of the system": (dataset(shape=(9,), dtype="u1", external=[("/etc/hostname", 0, 9)]), "'odd'"),
    "virtual data": (lambda: hdf5(virtual), "odd"),
    "chunks": (dataset(data=np.ones((4, 4)), chunks=(2, 2)), "'odd'"),
    "a bomb": (dataset(data=np.zeros(2**22, "f4"), compression="gzip"), "compress"),
    "checksums": (dataset(data=np.ones(99), fletcher32=True), "'odd'"),
    "data that grows": (dataset(data=np.ones(3), maxshape=(None,)), "'odd'"),
    "4 TiB that were never written": (dataset(shape=(2**40,), dtype="f4"), "4398046511104"),
    "data in a header": (lambda: hdf5(compact), "'odd'"),
    "an array without data": (dataset(data=h5py.Empty("f4")), "'odd'"),
    "a type": (having(np.dtype("f4")), "'odd'"),
    **{
        f"an array of {np.dtype(kind)}": (dataset(shape=(1,), dtype=kind), "'odd'")
        for kind in ("V7", "c8", "S3", "g", [("a", "f4")], h5py.vlen_dtype("f4"), h5py.ref_dtype, h5py.regionref_dtype)
    },
    "an enumeration": (dataset(shape=(1,), dtype=h5py.enum_dtype({"A": 1})), "'odd'"),
    "an array of arrays": (dataset(shape=(2,), dtype=np.dtype(("f4", (3,)))), "'odd'"),
    "groups 1100 deep": (lambda: hdf5(dig), "1024"),
    "a name that is no Unicode": (lambda: hdf5(lambda file: file.create_dataset(b"\xff\xfe", data=1.0)), "utf-8"),
    "many attributes": (attributes("/", 65), "64 attributes"),
    "many attributes of a group": (attributes("group", 3000), "'group'"),
    "a list for an attribute": (lambda: hdf5(lambda file: file.attrs.create("format", ["x", "y"])), "'format'"),
    "a long text for an attribute": (
        lambda: hdf5(lambda file: file.attrs.create("optimizer", "x" * 70000)),
        "'optimizer'",
    ),
    "an infinite step": (lambda: hdf5(lambda file: file.attrs.create("step", np.inf)), "'step'"),
    "the order of making": (lambda: hdf5(lambda file: file.create_group("odd", track_order=True)), "'odd'"),
    "the latest version": (lambda: hdf5(libver="latest"), "HDF5"),
    "a block before it": (lambda: hdf5(userblock_size=512), "HDF5"),
    "data over the head": (lambda: array_at(96), "two parts"),
    "arrays that overlap": (lambda: over_another(4), "two parts"),
    "arrays that overlap the other way": (lambda: over_another(-24), "two parts"),
    "data beyond the end": (lambda: array_at(2**20), "of a file of"),
    "an address that overflows": (lambda: array_at(2**64 - 28), "of a file of"),
    "a shape of another size": (lambda: array_at(0, shape=2**31), "group/array"),
    "a size beyond the end": (lambda: array_at(0, 4 * 2**40, 2**40), "of a file of"),
    "a tree that contains itself": (tree_in_itself, "the list of entries"),
}

#: Of files that say nothing of who wrote them.
HDF5_PARTS: dict[str, tuple[Make, str]] = {
    "a crowd of parts": (lambda: crowded(200_000), "parts and more"),
    "names that overlap": (lambda: crowded(3000, b"abc" * 33_333 + b"\0", 1), "names that overlap"),
    "a name without an end": (lambda: crowded(1, b"a" * 64), "the list of entries"),
    "a name of more than a MiB": (lambda: crowded(1, b"a" * (2**20 + 7) + b"\0"), "1048583"),
    "paths much longer than the file": (nested, "paths of"),
}

# ---- manifests under a right digest


@cache
def whole(name: str) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"x{CASES[name].suffix}"
        CASES[name].write(path)
        return path.read_bytes()


def resealed(name: str, text: bytes) -> bytes:
    """A whole file of a format with another text for its manifest, or for a safetensors file's header."""
    return inside(CASES[name].suffix, whole(name))[1](text)


def other(name: str, changes: Mapping[tuple[Any, ...], Any]) -> bytes:
    """The same with other values in some places of it."""
    contents = inside(CASES[name].suffix, whole(name))[0]
    for way, new in changes.items():
        contents = put(contents, way, new)
    return resealed(name, json.dumps(contents).encode())


def entry(text: str) -> bytes:
    return b'{"manifest":1,"attributes":{},"entries":{"a":%b}}' % text.encode()


TEXTS: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{]", "the manifest"),
    "a list": (b"[]", "list"),
    "no UTF-8": (b'{"\xff":1}', "the manifest"),
    "deep nesting": (b"[" * 99999, "the manifest"),
    "many values": (b'{"x":[' + b"[]," * 10**6 + b"0]}", "the manifest"),
    "a key twice": (b'{"manifest":1,"manifest":1}', "'manifest'"),
    "an entry twice": (entry('[[1],"int8","1"],"\\u0061":[[1],"int8","1"]'), "'a'"),
    "a number of 5000 digits": (entry(f'[[{"9" * 5000}],"int8","1"]'), "the manifest"),
    "NaN": (entry('[[NaN],"int8","1"]'), "NaN"),
    "no version": (b"{}", "version"),
    "a version that is true": (b'{"manifest":true,"attributes":{},"entries":{}}', "True"),
    "an extent beyond all numbers": (entry('[[1e999],"int8","1"]'), "'a'"),
    "a negative extent": (entry('[[-1],"int8","1"]'), "'a'"),
    "a shape that is a text": (entry('["12","int8","1"]'), "'a'"),
    "a dtype that is no text": (entry('[[2],4,"1"]'), "'a'"),
    "an infinite attribute": (b'{"manifest":1,"attributes":{"step":1e999},"entries":{}}', "'step'"),
    "a list for an attribute": (b'{"manifest":1,"attributes":{"step":[1]},"entries":{}}', "'step'"),
}

LAYERS, WIRING = ("attributes", "layers", "<text>"), ("attributes", "wiring", "<text>")
WEIGHT, BIAS, GAMMA = "parameters/a/weight", "parameters/a/bias", "parameters/b/gamma"
NAMES = ("__metadata__", "singa_lite.names", "<text>")
SWAPPED = {(*NAMES, GAMMA): ["b.bias", None], (*NAMES, "parameters/b/beta"): ["b.weight", None]}

#: Of a format, with other values in some places; what the error names.
MANIFESTS: dict[str, tuple[str, dict[tuple[Any, ...], Any], str]] = {
    "an array that is not there": ("npz", {("entries", "parameters/a/more"): [[1], "int8", "1"]}, "parameters/a/more"),
    "an array without an entry": ("npz", {("entries", BIAS): "<gone>"}, BIAS),
    "an array of another shape": ("native", {("entries", BIAS, 0): [3]}, BIAS),
    "arrays that changed places": ("safetensors", SWAPPED, "parameters/b/"),
    "axes twice": ("safetensors", {(*NAMES, WEIGHT): ["a.weight", [0, 0]]}, WEIGHT),
    "axes that are texts": ("safetensors", {(*NAMES, WEIGHT): ["a.weight", ["1"]]}, WEIGHT),
    "one name for two arrays": ("safetensors", {(*NAMES, WEIGHT): ["a.bias", None]}, "names"),
    "two layers of one name": ("keras", {(*LAYERS, 1, 0): "a"}, "'a'"),
    "a layer without a name": ("keras", {(*LAYERS, 1, 0): None}, "BatchNormalization"),
    "wiring of one layer less": ("keras", {WIRING: [{}]}, "wiring"),
    "a source that comes later": ("keras", {(*WIRING, 1, "sources"): [["c", 0]]}, "wiring"),
    "an extent beyond all arrays": ("keras", {(*WIRING, 0, "outputs"): [[10**400]]}, "wiring"),
    "sixty-five axes": ("keras", {(*WIRING, 0, "outputs"): [[1] * 65]}, "wiring"),
    "an option that is no option": ("keras", {(*WIRING, 0, "options"): 3}, "wiring"),
    "a weight of one axis": ("keras", {("entries", WEIGHT, 0): [6]}, WEIGHT),
    "a bias without axes": ("keras", {("entries", BIAS, 0): []}, BIAS),
    "a scale of two axes": ("keras", {("entries", GAMMA, 0): [2, 1]}, GAMMA),
    "an array of no layer": ("keras", {("entries", "other/c"): [[2], "float32", "1"]}, "other/c"),
}
TEXTS_OF = [(text, name) for text in TEXTS for name in ("native", "npz", "keras") if name == "native" or "many" in text]

ATTACKS: dict[str, tuple[str, Make, str]] = {
    **{f"zip: {name}": (".npz", *row) for name, row in ZIPS.items()},
    **{
        f"npy: {name}": (".npz", lambda make=make: archive({"ok.npy": ZEROS, "x.npy": make()}), "'x")
        for name, make in NPY.items()
    },
    **{f"safetensors: {name}": (".safetensors", *row) for name, row in TENSORS.items()},
    **{f"HDF5: {name}": (".h5", *row) for name, row in HDF5.items()},
    **{f"HDF5 parts: {name}": (".h5", *row) for name, row in HDF5_PARTS.items()},
    "HDF5: names that are one long text": (".weights.h5", one_long_name, "the names of its layers"),
    **{
        f"manifest: {text}, {name}": (CASES[name].suffix, partial(resealed, name, TEXTS[text][0]), TEXTS[text][1])
        for text, name in TEXTS_OF
    },
    **{
        f"manifest: {label}": (CASES[name].suffix, partial(other, name, changes), culprit)
        for label, (name, changes, culprit) in MANIFESTS.items()
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With files that hostile ones point to."""
    (tmp_path / "secret.h5").write_bytes(hdf5())
    (tmp_path / "secret.bin").write_bytes(bytes(12))
    return tmp_path


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_and_its_culprit_named(folder, name):
    suffix, make, culprit = ATTACKS[name]
    path = folder / f"bad{suffix}"
    path.write_bytes(make())

    def refused() -> None:
        with bounded(path), pytest.raises(SnapshotError) as caught:
            (parts if name.startswith("HDF5 parts") else everything)(path)
        assert str(caught.value).startswith(f"{path}: ") and culprit in str(caught.value)

    assert peak_of(refused) < 2 * path.stat().st_size + ((40 if "one long text" in name else 6) << 20)


@pytest.mark.parametrize(
    "make", [lambda: ONE, wide, lambda: deflated(packed(ZEROS)), lambda: bomb(1, 100_000), *HARMLESS]
)
def test_archives_that_attacks_begin_with_are_read(tmp_path, make):
    (tmp_path / "x.npz").write_bytes(make())
    (found,) = everything(tmp_path / "x.npz").values()
    assert not found.any() and found.size in (100, 100_000)


def test_hdf5_that_attacks_begin_with_is_read(tmp_path):
    (tmp_path / "x.h5").write_bytes(hdf5())
    assert [array.tolist() for array in everything(tmp_path / "x.h5").values()] == [[0, 1, 2, 3, 4, 5, 6]] * 2


@pytest.mark.parametrize("suffix", [".h5", ".weights.h5", ".npz", ".safetensors", ".bin", ".pkl", ".zip"])
@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "device"])
def test_what_is_no_file(tmp_path, suffix, kind):
    path = tmp_path / f"x{suffix}"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises(FileNotFoundError if kind == "missing" else SnapshotError, match=str(path)):
        everything(path)


def test_a_path_with_a_nul_is_not_cut_there(tmp_path):
    for suffix in (".h5", ".npz", ".safetensors"):
        with pytest.raises(SnapshotError, match="null"):
            everything(Path(f"{tmp_path}/x\0{suffix}"))


def test_a_manifest_of_a_later_version_is_not_damaged(tmp_path):
    (tmp_path / "x.npz").write_bytes(resealed("npz", b'{"manifest":2}'))
    with pytest.raises(SnapshotVersionError, match="2"):
        everything(tmp_path / "x.npz")


COUNT = 20_000
COSTLY = {
    "lists": b"[]," * COUNT,
    "objects of one": b'{"":0},' * COUNT,
    "numbers": b"9999999999," * COUNT,
    "a wide text": b'"' + b"a" * COUNT * 10 + "😀".encode() + b'",',
    "keys": b"{" + b",".join(b'"%d":0' % number for number in range(COUNT)) + b"},",
}


@pytest.mark.parametrize("kind", COSTLY)
def test_json_costs_no_more_than_is_known_before_it_is_parsed(kind):
    text = b'{"x":[' + COSTLY[kind] + b"0]}"
    peak = peak_of(lambda: raw.parse_json("x", "text", text))
    assert peak < raw.json_cost(text) < 10 * peak
