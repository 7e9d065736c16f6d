"""Kernels over bfloat16 give what those over float32 give of the same numbers, rounded; pieces, what batches give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import skips
from every_row import over_rows
from kernel_case import Tensors, garbage, run
from kernel_cases import CASES
from kernel_cases_stored import CASES as STORED
from kernel_sets import sets_of_a_chain
from singa_lite.kernels import summed, widening
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet, specs_of
from singa_lite.kernels.pieces import cut_arrays, pieces
from singa_lite.kernels.widening import WidenedKernel

ml_dtypes = skips.library("ml_dtypes")
NARROW = np.dtype(ml_dtypes.bfloat16)

KEYS = sorted(CASES)


def own(kernels: KernelSet) -> list[str]:
    """The cases of kernels that the set itself has."""
    return [key for key in KEYS if key.split(":")[0] in kernels.kernels and key not in STORED]


SETS = pytest.mark.parametrize("kernels", sets_of_a_chain(), ids=lambda kernels: kernels.name)


def built(key: str, dtype: str = "float32") -> tuple[str, Tensors, dict[str, Any]]:
    """(kernel, tensors, settings) of a small case, its numbers such as bfloat16 has."""
    tensors, settings = CASES[key].build(np.random.default_rng(11), np.dtype(dtype), False)
    rounded = [t.astype(NARROW).astype(t.dtype) if t is not None and t.dtype.kind == "f" else t for t in tensors]
    return key.split(":")[0], rounded, settings


def cut(key: str) -> list[slice]:
    """Of a case, samples one by one; [] where it is to be done as a whole."""
    name, tensors, _ = built(key)
    return pieces(name, specs_of(tensors), 1)


def narrow(tensors: Tensors) -> Tensors:
    """The same, float32 ones in bfloat16."""
    return [t.astype(NARROW) if t is not None and t.dtype == np.float32 else t for t in tensors]


def widened(kernels: KernelSet, name: str, tensors: Tensors, settings: Mapping[str, Any]) -> Tensors:
    """The tensors behind a call by the kernel in float32, over converted copies."""
    after = [None if t is None else t.copy(order="K") for t in tensors]
    kernel = WidenedKernel(name, kernels)
    scratch = np.full(kernel.scratch_bytes(specs_of(after), settings) + 64, 0xFF, np.uint8)
    kernel.prepare(tuple(after), scratch[:-64], settings)()
    assert np.all(scratch[-64:] == 0xFF)
    return after


@SETS
def test_a_call_in_bfloat16_is_the_one_in_float32_rounded(kernels):
    over_rows(is_the_one_in_float32_rounded, ((key, (key, kernels)) for key in own(kernels)))


def is_the_one_in_float32_rounded(key: str, kernels: KernelSet) -> None:
    """Of one case."""
    name, tensors, settings = built(key)
    given = narrow(tensors)
    wanted = [None if t is None else t.copy() for t in tensors]
    run(kernels, name, wanted, settings)
    given = widened(kernels, name, given, settings)
    for role, got, right in zip(SIGNATURES[name].roles, given, wanted, strict=True):
        if got is not None and right is not None and role != "Read":
            np.testing.assert_array_equal(got, right.astype(got.dtype))


@SETS
def test_samples_by_themselves_give_what_the_batch_gives(kernels):
    over_rows(gives_what_the_batch_gives, ((key, (key, kernels)) for key in filter(cut, own(kernels))))


def gives_what_the_batch_gives(key: str, kernels: KernelSet) -> None:
    """Of one sample at a time; to the roundings of long sums, which a library may take in another order."""
    name, tensors, settings = built(key)
    wanted = [None if t is None else t.copy() for t in tensors]
    run(kernels, name, wanted, settings)
    for piece in cut(key):
        run(kernels, name, cut_arrays(name, tuple(tensors), piece), settings)
    for got, right in zip(tensors, wanted, strict=True):
        if got is not None:
            np.testing.assert_allclose(got, right, rtol=2e-6, atol=2e-6 * max(1.0, float(np.abs(right).max(initial=0))))


@SETS
@pytest.mark.parametrize("key", [key for key in KEYS if SIGNATURES[key.split(":")[0]].facts.sums_over])
def test_sums_over_samples_are_those_of_their_pieces(key, kernels, monkeypatch):
    """Of one sample at a time, whose sums are added in float32; also where the library would take them as they are."""
    monkeypatch.setattr(type(kernels), "takes_narrow", lambda *_: False)
    monkeypatch.setattr(summed, "SUMMED_BYTES", 1)
    monkeypatch.setattr(summed, "_TIMES_SUMS", 0)
    name, tensors, settings = built(key)
    given, wanted = narrow(tensors), [None if t is None else t.copy() for t in tensors]
    at = SIGNATURES[name].roles.index("Write")
    given[at] = tensors[at]
    run(kernels, name, wanted, settings)
    run(kernels, name, given, settings)
    np.testing.assert_allclose(given[at], wanted[at], rtol=2e-6, atol=2e-6 * np.abs(wanted[at]).max())
    of_pieces = kernels.scratch_bytes(name, tuple(given), settings)
    monkeypatch.setattr(summed, "SUMMED_BYTES", 2**30)
    assert of_pieces < kernels.scratch_bytes(name, tuple(given), settings), "a piece takes less"


@SETS
@pytest.mark.parametrize("key", [key for key in KEYS if key.split(":")[0] == "batch_norm_derivative"])
@pytest.mark.parametrize("half", [NARROW, np.dtype(np.float16)], ids=str)
def test_derivatives_of_normalisations_take_vectors_in_float32(key, half, kernels):
    """To a rounding of dx, which float32's own rounding may turn the other way."""
    name, tensors, settings = built(key)
    wanted = [None if t is None else t.copy() for t in tensors]
    given = [t.astype(half) if t is not None and t.ndim > 1 else t for t in tensors]
    run(kernels, name, wanted, settings)
    run(kernels, name, given, settings)
    for got, right, tensor in zip(given, wanted, SIGNATURES[name].tensors, strict=True):
        if tensor in ("dgamma", "dbeta"):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5 * np.abs(right).max())
        if tensor == "dx":
            np.testing.assert_allclose(got.astype(np.float32), right, rtol=2**-7, atol=1e-4 * np.abs(right).max())


@SETS
@pytest.mark.parametrize("piece_bytes", [1, 400, 2**30])
def test_normalized_again_in_pieces_are_the_same_bits(kernels, piece_bytes, monkeypatch):
    """A repeat gives what the batch norm gave as a whole, whatever pieces it is done in."""
    monkeypatch.setattr(widening, "PIECE_BYTES", piece_bytes)
    rng = np.random.default_rng(5)
    x = rng.normal(2.0, 3.0, (5, 7, 3, 4)).astype(np.float32).astype(NARROW).transpose(0, 3, 1, 2)
    c = x.shape[1]
    gamma, beta = rng.normal(size=(2, c)).astype(np.float32)
    running, y = [np.zeros(c, np.float32), np.ones(c, np.float32)], garbage((5, 7, 3, 4), NARROW).transpose(0, 3, 1, 2)
    mean, inv_std, again = garbage((c,), np.float32), garbage((c,), np.float32), y.copy(order="K")
    settings = {"momentum": 0.1, "epsilon": 1e-5}
    run(kernels, "batch_norm", (x, gamma, beta, *running, None, y, mean, inv_std), settings)
    run(kernels, "batch_normalize", (x, gamma, beta, mean, inv_std, None, again), {})
    assert y.tobytes("A") == again.tobytes("A") and not np.isnan(y.astype(np.float32)).any()


#: Bits of float32: ties to either side and their neighbours, infinities, NaN of several payloads and signs, zeros, and
#: what is too large.
EDGES = """
3f808000 3f818000 3f807fff 3f808001 bf808000 bf818000 7f800000 ff800000 7f800001 7fbfffff 7fc00000 7fffffff ff800001
ffffffff 00000000 80000000 7f7fffff ff7fffff 7f7f7fff 7f7f8000
"""


@SETS
@pytest.mark.parametrize("gap", [0, 3])
def test_every_bfloat16_comes_back_and_edges_are_rounded_as_ml_dtypes_does(kernels, gap):
    narrow = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256).view(NARROW)
    narrow = np.pad(narrow, [(0, 0), (0, gap)])[:, :256]
    wide, back = np.empty(narrow.shape, np.float32), np.empty_like(narrow)
    with np.errstate(invalid="ignore"):  # of NaN that signal
        kernels.converted(narrow, wide)()
        kernels.converted(wide, back)()
        np.testing.assert_array_equal(wide, narrow.astype(np.float32))
    is_exact = ~np.isnan(wide) & ~((wide != 0) & (np.abs(wide) < np.finfo(np.float32).tiny))
    assert np.isnan(back[np.isnan(wide)].astype(np.float32)).all()
    np.testing.assert_array_equal(back.view(np.uint16)[is_exact], narrow.view(np.uint16)[is_exact])
    edges = np.array([int(word, 16) for word in EDGES.split()], np.uint32).view(np.float32)
    got = np.empty(edges.shape, NARROW)
    with np.errstate(invalid="ignore"):
        kernels.converted(edges, got)()
        np.testing.assert_array_equal(got.astype(np.float32), edges.astype(NARROW).astype(np.float32))
