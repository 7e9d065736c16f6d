"""The stand-in for a GPU: what of CUDA C++ works on the host, and what it refuses as a GPU would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import build_cache
import host_loader
from host_loader import HostLoader
from singa_lite.kernels.cuda_kernels.routine import Arguments

MISSING = host_loader.missing_to_run()

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")

WARP = 32

SOURCE = """
extern "C" __global__ void where(int* y) {
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    y[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}
extern "C" __global__ void reversed(const int* x, int* y) {
    __shared__ int held[1024];
    for (int turn = 0; turn < 3; turn++) {
        held[threadIdx.x] = turn ? y[threadIdx.x] : x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
        __syncthreads();
    }
}
extern "C" __global__ void dynamic(int* y, int each) {
    DYNAMIC_SHARED(int, held);
    for (int i = 0; i < each; i++) held[threadIdx.x * each + i] = threadIdx.x + i;
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < each * (int)blockDim.x; i++) sum += held[i];
    y[threadIdx.x] = sum;
}
extern "C" __global__ void shuffles(const int* x, int* y, int width) {
    const int n = blockDim.x, i = threadIdx.x;
    y[i] = __shfl_sync(0xffffffffu, x[i], 3, width);
    y[n + i] = __shfl_down_sync(0xffffffffu, x[i], 2, width);
    y[2 * n + i] = __shfl_up_sync(0xffffffffu, x[i], 2, width);
    y[3 * n + i] = __shfl_xor_sync(0xffffffffu, x[i], 5);
}
extern "C" __global__ void warp_sums(const double* x, double* y) {
    double sum = x[threadIdx.x];
    for (int by = 16; by; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0) y[threadIdx.x / 32] = sum;
}
extern "C" __global__ void half_a_warp(const int* x, int* y) {
    if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 1);
    else y[threadIdx.x] = -1;
}
extern "C" __global__ void votes(const int* x, unsigned* y) {
    const unsigned bits = __ballot_sync(0xffffffffu, x[threadIdx.x] > 0);
    const int any = __any_sync(0xffffffffu, x[threadIdx.x] > 1);
    if (threadIdx.x % 32 == 0) {
        y[threadIdx.x / 32] = bits;
        y[blockDim.x / 32 + threadIdx.x / 32] = any;
    }
}
extern "C" __global__ void in_turn(int* y) {
    __shared__ int held;
    if (threadIdx.x == 1) held = 7;
    __syncwarp();
    y[threadIdx.x] = held;
}
extern "C" __global__ void counted(int* total, double* sum, const double* x) {
    atomicAdd(total, 1);
    atomicAdd(sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
}
extern "C" __global__ void leaves_early(int* y, int last) {
    if ((int)threadIdx.x >= last) return;
    __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void divergent(int* y) {
    if (threadIdx.x == 40) __syncwarp();
    else __syncthreads();
}
"""

NO_BARRIERS = """
struct Sizes { int a; double b; long long c[2]; };
extern "C" __global__ void by_value(Sizes sizes, double* y, const int* none, unsigned char small, float f) {
    y[threadIdx.x] = sizes.a + sizes.b * sizes.c[1] + small + f + (none == nullptr);
}
extern "C" __global__ void converted(const float* x, T* y) { y[threadIdx.x] = T(x[threadIdx.x] * 3); }
extern "C" __global__ void high(unsigned a, unsigned b, unsigned long long c, unsigned long long d,
                                unsigned long long* y) {
    y[0] = __umulhi(a, b);
    y[1] = __umul64hi(c, d);
}
"""


@pytest.fixture(scope="module")
def folder() -> Path:
    """Two sources, of kernels that wait for each other's threads and of kernels that do not."""
    return build_cache.sources({"waits.cu": SOURCE, "plain.cu": NO_BARRIERS})


def launch(folder: Path, kernel: str, *arguments: Any, grid: Any = 1, block: Any = WARP, shared: int = 0) -> None:
    """Run a kernel of the sources; arrays are passed as their addresses."""
    file, types = ("plain.cu", (("T", "float16"),)) if f" {kernel}(" in NO_BARRIERS else ("waits.cu", ())
    function = HostLoader().function(str(folder / file), kernel, types)
    values = [a.ctypes.data if isinstance(a, np.ndarray) and a.ndim else a for a in arguments]
    function.bind(three(grid), three(block), shared, Arguments(values))()


def three(extents: Any) -> tuple[int, ...]:
    """Extents in x, y and z."""
    return (*(extents if isinstance(extents, tuple) else (extents,)), 1, 1)[:3]


@pytest.mark.parametrize(
    ("grid", "block"), [(1, 1), (3, 33), ((2, 3, 4), (5, 2, 3)), (7, 1024), ((1, 5), (1, 1, 64))], ids=str
)
def test_every_thread_knows_its_place(folder, grid, block):
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    y = np.full(blocks * threads, -1, np.int32)
    launch(folder, "where", y, grid=grid, block=block)
    assert np.array_equal(y.reshape(blocks, threads), 1000 * np.arange(blocks)[:, None] + np.arange(threads))


@pytest.mark.parametrize("threads", [1, 31, 33, 257, 1024])
def test_threads_of_a_block_wait_for_each_other(folder, threads):
    x, y = np.arange(threads, dtype=np.int32), np.zeros(threads, np.int32)
    launch(folder, "reversed", x, y, block=threads)
    assert np.array_equal(y, x[::-1])


@pytest.mark.parametrize("each", [1, 5])
def test_shared_memory_of_a_size_given_at_the_launch(folder, each):
    y = np.zeros(40, np.int32)
    launch(folder, "dynamic", y, np.int32(each), grid=2, block=40, shared=40 * each * 4)
    assert np.all(y == sum(thread + i for thread in range(40) for i in range(each)))


@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(folder, width):
    x, y = np.random.default_rng(7).integers(0, 99, 64, dtype=np.int32), np.zeros((4, 64), np.int32)
    launch(folder, "shuffles", x, y, np.int32(width), block=64)
    lanes = np.arange(64)
    within, start = lanes % width, lanes - lanes % width
    wanted = [
        start + 3,
        np.where(within + 2 < width, lanes + 2, lanes),
        np.where(within >= 2, lanes - 2, lanes),
        lanes ^ 5,
    ]
    assert np.array_equal(y, x[np.array(wanted)])


def test_sums_of_warps(folder):
    x, y = np.random.default_rng(7).integers(0, 99, 128).astype(np.float64), np.zeros(4)
    launch(folder, "warp_sums", x, y, block=128)
    assert np.array_equal(y, x.reshape(4, 32).sum(axis=1))


def test_part_of_a_warp_shuffles(folder):
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    launch(folder, "half_a_warp", x, y)
    assert np.array_equal(y, np.where(x < 16, x ^ 1, -1))


def test_votes(folder):
    x, y = np.random.default_rng(7).integers(0, 2, 96, dtype=np.int32), np.zeros(6, np.uint32)
    x[64] = 2
    launch(folder, "votes", x, y, block=96)
    bits = [sum(1 << i for i in range(32) if x[32 * warp + i] > 0) for warp in range(3)]
    assert y.tolist() == [*bits, 0, 0, 1]


def test_a_warp_waits(folder):
    y = np.zeros(32, np.int32)
    launch(folder, "in_turn", y)
    assert np.all(y == 7)


def test_atomic_sums(folder):
    x, total, sums = np.arange(96.0), np.zeros(1, np.int32), np.zeros(1)
    launch(folder, "counted", total, sums, x, grid=3, block=32)
    assert (total[0], sums[0]) == (96, x.sum())


def test_threads_that_ended_are_not_waited_for(folder):
    y = np.zeros(64, np.int32)
    launch(folder, "leaves_early", y, np.int32(33), block=64)
    assert np.array_equal(y, np.arange(64) < 33)


def test_a_barrier_that_some_never_reach_is_reported(folder, capfd):
    with pytest.raises(RuntimeError, match="'divergent' failed"):
        launch(folder, "divergent", np.zeros(64, np.int32), block=64)
    assert "wait at different barriers" in capfd.readouterr().err
    y = np.zeros(32, np.int32)
    launch(folder, "in_turn", y)  # the next kernel runs
    assert np.all(y == 7)


@pytest.mark.parametrize(("grid", "block"), [(1, 1025), (1, (32, 33)), ((1, 65536), 1), ((1, 1, 65536), 1)])
def test_sizes_that_a_gpu_refuses(folder, capfd, grid, block):
    with pytest.raises(RuntimeError, match="'where' failed"):
        launch(folder, "where", np.zeros(1, np.int32), grid=grid, block=block)
    assert "at most" in capfd.readouterr().err


def test_arguments_of_every_kind(folder):
    sizes = np.zeros((), np.dtype([("a", "i4"), ("b", "f8"), ("c", "i8", 2)], align=True))
    sizes["a"], sizes["b"], sizes["c"] = 5, 0.5, (7, 2**40)
    y = np.zeros(4)
    launch(folder, "by_value", sizes, y, 0, np.uint8(200), np.float32(0.25), block=4)
    assert np.all(y == 5 + 0.5 * 2**40 + 200 + 0.25 + 1)


def test_half_precision(folder):
    x, y = np.linspace(-3, 3, 32, dtype=np.float32), np.zeros(32, np.float16)
    launch(folder, "converted", x, y)
    assert np.array_equal(y, (x * 3).astype(np.float16))


def test_upper_halves_of_products(folder):
    given = 0xDEADBEEF, 0xC0FFEE11, 0xDEADBEEFC0FFEE11, 0x123456789ABCDEF7
    a, b, c, d = given
    y = np.zeros(2, np.uint64)
    launch(folder, "high", np.uint32(a), np.uint32(b), np.uint64(c), np.uint64(d), y, block=1)
    assert y.tolist() == [a * b >> 32, c * d >> 64]


def test_a_wrong_source_is_refused_with_its_line(tmp_path):
    (tmp_path / "wrong.cu").write_text('extern "C" __global__ void wrong(int* y) {\n    y[0] = unknown;\n}\n')
    with pytest.raises(RuntimeError, match=r"wrong\.cu:2:\d+: error: .unknown."):
        HostLoader().function(str(tmp_path / "wrong.cu"), "wrong", ())
