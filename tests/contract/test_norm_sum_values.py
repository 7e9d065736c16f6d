"""A normalization with the sum behind it, and its derivative with one: the bits of the kernels apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import WITHOUT_LIBRARIES, parameter
from kernel_case import run
from layouts import channels_last
from singa_lite.kernels.kernel_set import KernelSet
from test_normalization_values import FORWARD, FUSING, LAYOUTS, around_kinks, assert_bits, empty, exact, normal, vectors

Array = np.ndarray


def fusing(kernel: str) -> Any:
    """Each set that does it, with each activation that it takes."""
    rows = [(kernels, a) for kernels in WITHOUT_LIBRARIES for name, a in sorted(kernels.fusions) if name == kernel]
    assert {kernels.name for kernels, _ in rows} >= {"numpy"}
    return pytest.mark.parametrize("kernels, activation", [parameter(k, a, label=a or "sum") for k, a in rows])


def activated(kernels: KernelSet, activation: str, y: Array) -> Array:
    return exact(kernels, activation, [y, np.empty_like(y)])[1] if activation else y


#: Of several pieces with a shorter last one; of one; of a single value a channel.
SHAPES = [(3, 16, 5, 7), (5, 24, 131, 97), (1, 2, 1, 1), (3, 1, 7, 5)]


@fusing("batch_norm_add")
@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("over", ["apart", "x", "other"])
def test_a_normalization_with_its_sum_gives_the_bits_of_the_kernels(kernels, activation, shape, lay, over):
    """y is written over x or over the other tensor, as a plan may have it."""
    x, other, given = around_kinks(shape, lay)
    x[0, 0, 0, 0], other[-1, -1, -1, -1] = np.nan, np.nan
    c, (gamma, beta, *_) = shape[1], given
    results = exact(kernels, "batch_norm", [x, *given, np.empty_like(x), empty(c), empty(c)], **FORWARD)[3:]
    z, mean, inv_std = results[2:]
    y = activated(kernels, activation, exact(kernels, "add", [z, other, np.empty_like(x)])[2])
    wanted = [*results[:2], y, mean, inv_std]
    for name, known in (("batch_norm_add", given), ("batch_normalize_add", [gamma, beta, mean, inv_std])):
        tensors = [np.copy(t, order="K") for t in (x, *known, other)]
        target = {"apart": np.empty_like(x), "x": tensors[0], "other": tensors[-1]}[over]
        found = [empty(c), empty(c)] if name == "batch_norm_add" else []
        settings = {"activation": activation} | (FORWARD if found else {})
        with np.errstate(invalid="ignore"):
            run(kernels, name, [*tensors, target, *found], settings)
        got = [*tensors[3:5], target, *found] if found else [target]
        assert_bits(got, wanted if found else [y])
    assert np.isnan(y[:, 0]).all()


def test_statistics_of_a_large_mean_are_those_of_the_normalization():
    """Sums are then of shifted x."""
    x, other, given = around_kinks((3, 8, 9, 7), channels_last)
    x += np.float32(1e4)
    for kernels in (k for k in WITHOUT_LIBRARIES if ("batch_norm_add", "") in k.fusions):
        spare = [np.empty_like(x), empty(8), empty(8)]
        z = exact(kernels, "batch_norm", [x, *given, *spare], **FORWARD)[3:]
        y = exact(kernels, "batch_norm_add", [x, *given, other, *spare], activation="", **FORWARD)
        assert_bits([*y[3:5], *y[7:]], [*z[:2], *z[3:]])
        assert_bits([y[6]], [z[2] + other])


@pytest.mark.parametrize("kernels", [parameter(k) for k in FUSING])
@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", ["apart", "over dy", "a piece"])
def test_a_derivative_with_its_sum_gives_the_bits_of_the_two(kernels, shape, lay, form):
    x, dy, (gamma, *_) = around_kinks(shape, lay)
    c, (mean, inv_std) = shape[1], vectors(shape[1], 2)
    wide = lay(normal(shape[0], c + 5, *shape[2:], seed=6))
    other = wide[:, 2:-3] if form == "a piece" else lay(normal(*shape, seed=6))
    given = [x, gamma, mean, inv_std]
    dx, *gradients = exact(kernels, "batch_norm_derivative", [dy, *given, np.empty_like(x), empty(c), empty(c)])[5:]
    wanted = [exact(kernels, "add", [dx, other, np.empty_like(x)])[2], *gradients]
    target = np.copy(dy, order="K") if form == "over dy" else np.empty_like(x)
    got = [target, empty(c), empty(c)]
    tensors = [target if form == "over dy" else dy, *given, other, *got]
    run(kernels, "batch_norm_derivative_add", tensors, {})
    assert_bits(got, wanted)
