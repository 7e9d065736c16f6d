"""Reads data sets from files into NumPy arrays: MNIST's IDX, CIFAR-10's binary form, `.npz` and HDF5.

Arrays come out as the file stores them: nothing is scaled, shuffled, split or converted. To scale the
pixels and widen the class ids is up to the caller::

    images, labels = load_idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    x = images[:, None].astype(np.float32) / 255  # (n, 1, 28, 28), pixels in 0..1
    y = labels.astype(np.int32)

A file that is not there raises the operating system's own error (`FileNotFoundError`). One whose content is
not what its format says, and a folder, raise `errors.DataFileError`, a `DataError` and a `ValueError`, which names the
file, what was wanted and what was received.
"""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, overload

import numpy as np

from singa_lite.common import checks
from singa_lite.common.array_types import Array
from singa_lite.common.errors import DataFileError
from singa_lite.common.keywords import explains_keywords
from singa_lite.data.reading import reading

FilePath: TypeAlias = str | os.PathLike[str]

IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
CIFAR10_SHAPE = (3, 32, 32)
CIFAR10_CLASSES = 10
CIFAR10_TRAINING_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))


def _names(where: str, given: object) -> None:
    """TypeError for what is no list of texts; one text is a sequence of names of one letter."""
    if isinstance(given, str) or not (checks.goes_through(given) and all(isinstance(one, str) for one in given)):
        raise TypeError(f"{where}: wanted a list of names, received {given!r:.100}")


@overload
def load_idx(images: FilePath, labels: None = None) -> Array: ...
@overload
def load_idx(images: FilePath, labels: FilePath) -> tuple[Array, Array]: ...
@explains_keywords(images=checks.path, labels=checks.or_none(checks.path))
def load_idx(images: FilePath, labels: FilePath | None = None) -> Array | tuple[Array, Array]:
    """Returns the array of an IDX file, and that of a second one with the labels if it is named.

    Gzipped files are recognised by their content. Any of the six IDX types and any number of axes is read;
    MNIST's images are (n, 28, 28) uint8 (no channel axis) and its labels (n,) uint8. Format: "The IDX
    file format", http://yann.lecun.com/exdb/mnist.

    images: the file with the samples; labels: the file with one label a sample. The arrays have the file's
    shape and type, in native byte order. DataFileError for a malformed file, or unequal sample counts.

    >>> from pathlib import Path
    >>> _ = Path("images.idx").write_bytes(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]))
    >>> print(data.load_idx("images.idx"))
    [[1 2 3]
     [4 5 6]]
    """
    samples = _read_idx(Path(images))
    if labels is None:
        return samples
    targets = _read_idx(Path(labels))
    if samples.shape[:1] != targets.shape[:1]:
        wanted = f"as many labels as {os.fspath(images)} has samples, {samples.shape[:1]}"
        raise _malformed(labels, wanted, targets.shape[:1])
    return samples, targets


@explains_keywords(paths=checks.paths)
def load_cifar10(paths: FilePath | Sequence[FilePath]) -> tuple[Array, Array]:
    """Returns the images and labels of CIFAR-10's binary version.

    A file is a row of records of one label byte and 3 x 32 x 32 pixel bytes. Format: "Binary version" in
    https://www.cs.toronto.edu/~kriz/cifar.html.

    paths: a `.bin` file, several of them, or the folder `cifar-10-batches-bin`, which stands for its five
    training files; the test set is `folder / "test_batch.bin"`. Gives images (n, 3, 32, 32) uint8, channels
    red, green, blue, and labels (n,) uint8 in 0..9; files follow each other in the order given. ValueError if
    no file is named, DataFileError for one without a whole number of records, or with a label above 9.

    >>> np.zeros((2, 1 + 3 * 32 * 32), "uint8").tofile("batch.bin")
    >>> images, labels = data.load_cifar10("batch.bin")
    >>> images.shape, labels.shape
    ((2, 3, 32, 32), (2,))
    """
    files = _cifar10_files(paths)
    record = 1 + math.prod(CIFAR10_SHAPE)
    counts = [_count_records(file, record) for file in files]
    images = np.empty((sum(counts), *CIFAR10_SHAPE), np.uint8)
    labels = np.empty(sum(counts), np.uint8)
    start = 0
    for file, count in zip(files, counts, strict=True):
        records = np.fromfile(file, np.uint8).reshape(count, record)
        _check_labels(file, records[:, 0])
        labels[start : start + count] = records[:, 0]
        images[start : start + count] = records[:, 1:].reshape(count, *CIFAR10_SHAPE)
        start += count
    return images, labels


@explains_keywords(path=checks.path, names=_names)
def load_npz(path: FilePath, names: Sequence[str]) -> tuple[Array, ...]:
    """Returns the named arrays of a `.npz` file, in the order of `names`.

    `x, y = load_npz("set.npz", ["x", "y"])` reads two. Pickled objects are refused, since reading
    them could run any code.

    DataFileError for a malformed file, an entry of Python objects, or a missing one (with those there are).

    >>> np.savez("set.npz", x=np.ones((4, 5)), y=np.ones(4))
    >>> x, y = data.load_npz("set.npz", ["x", "y"])
    >>> x.shape, y.shape
    ((4, 5), (4,))
    """
    with reading(path, "an .npz archive"), open(path, "rb") as file:  # np.load leaves a broken archive open
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise _malformed(path, "an .npz archive", "a single .npy array")
        _check_present(path, [name for name in names if name not in archive.files], archive.files)
        return tuple(_read_npz_entry(path, archive, name) for name in names)


@explains_keywords(path=checks.path, names=_names)
def load_hdf5(path: FilePath, names: Sequence[str]) -> tuple[Array, ...]:
    """Returns the named data sets of an HDF5 file, in the order of `names`; `"group/name"` reaches into groups.

    DataFileError for a malformed file, or a missing data set (with those there are).

    >>> import h5py
    >>> with h5py.File("set.h5", "w") as file:
    ...     file["train/x"] = np.ones((4, 5))
    >>> (x,) = data.load_hdf5("set.h5", ["train/x"])
    >>> x.shape
    (4, 5)
    """
    import h5py

    with reading(path, "an HDF5 file"), h5py.File(path, "r") as file:
        found: list[str] = []
        file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
        missing = [name for name in names if file.get(name, getclass=True) is not h5py.Dataset]
        _check_present(path, missing, found)
        return tuple(np.asarray(file[name][()]) for name in names)


def _malformed(path: FilePath, wanted: str, received: object) -> DataFileError:
    return DataFileError(f"{os.fspath(path)}: wanted {wanted}, received {received}")


def _read_idx(path: Path) -> Array:
    content = _read_maybe_gzipped(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_DTYPES:
        types = ", ".join(f"{code:02x}" for code in IDX_DTYPES)
        wanted_magic = f"an IDX magic number 00 00 <type> <axes>, type one of {types}"
        raise _malformed(path, wanted_magic, content[:4].hex(" "))
    dtype, axes = np.dtype(IDX_DTYPES[content[2]]), content[3]
    header = 4 + 4 * axes
    if len(content) < header:
        raise _malformed(path, f"a header of {header} bytes for {axes} axes", f"{len(content)} bytes")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", axes, offset=4))
    wanted = header + math.prod(shape) * dtype.itemsize
    if len(content) != wanted:
        raise _malformed(path, f"{wanted} bytes for shape {shape} of {dtype.name}", f"{len(content)} bytes")
    values = np.frombuffer(content, dtype, offset=header).reshape(shape)
    return values.astype(dtype.newbyteorder("="))  # a copy in any case: a buffer of bytes is read-only


def _read_maybe_gzipped(path: Path) -> bytes:
    with reading(path, "an IDX file"):
        content = path.read_bytes()
    if not content.startswith(b"\x1f\x8b"):
        return content
    with reading(path, "a whole gzip file"):
        return gzip.decompress(content)


def _cifar10_files(paths: FilePath | Sequence[FilePath]) -> list[Path]:
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        return [path / name for name in CIFAR10_TRAINING_FILES] if path.is_dir() else [path]
    files = [Path(path) for path in paths]
    if not files:
        raise ValueError("wanted at least one CIFAR-10 file, received an empty sequence")
    return files


def _count_records(file: Path, record: int) -> int:
    with reading(file, "CIFAR-10 records"):
        count, rest = divmod(file.stat().st_size, record)
    if rest or not count:
        received = f"{file.stat().st_size} bytes"
        raise _malformed(file, f"one or more CIFAR-10 records of {record} bytes", received)
    return count


def _check_labels(file: Path, labels: Array) -> None:
    wrong = np.flatnonzero(labels >= CIFAR10_CLASSES)
    if wrong.size:
        received = f"{labels[wrong[0]]} in record {wrong[0]}"
        raise _malformed(file, f"labels from 0 to {CIFAR10_CLASSES - 1}", received)


def _check_present(path: FilePath, missing: list[str], found: list[str]) -> None:
    if missing:
        raise _malformed(path, f"entries {missing}", f"a file with the entries {sorted(found)}")


def _read_npz_entry(path: FilePath, archive: np.lib.npyio.NpzFile, name: str) -> Array:
    with reading(path, f"an array in entry {name!r}"):
        values = archive[name]
    if not isinstance(values, np.ndarray):  # a member that is not in NumPy's format comes back as bytes
        raise _malformed(path, f"an array in entry {name!r}", type(values).__name__)
    return values
