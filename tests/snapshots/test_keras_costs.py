"""Files in Keras's layout that would take much more memory or time than they should."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from keras_files import assert_refused, remade
from singa_lite import FeedForwardNet, layers, snapshots
from singa_lite.snapshots.formats.keras import net as keras_net
from singa_lite.snapshots.formats.keras import orders as keras_orders
from singa_lite.snapshots.formats.keras.net import LayerInfo
from singa_lite.tensor import Shape


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.weights.h5"


# ---- memory


def peak_of(act: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_manifest_that_costs_much_is_not_parsed(path):
    net = FeedForwardNet(seed=3)
    net.add(layers.Dense("a", 5, input_sample_shape=(3,)))
    snapshots.save(net, path)
    remade(path, lambda contents: contents.update(more=[{"": 0}] * 500_000))
    size = path.stat().st_size
    peak = peak_of(lambda: assert_refused(path, "the manifest: would take about"))
    assert peak < 3 * size


def test_names_that_are_one_long_text(path):
    """The names of all layers in one place of the file, where h5py writes a text for each."""
    count, length = 1500, 60_000
    with h5py.File(path, "w", libver="earliest") as file:
        for number in range(count):
            group = file.create_group(f"layers/dense_{number}/vars" if number else "layers/dense/vars")
            group.attrs["name"] = "long".ljust(length, "x") if not number else "short"
            group["0"] = np.zeros((1, 1), "f4")
    whole = bytearray(path.read_bytes())
    text = whole.index(b"longxxx")
    place = struct.pack("<IQI", length, whole.rindex(b"GCOL", 0, text), *struct.unpack_from("<H", whole, text - 16))
    at = whole.find(struct.pack("<I", len("short")))
    while at >= 0:
        (heap,) = struct.unpack_from("<Q", whole, at + 4)
        if whole[heap : heap + 4] == b"GCOL":
            whole[at : at + 16] = place
        at = whole.find(struct.pack("<I", len("short")), at + 1)
    path.write_bytes(whole)
    peak = peak_of(lambda: assert_refused(path, "the names of its layers: would take about"))
    assert peak < 2 * len(whole) + (40 << 20)


def note(name: str, kind: str, *sources: str, inputs: Shape = (8,), outputs: Shape = (8,)) -> LayerInfo:
    return LayerInfo(name, kind, (inputs,), (outputs,), tuple((source, 0) for source in sources), "")


def doubling(times: int) -> dict[str, LayerInfo]:
    """A net that joins its own output again and again."""
    net = {"0": note("0", "Flatten", inputs=(2, 2, 2))}
    for number in range(1, times + 1):
        before = str(number - 1)
        shape = (8 * 2**number,)
        net[str(number)] = note(str(number), "Concat", before, before, inputs=shape, outputs=shape)
    return net


def test_a_join_of_one_is_no_new_order():
    net = doubling(10)
    for number in range(11, 2000):
        net[str(number)] = note(str(number), "Concat", str(number - 1), outputs=(8192,))
    orders = keras_orders.input_orders(net)
    assert len(orders["11"]) == 1024
    assert all(orders[str(number)] is orders["11"] for number in range(12, 2000))


def test_all_joins_of_a_net_have_a_bound():
    """Beyond it the order is not known, which is an error where it matters."""
    net = doubling(9)
    for number in range(1000):
        net[f"join {number}"] = note(f"join {number}", "Concat", "9", "9", outputs=(8192,))
        net[f"end {number}"] = note(f"end {number}", "Dense", f"join {number}")
    orders = keras_orders.input_orders(net)
    joined = [orders[f"end {number}"] for number in range(1000)]
    assert joined[0] is not None
    assert joined[-1] is None
    assert sum(len(order) for order in joined if order is not None) <= 2**16


def test_plain_pieces_that_meet_are_one():
    net = {"image": note("image", "Flatten", inputs=(2, 2, 2)), "a": note("a", "Dense"), "b": note("b", "Dense")}
    net["join"] = note("join", "Concat", "a", "b", "image", "a", outputs=(32,))
    net["end"] = note("end", "Dense", "join")
    order = keras_orders.input_orders(net)["end"]
    assert order == ((16,), (2, 2, 2), (8,))
    assert sum(map(prod, order)) == 32


# ---- time


class Counted(dict[str, LayerInfo]):
    """A net that counts how often a layer is looked up."""

    count = 0

    def __getitem__(self, name: str) -> LayerInfo:
        self.count += 1
        return super().__getitem__(name)


def test_a_chain_of_splits_is_walked_once():
    net = Counted({"0": note("0", "Dummy")})
    for number in range(1, 2000):
        net[str(number)] = note(str(number), "Split", str(number - 1))
    assert keras_net.keras_order(net) == ["0"]
    assert net.count < 10 * len(net)
