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


def test_idx_pair_plain_and_gzipped(tmp_path):
    pixels, classes = ramp((4, 3, 2)), ramp((4,))
    images = write(tmp_path / "images.gz", gzip.compress(idx_bytes(pixels, 0x08), mtime=0))
    labels = write(tmp_path / "labels", idx_bytes(classes, 0x08))
    x, y = load_idx(str(images), labels)
    np.testing.assert_array_equal(x, pixels)
    np.testing.assert_array_equal(y, classes)


def test_idx_gzip_is_seen_by_content_not_by_name(tmp_path):
    pixels = ramp((2, 3))
    plain = write(tmp_path / "plain.gz", idx_bytes(pixels, 0x08))
    packed = write(tmp_path / "packed", gzip.compress(idx_bytes(pixels, 0x08), mtime=0))
    assert load_idx(plain).tolist() == load_idx(packed).tolist() == pixels.tolist()


def test_idx_counts_must_agree(tmp_path):
    images = write(tmp_path / "images", idx_bytes(ramp((4, 3, 2)), 0x08))
    labels = write(tmp_path / "labels", idx_bytes(ramp((5,)), 0x08))
    with pytest.raises(ValueError, match=r"labels: wanted as many labels .*\(4,\), received \(5,\)"):
        load_idx(images, labels)


GOOD_IDX = idx_bytes(ramp((4, 3)), 0x08)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "wanted an IDX magic number .*, received $"),
        (GOOD_IDX[:3], "wanted an IDX magic number .*, received 00 00 08$"),
        (b"\x00\x01" + GOOD_IDX[2:], "wanted an IDX magic number .*, received 00 01 08 02"),
        (b"\x00\x00\x0a" + GOOD_IDX[3:], "wanted an IDX magic number .*, received 00 00 0a 02"),
        (GOOD_IDX[:9], "wanted a header of 12 bytes for 2 axes, received 9 bytes"),
        (GOOD_IDX[:-1], r"wanted 24 bytes for shape \(4, 3\) of uint8, received 23 bytes"),
        (GOOD_IDX + b"\x00", r"wanted 24 bytes for shape \(4, 3\) of uint8, received 25 bytes"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, rf"wanted {(2**32 - 1) ** 3 + 16} bytes .* received 16 bytes"),
        (gzip.compress(GOOD_IDX, mtime=0)[:-9], "wanted a whole gzip file"),
        (gzip.compress(GOOD_IDX, mtime=0)[:-8] + b"\x00" * 8, "wanted a whole gzip file"),
        (b"\x1f\x8b" + b"\x08" * 30, "wanted a whole gzip file"),
    ],
)
def test_idx_malformed_file_is_named_with_what_was_wanted(tmp_path, content, message):
    path = write(tmp_path / "broken", content)
    with pytest.raises(ValueError, match=re.escape(f"{path}: ") + message):
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
    for number in (5, 3, 1, 4, 2):
        write(tmp_path / f"data_batch_{number}.bin", cifar_records([number] * number, number)[0])
    write(tmp_path / "test_batch.bin", cifar_records([9], 9)[0])
    images, labels = load_cifar10(tmp_path)
    assert labels.tolist() == [1] + [2] * 2 + [3] * 3 + [4] * 4 + [5] * 5
    assert images.shape == (15, 3, 32, 32)


def test_cifar10_incomplete_folder_names_the_missing_file(tmp_path):
    write(tmp_path / "data_batch_1.bin", cifar_records([1], 0)[0])
    with pytest.raises(FileNotFoundError, match=r"data_batch_2\.bin"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("size", [0, 3072, 3074, 2 * 3073 - 1])
def test_cifar10_wants_whole_records(tmp_path, size):
    path = write(tmp_path / "short.bin", bytes(size))
    with pytest.raises(ValueError, match=rf"short\.bin: wanted .* of 3073 bytes, received {size} bytes"):
        load_cifar10(path)


def test_cifar10_label_out_of_range(tmp_path):
    path = write(tmp_path / "coarse.bin", cifar_records([9, 10, 11], 0)[0])
    with pytest.raises(ValueError, match=r"coarse\.bin: wanted labels from 0 to 9, received 10 in record 1"):
        load_cifar10(path)


def test_cifar10_without_files():
    with pytest.raises(ValueError, match="at least one CIFAR-10 file, received an empty sequence"):
        load_cifar10([])


# --- npz ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_gives_the_arrays_in_the_order_asked(tmp_path, save):
    x, y = ramp((4, 3, 2), "f4"), ramp((4,), "i8")
    save(tmp_path / "set.npz", x=x, y=y, unused=np.zeros(1))
    labels, samples = load_npz(tmp_path / "set.npz", ["y", "x"])
    np.testing.assert_array_equal(labels, y, strict=True)
    np.testing.assert_array_equal(samples, x, strict=True)


def test_npz_missing_entry_lists_what_there_is(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.zeros(2), b=np.zeros(3))
    with pytest.raises(ValueError, match=r"set\.npz: wanted entries \['y'\], received .* \['b', 'x'\]"):
        load_npz(tmp_path / "set.npz", ["x", "y"])


def test_npz_objects_are_refused(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"set\.npz: wanted an array in entry 'x', .*allow_pickle=False"):
        load_npz(tmp_path / "set.npz", ["x"])


def test_npz_member_that_is_no_array(tmp_path):
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as archive:
        archive.writestr("x", b"text")
    with pytest.raises(ValueError, match=r"set\.npz: wanted an array in entry 'x', received bytes"):
        load_npz(tmp_path / "set.npz", ["x"])


def test_npz_damaged_entry(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.zeros(2000))
    content = bytearray((tmp_path / "set.npz").read_bytes())
    content[1000] ^= 0xFF
    write(tmp_path / "set.npz", bytes(content))
    with pytest.raises(ValueError, match=r"set\.npz: wanted an array in entry 'x', received .*CRC"):
        load_npz(tmp_path / "set.npz", ["x"])


def test_npz_malformed_file(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.zeros(2000))
    whole = (tmp_path / "set.npz").read_bytes()
    for content in (b"", b"no archive at all", whole[: len(whole) // 2]):
        path = write(tmp_path / "broken.npz", content)
        with pytest.raises(ValueError, match=r"broken\.npz: wanted an \.npz archive, received "):
            load_npz(path, ["x"])


def test_npz_single_array_is_no_archive(tmp_path):
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"one\.npy: wanted an \.npz archive, received a single \.npy array"):
        load_npz(tmp_path / "one.npy", ["x"])


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
    with pytest.raises(ValueError, match=rf"set\.h5: wanted entries \['{name}'\], .* \['train/x', 'y'\]"):
        load_hdf5(hdf5, ["y", name])


def test_hdf5_malformed_file(tmp_path, hdf5):
    for content in (b"", b"no HDF5" * 100, hdf5.read_bytes()[:1000]):
        path = write(tmp_path / "broken.h5", content)
        with pytest.raises(ValueError, match=r"broken\.h5: wanted an HDF5 file, received "):
            load_hdf5(path, ["y"])


# --- all ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [load_npz, load_hdf5])
def test_names_must_not_be_one_string(tmp_path, load):
    with pytest.raises(TypeError, match="wanted a sequence of entry names, received the single string 'xy'"):
        load(tmp_path / "any", "xy")


@pytest.mark.parametrize(
    "load", [load_idx, load_cifar10, lambda path: load_npz(path, ["x"]), lambda path: load_hdf5(path, ["x"])]
)
def test_absent_file_is_the_systems_own_error(tmp_path, load):
    with pytest.raises(FileNotFoundError, match="absent"):
        load(tmp_path / "absent")


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
    (tmp_path / "folder").mkdir()
    if name != "cifar10":  # which stands for the files in it
        with pytest.raises(DataError, match=r"folder: wanted .*, received a folder"):
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
