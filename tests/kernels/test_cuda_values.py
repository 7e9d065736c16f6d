"""Values of CUDA kernels beyond the contract's: in float16, in sizes about a GPU's units, with few blocks, in place."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from every_set import WITHOUT_LIBRARIES, parameter
from host_kernels import cuda_on_host
from host_loader import Build, missing_to_run, rounds_once
from kernel_case import Tensors, garbage, run
from kernel_cases import CASES
from kernel_cases_gpu import FURTHER, convolution
from kernel_sizes import build
from layouts import PAIRS, channels_last, check, double, piece_of_channels_last
from singa_lite.kernels.cuda_kernels import linear, routine, update
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.testing.kernel_call import Calls
from test_activation_values import applied
from test_kernel_layouts import PLAIN, SUMS, assert_close, keeps_bits, laid_out
from test_kernels import DRAWN, a_piece_of_a_concatenation_gives_equal_bits
from test_normalization_values import empty, normal, positive
from test_random_values import key

NAN, INF = np.nan, np.inf
RNG = np.random.default_rng(7)


def kernel_of(case: str) -> str:
    return case.split(":")[0]


def rows_of(name: str, *tables: Any) -> list[str]:
    return [case for table in tables for case in table if kernel_of(case) == name]


@lru_cache(maxsize=1)
def call_of(case: str, dtype: str) -> tuple[Tensors, dict[str, Any], Tensors]:
    """Tensors, which nobody writes to, settings, and what NumPy makes of them."""
    given, settings = (FURTHER.get(case) or CASES[case]).build(np.random.default_rng(7), np.dtype(dtype), False)
    return given, settings, exact(kernel_of(case), given, settings)


def exact(name: str, given: Tensors, settings: dict[str, Any]) -> Tensors:
    """What NumPy makes of it in float64, or draws in the tensors' own dtype."""
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
    name, (given, settings, exact) = kernel_of(case), call_of(case, "float32")
    found: dict[str, set[bytes]] = {}
    are_images = (
        any(t is not None and t.ndim == 4 for t in given) and max(t.size for t in given if t is not None) < 9000
    )
    for pair, (first, second) in (PAIRS if are_images else PLAIN).items():
        tensors = laid_out(name, given, (first, second, second))
        run(kernels, name, tensors, settings)
        for label, got, wanted in zip(SIGNATURES[name].tensors, tensors, exact, strict=True):
            if got is not None and wanted is not None:
                assert_close(kernels, name, got, wanted, f"{label}: {pair}")
                if keeps_bits(kernels, name, tensors, settings):
                    found.setdefault(label, set()).add(got.tobytes())
    assert all(len(bits) == 1 for bits in found.values()), "bits hang on the layout"
    if kernels.name != "onednn":
        a_piece_of_a_concatenation_gives_equal_bits(Calls(kernels, name, given, settings))


#: Of the largest element: a result in float16 is rounded once, and the sums behind it are of float32.
OFF = {"float16": 2.0**-10, "float64": 2.0**-44}


@pytest.mark.parametrize("dtype", OFF)
@pytest.mark.parametrize("name", sorted({*map(kernel_of, CASES)}))
def test_other_dtypes(cuda, name, dtype):
    cases = rows_of(name, *([CASES] if dtype == "float16" else []), FURTHER)
    if name in cuda.kernels and cases:
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


@pytest.mark.skipif(bool(missing_to_run()), reason=f"the CUDA kernels on the host want {missing_to_run()}")
@pytest.mark.parametrize("name", sorted({*map(kernel_of, CASES)}))
def test_few_blocks_go_on_to_further_elements(name, monkeypatch):
    for module, most, number in ((routine, "MOST_BLOCKS", 1), (linear, "MOST_ACROSS", 2), (update, "MOST_SUMS", 2)):
        monkeypatch.setattr(module, most, number)
    cuda = cuda_on_host()  # a set that was used has its routines
    if name in cuda.kernels:
        calls = [
            (case, *build(CASES[case], size)) for case in rows_of(name, CASES) for size in ("small", "over a block")
        ]
        if name in ("matmul", "clip_norm"):
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


@pytest.mark.parametrize("label", ["square tiles", "depthwise"])
def test_nan_of_one_image_stays_in_it_and_passes_relu(cuda, label):
    """Zeros are put for padding and tiles that are not full, never products by zero."""
    for name, further in (("conv2d", {}), ("conv2d_derivative", {}), ("conv2d_activation", {"activation": "relu"})):
        tensors, settings = convolution(name, label, **further).build(RNG, np.dtype("f4"), False)
        tensors[0][1] = NAN
        run(cuda, name, tensors, settings)
        assert np.isfinite(tensors[-1][0]).all(), name
        assert np.isnan(tensors[-1][1]).any(), name


@pytest.mark.parametrize("features", [1, 31, 300])
def test_gradients_of_one_id_are_added_in_the_order_of_its_places(cuda, features):
    dy, gradient, wanted = normal(700, features), empty(3, features), np.zeros(features, np.float32)
    run(cuda, "embedding_gradient", [np.full(700, 2, np.uint8), dy, gradient], {"first": 0, "padding": -1})
    for row in dy:
        wanted += row
    np.testing.assert_array_equal(gradient, [0 * wanted, 0 * wanted, wanted])


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


def test_uniform_of_halves_never_reaches_the_upper_bound(cuda):
    """Between 1 and the next number of float16 there is none, so rounding would give either."""
    y = garbage((7, 47), np.float16)
    run(cuda, "uniform", [key(), y], {"low": 1.0, "high": float(np.nextafter(np.float16(1), np.float16(2)))})
    assert np.all(y == 1)


@pytest.mark.skipif(bool(missing_to_run()), reason=f"the CUDA kernels on the host want {missing_to_run()}")
@pytest.mark.parametrize("as_gpu", {False, rounds_once()}, ids=["rounded", "fused"][: 1 + rounds_once()])
def test_a_row_of_one_has_no_derivative_however_products_are_rounded(as_gpu):
    """A GPU rounds a product and a sum once, as the host does if it may."""
    x, dy, gamma, dx = normal(500, 1), normal(500, 1, seed=2), normal(1, seed=3), empty(500, 1)
    kernels = cuda_on_host(Build(as_gpu=as_gpu))
    run(kernels, "layer_norm_derivative", [dy, x, gamma, x[:, 0].copy(), positive(500), dx], {})
    np.testing.assert_array_equal(dx, 0)
