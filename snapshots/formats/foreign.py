"""Recognises a file that cannot be read here by its content, and says what can be done about it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.formats.table import FORMATS, Path
from singa_lite.snapshots.readers.raw import to_read

#: Bytes that are searched at each end of a file, where the names of what is in it lie.
_SEARCHED = 1 << 20

_ARRAYS = "write its arrays with numpy.savez, each under a name such as 'parameters/dense/weight'"
_TORCH = "safetensors.torch.save_file(state_dict, 'net.safetensors')"
_UNPACK = "unpack it first"
_LANGUAGE = "singa_lite.models.load(path) makes the net of a language model"


class Kind(NamedTuple):
    """what: the file, in words; advice: what to do with it; suffixes: of the files that are read here, if it is one.

    is_vague: whether it may be a damaged file of ours too, so that the reader's own reason is told as well.
    """

    what: str
    advice: str = _ARRAYS
    suffixes: tuple[str, ...] = ()
    is_vague: bool = False


_SAVE_WEIGHTS = "in Keras, load_model(path).save_weights('net.weights.h5') writes what is read here"
_TRUST = "makes its objects, if you trust it; no pickle is run here"

NATIVE = Kind("a snapshot of singa_lite", suffixes=(".h5", ".hdf5"))
KERAS_WEIGHTS = Kind("weights of Keras 3", suffixes=(".weights.h5",))
OLD_KERAS = Kind("weights of Keras 2", "in Keras, model.load_weights(path), then model.save_weights('net.weights.h5')")
TORCH = Kind("a PyTorch file, of torch.save", f"in PyTorch, torch.load(path, weights_only=True) and {_TORCH}")
JOBLIB = Kind("a pickle of joblib", f"joblib.load(path) {_TRUST}")
SAVED_MODEL = Kind("a SavedModel of TensorFlow", f"in TensorFlow, tf.saved_model.load(path); {_ARRAYS}")
ONNX = Kind("an ONNX model", f"in Python, onnx.load(path) and onnx.numpy_helper.to_array; {_ARRAYS}")
INDEX = Kind("a checkpoint of TensorFlow", f"in TensorFlow, tf.train.load_checkpoint; {_ARRAYS}")

_ZIP, _PICKLE = rb"PK\x03\x04", rb"\x80[\x02-\x05]"
_HDF5 = rb"(.{512}|.{1024}|.{2048})?\x89HDF\r\n\x1a\n"

#: (how a content begins, words that are all in it, what it is); the first that fits.
_CONTENTS: tuple[tuple[bytes, tuple[bytes, ...], Kind], ...] = (
    (rb"\Z", (), Kind("an empty file", "it was not written, copied or loaded down whole", is_vague=True)),
    (_ZIP, (b"constants.pkl",), Kind("a TorchScript program", f"torch.jit.load(path).state_dict() and {_TORCH}")),
    (_ZIP, (b"data.pkl",), TORCH),
    (_ZIP, (b"model.weights.h5",), Kind("a whole model of Keras 3", f"{_SAVE_WEIGHTS}, or unzip its model.weights.h5")),
    (_ZIP, (b"tensor_dict.npz",), Kind("a snapshot of SINGA 3.1 or later", suffixes=(".zip",))),
    (_ZIP, (b"saved_model.pb",), SAVED_MODEL),
    (_ZIP, (b".npy",), Kind("a NumPy archive", suffixes=(".npz",))),
    (_ZIP, (), Kind("a zip archive", _UNPACK, is_vague=True)),
    (_HDF5, (b"manifest_sha256",), NATIVE),
    (_HDF5, (b"singa_lite", b"vars"), KERAS_WEIGHTS),
    (_HDF5, (b"singa_lite",), NATIVE),
    (_HDF5, (b"model_config",), Kind("a whole model of Keras in HDF5", _SAVE_WEIGHTS)),
    (_HDF5, (b"layer_names",), OLD_KERAS),
    (_HDF5, (b"layers", b"vars"), KERAS_WEIGHTS),
    (_HDF5, (), Kind("an HDF5 file of another program, or a damaged one", f"h5py reads it; {_ARRAYS}", is_vague=True)),
    (rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.", (), TORCH),
    (_PICKLE, (b"joblib",), JOBLIB),
    (_PICKLE, (b"torch",), TORCH),
    (_PICKLE, (), Kind("a Python pickle", f"pickle.load {_TRUST}; {_ARRAYS}", is_vague=True)),
    (rb"x[\x01\x5e\x9c\xda]", (), JOBLIB),
    (rb"sg\x01\x00", (), Kind("a snapshot of SINGA", suffixes=(".bin", ".model"))),
    (rb".{4}\x00{4}\{", (), Kind("a safetensors file", suffixes=(".safetensors",))),
    (rb"\x93NUMPY", (), Kind("one array of numpy.save", f"it has no name; {_ARRAYS}")),
    (rb"GGUF", (), Kind("a GGUF file of a language model", _LANGUAGE)),
    (rb"lmgg|tjgg", (), Kind("an old file of llama.cpp", "take the model's GGUF file")),
    (rb".{4}TFL3", (), Kind("a model of TensorFlow Lite")),
    (rb"\x08[\x03-\x14][\x12\x1a:B]", (), ONNX),
    (rb"version https://git-lfs", (), Kind("a pointer of Git LFS, without the file", "git lfs pull brings the file")),
    (rb"\s*<(!doctype|html|\?xml)", (), Kind("a page of the web", "load the file itself down")),
    (rb"\s*\{", (), Kind("a text of JSON", "load the files of arrays that it names or describes")),
    (rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|\x04\x22M\x18|7z\xbc\xaf|Rar!", (), Kind("a compressed file", _UNPACK)),
    (rb".{257}ustar", (), Kind("a tar archive", _UNPACK)),
    (rb"MATLAB", (), Kind("a MATLAB file", f"scipy.io.loadmat reads it; {_ARRAYS}")),
    (rb"PAR1|ARROW1|\x89PNG|\xff\xd8\xff|GIF8", (), Kind("a table or an image", "it is data; see singa_lite.data")),
)

#: What no content says, by the end of the name.
_ENDINGS = {
    ".onnx": ONNX,
    ".pb": Kind("a graph of TensorFlow", SAVED_MODEL.advice),
    ".index": INDEX,
    ".msgpack": Kind("parameters of Flax", f"flax.serialization.msgpack_restore reads it; {_ARRAYS}"),
}

#: {a file within a folder, by the end of its name: what the folder is}.
_FOLDERS = {
    "saved_model.pb": SAVED_MODEL,
    ".safetensors": Kind("a folder of Hugging Face", f"load the .safetensors file in it; {_LANGUAGE}"),
    "pytorch_model.bin": Kind("a folder of Hugging Face", TORCH.advice.replace("path", "its pytorch_model.bin")),
    ".index": INDEX,
    "_METADATA": Kind("a checkpoint of Orbax", f"in JAX, orbax.checkpoint reads it; {_ARRAYS}"),
    ".h5": Kind("a folder of snapshots", "load one of them; snapshots.latest(folder) names the newest checkpoint"),
    "": Kind("a folder", "load a file in it", is_vague=True),
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
        inside = [*os.listdir(name), ""]
        return next(kind for ending, kind in _FOLDERS.items() if any(each.endswith(ending) for each in inside))
    try:
        with to_read(name, "cannot be read") as file:
            head = file.read(_SEARCHED)
            file.seek(max(0, file.seek(0, os.SEEK_END) - _SEARCHED))
            ends = head + file.read(_SEARCHED)
    except OSError:
        return None
    for begin, words, kind in _CONTENTS:
        if re.match(begin, head, re.DOTALL | re.IGNORECASE) and all(word in ends for word in words):
            return kind
    return next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)
