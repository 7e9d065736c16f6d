"""Kernels of a library that take bfloat16 as it is: what the reference gives in float64 of the same numbers, rounded.

They run where the processor has instructions for it. All numbers are such as bfloat16 has, so products are exact, sums
are those of float32, and only what is stored in bfloat16 is rounded once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

import skips
from kernel_case import Tensors, run
from kernel_cases import CASES
from layouts import LAYOUTS, Layout, at_an_odd_place, channels_last, double
from singa_lite.compiler.rewrite.narrow import ACTIVATIONS
from singa_lite.kernels.choice import find_onednn
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet, specs_of
from singa_lite.kernels.loop_kernels import loops
from singa_lite.kernels.numpy_kernels import NUMPY
from test_widening import widened

ml_dtypes = skips.library("ml_dtypes")
NARROW = np.dtype(ml_dtypes.bfloat16)

#: Kernels that are wanted where the processor has such instructions.
WANTED = {
    *("conv2d", "conv2d_derivative", "conv2d_gradient", "linear", "matmul"),
    *("bias_gradient", "reduce_sum"),
    *("batch_norm", "batch_normalize", "batch_norm_inference", "batch_norm_derivative", "batch_norm_gradient"),
    *("max_pool2d", "avg_pool2d", "relu", "relu_derivative", "relu6", "sigmoid", "tanh", "silu", "gelu"),
    *("add", "multiply", "copy"),
}
#: Of these the bits are those of float32, rounded.
EQUAL = "batch_normalize", "max_pool2d", "relu", "copy", "add", "multiply"
#: Those that multiply on with a product that was rounded: {kernel: {output: the sum of the absolute values of what its
#: rounding is in}}.
IN_TWO: dict[str, Callable[..., dict[str, Any]]] = {
    "low_rank_add": lambda x, a, b, h, y: {"y": abs(h) @ abs(b)},
    "low_rank_add_derivative": lambda dy, x, a, b, h, dh, *_: {"da": abs(x.T) @ abs(dh), "dx": abs(dh) @ abs(a.T)},
}
#: Kernels over images, whose layouts the library goes by.
OVER_IMAGES = "batch_norm", "conv2d", "max_pool2d", "avg_pool2d"
NAMES = list(dict.fromkeys(key.split(":")[0] for key in CASES))


def wanted_processor() -> None:
    """Skip where the library or the processor's products in bfloat16 are missing."""
    found = find_onednn()
    if isinstance(found, str):
        pytest.skip(f"{found}; pip install onednn-cpu-gomp")
    from singa_lite.kernels.onednn_kernels import bfloat16

    if not bfloat16.multiplies():
        pytest.skip("this system's processor has no products in bfloat16, as AVX512-BF16 and AMX have")


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> KernelSet:
    """A set of its own that asks the library for every call, however small, and takes whatever code it has."""
    wanted_processor()
    from singa_lite.kernels.onednn_kernels import linear, onednn
    from singa_lite.kernels.onednn_kernels.library.primitive import Primitive

    monkeypatch.setattr(linear, "_REUSE", 1)
    monkeypatch.setattr(Primitive, "implementation", property(lambda _: "jit:avx512"))
    return onednn.__wrapped__(loops(NUMPY))


@cache
def built(key: str) -> tuple[str, Tensors, Mapping[str, Any]]:
    """(kernel, tensors, settings) of a small case: activations in bfloat16, all numbers such as that has."""
    name = key.split(":")[0]
    tensors, settings = CASES[key].build(np.random.default_rng(11), np.dtype("float32"), False)

    def stored(label: str, tensor: Any) -> Any:
        if tensor is None or tensor.dtype != np.float32:
            return tensor
        rounded = tensor.astype(NARROW)
        return rounded if label in ACTIVATIONS else rounded.astype(np.float32)

    return name, [stored(*each) for each in zip(SIGNATURES[name].tensors, tensors, strict=True)], settings


def calls(name: str, kernels: KernelSet) -> Iterator[tuple[Tensors, Mapping[str, Any]]]:
    """The cases of a kernel that the library takes with bfloat16 in them; the others are in test_widening.py."""
    for key in CASES:
        own, tensors, settings = built(key)
        narrow = own == name and any(t is not None and t.dtype == NARROW for t in tensors)
        if narrow and kernels.takes_narrow(name, specs_of(tensors), settings):
            yield tensors, settings


def copies(tensors: Tensors) -> Tensors:
    return [None if t is None else t.copy(order="K") for t in tensors]


def assert_near(name: str, tensors: Tensors, exact: Tensors) -> None:
    """What is stored in bfloat16 is off by a rounding of its own, and all by those of float32's sums."""
    rounded = IN_TWO[name](*exact) if name in IN_TWO else {}
    for label, one, right in zip(SIGNATURES[name].tensors, tensors, exact, strict=True):
        if one is None or right is None:
            continue
        if right.dtype.kind != "f":
            np.testing.assert_array_equal(one, right, err_msg=label)
            continue
        share = 2.0**-8 if one.dtype == NARROW else 0.0
        largest = np.max(np.abs(right), where=np.isfinite(right), initial=0)
        got = double(one.astype(np.float32))
        if label in rounded:
            np.testing.assert_array_less(
                np.abs(got - right), share * np.abs(right) + 2e-5 * largest + 2.0**-9 * rounded[label], err_msg=label
            )
        else:
            np.testing.assert_allclose(got, right, rtol=share, atol=2e-5 * largest, err_msg=label)


def exact_of(name: str, tensors: Tensors, settings: Mapping[str, Any]) -> Tensors:
    exact = [None if t is None else double(t.astype(np.float32) if t.dtype == NARROW else t) for t in tensors]
    run(NUMPY, name, exact, settings)
    return exact


def test_the_library_serves_what_nets_use(native):
    assert {name for name in NAMES if any(calls(name, native))} >= WANTED


@pytest.mark.parametrize("name", NAMES)
def test_near_the_reference(name, native):
    for tensors, settings in calls(name, native):
        got = copies(tensors)
        run(native, name, got, settings)
        assert_near(name, got, exact_of(name, tensors, settings))
        if name.startswith(EQUAL):
            for one, right in zip(got, widened(native, name, tensors, settings), strict=True):
                np.testing.assert_array_equal(one, right)


@pytest.mark.parametrize("pair", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_change_sums_only(pair: tuple[Layout, Layout], native):
    """x and what is like it lie one way, y and what is like it another."""
    first, second = pair
    for name in (name for name in NAMES if name.startswith(OVER_IMAGES)):
        for tensors, settings in calls(name, native):
            laid = [
                t if t is None or t.ndim < 4 or label.endswith("weight") else (second if "y" in label else first)(t)
                for label, t in zip(SIGNATURES[name].tensors, tensors, strict=True)
            ]
            exact = exact_of(name, laid, settings)
            run(native, name, laid, settings)
            assert_near(name, laid, exact)


@pytest.mark.parametrize("key", ["relu", "max_pool2d", "batch_norm:relu", "conv2d:relu"])
def test_nan_and_infinity_are_kept(key, native):
    """Of minus infinity an activation within a convolution may make NaN."""
    name, tensors, settings = built(key)
    x = tensors[0].astype(np.float32)
    x.flat[0], x.flat[-1] = np.nan, x.flat[-1] if name == "conv2d" else np.inf
    given = [x.astype(NARROW), *tensors[1:]]
    got = copies(given)
    with np.errstate(invalid="ignore"):
        run(native, name, got, settings)
        right = exact_of(name, given, settings)
    at = SIGNATURES[name].tensors.index("y")
    for holds in (np.isnan, np.isposinf):
        np.testing.assert_array_equal(holds(got[at].astype(np.float32)), holds(right[at]))


# --- batch normalisation, which the loops do on every processor

MOMENTS = {"momentum": 0.1, "epsilon": 1e-5}
#: The kernel, its optional operands that are left out, its settings.
CALLS = [
    ("batch_norm", "other", MOMENTS),
    ("batch_norm", "other", {**MOMENTS, "activation": "relu6"}),
    ("batch_norm", "", {**MOMENTS, "activation": "relu"}),
    ("batch_norm_derivative", "beta other", {}),
    ("batch_norm_derivative", "beta", {}),
    ("batch_norm_derivative", "other", {"activation": "relu"}),
    ("batch_norm_gradient", "", {}),
]
#: (n, c, h, w): rows that are taken together, or one by one; more channels than are read at a time; several pieces.
NORM_SHAPES = [(3, 16, 14, 10), (2, 24, 9, 8), (5, 48, 7, 3), (2, 2100, 3, 1), (8, 64, 33, 20)]


LIES = {"c": np.ascontiguousarray, "last": channels_last, "within": at_an_odd_place}


@pytest.fixture(scope="module")
def looping() -> KernelSet:
    """The loops, where they were compiled."""
    found = loops(NUMPY)
    if found is NUMPY:
        pytest.skip("the loops were not compiled")
    return found


@pytest.mark.parametrize("shape", NORM_SHAPES, ids=str)
@pytest.mark.parametrize("name, lacking, settings", CALLS)
@pytest.mark.parametrize("x_lies, dy_lies", [("last", "last"), ("last", "c"), ("within", "last"), ("last", "within")])
def test_normalizations_give_what_float64_gives(name, lacking, settings, shape, x_lies, dy_lies, looping):
    random = np.random.default_rng(5)
    given = dict[str, Any]()
    for label in SIGNATURES[name].tensors:
        if label in lacking.split():
            given[label] = None
        elif label in ("x", "dy", "y", "dx", "other"):
            values = random.normal(3.0 if label == "x" else 0.1, 1.5, shape).astype(NARROW)
            given[label] = LIES[dy_lies if label in ("dy", "other") else x_lies](values)
        else:
            given[label] = random.uniform(0.5, 1.5, shape[1]).astype(np.float32)
    exact = {label: None if values is None else values.astype(np.float64) for label, values in given.items()}
    for of, tensors in ((looping, given), (NUMPY, exact)):
        specs = specs_of(tensors.values())
        scratch = np.full(of.scratch_bytes(name, specs, settings), 255, np.uint8)
        of.prepare(name, tuple(tensors.values()), scratch, settings)()
    assert looping.takes_narrow(name, specs_of(given.values()), settings)
    for label, role in zip(given, SIGNATURES[name].roles, strict=True):
        if role == "Read":
            continue
        wanted, got = exact[label], given[label].astype(np.float64)
        rtol = 2.0**-8 if given[label].dtype == NARROW else 2e-6
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max(), err_msg=label)
