"""The guarded reader of HDF5 reads what h5py writes; what it refuses is in `test_attacks` and `test_hostile_files`."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from every_row import over_rows
from nets import bits
from singa_lite import SnapshotError
from singa_lite.snapshots import net_tree
from singa_lite.snapshots.readers.hdf5 import guarded
from snapshot_nets import trained

DTYPES = ["<f2", "<f4", "<f8", ">f4", ">f8", "i1", "u1", "<i2", "<u2", "<i4", ">i4", "<u4", "<i8", ">i8", "<u8", "?"]
SHAPES = [(), (1,), (3, 5), (2, 1, 4, 3), (0,), (3, 0, 2)]


def test_arrays(tmp_path):
    rng = np.random.default_rng(5)

    def check(dtype: str, shape: tuple[int, ...]) -> None:
        array = rng.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["array"] = array
        with guarded.opened(tmp_path / "a.h5") as file:
            assert bits(file.read("array")) == bits(array)

    over_rows(check, [(str(row), row) for row in itertools.product(DTYPES, SHAPES)])


def test_groups_of_many_members_and_long_names(tmp_path):
    """So many that the tree of a group has three levels and its heap is moved while it grows."""
    names = [f"{number}{'é' * (number % 97)}" for number in range(3000)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, name in enumerate(names):
            file.create_dataset(f"g/{name}", data=np.float32(number))
    with guarded.opened(tmp_path / "a.h5") as file:
        assert file.groups == {"g"}
        assert {name: float(file.read(name)) for name in file.datasets} == {f"g/{n}": i for i, n in enumerate(names)}


def test_deep_groups_in_the_order_of_names(tmp_path):
    names = ["a-/x", "a/b/c/d/e", "b/..", "b/ ", "c", "/".join(["x" * 5000] * 10)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, name in enumerate(names):
            file[name] = np.arange(number + 1)
        file.create_group("empty/inner")
    with guarded.opened(tmp_path / "a.h5") as file:
        assert set(file.datasets) == set(names)
        assert [file.read(name).shape for name in names] == [(n + 1,) for n in range(len(names))]
        assert {"a-", "a", "a/b", "a/b/c", "a/b/c/d", "b", "empty", "empty/inner"} < file.groups


def test_attributes(tmp_path):
    given = {
        **{"text": "Ünïcode", "bytes": np.bytes_("fixed"), "empty": "", "long": "x" * 60000},
        **{"number": -3, "large": 2**63 - 1, "real": 1.5, "true": True, "list": [1.0, 2.0], "none": np.zeros(0, "i4")},
        **{"texts": np.array([b"one", b"three"]), "most": np.arange(1024, dtype="i2")},
    }
    odd = {"more": np.arange(1025, dtype="i1"), "matrix": np.ones((2, 2)), "opaque": np.zeros(1, "V3")[0]}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/array"] = np.arange(3)
        for place in (file, file["group"], file["group/array"]):
            place.attrs.update(given)
        file.create_group("odd").attrs.update(odd)
    plain = given | {"bytes": "fixed", "none": [], "texts": ["one", "three"], "most": list(range(1024))}
    with guarded.opened(tmp_path / "a.h5") as file:
        for place in ("", "group", "group/array"):
            assert file.attributes(place) == plain
            assert {type(v) for v in file.attributes(place).values()} == {str, int, float, bool, list}
        assert file.attribute("nothing") is None
        for name in odd:
            with pytest.raises(SnapshotError, match=f"'{name}'"):
                file.attribute(name, "odd")
        for place in ("nothing", "group/nothing"):
            for ask in (file.attributes, file.read):
                with pytest.raises(SnapshotError, match=f"'{place}'"):
                    ask(place)


def test_the_native_format_by_h5py(tmp_path: Path):
    net = trained()
    net.save(tmp_path / "net.h5")
    arrays = {path: lazy.fetch() for path, lazy in net_tree.of_net(net).arrays.items()}
    with h5py.File(tmp_path / "net.h5") as file:
        written = file["manifest"][()].tobytes()
        digest = hashlib.sha256(written).hexdigest()
        assert dict(file.attrs) == {"format": "singa_lite", "version": 2, "manifest_sha256": digest}
    manifest = json.loads(written)
    assert manifest["attributes"] == net_tree.of_net(net).attributes
    assert manifest["entries"] == {
        path: [list(array.shape), array.dtype.name, hashlib.sha256(array.tobytes()).hexdigest()]
        for path, array in arrays.items()
    }
