"""Elements behind the 2**32nd, of tensors that lie in one row, where packs are not aligned or do not come out even.

A kernel with so many threads would take minutes here: the grid is said to be as large, and its last block alone runs.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import build_cache
import host_loader
from host_loader import HostLoader
from singa_lite.kernels.cuda_kernels.routine import Arguments
from singa_lite.kernels.cuda_kernels.walk import FLAT, walk
from singa_lite.kernels.kernel_set import TensorSpec

MISSING = host_loader.missing_to_run()
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}"),
    pytest.mark.skipif(
        sys.platform != "linux", reason="this system is not Linux, which gives bytes as they are touched"
    ),
]

MANY, FURTHER, THREADS = 1 << 32, 5, 256

#: Linux's number of what Python's module has from 3.13 on: memory that is only named is not reserved.
NO_RESERVE = 0x4000

#: `first` is the number of the one block that runs, of a grid of 2**31 - 1.
SOURCE = """
static unsigned first_block;
#undef blockIdx
#undef gridDim
#define blockIdx make_uint3(first_block, 0, 0)
#define gridDim dim3(0x7fffffffu)
#include "philox.cuh"
extern "C" __global__ void copied(Walk<2> walk, unsigned first, const T* x, T* y) {
    first_block = first;
    map(walk, [](auto& y, auto x) { y = x; }, out(y), in(x));
}
extern "C" __global__ void drawn(Walk<2> walk, unsigned first, const uint64* key, T* y) {
    first_block = first;
    draw<float>(walk, key_at(key, 1), [](float number, auto& y) { y = 1 + T(number * 100); }, out(y));
}
"""


@pytest.fixture
def y() -> Iterator[np.ndarray]:
    """2**32 bytes and some, of which those that nobody touches take no memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    held = mmap.mmap(-1, MANY + 4096, flags=flags)  # ends with the last array over it
    yield np.frombuffer(held, np.uint8)[1 : 1 + MANY + FURTHER]  # packs are not aligned


def launch(kernel: str, first: int, read: np.ndarray, y: np.ndarray) -> None:
    """The block that has the elements from 2**32 on."""
    result = TensorSpec(y.shape, y.dtype, y.strides)
    beside = TensorSpec(y.shape, y.dtype, (0,)) if kernel == "copied" else result
    found = walk(y.shape, (result, beside))
    assert found is not None
    assert found["mode"] == FLAT
    folder = build_cache.sources({"large.cu": SOURCE})
    function = HostLoader().function(str(folder / "large.cu"), kernel, (("T", "uint8"),))
    given = Arguments([found, np.uint32(first), read.ctypes.data, y.ctypes.data])
    function.bind((1, 1, 1), (THREADS, 1, 1), 0, given)()


def test_elements_behind_the_last_index_of_32_bits_are_walked_over(y):
    launch("copied", MANY // THREADS, np.full(1, 7, np.uint8), y)
    assert (y[MANY:].tolist(), y[:FURTHER].tolist()) == ([7] * FURTHER, [0] * FURTHER)


def test_random_numbers_are_drawn_behind_it(y):
    launch("drawn", MANY // 8 // THREADS, np.array([3, 1, 4], np.uint64), y)
    assert y[MANY:].all()
    assert not y[: 2 * FURTHER].any()
