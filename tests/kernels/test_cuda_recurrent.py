"""Recurrent layers on a GPU: NaN and infinities reach what they reach by the reference, and calls left to it."""

from __future__ import annotations

import numpy as np
import pytest

from every_row import over_rows
from kernel_case import run
from kernel_cases_recurrent import CASES
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY

#: Activations give none of the infinities.
GIVEN = {"gates_in", "weight", "bias", "hidden0", "cell0", "dy"}
ODD = (np.nan, np.inf, -np.inf)


@pytest.mark.parametrize("key", CASES)
def test_nan_and_infinities_reach_what_they_reach_by_the_reference(cuda, key):
    """Of each operand; masked steps stop them."""
    signature = SIGNATURES[key.split(":")[0]]
    tensors, _ = CASES[key].build(np.random.default_rng(7), np.dtype("d"), False)
    reads = zip(signature.tensors, signature.roles, tensors, strict=True)
    there = [name for name, role, t in reads if role == "Read" and t is not None and name != "mask"]
    odd_ones = [(name, odd) for name in there for odd in ODD[: None if name in GIVEN else 1]]
    over_rows(reach_the_same, ((f"{name} {odd}", (cuda, key, name, odd)) for name, odd in odd_ones))


def reach_the_same(cuda: KernelSet, key: str, operand: str, odd: float) -> None:
    """One such number in the middle of the operand: results are finite in the same places, and equal there."""
    kernel = key.split(":")[0]
    given, settings = CASES[key].build(np.random.default_rng(7), np.dtype("d"), False)
    poisoned = given[SIGNATURES[kernel].tensors.index(operand)]
    assert poisoned is not None
    poisoned[tuple(extent // 2 for extent in poisoned.shape)] = odd
    found = [[None if t is None else t.copy() for t in given] for _ in range(2)]
    for kernels, tensors in zip((NUMPY, cuda), found, strict=True):
        run(kernels, kernel, tensors, settings)
    for name, wanted, got in zip(SIGNATURES[kernel].tensors, *found, strict=True):
        if wanted is not None:
            are_finite = np.isfinite(wanted)
            np.testing.assert_array_equal(np.isfinite(got), are_finite, err_msg=name)
            np.testing.assert_allclose(got[are_finite], wanted[are_finite], rtol=1e-9, atol=1e-12, err_msg=name)


def test_floats_of_two_types_and_no_elements_are_left_to_the_reference(cuda):
    tensors, settings = CASES["lstm"].build(np.random.default_rng(7), np.dtype("f"), False)
    assert cuda["lstm"].supports(specs_of(tensors), settings)
    gates_in, weight, *others = tensors
    assert gates_in is not None and weight is not None
    for changed in ([gates_in, weight.astype("d"), *others], [gates_in[:, :0], weight, *others]):
        assert not cuda["lstm"].supports(specs_of(changed), settings)
