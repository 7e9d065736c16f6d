"""What a writer of HDF5 writes its reader reads, in both formats; what it would refuse is never put in place."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, SnapshotError, layers
from singa_lite.layer_parts import names
from singa_lite.snapshots import formats, net_tree, tree
from singa_lite.snapshots.formats import native
from singa_lite.snapshots.formats.keras import weights
from snapshot_nets import trained

SUFFIXES = (".h5", ".weights.h5")
WRITERS = {".h5": native.save, ".weights.h5": weights.save}


def deep(*called: str, seed: int = 1) -> FeedForwardNet:
    """Dense layers of one number each, one behind the other."""
    net = FeedForwardNet(seed=seed)
    for name in called:
        net.add(layers.Dense(name, 1, input_sample_shape=None if net.layers else (1,)))
    return net


def with_array(array: np.ndarray[Any, Any]) -> tree.Tree:
    """The tree of a net of one layer, whose weight is another array."""
    contents = net_tree.of_net(deep("a"))
    contents.arrays["parameters/a/weight"] = tree.LazyArray(array.shape, array.dtype, lambda: array.copy())
    return contents


def assert_not_written(contents: tree.Tree, path: Path, message: str) -> None:
    """By our error, and with the old file where it was."""
    path.write_bytes(b"old")
    with pytest.raises(SnapshotError, match=message) as caught:
        WRITERS[path.name.removeprefix("net")](contents, path)
    assert str(caught.value).startswith(f"{path}: cannot be written, ")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


@pytest.fixture(params=SUFFIXES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"net{request.param}"


@pytest.fixture
def names_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nets give no longer names than all formats have room for: these two have room for more."""
    monkeypatch.setattr(names, "LONGEST", 1 << 21)


# ---- what is read


@pytest.mark.usefixtures("names_of_any_length")
@pytest.mark.parametrize(("count", "length"), [(12, 20_000), (12, 40_000), (1, 60_000)])
def test_long_names_of_layers_come_back(path, count, length):
    long = [f"{number}{'x' * length}" for number in range(count)]
    net, other = deep(*long), deep(*long, seed=2)
    net.save(path)
    other.load(path)
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize("dtype", [">f4", ">f8", "f2", ">i8"])
def test_numbers_in_another_byte_order_come_back_in_that_of_this_machine(path, dtype):
    array = np.array([[2.0]], dtype)
    WRITERS[path.name.removeprefix("net")](with_array(array), path)
    native_dtype = array.dtype.newbyteorder("=")
    with formats.opened(path) as source:
        assert source.specs["parameters/a/weight"] == ((1, 1), native_dtype)
        found = source.read("parameters/a/weight")
        assert (found.dtype, found.tolist()) == (native_dtype, [[2.0]])


def test_a_big_endian_file_is_loaded_into_a_net(path):
    WRITERS[path.name.removeprefix("net")](with_array(np.array([[2.5]], ">f4")), path)
    net = deep("a", seed=2)
    net.load(path)
    assert float(net.parameters()["a/weight"].item()) == 2.5


def test_arrays_are_listed_once(path):
    """A net is compared with them entry by entry: a list made anew each time would make that quadratic."""
    trained().save(path)
    with formats.opened(path) as source:
        assert source.arrays is source.arrays
        assert source.attributes is source.attributes


# ---- what is not


@pytest.mark.parametrize("dtype", ["longdouble", "complex64", "S3"])
def test_a_dtype_that_is_not_read_is_not_written(path, dtype):
    if np.dtype(dtype) == np.float64:
        pytest.skip("this system has no long doubles")
    assert_not_written(with_array(np.ones((1, 1), dtype)), path, "could not be read: entry '.*': a datatype that")


@pytest.mark.parametrize("dtype", ["U2", "M8[s]"])
def test_a_dtype_that_hdf5_has_not_is_not_written(path, dtype):
    assert_not_written(with_array(np.ones((1, 1), dtype)), path, "entry 'parameters/a/weight': ")


def test_a_manifest_that_would_cost_too_much_is_not_written(tmp_path):
    contents = net_tree.of_net(deep("a"))
    contents.attributes["layers"] = "[]" * 500_000
    assert_not_written(contents, tmp_path / "net.h5", "could not be read: the manifest: would take about")


def test_an_attribute_that_is_no_plain_value_is_not_written(tmp_path):
    contents = net_tree.of_net(deep("a"))
    contents.attributes["own"] = [1]  # type: ignore[assignment]
    assert_not_written(contents, tmp_path / "net.h5", "could not be read: attribute 'own': wanted a text or a finite")


@pytest.mark.usefixtures("names_of_any_length")
def test_a_name_that_no_text_of_keras_s_layout_can_have_is_not_written(tmp_path):
    contents = net_tree.of_net(deep("x" * 70_000))
    assert_not_written(contents, tmp_path / "net.weights.h5", "could not be read: .* a text of 70000 bytes")
    native.save(contents, tmp_path / "net.h5")


@pytest.mark.usefixtures("names_of_any_length")
def test_a_name_that_is_too_long_for_the_reader_is_not_written(tmp_path):
    contents = net_tree.of_net(deep("x" * (2**20 + 1)))
    assert_not_written(contents, tmp_path / "net.h5", "could not be read: .* a name of 1048577 bytes")


# ---- attributes of files of version 1


def test_of_version_1_those_attributes_are_read_that_it_has(tmp_path):
    with h5py.File(tmp_path / "old.h5", "w", libver="earliest") as file:
        file.attrs.update({"format": "singa_lite", "version": 1, "entries": 1, "step": 3})
        for number in range(50):
            file.attrs[f"{number}"] = np.arange(32_000, dtype="i2")
        file["x"] = np.zeros(3, "f4")
    tracemalloc.start()
    with formats.opened(tmp_path / "old.h5") as source:
        assert source.attributes == {"format": "singa_lite", "version": 1, "entries": 1, "step": 3}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * (tmp_path / "old.h5").stat().st_size


@pytest.mark.parametrize("value", [np.inf, np.nan, [1, 2]])
def test_an_attribute_of_version_1_that_is_no_plain_value(tmp_path, value):
    with h5py.File(tmp_path / "old.h5", "w", libver="earliest") as file:
        file.attrs.update({"format": "singa_lite", "version": 1, "entries": 0, "step": value})
    with (
        pytest.raises(SnapshotError, match="attribute 'step': wanted a"),
        formats.opened(tmp_path / "old.h5"),
    ):
        pass
