"""What arrays may hold, format by format: what is written is read to the bit, and all else is refused beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from format_cases import WHOLE, WRITTEN
from nets import bits, state_of
from singa_lite import FeedForwardNet, SnapshotError, layers
from singa_lite.snapshots import formats
from singa_lite.snapshots.tree import LazyArray, Tree

KINDS = ("bool", "uint8", "int64", "float16", "float64", ">f4", ">i8", "complex64", "complex128", "longdouble")
KINDS += ("S3", "O", "M8[s]", "V4")


def tree_of(array: np.ndarray) -> Tree:
    """A tree of one array."""
    attributes = {"format": "singa_lite", "version": 2, "entries": 1}
    return Tree({"parameters/x/y": LazyArray(array.shape, array.dtype, lambda: array)}, attributes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", WHOLE)
def test_an_array_is_read_as_it_was_or_is_not_written(tmp_path, suffix, kind):
    array, path = np.zeros(3, kind), tmp_path / f"x{suffix}"
    try:
        formats.write(tree_of(array), path)
    except SnapshotError as error:
        assert "entry 'parameters/x/y': wanted one of bool, uint8" in str(error)
        assert not list(tmp_path.iterdir())
    else:
        with formats.opened(path) as source:
            assert bits(source.read("parameters/x/y")) == bits(array)


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [(suffix, kind) for suffix in WHOLE for kind in KINDS[:5]] + [(".safetensors", "complex64")],
)
def test_arrays_that_formats_have(tmp_path, suffix, kind):
    formats.write(tree_of(np.zeros(3, kind)), tmp_path / f"x{suffix}")


@pytest.mark.parametrize("dtype", ["longdouble", ">f4"])
@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_net_is_loaded_again_or_not_saved(tmp_path, suffix, dtype):
    nets = []
    for seed in (1, 2):
        net = FeedForwardNet(dtype=dtype, seed=seed)
        net.add(layers.Dense("dense", 2, input_sample_shape=(3,)))
        nets.append(net)
    try:
        nets[0].save(tmp_path / f"x{suffix}")
    except SnapshotError as error:
        assert f"received {np.dtype(dtype)}" in str(error)
        assert not list(tmp_path.iterdir())
    else:
        nets[1].load(tmp_path / f"x{suffix}")
        assert state_of(nets[1]) == state_of(nets[0])


def test_the_byte_order_of_another_machine_is_told(tmp_path):
    with pytest.raises(SnapshotError, match=r"float64, in the machine's byte order, received >f4"):
        formats.write(tree_of(np.zeros(3, ">f4")), tmp_path / "x.npz")
