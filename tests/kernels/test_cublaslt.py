"""The binding of cuBLASLt: constants and prototypes against its header, descriptors against the library, `Lt`."""

from __future__ import annotations

import ctypes as c
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import host_loader
from host_libraries import HostMultiplier, LibraryOnHost, product_of
from singa_lite.kernels.cuda_kernels.libraries import cublaslt, cublaslt_header, lt
from singa_lite.kernels.cuda_kernels.libraries.cublaslt import CublasLt, CublasLtError, CublasLtNotFoundError, Object
from singa_lite.kernels.cuda_kernels.libraries.cublaslt_header import (
    FUNCTIONS,
    Algorithm,
    Compute,
    DataType,
    Epilogue,
    Heuristic,
    LayoutAttribute,
    MatmulAttribute,
    PreferenceAttribute,
)
from singa_lite.kernels.cuda_kernels.libraries.lt import Lt
from singa_lite.kernels.cuda_kernels.libraries.product import Layout, Product

PREFIXES: dict[Any, str] = {
    DataType: "CUDA",
    Compute: "CUBLAS",
    Epilogue: "CUBLASLT_EPILOGUE",
    MatmulAttribute: "CUBLASLT_MATMUL_DESC",
    LayoutAttribute: "CUBLASLT_MATRIX_LAYOUT",
    PreferenceAttribute: "CUBLASLT_MATMUL_PREF",
}
OTHERS = {
    "CUBLAS_STATUS_SUCCESS": cublaslt_header.SUCCESS,
    "CUBLAS_STATUS_NOT_SUPPORTED": cublaslt_header.NOT_SUPPORTED,
}
SIZES = {
    "sizeof(cublasLtMatmulAlgo_t)": c.sizeof(Algorithm),
    "sizeof(cublasLtMatmulHeuristicResult_t)": c.sizeof(Heuristic),
    "offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)": Heuristic.workspaceSize.offset,
    "offsetof(cublasLtMatmulHeuristicResult_t, state)": Heuristic.state.offset,
}
PROGRAM = """
#include <cstddef>
#include <cstdio>
#include <cublasLt.h>
template <class R, class... A> void sizes(const char* name, R (*)(A...)) {
    std::printf("cublasLt%s", name);
    std::size_t all[] = {sizeof(A)...};
    for (std::size_t size : all) std::printf(" %zu", size);
    std::printf("\\n");
}
int main() {
"""


def constants() -> dict[str, int]:
    """What the header's names stand for, by this package."""
    found = dict(OTHERS)
    for kind, prefix in PREFIXES.items():
        for member in kind:
            number = member.value if isinstance(member, int) else member.value[0]
            found[f"{prefix}_{member.name}"] = number
    return found


@pytest.fixture(scope="module")
def header(tmp_path_factory) -> Iterator[dict[str, str]]:
    """What a C++ program that includes the header prints of its names."""
    folders = [folder for folder in host_loader.INCLUDES if (folder / "cublasLt.h").exists()]
    if not folders:
        pytest.skip("wants cublasLt.h, pip install nvidia-cublas")
    if shutil.which("g++") is None:
        pytest.skip("wants g++, apt install g++")
    lines = [f'std::printf("{name} %ld\\n", (long)({name}));' for name in (*constants(), "CUBLAS_VER_MAJOR")]
    lines += [f'std::printf("%s %ld\\n", "{name.replace(" ", "")}", (long)({name}));' for name in SIZES]
    folder = tmp_path_factory.mktemp("header")
    code = folder / "header.cpp"
    # A function that is only named is not linked: the program runs without the library.
    lines += [f'sizes("{name}", static_cast<decltype(&cublasLt{name})>(nullptr));' for name in FUNCTIONS]
    code.write_text(PROGRAM + "\n".join(lines) + "\n}\n")
    includes = [f"-I{folder}" for folder in host_loader.INCLUDES if folder.exists()]
    subprocess.run(["g++", "-w", *includes, str(code), "-o", str(folder / "header")], check=True)
    printed = subprocess.run([str(folder / "header")], check=True, capture_output=True, text=True).stdout
    yield {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in printed.splitlines()}


def test_constants_structures_and_arguments_are_those_of_the_header(header):
    assert {name: int(header[name]) for name in constants()} == constants()
    assert int(header["CUBLAS_VER_MAJOR"]) == cublaslt_header.MAJOR
    assert {name: int(header[name.replace(" ", "")]) for name in SIZES} == SIZES
    for name, kinds in FUNCTIONS.items():
        assert [int(size) for size in header[f"cublasLt{name}"].split()] == [c.sizeof(kind) for kind in kinds], name
    for kind in PREFIXES:
        assert len(kind.__members__) == len(list(kind)), "two names of one value"


# The library


@pytest.mark.parametrize("path", ["/nowhere/libcublasLt.so.13", "libc.so.6"])
def test_what_is_no_such_library_is_named(path):
    with pytest.raises(CublasLtNotFoundError, match=path):
        CublasLt(path)


def test_another_major_version_is_refused(library, monkeypatch):
    monkeypatch.setattr(cublaslt, "MAJOR", 12)
    with pytest.raises(CublasLtNotFoundError, match=str(library.version)):
        CublasLt(library.path)


@pytest.fixture(scope="module")
def library() -> CublasLt:
    """Skipped where there is none."""
    try:
        return cublaslt.load()
    except CublasLtNotFoundError as error:
        pytest.skip(f"{error}; pip install nvidia-cublas")


def test_a_call_that_fails_is_named_with_its_status(library):
    with pytest.raises(CublasLtError, match=r"MatrixLayoutSetAttribute.*7"):
        library["MatrixLayoutSetAttribute"](None, 5, None, 4)


def test_objects_of_the_library_end_with_ours():
    called = []

    class Counting:
        def __getitem__(self, name: str) -> Any:
            return lambda *arguments: called.append(name)

    for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
        del called[:]
        Object(Counting(), kind)
        assert called == [f"{kind}Create", f"{kind}Destroy"]


# Descriptors, which the library takes without a GPU


PLAIN = Product("float32", "float32", Layout(130, 40, 136), Layout(40, 50, 40), Layout(130, 50, 130))
TRANSPOSED = replace(PLAIN, a=Layout(40, 130, 40), b=Layout(50, 40, 64), transpose_a=True, transpose_b=True)
BATCHED = replace(PLAIN, a=Layout(130, 40, 136, 0), b=Layout(40, 50, 40, 2000), d=Layout(130, 50, 130, 6500), batch=7)
EPILOGUES = [replace(PLAIN, epilogue=e) for e in Epilogue]
HALVES = [
    replace(PLAIN, inputs=half, output=output) for half in ("float16", "bfloat16") for output in (half, "float32")
]
DTYPES = [*HALVES, replace(PLAIN, inputs="float64", output="float64")]
RELU = replace(BATCHED, epilogue=Epilogue.RELU_BIAS)
COMPUTE = {"float64": Compute.COMPUTE_64F}
PRODUCTS = [PLAIN, TRANSPOSED, BATCHED, RELU, *EPILOGUES, *DTYPES]


def label(product: Product) -> str:
    return f"{product.inputs}-{product.output}-{product.epilogue.name}-{product.batch}"


@pytest.mark.parametrize("product", PRODUCTS, ids=label)
def test_the_library_takes_every_descriptor_and_says_it_back(library, product):
    described = lt.describe(library, product, 0x1000)
    assert product_of(described, *lt.layouts(library, product)) == product
    assert described.get(MatmulAttribute.BIAS_POINTER) == (0x1000 if product.epilogue.has_bias else 0)


# Lt, over a GPU of NumPy's


@pytest.fixture
def on_host(library) -> LibraryOnHost:
    return LibraryOnHost(library)


def aligned(nbytes: int) -> np.ndarray:
    """Bytes from a multiple of 512 on, as in an arena."""
    whole = np.zeros(nbytes + 512, np.uint8)
    start = -whole.ctypes.data % 512
    return whole[start : start + nbytes]


def operands(product: Product) -> list[np.ndarray]:
    """A, B, D and bias: values where they are read."""
    rng = np.random.default_rng(3)

    def values(elements: int, dtype: str) -> np.ndarray:
        made = aligned(elements * np.dtype(dtype).itemsize).view(dtype)
        made[...] = rng.standard_normal(elements)
        return made

    sizes = [
        layout.columns * layout.leading + (product.batch - 1) * layout.stride
        for layout in (product.a, product.b, product.d)
    ]
    a, b, d = (values(*which) for which in zip(sizes, (product.inputs, product.inputs, product.output), strict=True))
    return [a, b, d, values(product.m, product.output)]


def addresses(product: Product, tensors: list[np.ndarray]) -> tuple[int, ...]:
    there = 1, 1, 1, product.epilogue.has_bias
    return tuple(t.ctypes.data if given else 0 for t, given in zip(tensors, there, strict=True))


@pytest.mark.parametrize("product", [p for p in PRODUCTS if "bfloat16" not in (p.inputs, p.output)], ids=label)
def test_what_the_library_is_told_is_the_product(on_host, product):
    multiplier = Lt(77, library=on_host)
    got, wanted = operands(product), operands(product)
    assert multiplier.workspace_bytes(product) == 4096
    multiplier.bind(product, addresses(product, got), 0x10000)()
    HostMultiplier().bind(product, addresses(product, wanted), 0)()
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert on_host.done == [(product, COMPUTE.get(product.inputs, Compute.COMPUTE_32F))]
    rounded = {**COMPUTE, "float32": Compute.COMPUTE_32F_FAST_TF32}
    assert lt.compute(replace(product, tf32=True)) == rounded.get(product.inputs, Compute.COMPUTE_32F)
    assert on_host.work == [(0x10000, 4096, 77)]


def test_the_heuristic_is_asked_once_for_a_product_and_its_alignment(on_host):
    multiplier = Lt(0, workspace_limit=1 << 20, library=on_host)
    usual = {"MAX_WORKSPACE_BYTES": 1 << 20, "REDUCTION_SCHEME_MASK": 7} | {
        f"MIN_ALIGNMENT_{name}_BYTES": 256 for name in "ABCD"
    }
    for _ in range(2):
        tensors = operands(PLAIN)
        multiplier.bind(PLAIN, addresses(PLAIN, tensors), 0)()
    assert on_host.asked == [usual]
    for _ in range(2):
        a, *others = addresses(PLAIN, operands(PLAIN))
        multiplier.bind(PLAIN, (a + 16, *others), 0)
    # The piece of a tensor must do with the workspace that was stated before its address was known.
    assert on_host.asked[1:] == [usual | {"MAX_WORKSPACE_BYTES": 4096, "MIN_ALIGNMENT_A_BYTES": 16}]


@pytest.mark.parametrize(
    ("inputs", "output", "mask"),
    [("float32", "float32", 7), ("float64", "float64", 7), ("float16", "float32", 7), ("float16", "float16", 2)],
)
def test_partial_sums_are_kept_in_no_shorter_type_than_they_are_made_in(on_host, inputs, output, mask):
    Lt(0, library=on_host).workspace_bytes(replace(PLAIN, inputs=inputs, output=output))
    assert [asked["REDUCTION_SCHEME_MASK"] for asked in on_host.asked] == [mask]


def test_workspace_stays_within_its_limit_and_a_product_that_the_library_cannot_do(on_host):
    assert Lt(0, workspace_limit=1000, library=on_host).workspace_bytes(PLAIN) == 1000
    on_host.wants = None
    assert Lt(0, library=on_host).workspace_bytes(PLAIN) is None


def test_calls_share_layouts_but_not_the_descriptor_that_holds_the_bias(on_host):
    product = replace(PLAIN, epilogue=Epilogue.BIAS)
    multiplier = Lt(0, library=on_host)
    first, second = operands(product), operands(product)
    second[3][...] = 5
    launches = [multiplier.bind(product, addresses(product, tensors), 0) for tensors in (first, second)]
    for launch in launches:
        launch()
    assert not np.array_equal(first[2], second[2])
