"""Snapshots in NumPy archives: bits, what NumPy makes of them, and archives that play tricks."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nets import bits, state_of
from singa_lite import FeedForwardNet, SnapshotError, layers, tensor
from singa_lite.snapshots import formats, net_tree
from singa_lite.snapshots.files import output
from singa_lite.snapshots.formats import npz
from singa_lite.snapshots.readers import raw, zip_directory, zip_member
from singa_lite.snapshots.tree import LazyArray, Tree
from snapshot_nets import OPTIMIZERS, batches, make_net, train, trained


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A snapshot of `trained()`, Adam after three steps."""
    path = tmp_path / "net.npz"
    formats.save(trained(), path)
    return path


def dense_net(name: str = "dense", seed: int = 3) -> FeedForwardNet:
    """One layer, (n, 3) -> (n, 2)."""
    net = FeedForwardNet(seed=seed)
    net.add(layers.Dense(name, 2, input_sample_shape=(3,)))
    return net


def numbers(**arrays: np.ndarray) -> Tree:
    """A tree of these parameters of layer "x"."""
    return Tree(
        {f"parameters/x/{n}": LazyArray(a.shape, a.dtype, lambda a=a: a) for n, a in arrays.items()}, {"format": "x"}
    )


def npy(array: np.ndarray, **options: Any) -> bytes:
    """A .npy file as NumPy writes it."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def archive(path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    """A zip file of these members."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def refused(path: Path, wanted: str) -> None:
    """The file is refused in words that match, whether it is opened or all of it is read."""
    with pytest.raises(SnapshotError, match=wanted) as raised, formats.opened(path) as source:
        for name in source.specs:
            source.read(name)
    assert str(path) in str(raised.value)


def patched(path: Path, at: int, form: str, *values: Any) -> Path:
    """The file with other numbers at a place, from the end if negative."""
    content = bytearray(path.read_bytes())
    struct.pack_into("<" + form, content, at % len(content), *values)
    path.write_bytes(content)
    return path


# ---- round trips


@pytest.mark.parametrize("compiled", OPTIMIZERS)
def test_training_goes_on_as_if_it_had_not_been_interrupted(tmp_path, compiled):
    net, other = trained(compiled), make_net(compiled, seed=8)
    formats.save(net, tmp_path / "net.npz")
    formats.load(other, tmp_path / "net.npz")
    assert state_of(other) == state_of(net)
    assert train(other, batches(2, start=3)) == train(net, batches(2, start=3))


def test_saving_changes_nothing_and_gives_equal_files(saved):
    net = trained()
    before = state_of(net)
    formats.save(net, saved.parent / "again.npz")
    assert state_of(net) == before
    assert (saved.parent / "again.npz").read_bytes() == saved.read_bytes()


def test_the_file_by_numpy(saved):
    net = trained()
    with np.load(saved, allow_pickle=False) as file:
        found = {name: bits(file[name]) for name in file.files}
    assert zipfile.ZipFile(saved).testzip() is None
    assert set(found) == {*net_tree.of_net(net).arrays, "manifest", "manifest_sha256"}
    assert found["parameters/dense/weight"] == bits(net.parameters()["dense/weight"])
    assert found["state/drop/random"] == bits(net.states()["drop/random"])


def test_every_dtype_and_shape(tmp_path):
    kinds = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")
    arrays = {name: np.arange(6).astype(name).reshape(3, 2) for name in kinds}
    arrays |= {
        "scalar": np.array(2.5),
        "none": np.empty((0, 3), np.float16),
        "axes": np.arange(24.0).reshape(2, 1, 3, 4),
    }
    arrays["bool"] = np.array([[True, False], [False, True]])
    arrays["odd"] = np.array([0x7FC00001, 0x80000000, 0xFF800000, 0x7F800001], np.uint32).view(np.float32)
    formats.write(numbers(**arrays), tmp_path / "x.npz")
    with formats.opened(tmp_path / "x.npz") as source:
        assert source.attributes.get("format") == "x"
        assert source.specs == {f"parameters/x/{n}": (a.shape, a.dtype) for n, a in arrays.items()}
        for name, array in arrays.items():
            assert bits(source.read(f"parameters/x/{name}")) == bits(array)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert {n: bits(file[f"parameters/x/{n}"]) for n in arrays} == {n: bits(a) for n, a in arrays.items()}


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("é ü", "é ü"),
        ("层", "层"),
        ("..", "%2E%2E"),
        ("%2E", "%252E"),
        ("...", "..."),
        ("..a", "..a"),
        ("a.b", "a.b"),
        (" ", " "),
        ("b\\c\n", "b%5Cc%0A"),
        ("C:", "C:"),
        ("x" * 300, "x" * 300),
    ],
)
def test_names_of_layers(tmp_path, name, member):
    net, other = dense_net(name), dense_net(name, seed=8)
    formats.save(net, tmp_path / "x.npz")
    formats.load(other, tmp_path / "x.npz")
    assert state_of(other) == state_of(net)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert f"parameters/{member}/weight" in file.files


def test_names_that_differ_only_in_what_is_replaced(tmp_path):
    net, other = dense_net("%"), dense_net("%", seed=8)
    for each in (net, other):
        for name in ("%2E", "%252E", "..", "%2E%2E", "manifest"):
            each.add(layers.Dense(name, 2))
    formats.save(net, tmp_path / "x.npz")
    formats.load(other, tmp_path / "x.npz")
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize(
    "path",
    [
        *("a", "a.b", "/a", "a/", "a//b", "//", "/", "", "%", "a/%/b", "C:", "C:x", "C:/x", ".:x", "%:x", ".", "./a"),
        *("manifest", "manifest_sha256", "manifest/a", "%6Danifest", "a\\b:c", "\0:a"),
    ],
)
def test_paths_of_another_programs_file(tmp_path, path):
    """Whatever is written is read, by NumPy too."""
    arrays = {path: np.arange(3.0), "other": np.zeros(2)}
    formats.write(Tree({p: LazyArray(a.shape, a.dtype, lambda a=a: a) for p, a in arrays.items()}), tmp_path / "x.npz")
    with formats.opened(tmp_path / "x.npz") as source:
        assert {p: bits(source.read(p)) for p in source.specs} == {p: bits(a) for p, a in arrays.items()}
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert bits(file[file.files[0]]) == bits(arrays[path])


@pytest.mark.parametrize("name", ["\ud800", "x" * 70_000])
def test_names_that_an_archive_cannot_hold(tmp_path, name):
    contents = Tree({f"parameters/{name}/y": LazyArray((2,), np.dtype("f4"), lambda: np.zeros(2, "f4"))})
    with pytest.raises(SnapshotError, match=r"x\.npz: cannot be written, all there is as before"):
        formats.write(contents, tmp_path / "x.npz")
    assert not list(tmp_path.iterdir())


# ---- archives of others


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_an_archive_of_numpy(tmp_path, write):
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(3, 2)).astype("f4"), rng.normal(size=2).astype("f4")
    write(tmp_path / "x.npz", **{"parameters/dense/weight": np.asfortranarray(weight), "parameters/dense/bias": bias})
    net = dense_net()
    formats.load(net, tmp_path / "x.npz")
    assert bits(net.parameters()["dense/weight"]) == bits(weight)
    assert bits(net.parameters()["dense/bias"]) == bits(bias)


def test_big_endian_numbers(tmp_path):
    archive(tmp_path / "x.npz", {"a.npy": npy(np.arange(3, dtype=">f4"))})
    with formats.opened(tmp_path / "x.npz") as source:
        assert bits(source.read("a")) == bits(np.arange(3, dtype="f4"))
        with pytest.raises(SnapshotError, match=r"wanted one of its entries, received 'b'"):
            source.read("b")


def test_state_that_it_lacks_stays(tmp_path):
    net, other = trained(), make_net("Adam", seed=8)
    key = bits(other.states()["drop/random"])
    contents = net_tree.of_net(net).arrays
    given = {p: lazy.fetch() for p, lazy in contents.items() if not p.startswith("optimizer/") and "random" not in p}
    np.savez(tmp_path / "x.npz", **given)
    formats.load(other, tmp_path / "x.npz", optimizer=False)
    assert bits(other.states()["drop/random"]) == key
    assert bits(other.states()["norm/running_var"]) == bits(net.states()["norm/running_var"])


def test_larger_members_than_32_bits_tell(tmp_path):
    """Sizes of 64 bits where none are needed, in headers and in the list, as `zipfile` writes them of large files."""
    data = npy(np.arange(5.0))
    wide = struct.pack("<2H2Q", 1, 16, len(data), len(data))
    crc, top = zlib.crc32(data), 0xFFFFFFFF
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 45, 0, 0, 0, 33, crc, top, top, 5, 20) + b"a.npy" + wide
    listed = struct.pack("<4s6H3L5H2L", b"PK\1\2", 45, 45, 0, 0, 0, 33, crc, top, top, 5, 28, 0, 0, 0, 0, top)
    listed += b"a.npy" + struct.pack("<2H3Q", 1, 24, len(data), len(data), 0)
    begin = len(local) + len(data)
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(listed), begin)
    end += struct.pack("<4sLQL", b"PK\6\7", 0, begin + len(listed), 1)
    end += struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, top, top, 0)
    path = tmp_path / "x.npz"
    path.write_bytes(local + data + listed + end)
    with np.load(path) as file, formats.opened(path) as source:
        assert bits(source.read("a")) == bits(file["a"])
    for at, form, value, wanted in (
        (-22 - 20 + 8, "Q", 7, "end records that agree"),
        (-22 - 20 + 16, "L", 2, "end records that agree"),
        (-22 - 20 - 56 + 4, "Q", 45, "end records that agree"),
        (-22 - 20 - 56 + 24, "Q", 2, "end records that agree"),
        (-22 - 20 - 56 + 32, "Q", 1 << 60, "end records that agree"),
        (-22 - 20 - 56 + 48, "Q", 1 << 60, "wanted the list of members to end at"),
        (-22 - 20 - 56, "L", 0, "the end record of 64 bits: wanted"),
        (-22 + 10, "H", 2, "wanted one archive"),
        (-22 + 8, "L", 0x20002, "end records that agree"),
        (begin + 46 + 5 + 2, "H", 16, "extra fields, each once"),
        (begin + 46 + 5, "H", 2, "wanted 3 numbers of 64 bits"),
        (begin + 46 + 5 + 4, "Q", 1 << 62, "wanted a header of"),
        (begin + 46 + 5 + 20, "Q", 1, "wanted it to begin at 0, received 1"),
        (30 + 5 + 4, "Q", 1 << 62, "wanted a header of"),
    ):
        path.write_bytes(local + data + listed + end)
        refused(patched(path, at, form, value), wanted)


# ---- tricks with the archive


def test_no_archive(tmp_path):
    for content, wanted in ((b"", "received a file of 0"), (b"PK\5\6", "of 4"), (b"x" * 99, "the end record: wanted")):
        (tmp_path / "x.npz").write_bytes(content)
        refused(tmp_path / "x.npz", wanted)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("../a.npy", "plain names"),
        ("a/../b.npy", "plain names"),
        ("/a.npy", "plain names"),
        ("a//b.npy", "plain names"),
        ("./a.npy", "plain names"),
        ("C:/a.npy", "plain names"),
        ("a\\b.npy", "plain names"),
        ("a\nb.npy", "plain names"),
        ("a/", "plain names"),
        ("a.txt", r"whose names end in \.npy"),
    ],
)
def test_names_that_lead_elsewhere(tmp_path, name, wanted):
    refused(archive(tmp_path / "x.npz", {"ok.npy": npy(np.zeros(1)), name: npy(np.zeros(1))}), wanted)


def test_a_name_that_is_not_in_utf8(tmp_path):
    path = archive(tmp_path / "x.npz", {"é.npy": npy(np.zeros(1))})
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xfe"))
    refused(path, "wanted a name in UTF-8")


def test_a_name_of_the_old_kind(tmp_path):
    path = archive(tmp_path / "x.npz", {"zz.npy": npy(np.zeros(1))})
    path.write_bytes(path.read_bytes().replace(b"zz", b"\x82z"))
    with formats.opened(path) as source:
        assert list(source.specs) == ["éz"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("a.npy", npy(np.zeros(1)))
        file.writestr("a.npy", npy(np.ones(1)))
    refused(tmp_path / "x.npz", r"wanted one member 'a.npy', received two")


def test_a_bomb(tmp_path):
    """A thousand times its size; less than a MiB is taken of any file."""
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(1_000_000))}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 10_000
    refused(path, r"the members unpacked: would take about 8000128 bytes, allowed are .* without compression \(numpy")
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(100_000))}, zipfile.ZIP_DEFLATED)
    with formats.opened(path) as source:
        assert bits(source.read("a")) == bits(np.zeros(100_000))


def test_a_bomb_of_many_members(tmp_path):
    members = {f"{i}.npy": npy(np.zeros(30_000)) for i in range(6)}
    refused(archive(tmp_path / "x.npz", members, zipfile.ZIP_DEFLATED), r"the members unpacked: would take")


@pytest.mark.parametrize("rest", range(8, 248, 40))
def test_numbers_of_which_the_last_come_when_all_was_taken(tmp_path, rest):
    """Random numbers, then zeros that end so many bytes behind a MiB: of a few bits the inflater makes hundreds."""
    random = np.random.default_rng(0).integers(0, 256, 600_000, np.uint8)
    wanted = np.concatenate([random, np.zeros((1 << 20) - 600_128 + rest, np.uint8)])
    data = npy(wanted)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(data[:600_128]) + packer.flush(zlib.Z_FULL_FLUSH) + packer.compress(data[600_128:])
    path = deflated(tmp_path / "x.npz", packed + packer.flush(), len(data), crc=zlib.crc32(data))
    with formats.opened(path) as source:
        assert bits(source.read("a")) == bits(wanted)


def test_deflated_bytes_that_go_on_behind_a_whole_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(zip_member, "_PIECE", 928)
    data = npy(np.zeros(100))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    longer = packer.compress(data + b"more") + packer.flush()
    assert len(data) == 928
    refused(deflated(tmp_path / "x.npz", longer, len(data)), r"wanted 928 deflated bytes, received another number")


@pytest.mark.parametrize("size", [100, 927, 929, 5000])
def test_a_deflated_member_of_another_size(tmp_path, size):
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(100))}, zipfile.ZIP_DEFLATED)
    at = path.read_bytes().index(b"PK\1\2")
    patched(patched(path, 22, "L", size), at + 24, "L", size)
    refused(path, r"wanted \(100,\) float64, received")  # its own header tells too


def deflated(path: Path, packed: bytes, size: int, name: bytes = b"a.npy", crc: int | None = None) -> Path:
    """An archive of one member with these packed bytes. crc: None: that of a hundred zeros."""
    sizes = zlib.crc32(npy(np.zeros(100))) if crc is None else crc, len(packed), size, len(name)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 33, *sizes, 0) + name
    listed = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 8, 0, 33, *sizes, 0, 0, 0, 0, 0, 0) + name
    begin = len(local) + len(packed)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(listed), begin, 0)
    path.write_bytes(local + packed + listed + end)
    return path


def test_deflated_bytes_that_are_none(tmp_path):
    data = npy(np.zeros(100))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush()
    with formats.opened(deflated(tmp_path / "x.npz", packed, len(data))) as source:
        assert bits(source.read("a")) == bits(np.zeros(100))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    longer = packer.compress(data + b"more") + packer.flush()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    unfinished = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
    for wrong in (packed + b"x", longer, unfinished):
        refused(deflated(tmp_path / "x.npz", wrong, len(data)), r"wanted 928 deflated bytes, received another number")
    refused(deflated(tmp_path / "x.npz", packed, len(data), b""), r"plain names, received ''")
    refused(deflated(tmp_path / "x.npz", b"\xff" * 50, len(data)), r"wanted deflated bytes, received")
    refused(deflated(tmp_path / "x.npz", packed[:-20] + b"\xff" * 20, len(data)), r"deflated bytes|is damaged|npy head")


def test_deflated_bytes_that_end_in_others(tmp_path):
    """Far behind the array's own header."""
    data = npy(np.random.default_rng(0).normal(size=40_000))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    wrong = packer.compress(data[:200_000]) + packer.flush(zlib.Z_SYNC_FLUSH) + b"\xff" * 100
    refused(deflated(tmp_path / "x.npz", wrong, len(data)), r"wanted deflated bytes, received")


def test_bytes_that_are_in_no_member(tmp_path):
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(1)), "b.npy": npy(np.zeros(1))})
    whole = path.read_bytes()
    second, listed, end = whole.index(b"PK\3\4", 4), whole.index(b"PK\1\2"), whole.index(b"PK\5\6")
    for content, wanted in (
        (b"x" + whole, "wanted the list of members to end at"),
        (whole + b"x", "the end record: wanted"),
        (whole[:end] + b"x" + whole[end:], "wanted the list of members to end at"),
        (whole[:second] + b"x" + whole[second:], "wanted the list of members to end at"),
    ):
        path.write_bytes(content)
        refused(path, wanted)
    entries = bytearray(whole[listed:end])
    struct.pack_into("<L", entries, 42 + 46 + 5, second + 1)  # the second member begins one byte later
    ending = bytearray(whole[end:])
    struct.pack_into("<L", ending, 16, listed + 1)
    path.write_bytes(whole[:second] + b"x" + whole[second:listed] + entries + ending)
    refused(path, rf"wanted it to begin at {second}, received {second + 1}")
    ending = bytearray(whole[end:])
    struct.pack_into("<L", ending, 16, listed + 1)
    path.write_bytes(whole[:listed] + b"x" + whole[listed:end] + ending)
    refused(path, "wanted 2 members and no other bytes")
    ending = bytearray(whole[end:])
    struct.pack_into("<L", ending, 12, end - listed + 3)
    path.write_bytes(whole[:end] + b"abc" + ending)
    refused(path, "wanted 2 members and no other bytes")


@pytest.mark.parametrize(
    ("at", "form", "value", "wanted"),
    [
        (-22 + 4, "H", 1, "wanted one archive that ends without a comment"),
        (-22 + 6, "H", 1, "wanted one archive that ends without a comment"),
        (-22 + 8, "H", 2, "wanted one archive that ends without a comment"),
        (-22 + 8, "HH", (2, 2), "member 1: wanted it in the list"),
        (-22 + 8, "HH", (0, 0), "wanted 0 members and no other bytes"),
        (-22 + 8, "HH", (65535, 65535), "the list of members: would take about"),
        (-22 + 12, "L", 2**32 - 1, "wanted the list of members to end at"),
        (-22 + 16, "L", 2**32 - 1, "wanted the list of members to end at"),
        (-22 + 20, "H", 1, "without a comment"),
        ("list", "L", 0, "member 0: wanted it in the list"),
        ("list+8", "H", 1, "wanted a header of"),
        ("list+10", "H", 8, "wanted a header of"),
        ("list+16", "L", 5, "wanted a header of"),
        ("list+20", "L", 5, "wanted a header of"),
        ("list+20", "L", 2**32 - 1, "wanted 1 numbers of 64 bits"),
        ("list+24", "L", 5, "wanted a header of"),
        ("list+28", "H", 6, "wanted no comment and no other disk"),
        ("list+28", "H", 4, "no comment and no other disk|wanted a header|members and no other"),
        ("list+30", "H", 3, "wanted no comment and no other disk"),
        ("list+32", "H", 3, "wanted no comment and no other disk"),
        ("list+34", "H", 3, "wanted no comment and no other disk"),
        ("list+42", "L", 3, "wanted it to begin at 0, received 3"),
        ("list+46", "B", 98, "wanted a header of"),
        (0, "L", 0, "wanted b'PK"),
        (6, "H", 8, "wanted a header of"),
        (8, "H", 8, "wanted a header of"),
        (14, "L", 8, "wanted a header of"),
        (18, "L", 8, "wanted a header of"),
        (22, "L", 8, "wanted a header of"),
        (26, "H", 4, "wanted a header of"),
        (26, "H", 65535, "wanted bytes"),
        (28, "H", 1, "wanted extra fields"),
        (30, "B", 98, "wanted a header of"),
        (-22 - 40, "B", 98, "wanted"),
    ],
)
def test_list_and_headers_that_differ(tmp_path, at, form, value, wanted):
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(7))})
    if isinstance(at, str):
        at = path.read_bytes().index(b"PK\1\2") + int(at.removeprefix("list") or 0)
    refused(patched(path, at, form, *(value if isinstance(value, tuple) else (value,))), wanted)


@pytest.mark.parametrize(
    ("flags", "method", "wanted"),
    [(1, 0, "wanted it plain"), (8, 0, "wanted it plain"), (0, 12, "wanted it plain"), (0, 14, "wanted it plain")],
)
def test_members_that_are_encrypted_or_packed_otherwise(tmp_path, flags, method, wanted):
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(7))})
    at = path.read_bytes().index(b"PK\1\2")
    refused(patched(patched(path, 6, "HH", flags, method), at + 8, "HH", flags, method), wanted)


def test_a_stored_member_of_two_sizes(tmp_path):
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(7))})
    at = path.read_bytes().index(b"PK\1\2")
    refused(patched(patched(path, 22, "L", 1 << 30), at + 24, "L", 1 << 30), "wanted it plain")


def test_more_members_than_memory_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(raw, "ROOM", 0)
    path = archive(tmp_path / "x.npz", {f"{i}.npy": b"" for i in range(500)})
    refused(path, r"the list of members: would take about \d+ bytes, allowed")


# ---- tricks with the arrays


def head(text: str, data: bytes = bytes(8), version: bytes = b"\1\0") -> bytes:
    """A .npy file with this in its header."""
    return b"\x93NUMPY" + version + struct.pack("<H", len(text) + 1) + text.encode() + b"\n" + data


def described(descr: str = "'<f8'", order: str = "False", shape: str = "(1,)") -> str:
    """The text of a header."""
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"not an array at all",
        npy(np.array([{"a": 1}, None], object)),
        npy(np.zeros(2, [("a", "f4"), ("b", "i4")])),
        npy(np.array(["text"])),
        npy(np.array(["2020-01-01"], "M8[D]")),
        npy(np.zeros(2), version=(3, 0)),
        head(described("'|O'")),
        head(described("'O8'")),
        head(described("'<f9'")),
        head(described("'<f1'")),
        head(described("[('a', '<f8')]")),
        head(described("'<f8, <f8'")),
        head(described(shape="(2,)")),
        head(described(shape="(-1,)")),
        head(described(shape="(1.0,)")),
        head(described(shape="(10**9,)")),
        head(described(shape="(9223372036854775807, 9223372036854775807, 2)")),
        head(described(shape="(4611686018427387905, 4)")),
        head(described(shape=f"({'9' * 5000},)")),
        head(described(shape="(0, 9223372036854775807, 9223372036854775807)"), b""),
        head(described(shape="(0, 99999999999999999999999)"), b""),
        head(described(shape="(0, 9999999999999999999)"), b""),
        head(described(shape=f"({'1, ' * 70})")),
        head(described(order="1")),
        head(described(order="__import__('os').system('false')")),
        head(described(), b""),
        head(described(), bytes(9)),
        head("(" * 2000),
        head("{'descr': '<f8'}"),
        head(described(), version=b"\1\1"),
        head(described(), version=b"\7\0"),
    ],
)
def test_arrays_that_are_none(tmp_path, data):
    refused(archive(tmp_path / "x.npz", {"ok.npy": npy(np.zeros(1)), "x.npy": data}), r"entry 'x(\.npy)?'")


def test_bool_that_is_neither(tmp_path):
    refused(archive(tmp_path / "x.npz", {"x.npy": npy(np.array([True]))[:-1] + b"\2"}), r"wanted bool")


# ---- the manifest


def members_of(path: Path) -> dict[str, bytes]:
    """The archive's files."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda m: m.pop("manifest.npy"), r"wanted an entry 'manifest', received none"),
        (lambda m: m.pop("manifest_sha256.npy"), r"wanted an entry 'manifest_sha256', received none"),
        (lambda m: m.update({"manifest.npy": npy(np.zeros(3, "u1"))}), r"the manifest is damaged"),
        (lambda m: m.update({"manifest.npy": npy(np.zeros(3))}), r"'manifest': wanted uint8, received float64"),
        (lambda m: m.pop("parameters/conv/bias.npy"), r"names that differ in \['parameters/conv/bias'\]"),
        (lambda m: m.update({"x.npy": npy(np.zeros(3))}), r"names that differ in \['x'\]"),
        (lambda m: m.update({"parameters/conv/bias.npy": npy(np.zeros(4, "f4"))}), r"shape \(3,\), received \(4,\)"),
        (lambda m: m.update({"parameters/conv/bias.npy": npy(np.zeros(3))}), r"wanted float32, received float64"),
        (
            lambda m: m.update({"parameters/conv/bias.npy": npy(np.ones(3, "f4"))}),
            r"conv/bias' is damaged: wanted bytes",
        ),
    ],
)
def test_archives_of_ours_that_were_changed(saved, change, wanted):
    """By someone who writes whole archives."""
    members = members_of(saved)
    change(members)
    archive(saved, members)
    net = make_net("Adam", seed=8)
    before = state_of(net)
    with pytest.raises(SnapshotError, match=wanted):
        formats.load(net, saved)
    assert state_of(net) == before


def test_a_wrong_bit_is_named(saved):
    content = bytearray(saved.read_bytes())
    content[content.index(tensor.to_numpy(trained().parameters()["first/weight"]).tobytes())] ^= 1
    saved.write_bytes(content)
    with pytest.raises(
        SnapshotError, match=r"net\.npz: member 'parameters/first/weight\.npy' is damaged: wanted CRC-32"
    ):
        formats.load(make_net("Adam"), saved)


def test_a_packed_copy_of_ours(saved):
    """Someone unpacked and packed it again: it is read, and verified."""
    archive(saved, members_of(saved), zipfile.ZIP_DEFLATED)
    net = make_net("Adam", seed=8)
    formats.load(net, saved)
    assert state_of(net) == state_of(trained())


# ---- disks


def test_an_error_at_any_write(saved, monkeypatch):
    """Every call that writes fails once."""
    net, before, write = trained(), saved.read_bytes(), output.write_all
    calls: list[int] = []

    def failing(at: int) -> Callable[[Any, Any], None]:
        def write_all(file: Any, data: Any) -> None:
            calls.append(at)
            if calls.count(at) > at:
                raise OSError(28, "No space left on device")
            write(file, data)

        return write_all

    number = 0
    while True:
        monkeypatch.setattr(output, "write_all", failing(number))
        calls.clear()
        try:
            formats.save(net, saved)
        except SnapshotError as error:
            assert "No space left on device" in str(error)
            assert str(saved) in str(error)
            assert saved.read_bytes() == before
            assert list(saved.parent.iterdir()) == [saved]
            number += 1
        else:
            break
    assert number > 100
    assert saved.read_bytes() == before


@pytest.mark.parametrize("place", ["_write", "writing"])
def test_an_interrupt_stays_one(saved, monkeypatch, place):
    """Ctrl-C in the body, and where a member has been begun but nobody can end it."""
    before = saved.read_bytes()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    owner, name = (npz, "_write") if place == "_write" else (zipfile._ZipWriteFile, "__init__")
    monkeypatch.setattr(owner, name, interrupt)
    with pytest.raises(KeyboardInterrupt):
        formats.save(trained(), saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_an_error_of_what_is_saved_is_not_one_of_the_archive(tmp_path):
    def fail() -> np.ndarray:
        raise ValueError("of the fetching")

    with pytest.raises(ValueError, match="of the fetching"):
        formats.write(Tree({"a": LazyArray((2,), np.dtype("f4"), fail)}), tmp_path / "x.npz")


def test_the_error_of_a_full_disk_names_entry_and_bytes(saved, monkeypatch):
    def full(file: Any, data: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output, "write_all", full)
    with pytest.raises(
        SnapshotError, match=r"entry 'parameters/conv/weight': No space .* the whole file would have \d+"
    ):
        formats.save(trained(), saved)


def test_arrays_that_no_reader_would_list(tmp_path, monkeypatch):
    """A file that would be refused when it is read is not written."""
    few = numbers(**{f"{number}" * 300: np.zeros(1, np.float32) for number in range(3)})
    monkeypatch.setattr(raw, "ROOM", 0)
    with pytest.raises(SnapshotError, match=r"x\.npz: the list of members, when it is read: would take about"):
        formats.write(few, tmp_path / "x.npz")
    monkeypatch.setattr(raw, "ROOM", 2_100)
    with pytest.raises(SnapshotError, match=r"x\.npz: the manifest, when it is read: would take about"):
        formats.write(few, tmp_path / "x.npz")
    assert not list(tmp_path.iterdir())


def test_one_array_at_a_time(tmp_path):
    size = 8 << 20
    ones = LazyArray((size // 4,), np.dtype("f4"), lambda: np.ones(size // 4, "f4"))
    made = {f"parameters/{n}/y": ones for n in range(4)}
    tracemalloc.start()
    try:
        formats.write(Tree(made), tmp_path / "x.npz")
        assert tracemalloc.get_traced_memory()[1] < 1.2 * size
        tracemalloc.reset_peak()
        with formats.opened(tmp_path / "x.npz") as source:
            for path in made:
                source.read(path)
        assert tracemalloc.get_traced_memory()[1] < 1.2 * size
    finally:
        tracemalloc.stop()


def test_sizes_of_files(tmp_path):
    formats.write(numbers(y=np.zeros((1000, 1000), np.float32)), tmp_path / "x.npz")
    assert 4_000_000 < (tmp_path / "x.npz").stat().st_size < 4_002_000


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError), formats.opened(tmp_path / "none.npz"):
        pass
    os.mkdir(tmp_path / "x.npz")
    with pytest.raises(SnapshotError, match=r"no ordinary file"), formats.opened(tmp_path / "x.npz"):
        pass


def test_members_of_an_archive(tmp_path):
    """The directory's own account of where things are, against that of `zipfile`."""
    path = archive(tmp_path / "x.npz", {"a.npy": npy(np.zeros(7)), "b/é.npy": npy(np.ones(3))})
    with raw.reading(path) as stored, zipfile.ZipFile(path) as file:
        found = zip_directory.members(stored)
        assert list(found) == file.namelist()
        for name, member in found.items():
            info = file.getinfo(name)
            assert (member.crc, member.size, member.packed) == (info.CRC, info.file_size, info.compress_size)
            assert bytes(zip_member.read(stored, member)) == file.read(name)


def test_names_of_members_are_all_different():
    odd = [".", "..", "%", "%2E", "%25", "\\", "%5C", "\0", "%00", "a", "a.", ".a", "%2E%2E", "%252E", "", "/", "%/"]
    assert len({npz.member_name(f"parameters/{name}/weight") for name in odd}) == len(odd)
