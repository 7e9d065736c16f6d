"""Values of CUDA kernels beyond the contract's: 16 bits, sizes about a GPU's units, few blocks, 2**32 elements."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import build_cache
import skips
from every_row import over_rows
from every_set import WITHOUT_LIBRARIES, parameter
from host_kernels import cuda_on_host
from host_loader import Build, HostLoader, missing_to_run, rounds_once
from kernel_case import Tensors, garbage, run
from kernel_cases import CASES, STORED
from kernel_cases_gpu import FURTHER, convolution
from kernel_sets import cuda_sets, is_left
from kernel_sizes import build
from layouts import PAIRS, channels_last, check, double, piece_of_channels_last
from normal_numbers import NORMALS, drawn, draws_by_index
from singa_lite.compiler.rewrite.narrow import ACTIVATIONS
from singa_lite.kernels.cuda_kernels import attention, routine, update
from singa_lite.kernels.cuda_kernels.routine import Arguments
from singa_lite.kernels.cuda_kernels.walk import FLAT, walk
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet, TensorSpec, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.testing.kernel_call import Calls
from test_activation_values import applied
from test_kernel_layouts import PLAIN, SUMS, agree_in_layouts
from test_kernels import DRAWN, a_piece_of_a_concatenation_gives_equal_bits
from test_normalization_values import empty, normal, positive
from test_random_values import key

of_the_host = pytest.mark.skipif(bool(missing_to_run()), reason=f"the CUDA kernels on the host want {missing_to_run()}")
NAN, INF = np.nan, np.inf
RNG = np.random.default_rng(7)


def kernel_of(case: str) -> str:
    return case.split(":")[0]


def rows_of(name: str, *tables: Any) -> list[str]:
    return [case for table in tables for case in table if kernel_of(case) == name]


@lru_cache(maxsize=1)
def call_of(case: str, dtype: str, by_index: bool = True) -> tuple[Tensors, dict[str, Any], Tensors]:
    """Tensors, which nobody writes to, settings, and the exact results. by_index: normal numbers are a GPU's."""
    given, settings = (FURTHER.get(case) or CASES[case]).build(np.random.default_rng(7), np.dtype(dtype), False)
    return given, settings, exact(kernel_of(case), given, settings, by_index)


def exact(name: str, given: Tensors, settings: dict[str, Any], by_index: bool = True) -> Tensors:
    """What NumPy makes of it in float64, or draws in the tensors' own dtype."""
    if by_index and name in NORMALS:
        return drawn(name, given, settings)
    found = [None if t is None else t.copy() if name in DRAWN else double(t) for t in given]
    with np.errstate(invalid="ignore"):
        run(NUMPY, name, found, settings)
    return found


SETS = [kernels for kernels in WITHOUT_LIBRARIES if kernels is not NUMPY]
KERNELS = [(s, name) for name in dict.fromkeys(map(kernel_of, FURTHER)) for s in SETS if name in s.kernels]


@pytest.mark.parametrize("kernels, name", [parameter(s, name, label=name) for s, name in KERNELS])
def test_further_sizes_in_several_layouts(kernels, name):
    over_rows(right_in_layouts, ((case, (kernels, case)) for case in rows_of(name, FURTHER)))


def right_in_layouts(kernels: KernelSet, case: str) -> None:
    """And a piece of a larger tensor gives the bits of the tensor by itself."""
    name, call = kernel_of(case), call_of(case, "float32", draws_by_index(kernels))
    given, settings, _ = call
    are_images = (
        any(t is not None and t.ndim == 4 for t in given) and max(t.size for t in given if t is not None) < 9000
    )
    pairs = PAIRS if are_images else PLAIN
    agree_in_layouts(kernels, name, call, {pair: [(first, second, second)] for pair, (first, second) in pairs.items()})
    if kernels.name != "onednn":
        a_piece_of_a_concatenation_gives_equal_bits(Calls(kernels, name, given, settings))


#: Of the largest element: a result in float16 is rounded once, and the sums behind it are of float32.
OFF = {"float16": 2.0**-10, "float64": 2.0**-44}


@pytest.mark.parametrize("dtype", OFF)
@pytest.mark.parametrize("name", sorted({*map(kernel_of, CASES)}))
def test_other_dtypes(cuda, name, dtype):
    cases = [key for key in rows_of(name, *([CASES] if dtype == "float16" else []), FURTHER) if not is_left(key)]
    if name in cuda.kernels and name not in STORED and cases:  # values in bfloat16 are those of float32
        over_rows(near_float64, ((case, (cuda, case, dtype)) for case in cases))


def near_float64(cuda: KernelSet, case: str, dtype: str) -> None:
    assert_near(cuda, kernel_of(case), *call_of(case, dtype), OFF[dtype])


def assert_near(cuda: KernelSet, name: str, given: Tensors, settings: Any, wanted: Tensors, off: float) -> None:
    """off: of the largest element of each result."""
    tensors = [None if t is None else t.copy() for t in given]
    run(cuda, name, tensors, settings)
    for label, got, right in zip(SIGNATURES[name].tensors, tensors, wanted, strict=True):
        if got is not None and right is not None:
            atol = off * float(np.abs(right).max(initial=0)) + (2.0**-24 if got.dtype == np.float16 else 0)
            np.testing.assert_allclose(got, right, rtol=0, atol=atol, err_msg=label)


@of_the_host
@pytest.mark.parametrize("name", sorted({*map(kernel_of, CASES)}))
def test_few_blocks_go_on_to_further_elements(name, monkeypatch):
    monkeypatch.setattr(routine, "MOST_BLOCKS", 1)
    monkeypatch.setattr(update, "MOST_SUMS", 2)
    monkeypatch.setattr(attention, "TILE_BYTES", 200)  # some rows of a small call
    cuda = cuda_on_host()  # a set that was used has its routines
    if isinstance(cuda.kernels.get(name), routine.CudaKernel):  # others launch nothing themselves
        kept = [case for case in rows_of(name, CASES) if not is_left(case)]
        calls = [(case, *build(CASES[case], size)) for case in kept for size in ("small", "over a block")]
        if name == "clip_norm":
            calls += [(case, *call_of(case, "float32")[:2]) for case in rows_of(name, FURTHER)]
        over_rows(assert_near, [(case, (cuda, name, t, s, exact(name, t, s), 2.0**-16)) for case, t, s in calls])


@pytest.mark.parametrize("name", sorted(SUMS))
def test_sums_of_pieces_of_images_have_the_bits_of_the_images(cuda, name):
    """Nothing is aligned there."""
    found = []
    for case in [case for case in rows_of(name, CASES, FURTHER) if name in cuda.kernels]:
        given, settings, _ = call_of(case, "float32")
        for layout in (channels_last, piece_of_channels_last):
            tensors = [None if t is None else layout(t) if t.ndim == 4 else t.copy() for t in given]
            run(cuda, name, tensors, settings)
            found.append((case, [b"" if t is None else np.ascontiguousarray(t).tobytes() for t in tensors]))
    assert all(one == other for one, other in zip(found[::2], found[1::2], strict=True))


def test_the_tail_of_gelu_keeps_its_digits(cuda):
    """1 + erf(x) would have none left at -9."""
    for dtype, low, digits in (np.float64, -35, 1e-12), (np.float32, -11, 2e-5):
        x = np.linspace(low, -2, 501, dtype=dtype)
        for name, inputs in (("gelu", [x]), ("gelu_derivative", [np.ones_like(x), x])):
            exact = applied(NUMPY, name, *(a.astype(np.float64) for a in inputs))
            np.testing.assert_allclose(applied(cuda, name, *inputs), exact, rtol=digits)


def test_nan_of_one_image_stays_in_it_and_passes_relu(cuda):
    """Padding is left out, never a product by zero."""
    for name, further in (("conv2d", {}), ("conv2d_derivative", {}), ("conv2d", {"activation": "relu"})):
        tensors, settings = convolution(name, "depthwise", **further).build(RNG, np.dtype("f4"), False)
        tensors[0][1] = NAN
        run(cuda, name, tensors, settings)
        assert np.isfinite(tensors[-1][0]).all(), name
        assert np.isnan(tensors[-1][1]).any(), name


@pytest.mark.parametrize("before", [0, 1, 63, 64, 65, 200])
@pytest.mark.parametrize("features", [1, 31, 300])
def test_gradients_of_one_id_are_added_in_the_order_of_its_places(cuda, features, before):
    """By pieces of 64, whatever occurs of other ids."""
    dy, gradient = normal(before + 700, features), np.empty((3, features), np.float32)
    ids = np.full(before + 700, 2, np.uint8)
    ids[np.random.default_rng(1).permutation(ids.size)[:before]] = 1
    run(cuda, "embedding_gradient", [ids, dy, gradient], {"first": 0, "padding": -1})
    rows, wanted = dy[ids == 2], np.zeros(features, np.float32)
    for piece in (rows[start : start + 64] for start in range(0, 640, 64)):
        wanted += in_order(piece)
    for row in rows[640:]:
        wanted += row
    np.testing.assert_array_equal(gradient[[0, 2]], [0 * wanted, wanted])


def in_order(rows: np.ndarray) -> np.ndarray:
    """Their sum, one after the other."""
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total += row
    return total


def test_the_largest_entry_of_rows_with_nan_and_ties(cuda):
    x, target = np.tile(np.arange(40, dtype=np.float32), (4, 1)), np.zeros((4, 40), np.float32)
    target[0, [35, 38]], target[1, [37, 39]], target[2, [3, 36]], target[3, 38] = 1, NAN, [INF, INF], -1
    for k in (1, 2, 3, 4, 5, 37, 40):
        check(cuda, "in_top_k", [x, target, empty(4)], {"k": k})


@pytest.mark.parametrize("shape", [(37,), (3, 5, 16)], ids=str)
def test_random_numbers_do_not_hang_on_addresses_or_strides(cuda, shape):
    x = normal(*shape)
    odd = np.empty(x.size + 1, x.dtype)[1:].reshape(shape)  # no pack begins there
    one = np.array([3, *[NAN] * 7], np.float32)[:1]  # nothing like it behind it
    odd[...] = x
    for source in (odd, np.broadcast_to(one, shape), np.broadcast_to(x[..., :1], shape)):
        wanted, y = empty(*shape), empty(*shape)
        run(NUMPY, "dropout", [source.copy(), key(), wanted], {"p": 0.6})
        run(cuda, "dropout", [source, key(), y], {"p": 0.6})
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_extremes_turns_and_positions_of_integers(cuda, dtype):
    """The largest and smallest there are among them, which no float holds."""
    kept = np.array([-(2**63), 2**63 - 1, 2**53 + 1, 7, 200, -3], "i8").astype(dtype)
    x = RNG.choice(kept, (2, 3001, 3))
    for name, axes in product(("reduce_max", "reduce_min"), ((0,), (1,), (2,), (0, 1), (0, 1, 2))):
        y = garbage(tuple(n for axis, n in enumerate(x.shape) if axis not in axes), dtype)
        run(cuda, name, [x, y], {"axes": axes})
        np.testing.assert_array_equal(y, (x.max if name == "reduce_max" else x.min)(axes), err_msg=f"{name} {axes}")
    y, read = garbage(x.shape, dtype), garbage((2, 5, 3), dtype)
    run(cuda, "flip", [x, y], {"axes": (-2, 0)})
    np.testing.assert_array_equal(y, x[::-1, ::-1])
    run(cuda, "read_at", [x, np.array([2]), read], {})
    np.testing.assert_array_equal(read, x[:, 2:7])


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_an_extreme_is_nan_where_one_is_and_infinite_where_all_are(cuda, name):
    for shape, axis in (((3, 20_011), 1), ((20_011, 3), 0), ((3, 5), 1)):
        for odd in (0, 1, shape[axis] - 1):
            x = RNG.standard_normal(shape).astype(np.float32)
            y = empty(3)
            rows = np.moveaxis(x, axis, 1)
            rows[0, odd], rows[1] = NAN, -INF if name == "reduce_max" else INF
            run(cuda, name, [x, y], {"axes": (axis,)})
            np.testing.assert_array_equal(y, (x.max if name == "reduce_max" else x.min)(axis))


@pytest.mark.parametrize("position", [-1, 3, 2**62, -(2**63)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
def test_a_position_that_is_not_there_reads_nan_and_writes_nothing(cuda, position, dtype):
    state, part, given = np.full((2, 5, 3), 7, dtype), garbage((2, 3, 3), dtype), np.full((2, 3, 3), 9, dtype)
    run(cuda, "read_at", [state, np.array([position]), part], {})
    run(cuda, "write_at", [given, np.array([position]), state], {})
    assert (part == 0).all() if dtype == "int64" else np.isnan(part).all()
    assert (state == 7).all()


def test_uniform_of_halves_never_reaches_the_upper_bound(cuda):
    """Between 1 and the next number of float16 there is none, so rounding would give either."""
    y = garbage((7, 47), np.float16)
    run(cuda, "uniform", [key(), y], {"low": 1.0, "high": float(np.nextafter(np.float16(1), np.float16(2)))})
    assert np.all(y == 1)


@of_the_host
@pytest.mark.parametrize("as_gpu", {False, rounds_once()}, ids=["rounded", "fused"][: 1 + rounds_once()])
def test_a_row_of_one_has_no_derivative_however_products_are_rounded(as_gpu):
    """A GPU rounds a product and a sum once, as the host does if it may."""
    x, dy, gamma, dx = normal(500, 1), normal(500, 1, seed=2), normal(1, seed=3), empty(500, 1)
    kernels = cuda_on_host(Build(as_gpu=as_gpu))
    run(kernels, "layer_norm_derivative", [dy, x, gamma, x[:, 0].copy(), positive(500), dx], {})
    np.testing.assert_array_equal(dx, 0)


# --- activations in 16 bits beside parameters, gradients and statistics in float32: sums are whole

HALF = np.dtype(np.float16)
#: Of the results: those in float32 are off by the order of their sums, those in 16 bits by one rounding besides.
BY_ORDER, ROUNDING = 2e-5, 2.0**-11
#: What a net in 16 bits is made of, beside what works on activations alone.
NARROW = (
    *("linear", "linear_gradient", "matmul", "add_bias", "bias_gradient"),
    *("conv2d", "conv2d_derivative", "conv2d_gradient", "lrn", "lrn_derivative"),
    *("batch_norm", "batch_normalize", "batch_norm_inference", "batch_norm_derivative", "batch_norm_gradient"),
    *("layer_norm", "layer_norm_derivative", "layer_norm_gradient", "l2_norm", "l2_norm_derivative"),
    *("lstm_derivative", "gru_derivative", "simple_rnn_derivative"),
)
KEYS = sorted(key for key in CASES if kernel_of(key) in NARROW)
#: By a library alone, which rounds all factors to 16 bits.
PRODUCTS = ("linear", "linear_gradient", "matmul")


def built(key: str) -> tuple[str, Tensors, dict[str, Any]]:
    """(kernel, tensors, settings) of a small case, its numbers such as float16 has."""
    tensors, settings = CASES[key].build(np.random.default_rng(11), np.dtype(np.float32), False)
    return kernel_of(key), [_rounded(t) for t in tensors], settings


def _rounded(given: np.ndarray | None) -> np.ndarray | None:
    return given if given is None or given.dtype != np.float32 else given.astype(HALF).astype(np.float32)


def halved(name: str, tensors: Tensors) -> Tensors:
    """The same, activations and their derivatives in 16 bits."""
    return [
        t.astype(HALF) if t is not None and tensor in ACTIVATIONS and t.dtype == np.float32 else t
        for tensor, t in zip(SIGNATURES[name].tensors, tensors, strict=True)
    ]


def off(key: str, kernels: KernelSet) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{result: (what the set makes of the case in 16 bits, what NumPy does in float32)}."""
    name, tensors, settings = built(key)
    given, wanted = halved(name, tensors), [None if t is None else t.copy() for t in tensors]
    run(NUMPY, name, wanted, settings)
    run(kernels, name, given, settings)
    signature = SIGNATURES[name]
    rows = zip(signature.tensors, signature.roles, given, wanted, strict=True)
    return {tensor: (got, right) for tensor, role, got, right in rows if got is not None and role != "Read"}


@pytest.mark.parametrize("key", [key for key in KEYS if kernel_of(key) not in PRODUCTS and not is_left(key)])
def test_results_are_those_of_float32_and_only_what_is_in_16_bits_is_rounded(cuda, key):
    for tensor, (got, right) in off(key, cuda).items():
        share, atol = ROUNDING if got.dtype == HALF else 0.0, BY_ORDER * float(np.abs(right).max()) + 2e-7
        np.testing.assert_allclose(got.astype(np.float64), right, rtol=share + BY_ORDER, atol=atol, err_msg=tensor)


@of_the_host
@pytest.mark.parametrize("key", [key for key in KEYS if SIGNATURES[kernel_of(key)].facts.multiplies])
def test_libraries_do_products_over_copies_in_16_bits(key):
    """A gradient that the library has in the dtype of its factors alone is rounded once, when it is stored."""
    (kernels,) = [kernels for kernels in cuda_sets() if kernels.name == "cuda-libraries"]
    for tensor, (got, right) in off(key, kernels).items():
        assert np.linalg.norm(got.astype(np.float64) - right) / np.linalg.norm(right) < 1e-3, tensor


def test_two_dtypes_of_16_bits_do_not_mix(cuda):
    other = skips.library("ml_dtypes").bfloat16
    specs = specs_of([garbage((7, 5), HALF), garbage((7, 5), other)])
    assert not cuda["relu"].supports(specs, {})


def test_a_gradient_of_halves_is_summed_and_stored_in_float32(cuda):
    """Of as many rows that a sum in float16 would stand still at 2048."""
    x, dy, gradient = np.ones((4099, 3), HALF), np.ones((4099, 5), HALF), garbage((3, 5), np.float32)
    run(cuda, "matmul", [x, dy, gradient], {"transpose_a": True, "transpose_b": False})
    assert (gradient == 4099).all()


# --- elements behind the 2**32nd, of tensors that lie in one row. A kernel with so many threads would take minutes: the
# --- grid is said to be as large, and its last block alone runs.

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="this system is not Linux, which gives bytes as touched")
MANY, BEHIND, THREADS = 1 << 32, 5, 256

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
def large() -> Iterator[np.ndarray]:
    """2**32 bytes and some, of which those that nobody touches take no memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    held = mmap.mmap(-1, MANY + 4096, flags=flags)  # ends with the last array over it
    yield np.frombuffer(held, np.uint8)[1 : 1 + MANY + BEHIND]  # packs are not aligned


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


@of_the_host
@on_linux
def test_elements_behind_the_last_index_of_32_bits_are_walked_over(large):
    launch("copied", MANY // THREADS, np.full(1, 7, np.uint8), large)
    assert (large[MANY:].tolist(), large[:BEHIND].tolist()) == ([7] * BEHIND, [0] * BEHIND)


@of_the_host
@on_linux
def test_random_numbers_are_drawn_behind_it(large):
    launch("drawn", MANY // 8 // THREADS, np.array([3, 1, 4], np.uint64), large)
    assert large[MANY:].all()
    assert not large[: 2 * BEHIND].any()
