"""Whatever NVIDIA's libraries refuse, results stay right, and each of the ways around a refusal has been gone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import host_loader
import refusals
from host_lt import LibraryOnHost
from kernel_case import garbage, run
from kernel_cases import CASES
from late_gpu import missing_libraries
from singa_lite.kernels.cuda_kernels.cublaslt_header import PreferenceAttribute
from singa_lite.kernels.cuda_kernels.lt import ALIGNMENT
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY

MISSING = host_loader.missing_to_run() or missing_libraries()
MISSING = MISSING or ("" if find_spec("ml_dtypes") else "bfloat16, pip install ml-dtypes")
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the libraries' kernels want {MISSING}")

NAMES = ("linear", "linear_activation", "matmul", "matmul_add", "linear_gradient")
CONVOLUTIONS = ("conv2d", "conv2d_activation", "conv2d_derivative", "conv2d_gradient")

WHO = ("ours", "the library")
#: What results may be off by, as a share of the largest: many roundings of sums; of halves the result's own one.
ROUNDINGS = {"float32": 2.0**-16, "float64": 2.0**-45, "float16": 2.0**-10, "bfloat16": 2.0**-7}
DTYPES = tuple(ROUNDINGS)

#: What must have happened.
EVERY_WAY = {
    *(f"{what}: {who}" for what in (*NAMES, *CONVOLUTIONS, *DTYPES) for who in WHO),
    *(f"{name}: ReLU of ours behind the library" for name in ("linear_activation", "conv2d_activation")),
    "a status: not supported",
    "a list of no algorithms",
    "no algorithm within a short workspace",
    "the generic engine, as no other does with a short workspace",
    "an engine by the scratch that it is given",
    "another algorithm for operands that are aligned less",
    "a graph without a plan",
    "the next engine where one breaks",
    "another plan for tensors that are aligned less",
    "a warning where no engine is left",
}
NO_ENGINE = "no engine could be used, and not all declined"


def calls() -> list[tuple[str, list[Any], dict[str, Any]]]:
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
    yield "conv2d_activation", [x, weight, bias, y], {**settings, "activation": "relu"}
    yield "conv2d", [x, weight, bias, y], settings
    yield "conv2d_derivative", [dy, weight, garbage(x.shape, np.float32)], settings
    yield "conv2d_gradient", [x, dy, garbage(weight.shape, np.float32)], settings


def exact(name: str, tensors: list[Any], settings: dict[str, Any]) -> list[Any]:
    """The reference's results in float64."""
    given = [None if t is None else t.astype(np.float64) if t.dtype.name in DTYPES else t.copy() for t in tensors]
    run(NUMPY, name, given, settings)
    return given


def check(kernels: Any, name: str, tensors: list[Any], settings: dict[str, Any], wanted: list[Any], shift: int) -> int:
    """The call's results, over tensors that begin so many elements behind a whole vector, with each scratch that it can
    be done with; how many these are, 0 where there is no choice.
    """
    levels = kernels.scratch_levels(name, tuple(tensors), settings)
    for level in {levels[0], levels[-1]} if levels else (None,):
        arrays = tuple(refusals.placed(tensor, shift) for tensor in tensors)
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
    return len(levels)


def ways(seed: int, given: list[Any]) -> set[str]:
    """What happened while these calls were done, whose results are right."""
    kernels, noted = refusals.refusing(seed)
    with refusals.broken_engines(noted), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for name, tensors, settings, wanted in given:
            refusals.note_what_serves(kernels, name, tensors, settings, noted)
            for shift in (0, 1):
                if check(kernels, name, tensors, settings, wanted, shift) > 1:
                    noted.ran.add("an engine by the scratch that it is given")
    assert [one for one in warned if NO_ENGINE not in str(one.message)] == []
    return noted.ran | ({"a warning where no engine is left"} if warned else set())


def test_results_are_right_whatever_is_refused():
    given = [(*call, exact(*call)) for call in calls()[::3]]
    assert len(ways(0, given) | ways(1, given)) > len(EVERY_WAY) / 2


@pytest.mark.nightly
def test_results_are_right_and_every_way_around_a_refusal_is_gone():
    given = [(*call, exact(*call)) for call in calls()]
    assert EVERY_WAY - set[str]().union(*(ways(seed, given) for seed in range(6))) == set(), "never happened"


class OnlyWhole(refusals.RefusingLibrary):
    """Has algorithms for operands of whole tensors alone."""

    def on_host_MatmulAlgoGetHeuristic(self, handle: Any, described: Any, *rest: Any) -> None:
        wish, count = rest[4], rest[7]
        if min(wish.get(one) for one in PreferenceAttribute if "ALIGNMENT" in one.name) < ALIGNMENT:
            count._obj.value = 0
            return
        LibraryOnHost.on_host_MatmulAlgoGetHeuristic(self, handle, described, *rest)


def test_operands_that_the_library_has_nothing_for_once_they_have_addresses_are_named(monkeypatch):
    monkeypatch.setattr(refusals, "RefusingLibrary", OnlyWhole)
    kernels, _ = refusals.refusing(0)
    name, tensors, settings = next(call for call in calls() if call[0] == "matmul")
    wanted = exact(name, tensors, settings)
    check(kernels, name, tensors, settings, wanted, 0)
    arrays = [refusals.placed(tensor, 1) for tensor in tensors]
    with pytest.raises(LookupError, match=r"\(4, 4, 4, 0\)"):
        run(kernels, name, arrays, settings)
    assert np.array_equal(arrays[2], tensors[2], equal_nan=True)
