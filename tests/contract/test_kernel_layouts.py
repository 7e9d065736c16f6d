"""Results in every layout and in further sizes, of every kernel of every set, to the roundings of one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import kernel_sizes
from every_row import over_rows
from every_set import CHAIN, ON_CPU, WITHOUT_LIBRARIES, parameter
from kernel_case import Tensors, run
from kernel_cases import CASES
from kernel_sets import leaves
from kernel_sizes import SIZES, build
from layouts import LAYOUTS, PAIRS, Layout, double, serves
from normal_numbers import NORMALS, drawn, draws_by_index
from singa_lite.kernels.composed import ComposedKernel
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY

#: Roundings (units in float32's last place) of the largest element that a result may be off by; 32 where nothing is
#: said. What only moves or chooses numbers is exact.
ROUNDINGS = {
    **dict.fromkeys(("copy", "fill", "max_pool2d", "draw_key", "dropout", "uniform", "normal", "truncated_normal"), 0),
    **dict.fromkeys(
        ("add", "subtract", "multiply", "divide", "scale", "add_bias", "squared_error", "add_scaled"),
        1,
    ),
    **dict.fromkeys(("in_top_k", "precision_at_k", "recall_at_k"), 4),
    **{name + tail: 8 for tail in ("", "_derivative") for name in ("relu", "relu6", "leaky_relu", "elu", "sigmoid")},
    **{name + tail: 8 for tail in ("", "_derivative") for name in ("tanh", "gelu", "gelu_tanh", "silu", "softplus")},
    **dict.fromkeys(("sgd", "rms_prop", "ada_grad", "adam", "lion", "clip_elements", "clip_norm"), 8),
    **dict.fromkeys(("softmax", "softmax_derivative"), 16),
    **dict.fromkeys(("conv2d", "conv2d_derivative", "conv2d_gradient"), 64),
}
#: Sets that promise less: sums of products in another order.
LESS_EXACT = {("onednn", "batch_norm_gradient"): 256, ("onednn", "layer_norm_gradient"): 128}
LESS_EXACT |= {(s, f"layer_norm_{kind}"): 64 for s in ("cuda", "gpu-own") for kind in ("derivative", "gradient")}
LESS_EXACT |= {(s, name): 32 for s in ("cuda", "gpu-own") for name in NORMALS}

#: Kernels whose numbers are those of the reference in float32 itself, bit for bit.
EQUAL = {name for name, roundings in ROUNDINGS.items() if roundings == 0}

#: Kernels whose sums go another way in another layout.
SUMS = {
    "reduce_sum",
    "bias_gradient",
    "softmax",
    "softmax_derivative",
    "softmax_cross_entropy",
    "sigmoid_cross_entropy",
}
SUMS |= {"adafactor", "add_squares", "huber", "batch_norm", "batch_norm_derivative", "batch_norm_gradient"}
SUMS |= {"layer_norm", "layer_norm_derivative", "layer_norm_gradient"}
SUMS |= {"group_norm", "group_norm_derivative", "group_norm_gradient"}

#: Kernels that treat each element by itself.
BY_ELEMENTS = {name for name, roundings in ROUNDINGS.items() if 1 <= roundings <= 8} - {"clip_norm"}

#: Tensors that the interface wants contiguous; rows of blocks are bytes of a file.
CONTIGUOUS = {("matmul", "y")} | {(name, "blocks") for name, one in SIGNATURES.items() if one.family == "quantized"}

#: Sizes in which normalizations on CUDA's stand-in take seconds: it runs the threads of a block one after the other.
SLOW = {"many channels", "long rows"}

#: Layouts of sizes that are there for their extents.
PLAIN = {label: PAIRS[label] for label in ("c order", "channels last")}


def calls() -> Iterator[Any]:
    """Every case of every set that has its kernel."""
    for key in CASES:
        for kernels in dict.fromkeys((*CHAIN, *WITHOUT_LIBRARIES)):
            if key.split(":")[0] in kernels.kernels and not leaves(kernels, key):
                yield parameter(kernels, key, label=key)


@lru_cache(maxsize=1)
def sizes(key: str, by_index: bool) -> dict[str, tuple[Tensors, dict[str, Any], Tensors]]:
    """The case in every size that it takes: tensors, which nobody writes to, settings, and what the reference makes.

    by_index: as of a set that draws normal numbers so.
    """
    found, seen = {}, set()
    for size in SIZES:
        given, settings = build(CASES[key], size)
        shapes = tuple(None if t is None else t.shape for t in given)
        if shapes not in seen:
            seen.add(shapes)
            name = key.split(":")[0]
            if by_index and name in NORMALS:
                exact = drawn(name, given, settings)
            else:
                exact = [None if t is None else t.copy() if name in EQUAL else double(t) for t in given]
                run(NUMPY, name, exact, settings)
            found[size] = given, settings, exact
    return found


def laid_out(name: str, tensors: Tensors, layouts: Sequence[Layout]) -> Tensors:
    """Copies of the tensors, those of two axes and more in one layout after the other; the last one is the outputs'."""
    laid, number = [], 0
    for label, role, tensor in zip(SIGNATURES[name].tensors, SIGNATURES[name].roles, tensors, strict=True):
        if tensor is None or tensor.ndim < 2 or (name, label) in CONTIGUOUS:
            laid.append(None if tensor is None else tensor.copy())
        elif role == "Write":
            laid.append(layouts[-1](tensor.copy()))
        else:
            laid.append(layouts[number % 2](tensor.copy()))
            number += 1
    return laid


@pytest.mark.parametrize("kernels, key", list(calls()))
def test_results_are_those_of_the_reference_in_every_layout(kernels: KernelSet, key: str) -> None:
    known = sizes(key, draws_by_index(kernels))
    wanted = known.keys() - (SLOW if kernels.name == "cuda" and "_norm" in key else set())
    over_rows(results_in_every_layout, ((size, (kernels, key, size)) for size in known if size in wanted))


def results_in_every_layout(kernels: KernelSet, key: str, size: str) -> None:
    """Of the case in this size."""
    name = key.split(":")[0]
    pairs = LAYOUTS if size in ("small", "packs") else PLAIN
    layouts = {
        pair: [(first, second, last) for last in dict.fromkeys((second, first))]
        for pair, (first, second) in pairs.items()
    }
    agree_in_layouts(kernels, name, sizes(key, draws_by_index(kernels))[size], layouts)


def agree_in_layouts(kernels: KernelSet, name: str, call: Any, layouts: Mapping[str, Sequence[Any]]) -> None:
    """Results are close to the exact ones in each layout, and equal to the bit where the set says so.

    call: (tensors, settings, exact results); layouts: {label: three layouts for `laid_out`, several times}.
    """
    given, settings, exact = call
    found: dict[str, set[bytes]] = {}
    for pair, three in ((pair, three) for pair, several in layouts.items() for three in several):
        tensors = laid_out(name, given, three)
        run(kernels, name, tensors, settings)
        for label, got, wanted in zip(SIGNATURES[name].tensors, tensors, exact, strict=True):
            if got is not None and wanted is not None:
                assert_close(kernels, name, got, wanted, f"{label}: {pair}")
                if keeps_bits(kernels, name, tensors, settings):
                    found.setdefault(label, set()).add(got.tobytes())
    assert all(len(bits) == 1 for bits in found.values()), "bits hang on the layout"


def keeps_bits(kernels: KernelSet, name: str, tensors: Tensors, settings: Any) -> bool:
    """Whether no layout may change a bit of what the set itself does: a net's images lie otherwise than a user's.

    On a GPU products are a library's, which may do them in one way in one layout and in another way in another.
    """
    if kernels.name == "onednn":
        return name in BY_ELEMENTS and name in kernels.kernels and serves(kernels, name, tensors, settings)
    multiplies = SIGNATURES[name].facts.multiplies or isinstance(kernels.kernels.get(name), ComposedKernel)
    has_products = multiplies and kernels.name.startswith(("cuda", "gpu"))
    return kernels is not NUMPY and name not in SUMS and not has_products


def assert_close(kernels: KernelSet, name: str, got: np.ndarray, wanted: np.ndarray, where: str) -> None:
    """To the roundings of the table."""
    roundings = LESS_EXACT.get((kernels.name, name), ROUNDINGS.get(name, 32))
    if got.dtype.kind != "f" or roundings == 0:
        np.testing.assert_array_equal(got, wanted, err_msg=where)
    else:
        atol = roundings * np.finfo(got.dtype).eps * np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol, err_msg=where)


def test_the_table_names_kernels():
    assert ROUNDINGS.keys() <= SIGNATURES.keys()
    assert {name for _, name in LESS_EXACT} <= SIGNATURES.keys()
    assert ON_CPU[0] is NUMPY


# --- operands that a set names as free of strides: gaps change no bit, and are left alone

#: More than what is taken at a time, with a shorter rest; rows that no pack of elements divides.
LARGE = kernel_sizes._sizes((3, 37, 3101), (2, 37, 83, 59), (5003, 67), 1)
#: Sizes of the table that differ in which code the library picks.
SOME = ("small", "packs", "one value a channel", "one channel", "many channels")


def calls_free_of_strides() -> Iterator[Any]:
    for kernels in CHAIN:
        for key in CASES:
            name = key.split(":")[0]
            if name in kernels.any_strides or (kernels.name == "loops" and name in kernels.kernels):
                yield parameter(kernels, key, label=key)


#: Tensors whose gaps are tried in all combinations: there are up to 4 forms of each.
FEW = 4


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


@pytest.mark.parametrize("kernels, key", list(calls_free_of_strides()))
def test_gaps_in_these_operands_change_no_bit(kernels: KernelSet, key: str) -> None:
    over_rows(gaps_change_no_bit, ((size, (kernels, key, size)) for size in (*SOME, "large")))


def gaps_change_no_bit(kernels: KernelSet, key: str, size: str) -> None:
    """Of the case in this size."""
    name = key.split(":")[0]
    with patch.dict(SIZES, {"large": LARGE}):
        given, settings = build(CASES[key], size)
    names = SIGNATURES[name].tensors
    stated = kernels.any_strides.get(name) or kernels.free_of_strides(name, given, settings)
    free = [i for i, t in enumerate(given) if t is not None and names[i] in stated and t.ndim > 1]
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
                assert np.all(whole == np.array(7).astype(whole.dtype)), f"{names[index]}: written between its elements"


def gapped(given: Tensors, free: list[int], size: str) -> Iterator[dict[int, tuple[int, ...]]]:
    """Gaps of these tensors: all combinations of a few small ones; of others each alone, and all alike."""
    axes = {index: given[index].ndim for index in free}  # type: ignore[union-attr]
    if size == "small" and len(free) <= FEW:
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
