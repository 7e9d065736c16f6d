"""CUDA kernels over activations in 16 bits beside parameters, gradients and statistics in float32: sums are whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from host_loader import missing_to_run
from kernel_case import Tensors, garbage, run
from kernel_cases import CASES
from kernel_sets import cuda_sets
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.passes.narrow import ACTIVATIONS

HALF = np.dtype(np.float16)
#: Of the results: those in float32 are off by the order of their sums, those in 16 bits by one rounding besides.
SUMS, ROUNDING = 2e-5, 2.0**-11
#: What a net in 16 bits is made of, beside what works on activations alone.
KERNELS = (
    *("linear", "linear_activation", "linear_gradient", "matmul", "add_bias", "bias_gradient"),
    *("conv2d", "conv2d_activation", "conv2d_derivative", "conv2d_gradient", "lrn", "lrn_derivative"),
    *("batch_norm", "batch_normalize", "batch_norm_inference", "batch_norm_derivative", "batch_norm_gradient"),
    *("layer_norm", "layer_norm_derivative", "layer_norm_gradient", "l2_norm", "l2_norm_derivative"),
)
KEYS = sorted(key for key in CASES if key.split(":")[0] in KERNELS)


def built(key: str) -> tuple[str, Tensors, dict[str, Any]]:
    """(kernel, tensors, settings) of a small case, its numbers such as float16 has."""
    tensors, settings = CASES[key].build(np.random.default_rng(11), np.dtype(np.float32), False)
    return key.split(":")[0], [_rounded(t) for t in tensors], settings


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


@pytest.mark.parametrize("key", KEYS)
def test_results_are_those_of_float32_and_only_what_is_in_16_bits_is_rounded(cuda, key):
    for tensor, (got, right) in off(key, cuda).items():
        share, atol = ROUNDING if got.dtype == HALF else 0.0, SUMS * float(np.abs(right).max()) + 2e-7
        np.testing.assert_allclose(got.astype(np.float64), right, rtol=share + SUMS, atol=atol, err_msg=tensor)


@pytest.mark.skipif(bool(missing_to_run()), reason=f"the CUDA kernels on the host want {missing_to_run()}")
@pytest.mark.parametrize("key", [key for key in KEYS if SIGNATURES[key.split(":")[0]].facts.multiplies])
def test_libraries_do_products_over_copies_in_16_bits(key):
    """A gradient that the library has in the dtype of its factors alone is rounded once, when it is stored."""
    (kernels,) = [kernels for kernels in cuda_sets() if kernels.name == "cuda-libraries"]
    for tensor, (got, right) in off(key, kernels).items():
        assert np.linalg.norm(got.astype(np.float64) - right) / np.linalg.norm(right) < 1e-3, tensor


def steps_of(cuda: KernelSet, name: str, tensors: Tensors, settings: dict[str, Any]) -> list[Any]:
    """What the kernel's routine has for steps."""
    return [step.kernel for step in cuda[name].build(*specs_of(tensors), **settings).steps]  # type: ignore[attr-defined]


def test_what_has_a_form_of_its_own_is_not_copied(cuda):
    """Products with results in float32, and normalisations; a weight in float32 is copied before, and nothing else."""
    x, y = garbage((7, 5), HALF), garbage((7, 3), HALF)
    weight, gradient = garbage((5, 3), "f4"), garbage((5, 3), "f4")
    plain = {"transpose_a": True, "transpose_b": False}
    assert steps_of(cuda, "matmul", [x, y, gradient], plain) == ["matrix_product"]
    assert steps_of(cuda, "linear", [x, weight, None, y], {}) == ["copy", "matrix_product"]
    assert steps_of(cuda, "linear", [x, weight, None, y.astype("f4")], {}) == ["copy", "matrix_product"]


def test_two_dtypes_of_16_bits_do_not_mix(cuda):
    other = skips.library("ml_dtypes").bfloat16
    specs = specs_of([garbage((7, 5), HALF), garbage((7, 5), other)])
    assert not cuda["relu"].serves(specs, {})


def test_a_gradient_of_halves_is_summed_and_stored_in_float32(cuda):
    """Of as many rows that a sum in float16 would stand still at 2048."""
    x, dy, gradient = np.ones((4099, 3), HALF), np.ones((4099, 5), HALF), garbage((3, 5), np.float32)
    run(cuda, "matmul", [x, dy, gradient], {"transpose_a": True, "transpose_b": False})
    assert (gradient == 4099).all()
