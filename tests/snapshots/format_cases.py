"""The one table of formats of the tests. `test_formats` fails for a format that is missing from it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import singa_files
from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.snapshots import formats, net_tree
from singa_lite.snapshots.formats.table import FORMATS

#: A suffix of each format that is written, and of each that keeps all of a net and its optimizer.
WRITTEN = tuple(one.suffixes[0] for one in FORMATS if one.is_written)
WHOLE = tuple(one.suffixes[0] for one in FORMATS if one.is_written and one.has_optimizer)


def small_net(seed: int = 3) -> FeedForwardNet:
    """A net with parameters, running statistics, a random key and optimizer state, as small as can be."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=seed)
    net.add(layers.Dense("a", 2, input_sample_shape=(3,)))
    net.add(layers.BatchNormalization("b"))
    net.add(layers.Dropout("c", 0.5))
    net.compile(optimizer.SGD(0.1, 0.9))
    return net


def save_small(path: Path) -> None:
    """`small_net` after a step."""
    net = small_net()
    net.train_one_batch(np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 1, 1, 0]))
    formats.save(net, path)


def arrays_of(net: FeedForwardNet) -> dict[str, np.ndarray]:
    """All that a snapshot of the net holds, by its paths."""
    return {path: lazy.fetch() for path, lazy in net_tree.of_net(net).arrays.items()}


def weights_of(net: FeedForwardNet) -> dict[str, np.ndarray]:
    """Without the optimizer's state and random keys, which other programs' files do not have."""
    found = arrays_of(net).items()
    return {path: array for path, array in found if array.dtype.kind == "f" and not path.startswith("optimizer/")}


def write_version_1(net: FeedForwardNet, path: Path) -> None:
    """As the first version of the native format was written: without a manifest."""
    contents = net_tree.of_net(net)
    with h5py.File(path, "w") as file:
        kept = ("format", "entries", "optimizer", "step")
        file.attrs.update({name: contents.attributes[name] for name in kept} | {"version": 1})
        for name, entry in contents.arrays.items():
            file.create_dataset(name, data=entry.fetch())


def write_safetensors(path: Path, arrays: dict[str, tuple[str, np.ndarray]], **more: Any) -> None:
    """A file of other programs by hand: {name: (dtype in the file, array of its bits)}. more: of the header."""
    header, end = dict[str, Any](more), 0
    for name, (dtype, array) in arrays.items():
        offsets = [end, end := end + array.nbytes]
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    data = b"".join(array.tobytes() for _, array in arrays.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def save_bfloat16(path: Path) -> None:
    """The weights of `small_net` by PyTorch's names, some of them narrower."""
    found = weights_of(small_net())
    names = {"gamma": "weight", "beta": "bias"}
    arrays: dict[str, tuple[str, np.ndarray]] = {}
    for entry, array in found.items():
        _, layer, name = entry.split("/")
        array = array.T.copy() if array.ndim == 2 else array
        narrow = ("BF16", (array.view(np.uint32) >> 16).astype(np.uint16))
        arrays[f"{layer}.{names.get(name, name)}"] = narrow if layer == "a" else ("F32", array)
    write_safetensors(path, arrays)


def save_keras(path: Path) -> None:
    """The weights of `small_net` as Keras has them, without our manifest."""
    save_small(path)
    with h5py.File(path, "r+") as file:
        del file["singa_lite"]


def singas(mark: str, encode: Callable[[dict[str, np.ndarray]], bytes]) -> Callable[[Path], None]:
    """Writes `small_net` as SINGA would. mark: in its names, see `singa_files`."""

    def write(path: Path) -> None:
        path.write_bytes(encode(singa_files.of_tree(arrays_of(small_net()), mark)))

    return write


@dataclass(frozen=True)
class Case:
    """A format. write: makes a file; make: a net for it, of a seed; verified: whether a wrong bit cannot go unseen.

    options: of `formats.load`.
    """

    suffix: str
    write: Callable[[Path], None] = save_small
    make: Callable[[int], FeedForwardNet] = small_net
    verified: bool = True
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "native": Case(".h5"),
    "keras": Case(".weights.h5", verified=False, options={"optimizer": False}),
    "safetensors": Case(".safetensors"),
    "npz": Case(".npz"),
    "SINGA 1.0.0": Case(".model", singas("_", lambda arrays: singa_files.native(arrays, "1.0.0")), verified=False),
    "SINGA 2.0.0": Case(".bin", singas("/", lambda arrays: singa_files.native(arrays, "1.2.0", 1200)), verified=False),
    "SINGA pickle of Python 2": Case(".pickle", singas("_", singa_files.python2_pickle), verified=False),
    "SINGA pickle": Case(".pkl", singas("/", lambda arrays: pickle.dumps(arrays, 4)), verified=False),
    "SINGA 3.1": Case(".zip", singas(".", singa_files.states_zip), verified=False),  # random state is each net's own
}

#: Files of other programs and of an earlier version, in formats of the table.
OTHERS = {
    "native, version 1": Case(".h5", lambda path: write_version_1(small_net(), path), verified=False),
    "Keras's own": Case(".weights.h5", save_keras, verified=False, options={"optimizer": False}),
    "safetensors of PyTorch": Case(".safetensors", save_bfloat16, verified=False),
    "deflated by NumPy": Case(".npz", lambda path: np.savez_compressed(path, **weights_of(small_net()))),
}
