"""What a file is that cannot be read here: recognised by its content, and what can be done about it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from singa_lite.errors import SnapshotError
from singa_lite.snapshots.formats.table import FORMATS, Path
from singa_lite.snapshots.readers import opening

#: Bytes that are searched at each end of a file.
_SEARCHED = 1 << 20

_ARRAYS = "write its arrays with numpy.savez, each under a name such as 'parameters/dense/weight'"
_TORCH = "safetensors.torch.save_file(state_dict, 'net.safetensors')"
_UNPACK = "unpack it first"


class Kind(NamedTuple):
    """what: the file, in words; advice: what to do with it; suffixes: of the files that are read here, if it is one.

    is_vague: whether it may be a damaged file of ours too, so that the reader's own reason is told as well.
    """

    what: str
    advice: str = _ARRAYS
    suffixes: tuple[str, ...] = ()
    is_vague: bool = False


NATIVE = Kind("a snapshot of singa_lite", suffixes=(".h5", ".hdf5"))
KERAS_WEIGHTS = Kind("weights of Keras 3", suffixes=(".weights.h5",))
SAFETENSORS = Kind("a safetensors file", suffixes=(".safetensors",))
NPZ = Kind("a NumPy archive", suffixes=(".npz",))
RECORDS = Kind("a snapshot of SINGA", suffixes=(".bin", ".model"))
SINGA_ZIP = Kind("a snapshot of SINGA 3.1 or later", suffixes=(".zip",))

_SAVE_WEIGHTS = "in Keras, load_model(path).save_weights('net.weights.h5') writes what is read here"
KERAS = Kind("a whole model of Keras 3", f"{_SAVE_WEIGHTS}; it is a zip archive, whose model.weights.h5 is that too")
KERAS_H5 = Kind("a whole model of Keras in HDF5", _SAVE_WEIGHTS)
OLD_WEIGHTS = Kind(
    "weights of Keras 2", "in Keras, model.load_weights(path), then model.save_weights('net.weights.h5')"
)
TORCH = Kind("a PyTorch file, of torch.save", f"in PyTorch, torch.load(path, weights_only=True) and {_TORCH}")
TORCH_SCRIPT = Kind("a TorchScript program", f"in PyTorch, torch.jit.load(path).state_dict() and {_TORCH}")
JOBLIB = Kind("a pickle of joblib", "joblib.load(path) makes its objects, if you trust it; no pickle is run here")
PICKLE = Kind(
    "a Python pickle",
    f"pickle.load makes its objects, if you trust it; no pickle is run here; {_ARRAYS}",
    is_vague=True,
)
SAVED_MODEL = Kind("a SavedModel of TensorFlow", f"in TensorFlow, tf.saved_model.load(path); {_ARRAYS}")
ONNX = Kind("an ONNX model", f"in Python, onnx.load(path) and onnx.numpy_helper.to_array; {_ARRAYS}")
GGUF = Kind("a GGUF file of llama.cpp", "take the model's .safetensors file, which Hugging Face has beside it")

#: How the contents of files begin.
_BEGINNINGS: tuple[tuple[bytes, Kind], ...] = (
    (b"GGUF", GGUF),
    *((magic, Kind("a GGML file of llama.cpp", GGUF.advice)) for magic in (b"lmgg", b"tjgg", b"fmgg")),
    (b"sg\x01\x00", RECORDS),
    (b"\x93NUMPY", Kind("one array of numpy.save", f"it has no name; {_ARRAYS}")),
    (b"version https://git-lfs", Kind("a pointer of Git LFS, without the file", "git lfs pull brings the file")),
    *(
        (begin, Kind("a page of the web", "load the file itself down"))
        for begin in (b"<!DOCTYPE", b"<!doctype", b"<html")
    ),
    (b"\x1f\x8b", Kind("a gzip archive", _UNPACK)),
    (b"BZh", Kind("a bzip2 archive", _UNPACK)),
    (b"\xfd7zXZ", Kind("an xz archive", _UNPACK)),
    (b"\x28\xb5\x2f\xfd", Kind("a Zstandard archive", _UNPACK)),
    (b'\x04"M\x18', Kind("an LZ4 archive", _UNPACK)),
    (b"7z\xbc\xaf", Kind("a 7z archive", _UNPACK)),
    (b"Rar!", Kind("a RAR archive", _UNPACK)),
    *(
        (begin, Kind("a compressed pickle of joblib", JOBLIB.advice))
        for begin in (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
    ),
    (b"MATLAB 5.0", Kind("a MATLAB file", f"scipy.io.loadmat reads it; {_ARRAYS}")),
    (b"PAR1", Kind("a table of Parquet", "it is data; data.Parquet reads it")),
    (b"ARROW1", Kind("a table of Arrow", "it is data; pandas.read_feather reads it")),
    *((begin, Kind("an image", "it is data")) for begin in (b"\x89PNG", b"\xff\xd8\xff", b"GIF8")),
)

#: What no content says, by the end of the name.
_ENDINGS = {
    ".onnx": ONNX,
    ".pb": Kind("a graph of TensorFlow", SAVED_MODEL.advice),
    ".msgpack": Kind("parameters of Flax", f"flax.serialization.msgpack_restore reads it; {_ARRAYS}"),
    ".mlmodel": Kind("a Core ML model"),
    ".caffemodel": Kind("a Caffe model"),
    ".params": Kind("parameters of MXNet"),
    ".index": Kind("the index of a TensorFlow checkpoint", f"in TensorFlow, tf.train.load_checkpoint; {_ARRAYS}"),
}

#: {a file within a folder, by the end of its name: what the folder is}.
_FOLDERS = {
    "saved_model.pb": SAVED_MODEL,
    ".safetensors": Kind("a folder of Hugging Face", "load the .safetensors file in it"),
    "pytorch_model.bin": Kind("a folder of Hugging Face", TORCH.advice.replace("path", "its pytorch_model.bin")),
    ".index": _ENDINGS[".index"]._replace(what="a checkpoint of TensorFlow"),
    "_METADATA": Kind("a checkpoint of Orbax", f"in JAX, orbax.checkpoint reads it; {_ARRAYS}"),
    ".h5": Kind("a folder of snapshots", "load one of them; snapshots.latest(folder) names the newest checkpoint"),
}


#: {words: what a file with them all is}, of zip archives, HDF5 and pickles; () stands for all others.
_Words = Mapping[tuple[bytes, ...], Kind]
_ARCHIVES: _Words = {
    (b"constants.pkl",): TORCH_SCRIPT,
    (b"data.pkl",): TORCH,
    (b"model.weights.h5",): KERAS,
    (b"tensor_dict.npz",): SINGA_ZIP,
    (b"saved_model.pb",): SAVED_MODEL,
    (b".npy",): NPZ,
    (): Kind("a zip archive", _UNPACK, is_vague=True),
}
_IN_HDF5: _Words = {
    (b"manifest_sha256",): NATIVE,
    (b"singa_lite", b"vars"): KERAS_WEIGHTS,
    (b"singa_lite",): NATIVE,
    (b"model_config",): KERAS_H5,
    (b"layer_names",): OLD_WEIGHTS,
    (b"layers", b"vars"): KERAS_WEIGHTS,
    (): Kind("an HDF5 file of another program, or a damaged one", f"h5py reads it; {_ARRAYS}", is_vague=True),
}
_PICKLES: _Words = {
    (b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",): TORCH,
    (b"joblib",): JOBLIB,
    (b"torch",): TORCH,
    (): PICKLE,
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Has a SnapshotError say what the file is, where it is none of the format that its name says."""
    try:
        yield
    except SnapshotError as error:
        name = os.fsdecode(path)
        found = kind_of(name)
        named = next((one.suffixes for one in FORMATS if name.lower().endswith(one.suffixes)), ())
        if found is None or set(found.suffixes) & set(named):
            raise
        advice = f"rename it so that it ends in {found.suffixes[0]}" if found.suffixes else found.advice
        reason = f"; {str(error).removeprefix(f'{name}: ')}" if found.is_vague and named else ""
        raise SnapshotError(f"{name}: wanted a snapshot, received {found.what}; {advice}{reason}") from error


def kind_of(name: str) -> Kind | None:
    """What a file or a folder of this name is; None where it is not there, cannot be read or is like nothing known."""
    if os.path.isdir(name):
        return _of_folder(os.listdir(name))
    try:
        with opening.to_read(name, "cannot be read") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(_SEARCHED)
            file.seek(max(0, size - _SEARCHED))
            tail = file.read(_SEARCHED)
    except OSError:
        return None
    by_name = next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)
    return _of_content(head, head + tail) or by_name


def _of_folder(names: list[str]) -> Kind:
    found = (kind for ending, kind in _FOLDERS.items() if any(name.endswith(ending) for name in names))
    return next(found, Kind("a folder", "load a file in it", is_vague=True))


def _of_content(head: bytes, ends: bytes) -> Kind | None:
    """head: of the file; ends: its first and last bytes, which hold the names of what is in it."""
    if not head:
        return Kind("an empty file", "it was not written, copied or loaded down whole", is_vague=True)
    if head.startswith(b"PK\x03\x04"):
        return _of_parts(ends, _ARCHIVES)
    if any(head[start:].startswith(b"\x89HDF\r\n\x1a\n") for start in (0, 512, 1024, 2048)):
        return _of_parts(ends, _IN_HDF5)
    if re.match(rb"\x80[\x02-\x05]", head):
        return _of_parts(head, _PICKLES)
    for begin, kind in _BEGINNINGS:
        if head.startswith(begin):
            return kind
    if re.match(rb"[\x00-\xff]{4}\x00{4}\{", head, re.DOTALL):
        return SAFETENSORS
    if re.match(rb"\s*\{", head):
        return Kind("a text of JSON", "load the files of arrays that it names or describes")
    if head[4:8] == b"TFL3":
        return Kind("a model of TensorFlow Lite")
    if head[257:262] == b"ustar":
        return Kind("a tar archive", _UNPACK)
    return ONNX if re.match(rb"\x08[\x03-\x14][\x12\x1a:B]", head) else None


def _of_parts(data: bytes, kinds: _Words) -> Kind:
    """The first kind whose words are all in the data."""
    return next(kind for words, kind in kinds.items() if all(word in data for word in words))
