"""Misuses of files: paths that are none, damaged snapshots, those of another net, configurations that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_lite
from misuse import Row, assert_all_refused, row
from nets import images
from singa_lite import FeedForwardNet, SnapshotError, data, device, layers, optimizer, snapshots
from singa_lite.errors import ConfigError
from test_misuse_net import good, of_net, trained

READERS: tuple[Callable[[Any], object], ...] = (
    data.load_idx,
    lambda path: data.load_idx(__file__, path),
    data.load_cifar10,
    lambda path: data.load_cifar10(["first.bin", path]),
    lambda path: data.load_npz(path, ["x"]),
    lambda path: data.load_hdf5(path, ["x"]),
    lambda path: data.csv(path, "y"),
    lambda path: data.parquet(path, "y"),
    lambda path: data.image_folder(path, 8),
    snapshots.latest,
    singa_lite.load,
    FeedForwardNet(seed=0).load,
    lambda path: images().save(path),
)


def no_paths() -> list[Row]:
    """True, 1 and 2 are files that are open, which a reader would take and close."""
    return [
        row(lambda read=read, path=path: read(path), TypeError, "path", repr(path))
        for read in READERS
        for path in (True, 1, {})
    ]


ARGUMENTS = [
    *(
        row(lambda read=read, dtype=dtype: read("table", "y", dtype=dtype), TypeError, "dtype")
        for read in (data.csv, data.parquet)
        for dtype in (None, "floaty", "U3", object)
    ),
    *(
        row(lambda read=read, names=names: read("file", names), TypeError, "names")
        for read in (data.load_npz, data.load_hdf5)
        for names in (None, [1], np.array("x"))
    ),
    row(lambda: snapshots.load("net", "net.h5"), TypeError, "load net", "str"),  # type: ignore[arg-type]
    row(lambda: snapshots.save(None, "net.h5"), TypeError, "save net", "None"),  # type: ignore[arg-type]
    row(lambda: singa_lite.load("net.h5", custom=[int]), TypeError, "custom", "[<class"),  # type: ignore[arg-type]
    of_net(lambda net: net.load("net.h5", strict="no"), TypeError, "strict", "'no'"),
    of_net(lambda net: net.load("net.h5", layers="dense"), TypeError, "layers", "'dense'"),
    of_net(lambda net: net.load("nothing.h5"), OSError, "nothing.h5"),
]


def other(*made: Any, by: Callable[[], optimizer.Optimizer] = optimizer.Adam, dtype: str = "float32") -> FeedForwardNet:
    net = FeedForwardNet(device=device.new_cpu(), dtype=dtype)
    for layer in made:
        net.add(layer)
    net.compile(by())
    return net


def first(kernels: int = 3) -> Any:
    return layers.Conv2D("conv", kernels, 3, input_sample_shape=(2, 5, 4))


def deeper() -> FeedForwardNet:
    net = trained()
    net.add(layers.Dense("one more", 4))
    return net


def in_float64() -> FeedForwardNet:
    net = images(dtype="float64")
    net.compile(optimizer.Adam())
    return net


def by_sgd() -> FeedForwardNet:
    net = images()
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    good(net)
    return net


def snapshots_that_do_not_fit(folder: Path) -> list[Row]:
    trained().save(folder / "good.h5")
    good_bytes = (folder / "good.h5").read_bytes()
    rows = []

    def add(name: str, *words: str) -> None:
        rows.append(of_net(lambda net: net.load(folder / name), SnapshotError, name, *words))

    damaged = (b"not HDF5 " * 200, b"", good_bytes[:600], good_bytes[: len(good_bytes) // 2], good_bytes[:-1])
    for number, content in enumerate(damaged):
        (folder / f"bad{number}.h5").write_bytes(content)
        add(f"bad{number}.h5")
    others = {
        "deeper": (deeper(), "'parameters/one more/"),
        "shallower": (other(first()), "'parameters/norm/"),
        "wider": (other(first(5)), "'parameters/conv/weight'", "(3, 2, 3, 3)", "(5, 2, 3, 3)"),
        "float64": (in_float64(), "'parameters/conv/weight'", "float32", "float64"),
        "sgd": (by_sgd(), "Adam", "SGD"),
        "untrained": (images(), "Adam", "None"),
    }
    for name, (net, *words) in others.items():
        net.save(folder / f"{name}.h5")
        add(f"{name}.h5", *words)
    return rows


CONFIGURATION = json.dumps(trained().config())


def changed(place: tuple[Any, ...], value: Any, *words: str) -> Row:
    """The configuration of a net with another value at a place."""
    held = json.loads(CONFIGURATION)
    at = held
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return row(lambda: FeedForwardNet.from_config(held), ConfigError, *words)


def configurations() -> list[Row]:
    first_layer = ("layers", 0)
    return [
        changed(("format",), "else", "net.config"),
        changed(("version",), 99, "version", "99"),
        changed(("layers",), [], "layers"),
        changed(("dtype",), 3, "'dtype'"),
        changed(("seed",), "one", "'seed'"),
        changed((*first_layer, "class"), "os.system", "'os.system'"),
        changed((*first_layer, "class"), "layers.numpy", "'layers.numpy'"),
        changed((*first_layer, "arguments"), 5, "arguments"),
        changed((*first_layer, "sources"), [["a"]], "sources"),
        changed(("layers", 1, "arguments", "momentum"), {"strange": 1}, "strange"),
        changed(("compiled",), [1], "compiled"),
    ]


def test_misuse(tmp_path):
    assert_all_refused([*no_paths(), *ARGUMENTS, *configurations()])
    rows, files = snapshots_that_do_not_fit(tmp_path), sorted(tmp_path.iterdir())
    assert_all_refused(rows)
    assert sorted(tmp_path.iterdir()) == files


def test_a_refused_save_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = trained()
    walk = net.backward(net.forward(True, np.zeros((6, 2, 5, 4), "f")))
    next(walk)
    walk.close()
    with pytest.raises(SnapshotError, match="'dense'"):
        net.save("half.h5")
    assert not list(tmp_path.iterdir())
