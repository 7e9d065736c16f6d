"""The loaders of singa_lite.data, on small files written byte by byte."""

from __future__ import annotations

import gzip
import math
import re
import struct
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from singa_lite.data import load_cifar10, load_hdf5, load_idx, load_npz
from singa_lite.errors import DataError

IDX_CODES = [(0x08, "u1"), (0x09, "i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]


def idx_bytes(values: np.ndarray, code: int) -> bytes:
    """`values`, already big-endian, as an IDX file."""
    header = bytes([0, 0, code, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.tobytes()


def ramp(shape: tuple[int, ...], dtype: str = "u1") -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape).astype(dtype)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# --- IDX ----------------------------------------------------------------------------------------------------


def test_idx_matches_bytes_written_by_hand(tmp_path):
    content = bytes.fromhex("00000b02 00000002 00000003  0001 0100 ffff  7fff 8000 0002")
    values = load_idx(write(tmp_path / "a", content))
    assert values.tolist() == [[1, 256, -1], [32767, -32768, 2]]
    assert values.dtype == np.int16


@pytest.mark.parametrize(("code", "dtype"), IDX_CODES)
def test_idx_reads_every_type_in_native_order_and_writable(tmp_path, code, dtype):
    wanted = (ramp((2, 3, 5), ">f8") - 7).astype(dtype)
    values = load_idx(write(tmp_path / "a", idx_bytes(wanted, code)))
    assert values.dtype == np.dtype(dtype).newbyteorder("=")
    assert values.dtype.isnative
    np.testing.assert_array_equal(values, wanted)
    values[0] = 0


def test_idx_pair_packed_by_gzip_or_not_whatever_its_name(tmp_path):
    pixels, classes = ramp((4, 3, 2)), ramp((4,))
    images = write(tmp_path / "images.gz", idx_bytes(pixels, 0x08))
    x, y = load_idx(str(images), write(tmp_path / "labels", gzip.compress(idx_bytes(classes, 0x08), mtime=0)))
    np.testing.assert_array_equal(x, pixels)
    np.testing.assert_array_equal(y, classes)
    with pytest.raises(ValueError, match=r"labels: .*\(4,\).*\(5,\)"):
        load_idx(images, write(tmp_path / "labels", idx_bytes(ramp((5,)), 0x08)))


GOOD_IDX = idx_bytes(ramp((4, 3)), 0x08)


PACKED = gzip.compress(GOOD_IDX, mtime=0)
BROKEN_IDX = [
    *(b"", GOOD_IDX[:3], b"\x00\x01" + GOOD_IDX[2:], b"\x00\x00\x0a" + GOOD_IDX[3:], GOOD_IDX[:9]),
    *(GOOD_IDX[:-1], GOOD_IDX + b"\x00", b"\x00\x00\x08\x03" + b"\xff" * 12),
    *(PACKED[:-9], PACKED[:-8] + b"\x00" * 8, b"\x1f\x8b" + b"\x08" * 30),
]


def test_malformed_idx_is_named(tmp_path):
    for content in BROKEN_IDX:
        path = write(tmp_path / "broken", content)
        with pytest.raises(DataError, match=re.escape(f"{path}: wanted")):
            load_idx(path)


# --- CIFAR-10 -----------------------------------------------------------------------------------------------


def cifar_records(labels: list[int], seed: int) -> tuple[bytes, np.ndarray]:
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    records = (bytes([label]) + image.tobytes() for label, image in zip(labels, pixels, strict=True))
    return b"".join(records), pixels


def test_cifar10_files_follow_each_other(tmp_path):
    first, first_pixels = cifar_records([3, 9], 0)
    second, second_pixels = cifar_records([0, 7, 1], 1)
    paths = [write(tmp_path / "b.bin", first), str(write(tmp_path / "a.bin", second))]
    images, labels = load_cifar10(paths)
    assert (images.shape, images.dtype, labels.dtype) == ((5, 3, 32, 32), np.uint8, np.uint8)
    assert labels.tolist() == [3, 9, 0, 7, 1]
    np.testing.assert_array_equal(images, np.concatenate([first_pixels, second_pixels]))


def test_cifar10_planes_are_red_green_blue_rows_first(tmp_path):
    record = bytearray(3073)
    record[0], record[1 + 2 * 1024 + 5 * 32 + 7] = 4, 200
    images, labels = load_cifar10(write(tmp_path / "one.bin", bytes(record)))
    assert np.argwhere(images).tolist() == [[0, 2, 5, 7]]
    assert labels.tolist() == [4]


def test_cifar10_folder_stands_for_the_five_training_files(tmp_path):
    write(tmp_path / "test_batch.bin", cifar_records([9], 9)[0])
    for number in (5, 3, 1, 4, 2):
        with pytest.raises(FileNotFoundError, match=r"data_batch_\d\.bin"):
            load_cifar10(tmp_path)
        write(tmp_path / f"data_batch_{number}.bin", cifar_records([number] * number, number)[0])
    images, labels = load_cifar10(tmp_path)
    assert labels.tolist() == [1] + [2] * 2 + [3] * 3 + [4] * 4 + [5] * 5
    assert images.shape == (15, 3, 32, 32)


def test_malformed_cifar10_is_named(tmp_path):
    for content, words in (
        *((bytes(size), f"{size} bytes") for size in (0, 3072, 3074, 2 * 3073 - 1)),
        (cifar_records([9, 10, 11], 0)[0], "10 in record 1"),
    ):
        with pytest.raises(ValueError, match=rf"short\.bin: .*{words}"):
            load_cifar10(write(tmp_path / "short.bin", content))
    with pytest.raises(ValueError, match="CIFAR-10"):
        load_cifar10([])


# --- npz ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_gives_the_arrays_in_the_order_asked(tmp_path, save):
    x, y = ramp((4, 3, 2), "f4"), ramp((4,), "i8")
    save(tmp_path / "set.npz", x=x, y=y, unused=np.zeros(1))
    labels, samples = load_npz(tmp_path / "set.npz", ["y", "x"])
    np.testing.assert_array_equal(labels, y, strict=True)
    np.testing.assert_array_equal(samples, x, strict=True)


def test_npz_entries_that_are_no_arrays_are_named(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, x=np.zeros(2000), b=np.zeros(3), objects=np.array([{}], dtype=object))
    content = bytearray(path.read_bytes())
    content[1000] ^= 0xFF
    path.write_bytes(content)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("text", b"text")
    for name in ("x", "objects", "text", "none"):
        with pytest.raises(ValueError, match=rf"set\.npz: wanted .*'{name}'"):
            load_npz(path, ["b", name])


# --- HDF5 ---------------------------------------------------------------------------------------------------


@pytest.fixture
def hdf5(tmp_path) -> Path:
    path = tmp_path / "set.h5"
    with h5py.File(path, "w") as file:
        file["train/x"] = ramp((4, 3, 2), "f4")
        file["y"] = ramp((4,), "i8")
        file["alias"] = h5py.SoftLink("/y")
    return path


def test_hdf5_gives_the_arrays_in_the_order_asked(hdf5):
    y, x, alias = load_hdf5(hdf5, ["y", "train/x", "alias"])
    np.testing.assert_array_equal(x, ramp((4, 3, 2), "f4"), strict=True)
    np.testing.assert_array_equal(y, ramp((4,), "i8"), strict=True)
    np.testing.assert_array_equal(alias, y, strict=True)


@pytest.mark.parametrize("name", ["x", "train", "y/x"])
def test_hdf5_missing_entry_or_group_lists_what_there_is(hdf5, name):
    with pytest.raises(ValueError, match=rf"set\.h5: .*{name}.*train/x"):
        load_hdf5(hdf5, ["y", name])


# --- all ----------------------------------------------------------------------------------------------------


LOADERS = {
    "idx": load_idx,
    "cifar10": load_cifar10,
    "npz": lambda path: load_npz(path, ["x"]),
    "hdf5": lambda path: load_hdf5(path, ["x"]),
}


@pytest.mark.parametrize("name", LOADERS)
def test_what_is_no_such_file_is_one_error_of_data(tmp_path, name):
    contents = (b"", b"text" * 50, gzip.compress(b"text"), b"PK\x03\x04" + b"?" * 90, b"\x93NUMPY\x01\x00" + b"?" * 90)
    for content in contents:
        with pytest.raises(DataError, match=r"^.*any: wanted"):
            LOADERS[name](write(tmp_path / "any", content))
    with pytest.raises(FileNotFoundError, match="absent"):
        LOADERS[name](tmp_path / "absent")
    (tmp_path / "folder").mkdir()
    if name != "cifar10":  # which stands for the files in it
        with pytest.raises(DataError, match="folder: "):
            LOADERS[name](tmp_path / "folder")


@pytest.mark.parametrize("name", ["npz", "hdf5"])
def test_any_damage_is_one_error_of_data(tmp_path, name):
    path, random = tmp_path / "set", np.random.default_rng(3)
    if name == "npz":
        with open(path, "wb") as file:
            np.savez(file, x=ramp((20, 30), "f8"))
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=ramp((20, 30), "f8"), chunks=(5, 30), compression="gzip", fletcher32=True)
    whole = path.read_bytes()
    for _ in range(60):
        content = bytearray(whole)
        for place in random.integers(len(content), size=30):
            content[place] ^= 0x55
        write(path, bytes(content[: random.integers(len(content) // 2, len(content))]))
        with pytest.raises(DataError, match="set: wanted"):
            LOADERS[name](path)
