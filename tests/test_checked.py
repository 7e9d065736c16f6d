"""Checked mode: a kernel that writes beyond what it was given is told by name, at once and in a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer, tensor
from singa_lite.errors import OverrunError
from singa_lite.graph.checked_launches import FENCE, guard_spans
from singa_lite.kernels.choice import find_onednn
from singa_lite.kernels.kernel_set import FunctionKernel, KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.runtime.pool import GUARD_BYTES, Pool

Wild = Callable[[np.ndarray], np.ndarray]


def behind(array: np.ndarray) -> np.ndarray:
    """The element behind it, which is none of its own."""
    flat = array.reshape(-1)
    return np.lib.stride_tricks.as_strided(flat, (flat.size + 16,))[-1:]


def before(array: np.ndarray) -> np.ndarray:
    """The element before it."""
    return np.lib.stride_tricks.as_strided(array.reshape(-1), (2,), (-array.itemsize,))[1:]


@pytest.fixture
def checked(monkeypatch):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")


def break_kernel(monkeypatch: pytest.MonkeyPatch, name: str, wild: Wild) -> None:
    """Let NumPy's kernel write one element of its last tensor's neighbourhood too."""
    kernel = NUMPY.kernels[name]
    assert isinstance(kernel, FunctionKernel) and kernel.scratch is None

    def broken(*arrays: Any, **settings: Any) -> None:
        kernel.function(*arrays, **settings)
        wild(arrays[-1])[...] = 0.25

    monkeypatch.setitem(NUMPY.kernels, name, FunctionKernel(broken))


@pytest.mark.parametrize("side", [behind, before])
def test_an_operation_done_at_once(checked, monkeypatch, side):
    on = device.new_cpu(kernels="numpy")
    x = tensor.from_numpy(np.ones((4, 4), "f"), on)
    autograd.relu(x)
    break_kernel(monkeypatch, "relu", side)
    with pytest.raises(OverrunError, match=rf"'relu' .*{on.name}.* 64 bytes.*{side.__name__}"):
        autograd.relu(x)
    on.pool.check()


def make() -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=2)
    net.add(layers.Dense("first", 16, input_sample_shape=(8,)))
    net.add(layers.Activation("act", "sigmoid"))
    net.add(layers.Dense("scores", 16))
    net.compile(optimizer.SGD(), fuse=False)
    return net


@pytest.mark.parametrize("side", [behind, before])
def test_a_replay(checked, monkeypatch, side):
    x, labels = np.ones((4, 8), "f"), np.arange(4)
    make().train_one_batch(x, labels)
    break_kernel(monkeypatch, "sigmoid", side)
    with pytest.raises(OverrunError, match="'sigmoid' of layer 'act'"):
        make().train_one_batch(x, labels)


def test_a_region_s_guards():
    pool = Pool()
    pool.checked = True
    region, other = pool.take(100), pool.take(100)
    assert region.nbytes == region.memory.size == 128
    assert pool.used == 2 * (128 + 2 * GUARD_BYTES)
    pool.check()
    behind(region.memory)[...] = 1
    with pytest.raises(OverrunError, match=r"128 bytes.*behind"):
        pool.check()
    pool.check()
    before(other.memory)[...] = 1
    with pytest.raises(OverrunError, match="before"):
        pool.give(other)
    pool.give(region)
    assert pool.used == 0


@pytest.mark.parametrize(
    ("written", "end", "wanted"),
    [
        ([], 999, []),
        ([(0, 10)], 10, []),
        ([(0, 10)], 12, [(10, 12)]),
        ([(100, 200)], 1000, [(36, 100), (200, 264)]),
        ([(10, 200), (210, 300)], 300, [(0, 10), (200, 210), (200, 210)]),
        ([(500, 600), (0, 100), (80, 120)], 600, [(436, 500), (120, 184)]),
        ([(40, 40), (64, 128)], 128, [(0, 64)]),
    ],
)
def test_bytes_beside_what_is_written(written, end, wanted):
    assert FENCE == 64
    assert guard_spans(written, end) == wanted


def test_a_primitive_refuses_memory_that_is_too_small():
    if not isinstance(find_onednn(), KernelSet):
        pytest.skip(f"{find_onednn()}; pip install onednn-cpu-gomp")
    from singa_lite.kernels.onednn_kernels.library import functions as f
    from singa_lite.kernels.onednn_kernels.library import primitive

    turn = primitive.Reorder(primitive.memory_desc((5, 7), (7, 1)), primitive.memory_desc((5, 7), (1, 5)))
    source, target = np.ones((5, 7), "f"), np.ones(35, "f")
    turn.bind({f.SRC: source, f.DST: target})()
    with pytest.raises(ValueError, match=r"140 bytes.* 136"):
        turn.bind({f.SRC: source, f.DST: target[:34]})
