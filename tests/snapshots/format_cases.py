"""The one table of formats of the tests. `test_formats` fails for a format that is missing from it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


def singas(mark: str, encode: Callable[[dict[str, np.ndarray]], bytes]) -> Callable[[Path], None]:
    """Writes `small_net` as SINGA would. mark: in its names, see `singa_files`."""

    def write(path: Path) -> None:
        arrays = {entry: lazy.fetch() for entry, lazy in net_tree.of_net(small_net()).arrays.items()}
        path.write_bytes(encode(singa_files.of_tree(arrays, mark)))

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
