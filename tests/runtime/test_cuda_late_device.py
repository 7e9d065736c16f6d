"""The CUDA device as it is, over streams that are late: its loader by CUDA's driver, whole steps in any legal order."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import build_cache
import host_loader
from late_cupy import LateCupy
from late_gpu import installed, late_gpu, missing_libraries
from mode_scripts import images, residual
from nets import bits, state_of
from singa_lite import FeedForwardNet, device, optimizer, tensor
from singa_lite.device import Device
from singa_lite.errors import DeviceError
from singa_lite.kernels.cuda_kernels.loader import CudaLoader
from singa_lite.kernels.cuda_kernels.routine import Arguments

MISSING = host_loader.missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")
needs_libraries = pytest.mark.skipif(bool(missing_libraries()), reason=f"wants {missing_libraries()}")

STEPS = 4

SOURCE = """
extern "C" __global__ void where(int* y, int by) {
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    y[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread + by;
}
extern "C" __global__ void shared_bytes(int* y) {
    DYNAMIC_SHARED(int, held);
    held[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}
"""


# --- the loader and CUDA's driver


@pytest.fixture
def file() -> str:
    """A source with kernels that say where they run."""
    return str(Path(build_cache.sources({"where.cu": SOURCE})) / "where.cu")


def launched(file: str, kernel: str, *arguments: Any, grid: Any = (1, 1, 1), block: Any, shared: int = 0) -> LateCupy:
    """A machine that was asked for a launch on a stream of its own."""
    machine = LateCupy(0)
    with installed(machine):
        stream = machine.cuda.Stream(non_blocking=True)
        function = CudaLoader(machine, stream.ptr).function(file, kernel, ())
        function.bind(grid, block, shared, Arguments(arguments))()
    assert [len(one.work) for one in machine.streams] == [0, 1]
    return machine


def test_launches_are_as_they_were_asked_for(file):
    for grid, block in (((3, 1, 1), (7, 1, 1)), ((2, 3, 4), (5, 2, 3))):
        blocks, threads = int(np.prod(grid)), int(np.prod(block))
        y = np.full(blocks * threads, -1, np.int32)
        launched(file, "where", y.ctypes.data, np.int32(5), grid=grid, block=block).streams[1].synchronize()
        assert np.array_equal(y.reshape(blocks, threads), 5 + 1000 * np.arange(blocks)[:, None] + range(threads))
    y = np.zeros(40, np.int32)
    launched(file, "shared_bytes", y.ctypes.data, block=(40, 1, 1), shared=160).streams[1].synchronize()
    assert y.tolist() == list(range(39, -1, -1))


def test_what_the_driver_refuses_is_an_error_with_its_words(file):
    for block, grid in (((1025, 1, 1), (1, 1, 1)), ((1, 1, 65), (1, 1, 1)), ((1, 1, 1), (1, 65536, 1))):
        with pytest.raises(DeviceError, match="'where': CUDA says 1"):
            launched(file, "where", 0, np.int32(5), grid=grid, block=block)
    machine = LateCupy(0)
    with installed(machine), pytest.raises(DeviceError, match="CUDA says 400"):  # there is no stream 99
        CudaLoader(machine, 99).function(file, "where", ()).bind((1, 1, 1), (1, 1, 1), 0, Arguments([0, np.int32(5)]))()


# --- whole steps


def net_on(on: Device) -> FeedForwardNet:
    net = residual(on)
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9))
    return net


def trained(net: FeedForwardNet) -> list[Any]:
    """Losses of steps, each with its own batch, and the state behind them; nobody waits between the steps."""
    seen = [net.train_one_batch(*images(np.random.default_rng(step)))[0] for step in range(STEPS)]
    return [*map(bits, seen), state_of(net)]


def trained_in_order(seed: int) -> tuple[list[Any], np.ndarray]:
    """What steps give with streams in the order of a seed, and the last layer's weight."""
    with late_gpu(seed) as (_, _, on):
        net = net_on(on)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # none says that the step cannot be captured
            found = trained(net)
        assert net.training_graph._executables["recorded"]._replay.is_captured
        return found, tensor.to_numpy(net.layers["dense"].parameters["weight"])


@needs_libraries
def test_a_net_trains_to_equal_bits_in_every_legal_order():
    (first, weight), *others = (trained_in_order(seed) for seed in (0, 1, 99))
    assert all(found == first for found, _ in others)
    cpu = net_on(device.new_cpu(kernels="numpy"))
    trained(cpu)
    np.testing.assert_allclose(weight, tensor.to_numpy(cpu.layers["dense"].parameters["weight"]), rtol=1e-4, atol=1e-5)
