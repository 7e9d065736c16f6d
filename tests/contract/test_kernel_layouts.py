"""Results in every layout and in further sizes, of every kernel of every set, to the roundings of one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from every_set import ON_CPU, WITHOUT_LIBRARIES, parameter
from kernel_case import Tensors, run
from kernel_cases import CASES
from kernel_sizes import SIZES, build
from layouts import LAYOUTS, PAIRS, Layout, double, serves
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY

#: Roundings (units in float32's last place) of the largest element that a result may be off by; 32 where nothing is
#: said. What only moves or chooses numbers is exact.
ROUNDINGS = {
    **dict.fromkeys(("copy", "fill", "max_pool2d", "draw_key", "dropout", "uniform", "normal", "truncated_normal"), 0),
    **dict.fromkeys(
        ("add", "add_activation", "subtract", "multiply", "divide", "scale", "add_bias", "squared_error", "add_scaled"),
        1,
    ),
    **dict.fromkeys(("in_top_k", "precision_at_k", "recall_at_k"), 4),
    **{name + tail: 8 for tail in ("", "_derivative") for name in ("relu", "relu6", "leaky_relu", "elu", "sigmoid")},
    **{name + tail: 8 for tail in ("", "_derivative") for name in ("tanh", "gelu", "gelu_tanh", "silu", "softplus")},
    **dict.fromkeys(("sgd", "rms_prop", "ada_grad", "adam", "ams_grad", "clip_elements", "clip_norm"), 8),
    **dict.fromkeys(("softmax", "softmax_derivative"), 16),
    **dict.fromkeys(("conv2d", "conv2d_activation", "conv2d_derivative", "conv2d_gradient"), 64),
}
#: Sets that promise less: sums of products in another order.
LESS_EXACT = {("onednn", "batch_norm_gradient"): 256, ("onednn", "layer_norm_gradient"): 128}
LESS_EXACT |= {(s, f"layer_norm_{kind}"): 64 for s in ("cuda", "gpu-own") for kind in ("derivative", "gradient")}

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
SUMS |= {"add_squares", "huber", "batch_norm", "batch_norm_derivative", "batch_norm_gradient"}
SUMS |= {"batch_norm_activation", "batch_norm_activation_derivative"}
SUMS |= {"batch_norm_add", "batch_norm_derivative_add"}
SUMS |= {"layer_norm", "layer_norm_derivative", "layer_norm_gradient"}
SUMS |= {"group_norm", "group_norm_derivative", "group_norm_gradient"}

#: Kernels that treat each element by itself.
BY_ELEMENTS = {name for name, roundings in ROUNDINGS.items() if 1 <= roundings <= 8} - {"clip_norm"}

#: Tensors that the interface wants contiguous.
CONTIGUOUS = {("matmul", "y")}

#: Layouts of sizes that are there for their extents.
PLAIN = {label: PAIRS[label] for label in ("c order", "channels last")}


def calls() -> Iterator[Any]:
    """Every case of every set that has its kernel."""
    for key in CASES:
        for kernels in (kernels for kernels in WITHOUT_LIBRARIES if key.split(":")[0] in kernels.kernels):
            yield parameter(kernels, key, label=key)


@lru_cache(maxsize=1)
def sizes(key: str) -> dict[str, tuple[Tensors, dict[str, Any], Tensors]]:
    """The case in every size that it takes: tensors, which nobody writes to, settings, and what the reference makes."""
    found, seen = {}, set()
    for size in SIZES:
        given, settings = build(CASES[key], size)
        shapes = tuple(None if t is None else t.shape for t in given)
        if shapes not in seen:
            seen.add(shapes)
            name = key.split(":")[0]
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
    over_rows(results_in_every_layout, ((size, (kernels, key, size)) for size in sizes(key)))


def results_in_every_layout(kernels: KernelSet, key: str, size: str) -> None:
    """Of the case in this size."""
    name = key.split(":")[0]
    given, settings, exact = sizes(key)[size]
    pairs = LAYOUTS if size in ("small", "packs") else PLAIN
    found: dict[str, set[bytes]] = {}
    for pair, (first, second) in pairs.items():
        for last in dict.fromkeys((second, first)):
            tensors = laid_out(name, given, (first, second, last))
            run(kernels, name, tensors, settings)
            for label, got, wanted in zip(SIGNATURES[name].tensors, tensors, exact, strict=True):
                if got is not None and wanted is not None:
                    assert_close(kernels, name, got, wanted, f"{label}: {pair}")
                    if keeps_bits(kernels, name, tensors, settings):
                        found.setdefault(label, set()).add(got.tobytes())
    assert all(len(bits) == 1 for bits in found.values()), "bits hang on the layout"


def keeps_bits(kernels: KernelSet, name: str, tensors: Tensors, settings: Any) -> bool:
    """Whether no layout may change a bit of what the set itself does: a net's images lie otherwise than a user's."""
    if kernels.name == "onednn":
        return name in BY_ELEMENTS and name in kernels.kernels and serves(kernels, name, tensors, settings)
    return kernels is not NUMPY and name not in SUMS


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
