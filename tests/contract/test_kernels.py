"""What every kernel of every kernel set promises, from one table of calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from cuda_devices import STANDS_IN
from every_row import over_rows
from every_set import ALL, parameter
from kernel_case import Tensors, garbage, run
from kernel_cases import ATTENTION, CASES, POINTWISE, QUANTIZED, RECURRENT, SEQUENCES, SPATIAL, STORED
from kernel_edges import EDGES, NUMPY_WARNS, Edge
from kernel_sets import cuda_sets, leaves, sets_of_a_chain
from normal_numbers import NORMALS, drawn, draws_by_index
from singa_lite.kernels.composed import ComposedKernel
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import FunctionKernel, KernelSet, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.testing.kernel_call import (
    Call,
    Calls,
    allocates_nothing,
    bits,
    outputs_are_written_fully_and_inputs_stay,
    overwriting_gives_equal_bits,
    scratch_rule_needs_forms_alone,
    tensors_may_be_strided,
    what_scratch_held_does_not_matter,
)

KERNEL_SETS = [*sets_of_a_chain(), *cuda_sets()]

#: Small ones in both dtypes; big ones, which kernels cut up, in one.
SIZES = [("float32", False), ("float64", False), ("float32", True)]

#: Tensors that the interface wants contiguous.
CONTIGUOUS = {("matmul", "y")}

#: Tensors that are parameters, never pieces of something.
WEIGHTS = {"weight", "dweight", "gamma", "dgamma", "beta", "dbeta"}

#: Kernels whose tensors have a fixed, small size.
NEVER_BIG = {"clip_factor", "draw_key", "next_loss_scale", "unscale_factor"}

#: Big cases in which a fiber for each of half a million elements waits at barriers: on a GPU only.
TOO_MANY_FIBERS = {"layer_norm_gradient:single", "layer_norm_gradient:images"}

#: Big cases for the stand-in in the GPU's place: elements, windows, sums and an update.
BIG = {"add", "max_pool2d", "reduce_sum", "sgd"}

#: Kernels that draw other numbers for float32 than for float64.
DRAWN = {"uniform", "normal", "truncated_normal"}

#: Roundings of the largest element that a float32 sum of some ten thousand products may be off by.
LONG_SUM = 128


def name_of(key: str) -> str:
    """The kernel of a case."""
    return key.split(":")[0]


def does(kernels: KernelSet, key: str) -> bool:
    """Whether the set has the kernel of a case, or does the products of one that is composed of others."""
    name = name_of(key)
    if leaves(kernels, key):
        return False
    return name in kernels.kernels or ("-libraries" in kernels.name and isinstance(kernels[name], ComposedKernel))


def calls() -> Iterator[Any]:
    """Each case in each size, for each set that has the kernel; the sets of one case in a row, for they share it."""
    for key in CASES:
        for dtype, big in SIZES:
            for kernels in (kernels for kernels in KERNEL_SETS if does(kernels, key)):
                if dtype == "float64" and (kernels.name in ("loops", "onednn") or key in STORED):
                    continue  # they leave it to NumPy, and values in bfloat16 are those of float32
                if kernels.name.startswith("cuda") and big and key in TOO_MANY_FIBERS:
                    continue
                if kernels.name.startswith("gpu") and STANDS_IN and (dtype != "float32" or (big and key not in BIG)):
                    continue
                case_id = f"{kernels.name}-{key}-{'big' if big else 'small'}-{dtype}"
                marks = [pytest.mark.gpu] if kernels.name.startswith("gpu") else []
                yield pytest.param(kernels, key, dtype, big, id=case_id, marks=marks)


@lru_cache(maxsize=1)
def built(key: str, dtype: str, big: bool) -> tuple[Tensors, dict[str, Any]]:
    """A case's tensors, which nobody writes to, and settings."""
    tensors, settings = CASES[key].build(np.random.default_rng(7), np.dtype(dtype), big)
    nbytes = max(tensor.nbytes for tensor in tensors if tensor is not None)
    assert nbytes >= 2_000_000 if big and name_of(key) not in NEVER_BIG else nbytes <= 8_000, "case of a wrong size"
    return tensors, settings


@lru_cache(maxsize=1)
def exact_results(key: str, dtype: str, big: bool, by_index: bool) -> dict[str, np.ndarray]:
    """What the reference makes of a case in float64, or of one that is drawn in its own dtype.

    by_index: as of a set that draws normal numbers so.
    """
    tensors, settings = built(key, dtype, big)
    if by_index and name_of(key) in NORMALS:
        return {"y": drawn(name_of(key), tensors, settings)[1]}
    if name_of(key) not in DRAWN:
        tensors = [t.astype(np.float64) if t is not None and t.dtype.kind == "f" else t for t in tensors]
    return Call(NUMPY, name_of(key), tensors, settings).run().results


@pytest.mark.parametrize("kernels, key, dtype, big", list(calls()))
def test_a_call_keeps_every_promise(kernels: KernelSet, key: str, dtype: str, big: bool) -> None:
    """CUDA kernels on the host take a microsecond for each thread: big cases, and float64, for which the same sources
    are compiled, have their results compared and no more. `test_formulas.py` holds NumPy's results to formulas."""
    contiguous = [tensor for name, tensor in CONTIGUOUS if name == name_of(key)]
    roundings = 64 if kernels is NUMPY else LONG_SUM
    make = Calls(kernels, name_of(key), *built(key, dtype, big), contiguous, roundings)
    rows: list[tuple[str, tuple[Any, ...]]] = []
    if kernels is not NUMPY:
        rows.append(("results", (results_are_exact, make, exact_results(key, dtype, big, draws_by_index(kernels)))))
    if not kernels.name.startswith("cuda") or (dtype == "float32" and not big):
        rows += [(promise.__name__, (promise, make)) for promise in PROMISES]
    over_rows(lambda promise, *given: promise(*given), rows)


def test_every_kernel_has_a_case_and_every_case_a_kernel():
    assert {name_of(key) for key in CASES} == set(SIGNATURES)
    assert len(CASES) == len(POINTWISE) + len(SPATIAL) + len(ATTENTION) + len(SEQUENCES) + len(RECURRENT) + len(
        QUANTIZED
    ) + len(STORED)


def test_the_reference_set_is_complete():
    assert set(NUMPY.kernels) == set(SIGNATURES)


def test_every_overwritable_pair_is_tried():
    tried = set()
    for key, case in CASES.items():
        tensors, settings = case.build(np.random.default_rng(7), np.dtype("float32"), False)
        tried |= {(name_of(key), *pair) for pair in Call(NUMPY, name_of(key), tensors, settings).overwritable}
    stated = {
        (s.name, output, read) for s in SIGNATURES.values() for output, reads in s.overwrites.items() for read in reads
    }
    assert tried == stated


@pytest.mark.parametrize("name", [name for name, each in NUMPY.kernels.items() if isinstance(each, FunctionKernel)])
def test_arguments_are_those_of_the_interface(name):
    """Kernels of other sets take a call, whose operands have the interface's names."""
    kernel, signature = NUMPY.kernels[name], SIGNATURES[name]
    has_scratch, function = kernel.scratch is not None, inspect.unwrap(kernel.function)
    if isinstance(function, np.ufunc):
        assert len(signature.tensors) == function.nin + 1 and not signature.settings
        return
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return  # it takes the call, whose operands have the interface's names
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    temporaries = len(positional) - len(signature.tensors)  # of a function that does a block
    assert temporaries == 0 or (has_scratch and temporaries > 0)
    assert positional[: len(signature.tensors)] == list(signature.tensors)
    assert keywords == [*signature.settings, *(["scratch"] if has_scratch and not temporaries else [])]
    given = {p.name: p.default for p in parameters if p.default is not p.empty}
    assert given == signature.defaults, "defaults are the interface's"


def case_fits_the_interface(make: Calls) -> None:
    call = make()
    assert call.settings == call.signature.settings_of(call.settings)
    assert call.tensors.keys() - call.present.keys() <= call.signature.optional


def results_are_exact(make: Calls, exact: dict[str, np.ndarray]) -> None:
    """Nearly those of the reference in double precision."""
    for name, wanted in exact.items():
        got = make.alone.tensors[name]
        assert got is not None
        if wanted.dtype.kind == "f":
            rounding = LONG_SUM * np.finfo(got.dtype).eps * np.max(np.abs(wanted))
            np.testing.assert_allclose(got, wanted, rtol=0, atol=rounding, err_msg=name)
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=name)


def a_piece_of_a_concatenation_gives_equal_bits(make: Calls) -> None:
    """Activations whose samples lie further apart, as pieces of a larger tensor do; weights stay as they are."""
    apart = make()
    if apart.signature.name in apart.kernels.strides_matter:
        return
    for name, tensor in apart.present.items():
        if tensor.ndim >= 2 and name not in WEIGHTS:
            whole = np.full((tensor.shape[0], tensor.shape[1] + 5, *tensor.shape[2:]), 7).astype(tensor.dtype)
            apart.tensors[name] = whole[:, 2:-3]
            apart.tensors[name][...] = tensor
    apart.run()
    assert bits(apart.results) == bits(make.alone.results)


#: What holds of every call, checked by one test a call.
PROMISES = (
    case_fits_the_interface,
    scratch_rule_needs_forms_alone,
    allocates_nothing,
    overwriting_gives_equal_bits,
    tensors_may_be_strided,
    a_piece_of_a_concatenation_gives_equal_bits,
    outputs_are_written_fully_and_inputs_stay,
    what_scratch_held_does_not_matter,
)


# --- NaN, infinities, zeros and kinks of element-wise kernels

#: Part of a vector, a few vectors and a rest; and more than a core's cache holds, for a set that leaves small tensors
#: to another one, or shares large ones out among threads.
EDGE_SIZES, LARGE_EDGES = (5, 83), {"loops": (270_001,)}


def rows(kernels: KernelSet) -> Iterator[tuple[str, Edge]]:
    """The rows of the table of kernels that the set has."""
    for key, edge in EDGES.items():
        if key.split(":")[0] in kernels.kernels:
            yield key, edge


def tensors(edge: Edge, name: str, size: int, dtype: Any) -> list[np.ndarray]:
    """The row's numbers again and again, and the result if the kernel does not update its last tensor."""
    given = [np.resize(np.array(row, np.float64).astype(dtype), size) for row in edge.inputs]
    result = garbage((size,), dtype)
    if edge.of_samples:
        is_derivative = name.endswith("_derivative")
        images = range(1, 3) if is_derivative else range(2)
        given = [t if i not in images else t.reshape(size, 1) for i, t in enumerate(given)]
        result = result.reshape(size, 1) if is_derivative else result
    return [*given, result] if SIGNATURES[name].roles[-1] == "Write" else given


@pytest.mark.parametrize("kernels, key, edge", [parameter(s, *row, label=row[0]) for s in ALL for row in rows(s)])
def test_element_by_element(kernels: KernelSet, key: str, edge: Edge) -> None:
    name, served = key.split(":")[0], False
    for dtype in (np.float32,) if kernels.name == "loops" else (np.float32, np.float64):
        for size in (*EDGE_SIZES, *(LARGE_EDGES.get(kernels.name, ()) if dtype is np.float32 else ())):
            call = tensors(edge, name, size, dtype)
            own = name in kernels.kernels and kernels.kernels[name].supports(specs_of(call), edge.settings)
            with np.errstate(invalid="ignore" if name in NUMPY_WARNS else "raise"):
                run(kernels, name, call, edge.settings)
            wanted = np.resize(np.array(edge.wanted, np.float64), size)
            np.testing.assert_allclose(call[-1].reshape(-1), wanted, rtol=edge.rtol, atol=edge.atol)
            served = served or own
    assert served, "the set itself does it"
