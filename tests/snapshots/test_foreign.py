"""Files of other programs, and files with wrong endings: the error says what the file is and what to do."""

from __future__ import annotations

import gzip
import io
import pickle
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

import singa_lite
import skips
from format_cases import WRITTEN
from nets import state_of
from singa_files import zipped
from singa_lite import SnapshotError
from singa_lite.snapshots import formats
from snapshot_nets import dense_net


def hdf5(**attributes: object) -> bytes:
    data = io.BytesIO()
    with h5py.File(data, "w") as file:
        file["group/array"] = np.ones(3)
        file.attrs.update(attributes)
    return data.getvalue()


def array() -> bytes:
    data = io.BytesIO()
    np.save(data, np.ones(3))
    return data.getvalue()


TORCH = zipped({"archive/data.pkl": b"x", "archive/data/0": b"x", "archive/version": b"x"})
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
PICKLED = pickle.dumps({"a": [1.0]})
ONNX = bytes.fromhex("080a12077079746f7263681a05322e342e303a10")

#: {name of the file: (its content, words of the error)}.
FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "pytorch_model.bin": (TORCH, ("PyTorch", "save_file")),
    "net.pt": (TORCH, ("PyTorch", "save_file")),
    "net.pth": (LEGACY, ("PyTorch", "save_file")),
    "net.ckpt": (TORCH, ("PyTorch",)),
    "no_ending": (TORCH, ("PyTorch",)),
    "torch.npz": (TORCH, ("PyTorch",)),
    "torch.zip": (TORCH, ("PyTorch",)),
    "torch.safetensors": (TORCH, ("PyTorch",)),
    "torch.h5": (TORCH, ("PyTorch",)),
    "torch.pkl": (LEGACY, ("PyTorch",)),
    "script.pt": (zipped({"net/data.pkl": b"x", "net/constants.pkl": b"x"}), ("TorchScript",)),
    "net.keras": (zipped(dict.fromkeys(("metadata.json", "config.json", "model.weights.h5"), b"")), ("Keras 3",)),
    "whole.h5": (hdf5(model_config="{}", keras_version="3"), ("whole model", "Keras", "save_weights")),
    "whole.weights.h5": (hdf5(model_config="{}"), ("whole model", "Keras")),
    "old.h5": (hdf5(layer_names=np.array([b"dense"]), keras_version="2.4"), ("Keras 2",)),
    "other.h5": (hdf5(made_by="someone"), ("HDF5 file of another program", "savez", "format")),
    "net.onnx": (ONNX, ("ONNX", "savez")),
    "onnx.bin": (ONNX, ("ONNX",)),
    "cut.onnx": (b"\n", ("ONNX",)),
    "net.gguf": (b"GGUF\x03" + bytes(40), ("GGUF", "models.load")),
    "gguf.bin": (b"GGUF\x03" + bytes(40), ("GGUF",)),
    "frozen.pb": (b"\n\x10abc", ("TensorFlow",)),
    "net.tflite": (b"\x1c\0\0\0TFL3" + bytes(9), ("TensorFlow Lite",)),
    "net.msgpack": (b"\x81\xa6params", ("Flax",)),
    "array.npy": (array(), ("numpy.save", "savez")),
    "array.npz": (array(), ("numpy.save", "savez")),
    "objects.dat": (PICKLED, ("pickle", "trust")),
    "objects.pkl": (PICKLED, ("pickle", "trust", "arrays")),
    "compressed.joblib": (zlib.compress(PICKLED), ("joblib",)),
    "net.h5.gz": (gzip.compress(b"x"), ("compressed", "unpack")),
    "texts.zip": (zipped({"a.txt": b"x"}), ("zip archive", "tensor_dict.npz")),
    "pointer.safetensors": (b"version https://git-lfs.github.com/spec/v1\noid sha256:a\n", ("Git LFS", "pull")),
    "page.h5": (b"<!DOCTYPE html><html>", ("page of the web",)),
    "net.safetensors.index.json": (b'{"weight_map": {}}', ("JSON",)),
    "table.parquet": (b"PAR1" + bytes(9), ("table", "data")),
    "empty.h5": (b"", ("empty", "0 bytes")),
    "empty.bin": (b"", ("empty",)),
    "empty.pt": (b"", ("empty",)),
    "noise.xyz": (b"\x07" * 99, (".weights.h5", ".safetensors", ".npz")),
}


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_is(tmp_path, name):
    content, words = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    net = dense_net()
    before = state_of(net)
    for call in (lambda: net.load(path), lambda: net.load(path, strict=False), lambda: singa_lite.load(path)):
        with pytest.raises(SnapshotError) as caught:
            call()
        told = str(caught.value)
        assert told.startswith(str(path)) and all(word in told for word in words), told
    assert state_of(net) == before


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("saved_model.pb", ("SavedModel",)),
        ("model.safetensors", ("Hugging Face", ".safetensors")),
        ("pytorch_model.bin", ("Hugging Face", "pytorch_model.bin", "save_file")),
        ("model.ckpt-7.index", ("TensorFlow", "load_checkpoint")),
        ("checkpoint-0000000010.h5", ("snapshots.latest",)),
        ("notes.txt", ("a folder",)),
    ],
)
@pytest.mark.parametrize("ending", ["", ".h5"])
def test_what_a_folder_is(tmp_path, inside, words, ending):
    folder = tmp_path / f"net{ending}"
    folder.mkdir()
    (folder / inside).write_bytes(b"x")
    with pytest.raises(SnapshotError) as caught:
        dense_net().load(folder)
    assert all(word in str(caught.value) for word in words), caught.value


ENDINGS = (".h5", ".weights.h5", ".safetensors", ".npz", ".bin", ".zip", ".pkl", ".model", "")


@pytest.mark.parametrize("right", WRITTEN)
def test_a_wrong_ending(tmp_path, right):
    dense_net().save(tmp_path / f"a{right}")
    content = (tmp_path / f"a{right}").read_bytes()
    for wrong in set(ENDINGS) - {right}:
        path = tmp_path / f"b{wrong}"
        path.write_bytes(content)
        with pytest.raises(SnapshotError, match=rf"\{right}$"):
            dense_net(seed=2).load(path)
    path = tmp_path / f"damaged{right}"
    path.write_bytes(content[:-1])
    with pytest.raises(SnapshotError) as caught:
        dense_net().load(path)
    assert "rename" not in str(caught.value) and "received a" not in str(caught.value)


def test_a_file_that_is_written_for_another_program(tmp_path):
    for name in ("net.pt", "net.keras", "net.onnx"):
        with pytest.raises(SnapshotError, match=r"\.weights\.h5.*\.safetensors"):
            dense_net().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.peer
def test_files_that_pytorch_writes(tmp_path: Path):
    torch = skips.library("torch")
    module = torch.nn.Linear(3, 4)
    torch.save(module.state_dict(), tmp_path / "a.bin")
    torch.save(module, tmp_path / "b.pth")
    torch.save(module.state_dict(), tmp_path / "c.pt", _use_new_zipfile_serialization=False)
    for name in ("a.bin", "b.pth", "c.pt"):
        with pytest.raises(SnapshotError, match=rf"{name}.*PyTorch.*save_file"):
            dense_net().load(tmp_path / name)


def test_files_that_joblib_writes(tmp_path: Path):
    joblib = skips.library("joblib")
    for name, options in (("a.joblib", {}), ("b.pkl", {}), ("c.joblib", {"compress": 3})):
        joblib.dump({"a": np.ones(3)}, tmp_path / name, **options)
        with pytest.raises(SnapshotError, match=rf"{name}.*joblib\.load"), formats.opened(tmp_path / name):
            pass
