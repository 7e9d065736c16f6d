"""Whatever NVIDIA's libraries refuse, results stay right: stand-ins refuse what those may refuse, at random by a seed.

cuBLASLt has no algorithm for an epilogue of some types, for a product, or within the workspace that it is allowed, and
wants more or less of that by how operands are aligned; its ReLU loses NaN. cuDNN has no plan for a graph, or an engine
breaks.
"""

from __future__ import annotations

import ctypes
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import host_loader
from host_device import HostCuda
from host_kernels import over_numpy
from host_libraries import PROPERTIES, HostExecutor, LibraryOnHost, product_of, served
from host_loader import HostLoader
from kernel_case import garbage, run
from kernel_cases import CASES
from late_gpu import missing_libraries
from singa_lite.device.host_fallback import by_way_of_host
from singa_lite.kernels.cuda_kernels import cuda
from singa_lite.kernels.cuda_kernels.libraries import cublaslt
from singa_lite.kernels.cuda_kernels.libraries.cublaslt import CublasLt, CublasLtError, Object
from singa_lite.kernels.cuda_kernels.libraries.cublaslt_header import NOT_SUPPORTED, PreferenceAttribute
from singa_lite.kernels.cuda_kernels.libraries.cudnn_call import Draw, EngineConditions, Plan
from singa_lite.kernels.cuda_kernels.libraries.cudnn_convolution import Convolutions
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import described, frontend
from singa_lite.kernels.cuda_kernels.libraries.cudnn_plan import Knobs, Planner
from singa_lite.kernels.cuda_kernels.libraries.lt import ALIGNMENT, Lt
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY

MISSING = host_loader.missing_to_run() or missing_libraries()
MISSING = MISSING or ("" if find_spec("ml_dtypes") else "bfloat16, pip install ml-dtypes")
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the libraries' kernels want {MISSING}")

#: How often each thing is refused.
SHARE = 0.25
#: Bytes that algorithms want, and that they are allowed by a seed: short, and enough. So are the engines of cuDNN.
WANTED = (0, 4096, 1 << 20)
ALLOWED = (4096, 0, 1 << 30)


class Refusals:
    """What is refused, the same for equal questions of a seed; met: the kinds of refusals that there were."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.met: set[str] = set()

    def refuses(self, kind: str, *question: object) -> bool:
        refused = self.drawn(kind, *question).random() < SHARE
        self.met |= {kind} if refused else set()
        return refused

    def drawn(self, *question: object) -> random.Random:
        return random.Random(repr((self.seed, *question)))


class RefusingLibrary(LibraryOnHost):
    """cuBLASLt that has no algorithm for some products."""

    def __init__(self, real: CublasLt, refusals: Refusals) -> None:
        super().__init__(real)
        self.refusals = refusals

    def on_host_MatmulAlgoGetHeuristic(self, handle: Object, described: Object, *rest: Any) -> None:
        """Two ways to have none: a status, and a list of none."""
        of_a, of_b, _, of_d, wish, most, found, count = rest
        product = product_of(described, of_a, of_b, of_d)
        kind = product.epilogue, product.inputs, product.output
        least = min(wish.get(one) for one in PreferenceAttribute if "ALIGNMENT" in one.name)
        if self.refusals.refuses("epilogue", *kind):
            raise CublasLtError("MatmulAlgoGetHeuristic", NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED")
        limit = wish.get(PreferenceAttribute.MAX_WORKSPACE_BYTES)
        wanted = self.refusals.drawn("workspace", *kind, product.k, least).choice(WANTED)
        is_short = wanted > limit and least >= ALIGNMENT  # operands aligned less have no way around it
        if self.refusals.refuses("product", *kind, product.m, product.n, product.k) or is_short:
            count._obj.value = 0
            return
        self.wants = min(wanted, limit)
        super().on_host_MatmulAlgoGetHeuristic(handle, described, of_a, of_b, of_d, of_d, wish, most, found, count)

    def on_host_Matmul(self, *given: Any) -> None:
        """Writes to all of the workspace that it is told of, as an algorithm may."""
        workspace, nbytes = given[13:15]
        ctypes.memset(workspace, 0x5A, nbytes)
        super().on_host_Matmul(*given)


class RefusingPlanner(Planner):
    """cuDNN that has no plan for some graphs."""

    def __init__(self, refusals: Refusals) -> None:
        allowed = ALLOWED[refusals.seed % len(ALLOWED)]
        super().__init__(described(PROPERTIES.read_text()), HostExecutor(), Knobs(workspace_limit=allowed))
        self.refusals = refusals

    def plan(self, draw: Draw, dtype: str, wish: EngineConditions | None = None) -> Plan | None:
        """None for a graph that is refused, by its operations."""

        def drawn(graph: Any) -> None:
            draw(graph)
            made = [node.node_type.name + str(node.params.get("mode", "")) for node in graph.nodes]
            if self.refusals.refuses("graph", dtype, *made):
                raise _Refused

        try:
            return super().plan(drawn, dtype, wish)
        except _Refused:
            return None


class _Refused(Exception):
    """A graph that there is no plan for."""


@contextmanager
def broken_engines(refusals: Refusals) -> Iterator[None]:
    """Engines that are first in a list break at random."""
    graphs = frontend().pygraph
    real, broken = graphs.build_plan_at_index, set[int]()

    def build(graph: Any, number: int) -> Any:
        result = real(graph, number)
        if id(graph) in broken:
            broken.discard(id(graph))
        elif refusals.refuses("engine", number, graph.get_workspace_size()):
            broken.add(id(graph))
            raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED")
        return result

    with patch.object(graphs, "build_plan_at_index", build):
        yield


def refusing(seed: int, library: type[RefusingLibrary] = RefusingLibrary) -> tuple[KernelSet, Refusals]:
    """The CUDA kernels on the host over libraries that refuse."""
    refusals = Refusals(seed)
    # A ReLU that makes 0 of NaN, as a trial finds it.
    trial = (lambda *asked: np.array([0.0, 0.0, 1.0])) if refusals.refuses("NaN") else None
    products = Products(Lt(0, ALLOWED[seed % len(ALLOWED)], library(cublaslt.load(), refusals)), trial=trial)
    made = Convolutions(RefusingPlanner(refusals), trial)
    below = by_way_of_host(NUMPY, HostCuda())
    return over_numpy("refusing", cuda(HostLoader(), below, *served(products, made))), refusals


def placed(tensor: Any, shift: int) -> Any:
    """A copy that begins so many elements behind a multiple of 512 bytes."""
    if tensor is None:
        return None
    whole = np.zeros(tensor.nbytes + 1024, np.uint8)
    start = -whole.ctypes.data % 512 + shift * tensor.itemsize
    made = np.ndarray(tensor.shape, tensor.dtype, whole, start)
    made[...] = tensor
    return made


# ---- the tests

NAMES = ("linear", "matmul", "matmul_add", "linear_gradient", "lstm", "gru_derivative")
CONVOLUTIONS = ("conv2d", "conv2d_derivative", "conv2d_gradient")
#: What results may be off by, as a share of the largest: many roundings of sums; of halves the result's own one.
ROUNDINGS = {"float32": 2.0**-16, "float64": 2.0**-45, "float16": 2.0**-10, "bfloat16": 2.0**-7}

Calls = list[tuple[str, list[Any], dict[str, Any]]]


def calls() -> Calls:
    """Those of the contract that a library may serve, in all dtypes, and some that its engines are made for."""
    built = [
        (key.split(":")[0], *case.build(np.random.default_rng(7), np.dtype(dtype), False))
        for dtype in ("float32", "float64")
        for key, case in CASES.items()
        if key.split(":")[0] in (*NAMES, *CONVOLUTIONS)
    ]
    of_each = {name: (name, tensors, settings) for name, tensors, settings in built if tensors[0].dtype == np.float32}
    halves = [
        (name, [None if t is None else t.astype(dtype) for t in tensors], settings)
        for dtype in (np.dtype(np.float16), np.dtype(import_module("ml_dtypes").bfloat16))
        for name, tensors, settings in [*of_each.values(), *of_many_channels()]
    ]
    return [*built, *of_many_channels(), *halves]


def of_many_channels() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Convolutions of 8 channels, which engines for halves are made for."""
    rng = np.random.default_rng(3)
    x, weight, bias = (rng.standard_normal(shape, dtype="f") for shape in ((2, 8, 5, 7), (16, 8, 3, 3), (16,)))
    y, window = garbage((2, 16, 5, 7), np.float32), Window((3, 3), pad=(1, 1, 1, 1))
    settings = {"window": window, "groups": 1}
    dy = rng.standard_normal(y.shape, dtype="f")
    yield "conv2d", [x, weight, bias, y], {**settings, "activation": "relu"}
    yield "conv2d", [x, weight, bias, y], settings
    yield "conv2d_derivative", [dy, weight, garbage(x.shape, np.float32)], settings
    yield "conv2d_gradient", [x, dy, garbage(weight.shape, np.float32)], settings


def exact(name: str, tensors: list[Any], settings: dict[str, Any]) -> list[Any]:
    """The reference's results in float64."""
    given = [None if t is None else t.astype(np.float64) if t.dtype.name in ROUNDINGS else t.copy() for t in tensors]
    run(NUMPY, name, given, settings)
    return given


def check(kernels: Any, name: str, tensors: list[Any], settings: dict[str, Any], wanted: list[Any], shift: int) -> None:
    """The results of a call over tensors that begin so many elements behind a whole vector, with the least scratch and
    the most that it can be done with.
    """
    levels = kernels.scratch_levels(name, tuple(tensors), settings)
    for level in {levels[0], levels[-1]} if levels else (None,):
        arrays = tuple(placed(tensor, shift) for tensor in tensors)
        if level is None:
            run(kernels, name, arrays, settings)
        else:
            scratch = np.full(level + 64, 0xFF, np.uint8)
            kernels.prepare(name, arrays, scratch[:level] if level else None, settings)()
            assert (scratch[level:] == 0xFF).all(), f"{name} writes behind {level} bytes of scratch"
        for role, array, right in zip(SIGNATURES[name].roles, arrays, wanted, strict=True):
            if array is not None and role in ("Write", "Update"):
                off = ROUNDINGS[array.dtype.name] * max(1.0, abs(right).max())
                told = f"{name}, {array.dtype}, {shift} elements off, {level} bytes"
                np.testing.assert_allclose(array.astype(np.float64), right, rtol=0, atol=off, err_msg=told)


def check_all(seed: int, given: Calls) -> set[str]:
    """Of all calls; the kinds of refusals that were met. A warning where no engine is left is allowed."""
    kernels, noted = refusing(seed)
    with broken_engines(noted), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*no engine could be used, and not all declined")
        for name, tensors, settings in given:
            wanted = exact(name, tensors, settings)
            for shift in (0, 1):
                check(kernels, name, tensors, settings, wanted, shift)
    return noted.met


def test_results_are_right_whatever_is_refused():
    assert check_all(0, calls()[::3]) | check_all(1, calls()[1::3]) >= {"epilogue", "product", "graph", "engine"}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6))
def test_results_are_right_whatever_is_refused_of_any_call(seed):
    check_all(seed, calls())


class OnlyWhole(RefusingLibrary):
    """Has algorithms for operands of whole tensors alone."""

    def on_host_MatmulAlgoGetHeuristic(self, handle: Any, described: Any, *rest: Any) -> None:
        wish, count = rest[4], rest[7]
        if min(wish.get(one) for one in PreferenceAttribute if "ALIGNMENT" in one.name) < ALIGNMENT:
            count._obj.value = 0
            return
        LibraryOnHost.on_host_MatmulAlgoGetHeuristic(self, handle, described, *rest)


def test_operands_that_the_library_has_nothing_for_once_they_have_addresses_are_named():
    kernels, _ = refusing(0, OnlyWhole)
    name, tensors, settings = next(call for call in calls() if call[0] == "matmul")
    arrays = [placed(tensor, 1) for tensor in tensors]
    with pytest.raises(LookupError, match=r"\(4, 4, 4, 0\)"):
        run(kernels, name, arrays, settings)
    assert np.array_equal(arrays[2], tensors[2], equal_nan=True)
