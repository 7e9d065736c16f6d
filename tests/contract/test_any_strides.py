"""Operands that a set names as free of strides: with gaps they give the same bits, and the gaps are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import kernel_sizes
from every_row import over_rows
from every_set import ON_CPU, parameter
from kernel_case import Tensors, run
from kernel_cases import CASES
from kernel_sizes import SIZES, build
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet

CHANNELS_LAST = (0, 2, 3, 1)
#: More than what is taken at a time, with a shorter rest; rows that no pack of elements divides.
LARGE = kernel_sizes._sizes((3, 37, 3101), (2, 37, 83, 59), (5003, 67), 1)
#: Sizes of the table that differ in which code the library picks.
SOME = ("small", "packs", "one value a channel", "one channel", "many channels")


def calls() -> Iterator[Any]:
    for kernels in ON_CPU:
        for key in (key for key in CASES if key.split(":")[0] in kernels.any_strides):
            yield parameter(kernels, key, label=key)


def orders(ndim: int) -> list[tuple[int, ...]]:
    """In C order, and with axis 1 innermost."""
    return [tuple(range(ndim)), (0, *range(2, ndim), 1)]


def laid(tensor: np.ndarray, order: tuple[int, ...], gaps: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The values, the axes in this order in memory, within a larger tensor; and that one, 7 where they are not.

    gaps: how much larger it is along each axis.
    """
    shape = [extent + gap for extent, gap in zip(tensor.shape, gaps, strict=True)]
    whole = np.full([shape[axis] for axis in order], 7).astype(tensor.dtype).transpose(np.argsort(order))
    inside = [slice(gap // 2, gap // 2 + extent) for extent, gap in zip(tensor.shape, gaps, strict=True)]
    piece = whole[(..., *inside)]
    piece[...] = tensor
    return piece, whole


def forms(ndim: int) -> list[tuple[int, ...]]:
    """Gaps behind all of a sample's channels, behind its samples, and along the last axis."""
    return [tuple(5 * (axis == wide) for axis in range(ndim)) for wide in sorted({0, 1, ndim - 1})]


@pytest.mark.parametrize("kernels, key", list(calls()))
def test_gaps_in_these_operands_change_no_bit(kernels: KernelSet, key: str) -> None:
    over_rows(gaps_change_no_bit, ((size, (kernels, key, size)) for size in (*SOME, "large")))


def gaps_change_no_bit(kernels: KernelSet, key: str, size: str) -> None:
    """Of the case in this size."""
    name = key.split(":")[0]
    with patch.dict(SIZES, {"large": LARGE}):
        given, settings = build(CASES[key], size)
    names = SIGNATURES[name].tensors
    free = [i for i, t in enumerate(given) if t is not None and names[i] in kernels.any_strides[name] and t.ndim > 1]
    for last in (False, True):
        plain = [t if t is None else laid(t, orders(t.ndim)[last and t.ndim > 1], (0,) * t.ndim)[0] for t in given]
        wanted = results(kernels, name, plain, settings)
        for chosen in gapped(given, free, size):
            tensors, wholes = [None if t is None else t.copy("K") for t in plain], {}
            for index, gaps in chosen.items():
                tensor = given[index]
                assert tensor is not None
                tensors[index], wholes[index] = laid(tensor, orders(tensor.ndim)[last], gaps)
            assert results(kernels, name, tensors, settings, keep=True) == wanted, (last, chosen)
            for index, whole in wholes.items():
                inside = tensors[index]
                assert inside is not None
                inside.fill(7)
                assert np.all(whole == 7), f"{names[index]}: written between its elements"


def gapped(given: Tensors, free: list[int], size: str) -> Iterator[dict[int, tuple[int, ...]]]:
    """Gaps of these tensors: all combinations in small ones; in others each alone, and all alike."""
    axes = {index: given[index].ndim for index in free}  # type: ignore[union-attr]
    if size == "small":
        for chosen in product(*([None, *forms(axes[index])] for index in free)):
            yield {index: gaps for index, gaps in zip(free, chosen, strict=True) if gaps is not None}
        return
    yield from ({index: forms(axes[index])[1]} for index in free)
    yield {index: forms(axes[index])[1] for index in free}
    yield {index: forms(axes[index])[0] for index in free}


def results(kernels: KernelSet, name: str, tensors: Tensors, settings: Any, keep: bool = False) -> list[bytes | None]:
    """The bytes of all tensors after the call, in C order of their indices. keep: in these tensors themselves."""
    own = tensors if keep else [None if t is None else t.copy("K") for t in tensors]
    run(kernels, name, own, settings)
    return [None if t is None else np.ascontiguousarray(t).tobytes() for t in own]


def test_the_sets_name_kernels_and_tensors_of_theirs():
    for kernels in ON_CPU:
        for name, tensors in kernels.any_strides.items():
            assert name in kernels.kernels
            assert tensors <= set(SIGNATURES[name].tensors)
    assert any(kernels.any_strides for kernels in ON_CPU) == any(kernels.name == "onednn" for kernels in ON_CPU)


def test_what_the_set_below_serves_is_free_where_it_says_so():
    """Small sums are left to NumPy's kernels, which add as the library does; its convolutions sum by strides."""
    for kernels in (kernels for kernels in ON_CPU if kernels.name == "onednn"):
        small = [np.zeros((2, 3), np.float32)] * 3
        assert set(kernels.free_of_strides("add", small, {})) == {"a", "b", "y"}
        images, settings = CASES["conv2d"].build(np.random.default_rng(7), np.dtype("f8"), False)
        assert not kernels.free_of_strides("conv2d", images, settings)
