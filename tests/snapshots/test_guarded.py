"""The guarded reader of HDF5: reads what h5py writes, refuses all that leads elsewhere or claims what is not there."""

from __future__ import annotations

import os
import random
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from singa_lite import SnapshotError
from singa_lite.snapshots.readers.hdf5 import guarded

#: Files opened while a test listens; None while none does. A hook stays for the life of a process.
OPENED: list[Any] | None = None


def _listen(event: str, details: tuple[Any, ...]) -> None:
    if OPENED is not None and event == "open":
        OPENED.append(details[0])


sys.addaudithook(_listen)

NOWHERE = 2**64 - 1

DTYPES = ["<f2", "<f4", "<f8", ">f4", ">f8", "i1", "u1", "<i2", "<u2", "<i4", ">i4", "<u4", "<i8", ">i8", "<u8", "?"]


def everything(path: Path) -> dict[str, Any]:
    """All arrays and attributes of a file."""
    with guarded.opened(path) as file:
        found: dict[str, Any] = {name: file.read(name) for name in file.datasets}
        for name in ("", *file.groups, *file.datasets):
            found |= {f"{name}:{key}": value for key, value in file.attributes(name).items()}
        return found


# ---- what h5py writes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 1, 4, 3), (0,), (3, 0, 2)])
def test_arrays(tmp_path, dtype, shape):
    array = np.random.default_rng(5).integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["array"] = array
    found = everything(tmp_path / "a.h5")["array"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert np.array_equal(found, array)


def test_groups_of_many_members_and_long_names(tmp_path):
    """So many that the tree of a group has three levels and its heap is moved while it grows."""
    names = [f"{number}{'é' * (number % 97)}" for number in range(3000)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, name in enumerate(names):
            file.create_dataset(f"g/{name}", data=np.float32(number))
    with guarded.opened(tmp_path / "a.h5") as file:
        assert file.groups == {"g"}
        assert {name: float(file.read(name)) for name in file.datasets} == {f"g/{n}": i for i, n in enumerate(names)}


def test_deep_groups_in_the_order_of_names(tmp_path):
    names = ["a", "a-/x", "a/b/c/d/e", "b/..", "b/ ", "c"]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, name in enumerate(names[1:]):
            file[name] = np.arange(number + 1)
        file.create_group("empty/inner")
    with guarded.opened(tmp_path / "a.h5") as file:
        assert set(file.datasets) == set(names[1:])
        assert [file.read(name).shape for name in names[1:]] == [(n + 1,) for n in range(len(names) - 1)]
        assert file.groups == {"a-", "a", "a/b", "a/b/c", "a/b/c/d", "b", "empty", "empty/inner"}


def test_attributes(tmp_path):
    given = {
        **{"text": "Ünïcode", "bytes": np.bytes_("fixed"), "empty": "", "long": "x" * 60000},
        **{"number": -3, "large": 2**63 - 1, "real": 1.5, "true": True, "list": [1.0, 2.0], "none": np.zeros(0, "i4")},
        "texts": np.array([b"one", b"three"]),
    }
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/array"] = np.arange(3)
        for place in (file, file["group"], file["group/array"]):
            for name, value in given.items():
                place.attrs[name] = value
    plain = given | {"bytes": "fixed", "none": [], "texts": ["one", "three"]}
    with guarded.opened(tmp_path / "a.h5") as file:
        for place in ("", "group", "group/array"):
            assert file.attributes(place) == plain
            assert {type(v) for v in file.attributes(place).values()} == {str, int, float, bool, list}
        assert file.attribute("nothing") is None
        for place in ("nothing", "group/nothing"):
            with pytest.raises(SnapshotError, match=f"wanted an entry '{place}', received none"):
                file.attributes(place)
            with pytest.raises(SnapshotError, match=f"wanted a dataset '{place}', received none"):
                file.read(place)


# ---- what it refuses, by what is done with h5py


def linked(name: str, link: Any) -> Callable[[h5py.File], None]:
    def put(file: h5py.File) -> None:
        file[name] = link if not isinstance(link, str) else file[link]

    return put


def dataset(**options: Any) -> Callable[[h5py.File], None]:
    return lambda file: file.create_dataset("odd", **options)


def compact(file: h5py.File) -> None:
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, b"odd", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3,)), how)


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = h5py.VirtualSource("secret.h5", "array", (3,))
    file.create_virtual_dataset("odd", layout)


def type_of_a_name(file: h5py.File) -> None:
    file["odd/type"] = np.dtype("f4")
    file.create_dataset("odd/array", (3,), file["odd/type"])


def dig(file: h5py.File) -> None:
    group = file
    for _ in range(1100):
        group = group.create_group("g")


def attributes(place: str, count: int) -> Callable[[h5py.File], None]:
    return lambda file: [file[place].attrs.create(f"a{number}", number) for number in range(count)] and None


BOMB = {"data": np.zeros(2**21, "f4"), "compression": "gzip"}
ODD = "entry 'odd': "
TYPE = ODD + "a datatype that is not read, "

REFUSED: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "soft link": (linked("odd", h5py.SoftLink("/group/array")), ODD + ".*received a link"),
    "soft link to nothing": (linked("odd", h5py.SoftLink("/none")), ODD + ".*received a link"),
    "soft link to itself": (linked("odd", h5py.SoftLink("odd")), ODD + ".*received a link"),
    "soft link to a group": (linked("group/odd", h5py.SoftLink("/")), "entry 'group/odd': .*received a link"),
    "external link": (linked("odd", h5py.ExternalLink("secret.h5", "/array")), "link"),
    "external link in a group": (linked("group/odd", h5py.ExternalLink("secret.h5", "/")), "entry 'group': .*link"),
    "external link to itself": (linked("odd", h5py.ExternalLink("bad.h5", "odd")), "link"),
    "two names of an array": (linked("odd", "group/array"), "entry .* two parts, or one entry has two names"),
    "two names of a group": (linked("odd", "group"), "entry .* two parts, or one entry has two names"),
    "group in itself": (linked("group/odd", "group"), "entry 'group/odd': .*one entry has two names"),
    "root in a group": (linked("group/odd", "/"), "entry 'group/odd': .*one entry has two names"),
    "external data": (dataset(shape=(3,), dtype="f4", external=[("secret.bin", 0, 12)]), ODD + ".*in other files"),
    "external data elsewhere": (dataset(shape=(9,), dtype="u1", external=[("/etc/hostname", 0, 9)]), ODD),
    "virtual data": (virtual, ODD + "|link"),
    "chunks": (dataset(data=np.ones((4, 4)), chunks=(2, 2)), ODD + "a dataset stored in chunks"),
    "compressed": (dataset(data=np.ones(99), compression="gzip"), ODD + "wanted a dataset stored as it is, .*compr"),
    "bomb": (dataset(**BOMB), ODD + "wanted a dataset stored as it is, .*compr"),
    "checksums": (dataset(data=np.ones(99), fletcher32=True), ODD + ".*compr"),
    "growing": (dataset(data=np.ones(3), maxshape=(None,)), ODD),
    "never written": (dataset(shape=(2**40,), dtype="f4"), ODD + ".*wants 4398046511104 bytes, stored are 0"),
    "never written, small": (dataset(shape=(2,), dtype="f4"), ODD + ".*wants 8 bytes, stored are 0"),
    "in its header": (compact, ODD + "a dataset stored in its header"),
    "no data": (dataset(data=h5py.Empty("f4")), ODD + "a dataset without data"),
    "opaque": (dataset(data=np.zeros(3, "V7")), TYPE + "opaque"),
    "compound": (dataset(data=np.zeros(3, [("a", "f4"), ("b", "i2")])), TYPE + "compounds"),
    "complex": (dataset(data=np.zeros(3, "c8")), "a datatype that is not read"),
    "text": (dataset(data="text"), TYPE + "variable"),
    "fixed text": (dataset(data=np.bytes_("text")), TYPE + "text"),
    "variable lengths": (dataset(shape=(1,), dtype=h5py.vlen_dtype("f4")), TYPE + "variable"),
    "reference": (dataset(shape=(1,), dtype=h5py.ref_dtype), TYPE + "references"),
    "region": (dataset(shape=(1,), dtype=h5py.regionref_dtype), TYPE + "references"),
    "enumeration": (dataset(shape=(1,), dtype=h5py.enum_dtype({"A": 1})), TYPE + "an enum"),
    "arrays": (dataset(shape=(2,), dtype=np.dtype(("f4", (3,)))), TYPE + "arrays"),
    "long double": (dataset(data=np.zeros(3, "g")), TYPE + "floats"),
    "type with a name": (type_of_a_name, "entry 'odd/(array|type)'"),
    "type": (
        lambda file: file.__setitem__("odd", np.dtype("f4")),
        ODD + "wanted a dataset stored in this file, or a g",
    ),
    "deep": (dig, "wanted groups at most 1024 deep"),
    "broken name": (lambda file: file.create_dataset(b"\xff\xfe", data=1.0), "list of entries cannot be read: .*utf-8"),
    "attributes": (attributes("/", 65), "more than 64 attributes"),
    "attributes of a group": (attributes("group", 3000), "entry 'group': .*64 attributes"),
    "attributes of an array": (attributes("group/array", 3000), "entry 'group/array': .*64 attributes"),
    "order of making": (lambda file: file.create_group("odd", track_order=True), ODD + ".*earliest"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With files that hostile ones point to."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["array"] = np.ones(3, "f4")
    (tmp_path / "secret.bin").write_bytes(bytes(12))
    return tmp_path


def good(path: Path, act: Callable[[h5py.File], Any] = lambda file: None, **options: Any) -> bytes:
    with h5py.File(path, "w", **options) as file:
        file["group/array"] = np.arange(7, dtype="f4")
        file["group/other"] = np.arange(7, dtype="f4")
        file["state"] = np.arange(5, dtype="i8")
        file.attrs["format"] = "test"
        act(file)
    return path.read_bytes()


def assert_refused(path: Path, message: str = "") -> None:
    """By our error that names the file, with no other file opened and no more memory than twice the file's."""
    global OPENED
    tracemalloc.start()
    OPENED = []
    try:
        with pytest.raises(SnapshotError, match=message) as caught:
            everything(path)
        opened, peak = OPENED, tracemalloc.get_traced_memory()[1]
    finally:
        OPENED = None
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}: ")
    assert opened == [str(path)]
    assert peak < 2 * path.stat().st_size + 2**18


@pytest.mark.parametrize("name", REFUSED)
def test_what_leads_elsewhere_or_is_odd(folder, name):
    act, message = REFUSED[name]
    good(folder / "bad.h5", act)
    assert_refused(folder / "bad.h5", message)


@pytest.mark.parametrize("options", [{"libver": "latest"}, {"userblock_size": 512}, {"track_order": True}])
def test_files_of_other_kinds(tmp_path, options):
    good(tmp_path / "bad.h5", **options)
    assert_refused(tmp_path / "bad.h5", "wanted a whole HDF5 file: ")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["a", "b"], r"an attribute of shape \(2,\)"),
        (np.ones((2, 2)), r"an attribute of shape \(2, 2\)"),
        (np.zeros(1, "V3")[0], "opaque"),
        (h5py.Empty("f4"), "without data"),
        ("x" * 70000, "a text of 70000 bytes"),
    ],
)
def test_odd_attributes_are_refused_when_they_are_asked_for(tmp_path, value, message):
    good(tmp_path / "bad.h5", lambda file: file.attrs.__setitem__("odd", value))
    assert_refused(tmp_path / "bad.h5", f"attribute 'odd' cannot be read: .*{message}")
    with guarded.opened(tmp_path / "bad.h5") as file:
        assert file.attribute("format") == "test"
        assert len(file.datasets) == 3


@pytest.mark.parametrize("kind", ["mkdir", "mkfifo", "write_bytes", "device"])
def test_what_is_no_file(tmp_path, kind):
    path = tmp_path / "bad.h5"
    if kind == "device":
        path = Path("/dev/zero")
    elif kind == "mkfifo":
        os.mkfifo(path)
    else:
        getattr(path, kind)(*[b"weights " * 99] * (kind == "write_bytes"))
    with pytest.raises(SnapshotError, match="wanted a whole HDF5 file"):
        everything(path)


# ---- what it refuses, by single bytes


def patched(path: Path, whole: bytes, at: int, value: bytes) -> None:
    path.write_bytes(whole[:at] + value + whole[at + len(value) :])


def header_of(whole: bytes, size: int) -> int:
    """Where the layout message of the first dataset of so many bytes keeps its address; the size is behind it."""
    return whole.index(struct.pack("<Q", size), whole.index(b"\x03\x01")) - 8


@pytest.mark.parametrize("address", [0, 96, 800, 2**20, 2**63, 2**64 - 1, 2**64 - 28])
def test_data_that_lies_over_other_parts_or_outside(tmp_path, address):
    whole = good(tmp_path / "good.h5")
    patched(tmp_path / "bad.h5", whole, header_of(whole, 28), struct.pack("<Q", address))
    assert_refused(tmp_path / "bad.h5", "two parts|of a file of|stored are 0")


def test_two_arrays_of_the_same_bytes(tmp_path):
    whole = good(tmp_path / "good.h5")
    with guarded.opened(tmp_path / "good.h5") as file:
        other = file.datasets["group/other"].address
    for shift in (0, 4, 24, -4, -24):
        patched(tmp_path / "bad.h5", whole, header_of(whole, 28), struct.pack("<Q", other + shift))
        assert_refused(tmp_path / "bad.h5", "two parts")


@pytest.mark.parametrize("size", [0, 6, 8, 2**20, 2**31, 2**62, 2**64 - 1])
def test_a_shape_that_claims_another_size(tmp_path, size):
    whole = good(tmp_path / "good.h5")
    at = whole.index(struct.pack("<QQ", 7, 7))
    patched(tmp_path / "bad.h5", whole, at, struct.pack("<QQ", size, size))
    if size:
        assert_refused(tmp_path / "bad.h5", "wants|shape")
    else:
        assert not everything(tmp_path / "bad.h5")["group/array"].size
    patched(tmp_path / "bad.h5", whole, at, struct.pack("<Q", size))
    assert_refused(tmp_path / "bad.h5", "grow")


def test_a_shape_and_a_size_that_claim_more_than_the_file_has(tmp_path):
    whole = good(tmp_path / "good.h5")
    for size in (2**20, 2**40, 2**60):
        bad = whole.replace(struct.pack("<QQ", 7, 7), struct.pack("<QQ", size, size), 1)
        patched(tmp_path / "bad.h5", bad, header_of(whole, 28) + 8, struct.pack("<Q", 4 * size))
        assert_refused(tmp_path / "bad.h5", "of a file of|shape")


def test_a_truncated_file(tmp_path):
    whole = good(tmp_path / "good.h5")
    for length in (*range(0, len(whole), 17), len(whole) - 1):
        (tmp_path / "bad.h5").write_bytes(whole[:length])
        with pytest.raises(SnapshotError):
            everything(tmp_path / "bad.h5")


def test_a_tree_that_contains_itself(tmp_path):
    whole = good(tmp_path / "good.h5")
    tree = whole.index(b"TREE")
    bad = bytearray(whole)
    bad[tree + 5] = 1
    struct.pack_into("<Q", bad, tree + 32, tree)
    (tmp_path / "bad.h5").write_bytes(bad)
    assert_refused(tmp_path / "bad.h5", "the list of entries cannot be read")


def crowded(count: int, names: bytes | None = None, step: int = 8) -> bytes:
    """A file whose root has so many groups, each of 64 bytes in all: an empty header, a name, a place in a list.

    names: the heap; step: bytes from the beginning of a name to that of the next.
    """
    headers = b"".join(struct.pack("<BxHII4x", 1, 0, 1, 0) for _ in range(count))
    if names is None:
        names = b"".join(b"%07d\0" % number for number in range(count))
    body, lists = bytearray(96) + headers, []
    for first in range(0, count, 60000):
        part = range(first, min(first + 60000, count))
        lists.append(len(body))
        body += b"SNOD\1\0" + struct.pack("<H", len(part))
        body += b"".join(struct.pack("<QQQQQ", step * n, 96 + 16 * n, 0, 0, 0) for n in part)
    heap = len(body)
    body += b"HEAP" + struct.pack("<4xQQQ", len(names), 0, heap + 32) + names
    tree = len(body)
    body += b"TREE" + struct.pack("<BBHQQ", 0, 0, len(lists), NOWHERE, NOWHERE)
    body += b"".join(struct.pack("<QQ", 0, at) for at in lists)
    root = len(body)
    body += struct.pack("<BxHII4xHHB3xQQ", 1, 1, 1, 24, 17, 16, 0, tree, heap)
    sizes = (8, 8, 0, 4, 16, 0, 0, NOWHERE, len(body), NOWHERE, 0, root)
    struct.pack_into("<8s5xBBBHHIQQQQQQ", body, 0, b"\x89HDF\r\n\x1a\n", *sizes)
    return bytes(body)


def test_a_crowd_of_parts(tmp_path):
    """As near to each other as can be: more than a reader should note for so small a file."""
    (tmp_path / "bad.h5").write_bytes(crowded(3))
    assert_refused(tmp_path / "bad.h5", "entry '0000000': wanted a dataset stored in this file, or a group")
    (tmp_path / "bad.h5").write_bytes(crowded(200_000))
    assert_refused(tmp_path / "bad.h5", "parts and more in a file of")


def test_names_that_overlap(tmp_path):
    """Each is one long name without its first letters: together they are many times as long as the file."""
    names = bytes(97 + number % 26 for number in range(100_000)) + b"\0"
    (tmp_path / "bad.h5").write_bytes(crowded(3000, names, step=1))
    assert_refused(
        tmp_path / "bad.h5", "the list of entries cannot be read: names that overlap, of more than the 100001"
    )


def test_a_name_without_an_end(tmp_path):
    (tmp_path / "bad.h5").write_bytes(crowded(1, b"a" * 64))
    with pytest.raises(SnapshotError, match="the list of entries cannot be read"):
        everything(tmp_path / "bad.h5")


def test_a_name_of_more_than_a_mebibyte(tmp_path):
    names = b"a" * (2**20 + 7) + b"\0"
    (tmp_path / "bad.h5").write_bytes(crowded(1, names))
    assert_refused(tmp_path / "bad.h5", "a name of 1048583 bytes, of which 1048576 are read")


def nested(path: Path, depth: int, count: int, length: int) -> None:
    """So many arrays in groups within groups, whose names have so many letters."""
    with h5py.File(path, "w", libver="earliest") as file:
        inner = file.create_group("/".join(["x" * length] * depth))
        for number in range(count):
            inner[f"{number}"] = np.zeros(0, "f4")


def test_paths_that_are_much_longer_than_the_file(tmp_path):
    """Each array has all names of the groups around it in its path."""
    nested(tmp_path / "bad.h5", depth=50, count=1000, length=3000)
    size = (tmp_path / "bad.h5").stat().st_size
    tracemalloc.start()
    with pytest.raises(SnapshotError, match=rf"paths of \d+ bytes and more in a file of {size}$"):
        everything(tmp_path / "bad.h5")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * size + (6 << 20)


def test_paths_that_are_longer_than_the_file_by_a_little(tmp_path):
    nested(tmp_path / "long.h5", depth=10, count=60, length=5000)
    with guarded.opened(tmp_path / "long.h5") as file:
        assert sum(map(len, file.datasets)) > 3 * file.size


def test_long_lists_in_attributes(tmp_path):
    """Numbers of Python's are much larger than those in the file."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["most"] = np.arange(1024, dtype="i1")
        file.attrs["more"] = np.arange(1025, dtype="i1")
    with guarded.opened(tmp_path / "a.h5") as file:
        assert len(file.attribute("most")) == 1024
        with pytest.raises(SnapshotError, match=r"attribute 'more' .*a list of 1025 elements, of which 1024 are read"):
            file.attribute("more")


def test_flipped_bits_give_an_error_of_ours_or_an_answer(tmp_path):
    """Never another error, whatever the bytes are; the memory is that of the file."""
    whole, rng = bytearray(good(tmp_path / "good.h5")), random.Random(3)
    used = [at for at, byte in enumerate(whole) if byte]
    for _ in range(1500):
        bad = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 3])):
            bad[rng.choice(used)] ^= 1 << rng.randrange(8)
        (tmp_path / "bad.h5").write_bytes(bad)
        try:
            everything(tmp_path / "bad.h5")
        except SnapshotError as error:
            assert "bad.h5: " in str(error)
